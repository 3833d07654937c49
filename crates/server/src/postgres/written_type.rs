//! Types as statements of PostgreSQL's clients name them, and where a definition of columns has them.
//!
//! `translation` calls it. Only the plain FLOAT means another type than in the engine's dialect.

use lockstep_diagnostic::{Diagnostic, Result, Span};
use lockstep_row::DataType;

use super::{
    script::TokenCursor,
    token::{SqlToken, SqlTokenKind},
    types::type_of_name,
};

/// The greatest precision of FLOAT(p), in binary digits, that is a type of 32 bits.
const FLOAT_DIGITS_MAX: u32 = 24;

/// A type that a statement names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WrittenType {
    pub(crate) data_type: DataType,
    /// The type in the dialect of the engine.
    pub(crate) sql: String,
    /// The number of tokens that name it.
    pub(crate) token_count: usize,
    /// FLOAT without a precision.
    pub(crate) is_plain_float: bool,
}

impl WrittenType {
    /// Reads the type that tokens begin with; `None` where they begin with none.
    pub(crate) fn read(sql: &str, tokens: &[SqlToken]) -> Result<Option<Self>> {
        let mut reader = WrittenTypeReader { sql, tokens, at: 0 };
        if reader.accept("pg_catalog") && !reader.accept_symbol(".") {
            return Ok(None);
        }
        let Some(name) = reader.name() else { return Ok(None) };
        let Some(data_type) = type_of_name(&name) else { return Ok(None) };
        let size = reader.size();
        let is_zoned = name == "timestamptz" || (name == "timestamp" && reader.time_zone());
        let (data_type, name_here) = match (name.as_str(), size.as_slice()) {
            ("float", [digits]) if *digits <= FLOAT_DIGITS_MAX => (DataType::Float, "FLOAT"),
            ("float", [_]) => (data_type, "FLOAT"),
            ("numeric" | "decimal", [_, ..]) => return reader.decimal(),
            _ if is_zoned => (data_type, "TIMESTAMPTZ"),
            _ if data_type == DataType::String => (data_type, "VARCHAR"),
            _ => {
                let name = data_type.names().first().copied().unwrap_or_default();
                (data_type, name)
            }
        };
        let sql = match (name.as_str(), size.first()) {
            // `char` is one character.
            ("char" | "character", None) => "VARCHAR(1)".to_owned(),
            (_, Some(size)) => format!("{}({size})", name_here.to_ascii_uppercase()),
            (_, None) if is_zoned => name_here.to_owned(),
            (_, None) => data_type.to_string(),
        };
        let is_plain_float = name == "float" && size.is_empty();
        Ok(Some(Self { data_type, sql, token_count: reader.at, is_plain_float }))
    }

    /// Returns the type in the dialect of the engine if a cast of a text cuts it off.
    pub(crate) fn cut(self) -> Option<String> {
        let is_plain = self.sql == self.data_type.to_string();
        Some(self.sql).filter(|_| self.data_type == DataType::String && !is_plain)
    }
}

/// Reads the tokens of a type.
struct WrittenTypeReader<'s> {
    sql: &'s str,
    tokens: &'s [SqlToken],
    at: usize,
}

impl WrittenTypeReader<'_> {
    fn accept(&mut self, word: &str) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|token| token.is_word(self.sql, word));
        self.at += usize::from(found);
        found
    }

    fn accept_symbol(&mut self, symbol: &str) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|t| t.is_symbol(self.sql, symbol));
        self.at += usize::from(found);
        found
    }

    /// Reads `WITH TIME ZONE` or `WITHOUT TIME ZONE` if it is next, and returns whether it is the first.
    fn time_zone(&mut self) -> bool {
        let begin = self.at;
        let is_zoned = self.accept("WITH");
        if (is_zoned || self.accept("WITHOUT")) && self.accept("TIME") && self.accept("ZONE") {
            return is_zoned;
        }
        self.at = begin;
        false
    }

    /// Makes the error of a type of decimals.
    fn decimal<T>(&self) -> Result<T> {
        let span = self
            .tokens
            .first()
            .map_or(Span::new(0, 0), |token| Span::new(token.start(), token.end()));
        let message = "casts to NUMERIC with a precision are not supported";
        Diagnostic::unsupported(message)
            .at(span)
            .with_hint("Use round(x, 2) to round: NUMERIC is stored as DOUBLE.")
            .err()
    }

    /// Reads a name of one word or several.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        while let Some(token) = self.tokens.get(self.at)
            && token.kind == SqlTokenKind::Word
        {
            let word = token.text(self.sql).to_ascii_lowercase();
            let next = if name.is_empty() { word } else { format!("{name} {word}") };
            let is_longer =
                matches!(next.as_str(), "double precision" | "character varying" | "char varying");
            if !name.is_empty() && !is_longer {
                break;
            }
            name = next;
            self.at += 1;
        }
        (!name.is_empty()).then_some(name)
    }

    /// Reads the size of a type, such as `(20)` or `(10, 2)`; nothing where there is none.
    fn size(&mut self) -> Vec<u32> {
        let (begin, mut numbers) = (self.at, Vec::new());
        if !self.accept_symbol("(") {
            return numbers;
        }
        while let Some(token) = self.tokens.get(self.at)
            && (token.kind == SqlTokenKind::Number || token.is_symbol(self.sql, ","))
        {
            numbers.extend(token.text(self.sql).parse::<u32>());
            self.at += 1;
        }
        if !self.accept_symbol(")") {
            self.at = begin;
            numbers.clear();
        }
        numbers
    }
}

