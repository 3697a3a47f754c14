//! `runner plan`: what exec would intend, and what not and why. Runs nothing of the workload's, writes nothing.

use ledger::facts::control::{Control, Unsupported};
use ledger::facts::execution::RuntimeUsed;
use ledger::facts::policy::Mode;
use ledger::facts::suite::MODULES;

use super::arguments::ExecArgs;
use super::command_line;
use super::status::REFUSED;
use super::trial::{self, Would};
use super::{FAILED, Global, USAGE, ledger as ledgers, report};
use crate::plan::{self, Plan, Reason, Runtime, Shape};

pub(super) fn run(global: &Global, args: ExecArgs) -> u8 {
    let usage = if args.dry_run { FAILED } else { USAGE };
    let job = args.job(ledgers::evidence(global, false));
    let compiled = args
        .policy()
        .and_then(|policy| Ok((policy, args.runtimes()?, job?)));
    let (policy, runtimes, job) = match compiled {
        Ok(parts) => parts,
        Err(error) => {
            command_line::say(error);
            return usage;
        }
    };
    let mut tried = Vec::new();
    for runtime in runtimes {
        let plan = plan::compile(policy.clone(), job.clone(), runtime.as_ref());
        let mut plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                report::diagnostic(error);
                return usage;
            }
        };
        let would = trial::would(runtime.as_ref(), &mut plan);
        let does_all = would == Would::Run && plan.missing().is_empty();
        let is_whole = is_whole(runtime.as_ref());
        tried.push((runtime, plan, would));
        if does_all && is_whole {
            // The first that can do all that is requested and is all that it can be, else the first.
            tried.rotate_right(1);
            break;
        }
    }
    let Some((runtime, plan, would)) = tried.first() else {
        return FAILED;
    };
    let second = tried.get(1).map(|(runtime, plan, _)| Second {
        id: runtime.id().to_owned(),
        lacks: by_reason(&plan.missing()),
    });
    if global.is_json() {
        print_json(plan, runtime.as_ref(), would);
    } else {
        let chosen = (args.runtime == "auto").then_some(second);
        print_text(plan, runtime.as_ref(), chosen, would);
    }
    match would {
        Would::Run => 0,
        Would::Refuse => REFUSED,
        Would::FailToLaunch => FAILED,
    }
}

/// Whether nothing of a runtime is missing here.
fn is_whole(runtime: &dyn Runtime) -> bool {
    runtime.tier().is_none_or(|tier| tier == "full")
}

fn asked(plan: &Plan, control: Control) -> &'static str {
    if plan.requested.contains(&control) {
        "requested"
    } else if plan.wanted.contains(&control) {
        "wanted"
    } else {
        "not asked for"
    }
}

fn print_json(plan: &Plan, runtime: &dyn Runtime, would: &Would) {
    let controls: Vec<_> = Control::ALL
        .iter()
        .map(|control| {
            let intent = plan.intended.get(control);
            serde_json::json!({
                "control": control,
                "asked": asked(plan, *control),
                "mechanism": intent.map(|intent| &intent.mechanism),
                "value": intent.and_then(|intent| intent.value.as_deref()),
                "backup": intent.and_then(|intent| intent.backup),
                "reason": plan.cannot.get(control).map(ToString::to_string),
            })
        })
        .collect();
    let binds: Vec<_> = plan
        .tree
        .binds
        .iter()
        .map(|bind| serde_json::json!({ "source": bind.source, "target": bind.target, "readOnly": bind.read_only }))
        .collect();
    report::print_json(&serde_json::json!({
        "schema": "runner/plan/v1",
        "runtime": { "id": runtime.id(), "version": runtime.version(), "tier": runtime.tier() },
        "policy": plan.policy.id,
        "mode": plan.policy.enforcement.mode,
        "refused": *would == Would::Refuse,
        "launches": *would == Would::Run,
        "controls": controls,
        "files": binds,
        "cwd": plan.cwd,
        "environment": plan.environment.iter().map(|(name, _)| name.to_string_lossy()).collect::<Vec<_>>(),
    }));
}

/// A runtime that was not chosen.
struct Second {
    id: String,
    lacks: String,
}

