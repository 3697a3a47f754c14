use super::*;
use crate::measure::program::SUITE;

fn own() -> Suite {
    serde_json::from_str(SUITE).unwrap()
}

/// `LINE: found …, expected …`, of a suite with an executable `good.sh` and a `plain.txt` beside it.
fn said(text: &str) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    for (name, mode) in [("good.sh", 0o755), ("plain.txt", 0o644)] {
        let file = folder.path().join(name);
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let all = problems("suite.json", text, folder.path(), &own()).into_iter();
    let path = folder.path().display().to_string();
    all.map(|it| format!("{}: {it}", it.line).replace(&path, "DIR"))
        .collect()
}

const GOOD: &str = r#"{ "schema": "containment-ledger/suite/v1", "probes": [
  { "id": "mine", "control": "network", "risk": "controlled", "program": { "path": "good.sh" },
    "arguments": [], "arms": ["baseline", "run"], "checks": [
      { "check": "mine", "oracle": "listener", "twin": "instrument",
        "denied": ["EPERM"] } ] },
  { "id": "files", "control": "files", "risk": "controlled",
    "arguments": ["files"], "arms": ["baseline", "run"], "checks": [
      { "check": "open", "oracle": "line", "twin": "allowed",
        "denied": ["EMFILE"] } ] } ] }"#;

#[test]
fn the_runners_own_suite_has_none() {
    let none = problems("suite.json", SUITE, Path::new("/"), &own());
    assert!(none.is_empty(), "{none:?}");
    assert!(without_a_check("suite.json", SUITE, &own()).is_empty());
}

#[test]
fn each_control_has_a_check() {
    for control in Control::ALL {
        let mut suite = own();
        suite.probes.retain(|probe| probe.control != *control);
        let text = serde_json::to_string_pretty(&suite).unwrap();
        let found = without_a_check("suite.json", &text, &suite);
        let said: Vec<_> = found.iter().map(ToString::to_string).collect();
        let expected =
            format!("found no probe that attacks {control}, expected one for each control");
        assert_eq!(said, [expected]);
        assert_eq!(found[0].line, text.lines().count());
    }
}

#[test]
fn each_dimension_of_the_mission_has_a_probe() {
    // What the product was asked to attack in the first place.
    const MISSION: [Control; 8] = [
        Control::Network,
        Control::Filesystem,
        Control::Process,
        Control::Environment,
        Control::Privilege,
        Control::Memory,
        Control::Processes,
        Control::Syscalls,
    ];
    for dimension in MISSION {
        let suite = own();
        let rows = suite.probes.iter().filter(|it| it.control == dimension);
        let rows: Vec<_> = rows.filter(|row| row.is_own()).collect();
        assert_eq!(rows.len(), 1, "{dimension}");
        let arms = &rows[0].arms;
        assert!(
            arms.contains(&Arm::Run) && arms.contains(&Arm::Ablation),
            "{dimension}"
        );
    }
}

