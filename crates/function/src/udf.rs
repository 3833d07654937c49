//! Declarations as DataFusion functions.
//!
//! A plan calls [`ScalarUdf`]s and [`AggregateUdf`]s and no other functions, so batch mode runs the
//! same definitions as request mode. The binder has cast the arguments to the parameters' types, so
//! DataFusion's own coercion changes nothing.

mod aggregate;
mod scalar;

pub use aggregate::{AggregateUdf, aggregate_call, as_aggregate};
pub use scalar::{ScalarUdf, as_scalar, scalar_call};

#[cfg(test)]
mod tests;
