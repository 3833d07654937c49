//! What `SET compatibility = 'openmldb'` changes, and what goes beyond the reference: two tables.
//!
//! `docs/compatibility.md` is generated from them. A function that consults
//! [`crate::Settings::compatibility`] has a row in [`DIFFERENCES`]; what has no row is the same in
//! both settings. Every example runs in both, in the tests of `engine`.

/// One difference between this system and the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The function, operator or rule.
    pub name: &'static str,
    /// What we do by default.
    pub standard: &'static str,
    /// What the reference does.
    pub reference: &'static str,
    /// Why.
    pub why: &'static str,
    /// An example with both results.
    pub example: Example,
    /// Whether `SET compatibility = 'openmldb'` brings the reference's result back. Where it does
    /// not, that result depends on the clock, on undefined behaviour or on another setting.
    pub is_restored: bool,
}

/// SQL, and the text of its result in either setting; the text `error` where it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example {
    /// What `sql` is.
    pub form: Form,
    /// The text.
    pub sql: &'static str,
    /// The result by default.
    pub standard: &'static str,
    /// The reference's result.
    pub reference: &'static str,
}

/// What the SQL of an example is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An expression without columns.
    Expression,
    /// An aggregate over [`crate::aggregate::SAMPLE`].
    Aggregate,
    /// Statements, of which the last gives one value. `{folder}` is some folder.
    Statements,
}

/// Something that the reference refuses and this system does, on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addition {
    /// The form of SQL.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Why.
    pub why: &'static str,
    /// Conformance cases that expect an error and get a result.
    pub cases: &'static [&'static str],
}

