//! The state of `distinct_count` where nothing is removed, so that no occurrences are counted.
//!
//! Values of fixed width and short texts are 128-bit words, one after the other; an open hash table
//! has their positions. Positions are small, so that the table of a thousand values is in the
//! first-level cache, where the words would not be. `aggregate` defines which values are identical;
//! `tests` compare this with the frequencies.

use std::sync::Arc;

use lockstep_row::ShortText;

use super::{
    dictionary::{NumberSet, ValueDictionary, fixed, form},
    encoding::{StateReader, put_count, put_key},
    key::{KeyRef, TotalFloat},
    multiset::Frequencies,
    state::{NumberedState, RowsEnd, ValueLane},
    word_hash::WordHash,
};

/// A set of values.
#[derive(Debug, Default)]
pub(super) struct Distinct {
    hash: WordHash,
    /// An open hash table with linear probing, indexed by the low bits of the hash: for each word
    /// its position in `words`, from 1; 0 is an empty slot. Its size is a power of two; at most a
    /// quarter is occupied, so that probe chains are short.
    slots: Vec<u32>,
    /// The words in the order in which they were added, none of them 0, and space for more of them.
    words: Vec<u128>,
    /// The number of words.
    taken: usize,
    /// Whether the empty text, whose word is 0, is among the values.
    has_empty: bool,
    /// The texts that are not short.
    long: Frequencies,
    /// The values of nodes, by their numbers in a dictionary, that are still to be added.
    unresolved: NumberSet,
}

const SLOTS_MIN: usize = 8;
/// A reset clears the whole table, unless it has more slots for each word than this.
const CLEARED_SLOTS_PER_WORD: usize = 16;
// A mask of the low bits is the position in the table.
const _: () = assert!(SLOTS_MIN.is_power_of_two());

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
        other.taken().iter().for_each(|word| self.insert(*word));
        self.long.merge(&other.long);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.has_empty));
        put_count(out, self.taken);
        self.taken().iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        self.encode_long(out);
    }

    fn encode_long(&self, out: &mut Vec<u8>) {
        debug_assert!(self.unresolved.is_empty(), "what nodes have was added");
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
        self.decode_long(reader)
    }

    fn decode_long(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
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
        debug_assert!(self.unresolved.is_empty(), "what nodes have was added");
        self.taken + usize::from(self.has_empty) + self.long.distinct()
    }

    /// Returns the words of the values that are not long.
    fn taken(&self) -> &[u128] {
        &self.words[..self.taken]
    }

    /// Removes every value, without freeing memory.
    pub(super) fn reset(&mut self) {
        if self.slots.len() <= self.taken * CLEARED_SLOTS_PER_WORD {
            self.slots.fill(0);
        } else {
            // Many slots of an earlier, larger set are empty already.
            for (position, word) in (1..).zip(&self.words[..self.taken]) {
                let mask = self.slots.len() - 1;
                let mut at = self.first_slot(*word) & mask;
                while self.slots[at] != position {
                    at = (at + 1) & mask;
                }
                self.slots[at] = 0;
            }
        }
        debug_assert!(self.slots.len() > 4_096 || self.slots.iter().all(|slot| *slot == 0));
        (self.taken, self.has_empty) = (0, false);
        self.long.reset();
        self.unresolved.clear();
    }

    #[inline]
    fn insert_text(&mut self, text: ShortText) {
        match text.word() {
            0 => self.has_empty = true,
            word => self.insert(word),
        }
    }

    /// Adds a word. Most words of most frames are there already; then no word depends on the one
    /// before it, so that the processor looks several of them up at once.
    #[inline]
    fn insert(&mut self, word: u128) {
        debug_assert_ne!(word, 0, "0 is the word of the empty text");
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.first_slot(word) & mask;
        // An empty table has no slot at all.
        while let Some(&slot) = self.slots.get(at)
            && slot != 0
        {
            if self.words[slot as usize - 1] == word {
                return;
            }
            at = (at + 1) & mask;
        }
        self.insert_new(word, at);
    }

    /// Adds a word that is not in the table, whose probe chain ends at a slot.
    fn insert_new(&mut self, word: u128, mut at: usize) {
        if self.slots.len() <= self.taken * 4 {
            self.grow();
            at = self.empty_slot(word);
        }
        debug_assert_eq!(self.slots[at], 0, "a word takes an empty slot");
        debug_assert!(self.taken < self.words.len(), "there is space for another word");
        self.words[self.taken] = word;
        self.slots[at] = position(self.taken);
        self.taken += 1;
    }

    /// Returns the slot for a word that is not in the table.
    #[inline]
    fn empty_slot(&self, word: u128) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.first_slot(word) & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        at
    }

    /// Returns the approximate number of bytes that it has allocated; a reset does not free them.
    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
            + self.words.capacity() * size_of::<u128>()
            + self.long.heap_bytes()
            + self.unresolved.heap_bytes()
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
        self.slots.clear();
        self.slots.resize(size, 0);
        self.words.resize(size / 4 + 1, 0);
        for place in 0..self.taken {
            let at = self.empty_slot(self.words[place]);
            self.slots[at] = position(place);
        }
    }
}

impl NumberedState for Distinct {
    fn encode_node(&self, rows: u64, dictionary: &mut Arc<ValueDictionary>, out: &mut Vec<u8>) {
        let words = self.taken().iter().copied();
        let Some(numbers) = ValueDictionary::numbers(dictionary, words, rows) else {
            out.push(form::VALUES);
            return self.encode(out);
        };
        out.extend([form::NUMBERS, u8::from(self.has_empty)]);
        NumberSet::encode(&numbers, out);
        self.encode_long(out);
    }

    fn merge_node(&mut self, reader: &mut StateReader<'_>, _end: RowsEnd) -> Option<()> {
        match reader.byte()? {
            form::VALUES => self.decode(reader),
            form::NUMBERS => {
                self.has_empty |= reader.byte()? != 0;
                self.unresolved.add_encoded(reader)?;
                self.decode_long(reader)
            }
            _ => None,
        }
    }

    fn resolve(&mut self, dictionary: &ValueDictionary, _end: RowsEnd) -> Option<()> {
        let mut unresolved = std::mem::take(&mut self.unresolved);
        let found = unresolved.drain(|number| {
            self.insert(dictionary.word(number).filter(|word| *word != 0)?);
            Some(())
        });
        self.unresolved = unresolved;
        found
    }
}

/// Returns what a slot has for the word at a place: its position from 1.
#[inline]
fn position(place: usize) -> u32 {
    u32::try_from(place + 1).expect("a frame has less than 2^32 rows")
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
            assert!(distinct.slots.iter().all(|slot| *slot == 0), "no word is left behind");
        }
    }
}
