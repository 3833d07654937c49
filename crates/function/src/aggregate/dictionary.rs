//! Dictionaries: the distinct values in the nodes of a key, each with a number.
//!
//! `distinct_count`, the frequencies and the categories have an entry for each value. The nodes over the
//! rows of a long key mostly have the same values, so a node has their numbers in a dictionary that
//! the nodes of the key share ([`crate::AggregateState::encode_node`]): a bit for a value where a set
//! without a dictionary has 16 bytes. A reader adds bits and counts of many nodes, and looks at each
//! value once ([`crate::AggregateState::resolve`]). Cost: a node O(its bytes); a value O(1) once for
//! each reader.
//!
//! # Rules
//!
//! * A number is never given to another value: a dictionary only grows, so that a node is read with
//!   any later version of the one that it was encoded with.
//! * A node is encoded with numbers if its values repeat: at most one for every
//!   [`ROWS_PER_NEW_VALUE`] of its rows is not in the dictionary yet. So a column without repetition
//!   has an empty dictionary, and one whose values repeat gets its values from a node of many rows.
//! * Values are words of 128 bits: those of fixed width and short texts. A state with a longer text
//!   has no numbers for its texts.

use std::sync::Arc;

use lockstep_row::ShortText;

use super::{
    encoding::{StateReader, put_count, put_unsigned},
    key::KeyRef,
    word_hash::WordHash,
};

/// The most values of a dictionary.
const VALUES_MAX: usize = 1 << 14;
/// See the rules of the module.
const ROWS_PER_NEW_VALUE: u64 = 8;
/// So many values may be new in any node.
const NEW_VALUES_FREE: u64 = 4;
/// An empty table has so many slots.
const SLOTS_MIN: usize = 8;
/// The bit that is set in every word of a value of fixed width, so that none is 0.
const FIXED: u128 = 1 << 64;

const _: () = assert!(VALUES_MAX < u16::MAX as usize, "a slot has a number plus 1 in 16 bits");
// A mask of the low bits is the position in the table.
const _: () = assert!(SLOTS_MIN.is_power_of_two());

/// The first byte of the values of a node's state.
pub(super) mod form {
    /// Values, as a state has them by itself.
    pub(in super::super) const VALUES: u8 = 0;
    /// Numbers of a dictionary.
    pub(in super::super) const NUMBERS: u8 = 1;
}

/// The class of the values of a state: all of them have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ValueClass {
    #[default]
    Integer,
    Float,
    Text,
}

impl ValueClass {
    /// Returns the class of a key.
    pub(super) fn of(key: KeyRef<'_>) -> Self {
        match key {
            KeyRef::Integer(_) => Self::Integer,
            KeyRef::Float(_) => Self::Float,
            KeyRef::Text(_) => Self::Text,
        }
    }

    /// Appends the class to some bytes.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Integer => 0,
            Self::Float => 1,
            Self::Text => 2,
        });
    }

    /// Reads what `encode` wrote.
    pub(super) fn decode(reader: &mut StateReader<'_>) -> Option<Self> {
        Some(match reader.byte()? {
            0 => Self::Integer,
            1 => Self::Float,
            2 => Self::Text,
            _ => return None,
        })
    }
}

/// Returns the word of a value of fixed width, which is not 0.
#[inline]
pub(super) fn fixed(value: i64) -> u128 {
    FIXED | u128::from(value.cast_unsigned())
}

/// Returns the value of a word that [`fixed`] made.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the value is in the low half")]
pub(super) fn fixed_value(word: u128) -> i64 {
    debug_assert_eq!(word >> 64, 1, "a word of a value of fixed width");
    (word as u64).cast_signed()
}

/// Returns the word of a key; `None` for a text that is not short.
pub(super) fn word_of(key: KeyRef<'_>) -> Option<u128> {
    match key {
        KeyRef::Integer(value) => Some(fixed(value)),
        KeyRef::Float(value) => Some(fixed(value.bits())),
        KeyRef::Text(text) => Some(ShortText::new(text)?.word()),
    }
}

