//! From the files that a plan shows to the steps that put them in place.

mod without;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ledger::facts::control::Control;

use super::tier::Tier;
use crate::init::wire::planted_number;
use crate::mechanism::identity::IdentitySpec;
use crate::mechanism::owners::{HostIds, MapOwnersError, OwnerMaps};
use crate::mechanism::placeholders::Placeholders;
use crate::mechanism::protect::ProtectSpec;
use crate::mechanism::root::{Entry, Mask, RootSpec, Source, What};
use crate::plan::{Bind, Plan, Shape};
use crate::sys::identity;

/// Of /etc, what programs need and what holds no secret; the rest is made up or missing.
pub(super) const ETC: [&str; 12] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/alternatives",
    "/etc/ssl",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/pki",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/crypto-policies",
];
/// Device nodes that reach nothing.
pub(super) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Below every home folder under the host's tree.
const SECRETS: [&str; 14] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".config/gh",
    ".config/google-chrome",
    ".config/chromium",
    ".mozilla",
    ".netrc",
    ".git-credentials",
    ".local/share/containment-ledger",
];
/// Host folders that the sandbox has of its own.
const OWN: [&str; 9] = [
    "proc",
    "sys",
    "dev",
    "tmp",
    "run",
    "workspace",
    "workload",
    "lost+found",
    "boot",
];
/// Read-only in /proc whatever the policy says.
const PROC_READ_ONLY: [&str; 5] = [
    "/proc/sys",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
    "/proc/sysrq-trigger",
];
/// Covered in /proc whatever the policy says.
const PROC_COVERED: [&str; 7] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/latency_stats",
    "/proc/acpi",
    "/proc/scsi",
];

/// Everything that a launch needs of a plan's files.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) root: RootSpec,
    pub(super) protect: Vec<ProtectSpec>,
    pub(super) planted: Vec<OwnedFd>,
    pub(super) placeholders: Placeholders,
    /// A protected path that could not be made ready.
    pub(super) unprotected: Option<String>,
    pub(super) mapped: Vec<PathBuf>,
}

impl Built {
    fn put(&mut self, path: impl Into<PathBuf>, what: What) {
        self.root.entries.push(Entry {
            path: path.into(),
            what,
        });
    }

    fn show(&mut self, path: &Path, source: Source, read_only: bool, optional: bool) {
        self.put(
            path,
            What::Bind {
                source,
                read_only,
                device: false,
                optional,
            },
        );
    }

    /// Something of the host's own tree: a link as a link, anything else read-only; nothing when it is not there.
    fn show_as_it_is(&mut self, host: &Path, inside: &Path) {
        let Ok(metadata) = std::fs::symlink_metadata(host) else {
            return;
        };
        if metadata.is_symlink() {
            if let Ok(to) = std::fs::read_link(host) {
                self.put(inside, What::Link(to));
            }
        } else {
            self.show(inside, Source::Path(host.to_owned()), true, true);
        }
    }

    fn text(&mut self, path: &str, content: String) {
        self.put(
            path,
            What::File {
                content: content.into_bytes(),
                mode: 0o644,
            },
        );
    }
}

