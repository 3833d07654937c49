//! Aggregates over aggregates of the same frame: `count_where(id, c = last_value(c)) OVER w`.
//!
//! The inner aggregate is computed for a frame and is then a constant for each of its rows. The
//! inner ones slide with the frame. The outer one cannot, since their values differ from frame to
//! frame: it is fed the whole frame whenever its value is asked for. But where its condition asks
//! that expressions over the row equal expressions over the inner values, as above, it slides too:
//! the rows of each value of the former have an outer aggregate of their own, and the frame asks for
//! one of them. The binder of `plan` makes these.
//!
//! *Cost*: where the rows are matched, that of the aggregates and a look-up for each row; otherwise
//! a value costs a pass over the frame, and what is fed a copy of the columns that are read.

use std::{collections::VecDeque, fmt, sync::Arc};

use hashbrown::HashMap;
use lockstep_row::{Arena, DataType, Datum, Value, key::encode_key};

use crate::{Accumulator, BoundAggregate, Feeding, RowSource, row_expr::RowExpr};

/// An inner aggregate; its arguments are over the columns.
#[derive(Debug)]
pub struct InnerAggregate {
    /// The aggregate.
    pub bound: BoundAggregate,
    /// Its arguments.
    pub arguments: Vec<RowExpr>,
}

/// What the outer aggregate is fed.
#[derive(Debug)]
pub enum OuterArguments {
    /// The items of the list that the first inner aggregate gives.
    Items,
    /// Expressions over the columns followed by the values of the inner aggregates.
    Rows(Vec<RowExpr>),
    /// The same, of the rows for which each pair of keys is equal; NULL equals nothing.
    Matching {
        /// What must be equal, of a row: over the columns.
        row_keys: Vec<RowExpr>,
        /// And of a frame: over the columns, of which none is read, and the inner values.
        frame_keys: Vec<RowExpr>,
        /// The arguments of a row: over the columns.
        arguments: Vec<RowExpr>,
    },
}

/// An aggregate whose arguments hold aggregates.
#[derive(Debug)]
pub struct NestedAggregate {
    /// The types of the columns that the expressions read.
    pub columns: Vec<DataType>,
    /// The inner aggregates.
    pub inner: Vec<InnerAggregate>,
    /// The outer aggregate.
    pub outer: BoundAggregate,
    /// Its arguments.
    pub arguments: OuterArguments,
}

/// Begins the text by which a nested aggregate is told from others: what follows, up to the next
/// one of these, is the call as it was written.
const LABEL: char = '\u{0}';

impl NestedAggregate {
    /// As an aggregate of its own. Its first argument is a [`NestedAggregate::label`], which is not
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

    /// The text that tells an aggregate from others over the same columns: the call as it was
    /// written, and all that it depends on.
    pub fn label(call: &impl fmt::Display, identity: &impl fmt::Display) -> String {
        format!("{LABEL}{call}{LABEL}{identity}")
    }

    /// The call as it was written, of a label.
    pub fn call_of(label: &str) -> Option<&str> {
        label.strip_prefix(LABEL)?.split_once(LABEL).map(|(call, _)| call)
    }
}

/// A nested aggregate at work.
struct Nested {
    of: Arc<NestedAggregate>,
    feeding: Feeding,
    inner: Vec<Box<dyn Accumulator>>,
    rows: Rows,
}

/// What is kept of the rows of the frame.
enum Rows {
    /// Nothing: the inner aggregates are all that is asked.
    Inner,
    /// Their columns, in the order in which they were fed.
    Kept(VecDeque<Vec<Value>>),
    /// An outer aggregate for those of each key.
    ByKey(ByKey),
}

impl Nested {
    fn new(of: &Arc<NestedAggregate>, feeding: Feeding) -> Self {
        let rows = match &of.arguments {
            OuterArguments::Items => Rows::Inner,
            OuterArguments::Rows(_) => Rows::Kept(VecDeque::new()),
            OuterArguments::Matching { .. } => Rows::ByKey(ByKey::default()),
        };
        let inner = of.inner.iter().map(|inner| (inner.bound.make)(feeding)).collect();
        Self { of: Arc::clone(of), feeding, inner, rows }
    }

