//! The real `runner`, from outside: what its sandboxes keep a workload from, and what its ledgers say.
//!
//! Every test runs the binary in a world of its own ([`world::World`]) and judges by effect. A test whose host lacks
//! something prints `SKIPPED: <test>: <reason>` on stderr. All of it holds as root and as an ordinary user.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "everything here is a test; clippy knows only functions that are marked so"
)]

mod ablation;
mod bundle;
mod bwrap;
mod cli;
mod concurrency;
mod diff;
mod disk;
mod evidence;
mod fakes;
mod faults;
mod filesystem;
mod host_files;
mod hostile;
mod identity;
mod kills;
mod lacking;
mod lanes;
mod launder;
mod leftovers;
mod limits;
mod matrix;
mod network;
mod order;
mod probe;
mod process;
mod protect;
mod records;
mod release;
mod shown;
mod signals;
mod starter;
mod streams;
mod syscalls;
mod table;
mod tamper;
mod terminal;
mod tiers;
mod unmeasured;
mod unshare;
mod verifier;
mod violations;
mod wasi;
mod world;
