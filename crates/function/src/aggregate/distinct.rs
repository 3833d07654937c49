//! The state of `distinct_count` where nothing is removed, so that no occurrences are counted.
//!
//! Values of fixed width and short texts are words of a table; longer texts are apart. `aggregate`
//! defines which values are identical; `tests` compare this with the frequencies.

use std::sync::Arc;

use super::{
    dictionary::{NumberSet, ValueDictionary, fixed, form, word_of},
    encoding::{StateReader, put_count, put_key},
    key::{KeyRef, TotalFloat},
    long_texts::LongTexts,
    state::{NumberedState, RowsEnd, ValueLane},
    word_table::WordTable,
};

/// A set of values.
#[derive(Debug, Default)]
pub(super) struct Distinct {
    /// The values that are words, but for the empty text.
    words: WordTable,
    /// Whether the empty text, whose word is 0, is among the values.
    has_empty: bool,
    /// The texts that are not short.
    long: LongTexts,
    /// The values of nodes, by their numbers in a dictionary, that are still to be added.
    unresolved: NumberSet,
}

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
            ValueLane::ShortTexts(values) => {
                values.iter().for_each(|text| self.insert_text_word(text.word()));
            }
            ValueLane::Texts(values) => values.iter().for_each(|text| self.insert_text(text)),
            ValueLane::Rows(_) => debug_assert!(false, "a set is of values, not of rows"),
        }
    }

    /// Adds one value.
    pub(super) fn add_key(&mut self, key: KeyRef<'_>) {
        match key {
            KeyRef::Integer(value) => self.insert(fixed(value)),
            KeyRef::Float(value) => self.insert(fixed(TotalFloat::new(value.get() + 0.0).bits())),
            KeyRef::Text(text) => self.insert_text(text),
        }
    }

    /// Adds the values of another set.
    pub(super) fn merge(&mut self, other: &Self) {
        self.has_empty |= other.has_empty;
        other.words.words().iter().for_each(|word| self.insert(*word));
        other.long.iter().for_each(|(text, _)| self.insert_long(text));
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.has_empty));
        put_count(out, self.words.len());
        self.words.words().iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        self.encode_long(out);
    }

    fn encode_long(&self, out: &mut Vec<u8>) {
        debug_assert!(self.unresolved.is_empty(), "what nodes have was added");
        put_count(out, self.long.len());
        self.long.iter().for_each(|(text, _)| put_key(out, KeyRef::Text(text)));
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
                KeyRef::Text(text) => self.insert_text(text),
                KeyRef::Integer(_) | KeyRef::Float(_) => return None,
            }
        }
        Some(())
    }

    /// Returns the number of distinct values.
    pub(super) fn count(&self) -> usize {
        debug_assert!(self.unresolved.is_empty(), "what nodes have was added");
        self.words.len() + usize::from(self.has_empty) + self.long.len()
    }

    /// Removes every value, without freeing memory.
    pub(super) fn reset(&mut self) {
        self.words.reset();
        self.has_empty = false;
        self.long.reset();
        self.unresolved.clear();
    }

    #[inline]
    fn insert(&mut self, word: u128) {
        debug_assert_ne!(word, 0, "0 is the word of the empty text");
        self.words.insert(word);
    }

    fn insert_text(&mut self, text: &str) {
        match word_of(KeyRef::Text(text)) {
            Some(word) => self.insert_text_word(word),
            None => self.insert_long(text),
        }
    }

    #[inline]
    fn insert_text_word(&mut self, word: u128) {
        match word {
            0 => self.has_empty = true,
            word => self.insert(word),
        }
    }

    fn insert_long(&mut self, text: &str) {
        self.long.add(text, 1);
    }

    /// Returns the approximate number of bytes that it has allocated; a reset does not free them.
    pub(super) fn heap_bytes(&self) -> usize {
        self.words.heap_bytes() + self.long.heap_bytes() + self.unresolved.heap_bytes()
    }
}

impl NumberedState for Distinct {
    fn encode_node(&self, rows: u64, dictionary: &mut Arc<ValueDictionary>, out: &mut Vec<u8>) {
        let words = self.words.words().iter().copied();
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
