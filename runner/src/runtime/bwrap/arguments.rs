//! From a specification to bubblewrap's command line (bwrap(1)).

mod folders;
pub(super) mod protect;

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ledger::facts::control::Control;
use ledger::facts::policy::{Nesting, Policy};

use super::answers::{FILTERS, NO_USER_NAMESPACES, SIZE};
use crate::init::wire::{Spec, Step, Word, planted_number};
use crate::mechanism::Failure;
use crate::mechanism::identity::IdentitySpec;
use crate::mechanism::owners::{HostIds, clone_path};
use crate::mechanism::root::{Entry, Mask, Source, What};
use crate::plan::{LaunchError, Plan, Shape};
use crate::runtime::program::Installed;
use crate::sys::filter::Instruction;
use folders::{Folders, OnHost};
use protect::Protected;

/// What a command line is made of.
pub(super) struct Arguments<'a> {
    pub(super) plan: &'a Plan,
    pub(super) program: &'a Installed,
    pub(super) spec: &'a Spec,
    pub(super) ids: &'a HostIds,
    pub(super) inside: &'a IdentitySpec,
    pub(super) wanted: libc::c_int,
}

/// Namespaces that a specification asks for, and the options for them.
const NAMESPACES: [(libc::c_int, &str); 4] = [
    (libc::CLONE_NEWNET, "--unshare-net"),
    (libc::CLONE_NEWIPC, "--unshare-ipc"),
    (libc::CLONE_NEWUTS, "--unshare-uts"),
    (libc::CLONE_NEWCGROUP, "--unshare-cgroup-try"),
];

/// What a plan asks of the kernel, around a program of the host's.
pub(super) fn trial(
    program: &Installed,
    wanted: libc::c_int,
    policy: &Policy,
) -> Vec<&'static str> {
    let mut words = vec!["--unshare-user", "--unshare-pid", "--die-with-parent"];
    let own = NAMESPACES.iter().filter(|(flag, _)| wanted & flag != 0);
    words.extend(own.map(|(_, option)| *option));
    words.extend(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]);
    if policy.nesting == Nesting::Deny {
        let known = NO_USER_NAMESPACES.into_iter();
        words.extend(known.filter(|option| program.has(option)));
    }
    words
}

/// A command line.
pub(super) struct Built {
    pub(super) steps: Vec<Step>,
    /// What the words refer to.
    pub(super) contents: Vec<Vec<u8>>,
    pub(super) protected: Vec<Protected>,
    pub(super) unprotected: Option<Failure>,
}

/// The command line so far.
#[derive(Default)]
struct Line {
    steps: Vec<Step>,
    contents: Vec<Vec<u8>>,
}

fn text(word: impl AsRef<OsStr>) -> Word {
    Word::Text(word.as_ref().as_bytes().to_vec())
}

impl Line {
    fn add(&mut self, words: Vec<Word>) {
        let covers = None;
        self.steps.push(Step { covers, words });
    }

    fn say(&mut self, words: &[&str]) {
        self.add(words.iter().map(text).collect());
    }

    fn content(&mut self, content: Vec<u8>) -> Word {
        let number = u32::try_from(self.contents.len()).unwrap_or(u32::MAX);
        self.contents.push(content);
        Word::Content(number)
    }
}

