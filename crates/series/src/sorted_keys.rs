//! The keys of a series in order: a run has its rows sorted by key.

use std::ops::Range;

/// Keys in the order of their bytes.
///
/// Memory: the keys, and 16 bytes for each.
#[derive(Debug, Default)]
pub struct SortedKeys {
    bytes: Vec<u8>,
    keys: Vec<Range<usize>>,
}

impl SortedKeys {
    pub(crate) fn push(&mut self, key: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.keys.push(begin..self.bytes.len());
    }

    /// Sorts the keys, and removes those that were added before.
    pub(crate) fn sort(&mut self) {
        let Self { bytes, keys } = self;
        keys.sort_unstable_by(|one, other| bytes[one.clone()].cmp(&bytes[other.clone()]));
        keys.dedup_by(|next, one| bytes[one.clone()] == bytes[next.clone()]);
        debug_assert!(
            keys.is_sorted_by(|one, next| bytes[one.clone()] < bytes[next.clone()]),
            "keys are distinct"
        );
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the key at a position; `None` when there are not so many.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        Some(&self.bytes[self.keys.get(at)?.clone()])
    }

    /// Returns the keys.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &self.bytes[key.clone()])
    }
}