/// The kind of definition that has columns or parameters with types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypePositions {
    /// CREATE TABLE and CREATE PROCEDURE, up to a query: behind a name after `(` or `,`.
    Listed {
        /// The token at which the query begins.
        query: usize,
    },
    /// ALTER TABLE: behind a name after ADD.
    Added,
    /// There are none.
    Nowhere,
}

impl TypePositions {
    /// Returns where a statement has the types of columns.
    pub(crate) fn of(statement: TokenCursor<'_>) -> Self {
        let (sql, mut cursor) = (statement.sql(), statement);
        if cursor.accept_all(&["ALTER", "TABLE"]) {
            return Self::Added;
        }
        if !cursor.accept("CREATE") {
            return Self::Nowhere;
        }
        cursor.accept_all(&["OR", "REPLACE"]);
        if !cursor.accept("TABLE") && !cursor.accept("PROCEDURE") {
            return Self::Nowhere;
        }
        let tokens = statement.tokens();
        let is_query = |token: &SqlToken| {
            ["AS", "BEGIN", "LIKE", "SELECT"].iter().any(|word| token.is_word(sql, word))
        };
        Self::Listed { query: tokens.iter().position(is_query).unwrap_or(tokens.len()) }
    }

    /// Returns whether a token, inside of `depth` brackets, is the first of a type.
    pub(crate) fn is_type(self, sql: &str, tokens: &[SqlToken], at: usize, depth: usize) -> bool {
        let before = |count: usize| at.checked_sub(count).and_then(|at| tokens.get(at));
        let is_name = |token: &SqlToken| {
            matches!(
                token.kind,
                SqlTokenKind::Word | SqlTokenKind::QuotedName | SqlTokenKind::BackquotedName
            )
        };
        let (Some(name), Some(first)) = (before(1), before(2)) else { return false };
        let follows = |symbols: &[&str], words: &[&str]| {
            symbols.iter().any(|symbol| first.is_symbol(sql, symbol))
                || words.iter().any(|word| first.is_word(sql, word))
        };
        is_name(name)
            && match self {
                Self::Listed { query } => {
                    at < query && depth == 1 && follows(&["(", ","], &["CONST"])
                }
                Self::Added => depth == 0 && follows(&[], &["ADD", "COLUMN", "EXISTS"]),
                Self::Nowhere => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_row::DataType;

    use super::WrittenType;
    use crate::postgres::token::tokenize;

    fn check(sql: &str, expected: Option<(DataType, &str, usize)>) {
        let found = WrittenType::read(sql, &tokenize(sql).unwrap()).unwrap();
        let found = found.map(|found| (found.data_type, found.sql, found.token_count));
        let expected = expected.map(|(data_type, sql, count)| (data_type, sql.to_owned(), count));
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn a_type_may_have_several_words_and_a_size() {
        check("int8)", Some((DataType::BigInt, "BIGINT", 1)));
        check("timestamp with time zone x", Some((DataType::Timestamp, "TIMESTAMPTZ", 4)));
        check("timestamp(3) without time zone", Some((DataType::Timestamp, "TIMESTAMP(3)", 7)));
        check("character varying(20)", Some((DataType::String, "VARCHAR(20)", 5)));
        check("char", Some((DataType::String, "VARCHAR(1)", 1)));
        check("numeric", Some((DataType::Double, "DOUBLE", 1)));
        check("pg_catalog.text", Some((DataType::String, "STRING", 3)));
        check("nothing", None);
        check("(1)", None);
    }

    #[test]
    fn float_is_double_precision_unless_its_precision_fits_32_bits() {
        check("FLOAT", Some((DataType::Double, "DOUBLE", 1)));
        check("float(24)", Some((DataType::Float, "FLOAT(24)", 4)));
        check("float(53)", Some((DataType::Double, "FLOAT(53)", 4)));
        check("real", Some((DataType::Float, "FLOAT", 1)));
    }
}
