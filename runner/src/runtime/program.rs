//! Programs of somebody else's that isolate: which one there is, and what it can do.

mod asked;

pub(super) use asked::{Listen, ask};

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ledger::bytes::hash::{Hash, Hasher};

use crate::host::account::FIRST_HOST_ID;
use crate::mechanism::Failure;
use crate::plan::{LaunchError, Reason, Why};
use asked::NoAnswer;

/// What is known of a program.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: &'static str,
    /// Where it comes from.
    pub(super) origin: Origin,
    /// What stands before its version where it says that.
    pub(super) says: &'static str,
    /// Options without which nothing is built.
    pub(super) needed: &'static [&'static str],
    /// The first version that has them.
    pub(super) since: &'static str,
}

/// Where a program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A package of the distribution's, looked for along PATH.
    Package(&'static str),
    /// A crate of this workspace that is built by itself; it lies in the folder of this program.
    Crate(&'static str),
}

/// A program that is looked for once, when it is first needed.
#[derive(Debug)]
pub(super) struct Sought {
    known: &'static Known,
    found: OnceLock<Result<Installed, String>>,
}

impl Sought {
    pub(super) const fn new(known: &'static Known) -> Self {
        Self {
            known,
            found: OnceLock::new(),
        }
    }

    /// The program, or why there is none.
    pub(super) fn get(&self) -> Result<&Installed, Why> {
        let found = self.found.get_or_init(|| Installed::find(self.known));
        found.as_ref().map_err(|detail| Why {
            reason: Reason::RUNTIME_MISSING,
            detail: Some(detail.clone()),
        })
    }

    /// The same, where it is needed for a launch.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn for_launch(&self) -> Result<&Installed, LaunchError> {
        self.get().map_err(|why| LaunchError::Step {
            what: why.to_string(),
        })
    }

    /// Its version; `none` where there is none.
    pub(super) fn version(&self) -> String {
        let found = self.get();
        found.map_or_else(|_| "none".to_owned(), |found| found.version.clone())
    }

    /// Runs it with these words around itself; where there is none nothing is tried.
    ///
    /// # Errors
    /// What it said.
    pub(super) fn try_with(
        &self,
        words: impl FnOnce(&Installed) -> Vec<&'static str>,
    ) -> Result<(), Failure> {
        self.get()
            .map_or(Ok(()), |found| found.try_with(self.known, &words(found)))
    }
}

/// A file as it was, so that another one in its place, or another content, is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl State {
    fn of(facts: &Metadata) -> Self {
        Self {
            inode: (facts.dev(), facts.ino()),
            size: facts.size(),
            changed: (facts.ctime(), facts.ctime_nsec()),
        }
    }
}

/// A program that is there and runs.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) path: PathBuf,
    pub(super) version: String,
    pub(super) sha256: Hash,
    state: State,
    options: BTreeSet<String>,
}

