//! Reading what the runner planted outside.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::show;
use crate::cause::{Cause, EACCES};
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::sys;
use crate::tally::Tally;

pub(crate) const DENIED: &[&str] = &["ENOENT", "EACCES", "EPERM", "ELOOP", "ENOTDIR", "EXDEV"];
/// `none`: a folder that is there and holds nothing.
pub(crate) const DENIED_TREE: &[&str] = &["ENOENT", "EACCES", "EPERM", "ELOOP", "ENOTDIR", "none"];

/// The first bytes of a file.
pub(super) fn beginning(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(256).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the file that is allowed: its content for the note, and whether there was any.
pub(super) fn allowed(parameters: &Parameters, tally: &mut Tally, way: fn(&str) -> String) -> Twin {
    let Some(path) = parameters.first("allowed") else {
        return Twin::None;
    };
    match beginning(Path::new(&way(path))) {
        Ok(bytes) if !bytes.is_empty() => {
            tally.note(format!("allowed={}", show(&bytes)));
            Twin::Ok
        }
        Ok(_) => Twin::Failed,
        Err(error) => {
            tally.note(format!("allowed {}", Cause::from(error)));
            Twin::Failed
        }
    }
}

pub(crate) fn read(parameters: &Parameters) -> Seen {
    attack(parameters, "read", show)
}

/// The ledger and its key. A key's own text is never printed: it would stand in the ledger.
pub(crate) fn evidence(parameters: &Parameters) -> Seen {
    attack(parameters, "evidence", |bytes| {
        let marker = b"PRIVATE KEY";
        if bytes.windows(marker.len()).any(|part| part == marker) {
            "a private key".to_owned()
        } else {
            show(bytes)
        }
    })
}

fn attack(parameters: &Parameters, key: &str, shown: fn(&[u8]) -> String) -> Seen {
    let mut tally = Tally::new(DENIED);
    let twin = allowed(parameters, &mut tally, str::to_owned);
    if parameters.first(key).is_none() {
        return Seen::missing(format!("no {key}= was given"));
    }
    for text in parameters.all(key) {
        let path = Path::new(text);
        match beginning(path) {
            Ok(bytes) => tally.escaped(format!("{} {text}", shown(&bytes))),
            Err(error) => {
                let cause = Cause::from(error);
                if cause == Cause::Errno(EACCES) && own_mode_refuses(path) {
                    let text = format!("{text} is refused by its own mode, which no sandbox made");
                    return Seen::missing(text);
                }
                tally.refused(text, cause);
            }
        }
    }
    tally.finish(twin)
}

/// Whether a file that can be seen may not be read because of its mode and owner: then nothing was measured.
fn own_mode_refuses(path: &Path) -> bool {
    let Ok(file) = path.symlink_metadata() else {
        return false;
    };
    // Whoever does not know who it is cannot tell: then nothing was measured either.
    let (Ok([users, groups]), Ok(others)) = (sys::users_and_groups(), sys::supplementary()) else {
        return true;
    };
    let in_group = || groups[1] == file.gid() || others.contains(&file.gid());
    let bit = match () {
        () if users[1] == file.uid() => 0o400,
        () if in_group() => 0o040,
        () => 0o004,
    };
    file.mode() & bit == 0
}

/// Planted names: neither listed, nor found.
pub(crate) fn tree(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED_TREE);
    let twin = parameters.first("allowed").map_or(Twin::None, |path| {
        let path = Path::new(path);
        let listed = path
            .parent()
            .and_then(|folder| std::fs::read_dir(folder).ok());
        let mut names = listed.into_iter().flatten().flatten();
        Twin::of(names.any(|entry| Some(entry.file_name().as_os_str()) == path.file_name()))
    });
    if parameters.first("tree").is_none() {
        return Seen::missing("no tree= was given");
    }
    let mut empty = 0;
    for text in parameters.all("tree") {
        match std::fs::read_dir(text) {
            Ok(listed) => {
                let names: Vec<_> = listed.flatten().map(|entry| entry.file_name()).collect();
                let shown: Vec<_> = names
                    .iter()
                    .take(6)
                    .map(|name| name.to_string_lossy())
                    .collect();
                if names.is_empty() {
                    empty += 1;
                    tally.note(format!("{text} is empty"));
                } else {
                    tally.escaped(format!("{} in {text}", shown.join(" ")));
                }
            }
            Err(error) => {
                let cause = Cause::from(error);
                // Not listed is not all: is it found?
                let found =
                    cause == Cause::Errno(EACCES) && Path::new(text).symlink_metadata().is_ok();
                if found && own_mode_refuses(Path::new(text)) {
                    return Seen::missing(format!("{text} is refused by its own mode"));
                }
                tally.refused(text, cause);
            }
        }
    }
    if empty > 0 && !tally.has_refused() && !tally.has_escaped() {
        tally.refused("no names", Cause::None);
    }
    tally.finish(twin)
}
