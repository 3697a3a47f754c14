//! `verify` from outside: the binary over every vector, its result, its manners, its dependencies.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod bundle;
mod command;
mod dependencies;
mod live;
#[path = "../../../ledger/benches/hot/made.rs"]
mod made;
mod matrices;
mod order;
mod support;
mod tamper;
mod threads;
mod vectors;
