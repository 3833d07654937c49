//! `SELECT … CONFIG(execute_mode = 'request', values = …)`: a query with its request rows in it.
//!
//! The values are constant expressions, one tuple or a list of tuples, and are cast to the types of
//! the request table's columns. Everything else in CONFIG is for other engines, and a warning says so.

use arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_plan::BoundQuery;
use lockstep_row::{Column, DataType};
use lockstep_sql::ast::{
    Expr, ExprKind, Ident, Literal, OptionItem, OptionValue, Query, SelectItem, TypeName,
};

use crate::{
    Session, constant,
    settings::{Storage, no_effect},
    table_options::ignored,
};

/// The keys of CONFIG that mean something.
const KNOWN: &[&str] = &["execute_mode", "values"];

/// What `execute_mode` of a query's CONFIG says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Batch(Storage),
    Request,
}

/// The data that a query reads, where its CONFIG says so.
pub(crate) fn storage(query: &Query) -> Result<Option<Storage>> {
    Ok(match mode(&query.config)? {
        Some(Mode::Batch(storage)) => Some(storage),
        Some(Mode::Request) | None => None,
    })
}

/// What the CONFIG of a query says in vain.
pub(crate) fn warnings(query: &Query) -> Vec<Diagnostic> {
    let is_request = matches!(mode(&query.config), Ok(Some(Mode::Request)));
    let warning = |item: &OptionItem| match item.key.text.as_str() {
        "values" if !is_request => Some(
            no_effect("`values` of CONFIG", item.key.span)
                .with_hint("Rows are answered with execute_mode = 'request'."),
        ),
        name if KNOWN.contains(&name) => None,
        _ => Some(ignored(item, KNOWN)),
    };
    query.config.iter().filter_map(warning).collect()
}

/// The request rows of a query, each a batch of one row; `None` when it runs in batch mode.
pub(crate) fn request_rows(
    session: &Session,
    query: &Query,
    bound: &BoundQuery,
) -> Result<Option<Vec<RecordBatch>>> {
    let find = |key: &str| query.config.iter().find(|item| item.key.text == key);
    if mode(&query.config)? != Some(Mode::Request) {
        return Ok(None);
    }
    let mode = find("execute_mode").expect("it was read");
    let Some(values) = find("values") else {
        return Diagnostic::new(code::INVALID_PARAMETER, "request mode needs `values`")
            .at(mode.span)
            .with_hint("Write values = (…), with one value for each column of the first table.")
            .err();
    };
    let columns = bound.request_table.as_ref().map_or(&[][..], |table| &table.schema.columns);
    let rows = rows(&values.value, columns.len());
    if rows.is_empty() {
        return Diagnostic::new(code::INVALID_PARAMETER, "`values` has no request row")
            .at(values.span)
            .err();
    }
    let rows = rows.into_iter().map(|row| evaluate(session, &row, columns, values.span));
    rows.collect::<Result<Vec<_>>>().map(Some)
}

fn mode(config: &[OptionItem]) -> Result<Option<Mode>> {
    let Some(mode) = config.iter().find(|item| item.key.text == "execute_mode") else {
        return Ok(None);
    };
    let name = match &mode.value {
        OptionValue::Literal(Literal::String(name)) | OptionValue::Word(name) => name.as_str(),
        _ => "",
    };
    match name.to_ascii_lowercase().as_str() {
        "request" => Ok(Some(Mode::Request)),
        "online" => Ok(Some(Mode::Batch(Storage::Online))),
        "offline" => Ok(Some(Mode::Batch(Storage::Offline))),
        _ => Diagnostic::new(
            code::INVALID_PARAMETER,
            "execute_mode is 'online', 'offline' or 'request'",
        )
        .at(mode.span)
        .err(),
    }
}

/// One tuple, a list of tuples; for a table of one column also a value or a list of values.
fn rows(values: &OptionValue, width: usize) -> Vec<Vec<OptionValue>> {
    let OptionValue::List(items) = values else { return vec![vec![values.clone()]] };
    let is_tuple = |item: &OptionValue| matches!(item, OptionValue::List(_));
    if !items.is_empty() && items.iter().all(is_tuple) {
        return items.iter().flat_map(|item| rows(item, width)).collect();
    }
    match width {
        1 => items.iter().map(|item| vec![item.clone()]).collect(),
        _ if items.is_empty() => Vec::new(),
        _ => vec![items.clone()],
    }
}

/// Evaluates a row of constants, as a query without a table.
fn evaluate(
    session: &Session,
    row: &[OptionValue],
    columns: &[Column],
    span: Span,
) -> Result<RecordBatch> {
    if row.len() != columns.len() {
        let (expected, found) = (columns.len(), row.len());
        let message =
            format!("`values` has {found} values for the {expected} columns of the first table");
        return Diagnostic::new(code::INVALID_PARAMETER, message).at(span).err();
    }
    let items = row.iter().zip(columns).map(|(value, column)| {
        let operand = Box::new(expression(value, span)?);
        let to = type_name(&column.data_type, span);
        let expr = Expr { kind: ExprKind::Cast { operand, to }, span };
        Ok(SelectItem::Expr { expr, alias: Some(Ident { text: column.name.clone(), span }) })
    });
    constant::evaluate_row(session, items.collect::<Result<_>>()?, &[], span)
}

/// A type as it is written.
fn type_name(data_type: &DataType, span: Span) -> TypeName {
    let (text, arguments) = match data_type {
        DataType::Array(item) => ("ARRAY".to_owned(), vec![type_name(item, span)]),
        DataType::Map(key, value) => {
            ("MAP".to_owned(), vec![type_name(key, span), type_name(value, span)])
        }
        other => (other.to_string(), Vec::new()),
    };
    TypeName { name: Ident { text, span }, arguments }
}

fn expression(value: &OptionValue, span: Span) -> Result<Expr> {
    match value {
        OptionValue::Literal(value) => Ok(Expr { kind: ExprKind::Literal(value.clone()), span }),
        OptionValue::Expr(expr) => Ok(expr.as_ref().clone()),
        OptionValue::Word(word) => {
            let message = format!("`{word}` is not a constant");
            Diagnostic::new(code::INVALID_PARAMETER, message).at(span).err()
        }
        OptionValue::List(_) => {
            Diagnostic::new(code::INVALID_PARAMETER, "a value cannot be a list").at(span).err()
        }
    }
}
