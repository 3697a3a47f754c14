//! Which files a workload is to see, before it is known how a runtime shows them.

use std::path::{Component, Path, PathBuf};

use ledger::facts::policy::{Policy, Root};

use super::Job;

/// The files that a workload is to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// What the rest is put on.
    pub shape: Shape,
    /// Host folders and files, shallow targets first.
    pub binds: Vec<Bind>,
    /// Protected paths below each writable folder.
    pub protect: Vec<String>,
    /// Evidence that a bind would show, as the workload would see it; it is covered.
    pub covered: Vec<PathBuf>,
    /// Cap on the memory that /workspace and /tmp take, in bytes each.
    pub own_bytes: Option<u64>,
}

/// What a tree is built on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// System folders read-only, a short list of /etc, empty writable places.
    #[default]
    Ephemeral,
    /// The host's tree read-only, secrets covered.
    HostReadOnly,
    /// A folder of the host as root, read-only.
    Custom(PathBuf),
}

/// One thing of the host that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// On the host, links resolved.
    pub source: PathBuf,
    /// As the workload sees it.
    pub target: PathBuf,
    /// The workload may not write there.
    pub read_only: bool,
}

/// Why files cannot be laid out as asked.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum TreeError {
    /// A source is not there.
    #[error("cannot show {path}", path = path.display())]
    #[diagnostic(
        code(runner::plan::no_source),
        help("give an existing file or folder to --read or --write")
    )]
    Source {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A source is a symbolic link and the policy does not follow those.
    #[error("{path} is a symbolic link to {to}", path = path.display(), to = to.display())]
    #[diagnostic(
        code(runner::plan::symlink),
        help("name the folder itself, or set filesystem.followSymlinks")
    )]
    Symlink {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        to: PathBuf,
    },
    /// A target is not a plain absolute path, or is one that the sandbox needs.
    #[error("cannot show anything at {path}", path = path.display())]
    #[diagnostic(
        code(runner::plan::target),
        help(
            "a place inside is an absolute path without `..`, and not /, /proc, /dev, /sys or below those"
        )
    )]
    Target {
        /// The path.
        path: PathBuf,
    },
    /// Two things at one place.
    #[error("{first} and {second} are both to stand at {target}", first = first.display(), second = second.display(), target = target.display())]
    #[diagnostic(code(runner::plan::twice))]
    Twice {
        /// One source.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// The place.
        target: PathBuf,
    },
}

/// Places that belong to the sandbox itself.
const OWN: [&str; 3] = ["/proc", "/dev", "/sys"];
/// Places where a sandbox on the host's tree has something of its own, or nothing.
const NOT_THE_HOSTS: [&str; 9] = [
    "/proc",
    "/dev",
    "/sys",
    "/tmp",
    "/var/tmp",
    "/run",
    "/boot",
    "/workspace",
    "/workload",
];

pub(super) fn lay_out(policy: &Policy, job: &Job) -> Result<Tree, TreeError> {
    let files = &policy.filesystem;
    let shape = match files.root {
        Root::Ephemeral => Shape::Ephemeral,
        Root::HostReadonly => Shape::HostReadOnly,
        Root::Custom => Shape::Custom(resolve(
            Path::new(files.path.as_deref().unwrap_or_default()),
            true,
        )?),
    };
    let mut binds = Vec::new();
    let shown = files.read_only.iter().map(|bind| (bind, true));
    for (bind, read_only) in shown.chain(files.writable.iter().map(|bind| (bind, false))) {
        let path = Path::new(&bind.source);
        let source = resolve(path, files.follow_symlinks)?;
        let target = match &bind.target {
            Some(target) => PathBuf::from(target),
            None => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        };
        binds.push(Bind {
            source,
            target: plain(&target)?,
            read_only,
        });
    }
    if let Some(folder) = &job.workload {
        binds.push(Bind {
            source: resolve(folder, true)?,
            target: "/workload".into(),
            read_only: true,
        });
    }
    // The more specific mount comes later and covers; a stable order for equal depth.
    binds.sort_by(|a, b| {
        let depth = |bind: &Bind| bind.target.components().count();
        depth(a)
            .cmp(&depth(b))
            .then_with(|| a.target.cmp(&b.target))
    });
    for pair in binds.windows(2) {
        if let [first, second] = pair
            && first.target == second.target
        {
            return Err(TreeError::Twice {
                first: first.source.clone(),
                second: second.source.clone(),
                target: first.target.clone(),
            });
        }
    }
    let covered = covered(&shape, &binds, &job.evidence);
    Ok(Tree {
        shape,
        binds,
        protect: files.protect.clone(),
        covered,
        own_bytes: files
            .max_workspace_mb
            .map(|mb| mb.value().saturating_mul(1 << 20)),
    })
}

