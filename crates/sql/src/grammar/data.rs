//! Rows of tables: INSERT, DELETE, TRUNCATE TABLE, LOAD DATA.

use super::{
    DocumentedOption, OptionList, RuleChapter, SharedRule, StatementChapter, StatementRule,
};

/// The statements that add and remove rows.
pub(super) const STATEMENTS: StatementChapter =
    StatementChapter { title: "Rows", rules: &[&INSERT, &DELETE, &TRUNCATE, &LOAD_DATA] };

pub(super) const INSERT: StatementRule = StatementRule {
    name: "INSERT",
    description: "Appends rows to a table: all of them or none. \
        A value is an expression without columns, and is converted to the type of its column without \
        loss, or refused: see [Values](../guide/values.md). \
        A column that the statement does not name takes its DEFAULT, or NULL. \
        The event time of an index is neither NULL nor negative. \
        `OR IGNORE` leaves out rows that are stored already. \
        `ON CONFLICT DO NOTHING` leaves out rows with a key that a stored row has in an index that keeps the \
        newest row of each key, as that of a `PRIMARY KEY` does; with columns, in the one over these. \
        It needs `execute_mode = 'online'`.",
    grammar: "INSERT ( OR IGNORE | IGNORE ) INTO table_name [ \"(\" name { \",\" name } \")\" ]\n\
        ( ( VALUES | VALUE ) row { \",\" row } | select_query )\n\
        | INSERT INTO table_name [ \"(\" name { \",\" name } \")\" ]\n\
        ( ( VALUES | VALUE ) row { \",\" row } | select_query )\n\
        [ ON CONFLICT [ \"(\" name { \",\" name } \")\" ] DO NOTHING ]",
    privileges: "`INSERT` on the table; for a query `SELECT` on each table that it reads.",
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
    description: "Removes the rows for which all conditions are true, from every index, and returns \
        how many they were. \
        A condition compares a column with a constant. \
        Where the table has declared indexes, the conditions are `=` on all key columns of one index, \
        comparisons of its event time, or both; other conditions are refused. \
        Without declared indexes they are about any columns. \
        `column = NULL` removes nothing; `column IS NULL` removes the rows that it says. \
        It needs `execute_mode = 'online'`.",
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
    description: "Removes all rows of tables, one table after the other; their columns and indexes stay.",
    grammar: "TRUNCATE [ TABLE ] table_name { \",\" table_name }",
    privileges: "`TRUNCATE` on each table.",
    options: &[],
    examples: &["TRUNCATE TABLE orders", "TRUNCATE orders, clicks"],
};

pub(super) const LOAD_DATA: StatementRule = StatementRule {
    name: "LOAD DATA",
    description: "Appends the rows of files to a table, or with `execute_mode = 'offline'` to its \
        offline data: all rows or none, unless `on_error = 'skip'`. \
        The path may be a pattern, a folder or a URL: see [Files](../guide/files.md). \
        The statement returns when the load is over, and SHOW JOBS lists it. \
        `CONFIG` is accepted and has no effect.",
    grammar: "LOAD DATA INFILE string INTO TABLE table_name\n\
        [ OPTIONS option_list ] [ CONFIG option_list ]",
    privileges: "`INSERT` on the table; for the files that the operator has listed their folder.",
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
        default: "the one that the end of the path names, or else `csv`",
        meaning: "The format of the files.",
    },
    DocumentedOption {
        name: "delimiter",
        values: "one character",
        default: "`,`, or a tab where the path ends in `.tsv`",
        meaning: "CSV: what is between two fields.",
    },
    DocumentedOption {
        name: "header",
        values: "`true`, `false`",
        default: "`true`",
        meaning: "CSV: whether the first line names the columns.",
    },
    DocumentedOption {
        name: "null_value",
        values: "a text",
        default: "`'null'`",
        meaning: "CSV: a text that is NULL, as an empty field is; in quotes, either is a STRING. \
            See [Files](../guide/files.md#csv).",
    },
    DocumentedOption {
        name: "quote",
        values: "one character, or `''`",
        default: "`'\"'`",
        meaning: "CSV: the character around a field, doubled within it; the empty text is none.",
    },
    DocumentedOption {
        name: "on_error",
        values: "`fail`, `skip`",
        default: "`fail`",
        meaning: "CSV: whether a malformed row ends the load, or is left out and counted in a warning.",
    },
    DocumentedOption {
        name: "match_by",
        values: "`name`, `position`",
        default: "`name`",
        meaning: "How the columns of the files are matched with those of the table.",
    },
    DocumentedOption {
        name: "unknown_columns",
        values: "`fail`, `ignore`",
        default: "`fail`",
        meaning: "What happens with columns that the table does not have.",
    },
    DocumentedOption {
        name: "mode",
        values: "`error_if_exists`, `overwrite`, `append`",
        default: "`append`; of offline data `error_if_exists`",
        meaning: "What happens with rows that are there; a table that is online takes only `append`.",
    },
    DocumentedOption {
        name: "deep_copy",
        values: "`true`, `false`",
        default: "`true`",
        meaning: "Whether the rows are copied; `false`, of offline data only, links the files.",
    },
    DocumentedOption {
        name: "put_if_absent",
        values: "`true`, `false`",
        default: "`false`",
        meaning: "Whether rows that are stored already are left out.",
    },
    DocumentedOption {
        name: "sql",
        values: "a query in a text",
        default: "none",
        meaning: "A query over the rows of the files, whose table it calls `file`; its rows are loaded.",
    },
    DocumentedOption {
        name: "load_mode",
        values: "`cluster`, `local`",
        default: "`cluster`",
        meaning: "Of OpenMLDB: without effect; offline data takes only `cluster`.",
    },
    DocumentedOption {
        name: "thread",
        values: "a whole number from 1 to 50",
        default: "1",
        meaning: "Of OpenMLDB: without effect, and a warning says so.",
    },
    DocumentedOption {
        name: "writer_type",
        values: "`single`, `batch`",
        default: "`single`",
        meaning: "Of OpenMLDB: without effect, and a warning says so.",
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
            note: "The operand is a constant.",
        },
    ],
};
