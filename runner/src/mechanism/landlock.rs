//! Landlock (Documentation/userspace-api/landlock.rst): a second line behind namespaces, and where there are none the first.
//!
//! Behind namespaces it decides no declaration: those do. Where it stands alone ([`Alone`]) it is tried once it is in force:
//! the kernel tells nobody what a process is restricted to. ABI 1 is not used, it
//! denies renames between folders and breaks git and pip.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    PathFdError, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

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
    /// Nothing else keeps files away: what is not listed here can be neither read nor written. [`Self::writable`] counts for
    /// nothing then.
    pub alone: Option<Alone>,
}

/// All that may be had of the files of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alone {
    /// What there is to be had, and how.
    pub grants: Vec<Grant>,
    /// A folder that none of these covers, and that everybody may list: it is tried whether that fails.
    pub denied: Option<PathBuf>,
}

/// A file or folder, with all that is below.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Where it is.
    pub path: PathBuf,
    /// What may be done.
    pub access: Access,
    /// It may be missing, or out of reach.
    pub optional: bool,
}

/// What may be done with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read, list, execute.
    Read,
    /// All, but making devices.
    Write,
    /// Open a device for reading and writing, and control it.
    Device,
}

/// Restricts this thread and what it executes; says which parts the kernel enforces.
///
/// # Errors
/// The kernel has no Landlock of ABI 2 or higher, or refused a call.
pub fn restrict(spec: &LandlockSpec) -> Result<(), Failure> {
    let mut enforced = true;
    fault::guard("landlock", || {
        enforced = match &spec.alone {
            Some(alone) => build_alone(spec, alone)?,
            None => build(spec)?,
        };
        Ok(())
    })
    .map_err(|error| Failure::call("restrict by Landlock", &error))?;
    let denied = spec.alone.iter().find_map(|alone| alone.denied.as_ref());
    if enforced && denied.is_none_or(|folder| is_denied(folder)) {
        Ok(())
    } else {
        Err(Failure::no_effect("restrict by Landlock"))
    }
}

/// Whether a folder cannot be listed because of what is in force: EACCES is Landlock's answer.
fn is_denied(folder: &std::path::Path) -> bool {
    std::fs::read_dir(folder).is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
}

fn build_alone(spec: &LandlockSpec, alone: &Alone) -> io::Result<bool> {
    let abi = ABI::V6;
    let ruleset = || -> Result<landlock::RulesetCreated, landlock::RulesetError> {
        let mut ruleset = Ruleset::default()
            // ABI 3 is the least: before, what may not be written could be truncated.
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(ABI::V3))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(abi))?
            .scope(Scope::from_all(abi))?;
        if spec.deny_tcp {
            ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
        }
        Ok(ruleset.create()?.no_new_privs(true))
    };
    let mut created = ruleset().map_err(failed)?;
    for grant in &alone.grants {
        let opened = match PathFd::new(&grant.path) {
            Ok(opened) => opened,
            Err(error) if grant.optional && is_out_of_reach(&error) => continue,
            Err(error) => return Err(failed(error)),
        };
        let is_folder = std::fs::metadata(&grant.path).is_ok_and(|found| found.is_dir());
        let mut access = match grant.access {
            Access::Read => AccessFs::from_read(abi),
            Access::Write => AccessFs::from_all(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock),
            Access::Device => {
                AccessFs::ReadDir | AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev
            }
        };
        if !is_folder {
            access &= AccessFs::from_file(abi);
        }
        let rule = PathBeneath::new(opened, access);
        created = created.add_rule(rule).map_err(failed)?;
    }
    let status = created.restrict_self().map_err(failed)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Whether something is not there for this process, and so needs no rule; for lack of descriptors or memory nothing is skipped.
fn is_out_of_reach(error: &PathFdError) -> bool {
    let PathFdError::OpenCall { source, .. } = error else {
        return false;
    };
    matches!(
        source.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ELOOP)
    )
}

fn failed(error: impl std::error::Error) -> io::Error {
    io::Error::other(error.to_string())
}

fn build(spec: &LandlockSpec) -> io::Result<bool> {
    let abi = ABI::V6;
    let write = AccessFs::from_write(abi);
    let ruleset = || -> Result<landlock::RulesetCreated, landlock::RulesetError> {
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
        Ok(ruleset.create()?.no_new_privs(spec.no_new_privs))
    };
    let mut created = ruleset().map_err(failed)?;
    // Without this one nothing could be read, and no program executed.
    let root = PathFd::new("/").map_err(failed)?;
    let read = PathBeneath::new(root, AccessFs::from_read(abi));
    created = created.add_rule(read).map_err(failed)?;
    let writable = spec.writable.iter().map(String::as_str);
    for path in ["/dev", "/proc"].into_iter().chain(writable) {
        let folder = match PathFd::new(path) {
            Ok(folder) => folder,
            Err(error) if is_out_of_reach(&error) => continue,
            Err(error) => return Err(failed(error)),
        };
        let rule = PathBeneath::new(folder, write | AccessFs::from_read(abi));
        created = created.add_rule(rule).map_err(failed)?;
    }
    let status = created.restrict_self().map_err(failed)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}
