use super::*;
use crate::facts::fixtures::host;

fn row(runtime: &str, check: &str, verdict: CellVerdict, reason: Option<CellReason>) -> Row {
    Row {
        check: check.to_owned(),
        declared: runtime != "native",
        detail: format!("detail of {check}"),
        reason,
        runtime: runtime.to_owned(),
        undeclared: None,
        verdict,
    }
}

fn table(rows: Vec<Row>) -> Table {
    Table {
        host: host(),
        policy: PolicyRef {
            id: "containment-audit".to_owned(),
            sha256: Hash::of(b"policy"),
        },
        rows,
        runtimes: Vec::new(),
        sequence: Some(57),
        suite: Hash::of(b"suite"),
    }
}

fn plain(_: Tone, text: &str) -> String {
    text.to_owned()
}

#[test]
fn the_table_reads_from_what_is_measured_to_what_to_do() {
    let rows = vec![
        row("embedded", "network/tcp4", CellVerdict::Contained, None),
        row(
            "embedded",
            "memory/touch",
            CellVerdict::FalseGuarantee,
            None,
        ),
        row(
            "embedded",
            "network/path",
            CellVerdict::Inconclusive,
            Some(CellReason::PathPresent),
        ),
        row("native", "network/tcp4", CellVerdict::Escaped, None),
    ];
    let expected = "\
matrix 57  policy containment-audit, uid 0, Linux 6.1 x86_64

                            embedded          native
network/tcp4                \u{2713} contained       \u{25cb} escaped
memory/touch                \u{2717} false-guarantee not measured
network/path                ? inconclusive    not measured

\u{2717} false-guarantee, embedded, declared
  why  the attack succeeded although the runtime declares the control
  do   do not rely on it here; `verify explain false-guarantee`
    memory/touch             detail of memory/touch

? inconclusive: path-present, embedded, declared
  why  nothing came through, and the sandbox still has a way out
  do   measure as root, where the way out itself can be tried
    network/path             detail of network/path

\u{25cb} escaped, native, not declared
  why  the attack succeeded; nothing was promised, so it is an honest gap
  do   require the control (`--require`), or use a runtime that declares it
    network/tcp4             detail of network/tcp4
";
    assert_eq!(table(rows).to_text(&plain), expected);
}

#[test]
fn every_table_fits_80_columns_whatever_the_names_are() {
    let long = "x".repeat(300);
    let mut rows = Vec::new();
    for runtime in ["a", "b", "c", "d", &long, "\u{1b}[2J\u{202e}"] {
        for reason in CellReason::ALL {
            let check = format!("network/{reason}-{long}");
            let mut row = row(runtime, &check, CellVerdict::Inconclusive, Some(*reason));
            row.detail = format!("{long}\n{long}");
            rows.push(row);
        }
    }
    let text = table(rows).to_text(&plain);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    let titles = text
        .lines()
        .filter(|line| line.starts_with("? inconclusive: path-present, "));
    assert_eq!(titles.count(), 6, "{text}");
}

#[test]
fn colours_are_the_callers() {
    let rows = vec![row("embedded", "a/b", CellVerdict::Contained, None)];
    let painted = table(rows).to_text(&|tone, text| format!("<{tone:?} {text}>"));
    assert!(painted.contains("<Good \u{2713} contained>"), "{painted}");
}

#[test]
fn the_document_is_one_clean_line() {
    let mut rows = vec![row(
        "embedded",
        "network/tcp4",
        CellVerdict::Contained,
        None,
    )];
    rows[0].detail = "a\u{202e}b\u{1b}".to_owned();
    let json = table(rows).to_json().unwrap();
    assert!(json.ends_with("}\n") && json.lines().count() == 1);
    assert!(!json.contains('\u{202e}'));
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["schema"], MATRIX_SCHEMA);
    assert_eq!(document["cells"][0]["dimension"], "network");
    assert_eq!(document["cells"][0]["detail"], "a\u{202e}b\u{1b}");
    assert_eq!(document["summary"]["runtimes"]["embedded"]["contained"], 1);
}
