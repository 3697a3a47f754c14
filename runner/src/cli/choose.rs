//! Policies and runtimes by what a command line calls them.

use std::path::{Path, PathBuf};

use ledger::facts::policy::{CATALOGUE, Catalogued, Policy};

use super::command_line::CommandLineError;
use crate::plan::Runtime;
use crate::runtime::template::Template;

/// Whether what may be a name or a file is a file.
fn names_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(".json")
}

/// A policy by name or file.
pub(super) fn load_policy(name: &str) -> Result<Policy, CommandLineError> {
    if names_file(name) {
        let path = PathBuf::from(name);
        let text = std::fs::read(&path).map_err(|source| CommandLineError::PolicyFile {
            path: path.clone(),
            source,
        })?;
        return Ok(Policy::parse(name, &text)?);
    }
    debug_assert!(!CATALOGUE.is_empty());
    Ok(Catalogued::find(name)?.policy()?)
}

/// Whether the environment allows runtimes that isolate nothing.
pub(super) fn native_is_allowed() -> bool {
    std::env::var_os("RUNNER_ALLOW_NATIVE").is_some_and(|value| value == "1")
}

/// A runtime by name, or by the file of its document; `allowed` says whether one that isolates nothing by itself may be.
pub(super) fn choose_runtime(
    name: &str,
    allowed: bool,
) -> Result<Box<dyn Runtime>, CommandLineError> {
    if names_file(name) {
        let template = Template::load(Path::new(name))?;
        if !allowed {
            return Err(CommandLineError::NotAllowed);
        }
        return Ok(Box::new(template));
    }
    if name == "native" && !allowed {
        return Err(CommandLineError::Native);
    }
    let all = crate::runtime::all();
    // Who gets here with it chooses among them, and it is no choice.
    let auto = (name != "auto").then(|| "auto".to_owned());
    let mut names: Vec<String> = auto.into_iter().collect();
    names.extend(all.iter().map(|runtime| runtime.id().to_owned()));
    if let Some(runtime) = all.into_iter().find(|runtime| runtime.id() == name) {
        return Ok(runtime);
    }
    Err(CommandLineError::Runtime(format!(
        "there is no runtime {name:?}; expected {}, or the file of a template, such as examples/runtimes/firejail.json",
        names.join(", ")
    )))
}
