//! The aggregates that depend on the number of occurrences of each value: `distinct_count`,
//! `topn_frequency`, `top1_ratio`, `entropy`.

use std::{cmp::Ordering, hash::BuildHasher, sync::Arc};

use hashbrown::DefaultHashBuilder;
use lockstep_row::{Arena, DataType, Datum, ShortText};

use super::{
    AggregateFunction, BoundAggregate,
    dictionary::{NumberCounts, ValueClass, ValueDictionary, fixed, form},
    encoding::{StateReader, put_count, put_key, put_unsigned},
    key::{KeyRef, TotalFloat},
    signature::{
        AggregateTypeClass, ORDERABLE, SCALAR, bound_fold, expect, expect_count, expect_size,
        wrong_constant,
    },
    state::{AnswerKind, Fold, NumberedState, RowsEnd, StateClass, StateKind, ValueLane},
    word_hash::WordHash,
};
use crate::{
    CallArguments, Compatibility, SignatureError, exact_sum::ExactSum, item_text::ItemPrinter,
};

/// The most values that `topn_frequency` lists.
const TOPN_MAX: usize = 1024;

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "distinct_count",
        aliases: &[],
        category: "frequency",
        signature: "distinct_count(x ANY) → BIGINT",
        doc: "Counts the different values that are not NULL; 0 when there are none. With \
              `compatibility = 'openmldb'` NULL counts as the zero (or the empty string) of the \
              type.",
        examples: &[("distinct_count(x)", "3"), ("distinct_count(c)", "2")],
        is_ordered: false,
        class: StateClass::Mergeable,
        bind: bind_distinct_count,
    },
    AggregateFunction {
        name: "approx_distinct",
        aliases: &["approx_count_distinct"],
        category: "frequency",
        signature: "approx_distinct(x ANY) → BIGINT",
        doc: "Counts the different values that are not NULL; 0 when there are none. For scripts of \
              systems that estimate here: the count is exact, hence the same in every mode and in \
              every order of the rows, and costs what `distinct_count` costs.",
        examples: &[("approx_distinct(x)", "3")],
        is_ordered: false,
        class: StateClass::Mergeable,
        bind: bind_approx_distinct,
    },
    AggregateFunction {
        name: "topn_frequency",
        aliases: &[],
        category: "frequency",
        signature: "topn_frequency(x number|TIMESTAMP|DATE|STRING, n constant integer) → STRING",
        doc: "The `n` most frequent values, joined by commas: more frequent first, then lesser \
              first. `n` is at most 1024; NULL is not counted. With `compatibility = 'openmldb'` \
              the word NULL fills up to `n`, and floats have six decimals.",
        examples: &[("topn_frequency(x, 2)", "4,1"), ("topn_frequency(c, 5)", "a,b")],
        is_ordered: false,
        class: StateClass::Retractable,
        bind: bind_topn_frequency,
    },
    AggregateFunction {
        name: "top1_ratio",
        aliases: &[],
        category: "frequency",
        signature: "top1_ratio(x number|TIMESTAMP|DATE|STRING) → DOUBLE",
        doc: "The share that the most frequent value has among the values that are not NULL; 0 \
              when there are none.",
        examples: &[("top1_ratio(x)", "0.5")],
        is_ordered: false,
        class: StateClass::Retractable,
        bind: |arguments| bind_answer(arguments, &ORDERABLE, MultisetAnswer::TopRatio),
    },
    AggregateFunction {
        name: "entropy",
        aliases: &[],
        category: "frequency",
        signature: "entropy(x ANY) → DOUBLE",
        doc: "Shannon's entropy, in bits, of the frequencies of the values that are not NULL; NULL \
              when there are none. Its terms are summed exactly and rounded once.",
        examples: &[("entropy(x)", "1.5")],
        is_ordered: false,
        class: StateClass::Retractable,
        bind: |arguments| bind_answer(arguments, &SCALAR, MultisetAnswer::Entropy),
    },
];