#[test]
fn each_mistake_has_its_line_what_was_found_and_what_was_expected() {
    assert_eq!(said(GOOD), Vec::<String>::new());
    let cases: [(&str, &str, &str); 17] = [
        (
            "suite/v1",
            "suite/v2",
            r#"1: found the schema "containment-ledger/suite/v2", expected "containment-ledger/suite/v1""#,
        ),
        (
            "\"network\"",
            "\"netwrok\"",
            "2: found unknown variant `netwrok`, expected one of `network`, `filesystem`",
        ),
        (
            "\"risk\": \"controlled\", \"program\"",
            "\"rixk\": \"controlled\", \"program\"",
            "2: found unknown field `rixk`, expected one of ",
        ),
        (
            "] } ] } ] }",
            "] } ] } ]",
            "9: found EOF while parsing an object, expected a suite",
        ),
        (
            "[\"EPERM\"]",
            "[]",
            "5: found no denied error for the check mine, expected the names with which",
        ),
        (
            "\"listener\"",
            "\"canary\"",
            "4: found the oracle canary for a check of network, expected one of listener, line",
        ),
        (
            "\"mine\", \"control\"",
            "\"files\", \"control\"",
            "6: found the probe files again, expected each once; the first is in line 2",
        ),
        (
            "\"check\": \"open\"",
            "\"check\": \"close\"",
            "8: found the check close, expected one that the runner's own probe makes of files: open",
        ),
        (
            "{ \"path\": \"good.sh\" }",
            "{ \"path\": \"gone.sh\" }",
            "2: found ENOENT for DIR/gone.sh, expected a program there",
        ),
        (
            "{ \"path\": \"good.sh\" }",
            "{ \"path\": \".\" }",
            "2: found the program \".\", expected a file below the suite's folder, without `..`",
        ),
        (
            "{ \"path\": \"good.sh\" }",
            "{ \"path\": \"../good.sh\" }",
            "2: found the program \"../good.sh\", expected a file below",
        ),
        (
            "{ \"path\": \"good.sh\" }",
            "{ \"path\": \"plain.txt\" }",
            "2: found no right to execute DIR/plain.txt, expected one (chmod +x)",
        ),
        (
            "[], \"arms\": [\"baseline\", \"run\"]",
            "[], \"arms\": [\"baseline\"]",
            "3: found the arms [\"baseline\"], expected `run` among them",
        ),
        (
            "[], \"arms\": [\"baseline\", \"run\"]",
            "[], \"arms\": [\"run\", \"run\"]",
            "3: found the arm run again, expected each once",
        ),
        (
            "[\"files\"], \"arms\": [\"baseline\", \"run\"]",
            "[\"files\"], \"arms\": [\"run\"]",
            "7: found the arms [\"run\"], expected baseline or ablation beside it",
        ),
        (
            "[\"files\"], ",
            "[\"file\"], ",
            "7: found the arguments [\"file\"], expected [\"files\"]",
        ),
        (
            "\"id\": \"files\"",
            "\"id\": \"many\"",
            "6: found the id many, expected files, which the runner's own probe calls itself",
        ),
    ];
    for (from, to, expected) in cases {
        assert!(GOOD.contains(from), "{from}");
        let found = said(&GOOD.replacen(from, to, 1));
        assert_eq!(found.len(), 1, "{to}: {found:#?}");
        assert!(found[0].starts_with(expected), "{to}: {found:#?}");
    }
    let abuse = GOOD.replacen("controlled", "resource-abuse", 1);
    let expected = "3: found the arm baseline with the risk resource-abuse, expected none: what uses something up is never run bare";
    assert_eq!(said(&abuse), [expected]);
    let harmless = SUITE.replacen("resource-abuse", "controlled", 1);
    let found = said(&harmless);
    assert_eq!(found.len(), 1, "{found:#?}");
    let expected = "found the risk controlled for memory, expected resource-abuse";
    assert!(found[0].contains(expected), "{found:#?}");
    let list = said(&format!("[{GOOD}]"));
    assert_eq!(list, ["1: found a list, expected an object"]);
    let weaker = said(&GOOD.replacen("\"twin\": \"allowed\"", "\"twin\": \"instrument\"", 1));
    assert_eq!(
        weaker,
        [
            "8: found the twin instrument for the check open, expected allowed, as in the runner's own row"
        ]
    );
    let unknown = said(&GOOD.replacen("EPERM", "EPERN", 1));
    assert_eq!(
        unknown,
        ["5: found the denied error EPERN, expected an error or a signal of Linux, or `none`"]
    );
    let bad = said(&GOOD.replacen("EPERM", "perm", 1));
    assert!(
        bad[0].starts_with("5: found ") && !bad[0].contains("found found"),
        "{bad:?}"
    );
    // Two mistakes are two.
    let two = GOOD
        .replacen("[\"EPERM\"]", "[]", 1)
        .replacen("[\"EMFILE\"]", "[]", 1);
    assert_eq!(said(&two).len(), 2);
}

#[test]
fn no_text_makes_it_fail() {
    for text in [
        "",
        "{",
        "[]",
        "[[], \"containment-ledger/suite/v1\"]",
        "{\"é\"",
        "{\"probes\":[],\"schema\":\"é\n\"}",
        "\u{feff}{}",
    ] {
        for problem in problems("suite.json", text, Path::new("/"), &own()) {
            let shown = format!("{:?}", miette::Report::new(problem));
            assert!(shown.contains("suite.json"), "{text}: {shown}");
        }
    }
}
