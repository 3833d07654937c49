//! Rows of tables: INSERT, DELETE, TRUNCATE TABLE, LOAD DATA.

use super::{
    DocumentedOption, OptionList, RuleChapter, SharedRule, StatementChapter, StatementRule,
};

/// The statements that add and remove rows.
pub(super) const STATEMENTS: StatementChapter =
    StatementChapter { title: "Rows", rules: &[&INSERT, &DELETE, &TRUNCATE, &LOAD_DATA] };

pub(super) const INSERT: StatementRule = StatementRule {
    name: "INSERT",
    description: "Appends rows to a table: either all rows or none. \
        Each value is an expression without columns, and must convert to the type of its column \
        without loss: see [Values](../guide/values.md). \
        A column that the statement does not name gets its DEFAULT, or NULL. \
        The event time of an index must be neither NULL nor negative. \
        `OR IGNORE` skips rows that are already stored. \
        `ON CONFLICT DO NOTHING` skips rows whose key is already stored in an index that keeps \
        only the newest row of each key, such as the index of a `PRIMARY KEY`; a column list \
        selects the index over these columns. \
        The statement requires `execute_mode = 'online'`.",
    grammar: "INSERT ( OR IGNORE | IGNORE ) INTO table_name [ \"(\" name { \",\" name } \")\" ]\n\
        ( ( VALUES | VALUE ) row { \",\" row } | select_query )\n\
        | INSERT INTO table_name [ \"(\" name { \",\" name } \")\" ]\n\
        ( ( VALUES | VALUE ) row { \",\" row } | select_query )\n\
        [ ON CONFLICT [ \"(\" name { \",\" name } \")\" ] DO NOTHING ]",
    privileges: "`INSERT` on the table; for a query, `SELECT` on each table that it reads.",
    options: &[],
    examples: &[
        "INSERT INTO orders VALUES (7, 'ann', 'pen', 2.5, '2024-05-01 12:00:00')",
        "INSERT INTO orders (id, user, ts) VALUES (?, ?, ?), (9, 'bob', 1714564800000)",
        "INSERT INTO users VALUES (1, 'ann') ON CONFLICT (id) DO NOTHING",
        "INSERT OR IGNORE INTO orders SELECT * FROM 'orders.csv'",
    ],
};

pub(super) const DELETE: StatementRule = StatementRule {
    name: "DELETE",
    description: "Removes the rows for which all conditions are true from every index, and \
        returns the number of removed rows. \
        A condition compares a column with a constant. \
        If the table has declared indexes, the conditions must be `=` on all key columns of one \
        index, comparisons of its event time, or both. \
        Without declared indexes, conditions can use any columns. \
        `column = NULL` removes no rows; `column IS NULL` removes the rows in which the column is \
        NULL. \
        The statement requires `execute_mode = 'online'`.",
    grammar: "DELETE FROM table_name WHERE delete_condition { AND delete_condition }",
    privileges: "`DELETE` on the table.",
    options: &[],
    examples: &[
        "DELETE FROM orders WHERE user = 'ann' AND ts < '2024-01-01'",
        "DELETE FROM shop.clicks WHERE user IS NULL",
    ],
};

pub(super) const TRUNCATE: StatementRule = StatementRule {
    name: "TRUNCATE TABLE",
    description: "Removes all rows of the tables, one table after another; their columns and \
        indexes are kept.",
    grammar: "TRUNCATE [ TABLE ] table_name { \",\" table_name }",
    privileges: "`TRUNCATE` on each table.",
    options: &[],
    examples: &["TRUNCATE TABLE orders", "TRUNCATE orders, clicks"],
};

pub(super) const LOAD_DATA: StatementRule = StatementRule {
    name: "LOAD DATA",
    description: "Appends the rows of files to a table or, with `execute_mode = 'offline'`, to \
        its offline data: either all rows or none, unless `on_error = 'skip'`. \
        The path can be a pattern, a directory or a URL: see [Files](../guide/files.md). \
        The statement returns when the load has finished; SHOW JOBS lists it. \
        `CONFIG` is accepted and has no effect.",
    grammar: "LOAD DATA INFILE string INTO TABLE table_name\n\
        [ OPTIONS option_list ] [ CONFIG option_list ]",
    privileges: "`INSERT` on the table; the files must be in a directory listed in the setting \
        `server.file_folders`.",
    options: &[OptionList {
        clause: "OPTIONS",
        others: "is ignored with a warning",
        options: LOAD_OPTIONS,
    }],
    examples: &[
        "LOAD DATA INFILE 'orders.parquet' INTO TABLE orders",
        "LOAD DATA INFILE 'orders/*.csv' INTO TABLE shop.orders \
         OPTIONS(delimiter = ';', header = false, on_error = 'skip')",
    ],
};

