use super::*;

fn parse(text: &str) -> Result<Template, String> {
    let error = |error: ReadTemplateError| error.to_string();
    Template::parse(Path::new("t.json"), text.as_bytes()).map_err(error)
}

/// What a workload of these words makes of a template's command.
fn command(template: &Template, argv: &[&str], values: &mut Values) -> Vec<String> {
    if let Some((program, arguments)) = argv.split_first() {
        values.add("program", [program.as_bytes()]);
        for argument in arguments {
            values.add("argument", [argument.as_bytes()]);
        }
    }
    let words = template.way.words(values).into_iter();
    words.map(|word| word.into_string().unwrap()).collect()
}

#[test]
fn a_command_is_made_of_words() {
    let template = parse(
        r#"{"id":"a","declares":[],"command":["sh","-c","${x} {} $1","{program}","{arguments}","end"]}"#,
    )
    .unwrap();
    let words = |argv: &[&str]| command(&template, argv, &mut Values::default());
    assert_eq!(
        words(&["p", "a b", "c"]),
        ["sh", "-c", "${x} {} $1", "p", "a b", "c", "end"]
    );
    assert_eq!(words(&["p"]), ["sh", "-c", "${x} {} $1", "p", "end"]);
    assert!(template.way.has_program());
}

#[test]
fn a_word_stands_there_as_often_as_what_it_names() {
    let template = parse(
        r#"{"id":"a","declares":[],"command":["x","--env={variable}","--bind={read-source}:{read-target}:ro",
        "--memory={memory}","--cpus={cpus}","{program}"]}"#,
    )
    .unwrap();
    let mut values = Values::default();
    values.set("cpus", "0.500");
    values.add("variable", [b"A".as_slice(), b"secret"]);
    values.add("variable", [b"B".as_slice(), b""]);
    values.add("read", [b"/from".as_slice(), b"/to"]);
    assert_eq!(
        command(&template, &["p"], &mut values),
        [
            "x",
            "--env=A",
            "--env=B",
            "--bind=/from:/to:ro",
            "--cpus=0.500",
            "p"
        ]
    );
    assert!(template.shows_workload());
    assert!(
        !parse(r#"{"id":"a","declares":[],"command":["x","{program}"]}"#)
            .unwrap()
            .shows_workload()
    );
}

#[test]
fn a_file_is_filled_in_like_a_command() {
    let template = parse(
        r#"{"id":"a","declares":[],"command":["x","{scratch}"],"folders":["rootfs"],"files":{
        "config.json":{"args":["{program}","{arguments}"],"env":["{variable}={value}"],
            "limit":"{memory}","pids":"{processes}","id":"{uid}","name":"{name}","text":"{memory} bytes",
            "mounts":[{"type":"proc"},{"to":"{read-target}","options":["ro","{name}"]}],"none":[{"to":"{write-target}"}]},
        "environment":["{variable}={value}","end"]}}"#,
    )
    .unwrap();
    let mut values = Values::default();
    values.set("name", "7");
    values.set("uid", "1000");
    values.set("memory", "4096");
    values.add("read", [b"/from".as_slice(), b"/to"]);
    values.add("variable", [b"A".as_slice(), b"a \"b\""]);
    command(&template, &["p", "q", "r"], &mut values);
    let file = |values: &Values, name: &str| {
        let text = values.file(&template.way.files[name]);
        text.map(|text| String::from_utf8(text).unwrap())
    };
    let found: serde_json::Value =
        serde_json::from_str(&file(&values, "config.json").unwrap()).unwrap();
    let expected = serde_json::json!({
        "args": ["p", "q", "r"], "env": ["A=a \"b\""], "limit": 4096, "id": 1000, "name": "7",
        "text": "4096 bytes", "mounts": [{"type": "proc"}, {"to": "/to", "options": ["ro", "7"]}], "none": [],
    });
    assert_eq!(found, expected);
    assert_eq!(file(&values, "environment").unwrap(), "A=a \"b\"\nend\n");
    let recorded = values.clone().without_variables();
    assert_eq!(file(&recorded, "environment").unwrap(), "A={value}\nend\n");
    values.add("variable", [b"B".as_slice(), b"two\nlines"]);
    let error = file(&values, "environment").unwrap_err().to_string();
    assert!(
        error.contains("the variable B holds a line break"),
        "{error}"
    );
    assert!(!error.contains("lines"), "the value stays unsaid: {error}");
    assert!(file(&values, "config.json").is_ok());
    values.add("variable", [b"C".as_slice(), b"\xff"]);
    assert!(
        file(&values, "config.json")
            .unwrap_err()
            .to_string()
            .contains("UTF-8")
    );
}

