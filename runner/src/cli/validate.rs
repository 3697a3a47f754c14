//! `runner validate`: check policy files.

use std::path::{Path, PathBuf};

use clap::Args;
use ledger::bytes::text::clean;
use ledger::facts::policy::Policy;

use super::{Global, NEGATIVE, report};

/// What `validate` takes.
#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Policy files, or folders of them [default: the catalogue]
    paths: Vec<PathBuf>,
}

pub(super) fn run(global: &Global, args: &ValidateArgs) -> u8 {
    let mut results = Vec::new();
    if args.paths.is_empty() {
        for entry in ledger::facts::policy::CATALOGUE {
            results.push((
                PathBuf::from(format!("{}.json", entry.id)),
                check(entry.id, entry.text.as_bytes(), global),
            ));
        }
    }
    for path in &args.paths {
        match files(path) {
            Ok(files) => {
                for file in files {
                    let good = match std::fs::read(&file) {
                        Ok(text) => check(&file.display().to_string(), &text, global),
                        Err(error) => {
                            report::error_line(&format!("cannot read {}: {error}", file.display()));
                            false
                        }
                    };
                    results.push((file, good));
                }
            }
            Err(error) => {
                report::error_line(&format!("cannot read {}: {error}", path.display()));
                results.push((path.clone(), false));
            }
        }
    }
    let good = results.iter().all(|(_, good)| *good) && !results.is_empty();
    if global.is_json() {
        let rows: Vec<_> = results
            .iter()
            .map(|(path, good)| serde_json::json!({ "path": path, "valid": good }))
            .collect();
        report::print_json(&rows);
    } else {
        for (path, good) in &results {
            report::print(&format!(
                "{} {}\n",
                if *good { "valid  " } else { "invalid" },
                clean(&path.display().to_string())
            ));
        }
        if results.is_empty() {
            report::error_line("no policy files there");
        }
    }
    if good { 0 } else { NEGATIVE }
}

fn check(name: &str, text: &[u8], _global: &Global) -> bool {
    match Policy::parse(name, text) {
        Ok(_) => true,
        Err(error) => {
            report::policy_error(error);
            false
        }
    }
}

/// The file itself, or the `.json` files of a folder, sorted.
fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
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
