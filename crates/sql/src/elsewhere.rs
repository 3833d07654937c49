//! What other databases have and this one does not: statements, clauses and operators, each with what to
//! write instead.
//!
//! `statement` looks a statement up, and `cursor` the token at which the text cannot be read.

/// Statements by their first word.
const STATEMENTS: &[(&[&str], &str)] = &[
    (
        &["UPDATE", "MERGE", "REPLACE", "UPSERT"],
        "Rows are events and cannot be updated: INSERT a newer row, or DELETE the row.",
    ),
    (
        &["BEGIN", "START", "COMMIT", "ROLLBACK"],
        "Transactions are not supported: each statement takes effect completely or not at all.",
    ),
    (
        &["COPY"],
        "Use LOAD DATA INFILE 'path' INTO TABLE t to read a file, or SELECT … INTO OUTFILE 'path' \
         to write one.",
    ),
    (
        &["PRAGMA"],
        "Use SET name = value to change a setting, or SHOW VARIABLES to list the settings.",
    ),
    (
        &["ATTACH", "DETACH"],
        "Use another connection to open another directory, or CREATE DATABASE to create a \
         namespace.",
    ),
    (&["FROM"], "Write SELECT * FROM."),
    (&["VALUES"], "Use SELECT with the values, and UNION ALL for several rows."),
    (
        &["SUMMARIZE", "SUMMARISE"],
        "Use DESC to list the columns, or SELECT min(x), max(x), count(x) to compute their ranges.",
    ),
    (&["VACUUM", "ANALYZE", "OPTIMIZE"], "No manual maintenance of memory and files is required."),
    (&["INSTALL"], "No installation is required: S3, HTTP, Parquet and JSON are built in."),
    (&["COMMENT"], "Comments on objects are not supported; use comments in SQL scripts."),
    (
        &["LOCK", "UNLOCK"],
        "Locks are not required: a query reads a consistent snapshot of the tables.",
    ),
    (
        &["EXPORT", "IMPORT"],
        "Use BACKUP TO 'dir' to copy a database, or LOAD DATA and INTO OUTFILE to import and \
         export tables.",
    ),
    (&["CLONE"], "Use CREATE TABLE … AS SELECT to copy a table."),
    (
        &["PIVOT", "UNPIVOT"],
        "Write an aggregate for each column: sum(x) FILTER (WHERE key = 'a') AS a.",
    ),
];

