//! Where groups for a run can be made, by what this host allows: looked up, not made.
//!
//! | way | needs |
//! |---|---|
//! | delegated | a version 2 group at or above the runner's own that is the user's (or that systemd marked for root), with controllers switched on for the groups below it |
//! | manager | a service manager that makes such a group: the user's, for root the system's |
//! | root | the same as delegated, without anybody's leave |
//! | version 1 | the runner's own group of the controller's hierarchy, writable: root's alone, as a rule |
//!
//! The first that has a controller gives it. No controller is switched on in a group that exists: what is not switched on
//! is not to be had there (cgroups(7), no-internal-process rule).

mod unified;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::Resource;
use crate::host::cgroup::{Hierarchy, hierarchies, is_given_to_root};
use crate::sys::{errno_name, pseudo};

/// Version 1's controller that counts CPU time.
pub(super) const COUNTS_CPU: &str = "cpuacct";

/// Why there is no group with a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What lacks.
    pub kind: LackKind,
    /// Where, and what was found there.
    pub detail: String,
}

/// What can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LackKind {
    /// No hierarchy with the controller is mounted.
    NotMounted,
    /// There is one, and nobody lets this user make groups in it.
    NotWritable,
    /// There is a place for groups, and the controller is not switched on there.
    NotDelegated,
}

/// A place for leaf groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1 or 2.
    pub version: u8,
    /// The folder in which they are made.
    pub parent: PathBuf,
    /// The same as /proc/PID/cgroup says it.
    pub name: String,
    /// The hierarchy's root.
    pub root: PathBuf,
    /// Its hierarchy's controllers, of version 1, joined by commas.
    pub controllers: String,
    /// What can be limited there.
    pub resources: Vec<Resource>,
}

/// A service manager that can be asked for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// Its sockets, the best first.
    pub sockets: Vec<PathBuf>,
    /// What it could give.
    pub resources: Vec<Resource>,
}

/// What can be limited on this host, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Where groups can be made at once.
    pub places: Vec<Place>,
    /// Whom to ask first, as that gives more.
    pub manager: Option<Manager>,
    /// What is not to be had either way.
    pub lacking: BTreeMap<Resource, Lack>,
}

/// Who looks.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) uid: u32,
    /// The folder in which the manager's sockets are; absent where there is no manager to ask.
    pub(super) manager: Option<PathBuf>,
    /// Whether a group was given to root.
    pub(super) given_to_root: fn(&Path) -> bool,
}

impl Caller {
    pub(super) fn current() -> Self {
        let uid = nix::unistd::geteuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        Self {
            uid,
            manager: Some(if uid == 0 {
                "/run".into()
            } else {
                runtime
                    .filter(|path| path.is_absolute())
                    .unwrap_or_else(|| format!("/run/user/{uid}").into())
            }),
            given_to_root: is_given_to_root,
        }
    }
}

impl Ways {
    /// Looks this host over.
    ///
    /// # Errors
    /// /proc does not tell about groups.
    pub fn find() -> io::Result<Self> {
        Self::find_as(&Caller::current())
    }

    fn find_without_manager() -> io::Result<Self> {
        Self::find_as(&Caller {
            manager: None,
            ..Caller::current()
        })
    }

