//! What of the host can be opened where there are no namespaces: what the ephemeral tree would show, at its own paths.

use std::path::{Path, PathBuf};

use ledger::facts::control::Control;
use ledger::facts::policy::{NetworkMode, Policy};

use super::super::tree::{DEVICES, ETC};
use crate::mechanism::landlock::{Access, Grant};
use crate::plan::{OWN_DEVICES, Plan, SYSTEM};

/// Of /etc, what is made up where there is a root of its own, and tells nothing about accounts.
const MORE_ETC: [&str; 1] = ["/etc/nsswitch.conf"];
/// Of /etc, what is of use where the host's network is reached.
const NETWORK_ETC: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];
/// Of /proc, what tells about the machine.
const MACHINE: [&str; 8] = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys",
];
/// Of a process's own folder in /proc, what tells about that process alone. They are those of the workload's first process: another
/// one's have other inodes.
const OWN_PROCESS: [&str; 12] = [
    "auxv", "cgroup", "cmdline", "comm", "environ", "fd", "fdinfo", "limits", "maps", "stat",
    "statm", "status",
];

/// One thing that can be had.
pub(super) fn grant(path: impl Into<PathBuf>, access: Access, optional: bool) -> Grant {
    Grant {
        path: path.into(),
        access,
        optional,
    }
}

/// Devices that the policy allows beside those that every workload has.
pub(super) fn other_devices(policy: &Policy) -> impl Iterator<Item = &String> {
    let is_usual = |path: &str| {
        let name = path.strip_prefix("/dev/");
        OWN_DEVICES.contains(&path) || name.is_some_and(|name| DEVICES.contains(&name))
    };
    let allowed = policy.devices.allow.iter();
    allowed.filter(move |path| !is_usual(path))
}

/// All of them.
pub(super) fn grants(plan: &Plan, own: &Path) -> Vec<Grant> {
    let mut grants = of_the_host(plan);
    grants.push(grant(own, Access::Write, false));
    grants
}

/// Those that are not of this run's own making.
pub(super) fn of_the_host(plan: &Plan) -> Vec<Grant> {
    let system = SYSTEM.iter().chain(&ETC).chain(&MORE_ETC).chain(&MACHINE);
    let reaches_network = plan.policy.network.mode == NetworkMode::Unrestricted;
    let network = NETWORK_ETC.iter().filter(|_| reaches_network);
    let mut grants: Vec<Grant> = system
        .chain(network)
        .map(|path| grant(*path, Access::Read, true))
        .collect();
    let own_process = OWN_PROCESS.iter();
    grants.extend(own_process.map(|name| {
        let path = Path::new("/proc/self").join(name);
        grant(path, Access::Read, true)
    }));
    if plan.job.leaves_out(Control::Devices) {
        grants.push(grant("/dev", Access::Device, false));
    } else {
        let usual = DEVICES.iter().map(|name| Path::new("/dev").join(name));
        let devices = usual.chain(other_devices(&plan.policy).map(PathBuf::from));
        grants.extend(devices.map(|path| grant(path, Access::Device, true)));
    }
    // Those that cover what stands above them have no more than that in other tiers: here a list only adds.
    for bind in &plan.tree.binds {
        let access = if bind.read_only {
            Access::Read
        } else {
            Access::Write
        };
        grants.push(grant(&bind.source, access, false));
    }
    grants
}
