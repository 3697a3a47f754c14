//! Protected paths below writable folders ([`crate::mechanism::protect`]).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ledger::facts::control::Control;

use super::{Folders, Line, place, text};
use crate::init::wire::Spec;
use crate::mechanism::root::What;
use crate::plan::LaunchError;

/// Adds what keeps them as they are.
///
/// # Errors
/// One is not there, or leads over a link.
pub(super) fn protect(
    line: &mut Line,
    spec: &Spec,
    folders: &Folders<'_>,
) -> Result<(), LaunchError> {
    for folder in &spec.protect {
        let mut bound = BTreeSet::new();
        let pinned = folder.pinned.iter().map(|path| (path, false));
        for (path, protected) in pinned.chain(folder.paths.iter().map(|path| (path, true))) {
            each(
                line,
                folders,
                (&folder.folder, Path::new(path), protected),
                &mut bound,
            )?;
        }
    }
    Ok(())
}

/// Binds every folder on the way onto itself, and the last one read-only when it is to be protected.
fn each(
    line: &mut Line,
    folders: &Folders<'_>,
    (folder, path, protected): (&Path, &Path, bool),
    bound: &mut BTreeSet<PathBuf>,
) -> Result<(), LaunchError> {
    let shown = folders.entries.iter().rev();
    let shown = shown.filter(|entry| entry.path == folder);
    let source = shown.filter_map(|entry| match &entry.what {
        What::Bind { source, .. } => Some(source),
        _ => None,
    });
    let (Some(source), Some(host)) = (source.into_iter().next(), folders.of(folder)) else {
        return Ok(());
    };
    let mut at = PathBuf::new();
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        at.push(component);
        let last = components.peek().is_none();
        let on_host = host.path.join(&at);
        let found = std::fs::symlink_metadata(&on_host);
        let found = match found {
            // Bubblewrap would follow it.
            Ok(found) if found.is_symlink() => Err("ELOOP".to_owned()),
            Ok(found) => Ok(found),
            Err(error) => Err(crate::sys::errno_name(&error)),
        };
        let found = found.map_err(|error| LaunchError::Refused {
            control: Control::Filesystem,
            what: format!("cannot protect {}: {error}", on_host.display()),
        })?;
        let read_only = protected && (last || !found.is_dir());
        if !read_only && bound.contains(&at) {
            continue;
        }
        let option = if read_only { "--ro-bind" } else { "--bind" };
        line.add(vec![
            text(option),
            place(source, &at),
            text(folder.join(&at)),
        ]);
        bound.insert(at.clone());
        if read_only {
            break;
        }
    }
    Ok(())
}
