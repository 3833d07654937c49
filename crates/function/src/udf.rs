//! Declarations as DataFusion functions.
//!
//! A plan calls [`ScalarUdf`]s and [`AggregateUdf`]s and nothing else, so batch mode runs the same
//! definitions as request mode. Both trust the binder: arguments have the parameters' types
//! already, and DataFusion's own coercion finds nothing to do.

mod aggregate;
mod scalar;

pub use aggregate::{AggregateUdf, aggregate_call, as_aggregate};
pub use scalar::{ScalarUdf, as_scalar, scalar_call};

#[cfg(test)]
mod tests;
