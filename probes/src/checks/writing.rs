//! Changing what the runner planted outside, and opening the kernel's knobs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::cause::{Cause, ENOENT, EOPNOTSUPP};
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::sys;
use crate::tally::Tally;

pub(crate) const DENIED: &[&str] = &[
    "ENOENT", "EACCES", "EPERM", "ELOOP", "ENOTDIR", "EROFS", "EXDEV",
];
pub(crate) const DENIED_KNOBS: &[&str] = &["ENOENT", "EACCES", "EPERM", "EROFS", "ENOTDIR"];

/// A name of this program's own in a folder: by the run's mark, so that the runner removes it where this program was killed before
/// it could; inside what is planted there by that name already.
pub(super) fn own_path(folder: &Path, parameters: &Parameters) -> PathBuf {
    let own = format!("containment-probe-{}", std::process::id());
    // A name, not a way to somewhere else.
    let mark = parameters
        .first("mark")
        .filter(|mark| mark.starts_with("containment-probe-") && !mark.contains('/'));
    match mark.map(|mark| folder.join(mark)) {
        Some(planted) if planted.is_dir() => planted.join(own),
        Some(free) => free,
        None => folder.join(own),
    }
}

/// Folders in which this program could make a file just now.
pub(super) fn writable_folders(parameters: &Parameters) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let here = std::env::current_dir().ok();
    let known = ["/workspace", "/tmp", "/dev/shm", "/var/tmp"].map(PathBuf::from);
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in known.into_iter().chain(home).chain(here) {
        if found.contains(&folder) || !folder.is_absolute() {
            continue;
        }
        let path = own_path(&folder, parameters);
        if File::create_new(&path).is_ok() && fs::remove_file(&path).is_ok() {
            found.push(folder);
        }
    }
    found
}

pub(crate) fn write(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    let twin = Twin::of(!writable_folders(parameters).is_empty());
    if parameters.first("write").is_none() {
        return Seen::missing("no write= was given");
    }
    for text in parameters.all("write") {
        let canary = Path::new(text);
        if canary.symlink_metadata().is_ok() {
            change(canary, parameters, &mut tally);
        } else {
            pretend(canary, &mut tally);
        }
    }
    tally.finish(twin)
}

/// The canary is there: everything that changes it, or its folder.
fn change(canary: &Path, parameters: &Parameters, tally: &mut Tally) {
    let text = canary.display();
    let beside = |what: &str| {
        let mut name = canary.as_os_str().to_owned();
        name.push(format!("-{what}-{}", std::process::id()));
        PathBuf::from(name)
    };
    let appended = OpenOptions::new().append(true).open(canary);
    let words = parameters.greeting("filesystem/write");
    tally.attempt(
        format!("append {text}"),
        appended.and_then(|mut file| file.write_all(&words)),
    );
    let both = OpenOptions::new().read(true).write(true).open(canary);
    match both.and_then(|file| Ok((file.metadata()?.len(), file))) {
        // A mapping of an empty file ends the process.
        Ok((0, _)) => {}
        Ok((_, file)) => tally.attempt("mmap", sys::write_by_mapping(&file, b'~')),
        Err(error) => tally.refused("mmap", error),
    }
    tally.attempt(
        "chmod",
        fs::set_permissions(canary, Permissions::from_mode(0o644)),
    );
    match sys::set_attribute(canary) {
        // A file system without them says nothing about the sandbox.
        Err(Cause::Errno(EOPNOTSUPP)) => {}
        answer => tally.attempt("xattr", answer),
    }
    tally.attempt(
        "truncate",
        OpenOptions::new().write(true).truncate(true).open(canary),
    );
    tally.attempt("link", fs::hard_link(canary, beside("link")));
    let made = beside("made");
    match File::create_new(&made) {
        Ok(_) => {
            tally.escaped("create");
            tally.attempt("rename", fs::rename(&made, canary));
        }
        Err(error) => {
            tally.refused("create", error);
            tally.attempt("rename", fs::rename(canary, beside("moved")));
        }
    }
    if canary.symlink_metadata().is_ok() {
        tally.attempt("unlink", fs::remove_file(canary));
    }
}

/// The canary is not there, so its folder is not the host's: what can be written there vanishes with the sandbox.
fn pretend(canary: &Path, tally: &mut Tally) {
    let text = canary.display();
    let folder = canary.parent().unwrap_or(Path::new("/"));
    let missing: Vec<_> = folder
        .ancestors()
        .take_while(|path| !path.exists())
        .collect();
    let made = fs::create_dir_all(folder).and_then(|()| File::create_new(canary));
    match made {
        Ok(_) => {
            tally.note(format!(
                "ephemeral: {text} could be made and was not there before"
            ));
            tally.refused(text.to_string(), Cause::Errno(ENOENT));
            let mut left = fs::remove_file(canary);
            for folder in missing {
                left = left.and_then(|()| fs::remove_dir(folder));
            }
            if let Err(error) = left {
                tally.note(format!("something stays: {}", Cause::from(error)));
            }
        }
        Err(error) => {
            tally.refused(format!("create {text}"), error);
            // Folders that came into being before something refused; those that hold anything stay.
            for folder in missing {
                let _gone = fs::remove_dir(folder);
            }
        }
    }
}

/// What reconfigures the host: opened for writing, and never written.
const KNOBS: [&str; 7] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sysrq-trigger",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sys/kernel/hotplug",
    "/sys/kernel/uevent_helper",
    "/sys/power/state",
];

pub(crate) fn knobs(_parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED_KNOBS);
    for path in KNOBS {
        tally.attempt(path, OpenOptions::new().write(true).open(path));
    }
    // Its own knob, which everybody may write; without /proc, a device that everybody may.
    let own = ["/proc/self/comm", "/dev/null"];
    let twin = own
        .iter()
        .any(|path| OpenOptions::new().write(true).open(path).is_ok());
    tally.finish(Twin::of(twin))
}
