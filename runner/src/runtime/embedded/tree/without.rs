//! What a tree shows of the host where one control is left out ([`super::super::ablation`]).

use std::path::Path;

use super::{Built, names};
use crate::init::wire::planted_number;
use crate::mechanism::owners::{HostIds, MapOwnersError, clone_path};
use crate::mechanism::root::{Mask, Source, What};
use crate::plan::Plan;

/// The host's folders, writable where their permissions say so.
pub(super) fn show_host(built: &mut Built) -> Result<(), MapOwnersError> {
    let folder = Path::new("/");
    let not_the_hosts = ["proc", "sys", "dev", "workspace", "workload"];
    for name in names(folder)? {
        let path = folder.join(&name);
        if not_the_hosts.iter().any(|own| name == *own) {
            continue;
        }
        match std::fs::read_link(&path) {
            Ok(to) => built.put(path, What::Link(to)),
            Err(_) => built.show(&path, Source::Path(path.clone()), false, true),
        }
    }
    Ok(())
}

/// Unix sockets of the host, each by itself. Root opens them here: the workload's own id may not get to where they are.
pub(super) fn show_sockets(built: &mut Built, plan: &Plan, ids: &HostIds) {
    for path in super::super::sockets::to_show(plan) {
        if !matches!(ids, HostIds::Allocated { .. }) {
            built.show(&path, Source::Path(path.clone()), false, true);
            continue;
        }
        // One that is gone by now is none to show.
        let Ok(real) = std::fs::canonicalize(&path) else {
            continue;
        };
        if let Ok(tree) = clone_path(&real, false) {
            built.planted.push(tree);
            let source = Source::Planted(planted_number(built.planted.len() - 1));
            // Whose it is may remove it at any time.
            built.show(&path, source, false, true);
        }
    }
}

/// The host's devices; what IPC and terminals are made of is the sandbox's own where the host has a place for it, and no
/// socket is shown.
pub(super) fn devices(built: &mut Built, plan: &Plan, own_ipc: bool) {
    let source = Source::Path("/dev".into());
    built.put(
        "/dev",
        What::Bind {
            source,
            read_only: false,
            device: true,
            optional: false,
        },
    );
    let bytes = plan.tree.own_bytes;
    let mut own = vec![
        ("/dev/pts", What::Terminals),
        (
            "/dev/shm",
            What::Memory {
                mode: 0o1777,
                bytes,
            },
        ),
    ];
    if own_ipc {
        own.push(("/dev/mqueue", What::MessageQueues));
    }
    for (path, what) in own {
        if Path::new(path).is_dir() {
            built.put(path, what);
        }
    }
    let sockets = super::super::sockets::in_devices().into_iter();
    built.root.masks.extend(sockets.map(Mask::Empty));
}
