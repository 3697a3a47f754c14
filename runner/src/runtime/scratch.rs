//! **Scratch**: a folder of one launch on the host's disk, and what is to be done when that is over.
//!
//! Who makes one holds it by an exclusive lock (flock(2)) for as long as it lives; the kernel lets go of that also when the runner is
//! killed. So what nobody holds is left behind, and the same user's next launch that makes one removes it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ledger::bytes::canon::escape_bytes;
use nix::libc;

use crate::runtime::program::{Listen, ask};

/// Beginning of every name: what is another one in each launch is called so.
const PREFIX: &str = "tmp.containment-";

/// A folder that goes, with all in it, when this does; and what is run before.
#[derive(Debug)]
pub(crate) struct Scratch {
    name: String,
    folder: Option<(PathBuf, File)>,
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

    /// Makes the folder, and removes what killed runners of this user left of theirs. Others may pass through it: what is started
    /// in it may have other ids than the caller.
    pub(crate) fn make(&mut self) -> io::Result<()> {
        let path = self.path();
        sweep(path.parent().unwrap_or(Path::new("/")));
        // Whatever the caller's umask is, and to nobody before.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let held = match hold(&path) {
            // Somebody else's sweep came between the two: what it took for left behind is made again.
            Ok(None) => {
                std::fs::DirBuilder::new().mode(0o700).create(&path)?;
                hold(&path)?.ok_or(io::ErrorKind::NotFound)?
            }
            Ok(Some(held)) => held,
            Err(error) => {
                let _ = std::fs::remove_dir(&path);
                return Err(error);
            }
        };
        self.folder = Some((path.clone(), held));
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
            // Where there is nothing left it has nothing to do, and succeeds.
            let what = match ask(&mut command, Listen::Errors) {
                Ok((status, _)) if status.success() => continue,
                Ok((status, said)) => match said.lines().rfind(|line| !line.trim().is_empty()) {
                    Some(last) => {
                        format!("fails ({status}): {}", escape_bytes(last.trim().as_bytes()))
                    }
                    None => format!("fails ({status})"),
                },
                Err(error) => format!("gives {error}"),
            };
            let program = program.display();
            left().push(format!(
                "the cleanup {program} of {} {what}; what it should have removed may be left",
                self.name
            ));
        }
        if let Some((folder, _held)) = &self.folder {
            // What is another id's stays, and is no part of any later launch.
            let _ = remove(folder);
        }
    }
}

/// Removes a folder of a launch with all in it, but where something is mounted in it: through such a mount the host's own files would
/// be removed.
fn remove(folder: &Path) -> io::Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let name = folder.file_name().and_then(|name| name.to_str());
    if name.is_none_or(|name| mounts.contains(name)) {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    std::fs::remove_dir_all(folder)
}

fn open(folder: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    File::options().read(true).custom_flags(flags).open(folder)
}

/// Holds a folder; none, where it is not at its path any more. Where its file system knows no locks it is not held, and since then
/// nobody takes it for left behind either.
fn hold(folder: &Path) -> io::Result<Option<File>> {
    let gone = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Ok(None),
        _ => Err(error),
    };
    let file = match open(folder) {
        Ok(file) => file,
        Err(error) => return gone(error),
    };
    let _ = file.lock();
    let is_there = match std::fs::symlink_metadata(folder) {
        Ok(found) => found.ino() == file.metadata()?.ino(),
        Err(error) => return gone(error),
    };
    Ok(is_there.then_some(file))
}

/// Removes what killed runners of this user left of their launches. What cannot be looked at or removed stays, for the next one.
fn sweep(place: &Path) {
    let Ok(entries) = std::fs::read_dir(place) else {
        return;
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    for name in names.filter(|name| is_ours(name)) {
        let folder = place.join(name);
        let Ok(file) = open(&folder) else {
            continue;
        };
        let is_own = file
            .metadata()
            .is_ok_and(|found| found.uid() == nix::unistd::geteuid().as_raw());
        if is_own && file.try_lock().is_ok() {
            let _ = remove(&folder);
        }
    }
}

/// Whether it is a name as [`Scratch::new`] makes them.
fn is_ours(name: &OsStr) -> bool {
    let number = name.as_bytes().strip_prefix(PREFIX.as_bytes());
    number.is_some_and(|number| number.len() == 16 && number.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.join("own/a")).unwrap();
            std::fs::write(path.join("own/a/b"), b"left").unwrap();
            path
        };
        let left = folder("tmp.containment-00000000000000a1");
        let held = folder("tmp.containment-00000000000000a2");
        let holder = hold(&held).unwrap().unwrap();
        let others = [
            "tmp.containment-00000000000000a",
            "tmp.containment-00000000000000a3x",
            "tmp.containment-00000000000000g4",
            "containment-00000000000000a5",
        ];
        let others = others.map(folder);
        let link = place.path().join("tmp.containment-00000000000000a6");
        std::os::unix::fs::symlink(&others[0], &link).unwrap();
        sweep(place.path());
        assert!(!left.exists());
        assert!(held.join("own/a/b").exists() && link.join("own/a/b").exists());
        assert!(others.iter().all(|other| other.join("own/a/b").exists()));
        drop(holder);
        sweep(place.path());
        assert!(!held.exists());
    }

    #[test]
    fn a_folder_that_was_removed_meanwhile_is_not_held() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("tmp.containment-00000000000000b1");
        assert!(hold(&path).unwrap().is_none());
        std::fs::create_dir(&path).unwrap();
        // A sweep that holds it when the one who made it comes to it.
        let sweeping = hold(&path).unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| hold(&path));
            std::fs::remove_dir(&path).unwrap();
            drop(sweeping);
            assert!(waiting.join().unwrap().unwrap().is_none());
        });
    }

    #[test]
    fn what_lives_stays_while_others_come_and_go() {
        let mut scratch = Scratch::new([5; 8]);
        scratch.make().unwrap();
        let path = scratch.path();
        sweep(path.parent().unwrap());
        assert!(path.is_dir());
        drop(scratch);
        assert!(!path.exists());
    }
}