    /// Hands a row to the inner aggregates.
    fn feed_inner(&mut self, row: &[Datum<'_>], change: Change) {
        let arena = Arena::new();
        for (inner, accumulator) in self.of.inner.iter().zip(&mut self.inner) {
            change.apply(accumulator.as_mut(), &inner.arguments, &row, &arena);
        }
    }

    /// The value of an outer aggregate that takes the items of a list.
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
        self.feed_inner(row, Change::Add);
        match (&mut self.rows, &self.of.arguments) {
            (Rows::Kept(rows), _) => {
                rows.push_back(row.iter().map(|value| value.to_value()).collect());
            }
            (Rows::ByKey(rows), OuterArguments::Matching { row_keys, arguments, .. }) => {
                rows.add((&self.of, self.feeding), row_keys, arguments, row);
            }
            _ => {}
        }
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        let Some((_, row)) = arguments.split_first() else { return };
        self.feed_inner(row, Change::Remove);
        match (&mut self.rows, &self.of.arguments) {
            (Rows::Kept(rows), _) => drop(rows.pop_front()),
            (Rows::ByKey(rows), OuterArguments::Matching { row_keys, arguments, .. }) => {
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
            (Rows::Kept(rows), OuterArguments::Rows(arguments)) => {
                let mut outer = (self.of.outer.make)(self.feeding);
                for columns in rows {
                    let row = KeptRow { columns, inner: &inner, arena: &scratch };
                    Change::Add.apply(outer.as_mut(), arguments, &row, &scratch);
                }
                outer.value(arena)
            }
            (Rows::ByKey(rows), OuterArguments::Matching { frame_keys, .. }) => {
                let row = KeptRow { columns: &self.no_columns(), inner: &inner, arena: &scratch };
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
            Rows::Inner => {}
            Rows::Kept(rows) => rows.clear(),
            Rows::ByKey(rows) => rows.reset(),
        }
    }
}

impl Nested {
    fn no_columns(&self) -> Vec<Value> {
        vec![Value::Null; self.of.columns.len()]
    }
}

/// The columns of a row, followed by the values of the inner aggregates.
struct KeptRow<'a> {
    columns: &'a [Value],
    inner: &'a [Datum<'a>],
    arena: &'a Arena,
}

impl<'a> RowSource<'a> for KeptRow<'a> {
    fn column(&self, index: usize) -> Datum<'a> {
        match self.columns.get(index) {
            Some(value) => value.as_datum(self.arena),
            None => self.inner[index - self.columns.len()],
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Add,
    Remove,
}

/// Arguments that are held on the stack.
const STACK_ARGUMENTS: usize = 4;

impl Change {
    /// Evaluates arguments over a row and hands them over.
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

/// Outer aggregates, each of the rows of one key.
#[derive(Default)]
struct ByKey {
    found: HashMap<Box<[u8]>, OfKey>,
    /// Those of keys that have no rows any more.
    free: Vec<Box<dyn Accumulator>>,
    key: Vec<u8>,
}

/// The outer aggregate of one key.
struct OfKey {
    rows: usize,
    outer: Box<dyn Accumulator>,
}

/// How many aggregates without rows are kept.
const FREE_MAX: usize = 64;

impl ByKey {
    fn add(
        &mut self,
        (of, feeding): (&NestedAggregate, Feeding),
        row_keys: &[RowExpr],
        arguments: &[RowExpr],
        row: &[Datum<'_>],
    ) {
        let arena = Arena::new();
        if !encode(row_keys, &row, &arena, &mut self.key) {
            return;
        }
        let free = &mut self.free;
        let of_key = self.found.entry_ref(self.key.as_slice()).or_insert_with(|| {
            let outer = free.pop().unwrap_or_else(|| (of.outer.make)(feeding));
            OfKey { rows: 0, outer }
        });
        of_key.rows += 1;
        Change::Add.apply(of_key.outer.as_mut(), arguments, &row, &arena);
    }

    fn remove(&mut self, row_keys: &[RowExpr], arguments: &[RowExpr], row: &[Datum<'_>]) {
        let arena = Arena::new();
        if !encode(row_keys, &row, &arena, &mut self.key) {
            return;
        }
        let Some(of_key) = self.found.get_mut(self.key.as_slice()) else { return };
        of_key.rows -= 1;
        if of_key.rows > 0 {
            return Change::Remove.apply(of_key.outer.as_mut(), arguments, &row, &arena);
        }
        if let Some(of_key) = self.found.remove(self.key.as_slice()) {
            self.keep(of_key);
        }
    }

    fn keep(&mut self, mut of_key: OfKey) {
        if self.free.len() < FREE_MAX {
            of_key.outer.reset();
            self.free.push(of_key.outer);
        }
    }

    /// The aggregate of the rows that match a frame; `None` when there is none.
    fn find<'a>(
        &self,
        frame_keys: &'a [RowExpr],
        frame: &dyn RowSource<'a>,
        arena: &'a Arena,
    ) -> Option<&dyn Accumulator> {
        let mut key = Vec::new();
        let found = encode(frame_keys, frame, arena, &mut key);
        found.then(|| self.found.get(key.as_slice()).map(|of_key| of_key.outer.as_ref()))?
    }

    fn reset(&mut self) {
        let found = std::mem::take(&mut self.found);
        found.into_values().for_each(|of_key| self.keep(of_key));
    }
}

/// Writes the values of some expressions as a key; whether there is one: NULL equals nothing, nor
/// does NaN.
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
