use super::*;

fn parse(text: &str) -> Result<Template, String> {
    let error = |error: ReadTemplateError| error.to_string();
    Template::parse(Path::new("t.json"), text.as_bytes()).map_err(error)
}

#[test]
fn a_command_is_made_of_words() {
    let template = parse(
        r#"{"id":"a","declares":[],"command":["sh","-c","{x} $1","{program}","{arguments}","end"]}"#,
    )
    .unwrap();
    let words = |argv: &[&str]| {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        template.way.command(&argv)
    };
    assert_eq!(
        words(&["p", "a b", "c"]),
        ["sh", "-c", "{x} $1", "p", "a b", "c", "end"]
    );
    assert_eq!(words(&["p"]), ["sh", "-c", "{x} $1", "p", "end"]);
    assert!(template.way.has_program());
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
    for text in [whole, inside] {
        let error = Template::parse(Path::new("t.json"), text.as_bytes()).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "found a list, expected an object", "{text}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let long = format!(
        r#"{{"id":"{}","declares":[],"command":["x"]}}"#,
        "a".repeat(65)
    );
    for (text, named) in [
        ("", "EOF"),
        ("[]", "t.json"),
        (r#"{"id":"a","declares":[]}"#, "command"),
        (
            r#"{"id":"a","declares":[],"command":["x"],"more":1}"#,
            "more",
        ),
        (r#"{"id":"","declares":[],"command":["x"]}"#, "id"),
        (r#"{"id":"A","declares":[],"command":["x"]}"#, "id"),
        (r#"{"id":"../a","declares":[],"command":["x"]}"#, "id"),
        (&long, "id"),
        (
            r#"{"id":"embedded","declares":[],"command":["x"]}"#,
            "built in",
        ),
        (
            r#"{"id":"a","version":"","declares":[],"command":["x"]}"#,
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
            r#"{"id":"a","declares":[],"command":["x\u0000"]}"#,
            "zero byte",
        ),
        (
            r#"{"id":"a","declares":[{"control":"net","mechanism":"m"}],"command":["x"]}"#,
            "net",
        ),
        (
            r#"{"id":"a","declares":[{"control":"network","mechanism":""}],"command":["x"]}"#,
            "network",
        ),
        (
            r#"{"id":"a","declares":[{"control":"network","mechanism":"m"},{"control":"network","mechanism":"n"}],"command":["x"]}"#,
            "twice",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x"],"ablations":{"network":{}}}"#,
            "ablations, network",
        ),
        (
            r#"{"id":"a","declares":[],"command":["x"],"ablations":{"network":{"command":["{y}"]}}}"#,
            "ablations, network",
        ),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(named), "{text}: {error}");
    }
}
