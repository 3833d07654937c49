//! SELECT and EXPLAIN, and the rules of queries and windows.

use super::{
    DocumentedOption, OptionList, RuleChapter, SharedRule, StatementChapter, StatementRule,
};

/// The statements that run a query.
pub(super) const STATEMENTS: StatementChapter =
    StatementChapter { title: "Queries", rules: &[&SELECT, &EXPLAIN] };

pub(super) const SELECT: StatementRule = StatementRule {
    name: "SELECT",
    description: "Computes a query over the rows that are stored, in batch mode. \
        With `CONFIG(execute_mode = 'request', values = …)` it answers the request rows of `values` \
        instead, as a deployment of the query would. \
        With `AS KNOWN AT ARRIVAL` each row of the first table is answered over the rows that had arrived \
        before it, in every table, as a request was at that moment; with `AS KNOWN AT` a column, over the \
        rows whose time in the column of this name, which every table has, is not later than its own \
        ([training sets](../guide/training-sets.md#as-known-at-the-time)). \
        With `INTO OUTFILE` the rows are written to a file, which appears when it is complete; a path \
        that is a folder or ends in `/` is a folder of files. \
        `EXCEPT`, `INTERSECT`, `NATURAL JOIN`, `JOIN … USING`, `QUALIFY`, `FETCH` and sub-queries in \
        expressions other than `x IN (SELECT …)` do not exist; the error says what to write instead.",
    grammar: "query_statement",
    privileges: "`SELECT` on each table that it reads; for files, those of `FROM` too, that the operator \
        has listed their folder.",
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
        default: "the one that the end of the path names, or else `csv`",
        meaning: "The format of the file.",
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
        default: "`true`, and `false` where rows are added to a file that has some",
        meaning: "CSV: whether the first line names the columns.",
    },
    DocumentedOption {
        name: "null_value",
        values: "a text",
        default: "`''`, and `'null'` with `compatibility = 'openmldb'`",
        meaning: "CSV: the text of NULL. A STRING that would be read as NULL is quoted.",
    },
    DocumentedOption {
        name: "quote",
        values: "one character, or `''`",
        default: "fields that could not be read back are quoted with `\"`",
        meaning: "CSV: the character around every STRING; the empty text quotes nothing.",
    },
    DocumentedOption {
        name: "mode",
        values: "`error_if_exists`, `overwrite`, `append`",
        default: "`error_if_exists`",
        meaning: "What happens with a file that exists already.",
    },
    DocumentedOption {
        name: "partition_by",
        values: "names of columns with commas between them",
        default: "none",
        meaning: "The path is a folder with folders `name=value` by the values of these columns, outermost \
            first, which the files do not repeat.",
    },
    DocumentedOption {
        name: "coalesce",
        values: "a whole number from 0 to 10000",
        default: "0, which is one file",
        meaning: "The number of files where the path is a folder.",
    },
];

const CONFIG: &[DocumentedOption] = &[
    DocumentedOption {
        name: "execute_mode",
        values: "`'online'`, `'offline'`, `'request'`",
        default: "the setting `execute_mode` of the session",
        meaning: "Whether the query reads the tables, reads their offline data, or answers requests.",
    },
    DocumentedOption {
        name: "values",
        values: "a row `(…)`, or a list of rows `[(…), (…)]`, of constants",
        default: "none",
        meaning: "The request rows, with a value for each column of the first table of the query. \
            Only with `execute_mode = 'request'`, where they are required.",
    },
];

