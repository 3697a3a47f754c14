//! Facts of this host that decide what a sandbox can do, each found by trying or by reading /proc and /sys.
//!
//! [`gather`] makes the body of a `host` record: what can be told without making a process, cheap enough for
//! every run. [`capability`] tries what a sandbox needs, one thing at a time, for `runner doctor`.
//!
//! A fact that could not be read is absent and named in `unmeasured` with the error; it is never a default.

pub mod account;
pub mod capability;
pub mod cgroup;
mod clock;
mod container;
mod program;
mod sysctl;
mod system;

pub use clock::{ReadClockError, boot_id, now};

use std::io;
use std::path::{Path, PathBuf};

use ledger::facts::execution::Unmeasured;
use ledger::facts::host::HostFacts;

use crate::sys::errno_name;

/// Why the host's facts could not be gathered at all: one of those is missing that every host has.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum GatherHostError {
    /// The boot could not be told.
    #[error("cannot tell which boot this is")]
    #[diagnostic(code(runner::host::boot), help("is /proc mounted?"))]
    Boot(#[from] ReadClockError),
    /// The kernel would not name itself or the caller.
    #[error("cannot ask the kernel for {what}")]
    #[diagnostic(code(runner::host::kernel))]
    Kernel {
        /// What was asked for.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The runner could not read its own program file.
    #[error("cannot hash the runner's own program {}", path.display())]
    #[diagnostic(
        code(runner::host::program),
        help("is /proc mounted, and may this user read the program?")
    )]
    Program {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// Gathers the facts of a host record.
///
/// `known` is the newest host record of the ledger, its signature verified: if it is of this boot and of this
/// very program file, the program is not hashed again.
///
/// # Errors
/// A fact that every host has cannot be read.
pub fn gather(known: Option<&HostFacts>) -> Result<HostFacts, GatherHostError> {
    let mut gaps = Gaps::default();
    let boot_id = boot_id()?;
    let (kernel, architecture) = system::kernel()?;
    let (uid, gid, groups) = system::ids()?;
    let runner = program::runner(
        known
            .filter(|known| known.boot_id == boot_id)
            .map(|known| &known.runner),
    )?;
    let facts = HostFacts {
        architecture,
        boot_id,
        cgroup: cgroup::facts(&mut gaps),
        confinement: system::confinement(&mut gaps),
        container: container::signs(&kernel, &mut gaps),
        distribution: system::distribution(&mut gaps),
        gid,
        groups,
        kernel,
        landlock_abi: system::landlock_abi(&mut gaps),
        lsms: system::lsms(&mut gaps),
        runner,
        swap_bytes: system::swap_bytes(&mut gaps),
        sysctls: sysctl::values(&mut gaps),
        uid,
        unmeasured: None,
    };
    Ok(HostFacts {
        unmeasured: gaps.into_unmeasured(),
        ..facts
    })
}

/// What could not be read, and why.
#[derive(Debug, Default)]
struct Gaps(Vec<Unmeasured>);

impl Gaps {
    fn note(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.0.push(Unmeasured {
            field: field.into(),
            reason: reason.into(),
        });
    }

    fn failed(&mut self, field: impl Into<String>, path: &Path, error: &io::Error) {
        self.note(field, format!("{}: {}", path.display(), errno_name(error)));
    }

    /// The text of a file; `None` when there is no such file, or, noted, when it cannot be read.
    fn read(&mut self, field: impl Into<String>, path: &Path) -> Option<String> {
        match crate::sys::pseudo::read_text(path) {
            Ok(text) => Some(text),
            Err(error) if is_absent(&error) => None,
            Err(error) => {
                self.failed(field, path, &error);
                None
            }
        }
    }

    fn into_unmeasured(mut self) -> Option<Vec<Unmeasured>> {
        self.0
            .sort_by(|a, b| (&a.field, &a.reason).cmp(&(&b.field, &b.reason)));
        (!self.0.is_empty()).then_some(self.0)
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_gatherings_agree_and_make_a_record() {
        let first = gather(None).unwrap();
        let mut again = gather(Some(&first)).unwrap();
        // A program that was just built cannot be told from a later one for two seconds, which may pass in between.
        if first.runner.file.is_none() {
            again.runner.file = None;
        }
        assert_eq!(
            first, again,
            "a host record is written again only when the host differs"
        );
        let line = ledger::bytes::canon::to_line(&first).unwrap();
        assert_eq!(serde_json::from_slice::<HostFacts>(&line).unwrap(), first);
        assert_eq!(first.uid, nix::unistd::geteuid().as_raw());
        assert!(!first.kernel.is_empty());
        assert!(first.sysctls.contains_key("user.max_user_namespaces"));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_what_is_not_there_is_not() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.read("x", Path::new("/proc/self/no-such-file")), None);
        assert_eq!(
            gaps.read("x", Path::new("/proc/self/stat/no-such-file")),
            None
        );
        assert_eq!(gaps.read("y", Path::new("/proc/self")), None);
        let expected = Unmeasured {
            field: "y".into(),
            reason: "/proc/self: EISDIR".into(),
        };
        assert_eq!(gaps.into_unmeasured(), Some(vec![expected]));
        assert_eq!(Gaps::default().into_unmeasured(), None);
    }
}
