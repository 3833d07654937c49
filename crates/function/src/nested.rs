//! Aggregates over aggregates of the same frame: `count_where(id, c = last_value(c)) OVER w`.
//!
//! The inner aggregate is computed for a frame and is then a constant for each of its rows. The
//! inner aggregates slide with the frame. The outer one cannot, since the inner values differ from
//! frame to frame: its value is computed from all rows of the frame. But where its condition
//! requires expressions over the row to equal expressions over the inner values, as above, it
//! slides too: there is one outer aggregate for the rows of each key, and the inner values select
//! the key. The binder of `plan` makes these.
//!
//! *Cost*: with keys, that of the aggregates and a lookup for each row; otherwise a pass over the
//! frame for each value, and a copy of the columns of each row.

use std::{collections::VecDeque, fmt, sync::Arc};

use hashbrown::HashMap;
use lockstep_row::{Arena, DataType, Datum, Value, key::encode_key};

use crate::{Accumulator, BoundAggregate, Feeding, RowSource, row_expr::RowExpr};

/// An inner aggregate.
#[derive(Debug)]
pub struct InnerAggregate {
    /// The aggregate.
    pub bound: BoundAggregate,
    /// Its arguments, over the columns.
    pub arguments: Vec<RowExpr>,
}

/// The arguments of the outer aggregate.
#[derive(Debug)]
pub enum OuterArguments {
    /// The items of the list that the first inner aggregate returns.
    Items,
    /// Expressions over the columns followed by the values of the inner aggregates.
    Rows(Vec<RowExpr>),
    /// Expressions over the columns of the rows for which each pair of keys is equal; NULL equals
    /// nothing.
    Matching {
        /// The keys of a row, over the columns.
        row_keys: Vec<RowExpr>,
        /// The keys of a frame, over the columns, of which none is read, and the inner values.
        frame_keys: Vec<RowExpr>,
        /// The arguments of a row, over the columns.
        arguments: Vec<RowExpr>,
    },
}

/// An aggregate whose arguments contain aggregates.
#[derive(Debug)]
pub struct NestedAggregate {
    /// The types of the columns that the expressions read.
    pub columns: Vec<DataType>,
    /// The inner aggregates.
    pub inner: Vec<InnerAggregate>,
    /// The outer aggregate.
    pub outer: BoundAggregate,
    /// The arguments of the outer aggregate.
    pub arguments: OuterArguments,
}

/// The character that begins the label of a nested aggregate; the text up to the next one is the
/// call as it was written.
const LABEL: char = '\u{0}';

impl NestedAggregate {
    /// Binds it as one aggregate. Its first argument is a [`NestedAggregate::label`], which is not
    /// read; the columns follow.
    pub fn bind(self) -> BoundAggregate {
        let label = std::iter::once(DataType::String);
        let parameters = label.chain(self.columns.iter().cloned()).collect();
        let returns = self.outer.returns.clone();
        let shared = Arc::new(self);
        let make =
            move |feeding| -> Box<dyn Accumulator> { Box::new(Nested::new(&shared, feeding)) };
        BoundAggregate { parameters, returns, make: Arc::new(make), fold: None }
    }

    /// Returns the text that identifies an aggregate among others over the same columns: the call
    /// as it was written, and everything that it depends on.
    pub fn label(call: &impl fmt::Display, identity: &impl fmt::Display) -> String {
        format!("{LABEL}{call}{LABEL}{identity}")
    }

    /// Returns the call in a label, as it was written.
    pub fn call_of(label: &str) -> Option<&str> {
        label.strip_prefix(LABEL)?.split_once(LABEL).map(|(call, _)| call)
    }
}

/// The accumulator of a nested aggregate.
struct Nested {
    of: Arc<NestedAggregate>,
    feeding: Feeding,
    inner: Vec<Box<dyn Accumulator>>,
    rows: FrameRows,
}

/// The state of the rows of the frame.
enum FrameRows {
    /// None: the value depends on the inner aggregates only.
    NotNeeded,
    /// The columns of each row, in the order in which the rows were added.
    Buffered(VecDeque<Vec<Value>>),
    /// One outer aggregate for the rows of each key.
    ByKey(AggregatesByKey),
}