#[test]
fn an_element_without_its_limit_is_not_there() {
    let template = parse(
        r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"c.json":{"memory":{"limit":"{memory}","swap":"{memory}"},
        "rlimits":[{"type":"RLIMIT_NOFILE","soft":"{open-files}","hard":"{open-files}"},{"type":"tmpfs","options":["size={disk}","ro"]}]}}}"#,
    )
    .unwrap();
    let file = |values: &Values| values.file(&template.way.files["c.json"]).unwrap();
    let mut values = Values::default();
    assert_eq!(
        String::from_utf8(file(&values)).unwrap(),
        r#"{"memory":{},"rlimits":[{"options":["ro"],"type":"tmpfs"}]}"#
    );
    for (name, value) in [("open-files", "64"), ("memory", "4096"), ("disk", "1")] {
        values.set(name, value);
    }
    assert_eq!(
        String::from_utf8(file(&values)).unwrap(),
        r#"{"memory":{"limit":4096,"swap":4096},"rlimits":[{"hard":64,"soft":64,"type":"RLIMIT_NOFILE"},{"options":["size=1","ro"],"type":"tmpfs"}]}"#
    );
}

#[test]
fn a_document_is_not_too_long_for_whoever_reads_it() {
    let long = format!(
        r#"{{"id":"a","description":"{}","declares":[],"command":["x","{{program}}"]}}"#,
        "d".repeat(256 << 10)
    );
    assert!(parse(&long).unwrap_err().contains("more than 262144 bytes"));
}

#[test]
fn a_part_may_be_left_out() {
    let template = parse(
        r#"{"id":"a","declares":[{"control":"network","mechanism":"m"}],"command":["x","--net","none","-q","--","{program}"],
        "files":{"c.json":{"namespaces":[{"type":"pid"},{"type":"network"},{"type":"ipc"}]}},
        "flags":[{"words":["--net","none"],"reason":"control","controls":["network"],"why":"cuts"},
            {"words":["-q"],"reason":"output-only","why":"says less"},
            {"at":"c.json#/namespaces/1","reason":"control","controls":["network"],"why":"cuts"}],
        "ablations":{"network":{"replace":[{"words":["--net","none"],"by":["--net","host"]},{"words":["-q"]}],
            "remove":["c.json#/namespaces/0","c.json#/namespaces/1"]}}}"#,
    )
    .unwrap();
    let way = &template.ablations[&Control::Network];
    assert_eq!(way.command, ["x", "--net", "host", "--", "{program}"]);
    let left = Values::default().file(&way.files["c.json"]).unwrap();
    assert_eq!(left, br#"{"namespaces":[{"type":"ipc"}]}"#);
}

#[test]
fn a_limit_is_declared_where_the_policy_sets_one() {
    let template = parse(
        r#"{"id":"a","declares":[{"control":"memory","mechanism":"m","value":"{memory} bytes"}],"command":["x","-m{memory}","{program}"]}"#,
    )
    .unwrap();
    let answer = |policy: &str| {
        let policy = Policy::parse("p.json", policy.as_bytes()).unwrap();
        template.answer(Control::Memory, &policy, &Job::default())
    };
    let enforcement = r#""id":"p","enforcement":{"mode":"best-effort","requiredControls":[],"wantedControls":[]}"#;
    let Answer::Intends(intent) = answer(&format!(
        "{{{enforcement},\"resources\":{{\"memoryMb\":2}}}}"
    )) else {
        panic!("expected a limit");
    };
    assert_eq!(intent.value.as_deref(), Some("2097152 bytes"));
    let none = answer(&format!("{{{enforcement}}}"));
    assert_eq!(none, Answer::Cannot(Reason::POLICY_SETS_NO_LIMIT.into()));
    // One that it sets, and that the words cannot say.
    let template = parse(
        r#"{"id":"a","declares":[{"control":"timeout","mechanism":"m","value":"{timeout} s"}],"command":["x","{program}"]}"#,
    )
    .unwrap();
    let resources = r#""resources":{"timeoutMs":1500}"#;
    let policy = format!("{{{enforcement},{resources}}}");
    let policy = Policy::parse("p.json", policy.as_bytes()).unwrap();
    let Answer::Cannot(why) = template.answer(Control::Timeout, &policy, &Job::default()) else {
        panic!("expected a reason");
    };
    assert_eq!(why.reason, Reason::POLICY_ASKS_MORE);
    assert!(why.to_string().contains("{timeout} s"), "{why}");
}