fn bind_distinct_count(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &SCALAR)?;
    let null_counts = arguments.settings.compatibility == Compatibility::OpenMldb;
    let mut fold = Fold::new(Some(0), StateKind::Distinct, AnswerKind::Distinct);
    if null_counts {
        fold.null_as_zero_of = Some(data_type.clone());
    }
    Ok(bound_fold(vec![data_type], DataType::BigInt, fold))
}

fn bind_approx_distinct(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &SCALAR)?;
    let fold = Fold::new(Some(0), StateKind::Distinct, AnswerKind::Distinct);
    Ok(bound_fold(vec![data_type], DataType::BigInt, fold))
}

fn bind_topn_frequency(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 2..=2)?;
    let data_type = expect(arguments, 0, &ORDERABLE)?;
    let count = expect_size(arguments, 1)?;
    if count > TOPN_MAX {
        return Err(wrong_constant(1, "a constant integer of at most 1024"));
    }
    let answer = MultisetAnswer::MostFrequent {
        count,
        pads: arguments.settings.compatibility == Compatibility::OpenMldb,
        data_type: data_type.clone(),
        printer: ItemPrinter::new(*arguments.settings),
    };
    let fold = Fold::new(Some(0), StateKind::Frequencies, AnswerKind::Frequencies(answer));
    Ok(bound_fold(vec![data_type, DataType::BigInt], DataType::String, fold))
}

fn bind_answer(
    arguments: &CallArguments<'_>,
    class: &AggregateTypeClass,
    answer: MultisetAnswer,
) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, class)?;
    let fold = Fold::new(Some(0), StateKind::Frequencies, AnswerKind::Frequencies(answer));
    Ok(bound_fold(vec![data_type], DataType::Double, fold))
}

/// The result that is computed from a multiset.
#[derive(Debug, Clone)]
pub(super) enum MultisetAnswer {
    MostFrequent { count: usize, pads: bool, data_type: DataType, printer: ItemPrinter },
    TopRatio,
    Entropy,
}

/// The longest list for which the least count is found without sorting.
const SHORT_LIST_MAX: usize = 32;

impl MultisetAnswer {
    /// Returns the least number of occurrences of a value in the result; `counts` are those of all
    /// values. Finds it in one pass for a short list, and returns 0 otherwise.
    fn least_count(&self, counts: impl Iterator<Item = u64>) -> u64 {
        let Self::MostFrequent { count: wanted @ 1..=SHORT_LIST_MAX, .. } = *self else { return 0 };
        // The greatest counts so far, in descending order.
        let mut greatest = [0; SHORT_LIST_MAX];
        let greatest = &mut greatest[..wanted];
        for count in counts {
            let at = greatest.iter().position(|other| *other < count);
            if let Some(lesser) = at.map(|at| &mut greatest[at..]) {
                lesser.rotate_right(1);
                lesser[0] = count;
            }
        }
        greatest[wanted - 1]
    }
}

/// The values that a result is computed from, with their counts, and the sum of all counts.
struct ValueCounts<'k> {
    entries: Vec<(KeyRef<'k>, u64)>,
    total: u64,
}

