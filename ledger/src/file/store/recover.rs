//! What a crash or a hand left behind the last record: completed, dropped, or set aside and recorded.

use std::path::PathBuf;

use super::acknowledged::Difference;
use super::append::{AppendError, Durability, step_verified};
use super::found::{find, worst};
use super::layout::Layout;
use super::state::State;
use super::tail::{self, Ending, Torn};
use super::{Notice, Store};
use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;
use crate::bytes::time::Stamp;
use crate::file::durable::{self, FileError};
use crate::record::{Body, OPENING_PREFIX, Recovery, RecoveryCause};

impl Store {
    /// Takes what others appended since; repairs what one of them left when it died. Callers hold the lock.
    pub(super) fn catch_up(&mut self, stamp: &Stamp) -> Result<(), AppendError> {
        if self.stopped {
            return Err(AppendError::Stopped);
        }
        let read = tail::read_on(&self.layout, &mut self.state, &mut |_| Ok(()));
        let mut ending = match read {
            Ok(ending) => ending,
            Err(error) => {
                self.stopped = true;
                return Err(error.into());
            }
        };
        if matches!(ending, Ending::Torn(_)) {
            // Only at or after what was acknowledged, by this process or another. Rare enough to ask the
            // records alone, whatever became of the caches.
            let found = find(&self.layout, State::default(), &self.key_folder)?;
            if let Some(difference) = worst(found.differences) {
                self.stopped = true;
                return Err(AppendError::Differs {
                    difference: Box::new(difference),
                });
            }
            (self.state, ending) = (found.state, found.ending);
        }
        self.repair(ending, None, stamp)
    }

    /// Puts the end of the ledger in order; with an accepted difference a record says so in any case.
    pub(super) fn repair(
        &mut self,
        ending: Ending,
        accepted: Option<&Difference>,
        stamp: &Stamp,
    ) -> Result<(), AppendError> {
        match ending {
            Ending::Clean => {}
            Ending::NoNewline { path, length } => self.complete_line(&path, length)?,
            Ending::Torn(torn) => return self.set_aside(&torn, accepted, stamp),
        }
        match accepted {
            Some(difference) => self.record_recovery(None, Some(difference), stamp),
            None => Ok(()),
        }
    }

    fn complete_line(&mut self, path: &std::path::Path, length: u64) -> Result<(), AppendError> {
        self.stopped = true;
        if let Some(file) = durable::open_to_write(path)? {
            durable::write_at(&file, path, b"\n", length)?;
            durable::sync_data(&file, path)?;
        }
        if self.state.offset == length {
            self.state.offset += 1;
        }
        self.stopped = false;
        let sequence = self.state.size().saturating_sub(1);
        self.notices.push(Notice::CompletedLine { sequence });
        Ok(())
    }

    fn set_aside(
        &mut self,
        torn: &Torn,
        accepted: Option<&Difference>,
        stamp: &Stamp,
    ) -> Result<(), AppendError> {
        self.may_sign()?;
        let tail = Tail::read(&self.layout, &self.state)?;
        if tail.holds_next_record(&self.state) {
            let damage = torn.describe(&self.state);
            return Err(AppendError::Damaged { damage });
        }
        let kept = tail.without_openings();
        let aside = (!kept.is_empty()).then(|| (Hash::of(&kept), kept.len() as u64));
        if let Some((hash, _)) = aside {
            durable::create_folders(&self.layout.torn())?;
            let path = self.layout.torn().join(hash.to_string());
            durable::replace(&path, &kept, durable::Durability::Synced)?;
        }
        self.stopped = true;
        for path in tail.later.iter().rev() {
            durable::remove(path)?;
        }
        if !tail.later.is_empty() {
            durable::sync_folder(&self.layout.records())?;
        }
        if aside.is_none() && accepted.is_none() {
            let path = self.layout.segment(self.state.segment());
            if let Some(file) = durable::open_to_write(&path)? {
                durable::truncate(&file, &path, self.state.offset)?;
                durable::sync_data(&file, &path)?;
            }
            self.stopped = false;
            self.notices.push(Notice::DroppedOpening);
            return Ok(());
        }
        self.stopped = false;
        self.record_recovery(aside, accepted, stamp)
    }

    /// Writes the `recovery` record over what was set aside: until it is on the disk, the torn bytes are.
    pub(super) fn record_recovery(
        &mut self,
        aside: Option<(Hash, u64)>,
        accepted: Option<&Difference>,
        stamp: &Stamp,
    ) -> Result<(), AppendError> {
        let body = Recovery {
            bytes: aside.map(|(_, bytes)| U53::saturating(bytes)),
            cause: match accepted {
                Some(_) => RecoveryCause::RollbackAccepted,
                None => RecoveryCause::Torn,
            },
            expected: accepted.map(|difference| *difference.expected()),
            file: aside.map(|(hash, _)| format!("torn/{hash}")),
            sha256: aside.map(|(hash, _)| hash),
        };
        let appended = self.write_record(Body::Recovery(body), None, stamp, Durability::Durable)?;
        let sequence = appended.sequence.value();
        if let Some(difference) = accepted {
            self.notices.push(Notice::RollbackAccepted {
                difference: difference.to_string(),
                sequence,
            });
        }
        if let Some((hash, bytes)) = aside {
            self.notices.push(Notice::SetAside {
                bytes,
                file: format!("torn/{hash}"),
                sequence,
            });
        }
        Ok(())
    }
}

/// Everything behind the last record that verifies.
struct Tail {
    bytes: Vec<u8>,
    /// Segments after the one that the next record goes to.
    later: Vec<PathBuf>,
}

impl Tail {
    fn read(layout: &Layout, state: &State) -> Result<Self, FileError> {
        let (mut bytes, mut later) = (Vec::new(), Vec::new());
        let mut index = state.segment();
        let path = layout.segment(index);
        if let Some(content) = durable::read(&path)? {
            let from = usize::try_from(state.offset).unwrap_or(usize::MAX);
            bytes.extend_from_slice(content.get(from..).unwrap_or_default());
        }
        loop {
            index += 1;
            let path = layout.segment(index);
            let Some(content) = durable::read(&path)? else {
                return Ok(Self { bytes, later });
            };
            bytes.extend(content);
            later.push(path);
        }
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split_inclusive(|byte| *byte == b'\n')
    }

    /// Whether a record that could come next is in it: then it is no torn write.
    fn holds_next_record(&self, state: &State) -> bool {
        self.lines()
            .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
            .any(|line| step_verified(&state.chain, line).is_ok())
    }

    /// The bytes that may be kept: secrets are in openings, and those of a record that never was are nobody's.
    fn without_openings(&self) -> Vec<u8> {
        let before_opening = |line: &[u8]| {
            line.windows(OPENING_PREFIX.len())
                .position(|window| window == OPENING_PREFIX)
                .unwrap_or(line.len())
        };
        self.lines()
            .flat_map(|line| line.get(..before_opening(line)).unwrap_or_default())
            .copied()
            .collect()
    }
}