pub(super) fn build(
    plan: &Plan,
    ids: &HostIds,
    inside: &IdentitySpec,
    tier: &Tier,
    own_ipc: bool,
    bytes: Option<u64>,
) -> Result<Built, MapOwnersError> {
    let mut built = Built {
        placeholders: Placeholders::begin(),
        ..Built::default()
    };
    match &plan.tree.shape {
        Shape::Ephemeral => {
            for system in crate::plan::SYSTEM {
                built.show_as_it_is(Path::new(system), Path::new(system));
            }
            for file in ETC {
                built.show_as_it_is(Path::new(file), Path::new(file));
            }
            make_up_etc(&mut built, plan, inside);
        }
        Shape::HostReadOnly => {
            show_children(&mut built, Path::new("/"))?;
            cover_secrets(&mut built, plan)?;
        }
        Shape::Custom(folder) => show_children(&mut built, folder)?,
        Shape::Host => without::show_host(&mut built)?,
    }
    devices(&mut built, plan, own_ipc, bytes);
    if plan.job.leaves_out(Control::Process) {
        built.show(
            Path::new("/proc"),
            Source::Path("/proc".into()),
            false,
            false,
        );
    } else if *tier == Tier::Full {
        built.put("/proc", What::Processes);
    } else {
        // In the new root, which becomes read-only.
        built.put("/proc", What::Folder);
    }
    if plan.tree.shape != Shape::Host {
        for path in ["/tmp", "/var/tmp"] {
            let mode = 0o1777;
            built.put(path, What::Memory { mode, bytes });
        }
        built.put("/run", What::Folder);
    }
    built.put("/workspace", What::Memory { mode: 0o755, bytes });
    for secret in &plan.job.secrets {
        let path = format!("/run/secrets/{}", secret.name);
        built.put(
            path,
            What::File {
                content: secret.value.clone(),
                mode: 0o400,
            },
        );
    }
    show_binds(&mut built, plan, ids)?;
    if plan.job.leaves_out(Control::Ipc) {
        without::show_sockets(&mut built, plan, ids);
    }
    built
        .root
        .masks
        .extend(PROC_READ_ONLY.map(|path| Mask::ReadOnly(path.into())));
    built
        .root
        .masks
        .extend(PROC_COVERED.map(|path| Mask::Empty(path.into())));
    built.root.masks.extend(
        plan.tree
            .covered
            .iter()
            .map(|path| Mask::Empty(path.clone())),
    );
    Ok(built)
}

/// Whether a folder comes in with its owner mapped, where the runner is root. Root of a container may mostly not: what is
/// read-only is shown as it is then, for nobody's files are made there; what is writable is refused.
pub(super) fn maps_owners(bind: &Bind) -> bool {
    !bind.read_only || identity::is_effective(identity::CAP_SYS_ADMIN)
}

fn make_up_etc(built: &mut Built, plan: &Plan, inside: &IdentitySpec) {
    let IdentitySpec { uid, gid, .. } = *inside;
    let name = if uid == 0 { "root" } else { "sandbox" };
    let root = if uid == 0 {
        ""
    } else {
        "root:x:0:0:root:/:/usr/sbin/nologin\n"
    };
    let nobody = "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n";
    built.text(
        "/etc/passwd",
        format!("{root}{name}:x:{uid}:{gid}:sandbox:/workspace:/bin/sh\n{nobody}"),
    );
    let root = if gid == 0 { "" } else { "root:x:0:\n" };
    built.text(
        "/etc/group",
        format!("{root}{name}:x:{gid}:\nnogroup:x:65534:\n"),
    );
    built.text(
        "/etc/hosts",
        "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n".to_owned(),
    );
    built.text(
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\n".to_owned(),
    );
    if plan.policy.network.mode == ledger::facts::policy::NetworkMode::Unrestricted {
        // The host's resolver is reachable, so its address is of use.
        let real =
            std::fs::canonicalize("/etc/resolv.conf").unwrap_or_else(|_| "/etc/resolv.conf".into());
        built.show(
            Path::new("/etc/resolv.conf"),
            Source::Path(real),
            true,
            true,
        );
    } else {
        built.text("/etc/resolv.conf", String::new());
    }
}

