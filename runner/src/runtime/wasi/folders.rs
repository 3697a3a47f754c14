//! The folders that a module is handed: what cannot be handed over as it is asked for is refused, and the rest is opened here.
//!
//! A module is handed each folder by itself. Nothing can be put over what lies in one, by whatever name another has: the names
//! are for the module alone. So what a mount would cover is in reach through the folder above, with the right of that.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ledger::facts::control::Control;
use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};

use super::step;
use super::talk::Folder;
use crate::init::wire;
use crate::mechanism::owners::open_without_links;
use crate::plan::{Bind, LaunchError, Plan, Reason, Shape};
use crate::sys::errno_name;

/// Refuses what a module cannot be shown, or not as it is asked for.
pub(super) fn refuse_what_cannot_be_shown(plan: &Plan) -> Result<(), LaunchError> {
    if let Some(secret) = plan.job.secrets.first() {
        return Err(refused(format!(
            "cannot show the secret {}: the runtime wasi has no place for it; show a folder that holds it, or pass it as a variable",
            secret.name
        )));
    }
    if plan.tree.shape == Shape::Host {
        return Ok(());
    }
    let binds = &plan.tree.binds;
    for (index, bind) in binds.iter().enumerate() {
        if let Some(place) = plan
            .tree
            .covered
            .iter()
            .find(|it| it.starts_with(&bind.target))
        {
            return Err(refused(format!(
                "cannot show {}: the runtime wasi cannot cover {} in it, which no workload may see; show another folder",
                bind.source.display(),
                place.display()
            )));
        }
        // Shallow targets come first.
        for above in binds.iter().take(index) {
            if let Some(why) = gives_more(above, bind) {
                let (source, target) = (bind.source.display(), bind.target.display());
                return Err(refused(format!(
                    "cannot show {source} at {target}: {why}; show it elsewhere (SRC:DST), or another folder than {}",
                    above.source.display()
                )));
            }
        }
    }
    Ok(())
}

/// What a module would have through `above` that `below`, at a place in it, is to keep from it.
fn gives_more(above: &Bind, below: &Bind) -> Option<String> {
    let rest = below.target.strip_prefix(&above.target).ok()?;
    let target = above.target.display();
    if below.source != above.source.join(rest) {
        return Some(format!(
            "the runtime wasi cannot put it over what is there in {target}, which a module would see"
        ));
    }
    (below.read_only && !above.read_only).then(|| {
        format!("it would be writable through {target}, which the runtime wasi cannot prevent")
    })
}

fn refused(what: String) -> LaunchError {
    LaunchError::Refused {
        control: Control::Filesystem,
        why: Reason::CANNOT_SHOW.into(),
        what,
    }
}

/// Opens each folder, so that what its name stands for later makes no difference.
pub(super) fn open(plan: &Plan) -> Result<(Vec<Folder>, Vec<OwnedFd>), LaunchError> {
    let whole = Bind {
        source: "/".into(),
        target: "/".into(),
        read_only: false,
    };
    let whole = (plan.tree.shape == Shape::Host).then_some(&whole);
    let (mut folders, mut opened) = (Vec::new(), Vec::new());
    for (index, bind) in whole.into_iter().chain(&plan.tree.binds).enumerate() {
        opened.push(open_folder(&bind.source)?);
        folders.push(Folder {
            descriptor: wire::module_folder(index),
            target: bind.target.as_os_str().as_bytes().to_vec(),
            writable: !bind.read_only,
        });
    }
    Ok((folders, opened))
}

fn open_folder(path: &Path) -> Result<OwnedFd, LaunchError> {
    let shown = path.display();
    let failed = |error: std::io::Error| match error.raw_os_error() {
        Some(libc::ELOOP) => step(format!("{shown} is another one than it was: a link")),
        _ => step(format!("open the folder {shown}: {}", errno_name(&error))),
    };
    let opened = open_without_links(path).map_err(failed)?;
    let facts = fstat(opened.as_fd()).map_err(|errno: Errno| failed(errno.into()))?;
    if SFlag::from_bits_truncate(facts.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR {
        return Ok(opened);
    }
    Err(refused(format!(
        "cannot show {shown}: the runtime wasi shows folders, and it is none; show the folder that it lies in"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(source: &str, target: &str, read_only: bool) -> Bind {
        Bind {
            source: source.into(),
            target: target.into(),
            read_only,
        }
    }

    #[test]
    fn what_lies_below_another_must_be_there_with_no_less_of_a_right() {
        let (read, write) = (true, false);
        let more = |above: Bind, below: Bind| gives_more(&above, &below);
        // The same tree, with the same right or with more of it.
        assert_eq!(
            more(bind("/x", "/x", read), bind("/x/a", "/x/a", read)),
            None
        );
        assert_eq!(
            more(bind("/x", "/x", read), bind("/x/a", "/x/a", write)),
            None
        );
        assert_eq!(
            more(bind("/x", "/y", write), bind("/x/a", "/y/a", write)),
            None
        );
        // Beside each other, whatever the sources are.
        assert_eq!(
            more(bind("/x", "/x", write), bind("/x/a", "/xa", read)),
            None
        );
        let why = more(bind("/x", "/x", write), bind("/x/a", "/x/a", read)).unwrap();
        assert!(why.contains("writable through /x"), "{why}");
        let why = more(bind("/x", "/y", write), bind("/x/a", "/y/a", read)).unwrap();
        assert!(why.contains("writable through /y"), "{why}");
        for below in [read, write] {
            for above in [read, write] {
                let why = more(bind("/x", "/x", above), bind("/e", "/x/a", below)).unwrap();
                assert!(why.contains("put it over"), "{why}");
                // By another name it is another tree.
                let other = more(bind("/x", "/x", above), bind("/x/b", "/x/a", below));
                assert!(other.is_some());
            }
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_folder_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let inner = base.join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        open_folder(&inner).unwrap();
        std::fs::rename(base.join("a"), base.join("c")).unwrap();
        std::os::unix::fs::symlink("c", base.join("a")).unwrap();
        let error = open_folder(&inner).unwrap_err();
        assert!(error.to_string().contains("a link"), "{error}");
        let file = base.join("file");
        std::fs::write(&file, "").unwrap();
        let error = open_folder(&file).unwrap_err();
        assert!(matches!(error, LaunchError::Refused { .. }), "{error}");
    }
}
