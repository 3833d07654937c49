//! The constructs of drawn queries, tables and requests, and how often each was compared.
//!
//! [`super::draw`] and [`super::tables`] note these names. A test checks that none is left out.

use lockstep_function::aggregate;

/// The mode without the setting.
pub const STANDARD: &str = "the default mode";

/// `SET compatibility = 'openmldb'`.
pub const OPENMLDB: &str = "the compatibility mode";

/// Every table is a disk table.
pub const DISK_TABLES: &str = "disk tables";

/// A key has rows in more than one chunk.
pub const LONG_KEYS: &str = "a key of several chunks";

/// Requests that are answered together.
pub const SEVERAL: &str = "several requests at once";

/// A request without the columns that the query does not read.
pub const FEWER_COLUMNS: &str = "a request of fewer columns";

/// VERIFY replayed the stored rows.
pub const VERIFIED: &str = "VERIFY";

/// The constructs of queries as the dialect names them: the clause, and the construct.
pub const CONSTRUCTS: &[(&str, &str)] = &[
    ("mode", STANDARD),
    ("mode", OPENMLDB),
    ("tables", "chunks of 2 rows"),
    ("tables", "chunks of 5 rows"),
    ("tables", "chunks of 128 rows"),
    ("tables", LONG_KEYS),
    ("tables", "no declared index"),
    ("tables", "one index"),
    ("tables", "several indexes"),
    ("tables", "retention that keeps every row"),
    ("tables", "rows in order of time"),
    ("tables", "late rows"),
    ("tables", "rows one by one"),
    ("tables", "extreme values"),
    ("tables", DISK_TABLES),
    ("request", "a query without DEPLOY"),
    ("request", "DEPLOY before the rows"),
    ("request", "DEPLOY among the rows"),
    ("request", "DEPLOY after the rows"),
    ("request", SEVERAL),
    ("request", FEWER_COLUMNS),
    ("request", VERIFIED),
    ("SELECT", "projection"),
    ("SELECT", "all columns"),
    ("SELECT", "sub-query"),
    ("SELECT", "CTE"),
    ("SELECT", "CTE used twice"),
    ("SELECT", "view"),
    ("SELECT", "view used twice"),
    ("SELECT", "DISTINCT"),
    ("SELECT", "WHERE"),
    ("SELECT", "ORDER BY"),
    ("SELECT", "LIMIT"),
    ("SELECT", "LIMIT 0"),
    ("SELECT", "OFFSET"),
    ("SELECT", "UNION ALL"),
    ("SELECT", "UNION ALL of the request table"),
    ("SELECT", "UNION DISTINCT"),
    ("SELECT", "WHERE in a sub-query"),
    ("GROUP BY", "GROUP BY"),
    ("GROUP BY", "GROUP BY in a sub-query"),
    ("GROUP BY", "HAVING"),
    ("GROUP BY", "whole table"),
    ("GROUP BY", "expression as a group key"),
    ("WINDOW", "window"),
    ("WINDOW", "features of a key"),
    ("WINDOW", "window in a sub-query"),
    ("WINDOW", "window over windows"),
    ("WINDOW", "window over a LAST JOIN"),
    ("WINDOW", "two windows"),
    ("WINDOW", "window that extends another"),
    ("WINDOW", "window in OVER"),
    ("WINDOW", "window without ORDER BY"),
    ("WINDOW", "window without PARTITION BY"),
    ("WINDOW", "row_number, rank and dense_rank"),
    ("WINDOW", "window ordered by another column"),
    ("WINDOW", "ROWS"),
    ("WINDOW", "ROWS_RANGE"),
    ("WINDOW", "RANGE"),
    ("WINDOW", "INTERVAL in a frame"),
    ("WINDOW", "window without a frame"),
    ("WINDOW", "OPEN PRECEDING"),
    ("WINDOW", "frame without an end"),
    ("WINDOW", "frame that begins beyond all rows"),
    ("WINDOW", "frame that ends beyond all rows"),
    ("WINDOW", "frame that ends before the current row"),
    ("WINDOW", "MAXSIZE"),
    ("WINDOW", "EXCLUDE CURRENT_ROW"),
    ("WINDOW", "EXCLUDE CURRENT_TIME"),
    ("WINDOW", "INSTANCE_NOT_IN_WINDOW"),
    ("WINDOW", "window UNION"),
    ("WINDOW", "window UNION of two"),
    ("WINDOW", "window UNION of the request table"),
    ("WINDOW", "window UNION of a sub-query"),
    ("WINDOW", "window UNION of a LAST JOIN"),
    ("WINDOW", "expression as a partition key"),
    ("calls", "aggregate with a condition"),
    ("calls", "aggregate by category"),
    ("calls", "aggregate of ranks"),
    ("calls", "aggregate of spread"),
    ("calls", "aggregate in order of time"),
    ("calls", "aggregate in the argument of an aggregate"),
    ("calls", "scalar function of aggregates"),
    ("calls", "OVER on a scalar function"),
    ("calls", "lag as an item"),
    ("calls", "lag in an expression"),
    ("calls", "lag that passes over NULL"),
    ("calls", "lag in the argument of an aggregate"),
    ("JOIN", "LAST JOIN"),
    ("JOIN", "LAST JOIN in a sub-query"),
    ("JOIN", "LAST JOIN without ORDER BY"),
    ("JOIN", "LAST JOIN of two"),
    ("JOIN", "LAST JOIN up to a time"),
    ("JOIN", "LAST JOIN with another condition"),
    ("JOIN", "expression as a join key"),
    ("JOIN", "self-join"),
    ("JOIN", "self-join by id"),
    ("JOIN", "feature groups"),
    ("JOIN", "projection on the right"),
    ("JOIN", "WHERE on the right"),
    ("JOIN", "window on the right"),
    ("JOIN", "window over the request table on the right"),
    ("JOIN", "LAST JOIN on the right"),
    ("JOIN", "LAST JOIN of the request table on the right"),
    ("JOIN", "LEFT JOIN on the right"),
    ("JOIN", "UNION ALL on the right"),
    ("JOIN", "GROUP BY on the right"),
    ("JOIN", "LEFT JOIN"),
    ("values", "arithmetic"),
    ("values", "division"),
    ("values", "sign"),
    ("values", "DIV and %"),
    ("values", "bit operators"),
    ("values", "CASE"),
    ("values", "CASE of a value"),
    ("values", "CAST"),
    ("values", "scalar function"),
    ("values", "ARRAY and MAP"),
    ("values", "NULL"),
    ("values", "AND and OR"),
    ("values", "NOT and XOR"),
    ("values", "comparison"),
    ("values", "BETWEEN"),
    ("values", "IN"),
    ("values", "IN (SELECT …)"),
    ("values", "NOT IN (SELECT …)"),
    ("values", "IN (SELECT …) in the select list"),
    ("values", "IS NULL"),
    ("values", "LIKE and RLIKE"),
];

