//! `count_cate`, `sum_cate_where` and the other functions of the family: a statistic for each
//! category, as text.
//!
//! All of them are a map from category to the state of the statistic. They differ in whether a
//! condition filters the rows, and in which categories are listed in which order.
//!
//! Categories of fixed width and short texts are words, which a table numbers; an array has the state of
//! each number. Longer texts are in a map.

use std::{any::Any, sync::Arc};

use hashbrown::HashMap;
use lockstep_row::{Arena, DataType, Datum};

use super::{
    AggregateFunction, BindAggregate, BoundAggregate, StateForm,
    dictionary::{ValueClass, ValueDictionary, form, word_of},
    encoding::{StateReader, put_count, put_key, put_unsigned},
    extreme,
    frequencies::CountedValue,
    key::KeyRef,
    signature::{
        AggregateTypeClass, BOOL, CATEGORY, NUMBER, SCALAR, bound_rows, expect, expect_count,
        expect_integer, leading,
    },
    state::{AggregateState, NumberedState, PartialState, RowState, RowsEnd, StateClass, StateUse},
    total,
    word_table::WordTable,
};
use crate::{CallArguments, SignatureError, item_text::ItemPrinter};

/// The end of the documentation of each function of the family.
macro_rules! rest {
    () => {
        " Rows in which `x` or `category` is NULL are skipped. The result is a list of \
         `category:value` pairs separated by commas, empty if there are none. With \
         `compatibility = 'openmldb'` floats have six decimals, and the list ends before it would \
         exceed 4096 bytes."
    };
}

macro_rules! family {
    ($($statistic:literal, $value:literal, $state:ident, $class:expr, $bind:expr, $results:expr;)*) => {
        &[$(
            AggregateFunction {
                name: concat!($statistic, "_cate"),
                aliases: &[],
                category: "categories",
                signature: concat!(
                    $statistic, "_cate(x ", $value, ", category) → STRING"
                ),
                doc: concat!(
                    "Returns `", $statistic, "` of `x` for each category, in ascending order of \
                     category.", rest!()
                ),
                examples: &[(concat!($statistic, "_cate(x, c)"), $results[0])],
                is_ordered: false,
                class: StateClass::$state,
                bind: |arguments| bind(arguments, (&$class, $bind), CategoryForm::All),
            },
            AggregateFunction {
                name: concat!($statistic, "_cate_where"),
                aliases: &[],
                category: "categories",
                signature: concat!(
                    $statistic, "_cate_where(x ", $value, ", condition BOOL, category) → STRING"
                ),
                doc: concat!(
                    "Returns `", $statistic, "` of `x` for each category, over the rows for which \
                     `condition` is true, in ascending order of category.", rest!()
                ),
                examples: &[(concat!($statistic, "_cate_where(x, y > 1, c)"), $results[1])],
                is_ordered: false,
                class: StateClass::$state,
                bind: |arguments| bind(arguments, (&$class, $bind), CategoryForm::Where),
            },
            AggregateFunction {
                name: concat!("top_n_key_", $statistic, "_cate_where"),
                aliases: &[],
                category: "categories",
                signature: concat!(
                    "top_n_key_", $statistic, "_cate_where(x ", $value,
                    ", condition BOOL, category, n constant integer) → STRING"
                ),
                doc: concat!(
                    "Returns `", $statistic, "_cate_where` for the `n` largest categories (all if \
                     `n` is negative), in descending order of category.",
                    rest!()
                ),
                examples: &[(concat!("top_n_key_", $statistic, "_cate_where(x, y > 1, c, 1)"), $results[2])],
                is_ordered: false,
                class: StateClass::$state,
                bind: |arguments| bind(arguments, (&$class, $bind), CategoryForm::TopKey),
            },
            AggregateFunction {
                name: concat!("top_n_value_", $statistic, "_cate_where"),
                aliases: &[],
                category: "categories",
                signature: concat!(
                    "top_n_value_", $statistic, "_cate_where(x ", $value,
                    ", condition BOOL, category, n constant integer) → STRING"
                ),
                doc: concat!(
                    "Returns `", $statistic, "_cate_where` for the `n` categories with the \
                     largest results (all if `n` is negative), in descending order of result; \
                     categories with equal results are in descending order.",
                    rest!()
                ),
                examples: &[(concat!("top_n_value_", $statistic, "_cate_where(x, y > 1, c, 1)"), $results[3])],
                is_ordered: false,
                class: StateClass::$state,
                bind: |arguments| bind(arguments, (&$class, $bind), CategoryForm::TopValue),
            },
        )*
            AggregateFunction {
                name: "top_n_key_ratio_cate",
                aliases: &[],
                category: "categories",
                signature: "top_n_key_ratio_cate(x ANY, condition BOOL, category, \
                            n constant integer) → STRING",
                doc: concat!(
                    "Returns the fraction of rows for which `condition` is true, for the `n` \
                     largest categories (all if `n` is negative), in descending order of category.",
                    rest!()
                ),
                examples: &[("top_n_key_ratio_cate(x, y > 1, c, 2)", "b:1,a:0.5")],
                is_ordered: false,
                class: StateClass::Retractable,
                bind: |arguments| bind_ratio(arguments, CategoryForm::TopKey),
            },
            AggregateFunction {
                name: "top_n_value_ratio_cate",
                aliases: &[],
                category: "categories",
                signature: "top_n_value_ratio_cate(x ANY, condition BOOL, category, \
                            n constant integer) → STRING",
                doc: concat!(
                    "Returns the fraction of rows for which `condition` is true, for the `n` \
                     categories with the largest fractions (all if `n` is negative), in descending \
                     order of fraction; categories with equal fractions are in descending order.",
                    rest!()
                ),
                examples: &[("top_n_value_ratio_cate(x, y > 1, c, 1)", "b:1")],
                is_ordered: false,
                class: StateClass::Retractable,
                bind: |arguments| bind_ratio(arguments, CategoryForm::TopValue),
            },
        ]
    };
}

