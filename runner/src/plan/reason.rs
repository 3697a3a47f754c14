//! Why a control is not declared: the words that stand in `unsupported`, each with an entry in docs/gaps.md.

/// A reason, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(&'static str);

macro_rules! reasons {
    ($($name:ident $word:literal $meaning:literal,)+) => {
        impl Reason {
            $(#[doc = $meaning] pub const $name: Self = Self($word);)+

            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// What it means, for the person at the terminal.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self.0 {
                    $($word => $meaning,)+
                    _ => "",
                }
            }
        }
    };
}

reasons! {
    NO_ISOLATION "no-isolation" "the native runtime runs the workload as it is",
    NOT_ISOLATED "not-isolated" "this runtime does nothing about it",
    NO_SUCH_FUNCTION "no-such-function" "a module has no function that asks for what this restricts; that is all that stands there, and no probe can show it",
    FOLDERS_ALONE "folders-alone" "this runtime shows the folders that are named, and no tree around them",
    CANNOT_SHOW "cannot-show" "this runtime has no way to show a folder, file or secret as it is to be shown",
    SOCKETS_SHARED "sockets-shared" "unix sockets of the host can be connected to by their paths",
    NOT_IN_TEMPLATE "not-in-template" "the runtime template does not declare it",
    POLICY_ASKS_MORE "policy-asks-more" "the policy asks for something here that the runtime template has no placeholder for",
    NO_RESOURCE_GROUPS "no-resource-groups" "no control groups with this controller are mounted here",
    RESOURCE_GROUPS_NOT_WRITABLE "resource-groups-not-writable" "this host has control groups, and nobody lets this user make any",
    LIMITS_IN_REACH "limits-in-reach" "the workload, which may make sandboxes, could write to the limits: its control groups belong to its user",
    CONTROLLER_NOT_DELEGATED "controller-not-delegated" "this user may make control groups, but without this controller",
    NEEDS_QUOTA "needs-quota" "a folder of the host is writable, and a limit on what is written there needs a quota, which this runtime does not set",
    NEEDS_EGRESS "needs-egress" "an allowlist needs a forwarder, which this runtime does not have yet",
    POLICY_ALLOWS_ALL "policy-allows-all" "the policy sets nothing to restrict here",
    POLICY_SETS_NO_LIMIT "policy-sets-no-limit" "the policy names no limit",
    KEEPS_CAPABILITIES "keeps-capabilities" "capabilities inside a sandbox are not supported by this runtime yet",
    SUPPLEMENTARY_GROUPS_KEPT "supplementary-groups-kept" "an ordinary user cannot drop supplementary groups without subordinate ids (package uidmap, /etc/subuid, /etc/subgid)",
    RUNS_AS_ROOT "runs-as-root" "--as-root was given, which maps the workload of a runner started as root to host root",
    RUNTIME_MISSING "runtime-missing" "the runtime's program is not there, or does not run",
    RUNTIME_LACKS_OPTION "runtime-lacks-option" "the runtime's program is a version that has no option for it",
    LAUNCHER_FAILED "launcher-failed" "the runtime's program could not build the sandbox",
    NO_USER_NAMESPACE "no-user-namespace" "this host makes no user namespaces for this user",
    NO_MOUNTS "no-mounts" "without namespaces nothing can be mounted, so files stay at their paths, and nothing is covered or has a size",
    NAMESPACE_REFUSED "namespace-refused" "the kernel refused this namespace",
    MECHANISM_FAILED "mechanism-failed" "a call that gives the control its effect failed",
    NO_EFFECT "no-effect" "the calls succeeded, and reading back found no effect",
    NOT_READ_BACK "not-read-back" "the effect could not be read back, so it is not claimed",
    PROTECT_FAILED "protect-failed" "a path that must stay read-only below a writable folder could not be protected",
    LAUNCH_CALLS_DENIED "launch-calls-denied" "the policy closes execve, exit_group, read or write, which starting a program takes",
    NO_FILTER_FOR_ARCHITECTURE "no-filter-for-architecture" "no system call filter can be made for this architecture",
    ABSTRACT_SOCKETS_SHARED "abstract-sockets-shared" "abstract unix sockets are shared with the host's network namespace",
    ABLATED "ablated" "its mechanisms were left out on purpose, to measure what they are good for",
    ABLATION_NOT_POSSIBLE "ablation-not-possible" "this runtime has no way to leave out this control alone",
    NOT_LAUNCHED "not-launched" "nothing was launched",
}

impl Reason {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.0)
    }
}

/// Why a control is not declared here, with what the kernel said where it said something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The reason.
    pub reason: Reason,
    /// Details for people (`mount a fresh /proc: EPERM`).
    pub detail: Option<String>,
}

impl From<Reason> for Why {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            detail: None,
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{} ({detail})", self.reason),
            None => write!(f, "{}", self.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_an_entry_in_the_list_of_gaps() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gaps.md");
        let gaps = std::fs::read_to_string(path).unwrap();
        for reason in Reason::ALL {
            assert!(
                gaps.contains(&format!("### `{reason}`")),
                "docs/gaps.md has no entry for {reason}"
            );
            assert!(!reason.meaning().is_empty());
        }
    }
}