#[test]
fn a_version_is_found_in_what_a_program_says() {
    for (said, expected) in [
        ("podman version 4.3.1\n", Some("4.3.1")),
        ("firejail version 0.9.72\n\nCompile", Some("0.9.72")),
        ("runc version 1.1.5+ds1\ncommit: 1", Some("1.1.5+ds1")),
        (
            "Docker version 20.10.24+dfsg1, build 297e128",
            Some("20.10.24+dfsg1"),
        ),
        ("runsc version release-20240807.0\n", None),
        (
            "systemd 252 (252.39-1~deb12u2)\n+PAM",
            Some("252.39-1~deb12u2"),
        ),
        ("nothing of the kind. At all.", None),
    ] {
        assert_eq!(program::version_in(said).as_deref(), expected, "{said}");
    }
    let missing = parse(
        r#"{"id":"a","versionCommand":["/no/such/program"],"declares":[],"command":["/no/such/program","{program}"]}"#,
    )
    .unwrap();
    assert!(missing.version().starts_with("none template:"));
    assert!(missing.is_missing().unwrap().to_string().contains("ENOENT"));
}

#[test]
fn what_is_made_for_a_launch_goes_after_it() {
    let marker = tempfile::tempdir().unwrap();
    let mark = marker.path().join("cleaned");
    let mut scratch = Scratch::new([7; 8]);
    scratch.make().unwrap();
    let folder = scratch.path();
    scratch.folder(Path::new("a/b")).unwrap();
    scratch.file(Path::new("c/d.json"), b"{}").unwrap();
    assert!(
        scratch.file(Path::new("c/d.json"), b"").is_err(),
        "never over another"
    );
    let words = ["/bin/sh", "-c", "test -d \"$1\" && : >\"$2\"", "sh"].map(OsString::from);
    let mut command = words.to_vec();
    command.extend([folder.clone().into(), mark.clone().into()]);
    let gone = vec![OsString::from("/no/such/program")];
    let fails = [
        "/bin/sh",
        "-c",
        "echo first >&2; echo still there >&2; exit 3",
    ];
    let fails = fails.map(OsString::from).to_vec();
    let silent = ["/bin/sh", "-c", "exit 4"].map(OsString::from).to_vec();
    scratch.arm(vec![gone, fails, silent, command], Vec::new());
    drop(scratch);
    let left = crate::runtime::scratch::take_left();
    for said in [
        "/bin/sh of tmp.containment-0707070707070707 fails (exit status: 3): still there; what",
        "/bin/sh of tmp.containment-0707070707070707 fails (exit status: 4); what",
    ] {
        assert!(left.iter().any(|it| it.contains(said)), "{left:?}");
    }
    let own = left.iter().filter(|it| it.contains("0707070707070707"));
    assert_eq!(own.count(), 3, "who succeeds says nothing: {left:?}");
    assert!(
        left.iter()
            .any(|it| it
                .contains("/no/such/program of tmp.containment-0707070707070707 gives ENOENT")),
        "{left:?}"
    );
    assert!(mark.exists(), "run before the folder goes");
    assert!(!folder.exists());
}