impl ValueCounts<'_> {
    fn answer<'a>(mut self, answer: &MultisetAnswer, arena: &'a Arena) -> Datum<'a> {
        match answer {
            MultisetAnswer::MostFrequent { count, pads, data_type, printer } => {
                self.keep_most_frequent(*count);
                let mut list = printer.list(arena);
                for index in 0..if *pads { *count } else { self.entries.len() } {
                    list.push(|out| match self.entries.get(index) {
                        Some((key, _)) => printer.write(key.datum(data_type), out),
                        None => printer.write(Datum::Null, out),
                    });
                }
                list.finish()
            }
            MultisetAnswer::TopRatio => {
                let most = self.entries.iter().map(|(_, count)| *count).max();
                Datum::Double(most.map_or(0.0, |count| self.share(count)))
            }
            MultisetAnswer::Entropy if self.total == 0 => Datum::Null,
            MultisetAnswer::Entropy => Datum::Double(self.entropy()),
        }
    }

    /// Sorts the entries, more frequent first and then lesser first, and truncates them to `count`.
    fn keep_most_frequent(&mut self, count: usize) {
        let order = |left: &(KeyRef<'_>, u64), right: &(KeyRef<'_>, u64)| -> Ordering {
            right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0))
        };
        if count == 0 {
            self.entries.clear();
        } else if self.entries.len() > count {
            self.entries.select_nth_unstable_by(count - 1, order);
            self.entries.truncate(count);
        }
        self.entries.sort_unstable_by(order);
        debug_assert!(self.entries.len() <= count, "at most so many are listed");
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of rows are below 2^53")]
    fn share(&self, count: u64) -> f64 {
        debug_assert!(0 < count && count <= self.total, "a share is above 0 and at most 1");
        count as f64 / self.total as f64
    }

    fn entropy(&self) -> f64 {
        let mut sum = ExactSum::new();
        for (_, count) in &self.entries {
            let share = self.share(*count);
            sum.add(-share * libm::log2(share));
        }
        sum.to_f64()
    }
}

/// The state: a hash table of the distinct values with their counts. Does not allocate for each
/// value, nor at all when the memory of earlier frames suffices. An entry whose value was removed
/// stays with the count 0 until such entries are the most.
#[derive(Debug, Default)]
pub(super) struct Frequencies {
    hasher: DefaultHashBuilder,
    word_hash: WordHash,
    /// An open hash table with linear probing, indexed by the low bits of the hash: the position of
    /// an entry plus 1, or 0 for an empty slot. Its size is a power of two; at most half full.
    slots: Vec<u32>,
    entries: Vec<Counted>,
    /// The texts that are too long for a [`ShortText`], one after the other.
    texts: Vec<u8>,
    /// The class of all values.
    class: ValueClass,
    total: u64,
    /// The number of entries with the count 0.
    empty: usize,
    /// The counts of values of nodes, by their numbers in a dictionary, that are still to be added.
    unresolved: NumberCounts,
}

/// A value and its number of occurrences.
#[derive(Debug)]
struct Counted {
    value: StoredValue,
    hash: u64,
    count: u64,
}

/// The value of an entry.
#[derive(Debug, Clone, Copy)]
enum StoredValue {
    Fixed(i64),
    Short(ShortText),
    /// The start of the text in [`Frequencies::texts`], and its size.
    Long(usize, usize),
}

impl StoredValue {
    /// Returns the value as a word; `None` for a long text.
    fn word(&self) -> Option<u128> {
        match self {
            Self::Fixed(value) => Some(fixed(*value)),
            Self::Short(text) => Some(text.word()),
            Self::Long(..) => None,
        }
    }
}

const SLOTS_MIN: usize = 8;

// A mask of the low bits is the position in the table.
const _: () = assert!(SLOTS_MIN.is_power_of_two());
const _: () = assert!(SHORT_LIST_MAX <= TOPN_MAX);

/// The number of entries without occurrences that are always left.
const EMPTY_MIN: usize = 32;

#[inline]
fn is_fixed(stored: &StoredValue, value: i64) -> bool {
    matches!(stored, StoredValue::Fixed(stored) if *stored == value)
}

#[inline]
fn is_short(stored: &StoredValue, text: ShortText) -> bool {
    matches!(stored, StoredValue::Short(stored) if *stored == text)
}

#[inline]
fn is_long(stored: &StoredValue, texts: &[u8], text: &str) -> bool {
    match stored {
        StoredValue::Long(start, size) => texts[*start..*start + *size] == *text.as_bytes(),
        StoredValue::Fixed(_) | StoredValue::Short(_) => false,
    }
}

