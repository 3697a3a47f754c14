//! The table of probes that a matrix is made with: the runner's own, or a third party's folder beside it.

pub mod problems;
pub mod rules;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ledger::bytes::canon::{WriteLineError, to_canonical};
use ledger::bytes::hash::Hash;
use ledger::facts::suite::{Suite, SuiteError};

/// Longest suite file, in bytes.
const MAX_SUITE: u64 = 1 << 20;
/// Longest program of a third party, in bytes.
const MAX_PROGRAM: u64 = 64 << 20;
/// What errors call the table that the runner was built with.
const BUILT_IN: &str = "suite.json (built in)";

/// A suite, ready to be run.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The table, every hash filled in.
    pub suite: Suite,
    /// Its blob.
    pub blob: Vec<u8>,
    /// The hash of the blob, which names it in records.
    pub sha256: Hash,
    /// The folder of a third party's programs; absent for the runner's own suite.
    pub folder: Option<PathBuf>,
}

/// Why there is no suite.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum LoadSuiteError {
    /// A file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    #[diagnostic(
        code(runner::suite::read),
        help(
            "a suite is a folder with suite.json and the programs that it names; docs/probes.md shows one"
        )
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no suite.
    #[error("{path}, line {line}, column {column}: {what}", path = path.display())]
    #[diagnostic(code(runner::suite::form), help("docs/probes.md describes the form"))]
    Form {
        /// The file.
        path: PathBuf,
        /// Where, from 1 on.
        line: usize,
        /// Where in the line, from 1 on.
        column: usize,
        /// What is wrong there.
        what: String,
    },
    /// Its rows contradict each other.
    #[error("{path}: {source}", path = path.display())]
    #[diagnostic(code(runner::suite::rows))]
    Rows {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SuiteError,
    },
    /// A row that cannot be run so, or that is the runner's own and says something else than the built-in one.
    #[error("{path}: probe {probe}, {field}: found {found}, expected {expected}", path = path.display())]
    #[diagnostic(
        code(runner::suite::row),
        help(
            "`runner validate` shows every such place; a row with a `program` of its own says what it likes"
        )
    )]
    Row {
        /// The suite's file.
        path: PathBuf,
        /// The row.
        probe: String,
        /// Its field.
        field: &'static str,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
    /// A program that is no plain file below the folder.
    #[error("{path}: probe {probe} names the program {program:?}, expected a file of the suite's folder, without `..`", path = path.display())]
    #[diagnostic(code(runner::suite::program))]
    Program {
        /// The suite's file.
        path: PathBuf,
        /// The row.
        probe: String,
        /// What it names.
        program: String,
    },
    /// The effective suite cannot be written.
    #[error("the suite cannot be written")]
    #[diagnostic(code(runner::suite::write))]
    Write(#[from] WriteLineError),
}

/// Reads the runner's own suite, whose probe program has this hash.
///
/// # Errors
/// The table that this program was built with is wrong; a test keeps that from happening.
pub fn own(text: &str, program: Hash) -> Result<Loaded, LoadSuiteError> {
    let mut suite = parse(text, Path::new(BUILT_IN))?;
    suite.program = Some(program);
    suite.module = Some(Hash::of(super::program::MODULE));
    finish(suite, None)
}

/// Reads a third party's suite from its folder.
///
/// # Errors
/// It cannot be read, or is none.
pub fn third_party(folder: &Path, program: Hash) -> Result<Loaded, LoadSuiteError> {
    // Bare runs start elsewhere.
    let folder = &std::path::absolute(folder).map_err(|source| LoadSuiteError::Read {
        path: folder.to_owned(),
        source,
    })?;
    let path = folder.join("suite.json");
    let text = read(&path, MAX_SUITE)?;
    let text = String::from_utf8(text).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        LoadSuiteError::Form {
            path: path.clone(),
            line: 1,
            column: valid + 1,
            what: "not UTF-8 from this byte on".to_owned(),
        }
    })?;
    let mut suite = parse(&text, &path)?;
    let own = parse(super::program::SUITE, Path::new(BUILT_IN))?;
    if let Some(first) = rules::mistakes(&suite, &own).into_iter().next() {
        let row = suite.probes.get(first.row);
        return Err(LoadSuiteError::Row {
            path,
            probe: row.map_or_else(|| format!("number {}", first.row), |row| row.id.to_string()),
            field: first.field,
            found: first.found,
            expected: first.expected,
        });
    }
    suite.program = Some(program);
    suite.module = Some(Hash::of(super::program::MODULE));
    for probe in &mut suite.probes {
        let Some(named) = &mut probe.program else {
            continue;
        };
        let plain = !named.path.is_empty()
            && Path::new(&named.path)
                .components()
                .all(|part| matches!(part, std::path::Component::Normal(_)));
        if !plain {
            return Err(LoadSuiteError::Program {
                path,
                probe: probe.id.to_string(),
                program: named.path.clone(),
            });
        }
        let content = read(&folder.join(&named.path), MAX_PROGRAM)?;
        named.sha256 = Some(Hash::of(&content));
    }
    finish(suite, Some(folder.to_owned()))
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, LoadSuiteError> {
    let read = || {
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        if metadata.len() > most {
            let length = metadata.len();
            return Err(io::Error::other(format!(
                "it has {length} bytes, expected at most {most}"
            )));
        }
        fs::read(path)
    };
    read().map_err(|source| LoadSuiteError::Read {
        path: path.to_owned(),
        source,
    })
}