#[test]
fn places_are_made_for_what_is_shown() {
    let template = parse(
        r#"{"id":"a","declares":[],"command":["x","{program}"],"folders":["r{read-target}","r{write-target}","r/tmp"]}"#,
    )
    .unwrap();
    let mut values = Values::default();
    values.add("read", [b"/usr".as_slice(), b"/lib/deep"]);
    values.add("read", [b"/proc/self/status".as_slice(), b"/etc/file"]);
    let mut scratch = Scratch::new([9; 8]);
    template
        .furnish(&template.way, &values, &mut scratch)
        .unwrap();
    let root = scratch.path().join("r");
    assert!(root.join("lib/deep").is_dir() && root.join("tmp").is_dir());
    assert!(root.join("etc/file").is_file());
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 3);
}

#[test]
fn an_ablation_changes_what_it_names() {
    let template = parse(
        r#"{"id":"a","declares":[],"command":["x","{program}"],"ablations":
        {"network":{"command":["{program}"]},"environment":{"environment":"inherit"}}}"#,
    )
    .unwrap();
    let network = &template.ablations[&Control::Network];
    assert_eq!(network.command, ["{program}"]);
    assert_eq!(network.environment, Environment::Clear);
    let environment = &template.ablations[&Control::Environment];
    assert_eq!(environment.command, ["x", "{program}"]);
    assert_eq!(environment.environment, Environment::Inherit);
}

#[test]
fn a_list_of_the_values_is_no_document() {
    let whole = r#"["a","1",null,[],["x","{program}"]]"#;
    let inside = r#"{"id":"a","declares":[["network","m"]],"command":["x","{program}"]}"#;
    for (text, place) in [
        (whole.to_owned(), "line 1 column 1"),
        (inside.to_owned(), "line 1 column 23"),
        (inside.replace(":[[", ":\n  [["), "line 2 column 4"),
    ] {
        let error = parse(&text).unwrap_err();
        let expected = format!("t.json: found a list at {place}, expected an object");
        assert_eq!(error, expected, "{text}");
    }
    // The other way round.
    for field in [
        r#""ablations":{"network":{"replace":{"--nett":[]}}}"#,
        r#""flags":{"words":[]}"#,
        r#""ran":{"version":[]}"#,
    ] {
        let text = format!(
            "{{\"id\":\"a\",\"declares\":[],\"command\":[\"x\",\"{{program}}\"],\n{field}}}"
        );
        let error = parse(&text).unwrap_err();
        let says = "invalid type: map, expected a sequence at line 2 column";
        assert!(error.contains(says), "{text}: {error}");
    }
}