/// Returns the position of the entry in a slot.
#[inline]
fn position(slot: u32) -> Option<usize> {
    (slot as usize).checked_sub(1)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "keeps the low bits, as the name says")]
fn low_bits(hash: u64) -> usize {
    hash as usize
}

impl Frequencies {
    pub(super) fn add(&mut self, lane: ValueLane<'_>) {
        self.total += lane.len() as u64;
        match lane {
            ValueLane::Integers(values) => {
                self.class = ValueClass::Integer;
                values.iter().for_each(|value| self.add_fixed(*value));
            }
            ValueLane::Floats(values) => {
                self.class = ValueClass::Float;
                // One zero: adding 0.0 makes a negative one positive.
                let bits = values.iter().map(|value| TotalFloat::new(*value + 0.0).bits());
                bits.for_each(|bits| self.add_fixed(bits));
            }
            ValueLane::Texts(values) => {
                self.class = ValueClass::Text;
                values.iter().for_each(|text| self.add_text(text));
            }
            ValueLane::ShortTexts(values) => {
                self.class = ValueClass::Text;
                values.iter().for_each(|text| self.add_short(*text));
            }
            ValueLane::Rows(_) => debug_assert!(false, "frequencies are of values"),
        }
    }

    /// Adds a number of occurrences of a value.
    pub(super) fn add_key(&mut self, key: KeyRef<'_>, count: u64) {
        debug_assert!(count > 0, "a value that is added occurs");
        self.total += count;
        match key {
            KeyRef::Integer(value) => {
                self.class = ValueClass::Integer;
                self.count_fixed(value, count);
            }
            KeyRef::Float(value) => {
                self.class = ValueClass::Float;
                self.count_fixed(TotalFloat::new(value.get() + 0.0).bits(), count);
            }
            KeyRef::Text(text) => {
                self.class = ValueClass::Text;
                self.count_text(text, count);
            }
        }
    }

    /// Removes one occurrence of a value that was added.
    pub(super) fn remove_key(&mut self, key: KeyRef<'_>) {
        debug_assert!(self.total > 0, "a value that leaves was added");
        self.total -= 1;
        let found = match key {
            KeyRef::Integer(value) => self.find_fixed(value),
            KeyRef::Float(value) => self.find_fixed(TotalFloat::new(value.get() + 0.0).bits()),
            KeyRef::Text(text) => self.find_text(text),
        };
        let Ok(entry) = found else {
            debug_assert!(false, "a value that leaves was added");
            return;
        };
        let entry = &mut self.entries[entry];
        debug_assert!(entry.count > 0, "a value that leaves occurs");
        entry.count -= 1;
        self.empty += usize::from(entry.count == 0);
        if self.empty > EMPTY_MIN && self.empty * 2 > self.entries.len() {
            self.compact();
        }
    }

    /// Removes the entries with the count 0.
    #[cold]
    fn compact(&mut self) {
        let mut compacted = Self {
            hasher: self.hasher.clone(),
            word_hash: self.word_hash,
            slots: std::mem::take(&mut self.slots),
            class: self.class,
            ..Self::default()
        };
        compacted.slots.fill(0);
        self.keys().for_each(|(key, count)| compacted.add_key(key, count));
        debug_assert_eq!(compacted.total, self.total, "only values that do not occur are left out");
        *self = compacted;
    }

    /// Adds the values of another state.
    pub(super) fn merge(&mut self, other: &Self) {
        other.keys().for_each(|(key, count)| self.add_key(key, count));
    }

