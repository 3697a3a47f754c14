//! **Plant**: files, folders, descriptors and a terminal that a probe must not reach, each with a secret of its own.

pub mod mark;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ledger::bytes::hash::Hash;

use crate::sys::{descriptor, kernel, terminal};

/// Leaked descriptors have this number or a higher one.
pub const LEAKED_FROM: i32 = 200;

/// One of the six places: what it is called, and where it is; none where there is no such place here.
pub type Place = (&'static str, Option<PathBuf>);

/// The six places (PROBES.md §3): `home`, `runtime` ($XDG_RUNTIME_DIR) and `cwd` as the caller has them.
#[must_use]
pub fn six_places(home: Option<&Path>, runtime: Option<&Path>, cwd: &Path) -> Vec<Place> {
    let some = |path: &str| Some(PathBuf::from(path));
    vec![
        ("$HOME", home.map(Path::to_owned)),
        ("/tmp", some("/tmp")),
        ("/var/tmp", some("/var/tmp")),
        ("/dev/shm", some("/dev/shm")),
        ("$XDG_RUNTIME_DIR", runtime.map(Path::to_owned)),
        (
            "the parent of the working folder",
            cwd.parent().map(Path::to_owned),
        ),
    ]
}

/// Which of them can be used, each once; and of the others why not.
pub(super) fn usable(places: &[Place]) -> (Vec<PathBuf>, Vec<String>) {
    let (mut usable, mut skipped) = (Vec::<PathBuf>::new(), Vec::new());
    for (name, path) in places {
        let found = match path {
            None => Err("there is none".to_owned()),
            Some(path) => fs::canonicalize(path).map_err(|error| crate::sys::errno_name(&error)),
        };
        let found = found.and_then(|path| {
            use nix::unistd::{AccessFlags, access};
            if usable.contains(&path) {
                return Err(format!("the same as {}", path.display()));
            }
            match access(&path, AccessFlags::W_OK | AccessFlags::X_OK) {
                Ok(()) if path.is_dir() => Ok(path),
                Ok(()) => Err("ENOTDIR".to_owned()),
                Err(errno) => Err(format!("{errno:?}")),
            }
        });
        match found {
            Ok(path) => usable.push(path),
            Err(why) => skipped.push(format!("{name}: {why}")),
        }
    }
    (usable, skipped)
}

/// Makes a folder of exactly this mode, whatever the umask is.
pub(super) fn folder(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Makes a file of exactly this mode; there must be none yet.
pub(super) fn file(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    io::Write::write_all(&mut File::create_new(path)?, text.as_bytes())?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// A file that everybody may write, alone in a folder that everybody may write, and what there is to know of both.
#[derive(Debug)]
pub(super) struct Canary {
    folder: PathBuf,
    pub(super) file: PathBuf,
    before: Sight,
}

/// All of a canary that a write, or a try of one, may change.
#[derive(Debug, PartialEq, Eq)]
struct Sight(BTreeMap<&'static str, String>, BTreeMap<OsString, ()>);

impl Canary {
    /// Plants one in a new folder.
    pub(super) fn plant(folder_path: PathBuf, text: &str) -> io::Result<Self> {
        folder(&folder_path, 0o777)?;
        let path = folder_path.join("canary");
        file(&path, text, 0o666)?;
        let before = look(&folder_path, &path)?;
        Ok(Self {
            folder: folder_path,
            file: path,
            before,
        })
    }

    /// What changed since it was planted; none when nothing did.
    pub(super) fn changed(&self) -> io::Result<Option<String>> {
        let now = match look(&self.folder, &self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some("it is gone".to_owned()));
            }
            now => now?,
        };
        let differs = |(what, value): (&&'static str, &String)| {
            (self.before.0.get(*what) != Some(value)).then_some(*what)
        };
        let mut what: Vec<&str> = now.0.iter().filter_map(differs).collect();
        if now.1 != self.before.1 {
            what.push("listing");
        }
        Ok((!what.is_empty()).then(|| what.join(", ")))
    }

    /// The controller's own call: a change of another file, made by itself, is seen.
    pub(super) fn alive(&self) -> io::Result<()> {
        let beside = self.folder.with_extension("own");
        let _ = fs::remove_dir_all(&beside);
        let own = Self::plant(beside.clone(), "unchanged")?;
        let quiet = own.changed()?;
        let mut opened = File::options().append(true).open(&own.file)?;
        io::Write::write_all(&mut opened, b"!")?;
        let seen = own.changed()?;
        fs::remove_dir_all(&beside)?;
        match (quiet, seen) {
            (None, Some(_)) => Ok(()),
            _ => Err(io::Error::other("a change is not seen")),
        }
    }
}

fn look(folder: &Path, path: &Path) -> io::Result<Sight> {
    let facts = fs::symlink_metadata(path)?;
    let around = fs::symlink_metadata(folder)?;
    let mut listing = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        listing.insert(entry?.file_name(), ());
    }
    let content = if facts.is_file() {
        Hash::of(&fs::read(path)?).to_string()
    } else {
        "not a file".to_owned()
    };
    let attributes = kernel::attribute_names(path)?;
    let seen = BTreeMap::from([
        ("attributes", format!("{attributes:?}")),
        ("content", content),
        ("folder", format!("{} {:o}", around.ino(), around.mode())),
        ("inode", format!("{} {}", facts.dev(), facts.ino())),
        ("links", facts.nlink().to_string()),
        ("mode", format!("{:o}", facts.mode())),
        ("owner", format!("{}:{}", facts.uid(), facts.gid())),
        (
            "changed at",
            format!("{} {}", facts.ctime(), facts.ctime_nsec()),
        ),
    ]);
    Ok(Sight(seen, listing))
}

/// A file, a socket and a folder that are open in this process and in every program that it executes.
#[derive(Debug)]
pub(super) struct Leaked {
    file: OwnedFd,
    secret: String,
    all: Vec<OwnedFd>,
}

impl Leaked {
    /// Opens them: the file and the folder below `folder`, one end of a connected pair whose other end is given back. Each
    /// holds its secret: the file as content, the socket as what can be read, the folder as a name.
    pub(super) fn plant(place: &Path, secrets: [&str; 3]) -> io::Result<(Self, UnixStream)> {
        let [content, said, name] = secrets;
        let path = place.join("leaked");
        file(&path, content, 0o600)?;
        let around = place.join("around");
        folder(&around, 0o755)?;
        file(&around.join(name), "", 0o644)?;
        let (ours, theirs) = UnixStream::pair()?;
        io::Write::write_all(&mut &ours, format!("{said}\n").as_bytes())?;
        let leak = |fd: OwnedFd| descriptor::duplicate_leaking(fd.as_fd(), LEAKED_FROM);
        let opened = File::options().read(true).write(true).open(&path)?;
        let all = vec![
            leak(opened.try_clone()?.into())?,
            leak(theirs.into())?,
            leak(File::open(&around)?.into())?,
        ];
        let leaked = Self {
            file: opened.into(),
            secret: content.to_owned(),
            all,
        };
        Ok((leaked, ours))
    }

    /// Their numbers.
    pub(super) fn numbers(&self) -> Vec<i32> {
        use std::os::fd::AsRawFd as _;
        self.all.iter().map(OwnedFd::as_raw_fd).collect()
    }

    /// Whether they are open, would still be inherited, and the file says what it did.
    pub(super) fn alive(&self) -> io::Result<()> {
        for fd in &self.all {
            if descriptor::is_cloexec(fd)? {
                return Err(io::Error::other("a descriptor does not leak any more"));
            }
        }
        let mut found = vec![0; self.secret.len()];
        File::from(self.file.try_clone()?).read_exact_at(&mut found, 0)?;
        if found == self.secret.as_bytes() {
            Ok(())
        } else {
            Err(io::Error::other("the file says something else"))
        }
    }
}

/// A terminal whose input is read by the controller: what is found there was typed by nobody.
#[derive(Debug)]
pub struct Terminal {
    /// The side of whoever types and reads the screen.
    pub master: OwnedFd,
    /// The terminal itself, in raw mode and without echo.
    pub terminal: OwnedFd,
    /// Its path, such as `/dev/pts/3`.
    pub path: PathBuf,
}

impl Terminal {
    /// Opens a new one.
    ///
    /// # Errors
    /// The host has no pseudo-terminals (devpts), or too many are open.
    pub fn open() -> io::Result<Self> {
        use nix::fcntl::OFlag;
        use nix::sys::termios;
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = nix::pty::posix_openpt(flags)?;
        nix::pty::grantpt(&master)?;
        nix::pty::unlockpt(&master)?;
        let path = PathBuf::from(nix::pty::ptsname_r(&master)?);
        let peer = terminal::peer(master.as_fd())?;
        // Without echo, whatever a program writes goes to the other side, and input alone stands here.
        let mut how = termios::tcgetattr(&peer)?;
        termios::cfmakeraw(&mut how);
        termios::tcsetattr(&peer, termios::SetArg::TCSANOW, &how)?;
        Ok(Self {
            master: OwnedFd::from(master),
            terminal: peer,
            path,
        })
    }
}

#[cfg(test)]
mod tests;
