//! Queries of PostgreSQL's catalogs, which clients and tools send to learn what there is.
//!
//! They are in PostgreSQL's SQL (casts, regular expressions, correlated queries), which the engine does
//! not have, and over tables that it does not have either. So `sqlparser` reads them, and they have an
//! evaluator of their own, over small tables made of what the session sees: tables, columns, indexes,
//! deployments, databases, users (ADR 0034).

mod aggregate;
mod analysis;
mod cluster;
mod dialect;
mod evaluation;
mod from;
mod function;
mod information;
mod join;
mod limits;
mod object_name;
mod objects;
mod operator;
mod parameter;
mod privilege;
mod projection;
mod query;
mod relation;
mod routines;
mod scope;
mod source;
mod static_type;
mod tables;
mod text_function;
mod types;
mod value;
mod views;

pub(crate) use types::type_of_number;

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::Session;
use lockstep_host::{QueryContext, with_large_stack};
use lockstep_row::Value;
use sqlparser::{
    ast::Query,
    parser::{Parser, ParserError},
    tokenizer::Token,
};

use super::{
    rows::RowCursor,
    script::TokenCursor,
    token::{SqlToken, SqlTokenKind},
    types::{Oid, oid},
};
use dialect::CatalogDialect;
use evaluation::Evaluator;
use value::CatalogValue;

/// How deep a query may nest.
const DEPTH_MAX: usize = 100;

/// The most tokens of a query, without lists of constants: the tree of a chain of operators is as deep
/// as the chain is long, and to free it takes stack.
const TOKENS_MAX: usize = 4_000;

/// How deep queries in several parentheses may nest.
const NESTED_SOURCES_MAX: usize = 8;

/// A query of the catalogs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CatalogQuery {
    query: Arc<Query>,
    /// The text, for the list of sessions.
    text: Arc<str>,
    /// The types of the columns that the client was told before.
    types: Option<Arc<[Oid]>>,
}

impl CatalogQuery {
    /// Reads a query; `None` where the statement reads no catalog.
    pub(crate) fn read(statement: TokenCursor<'_>) -> Result<Option<Self>> {
        if !reads_catalogs(statement) {
            return Ok(None);
        }
        if weight(statement) > TOKENS_MAX {
            let message = "the catalog query is too long";
            return Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message).err();
        }
        if nested_sources(statement) > NESTED_SOURCES_MAX {
            return nests_too_deep();
        }
        let tokens = statement.tokens().len();
        let query = with_large_stack(|| parse(statement.text(), tokens)).map_err(|error| {
            let hint = "Write catalog queries in PostgreSQL's SQL.";
            Box::new(error.with_hint(hint))
        })?;
        Ok(Some(Self { query: Arc::new(query), text: statement.text().into(), types: None }))
    }

    /// Returns the types of the parameters that casts and comparisons tell.
    pub(crate) fn parameter_types(&self) -> Vec<Option<Oid>> {
        with_large_stack(|| parameter::parameter_types(&self.query))
    }

    /// Returns the query with columns of these types, which the client was told before there were values.
    pub(crate) fn with_types(&self, types: impl Iterator<Item = Oid>) -> Self {
        Self { types: Some(types.collect()), ..self.clone() }
    }

    /// Answers the query, as a call of the session: under its limits, and in the list of sessions.
    pub(crate) fn answer(&self, session: &Session, parameters: &[Value]) -> Result<RowCursor> {
        let context = QueryContext::nested();
        let _listed = session.list_call(&context, &self.text);
        context.run(|| session.limits().run(|| self.rows(session, parameters)))
    }

    fn rows(&self, session: &Session, parameters: &[Value]) -> Result<RowCursor> {
        let parameters = parameters.iter().map(CatalogValue::of).collect();
        let mut evaluator = Evaluator::new(session, parameters);
        let found = evaluator.query(&self.query, None)?;
        // As values of the engine, and as columns.
        evaluator.hold_relation(&found)?;
        evaluator.hold_relation(&found)?;
        let columns: Vec<(&str, Oid)> = found
            .columns
            .list
            .iter()
            .enumerate()
            .map(|(at, (name, number))| {
                let told = self.types.as_ref().and_then(|types| types.get(at).copied());
                let number = told.unwrap_or(*number);
                (name.as_str(), if number == oid::UNKNOWN { oid::TEXT } else { number })
            })
            .collect();
        let rows: Vec<Vec<Value>> = found
            .rows
            .iter()
            .map(|row| {
                row.iter().zip(&columns).map(|(v, (_, number))| v.sent_as(*number)).collect()
            })
            .collect::<Result<_>>()?;
        RowCursor::of_values(&columns, &rows)
    }
}