    /// Returns the values with their counts.
    pub(super) fn keys(&self) -> impl Iterator<Item = (KeyRef<'_>, u64)> {
        let entries = self.entries.iter().filter(|entry| entry.count > 0);
        entries.map(|entry| (self.key(entry), entry.count))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_count(out, self.distinct());
        for (key, count) in self.keys() {
            put_key(out, key);
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

    #[inline]
    fn add_fixed(&mut self, value: i64) {
        self.count_fixed(value, 1);
    }

    #[inline]
    fn count_fixed(&mut self, value: i64, count: u64) {
        let hash = self.hasher.hash_one(value);
        self.count(hash, StoredValue::Fixed(value), count, |stored, _| is_fixed(stored, value));
    }

    fn find_fixed(&mut self, value: i64) -> Result<usize, usize> {
        let hash = self.hasher.hash_one(value);
        self.find(hash, |stored, _| is_fixed(stored, value))
    }

    fn find_text(&mut self, text: &str) -> Result<usize, usize> {
        match ShortText::new(text) {
            Some(short) => {
                self.find(self.word_hash.of(short.word()), |stored, _| is_short(stored, short))
            }
            None => {
                let hash = self.hasher.hash_one(text.as_bytes());
                self.find(hash, |stored, texts| is_long(stored, texts, text))
            }
        }
    }

    fn add_text(&mut self, text: &str) {
        self.count_text(text, 1);
    }

    fn count_text(&mut self, text: &str, count: u64) {
        if let Some(short) = ShortText::new(text) {
            return self.count_short(short, count);
        }
        let hash = self.hasher.hash_one(text.as_bytes());
        let value = StoredValue::Long(self.texts.len(), text.len());
        if self.count(hash, value, count, |stored, texts| is_long(stored, texts, text)) {
            self.texts.extend_from_slice(text.as_bytes());
        }
    }

    #[inline]
    fn add_short(&mut self, text: ShortText) {
        self.count_short(text, 1);
    }

    /// Counts a short text, which is hashed as one 128-bit word.
    #[inline]
    fn count_short(&mut self, text: ShortText, count: u64) {
        let hash = self.word_hash.of(text.word());
        self.count(hash, StoredValue::Short(text), count, |stored, _| is_short(stored, text));
    }

    /// Counts a value and returns whether it has a new entry.
    #[inline]
    fn count(
        &mut self,
        hash: u64,
        value: StoredValue,
        count: u64,
        is_it: impl Fn(&StoredValue, &[u8]) -> bool,
    ) -> bool {
        match self.find(hash, is_it) {
            Ok(entry) => {
                let entry = &mut self.entries[entry];
                self.empty -= usize::from(entry.count == 0);
                entry.count += count;
                false
            }
            Err(slot) => {
                self.insert(slot, Counted { value, hash, count });
                true
            }
        }
    }

    /// Returns the position of the entry for which `is_it` is true, or the empty slot for it.
    #[inline]
    fn find(
        &mut self,
        hash: u64,
        is_it: impl Fn(&StoredValue, &[u8]) -> bool,
    ) -> Result<usize, usize> {
        if self.slots.len() <= self.entries.len() * 2 {
            self.grow();
        }
        debug_assert!(self.entries.len() * 2 < self.slots.len(), "at most half is occupied");
        let mask = self.slots.len() - 1;
        let mut slot = low_bits(hash) & mask;
        while let Some(at) = position(self.slots[slot]) {
            let entry = &self.entries[at];
            if entry.hash == hash && is_it(&entry.value, &self.texts) {
                return Ok(at);
            }
            slot = (slot + 1) & mask;
        }
        Err(slot)
    }

    #[inline]
    fn insert(&mut self, slot: usize, entry: Counted) {
        debug_assert_eq!(self.slots[slot], 0, "a new entry goes into an empty slot");
        self.entries.push(entry);
        let at = u32::try_from(self.entries.len()).expect("a frame has fewer than 2^32 rows");
        self.slots[slot] = at;
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 4).max(SLOTS_MIN);
        debug_assert!(size.is_power_of_two(), "a mask of the low bits is the position");
        self.slots.clear();
        self.slots.resize(size, 0);
        let mask = size - 1;
        for (at, entry) in (1..).zip(&self.entries) {
            let mut slot = low_bits(entry.hash) & mask;
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = at;
        }
    }

    /// Returns the number of distinct values.
    pub(super) fn distinct(&self) -> usize {
        self.entries.len() - self.empty
    }

    pub(super) fn answer<'a>(&self, answer: &MultisetAnswer, arena: &'a Arena) -> Datum<'a> {
        debug_assert!(self.unresolved.is_empty(), "what nodes have was added");
        let least = answer.least_count(self.entries.iter().map(|entry| entry.count));
        let frequent = self.entries.iter().filter(|entry| entry.count >= least.max(1));
        let entries = frequent.map(|entry| (self.key(entry), entry.count)).collect();
        ValueCounts { entries, total: self.total }.answer(answer, arena)
    }

    fn key<'k>(&'k self, entry: &'k Counted) -> KeyRef<'k> {
        match (&entry.value, self.class) {
            (StoredValue::Fixed(bits), ValueClass::Float) => {
                KeyRef::Float(TotalFloat::from_bits(*bits))
            }
            (StoredValue::Fixed(value), _) => KeyRef::Integer(*value),
            (StoredValue::Short(text), _) => KeyRef::Text(text.as_str()),
            (StoredValue::Long(start, size), _) => {
                let text = std::str::from_utf8(&self.texts[*start..*start + *size]);
                KeyRef::Text(text.expect("a text was copied as a whole"))
            }
        }
    }

    pub(super) fn reset(&mut self) {
        if self.entries.len() * 8 > self.slots.len() {
            self.slots.fill(0);
        } else {
            self.clear_taken();
        }
        debug_assert!(self.distinct() as u64 <= self.total, "each value occurs");
        self.entries.clear();
        self.texts.clear();
        (self.total, self.empty) = (0, 0);
        self.unresolved.clear();
    }

    /// Clears the slots of the entries. All slots from an entry's home slot to its own are
    /// occupied, and clearing goes on to the next empty slot, so it clears every slot of the
    /// entry's chain.
    fn clear_taken(&mut self) {
        let mask = self.slots.len().wrapping_sub(1);
        for entry in &self.entries {
            let mut slot = low_bits(entry.hash) & mask;
            while self.slots[slot] != 0 {
                self.slots[slot] = 0;
                slot = (slot + 1) & mask;
            }
        }
    }

    /// Returns the approximate number of bytes that it has allocated; a reset does not free them.
    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
            + self.entries.capacity() * size_of::<Counted>()
            + self.texts.capacity()
            + self.unresolved.heap_bytes()
    }
}