fn resolve(path: &Path, follow: bool) -> Result<PathBuf, TreeError> {
    let failed = |source| TreeError::Source {
        path: path.to_owned(),
        source,
    };
    let metadata = std::fs::symlink_metadata(path).map_err(failed)?;
    let real = std::fs::canonicalize(path).map_err(failed)?;
    if metadata.is_symlink() && !follow {
        return Err(TreeError::Symlink {
            path: path.to_owned(),
            to: real,
        });
    }
    Ok(real)
}

fn plain(target: &Path) -> Result<PathBuf, TreeError> {
    let refused = || TreeError::Target {
        path: target.to_owned(),
    };
    let normal = target
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !target.is_absolute() || !normal || OWN.iter().any(|own| target.starts_with(own)) {
        return Err(refused());
    }
    let path: PathBuf = target.components().collect();
    if path.parent().is_none() {
        Err(refused())
    } else {
        Ok(path)
    }
}

/// Where evidence would appear inside: below a bind that holds it, or at its own place under the host's tree. By
/// path and by device and inode, since one folder can have several names.
fn covered(shape: &Shape, binds: &[Bind], evidence: &[PathBuf]) -> Vec<PathBuf> {
    let mut covered = Vec::new();
    for path in evidence {
        let Ok(real) = std::fs::canonicalize(path) else {
            continue;
        };
        for bind in binds {
            if let Some(below) = below(&bind.source, &real) {
                covered.push(join(&bind.target, &below));
            }
        }
        match shape {
            Shape::Ephemeral => {
                if SYSTEM.iter().any(|system| real.starts_with(system)) {
                    covered.push(real.clone());
                }
            }
            Shape::HostReadOnly => {
                if !NOT_THE_HOSTS.iter().any(|own| real.starts_with(own)) {
                    covered.push(real.clone());
                }
            }
            Shape::Custom(root) => {
                if let Some(below) = std::fs::canonicalize(root)
                    .ok()
                    .and_then(|root| below(&root, &real))
                {
                    covered.push(join(Path::new("/"), &below));
                }
            }
        }
    }
    covered.sort();
    // What lies below a covered folder is out of reach with it.
    covered.dedup_by(|below, above| below.starts_with(above));
    covered
}

/// System folders that the ephemeral tree shows.
pub const SYSTEM: [&str; 11] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/ostree",
    "/sysroot/ostree",
];

fn join(base: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() {
        base.to_owned()
    } else {
        base.join(below)
    }
}

/// The rest of `path` below `folder`, by name, or because one of its ancestors *is* that folder.
fn below(folder: &Path, path: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    if let Ok(rest) = path.strip_prefix(folder) {
        return Some(rest.to_owned());
    }
    let wanted = std::fs::metadata(folder).ok()?;
    path.ancestors().find_map(|ancestor| {
        let found = std::fs::metadata(ancestor).ok()?;
        (found.dev() == wanted.dev() && found.ino() == wanted.ino())
            .then(|| path.strip_prefix(ancestor).ok().map(Path::to_owned))
            .flatten()
    })
}

impl Tree {
    /// Whether a place inside is covered, alone or with a folder above it.
    #[must_use]
    pub fn is_covered(&self, place: &Path) -> bool {
        self.covered
            .iter()
            .any(|covered| place.starts_with(covered))
    }

    /// Whether paths below this bind must stay as they are.
    #[must_use]
    pub fn protects(&self, bind: &Bind) -> bool {
        !bind.read_only
            && !self.protect.is_empty()
            && !self.is_covered(&bind.target)
            && bind.source.is_dir()
    }

    /// Whether /workspace is a place of the sandbox's own, and not something of the host.
    #[must_use]
    pub fn has_own_workspace(&self) -> bool {
        !self
            .binds
            .iter()
            .any(|bind| Path::new("/workspace").starts_with(&bind.target))
    }

    /// The folder that a job starts in, as the workload sees it: the one asked for, else the caller's where it is
    /// shown, else /workspace.
    #[must_use]
    pub fn cwd(&self, job: &Job) -> PathBuf {
        if let Some(asked) = &job.cwd {
            return asked.clone();
        }
        let shown = job.caller_cwd.as_deref().and_then(|cwd| self.inside(cwd));
        shown.unwrap_or_else(|| "/workspace".into())
    }

    /// Where a host path appears inside; `None` when it does not.
    #[must_use]
    pub fn inside(&self, path: &Path) -> Option<PathBuf> {
        let by_bind = self.binds.iter().rev().find_map(|bind| {
            let below = path.strip_prefix(&bind.source).ok()?;
            Some(join(&bind.target, below))
        });
        by_bind.or_else(|| match &self.shape {
            Shape::Ephemeral => SYSTEM
                .iter()
                .any(|system| path.starts_with(system))
                .then(|| path.to_owned()),
            Shape::HostReadOnly => {
                (!NOT_THE_HOSTS.iter().any(|own| path.starts_with(own))).then(|| path.to_owned())
            }
            Shape::Custom(root) => path
                .strip_prefix(root)
                .ok()
                .map(|below| Path::new("/").join(below)),
        })
    }
}
