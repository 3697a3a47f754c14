//! The smallest units: hashes, canonical JSON and keys. Nothing here knows what a record says.

pub mod canon;
pub mod hash;
pub mod key;
pub mod text;
pub mod time;
