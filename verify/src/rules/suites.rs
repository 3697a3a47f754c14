//! Suites that matrices name: read from their blobs, the last one remembered.

use std::sync::Arc;

use ledger::bytes::canon::to_canonical;
use ledger::bytes::hash::Hash;
use ledger::facts::suite::Suite;
use ledger::file::source::ReadError;
use ledger::file::walk::{Findings, Shown};
use ledger::finding::Code;

use super::blobs::Blobs;

/// Longest suite that is read, in bytes: 256 rows of 256 checks would be far more than anybody runs.
const SUITE_BYTES: u64 = 4 << 20;

/// The suite read last.
#[derive(Debug, Default)]
pub(super) struct Suites(Option<(Hash, Option<Arc<Suite>>)>);

impl Suites {
    /// The suite of that hash; `None` where it is not here or is none, which is told.
    pub(super) fn read(
        &mut self,
        shown: &Shown<'_>,
        hash: &Hash,
        blobs: &mut Blobs,
        findings: &mut Findings,
    ) -> Result<Option<Arc<Suite>>, ReadError> {
        if let Some((known, suite)) = &self.0
            && known == hash
        {
            return Ok(suite.clone());
        }
        let content = blobs.content(shown, hash, SUITE_BYTES, findings)?;
        let suite = content.and_then(|bytes| match parse(&bytes) {
            Ok(suite) => Some(Arc::new(suite)),
            Err(why) => {
                let message = format!("the suite's blob is no suite: {why}");
                findings.push(shown.finding(Code::BlobMismatch, message));
                None
            }
        });
        self.0 = Some((*hash, suite.clone()));
        Ok(suite)
    }
}

fn parse(bytes: &[u8]) -> Result<Suite, String> {
    let suite: Suite = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if to_canonical(&suite).ok().as_deref() != Some(bytes) {
        return Err("it is not the canonical form of what it says".to_owned());
    }
    suite.check().map_err(|error| error.to_string())?;
    Ok(suite)
}