    fn find_as(caller: &Caller) -> io::Result<Self> {
        let mounts = pseudo::read_text("/proc/self/mountinfo")?;
        let membership = match pseudo::read_text("/proc/self/cgroup") {
            // A kernel without control groups.
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        Ok(Self::among(&hierarchies(&mounts, &membership), caller))
    }

    pub(super) fn among(all: &[Hierarchy], caller: &Caller) -> Self {
        let mut ways = Self::default();
        let mut refused = Vec::new();
        if let Some(unified) = all.iter().find(|one| one.version == 2) {
            ways.look_at_version_2(unified, caller, &mut refused);
        }
        for resource in Resource::ALL {
            if ways.can(resource) {
                continue;
            }
            let name = resource.controller();
            let Some(hierarchy) = all
                .iter()
                .find(|one| one.controllers.iter().any(|controller| controller == name))
            else {
                continue;
            };
            match is_ours(&hierarchy.own) {
                Ok(()) => ways.add_version_1(hierarchy, resource),
                Err(error) => refused.push((resource, denied(&hierarchy.own, &error))),
            }
        }
        if ways.places.iter().any(|place| place.version == 1) {
            ways.add_count(all);
        }
        for resource in Resource::ALL {
            if !ways.can(resource) {
                ways.lacking
                    .entry(resource)
                    .or_insert_with(|| lack(resource, &refused));
            }
        }
        let covered: Vec<Resource> = Resource::ALL
            .into_iter()
            .filter(|resource| ways.can(*resource))
            .collect();
        ways.lacking
            .retain(|resource, _| !covered.contains(resource));
        ways
    }

    /// Whether something can be limited.
    #[must_use]
    pub fn can(&self, resource: Resource) -> bool {
        self.version_of(resource).is_some()
    }

    /// By which version something would be limited.
    #[must_use]
    pub fn version_of(&self, resource: Resource) -> Option<u8> {
        let asked = self.manager.iter().map(|manager| (2, &manager.resources));
        let places = self
            .places
            .iter()
            .map(|place| (place.version, &place.resources));
        asked
            .chain(places)
            .find_map(|(version, resources)| resources.contains(&resource).then_some(version))
    }

    /// Asks the service manager for a place, where that would give what these limits need and no place does, and looks again.
    pub fn settle(&mut self, limits: &super::Limits) {
        let Some(manager) = &self.manager else {
            return;
        };
        let is_needed = |resource: &Resource| limits.of(*resource).is_some();
        if !manager.resources.iter().any(is_needed) {
            return;
        }
        // Once is enough: what it does not give now it will not give later.
        let refused = super::manager::settle(manager).err();
        let found = Self::find_without_manager();
        let asked_for = self.manager.take().map(|manager| manager.resources);
        match found {
            Ok(found) => *self = found,
            Err(error) => {
                let why = format!("read /proc: {}", errno_name(&error));
                self.refuse(asked_for.unwrap_or_default(), &why);
                return;
            }
        }
        if let Some(why) = refused {
            self.refuse(asked_for.unwrap_or_default(), &why);
        }
    }

    fn refuse(&mut self, resources: Vec<Resource>, why: &str) {
        for resource in resources {
            if !self.can(resource) {
                let kind = LackKind::NotWritable;
                let detail = why.to_owned();
                self.lacking.insert(resource, Lack { kind, detail });
            }
        }
    }

    fn add_version_1(&mut self, hierarchy: &Hierarchy, resource: Resource) {
        let known = self
            .places
            .iter_mut()
            .find(|place| place.version == 1 && place.root == hierarchy.point);
        if let Some(place) = known {
            place.resources.push(resource);
            return;
        }
        self.places.push(Place {
            version: 1,
            parent: hierarchy.own.clone(),
            name: hierarchy.name.clone(),
            root: hierarchy.point.clone(),
            controllers: hierarchy.controllers.join(","),
            resources: vec![resource],
        });
    }

    /// The hierarchy that counts CPU time, where it is not there already and can be had.
    fn add_count(&mut self, all: &[Hierarchy]) {
        let counts = |one: &&Hierarchy| one.controllers.iter().any(|name| name == COUNTS_CPU);
        let Some(hierarchy) = all.iter().find(counts) else {
            return;
        };
        let known = self
            .places
            .iter()
            .any(|place| place.version == 1 && place.root == hierarchy.point);
        if !known && is_ours(&hierarchy.own).is_ok() {
            self.places.push(Place {
                version: 1,
                parent: hierarchy.own.clone(),
                name: hierarchy.name.clone(),
                root: hierarchy.point.clone(),
                controllers: hierarchy.controllers.join(","),
                resources: Vec::new(),
            });
        }
    }
}

fn lack(resource: Resource, refused: &[(Resource, String)]) -> Lack {
    match refused.iter().find(|(one, _)| *one == resource) {
        Some((_, detail)) => Lack {
            kind: LackKind::NotWritable,
            detail: detail.clone(),
        },
        None => Lack {
            kind: LackKind::NotMounted,
            detail: resource.controller().to_owned(),
        },
    }
}

pub(super) fn denied(path: &Path, error: &io::Error) -> String {
    format!("{}: {}", path.display(), errno_name(error))
}

/// Whether this process may make groups in a group, and move processes in from below it.
pub(super) fn is_ours(group: &Path) -> io::Result<()> {
    let flags = AccessFlags::W_OK | AccessFlags::X_OK;
    access(group, flags)?;
    access(&group.join("cgroup.procs"), AccessFlags::W_OK)?;
    Ok(())
}

/// Those controllers of a file that limits are made of.
pub(super) fn controllers(file: &Path) -> io::Result<Vec<Resource>> {
    let text = pseudo::read_text(file)?;
    let has = |resource: &Resource| {
        text.split_whitespace()
            .any(|name| name == resource.controller())
    };
    Ok(Resource::ALL.into_iter().filter(has).collect())
}

#[cfg(test)]
mod tests;
