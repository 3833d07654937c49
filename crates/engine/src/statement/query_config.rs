//! `SELECT … CONFIG(execute_mode = 'request', values = …)`: a query that carries its request rows.
//!
//! The values are constant expressions, one tuple or a list of tuples, and are cast to the types of
//! the request table's columns. Every other option of CONFIG is one of OpenMLDB's clusters: it is
//! ignored with a warning.

use arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_plan::BoundQuery;
use lockstep_row::{Column, DataType};
use lockstep_sql::ast::{
    Expr, ExprKind, Ident, OptionItem, OptionValue, Query, SelectItem, TypeName,
};

use crate::{
    Session, constant,
    options::{OptionSpec, OptionTable, UnknownOption, word},
    variables::{Storage, no_effect},
};

/// The CONFIG of a query.
#[derive(Default)]
pub(super) struct QueryConfig {
    mode: Option<ModeOption>,
    values: Option<OptionItem>,
}

/// The option `execute_mode`.
struct ModeOption {
    mode: ExecuteMode,
    span: Span,
}

/// The values of `execute_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExecuteMode {
    Batch(Storage),
    Request,
}

const OPTIONS: OptionTable<'_, QueryConfig> = OptionTable {
    specs: SPECS,
    unknown: UnknownOption::Warning,
    error_code: code::INVALID_PARAMETER,
};

const SPECS: &[OptionSpec<QueryConfig>] = &[
    OptionSpec {
        name: "execute_mode",
        set: |config, argument| {
            let name = word(argument.value()).unwrap_or_default().to_ascii_lowercase();
            let mode = match name.as_str() {
                "request" => ExecuteMode::Request,
                "online" => ExecuteMode::Batch(Storage::Online),
                "offline" => ExecuteMode::Batch(Storage::Offline),
                _ => return argument.invalid("must be 'online', 'offline' or 'request'"),
            };
            config.mode = Some(ModeOption { mode, span: argument.item().span });
            Ok(())
        },
    },
    OptionSpec {
        name: "values",
        set: |config, argument| {
            config.values = Some(argument.item().clone());
            Ok(())
        },
    },
];

impl QueryConfig {
    /// Reads the CONFIG of a query; the warnings are the second value.
    pub(super) fn read(items: &[OptionItem]) -> Result<(Self, Vec<Diagnostic>)> {
        let mut config = Self::default();
        let mut warnings = OPTIONS.read(items, &mut config)?;
        if !config.is_request() {
            let values = items.iter().filter(|item| item.key.text == "values");
            warnings.extend(values.map(|item| {
                no_effect("`values` of CONFIG")
                    .at(item.key.span)
                    .with_hint("Set execute_mode = 'request' to run requests with `values`.")
            }));
            warnings.sort_by_key(|warning| warning.span.map(|span| span.start));
        }
        Ok((config, warnings))
    }

    /// Returns the data that the query reads, where its CONFIG says so.
    pub(super) fn storage(&self) -> Option<Storage> {
        match self.mode {
            Some(ModeOption { mode: ExecuteMode::Batch(storage), .. }) => Some(storage),
            _ => None,
        }
    }

    fn is_request(&self) -> bool {
        matches!(self.mode, Some(ModeOption { mode: ExecuteMode::Request, .. }))
    }
}

/// Checks the CONFIG of a query that is compiled for request mode.
pub(crate) fn check(session: &Session, query: &Query, bound: &BoundQuery) -> Result<()> {
    let (config, _) = QueryConfig::read(&query.config)?;
    request_rows(session, &config, bound).map(|_| ())
}

/// Returns the request rows of a query, each a batch of one row; `None` when it runs in batch mode.
pub(super) fn request_rows(
    session: &Session,
    config: &QueryConfig,
    bound: &BoundQuery,
) -> Result<Option<Vec<RecordBatch>>> {
    let Some(ModeOption { mode: ExecuteMode::Request, span: mode_span }) = config.mode else {
        return Ok(None);
    };
    let Some(values) = &config.values else {
        return Diagnostic::new(code::INVALID_PARAMETER, "request mode requires `values`")
            .at(mode_span)
            .with_hint("Add values = (…), with one value for each column of the first table.")
            .err();
    };
    let columns = bound.request_table.as_ref().map_or(&[][..], |table| &table.schema.columns);
    let rows = rows(&values.value, columns.len());
    if rows.is_empty() {
        return Diagnostic::new(code::INVALID_PARAMETER, "`values` contains no request row")
            .at(values.span)
            .err();
    }
    let rows = rows.into_iter().map(|row| evaluate(session, &row, columns, values.span));
    rows.collect::<Result<Vec<_>>>().map(Some)
}

/// Splits the value of `values` into rows: one tuple, or a list of tuples; for a table of one
/// column also a value or a list of values.
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
            format!("`values` has {found} values, but the first table has {expected} columns");
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

/// Writes a type as CAST takes it.
fn type_name(data_type: &DataType, span: Span) -> TypeName {
    let (text, arguments) = match data_type {
        DataType::Array(item) => ("ARRAY".to_owned(), vec![type_name(item, span)]),
        DataType::Map(key, value) => {
            ("MAP".to_owned(), vec![type_name(key, span), type_name(value, span)])
        }
        other => (other.to_string(), Vec::new()),
    };
    TypeName { name: Ident { text, span }, arguments, length: None }
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