/// Every difference.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "integer arithmetic",
        standard: "What the result's type does not hold is NULL.",
        reference: "Wraps at the width of the type.",
        why: "A number that wraps looks like a value.",
        example: Example {
            form: Form::Expression,
            sql: "2147483647 + 1",
            standard: "NULL",
            reference: "-2147483648",
        },
        is_restored: true,
    },
    Difference {
        name: "INT and BIGINT with FLOAT",
        standard: "The result is DOUBLE.",
        reference: "The result is FLOAT.",
        why: "A FLOAT holds 24 bits: a time in milliseconds loses its minutes.",
        example: Example {
            form: Form::Expression,
            sql: "16777217 + float(0)",
            standard: "16777217",
            reference: "1.67772e+07",
        },
        is_restored: true,
    },
    Difference {
        name: "integer compared with FLOAT",
        standard: "Both sides as DOUBLE.",
        reference: "Both sides as FLOAT, so that 16777217 equals 16777216.0.",
        why: "A comparison must not depend on how many digits a FLOAT can hold.",
        example: Example {
            form: Form::Expression,
            sql: "16777217 = float(16777216)",
            standard: "false",
            reference: "true",
        },
        is_restored: true,
    },
    Difference {
        name: "text compared with another type (also nullif, minimum, maximum, least, greatest)",
        standard: "A text that is written as a constant is read in the other side's type, and refused where it is no value of it; a text that is stored or computed compares with texts only.",
        reference: "Both sides are compared by their texts.",
        why: "As a text, '9' is greater than '10', and no day is equal to a time of that day; whoever writes a constant in quotes means its value.",
        example: Example {
            form: Form::Expression,
            sql: "'9' < 10",
            standard: "true",
            reference: "false",
        },
        is_restored: true,
    },
    Difference {
        name: "text in double quotes that is also the name of a column",
        standard: "Is refused; single quotes say that a text is meant, and back-quotes that the column is.",
        reference: "Is a text.",
        why: "Other systems take it for the column, and the wrong one of the two gives a wrong result without an error.",
        example: Example {
            form: Form::Statements,
            sql: "CREATE TABLE quoted (k STRING); INSERT INTO quoted VALUES ('a'), ('k'); SELECT k FROM quoted WHERE \"k\" = k",
            standard: "error",
            reference: "k",
        },
        is_restored: true,
    },
    Difference {
        name: "DELETE with `column = NULL`",
        standard: "Deletes nothing, since nothing is equal to NULL; `column IS NULL` says which rows are meant.",
        reference: "Deletes the rows whose column is NULL.",
        why: "A parameter that happens to be NULL must not delete rows.",
        example: Example {
            form: Form::Statements,
            sql: "CREATE TABLE holes (k STRING, INDEX(KEY=k)); INSERT INTO holes VALUES ('a'), (NULL); DELETE FROM holes WHERE k = NULL; SELECT count(*) FROM holes",
            standard: "2",
            reference: "1",
        },
        is_restored: true,
    },
    Difference {
        name: "GROUP BY a FLOAT or DOUBLE",
        standard: "Groups rows; the two zeros are one group, and so are all NaNs.",
        reference: "Is refused.",
        why: "A float is a value like any other.",
        example: Example {
            form: Form::Statements,
            sql: "SELECT count(*) FROM (SELECT 0.0 AS d UNION ALL SELECT -0.0 AS d) GROUP BY d",
            standard: "2",
            reference: "error",
        },
        is_restored: true,
    },
    Difference {
        name: "integer to a narrower integer",
        standard: "NULL where it does not fit.",
        reference: "Keeps the low bits.",
        why: "The low bits of a number are another number.",
        example: Example {
            form: Form::Expression,
            sql: "smallint(65537)",
            standard: "NULL",
            reference: "1",
        },
        is_restored: true,
    },
    Difference {
        name: "FLOAT and DOUBLE to integer, out of range",
        standard: "NULL, for NaN too.",
        reference: "Not defined; here it saturates, and NaN is 0.",
        why: "The end of the range is not the value.",
        example: Example {
            form: Form::Expression,
            sql: "int(1e10)",
            standard: "NULL",
            reference: "2147483647",
        },
        is_restored: true,
    },
    Difference {
        name: "text of FLOAT and DOUBLE",
        standard: "The fewest digits that read back as the same value; an exponent below 1e-4 and from 1e15 on; NaN and Infinity.",
        reference: "Six significant digits: 12345678.9 prints as 1.23457e+07; nan and inf in lower case.",
        why: "Six digits lose what the number was, and make different numbers equal as texts.",
        example: Example {
            form: Form::Expression,
            sql: "string(12345678.9)",
            standard: "12345678.9",
            reference: "1.23457e+07",
        },
        is_restored: true,
    },
    Difference {
        name: "floats inside texts (top, topn_frequency, *_cate, gcformat, csv, libsvm)",
        standard: "As everywhere else: the fewest digits that read back.",
        reference: "Six digits after the point.",
        why: "A small number becomes 0, and a large one is cut.",
        example: Example {
            form: Form::Expression,
            sql: "csv(continuous(0.00000025))",
            standard: "2.5e-07",
            reference: "0.000000",
        },
        is_restored: true,
    },
    Difference {
        name: "floats and TIMESTAMP in CSV files (INTO OUTFILE)",
        standard: "A float as the fewest digits that read back, a TIMESTAMP as ISO 8601 with milliseconds.",
        reference: "A float with six digits after the point, a TIMESTAMP as integer milliseconds.",
        why: "What is exported must be what was stored, and readable by other tools.",
        example: Example {
            form: Form::Statements,
            sql: "SELECT timestamp(1001) AS t, 0.00000025 AS x INTO OUTFILE '{folder}/file.csv' OPTIONS(mode='overwrite'); CREATE TABLE lines (line STRING); LOAD DATA INFILE '{folder}/file.csv' INTO TABLE lines OPTIONS(delimiter=';', header=false, mode='append'); SELECT line FROM lines WHERE line NOT LIKE 't,%'",
            standard: "1970-01-01T00:00:01.001Z,2.5e-07",
            reference: "1001,0.000000",
        },
        is_restored: true,
    },
    Difference {
        name: "INTO OUTFILE in offline mode",
        standard: "A file, or the parts of a folder where the path is one or ends in `/`.",
        reference: "A folder of parts, whatever the path looks like.",
        why: "Who writes `result.csv` wants a file; scripts that look for parts go on with the setting.",
        example: Example {
            form: Form::Statements,
            sql: "SET @@execute_mode = 'offline'; SELECT 1 AS a INTO OUTFILE '{folder}/parts.csv'; CREATE TABLE parts (a INT); LOAD DATA INFILE '{folder}/parts.csv/part-*' INTO TABLE parts; SELECT a FROM parts",
            standard: "error",
            reference: "1",
        },
        is_restored: true,
    },
    Difference {
        name: "a text that reads like NULL in CSV files (INTO OUTFILE)",
        standard: "In quotes, and so read back as a text.",
        reference: "Bare, and so read back as NULL, unless the option `quote` is given.",
        why: "What is exported must be what was stored.",
        example: Example {
            form: Form::Statements,
            sql: "SELECT 'null' AS s, 1 AS n INTO OUTFILE '{folder}/file.csv' OPTIONS(mode='overwrite'); CREATE TABLE lines (line STRING); LOAD DATA INFILE '{folder}/file.csv' INTO TABLE lines OPTIONS(delimiter=';', quote='', header=false, mode='append'); SELECT line FROM lines WHERE line NOT LIKE 's,%'",
            standard: "\"null\",1",
            reference: "null,1",
        },
        is_restored: true,
    },
    Difference {
        name: "text of TIMESTAMP",
        standard: "With its milliseconds, where it has some.",
        reference: "To the second.",
        why: "Two different times must not have one text.",
        example: Example {
            form: Form::Expression,
            sql: "string(timestamp(1001))",
            standard: "1970-01-01 00:00:01.001",
            reference: "1970-01-01 00:00:01",
        },
        is_restored: true,
    },
    Difference {
        name: "text to TIMESTAMP and DATE",
        standard: "Also `T` for the blank, a fraction of a second, and `Z` or ±HH:MM at the end.",
        reference: "Only YYYY-MM-DD HH:MM:SS, YYYY-MM-DD and YYYYMMDD.",
        why: "Everything else would be NULL, without a word, for the form that most systems write.",
        example: Example {
            form: Form::Expression,
            sql: "timestamp('2020-05-22T10:43:40Z')",
            standard: "2020-05-22 10:43:40",
            reference: "NULL",
        },
        is_restored: true,
    },
    Difference {
        name: "char_length, substring, left, right, locate",
        standard: "Count characters.",
        reference: "Count bytes.",
        why: "A position inside a character is of no use; where the reference's result is not UTF-8, U+FFFD stands for what is cut.",
        example: Example {
            form: Form::Expression,
            sql: "char_length('é')",
            standard: "1",
            reference: "2",
        },
        is_restored: true,
    },
    Difference {
        name: "LIKE, ILIKE",
        standard: "`_` stands for one character; ILIKE ignores case in every script.",
        reference: "`_` stands for one byte; ILIKE ignores the case of ASCII only.",
        why: "One character is what a user sees.",
        example: Example {
            form: Form::Expression,
            sql: "'é' LIKE '_'",
            standard: "true",
            reference: "false",
        },
        is_restored: true,
    },
    Difference {
        name: "ucase, lcase",
        standard: "Change every letter that has the other case.",
        reference: "Change ASCII letters only.",
        why: "`ucase('é')` is expected to be `É`.",
        example: Example {
            form: Form::Expression,
            sql: "ucase('é')",
            standard: "É",
            reference: "é",
        },
        is_restored: true,
    },
    Difference {
        name: "reverse",
        standard: "Reverses characters.",
        reference: "Reverses bytes.",
        why: "Reversed bytes are not a text outside ASCII.",
        example: Example {
            form: Form::Expression,
            sql: "reverse('aé')",
            standard: "éa",
            reference: "\u{fffd}\u{fffd}a",
        },
        is_restored: true,
    },
    Difference {
        name: "char",
        standard: "The character with that Unicode code; NULL where there is none.",
        reference: "One byte, of the code modulo 256.",
        why: "A byte from 128 on is not a text; under the setting it is U+FFFD.",
        example: Example {
            form: Form::Expression,
            sql: "char(321)",
            standard: "Ł",
            reference: "A",
        },
        is_restored: true,
    },
    Difference {
        name: "hex of a text",
        standard: "Two digits for each byte.",
        reference: "Digits are not padded, and bytes from 0x80 on get six F before them.",
        why: "The result must read back with `unhex`.",
        example: Example {
            form: Form::Expression,
            sql: "hex('é')",
            standard: "C3A9",
            reference: "FFFFFFC3FFFFFFA9",
        },
        is_restored: true,
    },
    Difference {
        name: "unhex",
        standard: "NULL where the bytes are not UTF-8.",
        reference: "Gives any bytes.",
        why: "A STRING is UTF-8; under the setting U+FFFD stands for what is not.",
        example: Example {
            form: Form::Expression,
            sql: "unhex('C3')",
            standard: "NULL",
            reference: "\u{fffd}",
        },
        is_restored: true,
    },
    Difference {
        name: "split, split_by_key, split_by_value",
        standard: "Hold everything.",
        reference: "Hold 4096 bytes and drop what comes after.",
        why: "A list that is cut silently is a wrong feature.",
        example: Example {
            form: Form::Expression,
            sql: "size(split(rpad('', 9000, 'a,'), ','))",
            standard: "4501",
            reference: "4096",
        },
        is_restored: true,
    },
    Difference {
        name: "array_join",
        standard: "Writes the delimiter between the elements it writes.",
        reference: "Writes the delimiter before every element but the first, so that a leading NULL leaves one.",
        why: "A delimiter with nothing before it is an extra, empty element to whoever splits the text.",
        example: Example {
            form: Form::Expression,
            sql: "array_join([NULL, 'b'], ',')",
            standard: "b",
            reference: ",b",
        },
        is_restored: true,
    },
    Difference {
        name: "last_day, dayofyear before 1970",
        standard: "The result, as for any other time.",
        reference: "NULL for a TIMESTAMP before 1970.",
        why: "Times before 1970 are ordinary.",
        example: Example {
            form: Form::Expression,
            sql: "dayofyear(timestamp('1969-02-01'))",
            standard: "32",
            reference: "NULL",
        },
        is_restored: true,
    },
    Difference {
        name: "gcformat, libsvm with two labels",
        standard: "Are refused, as two indexes are.",
        reference: "The last one counts.",
        why: "A line has one label; the other was meant to be something else.",
        example: Example {
            form: Form::Expression,
            sql: "libsvm(binary_label(true), regression_label(2))",
            standard: "error",
            reference: "2",
        },
        is_restored: true,
    },
    Difference {
        name: "sum of integers",
        standard: "BIGINT; NULL where 64 bits do not hold it.",
        reference: "Has the type of its argument and wraps.",
        why: "A sum of SMALLINT that wraps is a wrong feature.",
        example: Example {
            form: Form::Aggregate,
            sql: "sum(smallint(32000))",
            standard: "160000",
            reference: "28928",
        },
        is_restored: true,
    },
    Difference {
        name: "median of integers",
        standard: "Adds the two middle integers exactly.",
        reference: "Adds them in their own type, which may wrap.",
        why: "A mean lies between its values.",
        example: Example {
            form: Form::Aggregate,
            sql: "median(2147483647 - x)",
            standard: "2147483644",
            reference: "-4",
        },
        is_restored: true,
    },
    Difference {
        name: "distinct_count",
        standard: "Does not count NULL.",
        reference: "Counts NULL as the zero, or the empty text, of the type.",
        why: "NULL is the absence of a value.",
        example: Example {
            form: Form::Aggregate,
            sql: "distinct_count(x)",
            standard: "3",
            reference: "4",
        },
        is_restored: true,
    },
    Difference {
        name: "topn_frequency of few values",
        standard: "Lists the values there are.",
        reference: "Fills up with the word NULL.",
        why: "The word cannot be told from a text that says NULL.",
        example: Example {
            form: Form::Aggregate,
            sql: "topn_frequency(c, 3)",
            standard: "a,b",
            reference: "a,b,NULL",
        },
        is_restored: true,
    },
    Difference {
        name: "aggregates that make lists (*_cate, top_n_*, window_split*)",
        standard: "Hold everything.",
        reference: "Hold 4096 bytes and drop what comes after.",
        why: "A list that is cut silently is a wrong feature.",
        example: Example {
            form: Form::Aggregate,
            sql: "char_length(count_cate(x, rpad(c, 3000, c)))",
            standard: "6005",
            reference: "3002",
        },
        is_restored: true,
    },
    Difference {
        name: "sum_where, avg_where",
        standard: "Take in values that are 0.",
        reference: "Pass over them: the mean leaves them out, and the sum of nothing but zeros is NULL.",
        why: "0 is a value.",
        example: Example {
            form: Form::Aggregate,
            sql: "avg_where(x - 2, ok)",
            standard: "0.3333333333333333",
            reference: "0.5",
        },
        is_restored: true,
    },
    Difference {
        name: "INSERT of an integer that does not fit its column",
        standard: "Is refused.",
        reference: "Keeps the low bits.",
        why: "A value that changes on its way in cannot be found again.",
        example: Example {
            form: Form::Statements,
            sql: "CREATE TABLE narrow (k INT); INSERT INTO narrow VALUES (4294967297); SELECT k FROM narrow",
            standard: "error",
            reference: "1",
        },
        is_restored: true,
    },
    Difference {
        name: "INSERT of a number that FLOAT or DOUBLE does not hold",
        standard: "An integer that would lose digits is refused, and so is a decimal out of range.",
        reference: "An integer is rounded, and a decimal out of range is infinite.",
        why: "A value that changes on its way in cannot be found again.",
        example: Example {
            form: Form::Statements,
            sql: "CREATE TABLE wide (k INT, f FLOAT); INSERT INTO wide VALUES (1, 16777217); SELECT bigint(f) FROM wide",
            standard: "error",
            reference: "16777216",
        },
        is_restored: true,
    },
    Difference {
        name: "LOAD DATA of files with other columns than the table",
        standard: "Columns are matched by name; a name that the table does not have is an error. Options: `match_by = 'position'`, `unknown_columns = 'ignore'`.",
        reference: "The first line of a CSV file is left out and its columns go by their order; columns of a Parquet file that the table does not have are left out. A warning says so.",
        why: "Nobody sees that two columns of numbers were swapped.",
        example: Example {
            form: Form::Statements,
            sql: "SELECT 1 AS b, 2 AS c INTO OUTFILE '{folder}/file.csv' OPTIONS(mode='overwrite'); CREATE TABLE swapped (c INT, b INT); LOAD DATA INFILE '{folder}/file.csv' INTO TABLE swapped OPTIONS(mode='append'); SELECT c FROM swapped",
            standard: "2",
            reference: "1",
        },
        is_restored: true,
    },
    Difference {
        name: "LOAD DATA with deep_copy=false and mode='overwrite'",
        standard: "Replaces the offline data of the table.",
        reference: "Is refused where the table has offline data.",
        why: "To overwrite is to replace what is there.",
        example: Example {
            form: Form::Statements,
            sql: "SELECT 1 AS k INTO OUTFILE '{folder}/linked.csv' OPTIONS(mode='overwrite'); CREATE TABLE linked (k INT); SET @@execute_mode = 'offline'; LOAD DATA INFILE '{folder}/linked.csv' INTO TABLE linked OPTIONS(deep_copy=false, mode='overwrite'); LOAD DATA INFILE '{folder}/linked.csv' INTO TABLE linked OPTIONS(deep_copy=false, mode='overwrite'); SELECT k FROM linked",
            standard: "1",
            reference: "error",
        },
        is_restored: true,
    },
    Difference {
        name: "INSERT of a text into a TIMESTAMP",
        standard: "Reads the text as CAST does.",
        reference: "Is refused.",
        why: "CAST reads it; an INSERT should too.",
        example: Example {
            form: Form::Statements,
            sql: "CREATE TABLE late (t TIMESTAMP); INSERT INTO late VALUES ('2020-05-22'); SELECT t FROM late",
            standard: "2020-05-22 00:00:00",
            reference: "error",
        },
        is_restored: true,
    },
    Difference {
        name: "time zone",
        standard: "The session's time zone, UTC by default.",
        reference: "UTC+8, always.",
        why: "The setting leaves the time zone alone; `SET time_zone = 'Etc/GMT-8'` gives the reference's results.",
        example: Example {
            form: Form::Expression,
            sql: "hour(timestamp(0))",
            standard: "0",
            reference: "8",
        },
        is_restored: false,
    },
    Difference {
        name: "CREATE TABLE without INDEX",
        reference: "The table has an index over its first column that is not FLOAT or DOUBLE, which DELETE goes by.",
        standard: "The table has no declared index; DELETE may compare any column.",
        why: "Nobody needs to declare an index; no query gives another result for it.",
        example: Example {
            form: Form::Statements,
            sql: "CREATE TABLE plain (k INT, v INT); INSERT INTO plain VALUES (1, 5); DELETE FROM plain WHERE v = 5; SELECT count(*) FROM plain",
            standard: "0",
            reference: "error",
        },
        is_restored: true,
    },
    Difference {
        name: "rows that one index keeps and another does not",
        reference: "A query whose WHERE fixes the key of an index sees the rows that this index keeps; so does a request through the index that its windows and joins read. An index that DEPLOY makes keeps the newest row of a key for a LAST JOIN and the rows of the frame for a window, also where a further condition passes over some of them; VERIFY shows what a request then misses.",
        standard: "A row is seen everywhere as long as one declared index keeps it.",
        why: "Which rows there are must not depend on how a query is written.",
        example: Example {
            form: Form::Statements,
            sql: "CREATE TABLE kept (k INT, g INT, t TIMESTAMP, INDEX(KEY=k, TS=t, TTL=1, TTL_TYPE=latest), INDEX(KEY=g, TS=t)); INSERT INTO kept VALUES (1, 1, 1000), (1, 2, 2000); SELECT count(*) FROM kept WHERE k = 1",
            standard: "2",
            reference: "1",
        },
        is_restored: true,
    },
    Difference {
        name: "unix_timestamp of NULL and ''",
        standard: "NULL.",
        reference: "The current time.",
        why: "A feature must not depend on when it is computed.",
        example: Example {
            form: Form::Expression,
            sql: "unix_timestamp('')",
            standard: "NULL",
            reference: "the current time",
        },
        is_restored: false,
    },
    Difference {
        name: "date_format beyond 80 bytes",
        standard: "The whole text.",
        reference: "Fails.",
        why: "There is no buffer to run over.",
        example: Example {
            form: Form::Expression,
            sql: "char_length(date_format(date('2020-05-22'), rpad('', 100, 'x')))",
            standard: "100",
            reference: "error",
        },
        is_restored: false,
    },
];