impl Installed {
    /// The first in PATH, or the one beside this program, asked what it is; else why there is none, and what to do about it.
    pub(super) fn find(known: &Known) -> Result<Self, String> {
        let name = known.name;
        let (folders, place) = match known.origin {
            Origin::Package(_) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                (std::env::split_paths(&path).collect(), "PATH".to_owned())
            }
            Origin::Crate(_) => {
                let own = std::env::current_exe();
                let own = own.map_err(|error| format!("cannot find this program: {error}"))?;
                let folder = own.parent().unwrap_or(Path::new("/")).to_owned();
                let place = folder.display().to_string();
                (vec![folder], place)
            }
        };
        let path = folders
            .into_iter()
            .map(|folder| folder.join(name))
            .find(|path| path.is_absolute() && path.is_file());
        match path {
            Some(path) => Self::at(known, path),
            None => Err(format!("no {name} in {place}; {}", known.install())),
        }
    }

    fn at(known: &Known, path: PathBuf) -> Result<Self, String> {
        let shown = path.display().to_string();
        let said = known.ask(&path, "--version")?;
        let version = said.trim().strip_prefix(known.says);
        let version = version
            .filter(|version| is_version(version))
            .ok_or_else(|| {
                let (says, install) = (known.says, known.install());
                format!("{shown} --version does not say {says}and a version; {install}")
            })?
            .to_owned();
        let own = env!("CARGO_PKG_VERSION");
        if matches!(known.origin, Origin::Crate(_)) && version != own {
            return Err(format!(
                "{shown} is {}{version}, and this runner is {own}; {}",
                known.says,
                known.install()
            ));
        }
        let options = options(&known.ask(&path, "--help")?);
        if let Some(option) = known.needed.iter().find(|one| !options.contains(**one)) {
            return Err(format!(
                "{shown} is {}{version}, which has no {option}; {}",
                known.says,
                known.install_since()
            ));
        }
        let (sha256, state) =
            hash(&path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        Ok(Self {
            path,
            version,
            sha256,
            state,
            options,
        })
    }

    /// Whether it knows an option (it tells by its help: distributions add some to older versions).
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.contains(option)
    }

    /// Whether the file that was hashed is still the one by its name: asked when it runs, it was that one that was started.
    ///
    /// # Errors
    /// It is another one, or cannot be looked at.
    pub(super) fn is_itself(&self) -> Result<(), LaunchError> {
        let now = std::fs::metadata(&self.path).map(|facts| State::of(&facts));
        match now {
            Ok(now) if now == self.state => Ok(()),
            Ok(_) => Err(LaunchError::Step {
                what: format!("{} changed while it was started", self.path.display()),
            }),
            Err(error) => Err(LaunchError::Step {
                what: Failure::call(format!("look at {}", self.path.display()), &error).to_string(),
            }),
        }
    }

    /// Runs it with these words around itself, which then only says its version; as a free id where this process is root.
    ///
    /// # Errors
    /// What it said.
    fn try_with(&self, known: &Known, words: &[&str]) -> Result<(), Failure> {
        let failed = |error: String| Failure {
            attempt: known.name.to_owned(),
            error,
        };
        let mut command = Command::new(&self.path);
        command.args(words).arg("--").arg(&self.path);
        command.arg("--version").env_clear();
        if nix::unistd::geteuid().is_root() {
            command.uid(FIRST_HOST_ID).gid(FIRST_HOST_ID);
        }
        let (status, said) =
            ask(&mut command, Listen::Errors).map_err(|error| failed(error.to_string()))?;
        if status.success() {
            return Ok(());
        }
        let said = said.trim().replace(char::is_control, " ");
        let said = said.strip_prefix(&format!("{}: ", known.name));
        Err(failed(match said {
            Some(said) => said.to_owned(),
            None => status.to_string(),
        }))
    }
}

impl Known {
    fn install(&self) -> String {
        match self.origin {
            Origin::Package(package) => {
                format!("install the package {package}, or use --runtime embedded")
            }
            Origin::Crate(_) => format!("build it: {}", self.origin.command()),
        }
    }

    fn install_since(&self) -> String {
        match self.origin {
            Origin::Package(package) => format!("install {package} {} or newer", self.since),
            Origin::Crate(_) => self.install(),
        }
    }

    /// What it prints with one argument and an empty environment.
    fn ask(&self, path: &Path, argument: &str) -> Result<String, String> {
        let mut command = Command::new(path);
        command.arg0(self.name).arg(argument).env_clear();
        let shown = path.display();
        let why = match ask(&mut command, Listen::Output) {
            Ok((status, said)) if status.success() => return Ok(said),
            Ok((status, _)) => format!("{shown} {argument} fails ({status})"),
            // Nothing that building or installing would change.
            Err(NoAnswer::Refused(errno)) if is_short(&errno) => {
                return Err(format!("cannot execute {shown} ({errno})"));
            }
            Err(NoAnswer::Refused(errno)) => format!("cannot execute {shown} ({errno})"),
            Err(error) => format!("{shown} {argument} gives {error}"),
        };
        Err(format!("{why}; {}", self.install()))
    }
}

