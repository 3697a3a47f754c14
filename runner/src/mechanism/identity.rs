//! Who the workload is: ids, groups, capabilities, and what it may become.

use serde::{Deserialize, Serialize};

use super::{Failure, Outcomes};
use crate::sys::identity as sys;

/// Ids inside when a policy names none. Not 65534: that is the overflow id, which an unmapped id shows too.
pub const DEFAULT_INSIDE: u32 = 1000;

/// What init is to become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentitySpec {
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// Whether the user namespace lets supplementary groups be dropped.
    pub drop_groups: bool,
}

/// Takes the ids, keeping capabilities for the mounts that follow.
pub fn take(spec: &IdentitySpec, outcomes: &mut Outcomes) {
    if spec.drop_groups {
        let dropped =
            sys::drop_groups().map_err(|error| Failure::call("setgroups to none", &error));
        outcomes.note("set-groups", dropped);
    }
    let attempt = format!("setresuid {}, setresgid {}", spec.uid, spec.gid);
    let taken = match sys::become_ids(spec.uid, spec.gid) {
        Err(error) => Err(Failure::call(attempt, &error)),
        // With other ids nothing further could be done in this user namespace.
        Ok(()) if nix::unistd::geteuid().as_raw() != spec.uid => Err(Failure::no_effect(attempt)),
        Ok(()) => Ok(()),
    };
    outcomes.note("set-ids", taken);
}

/// Allows no user namespace below this one, by its own limit (namespaces(7), max_user_namespaces).
pub fn deny_user_namespaces(outcomes: &mut Outcomes) {
    const LIMIT: &str = "/proc/sys/user/max_user_namespaces";
    let written = crate::sys::fault::guard("userns-limit", || std::fs::write(LIMIT, "0"))
        .and_then(|()| crate::sys::pseudo::read_text(LIMIT));
    let result = match written {
        Ok(text) if text.trim() == "0" => Ok(()),
        Ok(_) => Err(Failure::no_effect(format!("write 0 to {LIMIT}"))),
        Err(error) => Err(Failure::call(format!("write 0 to {LIMIT}"), &error)),
    };
    outcomes.note("userns-limit", result);
}

/// Keeps the capabilities of this user namespace also in programs executed later.
pub fn keep_privilege(outcomes: &mut Outcomes) {
    let kept = sys::keep_capabilities_over_exec()
        .map_err(|error| Failure::call("keep capabilities over exec", &error));
    outcomes.note("keep-capabilities", kept);
}

/// Gives every capability up, now and for every program executed later.
pub fn give_up_privilege(outcomes: &mut Outcomes) {
    let bounding =
        sys::clear_bounding_set().map_err(|error| Failure::call("empty the bounding set", &error));
    outcomes.note("bounding-set", bounding);
    let sets = sys::clear_capabilities()
        .map_err(|error| Failure::call("empty the capability sets", &error));
    outcomes.note("capabilities", sets);
    let locked = sys::set_no_new_privs().map_err(|error| Failure::call("set no_new_privs", &error));
    outcomes.note("no-new-privs", locked);
}
