//! A launch in words, for the record.

use ledger::facts::control::Control;

use crate::init::wire::Spec;
use crate::mechanism::owners::HostIds;
use crate::mechanism::root::{Mask, What};

/// The steps of this launch, in words: the embedded runtime has no command line of its own.
pub(super) fn describe(
    spec: &Spec,
    ids: &HostIds,
    namespaces: libc::c_int,
    left_out: Option<Control>,
) -> Vec<String> {
    let mut steps = vec!["embedded".to_owned()];
    steps.extend(left_out.map(|control| format!("without {control}")));
    let names = [
        (libc::CLONE_NEWUSER, "user"),
        (libc::CLONE_NEWNS, "mount"),
        (libc::CLONE_NEWPID, "pid"),
        (libc::CLONE_NEWNET, "network"),
        (libc::CLONE_NEWIPC, "ipc"),
        (libc::CLONE_NEWUTS, "uts"),
        (libc::CLONE_NEWCGROUP, "cgroup"),
    ];
    let names: Vec<&str> = names
        .iter()
        .filter(|(flag, _)| namespaces & flag != 0)
        .map(|(_, name)| *name)
        .collect();
    steps.push(format!("namespaces {}", names.join(" ")));
    if let Some(inside) = &spec.identity {
        steps.push(format!("map {}", ids.describe(inside)));
    }
    for entry in spec.root.iter().flat_map(|root| &root.entries) {
        let path = entry.path.display();
        steps.push(match &entry.what {
            What::Bind {
                read_only: true, ..
            } => format!("read {path}"),
            What::Bind { device: true, .. } => format!("device {path}"),
            What::Bind { .. } => format!("write {path}"),
            What::Memory { .. } => format!("memory {path}"),
            What::Processes => format!("proc {path}"),
            What::Terminals => format!("devpts {path}"),
            What::MessageQueues => format!("mqueue {path}"),
            What::Link(to) => format!("link {path} {}", to.display()),
            What::File { .. } => format!("file {path}"),
            What::Folder => format!("folder {path}"),
        });
    }
    for mask in spec.root.iter().flat_map(|root| &root.masks) {
        steps.push(match mask {
            Mask::ReadOnly(path) => format!("read-only {}", path.display()),
            Mask::Empty(path) => format!("cover {}", path.display()),
        });
    }
    for folder in &spec.protect {
        steps.extend(
            folder
                .paths
                .iter()
                .map(|path| format!("protect {}", folder.folder.join(path).display())),
        );
    }
    if spec.give_up_privilege {
        steps.push("no-capabilities".to_owned());
    }
    steps.extend(spec.open_files.map(|limit| format!("open-files {limit}")));
    steps.extend(
        spec.seccomp
            .as_ref()
            .map(|program| format!("seccomp {} instructions", program.len())),
    );
    steps.extend(spec.landlock.as_ref().map(|_| "landlock".to_owned()));
    steps
}