/// Words of EXPLAIN for a deployed program, and the construct that each shows.
pub const PATHS: &[(&str, &str)] = &[
    ("from the included columns of the index", "windows read included columns"),
    ("sources from the included columns of the index", "of some sources only"),
    ("folds ", "aggregates fold"),
    ("row by row: ", "aggregates go row by row"),
    ("by machine code", "values by machine code"),
    ("computes in machine code", "items in machine code"),
    ("fallback: ", "a part runs in batch mode"),
    ("batch mode, over all rows", "the whole runs in batch mode"),
];

/// Lists all constructs: those of the list, the execution paths, and each aggregate function.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let functions = aggregate::all().map(|function| ("function", function.name));
    let paths = PATHS.iter().map(|(_, construct)| ("program", *construct));
    CONSTRUCTS.iter().copied().chain(paths).chain(functions)
}

/// How often a construct was compared.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ConstructCount {
    /// All comparisons.
    pub compared: u64,
    /// Of these, by a deployment over a key of several chunks.
    pub deployed_over_long_keys: u64,
    /// Of these, under the compatibility setting.
    pub compatible: u64,
}

impl ConstructCount {
    /// Counts one query with these constructs.
    pub fn add(&mut self, all: &[&str]) {
        let has = |name: &str| all.contains(&name);
        let is_deployed = all.iter().any(|name| name.starts_with("DEPLOY "));
        self.compared += 1;
        self.deployed_over_long_keys += u64::from(is_deployed && has(LONG_KEYS));
        self.compatible += u64::from(has(OPENMLDB));
    }
}
