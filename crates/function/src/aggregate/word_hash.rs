//! The hash function of 128-bit words, which represent short texts and values of fixed width.
//!
//! `word_table` and `dictionary` use it for their hash tables.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

/// A hash function with random seeds, so that nobody can choose words that collide.
#[derive(Debug, Clone, Copy)]
pub(super) struct WordHash([u64; 2]);

impl Default for WordHash {
    fn default() -> Self {
        let hasher = DefaultHashBuilder::default();
        Self([hasher.hash_one(0_u64), hasher.hash_one(1_u64)])
    }
}

impl WordHash {
    /// Returns the hash of a word: both halves of the product of its own halves, each with a seed.
    #[inline]
    pub(super) fn of(self, word: u128) -> u64 {
        let [left, right] = self.0;
        let product = u128::from(low_half(word) ^ left) * u128::from(low_half(word >> 64) ^ right);
        low_half(product) ^ low_half(product >> 64)
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "keeps the low half, as the name says")]
fn low_half(word: u128) -> u64 {
    word as u64
}
