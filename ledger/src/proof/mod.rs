//! Proofs over record hashes: the Merkle tree and what is signed about it.
//!
//! [`tree`] makes one root of all record hashes, [`inclusion`] shows that one of them is among them, [`signed_note`] is the C2SP format in which somebody puts
//! a name to a text, [`checkpoint`] is the text that names a tree.

pub mod checkpoint;
pub mod inclusion;
pub mod signed_note;
pub mod tree;
