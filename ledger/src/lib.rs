//! What containment evidence is, and whether it is true.
//!
//! Here: record lines and their canonical form, keys and strict signatures, the hash chain, checkpoints
//! and proofs, the policy document, the verdicts that follow from recorded facts, the ledger folder, and the
//! walk that checks all of it and collects every finding.
//!
//! Deliberately not here: a clock (moments are handed in as [`bytes::time::Stamp`]), a network, a
//! sandbox, a command line. `runner` writes ledgers with this crate, `verify` reads them with this crate
//! alone.
//!
//! A module uses only what stands to its left (a test reads the sources and holds that):
//! `bytes → facts → proof → record → finding → file`.

#![forbid(unsafe_code)]

pub mod bytes;
pub mod facts;
pub mod file;
pub mod finding;
pub mod proof;
pub mod record;