const LOAD_OPTIONS: &[DocumentedOption] = &[
    DocumentedOption {
        name: "format",
        values: "`csv`, `parquet`, `json`, `arrow`",
        default: "the format of the file extension, or `csv`",
        meaning: "The format of the files.",
    },
    DocumentedOption {
        name: "delimiter",
        values: "one character",
        default: "`,`, or a tab if the path ends in `.tsv`",
        meaning: "CSV: the separator between fields.",
    },
    DocumentedOption {
        name: "header",
        values: "`true`, `false`",
        default: "`true`",
        meaning: "CSV: whether the first line contains the column names.",
    },
    DocumentedOption {
        name: "null_value",
        values: "a string",
        default: "`'null'`",
        meaning: "CSV: an unquoted field with this string is NULL, as is an empty unquoted field; \
            in quotes, either is a STRING. \
            See [Files](../guide/files.md#csv).",
    },
    DocumentedOption {
        name: "quote",
        values: "one character, or `''`",
        default: "`'\"'`",
        meaning: "CSV: the quote character of fields, doubled within a field; the empty string \
            disables quoting.",
    },
    DocumentedOption {
        name: "on_error",
        values: "`fail`, `skip`",
        default: "`fail`",
        meaning: "CSV: whether a malformed row aborts the load, or is skipped and counted in a \
            warning.",
    },
    DocumentedOption {
        name: "match_by",
        values: "`name`, `position`",
        default: "`name`",
        meaning: "How columns of the files are matched with columns of the table.",
    },
    DocumentedOption {
        name: "unknown_columns",
        values: "`fail`, `ignore`",
        default: "`fail`",
        meaning: "How columns that the table does not have are handled.",
    },
    DocumentedOption {
        name: "mode",
        values: "`error_if_exists`, `overwrite`, `append`",
        default: "`append`; for offline data, `error_if_exists`",
        meaning: "How existing rows are handled; online tables support only `append`.",
    },
    DocumentedOption {
        name: "deep_copy",
        values: "`true`, `false`",
        default: "`true`",
        meaning: "Whether the rows are copied; `false` links the files, and is supported for \
            offline data only.",
    },
    DocumentedOption {
        name: "put_if_absent",
        values: "`true`, `false`",
        default: "`false`",
        meaning: "Whether rows that are already stored are skipped.",
    },
    DocumentedOption {
        name: "sql",
        values: "a query as a string",
        default: "none",
        meaning: "A query over the rows of the files, as the table `file`; the rows of its result \
            are loaded.",
    },
    DocumentedOption {
        name: "load_mode",
        values: "`cluster`, `local`",
        default: "`cluster`",
        meaning: "An OpenMLDB option, without effect; offline data supports only `cluster`.",
    },
    DocumentedOption {
        name: "thread",
        values: "an integer from 1 to 50",
        default: "1",
        meaning: "An OpenMLDB option, without effect; setting it issues a warning.",
    },
    DocumentedOption {
        name: "writer_type",
        values: "`single`, `batch`",
        default: "`single`",
        meaning: "An OpenMLDB option, without effect; setting it issues a warning.",
    },
];

/// The rules of rows.
pub(super) const RULES: RuleChapter = RuleChapter {
    title: "Rules of rows",
    rules: &[
        SharedRule {
            name: "row",
            grammar: "\"(\" expression { \",\" expression } \")\"",
            note: "",
        },
        SharedRule {
            name: "delete_condition",
            grammar: "column ( \"=\" | \"<\" | \"<=\" | \">\" | \">=\" ) operand\n\
                | operand ( \"=\" | \"<\" | \"<=\" | \">\" | \">=\" ) column\n\
                | column IS NULL",
            note: "The operand must be a constant.",
        },
    ],
};
