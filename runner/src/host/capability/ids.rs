//! Ids beside the caller's own (user_namespaces(7), newuidmap(1), subuid(5)).

use std::process::{Command, Stdio};
use std::{fs, io};

use ledger::facts::host::HostFacts;

use super::{Capability, Finding, without_user_namespace};
use crate::host::account::{FIRST_HOST_ID, HOST_IDS};
use crate::sys::attempt::{Attempt, attempt};
use crate::sys::errno_name;

/// Ids beside the caller's own: root maps them itself, others need the setuid helpers and ranges.
pub(super) fn other_ids(facts: &HostFacts, has_user: bool) -> Capability {
    let name = "other-ids";
    let purpose = "user: an identity that is nobody's, without the caller's groups";
    if !has_user {
        return without_user_namespace(name, purpose, "map a range of ids".to_owned());
    }
    let last = FIRST_HOST_ID + (HOST_IDS - 1);
    let (tried, result) = if facts.uid == 0 {
        (
            format!("write uid_map and gid_map for ids {FIRST_HOST_ID} to {last}, setgroups"),
            map_workload_ids(),
        )
    } else {
        let maps = |pid: libc::pid_t| {
            subordinate_map("newuidmap", "/etc/subuid", pid, facts.uid)?;
            subordinate_map("newgidmap", "/etc/subgid", pid, facts.gid)
        };
        let tried = "newuidmap and newgidmap with this user's ranges in /etc/subuid and /etc/subgid, setgroups";
        (
            tried.to_owned(),
            attempt(libc::CLONE_NEWUSER, Attempt::DropGroups, maps),
        )
    };
    let advice = result.as_ref().err().map(|_| match facts.uid {
        0 => format!(
            "a host, or a container whose user namespace maps ids {FIRST_HOST_ID} to {last}; or start the runner as an ordinary user"
        ),
        uid => format!(
            "package uidmap (newuidmap, newgidmap), and lines `{uid}:100000:65536` in /etc/subuid and /etc/subgid \
             (as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER)"
        ),
    });
    let finding = match result {
        Ok(()) => Finding::Works(None),
        // The helpers' failures have a text of their own.
        Err(error) if error.raw_os_error().is_none() => Finding::Fails {
            error: error.to_string(),
        },
        Err(error) => Finding::Fails {
            error: errno_name(&error),
        },
    };
    Capability {
        name,
        purpose,
        tried,
        finding,
        advice,
    }
}

/// Maps the ids that root gives to workloads, any of which a run may get, and drops the groups under them.
///
/// # Errors
/// The kernel refuses: as EPERM where this process's own user namespace does not have all of them.
pub(crate) fn map_workload_ids() -> io::Result<()> {
    attempt(libc::CLONE_NEWUSER, Attempt::DropGroups, |pid| {
        let map = format!("0 {FIRST_HOST_ID} {HOST_IDS}");
        fs::write(format!("/proc/{pid}/uid_map"), &map)?;
        fs::write(format!("/proc/{pid}/gid_map"), &map)
    })
}

/// Maps 0 to the caller and 1 to the first id of the caller's first range.
fn subordinate_map(helper: &str, ranges: &str, pid: libc::pid_t, id: u32) -> io::Result<()> {
    let text = fs::read_to_string(ranges).map_err(|error| named(ranges, &error))?;
    let caller = nix::unistd::geteuid();
    let user = crate::host::account::user_name(caller.as_raw());
    let start = first_range(&text, caller.as_raw(), user.as_deref());
    let start =
        start.ok_or_else(|| io::Error::other(format!("{ranges} has no range for this user")))?;
    let arguments = [
        pid.to_string(),
        "0".into(),
        id.to_string(),
        "1".into(),
        "1".into(),
        start.to_string(),
        "1".into(),
    ];
    let mut command = Command::new(helper);
    command.args(arguments).stdin(Stdio::null());
    let output = command.output().map_err(|error| named(helper, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.lines().next().map_or_else(
        || format!("{helper}: {}", output.status),
        str::to_owned,
    )))
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!("{what}: {}", errno_name(error)))
}

/// subuid(5): `login name or uid:start:count`.
fn first_range(text: &str, uid: u32, user: Option<&str>) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let start = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.parse().ok()?;
        let own = owner.parse() == Ok(uid) || Some(owner) == user;
        (own && count > 0).then_some(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_ranges() {
        let text = "other:1:1\nuser:100000:65536\n1001:200000:65536\nempty:5:0\nbroken\n";
        assert_eq!(first_range(text, 1000, Some("user")), Some(100_000));
        assert_eq!(first_range(text, 1001, None), Some(200_000));
        assert_eq!(first_range(text, 7, Some("empty")), None);
        assert_eq!(first_range(text, 7, Some("nobody")), None);
    }
}