fn parse(text: &str, path: &Path) -> Result<Suite, LoadSuiteError> {
    if let Some(at) = crate::runtime::document::list_for_object(text, &rules::OBJECTS) {
        let before = text.get(..at).unwrap_or(text);
        let line_begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        return Err(LoadSuiteError::Form {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: at - line_begin + 1,
            what: "found a list, expected an object".to_owned(),
        });
    }
    let suite: Suite = serde_json::from_str(text).map_err(|error| LoadSuiteError::Form {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
        what: error.to_string(),
    })?;
    suite.check().map_err(|source| LoadSuiteError::Rows {
        path: path.to_owned(),
        source,
    })?;
    Ok(suite)
}

fn finish(suite: Suite, folder: Option<PathBuf>) -> Result<Loaded, LoadSuiteError> {
    let blob = to_canonical(&suite)?;
    Ok(Loaded {
        sha256: Hash::of(&blob),
        suite,
        blob,
        folder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"schema":"containment-ledger/suite/v1","probes":[{"id":"mine","control":"network","risk":"controlled",
        "arguments":[],"arms":["run"],"program":{"path":"probe.sh"},
        "checks":[{"check":"mine","denied":["EPERM"],"oracle":"line","twin":"allowed"}]}]}"#;

    fn folder(suite: &str, program: Option<&str>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("suite.json"), suite).unwrap();
        if let Some(text) = program {
            fs::write(folder.path().join("probe.sh"), text).unwrap();
        }
        folder
    }

    #[test]
    fn the_blob_names_every_program() {
        let program = Hash::of(b"own");
        let place = folder(ROW, Some("#!/bin/sh\n"));
        let loaded = third_party(place.path(), program).unwrap();
        let text = String::from_utf8(loaded.blob.clone()).unwrap();
        assert!(
            text.contains(&Hash::of(b"#!/bin/sh\n").to_string()),
            "{text}"
        );
        assert!(text.contains(&program.to_string()), "{text}");
        assert_eq!(loaded.sha256, Hash::of(&loaded.blob));
        fs::write(place.path().join("probe.sh"), "#!/bin/dash\n").unwrap();
        let other = third_party(place.path(), program).unwrap();
        assert_ne!(other.sha256, loaded.sha256);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file_and_place() {
        let said = |suite: &str, program: Option<&str>| {
            let place = folder(suite, program);
            let error = third_party(place.path(), Hash::of(b"own")).unwrap_err();
            error
                .to_string()
                .replace(&place.path().display().to_string(), "DIR")
        };
        assert_eq!(said(ROW, None), "cannot read DIR/probe.sh");
        assert!(said("{", None).starts_with("DIR/suite.json, line 1, column 1: "));
        let unknown = said(&ROW.replace("\"risk\"", "\"rixk\""), None);
        assert!(unknown.contains("rixk"), "{unknown}");
        let outside = said(&ROW.replace("probe.sh", "../probe.sh"), None);
        assert!(outside.contains("without `..`"), "{outside}");
        let none = said(&ROW.replace("[\"run\"]", "[\"baseline\"]"), None);
        assert!(none.contains("no arm `run`"), "{none}");
        let list = said(&format!("\n  [{ROW}]"), None);
        assert_eq!(
            list,
            "DIR/suite.json, line 2, column 3: found a list, expected an object"
        );
        let own = ROW.replace(r#""program":{"path":"probe.sh"},"#, "");
        let own = own.replace("\"id\":\"mine\"", "\"id\":\"network\"");
        let own = own.replace("\"arguments\":[]", "\"arguments\":[\"network\"]");
        let own = own.replace("\"check\":\"mine\"", "\"check\":\"tcp4\"");
        let weak = said(&own, None);
        assert!(
            weak.starts_with("DIR/suite.json: probe network, oracle: found the oracle line"),
            "{weak}"
        );
        let zero = said(
            &ROW.replace("\"arguments\":[]", r#""arguments":["\u0000"]"#),
            None,
        );
        assert!(zero.contains("probe mine, arguments: found"), "{zero}");
        let empty = tempfile::tempdir().unwrap();
        let error = third_party(empty.path(), Hash::of(b"own")).unwrap_err();
        assert!(error.to_string().contains("suite.json"), "{error}");
    }
}
