//! Aggregates over aggregates of the same frame: `count_where(id, c = last_value(c)) OVER w`.
//!
//! The inner aggregate is computed for a frame and is then a constant for each of its rows. The
//! inner aggregates slide with the frame. The outer one cannot, since the inner values differ from
//! frame to frame: its value is computed from all rows of the frame. But where its condition
//! requires expressions over the row to equal expressions over the inner values, as above, it
//! slides too: there is one outer aggregate for the rows of each key, and the inner values select
//! the key. The binder of `plan` makes these.
//!
//! The items of a list that an inner aggregate returns are rows of their own, which the outer one
//! takes one by one: `topn_frequency(window_split(s, ','), 2)`.
//!
//! *Cost*: with keys, that of the aggregates and a lookup for each row; otherwise a pass over the
//! frame for each value, and a copy of the columns of each row.

use std::{collections::VecDeque, fmt, iter, sync::Arc};

use hashbrown::HashMap;
use lockstep_row::{Arena, DataType, Datum, Value, key::encode_key};

use crate::{
    AggregateState, BoundAggregate, RowSource, RowState, RowStateForm, RowsEnd, StateClass,
    StateForm, StateUse, row_expr::RowExpr,
};

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
    /// The items of the list that the first inner aggregate returns, then the other arguments.
    Items {
        /// The other arguments, over the columns.
        others: Vec<RowExpr>,
        /// Whether they read columns: the newest row then goes with the first item, the row before
        /// it with the second, and so on, until there are no more rows or no more items.
        has_columns: bool,
    },
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
        let label = iter::once(DataType::String);
        let parameters = label.chain(self.columns.iter().cloned()).collect();
        let returns = self.outer.returns.clone();
        let shared = Arc::new(self);
        let make = move |used| -> Box<dyn RowState> { Box::new(Nested::new(&shared, used)) };
        let class = StateClass::Rows("the outer aggregate depends on the whole frame");
        let form = RowStateForm { make: Arc::new(make), class, condition: None, pick: None };
        BoundAggregate { parameters, returns, state: StateForm::Rows(form) }
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

/// The state of a nested aggregate.
struct Nested {
    of: Arc<NestedAggregate>,
    used: StateUse,
    inner: Vec<AggregateState>,
    rows: FrameRows,
}

/// The state of the rows of the frame.
enum FrameRows {
    /// None: the value depends on the inner aggregates only.
    NotNeeded,
    /// The columns of each row, oldest first.
    Buffered(VecDeque<Vec<Value>>),
    /// One outer aggregate for the rows of each key.
    ByKey(AggregatesByKey),
}

impl Nested {
    fn new(of: &Arc<NestedAggregate>, used: StateUse) -> Self {
        let rows = match &of.arguments {
            OuterArguments::Items { has_columns: false, .. } => FrameRows::NotNeeded,
            OuterArguments::Items { .. } | OuterArguments::Rows(_) => {
                FrameRows::Buffered(VecDeque::new())
            }
            OuterArguments::Matching { .. } => FrameRows::ByKey(AggregatesByKey::default()),
        };
        let inner = of.inner.iter().map(|inner| inner.bound.new_state(used)).collect();
        Self { of: Arc::clone(of), used, inner, rows }
    }