impl Arguments<'_> {
    /// The command line; mounts that only root can hand over join the planted ones.
    pub(super) fn build(&self, planted: &mut Vec<OwnedFd>) -> Result<Built, LaunchError> {
        let mut line = Line::default();
        self.processes(&mut line);
        self.filters(&mut line);
        let entries = self.spec.root.iter().flat_map(|root| &root.entries);
        let entries: Vec<Entry> = entries
            .map(|entry| self.within_reach(entry, planted))
            .collect::<Result<_, _>>()?;
        let own_devices = !self.plan.job.leaves_out(Control::Devices);
        if own_devices {
            line.say(&["--dev", "/dev"]);
        }
        for entry in &entries {
            self.entry(&mut line, entry, own_devices);
        }
        let folders = Folders {
            plan: self.plan,
            entries: &entries,
        };
        let (protected, unprotected) = protect::protect(&mut line, self.spec, &folders);
        for mask in self.spec.root.iter().flat_map(|root| &root.masks) {
            mask_over(&mut line, mask, &folders);
        }
        if own_devices {
            line.say(&["--remount-ro", "/dev"]);
        }
        line.say(&["--remount-ro", "/"]);
        Ok(Built {
            steps: line.steps,
            contents: line.contents,
            protected,
            unprotected: unprotected.err(),
        })
    }

    /// Namespaces, ids, capabilities, and what binds it all to the launcher.
    fn processes(&self, line: &mut Line) {
        let IdentitySpec { uid, gid, .. } = *self.inside;
        line.say(&["--unshare-user", "--unshare-pid"]);
        for (flag, option) in NAMESPACES {
            if self.wanted & flag != 0 {
                line.say(&[option]);
            }
        }
        line.say(&["--uid", &uid.to_string(), "--gid", &gid.to_string()]);
        line.say(&["--hostname", "sandbox"]);
        let capabilities = if self.spec.give_up_privilege {
            "--cap-drop"
        } else {
            "--cap-add"
        };
        line.say(&[capabilities, "ALL"]);
        if self.spec.deny_user_namespaces {
            let known = NO_USER_NAMESPACES.iter();
            for option in known.filter(|option| self.program.has(option)) {
                line.say(&[option]);
            }
        }
        // With a terminal the session is begun before: the one that it begins has none.
        if self.spec.session && !self.spec.terminal {
            line.say(&["--new-session"]);
        }
        line.say(&["--die-with-parent"]);
        line.add(vec![text("--json-status-fd"), Word::Status]);
        line.add(vec![text("--block-fd"), Word::Hold]);
        line.add(vec![text("--chdir"), text(&self.plan.cwd)]);
    }

    fn filters(&self, line: &mut Line) {
        if !self.program.has(FILTERS) {
            return;
        }
        for filter in self.spec.base.iter().chain(&self.spec.seccomp) {
            let content = line.content(bytes(filter));
            line.add(vec![text(FILTERS), content]);
        }
    }

    /// A folder that is to be the root may lie where the workload's id does not get to: root hands over what is in it.
    fn within_reach(
        &self,
        entry: &Entry,
        planted: &mut Vec<OwnedFd>,
    ) -> Result<Entry, LaunchError> {
        let mut entry = entry.clone();
        let (Shape::Custom(root), HostIds::Allocated { .. }) = (&self.plan.tree.shape, self.ids)
        else {
            return Ok(entry);
        };
        if let What::Bind { source, .. } = &mut entry.what
            && let Source::Path(path) = source
            && path.starts_with(root)
        {
            let tree = clone_path(path, true).map_err(|error| LaunchError::Step {
                what: format!(
                    "cannot bring in {}: {}",
                    path.display(),
                    crate::sys::errno_name(&error)
                ),
            })?;
            planted.push(tree);
            *source = Source::Planted(planted_number(planted.len() - 1));
        }
        Ok(entry)
    }

    fn entry(&self, line: &mut Line, entry: &Entry, own_devices: bool) {
        let at = text(&entry.path);
        let is_device = entry.path.starts_with("/dev");
        match &entry.what {
            What::Folder => line.add(vec![text("--dir"), at]),
            What::File { content, mode } => {
                if let Some(folder) = entry.path.parent() {
                    // Else it would be made for the owner alone.
                    line.add(vec![text("--dir"), text(folder)]);
                }
                let content = line.content(content.clone());
                let mode = text(format!("{mode:04o}"));
                line.add(vec![text("--perms"), mode, text("--file"), content, at]);
            }
            // --dev makes them.
            What::Link(_) if is_device => {}
            What::Link(to) => line.add(vec![text("--symlink"), text(to), at]),
            What::Memory { mode, bytes } => {
                let mut words = vec![text("--perms"), text(format!("{mode:04o}"))];
                if let Some(bytes) = bytes.filter(|_| self.program.has(SIZE)) {
                    words.extend([text(SIZE), text(bytes.to_string())]);
                }
                words.extend([text("--tmpfs"), at]);
                line.add(words);
            }
            What::Bind {
                source: Source::Path(source),
                ..
            } if own_devices && is_device && is_made_by_dev(source) => {}
            What::Bind {
                source,
                read_only,
                device,
                optional,
            } => {
                let option = match (device, read_only) {
                    (true, _) => "--dev-bind",
                    (false, true) => "--ro-bind",
                    (false, false) => "--bind",
                };
                let option = if *optional {
                    format!("{option}-try")
                } else {
                    option.to_owned()
                };
                line.add(vec![text(option), place(source, Path::new("")), at]);
            }
            What::Processes => line.add(vec![text("--proc"), at]),
            // --dev makes them; alone they are not to be had.
            What::Terminals => {}
            What::MessageQueues => line.add(vec![text("--mqueue"), at]),
        }
    }
}

fn is_made_by_dev(source: &Path) -> bool {
    let made = ["null", "zero", "full", "random", "urandom", "tty"];
    made.iter()
        .any(|name| source == Path::new("/dev").join(name))
}

/// A filter as the kernel reads it (struct sock_filter).
fn bytes(filter: &[Instruction]) -> Vec<u8> {
    let instruction = |one: &Instruction| {
        let [a, b] = one.code.to_ne_bytes();
        let [c, d, e, f] = one.k.to_ne_bytes();
        [a, b, one.jt, one.jf, c, d, e, f]
    };
    filter.iter().flat_map(instruction).collect()
}

/// A path below a source, as bubblewrap finds it.
fn place(source: &Source, below: &Path) -> Word {
    match source {
        Source::Path(path) if below.as_os_str().is_empty() => text(path),
        Source::Path(path) => text(path.join(below)),
        Source::Planted(number) => {
            let index = u32::try_from(number.saturating_sub(planted_number(0))).unwrap_or(u32::MAX);
            Word::Planted(index, below.as_os_str().as_bytes().to_vec())
        }
    }
}

fn mask_over(line: &mut Line, mask: &Mask, folders: &Folders<'_>) {
    let (Mask::ReadOnly(inside) | Mask::Empty(inside)) = mask;
    // The host's /proc has the same entries that a fresh one has.
    let host = if inside.starts_with("/proc") {
        OnHost {
            path: inside.clone(),
            word: text(inside),
        }
    } else {
        match folders.of(inside) {
            Some(host) => host,
            None => return,
        }
    };
    let Ok(found) = std::fs::metadata(&host.path) else {
        return;
    };
    let words = match mask {
        Mask::ReadOnly(_) => vec![text("--ro-bind"), host.word.clone(), text(inside)],
        Mask::Empty(_) if found.is_dir() => vec![
            text("--tmpfs"),
            text(inside),
            text("--remount-ro"),
            text(inside),
        ],
        Mask::Empty(_) => vec![text("--ro-bind"), text("/dev/null"), text(inside)],
    };
    line.steps.push(Step {
        covers: Some((host.word, inside.as_os_str().as_bytes().to_vec())),
        words,
    });
}
