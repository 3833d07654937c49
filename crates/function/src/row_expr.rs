//! An expression in row form: one row in, one value out, no Arrow.

use lockstep_row::Datum;

/// Where the columns of one row come from.
pub trait RowSource<'a> {
    /// The value of a column of the schema the expression was compiled for.
    fn column(&self, index: usize) -> Datum<'a>;
}

/// A compiled expression.
#[derive(Debug)]
pub struct RowExpr {}
