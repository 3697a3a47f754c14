//! The probe program and the table of what it does, carried along.

/// The probe program for this machine: a static ELF file, which needs nothing of the root it runs in.
pub static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe"));

/// The probe module, which `probes/wasi/probe.wat` is the text of.
pub static MODULE: &[u8] = include_bytes!("../../../probes/wasi/probe.wasm");

/// The suite's table (`ledger::facts::suite::Suite` in JSON), without hashes.
pub static SUITE: &str = include_str!("../../../probes/suite.json");

#[cfg(test)]
mod tests;
