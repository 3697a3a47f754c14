//! Hosts and probes that are broken on purpose, each in a way in which measurements were seen to call a sandbox tight that was
//! not, or leaky that was tight: what the judge makes of what would be recorded there.

use super::*;
use crate::facts::execution::Unmeasured;

/// What one arm came to.
#[derive(Clone, Copy)]
enum Came {
    /// It was not run.
    Not,
    /// The attack succeeded, and whoever can saw it.
    Escaped,
    /// It was refused.
    Refused(&'static str),
    /// It was refused, and so was what is allowed.
    BothRefused(&'static str),
    /// The probe says what it lacked, or how its check ended.
    Lacked(&'static str),
    /// The probe says that it got out, and the controller saw nothing.
    Claims,
    /// Nothing was said.
    Silence,
    /// It was refused while the controller's instrument did not work.
    Unwatched(&'static str),
}

impl Came {
    fn kept(self, arm: Arm, oracle: Oracle) -> Option<Kept> {
        let outside = oracle != Oracle::Line;
        let new = |saw| Kept::new(arm, outside.then_some(saw));
        let quiet = || new(Saw::Nothing);
        Some(match self {
            Self::Not => return None,
            Self::Escaped => new(Saw::Nonce).says(ProbeResult::Escaped, "none", Twin::Ok),
            Self::Refused(errno) => quiet().says(ProbeResult::Contained, errno, Twin::Ok),
            Self::BothRefused(errno) => quiet().says(ProbeResult::Contained, errno, Twin::Failed),
            Self::Lacked(errno) => quiet().says(ProbeResult::Error, errno, Twin::None),
            Self::Claims => quiet().says(ProbeResult::Escaped, "none", Twin::Ok),
            Self::Silence => quiet(),
            Self::Unwatched(errno) => {
                let mut kept = new(Saw::Nothing).says(ProbeResult::Contained, errno, Twin::Ok);
                for seen in &mut kept.run.controller {
                    seen.alive_after = false;
                }
                kept
            }
        })
    }
}

/// What is broken, and what must come of it.
struct Pitfall {
    what: &'static str,
    oracle: Oracle,
    denied: &'static [&'static str],
    needs: &'static [Need],
    /// Switches of the host.
    sysctls: &'static [(&'static str, &'static str)],
    /// Everything else about it.
    host: fn(&mut HostFacts),
    /// Baseline, ablation, run.
    arms: [Came; 3],
    expected: (CellVerdict, Option<CellReason>),
}

/// Nothing special.
const PLAIN: Pitfall = Pitfall {
    what: "",
    oracle: Oracle::Line,
    denied: &["EPERM", "ENOSYS", "SIGSYS"],
    needs: &[],
    sysctls: &[],
    host: |_| {},
    arms: [Came::Not; 3],
    expected: (CellVerdict::Contained, None),
};

const NOT_APPLICABLE: (CellVerdict, Option<CellReason>) =
    (CellVerdict::NotApplicable, Some(CellReason::HostForbids));

const fn unsure(reason: CellReason) -> (CellVerdict, Option<CellReason>) {
    (CellVerdict::Inconclusive, Some(reason))
}

fn table() -> Vec<Pitfall> {
    use Came::*;
    vec![
        // Network.
        Pitfall {
            what: "an offline host: bare is refused just the same",
            oracle: Oracle::Listener,
            denied: &["ENETUNREACH"],
            arms: [
                Unwatched("ENETUNREACH"),
                Unwatched("ENETUNREACH"),
                Unwatched("ENETUNREACH"),
            ],
            expected: unsure(CellReason::OracleUnavailable),
            ..PLAIN
        },
        Pitfall {
            what: "a closed port: refused with an error that is a refusal, and nobody would have heard",
            oracle: Oracle::Listener,
            denied: &["ECONNREFUSED"],
            arms: [Escaped, Escaped, Unwatched("ECONNREFUSED")],
            expected: unsure(CellReason::OracleUnavailable),
            ..PLAIN
        },
        Pitfall {
            what: "a closed port in the baseline alone calibrates nothing",
            oracle: Oracle::Listener,
            denied: &["ECONNREFUSED"],
            arms: [Unwatched("ECONNREFUSED"), Not, Refused("ECONNREFUSED")],
            expected: unsure(CellReason::NotCalibrated),
            ..PLAIN
        },
        Pitfall {
            what: "IPv6 switched off",
            oracle: Oracle::Listener,
            needs: &[Need::Ipv6],
            sysctls: &[("net.ipv6.conf.all.disable_ipv6", "1")],
            arms: [Lacked("none"), Lacked("none"), Lacked("none")],
            expected: NOT_APPLICABLE,
            ..PLAIN
        },
        Pitfall {
            what: "a kernel without IPv6 has no switch of it",
            oracle: Oracle::Listener,
            needs: &[Need::Ipv6],
            sysctls: &[("net.ipv4.ping_group_range", "1 0")],
            arms: [Lacked("none"), Lacked("none"), Lacked("none")],
            expected: NOT_APPLICABLE,
            ..PLAIN
        },
        Pitfall {
            what: "a switch that could not be read says nothing",
            oracle: Oracle::Listener,
            needs: &[Need::Ipv6],
            sysctls: &[("net.ipv4.ping_group_range", "1 0")],
            host: |host| {
                host.unmeasured = Some(vec![Unmeasured {
                    field: "sysctls.net.ipv6.conf.all.disable_ipv6".to_owned(),
                    reason: "EACCES".to_owned(),
                }]);
            },
            arms: [Lacked("none"), Lacked("none"), Lacked("none")],
            expected: unsure(CellReason::InstrumentMissing),
            ..PLAIN
        },
        Pitfall {
            what: "a missing client is not a network that is cut",
            oracle: Oracle::Listener,
            denied: &["ENOENT"],
            arms: [Escaped, Escaped, Lacked("ENOENT")],
            expected: unsure(CellReason::InstrumentMissing),
            ..PLAIN
        },
        Pitfall {
            what: "a client that is missing everywhere, and says nothing",
            oracle: Oracle::Listener,
            arms: [Silence, Silence, Silence],
            expected: unsure(CellReason::NoOutput),
            ..PLAIN
        },
        // Filters.
        Pitfall {
            what: "a filter that kills is a refusal where the row says so",
            arms: [Escaped, Escaped, Refused("SIGSYS")],
            ..PLAIN
        },
        Pitfall {
            what: "a filter that kills the check itself left nothing to say what was refused",
            arms: [Escaped, Escaped, Lacked("SIGSYS")],
            expected: unsure(CellReason::InstrumentMissing),
            ..PLAIN
        },
        Pitfall {
            what: "ENOSYS by a filter: without it the call is there",
            arms: [Escaped, Escaped, Refused("ENOSYS")],
            ..PLAIN
        },
        Pitfall {
            what: "ENOSYS by the kernel: nobody has the call",
            arms: [Refused("ENOSYS"), Refused("ENOSYS"), Refused("ENOSYS")],
            expected: unsure(CellReason::BaselineContained),
            ..PLAIN
        },
        Pitfall {
            what: "ENOSYS where it is no refusal",
            denied: &["EPERM"],
            arms: [Escaped, Escaped, Refused("ENOSYS")],
            expected: unsure(CellReason::UnexpectedError),
            ..PLAIN
        },
        Pitfall {
            what: "a vendor's filter that does not deny what is tried",
            arms: [Lacked("none"), Lacked("none"), Lacked("none")],
            expected: unsure(CellReason::InstrumentMissing),
            ..PLAIN
        },
        Pitfall {
            what: "another machine has no second set of calls",
            needs: &[Need::X86],
            host: |host| host.architecture = "aarch64".to_owned(),
            arms: [Refused("ENOSYS"), Not, Refused("ENOSYS")],
            expected: NOT_APPLICABLE,
            ..PLAIN
        },
        // Files.
        Pitfall {
            what: "an unreadable canary: its mode refuses, no sandbox does",
            oracle: Oracle::Secret,
            denied: &["EACCES"],
            arms: [Lacked("EACCES"), Lacked("EACCES"), Lacked("EACCES")],
            expected: unsure(CellReason::InstrumentMissing),
            ..PLAIN
        },
        Pitfall {
            what: "an unreadable canary that a probe calls a refusal",
            oracle: Oracle::Secret,
            denied: &["EACCES"],
            arms: [Refused("EACCES"), Refused("EACCES"), Refused("EACCES")],
            expected: unsure(CellReason::BaselineContained),
            ..PLAIN
        },
        Pitfall {
            what: "a canary that the controller cannot read itself",
            oracle: Oracle::Secret,
            denied: &["EACCES"],
            arms: [Escaped, Escaped, Unwatched("EACCES")],
            expected: unsure(CellReason::OracleUnavailable),
            ..PLAIN
        },
        Pitfall {
            what: "a sandbox in which nothing can be read at all",
            oracle: Oracle::Secret,
            denied: &["EACCES"],
            arms: [Escaped, Escaped, BothRefused("EACCES")],
            expected: unsure(CellReason::TwinFailed),
            ..PLAIN
        },
        // Processes.
        Pitfall {
            what: "Yama keeps processes of one user apart",
            needs: &[Need::NoYama],
            sysctls: &[("kernel.yama.ptrace_scope", "1")],
            arms: [Refused("EPERM"), Refused("EPERM"), Refused("EPERM")],
            expected: NOT_APPLICABLE,
            ..PLAIN
        },
        Pitfall {
            what: "and not from root, who is calibrated all the same",
            needs: &[Need::NoYama],
            sysctls: &[("kernel.yama.ptrace_scope", "1")],
            arms: [Escaped, Refused("EPERM"), Refused("EPERM")],
            ..PLAIN
        },
        Pitfall {
            what: "a Yama that is switched off explains nothing",
            needs: &[Need::NoYama],
            sysctls: &[("kernel.yama.ptrace_scope", "0")],
            arms: [Refused("EPERM"), Not, Refused("EPERM")],
            expected: unsure(CellReason::BaselineContained),
            ..PLAIN
        },
        Pitfall {
            what: "slow forks: fewer than the limit, and not by the limit",
            denied: &["EAGAIN"],
            arms: [Not, Lacked("ETIMEDOUT"), Lacked("ETIMEDOUT")],
            expected: unsure(CellReason::InstrumentMissing),
            ..PLAIN
        },
        Pitfall {
            what: "slow forks in the arm that is to show that there is room",
            denied: &["EAGAIN"],
            arms: [Not, Lacked("ETIMEDOUT"), Refused("EAGAIN")],
            expected: unsure(CellReason::NotCalibrated),
            ..PLAIN
        },
        Pitfall {
            what: "a limit of the caller's own session, with this control or without it",
            denied: &["EAGAIN"],
            arms: [Not, Refused("EAGAIN"), Refused("EAGAIN")],
            expected: unsure(CellReason::AblationContained),
            ..PLAIN
        },
        // Users.
        Pitfall {
            what: "an empty map shows 65534, which is no user",
            denied: &["none"],
            arms: [Escaped, Escaped, Lacked("none")],
            expected: unsure(CellReason::InstrumentMissing),
            ..PLAIN
        },
        Pitfall {
            what: "root of a host that is itself a container: map `0 0 1`",
            needs: &[Need::Root],
            host: |host| {
                host.uid = 0;
                host.container = vec!["user-namespace".to_owned()];
            },
            arms: [Refused("EPERM"), Refused("EPERM"), Refused("EPERM")],
            expected: NOT_APPLICABLE,
            ..PLAIN
        },
        Pitfall {
            what: "a container without a user namespace has a root",
            needs: &[Need::Root],
            host: |host| {
                host.uid = 0;
                host.container = vec!["dockerenv".to_owned()];
            },
            arms: [Refused("EPERM"), Refused("EPERM"), Refused("EPERM")],
            expected: unsure(CellReason::BaselineContained),
            ..PLAIN
        },
        Pitfall {
            what: "an ordinary user",
            needs: &[Need::Root],
            host: |host| host.uid = 1_000,
            arms: [Refused("EACCES"), Refused("EPERM"), Refused("EPERM")],
            expected: NOT_APPLICABLE,
            ..PLAIN
        },
        Pitfall {
            what: "a host that gives no user namespaces",
            needs: &[Need::UserNamespaces],
            sysctls: &[("user.max_user_namespaces", "0")],
            arms: [Refused("EPERM"), Not, Refused("EPERM")],
            expected: NOT_APPLICABLE,
            ..PLAIN
        },
        Pitfall {
            what: "one that gives them to root alone",
            needs: &[Need::UserNamespaces],
            sysctls: &[("kernel.apparmor_restrict_unprivileged_userns", "1")],
            host: |host| host.uid = 0,
            arms: [Refused("EPERM"), Not, Refused("EPERM")],
            expected: unsure(CellReason::BaselineContained),
            ..PLAIN
        },
        // Terminals, Landlock.
        Pitfall {
            what: "legacy_tiocsti=0: nobody types for another",
            oracle: Oracle::Host,
            denied: &["EIO"],
            needs: &[Need::Tiocsti],
            sysctls: &[("dev.tty.legacy_tiocsti", "0")],
            arms: [Refused("EIO"), Refused("EIO"), Refused("EIO")],
            expected: NOT_APPLICABLE,
            ..PLAIN
        },
        Pitfall {
            what: "legacy_tiocsti=0, and an escape all the same",
            oracle: Oracle::Host,
            denied: &["EIO"],
            needs: &[Need::Tiocsti],
            sysctls: &[("dev.tty.legacy_tiocsti", "0")],
            arms: [Refused("EIO"), Refused("EIO"), Escaped],
            expected: (CellVerdict::FalseGuarantee, None),
            ..PLAIN
        },
        Pitfall {
            what: "no Landlock and no filter to ask by",
            denied: &["EBADF", "none"],
            host: |host| host.landlock_abi = None,
            arms: [Lacked("none"), Lacked("none"), Lacked("none")],
            expected: unsure(CellReason::InstrumentMissing),
            ..PLAIN
        },
        Pitfall {
            what: "no Landlock, asked by a filter",
            denied: &["EBADF", "none"],
            host: |host| host.landlock_abi = None,
            arms: [Escaped, Escaped, Refused("none")],
            ..PLAIN
        },
        // Words alone.
        Pitfall {
            what: "a send that succeeded and arrived nowhere",
            oracle: Oracle::Listener,
            arms: [Escaped, Escaped, Claims],
            expected: unsure(CellReason::OracleDisagrees),
            ..PLAIN
        },
        Pitfall {
            what: "a probe that passes anywhere passes nowhere",
            arms: [Refused("EPERM"), Refused("EPERM"), Refused("EPERM")],
            expected: unsure(CellReason::BaselineContained),
            ..PLAIN
        },
    ]
}

#[test]
fn no_broken_host_or_probe_makes_a_sandbox_tight_or_leaky() {
    for pitfall in table() {
        let mut case = Case::new(contained(Arm::Run));
        case.probe = probe(pitfall.oracle, TwinKind::Allowed);
        let check = &mut case.probe.checks[0];
        let denied = pitfall.denied.iter().map(|errno| errno.parse().unwrap());
        check.denied = denied.collect();
        check.needs = pitfall.needs.to_vec();
        case.host.sysctls.clear();
        let sysctls = pitfall.sysctls.iter();
        let sysctls = sysctls.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        case.host.sysctls.extend(sysctls);
        (pitfall.host)(&mut case.host);
        let [baseline, ablation, run] = pitfall.arms;
        case.baseline = baseline.kept(Arm::Baseline, pitfall.oracle);
        case.ablation = ablation.kept(Arm::Ablation, pitfall.oracle);
        case.run = run.kept(Arm::Run, pitfall.oracle);
        assert_eq!(case.judge(), pitfall.expected, "{}", pitfall.what);
    }
}

#[test]
fn what_is_not_applicable_names_the_fact() {
    let facts = |need: Need, change: fn(&mut HostFacts)| {
        let mut host = host();
        host.sysctls.clear();
        change(&mut host);
        need.missing_on(&host)
    };
    for (need, change, said) in [
        (
            Need::Root,
            (|host| host.uid = 1_000) as fn(&mut HostFacts),
            Some("uid = 1000"),
        ),
        (
            Need::Root,
            |host| {
                host.uid = 0;
                host.container = vec!["user-namespace".to_owned()];
            },
            Some("uid = 0, in a user namespace"),
        ),
        (
            Need::Root,
            |host| {
                host.uid = 0;
                host.container.clear();
            },
            None,
        ),
        // Nothing is known of it.
        (Need::Ipv6, |_| {}, None),
        (Need::Tiocsti, |_| {}, None),
        (Need::NoYama, |_| {}, None),
    ] {
        assert_eq!(facts(need, change).as_deref(), said, "{need}");
    }
}
