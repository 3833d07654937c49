//! The constructs that [`super::grammar`] draws, and their words.
//!
//! The names are those of `dialect.md`; a run's report has a line for each. [`FINDINGS`] are inputs
//! that ended the process in the past, each with a test of the text: a unit test checks that the
//! grammar still draws them.

/// Every construct, by name.
pub const ALL: &[&str] = &[
    "ARRAY",
    "AS KNOWN",
    "BETWEEN",
    "CASE",
    "CASE with an operand",
    "CAST",
    "CREATE INDEX",
    "CREATE TABLE",
    "CTE",
    "CTE chain",
    "CTE used twice",
    "DELETE",
    "DEPLOY",
    "DISTINCT",
    "EXCLUDE",
    "EXPLAIN",
    "GROUP BY",
    "HAVING",
    "IN",
    "INSERT",
    "INSTANCE_NOT_IN_WINDOW",
    "LAST JOIN",
    "LAST JOIN chain",
    "LEFT JOIN",
    "LIKE",
    "LIMIT",
    "MAP",
    "MAP column",
    "MAXSIZE",
    "OPEN",
    "ORDER BY",
    "RLIKE",
    "ROWS",
    "ROWS_RANGE",
    "SET",
    "UNION ALL",
    "VERIFY",
    "WHERE",
    "aggregate over a whole table",
    "alias used twice",
    "alias with a separator",
    "comparison with a quoted literal",
    "extreme number",
    "function call",
    "huge value",
    "join of a sub-query",
    "lag",
    "long AND or OR",
    "long IN",
    "long sum",
    "many windows",
    "nested aggregates",
    "nested sub-queries",
    "nested type in any position",
    "operator",
    "parameter",
    "pattern of many parts",
    "procedure",
    "request by CONFIG",
    "self-join",
    "stacked groups",
    "stacked joins",
    "stacked windows",
    "sub-query in FROM",
    "wide SELECT",
    "window",
    "window UNION",
];

/// Constructs that nest in themselves: the name, the text before, the text after.
pub(super) const NESTS: [(&str, &str, &str); 16] = [
    ("CASE with an operand", "CASE ", " WHEN 1 THEN 2 WHEN 3 THEN 4 END"),
    ("CASE with an operand", "CASE 1 WHEN ", " THEN 2 ELSE 3 END"),
    ("CASE", "CASE WHEN true THEN ", " END"),
    ("BETWEEN", "(", " BETWEEN false AND true)"),
    ("BETWEEN", "(true BETWEEN ", " AND true)"),
    ("BETWEEN", "CASE WHEN ", " BETWEEN 1 AND 9 THEN 1 ELSE 2 END"),
    ("IN", "(", " IN (true, false))"),
    ("IN", "CASE WHEN ", " IN (1, 2, 3) THEN 1 ELSE 2 END"),
    ("CAST", "CAST(", " AS BIGINT)"),
    ("function call", "abs(", ")"),
    ("function call", "coalesce(NULL, ", ", 1)"),
    ("operator", "(1 + ", ")"),
    ("operator", "- ", ""),
    ("operator", "(", ")"),
    ("MAP", "map('a', ", ")['a']"),
    ("ARRAY", "[", "][1]"),
];

/// Names of columns and tables that are hard to tell apart or to quote.
pub(super) const ALIASES: [&str; 20] = [
    "a",
    "b",
    "`a:2`",
    "`a:1`",
    "`a.b`",
    "`a,b`",
    "`a b`",
    "`a|b`",
    "`*`",
    "`select`",
    "`A`",
    "`1`",
    "`?`",
    "`漢字`",
    "`a'b`",
    "`a\"b`",
    "`__index`",
    "`a;b`",
    "`a/b`",
    "`a\\b`",
];

/// Numbers at the limits of their types.
pub(super) const EXTREMES: [&str; 16] = [
    "0",
    "-1",
    "1",
    "32767",
    "32768",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967296",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
    "106751991167",
    "106751991168",
    "86400000",
    "18446744073709551616",
];

/// An input that ended or stalled the process, or reported an internal error.
#[derive(Debug, Clone, Copy)]
pub struct PastFinding {
    /// What it is.
    pub what: &'static str,
    /// Tells whether a text has it.
    pub is_in: fn(&str) -> bool,
}

/// See [`PastFinding`].
pub const FINDINGS: &[PastFinding] = &[
    PastFinding {
        what: "30 nested CASE with an operand",
        is_in: |text| has(text, "CASE CASE ", 15),
    },
    PastFinding {
        what: "30 nested BETWEEN",
        is_in: |text| has(text, " BETWEEN false AND true)", 30),
    },
    PastFinding { what: "30 nested IN", is_in: |text| has(text, " IN (true, false))", 30) },
    PastFinding { what: "a chain of 20,000 CTEs", is_in: |text| has(text, " AS (SELECT ", 20_000) },
    PastFinding {
        what: "a frame that ends at the greatest number",
        is_in: |text| text.contains("UNBOUNDED PRECEDING AND 9223372036854775807 OPEN PRECEDING"),
    },
    PastFinding {
        what: "an alias that looks like another one's second use",
        is_in: |text| text.contains("1 AS a, 2 AS a,") && text.contains("AS `a:2`"),
    },
    PastFinding {
        what: "LAST JOIN that reads a MAP column",
        is_in: |text| text.contains("LAST JOIN m1") && text.contains(".m AS m"),
    },
    PastFinding {
        what: "SHOW JOBS LIKE with many %",
        is_in: |text| text.starts_with("SHOW JOBS LIKE") && has(text, "%", 20),
    },
    PastFinding {
        what: "34 stacked windows, deployed",
        is_in: |text| text.starts_with("DEPLOY") && has(text, " WINDOW w AS (", 34),
    },
    PastFinding {
        what: "a CTE used twice in each of 25 levels",
        is_in: |text| has(text, " AS a LAST JOIN ", 25),
    },
    PastFinding { what: "500 LAST JOINs", is_in: |text| has(text, " LAST JOIN ", 500) },
    PastFinding { what: "5,000 columns", is_in: |text| has(text, " AS x", 5_000) },
    PastFinding {
        what: "replace of a long text by a long text in a long text",
        is_in: |text| text.contains("replace(rpad('', 30000, 'a'), 'a', rpad('', 30000, 'a'))"),
    },
    PastFinding {
        what: "an aggregate in the argument of an aggregate",
        is_in: |text| text.contains("count_where(c3, c3 = lag(c3, 0)"),
    },
    PastFinding { what: "AND of 16,384 terms", is_in: |text| has(text, " AND c3 <> ", 16_384) },
    PastFinding { what: "OR of 16,384 terms", is_in: |text| has(text, " OR c3 <> ", 16_384) },
];

fn has(text: &str, part: &str, times: usize) -> bool {
    text.matches(part).take(times).count() == times
}