    /// Adds a row to the inner aggregates, or removes it.
    fn update_inner(&mut self, row: &[Datum<'_>], change: RowChange) {
        let arena = Arena::new();
        for (inner, state) in self.of.inner.iter().zip(&mut self.inner) {
            change.apply(&inner.bound, state, &inner.arguments, &row, &arena);
        }
    }

    /// Computes the outer aggregate of the items of a list; `rows`: those that go with the items.
    fn of_items<'a, 's>(
        &'s self,
        rows: Option<&'s VecDeque<Vec<Value>>>,
        inner: &'s [Datum<'s>],
        scratch: &'s Arena,
        arena: &'a Arena,
    ) -> Datum<'a> {
        let outer = &self.of.outer;
        let mut state = outer.new_state(StateUse::Fold);
        let OuterArguments::Items { others, .. } = &self.of.arguments else {
            debug_assert!(false, "only items are passed one by one");
            return Datum::Null;
        };
        let Some(Datum::Array(items)) = inner.first() else { return outer.value(&state, arena) };
        let no_columns = self.no_columns();
        // A list has its newest item first.
        for (at, item) in items.iter().enumerate() {
            let columns = match rows {
                None => &no_columns,
                Some(rows) => match rows.len().checked_sub(at + 1) {
                    Some(row) => &rows[row],
                    None => break,
                },
            };
            let row = BufferedRow { columns, inner, arena: scratch };
            with_values(others, &row, scratch, |others| {
                let arguments: Vec<_> = iter::once(*item).chain(others.iter().copied()).collect();
                outer.add(&mut state, &arguments, RowsEnd::Oldest);
            });
        }
        outer.value(&state, arena)
    }

    /// Computes the outer aggregate of the frame, without keys.
    fn of_frame<'a, 's>(
        &'s self,
        inner: &'s [Datum<'s>],
        scratch: &'s Arena,
        arena: &'a Arena,
    ) -> Datum<'a> {
        match (&self.rows, &self.of.arguments) {
            (FrameRows::Buffered(rows), OuterArguments::Rows(_)) => {
                self.of_rows(rows, inner, scratch, arena)
            }
            (FrameRows::Buffered(rows), _) => self.of_items(Some(rows), inner, scratch, arena),
            _ => self.of_items(None, inner, scratch, arena),
        }
    }

    /// Computes the outer aggregate of the rows of the frame.
    fn of_rows<'a, 's>(
        &'s self,
        rows: &'s VecDeque<Vec<Value>>,
        inner: &'s [Datum<'s>],
        scratch: &'s Arena,
        arena: &'a Arena,
    ) -> Datum<'a> {
        let outer = &self.of.outer;
        let mut state = outer.new_state(StateUse::Fold);
        let OuterArguments::Rows(arguments) = &self.of.arguments else {
            debug_assert!(false, "rows are buffered for arguments over rows");
            return Datum::Null;
        };
        let add = RowChange::Add(RowsEnd::Oldest);
        for columns in rows.iter().rev() {
            let row = BufferedRow { columns, inner, arena: scratch };
            add.apply(outer, &mut state, arguments, &row, scratch);
        }
        outer.value(&state, arena)
    }
}

impl RowState for Nested {
    fn add(&mut self, arguments: &[Datum<'_>], end: RowsEnd) {
        let Some((_, row)) = arguments.split_first() else { return };
        self.update_inner(row, RowChange::Add(end));
        match (&mut self.rows, &self.of.arguments) {
            (FrameRows::Buffered(rows), _) => {
                let columns = row.iter().map(|value| value.to_value()).collect();
                match end {
                    RowsEnd::Newest => rows.push_back(columns),
                    RowsEnd::Oldest => rows.push_front(columns),
                }
            }
            (FrameRows::ByKey(rows), OuterArguments::Matching { row_keys, arguments, .. }) => {
                rows.add(KeyedRow { of: &self.of, row_keys, arguments, row }, self.used, end);
            }
            _ => {}
        }
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        let Some((_, row)) = arguments.split_first() else { return };
        self.update_inner(row, RowChange::Remove);
        match (&mut self.rows, &self.of.arguments) {
            (FrameRows::Buffered(rows), _) => drop(rows.pop_front()),
            (FrameRows::ByKey(rows), OuterArguments::Matching { row_keys, arguments, .. }) => {
                rows.remove(KeyedRow { of: &self.of, row_keys, arguments, row });
            }
            _ => {}
        }
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        let scratch = Arena::new();
        let inner = self.of.inner.iter().zip(&self.inner);
        let inner: Vec<Datum<'_>> =
            inner.map(|(inner, state)| inner.bound.value(state, &scratch)).collect();
        let outer = &self.of.outer;
        match (&self.rows, &self.of.arguments) {
            (FrameRows::ByKey(rows), OuterArguments::Matching { frame_keys, .. }) => {
                let row =
                    BufferedRow { columns: &self.no_columns(), inner: &inner, arena: &scratch };
                match rows.find(frame_keys, &row, &scratch) {
                    Some(state) => outer.value(state, arena),
                    None => outer.value(&outer.new_state(StateUse::Fold), arena),
                }
            }
            _ => self.of_frame(&inner, &scratch, arena),
        }
    }

    fn value_with<'a>(&mut self, arguments: &[Datum<'_>], arena: &'a Arena) -> Datum<'a> {
        let Some((_, row)) = arguments.split_first() else { return self.value(arena) };
        let (of, scratch) = (Arc::clone(&self.of), Arena::new());
        let mut inner = Vec::with_capacity(self.inner.len());
        for (call, state) in of.inner.iter().zip(&mut self.inner) {
            inner.push(with_values(&call.arguments, &row, &scratch, |values| {
                call.bound.value_with(state, values, &scratch)
            }));
        }
        let no_columns = self.no_columns();
        match (&mut self.rows, &of.arguments) {
            (FrameRows::Buffered(rows), _) => {
                rows.push_back(row.iter().map(|value| value.to_value()).collect());
            }
            (
                FrameRows::ByKey(rows),
                OuterArguments::Matching { frame_keys, row_keys, arguments },
            ) => {
                let frame = BufferedRow { columns: &no_columns, inner: &inner, arena: &scratch };
                let more = KeyedRow { of: &of, row_keys, arguments, row };
                return rows.value_with(more, frame_keys, &frame, arena);
            }
            _ => {}
        }
        let found = self.of_frame(&inner, &scratch, arena);
        if let FrameRows::Buffered(rows) = &mut self.rows {
            rows.pop_back();
        }
        found
    }

