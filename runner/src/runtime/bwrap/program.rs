//! Which bubblewrap there is, and what it can do.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ledger::bytes::hash::{Hash, Hasher};

use crate::plan::Tree;

/// The program's name.
const NAME: &str = "bwrap";
/// What to do about a missing one.
const INSTALL: &str = "install the package bubblewrap, or use --runtime embedded";
/// Options without which nothing is built (bubblewrap 0.5.0 has all of them).
const NEEDED: [&str; 7] = [
    "--json-status-fd",
    "--block-fd",
    "--perms",
    "--die-with-parent",
    "--cap-drop",
    "--unshare-cgroup-try",
    "--remount-ro",
];

/// A bubblewrap that runs.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    pub(super) path: PathBuf,
    pub(super) version: String,
    pub(super) sha256: Hash,
    options: BTreeSet<String>,
}

impl Bubblewrap {
    /// The first in PATH, asked what it is; else why there is none.
    pub(super) fn find() -> Result<Self, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::split_paths(&path)
            .map(|folder| folder.join(NAME))
            .find(|path| path.is_absolute() && path.is_file())
            .ok_or_else(|| format!("no {NAME} in PATH; {INSTALL}"))?;
        Self::at(path)
    }

    fn at(path: PathBuf) -> Result<Self, String> {
        let shown = path.display().to_string();
        let version = ask(&path, "--version")?;
        let version = version
            .trim()
            .strip_prefix("bubblewrap ")
            .filter(|version| is_version(version))
            .ok_or_else(|| format!("{shown} --version is not that of bubblewrap; {INSTALL}"))?
            .to_owned();
        let help = ask(&path, "--help")?;
        let options = options(&help);
        if let Some(option) = NEEDED.iter().find(|option| !options.contains(**option)) {
            return Err(format!(
                "{shown} is bubblewrap {version}, which has no {option}; install 0.5.0 or newer"
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

    /// What it cannot do of a tree that costs no control.
    pub(super) fn remarks(&self, tree: &Tree) -> Option<String> {
        let unlimited = tree.own_bytes.is_some() && !self.has("--size");
        unlimited.then(|| {
            format!(
                "bubblewrap {} has no --size: /workspace and /tmp take as much memory as there is",
                self.version
            )
        })
    }
}

fn is_version(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-+~".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

/// What it prints with one argument and an empty environment.
fn ask(path: &Path, argument: &str) -> Result<String, String> {
    let mut command = Command::new(path);
    command.arg0(NAME).arg(argument).env_clear();
    let output = command.stdin(Stdio::null()).output();
    let shown = path.display();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(format!(
            "{shown} {argument} fails ({}); {INSTALL}",
            output.status
        )),
        Err(error) => Err(format!(
            "cannot execute {shown} ({}); {INSTALL}",
            crate::sys::errno_name(&error)
        )),
    }
}

/// The first word of each line of its help that is an option.
fn options(help: &str) -> BTreeSet<String> {
    let words = help.lines().filter_map(|line| line.split_whitespace().next());
    let options = words.filter(|word| word.starts_with("--"));
    options.map(str::to_owned).collect()
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

    fn program(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bwrap");
        std::fs::write(&path, text).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
        (folder, path)
    }

    fn fake(version: &str, options: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let help: String = options.iter().map(|option| format!("  {option}\n")).collect();
        program(&format!(
            "#!/bin/sh\ncase $1 in --version) echo '{version}';; --help) echo '{help}';; esac\n"
        ))
    }

    #[test]
    fn a_version_and_its_options_are_read() {
        let (_folder, path) = fake("bubblewrap 0.6.1", &NEEDED);
        let found = Bubblewrap::at(path).unwrap();
        assert_eq!(found.version, "0.6.1");
        assert!(found.has("--block-fd") && !found.has("--disable-userns"));
        let limited = Tree {
            own_bytes: Some(1),
            ..Tree::default()
        };
        assert!(found.remarks(&limited).unwrap().contains("--size"));
        assert_eq!(found.remarks(&Tree::default()), None);
    }

    #[test]
    fn what_is_no_bubblewrap_or_too_old_a_one_is_said() {
        let (_folder, path) = fake("bubblewrap 0.4.1", &NEEDED[..2]);
        let why = Bubblewrap::at(path).unwrap_err();
        assert!(why.contains("0.4.1") && why.contains("--perms"), "{why}");
        let (_folder, path) = fake("bwrap for something else", &NEEDED);
        let why = Bubblewrap::at(path).unwrap_err();
        assert!(why.contains("not that of bubblewrap"), "{why}");
        let (_folder, path) = program("#!/bin/sh\nexit 3\n");
        let why = Bubblewrap::at(path).unwrap_err();
        assert!(why.contains("exit status: 3"), "{why}");
        let (_folder, path) = program("not a program");
        let why = Bubblewrap::at(path).unwrap_err();
        assert!(why.contains("ENOEXEC"), "{why}");
    }
}