pub(super) const EXPLAIN: StatementRule = StatementRule {
    name: "EXPLAIN",
    description: "Returns the plan of a query in batch mode, its program in request mode or why there \
        is none, and the indexes that a deployment of it would add. \
        The warnings are those of a DEPLOY. \
        Nothing is run or built; `LOGICAL` and `PHYSICAL` change nothing.",
    grammar: "EXPLAIN [ LOGICAL | PHYSICAL ] query_statement",
    privileges: "`SELECT` on each table that it reads.",
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
            note: "A query that begins with `SELECT` or `WITH`, not with a parenthesis.",
        },
        SharedRule {
            name: "query_rest",
            grammar: "{ UNION [ ALL | DISTINCT ] query_operand } [ order_by ]\n\
                [ LIMIT ( whole_number | ALL ) ] [ OFFSET whole_number ]",
            note: "`UNION` without `ALL` removes rows that are equal to another. \
                The sides of a `UNION` have columns of the same names and types. \
                `ORDER BY`, `LIMIT` and `OFFSET` are about the whole `UNION`; a side that has its own \
                is in parentheses.",
        },
        SharedRule {
            name: "with",
            grammar: "WITH common_table { \",\" common_table }",
            note: "Names sub-queries. `RECURSIVE` does not exist.",
        },
        SharedRule {
            name: "common_table",
            grammar: "name [ column_names ] AS \"(\" query \")\"",
            note: "",
        },
        SharedRule {
            name: "column_names",
            grammar: "\"(\" name { \",\" name } \")\"",
            note: "Names of the first columns; the others keep theirs.",
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
            note: "A comma is allowed after the last item, before `FROM` and at the end of the query. \
                A name in `GROUP BY`, `HAVING` and the query's `ORDER BY` may be an alias of an item: in \
                `GROUP BY` and `HAVING` where no column has that name. \
                A whole number in `GROUP BY` and `ORDER BY` is the position of a column of the select list, \
                counted from 1.",
        },
        SharedRule {
            name: "select_item",
            grammar: "\"*\" | name \".\" [ name \".\" ] \"*\" | expression [ alias ]",
            note: "",
        },
        SharedRule {
            name: "alias",
            grammar: "[ AS ] name",
            note: "Without `AS` a keyword that may follow the item is not its alias: see \
                [Keywords](#keywords).",
        },
        SharedRule {
            name: "from",
            grammar: "joined_tables { \",\" joined_tables }",
            note: "A comma is a `CROSS JOIN` that binds looser than the other joins.",
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
            note: "`LAST JOIN` finds for each row of the left side the matching row that is last in the \
                order of `ORDER BY`, or of arrival where there is none, and NULLs where no row matches: \
                see [Joins](../guide/joins.md).",
        },
        SharedRule {
            name: "files",
            grammar: "file_path\n\
                | read_function \"(\" file_list { \",\" file_list } { \",\" option } \")\"",
            note: "Files that are read where they lie: see [Files](../guide/files.md). \
                The options are `delimiter`, `header`, `null_value` and `quote` of CSV as in \
                [LOAD DATA](#load-data), and `union_by_name` (`false`): whether a column that a file \
                does not have is NULL; `version` of Delta, and `snapshot` of Iceberg: which state of the \
                table, the newest where there is none. \
                Another option is an error.",
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
            note: "NULL is the greatest value, unless `NULLS FIRST` or `NULLS LAST` is written. \
                A window and a LAST JOIN have a place of NULLs that cannot be changed.",
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
            note: "The name is that of a window that this one extends. \
                What stands behind `ORDER BY` may be in any order, each part once. \
                What each part means is on the page [Windows](../guide/windows.md).",
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
            note: "`ROWS` counts rows, `ROWS_RANGE` measures event time. \
                `RANGE` is another spelling of `ROWS_RANGE`. \
                A frame of one bound ends at `CURRENT ROW`. \
                Without a frame a window with `ORDER BY` has all rows up to the current one.",
        },
        SharedRule {
            name: "frame_bound",
            grammar: "CURRENT ROW\n\
                | ( UNBOUNDED | whole_number | duration | interval ) [ OPEN ] ( PRECEDING | FOLLOWING )",
            note: "A number is one of rows, or of milliseconds of a TIMESTAMP. \
                `OPEN` leaves out the end itself. \
                `FOLLOWING` is refused, except for 0: a frame does not reach into the future.",
        },
    ],
};