impl Nested {
    fn new(of: &Arc<NestedAggregate>, feeding: Feeding) -> Self {
        let rows = match &of.arguments {
            OuterArguments::Items => FrameRows::NotNeeded,
            OuterArguments::Rows(_) => FrameRows::Buffered(VecDeque::new()),
            OuterArguments::Matching { .. } => FrameRows::ByKey(AggregatesByKey::default()),
        };
        let inner = of.inner.iter().map(|inner| (inner.bound.make)(feeding)).collect();
        Self { of: Arc::clone(of), feeding, inner, rows }
    }

    /// Adds a row to the inner aggregates, or removes it.
    fn feed_inner(&mut self, row: &[Datum<'_>], change: RowChange) {
        let arena = Arena::new();
        for (inner, accumulator) in self.of.inner.iter().zip(&mut self.inner) {
            change.apply(accumulator.as_mut(), &inner.arguments, &row, &arena);
        }
    }

    /// Computes the outer aggregate of the items of a list.
    fn of_items<'a>(&self, inner: &[Datum<'_>], arena: &'a Arena) -> Datum<'a> {
        let mut outer = (self.of.outer.make)(self.feeding);
        if let Some(Datum::Array(items)) = inner.first() {
            // A list has its newest item first.
            match self.feeding {
                Feeding::NewestFirst => items.iter().for_each(|item| outer.add(&[*item])),
                Feeding::Sliding => items.iter().rev().for_each(|item| outer.add(&[*item])),
            }
        }
        outer.value(arena)
    }
}

impl Accumulator for Nested {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        let Some((_, row)) = arguments.split_first() else { return };
        self.feed_inner(row, RowChange::Add);
        match (&mut self.rows, &self.of.arguments) {
            (FrameRows::Buffered(rows), _) => {
                rows.push_back(row.iter().map(|value| value.to_value()).collect());
            }
            (FrameRows::ByKey(rows), OuterArguments::Matching { row_keys, arguments, .. }) => {
                let (outer, feeding) = (&self.of.outer, self.feeding);
                rows.add(row_keys, arguments, row, || (outer.make)(feeding));
            }
            _ => {}
        }
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        let Some((_, row)) = arguments.split_first() else { return };
        self.feed_inner(row, RowChange::Remove);
        match (&mut self.rows, &self.of.arguments) {
            (FrameRows::Buffered(rows), _) => drop(rows.pop_front()),
            (FrameRows::ByKey(rows), OuterArguments::Matching { row_keys, arguments, .. }) => {
                rows.remove(row_keys, arguments, row);
            }
            _ => {}
        }
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        let scratch = Arena::new();
        let inner: Vec<Datum<'_>> =
            self.inner.iter().map(|accumulator| accumulator.value(&scratch)).collect();
        match (&self.rows, &self.of.arguments) {
            (FrameRows::Buffered(rows), OuterArguments::Rows(arguments)) => {
                let mut outer = (self.of.outer.make)(self.feeding);
                for columns in rows {
                    let row = BufferedRow { columns, inner: &inner, arena: &scratch };
                    RowChange::Add.apply(outer.as_mut(), arguments, &row, &scratch);
                }
                outer.value(arena)
            }
            (FrameRows::ByKey(rows), OuterArguments::Matching { frame_keys, .. }) => {
                let row =
                    BufferedRow { columns: &self.no_columns(), inner: &inner, arena: &scratch };
                match rows.find(frame_keys, &row, &scratch) {
                    Some(outer) => outer.value(arena),
                    None => (self.of.outer.make)(self.feeding).value(arena),
                }
            }
            _ => self.of_items(&inner, arena),
        }
    }

    fn reset(&mut self) {
        self.inner.iter_mut().for_each(|accumulator| accumulator.reset());
        match &mut self.rows {
            FrameRows::NotNeeded => {}
            FrameRows::Buffered(rows) => rows.clear(),
            FrameRows::ByKey(rows) => rows.reset(),
        }
    }
}

impl Nested {
    fn no_columns(&self) -> Vec<Value> {
        vec![Value::Null; self.of.columns.len()]
    }
}

/// The columns of a row, followed by the values of the inner aggregates.
struct BufferedRow<'a> {
    columns: &'a [Value],
    inner: &'a [Datum<'a>],
    arena: &'a Arena,
}

