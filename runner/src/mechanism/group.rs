//! **Control groups**: limits on memory, tasks and CPU time of a whole tree, and what it used (cgroups(7)).
//!
//! Each run has leaf groups of its own, one in each hierarchy that is needed; they are made for it and removed after it,
//! and nothing in a group that exists is changed. [`ways`] says where they can be made, [`leaf`] makes and limits one,
//! [`figures`] reads what it counted, [`mark`] finds what killed runners left, [`manager`] asks systemd for a place, over [`bus`].
//!
//! How a process comes in matters: a write to `cgroup.procs` waits for all processors (synchronize_rcu, 4 to 10 ms).
//! Version 2 makes it there ([`Group::place`], CLONE_INTO_CGROUP), and in version 1 it comes in by itself while it has
//! one thread ([`Group::doors`], [`enter`]); neither waits.

mod bus;
mod figures;
mod leaf;
mod manager;
mod mark;
mod trial;
mod ways;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

pub use figures::Figures;
pub use leaf::{Kept, cpu_value};
pub use trial::tried;
pub use ways::{Lack, LackKind, Manager, Place, Ways};

use super::{Failure, Outcomes};
use crate::sys::pseudo;
use leaf::Leaf;

/// What can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Memory of the whole tree.
    Memory,
    /// Tasks at once in the whole tree.
    Tasks,
    /// CPU time per wall time of the whole tree.
    Cpu,
}

impl Resource {
    /// All.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Tasks, Self::Cpu];

    /// The kernel's name of what limits it.
    #[must_use]
    pub const fn controller(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tasks => "pids",
            Self::Cpu => "cpu",
        }
    }

    /// Its name among [`Outcomes`].
    #[must_use]
    pub const fn mechanism(self) -> &'static str {
        match self {
            Self::Memory => "group-memory",
            Self::Tasks => "group-pids",
            Self::Cpu => "group-cpu",
        }
    }

    /// The file that would limit it.
    #[must_use]
    pub const fn file(self, version: u8) -> &'static str {
        match (self, version) {
            (Self::Memory, 1) => "cgroup-v1 memory.limit_in_bytes",
            (Self::Memory, _) => "cgroup-v2 memory.max",
            (Self::Tasks, 1) => "cgroup-v1 pids.max",
            (Self::Tasks, _) => "cgroup-v2 pids.max",
            (Self::Cpu, 1) => "cgroup-v1 cpu.cfs_quota_us",
            (Self::Cpu, _) => "cgroup-v2 cpu.max",
        }
    }
}

/// Limits of one run. What is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, swap included.
    pub memory_bytes: Option<u64>,
    /// Tasks of the workload at once.
    pub tasks: Option<u64>,
    /// Thousandths of one CPU.
    pub cpu_millis: Option<u64>,
    /// Tasks in the group that are not the workload's: the sandbox's own pid 1.
    pub beside: u64,
}

impl Limits {
    /// The limit of one resource.
    #[must_use]
    pub const fn of(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Memory => self.memory_bytes,
            Resource::Tasks => self.tasks,
            Resource::Cpu => self.cpu_millis,
        }
    }

    /// Whether nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        Resource::ALL
            .into_iter()
            .all(|resource| self.of(resource).is_none())
    }
}

/// The groups of one run. Dropped, they are removed; their processes must have ended before.
#[derive(Debug)]
pub struct Group {
    leaves: Vec<Leaf>,
    /// Of each leaf of version 1: what is limited there, and where to come in.
    doors: Vec<(Vec<Resource>, OwnedFd)>,
    /// The leaf of version 2.
    place: Option<OwnedFd>,
    kept: BTreeMap<Resource, Kept>,
    limits: Limits,
}

impl Group {
    /// Makes groups with these limits where `ways` says, after removing what killed runners left there. `None` where there
    /// is no place for any of them; what failed stands in the outcomes, and no success until [`Self::confirm`].
    #[must_use]
    pub fn make(ways: &Ways, limits: &Limits) -> (Option<Self>, Outcomes) {
        let mut outcomes = Outcomes::default();
        let wanted = |place: &&Place| {
            let limited = |resource: &Resource| limits.of(*resource).is_some();
            place.resources.iter().any(limited)
        };
        let limiting: Vec<&Place> = ways.places.iter().filter(wanted).collect();
        if limiting.is_empty() {
            return (None, outcomes);
        }
        // One that only counts.
        let counting = ways
            .places
            .iter()
            .filter(|place| place.resources.is_empty());
        let places: Vec<&Place> = limiting.into_iter().chain(counting).collect();
        let parents: Vec<_> = places
            .iter()
            .map(|place| (place.parent.clone(), place.root.clone()))
            .collect();
        mark::sweep(&parents);
        let mut group = Self {
            leaves: Vec::new(),
            doors: Vec::new(),
            place: None,
            kept: BTreeMap::new(),
            limits: *limits,
        };
        let mark = match mark::name() {
            Ok(mark) => mark,
            Err(error) => {
                let failure = Failure::call("name a control group", &error);
                group.lose(&Resource::ALL, &failure, &mut outcomes);
                return (None, outcomes);
            }
        };
        for place in places {
            if let Err(failure) = group.add(place, &mark, &mut outcomes) {
                group.lose(&place.resources, &failure, &mut outcomes);
            }
        }
        ((!group.leaves.is_empty()).then_some(group), outcomes)
    }

