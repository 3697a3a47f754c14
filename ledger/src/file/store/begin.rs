//! Beginning a ledger: its key, its first record, its first checkpoint.
//!
//! The first record stands in `genesis.new` and names the key before the key is kept, so that a beginning that was cut
//! short leaves no key that nobody knows: the next one takes it.

use std::path::{Path, PathBuf};

use super::append::step_verified;
use super::error::OpenLedgerError;
use super::found::known_here;
use super::heads;
use super::keys;
use super::layout::Layout;
use super::lock::LedgerLock;
use super::open::{Key, KeyChoice, OpenOptions};
use super::state::State;
use super::{Folder, Notice, Store};
use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;
use crate::bytes::key::{Base64, LocalKey, Signer, random_bytes};
use crate::bytes::time::Stamp;
use crate::file::chain::Chain;
use crate::file::durable;
use crate::record::{Body, Custody, Genesis, Origin, Record, parse_line};

impl Store {
    /// Begins a ledger in a folder that holds none. Callers hold the lock.
    pub(super) fn begin(
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
        let accepted = known_here(&layout, options.key_folder, &folder)?;
        if let (Some(difference), false) = (&accepted, options.accept_rollback) {
            return Err(OpenLedgerError::Differs {
                difference: Box::new(difference.clone()),
                damage: None,
            });
        }
        let NewKey {
            key,
            custody,
            is_kept,
        } = new_key(options, &layout)?;
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
        let begun = write_first_segment(&layout, &line, || {
            // Named by the file that it is put into: whoever goes on where this process ended finds it.
            match (is_kept, &key.file) {
                (false, Some(path)) => keys::write_key(path, &key.signer),
                _ => Ok(()),
            }
        });
        if let Err(error) = begun {
            // A key of no ledger is of no use; one that may have a ledger stays.
            let begun = durable::inspect_path(&layout.segment(0));
            if let (KeyChoice::Own, Some(file), Ok(None)) = (&options.key, &key.file, begun) {
                keys::discard_key(file);
            }
            return Err(error);
        }
        state.settle();
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

/// The key of a new ledger.
struct NewKey {
    key: Key,
    custody: Custody,
    /// Its file is there already, or it has none.
    is_kept: bool,
}

fn new_key(options: &OpenOptions<'_>, layout: &Layout) -> Result<NewKey, OpenLedgerError> {
    let (signer, file, custody, is_kept) = match &options.key {
        KeyChoice::Own => {
            let folder = durable::absolute(options.key_folder)?;
            keys::prepare_folder(&folder)?;
            match key_of_unfinished(&folder, layout)? {
                Some((signer, path)) => (signer, Some(path), Custody::File, true),
                None => {
                    let signer = LocalKey::generate()?;
                    let path = keys::key_path(&folder, &signer.public().id());
                    (signer, Some(path), Custody::File, false)
                }
            }
        }
        KeyChoice::File(path) => {
            let path = durable::absolute(path)?;
            (keys::read_key_file(&path)?, Some(path), Custody::File, true)
        }
        KeyChoice::Ephemeral => (LocalKey::generate()?, None, Custody::Ephemeral, true),
    };
    Ok(NewKey {
        key: Key { signer, file },
        custody,
        is_kept,
    })
}

/// The key that somebody made who died before the first segment had its name; one that already acknowledged
/// something is another ledger's.
fn key_of_unfinished(
    folder: &Path,
    layout: &Layout,
) -> Result<Option<(LocalKey, PathBuf)>, OpenLedgerError> {
    let bytes = match durable::read(&layout.genesis()) {
        Ok(bytes) => bytes.unwrap_or_default(),
        // It is made again.
        Err(error) if error.is_not_regular() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Some(frame) = parse_line(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).frame else {
        return Ok(None);
    };
    if durable::inspect_name(&heads::path(folder, &frame.key))?.is_some() {
        return Ok(None);
    }
    Ok(keys::left_behind(folder, &frame.key)?)
}

/// The first segment gets its name only when it is whole and on the disk, and its key is.
fn write_first_segment(
    layout: &Layout,
    line: &[u8],
    keep_key: impl FnOnce() -> Result<(), keys::KeyFileError>,
) -> Result<(), OpenLedgerError> {
    durable::create_folders(&layout.records())?;
    // Beside one that may be there: it names a key, and must do so until another one does.
    let (next, genesis) = (layout.genesis_next(), layout.genesis());
    let file = durable::create_empty(&next)?;
    durable::write(&file, &next, line)?;
    durable::sync_data(&file, &next)?;
    durable::rename(&next, &genesis)?;
    keep_key()?;
    durable::rename(&genesis, &layout.segment(0))?;
    durable::sync_folder(&layout.records())?;
    durable::sync_folder(layout.root())?;
    Ok(())
}
