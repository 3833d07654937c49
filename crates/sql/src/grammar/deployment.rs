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
    description: "Compiles a query that answers requests, and gives it a name. \
        It builds the indexes that the query reads and the tables do not have, and makes the retention \
        of declared indexes longer where they keep fewer rows than the query reads; both go with the \
        deployment. \
        `OFFSET`, files in `FROM` and `INTO OUTFILE` are refused. \
        The deployment keeps the settings `compatibility` and `time_zone` of the session. \
        Its warnings are [lints](lints.md).",
    grammar: "DEPLOY ( OR REPLACE table_name | [ IF NOT EXISTS ] table_name )\n\
        [ OPTIONS option_list ] [ AS ] query [ CONFIG option_list ]",
    privileges: "`DEPLOY` on the deployment, `DROP` too with `OR REPLACE`, and `SELECT` on each table that \
        the query reads; with `log_answers` `INSERT` on that table, `CREATE` where it is made, and \
        `ALTER` where it gets columns.",
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
        meaning: "For which keys windows have pre-aggregates.",
    },
    DocumentedOption {
        name: "long_windows",
        values: "names of windows, each with its bucket: `'w1:1d,w2:100,w3'`",
        default: "none",
        meaning: "Windows that have pre-aggregates for all keys, as in OpenMLDB, with its limits. \
            A bucket is a duration or a number of rows; without one it is `1d`.",
    },
    DocumentedOption {
        name: "skip_index_check",
        values: "`true`, `false`",
        default: "`false`",
        meaning: "Whether the retention of declared indexes is left as it is.",
    },
    DocumentedOption {
        name: "range_bias",
        values: "a duration, a number of milliseconds, or `'inf'`",
        default: "0",
        meaning: "For how much longer than the query reads back its indexes keep rows.",
    },
    DocumentedOption {
        name: "rows_bias",
        values: "a number of rows, or `'inf'`",
        default: "0",
        meaning: "How many more rows of a key than the query reads its indexes keep.",
    },
    DocumentedOption {
        name: "log_answers",
        values: "the name of a table",
        default: "none",
        meaning: "Where each request and its answer are added as a row; the table is made where there is \
            none, gets the columns that a new definition of the deployment adds, and cannot be dropped before \
            the deployment. An answer has one row at most. \
            See [Logged answers](../guide/parity.md#logged-answers).",
    },
    DocumentedOption {
        name: "sync",
        values: "`true`, `false`",
        default: "`true`",
        meaning: "Of OpenMLDB: without effect, since a deployment is ready when DEPLOY returns.",
    },
];

pub(super) const DROP_DEPLOYMENT: StatementRule = StatementRule {
    name: "DROP DEPLOYMENT",
    description: "Removes a deployment; the longer retention of indexes that it made ends with it.",
    grammar: "DROP DEPLOYMENT [ IF EXISTS ] table_name",
    privileges: "`DROP` on the deployment.",
    options: &[],
    examples: &["DROP DEPLOYMENT spent", "DROP DEPLOYMENT IF EXISTS shop.spent"],
};

pub(super) const VERIFY_DEPLOYMENT: StatementRule = StatementRule {
    name: "VERIFY DEPLOYMENT",
    description: "Replays stored rows of the first table as requests to the deployed program, each at its own \
        position, and compares the answers with batch mode, bit by bit; both read one snapshot of the tables. \
        It returns how many requests were made, how many values were compared and how many differ, and a \
        row for each of the first 20 differences, or one row without a difference. \
        A deployment with `GROUP BY`, `UNION`, `DISTINCT`, `ORDER BY` or `LIMIT` is compared with a run of \
        its query in batch mode for each row, over the rows that had arrived with it: see \
        [Parity](../guide/parity.md). \
        `AGAINST ANSWERS` takes the requests that the option `log_answers` of `DEPLOY` logged, computes their \
        answers again as a training set would have them, and says why those differ that do: see \
        [Logged answers](../guide/parity.md#logged-answers).",
    grammar: "VERIFY DEPLOYMENT table_name [ AGAINST ANSWERS ] [ OPTIONS option_list ]",
    privileges: "`EXECUTE` on the deployment, and `SELECT` on each table that it reads, with `AGAINST ANSWERS` \
        on that of the answers, too.",
    options: &[OptionList {
        clause: "OPTIONS",
        others: "is an error",
        options: &[DocumentedOption {
            name: "sample",
            values: "a whole number, at least 1",
            default: "all rows; 256 where each costs a run of the query in batch mode",
            meaning: "How many rows, or logged answers, are replayed, spread over the table and the same each \
                time.",
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
    description: "Compiles a query that answers requests, as DEPLOY does, with the columns of its \
        requests written out: the parameters are the columns of the first table of the query, with \
        their names, types and order. \
        `CONST` marks a column that is equal in all rows of a batch request. \
        The body is one query. \
        `OPTIONS` are accepted, and each is ignored with a warning. \
        A `TEMPORARY` procedure does not exist.",
    grammar: "CREATE ( OR REPLACE PROCEDURE | PROCEDURE [ IF NOT EXISTS ] ) table_name parameter_list\n\
        [ OPTIONS option_list ] BEGIN query \";\" END",
    privileges: "`DEPLOY` on the procedure, `DROP` too with `OR REPLACE`, and `SELECT` on each table that the \
        query reads.",
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
    description: "Answers one request of a procedure or a deployment. \
        The arguments are constants, one for each column of the request row in its order.",
    grammar: "CALL table_name \"(\" [ expression { \",\" expression } ] \")\"",
    privileges: "`EXECUTE` on the procedure or deployment.",
    options: &[],
    examples: &["CALL price_of('pen', 2.5, '2024-05-01')", "CALL spent(7, 'ann', ?, NULL, 4000)"],
};

pub(super) const CREATE_FUNCTION: StatementRule = StatementRule {
    name: "CREATE FUNCTION",
    description: "Is read and refused: native libraries are not loaded. \
        It is here since scripts for OpenMLDB have it.",
    grammar: "CREATE [ AGGREGATE ] FUNCTION name parameter_list RETURNS type [ OPTIONS option_list ]",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["CREATE FUNCTION cut(x STRING) RETURNS STRING OPTIONS(FILE = 'libcut.so')"],
};

pub(super) const DROP_FUNCTION: StatementRule = StatementRule {
    name: "DROP FUNCTION",
    description: "Fails, since there are no functions of users; with `IF EXISTS` it does nothing.",
    grammar: "DROP FUNCTION [ IF EXISTS ] name",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["DROP FUNCTION IF EXISTS cut"],
};
