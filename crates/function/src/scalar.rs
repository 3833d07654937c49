//! Scalar functions: one row in, one value out.
//!
//! A function is a [`ScalarFunction`] in one of the tables below ([`all`] chains them). Binding
//! calls [`ScalarFunction::resolve`] with the argument types; the answer says what the arguments
//! are cast to, what comes out, and how to compute it for one row. The batch form is that row form
//! in a loop over Arrow columns (see [`crate::udf`]), so the two cannot differ.

use std::{fmt, sync::Arc};

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

/// Finds a function by name or alias, in any case.
pub fn find(name: &str) -> Option<&'static ScalarFunction> {
    let _ = name;
    None
}
