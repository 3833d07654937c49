//! The state of the aggregates that depend on the number of occurrences of each value.
//!
//! Values of fixed width and short texts are words, which a table numbers; an array has the count of
//! each number, so that what only reads counts reads nothing else. Longer texts are counted apart.
//! `multiset` defines what is computed from the counts, `aggregate` which values are identical.

use std::{cmp::Ordering, sync::Arc};

use lockstep_row::{Arena, Datum, ShortText};

use super::{
    dictionary::{NumberCounts, ValueClass, ValueDictionary, fixed, fixed_value, form, word_of},
    encoding::{StateReader, put_count, put_key, put_unsigned},
    key::{KeyRef, TotalFloat},
    long_texts::LongTexts,
    multiset::MultisetAnswer,
    state::{NumberedState, RowsEnd, ValueLane},
    word_table::WordTable,
};

/// The distinct values with their counts. Does not allocate for each value, nor at all when the memory
/// of earlier frames suffices. A value that was removed stays with the count 0 until such values are
/// the most.
#[derive(Debug, Default)]
pub(super) struct Frequencies {
    words: WordTable,
    /// The number of occurrences of each word.
    counts: Vec<u64>,
    long: LongTexts,
    /// The class of all values.
    class: ValueClass,
    total: u64,
    /// The number of values with the count 0.
    empty: usize,
    /// The counts of values of nodes, by their numbers in a dictionary, that are still to be added.
    unresolved: NumberCounts,
}

/// A value that is counted.
#[derive(Debug, Clone, Copy)]
pub(super) enum CountedValue<'f> {
    Integer(i64),
    Float(TotalFloat),
    Short(ShortText),
    Long(&'f str),
}

impl<'f> CountedValue<'f> {
    /// Returns the value of a key.
    pub(super) fn of_key(key: KeyRef<'f>) -> Self {
        match key {
            KeyRef::Integer(value) => Self::Integer(value),
            KeyRef::Float(value) => Self::Float(value),
            KeyRef::Text(text) => Self::Long(text),
        }
    }

    /// Returns the value that a word was made of.
    #[inline]
    pub(super) fn of_word(class: ValueClass, word: u128) -> Self {
        match class {
            ValueClass::Integer => Self::Integer(fixed_value(word)),
            ValueClass::Float => Self::Float(TotalFloat::from_bits(fixed_value(word))),
            ValueClass::Text => Self::Short(ShortText::of_word(word)),
        }
    }

    /// Returns the key.
    pub(super) fn key(&self) -> KeyRef<'_> {
        match self {
            Self::Integer(value) => KeyRef::Integer(*value),
            Self::Float(value) => KeyRef::Float(*value),
            Self::Short(text) => KeyRef::Text(text.as_str()),
            Self::Long(text) => KeyRef::Text(text),
        }
    }

    /// Compares two values of one state.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Short(left), Self::Short(right)) => left.cmp(right),
            _ => self.key().cmp(&other.key()),
        }
    }
}

/// The number of values without occurrences that are always left.
const EMPTY_MIN: usize = 32;

/// Returns the bits of a float that is counted.
#[inline]
fn float_bits(value: f64) -> i64 {
    // One zero: adding 0.0 makes a negative one positive.
    TotalFloat::new(value + 0.0).bits()
}