    fn heap_bytes(&self) -> usize {
        let inner: usize = self.inner.iter().map(AggregateState::heap_bytes).sum();
        let rows = match &self.rows {
            FrameRows::NotNeeded => 0,
            FrameRows::Buffered(rows) => rows.iter().map(buffered_bytes).sum(),
            FrameRows::ByKey(rows) => rows.heap_bytes(),
        };
        inner + rows
    }

    fn reset(&mut self) {
        self.inner.iter_mut().for_each(AggregateState::reset);
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

/// Returns the approximate number of bytes of the columns of a row.
fn buffered_bytes(columns: &Vec<Value>) -> usize {
    let texts = columns.iter().map(|value| match value {
        Value::String(text) => text.len(),
        _ => 0,
    });
    size_of_val(columns) + size_of_val(columns.as_slice()) + texts.sum::<usize>()
}

#[derive(Debug, Clone, Copy)]
enum RowChange {
    Add(RowsEnd),
    Remove,
}

/// The most arguments that are evaluated on the stack.
const STACK_ARGUMENTS: usize = 4;

impl RowChange {
    /// Evaluates arguments over a row and passes them to a state.
    fn apply<'a>(
        self,
        aggregate: &BoundAggregate,
        state: &mut AggregateState,
        arguments: &'a [RowExpr],
        row: &dyn RowSource<'a>,
        arena: &'a Arena,
    ) {
        with_values(arguments, row, arena, |values| match self {
            Self::Add(end) => aggregate.add(state, values, end),
            Self::Remove => aggregate.remove(state, values),
        });
    }
}

/// Evaluates arguments over a row for the time of a call.
fn with_values<'a, T>(
    arguments: &'a [RowExpr],
    row: &dyn RowSource<'a>,
    arena: &'a Arena,
    call: impl FnOnce(&[Datum<'a>]) -> T,
) -> T {
    let mut stack = [Datum::Null; STACK_ARGUMENTS];
    let values = match stack.get_mut(..arguments.len()) {
        Some(values) => values,
        None => arena.alloc_slice_fill_copy(arguments.len(), Datum::Null),
    };
    for (value, argument) in values.iter_mut().zip(arguments) {
        *value = argument.eval(row, arena);
    }
    call(values)
}

/// One outer aggregate for the rows of each key.
#[derive(Default)]
struct AggregatesByKey {
    found: HashMap<Box<[u8]>, KeyAggregate>,
    /// The empty states of keys without rows, for reuse.
    free: Vec<AggregateState>,
    key: Vec<u8>,
}

/// The outer aggregate of one key.
struct KeyAggregate {
    rows: usize,
    outer: AggregateState,
}

/// A row and what is read of it.
#[derive(Clone, Copy)]
struct KeyedRow<'r, 'v> {
    of: &'r NestedAggregate,
    row_keys: &'r [RowExpr],
    arguments: &'r [RowExpr],
    row: &'r [Datum<'v>],
}

/// The most empty aggregates that are held for reuse.
const FREE_MAX: usize = 64;

impl AggregatesByKey {
    fn add(&mut self, row: KeyedRow<'_, '_>, used: StateUse, end: RowsEnd) {
        let KeyedRow { of, row_keys, arguments, row } = row;
        let arena = Arena::new();
        if !encode(row_keys, &row, &arena, &mut self.key) {
            return;
        }
        let free = &mut self.free;
        let aggregate = self.found.entry_ref(self.key.as_slice()).or_insert_with(|| {
            let outer = free.pop().unwrap_or_else(|| of.outer.new_state(used));
            KeyAggregate { rows: 0, outer }
        });
        aggregate.rows += 1;
        RowChange::Add(end).apply(&of.outer, &mut aggregate.outer, arguments, &row, &arena);
    }

