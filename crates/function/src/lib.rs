//! The function library: every scalar and aggregate function is declared once, here.
//!
//! A declaration holds the name, the documentation, the type rule and the semantics; the registry,
//! the DataFusion functions, the row form of request mode, SHOW FUNCTIONS, the reference page and
//! the golden tests derive from it. Knows values and types, never tables.
//!
//! | module | what |
//! |---|---|
//! | [`Settings`] | what a session fixes for its functions: time zone, compatibility |
//! | [`ScalarFunction`], [`scalar`] | one value per row |
//! | [`AggregateFunction`], [`aggregate`] | one value per window frame or group |
//! | [`cast`] | CAST, and the implicit conversions |
//! | [`compatibility`] | the one table of what `SET compatibility` changes |
//! | [`entries`] | every name that can be called, for completion and reference pages |
//! | [`exact_sum`] | the correctly rounded sum of floats |
//! | [`RowExpr`] | an expression in row form: one row in, one value out, no Arrow |
//! | [`udf`] | declarations as DataFusion functions |
//! | [`value_limit`] | the longest value that a function makes |

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

pub use aggregate::{Accumulator, AggregateFunction, BoundAggregate, Feeding};
pub use entry::{Entry, entries, example_sql};
pub use nested::{InnerAggregate, NestedAggregate, OuterArguments};
pub use row_expr::{RowExpr, RowSource};
pub use scalar::{Arguments, Nulls, ScalarFunction, ScalarImplementation, SignatureError};
pub use settings::{Compatibility, Settings, TimeZone};
pub use zone::Zone;
