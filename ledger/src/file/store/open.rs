//! Opening a ledger: finding where it stands, holding that against what was acknowledged, or beginning one.

use std::path::{Path, PathBuf};

use super::acknowledged::Difference;
use super::error::OpenLedgerError;
use super::found::{Found, find, gone, known_here, worst};
use super::heads::{self, Heads};
use super::keys;
use super::layout::Layout;
use super::lock::{LedgerLock, sweep};
use super::state::State;
use super::tail::Ending;
use super::{Folder, Notice, Store};
use crate::bytes::canon::{MAX_LINE_BYTES, escape_bytes};
use crate::bytes::hash::Hash;
use crate::bytes::key::{KeyId, LocalKey, Signer as _};
use crate::bytes::time::Stamp;
use crate::file::durable::{self, FileError};
use crate::record::{Custody, Tool};

/// Which key signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChoice {
    /// The ledger's own key, in the key folder; a new ledger makes it.
    Own,
    /// The key in this file, which exists.
    File(PathBuf),
    /// A key of this process alone: it begins a ledger that ends with it.
    Ephemeral,
}

/// How to open a ledger.
#[derive(Clone, Debug)]
pub struct OpenOptions<'a> {
    /// The ledger folder.
    pub dir: &'a Path,
    /// Which key signs.
    pub key: KeyChoice,
    /// Where own keys and `.heads` files are.
    pub key_folder: &'a Path,
    /// Go on with a ledger that lost records; a record will say so.
    pub accept_rollback: bool,
    /// The program that begins a ledger.
    pub tool: Tool,
    /// The name of this host, for the origin of a new ledger.
    pub host_name: &'a str,
    /// Begin a ledger when there is none.
    pub create: bool,
    /// Called with the ledger's folder when another writer has kept this one waiting for a second, at the opening or
    /// at a later append: once for each opened ledger, while it waits, from a thread that ends with the wait.
    pub say_waiting: Option<fn(&Path)>,
}

/// A key to sign with, and the file it is kept in.
pub(super) struct Key {
    pub(super) signer: LocalKey,
    pub(super) file: Option<PathBuf>,
}

impl Store {
    /// Opens the ledger in a folder, or begins one. Nothing is signed in a ledger that is shorter than, or
    /// other than, what its checkpoint or `.heads` acknowledged, unless the operator accepts that.
    ///
    /// # Errors
    /// See [`OpenLedgerError`].
    pub fn open(options: &OpenOptions<'_>, stamp: &Stamp) -> Result<Self, OpenLedgerError> {
        let layout = Layout::new(durable::absolute(options.dir)?);
        refuse_what_is_no_ledger(&layout, options.create)?;
        refuse_root_elsewhere(&layout)?;
        for folder in layout.folders() {
            durable::expect_folder(&folder)?;
        }
        if durable::list(&layout.records())?.is_empty() {
            refuse_to_begin(options, &layout)?;
        }
        durable::create_folders(layout.root())?;
        let mut lock = LedgerLock::open(&layout, options.say_waiting)?;
        lock.acquire()?;
        let folder = Folder::of(layout.root())?;
        let store = if durable::inspect_path(&layout.segment(0))?.is_some() {
            Self::existing(options, layout, lock, folder, stamp)?
        } else {
            Self::begin(options, layout, lock, folder, stamp)?
        };
        sweep(&store.layout)?;
        // Dropping the lock's file on an error above lets go of it too.
        store.lock.release()?;
        Ok(store)
    }

