//! Aggregate functions: one value per window frame or group.
//!
//! A function is an [`AggregateFunction`] in one of the tables below ([`all`] chains them). For
//! particular argument types and constants it is bound to a [`BoundAggregate`], which makes and
//! updates an [`AggregateState`]. A result depends on the multiset of rows, or on their order by
//! event time, and never on the order of evaluation (promise L2); [`state`] says how.
//!
//! # Rules of all aggregates
//!
//! NULL is skipped unless a function says otherwise. Floats are ordered totally: -0.0 before 0.0,
//! and NaN, of which there is one, after everything, as in PostgreSQL. As *identities* (distinct
//! values, frequencies, categories) the two zeros are one value, and so are all NaN. A result that
//! is NaN is always the same NaN.

mod category;
mod condition;
mod dictionary;
mod distinct;
mod drawdown;
mod encoding;
mod extreme;
mod frequencies;
pub(crate) mod groups;
mod key;
mod long_texts;
mod moment;
mod multiset;
mod position;
mod ranked;
mod signature;
mod split;
pub mod state;
mod total;
mod weighted_mean;
mod word_hash;
mod word_table;

use std::{fmt, sync::Arc};

use lockstep_row::{Arena, DataType, Datum};

pub(crate) use self::encoding::{put_count, put_signed, put_unsigned};
use self::state::{AggregateState, Fold, RowState, RowsEnd, StateClass, StateData, StateUse};
pub use self::{
    dictionary::ValueDictionary,
    encoding::{StateReader, put_value},
    position::copy_scalar,
};
use crate::{CallArguments, SignatureError};

/// A function that makes the state of an aggregate that needs whole rows.
pub type MakeRowState = dyn Fn(StateUse) -> Box<dyn RowState> + Send + Sync;

/// An aggregate for particular argument types and constants.
#[derive(Debug, Clone)]
pub struct BoundAggregate {
    /// The type that each argument is cast to.
    pub parameters: Vec<DataType>,
    /// The type of the result.
    pub returns: DataType,
    /// How it is computed.
    pub state: StateForm,
}

/// How an aggregate is computed.
#[derive(Debug, Clone)]
pub enum StateForm {
    /// From one value of each row that counts.
    Fold(Fold),
    /// From all arguments of each row.
    Rows(RowStateForm),
}

/// How an aggregate that needs whole rows is computed.
#[derive(Clone)]
pub struct RowStateForm {
    /// Makes a state.
    pub make: Arc<MakeRowState>,
    /// What its states can do.
    pub class: StateClass,
    /// The argument that is true in every row that counts, if there is one: other rows change no state.
    pub condition: Option<usize>,
    /// The row whose first argument is the result, if that is all.
    pub pick: Option<PickedRow>,
}

/// A row by its position among all rows of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PickedRow {
    /// The row with this distance from the newest, which is 0.
    FromNewest(usize),
    /// The oldest row.
    Oldest,
}

impl fmt::Debug for RowStateForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut form = f.debug_struct("RowStateForm");
        form.field("class", &self.class).field("pick", &self.pick).finish_non_exhaustive()
    }
}

impl BoundAggregate {
    /// Makes a state without rows.
    pub fn new_state(&self, used: StateUse) -> AggregateState {
        match &self.state {
            StateForm::Fold(fold) => AggregateState::new(fold.state, used),
            StateForm::Rows(form) => AggregateState(StateData::Rows((form.make)(used))),
        }
    }

    /// Returns what its states can do.
    pub fn class(&self) -> StateClass {
        match &self.state {
            StateForm::Fold(fold) => fold.state.class(),
            StateForm::Rows(form) => form.class,
        }
    }

    /// Returns the condition on the rows that count, if it is a fold with one.
    pub fn condition(&self) -> Option<state::RowCondition> {
        match &self.state {
            StateForm::Fold(fold) => fold.condition,
            StateForm::Rows(_) => None,
        }
    }

    /// Adds one row at an end.
    #[inline]
    pub fn add(&self, state: &mut AggregateState, arguments: &[Datum<'_>], end: RowsEnd) {
        match (&self.state, &mut state.0) {
            (StateForm::Fold(fold), _) => {
                if let Some(value) = fold.counted(arguments) {
                    state.add_value(value, end);
                }
            }
            (StateForm::Rows(_), StateData::Rows(rows)) => rows.add(arguments, end),
            (StateForm::Rows(_), _) => debug_assert!(false, "the state is of this aggregate"),
        }
    }

    /// Removes the oldest row, whose arguments are passed again. [`StateUse::Slide`] only.
    #[inline]
    pub fn remove(&self, state: &mut AggregateState, arguments: &[Datum<'_>]) {
        match (&self.state, &mut state.0) {
            (StateForm::Fold(fold), _) => {
                if let Some(value) = fold.counted(arguments) {
                    state.remove_value(value);
                }
            }
            (StateForm::Rows(_), StateData::Rows(rows)) => rows.remove(arguments),
            (StateForm::Rows(_), _) => debug_assert!(false, "the state is of this aggregate"),
        }
    }

    /// Returns the aggregate of the rows of a state and of one more at the newest end, which is not added.
    /// [`StateUse::Slide`] only.
    #[inline]
    pub fn value_with<'a>(
        &self,
        state: &mut AggregateState,
        arguments: &[Datum<'_>],
        arena: &'a Arena,
    ) -> Datum<'a> {
        match (&self.state, &mut state.0) {
            (StateForm::Fold(fold), _) => match fold.counted(arguments) {
                Some(value) => state.answer_with(&fold.answer, value, arena),
                None => state.answer(&fold.answer, arena),
            },
            (StateForm::Rows(_), StateData::Rows(rows)) => rows.value_with(arguments, arena),
            (StateForm::Rows(_), _) => {
                debug_assert!(false, "the state is of this aggregate");
                Datum::Null
            }
        }
    }

    /// Returns the aggregate of the rows of a state.
    pub fn value<'a>(&self, state: &AggregateState, arena: &'a Arena) -> Datum<'a> {
        match (&self.state, &state.0) {
            (StateForm::Fold(fold), _) => state.answer(&fold.answer, arena),
            (StateForm::Rows(_), StateData::Rows(rows)) => rows.value(arena),
            (StateForm::Rows(_), _) => {
                debug_assert!(false, "the state is of this aggregate");
                Datum::Null
            }
        }
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
    /// What its states can do: whether partial results are merged.
    pub class: StateClass,
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
        weighted_mean::FUNCTIONS,
        drawdown::FUNCTIONS,
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
