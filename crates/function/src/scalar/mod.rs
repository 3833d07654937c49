//! Scalar functions: one row in, one value out.
//!
//! A function is a [`ScalarFunction`] in one of the tables below ([`all`] chains them). Binding
//! calls [`ScalarFunction::resolve`] with the argument types; the [`ScalarImplementation`] has the
//! types that the arguments are cast to, the type of the result, and the row form, which computes
//! it for one row. The batch form is that row form in a loop over Arrow columns (see
//! [`crate::udf`]), so the two cannot differ.
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
pub mod feature_role;
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
mod time_part;
mod time_template;

use std::{collections::HashMap, fmt, sync::Arc, sync::LazyLock};

use lockstep_row::{Arena, DataType, Datum, Value};

pub use self::pattern::CaseSensitivity;
use crate::Settings;

/// The arguments of a call, as far as they are known when it is bound.
#[derive(Debug)]
pub struct CallArguments<'a> {
    /// Their types.
    pub types: &'a [DataType],
    /// Their values, where they are constants (`Some(Value::Null)` for NULL).
    pub constants: &'a [Option<Value>],
    /// The session's settings.
    pub settings: &'a Settings,
}

/// The handling of NULL arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullHandling {
    /// The result is NULL and the function is not called.
    Propagate,
    /// The function is called with the NULL.
    Passed,
}

/// A function that computes one row. Texts and lists that it makes are in the arena.
pub type RowForm = dyn for<'a> Fn(&[Datum<'a>], &'a Arena) -> Datum<'a> + Send + Sync;

/// A function for particular argument types.
#[derive(Clone)]
pub struct ScalarImplementation {
    /// The type that each argument is cast to before the call.
    pub parameters: Vec<DataType>,
    /// The type of the result.
    pub returns: DataType,
    /// The handling of NULL arguments.
    pub nulls: NullHandling,
    /// The row form.
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
    #[error("requires {expected}, not {found}")]
    Count {
        /// e.g. «2 or 3 arguments».
        expected: String,
        /// The number of arguments given.
        found: usize,
    },
    /// An argument has a type that the function does not take.
    #[error("argument {position} must be {expected}, not {found}")]
    Type {
        /// The position of the argument, from 1.
        position: usize,
        /// e.g. «a number».
        expected: String,
        /// The type of the argument.
        found: DataType,
    },
    /// An argument must be a constant, or a constant in some range.
    #[error("argument {position} must be {expected}")]
    Constant {
        /// The position of the argument, from 1.
        position: usize,
        /// e.g. «a constant integer that is not negative».
        expected: String,
    },
    /// The argument types cannot be combined.
    #[error("{0}")]
    Mismatch(String),
}

/// The type rule and semantics of a function.
pub type Resolve = fn(&CallArguments<'_>) -> Result<ScalarImplementation, SignatureError>;

/// A scalar function, declared once.
#[derive(Debug, Clone, Copy)]
pub struct ScalarFunction {
    /// The name, in lower case.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// The section of the function reference.
    pub category: &'static str,
    /// The signature as documented, e.g. `substring(text STRING, from INT[, length INT]) → STRING`.
    pub signature: &'static str,
    /// The documentation, with NULL and edge cases; full sentences.
    pub doc: &'static str,
    /// SQL expressions with the text of their results; each is a test.
    pub examples: &'static [(&'static str, &'static str)],
    /// The type rule and semantics.
    pub resolve: Resolve,
}

/// The functions that users call, by section.
static FUNCTIONS: [&[ScalarFunction]; 12] = [
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
    time_part::FUNCTIONS,
    feature::FUNCTIONS,
];

/// The functions that the binder emits for operators.
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

/// Returns every function that users call, in the order of the function reference.
pub fn all() -> impl Iterator<Item = &'static ScalarFunction> {
    FUNCTIONS.iter().flat_map(|table| table.iter())
}

/// Returns every operator; their names are not for users.
pub fn operators() -> impl Iterator<Item = &'static ScalarFunction> {
    OPERATORS.iter().flat_map(|table| table.iter())
}

/// Returns every name and alias of [`all`], for hints about misspelt names.
pub fn names() -> impl Iterator<Item = &'static str> {
    all()
        .flat_map(|function| std::iter::once(function.name).chain(function.aliases.iter().copied()))
}

/// Finds a function or an operator by name or alias, in any case.
pub fn find(name: &str) -> Option<&'static ScalarFunction> {
    BY_NAME.get(name.to_ascii_lowercase().as_str()).copied()
}

/// Returns the name of a function whose value is the time at which it is computed, so that batch
/// mode and a request have different values; `None` for any other function.
pub fn clock_reader(name: &str) -> Option<&'static str> {
    find(name).map(|function| function.name).filter(|name| time::CLOCK_READERS.contains(name))
}

/// Finds an operator by its reserved name, e.g. `op_add`, `op_like`, `to_bool`.
pub fn operator(name: &str) -> Option<&'static ScalarFunction> {
    operators().find(|operator| operator.name == name)
}

/// Returns whether the whole text matches a LIKE pattern with an escape character; none where `escape`
/// is empty, and where it has several, nothing matches.
///
/// *Cost*: at most the product of the lengths.
pub fn is_like(text: &str, pattern: &str, escape: &str, case: CaseSensitivity) -> bool {
    pattern::is_like(text, pattern, escape, case)
}

/// Returns whether a regular expression matches some characters of a text, of which `.` matches any;
/// `None` where it is none. Each thread keeps the last one that it compiled.
///
/// *Cost*: the product of the lengths, at most.
pub fn has_match(text: &str, pattern: &str, case: CaseSensitivity) -> Option<bool> {
    pattern::has_match(text, pattern, case)
}

/// Makes a row form from a closure that returns `None` for NULL.
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
    /// Returns an implementation whose result is NULL when an argument is.
    pub(crate) fn new<F>(parameters: Vec<DataType>, returns: DataType, compute: F) -> Self
    where
        F: for<'a> Fn(&[Datum<'a>], &'a Arena) -> Option<Datum<'a>> + Send + Sync + 'static,
    {
        Self { parameters, returns, nulls: NullHandling::Propagate, row: row_form(compute) }
    }

    /// Returns the implementation with NULL arguments passed to the function.
    #[must_use]
    pub(crate) fn passing_nulls(mut self) -> Self {
        self.nulls = NullHandling::Passed;
        self
    }
}

/// The result of [`ScalarFunction::resolve`].
pub(crate) type Resolved = Result<ScalarImplementation, SignatureError>;

#[cfg(test)]
mod tests;
