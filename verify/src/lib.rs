//! Checks containment evidence: anywhere, offline, without a line of sandboxing code.
//!
//! Here: two matrices compared, the rules over verified records (what was declared against what was measured), the
//! result as one JSON document, the report for people, and the command line.
//!
//! Deliberately not here: a sandbox, a network, a key that signs. Form, signatures, chain and checkpoints
//! are checked by [`ledger`], the only crate of the project that this one uses.
//!
//! A module uses only what stands to its left (a test reads the sources and holds that):
//! `diff → rules → document → report → cli`.

#![forbid(unsafe_code)]

pub mod cli;
pub mod diff;
pub mod document;
pub mod report;
pub mod rules;