/// Places in the middle of a statement. A pattern is the tokens around the one at which the text cannot be
/// read, which `^` marks; `_` stands for any token.
const CLAUSES: &[(&[&str], &str)] = &[
    (
        &["^QUALIFY"],
        "Compute the window in a subquery, and filter its result with WHERE in the outer query.",
    ),
    (&["^ASOF"], "Use LAST JOIN: t LAST JOIN u ORDER BY u.ts ON t.k = u.k AND u.ts <= t.ts."),
    (
        &["^LATERAL", "LATERAL ^("],
        "Use LAST JOIN to find a row of another table for each row, or a window with UNION to \
         aggregate over several tables.",
    ),
    (&["^EXCLUDE", "* ^REPLACE"], "`*` selects all columns; list the columns to select instead."),
    (&["AS ^MATERIALIZED", "NOT ^MATERIALIZED"], "Omit MATERIALIZED or NOT MATERIALIZED."),
    (
        &["^MATERIALIZED"],
        "Use CREATE VIEW to name a query, CREATE TABLE … AS to store its rows, or DEPLOY to \
         maintain the data that its requests read.",
    ),
    (
        &["^TABLESAMPLE", "^USING SAMPLE"],
        "Write WHERE hash64(id) % 100 = 0 to select about one percent of the rows.",
    ),
    (
        &["^PIVOT", "^UNPIVOT"],
        "Write an aggregate for each column: sum(x) FILTER (WHERE key = 'a') AS a.",
    ),
    (&["^SCHEMA"], "Use CREATE DATABASE to create a namespace."),
    (&["^SEQUENCE", "^TRIGGER", "^EXTENSION"], "Sequences, triggers and extensions do not exist."),
    (&["/ ^/"], "Write x DIV y for integer division."),
    (&["* ^*"], "Write pow(x, y)."),
    (&["SHOW ^ALL"], "Write SHOW VARIABLES."),
    (&["GROUP BY ^ALL", "ORDER BY ^ALL"], "List the columns."),
    (
        &["DISTINCT ^ON"],
        "Number the rows of each key with row_number() in a subquery, and keep the rows with \
         number 1.",
    ),
    (&["TRY_CAST ( _ ^AS"], "Use CAST, which returns NULL for a string that is not a valid value."),
    (&["^SIMILAR TO", "^~"], "Write text RLIKE 'pattern'."),
    (
        &["- ^>"],
        "Write get_json_object(text, '/name') for JSON; lambda expressions are not supported.",
    ),
    (&["^{"], "Write map(key, value)."),
    (
        &["^[ ]"],
        "Columns cannot contain lists: store a string, and split it with split(text, ',').",
    ),
    (&["VALUES ^("], "Use SELECT with the values, and UNION ALL for several rows."),
    (
        &["FROM _ ^(", "JOIN _ ^("],
        "FROM accepts tables, subqueries, quoted file paths, and read_csv, read_parquet, \
         read_json, read_arrow, read_delta and read_iceberg.",
    ),
    (&["LIMIT _ ^%"], "LIMIT requires a number of rows."),
    (
        &["^FOR UPDATE", "^FOR SHARE"],
        "Locks are not required: a query reads a consistent snapshot of the tables.",
    ),
    (&["^RETURNING"], "INSERT returns the number of rows written; use SELECT to read the rows."),
    (
        &["^ON CONFLICT", "^ON DUPLICATE"],
        "A row replaces the stored row with the same PRIMARY KEY. Use ON CONFLICT DO NOTHING to \
         skip such rows, or INSERT OR IGNORE INTO to skip rows that equal a stored row in all \
         columns.",
    ),
    (&["^DEFAULT VALUES"], "Specify a column and its value: INSERT INTO t (a) VALUES (1)."),
    (&["^UNIQUE", "^REFERENCES", "^FOREIGN", "^CHECK", "^CONSTRAINT"], CONSTRAINT),
    (
        &["^AUTO_INCREMENT", "^GENERATED", "^IDENTITY"],
        "Generated values are not supported; insert the value with the row.",
    ),
    (
        &["^UNSIGNED"],
        "Use a larger type: INT for an unsigned SMALLINT, BIGINT for an unsigned INT.",
    ),
    (&["INDEX _ ON _ ^USING"], "Omit USING: only one type of index exists."),
    (
        &["^CASCADE", "^RESTRICT"],
        "CASCADE and RESTRICT are supported in DROP TABLE and DROP VIEW; otherwise, first drop the \
         objects that the error of DROP lists.",
    ),
    (&["DROP VIEW _ ^,"], "Use one DROP VIEW statement for each view."),
    (
        &["TABLE _ ^ALTER", "TABLE _ ^MODIFY"],
        "To change the type of a column, use CREATE OR REPLACE TABLE t AS SELECT CAST(x AS type) \
         AS x, … FROM t.",
    ),
    (&["DELETE FROM _ ^USING"], "A condition of DELETE can use only columns of the table."),
    (&["DESC ^SELECT", "DESCRIBE ^SELECT"], "Use EXPLAIN to show the plan of a query."),
    (&["^GROUPS"], "Use ROWS for a number of rows, or ROWS_RANGE for a time."),
    (
        &["GROUPING ^SETS"],
        "Write a query with GROUP BY for each set of columns, and combine the queries with UNION \
         ALL.",
    ),
    (&["WITH _ ^("], "Name the columns in the query, with AS."),
    (
        &["EXCLUDE ^CURRENT", "EXCLUDE ^TIES", "EXCLUDE ^GROUP", "EXCLUDE ^NO"],
        "Use EXCLUDE CURRENT_ROW to exclude the current row, or EXCLUDE CURRENT_TIME to exclude \
         the other rows with its event time.",
    ),
];

/// Returns what to write for a statement that begins with a word in upper case.
pub(crate) fn of_statement(word: &str) -> Option<&'static str> {
    debug_assert!(!word.contains(char::is_whitespace), "a word");
    STATEMENTS.iter().find(|(words, _)| words.contains(&word)).map(|(_, hint)| *hint)
}

/// Returns what to write where the text cannot be read. `text_at` returns the token there for 0, the one
/// before it for -1, the one behind it for 1.
pub(crate) fn of_clause<'t>(text_at: impl Fn(isize) -> Option<&'t str>) -> Option<&'static str> {
    debug_assert!(text_at(0).is_some(), "a token cannot be read");
    let hint = |(patterns, hint): &(&[&str], &'static str)| {
        patterns.iter().any(|pattern| is_at(pattern, &text_at)).then_some(*hint)
    };
    CLAUSES.iter().find_map(hint)
}

