//! What people are told of a run.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use ledger::facts::control::Control;
use ledger::facts::execution::{NotExecuted, Outcome, Verdict, Violation};
use ledger::facts::suite::MODULES;

use crate::cli::arguments::ExecArgs;
use crate::cli::{Global, plan, report};
use crate::plan::Reason;
use crate::run::Finished;

/// Says how it ended, on standard error.
pub(super) fn tell(global: &Global, args: &ExecArgs, finished: &Finished, folder: &Path) {
    let result = &finished.body.result;
    let sequence = finished.end.sequence;
    if result.outcome == Outcome::NotExecuted {
        let obstacle = finished.obstacle.as_deref().unwrap_or_default();
        let program = &finished.program;
        let text = match result.reason {
            Some(NotExecuted::Refused) => format!(
                "refused, record {sequence}: {obstacle}\n  way out: docs/gaps.md says what each reason means{}{}",
                doctor_hint(obstacle),
                if finished.runs_without {
                    "; --best-effort runs without and records it"
                } else {
                    ""
                }
            ),
            Some(NotExecuted::NotFound) if args.runtime == MODULES => {
                format!("no such module, record {sequence}: {obstacle}")
            }
            Some(NotExecuted::NotFound) => format!(
                "not found inside, record {sequence}: {program}{}",
                show_how(&args.command)
            ),
            Some(NotExecuted::NotExecutable) if args.runtime == MODULES => {
                format!("no module that can be run, record {sequence}: {obstacle}")
            }
            Some(NotExecuted::NotExecutable) => {
                format!(
                    "not executable, record {sequence}: {program} ({}){}",
                    errno(result.errno),
                    module_hint(result.errno, program)
                )
            }
            Some(NotExecuted::LaunchFailed) | None => {
                let mut text = format!("could not launch, record {sequence}: {obstacle}");
                let hint = doctor_hint(obstacle);
                if !hint.is_empty() {
                    text.push_str("\n  way out: docs/gaps.md says what each reason means");
                    text.push_str(hint);
                }
                text
            }
        };
        report::error_line(&text);
        return;
    }
    let lost = &finished.controls.unsupported;
    if !lost.is_empty() {
        report::warning_line(&format!("not in force: {}", plan::by_reason(lost)));
    }
    if result.outcome == Outcome::Interrupted && finished.ended_by.is_none() {
        // Exit status 125: whoever gets that is told why.
        let why = out_of_memory(finished);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        report::error_line(&format!(
            "record {sequence}: the sandbox was killed, and nobody saw how the workload ended{why}"
        ));
    } else if !global.quiet {
        let verdict = finished.body.verdict;
        let how = match (verdict, result.exit_code, result.signal) {
            (Verdict::Failed, Some(code), _) => Some(format!("exit status {code}")),
            (Verdict::Failed, _, Some(signal)) => Some(format!("signal {signal}")),
            _ => None,
        };
        let why: Vec<String> = how.into_iter().chain(out_of_memory(finished)).collect();
        let what = match why.as_slice() {
            [] => String::new(),
            why => format!(" ({})", why.join("; ")),
        };
        report::notice_line(&format!(
            "record {sequence}: {verdict}{what}, in {}",
            folder.display()
        ));
    }
}

/// What to do with what is no program for the kernel and is named as modules are.
fn module_hint(errno: Option<i32>, program: &str) -> &'static str {
    if errno == Some(libc::ENOEXEC) && program.ends_with(".wasm") {
        "\n  a WebAssembly module runs with --runtime wasi"
    } else {
        ""
    }
}

/// That memory ran out, in words: a signal or a status of the workload's own does not tell.
fn out_of_memory(finished: &Finished) -> Option<String> {
    let kills = finished.body.observed.as_ref()?.oom_kills?.value();
    if kills == 0 {
        return None;
    }
    let declared = &finished.controls.declared;
    let limit = declared
        .iter()
        .find(|declared| declared.control == Control::Memory)
        .and_then(|declared| declared.value.as_deref());
    let limit = limit.map_or_else(String::new, |limit| format!(" at its limit of {limit}"));
    let processes = if kills == 1 { "process" } else { "processes" };
    Some(format!(
        "memory ran out{limit}, the kernel killed {kills} {processes}"
    ))
}

/// Most denied calls that are named on the line about them; the record has all.
const NAMED: usize = 8;

/// What was denied, the most frequent first.
pub(super) fn denied_calls(list: &[Violation]) -> String {
    let mut calls: Vec<&Violation> = list.iter().collect();
    calls.sort_by_key(|it| (std::cmp::Reverse(it.count.value()), &it.call));
    let named = calls.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|it| format!("{} {}", it.call, it.count))
        .collect();
    let others = match calls.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    format!("denied system calls: {}{others}", named.join(", "))
}

/// The doctor knows about what the kernel refused, not about what this version lacks.
fn doctor_hint(obstacle: &str) -> &'static str {
    let of_this_host = [
        Reason::NO_USER_NAMESPACE,
        Reason::NAMESPACE_REFUSED,
        Reason::MECHANISM_FAILED,
        Reason::SUPPLEMENTARY_GROUPS_KEPT,
        Reason::RUNTIME_MISSING,
        Reason::LAUNCHER_FAILED,
        Reason::NO_RESOURCE_GROUPS,
        Reason::RESOURCE_GROUPS_NOT_WRITABLE,
        Reason::CONTROLLER_NOT_DELEGATED,
    ];
    if of_this_host
        .iter()
        .any(|reason| obstacle.contains(reason.as_str()))
    {
        ", and `runner doctor` what on this host stands in the way"
    } else {
        ""
    }
}

fn errno(number: Option<i32>) -> String {
    number.map_or_else(String::new, |number| {
        crate::sys::errno_name(&io::Error::from_raw_os_error(number))
    })
}

/// Where the program is outside, and which --read would show it.
fn show_how(command: &[OsString]) -> String {
    let Some(name) = command.first().map(Path::new) else {
        return String::new();
    };
    let found = if name.components().count() > 1 {
        std::path::absolute(name).ok().filter(|path| path.is_file())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|path| is_program(path))
    };
    found.map_or_else(String::new, |path| {
        let folder = path.parent().unwrap_or(Path::new("/")).display();
        format!(
            "\n  it exists outside: `--read {folder} -- {}` would show and run it",
            path.display()
        )
    })
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
