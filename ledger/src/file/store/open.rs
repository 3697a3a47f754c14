//! Opening a ledger: finding where it stands, holding that against what was acknowledged, or beginning one.

use std::path::{Path, PathBuf};

use super::acknowledged::{self, Acknowledged, Difference, StoredCheckpointError};
use super::append::{AppendError, RenewError, step_verified};
use super::heads::{self, Heads};
use super::keys::{self, KeyFileError};
use super::layout::{Layout, SEGMENT_RECORDS};
use super::lock::{LedgerLock, LockError, sweep};
use super::recover::worst;
use super::state::State;
use super::tail::{self, Ending, ReadRecordsError};
use super::{Folder, Notice, Store};
use crate::bytes::canon::{U53, WriteLineError, escape_bytes};
use crate::bytes::hash::Hash;
use crate::bytes::key::{
    Base64, KeyId, LocalKey, PrivateKeyError, PublicKey, Signer, random_bytes,
};
use crate::bytes::time::Stamp;
use crate::file::chain::Chain;
use crate::file::durable::{self, FileError};
use crate::record::{Body, Custody, Genesis, Origin, Record, Tool, WriteRecordError};

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
}

/// Why a ledger could not be opened for writing. Nothing was signed.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum OpenLedgerError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(code(ledger::open::file))]
    File(#[from] FileError),
    /// There is none.
    #[error("there is no ledger in {}", .0.display())]
    #[diagnostic(code(ledger::open::missing))]
    Missing(PathBuf),
    /// Not a folder.
    #[error("{} is not a folder", .0.display())]
    #[diagnostic(code(ledger::open::not_a_folder))]
    NotAFolder(PathBuf),
    /// A folder with something else in it.
    #[error("{} is no ledger: it has no records, and holds {}", dir.display(), foreign.join(", "))]
    #[diagnostic(
        code(ledger::open::foreign),
        help("name an empty folder, or one that does not exist yet")
    )]
    Foreign {
        /// The folder.
        dir: PathBuf,
        /// Some of what is in it.
        foreign: Vec<String>,
    },
    /// Later segments without the first.
    #[error("{} is missing and later segments are there", .0.display())]
    #[diagnostic(
        code(ledger::open::first_segment_missing),
        help("restore the records that are missing")
    )]
    FirstSegmentMissing(PathBuf),
    /// The first record does not verify.
    #[error("{} does not begin with a genesis record: {why}", path.display())]
    #[diagnostic(code(ledger::open::genesis))]
    Genesis {
        /// The first segment.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It could not be locked.
    #[error(transparent)]
    #[diagnostic(
        code(ledger::open::lock),
        help("put the ledger on a local file system")
    )]
    Lock(#[from] LockError),
    /// It could not be found out where the ledger stands.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Find(#[from] FindError),
    /// Records that were acknowledged are not there any more.
    #[error("{difference}{}", damage.as_ref().map_or_else(String::new, |damage| format!("; {damage}")))]
    #[diagnostic(
        code(ledger::open::differs),
        help(
            "nothing was signed. Restore the records that are missing; if the ledger was moved, open it once at its new place; or go on from here with --accept-rollback, which the ledger will show for ever"
        )
    )]
    Differs {
        /// How.
        difference: Difference,
        /// What is wrong with the records behind the last good one.
        damage: Option<String>,
    },
    /// A key file could not be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Key(#[from] KeyFileError),
    /// The ledger's own key is not in the key folder.
    #[error("the ledger is signed by key {id}, and there is no {}", path.display())]
    #[diagnostic(
        code(ledger::open::key_missing),
        help("name the key with --key FILE, or begin another ledger")
    )]
    KeyMissing {
        /// The ledger's key.
        id: KeyId,
        /// Where it would be.
        path: PathBuf,
    },
    /// Another ledger's key.
    #[error("{} holds key {found}, the ledger is signed by {expected}", path.display())]
    #[diagnostic(code(ledger::open::key_of_another))]
    KeyOfAnother {
        /// The key file.
        path: PathBuf,
        /// Its key.
        found: KeyId,
        /// The ledger's key.
        expected: KeyId,
    },
    /// The key was kept nowhere.
    #[error("the ledger's key {0} was ephemeral and is gone, nothing can be appended")]
    #[diagnostic(code(ledger::open::key_gone), help("begin another ledger"))]
    KeyGone(KeyId),
    /// An ephemeral key for a ledger that has one.
    #[error("an ephemeral key only begins a ledger, and {} has one", .0.display())]
    #[diagnostic(
        code(ledger::open::ephemeral),
        help("leave --key out, or begin another ledger")
    )]
    Ephemeral(PathBuf),
    /// No random bytes.
    #[error(transparent)]
    #[diagnostic(code(ledger::open::random))]
    Random(#[from] PrivateKeyError),
    /// The first record could not be signed.
    #[error(transparent)]
    #[diagnostic(code(ledger::open::sign))]
    Sign(#[from] WriteRecordError),
    /// The first record cannot be written again.
    #[error(transparent)]
    #[diagnostic(code(ledger::open::line))]
    Line(#[from] WriteLineError),
    /// What follows from the first record could not be written.
    #[error(
        "the ledger was begun, and not everything that follows from its first record was written"
    )]
    #[diagnostic(code(ledger::open::renew))]
    Renew(#[from] RenewError),
    /// A line of `.heads` could not be changed.
    #[error("the ledger is in order, and its line in .heads could not be changed")]
    #[diagnostic(code(ledger::open::heads))]
    Heads(#[from] heads::WriteHeadsError),
    /// The end of the ledger could not be put in order.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Append(#[from] AppendError),
}

/// A key to sign with, and the file it is kept in.
struct Key {
    signer: LocalKey,
    file: Option<PathBuf>,
}

/// A ledger as it was found.
pub(super) struct Found {
    pub(super) state: State,
    pub(super) ending: Ending,
    heads: Heads,
    acknowledged: Vec<Acknowledged>,
    pub(super) differences: Vec<Difference>,
}

/// Why it could not be found out where a ledger stands.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum FindError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(code(ledger::find::file))]
    File(#[from] FileError),
    /// The records could not be read.
    #[error(transparent)]
    #[diagnostic(code(ledger::find::read))]
    Read(#[from] ReadRecordsError),
    /// The stored checkpoint is none, or not this ledger's.
    #[error(transparent)]
    #[diagnostic(
        code(ledger::find::checkpoint),
        help(
            "no crash does this: find out who wrote the file; the ledger goes on once it is moved away"
        )
    )]
    Checkpoint(#[from] StoredCheckpointError),
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
        durable::create_folders(layout.root())?;
        let mut lock = LedgerLock::open(&layout)?;
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
            return Err(no_genesis(&layout, &found));
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
            let difference = difference.clone();
            return Err(OpenLedgerError::Differs { difference, damage });
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
            store.renew_caches()?;
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
        Ok(store)
    }

    fn begin(
        options: &OpenOptions<'_>,
        layout: Layout,
        lock: LedgerLock,
        folder: Folder,
        stamp: &Stamp,
    ) -> Result<Self, OpenLedgerError> {
        if !options.create {
            return Err(OpenLedgerError::Missing(layout.root().to_owned()));
        }
        if !durable::list(&layout.records())?.is_empty() {
            return Err(OpenLedgerError::FirstSegmentMissing(layout.segment(0)));
        }
        let strangers = heads::known_at(options.key_folder, &folder.path)?;
        let mut differences: Vec<_> = strangers.iter().map(gone).collect();
        if let Some(signed) = acknowledged::stored_checkpoint(&layout).map_err(FindError::from)? {
            let claim = signed.claim();
            differences.push(Difference::Shorter {
                source_file: layout.checkpoint(),
                expected: acknowledged::expected(claim.size, claim.root),
                found: 0,
            });
        }
        let accepted = worst(differences);
        if let (Some(difference), false) = (&accepted, options.accept_rollback) {
            return Err(OpenLedgerError::Differs {
                difference: difference.clone(),
                damage: None,
            });
        }
        let (key, custody) = new_key(options)?;
        let ledger = Hash::from_bytes(random_bytes()?);
        let origin = Origin::for_host(options.host_name, &ledger);
        let body = Body::Genesis(Genesis {
            custody,
            origin: origin.clone(),
            public_key: Base64(key.signer.public().to_bytes()),
            standby: None,
            tool: options.tool.clone(),
        });
        let record = Record::new(body, stamp.clone(), ledger, U53::ZERO, Hash::ZERO);
        let mut line = record.to_signed_line(&key.signer)?;
        let (chain, hash) = step_verified(&Chain::new(), &line)?;
        line.push(b'\n');
        let mut state = State::default();
        state.take(chain, hash, &record, line.len() as u64)?;
        write_first_segment(&layout, &line)?;
        let mut store = Self {
            layout,
            lock,
            folder,
            ledger,
            origin,
            signer: Box::new(key.signer),
            key_file: key.file.clone(),
            key_folder: durable::absolute(options.key_folder)?,
            state,
            stopped: false,
            notices: vec![],
        };
        store.renew(durable::Durability::Unsynced)?;
        store.notices.push(Notice::Began {
            folder: store.layout.root().to_owned(),
            key_file: key.file,
        });
        if accepted.is_some() {
            store.record_recovery(None, accepted.as_ref(), stamp)?;
        }
        for (file, line) in &strangers {
            heads::forget(file, &line.ledger)?;
        }
        Ok(store)
    }
}

/// Before anything is made or locked: a folder that holds something else is left alone.
fn refuse_what_is_no_ledger(layout: &Layout, create: bool) -> Result<(), OpenLedgerError> {
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

/// Reads on from `state` to the end, and holds the result against what was acknowledged.
pub(super) fn find(
    layout: &Layout,
    mut state: State,
    key_folder: &Path,
) -> Result<Found, FindError> {
    let ending = tail::read_on(layout, &mut state, &mut |state| state.write_tree(layout))?;
    state.write_tree(layout)?;
    let mut acknowledged = Vec::new();
    let mut heads = Heads::default();
    if let Some(active) = state.chain.active() {
        let file = heads::path(key_folder, &active.key.id());
        heads = heads::read(&file)?;
        acknowledged.extend(acknowledged::by_heads(&file, &heads, state.chain.ledger()));
        if let Some(signed) = acknowledged::stored_checkpoint(layout)? {
            acknowledged.push(acknowledged::by_checkpoint(layout, &signed, &state.chain)?);
        }
    }
    let mut differences = Vec::new();
    for known in &acknowledged {
        differences.extend(acknowledged::difference(known, &state, layout)?);
    }
    Ok(Found {
        state,
        ending,
        heads,
        acknowledged,
        differences,
    })
}

fn no_genesis(layout: &Layout, found: &Found) -> OpenLedgerError {
    OpenLedgerError::Genesis {
        path: layout.segment(0),
        why: match &found.ending {
            Ending::Torn(torn) => torn.describe(&found.state),
            Ending::Clean | Ending::NoNewline { .. } => "it is empty".to_owned(),
        },
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

fn gone((file, line): &(PathBuf, heads::Line)) -> Difference {
    Difference::Gone {
        source_file: file.clone(),
        ledger: line.ledger,
        expected: acknowledged::expected(line.size, line.root),
    }
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

fn new_key(options: &OpenOptions<'_>) -> Result<(Key, Custody), OpenLedgerError> {
    let (signer, file, custody) = match &options.key {
        KeyChoice::Own => {
            let (signer, path) = keys::create_key_in(&durable::absolute(options.key_folder)?)?;
            (signer, Some(path), Custody::File)
        }
        KeyChoice::File(path) => {
            let path = durable::absolute(path)?;
            (keys::read_key_file(&path)?, Some(path), Custody::File)
        }
        KeyChoice::Ephemeral => (LocalKey::generate()?, None, Custody::Ephemeral),
    };
    Ok((Key { signer, file }, custody))
}

/// The first segment gets its name only when it is whole and on the disk.
fn write_first_segment(layout: &Layout, bytes: &[u8]) -> Result<(), FileError> {
    durable::create_folders(&layout.records())?;
    let temporary = layout.genesis();
    let file = durable::create_empty(&temporary)?;
    durable::write(&file, &temporary, bytes)?;
    durable::sync_data(&file, &temporary)?;
    durable::rename(&temporary, &layout.segment(0))?;
    durable::sync_folder(&layout.records())?;
    durable::sync_folder(layout.root())
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

/// What a ledger says about itself, for reading only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The ledger's id.
    pub ledger: Hash,
    /// Its name in checkpoints.
    pub origin: Origin,
    /// The key that may sign next.
    pub key: PublicKey,
    /// Where it is kept.
    pub custody: Custody,
    /// Records that verify from the first on.
    pub size: u64,
    /// The record that closed it.
    pub closed_at: Option<u64>,
}

/// Reads all records of a ledger and says whose it is. Nothing is written and no key is needed; findings
/// are `verify`'s business, so this stops at the first record that does not verify.
///
/// # Errors
/// There is no ledger, or it cannot be read.
pub fn describe(dir: &Path) -> Result<Description, OpenLedgerError> {
    let layout = Layout::new(durable::absolute(dir)?);
    refuse_what_is_no_ledger(&layout, false)?;
    let mut state = State::default();
    let ending = tail::read_on(&layout, &mut state, &mut |state| {
        state.forget_fresh();
        Ok(())
    })
    .map_err(FindError::from)?;
    let chain = &state.chain;
    match (chain.ledger(), chain.origin(), chain.active()) {
        (Some(ledger), Some(origin), Some(active)) => Ok(Description {
            ledger: *ledger,
            origin: origin.clone(),
            key: active.key,
            custody: active.custody,
            size: chain.lines(),
            closed_at: chain.closed_at(),
        }),
        _ => Err(no_genesis(
            &layout,
            &Found {
                state,
                ending,
                heads: Heads::default(),
                acknowledged: vec![],
                differences: vec![],
            },
        )),
    }
}

const _: () = assert!(SEGMENT_RECORDS.is_power_of_two());
