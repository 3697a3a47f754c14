//! Ledgers as files: what a reader is given, what a writer keeps.

pub mod bundle;
pub mod chain;
pub mod durable;
pub mod kill;
pub mod source;
pub mod store;
pub mod walk;
