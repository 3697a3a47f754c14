//! What the suite's own module finds, and that it is what its text says.

use std::path::Path;

use super::{DECLARED, modules};
use crate::matrix::verdicts;
use crate::verifier::{NO_VERIFIER, verdict, verifier};
use crate::world::skip;

/// Where the assembled module is kept.
fn assembled() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../probes/wasi/probe.wasm")
}

/// With `CONTAINMENT_ASSEMBLE` set it is written first.
#[test]
fn the_probe_module_is_what_its_text_says() {
    let text = include_str!("../../../../probes/wasi/probe.wat");
    let bytes = wat::parse_str(text).unwrap();
    if std::env::var_os("CONTAINMENT_ASSEMBLE").is_some() {
        std::fs::write(assembled(), &bytes).unwrap();
    }
    let kept = std::fs::read(assembled()).unwrap();
    assert!(
        kept == bytes,
        "probes/wasi/probe.wasm is not what probes/wasi/probe.wat says: set CONTAINMENT_ASSEMBLE=1 and run this test again"
    );
}

#[test]
fn a_module_is_contained_where_it_can_try_and_the_rest_does_not_arise() {
    let world = modules!();
    let required = DECLARED.map(|control| format!("--require wasi:{control}=contained"));
    let ran = world.run(&format!(
        "matrix --json --strict --runtime wasi {}",
        required.join(" ")
    ));
    let ran = ran.ended(0);
    let document = ran.json();
    let found = verdicts(&ran);
    let suite: serde_json::Value =
        serde_json::from_str(include_str!("../../../../probes/suite.json")).unwrap();
    let mut tried = 0;
    for probe in suite["probes"].as_array().unwrap() {
        let control = probe["control"].as_str().unwrap();
        for check in probe["checks"].as_array().unwrap() {
            let id = format!("{control}/{}", check["check"].as_str().unwrap());
            let (verdict, reason) = &found[&id];
            if check["module"] == true {
                tried += 1;
                let forbidden = reason == "host-forbids" || reason == "oracle-unavailable";
                assert!(
                    verdict == "contained" || forbidden,
                    "{id}: {verdict} {reason}"
                );
            } else {
                assert_eq!(verdict, "not-applicable", "{id}");
                assert_eq!(reason, "runtime-runs-no-programs", "{id}");
            }
        }
        let cells = document["cells"].as_array().unwrap().iter();
        let mut cells = cells.filter(|cell| {
            let check = cell["check"].as_str().unwrap();
            check.split('/').next() == Some(control)
        });
        assert!(cells.all(|cell| cell["declared"] == DECLARED.contains(&control)));
    }
    assert_eq!(tried, 16);
    let Some(verify) = verifier() else {
        return skip("a_module_is_contained", NO_VERIFIER);
    };
    let verdict = verdict(verify, &world.ledger(), None);
    assert_eq!(verdict.code, 0, "{:#?}", verdict.document);
}