pub(super) static FUNCTIONS: &[AggregateFunction] = family! {
    "count", "ANY", Retractable, SCALAR, total::bind_count, ["a:2,b:1", "a:1,b:1", "b:1", "b:1"];
    "sum", "number", Retractable, NUMBER, total::bind_sum, ["a:6,b:4", "a:2,b:4", "b:4", "b:4"];
    "avg", "number", Retractable, NUMBER, total::bind_avg, ["a:3,b:4", "a:2,b:4", "b:4", "b:4"];
    "min", "number", Mergeable, NUMBER, extreme::bind_min, ["a:2,b:4", "a:2,b:4", "b:4", "b:4"];
    "max", "number", Mergeable, NUMBER, extreme::bind_max, ["a:4,b:4", "a:2,b:4", "b:4", "b:4"];
};

/// The variant of a function: its arguments, and the categories that it lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CategoryForm {
    All,
    Where,
    TopKey,
    TopValue,
}

impl CategoryForm {
    /// Returns the position of the category, which follows the condition if there is one.
    fn category(self) -> usize {
        if self == Self::All { 1 } else { 2 }
    }

    fn argument_count(self) -> usize {
        match self {
            Self::All => 2,
            Self::Where => 3,
            Self::TopKey | Self::TopValue => 4,
        }
    }
}

fn bind(
    arguments: &CallArguments<'_>,
    (class, base): (&AggregateTypeClass, BindAggregate),
    form: CategoryForm,
) -> Result<BoundAggregate, SignatureError> {
    let count = form.argument_count();
    expect_count(arguments, count..=count)?;
    expect(arguments, 0, class)?;
    let statistic = base(&leading(arguments, 1))?;
    let filters = form != CategoryForm::All;
    bind_statistic(arguments, form, statistic, filters)
}