/// The values of one state in the nodes of a key, numbered from 0 in the order in which they were
/// added.
#[derive(Debug, Clone, Default)]
pub struct ValueDictionary {
    hash: WordHash,
    /// An open hash table with linear probing, indexed by the low bits of the hash: the number of a
    /// word plus 1, or 0 for an empty slot. At most half full.
    slots: Vec<u16>,
    words: Vec<u128>,
}

impl ValueDictionary {
    /// Returns the numbers of different words, which a node over so many rows has; those that are new
    /// are added. `None`, and nothing is added, where they are too many, or no word is there.
    pub(super) fn numbers(
        shared: &mut Arc<Self>,
        words: impl Iterator<Item = u128>,
        rows: u64,
    ) -> Option<Vec<u16>> {
        let new_max = rows / ROWS_PER_NEW_VALUE + NEW_VALUES_FREE;
        let (mut numbers, mut new) = (Vec::new(), Vec::new());
        for word in words {
            let number = shared.find(word).ok();
            if number.is_none() {
                if new.len() as u64 >= new_max {
                    return None;
                }
                new.push((numbers.len(), word));
            }
            numbers.push(number.unwrap_or(u16::MAX));
        }
        if new.is_empty() {
            return Some(numbers).filter(|numbers| !numbers.is_empty());
        }
        if shared.words.len() + new.len() > VALUES_MAX {
            return None;
        }
        let own = Arc::make_mut(shared);
        for (at, word) in new {
            numbers[at] = own.add(word);
        }
        debug_assert!(numbers.iter().all(|number| usize::from(*number) < own.words.len()));
        Some(numbers)
    }

    /// Returns the word of a number; `None` where there is no such number.
    #[inline]
    pub(super) fn word(&self, number: usize) -> Option<u128> {
        self.words.get(number).copied()
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the approximate number of bytes that it has allocated.
    pub fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u16>() + self.words.capacity() * size_of::<u128>()
    }

