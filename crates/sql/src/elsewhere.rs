//! What other databases have and this one does not: statements, clauses and operators, each with what to
//! write instead.
//!
//! `statement` looks a statement up, and `cursor` the token at which the text cannot be read.

/// Statements by their first word.
const STATEMENTS: &[(&[&str], &str)] = &[
    (
        &["UPDATE", "MERGE", "REPLACE", "UPSERT"],
        "A row is an event, which stays: INSERT a newer one, or DELETE it.",
    ),
    (&["BEGIN", "START", "COMMIT", "ROLLBACK"], "Each statement is done as a whole or not at all."),
    (&["COPY"], "LOAD DATA INFILE 'path' INTO TABLE t reads, SELECT … INTO OUTFILE 'path' writes."),
    (&["PRAGMA"], "Write SET name = value; SHOW VARIABLES lists the names."),
    (
        &["ATTACH", "DETACH"],
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
    (&["COMMENT"], "Names and files of SQL carry the comments."),
    (&["LOCK", "UNLOCK"], "A query reads one moment of the tables; there is nothing to lock."),
    (
        &["EXPORT", "IMPORT"],
        "BACKUP TO 'dir' copies a database; LOAD DATA and INTO OUTFILE move tables.",
    ),
    (&["CLONE"], "CREATE TABLE … AS SELECT copies a table."),
    (
        &["PIVOT", "UNPIVOT"],
        "Write an aggregate for each column: sum(x) FILTER (WHERE key = 'a') AS a.",
    ),
];

/// Places in the middle of a statement. A pattern is the tokens around the one at which the text cannot be
/// read, which `^` marks; `_` stands for any token.
const CLAUSES: &[(&[&str], &str)] = &[
    (&["^QUALIFY"], "Compute the window in a sub-query, and filter around it with WHERE."),
    (&["^ASOF"], "LAST JOIN is that: t LAST JOIN u ORDER BY u.ts ON t.k = u.k AND u.ts <= t.ts."),
    (
        &["^LATERAL", "LATERAL ^("],
        "LAST JOIN finds a row of another table for each row; an aggregate over several tables is a window with UNION.",
    ),
    (&["^EXCLUDE", "* ^REPLACE"], "A star is all columns; name those that are wanted."),
    (&["AS ^MATERIALIZED", "NOT ^MATERIALIZED"], "Leave the word out."),
    (
        &["^MATERIALIZED"],
        "CREATE VIEW names a query, CREATE TABLE … AS stores its rows, DEPLOY keeps what its requests read.",
    ),
    (
        &["^TABLESAMPLE", "^USING SAMPLE"],
        "Write WHERE hash64(id) % 100 = 0 for a hundredth of the rows.",
    ),
    (
        &["^PIVOT", "^UNPIVOT"],
        "Write an aggregate for each column: sum(x) FILTER (WHERE key = 'a') AS a.",
    ),
    (&["^SCHEMA"], "CREATE DATABASE makes a name space."),
    (&["^SEQUENCE", "^TRIGGER", "^EXTENSION"], "There is no such object."),
    (&["/ ^/"], "Write x DIV y to divide whole numbers."),
    (&["* ^*"], "Write pow(x, y)."),
    (&["SHOW ^ALL"], "Write SHOW VARIABLES."),
    (&["GROUP BY ^ALL", "ORDER BY ^ALL"], "Name the columns."),
    (
        &["DISTINCT ^ON"],
        "Number the rows of each key with row_number() in a sub-query, and keep those that are 1.",
    ),
    (&["TRY_CAST ( _ ^AS"], "CAST gives NULL for a text that is no value."),
    (&["^SIMILAR TO", "^~"], "Write text RLIKE 'pattern'."),
    (&["- ^>"], "Write get_json_object(text, '/name') for JSON; there are no lambdas."),
    (&["^{"], "Write map(key, value)."),
    (&["^[ ]"], "A column holds no list: store a text, of which split(text, ',') makes one."),
    (&["VALUES ^("], "Write SELECT with the values; UNION ALL adds rows."),
    (
        &["FROM _ ^(", "JOIN _ ^("],
        "In FROM stand tables, sub-queries, 'files' and read_csv, read_parquet, read_json, read_arrow, read_delta, read_iceberg.",
    ),
    (&["LIMIT _ ^%"], "LIMIT takes a number of rows."),
    (
        &["^FOR UPDATE", "^FOR SHARE"],
        "A query reads one moment of the tables; there is nothing to lock.",
    ),
    (&["^RETURNING"], "INSERT says how many rows it wrote, and SELECT reads them."),
    (
        &["^ON CONFLICT", "^ON DUPLICATE"],
        "A row with the PRIMARY KEY of a stored row takes its place. ON CONFLICT DO NOTHING leaves it out, and \
         INSERT OR IGNORE INTO leaves out a row that equals a stored one in all columns.",
    ),
    (&["^DEFAULT VALUES"], "Name a column and its value: INSERT INTO t (a) VALUES (1)."),
    (&["^UNIQUE", "^REFERENCES", "^FOREIGN", "^CHECK", "^CONSTRAINT"], CONSTRAINT),
    (&["^AUTO_INCREMENT", "^GENERATED", "^IDENTITY"], "Give the value with the row."),
    (
        &["^UNSIGNED"],
        "Write a larger type: INT for an unsigned SMALLINT, BIGINT for an unsigned INT.",
    ),
    (&["INDEX _ ON _ ^USING"], "There is one kind of index; leave USING out."),
    (
        &["^CASCADE", "^RESTRICT"],
        "DROP TABLE and DROP VIEW take it; elsewhere drop first what the error of DROP names.",
    ),
    (&["DROP VIEW _ ^,"], "Drop one in a statement."),
    (
        &["TABLE _ ^ALTER", "TABLE _ ^MODIFY"],
        "CREATE OR REPLACE TABLE t AS SELECT CAST(x AS type) AS x, … FROM t changes the type of a column.",
    ),
    (&["DELETE FROM _ ^USING"], "The condition of DELETE is over columns of the table."),
    (&["DESC ^SELECT", "DESCRIBE ^SELECT"], "EXPLAIN shows a query."),
    (&["EXPLAIN ^ANALYZE"], "Leave ANALYZE out; \\timing in the shell shows the time."),
    (&["^GROUPS"], "Write ROWS, or ROWS_RANGE for a time."),
    (&["GROUPING ^SETS"], "Write a GROUP BY for each set of columns, and UNION ALL between them."),
    (&["WITH _ ^("], "Name the columns in the query, with AS."),
    (
        &["EXCLUDE ^CURRENT", "EXCLUDE ^TIES", "EXCLUDE ^GROUP", "EXCLUDE ^NO"],
        "Write EXCLUDE CURRENT_ROW to leave the row itself out, or EXCLUDE CURRENT_TIME for the other rows of its time.",
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
pub(crate) const CONSTRAINT: &str = "A table stores every row that arrives and checks NOT NULL. INDEX(KEY=k, TS=ts) finds rows by \
     key; PRIMARY KEY (k) as the only index keeps the newest row of each key.";

/// What to write for ON CONFLICT DO UPDATE.
pub(crate) const DO_UPDATE: &str = "Without ON CONFLICT, a row with the PRIMARY KEY of a stored row takes its place \
     as a whole.";

/// What to write for EXCEPT and INTERSECT.
pub(crate) const SET_OPERATION: &str =
    "Write LAST JOIN u ON t.k = u.k, and keep the rows WHERE u.k IS NULL, or IS NOT NULL.";

/// What to write for ORDER BY in the parentheses of a call.
pub(crate) const ORDER_IN_CALL: &str = "An aggregate reads the rows of its window in order: write OVER (PARTITION BY … ORDER BY …) behind it.";

/// What to write for IGNORE NULLS.
pub(crate) const IGNORE_NULLS: &str =
    "Write first_value(x, true), last_value(x, true) or lag(x, n, true).";

/// What to write for WITHIN GROUP.
pub(crate) const WITHIN_GROUP: &str = "Write percentile(x, 0.5), or median(x).";

/// What to write for `(a, b)`.
pub(crate) const ROW_OF_VALUES: &str = "Compare the values one by one: a = 1 AND b = 2.";

/// What to write for DECIMAL(10, 2).
pub(crate) const SCALE: &str = "Write DOUBLE, to which decimal values of Python, Arrow and Parquet are \
     rounded, or BIGINT for a number of the smallest unit.";

/// What to write for WITH RECURSIVE.
pub(crate) const RECURSIVE: &str = "A chain of a known length is as many LAST JOINs.";

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