fn print_text(plan: &Plan, runtime: &dyn Runtime, chosen: Option<Option<Second>>, would: &Would) {
    let does_all = *would == Would::Run && plan.missing().is_empty();
    let why = match chosen {
        None => String::new(),
        Some(None) if does_all => " (auto: it can do all that is requested)".to_owned(),
        Some(Some(Second { id, lacks })) if does_all && lacks.is_empty() => {
            format!(" (auto: it can do all that is requested; {id} is less than whole here)")
        }
        Some(Some(Second { id, lacks })) if does_all && is_whole(runtime) => {
            format!(" (auto: it can do all that is requested; {id} cannot: {lacks})")
        }
        Some(Some(_)) if does_all => " (auto: it can do all that is requested)".to_owned(),
        Some(_) => " (auto: no runtime can do all that is requested here)".to_owned(),
    };
    let tier = match runtime.tier() {
        Some(tier) if !is_whole(runtime) => format!(" in the tier {tier}"),
        _ => String::new(),
    };
    let mut text = format!(
        "policy {} ({}), runtime {}{tier}{why}\n\n",
        plan.policy.id,
        plan.policy.enforcement.mode,
        runtime.id()
    );
    for control in Control::ALL {
        let (mark, how) = match (plan.intended.get(control), plan.cannot.get(control)) {
            (Some(intent), _) => {
                let value = intent
                    .value
                    .as_ref()
                    .map(|value| format!(" = {value}"))
                    .unwrap_or_default();
                let backup = intent
                    .backup
                    .map(|backup| format!(", behind it {backup}"))
                    .unwrap_or_default();
                ("+", format!("{}{value}{backup}", intent.mechanism))
            }
            (None, Some(why)) => ("-", format!("{why}: {}", why.reason.meaning())),
            (None, None) => ("-", String::new()),
        };
        text.push_str(&format!(
            "{mark} {control:<12} {:<13} {how}\n",
            asked(plan, *control)
        ));
    }
    text.push('\n');
    match &plan.tree.shape {
        _ if !RuntimeUsed::BUILT_IN.contains(&runtime.id()) => {
            text.push_str("files: what its template shows\n")
        }
        _ if !runtime.shows_workload() => text.push_str("files: the host's as they are\n"),
        Shape::Ephemeral if runtime.id() == MODULES => {
            text.push_str("files: these folders and nothing else\n")
        }
        _ if runtime.keeps_paths() => text.push_str(
            "files: system folders read-only at their own paths, and a folder of this run's own for /workspace and /tmp\n",
        ),
        Shape::Ephemeral => {
            text.push_str("files: system folders read-only, empty /workspace and /tmp\n")
        }
        Shape::HostReadOnly => text.push_str(
            "files: the host's tree read-only, secrets covered, empty /workspace and /tmp\n",
        ),
        Shape::Host => text.push_str("files: the host's tree as it is\n"),
        Shape::Custom(folder) => {
            text.push_str(&format!("files: {} as root, read-only\n", folder.display()))
        }
    }
    // What the policy shows is shown by those that build a root.
    let shown = runtime.shows_workload();
    for bind in plan.tree.binds.iter().filter(|_| shown) {
        let access = if bind.read_only { "read" } else { "write" };
        text.push_str(&format!(
            "  {access:<5} {} at {}\n",
            bind.source.display(),
            bind.target.display()
        ));
    }
    for path in plan.tree.covered.iter().filter(|_| shown) {
        text.push_str(&format!("  cover {}\n", path.display()));
    }
    let starts = if runtime.id() == MODULES {
        "the module is looked for from"
    } else {
        "starts in"
    };
    if runtime.keeps_paths() && plan.cwd == std::path::Path::new("/workspace") {
        text.push_str("starts in the folder of this run's own\n");
    } else {
        text.push_str(&format!("{starts} {}\n", plan.cwd.display()));
    }
    if let (Would::FailToLaunch, Some(why)) = (would, runtime.is_missing()) {
        text.push_str(&format!("exec could not launch (125): {why}\n"));
    } else if *would == Would::FailToLaunch {
        text.push_str(
            "exec could not launch (125); `runner doctor` says what on this host stands in the way\n",
        );
    } else if *would == Would::Refuse {
        text.push_str(&format!(
            "exec would refuse (126): {}\n",
            by_reason(&plan.missing())
        ));
    } else if plan.policy.enforcement.mode == Mode::BestEffort && !plan.missing().is_empty() {
        text.push_str("exec would run and record controls-missing\n");
    } else if !plan.gaps().is_empty() {
        text.push_str("exec would run; a successful run would be recorded as reduced\n");
    }
    report::print(&text);
}

/// `memory, cpu (no-resource-groups)`; what is merely not launched follows from the rest.
pub(super) fn by_reason(missing: &[Unsupported]) -> String {
    let mut groups = plan::by_reason(missing);
    let follows = Reason::NOT_LAUNCHED.as_str();
    if groups.iter().any(|(reason, _)| *reason != follows) {
        groups.retain(|(reason, _)| *reason != follows);
    }
    let groups: Vec<String> = groups
        .iter()
        .map(|(reason, controls)| format!("{} ({reason})", controls.join(", ")))
        .collect();
    groups.join(", ")
}
