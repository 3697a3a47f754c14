//! Executes untrusted workloads in sandboxes and records what each launch really did.

pub mod run;
