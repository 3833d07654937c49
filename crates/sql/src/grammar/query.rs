//! SELECT and EXPLAIN, and the rules of queries and windows.

use super::{
    DocumentedOption, OptionList, RuleChapter, SharedRule, StatementChapter, StatementRule,
};

/// The statements that run a query.
pub(super) const STATEMENTS: StatementChapter =
    StatementChapter { title: "Queries", rules: &[&SELECT, &EXPLAIN] };

pub(super) const SELECT: StatementRule = StatementRule {
    name: "SELECT",
    description: "Computes a query over the stored rows, in batch mode. \
        With `CONFIG(execute_mode = 'request', values = …)` it is computed for the request rows \
        of `values` instead, as a deployment of the query would. \
        With `AS KNOWN AT ARRIVAL`, each row of the first table is computed from the rows that \
        had arrived before it, in every table, as a request at that moment would be. \
        With `AS KNOWN AT` a column, each row is computed from the rows whose time in the column \
        of this name, which every table must have, is not later than its own ([training \
        sets](../guide/training-sets.md#as-known-at-the-time)). \
        With `INTO OUTFILE`, the rows are written to a file, which appears when it is complete; a \
        path that is a directory or ends in `/` denotes a directory of files. \
        `EXCEPT`, `INTERSECT`, `NATURAL JOIN`, `JOIN … USING`, `QUALIFY`, `FETCH`, and subqueries \
        in expressions other than `x IN (SELECT …)`, are not supported; the error message \
        suggests an alternative.",
    grammar: "query_statement",
    privileges: "`SELECT` on each table that the query reads; for a file, also in `FROM`, a \
        directory listed in the setting `server.file_folders`.",
    options: &[
        OptionList {
            clause: "OPTIONS of INTO OUTFILE",
            others: "is ignored with a warning",
            options: OUTFILE_OPTIONS,
        },
        OptionList { clause: "CONFIG", others: "is ignored with a warning", options: CONFIG },
    ],
    examples: &[
        "SELECT user, sum(price) OVER w AS spent FROM orders\n\
         WINDOW w AS (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 30d PRECEDING AND CURRENT ROW)",
        "SELECT orders.id, prices.price FROM orders\n\
         LAST JOIN prices ORDER BY prices.ts ON orders.item = prices.item AND prices.ts <= orders.ts",
        "WITH dear AS (SELECT * FROM orders WHERE price > 100)\n\
         SELECT user, count(*) AS n FROM dear GROUP BY user HAVING count(*) > 1 ORDER BY n DESC LIMIT 10",
        "SELECT user, sum(price) OVER w AS spent FROM orders\n\
         WINDOW w AS (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 30d PRECEDING AND CURRENT ROW)\n\
         AS KNOWN AT ARRIVAL",
        "SELECT * FROM orders INTO OUTFILE 'orders.parquet' OPTIONS(mode = 'overwrite')",
        "SELECT user, price * 2 AS twice FROM orders\n\
         CONFIG(execute_mode = 'request', values = (7, 'ann', 'pen', 2.5, timestamp(4000)))",
    ],
};

const OUTFILE_OPTIONS: &[DocumentedOption] = &[
    DocumentedOption {
        name: "format",
        values: "`csv`, `parquet`, `json`, `arrow`",
        default: "the format of the file extension, or `csv`",
        meaning: "The format of the file.",
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
        default: "`true`; `false` if rows are appended to a file that is not empty",
        meaning: "CSV: whether the first line contains the column names.",
    },
    DocumentedOption {
        name: "null_value",
        values: "a string",
        default: "`''`, and `'null'` with `compatibility = 'openmldb'`",
        meaning: "CSV: the string that represents NULL. \
            A STRING that would be read as NULL is quoted.",
    },
    DocumentedOption {
        name: "quote",
        values: "one character, or `''`",
        default: "fields that could not be read back otherwise are quoted with `\"`",
        meaning: "CSV: the quote character around every STRING; the empty string disables quoting.",
    },
    DocumentedOption {
        name: "mode",
        values: "`error_if_exists`, `overwrite`, `append`",
        default: "`error_if_exists`",
        meaning: "How an existing file is handled.",
    },
    DocumentedOption {
        name: "partition_by",
        values: "column names, separated by commas",
        default: "none",
        meaning: "The path is a directory with subdirectories `name=value` for the values of \
            these columns, outermost first; the files do not contain these columns.",
    },
    DocumentedOption {
        name: "coalesce",
        values: "an integer from 0 to 10000",
        default: "0, which means one file",
        meaning: "The number of files, if the path is a directory.",
    },
];