    fn existing(
        options: &OpenOptions<'_>,
        layout: Layout,
        lock: LedgerLock,
        folder: Folder,
        stamp: &Stamp,
    ) -> Result<Self, OpenLedgerError> {
        let mut notices = Vec::new();
        let cached = find_by_caches(&layout, options.key_folder)?;
        let rebuilt = cached.is_none();
        let found = match cached {
            Some(found) => found,
            None => find(&layout, State::default(), options.key_folder)?,
        };
        if rebuilt {
            let records = found.state.size();
            notices.push(Notice::Rebuilt { records });
        }
        if found.acknowledged.is_empty() {
            // Whoever began the ledger may have died before its names were on the disk.
            durable::sync_folder(&layout.records())?;
            durable::sync_folder(layout.root())?;
        }
        let chain = &found.state.chain;
        let (Some(active), Some(ledger), Some(origin)) =
            (chain.active(), chain.ledger(), chain.origin())
        else {
            let known = known_here(&layout, options.key_folder, &folder)?;
            return Err(no_genesis(&layout, &found.state, &found.ending, known));
        };
        let active_id = active.key.id();
        let heads_file = heads::path(options.key_folder, &active_id);
        if found.heads.unreadable {
            let path = heads_file.clone();
            notices.push(Notice::HeadsUnreadable { path });
        }
        let mut differences = found.differences;
        let strangers = replaced(options.key_folder, &folder, ledger, &found.heads)?;
        differences.extend(strangers.iter().map(gone));
        let damage = match &found.ending {
            Ending::Torn(torn) => Some(torn.describe(&found.state)),
            Ending::Clean | Ending::NoNewline { .. } => None,
        };
        let accepted = worst(differences);
        if let (Some(difference), false) = (&accepted, options.accept_rollback) {
            let difference = Box::new(difference.clone());
            return Err(OpenLedgerError::Differs { difference, damage });
        }
        let own = found.heads.lines.iter().find(|line| line.ledger == *ledger);
        if let Some(original) = own.and_then(|line| original(line, &folder, &layout)) {
            let dir = layout.root().to_owned();
            return Err(OpenLedgerError::Copy { dir, original });
        }
        let key = key_for(options, active_id, active.custody, layout.root())?;
        let (ledger, origin) = (*ledger, origin.clone());
        let mut store = Self {
            layout,
            lock,
            folder,
            ledger,
            origin,
            signer: Box::new(key.signer),
            key_file: key.file,
            key_folder: durable::absolute(options.key_folder)?,
            state: found.state,
            stopped: false,
            notices,
        };
        store.repair(found.ending, accepted.as_ref(), stamp)?;
        if rebuilt {
            // Without them the next opening reads all records again; this one goes on.
            store.renew_caches_or_say();
        }
        let own = found.heads.lines.iter().find(|line| line.ledger == ledger);
        if let Some(moved) = own.filter(|line| line.path != store.folder.path)
            && accepted.is_none()
        {
            heads::put(
                &heads_file,
                &store.folder.line(ledger, moved.size, moved.root),
            )?;
        }
        for (file, line) in &strangers {
            heads::forget(file, &line.ledger)?;
        }
        store.cover_close()?;
        Ok(store)
    }
}

/// The folder that `.heads` knows this ledger in, when it is another one and still holds the ledger: whoever wrote to both
/// would sign two histories. What cannot be looked at is not there.
fn original(known: &heads::Line, folder: &Folder, layout: &Layout) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    // Escaped paths are not read back.
    let elsewhere = known.path != folder.path && !known.path.contains('\\');
    let there = elsewhere.then(|| PathBuf::from(&known.path))?;
    let facts = durable::inspect_path(&there).ok().flatten()?;
    let found = (facts.dev(), facts.ino());
    if found != (known.device, known.inode) || found == (folder.device, folder.inode) {
        return None;
    }
    let first = |layout: &Layout| {
        let path = layout.segment(0);
        let file = durable::open_to_read(&path).ok().flatten()?;
        let (mut reader, mut line) = (std::io::BufReader::new(file), Vec::new());
        durable::read_line(&mut reader, &path, &mut line, MAX_LINE_BYTES + 1).ok()?;
        Some(line)
    };
    (first(&Layout::new(there.clone()))? == first(layout)?).then_some(there)
}

/// Before anything is made or locked: a folder that holds something else is left alone.
pub(super) fn refuse_what_is_no_ledger(
    layout: &Layout,
    create: bool,
) -> Result<(), OpenLedgerError> {
    let root = layout.root();
    match durable::inspect_path(root)? {
        None if create => return Ok(()),
        None => return Err(OpenLedgerError::Missing(root.to_owned())),
        Some(facts) if !facts.is_dir() => {
            return Err(OpenLedgerError::NotAFolder(root.to_owned()));
        }
        Some(_) => {}
    }
    if durable::inspect_path(&layout.segment(0))?.is_some() {
        return Ok(());
    }
    if durable::inspect_path(&layout.records())?.is_none() {
        let mut foreign = layout.foreign()?;
        if !foreign.is_empty() {
            foreign.truncate(5);
            let dir = root.to_owned();
            return Err(OpenLedgerError::Foreign { dir, foreign });
        }
    }
    if create {
        Ok(())
    } else {
        Err(OpenLedgerError::Missing(root.to_owned()))
    }
}

/// Nothing keeps root from writing to anybody's ledger; its owner could not even read it any more.
fn refuse_root_elsewhere(layout: &Layout) -> Result<(), OpenLedgerError> {
    use std::os::unix::fs::MetadataExt as _;
    let path = layout.segment(0);
    match durable::inspect_name(&path)?.map(|facts| facts.uid()) {
        Some(owner) if owner != 0 && rustix::process::geteuid().is_root() => {
            Err(OpenLedgerError::OfAnotherUser { path, owner })
        }
        _ => Ok(()),
    }
}

