//! Queries of PostgreSQL's catalogs, which clients and tools send to learn what there is.
//!
//! They are in PostgreSQL's SQL (casts, regular expressions, correlated queries), which the engine does
//! not have, and over tables that it does not have either. So they have an evaluator of their own, over
//! small tables made of what the session sees: tables, columns, indexes, deployments, databases, users.

mod evaluation;
mod expression;
mod function;
mod parser;
mod pattern;
mod tables;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::Session;
use lockstep_row::Value;

use super::{
    rows::RowCursor,
    script::TokenCursor,
    token::SqlTokenKind,
    types::{Oid, oid},
};
use evaluation::{Evaluator, display, integer};
use expression::SelectQuery;
use parser::parse;

/// A query of the catalogs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CatalogQuery {
    query: SelectQuery,
}

impl CatalogQuery {
    /// Reads a query; `None` where the statement reads no catalog.
    pub(crate) fn read(statement: TokenCursor<'_>) -> Result<Option<Self>> {
        let sql = statement.sql();
        let tokens = statement.tokens();
        let is_query = tokens.first().is_some_and(|token| token.is_word(sql, "SELECT"));
        let is_catalog = tokens.windows(2).any(|pair| {
            let is_place = pair[0].is_word(sql, "FROM")
                || pair[0].is_word(sql, "JOIN")
                || pair[0].is_word(sql, "SELECT");
            let name = pair[1].text(sql).to_ascii_lowercase();
            is_place
                && pair[1].kind == SqlTokenKind::Word
                && (name.starts_with("pg_") || name == "information_schema")
        }) || tokens.iter().any(|token| token.is_word(sql, "regclass"));
        if !is_query || !is_catalog {
            return Ok(None);
        }
        let query = parse(statement).map_err(|error| {
            let hint = "Queries of the catalogs are served in the forms that tools use.";
            Box::new(error.with_hint(hint))
        })?;
        Ok(Some(Self { query }))
    }

    /// Answers the query.
    pub(crate) fn answer(&self, session: &Session, parameters: &[Value]) -> Result<RowCursor> {
        let found = Evaluator::new(session, parameters).run(&self.query)?;
        let columns: Vec<(&str, Oid)> =
            found.columns.iter().map(|(name, number)| (name.as_str(), *number)).collect();
        let rows: Vec<Vec<Value>> = found
            .rows
            .into_iter()
            .map(|row| {
                row.into_iter().zip(&columns).map(|(v, (_, number))| fitted(v, *number)).collect()
            })
            .collect();
        RowCursor::of_values(&columns, &rows)
    }
}

/// Converts a value to the type in which it is sent.
fn fitted(value: Value, number: Oid) -> Value {
    let whole = || integer(&value);
    match (number, &value) {
        (_, Value::Null) => Value::Null,
        (oid::OID | oid::INT4, _) => {
            whole().and_then(|n| i32::try_from(n).ok()).map_or(Value::Null, Value::Int)
        }
        (oid::INT2, _) => {
            whole().and_then(|n| i16::try_from(n).ok()).map_or(Value::Null, Value::SmallInt)
        }
        (oid::INT8, _) => whole().map_or(Value::Null, Value::BigInt),
        (oid::BOOL, Value::Bool(_))
        | (oid::FLOAT4, Value::Float(_))
        | (oid::FLOAT8, Value::Double(_)) => value,
        (oid::TEXT_ARRAY, Value::Array(items)) => {
            Value::Array(items.iter().map(|item| Value::String(display(item).into())).collect())
        }
        (oid::BOOL | oid::FLOAT4 | oid::FLOAT8 | oid::TIMESTAMPTZ | oid::DATE, _) => Value::Null,
        _ => Value::String(display(&value).into()),
    }
}

fn invalid_number<T>(text: &str) -> Result<T> {
    let message = format!("invalid input syntax for type integer: \"{text}\"");
    Diagnostic::new(code::INVALID_TEXT, message).err()
}
