//! Stub.
pub(super) static FUNCTIONS: &[super::ScalarFunction] = &[];
pub(super) static OPERATORS: &[super::ScalarFunction] = &[];