fn bind_ratio(
    arguments: &CallArguments<'_>,
    form: CategoryForm,
) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 4..=4)?;
    let value = expect(arguments, 0, &SCALAR)?;
    let make = |_used| Ratio { hits: 0, rows: 0 };
    let statistic = bound_rows(vec![value], DataType::Double, StateClass::Retractable, make);
    bind_statistic(arguments, form, statistic, false)
}

fn bind_statistic(
    arguments: &CallArguments<'_>,
    form: CategoryForm,
    statistic: BoundAggregate,
    filters: bool,
) -> Result<BoundAggregate, SignatureError> {
    let mut parameters = statistic.parameters.clone();
    let class = statistic.class();
    if form != CategoryForm::All {
        expect(arguments, 1, &BOOL)?;
        parameters.push(DataType::Bool);
    }
    let category_type = expect(arguments, form.category(), &CATEGORY)?;
    parameters.push(category_type.clone());
    let mut limit = usize::MAX;
    if matches!(form, CategoryForm::TopKey | CategoryForm::TopValue) {
        // A negative number lists every category.
        limit = expect_integer(arguments, 3)?
            .map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX));
        parameters.push(DataType::BigInt);
    }
    let printer = ItemPrinter::new(*arguments.settings);
    let definition = CategoryDefinition { form, filters, limit, category_type, printer, statistic };
    let definition = Arc::new(definition);
    let make = move |used| Categories {
        definition: Arc::clone(&definition),
        used,
        words: WordTable::default(),
        states: Vec::new(),
        empty: 0,
        long: HashMap::new(),
        inner_bytes: 0,
        unresolved: Vec::new(),
        class: ValueClass::default(),
        spare: None,
    };
    let mut bound = bound_rows(parameters, DataType::String, class, make);
    if let StateForm::Rows(rows) = &mut bound.state {
        rows.condition = filters.then_some(1);
    }
    Ok(bound)
}

/// A function of the family with its arguments.
struct CategoryDefinition {
    form: CategoryForm,
    /// Whether rows whose condition is not true are left out.
    filters: bool,
    limit: usize,
    category_type: DataType,
    printer: ItemPrinter,
    statistic: BoundAggregate,
}

/// The state: the state of each category.
struct Categories {
    definition: Arc<CategoryDefinition>,
    used: StateUse,
    words: WordTable,
    /// The states of the words. One all of whose rows were removed stays, without rows, until such ones
    /// are the most.
    states: Vec<CategoryState>,
    /// The number of words without rows.
    empty: usize,
    /// The states of the texts that are no words.
    long: HashMap<Box<str>, CategoryState>,
    /// The bytes that the long texts and the states of the categories have allocated.
    inner_bytes: usize,
    /// The categories of nodes, by their numbers in a dictionary, that are still to be added.
    unresolved: Vec<Option<CategoryState>>,
    /// The class of the categories.
    class: ValueClass,
    /// A state of the statistic, into which those of nodes are read.
    spare: Option<AggregateState>,
}

/// The state of one category.
struct CategoryState {
    statistic: AggregateState,
    rows: u64,
}

