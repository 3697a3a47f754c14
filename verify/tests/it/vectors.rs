//! Every vector gives its exit code and one of its codes, through the library and through the binary.

use std::fs;
use std::path::PathBuf;

use ledger::file::source::Source;
use ledger::file::walk::Given;
use ledger::finding::{Class, Code};
use serde::Deserialize;
use verify::rules::{Demands, Verification};

use crate::support::{json, vectors, verify};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expected {
    exit_code: u8,
    any_of: Vec<String>,
}

struct Vector {
    name: String,
    folder: PathBuf,
    expected: Expected,
}

impl Vector {
    fn given(&self) -> Option<PathBuf> {
        let path = self.folder.join("given-checkpoint");
        path.exists().then_some(path)
    }

    fn check(&self, exit_code: u8, codes: &[Code], shown: &str) {
        let name = &self.name;
        assert_eq!(exit_code, self.expected.exit_code, "{name}: {shown}");
        if self.expected.any_of.is_empty() {
            let bad = codes.iter().find(|code| code.class() != Class::Observation);
            assert_eq!(bad, None, "{name}: {shown}");
        } else {
            let mut any = self.expected.any_of.iter().map(|code| code.parse());
            assert!(
                any.any(|code| codes.contains(&code.unwrap())),
                "{name}: expected one of {:?}: {shown}",
                self.expected.any_of
            );
        }
    }
}

fn all() -> Vec<Vector> {
    let vectors: Vec<Vector> = fs::read_dir(vectors())
        .unwrap()
        .map(|entry| {
            let folder = entry.unwrap().path();
            let expected = fs::read(folder.join("expected.json")).unwrap();
            Vector {
                name: folder.file_name().unwrap().to_str().unwrap().to_owned(),
                expected: serde_json::from_slice(&expected).unwrap(),
                folder,
            }
        })
        .collect();
    assert!(vectors.len() >= 59, "only {} vectors", vectors.len());
    vectors
}

fn verified(vector: &Vector) -> Verification {
    let checkpoint = vector.given().map(|path| fs::read(path).unwrap());
    let demands = Demands {
        checkpoint: checkpoint.as_deref().map(|bytes| Given {
            name: "given-checkpoint",
            bytes,
        }),
        ..Demands::default()
    };
    let mut source = Source::open(&vector.folder.join("ledger")).unwrap();
    verify::rules::verify(&mut source, demands).unwrap()
}

#[test]
fn through_the_library() {
    for vector in all() {
        let result = verified(&vector);
        let codes: Vec<Code> = result.findings.iter().map(|it| it.code).collect();
        vector.check(result.exit_code, &codes, &format!("{result:#?}"));
    }
}

#[test]
fn through_the_binary() {
    for vector in all() {
        let mut command = verify();
        command
            .arg(vector.folder.join("ledger"))
            .args(["--format", "json"]);
        if let Some(given) = vector.given() {
            command.arg("--checkpoint").arg(given);
        }
        let output = command.output().unwrap();
        let result = json(&output);
        let exit_code = output.status.code().unwrap();
        assert_eq!(result["exitCode"], exit_code, "{}", vector.name);
        let findings = result["findings"].as_array().unwrap();
        let codes: Vec<Code> = findings
            .iter()
            .map(|finding| finding["code"].as_str().unwrap().parse().unwrap())
            .collect();
        vector.check(
            u8::try_from(exit_code).unwrap(),
            &codes,
            &format!("{result:#}"),
        );
        assert!(output.stderr.is_empty(), "{}", vector.name);
    }
}

#[test]
fn the_verdict_stands_in_the_first_line_for_people() {
    for vector in all() {
        let mut command = verify();
        command.arg(vector.folder.join("ledger")).arg("-q");
        if let Some(given) = vector.given() {
            command.arg("--checkpoint").arg(given);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let word = match vector.expected.exit_code {
            0 => "VERIFIED",
            10 => "INVALID",
            11 => "NOT PROVEN",
            12 => "DISAGREEMENT",
            13 => "NO RECORDS",
            other => panic!("{}: exit code {other}", vector.name),
        };
        assert!(text.starts_with(word), "{}: {text}", vector.name);
        assert_eq!(text.lines().count(), 1, "{}: {text}", vector.name);
    }
}
