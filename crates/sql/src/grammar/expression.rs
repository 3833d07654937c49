//! The rules of expressions, from the operators that bind loosest to those that bind tightest.

use super::{RuleChapter, SharedRule};

/// The rules of expressions.
pub(super) const RULES: RuleChapter = RuleChapter {
    title: "Rules of expressions",
    rules: &[
        SharedRule {
            name: "expression",
            grammar: "conjunction { OR conjunction }",
            note: "The rules down to `unary` say how tightly operators bind. \
                What the operators compute is on the page [Functions and operators](functions.md).",
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
            note: "Comparisons do not chain: `a < b < c` is an error. \
                A query after `IN` has one column; it can stand in WHERE and in a select list without GROUP BY. \
                In a pattern of `LIKE`, `%` is any text and `_` any character; `ILIKE` does not tell \
                capitals from small letters; `RLIKE` takes a regular expression, which the whole text has to match.",
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
            note: "`/` gives a DOUBLE; `DIV` divides whole numbers.",
        },
        SharedRule {
            name: "unary",
            grammar: "( \"-\" | \"+\" | \"~\" ) unary | postfix",
            note: "",
        },
        SharedRule {
            name: "postfix",
            grammar: "primary { \"[\" expression \"]\" | \"::\" type | AT TIME ZONE primary }",
            note: "`a[i]` is an item of an ARRAY or the value of a key of a MAP. \
                `a::type` is `CAST(a AS type)`. \
                `t AT TIME ZONE zone` is `to_zone(t, zone)`; behind a time without a zone, which is \
                `TIMESTAMP '…'`, a cast to `TIMESTAMP` or another `AT TIME ZONE`, `from_zone(t, zone)`.",
        },
        SharedRule {
            name: "primary",
            grammar: "literal | column | \"?\" | \"(\" expression \")\" | function_call | worded_call\n\
                | filtered_call | ordered_call | case | cast | array",
            note: "`?` is a parameter, whose value the caller gives; not in a frame, LIMIT or OFFSET.",
        },
        SharedRule {
            name: "literal",
            grammar: "number | duration | string | TRUE | FALSE | NULL | interval\n\
                | ( DATE | TIMESTAMP [ ( WITH | WITHOUT ) TIME ZONE ] | DATETIME | TIMESTAMPTZ ) string",
            note: "A text behind `DATE` or `TIMESTAMP` that is none is an error, where `CAST` gives NULL.",
        },
        SharedRule {
            name: "interval",
            grammar: "INTERVAL ( whole_number | number_text ) interval_unit | INTERVAL duration_text",
            note: "In a frame a duration, elsewhere its milliseconds as a BIGINT, as is a `duration`. \
                Months and years differ in length: see `calendar_interval`.",
        },
        SharedRule {
            name: "calendar_interval",
            grammar: "INTERVAL ( whole_number | number_text ) ( MONTH | QUARTER | YEAR ) | INTERVAL calendar_text\n\
                | \"(\" INTERVAL calendar_text \")\"",
            note: "Months differ in length: `t + INTERVAL '1 month'` is `timestampadd('month', 1, t)`.",
        },
        SharedRule {
            name: "interval_unit",
            grammar: "MILLISECOND | SECOND | MINUTE | HOUR | DAY | WEEK",
            note: "Also in the plural, and as `ms`, `s`, `sec`, `m`, `min`, `h`, `d` and `w`.",
        },
        SharedRule {
            name: "column",
            grammar: "name [ \".\" name [ \".\" name ] ]",
            note: "A column, with its table and the database of that. \
                Names are matched with their capitals.",
        },
        SharedRule {
            name: "function_call",
            grammar: "function_name \"(\" [ \"*\" { \",\" expression }\n\
                | [ DISTINCT ] expression { \",\" expression } ] \")\" [ over ]",
            note: "Names of functions are matched without regard to capitals.",
        },
        SharedRule {
            name: "worded_call",
            grammar: "EXTRACT \"(\" ( name | string ) FROM expression \")\"\n\
                | POSITION \"(\" operand IN operand \")\"\n\
                | ( SUBSTRING | SUBSTR ) \"(\" expression ( FROM expression [ FOR expression ] | FOR expression ) \")\"\n\
                | TRIM \"(\" [ [ BOTH | LEADING | TRAILING ] [ string ] FROM ] expression \")\"\n\
                | TRIM \"(\" ( BOTH | LEADING | TRAILING ) ( name | string ) \")\"",
            note: "The same as `date_part('field', t)`, `locate(part, text)`, `substring(text, from, length)` and \
                `trim(text, characters)`, `ltrim` or `rtrim`.",
        },
        SharedRule {
            name: "filtered_call",
            grammar: "( \"count\" | \"sum\" | \"avg\" | \"min\" | \"max\" )\n\
                \"(\" ( \"*\" | expression ) \")\" FILTER \"(\" WHERE expression \")\" [ over ]",
            note: "`sum(x) FILTER (WHERE c)` is `sum_where(x, c)`.",
        },
        SharedRule {
            name: "ordered_call",
            grammar: "\"percentile_cont\" \"(\" expression \")\"\n\
                WITHIN GROUP \"(\" ORDER BY expression [ ASC ] \")\" [ over ]",
            note: "`percentile_cont(p) WITHIN GROUP (ORDER BY x)` is `percentile(x, p)`.",
        },
        SharedRule { name: "over", grammar: "OVER ( name | window_specification )", note: "" },
        SharedRule {
            name: "case",
            grammar: "CASE [ expression ] WHEN expression THEN expression\n\
                { WHEN expression THEN expression } [ ELSE expression ] END",
            note: "Without `ELSE` the result is NULL where no condition is true.",
        },
        SharedRule {
            name: "cast",
            grammar: "CAST \"(\" expression AS type \")\"",
            note: "What each conversion gives is on the page [Types](types.md).",
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
            note: "The names, their ranges and what a length means are on the page [Types](types.md).",
        },
    ],
};