fn shown(rows: &[(&'static str, &str, &str)]) -> Values {
    let mut values = Values::default();
    for (group, source, target) in rows {
        values.add(group, [source.as_bytes(), target.as_bytes()]);
    }
    values
}

#[test]
fn neighbours_for_folders_stand_there_folder_by_folder() {
    let template = parse(
        r#"{"id":"a","declares":[],"command":["x","{arguments}","--ro={read-source}:{read-target}","--rw={write-source}:{write-target}","-v","{program}"],
        "files":{"c.json":{"mounts":[{"to":"/proc"},{"to":"{read-target}","of":"{read-source}","options":["ro"]},
            {"to":"{write-target}","of":"{write-source}","options":["rw","{name}"]},{"to":"/dev"}]},
            "lines":["first","ro {read-source} {read-target}","rw {write-source} {write-target}","last"]}}"#,
    )
    .unwrap();
    for rows in [
        [
            ("write", "/w", "/w"),
            ("read", "/r", "/w/r"),
            ("write", "/x", "/w/r/x"),
        ],
        [
            ("read", "/r", "/r"),
            ("write", "/w", "/r/w"),
            ("read", "/s", "/r/w/s"),
        ],
        [
            ("read", "/r", "/r"),
            ("read", "/s", "/r/s"),
            ("read", "/t", "/t"),
        ],
    ] {
        let mut values = shown(&rows);
        values.set("name", "n");
        let mode = |group: &str| if group == "read" { "ro" } else { "rw" };
        let all = |text: &dyn Fn(&str, &str, &str) -> String| -> Vec<String> {
            rows.iter()
                .map(|(group, source, target)| text(mode(group), source, target))
                .collect()
        };
        let words = all(&|mode, source, target| format!("--{mode}={source}:{target}"));
        let words = [
            vec!["x".to_owned()],
            words,
            vec!["-v".to_owned(), "p".to_owned()],
        ]
        .concat();
        assert_eq!(command(&template, &["p"], &mut values), words);
        let lines = all(&|mode, source, target| format!("{mode} {source} {target}"));
        let lines = format!("first\n{}\nlast\n", lines.join("\n"));
        let file = |name: &str| {
            let file = values.file(&template.way.files[name]).unwrap();
            String::from_utf8(file).unwrap()
        };
        assert_eq!(file("lines"), lines);
        let mounts: serde_json::Value = serde_json::from_str(&file("c.json")).unwrap();
        let expected = rows.iter().map(|(group, source, target)| {
            let options: &[&str] = if *group == "read" {
                &["ro"]
            } else {
                &["rw", "n"]
            };
            serde_json::json!({ "to": target, "of": source, "options": options })
        });
        let (proc, dev) = ("/proc", "/dev");
        let mut expected: Vec<serde_json::Value> = expected.collect();
        expected.insert(0, serde_json::json!({ "to": proc }));
        expected.push(serde_json::json!({ "to": dev }));
        assert_eq!(mounts["mounts"], serde_json::Value::from(expected));
    }
}

/// A plan that shows folders in these places.
fn plan(template: &Template, binds: &[(&str, &str, bool)], covered: &[&str]) -> Plan {
    let policy = r#"{"id":"p","enforcement":{"mode":"best-effort"}}"#;
    let policy = Policy::parse("p.json", policy.as_bytes()).unwrap();
    let mut plan = crate::plan::compile(policy, Job::default(), template).unwrap();
    let binds = binds
        .iter()
        .map(|(source, target, read_only)| crate::plan::Bind {
            source: source.into(),
            target: target.into(),
            read_only: *read_only,
        });
    plan.tree.binds = binds.collect();
    plan.tree.covered = covered.iter().map(PathBuf::from).collect();
    plan
}

fn refusal(template: &Template, binds: &[(&str, &str, bool)], covered: &[&str]) -> Option<String> {
    match template.try_here(&plan(template, binds, covered)) {
        Ok(()) => None,
        Err(LaunchError::Refused { control, why, what }) => {
            assert_eq!(
                (control, why.reason),
                (Control::Filesystem, Reason::CANNOT_SHOW)
            );
            Some(what)
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn folders_in_one_another_are_shown_by_who_is_told_their_order_alone() {
    let document = |command: &str, files: &str| {
        let text = format!(
            r#"{{"id":"a","declares":[],"command":["x",{command},"{{program}}"],"files":{{{files}}}}}"#
        );
        parse(&text).unwrap()
    };
    let read = r#""--ro={read-source}:{read-target}""#;
    let write = r#""--rw={write-source}:{write-target}""#;
    let told = document(&format!("{write},{read}"), "");
    let beside = r#"{"to":"{read-target}","of":"{read-source}"},{"to":"{write-target}","of":"{write-source}"}"#;
    let told_by_file = document("\"-q\"", &format!("\"c.json\":{{\"mounts\":[{beside}]}}"));
    let apart = [
        document(&format!("{read},\"-q\",{write}"), ""),
        document(read, &format!("\"lines\":[{write}]")),
        document("\"-q\"", &format!("\"a\":[{read}],\"b\":[{write}]")),
        document(
            "\"-q\"",
            &format!(
                "\"c.json\":{{\"mounts\":[{}]}}",
                beside.replace("},{", "},{\"to\":\"/tmp\"},{")
            ),
        ),
    ];
    let nested: [&[(&str, &str, bool)]; 3] = [
        &[("/w", "/w", false), ("/w/sub", "/w/sub", true)],
        &[("/r", "/r", true), ("/w", "/r/w", false)],
        &[
            ("/r", "/r", true),
            ("/s", "/r/s", true),
            ("/w", "/r/s/w", false),
        ],
    ];
    let others: [&[(&str, &str, bool)]; 3] = [
        &[("/w", "/w", false), ("/r", "/w2", true)],
        &[("/r", "/r", true), ("/r/s", "/r/s", true)],
        &[("/w", "/w", false), ("/w/s", "/w/s", false)],
    ];
    for binds in nested {
        for template in &apart {
            let found = refusal(template, binds, &[]);
            assert!(
                found.as_ref().is_some_and(|it| it.contains("in no order")),
                "{template:#?} {binds:?}: {found:?}"
            );
        }
        for template in [&told, &told_by_file] {
            assert_eq!(refusal(template, binds, &[]), None, "{binds:?}");
        }
    }
    for binds in others {
        for template in apart.iter().chain([&told, &told_by_file]) {
            assert_eq!(refusal(template, binds, &[]), None, "{binds:?}");
        }
    }
    // What no workload may see.
    let binds: &[(&str, &str, bool)] = &[("/r", "/r", true)];
    assert_eq!(refusal(&told, binds, &["/usr/keys"]), None);
    let found = refusal(&told, binds, &["/r/keys"]).unwrap();
    assert!(found.contains("cannot cover /r/keys"), "{found}");
}

#[test]
fn every_shipped_template_that_shows_folders_is_told_their_order() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/runtimes");
    let mut shows = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let template = Template::load(&entry.unwrap().path()).unwrap();
        for way in std::iter::once(&template.way).chain(template.ablations.values()) {
            assert!(way.keeps_order(), "{}", template.id);
        }
        shows += usize::from(template.shows_workload());
    }
    assert!(shows > 6, "{shows}");
}

#[test]
fn what_cannot_be_is_refused() {
    let long = format!(
        r#"{{"id":"{}","declares":[],"command":["x","{{program}}"]}}"#,
        "a".repeat(65)
    );
    for (text, named) in [
        ("", "EOF"),
        ("[]", "t.json"),
        (r#"{"id":"a","declares":[]}"#, "command"),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"more":1}"#,
            "more",
        ),
        (
            r#"{"id":"","declares":[],"command":["x","{program}"]}"#,
            "id",
        ),
        (
            r#"{"id":"A","declares":[],"command":["x","{program}"]}"#,
            "id",
        ),
        (
            r#"{"id":"../a","declares":[],"command":["x","{program}"]}"#,
            "id",
        ),
        (&long, "id"),
        (
            r#"{"id":"embedded","declares":[],"command":["x","{program}"]}"#,
            "built in",
        ),
        (
            r#"{"id":"a","version":"","declares":[],"command":["x","{program}"]}"#,
            "version",
        ),
        (r#"{"id":"a","declares":[],"command":[]}"#, "command"),
        (r#"{"id":"a","declares":[],"command":[""]}"#, "command"),
        (
            r#"{"id":"a","declares":[],"command":["{arguments}"]}"#,
            "command",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{args}"]}"#,
            "{args}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","--m={memry}"]}"#,
            "{memry}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}{arguments}"]}"#,
            "in one word",
        ),
        (
            r#"{"id":"a","version":"1","versionCommand":["x"],"declares":[],"command":["x","{program}"]}"#,
            "versionCommand",
        ),
        (r#"{"id":"a","declares":[],"command":["x"]}"#, "{program}"),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"ablations":{"network":{"command":["x"]}}}"#,
            "ablations, network: found no {program}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{variable}={value}","{program}"]}"#,
            "expected values in files alone",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"cleanup":[["y","{value}"]]}"#,
            "cleanup: found {value}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"ablations":{"network":{"command":["{value}","{program}"]}}}"#,
            "ablations, network: found {value}",
        ),
        (
            r#"{"id":"a","declares":[{"control":"memory","mechanism":"m","value":"{value}"}],"command":["x","{program}"]}"#,
            "declares, memory: found {value}",
        ),
        (
            r#"{"id":"a","declares":[{"control":"memory","mechanism":"{memory}"}],"command":["x","{program}"]}"#,
            "expected no placeholder",
        ),
        (
            r#"{"id":"a","version":"{name}","declares":[],"command":["x","{program}"]}"#,
            "version: found {name}",
        ),
        (
            r#"{"id":"a","version":"1 template:0","declares":[],"command":["x","{program}"]}"#,
            "version: found \"template:\"",
        ),
        (
            r#"{"id":"a","versionCommand":["x","{nmae}"],"declares":[],"command":["x","{program}"]}"#,
            "versionCommand: found {nmae}",
        ),
        (
            r#"{"id":"a","versionCommand":["y"],"declares":[],"command":["x","{program}"]}"#,
            "versionCommand: found \"y\", expected the program that is launched, \"x\"",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{Memory}","{program}"]}"#,
            "{Memory}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"folders":["{scrach}"]}"#,
            "folders: found {scrach}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"f":{"{name}":1}}}"#,
            "files, f: found {name}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"f":[],"f/g":[]}}"#,
            "f/g below the file f",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"f":[]},"folders":["f"]}"#,
            "found f and f",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"f":[],"f":[]}}"#,
            "found the member \"f\" twice",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"f":{"g":[{"h":1,"h":2}]}}}"#,
            "found the member \"h\" twice",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"../a":{}}}"#,
            "files",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"a":{"b":["{c}"]}}}"#,
            "files, a",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"folders":["/a"]}"#,
            "folders",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"cleanup":[[]]}"#,
            "cleanup",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"calibration":["getcup"]}"#,
            "getcup",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","--y","{program}"],"flags":[{"words":["--z"],"reason":"output-only","why":"w"}]}"#,
            "nowhere",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","--y","--y","{program}"],"flags":[{"words":["--y"],"reason":"output-only","why":"w"}]}"#,
            "twice",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","--y","--z","{program}"],"flags":[{"words":["--y"],"reason":"output-only","why":"w"}]}"#,
            "found none for --z",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","--y","{program}"],"flags":[{"words":["--y"],"reason":"output-only","why":" "}]}"#,
            "why",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","--y","{program}"],"flags":[{"words":["--y"],"reason":"control","why":"w"}]}"#,
            "controls",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","--y","{program}"],"flags":[{"words":["--y"],"reason":"control","controls":["network"],"why":"w"}]}"#,
            "found network, which stands not",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"flags":[{"at":"a.json#/b","reason":"output-only","why":"w"}]}"#,
            "not there",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"ablations":{"network":{"replace":[{"words":["y"]}]}}}"#,
            "nowhere",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"ablations":{"network":{"remove":["a.json#/b"]}}}"#,
            "not there",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x\u0000","{program}"]}"#,
            "zero byte",
        ),
        (
            r#"{"id":"a","declares":[{"control":"net","mechanism":"m"}],"command":["x","{program}"]}"#,
            "net",
        ),
        (
            r#"{"id":"a","declares":[{"control":"network","mechanism":""}],"command":["x","{program}"]}"#,
            "network",
        ),
        (
            r#"{"id":"a","declares":[{"control":"network","mechanism":"m"},{"control":"network","mechanism":"n"}],"command":["x","{program}"]}"#,
            "twice",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"ablations":{"network":{}}}"#,
            "ablations, network",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"ablations":{"network":{"command":["{y}"]}}}"#,
            "ablations, network",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","--ro","{read-source}","/data","{program}"]}"#,
            "command: found {read-source} without {read-target}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{read-source}","{read-target}","{program}"]}"#,
            "found {read-source} without {read-target}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"f":["{write-source} /data"]}}"#,
            "found {write-source} without {write-target}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"f":{"m":[{"of":"{write-source}","to":"/data"}]}}}"#,
            "found {write-source} without {write-target}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"ablations":{"network":{"command":["--w={write-source}","{program}"]}}}"#,
            "ablations, network: found {write-source} without {write-target}",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","--r={read-source}:{read-target}:{disk}","{program}"]}"#,
            "found {read-source} and {disk} in one",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"f":{"of":"{read-source}","to":"{read-target}"}}}"#,
            "files, f: found {read-source} outside of a list",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x"],"files":{"f":{"run":"{program}"}}}"#,
            "files, f: found {program} outside of a list",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"files":{"f":{"m":[{"of":"{read-source}","to":"{write-target}"}]}}}"#,
            "found {write-target} where each read stands",
        ),
        (
            r#"{"id":"a","declares":[],"command":[]}"#,
            "command: found no words, expected a program",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x","{program}"],"cleanup":[[]]}"#,
            "cleanup: found no words, expected a program",
        ),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(named), "{text}: {error}");
    }
}