impl<'a> RowSource<'a> for BufferedRow<'a> {
    fn column(&self, index: usize) -> Datum<'a> {
        match self.columns.get(index) {
            Some(value) => value.as_datum(self.arena),
            None => self.inner[index - self.columns.len()],
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum RowChange {
    Add,
    Remove,
}

/// The most arguments that are evaluated on the stack.
const STACK_ARGUMENTS: usize = 4;

impl RowChange {
    /// Evaluates arguments over a row and passes them to the accumulator.
    fn apply<'a>(
        self,
        accumulator: &mut dyn Accumulator,
        arguments: &'a [RowExpr],
        row: &dyn RowSource<'a>,
        arena: &'a Arena,
    ) {
        let mut stack = [Datum::Null; STACK_ARGUMENTS];
        let values = match stack.get_mut(..arguments.len()) {
            Some(values) => values,
            None => arena.alloc_slice_fill_copy(arguments.len(), Datum::Null),
        };
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = argument.eval(row, arena);
        }
        match self {
            Self::Add => accumulator.add(values),
            Self::Remove => accumulator.remove(values),
        }
    }
}

/// One outer aggregate for the rows of each key.
#[derive(Default)]
struct AggregatesByKey {
    found: HashMap<Box<[u8]>, KeyAggregate>,
    /// The empty aggregates of keys without rows, for reuse.
    free: Vec<Box<dyn Accumulator>>,
    key: Vec<u8>,
}

/// The outer aggregate of one key.
struct KeyAggregate {
    rows: usize,
    outer: Box<dyn Accumulator>,
}

/// The most empty aggregates that are held for reuse.
const FREE_MAX: usize = 64;

impl AggregatesByKey {
    fn add(
        &mut self,
        row_keys: &[RowExpr],
        arguments: &[RowExpr],
        row: &[Datum<'_>],
        make: impl FnOnce() -> Box<dyn Accumulator>,
    ) {
        let arena = Arena::new();
        if !encode(row_keys, &row, &arena, &mut self.key) {
            return;
        }
        let free = &mut self.free;
        let aggregate = self.found.entry_ref(self.key.as_slice()).or_insert_with(|| {
            let outer = free.pop().unwrap_or_else(make);
            KeyAggregate { rows: 0, outer }
        });
        aggregate.rows += 1;
        RowChange::Add.apply(aggregate.outer.as_mut(), arguments, &row, &arena);
    }

    fn remove(&mut self, row_keys: &[RowExpr], arguments: &[RowExpr], row: &[Datum<'_>]) {
        let arena = Arena::new();
        if !encode(row_keys, &row, &arena, &mut self.key) {
            return;
        }
        let Some(aggregate) = self.found.get_mut(self.key.as_slice()) else { return };
        debug_assert!(aggregate.rows > 0, "a key without rows has no aggregate");
        aggregate.rows -= 1;
        if aggregate.rows > 0 {
            return RowChange::Remove.apply(aggregate.outer.as_mut(), arguments, &row, &arena);
        }
        if let Some(aggregate) = self.found.remove(self.key.as_slice()) {
            self.release(aggregate);
        }
    }

    /// Resets the aggregate of a key without rows, for reuse.
    fn release(&mut self, mut aggregate: KeyAggregate) {
        debug_assert!(self.free.len() <= FREE_MAX, "few empty aggregates are held");
        if self.free.len() < FREE_MAX {
            aggregate.outer.reset();
            self.free.push(aggregate.outer);
        }
    }

    /// Returns the aggregate of the rows whose keys equal those of a frame; `None` without such
    /// rows.
    fn find<'a>(
        &self,
        frame_keys: &'a [RowExpr],
        frame: &dyn RowSource<'a>,
        arena: &'a Arena,
    ) -> Option<&dyn Accumulator> {
        let mut key = Vec::new();
        let found = encode(frame_keys, frame, arena, &mut key);
        found.then(|| self.found.get(key.as_slice()).map(|aggregate| aggregate.outer.as_ref()))?
    }

    fn reset(&mut self) {
        let found = std::mem::take(&mut self.found);
        found.into_values().for_each(|aggregate| self.release(aggregate));
    }
}

/// Encodes the values of some expressions as a key. Returns false where a value is NULL or NaN,
/// which equal nothing.
fn encode<'a>(
    exprs: &'a [RowExpr],
    row: &dyn RowSource<'a>,
    arena: &'a Arena,
    key: &mut Vec<u8>,
) -> bool {
    key.clear();
    for expr in exprs {
        let value = expr.eval(row, arena);
        if value.is_null() || value.as_f64().is_some_and(f64::is_nan) {
            return false;
        }
        encode_key([value], key);
    }
    true
}
