//! A template from the file that it stands in.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ledger::bytes::hash::Hash;

use super::Template;
use super::document::{Document, OBJECTS};
use crate::runtime::document::{Unrepeated, list_for_object};

/// Longest document, in bytes.
const MAX_DOCUMENT: u64 = 256 << 10;

/// Why a document describes no runtime.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ReadTemplateError {
    /// It cannot be read.
    #[error("cannot read the runtime template {path}", path = path.display())]
    #[diagnostic(code(runner::template::read))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too long.
    #[error("{path} has more than {MAX_DOCUMENT} bytes, which no runtime template has", path = path.display())]
    #[diagnostic(code(runner::template::too_long))]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// It is not the JSON that it should be.
    #[error("{path}: {what}", path = path.display())]
    #[diagnostic(
        code(runner::template::form),
        help("schema/runtime.schema.json says what a runtime template looks like")
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// Where and what.
        what: String,
    },
    /// A field says something that cannot be.
    #[error("{path}: {field}: {what}", path = path.display())]
    #[diagnostic(
        code(runner::template::field),
        help("docs/runtimes.md describes each field")
    )]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What was found and what was expected.
        what: String,
    },
}

/// A place in a text, as a JSON parser names it.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, str::len) + 1;
    format!("at line {line} column {column}")
}

impl Template {
    /// Reads a document.
    ///
    /// # Errors
    /// It cannot be read, or says something that cannot be.
    pub fn load(path: &Path) -> Result<Self, ReadTemplateError> {
        use std::io::Read as _;
        let failed = |source| ReadTemplateError::Read {
            path: path.to_owned(),
            source,
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut text = Vec::new();
        file.take(MAX_DOCUMENT + 1)
            .read_to_end(&mut text)
            .map_err(failed)?;
        if text.len() as u64 > MAX_DOCUMENT {
            return Err(ReadTemplateError::TooLong {
                path: path.to_owned(),
            });
        }
        Self::parse(path, &text)
    }

    /// Reads the text of a document; `path` is for messages.
    ///
    /// # Errors
    /// It says something that cannot be.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, ReadTemplateError> {
        if text.len() as u64 > MAX_DOCUMENT {
            return Err(ReadTemplateError::TooLong {
                path: path.to_owned(),
            });
        }
        let form = |what: String| ReadTemplateError::Form {
            path: path.to_owned(),
            what,
        };
        let list = std::str::from_utf8(text)
            .ok()
            .and_then(|text| Some((text, list_for_object(text, &OBJECTS)?)));
        if let Some((text, at)) = list {
            let place = place(text, at);
            return Err(form(format!("found a list {place}, expected an object")));
        }
        let read = serde_json::from_slice::<Unrepeated>(text)
            .and_then(|Unrepeated| serde_json::from_slice::<Document>(text));
        let document = read.map_err(|error| form(error.to_string()))?;
        let sound = document
            .check()
            .map_err(|(field, what)| ReadTemplateError::Field {
                path: path.to_owned(),
                field,
                what,
            })?;
        Ok(Self {
            id: sound.id,
            document: Hash::of(text).to_string().chars().take(16).collect(),
            version: sound.version.unwrap_or_else(|| "0".to_owned()),
            version_command: sound.version_command,
            needs: sound.needs,
            found: OnceLock::new(),
            said: OnceLock::new(),
            declares: sound.declares,
            way: sound.way,
            folders: sound.folders,
            cleanup: sound.cleanup,
            calibration: sound.calibration,
            ablations: sound.ablations,
        })
    }
}
