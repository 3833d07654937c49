//! Aggregate functions: one value per window frame or group.
//!
//! A function is an [`AggregateFunction`] in one of the tables below ([`all`] chains them). For
//! particular argument types and constants it is bound to a [`BoundAggregate`], which makes
//! [`Accumulator`]s. A result depends on the multiset of rows, or on their order by event time, and
//! never on the order of evaluation (promise L2); the two orders in which executors pass rows are
//! the variants of [`Feeding`].
//!
//! # Rules of all aggregates
//!
//! NULL is skipped unless a function says otherwise. Floats are ordered totally: -0.0 before 0.0,
//! and NaN, of which there is one, after everything, as in PostgreSQL. As *identities* (distinct
//! values, frequencies, categories) the two zeros are one value, and so are all NaN. A result that
//! is NaN is always the same NaN.

mod category;
mod condition;
mod distinct;
mod extreme;
pub mod fold;
mod key;
mod moment;
mod multiset;
mod path;
mod position;
mod ranked;
mod signature;
mod split;
mod total;
mod word_hash;

use std::{fmt, sync::Arc};

use lockstep_row::{Arena, DataType, Datum};

use self::fold::Fold;
use crate::{CallArguments, SignatureError};

/// The order in which rows are passed to an accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feeding {
    /// Request mode: `add` from the newest row to the oldest; `remove` is never called.
    NewestFirst,
    /// Batch mode: `add` in event order, oldest first; `remove` takes away the oldest row that was
    /// not yet removed.
    Sliding,
}

/// The running state of one aggregate: `add` updates it, `value` finalizes it.
pub trait Accumulator: Send + Sync {
    /// Adds one row, in the order of the [`Feeding`].
    fn add(&mut self, arguments: &[Datum<'_>]);
    /// Removes the oldest row, whose arguments are passed again. [`Feeding::Sliding`] only.
    fn remove(&mut self, arguments: &[Datum<'_>]);
    /// Returns the aggregate of the rows. Does not change the state.
    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a>;
    /// Removes every row, without freeing memory.
    fn reset(&mut self);
}

/// A function that makes an accumulator.
pub type MakeAccumulator = dyn Fn(Feeding) -> Box<dyn Accumulator> + Send + Sync;

/// An aggregate for particular argument types and constants.
#[derive(Clone)]
pub struct BoundAggregate {
    /// The type that each argument is cast to.
    pub parameters: Vec<DataType>,
    /// The type of the result.
    pub returns: DataType,
    /// Makes an accumulator.
    pub make: Arc<MakeAccumulator>,
    /// The same computation from blocks of values; `None` for aggregates that need each row.
    pub fold: Option<Fold>,
}

impl fmt::Debug for BoundAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundAggregate")
            .field("parameters", &self.parameters)
            .field("returns", &self.returns)
            .field("fold", &self.fold)
            .finish_non_exhaustive()
    }
}

/// The type rule and semantics of an aggregate. `count(*)` binds with no arguments.
pub type BindAggregate = fn(&CallArguments<'_>) -> Result<BoundAggregate, SignatureError>;

/// An aggregate function, declared once.
#[derive(Debug, Clone, Copy)]
pub struct AggregateFunction {
    /// The name, in lower case.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// The section of the function reference.
    pub category: &'static str,
    /// The signature as documented.
    pub signature: &'static str,
    /// The documentation, with NULL and the empty frame; full sentences.
    pub doc: &'static str,
    /// Calls with the text of their results over the rows of [`SAMPLE`]; each is a test.
    pub examples: &'static [(&'static str, &'static str)],
    /// Whether the order of the rows matters (`first_value`, `ew_avg`, …).
    pub is_ordered: bool,
    /// The type rule and semantics.
    pub bind: BindAggregate,
}

/// A small table in event order, for the examples.
#[derive(Debug, Clone)]
pub struct SampleTable {
    /// Names and types of the columns.
    pub columns: [(&'static str, DataType); 6],
    /// The cells as INSERT would take them.
    pub rows: [[&'static str; 6]; 5],
}

/// The rows that the examples of aggregates are computed over.
pub static SAMPLE: SampleTable = SampleTable {
    columns: [
        ("t", DataType::Timestamp),
        ("x", DataType::Int),
        ("y", DataType::Double),
        ("c", DataType::String),
        ("s", DataType::String),
        ("ok", DataType::Bool),
    ],
    rows: [
        ["1000", "2", "8.0", "'a'", "'k1:v1,k2:v2'", "true"],
        ["2000", "NULL", "2.0", "'b'", "'k3:v3'", "false"],
        ["3000", "4", "NULL", "'a'", "NULL", "true"],
        ["4000", "1", "0.5", "NULL", "''", "true"],
        ["5000", "4", "4.0", "'b'", "'k1:v4'", "NULL"],
    ],
};

/// Returns every aggregate function, each once.
pub fn all() -> impl Iterator<Item = &'static AggregateFunction> {
    [
        total::FUNCTIONS,
        extreme::FUNCTIONS,
        moment::FUNCTIONS,
        ranked::FUNCTIONS,
        multiset::FUNCTIONS,
        path::FUNCTIONS,
        position::FUNCTIONS,
        condition::FUNCTIONS,
        category::FUNCTIONS,
        split::FUNCTIONS,
    ]
    .into_iter()
    .flatten()
}

/// Finds a function by name or alias, in any case.
pub fn find(name: &str) -> Option<&'static AggregateFunction> {
    all().find(|function| function.names().any(|known| known.eq_ignore_ascii_case(name)))
}

impl AggregateFunction {
    /// Returns the name and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

#[cfg(test)]
mod tests;