/// Returns whether the tokens of a pattern are here.
fn is_at<'t>(pattern: &str, text_at: &impl Fn(isize) -> Option<&'t str>) -> bool {
    let marked = pattern.split(' ').position(|token| token.len() > 1 && token.starts_with('^'));
    let marked = marked.expect("a pattern marks the token at which the text cannot be read");
    let begin = isize::try_from(marked).map_or(0, |count| -count);
    (begin..).zip(pattern.split(' ')).all(|(at, token)| {
        let token = token.strip_prefix('^').filter(|rest| !rest.is_empty()).unwrap_or(token);
        text_at(at).is_some_and(|text| token == "_" || text.eq_ignore_ascii_case(token))
    })
}

/// Returns the hints that name functions, for tests of the binder.
pub fn hints() -> impl Iterator<Item = &'static str> {
    let tables = STATEMENTS.iter().chain(CLAUSES).map(|(_, hint)| *hint);
    tables.chain([IGNORE_NULLS, WITHIN_GROUP, FORMS_OF_IS])
}

/// What to write for constraints other than PRIMARY KEY.
pub(crate) const CONSTRAINT: &str = "Tables store every row that arrives, and check only NOT \
    NULL. Use INDEX(KEY=k, TS=ts) to find rows by key, or PRIMARY KEY (k) as the only index to \
    keep the newest row of each key.";

/// What to write for ON CONFLICT DO UPDATE.
pub(crate) const DO_UPDATE: &str =
    "Omit ON CONFLICT: a row then replaces the whole stored row with the same PRIMARY KEY.";

/// What to write for EXCEPT and INTERSECT.
pub(crate) const SET_OPERATION: &str = "Use LAST JOIN u ON t.k = u.k with WHERE u.k IS NULL for \
    EXCEPT, or WHERE u.k IS NOT NULL for INTERSECT.";

/// What to write for ORDER BY in the parentheses of a call.
pub(crate) const ORDER_IN_CALL: &str = "An aggregate reads the rows of its window in order: add \
    OVER (PARTITION BY … ORDER BY …) after the call.";

/// What to write for IGNORE NULLS.
pub(crate) const IGNORE_NULLS: &str =
    "Write first_value(x, true), last_value(x, true) or lag(x, n, true).";

/// What to write for WITHIN GROUP.
pub(crate) const WITHIN_GROUP: &str = "Write percentile(x, 0.5), or median(x).";

/// What to write for `(a, b)`.
pub(crate) const ROW_OF_VALUES: &str = "Compare the values one by one: a = 1 AND b = 2.";

/// What to write for DECIMAL(10, 2).
pub(crate) const SCALE: &str = "Write DOUBLE, to which decimal values of Python, Arrow and \
    Parquet are rounded, or BIGINT for a count of the smallest unit.";

/// What to write for WITH RECURSIVE.
pub(crate) const RECURSIVE: &str = "For a chain of known length, use one LAST JOIN for each step.";

/// What to write for NATURAL JOIN.
pub(crate) const NATURAL: &str = "Write ON t.k = u.k.";

/// What to write for IS DISTINCT FROM, IS TRUE and IS FALSE.
pub(crate) const FORMS_OF_IS: &str = "Write coalesce(a != b, (a IS NULL) != (b IS NULL)) for IS DISTINCT FROM, and \
     coalesce(a, false) for IS TRUE.";

#[cfg(test)]
mod tests {
    use super::{CLAUSES, is_at};

    #[test]
    fn a_pattern_looks_at_the_tokens_around() {
        let tokens = ["DELETE", "FROM", "t", "using", "u"];
        let text_at = |at: isize| tokens.get(usize::try_from(3 + at).ok()?).copied();
        assert!(is_at("DELETE FROM _ ^USING", &text_at));
        assert!(is_at("^USING u", &text_at));
        assert!(!is_at("^USING SAMPLE", &text_at));
        assert!(!is_at("DELETE _ ^USING", &text_at));
        assert!(!is_at("_ _ _ _ ^USING", &text_at), "there is no token so far before");
    }

    #[test]
    fn every_pattern_marks_one_token() {
        for pattern in CLAUSES.iter().flat_map(|(patterns, _)| *patterns) {
            let marked = pattern.split(' ').filter(|token| token.starts_with('^'));
            assert_eq!(marked.count(), 1, "{pattern}");
        }
    }
}