/// Parses a query of so many tokens.
fn parse(sql: &str, tokens: usize) -> Result<Query> {
    let dialect = CatalogDialect::new(tokens);
    let read = || -> std::result::Result<Query, ParserError> {
        let parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX);
        let mut parser = parser.try_with_sql(sql)?;
        let query = parser.parse_query()?;
        parser.expect_token(&Token::EOF)?;
        Ok(*query)
    };
    read().or_else(|error| match error {
        ParserError::RecursionLimitExceeded => nests_too_deep(),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
            Diagnostic::new(code::SYNTAX_ERROR, format!("syntax error: {message}")).err()
        }
    })
}

/// Returns whether a statement is a query of the catalogs: it reads one of their tables, or, without
/// FROM, calls one of their functions.
fn reads_catalogs(statement: TokenCursor<'_>) -> bool {
    let (sql, tokens) = (statement.sql(), statement.tokens());
    let is = |token: &SqlToken, words: &[&str]| words.iter().any(|word| token.is_word(sql, word));
    let Some(first) = tokens.iter().find(|token| !token.is_symbol(sql, "(")) else { return false };
    if !is(first, &["SELECT", "WITH"]) {
        return false;
    }
    let is_catalog = |token: &SqlToken| {
        let name = token.text(sql).to_ascii_lowercase();
        let name = name.trim_matches('"');
        name.starts_with("pg_") || name == "information_schema"
    };
    let is_name =
        |token: &SqlToken| matches!(token.kind, SqlTokenKind::Word | SqlTokenKind::QuotedName);
    // Whether a comma separates the source at `at` from a query in parentheses and its name.
    let follows_query = |at: usize| {
        let names = tokens[..at].iter().rev().take_while(|token| is_name(token)).count();
        let end = at.checked_sub(names + 1).map(|end| &tokens[end]);
        names > 0 && end.is_some_and(|token| token.is_symbol(sql, ")"))
    };
    let (mut has_from, mut has_source) = (false, false);
    for (at, pair) in tokens.windows(2).enumerate() {
        has_from |= is(&pair[0], &["FROM"]);
        let is_listed = || has_from && follows_query(at) && is_catalog(&pair[1]);
        let is_source =
            is(&pair[0], &["FROM", "JOIN"]) || pair[0].is_symbol(sql, ",") && is_listed();
        if !is_source || !is_name(&pair[1]) {
            continue;
        }
        has_source = true;
        if is_catalog(&pair[1]) || is(&pair[1], &["generate_series", "unnest"]) {
            return true;
        }
    }
    let is_object =
        |token: &SqlToken| is(token, &["regclass", "regtype", "regproc", "regnamespace"]);
    let has_cast = tokens.windows(2).any(|pair| {
        let is_cast = pair[0].is_symbol(sql, "::") || pair[0].is_symbol(sql, ".");
        is_cast && is_object(&pair[1]) || is_object(&pair[0]) && pair[1].is_symbol(sql, ")")
    });
    has_cast || !has_source && calls_catalogs(statement)
}

/// Returns whether a statement calls a function that only the catalogs have.
fn calls_catalogs(statement: TokenCursor<'_>) -> bool {
    const NAMES: [&str; 11] = [
        "col_description",
        "current_database",
        "current_schemas",
        "current_setting",
        "format_type",
        "generate_series",
        "obj_description",
        "shobj_description",
        "to_regclass",
        "to_regtype",
        "version",
    ];
    const WITHOUT_PARENTHESES: [&str; 4] =
        ["current_catalog", "current_role", "current_schema", "session_user"];
    let (sql, tokens) = (statement.sql(), statement.tokens());
    tokens.iter().enumerate().any(|(at, token)| {
        let name = token.text(sql).to_ascii_lowercase();
        let is_privilege = name.starts_with("has_") && name.ends_with("_privilege");
        let is_called = tokens.get(at + 1).is_some_and(|next| next.is_symbol(sql, "("));
        let is_function = name.starts_with("pg_") || is_privilege || NAMES.contains(&name.as_str());
        token.kind == SqlTokenKind::Word
            && (is_called && is_function || WITHOUT_PARENTHESES.contains(&name.as_str()))
    })
}

