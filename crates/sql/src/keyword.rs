//! The keywords of the dialect, by where they cannot be names.
//!
//! A word that is in no list here is a name everywhere; most keywords (`date`, `index`, `user`,
//! `left`, `replace`, …) are names wherever no clause can start with them.

/// The words that are never names without back-quotes, since an expression, a clause or an operator
/// starts with them.
const RESERVED: &[&str] = &[
    "ALL",
    "AND",
    "AS",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "FALSE",
    "FROM",
    "GROUP",
    "HAVING",
    "ILIKE",
    "IN",
    "INTERSECT",
    "INTO",
    "IS",
    "JOIN",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "ON",
    "OR",
    "ORDER",
    "OVER",
    "PARTITION",
    "RLIKE",
    "SELECT",
    "THEN",
    "TRUE",
    "UNION",
    "USING",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
    "XOR",
];

/// The words that are not an alias unless AS precedes, since they may follow a table or a select
/// item.
const FOLLOWS_ITEM: &[&str] = &[
    "CROSS",
    "DIV",
    "ESCAPE",
    "FETCH",
    "FOR",
    "FULL",
    "INNER",
    "LAST",
    "LEFT",
    "MOD",
    "NATURAL",
    "OFFSET",
    "OUTER",
    "QUALIFY",
    "RIGHT",
    "TABLESAMPLE",
];

/// The keywords that a hint may suggest for a mistyped word, the likeliest first.
pub(crate) const SUGGESTED: &[&str] = &[
    "FROM",
    "SELECT",
    "WHERE",
    "GROUP",
    "ORDER",
    "LIMIT",
    "WINDOW",
    "UNION",
    "HAVING",
    "JOIN",
    "PARTITION",
    "BETWEEN",
    "PRECEDING",
    "FOLLOWING",
    "CURRENT",
    "UNBOUNDED",
    "ROWS",
    "ROWS_RANGE",
    "LAST",
    "LEFT",
    "INNER",
    "DISTINCT",
    "CREATE",
    "TABLE",
    "DATABASE",
    "INDEX",
    "INSERT",
    "INTO",
    "VALUES",
    "DEPLOY",
    "DEPLOYMENT",
    "DEPLOYMENTS",
    "OPTIONS",
    "CONFIG",
    "LOAD",
    "DATA",
    "INFILE",
    "OUTFILE",
    "EXPLAIN",
    "DESCRIBE",
    "SHOW",
    "DROP",
    "DELETE",
    "TRUNCATE",
    "EXISTS",
    "MAXSIZE",
    "EXCLUDE",
    "CURRENT_TIME",
    "CURRENT_ROW",
    "INSTANCE_NOT_IN_WINDOW",
    "OPEN",
    "WITH",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "LIKE",
    "NULL",
    "DEFAULT",
    "PARQUET",
    "DATABASES",
    "TABLES",
    "FUNCTIONS",
    "VARIABLES",
    "GLOBAL",
    "SESSION",
    "IGNORE",
    "OVER",
    "DESC",
    "OFFLINE_PATH",
    "STATUS",
    "PROCEDURE",
    "FUNCTION",
    "RETURNS",
];

/// Returns every keyword that a statement may hold, in upper case; some twice.
pub fn keywords() -> impl Iterator<Item = &'static str> {
    [RESERVED, FOLLOWS_ITEM, SUGGESTED].into_iter().flatten().copied()
}

/// Returns the words that are never names without back-quotes, in upper case.
pub(crate) fn reserved() -> &'static [&'static str] {
    RESERVED
}

/// Returns the words that are names but no alias without AS, in upper case.
pub(crate) fn no_aliases() -> &'static [&'static str] {
    FOLLOWS_ITEM
}

/// Returns whether a bare word is never a name.
pub(crate) fn is_reserved(word: &str) -> bool {
    contains(RESERVED, word)
}

/// Returns whether a bare word right after a table or a select item is not its alias.
pub(crate) fn follows_item(word: &str) -> bool {
    is_reserved(word) || contains(FOLLOWS_ITEM, word)
}

/// Returns whether the word is a keyword of the dialect, spelled right.
pub(crate) fn is_keyword(word: &str) -> bool {
    follows_item(word) || contains(SUGGESTED, word)
}

fn contains(words: &[&str], word: &str) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}
