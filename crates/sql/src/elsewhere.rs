//! What other databases have and this one does not: statements, clauses and operators, each with what to
//! write instead.
//!
//! `statement` looks a statement up, and `cursor` the token at which the text cannot be read.

/// Statements by their first word.
const STATEMENTS: &[(&[&str], &str)] = &[
    (
        &["UPDATE", "MERGE", "REPLACE"],
        "A row is an event, which stays: INSERT a newer one, or DELETE it.",
    ),
    (&["BEGIN", "START", "COMMIT", "ROLLBACK"], "Each statement is done as a whole or not at all."),
    (&["COPY"], "LOAD DATA INFILE 'path' INTO TABLE t reads, SELECT … INTO OUTFILE 'path' writes."),
    (&["PRAGMA"], "Write SET name = value; SHOW VARIABLES lists the names."),
    (
        &["ATTACH"],
        "Open another directory by another connection; CREATE DATABASE makes a name space.",
    ),
    (&["FROM"], "Write SELECT * FROM."),
    (&["VALUES"], "Write SELECT with the values; UNION ALL adds rows."),
    (
        &["SUMMARIZE", "SUMMARISE"],
        "DESC shows the columns; SELECT min(x), max(x), count(x) their range.",
    ),
    (&["VACUUM", "ANALYZE", "OPTIMIZE"], "Memory and files are kept in order without it."),
    (&["INSTALL"], "Nothing has to be installed: S3, HTTP, Parquet and JSON are built in."),
    (&["CLONE"], "CREATE TABLE … AS SELECT copies a table."),
    (&["CANCEL"], "Write STOP JOB."),
    (
        &["PIVOT", "UNPIVOT"],
        "Write an aggregate for each column: sum(x) FILTER (WHERE key = 'a') AS a.",
    ),
];

/// Words and signs in the middle of a statement.
const CLAUSES: &[(&[&str], &str)] = &[
    (&["QUALIFY"], "Compute the window in a sub-query, and filter around it with WHERE."),
    (&["ASOF"], "LAST JOIN is that: t LAST JOIN u ORDER BY u.ts ON t.k = u.k AND u.ts <= t.ts."),
    (
        &["LATERAL"],
        "LAST JOIN finds a row of another table for each row; an aggregate over several tables is a window with UNION.",
    ),
    (&["EXCLUDE"], "A star is all columns; name those that are wanted."),
    (
        &["MATERIALIZED"],
        "CREATE VIEW names a query, CREATE TABLE … AS stores its rows, DEPLOY keeps what its requests read.",
    ),
    (&["TABLESAMPLE"], "Write WHERE hash64(id) % 100 = 0 for a hundredth of the rows."),
    (
        &["PIVOT", "UNPIVOT"],
        "Write an aggregate for each column: sum(x) FILTER (WHERE key = 'a') AS a.",
    ),
    (&["SCHEMA"], "CREATE DATABASE makes a name space."),
    (&["SEQUENCE", "TRIGGER", "EXTENSION"], "There is no such object."),
];

/// Returns what to write for a statement that begins with a word in upper case.
pub(crate) fn of_statement(word: &str) -> Option<&'static str> {
    find(STATEMENTS, word)
}

/// Returns what to write for a word at which the text cannot be read.
pub(crate) fn of_clause(word: &str) -> Option<&'static str> {
    find(CLAUSES, &word.to_ascii_uppercase())
}

fn find(table: &'static [(&[&str], &str)], word: &str) -> Option<&'static str> {
    debug_assert!(!word.contains(char::is_whitespace), "a word");
    table.iter().find(|(words, _)| words.contains(&word)).map(|(_, hint)| *hint)
}

/// What to write for EXCEPT and INTERSECT.
pub(crate) const SET_OPERATION: &str =
    "Write LAST JOIN u ON t.k = u.k, and keep the rows WHERE u.k IS NULL, or IS NOT NULL.";

/// What to write for NULLS FIRST and NULLS LAST.
pub(crate) const NULLS: &str =
    "NULL is the greatest value. Write ORDER BY x IS NULL, x DESC to have it last.";
