//! Evaluates expressions without columns, such as the values of an INSERT or of CONFIG, as a query
//! without a table, so that an expression has one meaning everywhere.

use arrow::array::RecordBatch;
use lockstep_batch::ExecuteOptions;
use lockstep_diagnostic::{Diagnostic, Result, Span};
use lockstep_row::{Arena, Value, arrow::ColumnReader};
use lockstep_sql::ast::{Expr, Query, SelectItem};

use crate::{Parameter, Session, database::TableSet};

/// Returns the value of an expression; an error when it names a column.
pub(crate) fn evaluate(session: &Session, expr: &Expr, parameters: &[Parameter]) -> Result<Value> {
    let item = SelectItem::Expr { expr: expr.clone(), alias: None };
    let row = evaluate_row(session, vec![item], parameters, expr.span)?;
    let arena = Arena::new();
    Ok(ColumnReader::new(row.column(0).as_ref()).get(0, &arena).to_value())
}

/// Returns the values of several expressions, as one row.
pub(crate) fn evaluate_row(
    session: &Session,
    items: Vec<SelectItem>,
    parameters: &[Parameter],
    span: Span,
) -> Result<RecordBatch> {
    let bound = session.bind_with(&Query::of_items(items, None, span), parameters)?;
    let no_tables = TableSet::default();
    let batches = lockstep_batch::execute(&bound.plan, &no_tables, &ExecuteOptions::default())?;
    match batches.into_iter().next() {
        Some(row) if row.num_rows() == 1 => Ok(row),
        _ => Diagnostic::internal("a query of constants has one row").err(),
    }
}
