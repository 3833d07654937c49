//! The rules of expressions, from the operators that bind loosest to those that bind tightest.

use super::{RuleChapter, SharedRule};

/// The rules of expressions.
pub(super) const RULES: RuleChapter = RuleChapter {
    title: "Rules of expressions",
    rules: &[
        SharedRule {
            name: "expression",
            grammar: "conjunction { OR conjunction }",
            note: "The rules from here to `unary` define the precedence of operators, from lowest \
                to highest. \
                The page [Functions and operators](functions.md) describes what the operators \
                compute.",
        },
        SharedRule {
            name: "conjunction",
            grammar: "exclusive_or { ( AND | \"&&\" ) exclusive_or }",
            note: "",
        },
        SharedRule { name: "exclusive_or", grammar: "negation { XOR negation }", note: "" },
        SharedRule { name: "negation", grammar: "( NOT | \"!\" ) negation | comparison", note: "" },
        SharedRule {
            name: "comparison",
            grammar: "operand [ comparison_operator operand\n\
                | IS [ NOT ] NULL\n\
                | [ NOT ] BETWEEN operand AND operand\n\
                | [ NOT ] IN \"(\" ( expression { \",\" expression } | select_query ) \")\"\n\
                | [ NOT ] ( LIKE | ILIKE ) operand [ ESCAPE operand ]\n\
                | [ NOT ] RLIKE operand ]",
            note: "Comparisons cannot be chained: `a < b < c` is an error. \
                A query after `IN` must return one column; it is allowed in WHERE, and in a \
                select list without GROUP BY. \
                In a `LIKE` pattern, `%` matches any string and `_` any single character; `ILIKE` \
                is case-insensitive; `RLIKE` uses a regular expression, which must match the \
                whole string.",
        },
        SharedRule {
            name: "comparison_operator",
            grammar: "\"=\" | \"==\" | \"!=\" | \"<>\" | \"<\" | \"<=\" | \">\" | \">=\"",
            note: "",
        },
        SharedRule { name: "operand", grammar: "bit_xor { \"|\" bit_xor }", note: "" },
        SharedRule { name: "bit_xor", grammar: "bit_and { \"^\" bit_and }", note: "" },
        SharedRule { name: "bit_and", grammar: "concatenation { \"&\" concatenation }", note: "" },
        SharedRule { name: "concatenation", grammar: "additive { \"||\" additive }", note: "" },
        SharedRule {
            name: "additive",
            grammar: "multiplicative { ( \"+\" | \"-\" ) ( multiplicative | calendar_interval ) }",
            note: "",
        },
        SharedRule {
            name: "multiplicative",
            grammar: "unary { ( \"*\" | \"/\" | \"%\" | DIV | MOD ) unary }",
            note: "`/` returns a DOUBLE; `DIV` is integer division.",
        },
        SharedRule {
            name: "unary",
            grammar: "( \"-\" | \"+\" | \"~\" ) unary | postfix",
            note: "",
        },
        SharedRule {
            name: "postfix",
            grammar: "primary { \"[\" expression \"]\" | \"::\" type | AT TIME ZONE primary }",
            note: "`a[i]` is an element of an ARRAY, or the value of a key of a MAP. \
                `a::type` is equivalent to `CAST(a AS type)`. \
                `t AT TIME ZONE zone` is equivalent to `to_zone(t, zone)`, or to `from_zone(t, \
                zone)` if `t` is a time without time zone: `TIMESTAMP '…'`, a cast to \
                `TIMESTAMP`, or another `AT TIME ZONE`.",
        },
        SharedRule {
            name: "primary",
            grammar: "literal | column | \"?\" | \"(\" expression \")\" | function_call | worded_call\n\
                | filtered_call | ordered_call | case | cast | array",
            note: "`?` is a parameter, whose value the caller supplies. \
                It is not allowed in a window frame, LIMIT or OFFSET.",
        },
        SharedRule {
            name: "literal",
            grammar: "number | duration | string | TRUE | FALSE | NULL | interval\n\
                | ( DATE | TIMESTAMP [ ( WITH | WITHOUT ) TIME ZONE ] | DATETIME | TIMESTAMPTZ ) string",
            note: "An invalid string after `DATE` or `TIMESTAMP` is an error, whereas `CAST` \
                returns NULL.",
        },
        SharedRule {
            name: "interval",
            grammar: "INTERVAL ( whole_number | number_text ) interval_unit | INTERVAL duration_text",
            note: "A duration in a window frame; elsewhere its number of milliseconds, a BIGINT, \
                like a `duration`. \
                Months and years vary in length: see `calendar_interval`.",
        },
        SharedRule {
            name: "calendar_interval",
            grammar: "INTERVAL ( whole_number | number_text ) ( MONTH | QUARTER | YEAR ) | INTERVAL calendar_text\n\
                | \"(\" INTERVAL calendar_text \")\"",
            note: "Months vary in length: `t + INTERVAL '1 month'` is equivalent to \
                `timestampadd('month', 1, t)`.",
        },
        SharedRule {
            name: "interval_unit",
            grammar: "MILLISECOND | SECOND | MINUTE | HOUR | DAY | WEEK",
            note: "Plural forms, and the abbreviations `ms`, `s`, `sec`, `m`, `min`, `h`, `d` and \
                `w`, are also accepted.",
        },
        SharedRule {
            name: "column",
            grammar: "name [ \".\" name [ \".\" name ] ]",
            note: "A column name, optionally qualified by its table and the database of the \
                table. \
                Column names are case-sensitive.",
        },
        SharedRule {
            name: "function_call",
            grammar: "function_name \"(\" [ \"*\" { \",\" expression }\n\
                | [ DISTINCT ] expression { \",\" expression } ] \")\" [ over ]",
            note: "Function names are case-insensitive.",
        },
        SharedRule {
            name: "worded_call",
            grammar: "EXTRACT \"(\" ( name | string ) FROM expression \")\"\n\
                | POSITION \"(\" operand IN operand \")\"\n\
                | ( SUBSTRING | SUBSTR ) \"(\" expression ( FROM expression [ FOR expression ] | FOR expression ) \")\"\n\
                | TRIM \"(\" [ [ BOTH | LEADING | TRAILING ] [ string ] FROM ] expression \")\"\n\
                | TRIM \"(\" ( BOTH | LEADING | TRAILING ) ( name | string ) \")\"",
            note: "Equivalent to `date_part('field', t)`, `locate(part, text)`, `substring(text, \
                from, length)`, and `trim(text, characters)`, `ltrim` or `rtrim`.",
        },
        SharedRule {
            name: "filtered_call",
            grammar: "( \"count\" | \"sum\" | \"avg\" | \"min\" | \"max\" )\n\
                \"(\" ( \"*\" | expression ) \")\" FILTER \"(\" WHERE expression \")\" [ over ]",
            note: "`sum(x) FILTER (WHERE c)` is equivalent to `sum_where(x, c)`.",
        },
        SharedRule {
            name: "ordered_call",
            grammar: "\"percentile_cont\" \"(\" expression \")\"\n\
                WITHIN GROUP \"(\" ORDER BY expression [ ASC ] \")\" [ over ]",
            note: "`percentile_cont(p) WITHIN GROUP (ORDER BY x)` is equivalent to `percentile(x, \
                p)`.",
        },
        SharedRule { name: "over", grammar: "OVER ( name | window_specification )", note: "" },
        SharedRule {
            name: "case",
            grammar: "CASE [ expression ] WHEN expression THEN expression\n\
                { WHEN expression THEN expression } [ ELSE expression ] END",
            note: "Without `ELSE`, the result is NULL if no condition is true.",
        },
        SharedRule {
            name: "cast",
            grammar: "CAST \"(\" expression AS type \")\"",
            note: "The page [Types](types.md) lists the conversions and their results.",
        },
        SharedRule {
            name: "array",
            grammar: "[ ARRAY [ \"<\" type \">\" ] ] \"[\" [ expression { \",\" expression } ] \"]\"",
            note: "",
        },
        SharedRule {
            name: "type",
            grammar: "type_name | DOUBLE PRECISION | ( CHAR | CHARACTER ) VARYING\n\
                | ( STRING | VARCHAR | TEXT | ( CHAR | CHARACTER ) [ VARYING ] ) \"(\" text_length \")\"\n\
                | FLOAT \"(\" binary_digits \")\" | ( INT | BIGINT ) \"(\" whole_number \")\"\n\
                | TIMESTAMP [ \"(\" second_digits \")\" ] [ ( WITH | WITHOUT ) TIME ZONE ]\n\
                | ARRAY \"<\" type \">\" | MAP \"<\" type \",\" type \">\"",
            note: "The page [Types](types.md) lists the type names, the ranges of the types and \
                the meaning of lengths.",
        },
    ],
};
