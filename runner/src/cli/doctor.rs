//! `runner doctor`: what this host allows, each thing found by trying.

use ledger::facts::policy::Catalogued;

use super::{FAILED, Global, NEGATIVE, report};
use crate::host::capability::{Capability, Finding, try_all};
use crate::mechanism::group;
use crate::plan::{self, Input, Job, Plan, Runtime};
use crate::runtime::bwrap::Bwrap;
use crate::runtime::embedded::Embedded;
use crate::runtime::unshare::Unshare;
use crate::runtime::wasi::Wasi;

/// Without these the embedded runtime builds no sandbox at all.
const ESSENTIAL: [&str; 2] = ["user-namespace", "mount-namespace"];
/// Nor without this for root, whose workloads have an id that is nobody's; others keep their own.
const ESSENTIAL_FOR_ROOT: &str = "other-ids";

pub(super) fn run(global: &Global) -> u8 {
    let facts = match crate::host::gather(None) {
        Ok(facts) => facts,
        Err(error) => {
            report::diagnostic(error);
            return FAILED;
        }
    };
    let mut capabilities = try_all(&facts);
    capabilities.extend(programs());
    capabilities.push(modules());
    capabilities.push(group::tried(&facts));
    let lacks = |one: &&Capability| {
        let essential =
            ESSENTIAL.contains(&one.name) || facts.uid == 0 && one.name == ESSENTIAL_FOR_ROOT;
        essential && matches!(one.finding, Finding::Fails { .. })
    };
    let ready = !capabilities.iter().any(|one| lacks(&one));
    let tier = Embedded::default().tier_by_trying();
    if global.is_json() {
        // Where no sandbox at all can be built there is no tier of one either.
        let tier = (ready || tier == "landlock").then_some(tier);
        let rows: Vec<_> = capabilities.iter().map(row).collect();
        report::print_json(&serde_json::json!({
            "schema": "runner/doctor/v1", "host": facts, "ready": ready, "tier": tier, "capabilities": rows,
        }));
    } else {
        print_text(&facts, &capabilities, ready, tier);
    }
    if ready { 0 } else { NEGATIVE }
}

/// Runtimes that are programs of somebody else's: each builds a sandbox around itself.
fn programs() -> Vec<Capability> {
    let tried = |name, runtime: &dyn Runtime, purpose, package| {
        let finding = match runtime.is_missing() {
            Some(why) => Finding::Fails {
                error: why.to_string(),
            },
            None => match plan_to_try().map(|plan| runtime.try_here(&plan)) {
                Some(Ok(())) => Finding::Works(Some(runtime.version())),
                Some(Err(error)) => Finding::Fails {
                    error: error.to_string(),
                },
                None => Finding::NotTried {
                    reason: "no policy to try it with".to_owned(),
                },
            },
        };
        // What is there and does not work is not mended by installing it again.
        let advice = match &finding {
            Finding::Fails { .. } if runtime.is_missing().is_some() => {
                Some(format!("install the package {package}, or do without it"))
            }
            Finding::Fails { .. } => {
                Some("what user-namespace and fresh-proc say above, or do without it".to_owned())
            }
            Finding::Works(_) | Finding::NotTried { .. } => None,
        };
        Capability {
            name,
            purpose,
            tried: format!("{name} with the namespaces of a sandbox around itself"),
            finding,
            advice,
        }
    };
    vec![
        tried(
            "bwrap",
            &Bwrap::default(),
            "the runtime bwrap",
            "bubblewrap",
        ),
        tried(
            "unshare",
            &Unshare::default(),
            "the runtime unshare",
            "util-linux",
        ),
    ]
}

/// The runtime for modules, whose program is built by itself and needs nothing of the host.
fn modules() -> Capability {
    let runtime = Wasi::default();
    Capability {
        name: "runner-wasi",
        purpose: "the runtime wasi",
        tried: "runner-wasi beside this program".to_owned(),
        advice: None,
        finding: match runtime.is_missing() {
            None => Finding::Works(Some(runtime.version())),
            Some(why) => Finding::Fails {
                error: format!("not available: {why}"),
            },
        },
    }
}

/// What the default policy asks of a runtime.
fn plan_to_try() -> Option<Plan> {
    let policy = Catalogued::find("standard").ok()?.policy().ok()?;
    let job = Job {
        argv: Vec::new(),
        cwd: None,
        caller_cwd: None,
        home: None,
        workload: None,
        secrets: Vec::new(),
        as_root: false,
        terminal: false,
        input: Input::Nothing,
        caller_environment: Vec::new(),
        evidence: Vec::new(),
        ablate: None,
        caller_terminal: None,
        measured: false,
    };
    plan::compile(policy, job, &Bwrap::default()).ok()
}

fn row(one: &Capability) -> serde_json::Value {
    let (works, detail, error) = match &one.finding {
        Finding::Works(detail) => (Some(true), detail.as_deref(), None),
        Finding::Fails { error } => (Some(false), None, Some(error.as_str())),
        Finding::NotTried { reason } => (None, Some(reason.as_str()), None),
    };
    serde_json::json!({
        "name": one.name, "purpose": one.purpose, "tried": one.tried, "works": works, "detail": detail,
        "error": error, "advice": one.advice,
    })
}

fn print_text(
    facts: &ledger::facts::host::HostFacts,
    capabilities: &[Capability],
    ready: bool,
    tier: &str,
) {
    let distribution = facts.distribution.as_deref().unwrap_or("no os-release");
    let mut text = format!(
        "kernel {} {}, {distribution}, uid {}\n\n",
        facts.kernel, facts.architecture, facts.uid
    );
    for one in capabilities {
        let mark = match one.finding {
            Finding::Works(_) => "+",
            Finding::Fails { .. } => "-",
            Finding::NotTried { .. } => " ",
        };
        text.push_str(&format!("{mark} {:<24} {}\n", one.name, one.finding));
        if !one.finding.works() {
            text.push_str(&format!("    for {}; tried: {}\n", one.purpose, one.tried));
        }
        if let Some(advice) = &one.advice {
            text.push_str(&format!("    {advice}\n"));
        }
    }
    let verdict = match (ready, tier) {
        (true, "no-proc") => {
            "the embedded sandbox can be built here, in the tier no-proc: its /proc is an empty folder, as something is mounted over a \
             part of the /proc outside"
        }
        (true, _) => "the embedded sandbox can be built here",
        (false, "landlock") => {
            "the embedded sandbox cannot be built here. What is left of it is the tier landlock: files, network, system calls and \
             privilege are restricted and declared, process, user, ipc and timeout are not, so the policy standard is refused; \
             unix sockets of the host can be connected to by their paths, and whoever listens there may do more than the workload"
        }
        (false, _) => "the embedded sandbox cannot be built here",
    };
    text.push_str(&format!("\n{verdict}\n"));
    report::print(&text);
}