/// Returns a key as it is counted: with one zero.
fn counted(key: KeyRef<'_>) -> KeyRef<'_> {
    match key {
        KeyRef::Float(value) => KeyRef::Float(TotalFloat::from_bits(float_bits(value.get()))),
        other => other,
    }
}

impl Frequencies {
    pub(super) fn add(&mut self, lane: ValueLane<'_>) {
        self.total += lane.len() as u64;
        match lane {
            ValueLane::Integers(values) => {
                self.class = ValueClass::Integer;
                values.iter().for_each(|value| self.count_word(fixed(*value), 1));
            }
            ValueLane::Floats(values) => {
                self.class = ValueClass::Float;
                values.iter().for_each(|value| self.count_word(fixed(float_bits(*value)), 1));
            }
            ValueLane::Texts(values) => {
                self.class = ValueClass::Text;
                values.iter().for_each(|text| self.count_text(text, 1));
            }
            ValueLane::ShortTexts(values) => {
                self.class = ValueClass::Text;
                values.iter().for_each(|text| self.count_word(text.word(), 1));
            }
            ValueLane::Rows(_) => debug_assert!(false, "frequencies are of values"),
        }
    }

    /// Adds a number of occurrences of a value.
    pub(super) fn add_key(&mut self, key: KeyRef<'_>, count: u64) {
        debug_assert!(count > 0, "a value that is added occurs");
        self.total += count;
        self.class = ValueClass::of(key);
        match (word_of(counted(key)), key) {
            (None, KeyRef::Text(text)) => self.count_long(text, count),
            (word, _) => self.count_word(word.expect("numbers are words"), count),
        }
    }

    /// Removes an occurrence of each of some values that were added.
    pub(super) fn remove(&mut self, lane: ValueLane<'_>) {
        match lane {
            ValueLane::Integers(values) => {
                values.iter().for_each(|value| self.remove_word(fixed(*value)));
            }
            ValueLane::Floats(values) => {
                values.iter().for_each(|value| self.remove_word(fixed(float_bits(*value))));
            }
            ValueLane::Texts(values) => {
                values.iter().for_each(|text| self.remove_key(KeyRef::Text(text)));
            }
            ValueLane::ShortTexts(values) => {
                values.iter().for_each(|text| self.remove_word(text.word()));
            }
            ValueLane::Rows(_) => debug_assert!(false, "frequencies are of values"),
        }
    }

    /// Removes one occurrence of a value that was added.
    pub(super) fn remove_key(&mut self, key: KeyRef<'_>) {
        match (word_of(counted(key)), key) {
            (None, KeyRef::Text(text)) => {
                let left = self.long.remove(text);
                self.end_removal(left);
            }
            (word, _) => self.remove_word(word.expect("numbers are words")),
        }
    }

    #[inline]
    fn remove_word(&mut self, word: u128) {
        let left = self.words.find(word).ok().and_then(|number| {
            let count = &mut self.counts[number];
            *count = count.checked_sub(1)?;
            Some(*count)
        });
        self.end_removal(left);
    }

    /// Ends the removal of a value; `left` is how often it still occurs, `None` when it did not occur.
    #[inline]
    fn end_removal(&mut self, left: Option<u64>) {
        let Some(left) = left else {
            debug_assert!(false, "a value that leaves was added");
            return;
        };
        debug_assert!(self.total > 0, "what occurred was counted");
        self.total -= 1;
        self.empty += usize::from(left == 0);
        if self.empty > EMPTY_MIN && self.empty > self.distinct() {
            self.compact();
        }
    }

    /// Removes the values with the count 0.
    #[cold]
    fn compact(&mut self) {
        let words = self.words.words().iter().copied().zip(self.counts.iter().copied());
        let occurring: Vec<(u128, u64)> = words.filter(|(_, count)| *count > 0).collect();
        self.words.reset();
        self.counts.clear();
        for (word, count) in occurring {
            self.count_word(word, count);
        }
        self.long.compact();
        self.empty = 0;
        debug_assert_eq!(self.words.len(), self.counts.len(), "each word has a count");
    }

    /// Adds the values of another state.
    pub(super) fn merge(&mut self, other: &Self) {
        other.values(1).for_each(|(value, count)| self.add_key(value.key(), count));
    }

    /// Returns the values that occur so often, with their counts.
    fn values(&self, least: u64) -> impl Iterator<Item = (CountedValue<'_>, u64)> {
        debug_assert!(least > 0, "what does not occur is no value");
        let words = self.words.words().iter().copied().zip(self.counts.iter().copied());
        let words = words.filter(move |(_, count)| *count >= least);
        let words = words.map(|(word, count)| (CountedValue::of_word(self.class, word), count));
        let long = self.long.iter().filter(move |(_, count)| *count >= least);
        words.chain(long.map(|(text, count)| (CountedValue::Long(text), count)))
    }

    /// Returns the counts of all values, and zeros of those that were removed.
    fn counts(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().copied().chain(self.long.counts())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_count(out, self.distinct());
        for (value, count) in self.values(1) {
            put_key(out, value.key());
            put_unsigned(out, count.into());
        }
    }

    pub(super) fn decode(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        for _ in 0..reader.count()? {
            let key = reader.key()?;
            let count = reader.rows().filter(|count| *count > 0)?;
            self.total.checked_add(count)?;
            self.add_key(key, count);
        }
        Some(())
    }

    /// Counts a value by its word.
    #[inline]
    fn count_word(&mut self, word: u128, count: u64) {
        debug_assert!(count > 0, "a value that is counted occurs");
        let number = self.words.insert(word);
        debug_assert!(number <= self.counts.len(), "each word has a count");
        match self.counts.get_mut(number) {
            Some(counted) => {
                self.empty -= usize::from(*counted == 0);
                *counted += count;
            }
            None => self.counts.push(count),
        }
    }

    fn count_text(&mut self, text: &str, count: u64) {
        match ShortText::new(text) {
            Some(short) => self.count_word(short.word(), count),
            None => self.count_long(text, count),
        }
    }

    fn count_long(&mut self, text: &str, count: u64) {
        let texts = self.long.len();
        let before = self.long.add(text, count);
        // A text that was there without occurrences occurs again.
        self.empty -= usize::from(before == 0 && self.long.len() == texts);
    }

    /// Returns the number of distinct values.
    pub(super) fn distinct(&self) -> usize {
        self.counts.len() + self.long.len() - self.empty
    }

    pub(super) fn answer<'a>(&self, answer: &MultisetAnswer, arena: &'a Arena) -> Datum<'a> {
        debug_assert!(self.unresolved.is_empty(), "what nodes have was added");
        debug_assert_eq!(self.counts().sum::<u64>(), self.total, "all occurrences are counted");
        match answer {
            MultisetAnswer::MostFrequent(list) => {
                let least = list.least_count(self.counts());
                list.print(self.values(least.max(1)).collect(), arena)
            }
            MultisetAnswer::TopRatio => MultisetAnswer::top_ratio(self.counts(), self.total),
            MultisetAnswer::Entropy => MultisetAnswer::entropy(self.counts(), self.total),
        }
    }

    pub(super) fn reset(&mut self) {
        self.words.reset();
        self.counts.clear();
        self.long.reset();
        (self.total, self.empty) = (0, 0);
        self.unresolved.clear();
    }

    /// Returns the approximate number of bytes that it has allocated; a reset does not free them.
    pub(super) fn heap_bytes(&self) -> usize {
        self.words.heap_bytes()
            + self.counts.capacity() * size_of::<u64>()
            + self.long.heap_bytes()
            + self.unresolved.heap_bytes()
    }
}

