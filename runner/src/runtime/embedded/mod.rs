//! **embedded**: namespaces, a root of its own, seccomp and Landlock, by the runner alone. Nothing to install;
//! works as root and as an ordinary user.

mod tree;

use ledger::facts::control::Control;
use ledger::facts::policy::{Mode, Nesting, NetworkMode, Policy};

use super::launch;
use super::read_back::{Expected, read_back};
use crate::init::wire::{ProgramReport, Spec};
use crate::mechanism::identity::{DEFAULT_INSIDE, IdentitySpec};
use crate::mechanism::landlock::LandlockSpec;
use crate::mechanism::owners::{self, HostIds, MapOwnersError};
use crate::mechanism::root::{Mask, What};
use crate::mechanism::seccomp::{self, Architecture, Calls};
use crate::mechanism::{Outcome, Outcomes};
use crate::plan::{
    Answer, Effect, Intent, Job, Launch, LaunchError, Plan, Reason, Runtime, Streams, Why,
};
use crate::sys::clone::Placeholder;
use crate::sys::fault::{self, Fault};

/// The tier in which everything of this runtime is to be had.
const TIER_FULL: &str = "full";

/// The runner's own sandbox.
#[derive(Debug)]
pub struct Embedded;

/// A namespace that a sandbox can be built without, at the price of a control.
struct Optional {
    mechanism: &'static str,
    flag: libc::c_int,
    file: &'static str,
}

const OPTIONAL: [Optional; 4] = [
    Optional {
        mechanism: "namespace-network",
        flag: libc::CLONE_NEWNET,
        file: "net",
    },
    Optional {
        mechanism: "namespace-ipc",
        flag: libc::CLONE_NEWIPC,
        file: "ipc",
    },
    Optional {
        mechanism: "namespace-uts",
        flag: libc::CLONE_NEWUTS,
        file: "uts",
    },
    Optional {
        mechanism: "namespace-cgroup",
        flag: libc::CLONE_NEWCGROUP,
        file: "cgroup",
    },
];
const NEEDED: libc::c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID;

/// Calls without which nothing can be started under an allow list.
const LAUNCH_CALLS: [&str; 4] = ["execve", "exit_group", "read", "write"];

impl Runtime for Embedded {
    fn id(&self) -> &'static str {
        "embedded"
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn answer(&self, control: Control, policy: &Policy, job: &Job) -> Answer {
        let cannot = |reason: Reason| Answer::Cannot(reason.into());
        let intends = |mechanism| Answer::Intends(Intent::by(mechanism));
        let limited = |mechanism, unit: &str| match policy.limit_of(control) {
            Some((_, Some(limit))) => {
                Answer::Intends(Intent::by(mechanism).limited(format!("{limit}{unit}")))
            }
            _ => cannot(Reason::POLICY_SETS_NO_LIMIT),
        };
        match control {
            Control::Network => match policy.network.mode {
                NetworkMode::None => Answer::Intends(
                    Intent::by("network-namespace")
                        .limited("none")
                        .backed("landlock"),
                ),
                NetworkMode::Loopback => {
                    Answer::Intends(Intent::by("network-namespace").limited("own loopback"))
                }
                NetworkMode::Allowlist => cannot(Reason::NEEDS_EGRESS),
                NetworkMode::Unrestricted => cannot(Reason::POLICY_ALLOWS_ALL),
            },
            Control::Filesystem => {
                let intent = Intent::by("mount-namespace pivot_root");
                Answer::Intends(if policy.nesting == Nesting::Deny {
                    intent.backed("landlock")
                } else {
                    intent
                })
            }
            Control::Process => intends("pid-namespace, fresh /proc"),
            Control::Environment => intends("execve with the policy's variables alone"),
            Control::Privilege if job.as_root => cannot(Reason::RUNS_AS_ROOT),
            Control::Privilege if !policy.process.capabilities.is_empty() => {
                cannot(Reason::KEEPS_CAPABILITIES)
            }
            Control::Privilege => intends("no capabilities, no_new_privs"),
            Control::Memory | Control::Processes | Control::Cpu => {
                cannot(Reason::NEEDS_RESOURCE_GROUPS)
            }
            Control::Disk => cannot(Reason::NEEDS_QUOTA),
            Control::Syscalls => answer_syscalls(policy),
            Control::Timeout => limited("kill of the pid namespace", " ms"),
            Control::Output => limited("runner-cap", " bytes"),
            Control::Devices => intends("minimal /dev, nodev mounts"),
            Control::User if job.as_root => cannot(Reason::RUNS_AS_ROOT),
            Control::User => answer_user(policy),
            Control::Ipc if policy.network.mode == NetworkMode::Unrestricted => {
                cannot(Reason::ABSTRACT_SOCKETS_SHARED)
            }
            Control::Ipc => intends("ipc-namespace, network-namespace, own root"),
            Control::Descriptors => intends("close_range"),
            Control::Terminal => intends(if job.terminal {
                "new session, own pseudo-terminal"
            } else {
                "new session, no terminal"
            }),
            Control::Files => limited("RLIMIT_NOFILE", ""),
        }
    }