/// What cannot be listed cannot be shown: an empty tree would look like an empty folder.
fn show_children(built: &mut Built, folder: &Path) -> Result<(), MapOwnersError> {
    for name in names(folder)? {
        if !OWN.iter().any(|own| name == *own) {
            built.show_as_it_is(&folder.join(&name), &Path::new("/").join(&name));
        }
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<OsString>, MapOwnersError> {
    let listed = std::fs::read_dir(folder).and_then(|entries| {
        entries
            .map(|entry| Ok(entry?.file_name()))
            .collect::<std::io::Result<Vec<_>>>()
    });
    let mut names = listed.map_err(|error| unreadable(folder, &error))?;
    names.sort();
    Ok(names)
}

/// The home folders' secrets, wherever accounts say homes are.
fn cover_secrets(built: &mut Built, plan: &Plan) -> Result<(), MapOwnersError> {
    let mut homes: Vec<PathBuf> = vec!["/root".into()];
    homes.extend(plan.job.home.clone());
    // A home that is not known is not covered, so what cannot be read is no reason to go on.
    match std::fs::read("/etc/passwd") {
        Ok(text) => homes.extend(text.split(|byte| *byte == b'\n').filter_map(home_of)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable(Path::new("/etc/passwd"), &error)),
    }
    for folder in ["/home", "/var/home"].map(Path::new) {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            // What the caller may not list, the workload, which has no more rights, may not either.
            Err(error) if is_out_of_reach(&error) => continue,
            Err(error) => return Err(unreadable(folder, &error)),
        };
        for entry in entries {
            homes.push(entry.map_err(|error| unreadable(folder, &error))?.path());
        }
    }
    homes.retain(|home| home.is_absolute() && home.parent().is_some());
    homes.sort();
    homes.dedup();
    let mut secrets: Vec<PathBuf> = ["/etc/shadow", "/etc/gshadow", "/etc/ssh"]
        .map(PathBuf::from)
        .to_vec();
    for home in homes {
        secrets.extend(SECRETS.map(|secret| home.join(secret)));
    }
    let mut places: Vec<PathBuf> = secrets.iter().flat_map(|path| shown_at(path)).collect();
    places.sort();
    places.dedup();
    built.root.masks.extend(places.into_iter().map(Mask::Empty));
    Ok(())
}

/// The sixth field of a line of /etc/passwd (passwd(5)).
fn home_of(line: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let field = line.split(|byte| *byte == b':').nth(5)?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(field)))
}

fn is_out_of_reach(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

fn unreadable(path: &Path, error: &std::io::Error) -> MapOwnersError {
    MapOwnersError::Source {
        path: path.to_owned(),
        error: crate::sys::errno_name(error),
    }
}

/// Where a secret can be read: a link is the way to it, and what it leads to must be covered. The same for links
/// in a folder of secrets, each of which may lead to a file of its own.
fn shown_at(secret: &Path) -> Vec<PathBuf> {
    let real = match std::fs::canonicalize(secret) {
        Ok(real) => real,
        // A link to nothing shows nothing.
        Err(_) if secret.is_symlink() => return Vec::new(),
        // Not there, or out of the caller's reach: if init gets to it after all, it is covered.
        Err(_) => return vec![secret.to_owned()],
    };
    let entries = std::fs::read_dir(&real)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let links = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .filter_map(|entry| std::fs::canonicalize(entry.path()).ok());
    let mut places: Vec<PathBuf> = links.filter(|place| !place.starts_with(&real)).collect();
    places.push(real);
    places.retain(|place| {
        // A program that a folder of secrets links to is none; nor is a folder that holds the secret with all else.
        !crate::plan::SYSTEM
            .iter()
            .any(|system| place.starts_with(system))
            && !place.starts_with("/dev")
            && !secret.starts_with(place)
            || place == secret
    });
    places
}

fn devices(built: &mut Built, plan: &Plan, own_ipc: bool, bytes: Option<u64>) {
    if plan.job.leaves_out(Control::Devices) {
        return without::devices(built, own_ipc, bytes);
    }
    let allowed = plan.policy.devices.allow.iter();
    let allowed = allowed.filter(|path| !crate::plan::OWN_DEVICES.contains(&path.as_str()));
    let allowed = allowed.map(|path| path.trim_start_matches("/dev/").to_owned());
    for name in DEVICES.into_iter().map(str::to_owned).chain(allowed) {
        let path = Path::new("/dev").join(name);
        let source = Source::Path(path.clone());
        built.put(
            &path,
            What::Bind {
                source,
                read_only: false,
                device: true,
                optional: true,
            },
        );
    }
    for (name, to) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        built.put(Path::new("/dev").join(name), What::Link(to.into()));
    }
    built.put("/dev/pts", What::Terminals);
    let memory = Path::new("/dev/shm");
    if plan.tree.shape == Shape::Host && memory.is_dir() {
        built.show(memory, Source::Path(memory.to_owned()), false, false);
    } else {
        let mode = 0o1777;
        built.put(memory, What::Memory { mode, bytes });
    }
    if own_ipc {
        built.put("/dev/mqueue", What::MessageQueues);
    }
}

