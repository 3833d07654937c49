//! The parser: SQL text to a syntax tree, on top of the `sqlparser` crate's tokenizer.
//!
//! [`parse`] turns a script into statements; it never resolves a name and never evaluates. Length,
//! nesting and height of the tree are limited ([`STATEMENT_BYTES_MAX`], [`NESTING_DEPTH_MAX`],
//! [`TREE_HEIGHT_MAX`]), so that parsing any text is fast and code that walks the tree may recurse.

mod access;
pub mod ast;
mod connector;
mod cursor;
mod definition;
mod elsewhere;
mod expression;
mod file_table;
pub mod grammar;
mod keyword;
mod literal;
mod options;
mod print;
mod print_openmldb;
mod query;
mod secret;
mod statement;
mod stream;
mod token;
mod type_name;
mod window;
mod worded_call;

use lockstep_diagnostic::{Result, Span};

use cursor::Parser;
pub use elsewhere::hints;
pub use keyword::keywords;
pub use secret::{masked, may_have_secret};

/// The longest script, in bytes.
pub const STATEMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The greatest depth of nested parentheses, calls, CASE, unary operators and sub-queries. Bounds
/// the stack that parsing needs.
pub const NESTING_DEPTH_MAX: usize = 128;

/// The greatest height of the syntax tree. It exceeds the depth of nesting, since a chain such as
/// `a + b + c` has a level per operator without being nested; AND, OR and XOR chains of n terms have
/// only log₂ n levels. Bounds the stack that walking, printing and dropping a tree needs.
pub const TREE_HEIGHT_MAX: usize = 512;

const _: () = assert!(NESTING_DEPTH_MAX < TREE_HEIGHT_MAX);
// Tokens have offsets of 32 bits.
const _: () = assert!(STATEMENT_BYTES_MAX < 1 << 32);

/// A statement and its position in its script.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The statement.
    pub statement: ast::Statement,
    /// Its bytes in the script, without the semicolon.
    pub span: Span,
    /// The number of `?` in it.
    pub parameter_count: usize,
}

/// Parses a script: statements with `;` between them. Empty statements are skipped, so an empty
/// text gives an empty list. The first error ends it, and points at the offending token. Costs time
/// and memory linear in the length of the text.
///
/// ```
/// use lockstep_sql::{ast::Statement, parse};
///
/// let script = parse("USE shop; SELECT sum(price) OVER w FROM sales WINDOW w AS (
///     PARTITION BY customer ORDER BY at ROWS_RANGE BETWEEN 30d PRECEDING AND CURRENT ROW)").unwrap();
/// assert!(matches!(script[1].statement, Statement::Query(_)));
///
/// let error = parse("SELECT price FORM sales").unwrap_err();
/// assert_eq!(error.message, "syntax error at or near `FORM`");
/// assert_eq!(error.hint.as_deref(), Some("Did you mean `FROM`?"));
/// ```
pub fn parse(sql: &str) -> Result<Vec<Parsed>> {
    let parsed = Parser::new(sql).and_then(|mut parser| parser.script());
    parsed.map_err(|error| secret::without_secrets(error, sql))
}

/// Parses a text that is one expression, such as a default or a test's input.
pub fn parse_expression(sql: &str) -> Result<ast::Expr> {
    let mut parser = Parser::new(sql)?;
    let expr = parser.expression()?;
    parser.expect_end()?;
    Ok(expr)
}