impl CategoryDefinition {
    /// Returns the category of a row and the arguments of the statistic, if the row counts.
    fn category_and_arguments<'a, 'b>(
        &self,
        arguments: &'b [Datum<'a>],
    ) -> Option<(KeyRef<'a>, &'b [Datum<'a>])> {
        let position = self.form.category();
        let category = KeyRef::identity(arguments[position])?;
        let counts =
            !arguments[0].is_null() && (!self.filters || arguments[1] == Datum::Bool(true));
        counts.then_some((category, &arguments[..position]))
    }

    /// Lists categories with the values of their statistic.
    fn list<'a>(
        &self,
        mut entries: Vec<(CountedValue<'_>, Datum<'a>)>,
        arena: &'a Arena,
    ) -> Datum<'a> {
        match self.form {
            CategoryForm::All | CategoryForm::Where => {
                entries.sort_unstable_by(|(left, _), (right, _)| left.order(right));
            }
            CategoryForm::TopKey => {
                entries.sort_unstable_by(|(left, _), (right, _)| right.order(left));
            }
            CategoryForm::TopValue => {
                entries.sort_unstable_by(|(left, left_value), (right, value)| {
                    let values = KeyRef::of(*value).cmp(&KeyRef::of(*left_value));
                    values.then_with(|| right.order(left))
                });
            }
        }
        let mut list = self.printer.limited_list(arena);
        for (category, value) in entries.into_iter().take(self.limit) {
            list.push(|out| {
                self.printer.write(category.key().datum(&self.category_type), out);
                out.write_char(':').expect("writing to memory does not fail");
                self.printer.write(value, out);
            });
        }
        list.finish()
    }
}

impl Categories {
    fn new_statistic(&self) -> AggregateState {
        self.definition.statistic.new_state(self.used)
    }

    /// Returns the categories that have rows, with their states.
    fn entries(&self) -> impl Iterator<Item = (CountedValue<'_>, &CategoryState)> {
        let words = self.words.words().iter().zip(&self.states);
        let words = words.filter(|(_, state)| state.rows > 0);
        let words = words.map(|(word, state)| (CountedValue::of_word(self.class, *word), state));
        words.chain(self.long.iter().map(|(text, state)| (CountedValue::Long(text), state)))
    }

    /// Returns the number of categories.
    fn count(&self) -> usize {
        self.states.len() - self.empty + self.long.len()
    }

    /// Adds the rows of another state of a category.
    fn merge_category(&mut self, key: KeyRef<'_>, theirs: &CategoryState, end: RowsEnd) {
        self.update(key, |category, _| category.merge(theirs, end));
    }

    /// Adds what a node has: categories by their keys at once, those by their numbers to be resolved.
    fn add_node(
        &mut self,
        reader: &mut StateReader<'_>,
        end: RowsEnd,
        spare: &mut AggregateState,
    ) -> Option<()> {
        let has_numbers = match reader.byte()? {
            form::VALUES => false,
            form::NUMBERS => {
                self.class = ValueClass::decode(reader)?;
                true
            }
            _ => return None,
        };
        for _ in 0..reader.count()? {
            if !has_numbers {
                let key = reader.key()?;
                let rows = read_rows(reader)?;
                let mut read = None;
                self.update(key, |category, _| {
                    read = category.merge_encoded(rows, reader, end, spare);
                });
                read?;
                continue;
            }
            let number = usize::from(u16::from_le_bytes(reader.array()?));
            if self.unresolved.len() <= number {
                self.unresolved.resize_with(number + 1, || None);
            }
            let rows = read_rows(reader)?;
            let statistic = &self.definition.statistic;
            self.unresolved[number]
                .get_or_insert_with(|| CategoryState::new(statistic, self.used))
                .merge_encoded(rows, reader, end, spare)?;
        }
        Some(())
    }

    /// Updates the state of a category, made if there is none; `update` is given the statistic, too, and
    /// leaves rows.
    #[inline]
    fn update(
        &mut self,
        category: KeyRef<'_>,
        update: impl FnOnce(&mut CategoryState, &BoundAggregate),
    ) {
        match (word_of(category), category) {
            (None, KeyRef::Text(text)) => self.update_long(text, update),
            (word, _) => {
                self.class = ValueClass::of(category);
                self.update_word(word.expect("numbers are words"), update);
            }
        }
    }