/// Everything that goes beyond the reference in functions and expressions.
pub const ADDITIONS: &[Addition] = &[
    Addition {
        name: "more functions",
        what: "coalesce, nullif, if, least, greatest, trim, ltrim, rtrim, lpad, rpad, left, right, octet_length, starts_with, ends_with, sign, date_trunc, quarter, timestampadd, now, current_timestamp, current_date, percentile and approx_distinct.",
        why: "Their users miss them.",
        cases: &[],
    },
    Addition {
        name: "`||`",
        what: "Joins the texts of two values.",
        why: "It is SQL, and the reference refuses it.",
        cases: &[],
    },
    Addition {
        name: "LIKE, ILIKE, like_match, ilike_match with a NULL pattern or escape",
        what: "The result is NULL; the reference refuses the literal NULL here and takes a NULL that it cannot see.",
        why: "NULL is a value like any other, and a parameter may be NULL.",
        cases: &[
            "function/expression/test_like#17_0",
            "function/expression/test_like#17_3",
            "function/expression/test_like#18_0",
            "function/expression/test_like#18_1",
            "function/expression/test_like#18_3",
            "function/function/test_like_match#17_0",
            "function/function/test_like_match#17_1",
            "function/function/test_like_match#18_0",
            "function/function/test_like_match#18_1",
        ],
    },
    Addition {
        name: "CAST of a DATE to a number",
        what: "Is NULL of that type.",
        why: "The newer releases of the reference do the same; older ones refuse it.",
        cases: &[
            "function/expression/test_type#5_0",
            "function/expression/test_type#5_2",
            "function/expression/test_type#5_3",
            "function/expression/test_type#5_4",
        ],
    },
    Addition {
        name: "aggregates over a whole table",
        what: "`count(1)` and its like work without a window and without GROUP BY, in every mode.",
        why: "One row for a table is an ordinary question.",
        cases: &["function/v040/test_udaf#1"],
    },
    Addition {
        name: "names in double quotes",
        what: "Where only a name can stand (a table, an alias, a window, a column of INSERT or CREATE TABLE, both sides of a dot), `\"x\"` is a name.",
        why: "It is SQL, and there is nothing else that it could mean.",
        cases: &[],
    },
    Addition {
        name: "DELETE with `column IS NULL`",
        what: "Deletes the rows whose column is NULL.",
        why: "It says what is meant.",
        cases: &[],
    },
    Addition {
        name: "arrays of arrays",
        what: "ARRAY<ARRAY<INT>> is a type like any other.",
        why: "There is no reason to stop at one level.",
        cases: &["plan/error_unsupport_sql#array_1"],
    },
];

#[cfg(test)]
mod tests {
    use super::{ADDITIONS, DIFFERENCES};

    #[test]
    fn every_difference_is_told_in_full_sentences() {
        for difference in DIFFERENCES {
            for text in [difference.reference, difference.standard, difference.why] {
                assert!(text.ends_with('.'), "`{}`: {text}", difference.name);
            }
            let example = difference.example;
            assert_ne!(example.standard, example.reference, "`{}` shows it", difference.name);
        }
        for addition in ADDITIONS {
            for text in [addition.what, addition.why] {
                assert!(text.ends_with('.'), "`{}`: {text}", addition.name);
            }
        }
    }

    #[test]
    fn every_difference_has_its_own_name() {
        for (position, difference) in DIFFERENCES.iter().enumerate() {
            assert!(DIFFERENCES[..position].iter().all(|other| other.name != difference.name));
        }
    }
}