impl NumberedState for Frequencies {
    fn encode_node(&self, rows: u64, dictionary: &mut Arc<ValueDictionary>, out: &mut Vec<u8>) {
        let (mut words, mut counts) = (Vec::new(), Vec::new());
        for entry in self.entries.iter().filter(|entry| entry.count > 0) {
            words.extend(entry.value.word());
            counts.push(entry.count);
        }
        let numbers = (words.len() == counts.len())
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
        let class = self.class;
        let found = unresolved.drain(|number, count| {
            self.total.checked_add(count)?;
            class.with_key(dictionary.word(number)?, |key| self.add_key(key, count));
            Some(())
        });
        self.unresolved = unresolved;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{Frequencies, ValueLane};

    #[test]
    fn a_table_that_was_large_counts_small_frames_again() {
        let mut frequencies = Frequencies::default();
        for values in [0..50_000, 0..10, 5..3_000, 0..1, 0..0, 7..700] {
            let values: Vec<i64> = values.collect();
            for block in values.chunks(64) {
                frequencies.add(ValueLane::Integers(block));
            }
            assert_eq!(frequencies.distinct(), values.len());
            frequencies.reset();
            assert!(frequencies.slots.iter().all(|slot| *slot == 0), "no entry is left behind");
        }
    }
}
