//! The spine of one run and what is measured about it.

pub mod artifacts;
pub mod output;