/// Before anything of a new ledger is made: what would refuse the ledger must not leave a folder or a lock.
fn refuse_to_begin(options: &OpenOptions<'_>, layout: &Layout) -> Result<(), OpenLedgerError> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = durable::canonical_to_be(layout.root())?;
    let path = escape_bytes(path.as_os_str().as_bytes());
    let strangers = heads::known_at(options.key_folder, &path)?;
    if let (Some(difference), false) = (
        worst(strangers.iter().map(gone).collect()),
        options.accept_rollback,
    ) {
        // Whoever begins it at this moment makes its records before it is known.
        if durable::inspect_path(&layout.segment(0))?.is_some() {
            return Ok(());
        }
        return Err(OpenLedgerError::Differs {
            difference: Box::new(difference),
            damage: None,
        });
    }
    match &options.key {
        KeyChoice::Own => keys::refuse_open_folder(options.key_folder)?,
        KeyChoice::File(path) => {
            keys::read_key_file(path)?;
        }
        KeyChoice::Ephemeral => {}
    }
    Ok(())
}

/// The ledger by its caches; `None` when they are missing, or nothing that was acknowledged vouches for them.
fn find_by_caches(layout: &Layout, key_folder: &Path) -> Result<Option<Found>, OpenLedgerError> {
    let Some(state) = State::load(layout)? else {
        return Ok(None);
    };
    let cached = state.size();
    // Whatever fails here may be the caches' fault: the records tell.
    let Ok(found) = find(layout, state, key_folder) else {
        return Ok(None);
    };
    let vouched = found.acknowledged.iter().any(|known| known.size >= cached);
    Ok((vouched && found.differences.is_empty()).then_some(found))
}

pub(super) fn no_genesis(
    layout: &Layout,
    state: &State,
    ending: &Ending,
    known: Option<Difference>,
) -> OpenLedgerError {
    OpenLedgerError::Genesis {
        path: layout.segment(0),
        why: match ending {
            Ending::Torn(torn) => torn.describe(state),
            Ending::Clean | Ending::NoNewline { .. } => "it is empty".to_owned(),
        },
        known: known.map(Box::new),
    }
}

/// Lines of `.heads` files that know another ledger in this folder. Only a ledger that its own line does not
/// know to be here can have replaced one.
fn replaced(
    key_folder: &Path,
    folder: &Folder,
    ledger: &Hash,
    heads: &Heads,
) -> Result<Vec<(PathBuf, heads::Line)>, FileError> {
    let here = |line: &heads::Line| line.ledger == *ledger && line.path == folder.path;
    if heads.lines.iter().any(here) {
        return Ok(vec![]);
    }
    let mut known = heads::known_at(key_folder, &folder.path)?;
    known.retain(|(_, line)| line.ledger != *ledger);
    Ok(known)
}

fn key_for(
    options: &OpenOptions<'_>,
    expected: KeyId,
    custody: Custody,
    root: &Path,
) -> Result<Key, OpenLedgerError> {
    let path = match &options.key {
        KeyChoice::Ephemeral => return Err(OpenLedgerError::Ephemeral(root.to_owned())),
        _ if custody == Custody::Ephemeral => return Err(OpenLedgerError::KeyGone(expected)),
        KeyChoice::File(path) => durable::absolute(path)?,
        KeyChoice::Own => {
            let path = keys::key_path(&durable::absolute(options.key_folder)?, &expected);
            if durable::inspect_path(&path)?.is_none() {
                return Err(OpenLedgerError::KeyMissing { id: expected, path });
            }
            keys::refuse_open_folder(options.key_folder)?;
            path
        }
    };
    let signer = keys::read_key_file(&path)?;
    let found = signer.public().id();
    if found != expected {
        return Err(OpenLedgerError::KeyOfAnother {
            path,
            found,
            expected,
        });
    }
    Ok(Key {
        signer,
        file: Some(path),
    })
}

impl Folder {
    fn of(root: &Path) -> Result<Self, FileError> {
        use std::os::unix::ffi::OsStrExt as _;
        use std::os::unix::fs::MetadataExt as _;
        let path = durable::canonical(root)?;
        let facts = durable::inspect_path(&path)?;
        let (device, inode) = facts.map_or((0, 0), |facts| (facts.dev(), facts.ino()));
        Ok(Self {
            device,
            inode,
            path: escape_bytes(path.as_os_str().as_bytes()),
        })
    }

    pub(super) fn line(&self, ledger: Hash, size: u64, root: Hash) -> heads::Line {
        heads::Line {
            device: self.device,
            inode: self.inode,
            ledger,
            path: self.path.clone(),
            root,
            size,
        }
    }
}