fn nests_too_deep<T>() -> Result<T> {
    let message = "the catalog query is nested too deeply";
    Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message).err()
}

/// Returns how deep queries in several parentheses nest: the parser reads each twice if it has an error.
fn nested_sources(statement: TokenCursor<'_>) -> usize {
    let (sql, tokens) = (statement.sql(), statement.tokens());
    let is_query = |at: usize| {
        let first = tokens[at..].iter().find(|token| !token.is_symbol(sql, "("));
        let words = ["SELECT", "WITH", "VALUES", "TABLE"];
        first.is_some_and(|token| words.iter().any(|word| token.is_word(sql, word)))
    };
    let is_call = |at: usize| {
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        before.is_some_and(|token| {
            token.kind == SqlTokenKind::Word
                && !["FROM", "JOIN", "LATERAL"].iter().any(|word| token.is_word(sql, word))
        })
    };
    let (mut open, mut depth, mut deepest) = (Vec::new(), 0, 0);
    for (at, token) in tokens.iter().enumerate() {
        if token.is_symbol(sql, "(") {
            let is_second = at > 0 && tokens[at - 1].is_symbol(sql, "(") && !is_call(at - 1);
            let is_source = is_second && !open.last().is_some_and(|outer| *outer) && is_query(at);
            open.push(is_source);
            depth += usize::from(is_source);
            deepest = deepest.max(depth);
        } else if token.is_symbol(sql, ")") {
            depth -= usize::from(open.pop().unwrap_or(false));
        }
    }
    deepest
}

/// Returns the number of tokens that may make the tree deeper: constants of lists do not.
fn weight(statement: TokenCursor<'_>) -> usize {
    let (sql, tokens) = (statement.sql(), statement.tokens());
    let is_constant = |token: &SqlToken| {
        use SqlTokenKind::{EscapedText, Number, Parameter, Text};
        matches!(token.kind, EscapedText | Number | Parameter | Text)
    };
    // The tokens of a comma and the constant behind it, which may have a sign.
    let listed = |at: usize| -> usize {
        let constant = |at: usize| tokens.get(at).is_some_and(is_constant);
        let is_signed = tokens.get(at + 1).is_some_and(|token| token.is_symbol(sql, "-"));
        match tokens[at].is_symbol(sql, ",") {
            true if constant(at + 1) => 2,
            true if is_signed && constant(at + 2) => 3,
            _ => 0,
        }
    };
    tokens.len() - (0..tokens.len()).map(listed).sum::<usize>()
}

fn invalid_number<T>(text: &str) -> Result<T> {
    let message = format!("invalid input syntax for type integer: \"{text}\"");
    Diagnostic::new(code::INVALID_TEXT, message).err()
}

#[cfg(test)]
mod tests {
    use super::reads_catalogs;
    use crate::postgres::script::Script;

    #[test]
    fn statements_are_of_the_catalogs_or_of_the_engine() {
        let reads = |sql: &str| {
            let script = Script::new(sql).unwrap();
            reads_catalogs(script.statements().next().unwrap())
        };
        for sql in [
            "SELECT 1 FROM pg_class",
            "(SELECT relname FROM pg_catalog.pg_class) UNION SELECT 'a'",
            "WITH c AS (SELECT * FROM information_schema.tables) SELECT * FROM c",
            "SELECT n FROM (VALUES (1)) AS s, pg_class",
            "SELECT count(n) FROM (SELECT generate_series(1, 3) AS n) s",
            "SELECT current_setting('server_version_num')::int / 100",
            "SELECT pg_backend_pid() + 1",
            "SELECT 'orders'::regclass, 2",
            "SELECT CAST('orders' AS regclass)",
            "SELECT n FROM generate_series(1, 3) n",
        ] {
            assert!(reads(sql), "{sql}");
        }
        for sql in [
            "SELECT 1 AS version",
            "SELECT now() AS pg_time",
            "SELECT version FROM orders",
            "SELECT regtype FROM orders",
            "SELECT * FROM price('a', $1)",
            "WITH t AS (SELECT 1 AS a) SELECT a FROM t",
            "INSERT INTO orders VALUES ('pg_class')",
        ] {
            assert!(!reads(sql), "{sql}");
        }
    }
}
