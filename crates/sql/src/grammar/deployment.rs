//! Deployments, procedures and functions.

use super::{DocumentedOption, OptionList, StatementChapter, StatementRule};

/// The statements about what answers requests.
pub(super) const STATEMENTS: StatementChapter = StatementChapter {
    title: "Deployments, procedures and functions",
    rules: &[
        &DEPLOY,
        &DROP_DEPLOYMENT,
        &VERIFY_DEPLOYMENT,
        &CREATE_PROCEDURE,
        &DROP_PROCEDURE,
        &CALL,
        &CREATE_FUNCTION,
        &DROP_FUNCTION,
    ],
};

pub(super) const DEPLOY: StatementRule = StatementRule {
    name: "DEPLOY",
    description: "Compiles a query for serving requests and stores it under a name. \
        Builds indexes that the query requires and the tables lack, and extends the retention of \
        declared indexes that keep fewer rows than the query reads; dropping the deployment \
        reverts both. \
        `OFFSET`, files in `FROM` and `INTO OUTFILE` are not supported. \
        The deployment keeps the settings `compatibility` and `time_zone` of the session. \
        Its warnings are [lints](lints.md).",
    grammar: "DEPLOY ( OR REPLACE table_name | [ IF NOT EXISTS ] table_name )\n\
        [ OPTIONS option_list ] [ AS ] query [ CONFIG option_list ]",
    privileges: "`DEPLOY` on the deployment, `DROP` with `OR REPLACE`, and `SELECT` on each table \
        that the query reads; with `log_answers`, `INSERT` on the table of answers, `CREATE` if \
        it does not exist, and `ALTER` if columns are added to it.",
    options: &[OptionList {
        clause: "OPTIONS",
        others: "is ignored with a warning",
        options: DEPLOY_OPTIONS,
    }],
    examples: &[
        "DEPLOY spent AS SELECT user, sum(price) OVER w AS spent FROM orders\n\
         WINDOW w AS (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 30d PRECEDING AND CURRENT ROW)",
        "DEPLOY OR REPLACE shop.spent OPTIONS(pre_aggregation = 'always') AS\n\
         SELECT user, count(*) OVER w AS n FROM orders\n\
         WINDOW w AS (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 365d PRECEDING AND CURRENT ROW)",
    ],
};

const DEPLOY_OPTIONS: &[DocumentedOption] = &[
    DocumentedOption {
        name: "pre_aggregation",
        values: "`auto`, `off`, `always`",
        default: "the setting `pre_aggregation` of the session",
        meaning: "The keys for which windows have pre-aggregates.",
    },
    DocumentedOption {
        name: "long_windows",
        values: "window names, each with an optional bucket: `'w1:1d,w2:100,w3'`",
        default: "none",
        meaning: "Windows with pre-aggregates for all keys, as in OpenMLDB and with its \
            restrictions. \
            A bucket is a duration or a number of rows; the default is `1d`.",
    },
    DocumentedOption {
        name: "skip_index_check",
        values: "`true`, `false`",
        default: "`false`",
        meaning: "Whether the retention of declared indexes is left unchanged.",
    },
    DocumentedOption {
        name: "range_bias",
        values: "a duration, a number of milliseconds, or `'inf'`",
        default: "0",
        meaning: "The time for which indexes keep rows beyond the time that the query reads.",
    },
    DocumentedOption {
        name: "rows_bias",
        values: "a number of rows, or `'inf'`",
        default: "0",
        meaning: "The number of rows of a key that indexes keep beyond the rows that the query \
            reads.",
    },
    DocumentedOption {
        name: "log_answers",
        values: "the name of a table",
        default: "none",
        meaning: "The table to which each request and its answer are appended as a row. \
            The table is created if it does not exist, gets the columns that a new definition of \
            the deployment adds, and cannot be dropped before the deployment. \
            An answer must have at most one row. \
            See [Logged answers](../guide/parity.md#logged-answers).",
    },
    DocumentedOption {
        name: "sync",
        values: "`true`, `false`",
        default: "`true`",
        meaning: "An OpenMLDB option, without effect: a deployment is ready when DEPLOY returns.",
    },
];

pub(super) const DROP_DEPLOYMENT: StatementRule = StatementRule {
    name: "DROP DEPLOYMENT",
    description: "Removes a deployment and reverts the retention of the indexes that it extended.",
    grammar: "DROP DEPLOYMENT [ IF EXISTS ] table_name",
    privileges: "`DROP` on the deployment.",
    options: &[],
    examples: &["DROP DEPLOYMENT spent", "DROP DEPLOYMENT IF EXISTS shop.spent"],
};

