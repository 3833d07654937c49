//! How many different values a frame has: the state behind `distinct_count`, where nobody asks how
//! often each occurs.
//!
//! A value of fixed width and a short text are words of 128 bits in an open table: one probe for a
//! value that was not there, and no other memory. What a value is as an identity is written down
//! in `aggregate`; `tests` hold this to the accumulator.

use lockstep_row::ShortText;

use super::{fold::Lane, key::TotalFloat, multiset::Frequencies, word_hash::WordHash};

/// Different values.
#[derive(Debug, Default)]
pub(super) struct Distinct {
    hash: WordHash,
    /// By the low bits of its hash, a value; the next slot when that one is taken. A power of two,
    /// at most a quarter full, so that a probe seldom goes on; 0 is an empty slot.
    slots: Vec<u128>,
    /// How many slots are taken.
    taken: usize,
    /// Which, as long as they are few, so that only they are cleared.
    touched: Vec<u32>,
    /// Whether the empty text, whose word is 0, is among the values.
    has_empty: bool,
    /// Texts that are not short.
    long: Frequencies,
}

const SLOTS_MIN: usize = 64;
/// Past this many taken slots a table is cleared as a whole.
const TOUCHED_MAX: usize = 1024;
/// Set in every word of a value of fixed width, so that none is 0.
const FIXED: u128 = 1 << 64;

impl Distinct {
    /// Takes in a block.
    pub(super) fn add(&mut self, lane: Lane<'_>) {
        match lane {
            Lane::Integers(values) => {
                values.iter().for_each(|value| self.insert(fixed(*value)));
            }
            Lane::Floats(values) => {
                // One zero: adding 0.0 makes a negative one positive.
                let bits = values.iter().map(|value| TotalFloat::new(*value + 0.0).bits());
                bits.for_each(|bits| self.insert(fixed(bits)));
            }
            Lane::ShortTexts(values) => values.iter().for_each(|text| self.insert_text(*text)),
            Lane::Texts(values) => {
                for text in values {
                    match ShortText::new(text) {
                        Some(short) => self.insert_text(short),
                        None => self.long.add(Lane::Texts(&[text])),
                    }
                }
            }
            Lane::Rows(_) => debug_assert!(false, "values are told apart, not rows"),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.taken + usize::from(self.has_empty) + self.long.distinct()
    }

    /// Forgets all and keeps the memory.
    pub(super) fn reset(&mut self) {
        if self.taken > TOUCHED_MAX {
            self.slots.fill(0);
        } else {
            self.touched.iter().for_each(|at| self.slots[*at as usize] = 0);
        }
        self.touched.clear();
        (self.taken, self.has_empty) = (0, false);
        self.long.reset();
    }

    #[inline]
    fn insert_text(&mut self, text: ShortText) {
        match text.word() {
            0 => self.has_empty = true,
            word => self.insert(word),
        }
    }

    #[inline]
    fn insert(&mut self, word: u128) {
        if self.slots.len() <= self.taken * 4 {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut at = self.first_slot(word) & mask;
        while self.slots[at] != 0 {
            if self.slots[at] == word {
                return;
            }
            at = (at + 1) & mask;
        }
        self.slots[at] = word;
        self.touch(at);
        self.taken += 1;
    }

    #[inline]
    fn touch(&mut self, at: usize) {
        if let Ok(at) = u32::try_from(at)
            && self.touched.len() <= TOUCHED_MAX
        {
            self.touched.push(at);
        }
    }

    /// Bytes that are kept for frames to come.
    pub(super) fn kept_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u128>() + self.long.kept_bytes()
    }

    /// The slot of a word in a table without end.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "low bits are asked for")]
    fn first_slot(&self, word: u128) -> usize {
        self.hash.of(word) as usize
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![0; size]);
        self.touched.clear();
        for word in old.into_iter().filter(|word| *word != 0) {
            let mut at = self.first_slot(word) & (size - 1);
            while self.slots[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = word;
            self.touch(at);
        }
    }
}

fn fixed(value: i64) -> u128 {
    FIXED | u128::from(value.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::{Distinct, Lane};

    #[test]
    fn a_table_that_was_large_counts_small_frames_again() {
        let mut distinct = Distinct::default();
        for values in [0..100_000, 0..10, 5..3_000, 0..1, 0..1_025, 0..0, 7..700] {
            let values: Vec<i64> = values.collect();
            for block in values.chunks(64) {
                distinct.add(Lane::Integers(block));
                distinct.add(Lane::Integers(block));
            }
            assert_eq!(distinct.count(), values.len());
            distinct.reset();
            assert_eq!(distinct.count(), 0);
            assert!(distinct.slots.iter().all(|word| *word == 0), "no word is left behind");
        }
    }
}
