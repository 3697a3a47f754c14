//! `runner validate`: check policies, suites and runtime templates, each by itself and against what this runner has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use ledger::bytes::hash::Hash;
use ledger::bytes::text::clean;
use ledger::facts::control::Control;
use ledger::facts::policy::{CATALOGUE, Mode, Policy};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{Global, NEGATIVE, report};
use crate::measure::program::{PROGRAM, SUITE};
use crate::measure::suite::problems::{problems, without_a_check};
use crate::measure::suite::{own, third_party};
use crate::plan::{Answer, Job};
use crate::runtime::template::Template;

/// What errors call the table that the runner was built with.
const BUILT_IN: &str = "suite.json (built in)";

/// What `validate` takes.
#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Policy files, suites (a folder with suite.json, or that file), runtime templates, or folders of policies and templates
    /// [default: the catalogue and the runner's own suite]
    paths: Vec<PathBuf>,
}

/// What one document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Policy,
    Suite,
    Template,
}

/// What came of one document.
#[derive(Debug, serde::Serialize)]
struct Checked {
    /// Absent for what cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    path: PathBuf,
    /// Controls that it requires and that no runtime of this runner applies on this host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unanswered: Vec<Control>,
    valid: bool,
}

pub(super) fn run(global: &Global, args: &ValidateArgs) -> u8 {
    let mut results = Vec::new();
    if args.paths.is_empty() {
        for entry in CATALOGUE {
            let path = PathBuf::from(format!("{}.json", entry.id));
            results.push(policy(global, path, entry.text.as_bytes()));
        }
        results.push(built_in());
    }
    for path in &args.paths {
        let read = files(path).map(|files| {
            let read = files.into_iter().map(|file| match std::fs::read(&file) {
                Ok(text) => Ok(document(global, file, &text)),
                Err(error) => Err((file, error)),
            });
            read.collect::<Vec<_>>()
        });
        let read = read.unwrap_or_else(|error| vec![Err((path.clone(), error))]);
        for one in read {
            match one {
                Ok(checked) => results.push(checked),
                Err((path, error)) => {
                    report::error_line(&format!("cannot read {}: {error}", path.display()));
                    results.push(Checked {
                        kind: None,
                        path,
                        unanswered: Vec::new(),
                        valid: false,
                    });
                }
            }
        }
    }
    let good = results.iter().all(|one| one.valid) && !results.is_empty();
    if global.is_json() {
        report::print_json(&results);
    } else {
        for one in &results {
            report::print(&format!(
                "{} {}\n",
                if one.valid { "valid  " } else { "invalid" },
                clean(&one.path.display().to_string())
            ));
        }
        if results.is_empty() {
            report::error_line("no policy, no suite and no runtime template there");
        }
    }
    if good { 0 } else { NEGATIVE }
}

/// A suite by its name or its `probes`, a template by its `command` or its `declares`, else a policy. Of what is no JSON the same
/// words tell.
fn document(global: &Global, path: PathBuf, text: &[u8]) -> Checked {
    let top = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(text).ok();
    let has = |field: &str| match &top {
        Some(top) => top.contains_key(field),
        None => {
            let quoted = format!("\"{field}\"");
            let mut places = text.windows(quoted.len());
            places.any(|place| place == quoted.as_bytes())
        }
    };
    let named = path.file_name().is_some_and(|name| name == "suite.json");
    if named || has("probes") {
        suite(path, text)
    } else if has("command") || has("declares") {
        template(path, text)
    } else {
        policy(global, path, text)
    }
}

/// What a template says of a program is not tried: it need not be installed.
fn template(path: PathBuf, text: &[u8]) -> Checked {
    let valid = match Template::parse(&path, text) {
        Ok(_) => true,
        Err(error) => {
            report::diagnostic(error);
            false
        }
    };
    Checked {
        kind: Some(Kind::Template),
        path,
        unanswered: Vec::new(),
        valid,
    }
}

fn policy(global: &Global, path: PathBuf, text: &[u8]) -> Checked {
    let name = path.display().to_string();
    let (unanswered, valid) = match Policy::parse(&name, text) {
        Ok(policy) => (unanswered(global, &name, text, &policy), true),
        Err(error) => {
            report::policy_error(error);
            (Vec::new(), false)
        }
    };
    Checked {
        kind: Some(Kind::Policy),
        path,
        unanswered,
        valid,
    }
}

