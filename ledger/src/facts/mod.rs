//! What a record says: controls, host facts, executions, policies, probe lines. Plain values, no files, no keys.

pub mod control;
pub mod execution;
pub mod host;
pub mod list;
pub mod policy;
pub mod probe;