    /// Updates the state of a category that is a word, as [`Self::update`] does.
    #[inline]
    fn update_word(
        &mut self,
        word: u128,
        update: impl FnOnce(&mut CategoryState, &BoundAggregate),
    ) {
        let statistic = &self.definition.statistic;
        let number = self.words.insert(word);
        debug_assert!(number <= self.states.len(), "each word has a state");
        if number == self.states.len() {
            let made = CategoryState::new(statistic, self.used);
            self.inner_bytes += made.statistic.heap_bytes();
            self.states.push(made);
        } else {
            self.empty -= usize::from(self.states[number].rows == 0);
        }
        let state = &mut self.states[number];
        state.update(statistic, &mut self.inner_bytes, update);
    }

    fn update_long(
        &mut self,
        text: &str,
        update: impl FnOnce(&mut CategoryState, &BoundAggregate),
    ) {
        let statistic = &self.definition.statistic;
        let inner_bytes = &mut self.inner_bytes;
        let state = self.long.entry_ref(text).or_insert_with(|| {
            let made = CategoryState::new(statistic, self.used);
            *inner_bytes += text.len() + made.statistic.heap_bytes();
            made
        });
        state.update(statistic, inner_bytes, update);
    }

    /// Returns the state of a category that has rows.
    fn find_mut(&mut self, category: KeyRef<'_>) -> Option<&mut CategoryState> {
        let found = match (word_of(category), category) {
            (Some(word), _) => &mut self.states[self.words.find(word).ok()?],
            (None, KeyRef::Text(text)) => self.long.get_mut(text)?,
            (None, _) => return None,
        };
        (found.rows > 0).then_some(found)
    }

    /// Ends the removal of the last row of a category.
    fn end_removal(&mut self, category: KeyRef<'_>) {
        match (word_of(category), category) {
            (None, KeyRef::Text(text)) => {
                let removed = self.long.remove(text);
                let heap_bytes = removed.map_or(0, |state| state.statistic.heap_bytes());
                self.inner_bytes = self.inner_bytes.saturating_sub(text.len() + heap_bytes);
            }
            _ => {
                self.empty += 1;
                debug_assert!(self.empty <= self.states.len(), "a word loses its rows once");
                if self.empty > EMPTY_MIN && self.empty * 2 > self.states.len() {
                    self.compact();
                }
            }
        }
    }

    /// Removes the words without rows.
    #[cold]
    fn compact(&mut self) {
        let (words, states) = (self.words.words().to_vec(), std::mem::take(&mut self.states));
        self.words.reset();
        for (word, state) in words.into_iter().zip(states) {
            if state.rows > 0 {
                self.words.insert(word);
                self.states.push(state);
            } else {
                let heap_bytes = state.statistic.heap_bytes();
                self.inner_bytes = self.inner_bytes.saturating_sub(heap_bytes);
            }
        }
        self.empty = 0;
        debug_assert_eq!(self.words.len(), self.states.len(), "each word has a state");
    }
}

/// The number of words without rows that are always left.
const EMPTY_MIN: usize = 32;

impl CategoryState {
    fn new(statistic: &BoundAggregate, used: StateUse) -> Self {
        Self { statistic: statistic.new_state(used), rows: 0 }
    }

    /// Updates the state, and the bytes that all of them have allocated.
    #[inline]
    fn update(
        &mut self,
        statistic: &BoundAggregate,
        inner_bytes: &mut usize,
        update: impl FnOnce(&mut Self, &BoundAggregate),
    ) {
        let before = self.statistic.heap_bytes();
        update(self, statistic);
        debug_assert!(self.rows > 0, "an update leaves rows");
        *inner_bytes = (*inner_bytes + self.statistic.heap_bytes()).saturating_sub(before);
    }

    /// Adds the rows of another state.
    fn merge(&mut self, theirs: &Self, end: RowsEnd) {
        debug_assert!(theirs.rows > 0, "a category has rows");
        self.rows += theirs.rows;
        let is_merged = self.statistic.merge(&theirs.statistic, end);
        debug_assert!(is_merged, "every statistic is merged");
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_unsigned(out, self.rows.into());
        let is_encoded = self.statistic.encode(out);
        debug_assert!(is_encoded, "every statistic is encoded");
    }