/// Controls that a policy requires and that no runtime intends here. The document may be right all the same, for another
/// host or a later version, so this is said and is no mistake.
fn unanswered(global: &Global, name: &str, text: &[u8], policy: &Policy) -> Vec<Control> {
    let job = Job::default();
    let runtimes = crate::runtime::all();
    // Why each cannot; native isolates nothing, so what it says of itself tells nobody anything.
    let lacks = |control: Control| {
        let isolating = runtimes.iter().filter(|runtime| runtime.id() != "native");
        let reasons = isolating.map(|it| match it.answer(control, policy, &job) {
            Answer::Intends(_) => None,
            Answer::Cannot(why) => Some(format!("{}: {}", it.id(), why.reason)),
        });
        let reasons = reasons.collect::<Option<Vec<_>>>()?;
        Some((control, reasons.join(", ")))
    };
    let required = policy.enforcement.required_controls.iter();
    let lacking: Vec<_> = required.filter_map(|control| lacks(*control)).collect();
    let outcome = match policy.enforcement.mode {
        Mode::Strict => "exec refuses it here (126)",
        Mode::BestEffort => "exec records controls-missing here",
    };
    if let (Some((first, _)), false) = (lacking.first(), global.quiet) {
        let line = line_of(text, *first).map_or_else(String::new, |line| format!(":{line}"));
        let each = lacking
            .iter()
            .map(|(control, why)| format!("{control} ({why})"));
        let each: Vec<_> = each.collect();
        report::warning_line(&format!(
            "{name}{line}: found required controls that no runtime applies here, {}; expected none: {outcome}",
            each.join(", ")
        ));
    }
    lacking.into_iter().map(|(control, _)| control).collect()
}

/// The line in which a policy requires a control.
fn line_of(text: &[u8], control: Control) -> Option<usize> {
    #[derive(Deserialize)]
    struct Top<'a> {
        #[serde(borrow)]
        enforcement: Enforcement<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Enforcement<'a> {
        #[serde(borrow)]
        required_controls: Vec<&'a RawValue>,
    }
    let top: Top<'_> = serde_json::from_slice(text).ok()?;
    let required = top.enforcement.required_controls.into_iter();
    let word = format!("{:?}", control.as_str());
    let piece = required.map(RawValue::get).find(|it| **it == word)?;
    let start = piece.as_ptr().addr() - text.as_ptr().addr();
    let newlines = text.get(..start)?.iter().filter(|byte| **byte == b'\n');
    Some(newlines.count() + 1)
}

/// A suite of third parties' programs, own rows, or both.
fn suite(path: PathBuf, text: &[u8]) -> Checked {
    let valid = is_good_suite(&path, text);
    Checked {
        kind: Some(Kind::Suite),
        path,
        unanswered: Vec::new(),
        valid,
    }
}

fn is_good_suite(path: &Path, text: &[u8]) -> bool {
    let program = Hash::of(PROGRAM);
    // An absolute folder: `suite.json` alone lies in one of an empty name.
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = whole.parent().unwrap_or(Path::new("/"));
    if let (Ok(text), Ok(own)) = (std::str::from_utf8(text), own(SUITE, program)) {
        let found = problems(&path.display().to_string(), text, folder, &own.suite);
        if !found.is_empty() {
            found.into_iter().for_each(report::diagnostic);
            return false;
        }
    }
    // What is left is what only reading the programs shows, or a text that is none.
    match third_party(folder, program) {
        Ok(_) => true,
        Err(error) => {
            report::diagnostic(error);
            false
        }
    }
}

/// The runner's own table, which has to have a check for each control.
fn built_in() -> Checked {
    let valid = match own(SUITE, Hash::of(PROGRAM)) {
        Ok(own) => {
            let mut found = problems(BUILT_IN, SUITE, Path::new("/"), &own.suite);
            found.extend(without_a_check(BUILT_IN, SUITE, &own.suite));
            let none = found.is_empty();
            found.into_iter().for_each(report::diagnostic);
            none
        }
        Err(error) => {
            report::diagnostic(error);
            false
        }
    };
    Checked {
        kind: Some(Kind::Suite),
        path: BUILT_IN.into(),
        unanswered: Vec::new(),
        valid,
    }
}

/// The file itself, the suite of a folder, or else the `.json` files of a folder, sorted.
pub(super) fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let suite = path.join("suite.json");
    if suite.is_file() {
        return Ok(vec![suite]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
