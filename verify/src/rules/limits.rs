//! Figures: the limit that a declaration names against what was observed.

use ledger::facts::control::{Control, Controls};
use ledger::facts::execution::{Execution, Outcome};
use ledger::file::walk::{Findings, Shown};
use ledger::finding::Code;

use super::{Counts, blobs};

/// How much later than its deadline a tree may be seen dead: the machine may be busy.
const DEADLINE_GRACE_US: u64 = 5_000_000;

/// Limits as a start declares them; absent where none is declared or its unit is not known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    memory_bytes: Option<u64>,
    processes: Option<u64>,
    timeout_us: Option<u64>,
    output_bytes: Option<u64>,
    user: Option<User>,
}

/// What is declared about the workload's user id, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// Exactly this one.
    Is(u64),
    /// Any but root's.
    NotRoot,
}

impl Limits {
    pub(super) fn of(controls: &Controls) -> Self {
        let mut limits = Self::default();
        for declared in &controls.declared {
            let value = declared.value.as_deref();
            let bytes = || {
                value.and_then(|value| {
                    figure(
                        value,
                        &[
                            ("bytes", 1),
                            ("KiB", 1024),
                            ("MiB", 1 << 20),
                            ("GiB", 1 << 30),
                        ],
                    )
                })
            };
            match declared.control {
                Control::Memory => limits.memory_bytes = bytes(),
                Control::Output => limits.output_bytes = bytes(),
                Control::Processes => {
                    limits.processes =
                        value.and_then(|value| figure(value, &[("tasks", 1), ("processes", 1)]));
                }
                Control::Timeout => {
                    limits.timeout_us = value.and_then(|value| {
                        figure(value, &[("us", 1), ("ms", 1_000), ("s", 1_000_000)])
                    });
                }
                Control::User => {
                    limits.user = Some(value.and_then(outside).map_or(User::NotRoot, User::Is));
                }
                Control::Network
                | Control::Filesystem
                | Control::Process
                | Control::Environment
                | Control::Privilege
                | Control::Syscalls
                | Control::Cpu
                | Control::Devices
                | Control::Ipc
                | Control::Descriptors
                | Control::Terminal
                | Control::Files
                | Control::Disk => {}
            }
        }
        limits
    }

    pub(super) fn check(
        &self,
        shown: &Shown<'_>,
        execution: &Execution,
        counts: &mut Counts,
        findings: &mut Findings,
    ) {
        let observed = execution.observed.as_ref();
        let peak = observed.and_then(|it| it.memory_peak_bytes);
        let tasks = observed.and_then(|it| it.pids_peak);
        let duration = execution.result.duration_us;
        let ended = !matches!(execution.result.outcome, Outcome::Interrupted);
        let grace = self
            .timeout_us
            .and_then(|limit| limit.checked_add(DEADLINE_GRACE_US));
        for (limit, allowed, found, what, unit) in [
            (
                self.memory_bytes,
                self.memory_bytes,
                peak,
                "memory",
                "bytes",
            ),
            (self.processes, self.processes, tasks, "processes", "tasks"),
            (
                self.timeout_us,
                grace,
                duration.filter(|_| ended),
                "timeout",
                "us",
            ),
        ] {
            let (Some(limit), Some(allowed), Some(found)) = (limit, allowed, found) else {
                continue;
            };
            counts.limits += 1;
            if found.value() > allowed {
                findings.push(
                    shown
                        .finding(
                            Code::LimitExceeded,
                            format!("{what}: more was observed than was declared"),
                        )
                        .versus(format!("at most {limit} {unit}"), format!("{found} {unit}")),
                );
            }
        }
        self.output(shown, execution, counts, findings);
        self.user(shown, execution, counts, findings);
    }

    fn output(
        &self,
        shown: &Shown<'_>,
        execution: &Execution,
        counts: &mut Counts,
        findings: &mut Findings,
    ) {
        let Some(cap) = self.output_bytes else { return };
        for output in blobs::outputs(shown, execution) {
            counts.limits += 1;
            if output.kept.value() > cap {
                findings.push(
                    shown
                        .finding(Code::OutputOverCap, "more output was kept than the cap")
                        .versus(
                            format!("at most {cap} bytes"),
                            format!("{} bytes", output.kept),
                        ),
                );
            }
        }
    }

    fn user(
        &self,
        shown: &Shown<'_>,
        execution: &Execution,
        counts: &mut Counts,
        findings: &mut Findings,
    ) {
        let uid = execution.observed.as_ref().and_then(|it| it.uid);
        let (Some(user), Some(uid)) = (self.user, uid) else {
            return;
        };
        counts.users += 1;
        let (holds, expected) = match user {
            User::Is(declared) => (u64::from(uid) == declared, format!("uid {declared}")),
            User::NotRoot => (uid != 0, "another uid than 0".to_owned()),
        };
        if !holds {
            findings.push(
                shown
                    .finding(
                        Code::UserDiffers,
                        "seen from outside, the workload had another user id",
                    )
                    .versus(expected, format!("uid {uid}")),
            );
        }
    }
}

/// The host's id in `1000 inside, 100000 outside`; `None` for another form.
fn outside(value: &str) -> Option<u64> {
    let (_, rest) = value.split_once(" inside, ")?;
    rest.strip_suffix(" outside")?.parse().ok()
}

/// `30000 ms` in the smallest unit, whatever is said behind a comma; `None` for another form.
fn figure(value: &str, units: &[(&str, u64)]) -> Option<u64> {
    let value = value.split_once(", ").map_or(value, |(figure, _)| figure);
    let (number, unit) = value.split_once(' ')?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_id_is_read_where_it_is_named() {
        assert_eq!(outside("1000 inside, 100000 outside"), Some(100_000));
        assert_eq!(outside("1000 inside, an unused id outside"), None);
        assert_eq!(outside("1000"), None);
    }

    #[test]
    fn figures_need_a_known_unit() {
        let units = [("ms", 1_000), ("s", 1_000_000)];
        assert_eq!(figure("30000 ms", &units), Some(30_000_000));
        assert_eq!(figure("2 s", &units), Some(2_000_000));
        assert_eq!(figure("2 s, or so", &units), Some(2_000_000));
        for other in [
            "30000",
            "30000 h",
            "x ms",
            "-1 ms",
            "18446744073709551615 s",
        ] {
            assert_eq!(figure(other, &units), None, "{other}");
        }
    }
}