const CONFIG: &[DocumentedOption] = &[
    DocumentedOption {
        name: "execute_mode",
        values: "`'online'`, `'offline'`, `'request'`",
        default: "the setting `execute_mode` of the session",
        meaning: "Whether the query reads the tables, reads their offline data, or computes \
            requests.",
    },
    DocumentedOption {
        name: "values",
        values: "a row `(…)` or a list of rows `[(…), (…)]` of constants",
        default: "none",
        meaning: "The request rows, each with a value for every column of the first table of the \
            query. \
            Required with `execute_mode = 'request'`, and allowed only there.",
    },
];

pub(super) const EXPLAIN: StatementRule = StatementRule {
    name: "EXPLAIN",
    description: "Returns the plan of a query in batch mode, its program in request mode or the \
        reason why it has none, and the indexes that a deployment of the query would add. \
        The warnings are the same as those of DEPLOY. \
        Neither runs nor builds anything; `LOGICAL` and `PHYSICAL` have no effect. \
        `ANALYZE` also runs the query, in request mode if its CONFIG says so, or a call of a deployment or \
        procedure, discards the rows, and returns their number, the time, and the pages of [disk tables](../guide/disk-tables.md) that it \
        found in the page cache and that it read.",
    grammar: "EXPLAIN [ ANALYZE | LOGICAL | PHYSICAL ] query_statement\n\
        | EXPLAIN ANALYZE CALL table_name \"(\" [ expression { \",\" expression } ] \")\"",
    privileges: "`SELECT` on each table that the query reads; for a call, the privileges of CALL.",
    options: &[],
    examples: &["EXPLAIN SELECT user, max(price) OVER w AS top FROM orders\n\
         WINDOW w AS (PARTITION BY user ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"],
};

/// The rules of queries.
pub(super) const RULES: RuleChapter = RuleChapter {
    title: "Rules of queries",
    rules: &[
        SharedRule {
            name: "query_statement",
            grammar: "query [ AS KNOWN AT ( ARRIVAL | name ) ]\n\
                [ INTO OUTFILE string [ OPTIONS option_list ] ] [ CONFIG option_list ]",
            note: "",
        },
        SharedRule { name: "query", grammar: "[ with ] query_operand query_rest", note: "" },
        SharedRule {
            name: "select_query",
            grammar: "( with query_operand | simple_select ) query_rest",
            note: "A query that starts with `SELECT` or `WITH`, not with a parenthesis.",
        },
        SharedRule {
            name: "query_rest",
            grammar: "{ UNION [ ALL | DISTINCT ] query_operand } [ order_by ]\n\
                [ LIMIT ( whole_number | ALL ) ] [ OFFSET whole_number ]",
            note: "`UNION` without `ALL` removes duplicate rows. \
                All sides of a `UNION` must have the same column names and types. \
                `ORDER BY`, `LIMIT` and `OFFSET` apply to the whole `UNION`; a side with clauses \
                of its own must be in parentheses.",
        },
        SharedRule {
            name: "with",
            grammar: "WITH common_table { \",\" common_table }",
            note: "Names subqueries. \
                `RECURSIVE` is not supported.",
        },
        SharedRule {
            name: "common_table",
            grammar: "name [ column_names ] AS \"(\" query \")\"",
            note: "",
        },
        SharedRule {
            name: "column_names",
            grammar: "\"(\" name { \",\" name } \")\"",
            note: "Names for the first columns; the other columns keep their names.",
        },
        SharedRule {
            name: "query_operand",
            grammar: "simple_select | \"(\" query \")\"",
            note: "",
        },
        SharedRule {
            name: "simple_select",
            grammar: "SELECT [ DISTINCT | ALL ] select_item { \",\" select_item }\n\
                [ [ \",\" ] FROM from ]\n\
                [ WHERE expression ]\n\
                [ GROUP BY expression { \",\" expression } ]\n\
                [ HAVING expression ]\n\
                [ WINDOW window_definition { \",\" window_definition } ]",
            note: "A comma is allowed after the last item, before `FROM` and at the end of the \
                query. \
                A name in `GROUP BY`, `HAVING` and the `ORDER BY` of the query can be an alias of \
                an item; in `GROUP BY` and `HAVING`, a column of that name takes precedence. \
                An integer in `GROUP BY` and `ORDER BY` is the position of a column in the select \
                list, starting at 1.",
        },
        SharedRule {
            name: "select_item",
            grammar: "\"*\" | name \".\" [ name \".\" ] \"*\" | expression [ alias ]",
            note: "",
        },
        SharedRule {
            name: "alias",
            grammar: "[ AS ] name",
            note: "Without `AS`, a keyword that can follow the item cannot be its alias: see \
                [Keywords](#keywords).",
        },
        SharedRule {
            name: "from",
            grammar: "joined_tables { \",\" joined_tables }",
            note: "A comma is a `CROSS JOIN` with lower precedence than the other joins.",
        },
        SharedRule { name: "joined_tables", grammar: "table { join }", note: "" },
        SharedRule {
            name: "table",
            grammar: "named_table | \"(\" query \")\" [ table_alias ] | \"(\" named_table { join } \")\"",
            note: "",
        },
        SharedRule {
            name: "named_table",
            grammar: "( table_name | files ) [ table_alias ]",
            note: "",
        },
        SharedRule { name: "table_alias", grammar: "alias [ column_names ]", note: "" },
        SharedRule {
            name: "join",
            grammar: "LAST JOIN table [ order_by ] ON expression\n\
                | [ INNER | LEFT [ OUTER ] | RIGHT [ OUTER ] | FULL [ OUTER ] ] JOIN table ON expression\n\
                | CROSS JOIN table",
            note: "For each row of the left side, `LAST JOIN` returns the matching row of the \
                right side that is last in the order of `ORDER BY`, or in order of arrival \
                without `ORDER BY`; if no row matches, its columns are NULL: see \
                [Joins](../guide/joins.md).",
        },
        SharedRule {
            name: "files",
            grammar: "file_path\n\
                | read_function \"(\" file_list { \",\" file_list } { \",\" option } \")\"",
            note: "Reads files in place: see [Files](../guide/files.md). \
                The options are, for CSV, `delimiter`, `header`, `null_value` and `quote` as in \
                [LOAD DATA](#load-data); `union_by_name` (default `false`), whether a column that \
                is missing from a file is NULL; and `version` for Delta and `snapshot` for \
                Iceberg, the version of the table to read (the newest by default). \
                Any other option is an error.",
        },
        SharedRule {
            name: "file_list",
            grammar: "string | \"[\" string { \",\" string } \"]\"",
            note: "",
        },
        SharedRule {
            name: "order_by",
            grammar: "ORDER BY order_item { \",\" order_item }",
            note: "",
        },
        SharedRule {
            name: "order_item",
            grammar: "expression [ ASC | DESC ] [ NULLS ( FIRST | LAST ) ]",
            note: "NULL is sorted as the largest value, unless `NULLS FIRST` or `NULLS LAST` is \
                specified. \
                In a window and in a LAST JOIN, the position of NULLs cannot be changed.",
        },
    ],
};

