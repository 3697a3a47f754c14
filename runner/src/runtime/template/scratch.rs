//! **Scratch**: the folder of one launch of a template, and what is to be done when that is over.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::runtime::program::{Listen, ask};

/// Beginning of every name: what is another one in each launch is called so.
const PREFIX: &str = "tmp.containment-";

/// A folder that goes, with all in it, when this does; and what is run before.
#[derive(Debug)]
pub(crate) struct Scratch {
    name: String,
    folder: Option<PathBuf>,
    cleanup: Vec<Vec<OsString>>,
    environment: Vec<(OsString, OsString)>,
}

impl Scratch {
    /// A name of its own; nothing is made yet.
    pub(crate) fn new(random: [u8; 8]) -> Self {
        let number = u64::from_be_bytes(random);
        Self {
            name: format!("{PREFIX}{number:016x}"),
            folder: None,
            cleanup: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where the folder is, or would be.
    pub(crate) fn path(&self) -> PathBuf {
        let path = std::env::temp_dir().join(&self.name);
        std::path::absolute(&path).unwrap_or(path)
    }

    /// Makes the folder. Others may pass through it: what is started in it may have other ids than the caller.
    pub(crate) fn make(&mut self) -> io::Result<()> {
        let path = self.path();
        // Whatever the caller's umask is, and to nobody before.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        self.folder = Some(path.clone());
        std::fs::set_permissions(path, Permissions::from_mode(0o711))
    }

    /// Makes a folder in it, readable for all.
    pub(crate) fn folder(&self, name: impl AsRef<Path>) -> io::Result<()> {
        let mut path = self.path();
        for part in name.as_ref() {
            path.push(part);
            match std::fs::create_dir(&path) {
                Ok(()) => std::fs::set_permissions(&path, Permissions::from_mode(0o755))?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes a file in it, for the caller alone.
    pub(crate) fn file(&self, name: &Path, content: &[u8]) -> io::Result<()> {
        let path = self.path().join(name);
        if let Some(above) = name.parent() {
            self.folder(above)?;
        }
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(content)
    }

    /// From now on there is something to be cleaned up, by these commands.
    pub(crate) fn arm(
        &mut self,
        commands: Vec<Vec<OsString>>,
        environment: Vec<(OsString, OsString)>,
    ) {
        self.cleanup = commands;
        self.environment = environment;
    }
}

/// What could not be cleaned up, for people, until somebody says it.
static LEFT: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn left() -> MutexGuard<'static, Vec<String>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What could not be cleaned up since this was last asked.
pub(crate) fn take_left() -> Vec<String> {
    std::mem::take(&mut left())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for command in &self.cleanup {
            let Some((program, arguments)) = command.split_first() else {
                continue;
            };
            let mut command = Command::new(program);
            command.args(arguments).current_dir("/").env_clear();
            command.envs(self.environment.iter().map(|(name, value)| (name, value)));
            // Mostly there is nothing left, and that is its answer.
            if let Err(error) = ask(&mut command, Listen::Output) {
                let program = program.display();
                let what = format!(
                    "the cleanup {program} of {} gives {error}; what it should have removed may be left",
                    self.name
                );
                left().push(what);
            }
        }
        // Through a mount that is left there the host's own files would be removed.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo");
        let has_none = mounts.is_ok_and(|mounts| !mounts.contains(&self.name));
        if let Some(folder) = self.folder.as_ref().filter(|_| has_none) {
            // What is another id's stays, and is no part of any later launch.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