pub(super) const VERIFY_DEPLOYMENT: StatementRule = StatementRule {
    name: "VERIFY DEPLOYMENT",
    description: "Replays stored rows of the first table as requests to the deployment, each at \
        its own position, and compares the answers with batch mode, bit by bit; both read one \
        snapshot of the tables. \
        Returns the number of requests, of compared values and of differences, with one row for \
        each of the first 20 differences, or a single row if there are none. \
        For a deployment with `GROUP BY`, `UNION`, `DISTINCT`, `ORDER BY` or `LIMIT`, each row is \
        compared with a batch-mode run of the query over the rows up to and including that row, \
        in order of arrival: see [Parity](../guide/parity.md). \
        `AGAINST ANSWERS` recomputes the answers of the requests that the option `log_answers` of \
        `DEPLOY` logged, as a training set would contain them, and reports the cause of each \
        difference: see [Logged answers](../guide/parity.md#logged-answers).",
    grammar: "VERIFY DEPLOYMENT table_name [ AGAINST ANSWERS ] [ OPTIONS option_list ]",
    privileges: "`EXECUTE` on the deployment and `SELECT` on each table that it reads; with \
        `AGAINST ANSWERS`, also `SELECT` on the table of answers.",
    options: &[OptionList {
        clause: "OPTIONS",
        others: "is an error",
        options: &[DocumentedOption {
            name: "sample",
            values: "an integer, at least 1",
            default: "all rows; 256 if each row requires a run of the query in batch mode",
            meaning: "The number of rows, or of logged answers, that are replayed. \
                They are spread over the table, and are the same in each run.",
        }],
    }],
    examples: &[
        "VERIFY DEPLOYMENT spent",
        "VERIFY DEPLOYMENT shop.spent OPTIONS(sample = 1000)",
        "VERIFY DEPLOYMENT spent AGAINST ANSWERS",
    ],
};

pub(super) const CREATE_PROCEDURE: StatementRule = StatementRule {
    name: "CREATE PROCEDURE",
    description: "Compiles a query for serving requests, like DEPLOY, with an explicit list of \
        request columns: the parameters must be the columns of the first table of the query, with \
        the same names, types and order. \
        `CONST` marks a column whose value is equal in all rows of a batch request. \
        The body is a single query. \
        Each option of `OPTIONS` is ignored with a warning. \
        `TEMPORARY` procedures are not supported.",
    grammar: "CREATE ( OR REPLACE PROCEDURE | PROCEDURE [ IF NOT EXISTS ] ) table_name parameter_list\n\
        [ OPTIONS option_list ] BEGIN query \";\" END",
    privileges: "`DEPLOY` on the procedure, `DROP` with `OR REPLACE`, and `SELECT` on each table \
        that the query reads.",
    options: &[],
    examples: &["CREATE PROCEDURE price_of (CONST item STRING, price DOUBLE, ts TIMESTAMP)\n\
         BEGIN SELECT item, price * 2 AS twice FROM prices; END"],
};

pub(super) const DROP_PROCEDURE: StatementRule = StatementRule {
    name: "DROP PROCEDURE",
    description: "Removes a procedure.",
    grammar: "DROP PROCEDURE [ IF EXISTS ] table_name",
    privileges: "`DROP` on the procedure.",
    options: &[],
    examples: &["DROP PROCEDURE price_of"],
};

pub(super) const CALL: StatementRule = StatementRule {
    name: "CALL",
    description: "Runs one request of a procedure or a deployment. \
        The arguments are constants: a value for each column of the request row, in column order.",
    grammar: "CALL table_name \"(\" [ expression { \",\" expression } ] \")\"",
    privileges: "`EXECUTE` on the procedure or the deployment.",
    options: &[],
    examples: &["CALL price_of('pen', 2.5, '2024-05-01')", "CALL spent(7, 'ann', ?, NULL, 4000)"],
};

pub(super) const CREATE_FUNCTION: StatementRule = StatementRule {
    name: "CREATE FUNCTION",
    description: "Not supported: native libraries cannot be loaded, and the statement always \
        fails. \
        Its syntax is accepted because OpenMLDB scripts contain it.",
    grammar: "CREATE [ AGGREGATE ] FUNCTION name parameter_list RETURNS type [ OPTIONS option_list ]",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["CREATE FUNCTION cut(x STRING) RETURNS STRING OPTIONS(FILE = 'libcut.so')"],
};

pub(super) const DROP_FUNCTION: StatementRule = StatementRule {
    name: "DROP FUNCTION",
    description: "Fails, because user-defined functions do not exist; with `IF EXISTS` the \
        statement has no effect.",
    grammar: "DROP FUNCTION [ IF EXISTS ] name",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["DROP FUNCTION IF EXISTS cut"],
};