    /// Adds the rows of what `encode` wrote, of which these are so many.
    fn merge_encoded(
        &mut self,
        rows: u64,
        reader: &mut StateReader<'_>,
        end: RowsEnd,
        spare: &mut AggregateState,
    ) -> Option<()> {
        self.rows = self.rows.checked_add(rows)?;
        self.statistic.merge_encoded(reader, end, spare)
    }
}

/// Reads how many rows of a category were encoded, which are some.
fn read_rows(reader: &mut StateReader<'_>) -> Option<u64> {
    reader.rows().filter(|rows| *rows > 0)
}

impl RowState for Categories {
    fn add(&mut self, arguments: &[Datum<'_>], end: RowsEnd) {
        let Some((category, seen)) = self.definition.category_and_arguments(arguments) else {
            return;
        };
        self.update(category, |category, statistic| {
            category.rows += 1;
            statistic.add(&mut category.statistic, seen, end);
        });
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        let definition = Arc::clone(&self.definition);
        let Some((category, seen)) = definition.category_and_arguments(arguments) else { return };
        let state = self.find_mut(category).expect("a row that leaves was added");
        state.rows -= 1;
        definition.statistic.remove(&mut state.statistic, seen);
        if state.rows == 0 {
            self.end_removal(category);
        }
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        let statistic = &self.definition.statistic;
        let entries = self
            .entries()
            .map(|(category, state)| (category, statistic.value(&state.statistic, arena)));
        self.definition.list(entries.collect(), arena)
    }

    fn value_with<'a>(&mut self, arguments: &[Datum<'_>], arena: &'a Arena) -> Datum<'a> {
        let definition = Arc::clone(&self.definition);
        let Some((category, seen)) = definition.category_and_arguments(arguments) else {
            return self.value(arena);
        };
        let value = match self.find_mut(category) {
            Some(state) => definition.statistic.value_with(&mut state.statistic, seen, arena),
            None => definition.statistic.value_with(&mut self.new_statistic(), seen, arena),
        };
        let others = self.entries().filter(|(other, _)| other.key() != category);
        let others = others
            .map(|(other, state)| (other, definition.statistic.value(&state.statistic, arena)));
        let own = (CountedValue::of_key(category), value);
        definition.list(others.chain([own]).collect(), arena)
    }

    fn heap_bytes(&self) -> usize {
        let unresolved = self.unresolved.capacity() * size_of::<Option<CategoryState>>();
        let states = self.states.capacity() * size_of::<CategoryState>();
        let tables = self.words.heap_bytes() + self.long.allocation_size();
        tables + states + self.inner_bytes + unresolved
    }

    fn reset(&mut self) {
        self.words.reset();
        self.states.clear();
        self.long.clear();
        (self.empty, self.inner_bytes) = (0, 0);
        self.unresolved.clear();
    }

    fn as_partial(&self) -> Option<&dyn PartialState> {
        Some(self)
    }

    fn as_partial_mut(&mut self) -> Option<&mut dyn PartialState> {
        Some(self)
    }
}

