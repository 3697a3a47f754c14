//! Landlock (Documentation/userspace-api/landlock.rst) as a second line behind namespaces.
//!
//! It never decides a declaration here: the mount, network and pid namespaces do. ABI 1 is not used, it
//! denies renames between folders and breaks git and pip.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use serde::{Deserialize, Serialize};
use std::io;

use super::Failure;
use crate::sys::fault;

/// What Landlock is to allow; everything else it knows of is denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockSpec {
    /// Folders in which files may be made and changed.
    pub writable: Vec<String>,
    /// Deny TCP as well.
    pub deny_tcp: bool,
    /// Fail unless abstract unix sockets and signals stay inside (ABI 6): nothing else keeps them there.
    pub must_scope: bool,
    /// Keep to abstract unix sockets of its own, where the kernel can.
    pub scope_sockets: bool,
    /// Gain nothing by exec (no_new_privs), which whoever keeps CAP_SYS_ADMIN can do without.
    pub no_new_privs: bool,
}

/// Restricts this thread and what it executes; says which parts the kernel enforces.
///
/// # Errors
/// The kernel has no Landlock of ABI 2 or higher, or refused a call.
pub fn restrict(spec: &LandlockSpec) -> Result<(), Failure> {
    let mut enforced = true;
    fault::guard("landlock", || {
        enforced = build(spec).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(())
    })
    .map_err(|error| Failure::call("restrict by Landlock", &error))?;
    if enforced {
        Ok(())
    } else {
        Err(Failure::no_effect("restrict by Landlock"))
    }
}

fn build(spec: &LandlockSpec) -> Result<bool, landlock::RulesetError> {
    let abi = ABI::V6;
    let write = AccessFs::from_write(abi);
    let mut ruleset = Ruleset::default()
        // ABI 2 is the least: without the right to rename between folders nothing is restricted at all.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V2))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .set_compatibility(if spec.must_scope {
            CompatLevel::HardRequirement
        } else {
            CompatLevel::BestEffort
        })
        .scope(if spec.scope_sockets {
            Scope::from_all(abi)
        } else {
            Scope::Signal.into()
        })?
        .set_compatibility(CompatLevel::BestEffort);
    if spec.deny_tcp {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    let mut created = ruleset.create()?.no_new_privs(spec.no_new_privs);
    let open = |path: &str| PathFd::new(path);
    if let Ok(root) = open("/") {
        created = created.add_rule(PathBeneath::new(root, AccessFs::from_read(abi)))?;
    }
    for path in ["/dev", "/proc"]
        .into_iter()
        .chain(spec.writable.iter().map(String::as_str))
    {
        if let Ok(folder) = open(path) {
            created =
                created.add_rule(PathBeneath::new(folder, write | AccessFs::from_read(abi)))?;
        }
    }
    let status = created.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}
