//! Places in the hierarchy of version 2, and whom to ask for one.

use std::path::{Path, PathBuf};

use super::{Caller, Lack, LackKind, Manager, Place, Ways, controllers, denied, is_ours};
use crate::host::cgroup::Hierarchy;
use crate::mechanism::group::Resource;

impl Ways {
    /// Takes what version 2 has, and says why not where it has nothing.
    pub(super) fn look_at_version_2(
        &mut self,
        unified: &Hierarchy,
        caller: &Caller,
        refused: &mut Vec<(Resource, String)>,
    ) {
        let file = unified.point.join("cgroup.controllers");
        let offered = match controllers(&file) {
            Ok(offered) => offered,
            Err(error) => {
                let why = denied(&file, &error);
                refused.extend(Resource::ALL.map(|resource| (resource, why.clone())));
                return;
            }
        };
        if offered.is_empty() {
            // A hybrid layout: the controllers are version 1's.
            return;
        }
        let delegated = best_place(unified, |path| {
            is_ours(path).is_ok() && (caller.uid != 0 || (caller.given_to_root)(path))
        });
        let has = delegated.as_ref().map_or(0, |place| place.resources.len());
        let manager = find_manager(unified, caller).filter(|one| one.resources.len() > has);
        if let Some(place) = delegated {
            self.note_missing(&offered, &place);
            self.places.push(place);
        }
        let is_asked = manager.is_some();
        self.manager = manager;
        if caller.uid == 0 && self.places.is_empty() && !is_asked {
            self.places
                .extend(best_place(unified, |path| is_ours(path).is_ok()));
            if let Some(place) = self.places.first().cloned() {
                self.note_missing(&offered, &place);
            }
        }
        let why = match is_ours(&unified.own) {
            Err(error) => denied(&unified.own, &error),
            Ok(()) => format!(
                "no controllers for groups below {} or above it",
                unified.own.display()
            ),
        };
        let socket = caller
            .manager
            .as_ref()
            .map(|folder| folder.join("systemd/private"));
        let why = match socket.filter(|_| !is_asked) {
            Some(socket) if !socket.exists() => {
                format!("{why}; no service manager at {}", socket.display())
            }
            _ => why,
        };
        refused.extend(offered.iter().map(|resource| (*resource, why.clone())));
    }

    /// Controllers of the hierarchy that a place does not have.
    fn note_missing(&mut self, offered: &[Resource], place: &Place) {
        let has: Vec<&str> = place
            .resources
            .iter()
            .map(|resource| resource.controller())
            .collect();
        for resource in offered {
            if !place.resources.contains(resource) {
                self.lacking.insert(
                    *resource,
                    Lack {
                        kind: LackKind::NotDelegated,
                        detail: format!(
                            "{} has {} and not {}",
                            place.parent.display(),
                            has.join(", "),
                            resource.controller()
                        ),
                    },
                );
            }
        }
    }
}

/// The nearest group at or above the runner's own that has as much as any for groups below it.
fn best_place(unified: &Hierarchy, may: impl Fn(&Path) -> bool) -> Option<Place> {
    let mut best: Option<Place> = None;
    let mut name = unified.name.trim_end_matches('/');
    let mut folder = unified.own.as_path();
    loop {
        if may(folder) {
            let resources = controllers(&folder.join("cgroup.subtree_control")).unwrap_or_default();
            let has = best.as_ref().map_or(0, |place| place.resources.len());
            if resources.len() > has {
                best = Some(Place {
                    version: 2,
                    parent: folder.to_owned(),
                    name: name.to_owned(),
                    root: unified.point.clone(),
                    controllers: String::new(),
                    resources,
                });
            }
        }
        if folder == unified.point.as_path() {
            return best;
        }
        let above = (folder.parent(), name.rsplit_once('/'));
        let (Some(parent), Some((rest, _))) = above else {
            return best;
        };
        (folder, name) = (parent, rest);
    }
}

/// The manager to ask, and which controllers its own group has.
fn find_manager(unified: &Hierarchy, caller: &Caller) -> Option<Manager> {
    let folder = caller.manager.as_ref()?;
    let sockets = [folder.join("systemd/private"), folder.join("bus")];
    let sockets: Vec<PathBuf> = sockets
        .into_iter()
        .filter(|path| is_socket_of(path, caller.uid))
        .collect();
    let uid = caller.uid;
    let group = if uid == 0 {
        unified.point.clone()
    } else {
        let manager = format!("user.slice/user-{uid}.slice/user@{uid}.service");
        unified.point.join(manager)
    };
    let resources = controllers(&group.join("cgroup.controllers")).ok()?;
    (!sockets.is_empty() && !resources.is_empty()).then_some(Manager { sockets, resources })
}

/// A socket that this very user's manager listens on, and no link to another.
pub(super) fn is_socket_of(path: &Path, uid: u32) -> bool {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    std::fs::symlink_metadata(path)
        .is_ok_and(|found| found.file_type().is_socket() && found.uid() == uid)
}