impl NumberedState for Frequencies {
    fn encode_node(&self, rows: u64, dictionary: &mut Arc<ValueDictionary>, out: &mut Vec<u8>) {
        let words = self.words.words().iter().copied().zip(self.counts.iter().copied());
        let (words, counts): (Vec<u128>, Vec<u64>) = words.filter(|(_, count)| *count > 0).unzip();
        let numbers = (words.len() == self.distinct())
            .then(|| ValueDictionary::numbers(dictionary, words.into_iter(), rows))
            .flatten();
        let Some(numbers) = numbers else {
            out.push(form::VALUES);
            return self.encode(out);
        };
        out.push(form::NUMBERS);
        self.class.encode(out);
        NumberCounts::encode(&numbers, &counts, out);
    }

    fn merge_node(&mut self, reader: &mut StateReader<'_>, _end: RowsEnd) -> Option<()> {
        match reader.byte()? {
            form::VALUES => self.decode(reader),
            form::NUMBERS => {
                self.class = ValueClass::decode(reader)?;
                self.unresolved.add_encoded(reader)
            }
            _ => None,
        }
    }

    fn resolve(&mut self, dictionary: &ValueDictionary, _end: RowsEnd) -> Option<()> {
        let mut unresolved = std::mem::take(&mut self.unresolved);
        let found = unresolved.drain(|number, count| {
            self.total = self.total.checked_add(count)?;
            self.count_word(dictionary.word(number)?, count);
            Some(())
        });
        self.unresolved = unresolved;
        found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{CountedValue, EMPTY_MIN, Frequencies, KeyRef, ValueLane};

    /// Returns the counts by value, which are checked against the counts by number.
    fn counts_of(frequencies: &Frequencies) -> BTreeMap<String, u64> {
        let text = |value: CountedValue<'_>| format!("{:?}", value.key());
        let counts: BTreeMap<String, u64> =
            frequencies.values(1).map(|(value, count)| (text(value), count)).collect();
        assert_eq!(counts.len(), frequencies.distinct());
        assert_eq!(counts.values().sum::<u64>(), frequencies.total);
        counts
    }

    #[test]
    fn values_that_leave_are_forgotten_and_may_come_back() {
        let texts: Vec<String> = (0..400)
            .map(|n| format!("{n}{}", if n % 3 == 0 { " is long enough" } else { "" }))
            .collect();
        let mut frequencies = Frequencies::default();
        let mut expected = BTreeMap::new();
        // A frame of 20 rows slides over the texts three times.
        let rows: Vec<&str> =
            texts.iter().chain(&texts).chain(&texts).map(String::as_str).collect();
        for (at, text) in rows.iter().enumerate() {
            frequencies.add(ValueLane::Texts(&[text]));
            *expected.entry(format!("{:?}", KeyRef::Text(text))).or_insert(0) += 1;
            if let Some(left) = at.checked_sub(20).map(|at| rows[at]) {
                frequencies.remove_key(KeyRef::Text(left));
                expected.remove(&format!("{:?}", KeyRef::Text(left)));
            }
            assert_eq!(counts_of(&frequencies), expected);
            assert!(frequencies.counts.len() + frequencies.long.len() <= 2 * EMPTY_MIN + 41);
        }
    }

    #[test]
    fn zeros_are_one_value_and_so_are_nans() {
        let mut frequencies = Frequencies::default();
        frequencies.add(ValueLane::Floats(&[0.0, -0.0, f64::NAN, -f64::NAN, 1.5]));
        assert_eq!(frequencies.distinct(), 3);
        let negative_zero = KeyRef::of(lockstep_row::Datum::Double(-0.0)).unwrap();
        frequencies.remove_key(negative_zero);
        frequencies.remove_key(negative_zero);
        assert_eq!((frequencies.distinct(), frequencies.total), (2, 3));
        frequencies.add_key(negative_zero, 4);
        assert_eq!((frequencies.distinct(), frequencies.total), (3, 7));
        assert_eq!(counts_of(&frequencies).len(), 3);
    }

    #[test]
    fn a_large_frame_leaves_nothing_to_a_small_one() {
        let mut frequencies = Frequencies::default();
        for values in [0..50_000, 0..10, 5..3_000, 0..1, 0..0, 7..700] {
            let values: Vec<i64> = values.collect();
            for block in values.chunks(64) {
                frequencies.add(ValueLane::Integers(block));
            }
            assert_eq!(counts_of(&frequencies).len(), values.len());
            frequencies.reset();
            assert_eq!(frequencies.distinct(), 0);
        }
    }
}
