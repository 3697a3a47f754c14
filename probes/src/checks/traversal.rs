//! Detours to a file outside: `..`, links, slashes, /proc, the working folder, descriptors of folders.

use std::io::Read;
use std::path::Path;

use super::filesystem::{DENIED, allowed, beginning};
use super::show;
use super::writing::{own_path, writable_folders};
use crate::cause::Cause;
use crate::line::Seen;
use crate::parameters::Parameters;
use crate::sys;
use crate::tally::Tally;

const UP: &str = "../../../../../../../../../../../../../../../..";

/// Ways to write the path of a file, each with its name: `{}` stands for the path.
const WAYS: [(&str, &str); 5] = [
    ("up", "../../../../../../../../../../../../../../../..{}"),
    ("self-root", "/proc/self/root{}"),
    ("pid1-root", "/proc/1/root{}"),
    (
        "self-cwd",
        "/proc/self/cwd/../../../../../../../../../../../../../../../..{}",
    ),
    ("thread-root", "/proc/thread-self/root{}"),
];

pub(crate) fn traversal(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    let twin = allowed(parameters, &mut tally, |path| format!("/..//.{path}"));
    if parameters.first("read").is_none() {
        return Seen::missing("no read= was given");
    }
    for text in parameters.all("read") {
        let mut ways: Vec<_> = WAYS
            .iter()
            .map(|(name, way)| (*name, way.replace("{}", text)))
            .collect();
        // Through the file's own folder: a name is not just compared.
        if let Some((folder, name)) = text.rsplit_once('/') {
            ways.push(("dots", format!("/..{folder}/./{name}")));
        }
        for (way, path) in ways {
            match beginning(Path::new(&path)) {
                Ok(bytes) => tally.escaped(format!("{} {way} {text}", show(&bytes))),
                Err(error) => tally.refused(way, error),
            }
        }
        by_link(text, parameters, &mut tally);
    }
    by_descriptors(parameters, &mut tally);
    tally.finish(twin)
}

/// A link of our own that points at the folder, with a slash behind it; where nothing can be written there is none.
fn by_link(text: &str, parameters: &Parameters, tally: &mut Tally) {
    let target = Path::new(text);
    let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
        return;
    };
    for own in writable_folders(parameters) {
        let link = own_path(&own, parameters);
        if std::os::unix::fs::symlink(folder, &link).is_err() {
            continue;
        }
        let by = format!("{}//{}", link.display(), name.to_string_lossy());
        let answer = beginning(Path::new(&by));
        let removed = std::fs::remove_file(&link);
        match answer {
            Ok(bytes) => tally.escaped(format!("{} link {text}", show(&bytes))),
            Err(error) => tally.refused("link", error),
        }
        if let Err(error) = removed {
            tally.note(format!("{} stays: {}", link.display(), Cause::from(error)));
        }
        return;
    }
}

/// Folders that somebody left open: from each of them upward.
fn by_descriptors(parameters: &Parameters, tally: &mut Tally) {
    for fd in (0..1_024).filter(|fd| sys::descriptor_is_open(*fd).is_ok()) {
        // Not every descriptor is a folder.
        if sys::open_at(fd, Path::new("."), sys::O_DIRECTORY).is_err() {
            continue;
        }
        for text in parameters.all("read") {
            let path = format!("{UP}{text}");
            let opened = sys::open_at(fd, Path::new(&path), 0);
            let mut bytes = Vec::new();
            let answer = opened.and_then(|file| Ok(file.take(256).read_to_end(&mut bytes)?));
            match answer {
                Ok(_) => tally.escaped(format!("{} descriptor {fd} {text}", show(&bytes))),
                Err(cause) => tally.refused(format!("descriptor {fd}"), cause),
            }
        }
    }
}
