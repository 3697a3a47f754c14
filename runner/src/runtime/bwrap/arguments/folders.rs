//! Where what the workload sees is on the host.

use std::path::{Path, PathBuf};

use super::place;
use crate::init::wire::{Word, planted_number};
use crate::mechanism::root::{Entry, Source, What};
use crate::plan::{Plan, Shape};

/// The entries of a tree, and what they show.
pub(super) struct Folders<'a> {
    pub(super) plan: &'a Plan,
    pub(super) entries: &'a [Entry],
}

/// A place inside, on the host.
pub(super) struct OnHost {
    /// As the runner finds it.
    pub(super) path: PathBuf,
    /// As bubblewrap does.
    pub(super) word: Word,
}

impl Folders<'_> {
    /// Of the entries that show a place the last of the deepest; `None` where it is the sandbox's own.
    pub(super) fn of(&self, inside: &Path) -> Option<OnHost> {
        let above = self
            .entries
            .iter()
            .filter(|entry| inside.starts_with(&entry.path))
            .max_by_key(|entry| entry.path.components().count())?;
        let What::Bind { source, .. } = &above.what else {
            return None;
        };
        let below = inside.strip_prefix(&above.path).ok()?;
        let path = match source {
            Source::Path(path) => path.clone(),
            Source::Planted(number) => {
                let index = usize::try_from(number.saturating_sub(planted_number(0))).ok()?;
                match (self.plan.tree.binds.get(index), &self.plan.tree.shape) {
                    (Some(bind), _) => bind.source.clone(),
                    (None, Shape::Custom(root)) => root.join(above.path.strip_prefix("/").ok()?),
                    (None, _) => return None,
                }
            }
        };
        let path = if below.as_os_str().is_empty() {
            path
        } else {
            path.join(below)
        };
        Some(OnHost {
            path,
            word: place(source, below),
        })
    }
}
