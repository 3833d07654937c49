//! Expressions without columns, such as the values of an INSERT: evaluated as a query without a
//! table, so that they mean what they mean everywhere.

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_offline::ExecuteOptions;
use lockstep_row::{Arena, Value, arrow::ColumnReader};
use lockstep_sql::ast::{Expr, Query, Select, SelectItem, SetExpr};

use crate::{Parameter, Session, database::Tables};

/// The value of an expression; an error when it names a column.
pub(crate) fn evaluate(session: &Session, expr: &Expr, parameters: &[Parameter]) -> Result<Value> {
    let bound = session.bind_with(&query_of(expr), parameters)?;
    let none = Tables::default();
    let batches = lockstep_offline::execute(&bound.plan, &none, &ExecuteOptions::default())?;
    let column = batches.first().and_then(|batch| batch.columns().first());
    let Some(column) = column.filter(|column| column.len() == 1) else {
        return Diagnostic::internal("a query of a constant has one value").err();
    };
    let arena = Arena::new();
    Ok(ColumnReader::new(column.as_ref()).get(0, &arena).to_value())
}

/// `SELECT expr`.
fn query_of(expr: &Expr) -> Query {
    let select = Select {
        distinct: false,
        items: vec![SelectItem::Expr { expr: expr.clone(), alias: None }],
        from: None,
        filter: None,
        group_by: Vec::new(),
        having: None,
        windows: Vec::new(),
        span: expr.span,
    };
    Query {
        with: Vec::new(),
        body: SetExpr::Select(Box::new(select)),
        order_by: Vec::new(),
        limit: None,
        into_outfile: None,
        config: Vec::new(),
        span: expr.span,
    }
}
