//! Programs of somebody else's that isolate: which one there is, and what it can do.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ledger::bytes::hash::{Hash, Hasher};

use crate::host::account::FIRST_HOST_ID;
use crate::mechanism::Failure;

/// What is known of a program.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: &'static str,
    /// What to install where it is missing.
    pub(super) package: &'static str,
    /// What stands before its version where it says that.
    pub(super) says: &'static str,
    /// Options without which nothing is built.
    pub(super) needed: &'static [&'static str],
    /// The first version that has them.
    pub(super) since: &'static str,
}

/// A program that is there and runs.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) path: PathBuf,
    pub(super) version: String,
    pub(super) sha256: Hash,
    options: BTreeSet<String>,
}

impl Installed {
    /// The first in PATH, asked what it is; else why there is none, and what to do about it.
    pub(super) fn find(known: &Known) -> Result<Self, String> {
        let name = known.name;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|path| path.is_absolute() && path.is_file());
        match path {
            Some(path) => Self::at(known, path),
            None => Err(format!("no {name} in PATH; {}", known.install())),
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
        let options = options(&known.ask(&path, "--help")?);
        if let Some(option) = known.needed.iter().find(|one| !options.contains(**one)) {
            return Err(format!(
                "{shown} is {}{version}, which has no {option}; install {} {} or newer",
                known.says, known.package, known.since
            ));
        }
        let sha256 = hash(&path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        Ok(Self {
            path,
            version,
            sha256,
            options,
        })
    }

    /// Whether it knows an option (it tells by its help: distributions add some to older versions).
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.contains(option)
    }

    /// Runs it with these words around itself, which then only says its version; as a free id where this process is root.
    ///
    /// # Errors
    /// What it said.
    pub(super) fn try_with(&self, known: &Known, words: &[&str]) -> Result<(), Failure> {
        let failed = |error: String| Failure {
            attempt: known.name.to_owned(),
            error,
        };
        let mut command = Command::new(&self.path);
        command.args(words).arg("--").arg(&self.path);
        command.arg("--version").env_clear().stdin(Stdio::null());
        if nix::unistd::geteuid().is_root() {
            command.uid(FIRST_HOST_ID).gid(FIRST_HOST_ID);
        }
        let output = command.output();
        let output = output.map_err(|error| failed(crate::sys::errno_name(&error)))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().replace(char::is_control, " ");
        let said = said.strip_prefix(&format!("{}: ", known.name));
        Err(failed(match said {
            Some(said) => said.to_owned(),
            None => output.status.to_string(),
        }))
    }
}

impl Known {
    fn install(&self) -> String {
        format!(
            "install the package {}, or use --runtime embedded",
            self.package
        )
    }

    /// What it prints with one argument and an empty environment.
    fn ask(&self, path: &Path, argument: &str) -> Result<String, String> {
        let mut command = Command::new(path);
        command.arg0(self.name).arg(argument).env_clear();
        let shown = path.display();
        match command.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            Ok(output) => Err(format!(
                "{shown} {argument} fails ({}); {}",
                output.status,
                self.install()
            )),
            Err(error) => Err(format!(
                "cannot execute {shown} ({}); {}",
                crate::sys::errno_name(&error),
                self.install()
            )),
        }
    }
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

fn hash(path: &Path) -> std::io::Result<Hash> {
    let mut hasher = Hasher::plain();
    hasher.update(&std::fs::read(path)?);
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const BWRAP: Known = Known {
        name: "bwrap",
        package: "bubblewrap",
        says: "bubblewrap ",
        needed: &["--perms", "--block-fd"],
        since: "0.5.0",
    };

    fn program(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bwrap");
        std::fs::write(&path, text).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
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
