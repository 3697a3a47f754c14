//! The Merkle tree over record hashes (RFC 6962 §2.1) and the order in which its hashes are stored.
//!
//! Leaf `n` is the hash of record `n`. Every complete subtree's hash is written once, right after the last
//! leaf below it, in the order of Go's `tlog.StoredHashIndex`:
//!
//! ```text
//! leaf 0, leaf 1, node 0-1, leaf 2, leaf 3, node 2-3, node 0-3, leaf 4, …
//! ```
//!
//! so the hashes of a tree of size n are a prefix of those of every larger one, and its root needs at
//! most log2(n) of them.

use crate::bytes::hash::Hash;

/// Where the hash of the `n`th complete subtree of `2^level` leaves is stored.
#[must_use]
pub const fn stored_index(level: u32, n: u64) -> u64 {
    // The subtree's hash follows its last leaf, after one hash for each level between them.
    let mut leaf = ((n + 1) << level) - 1;
    let mut index = level as u64;
    while leaf > 0 {
        index += leaf;
        leaf >>= 1;
    }
    index
}

/// How many hashes are stored for a tree of `size` leaves.
#[must_use]
pub const fn stored_count(size: u64) -> u64 {
    let mut count = 0;
    let mut leaves = size;
    while leaves > 0 {
        count += leaves;
        leaves >>= 1;
    }
    count
}

/// A tree that leaves are added to one by one, kept as its complete subtrees: O(log n) memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// Roots of the complete subtrees, largest first: one for each bit of `size`.
    subtrees: Vec<Hash>,
}

impl Frontier {
    /// The empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The tree of `size` leaves whose stored hashes `read` gives by index.
    ///
    /// # Errors
    /// The first that `read` gives.
    pub fn load<E>(size: u64, mut read: impl FnMut(u64) -> Result<Hash, E>) -> Result<Self, E> {
        let mut subtrees = Vec::new();
        let mut before = 0;
        for level in (0..u64::BITS).rev() {
            if size & (1 << level) != 0 {
                subtrees.push(read(stored_index(level, before >> level))?);
                before += 1 << level;
            }
        }
        Ok(Self { size, subtrees })
    }

    /// How many leaves there are.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf; gives the hashes to store for it, in their order: the leaf, then every subtree that it
    /// completes.
    pub fn push(&mut self, leaf: Hash) -> Vec<Hash> {
        let mut stored = vec![leaf];
        let mut hash = leaf;
        let mut size = self.size;
        while size & 1 == 1
            && let Some(left) = self.subtrees.pop()
        {
            hash = Hash::node(&left, &hash);
            stored.push(hash);
            size >>= 1;
        }
        self.subtrees.push(hash);
        self.size += 1;
        stored
    }

    /// The root; of the empty tree SHA-256 of nothing.
    #[must_use]
    pub fn root(&self) -> Hash {
        let mut smallest_first = self.subtrees.iter().rev();
        let Some(last) = smallest_first.next() else {
            return Hash::of(b"");
        };
        smallest_first.fold(*last, |right, left| Hash::node(left, &right))
    }
}

/// The root of the first `size` leaves, from the stored hashes that `read` gives by index.
///
/// # Errors
/// The first that `read` gives.
pub fn root<E>(size: u64, read: impl FnMut(u64) -> Result<Hash, E>) -> Result<Hash, E> {
    Frontier::load(size, read).map(|frontier| frontier.root())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Leaf data of the known answers that RFC 6962 implementations share.
    const REFERENCE: [&[u8]; 8] = [
        b"",
        b"\x00",
        b"\x10",
        b"\x20\x21",
        b"\x30\x31",
        b"\x40\x41\x42\x43",
        b"\x50\x51\x52\x53\x54\x55\x56\x57",
        b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
    ];

    #[test]
    fn known_answers() {
        let mut tree = Frontier::new();
        assert_eq!(tree.root(), Hash::of(b""));
        let roots: Vec<_> = REFERENCE
            .iter()
            .map(|leaf| {
                tree.push(Hash::leaf(leaf));
                tree.root().to_string()
            })
            .collect();
        assert_eq!(
            roots[0],
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
        );
        assert_eq!(
            roots[6],
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c"
        );
        assert_eq!(
            roots[7],
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
        );
    }

    #[test]
    fn storage_order() {
        // As tlog.StoredHashIndex gives them.
        let table = [
            (0, 0, 0),
            (0, 1, 1),
            (1, 0, 2),
            (0, 2, 3),
            (0, 3, 4),
            (1, 1, 5),
            (2, 0, 6),
            (0, 4, 7),
            (3, 0, 14),
            (0, 8, 15),
        ];
        for (level, n, index) in table {
            assert_eq!(stored_index(level, n), index, "level {level} n {n}");
        }
        let counts: Vec<_> = (0..9).map(stored_count).collect();
        assert_eq!(counts, [0, 1, 3, 4, 7, 8, 10, 11, 15]);
    }

    #[test]
    fn every_size_to_64_agrees_with_another_implementation() {
        let mut oracle =
            ct_merkle::mem_backed_tree::MemoryBackedTree::<sha2::Sha256, Vec<u8>>::new();
        let mut tree = Frontier::new();
        let mut stored: Vec<Hash> = Vec::new();
        for n in 0..64u64 {
            let leaf = format!("leaf {n}").into_bytes();
            assert_eq!(stored.len() as u64, stored_index(0, n));
            stored.extend(tree.push(Hash::leaf(&leaf)));
            oracle.push(leaf);
            let size = n + 1;
            assert_eq!(tree.size(), size);
            assert_eq!(stored.len() as u64, stored_count(size));
            assert_eq!(
                tree.root().as_bytes().as_slice(),
                oracle.root().as_bytes().as_slice()
            );
            let again =
                Frontier::load(size, |index| Ok::<_, Infallible>(stored[index as usize])).unwrap();
            assert_eq!(again, tree, "size {size}");
        }
        for size in 0..=64 {
            let mut small = Frontier::new();
            (0..size).for_each(|n| {
                small.push(stored[stored_index(0, n) as usize]);
            });
            let read = |index: u64| Ok::<_, Infallible>(stored[index as usize]);
            assert_eq!(root(size, read).unwrap(), small.root());
        }
    }

    #[test]
    fn a_failed_read_is_an_error_never_a_root() {
        assert_eq!(root(3, Err::<Hash, u64>), Err(2));
    }
}
