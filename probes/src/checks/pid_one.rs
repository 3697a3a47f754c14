//! What process 1 gives away of the host: its variables, its folders, its descriptors, its program. And what the runner's canary
//! process does, which a host that keeps its own process 1 closed, even to root, still shows to whom it belongs.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::show;
use crate::cause::Cause;
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::tally::Tally;

/// `none`: all could be read, and nothing of it is the host's.
pub(crate) const DENIED: &[&str] = &[
    "EACCES", "EPERM", "ENOENT", "ESRCH", "EROFS", "ETXTBSY", "none",
];

pub(crate) fn pid1(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    environment(&mut tally);
    for name in ["root", "cwd"] {
        let path = format!("/proc/1/{name}/.");
        match fs::metadata(&path) {
            Ok(found) if is_own(&found) => tally.note(format!("{name} is the sandbox's own")),
            Ok(_) => tally.escaped(format!("/proc/1/{name} is another folder")),
            Err(error) => tally.refused(name, error),
        }
    }
    descriptors(&mut tally);
    // Whoever can write the program of process 1 writes the runner's.
    tally.attempt(
        "write exe",
        OpenOptions::new().write(true).open("/proc/1/exe"),
    );
    for pid in parameters.all("pid") {
        canary(pid, parameters.first("file"), &mut tally);
    }
    if !tally.has_refused() && !tally.has_escaped() {
        tally.refused("nothing of the host", Cause::None);
    }
    let own = fs::read("/proc/self/environ").is_ok() && fs::metadata("/proc/self/cwd/.").is_ok();
    tally.finish(Twin::of(own))
}

/// The file that lies in the canary's working folder, by way of the process: its content is a secret of the runner's.
fn canary(pid: &str, file: Option<&str>, tally: &mut Tally) {
    let Some(file) = file.filter(|file| !file.contains('/')) else {
        return tally.note(format!("no file= in the working folder of {pid} was given"));
    };
    match fs::read(format!("/proc/{pid}/cwd/{file}")) {
        Ok(content) => tally.escaped(format!("/proc/{pid}/cwd/{file} {}", show(&content))),
        Err(error) => tally.refused(format!("/proc/{pid}/cwd/{file}"), error),
    }
}

fn is_own(found: &fs::Metadata) -> bool {
    let same = |path: &str| {
        fs::metadata(path).is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
    };
    same("/") || same(".")
}

/// Variables that this process does not have itself.
fn environment(tally: &mut Tally) {
    match fs::read("/proc/1/environ") {
        Ok(text) => {
            let own: BTreeSet<Vec<u8>> = std::env::vars_os()
                .map(|(name, _)| name.as_bytes().to_vec())
                .collect();
            let names = text
                .split(|byte| *byte == 0)
                .map(|one| one.split(|byte| *byte == b'=').next().unwrap_or_default());
            let foreign: Vec<_> = names
                .filter(|name| !name.is_empty() && !own.contains(*name))
                .map(String::from_utf8_lossy)
                .collect();
            if foreign.is_empty() {
                tally.note("environ holds nothing else");
            } else {
                let few: Vec<_> = foreign.iter().take(5).map(AsRef::as_ref).collect();
                tally.escaped(format!(
                    "environ holds {} more: {}",
                    foreign.len(),
                    few.join(" ")
                ));
            }
        }
        Err(error) => tally.refused("environ", error),
    }
}

fn descriptors(tally: &mut Tally) {
    let listed = match fs::read_dir("/proc/1/fd") {
        Ok(listed) => listed,
        Err(error) => return tally.refused("fd", error),
    };
    for entry in listed.flatten() {
        let target = match fs::read_link(entry.path()) {
            Ok(target) => target,
            Err(error) => {
                tally.refused("fd", error);
                continue;
            }
        };
        // Pipes and sockets have no path to open again; files and folders have.
        if !target.is_absolute() || target.starts_with("/dev") {
            continue;
        }
        let name = entry.file_name();
        match fs::metadata(entry.path()) {
            Ok(found) if is_own(&found) || is_same(&found, &target) => {}
            Ok(_) => tally.escaped(format!("fd {} is {}", name.display(), target.display())),
            Err(error) => tally.refused("fd", error),
        }
    }
}

/// Whether the path leads to the very same file from here, so that nothing new is reached.
fn is_same(found: &fs::Metadata, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
}
