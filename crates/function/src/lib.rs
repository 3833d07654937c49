//! The function library: every scalar and aggregate function is declared once, here.
//!
//! A declaration has the name, the documentation, the type rule and the semantics; the registry,
//! the DataFusion functions, the row form of request mode, SHOW FUNCTIONS, `docs/reference` and
//! the golden tests are derived from it. Knows values and types, never tables.
//!
//! | module | what |
//! |---|---|
//! | [`Settings`] | the session settings that functions depend on: time zone, compatibility |
//! | [`ScalarFunction`], [`scalar`] | one value per row |
//! | [`AggregateFunction`], [`aggregate`] | one value per window frame or group |
//! | [`cast`] | CAST, and the implicit conversions |
//! | [`compatibility`] | the list of everything that `SET compatibility` changes |
//! | [`entries`] | every function name, for completion and documentation |
//! | [`exact_sum`] | the correctly rounded sum of floats |
//! | [`RowExpr`] | an expression compiled for single rows, without Arrow |
//! | [`udf`] | declarations as DataFusion functions |
//! | [`value_limit`] | the limits of the size of a function's result |

pub mod aggregate;
pub mod cast;
pub mod compatibility;
mod entry;
pub mod exact_sum;
mod item_text;
mod nested;
mod row_expr;
pub mod scalar;
mod settings;
#[cfg(test)]
mod testing;
pub mod udf;
pub mod value_limit;
mod zone;

pub use aggregate::{
    AggregateFunction, BoundAggregate, PickedRow, RowStateForm, StateForm,
    state::{AggregateState, RowState, RowsEnd, StateClass, StateUse},
};
pub use entry::{FunctionEntry, entries, example_sql};
pub use nested::{InnerAggregate, NestedAggregate, OuterArguments};
pub use row_expr::{RowExpr, RowSource};
pub use scalar::{
    CallArguments, NullHandling, ScalarFunction, ScalarImplementation, SignatureError,
};
pub use settings::{Compatibility, Settings, TimeZone};
pub use zone::Zone;
