//! Scalar functions: one row in, one value out.
//!
//! A function is a [`ScalarFunction`] in one of the tables below ([`all`] chains them). Binding
//! calls [`ScalarFunction::resolve`] with the argument types; the answer says what the arguments
//! are cast to, what comes out, and how to compute it for one row. The batch form is that row form
//! in a loop over Arrow columns (see [`crate::udf`]), so the two cannot differ.
//!
//! Operators are scalar functions too, under names that start with `op_` ([`operator`]); the binder
//! emits them for `+`, `=`, `LIKE` and the like. Row forms allocate in the arena only, except where
//! a module says otherwise (JSON documents, patterns that are not constant).

mod arithmetic;
mod array;
mod comparison;
mod conditional;
mod conversion;
pub mod feature;
mod hash;
mod json;
mod list;
mod math;
mod pattern;
mod shared_operand;
mod signature;
mod text;
mod time;
mod time_format;

use std::{collections::HashMap, fmt, sync::Arc, sync::LazyLock};

use lockstep_row::{Arena, DataType, Datum, Value};

use crate::Settings;

/// The arguments of a call, as far as binding knows them.
#[derive(Debug)]
pub struct Arguments<'a> {
    /// Their types.
    pub types: &'a [DataType],
    /// Their values, where they are constants (`Some(Value::Null)` for NULL).
    pub constants: &'a [Option<Value>],
    /// The session's settings.
    pub settings: &'a Settings,
}

/// What happens when an argument is NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// The result is NULL and the function is not called.
    Propagate,
    /// The function sees the NULL.
    Passed,
}

/// Computes one row. Text and lists it makes live in the arena.
pub type RowForm = dyn for<'a> Fn(&[Datum<'a>], &'a Arena) -> Datum<'a> + Send + Sync;

/// A function for particular argument types.
#[derive(Clone)]
pub struct ScalarImplementation {
    /// What each argument is cast to before the call.
    pub parameters: Vec<DataType>,
    /// The type of the result.
    pub returns: DataType,
    /// What NULL does.
    pub nulls: Nulls,
    /// Computes one row.
    pub row: Arc<RowForm>,
}

impl fmt::Debug for ScalarImplementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScalarImplementation")
            .field("parameters", &self.parameters)
            .field("returns", &self.returns)
            .field("nulls", &self.nulls)
            .finish_non_exhaustive()
    }
}

/// Why a call does not bind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// No form of the function takes this number of arguments.
    #[error("takes {expected}, not {found}")]
    Count {
        /// e.g. «2 or 3 arguments».
        expected: String,
        /// How many there were.
        found: usize,
    },
    /// An argument has a type that the function does not take.
    #[error("argument {position} must be {expected}, not {found}")]
    Type {
        /// Which argument, from 1.
        position: usize,
        /// e.g. «a number».
        expected: String,
        /// What it was.
        found: DataType,
    },
    /// An argument must be a constant, or a constant in some range.
    #[error("argument {position} must be {expected}")]
    Constant {
        /// Which argument, from 1.
        position: usize,
        /// e.g. «a constant integer that is not negative».
        expected: String,
    },
    /// The argument types do not go together.
    #[error("{0}")]
    Mismatch(String),
}

