//! What a record says: controls, host facts, executions, policies, suites, probe runs, matrices, and what follows from them. Plain values, no files, no keys.

pub mod control;
pub mod execution;
pub mod host;
pub mod judge;
pub mod list;
pub mod matrix;
pub mod measurement;
pub mod policy;
pub mod probe;
pub mod suite;
mod words;

#[cfg(test)]
mod fixtures;