fn show_binds(built: &mut Built, plan: &Plan, ids: &HostIds) -> Result<(), MapOwnersError> {
    let mut maps = OwnerMaps::new(ids.host_uid());
    for bind in &plan.tree.binds {
        let target = real_target(&built.root.entries, &bind.target);
        if plan.tree.protects(bind) {
            // Before the folder is copied: the copy shows what is there then and later alike.
            match built
                .placeholders
                .make(&bind.source, &plan.tree.protect, |path| {
                    makes(plan, &bind.source, path)
                }) {
                Ok(paths) => built.protect.push(ProtectSpec {
                    pinned: pinned(plan, &bind.target),
                    folder: target.clone(),
                    paths,
                }),
                Err(error) => {
                    built.unprotected = Some(format!(
                        "{}: {}",
                        bind.source.display(),
                        crate::sys::errno_name(&error)
                    ));
                }
            }
        }
        if let Some((folder, below)) = writable_above(plan, bind)
            && let Err(error) =
                built
                    .placeholders
                    .mount_point(folder, below, bind.source.is_dir())
            // Links are the tree's own matter: it follows them inside the new root.
            && error.raw_os_error() != Some(libc::ELOOP)
        {
            built.unprotected = Some(format!(
                "{}: {}",
                folder.join(below).display(),
                crate::sys::errno_name(&error)
            ));
        }
        let source = if matches!(ids, HostIds::Allocated { .. }) && maps_owners(bind) {
            let tree = maps.bring_in(&bind.source)?;
            built.mapped.push(target.clone());
            built.planted.push(tree);
            Source::Planted(planted_number(built.planted.len() - 1))
        } else {
            Source::Path(bind.source.clone())
        };
        built.show(&target, source, bind.read_only, false);
    }
    Ok(())
}

/// The writable bind in whose folder the place of this one lies, and where.
fn writable_above<'a>(plan: &'a Plan, bind: &'a Bind) -> Option<(&'a Path, &'a Path)> {
    let above = plan
        .tree
        .binds
        .iter()
        .filter(|above| above.target != bind.target && bind.target.starts_with(&above.target))
        .max_by_key(|above| above.target.components().count())?;
    let below = bind.target.strip_prefix(&above.target).ok()?;
    (!above.read_only && above.source.is_dir()).then_some((above.source.as_path(), below))
}

/// Whether a protected path that is missing is made. Files that only a home folder's programs read are, where the
/// policy does not name them itself, made in home folders alone.
fn makes(plan: &Plan, folder: &Path, path: &str) -> bool {
    use ledger::facts::policy::{DEFAULT_PROTECT, PROTECTED_IN_HOMES};
    if plan.tree.protect != DEFAULT_PROTECT || !PROTECTED_IN_HOMES.contains(&path) {
        return true;
    }
    let is_callers =
        plan.job.home.as_ref().is_some_and(|home| {
            std::fs::canonicalize(home).is_ok_and(|home| home.as_path() == folder)
        });
    // A placeholder of another run is empty; a start file of somebody's is not.
    let holds = |name: &str| {
        std::fs::symlink_metadata(folder.join(name)).is_ok_and(|found| found.len() > 0)
    };
    is_callers
        || [".bashrc", ".profile", ".zshrc", ".bash_profile"]
            .into_iter()
            .any(holds)
}

/// The folders below a writable one in which evidence is covered.
fn pinned(plan: &Plan, folder: &Path) -> Vec<String> {
    let folders = plan.tree.pinned(folder).into_iter();
    folders
        .map(|path| path.to_string_lossy().into_owned())
        .collect()
}

/// A target whose first part is a link of the tree's own (`/lib` to `usr/lib`), with the link resolved, so that
/// reading back finds the mount under the name that the kernel gives it.
fn real_target(entries: &[Entry], target: &Path) -> PathBuf {
    for entry in entries {
        if let What::Link(to) = &entry.what
            && let Ok(below) = target.strip_prefix(&entry.path)
            && !below.as_os_str().is_empty()
        {
            return Path::new("/").join(to).join(below);
        }
    }
    target.to_owned()
}