    fn lose(&self, resources: &[Resource], failure: &Failure, outcomes: &mut Outcomes) {
        for resource in resources {
            if self.limits.of(*resource).is_some() {
                outcomes.note(resource.mechanism(), Err(failure.clone()));
            }
        }
    }

    fn add(&mut self, place: &Place, mark: &str, outcomes: &mut Outcomes) -> Result<(), Failure> {
        let leaf = Leaf::make(
            place.version,
            &place.parent,
            &place.name,
            mark,
            place.controllers.clone(),
        )?;
        for resource in &place.resources {
            match leaf.limit(*resource, &self.limits) {
                Ok(Some(kept)) => {
                    self.kept.insert(*resource, kept);
                }
                Ok(None) => {}
                Err(failure) => outcomes.note(resource.mechanism(), Err(failure)),
            }
        }
        let opened = if place.version == 1 {
            leaf.door()
        } else {
            leaf.descriptor()
        };
        let name = leaf.folder.display().to_string();
        self.leaves.push(leaf);
        let opened: File = opened.map_err(|error| Failure::call(format!("open {name}"), &error))?;
        if place.version == 1 {
            self.doors.push((place.resources.clone(), opened.into()));
        } else {
            self.place = Some(opened.into());
        }
        Ok(())
    }

    /// Where a process is to be made, by clone(2)'s CLONE_INTO_CGROUP.
    #[must_use]
    pub fn place(&self) -> Option<BorrowedFd<'_>> {
        self.place.as_ref().map(OwnedFd::as_fd)
    }

    /// Where a process of one thread comes in by itself, with [`enter`], and what is lost where it does not.
    pub fn doors(&self) -> impl Iterator<Item = (&[Resource], &OwnedFd)> {
        self.doors
            .iter()
            .map(|(resources, door)| (resources.as_slice(), door))
    }

    /// Notes that a process could not be made in [`Self::place`], and that the limits of that group are lost.
    pub fn give_up_place(&mut self, error: &str, outcomes: &mut Outcomes) {
        self.place = None;
        let failure = Failure {
            attempt: "make a process in its control group".to_owned(),
            error: error.to_owned(),
        };
        for (resource, kept) in &self.kept {
            if kept.mechanism.starts_with("cgroup-v2") {
                outcomes.note(resource.mechanism(), Err(failure.clone()));
            }
        }
    }

    /// Notes of every limit whether it is in force for a process: it was read back, and the process is in the group.
    pub fn confirm(&self, pid: i32, outcomes: &mut Outcomes) {
        let path = format!("/proc/{pid}/cgroup");
        let read =
            pseudo::read_text(&path).map_err(|error| Failure::call(format!("read {path}"), &error));
        for (resource, kept) in &self.kept {
            let is_in = read.clone().and_then(|membership| {
                let version = if kept.mechanism.starts_with("cgroup-v1") {
                    1
                } else {
                    2
                };
                let leaf = self.leaves.iter().find(|leaf| {
                    let has = |name| leaf.controllers.split(',').any(|one| one == name);
                    leaf.version == version && (version == 2 || has(resource.controller()))
                });
                match leaf {
                    Some(leaf) if leaf.holds(&membership) => Ok(()),
                    Some(leaf) => Err(Failure::no_effect(format!("be in group {}", leaf.name))),
                    None => Err(Failure::no_effect("be in a group")),
                }
            });
            outcomes.note(resource.mechanism(), is_in);
        }
    }

    /// A limit as it was read back.
    #[must_use]
    pub fn kept(&self, resource: Resource) -> Option<&Kept> {
        self.kept.get(&resource)
    }

    /// What the groups counted so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures::of(&self.leaves, self.limits.beside)
    }

    /// Whether the kernel killed a process of the groups for lack of memory so far, where it tells.
    #[must_use]
    pub fn ran_out_of_memory(&self) -> Option<bool> {
        let counts = self
            .leaves
            .iter()
            .filter_map(|leaf| figures::oom_kills(&leaf.folder, leaf.version));
        counts.max().map(|count| count > 0)
    }

    /// Removes the groups, waiting for processes that are on their way out.
    ///
    /// # Errors
    /// One stays; the next run with limits tries again.
    pub fn remove(mut self) -> Result<(), Failure> {
        let leaves = std::mem::take(&mut self.leaves);
        let mut removed = Ok(());
        for leaf in &leaves {
            removed = removed.and(leaf.remove());
        }
        removed
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for leaf in &self.leaves {
            // The next run with limits tries again.
            let _ = leaf.remove();
        }
    }
}

/// Moves this thread, the only one of its process, into the group of version 1 that `door` is of. Then the kernel need not wait
/// for anybody else.
///
/// # Errors
/// The kernel's, of a write to `tasks` (cgroups(7)).
pub fn enter(door: BorrowedFd<'_>) -> io::Result<()> {
    nix::unistd::write(door, b"0")?;
    Ok(())
}

#[cfg(test)]
mod tests;
