//! Inclusion proofs (RFC 6962 §2.1.1): that one leaf stands at its index in the tree of a root.
//!
//! A proof is the hashes beside the path from the leaf to the root, the leaf's neighbour first: at most one for each
//! level. It is made from the stored hashes of the tree ([`super::tree`]) alone, so that making one reads no record.

use crate::bytes::hash::Hash;

use super::tree::stored_index;

/// Most hashes of a proof: a tree of 2^64 leaves has no more levels.
pub const MAX_HASHES: usize = 64;

/// The proof that leaf `index` stands in the tree of the first `size` leaves, from the stored hashes that `read` gives by
/// index; `None` when there is no such leaf.
///
/// # Errors
/// The first that `read` gives.
pub fn prove<E>(
    index: u64,
    size: u64,
    mut read: impl FnMut(u64) -> Result<Hash, E>,
) -> Result<Option<Vec<Hash>>, E> {
    if index >= size {
        return Ok(None);
    }
    let (mut start, mut end) = (0, size);
    let mut proof = Vec::new();
    while end - start > 1 {
        let middle = start + half(end - start);
        if index < middle {
            proof.push(root_of(middle, end, &mut read)?);
            end = middle;
        } else {
            proof.push(root_of(start, middle, &mut read)?);
            start = middle;
        }
    }
    proof.reverse();
    Ok(Some(proof))
}

/// The root that a proof leads to from a leaf at `index` of a tree of `size` leaves (RFC 9162 §2.1.3.2); `None` when the
/// proof has another length than such a proof has, or there is no such leaf.
#[must_use]
pub fn root_from(leaf: Hash, index: u64, size: u64, proof: &[Hash]) -> Option<Hash> {
    let (mut at, mut last) = (index, size.checked_sub(1)?);
    if at > last {
        return None;
    }
    let mut root = leaf;
    for beside in proof {
        if last == 0 {
            return None;
        }
        if at & 1 == 1 || at == last {
            root = Hash::node(beside, &root);
            // The last subtree of a level that has no right neighbour stands higher.
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            root = Hash::node(&root, beside);
        }
        at >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(root)
}

/// The largest power of two below `count`, which is at least 2.
const fn half(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}

/// The root of the leaves from `start` to `end`, which are a subtree of some tree: from its complete subtrees.
fn root_of<E>(
    start: u64,
    end: u64,
    read: &mut impl FnMut(u64) -> Result<Hash, E>,
) -> Result<Hash, E> {
    let (mut from, mut complete) = (start, Vec::new());
    for level in (0..u64::BITS).rev() {
        if (end - start) & (1 << level) != 0 {
            complete.push(read(stored_index(level, from >> level))?);
            from += 1 << level;
        }
    }
    let mut smallest_first = complete.into_iter().rev();
    let Some(last) = smallest_first.next() else {
        return Ok(Hash::of(b""));
    };
    Ok(smallest_first.fold(last, |right, left| Hash::node(&left, &right)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use ct_merkle::InclusionProof;
    use ct_merkle::mem_backed_tree::MemoryBackedTree;
    use sha2::Sha256;

    use super::*;
    use crate::proof::tree::Frontier;

    fn data(n: u64) -> Vec<u8> {
        format!("leaf {n}").into_bytes()
    }

    fn stored(size: u64) -> (Vec<Hash>, Hash) {
        let mut tree = Frontier::new();
        let mut stored = Vec::new();
        for n in 0..size {
            stored.extend(tree.push(Hash::leaf(&data(n))));
        }
        (stored, tree.root())
    }

    fn proof(stored: &[Hash], index: u64, size: u64) -> Vec<Hash> {
        let read = |at: u64| Ok::<_, Infallible>(stored[at as usize]);
        prove(index, size, read).unwrap().unwrap()
    }

    #[test]
    fn every_index_of_every_size_to_64_agrees_with_another_implementation() {
        let (all, _) = stored(64);
        let mut oracle = MemoryBackedTree::<Sha256, Vec<u8>>::new();
        for size in 1..=64u64 {
            oracle.push(data(size - 1));
            let (_, root) = stored(size);
            for index in 0..size {
                let own = proof(&all, index, size);
                let theirs = oracle.prove_inclusion(index as usize);
                let own_bytes: Vec<u8> = own.iter().flat_map(|hash| *hash.as_bytes()).collect();
                assert_eq!(own_bytes, theirs.as_bytes(), "index {index} of {size}");
                let leaf = Hash::leaf(&data(index));
                assert_eq!(root_from(leaf, index, size, &own), Some(root));
                let own = InclusionProof::<Sha256>::try_from_bytes(own_bytes).unwrap();
                let accepted = oracle.root().verify_inclusion(&data(index), index, &own);
                assert!(accepted.is_ok(), "index {index} of {size}");
            }
        }
    }

    #[test]
    fn nothing_but_the_right_leaf_index_size_and_hashes_leads_to_the_root() {
        let (all, _) = stored(64);
        for size in 1..=20u64 {
            let (_, root) = stored(size);
            for index in 0..size {
                let proof = proof(&all, index, size);
                let leaf = Hash::leaf(&data(index));
                for other in (0..size + 2).filter(|other| *other != index) {
                    assert_ne!(root_from(leaf, other, size, &proof), Some(root));
                }
                let wrong = Hash::leaf(b"another");
                assert_ne!(root_from(wrong, index, size, &proof), Some(root));
                for at in 0..proof.len() {
                    let mut changed = proof.clone();
                    changed[at] = wrong;
                    assert_ne!(root_from(leaf, index, size, &changed), Some(root));
                    let shorter = [&proof[..at], &proof[at + 1..]].concat();
                    assert_ne!(root_from(leaf, index, size, &shorter), Some(root));
                }
                let longer = [proof.as_slice(), &[wrong]].concat();
                assert_eq!(root_from(leaf, index, size, &longer), None);
            }
        }
        assert_eq!(root_from(Hash::ZERO, 0, 0, &[]), None);
    }

    #[test]
    fn a_leaf_that_is_not_there_has_no_proof_and_a_failed_read_is_an_error() {
        let read = |_| Ok::<_, Infallible>(Hash::ZERO);
        assert_eq!(prove(3, 3, read), Ok(None));
        assert_eq!(prove(0, 0, read), Ok(None));
        assert_eq!(prove(0, 3, Err::<Hash, u64>), Err(3));
    }
}