impl Origin {
    /// What to type to have it.
    fn command(self) -> String {
        match self {
            Self::Package(package) => format!("apt-get install {package}"),
            // Beside this program, which was built in the same way.
            Self::Crate(name) if cfg!(debug_assertions) => format!("cargo build -p {name}"),
            Self::Crate(name) => format!("cargo build --release -p {name}"),
        }
    }
}

/// Whether it is this process, or this host, that has too little of something.
fn is_short(errno: &str) -> bool {
    ["EMFILE", "ENFILE", "ENOMEM", "EAGAIN"].contains(&errno)
}

fn is_version(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-+~".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

/// The options that lines of its help begin with (`--fork`, `-f, --fork`, `--net[=<file>]`).
fn options(help: &str) -> BTreeSet<String> {
    let words = help
        .lines()
        .flat_map(|line| line.split_whitespace().take(2));
    let options = words.filter(|word| word.starts_with("--")).map(|word| {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        word.chars().take_while(|letter| is_name(*letter)).collect()
    });
    options.collect()
}

fn hash(path: &Path) -> std::io::Result<(Hash, State)> {
    let mut file = File::open(path)?;
    let state = State::of(&file.metadata()?);
    let (mut hasher, mut content) = (Hasher::plain(), Vec::new());
    file.read_to_end(&mut content)?;
    hasher.update(&content);
    Ok((hasher.finish(), state))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BWRAP: Known = Known {
        name: "bwrap",
        origin: Origin::Package("bubblewrap"),
        says: "bubblewrap ",
        needed: &["--perms", "--block-fd"],
        since: "0.5.0",
    };

    fn program(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bwrap");
        // By another process: what this one has open for writing a child of another test's has, too, and nobody can execute
        // it then.
        let draft = folder.path().join("draft");
        std::fs::write(&draft, text).unwrap();
        let mut install = Command::new("install");
        let installed = install.args(["-m", "755"]).args([&draft, &path]).status();
        assert!(installed.unwrap().success());
        (folder, path)
    }

    fn fake(version: &str, help: &str) -> (tempfile::TempDir, PathBuf) {
        program(&format!(
            "#!/bin/sh\ncase $1 in --version) echo '{version}';; --help) echo '{help}';; esac\n"
        ))
    }

    #[test]
    fn a_version_and_its_options_are_read() {
        let help = "usage: x\n    --perms OCTAL   text --not-this\n -b, --block-fd[=<fd>]  text\n";
        let (_folder, path) = fake("bubblewrap 0.6.1", help);
        let found = Installed::at(&BWRAP, path).unwrap();
        assert_eq!(found.version, "0.6.1");
        assert!(found.has("--block-fd") && !found.has("--not-this"));
    }

    #[test]
    fn what_is_another_program_or_too_old_a_one_is_said() {
        let (_folder, path) = fake("bubblewrap 0.4.1", "--block-fd");
        let why = Installed::at(&BWRAP, path).unwrap_err();
        assert!(why.contains("0.4.1") && why.contains("--perms"), "{why}");
        let (_folder, path) = fake("bwrap for something else", "");
        let why = Installed::at(&BWRAP, path).unwrap_err();
        assert!(why.contains("does not say bubblewrap"), "{why}");
        let (_folder, path) = program("#!/bin/sh\nexit 3\n");
        let why = Installed::at(&BWRAP, path).unwrap_err();
        assert!(why.contains("exit status: 3"), "{why}");
        let (_folder, path) = program("not a program");
        let why = Installed::at(&BWRAP, path).unwrap_err();
        assert!(why.contains("ENOEXEC") && why.contains("install"), "{why}");
    }
}