    fn remove(&mut self, row: KeyedRow<'_, '_>) {
        let KeyedRow { of, row_keys, arguments, row } = row;
        let arena = Arena::new();
        if !encode(row_keys, &row, &arena, &mut self.key) {
            return;
        }
        let Some(aggregate) = self.found.get_mut(self.key.as_slice()) else { return };
        debug_assert!(aggregate.rows > 0, "a key without rows has no aggregate");
        aggregate.rows -= 1;
        if aggregate.rows > 0 {
            let outer = &mut aggregate.outer;
            return RowChange::Remove.apply(&of.outer, outer, arguments, &row, &arena);
        }
        if let Some(aggregate) = self.found.remove(self.key.as_slice()) {
            self.release(aggregate);
        }
    }

    /// Returns the approximate number of bytes of the keys and their states.
    fn heap_bytes(&self) -> usize {
        let found =
            self.found.iter().map(|(key, aggregate)| key.len() + aggregate.outer.heap_bytes());
        self.found.allocation_size() + found.sum::<usize>()
    }

    /// Resets the aggregate of a key without rows, for reuse.
    fn release(&mut self, mut aggregate: KeyAggregate) {
        debug_assert!(self.free.len() <= FREE_MAX, "few empty aggregates are held");
        if self.free.len() < FREE_MAX {
            aggregate.outer.reset();
            self.free.push(aggregate.outer);
        }
    }

    /// Returns the aggregate of the rows whose keys equal those of a frame, and of one more at the newest
    /// end if its keys equal them, which is not added.
    fn value_with<'a, 's>(
        &mut self,
        more: KeyedRow<'s, 's>,
        frame_keys: &'s [RowExpr],
        frame: &BufferedRow<'s>,
        arena: &'a Arena,
    ) -> Datum<'a> {
        let KeyedRow { of, row_keys, arguments, row } = more;
        let scratch = frame.arena;
        let mut key = Vec::new();
        let is_found = encode(frame_keys, frame, scratch, &mut key);
        let counts = is_found && encode(row_keys, &row, scratch, &mut self.key) && self.key == key;
        let mut empty = None;
        let state = match self.found.get_mut(key.as_slice()).filter(|_| is_found) {
            Some(aggregate) => &mut aggregate.outer,
            None => empty.insert(of.outer.new_state(StateUse::Slide)),
        };
        if !counts {
            return of.outer.value(state, arena);
        }
        with_values(arguments, &row, scratch, |values| of.outer.value_with(state, values, arena))
    }

    /// Returns the aggregate of the rows whose keys equal those of a frame; `None` without such
    /// rows.
    fn find<'a>(
        &self,
        frame_keys: &'a [RowExpr],
        frame: &dyn RowSource<'a>,
        arena: &'a Arena,
    ) -> Option<&AggregateState> {
        let mut key = Vec::new();
        let found = encode(frame_keys, frame, arena, &mut key);
        found.then(|| self.found.get(key.as_slice()).map(|aggregate| &aggregate.outer))?
    }

    fn reset(&mut self) {
        let found = std::mem::take(&mut self.found);
        found.into_values().for_each(|aggregate| self.release(aggregate));
    }
}

/// Encodes the values of some expressions as a key. Returns false where a value is NULL, which equals
/// nothing.
fn encode<'a>(
    exprs: &'a [RowExpr],
    row: &dyn RowSource<'a>,
    arena: &'a Arena,
    key: &mut Vec<u8>,
) -> bool {
    key.clear();
    for expr in exprs {
        let value = expr.eval(row, arena);
        if value.is_null() {
            return false;
        }
        encode_key([value], key);
    }
    true
}