impl PartialState for Categories {
    fn merge(&mut self, other: &dyn Any, end: RowsEnd) {
        let Some(other) = other.downcast_ref::<Self>() else {
            debug_assert!(false, "states of one aggregate are merged");
            return;
        };
        for (category, theirs) in other.entries() {
            self.merge_category(category.key(), theirs, end);
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_count(out, self.count());
        for (category, state) in self.entries() {
            put_key(out, category.key());
            state.encode(out);
        }
    }

    fn decode(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        for _ in 0..reader.count()? {
            let key = reader.key()?;
            let rows = read_rows(reader)?;
            let mut decoded = None;
            self.update(key, |category, _| {
                category.rows = rows;
                decoded = category.statistic.decode(reader);
            });
            decoded?;
        }
        Some(())
    }

    fn as_numbered(&self) -> Option<&dyn NumberedState> {
        Some(self)
    }

    fn as_numbered_mut(&mut self) -> Option<&mut dyn NumberedState> {
        Some(self)
    }
}

impl NumberedState for Categories {
    fn encode_node(&self, rows: u64, dictionary: &mut Arc<ValueDictionary>, out: &mut Vec<u8>) {
        debug_assert_eq!(self.empty, 0, "no row is removed from what nodes are made of");
        let words = self.words.words().iter().copied();
        let numbers =
            self.long.is_empty().then(|| ValueDictionary::numbers(dictionary, words, rows));
        let Some(numbers) = numbers.flatten() else {
            out.push(form::VALUES);
            return self.encode(out);
        };
        out.push(form::NUMBERS);
        debug_assert_eq!(numbers.len(), self.states.len(), "each word has a number");
        self.class.encode(out);
        put_count(out, numbers.len());
        for (number, state) in numbers.iter().zip(&self.states) {
            out.extend(number.to_le_bytes());
            state.encode(out);
        }
    }

    fn merge_node(&mut self, reader: &mut StateReader<'_>, end: RowsEnd) -> Option<()> {
        let mut spare = self.spare.take().unwrap_or_else(|| self.new_statistic());
        let read = self.add_node(reader, end, &mut spare);
        self.spare = Some(spare);
        read
    }

    fn resolve(&mut self, dictionary: &ValueDictionary, end: RowsEnd) -> Option<()> {
        let mut unresolved = std::mem::take(&mut self.unresolved);
        for (number, theirs) in unresolved.iter().enumerate() {
            let Some(theirs) = theirs else { continue };
            let word = dictionary.word(number)?;
            self.update_word(word, |category, _| category.merge(theirs, end));
        }
        unresolved.clear();
        self.unresolved = unresolved;
        Some(())
    }
}

/// The share of rows whose condition, the second argument, is true.
#[derive(Debug)]
struct Ratio {
    hits: u32,
    rows: u32,
}

impl RowState for Ratio {
    fn add(&mut self, arguments: &[Datum<'_>], _end: RowsEnd) {
        self.rows += 1;
        self.hits += u32::from(arguments[1] == Datum::Bool(true));
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        debug_assert!(self.rows > 0, "a row that leaves was added");
        self.rows -= 1;
        self.hits -= u32::from(arguments[1] == Datum::Bool(true));
        debug_assert!(self.hits <= self.rows, "each hit is a row");
    }

    fn value<'a>(&self, _arena: &'a Arena) -> Datum<'a> {
        debug_assert!(self.rows > 0, "a category has rows");
        Datum::Double(f64::from(self.hits) / f64::from(self.rows))
    }

    fn value_with<'a>(&mut self, arguments: &[Datum<'_>], arena: &'a Arena) -> Datum<'a> {
        self.add(arguments, RowsEnd::Newest);
        let found = self.value(arena);
        self.remove(arguments);
        found
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn reset(&mut self) {
        (self.hits, self.rows) = (0, 0);
    }

    fn as_partial(&self) -> Option<&dyn PartialState> {
        Some(self)
    }

    fn as_partial_mut(&mut self) -> Option<&mut dyn PartialState> {
        Some(self)
    }
}

impl PartialState for Ratio {
    fn merge(&mut self, other: &dyn Any, _end: RowsEnd) {
        let Some(other) = other.downcast_ref::<Self>() else {
            debug_assert!(false, "states of one aggregate are merged");
            return;
        };
        self.rows += other.rows;
        self.hits += other.hits;
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_unsigned(out, self.rows.into());
        put_unsigned(out, self.hits.into());
    }

    fn decode(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        self.rows = reader.rows()?.try_into().ok()?;
        self.hits = reader.rows()?.try_into().ok()?;
        (self.hits <= self.rows).then_some(())
    }
}
