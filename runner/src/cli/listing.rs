//! `runner runtimes` and `runner policies`.

use std::path::PathBuf;

use clap::Args;
use ledger::bytes::text::clean;
use ledger::facts::control::Control;
use ledger::facts::policy::{CATALOGUE, Catalogued};

use super::choose::native_is_allowed;
use super::validate::files;
use super::{FAILED, Global, NEGATIVE, USAGE, report};
use crate::plan::{Reason, Runtime as _};
use crate::runtime::template::Template;

/// What `policies` takes.
#[derive(Debug, Args)]
pub(super) struct PoliciesArgs {
    /// Show this one
    name: Option<String>,
}

/// What `runtimes` takes.
#[derive(Debug, Args)]
pub(super) struct RuntimesArgs {
    /// Runtime templates to show as well; of a folder its *.json
    #[arg(value_name = "PATH")]
    templates: Vec<PathBuf>,
    /// Ask the programs of templates for their versions, which starts them as the caller
    #[arg(long)]
    allow_native: bool,
}

pub(super) fn runtimes(global: &Global, args: &RuntimesArgs) -> u8 {
    let (mut templates, mut files_of) = (Vec::new(), Vec::new());
    for path in &args.templates {
        // What cannot be read is told of below.
        let found = files(path).unwrap_or_else(|_| vec![path.clone()]);
        if found.is_empty() {
            report::error_line(&format!(
                "no runtime template (*.json) in {}",
                path.display()
            ));
            return USAGE;
        }
        files_of.extend(found);
    }
    for path in &files_of {
        match Template::load(path) {
            Ok(template) => templates.push(template),
            Err(error) => {
                report::diagnostic(error);
                return USAGE;
            }
        }
    }
    let allowed = args.allow_native || native_is_allowed();
    let all = crate::runtime::all();
    if global.is_json() {
        let here = all.iter().map(|runtime| {
            let missing = runtime.is_missing();
            let mut row = serde_json::json!({
                "id": runtime.id(),
                "available": missing.is_none(),
                "isolates": runtime.id() != "native",
            });
            match missing {
                None => row["version"] = runtime.version().into(),
                Some(why) => row["reason"] = why.to_string().into(),
            }
            row
        });
        let described = templates.iter().map(|template| {
            let missing = lacks(template, allowed);
            let mut row = serde_json::json!({
                "id": template.id(),
                "available": missing.is_none(),
                "isolates": false,
                "declares": template.declares().collect::<Vec<_>>(),
                "needs": template.needs(),
            });
            match missing {
                Some(why) => row["reason"] = why.into(),
                None if allowed => row["version"] = template.version().into(),
                None => {
                    if let Some(version) = template.version_unasked() {
                        row["version"] = version.into();
                    }
                }
            }
            row
        });
        report::print_json(&here.chain(described).collect::<Vec<_>>());
        return 0;
    }
    let mut text = String::new();
    for runtime in &all {
        let id = runtime.id();
        if let Some(why) = runtime.is_missing() {
            text.push_str(&format!("{id:<10} -        not available: {why}\n"));
            continue;
        }
        let what = match id {
            "native" => "isolates nothing; needs --allow-native",
            "bwrap" => "bubblewrap, with the runner's filters; second to embedded",
            "wasi" => "WebAssembly modules (WASI preview 1), without anything of the kernel's",
            "unshare" => "namespaces of util-linux alone: network and process",
            _ => "the runner's own sandbox; the default",
        };
        text.push_str(&format!("{id:<10} {:<8} {what}\n", runtime.version()));
    }
    for template in &templates {
        let declared: Vec<&str> = template.declares().map(Control::as_str).collect();
        let declared = if declared.is_empty() {
            "nothing".to_owned()
        } else {
            declared.join(", ")
        };
        let id = template.id();
        if let Some(why) = lacks(template, allowed) {
            text.push_str(&format!("{id:<10} -        not available: {why}\n"));
            continue;
        }
        let version = if allowed {
            Some(template.version())
        } else {
            template.version_unasked()
        };
        let version = version.as_deref().unwrap_or("not asked");
        text.push_str(&format!(
            "{id:<10} {version:<8} a template; needs --allow-native; says that it controls {declared}\n"
        ));
        for need in template.needs() {
            text.push_str(&format!("{:<10} {:<8} needs {}\n", "", "", clean(need)));
        }
    }
    report::print(&text);
    0
}

/// Why nothing of a template runs here. Its program is started only where that is allowed.
fn lacks(template: &Template, allowed: bool) -> Option<String> {
    if allowed {
        return template.is_missing().map(|why| why.to_string());
    }
    let why = template.lacks_program()?;
    let needs = match template.needs() {
        [] => String::new(),
        needs => format!("; {} needs {}", template.id(), needs.join("; ")),
    };
    Some(format!("{} ({why}{needs})", Reason::RUNTIME_MISSING))
}

pub(super) fn policies(global: &Global, args: &PoliciesArgs) -> u8 {
    let Some(name) = &args.name else {
        return list(global);
    };
    match Catalogued::find(name) {
        Ok(found) => {
            report::print(found.text);
            0
        }
        Err(error) => {
            report::error_line(&error.to_string());
            NEGATIVE
        }
    }
}

fn list(global: &Global) -> u8 {
    let mut rows = Vec::new();
    for entry in CATALOGUE {
        match entry.policy() {
            Ok(policy) => rows.push(policy),
            Err(error) => {
                report::policy_error(error);
                return FAILED;
            }
        }
    }
    if global.is_json() {
        let rows: Vec<_> = rows
            .iter()
            .map(|policy| {
                serde_json::json!({
                    "id": policy.id,
                    "description": policy.description,
                    "mode": policy.enforcement.mode,
                    "requiredControls": policy.enforcement.required_controls,
                    "wantedControls": policy.enforcement.wanted_controls,
                })
            })
            .collect();
        report::print_json(&rows);
        return 0;
    }
    let text: String = rows
        .iter()
        .map(|policy| format!("{:<18} {}\n", policy.id, policy.description))
        .collect();
    report::print(&text);
    0
}
