//! After the tree is dead: what it left behind.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use ledger::facts::execution::{Artifact, Unmeasured};
use ledger::facts::list::List;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::artifacts::{FileTime, Limits, Pace, Place, scan};
use super::record::{RecordError, Recorder};
use crate::plan::{Launch, Plan};

/// Writable places, remembered as they were before the run.
#[derive(Debug, Default)]
pub(super) struct Places {
    places: Vec<Place>,
    unmeasured: Vec<Unmeasured>,
}

impl Places {
    /// Remembers them, as far as `pace` goes; to be called before "go".
    pub(super) fn remember(
        plan: &Plan,
        launch: &Launch,
        limits: &Limits,
        pace: &dyn Fn() -> Pace,
    ) -> Self {
        let mut places = Self::default();
        if let Some(workspace) = &launch.workspace {
            match workspace.as_fd().try_clone_to_owned() {
                Ok(root) => places.places.push(Place::fresh(root, "/workspace")),
                Err(error) => places.lose("/workspace", &error),
            }
        } else if launch.effect.tier.is_some() && plan.tree.has_own_workspace() {
            places.unmeasured.push(unmeasured("unreadable: /workspace"));
        }
        for bind in &plan.tree.binds {
            if bind.read_only || plan.tree.is_covered(&bind.target) {
                continue;
            }
            let opened = open(&bind.source)
                .and_then(|root| Ok((root, FileTime::now().map_err(std::io::Error::other)?)));
            match opened {
                Ok((root, now)) => places.places.push(
                    Place::existing(root, &bind.target, now, limits, pace)
                        .without(&plan.tree.covered),
                ),
                Err(error) => places.lose(&bind.target.display().to_string(), &error),
            }
        }
        places
    }

    fn lose(&mut self, place: &str, error: &std::io::Error) {
        let errno = crate::sys::errno_name(error);
        self.unmeasured
            .push(unmeasured(&format!("unreadable: {place} ({errno})")));
    }

    /// Lists what is there now and was not, or is not as it was, as far as `pace` goes; and what could not be seen.
    pub(super) fn list(
        self,
        limits: &Limits,
        pace: &dyn Fn() -> Pace,
        recorder: &mut Recorder<'_, '_>,
    ) -> Result<(List<Artifact>, Vec<Unmeasured>), RecordError> {
        let mut listing = recorder.listing();
        let mut unmeasured = self.unmeasured;
        let seen = scan(&self.places, limits, pace, &mut |artifact| {
            listing.add(artifact)
        });
        unmeasured.extend(seen);
        Ok((listing.finish()?, unmeasured))
    }
}

fn unmeasured(reason: &str) -> Unmeasured {
    Unmeasured {
        field: "artifacts".to_owned(),
        reason: reason.to_owned(),
    }
}

fn open(path: &Path) -> std::io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    Ok(nix::fcntl::open(path, flags, Mode::empty())?)
}
