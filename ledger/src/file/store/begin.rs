//! Beginning a ledger: its key, its first record, its first checkpoint.

use super::append::step_verified;
use super::error::OpenLedgerError;
use super::heads;
use super::keys;
use super::layout::Layout;
use super::lock::LedgerLock;
use super::open::{Key, KeyChoice, OpenOptions, known_here};
use super::state::State;
use super::{Folder, Notice, Store};
use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;
use crate::bytes::key::{Base64, LocalKey, Signer, random_bytes};
use crate::bytes::time::Stamp;
use crate::file::chain::Chain;
use crate::file::durable::{self, FileError};
use crate::record::{Body, Custody, Genesis, Origin, Record};

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
        if let Err(error) = write_first_segment(&layout, &line) {
            // A key of no ledger is of no use; one that may have a ledger stays.
            let begun = durable::inspect_path(&layout.segment(0));
            if let (KeyChoice::Own, Some(file), Ok(None)) = (&options.key, &key.file, begun) {
                keys::discard_key(file);
            }
            return Err(error.into());
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