/// The type rule and semantics of a function.
pub type Resolve = fn(&Arguments<'_>) -> Result<ScalarImplementation, SignatureError>;

/// A scalar function, declared once.
#[derive(Debug, Clone, Copy)]
pub struct ScalarFunction {
    /// The name, in lower case.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// The heading it stands under in the reference.
    pub category: &'static str,
    /// The signature in the reference, e.g. `substring(text STRING, from INT[, length INT]) → STRING`.
    pub signature: &'static str,
    /// What it does, NULL and edge cases included; full sentences.
    pub doc: &'static str,
    /// SQL expressions with the text of their results; each is a test.
    pub examples: &'static [(&'static str, &'static str)],
    /// The type rule and semantics.
    pub resolve: Resolve,
}

/// What users call, by heading.
static FUNCTIONS: [&[ScalarFunction]; 11] = [
    conversion::FUNCTIONS,
    conditional::FUNCTIONS,
    math::FUNCTIONS,
    hash::FUNCTIONS,
    text::FUNCTIONS,
    pattern::FUNCTIONS,
    list::FUNCTIONS,
    array::FUNCTIONS,
    json::FUNCTIONS,
    time::FUNCTIONS,
    feature::FUNCTIONS,
];

/// What the binder emits for operators.
static OPERATORS: [&[ScalarFunction]; 5] = [
    arithmetic::OPERATORS,
    comparison::OPERATORS,
    shared_operand::OPERATORS,
    pattern::OPERATORS,
    conditional::OPERATORS,
];

/// Every name and alias, in lower case.
static BY_NAME: LazyLock<HashMap<&'static str, &'static ScalarFunction>> = LazyLock::new(|| {
    let mut by_name = HashMap::new();
    for function in all().chain(operators()) {
        for name in std::iter::once(function.name).chain(function.aliases.iter().copied()) {
            let earlier = by_name.insert(name, function);
            assert!(earlier.is_none(), "the function name `{name}` is declared twice");
        }
    }
    by_name
});

/// Every function that users call, in the order of the reference.
pub fn all() -> impl Iterator<Item = &'static ScalarFunction> {
    FUNCTIONS.iter().flat_map(|table| table.iter())
}

/// Every operator; their names are not for users.
pub fn operators() -> impl Iterator<Item = &'static ScalarFunction> {
    OPERATORS.iter().flat_map(|table| table.iter())
}

/// Every name and alias of [`all`], for hints about misspelt names.
pub fn names() -> impl Iterator<Item = &'static str> {
    all()
        .flat_map(|function| std::iter::once(function.name).chain(function.aliases.iter().copied()))
}

/// Finds a function or an operator by name or alias, in any case.
pub fn find(name: &str) -> Option<&'static ScalarFunction> {
    BY_NAME.get(name.to_ascii_lowercase().as_str()).copied()
}

/// The name of the function when its value is the time at which it is computed, so that it has
/// another value in batch mode than in a request.
pub fn clock_reader(name: &str) -> Option<&'static str> {
    find(name).map(|function| function.name).filter(|name| time::CLOCK_READERS.contains(name))
}

/// Finds an operator by its reserved name, e.g. `op_add`, `op_like`, `to_bool`.
pub fn operator(name: &str) -> Option<&'static ScalarFunction> {
    operators().find(|operator| operator.name == name)
}

/// Whether a text is like a pattern, with `%` and `_` as LIKE has them and no escape.
pub fn is_like(text: &str, pattern: &str) -> bool {
    pattern::is_like(text, pattern)
}

/// Makes a row form of a closure that answers `None` for NULL.
pub(crate) fn row_form<F>(compute: F) -> Arc<RowForm>
where
    F: for<'a> Fn(&[Datum<'a>], &'a Arena) -> Option<Datum<'a>> + Send + Sync + 'static,
{
    fn constrain<F>(form: F) -> F
    where
        F: for<'a> Fn(&[Datum<'a>], &'a Arena) -> Datum<'a> + Send + Sync + 'static,
    {
        form
    }
    Arc::new(constrain(move |arguments, arena| compute(arguments, arena).unwrap_or_default()))
}

impl ScalarImplementation {
    /// An implementation whose result is NULL when an argument is.
    pub(crate) fn new<F>(parameters: Vec<DataType>, returns: DataType, compute: F) -> Self
    where
        F: for<'a> Fn(&[Datum<'a>], &'a Arena) -> Option<Datum<'a>> + Send + Sync + 'static,
    {
        Self { parameters, returns, nulls: Nulls::Propagate, row: row_form(compute) }
    }

    /// The same, but the function sees NULLs.
    #[must_use]
    pub(crate) fn passing_nulls(mut self) -> Self {
        self.nulls = Nulls::Passed;
        self
    }
}

/// What [`ScalarFunction::resolve`] answers.
pub(crate) type Resolved = Result<ScalarImplementation, SignatureError>;

#[cfg(test)]
mod tests;