    /// Returns the number of a word, or the empty slot for it.
    fn find(&self, word: u128) -> Result<u16, usize> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.first_slot(word) & mask;
        // An empty table has no slot at all.
        while let Some(number) = self.slots.get(at).and_then(|slot| slot.checked_sub(1)) {
            if self.words[usize::from(number)] == word {
                return Ok(number);
            }
            at = (at + 1) & mask;
        }
        Err(at)
    }

    /// Adds a word that is not there, and returns its number.
    fn add(&mut self, word: u128) -> u16 {
        if self.slots.len() <= self.words.len() * 2 {
            self.grow();
        }
        let number = u16::try_from(self.words.len()).expect("a dictionary is small");
        let slot = self.find(word).expect_err("the word is new");
        self.words.push(word);
        self.slots[slot] = number + 1;
        number
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(SLOTS_MIN);
        debug_assert!(size.is_power_of_two(), "a mask of the low bits is the position");
        self.slots = vec![0; size];
        for (number, word) in (1..).zip(&self.words) {
            let mut at = self.first_slot(*word) & (size - 1);
            while self.slots[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = number;
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are used")]
    fn first_slot(&self, word: u128) -> usize {
        self.hash.of(word) as usize
    }
}

/// A set of numbers of a dictionary, as bits.
#[derive(Debug, Default)]
pub(super) struct NumberSet {
    bits: Vec<u64>,
}

impl NumberSet {
    /// Appends numbers to some bytes: as bits, or one by one where that is shorter.
    pub(super) fn encode(numbers: &[u16], out: &mut Vec<u8>) {
        let words = numbers.iter().max().map_or(0, |most| usize::from(*most) / 64 + 1);
        let are_bits = words * size_of::<u64>() <= size_of_val(numbers);
        out.push(u8::from(are_bits));
        if !are_bits {
            put_count(out, numbers.len());
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
            return;
        }
        let mut bits = vec![0_u64; words];
        for number in numbers {
            bits[usize::from(*number) / 64] |= 1 << (number % 64);
        }
        put_count(out, words);
        bits.iter().for_each(|word| out.extend(word.to_le_bytes()));
    }

    /// Adds what `encode` wrote.
    pub(super) fn add_encoded(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        let are_bits = reader.byte()? != 0;
        let count = reader.count()?;
        if are_bits {
            let bytes = reader.slice(count.checked_mul(size_of::<u64>())?)?;
            self.grow(count);
            for (own, other) in self.bits.iter_mut().zip(bytes.as_chunks().0) {
                *own |= u64::from_le_bytes(*other);
            }
            return Some(());
        }
        for bytes in reader.slice(count.checked_mul(size_of::<u16>())?)?.as_chunks().0 {
            let number = u16::from_le_bytes(*bytes);
            let at = usize::from(number) / 64;
            self.grow(at + 1);
            self.bits[at] |= 1 << (number % 64);
        }
        Some(())
    }

    /// Returns whether it has no number.
    pub(super) fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// Removes all numbers and calls a function with each, in ascending order.
    pub(super) fn drain(&mut self, mut call: impl FnMut(usize) -> Option<()>) -> Option<()> {
        let found = self.bits.iter().enumerate().try_for_each(|(at, word)| {
            let mut word = *word;
            while word != 0 {
                call(at * 64 + word.trailing_zeros() as usize)?;
                word &= word - 1;
            }
            Some(())
        });
        self.bits.clear();
        found
    }

    pub(super) fn clear(&mut self) {
        self.bits.clear();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bits.capacity() * size_of::<u64>()
    }

    fn grow(&mut self, words: usize) {
        if self.bits.len() < words {
            self.bits.resize(words, 0);
        }
    }
}

/// Counts of numbers of a dictionary.
#[derive(Debug, Default)]
pub(super) struct NumberCounts {
    counts: Vec<u64>,
}

impl NumberCounts {
    /// Appends numbers and their counts to some bytes: the counts of all numbers up to the greatest,
    /// or the numbers one by one where that is shorter.
    pub(super) fn encode(numbers: &[u16], counts: &[u64], out: &mut Vec<u8>) {
        debug_assert_eq!(numbers.len(), counts.len(), "each number has a count");
        let places = numbers.iter().max().map_or(0, |most| usize::from(*most) + 1);
        let most = counts.iter().copied().max().unwrap_or(0);
        let width: usize = match most {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        };
        if places * width > 2 * numbers.len() * (size_of::<u16>() + width) {
            out.push(0);
            put_count(out, numbers.len());
            for (number, count) in numbers.iter().zip(counts) {
                out.extend(number.to_le_bytes());
                put_unsigned(out, (*count).into());
            }
            return;
        }
        let mut all = vec![0_u64; places];
        for (number, count) in numbers.iter().zip(counts) {
            all[usize::from(*number)] = *count;
        }
        out.push(u8::try_from(width).expect("a width is small"));
        put_count(out, places);
        all.iter().for_each(|count| out.extend(&count.to_le_bytes()[..width]));
    }

    /// Adds what `encode` wrote.
    pub(super) fn add_encoded(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        let width = usize::from(reader.byte()?);
        let count = reader.count()?;
        if width > 0 {
            let bytes = reader.slice(count.checked_mul(width)?)?;
            self.grow(count);
            match width {
                1 => add_counts::<1>(&mut self.counts, bytes),
                2 => add_counts::<2>(&mut self.counts, bytes),
                4 => add_counts::<4>(&mut self.counts, bytes),
                8 => add_counts::<8>(&mut self.counts, bytes),
                _ => return None,
            }
            return Some(());
        }
        for _ in 0..count {
            let number = usize::from(u16::from_le_bytes(reader.array()?));
            let count = reader.rows()?;
            self.grow(number + 1);
            self.counts[number] = self.counts[number].checked_add(count)?;
        }
        Some(())
    }

    /// Returns whether it has no count.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Removes all counts and calls a function with each number that has one, in ascending order.
    pub(super) fn drain(&mut self, mut call: impl FnMut(usize, u64) -> Option<()>) -> Option<()> {
        let mut counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let found = counts.try_for_each(|(number, count)| call(number, *count));
        self.counts.clear();
        found
    }

    pub(super) fn clear(&mut self) {
        self.counts.clear();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u64>()
    }

    fn grow(&mut self, places: usize) {
        if self.counts.len() < places {
            self.counts.resize(places, 0);
        }
    }
}

/// Adds counts of a width. Numbers of rows do not overflow; damaged ones wrap.
fn add_counts<const WIDTH: usize>(counts: &mut [u64], bytes: &[u8]) {
    for (count, bytes) in counts.iter_mut().zip(bytes.as_chunks::<WIDTH>().0) {
        let mut wide = [0; size_of::<u64>()];
        wide[..WIDTH].copy_from_slice(bytes);
        *count = count.wrapping_add(u64::from_le_bytes(wide));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::{collection::btree_map, prelude::any, prop_assert_eq, proptest};

    use super::{NumberCounts, NumberSet, StateReader, ValueDictionary, fixed};

    #[test]
    fn values_that_repeat_get_numbers_and_others_do_not() {
        let mut dictionary = Arc::new(ValueDictionary::default());
        let before = Arc::clone(&dictionary);
        let words = |values: std::ops::Range<i64>| values.map(fixed);
        assert_eq!(ValueDictionary::numbers(&mut dictionary, words(0..100), 128), None);
        assert!(Arc::ptr_eq(&before, &dictionary), "nothing was added");
        let all: Vec<u16> = (0..100).collect();
        assert_eq!(ValueDictionary::numbers(&mut dictionary, words(0..100), 1024), Some(all));
        assert!(before.words.is_empty(), "an earlier version stays as it was");
        let some = ValueDictionary::numbers(&mut dictionary, words(97..102), 0);
        assert_eq!(some, Some((97..102).collect()), "a few may be new");
        assert_eq!(ValueDictionary::numbers(&mut dictionary, words(0..40_000), u64::MAX), None);
        assert_eq!(dictionary.words.len(), 102, "a full dictionary adds nothing");
        let known = ValueDictionary::numbers(&mut dictionary, words(5..6), 1);
        assert_eq!(known, Some(vec![5]));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_added(
            entries in btree_map(0_u16..600, 1_u64..70_000, 0..120),
            more in btree_map(0_u16..5_000, any::<u32>(), 0..9),
        ) {
            let more = more.iter().map(|(number, count)| (*number, u64::from(*count) + 1));
            let (mut set, mut counts) = (NumberSet::default(), NumberCounts::default());
            let mut expected = entries.clone();
            for (number, count) in more.clone() {
                *expected.entry(number).or_default() += count;
            }
            for part in [entries, more.collect()] {
                let numbers: Vec<u16> = part.keys().copied().collect();
                let of_part: Vec<u64> = part.values().copied().collect();
                let mut bytes = Vec::new();
                NumberSet::encode(&numbers, &mut bytes);
                NumberCounts::encode(&numbers, &of_part, &mut bytes);
                let mut reader = StateReader::new(&bytes);
                set.add_encoded(&mut reader).unwrap();
                counts.add_encoded(&mut reader).unwrap();
                prop_assert_eq!(reader.is_at_end(), true);
            }
            let (mut numbers, mut counted) = (Vec::new(), Vec::new());
            set.drain(|number| { numbers.push(number); Some(()) }).unwrap();
            counts.drain(|number, count| { counted.push((number, count)); Some(()) }).unwrap();
            let expected: Vec<(usize, u64)> =
                expected.into_iter().map(|(number, count)| (number.into(), count)).collect();
            prop_assert_eq!(numbers, expected.iter().map(|(number, _)| *number).collect::<Vec<_>>());
            prop_assert_eq!(counted, expected);
            prop_assert_eq!(set.is_empty() && counts.is_empty(), true);
        }
    }
}
