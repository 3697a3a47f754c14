//! Runs untrusted workloads in sandboxes and writes what happened into a signed ledger.
//!
//! Here: the sandbox mechanisms, the one compiler from policy and host to a plan, the runtimes, the one
//! linear run from policy to execution record, and the command line.
//!
//! Deliberately not here: what a record is and whether it is true (`ledger`), and any judgement of evidence
//! (`verify`, which never links this crate).
//!
//! A module uses only what stands to its left (a test reads the sources and holds that):
//! `sys → host → mechanism → plan → init → runtime → run → measure → cli`. `unsafe` lives in [`sys`] alone.

pub mod cli;
pub mod host;
pub mod init;
pub mod measure;
pub mod mechanism;
pub mod plan;
pub mod run;
pub mod runtime;
pub mod sys;
