//! Proofs over record hashes: the Merkle tree and what is signed about it.
