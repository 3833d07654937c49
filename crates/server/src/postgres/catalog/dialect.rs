//! The dialect in which `sqlparser` reads catalog queries: PostgreSQL's, with a limit of the work.
//!
//! Where the parser meets something that may be two things (an argument or a name of one, a function or a
//! form with words between its arguments), it reads it as the one and, where that fails, again as the
//! other. Nested, that takes time exponential in the depth. So the dialect counts the expressions that are
//! begun, and ends the parser as a nesting that is too deep does.

use std::{any::TypeId, cell::Cell};

use sqlparser::{
    ast::Expr,
    dialect::{Dialect, PostgreSqlDialect, Precedence},
    keywords::Keyword,
    parser::{Parser, ParserError},
};

/// The expressions that the parser may begin for each token of the query.
const EXPRESSIONS_PER_TOKEN: usize = 16;

/// The expressions that it may begin in any query.
const EXPRESSIONS_MIN: usize = 4_096;

/// PostgreSQL's dialect for one query.
#[derive(Debug)]
pub(super) struct CatalogDialect {
    /// How many expressions may still be begun.
    left: Cell<usize>,
}

impl CatalogDialect {
    /// Makes the dialect for a query of so many tokens.
    pub(super) fn new(tokens: usize) -> Self {
        let left = tokens.saturating_mul(EXPRESSIONS_PER_TOKEN).saturating_add(EXPRESSIONS_MIN);
        Self { left: Cell::new(left) }
    }
}

/// Makes methods that answer as PostgreSQL's dialect does.
macro_rules! as_postgresql {
    ($($name:ident($($argument:ident: $type:ty),*) -> $returns:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $returns {
            PostgreSqlDialect {}.$name($($argument),*)
        })*
    };
}

impl Dialect for CatalogDialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn parse_prefix(&self, _parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                None
            }
            // The one error that ends all attempts.
            None => Some(Err(ParserError::RecursionLimitExceeded)),
        }
    }

    /// The name of an argument is a word: to read it as an expression would read each argument twice.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    as_postgresql! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(character: char) -> bool;
        is_identifier_start(character: char) -> bool;
        is_identifier_part(character: char) -> bool;
        is_reserved_for_identifier(word: Keyword) -> bool;
        is_custom_operator_part(character: char) -> bool;
        get_next_precedence(parser: &Parser<'_>) -> Option<Result<u8, ParserError>>;
        prec_value(precedence: Precedence) -> u8;
        supports_unicode_string_literal() -> bool;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
        supports_comment_optimizer_hint() -> bool;
    }
}