    fn launch(&self, plan: &Plan, streams: Streams) -> Result<Launch, LaunchError> {
        let ids = HostIds::choose(plan.job.as_root).map_err(|error| LaunchError::Step {
            what: error_chain(&error),
        })?;
        let mut flags = NEEDED;
        for namespace in &OPTIONAL {
            let host_network = plan.policy.network.mode == NetworkMode::Unrestricted;
            if !(host_network && namespace.flag == libc::CLONE_NEWNET) {
                flags |= namespace.flag;
            }
        }
        let mut outcomes = Outcomes::default();
        let possible = possible_namespaces(flags, &mut outcomes)?;
        let launch = self.build(plan, streams, ids, possible, flags, outcomes);
        launch.map_err(|error| match error {
            LaunchError::Mechanism { what, outcomes, .. } => {
                let lost = plan.intended.keys().filter_map(|control| {
                    lost(*control, plan, &outcomes, false).map(|why| (*control, why))
                });
                let lost = lost.collect();
                LaunchError::Mechanism {
                    what,
                    outcomes,
                    lost,
                }
            }
            other => other,
        })
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

fn answer_syscalls(policy: &Policy) -> Answer {
    let cannot = |reason: Reason| Answer::Cannot(reason.into());
    if Architecture::native().is_none() {
        return cannot(Reason::NO_FILTER_FOR_ARCHITECTURE);
    }
    let allow = &policy.syscalls.allow;
    if !allow.is_empty() {
        if LAUNCH_CALLS
            .iter()
            .any(|call| !allow.iter().any(|name| name == call))
        {
            return cannot(Reason::ALLOW_LACKS_LAUNCH_CALLS);
        }
        return Answer::Intends(
            Intent::by("seccomp").limited(format!("{} calls allowed", allow.len())),
        );
    }
    match policy.syscalls.denied().len() {
        0 => cannot(Reason::POLICY_ALLOWS_ALL),
        count => Answer::Intends(Intent::by("seccomp").limited(format!("{count} calls denied"))),
    }
}

fn answer_user(policy: &Policy) -> Answer {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let inside = policy.process.user.unwrap_or(DEFAULT_INSIDE);
    let intent = Intent::by("user-namespace");
    if uid.is_root() {
        return Answer::Intends(intent.limited(format!("{inside} inside, an unused id outside")));
    }
    let keeps = owners::has_other_groups(gid.as_raw())
        && !HostIds::choose(false).is_ok_and(|ids| ids.can_drop_groups());
    if keeps {
        return Answer::Cannot(Reason::SUPPLEMENTARY_GROUPS_KEPT.into());
    }
    Answer::Intends(intent.limited(format!("{inside} inside, {uid} outside")))
}

/// The namespaces of `wanted` that this host makes, found by trying when all together are refused; notes the
/// refused ones.
fn possible_namespaces(
    wanted: libc::c_int,
    outcomes: &mut Outcomes,
) -> Result<libc::c_int, LaunchError> {
    let mut possible = wanted;
    for namespace in &OPTIONAL {
        match fault::of(namespace.mechanism) {
            Some(Fault::Void) => possible &= !namespace.flag,
            Some(Fault::Fail) if wanted & namespace.flag != 0 => {
                possible &= !namespace.flag;
                let error = std::io::Error::from_raw_os_error(libc::EPERM);
                outcomes.note(
                    namespace.mechanism,
                    Err(crate::mechanism::Failure::call("clone3", &error)),
                );
            }
            _ => {}
        }
    }
    for (mechanism, flag) in [
        ("namespace-pid", libc::CLONE_NEWPID),
        ("namespace-mount", libc::CLONE_NEWNS),
    ] {
        match fault::of(mechanism) {
            Some(Fault::Void) => possible &= !flag,
            Some(Fault::Fail) => {
                return Err(LaunchError::Namespaces {
                    errno: "EPERM".to_owned(),
                });
            }
            None => {}
        }
    }
    Ok(possible)
}

/// Which of the optional namespaces are refused, each tried alone beside the needed ones.
fn drop_refused(flags: libc::c_int, outcomes: &mut Outcomes) -> Result<libc::c_int, LaunchError> {
    let refused = |error: &std::io::Error| LaunchError::Namespaces {
        errno: crate::sys::errno_name(error),
    };
    drop(Placeholder::new(NEEDED).map_err(|error| refused(&error))?);
    let mut possible = flags;
    for namespace in &OPTIONAL {
        if flags & namespace.flag == 0 {
            continue;
        }
        if let Err(error) = Placeholder::new(NEEDED | namespace.flag) {
            possible &= !namespace.flag;
            outcomes.note(
                namespace.mechanism,
                Err(crate::mechanism::Failure::call("clone3", &error)),
            );
        }
    }
    Ok(possible)
}

impl Embedded {
    fn build(
        &self,
        plan: &Plan,
        streams: Streams,
        ids: HostIds,
        possible: libc::c_int,
        wanted: libc::c_int,
        mut outcomes: Outcomes,
    ) -> Result<Launch, LaunchError> {
        let inside = IdentitySpec {
            uid: plan.policy.process.user.unwrap_or(DEFAULT_INSIDE),
            gid: plan.policy.process.group.unwrap_or(DEFAULT_INSIDE),
            drop_groups: ids.can_drop_groups(),
        };
        let has = |flag| possible & flag != 0;
        let built =
            tree::build(plan, &ids, &inside, has(libc::CLONE_NEWIPC)).map_err(refused_owner)?;
        let tree::Built {
            root,
            protect,
            planted,
            placeholders,
            unprotected,
            mapped,
        } = built;
        let filter = filter(plan)?;
        let spec = Spec {
            identity: Some(inside.clone()),
            protect: protect.clone(),
            loopback: has(libc::CLONE_NEWNET) && plan.policy.network.mode == NetworkMode::Loopback,
            host_name: has(libc::CLONE_NEWUTS),
            deny_user_namespaces: plan.policy.nesting == Nesting::Deny,
            give_up_privilege: true,
            open_files: plan.policy.resources.open_files.map(|limit| limit.value()),
            landlock: (plan.policy.nesting == Nesting::Deny).then(|| landlock(plan)),
            terminal: plan.job.terminal,
            owns_tree: has(libc::CLONE_NEWPID),
            program: Some(launch::program(plan)),
            fault: fault::text(),
            root: Some(root),
            seccomp: filter,
        };
        let kept = launch::Prepared { streams, planted };
        let init = match launch::start(
            possible,
            kept.try_clone()?,
            |pid| ids.write_maps(pid, &inside),
            &spec,
        ) {
            Err(LaunchError::Namespaces { .. }) if possible == wanted => {
                let fewer = drop_refused(possible, &mut outcomes)?;
                drop(placeholders);
                if fewer == possible {
                    return Err(LaunchError::Namespaces {
                        errno: "EAGAIN".to_owned(),
                    });
                }
                return self.build(plan, kept.streams, ids, fewer, wanted, outcomes);
            }
            started => started?,
        };
        outcomes.merge(init.report.outcomes.clone());
        if let Some(what) = &unprotected {
            let failure = crate::mechanism::Failure {
                attempt: "make protected paths ready".to_owned(),
                error: what.clone(),
            };
            outcomes.note("protect", Err(failure));
        }
        let runs = matches!(init.report.program, Some(ProgramReport::Found { .. }));
        let mut expected = expected(plan, &spec, &ids, wanted, mapped, runs);
        expected
            .masks
            .retain(|mask| !init.report.unreachable.contains(mask));
        let host_uid = read_back(init.pid, &expected, &mut outcomes);
        let program = launch::found(plan, init.report.program.as_ref());
        let mut effect = effect(plan, &outcomes, program, &ids);
        effect.tier = Some(TIER_FULL);
        effect.host_uid = host_uid;
        effect.launch = describe(&spec, &ids, possible);
        let workspace = if plan.tree.has_own_workspace() {
            workspace(init.pid)
        } else {
            None
        };
        Ok(Launch {
            effect,
            init: init.pidfd,
            init_pid: init.pid,
            control: init.control,
            terminal: init.terminal,
            workspace,
            held: vec![Box::new(ids), Box::new(placeholders)],
        })
    }
}

fn refused_owner(error: MapOwnersError) -> LaunchError {
    match &error {
        MapOwnersError::Refused { .. } => LaunchError::Refused {
            control: Control::User,
            what: error.to_string(),
        },
        MapOwnersError::Source { .. } | MapOwnersError::Namespace(_) => LaunchError::Step {
            what: error.to_string(),
        },
    }
}

fn filter(plan: &Plan) -> Result<Option<Vec<crate::sys::filter::Instruction>>, LaunchError> {
    let Some(architecture) = Architecture::native() else {
        return Ok(None);
    };
    if !plan.intended.contains_key(&Control::Syscalls) {
        return Ok(None);
    }
    let denied: Vec<String> = plan
        .policy
        .syscalls
        .denied()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let calls = if plan.policy.syscalls.allow.is_empty() {
        Calls::Deny(&denied)
    } else {
        Calls::Allow(&plan.policy.syscalls.allow)
    };
    let compiled = seccomp::compile(&calls, architecture);
    compiled.map(Some).map_err(|error| LaunchError::Step {
        what: error_chain(&error),
    })
}

fn landlock(plan: &Plan) -> LandlockSpec {
    let mut writable: Vec<String> = ["/tmp", "/var/tmp", "/workspace"]
        .map(str::to_owned)
        .to_vec();
    let binds = plan.tree.binds.iter().filter(|bind| !bind.read_only);
    writable.extend(binds.map(|bind| bind.target.to_string_lossy().into_owned()));
    LandlockSpec {
        writable,
        deny_tcp: plan.policy.network.mode == NetworkMode::None,
    }
}

/// The workload's /workspace from outside; it outlives the mount namespace, so that it can be read at the end.
fn workspace(init: i32) -> Option<std::os::fd::OwnedFd> {
    let flags =
        nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_CLOEXEC;
    let path = format!("/proc/{init}/root/workspace");
    nix::fcntl::open(path.as_str(), flags, nix::sys::stat::Mode::empty()).ok()
}

fn expected(
    plan: &Plan,
    spec: &Spec,
    ids: &HostIds,
    wanted: libc::c_int,
    mapped: Vec<std::path::PathBuf>,
    runs: bool,
) -> Expected {
    let mut namespaces = vec![("namespace-pid", "pid"), ("namespace-mount", "mnt")];
    namespaces.extend(
        OPTIONAL
            .iter()
            .filter(|one| wanted & one.flag != 0)
            .map(|one| (one.mechanism, one.file)),
    );
    let entries = spec.root.iter().flat_map(|root| &root.entries);
    let mut read_only = Vec::new();
    let mut writable = Vec::new();
    for entry in entries {
        match &entry.what {
            What::Bind { optional: true, .. }
                if std::fs::symlink_metadata(&entry.path).is_err() => {}
            What::Bind { device: true, .. } => {}
            What::Bind {
                read_only: true, ..
            } => read_only.push(entry.path.clone()),
            What::Bind { .. } | What::Memory { .. } => writable.push(entry.path.clone()),
            What::Folder
            | What::File { .. }
            | What::Link(_)
            | What::Processes
            | What::Terminals
            | What::MessageQueues => {}
        }
    }
    let masks = spec.root.iter().flat_map(|root| &root.masks);
    let masks = masks.filter_map(|mask| match mask {
        // In the host's /proc the same entries exist; elsewhere a mask covers only what is there.
        Mask::ReadOnly(path) | Mask::Empty(path) if path.starts_with("/proc") && path.exists() => {
            Some(path.clone())
        }
        Mask::ReadOnly(_) => None,
        Mask::Empty(path) => plan.tree.covered.contains(path).then(|| path.clone()),
    });
    let protected = spec
        .protect
        .iter()
        .flat_map(|folder| folder.paths.iter().map(|path| folder.folder.join(path)));
    Expected {
        namespaces,
        ids: Some((ids.host_uid(), ids.host_gid())),
        no_privilege: true,
        workload: runs,
        seccomp: runs && spec.seccomp.is_some(),
        open_files: spec.open_files.filter(|_| runs),
        session: runs,
        own_root: true,
        read_only,
        writable,
        masks: masks.collect(),
        protected: protected.collect(),
        mapped,
        own_proc: true,
    }
}

/// Which mechanisms must be in effect for a control to be declared.
fn mechanisms(control: Control, plan: &Plan) -> Vec<&'static str> {
    let tree = ["namespace-mount", "pivot-root"];
    match control {
        Control::Network => vec!["namespace-network"],
        Control::Filesystem => {
            let mut needed = vec!["namespace-mount", "pivot-root", "read-only", "proc-mask"];
            if plan.tree.binds.iter().any(|bind| plan.tree.protects(bind)) {
                needed.push("protect");
            }
            needed
        }
        Control::Process => vec!["namespace-pid", "proc"],
        Control::Privilege => {
            let mut needed = vec!["capabilities", "bounding-set", "no-new-privs", "set-ids"];
            if plan.policy.nesting == Nesting::Deny {
                needed.push("userns-limit");
            }
            needed
        }
        Control::Syscalls => vec!["seccomp"],
        Control::Timeout => vec!["namespace-pid"],
        Control::Devices => tree.to_vec(),
        Control::User => {
            let mut needed = vec!["set-ids", "set-groups"];
            if nix::unistd::geteuid().is_root() && !plan.job.as_root && !plan.tree.binds.is_empty()
            {
                needed.push("idmap");
            }
            needed
        }
        Control::Ipc => vec![
            "namespace-ipc",
            "namespace-network",
            "namespace-mount",
            "pivot-root",
        ],
        Control::Descriptors => vec!["close-descriptors"],
        Control::Terminal if plan.job.terminal => vec!["new-session", "terminal"],
        Control::Terminal => vec!["new-session"],
        Control::Files => vec!["limit-files"],
        // The launcher does these itself and nothing but its own end takes them away: the environment stands
        // in the execve that runs the workload, output passes through the runner.
        Control::Environment | Control::Output => vec![],
        // Never intended by this runtime.
        Control::Memory | Control::Processes | Control::Cpu | Control::Disk => vec![],
    }
}

/// Why a control is not in effect, by the mechanisms that it rests on; `runs` says whether there is a process on
/// which a filter or a limit could take effect.
fn lost(control: Control, plan: &Plan, outcomes: &Outcomes, runs: bool) -> Option<Why> {
    let mut lost = None;
    for mechanism in mechanisms(control, plan) {
        match outcomes.of(mechanism) {
            Outcome::Done => {}
            Outcome::Skipped if !runs => {}
            Outcome::Skipped => lost = lost.or_else(|| Some(Reason::NOT_READ_BACK.into())),
            Outcome::Failed(failure) => {
                let reason = match (mechanism, failure.error.as_str()) {
                    ("protect", _) => Reason::PROTECT_FAILED,
                    (_, "no-effect") => Reason::NO_EFFECT,
                    (name, _) if name.starts_with("namespace-") => Reason::NAMESPACE_REFUSED,
                    _ => Reason::MECHANISM_FAILED,
                };
                lost = Some(Why {
                    reason,
                    detail: Some(failure.to_string()),
                });
            }
        }
    }
    lost
}

fn effect(
    plan: &Plan,
    outcomes: &Outcomes,
    program: crate::plan::Program,
    ids: &HostIds,
) -> Effect {
    let mut effect = Effect::new(program);
    // Without a process there is nothing that a filter or a limit could have taken effect on.
    let runs = matches!(effect.program, crate::plan::Program::Found { .. });
    for (control, intent) in &plan.intended {
        match lost(*control, plan, outcomes, runs) {
            Some(why) => effect.lose(*control, why),
            None => {
                let mut intent = intent.clone();
                if intent.backup == Some("landlock") && !outcomes.is_done("landlock") {
                    intent.backup = None;
                }
                if *control == Control::User {
                    let inside = plan.policy.process.user.unwrap_or(DEFAULT_INSIDE);
                    intent = intent.limited(format!("{inside} inside, {} outside", ids.host_uid()));
                }
                effect.declare(intent.declare(*control));
            }
        }
    }
    if let Outcome::Failed(failure) = outcomes.of("landlock") {
        effect
            .remarks
            .push(format!("no Landlock behind the namespaces: {failure}"));
    }
    debug_assert!(
        plan.policy.enforcement.mode == Mode::Strict
            || plan.policy.enforcement.mode == Mode::BestEffort
    );
    effect
}

/// The steps of this launch, in words: the embedded runtime has no command line of its own.
fn describe(spec: &Spec, ids: &HostIds, namespaces: libc::c_int) -> Vec<String> {
    let mut steps = vec!["embedded".to_owned()];
    let names = [
        (libc::CLONE_NEWUSER, "user"),
        (libc::CLONE_NEWNS, "mount"),
        (libc::CLONE_NEWPID, "pid"),
        (libc::CLONE_NEWNET, "network"),
        (libc::CLONE_NEWIPC, "ipc"),
        (libc::CLONE_NEWUTS, "uts"),
        (libc::CLONE_NEWCGROUP, "cgroup"),
    ];
    let names: Vec<&str> = names
        .iter()
        .filter(|(flag, _)| namespaces & flag != 0)
        .map(|(_, name)| *name)
        .collect();
    steps.push(format!("namespaces {}", names.join(" ")));
    if let Some(inside) = &spec.identity {
        steps.push(format!("map {}", ids.describe(inside)));
    }
    for entry in spec.root.iter().flat_map(|root| &root.entries) {
        let path = entry.path.display();
        steps.push(match &entry.what {
            What::Bind {
                read_only: true, ..
            } => format!("read {path}"),
            What::Bind { device: true, .. } => format!("device {path}"),
            What::Bind { .. } => format!("write {path}"),
            What::Memory { .. } => format!("memory {path}"),
            What::Processes => format!("proc {path}"),
            What::Terminals => format!("devpts {path}"),
            What::MessageQueues => format!("mqueue {path}"),
            What::Link(to) => format!("link {path} {}", to.display()),
            What::File { .. } => format!("file {path}"),
            What::Folder => format!("folder {path}"),
        });
    }
    for mask in spec.root.iter().flat_map(|root| &root.masks) {
        steps.push(match mask {
            Mask::ReadOnly(path) => format!("read-only {}", path.display()),
            Mask::Empty(path) => format!("cover {}", path.display()),
        });
    }
    for folder in &spec.protect {
        steps.extend(
            folder
                .paths
                .iter()
                .map(|path| format!("protect {}", folder.folder.join(path).display())),
        );
    }
    steps.push("no-capabilities".to_owned());
    steps.extend(spec.open_files.map(|limit| format!("open-files {limit}")));
    steps.extend(
        spec.seccomp
            .as_ref()
            .map(|program| format!("seccomp {} instructions", program.len())),
    );
    steps.extend(spec.landlock.as_ref().map(|_| "landlock".to_owned()));
    steps
}
