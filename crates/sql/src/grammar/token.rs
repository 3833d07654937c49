//! The rules of names, options and constants, and those of single tokens.

use super::{RuleChapter, SharedRule, TokenRule};

/// The rules that every kind of statement uses.
pub(super) const RULES: RuleChapter = RuleChapter {
    title: "Rules of names and options",
    rules: &[
        SharedRule {
            name: "table_name",
            grammar: "[ name \".\" ] name",
            note: "The name of a table or of another object of a database. \
                An unqualified name refers to the current database.",
        },
        SharedRule {
            name: "user_name",
            grammar: "( name | string ) [ \"@\" ( name | string ) ]",
            note: "The part after `@` is ignored.",
        },
        SharedRule {
            name: "option_list",
            grammar: "\"(\" [ option { \",\" option } ] \")\"",
            note: "Each option can be specified only once.",
        },
        SharedRule {
            name: "option",
            grammar: "( name | word | string ) \"=\" option_value",
            note: "Option names are case-insensitive.",
        },
        SharedRule {
            name: "option_value",
            grammar: "string | [ \"-\" | \"+\" ] ( number | duration ) | TRUE | FALSE | NULL | name | word | function_call\n\
                | \"(\" [ option_value { \",\" option_value } ] \")\"\n\
                | \"[\" [ option_value { \",\" option_value } ] \"]\"",
            note: "",
        },
    ],
};

/// The rules of single tokens.
pub(super) const TOKENS: &[TokenRule] = &[
    TokenRule {
        name: "name",
        form: "Letters of any script, digits and `_`, not starting with a digit and not a \
            [reserved word](#keywords); or any text in back-quotes, with a back-quote doubled; \
            or, if only a name is allowed, any text in double quotes",
        samples: &["t1", "price", "_id", "größe", "`order`", "\"user id\""],
    },
    TokenRule {
        name: "word",
        form: "Any word, including reserved words",
        samples: &["latest", "on", "all"],
    },
    TokenRule {
        name: "function_name",
        form: "A name; see [Functions and operators](functions.md)",
        samples: &["abs", "COUNT", "sum", "concat", "lag", "`join`"],
    },
    TokenRule {
        name: "read_function",
        form: "The name of a function that reads files",
        samples: &[
            "read_csv",
            "read_parquet",
            "read_json",
            "read_arrow",
            "read_delta",
            "read_iceberg",
        ],
    },
    TokenRule {
        name: "type_name",
        form: "The name of a type: see [Types](types.md)",
        samples: &[
            "BOOL",
            "SMALLINT",
            "INT",
            "BIGINT",
            "FLOAT",
            "DOUBLE",
            "STRING",
            "TIMESTAMP",
            "DATE",
        ],
    },
    TokenRule {
        name: "string",
        form: "Text in single or double quotes. \
            A quote within the text is doubled; `\\n`, `\\t`, `\\'`, `\\\\`, `\\xhh`, `\\uhhhh` \
            and the other escape sequences of C are supported",
        samples: &["'pen'", "\"pen\"", "'it''s'", "'a\\nb'", "''"],
    },
    TokenRule {
        name: "file_path",
        form: "A path in single quotes that contains a dot, a slash or an asterisk",
        samples: &["'orders.csv'", "'data/*.parquet'", "'s3://bucket/orders/'"],
    },
    TokenRule {
        name: "number",
        form: "Digits: an INT if the value fits, otherwise a BIGINT; with `L`, a BIGINT; with a \
            decimal point or an exponent, a DOUBLE; with `f`, a FLOAT",
        samples: &["0", "42", "3000000000", "7L", "2.5", ".5", "1e3", "2.5f"],
    },
    TokenRule {
        name: "binary_digits",
        form: "An integer from 1 to 53",
        samples: &["1", "24", "25", "53"],
    },
    TokenRule { name: "text_length", form: "An integer, at least 1", samples: &["1", "10", "255"] },
    TokenRule { name: "second_digits", form: "An integer from 3 to 9", samples: &["3", "6"] },
    TokenRule { name: "whole_number", form: "Digits", samples: &["0", "1", "10", "42"] },
    TokenRule {
        name: "duration",
        form: "Digits followed immediately by `s`, `m`, `h` or `d`: seconds, minutes, hours or \
            days",
        samples: &["30s", "5m", "12h", "90d"],
    },
    TokenRule { name: "number_text", form: "Digits in quotes", samples: &["'5'", "'90'"] },
    TokenRule {
        name: "duration_text",
        form: "Numbers and units in quotes",
        samples: &["'1 day 2 hours'", "'90s'", "'5 minutes'"],
    },
    TokenRule {
        name: "calendar_text",
        form: "Numbers and units in quotes, with at least one month, quarter or year",
        samples: &["'1 month'", "'-1 year 2 days'"],
    },
    TokenRule {
        name: "job_id",
        form: "A number or a word, which can contain dashes",
        samples: &["7", "JOB-11220021"],
    },
];
