//! The state of `distinct_count` where nothing is removed, so that no occurrences are counted.
//!
//! Values of fixed width and short texts are 128-bit words in an open hash table: inserting a new
//! value is one probe, without other memory. `aggregate` defines which values are identical;
//! `tests` compare this with the frequencies.

use lockstep_row::ShortText;

use super::{
    encoding::{StateReader, put_count, put_key},
    key::{KeyRef, TotalFloat},
    multiset::Frequencies,
    state::ValueLane,
    word_hash::WordHash,
};

/// A set of values.
#[derive(Debug, Default)]
pub(super) struct Distinct {
    hash: WordHash,
    /// An open hash table with linear probing, indexed by the low bits of the hash; 0 is an empty
    /// slot. Its size is a power of two; at most a quarter full, so that probe chains are short.
    slots: Vec<u128>,
    /// The number of occupied slots.
    taken: usize,
    /// The occupied slots, while they are few, so that a reset clears only those.
    touched: Vec<u32>,
    /// Whether the empty text, whose word is 0, is among the values.
    has_empty: bool,
    /// The texts that are not short.
    long: Frequencies,
}

const SLOTS_MIN: usize = 8;
/// The number of occupied slots above which a reset clears the whole table.
const TOUCHED_MAX: usize = 1024;
// A mask of the low bits is the position in the table.
const _: () = assert!(SLOTS_MIN.is_power_of_two());
/// The bit that is set in every word of a value of fixed width, so that none is 0.
const FIXED: u128 = 1 << 64;

impl Distinct {
    /// Adds the values of a block.
    pub(super) fn add(&mut self, lane: ValueLane<'_>) {
        match lane {
            ValueLane::Integers(values) => {
                values.iter().for_each(|value| self.insert(fixed(*value)));
            }
            ValueLane::Floats(values) => {
                // One zero: adding 0.0 makes a negative one positive.
                let bits = values.iter().map(|value| TotalFloat::new(*value + 0.0).bits());
                bits.for_each(|bits| self.insert(fixed(bits)));
            }
            ValueLane::ShortTexts(values) => values.iter().for_each(|text| self.insert_text(*text)),
            ValueLane::Texts(values) => {
                for text in values {
                    match ShortText::new(text) {
                        Some(short) => self.insert_text(short),
                        None => self.long.add(ValueLane::Texts(&[text])),
                    }
                }
            }
            ValueLane::Rows(_) => debug_assert!(false, "a set is of values, not of rows"),
        }
    }

    /// Adds one value.
    pub(super) fn add_key(&mut self, key: KeyRef<'_>) {
        match key {
            KeyRef::Integer(value) => self.insert(fixed(value)),
            KeyRef::Float(value) => self.insert(fixed(TotalFloat::new(value.get() + 0.0).bits())),
            KeyRef::Text(text) => self.add(ValueLane::Texts(&[text])),
        }
    }

    /// Adds the values of another set.
    pub(super) fn merge(&mut self, other: &Self) {
        self.has_empty |= other.has_empty;
        other.words().for_each(|word| self.insert(word));
        self.long.merge(&other.long);
    }

    /// Returns the words of the values that are not long.
    fn words(&self) -> impl Iterator<Item = u128> {
        self.slots.iter().copied().filter(|word| *word != 0)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.has_empty));
        put_count(out, self.taken);
        self.words().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        put_count(out, self.long.distinct());
        self.long.keys().for_each(|(key, _)| put_key(out, key));
    }

    pub(super) fn decode(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        self.has_empty |= reader.byte()? != 0;
        for _ in 0..reader.count()? {
            let word = u128::from_le_bytes(reader.array()?);
            if word == 0 {
                return None;
            }
            self.insert(word);
        }
        for _ in 0..reader.count()? {
            match reader.key()? {
                KeyRef::Text(text) => self.add(ValueLane::Texts(&[text])),
                KeyRef::Integer(_) | KeyRef::Float(_) => return None,
            }
        }
        Some(())
    }

    /// Returns the number of distinct values.
    pub(super) fn count(&self) -> usize {
        self.taken + usize::from(self.has_empty) + self.long.distinct()
    }

    /// Removes every value, without freeing memory.
    pub(super) fn reset(&mut self) {
        if self.taken > TOUCHED_MAX {
            self.slots.fill(0);
        } else {
            self.touched.iter().for_each(|at| self.slots[*at as usize] = 0);
        }
        debug_assert!(
            self.taken > TOUCHED_MAX || self.touched.len() == self.taken,
            "every occupied slot of a small set is listed"
        );
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
        debug_assert_ne!(word, 0, "0 is an empty slot");
        debug_assert!(self.taken * 4 < self.slots.len(), "at most a quarter is occupied");
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

    /// Returns the approximate number of bytes that it has allocated; a reset does not free them.
    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u128>()
            + self.touched.capacity() * size_of::<u32>()
            + self.long.heap_bytes()
    }

    /// Returns the hash of a word, whose low bits are its home slot.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are used")]
    fn first_slot(&self, word: u128) -> usize {
        self.hash.of(word) as usize
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(SLOTS_MIN);
        debug_assert!(size.is_power_of_two(), "a mask of the low bits is the position");
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
    use super::{Distinct, ValueLane};

    #[test]
    fn a_table_that_was_large_counts_small_frames_again() {
        let mut distinct = Distinct::default();
        for values in [0..100_000, 0..10, 5..3_000, 0..1, 0..1_025, 0..0, 7..700] {
            let values: Vec<i64> = values.collect();
            for block in values.chunks(64) {
                distinct.add(ValueLane::Integers(block));
                distinct.add(ValueLane::Integers(block));
            }
            assert_eq!(distinct.count(), values.len());
            distinct.reset();
            assert_eq!(distinct.count(), 0);
            assert!(distinct.slots.iter().all(|word| *word == 0), "no word is left behind");
        }
    }
}
