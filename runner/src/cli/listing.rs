//! `runner runtimes` and `runner policies`.

use clap::Args;
use ledger::facts::policy::{CATALOGUE, Catalogued};

use super::{FAILED, Global, NEGATIVE, report};

/// What `policies` takes.
#[derive(Debug, Args)]
pub(super) struct PoliciesArgs {
    /// Show this one
    name: Option<String>,
}

pub(super) fn runtimes(global: &Global) -> u8 {
    let all = crate::runtime::all();
    if global.is_json() {
        let here = all.iter().map(|runtime| {
            serde_json::json!({ "id": runtime.id(), "version": runtime.version(), "available": true, "isolates": runtime.id() != "native" })
        });
        let later = crate::runtime::LATER.iter().map(
            |(id, needs)| serde_json::json!({ "id": id, "available": false, "reason": needs }),
        );
        report::print_json(&here.chain(later).collect::<Vec<_>>());
        return 0;
    }
    let mut text = String::new();
    for runtime in &all {
        let what = match runtime.id() {
            "native" => "isolates nothing; needs --allow-native",
            _ => "the runner's own sandbox; the default",
        };
        text.push_str(&format!(
            "{:<10} {:<8} {what}\n",
            runtime.id(),
            runtime.version()
        ));
    }
    for (id, needs) in crate::runtime::LATER {
        text.push_str(&format!("{id:<10} -        {needs}\n"));
    }
    report::print(&text);
    0
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