/// The rules of windows.
pub(super) const WINDOWS: RuleChapter = RuleChapter {
    title: "Rules of windows",
    rules: &[
        SharedRule { name: "window_definition", grammar: "name AS window_specification", note: "" },
        SharedRule {
            name: "window_specification",
            grammar: "\"(\" [ name ]\n\
                [ UNION window_source { \",\" window_source } ]\n\
                [ PARTITION BY expression { \",\" expression } ]\n\
                [ order_by ]\n\
                [ frame ] [ MAXSIZE whole_number ]\n\
                [ EXCLUDE CURRENT_TIME ] [ EXCLUDE CURRENT_ROW ] [ INSTANCE_NOT_IN_WINDOW ] \")\"",
            note: "The name refers to the window that this window extends. \
                The parts after `ORDER BY` can be in any order, each at most once. \
                The page [Windows](../guide/windows.md) describes each part.",
        },
        SharedRule {
            name: "window_source",
            grammar: "( table_name | \"(\" query \")\" ) [ AS name ]",
            note: "",
        },
        SharedRule {
            name: "frame",
            grammar: "( ROWS | ROWS_RANGE | RANGE )\n\
                ( BETWEEN frame_bound AND frame_bound | frame_bound )",
            note: "`ROWS` counts rows; `ROWS_RANGE` measures event time. \
                `RANGE` is a synonym of `ROWS_RANGE`. \
                A frame with a single bound ends at `CURRENT ROW`. \
                Without a frame, a window with `ORDER BY` contains all rows up to the current row.",
        },
        SharedRule {
            name: "frame_bound",
            grammar: "CURRENT ROW\n\
                | ( UNBOUNDED | whole_number | duration | interval ) [ OPEN ] ( PRECEDING | FOLLOWING )",
            note: "In a `ROWS` frame, a number counts rows; in a `ROWS_RANGE` frame over a \
                TIMESTAMP, it is a number of milliseconds. \
                `OPEN` excludes the bound itself. \
                `FOLLOWING` counts ahead: batch mode computes such frames; requests and deployments \
                refuse them, because later rows do not exist yet.",
        },
    ],
};
