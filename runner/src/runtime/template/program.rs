//! The program of a template: looked for once, asked for its version, and launched, as one file.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{AccessFlags, access};

use crate::runtime::program::{Listen, ask};
use crate::sys::errno_name;

/// The file that a word names, for the runner and for the launch: along the caller's PATH, whatever the workload's is.
pub(super) fn resolve(word: &std::ffi::OsStr) -> Result<PathBuf, String> {
    let name = Path::new(word);
    let may_run = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if word.as_bytes().contains(&b'/') {
        let path = std::path::absolute(name).unwrap_or_else(|_| name.to_owned());
        return match access(&path, AccessFlags::X_OK) {
            Ok(()) if path.is_file() => Ok(path),
            Ok(()) => Err(format!("{} is no file", path.display())),
            Err(errno) => Err(format!("{}: {}", path.display(), errno_name(&errno.into()))),
        };
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search)
        .map(|folder| folder.join(name))
        .find(|path| path.is_absolute() && may_run(path));
    found.ok_or_else(|| format!("no {} in PATH", name.display()))
}

/// Asks a program for its version, as the template starts it: the first word of what it prints that begins with digits and a
/// dot. `own` is whether it gets no variable but PATH.
pub(super) fn ask_version(path: &Path, arguments: &[String], own: bool) -> Result<String, String> {
    let shown = std::iter::once(path.display().to_string()).chain(arguments.iter().cloned());
    let shown: Vec<String> = shown.collect();
    let shown = shown.join(" ");
    let mut asked = Command::new(path);
    asked.args(arguments);
    if own {
        asked.env_clear();
        asked.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    }
    let said = match ask(&mut asked, Listen::Output) {
        Ok((status, said)) if status.success() => said,
        Ok((status, _)) => return Err(format!("`{shown}` fails ({status})")),
        Err(error) => return Err(format!("`{shown}` gives {error}")),
    };
    version_in(&said).ok_or_else(|| format!("`{shown}` names no version"))
}

pub(super) fn version_in(said: &str) -> Option<String> {
    let is_of_one = |letter: char| letter.is_ascii_alphanumeric() || ".-+~".contains(letter);
    let words = said.split(|letter: char| !is_of_one(letter));
    let mut words = words.map(|word| word.trim_end_matches(['.', '-']));
    let found = words.find(|word| {
        let mut parts = word.split('.');
        let is_number = |part: &str| part.bytes().next().is_some_and(|it| it.is_ascii_digit());
        let first = parts
            .next()
            .is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
        first && parts.next().is_some_and(is_number) && word.len() <= 64
    });
    found.map(str::to_owned)
}
