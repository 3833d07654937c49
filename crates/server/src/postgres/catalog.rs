//! Queries of PostgreSQL's catalogs, which clients and tools send to learn what there is.

use lockstep_diagnostic::{Diagnostic, Result, Span};
use lockstep_engine::Session;

use super::{rows::RowCursor, script::TokenCursor, token::TokenKind};

/// A query of the catalogs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CatalogQuery {
    span: Span,
}

impl CatalogQuery {
    /// Reads a query; `None` where the statement reads no catalog.
    pub(crate) fn read(statement: TokenCursor<'_>) -> Result<Option<Self>> {
        let sql = statement.sql();
        let tokens = statement.tokens();
        let is_query = tokens
            .first()
            .is_some_and(|token| token.is_word(sql, "SELECT") || token.is_word(sql, "WITH"));
        if !is_query {
            return Ok(None);
        }
        let found = tokens.windows(2).find(|pair| {
            let is_place = pair[0].is_word(sql, "FROM") || pair[0].is_word(sql, "JOIN");
            let name = pair[1].text(sql).to_ascii_lowercase();
            is_place
                && pair[1].kind == TokenKind::Word
                && (name.starts_with("pg_") || name == "information_schema")
        });
        Ok(found.map(|pair| Self { span: Span::new(pair[1].start(), pair[1].end()) }))
    }

    /// Answers the query.
    pub(crate) fn answer(&self, _session: &Session) -> Result<RowCursor> {
        Diagnostic::unsupported("this query of the catalogs is not served")
            .at(self.span)
            .with_hint(
                "SHOW TABLES, DESC and the tables of the database `lockstep` say what there is.",
            )
            .err()
    }
}
