//! Which files a workload is to see, before it is known how a runtime shows them.

use std::path::{Component, Path, PathBuf};

use ledger::facts::control::Control;
use ledger::facts::policy::{Policy, Root};

use super::shape::{
    Bind, NOT_THE_HOSTS, OWN, OWN_DEVICES, SHARED_MEMORY, SYSTEM, Shape, TreeError, join,
};
use super::{Job, cover};

/// The files that a workload is to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// What the rest is put on.
    pub shape: Shape,
    /// Host folders and files, shallow targets first.
    pub binds: Vec<Bind>,
    /// Protected paths below each writable folder.
    pub protect: Vec<String>,
    /// Evidence and kernel file systems of the host that a source would show, as the workload would see them;
    /// they are covered.
    pub covered: Vec<PathBuf>,
    /// Those of the covered places that are kernel file systems (`proc`, `sysfs` …).
    pub kernel: Vec<PathBuf>,
    /// Cap on the memory that /workspace and /tmp take, in bytes each.
    pub own_bytes: Option<u64>,
}

pub(super) fn lay_out(policy: &Policy, job: &Job) -> Result<Tree, TreeError> {
    let files = &policy.filesystem;
    let left_out = job.leaves_out(Control::Filesystem);
    let shape = match files.root {
        _ if left_out => Shape::Host,
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
            read_only: read_only && !left_out,
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
    for path in &policy.devices.allow {
        check_device(Path::new(path))?;
    }
    let covered = cover::covered(&shape, &binds, &job.evidence)?;
    Ok(Tree {
        shape,
        binds,
        protect: if left_out {
            Vec::new()
        } else {
            files.protect.clone()
        },
        covered: covered.places,
        kernel: covered.kernel,
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

/// Refuses what is allowed as a device and is none, or lies in a folder that the sandbox has of its own.
fn check_device(path: &Path) -> Result<(), TreeError> {
    use std::os::unix::fs::FileTypeExt as _;
    let refused = |why: String| TreeError::Device {
        path: path.to_owned(),
        why,
    };
    if OWN_DEVICES.iter().any(|own| path == Path::new(own)) {
        return Ok(());
    }
    if let Some(own) = OWN_DEVICES.iter().find(|own| path.starts_with(own)) {
        return Err(refused(format!("a sandbox has a {own} of its own")));
    }
    let kind = match std::fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        // Devices come and go; one that is not there is not shown.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(TreeError::Source {
                path: path.to_owned(),
                source,
            });
        }
    };
    if kind.is_symlink() {
        let to = std::fs::read_link(path).unwrap_or_default();
        return Err(refused(format!(
            "it is a symbolic link to {}",
            to.display()
        )));
    }
    if !kind.is_dir() && !kind.is_char_device() && !kind.is_block_device() {
        return Err(refused("it is not a device".to_owned()));
    }
    Ok(())
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

impl Tree {
    /// Whether a place inside is covered, alone or with a folder above it.
    #[must_use]
    pub fn is_covered(&self, place: &Path) -> bool {
        self.covered
            .iter()
            .any(|covered| place.starts_with(covered))
    }

    /// Whether paths below this bind must stay as they are: protected ones, and those on the way to evidence.
    #[must_use]
    pub fn protects(&self, bind: &Bind) -> bool {
        !bind.read_only
            && (!self.protect.is_empty() || !self.pinned(&bind.target).is_empty())
            && !self.is_covered(&bind.target)
            && bind.source.is_dir()
    }

    /// The folders below a writable one, relative to it, in which evidence is covered: they stay where they are.
    #[must_use]
    pub fn pinned(&self, folder: &Path) -> Vec<PathBuf> {
        let evidence = self.covered.iter();
        let evidence = evidence.filter(|place| !self.kernel.contains(place));
        let mut folders: Vec<PathBuf> = evidence
            .filter_map(|place| place.strip_prefix(folder).ok()?.parent())
            .filter(|above| !above.as_os_str().is_empty())
            .map(Path::to_owned)
            .collect();
        folders.sort();
        folders.dedup();
        folders
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
            Shape::Host => (!OWN.iter().any(|own| path.starts_with(own))
                || path.starts_with(SHARED_MEMORY))
            .then(|| path.to_owned()),
            Shape::Custom(root) => path
                .strip_prefix(root)
                .ok()
                .map(|below| Path::new("/").join(below))
                .filter(|inside| !NOT_THE_HOSTS.iter().any(|own| inside.starts_with(own))),
        })
    }
}
