//! The two lists of `docs/compatibility.md`: what `SET compatibility = 'openmldb'` changes, and what
//! Lockstep has in addition to OpenMLDB.
//!
//! The document is generated from them. Every function that reads
//! [`crate::Settings::compatibility`] has an entry in [`DIFFERENCES`]; anything without an entry is
//! the same in both settings. The tests of `engine` run every example in both.

/// A difference between Lockstep and OpenMLDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompatibilityDifference {
    /// The function, operator or rule.
    pub name: &'static str,
    /// What Lockstep does by default.
    pub standard: &'static str,
    /// What OpenMLDB does.
    pub openmldb: &'static str,
    /// The reason for the difference.
    pub why: &'static str,
    /// An example with both results.
    pub example: Example,
    /// Whether `SET compatibility = 'openmldb'` restores OpenMLDB's result. Where it does not, that
    /// result depends on the clock, on undefined behaviour or on another setting.
    pub is_restored: bool,
}

/// SQL, and the text of its result in each setting; the text `error` where it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example {
    /// The kind of SQL.
    pub form: ExampleForm,
    /// The SQL.
    pub sql: &'static str,
    /// The result by default.
    pub standard: &'static str,
    /// OpenMLDB's result.
    pub openmldb: &'static str,
}

/// The kind of SQL of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExampleForm {
    /// An expression without columns.
    Expression,
    /// An aggregate over [`crate::aggregate::SAMPLE`].
    Aggregate,
    /// Statements, of which the last returns one value. `{folder}` is a temporary folder.
    Statements,
}

/// Something that OpenMLDB refuses and Lockstep does, on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addition {
    /// The form of SQL.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// The reason for it.
    pub why: &'static str,
    /// Conformance cases that expect an error and get a result.
    pub cases: &'static [&'static str],
}

/// Every difference.
pub const DIFFERENCES: &[CompatibilityDifference] = &[
    CompatibilityDifference {
        name: "integer arithmetic",
        standard: "What the result's type does not hold is NULL.",
        openmldb: "Wraps at the width of the type.",
        why: "A number that wraps looks like a value.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "2147483647 + 1",
            standard: "NULL",
            openmldb: "-2147483648",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "INT and BIGINT with FLOAT",
        standard: "The result is DOUBLE.",
        openmldb: "The result is FLOAT.",
        why: "A FLOAT holds 24 bits: a time in milliseconds loses its minutes.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "16777217 + float(0)",
            standard: "16777217",
            openmldb: "1.67772e+07",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "integer compared with FLOAT",
        standard: "Both sides as DOUBLE.",
        openmldb: "Both sides as FLOAT, so that 16777217 equals 16777216.0.",
        why: "A comparison must not depend on how many digits a FLOAT can hold.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "16777217 = float(16777216)",
            standard: "false",
            openmldb: "true",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "comparisons with NaN (also IN, BETWEEN, simple CASE, joins, nullif, DELETE)",
        standard: "NaN is equal to itself and greater than every number, as in ORDER BY, GROUP BY, max and in PostgreSQL.",
        openmldb: "IEEE 754: NaN is neither equal to, less than nor greater than anything.",
        why: "A row whose value is NaN must not be lost on both sides of a condition, nor leave its own group.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "double('nan') = double('nan')",
            standard: "true",
            openmldb: "false",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "negative distances in frames",
        standard: "Are refused.",
        openmldb: "Mean CURRENT ROW.",
        why: "A frame that is not the one that is written gives wrong features without an error.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE framed (v INT, ts TIMESTAMP); INSERT INTO framed VALUES (1, 1000); SELECT sum(v) OVER (PARTITION BY v ORDER BY ts ROWS BETWEEN 1 PRECEDING AND -1 PRECEDING) FROM framed",
            standard: "error",
            openmldb: "1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "text compared with another type (also nullif, minimum, maximum, least, greatest)",
        standard: "A text that is written as a constant is read in the other side's type, and refused where it is no value of it; a text that is stored or computed compares with texts only.",
        openmldb: "Both sides are compared by their texts.",
        why: "As a text, '9' is greater than '10', and no day is equal to a time of that day; whoever writes a constant in quotes means its value.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "'9' < 10",
            standard: "true",
            openmldb: "false",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "text in double quotes that is also the name of a column",
        standard: "Is refused; single quotes say that a text is meant, and back-quotes that the column is.",
        openmldb: "Is a text.",
        why: "Other systems take it for the column, and the wrong one of the two gives a wrong result without an error.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE quoted (k STRING); INSERT INTO quoted VALUES ('a'), ('k'); SELECT k FROM quoted WHERE \"k\" = k",
            standard: "error",
            openmldb: "k",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "the length of VARCHAR(n)",
        standard: "A text of more characters is refused by a column, and cut off by a cast.",
        openmldb: "Is read and not enforced.",
        why: "A limit that is declared is meant.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE short (k VARCHAR(2)); INSERT INTO short VALUES ('abc'); SELECT k FROM short",
            standard: "error",
            openmldb: "abc",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "DELETE with `column = NULL`",
        standard: "Deletes nothing, since nothing is equal to NULL; `column IS NULL` says which rows are meant.",
        openmldb: "Deletes the rows whose column is NULL.",
        why: "A parameter that happens to be NULL must not delete rows.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE holes (k STRING, INDEX(KEY=k)); INSERT INTO holes VALUES ('a'), (NULL); DELETE FROM holes WHERE k = NULL; SELECT count(*) FROM holes",
            standard: "2",
            openmldb: "1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "GROUP BY a FLOAT or DOUBLE",
        standard: "Groups rows; the two zeros are one group, and so are all NaNs.",
        openmldb: "Is refused.",
        why: "A float is a value like any other.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT count(*) FROM (SELECT 0.0 AS d UNION ALL SELECT -0.0 AS d) GROUP BY d",
            standard: "2",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "names of result columns without an alias",
        standard: "The expression as SQL that can be written again.",
        openmldb: "The expression with six decimals in floats, type names for casts, and neither quotes nor parentheses.",
        why: "A name with `1.500000` for 1.5 surprises, and different expressions could have the same name.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT `1 + 1.5` FROM (SELECT 1 + 1.5)",
            standard: "2.5",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "aliases in HAVING",
        standard: "A name that no column has may be an alias of the select list.",
        openmldb: "Are refused.",
        why: "It is what was meant, as in GROUP BY and ORDER BY.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT count(*) AS n FROM (SELECT 1 AS d) GROUP BY d HAVING n > 0",
            standard: "1",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "integer to a narrower integer",
        standard: "NULL where it does not fit.",
        openmldb: "Keeps the low bits.",
        why: "The low bits of a number are another number.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "smallint(65537)",
            standard: "NULL",
            openmldb: "1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "FLOAT and DOUBLE to integer and TIMESTAMP, out of range",
        standard: "NULL, for NaN too.",
        openmldb: "Not defined; here it saturates, and NaN is 0.",
        why: "The end of the range is not the value.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "int(1e10)",
            standard: "NULL",
            openmldb: "2147483647",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "text of FLOAT and DOUBLE",
        standard: "The fewest digits that read back as the same value; an exponent below 1e-4 and from 1e15 on; NaN and Infinity.",
        openmldb: "Six significant digits: 12345678.9 prints as 1.23457e+07; nan and inf in lower case.",
        why: "Six digits lose what the number was, and make different numbers equal as texts.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "string(12345678.9)",
            standard: "12345678.9",
            openmldb: "1.23457e+07",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "floats inside texts (top, topn_frequency, *_cate, gcformat, csv, libsvm)",
        standard: "As everywhere else: the fewest digits that read back.",
        openmldb: "Six digits after the point.",
        why: "A small number becomes 0, and a large one is cut.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "csv(continuous(0.00000025))",
            standard: "2.5e-07",
            openmldb: "0.000000",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "floats and TIMESTAMP in CSV files (INTO OUTFILE)",
        standard: "A float as the fewest digits that read back, a TIMESTAMP as ISO 8601 with milliseconds.",
        openmldb: "A float with six digits after the point, a TIMESTAMP as integer milliseconds.",
        why: "What is exported must be what was stored, and readable by other tools.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT timestamp(1001) AS t, 0.00000025 AS x INTO OUTFILE '{folder}/file.csv' OPTIONS(mode='overwrite'); CREATE TABLE lines (line STRING); LOAD DATA INFILE '{folder}/file.csv' INTO TABLE lines OPTIONS(delimiter=';', header=false, mode='append'); SELECT line FROM lines WHERE line NOT LIKE 't,%'",
            standard: "1970-01-01T00:00:01.001Z,2.5e-07",
            openmldb: "1001,0.000000",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "INTO OUTFILE in offline mode",
        standard: "A file, or the parts of a folder where the path is one or ends in `/`.",
        openmldb: "A folder of parts, whatever the path looks like.",
        why: "Who writes `result.csv` wants a file; scripts that look for parts go on with the setting.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SET @@execute_mode = 'offline'; SELECT 1 AS a INTO OUTFILE '{folder}/parts.csv'; CREATE TABLE parts (a INT); LOAD DATA INFILE '{folder}/parts.csv/part-*' INTO TABLE parts; SELECT a FROM parts",
            standard: "error",
            openmldb: "1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "NULL in CSV files (INTO OUTFILE)",
        standard: "An empty field, unless the option `null_value` is given.",
        openmldb: "The word null, unless the option `null_value` is given.",
        why: "An empty field is NULL to most readers, and the word a text.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT CAST(NULL AS STRING) AS s, 1 AS n INTO OUTFILE '{folder}/file.csv' OPTIONS(mode='overwrite'); CREATE TABLE lines (line STRING); LOAD DATA INFILE '{folder}/file.csv' INTO TABLE lines OPTIONS(delimiter=';', header=false, mode='append'); SELECT line FROM lines WHERE line NOT LIKE 's,%'",
            standard: ",1",
            openmldb: "null,1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "an empty field of a STRING in CSV files (LOAD DATA)",
        standard: "Is NULL; the empty text is `\"\"`.",
        openmldb: "Is the empty text, unless the option `null_value` is `''`.",
        why: "An empty field is NULL to most readers.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT CAST(NULL AS STRING) AS s, 1 AS n INTO OUTFILE '{folder}/file.csv' OPTIONS(mode='overwrite', null_value=''); CREATE TABLE lines (s STRING, n INT); LOAD DATA INFILE '{folder}/file.csv' INTO TABLE lines OPTIONS(mode='append'); SELECT s IS NULL AS missing FROM lines",
            standard: "true",
            openmldb: "false",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "a text that reads like NULL in CSV files (INTO OUTFILE)",
        standard: "In quotes, and so read back as a text.",
        openmldb: "Bare, and so read back as NULL, unless the option `quote` is given.",
        why: "What is exported must be what was stored.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT 'null' AS s, 1 AS n INTO OUTFILE '{folder}/file.csv' OPTIONS(mode='overwrite'); CREATE TABLE lines (line STRING); LOAD DATA INFILE '{folder}/file.csv' INTO TABLE lines OPTIONS(delimiter=';', quote='', header=false, mode='append'); SELECT line FROM lines WHERE line NOT LIKE 's,%'",
            standard: "\"null\",1",
            openmldb: "null,1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "text of TIMESTAMP",
        standard: "With its milliseconds, where it has some.",
        openmldb: "To the second.",
        why: "Two different times must not have one text.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "string(timestamp(1001))",
            standard: "1970-01-01 00:00:01.001",
            openmldb: "1970-01-01 00:00:01",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "text to TIMESTAMP and DATE",
        standard: "Also blanks around it, `T` for the blank within, no seconds or a fraction of them, and `Z`, `UTC` or an offset at the end.",
        openmldb: "Only YYYY-MM-DD HH:MM:SS, YYYY-MM-DD and YYYYMMDD.",
        why: "Everything else would be NULL, without a word, for the form that most systems write.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "timestamp('2020-05-22T10:43:40Z')",
            standard: "2020-05-22 10:43:40",
            openmldb: "NULL",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "text of a year before 1900 to TIMESTAMP and DATE",
        standard: "The time or the day.",
        openmldb: "NULL.",
        why: "A table holds such days, and their texts must be read back.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "date('1850-06-01')",
            standard: "1850-06-01",
            openmldb: "NULL",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "char_length, substring, left, right, locate",
        standard: "Count characters.",
        openmldb: "Count bytes.",
        why: "A position inside a character is of no use; where OpenMLDB's result is not UTF-8, U+FFFD replaces the part of a character.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "char_length('é')",
            standard: "1",
            openmldb: "2",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "LIKE, ILIKE",
        standard: "`_` stands for one character; ILIKE ignores case in every script.",
        openmldb: "`_` stands for one byte; ILIKE ignores the case of ASCII only.",
        why: "One character is what a user sees.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "'é' LIKE '_'",
            standard: "true",
            openmldb: "false",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "ucase, lcase",
        standard: "Change every letter that has the other case.",
        openmldb: "Change ASCII letters only.",
        why: "`ucase('é')` is expected to be `É`.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "ucase('é')",
            standard: "É",
            openmldb: "é",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "reverse",
        standard: "Reverses characters.",
        openmldb: "Reverses bytes.",
        why: "Reversed bytes are not a text outside ASCII.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "reverse('aé')",
            standard: "éa",
            openmldb: "\u{fffd}\u{fffd}a",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "char",
        standard: "The character with that Unicode code; NULL where there is none.",
        openmldb: "One byte, of the code modulo 256.",
        why: "A byte from 128 on is not a text; under the setting it is U+FFFD.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "char(321)",
            standard: "Ł",
            openmldb: "A",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "hex of a text",
        standard: "Two digits for each byte.",
        openmldb: "Digits are not padded, and bytes from 0x80 on get six F before them.",
        why: "The result must read back with `unhex`.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "hex('é')",
            standard: "C3A9",
            openmldb: "FFFFFFC3FFFFFFA9",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "hex of a negative integer",
        standard: "The digits of 64 bits.",
        openmldb: "The digits of the argument's type.",
        why: "The same number has the same digits in every type.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "hex(-1)",
            standard: "FFFFFFFFFFFFFFFF",
            openmldb: "FFFFFFFF",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "RLIKE and regexp_like with a constant pattern that is not valid",
        standard: "Is an error.",
        openmldb: "Returns NULL.",
        why: "A query with a mistake in its pattern would find nothing, without an error.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "'a' RLIKE '('",
            standard: "error",
            openmldb: "NULL",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "unhex",
        standard: "NULL where the bytes are not UTF-8.",
        openmldb: "Gives any bytes.",
        why: "A STRING is UTF-8; under the setting U+FFFD stands for what is not.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "unhex('C3')",
            standard: "NULL",
            openmldb: "\u{fffd}",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "split, split_by_key, split_by_value",
        standard: "Hold everything.",
        openmldb: "Hold 4096 bytes and drop what comes after.",
        why: "A list that is cut silently is a wrong feature.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "size(split(rpad('', 9000, 'a,'), ','))",
            standard: "4501",
            openmldb: "4096",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "array_join",
        standard: "Writes the delimiter between the elements it writes.",
        openmldb: "Writes the delimiter before every element but the first, so that a leading NULL leaves one.",
        why: "A delimiter with nothing before it is an extra, empty element to whoever splits the text.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "array_join([NULL, 'b'], ',')",
            standard: "b",
            openmldb: ",b",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "last_day, dayofyear before 1970",
        standard: "The result, as for any other time.",
        openmldb: "NULL for a TIMESTAMP before 1970.",
        why: "Times before 1970 are ordinary.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "dayofyear(timestamp('1969-02-01'))",
            standard: "32",
            openmldb: "NULL",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "gcformat, libsvm with two labels",
        standard: "Are refused, as two indexes are.",
        openmldb: "The last one counts.",
        why: "A line has one label; the other was meant to be something else.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "libsvm(binary_label(true), regression_label(2))",
            standard: "error",
            openmldb: "2",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "ceil of a BIGINT",
        standard: "Returns it as it is.",
        openmldb: "Converts it to DOUBLE and back, so that beyond 2^53 another number is returned.",
        why: "A whole number needs no rounding.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "ceil(9007199254740993)",
            standard: "9007199254740993",
            openmldb: "9007199254740992",
        },
        is_restored: false,
    },
    CompatibilityDifference {
        name: "minimum and maximum with NULL",
        standard: "Return NULL if either argument is NULL.",
        openmldb: "Return the right argument if the left one is NULL.",
        why: "The result must not depend on the order of the arguments; `least` and `greatest` ignore NULL.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "maximum(NULL, 1)",
            standard: "NULL",
            openmldb: "1",
        },
        is_restored: false,
    },
    CompatibilityDifference {
        name: "sum of integers",
        standard: "BIGINT; NULL where 64 bits do not hold it.",
        openmldb: "Has the type of its argument and wraps.",
        why: "A sum of SMALLINT that wraps is a wrong feature.",
        example: Example {
            form: ExampleForm::Aggregate,
            sql: "sum(smallint(32000))",
            standard: "160000",
            openmldb: "28928",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "median of integers",
        standard: "Adds the two middle integers exactly.",
        openmldb: "Adds them in their own type, which may wrap.",
        why: "A mean lies between its values.",
        example: Example {
            form: ExampleForm::Aggregate,
            sql: "median(2147483647 - x)",
            standard: "2147483644",
            openmldb: "-4",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "distinct_count",
        standard: "Does not count NULL.",
        openmldb: "Counts NULL as the zero, or the empty text, of the type.",
        why: "NULL is the absence of a value.",
        example: Example {
            form: ExampleForm::Aggregate,
            sql: "distinct_count(x)",
            standard: "3",
            openmldb: "4",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "topn_frequency of few values",
        standard: "Lists the values there are.",
        openmldb: "Fills up with the word NULL.",
        why: "The word cannot be told from a text that says NULL.",
        example: Example {
            form: ExampleForm::Aggregate,
            sql: "topn_frequency(c, 3)",
            standard: "a,b",
            openmldb: "a,b,NULL",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "aggregates that make lists (*_cate, top_n_*, window_split*)",
        standard: "Hold everything.",
        openmldb: "Hold 4096 bytes and drop what comes after.",
        why: "A list that is cut silently is a wrong feature.",
        example: Example {
            form: ExampleForm::Aggregate,
            sql: "char_length(count_cate(x, rpad(c, 3000, c)))",
            standard: "6005",
            openmldb: "3002",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "sum_where, avg_where",
        standard: "Take in values that are 0.",
        openmldb: "Pass over them: the mean leaves them out, and the sum of nothing but zeros is NULL.",
        why: "0 is a value.",
        example: Example {
            form: ExampleForm::Aggregate,
            sql: "avg_where(x - 2, ok)",
            standard: "0.3333333333333333",
            openmldb: "0.5",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "INSERT of an integer that does not fit its column",
        standard: "Is refused.",
        openmldb: "Keeps the low bits.",
        why: "A value that changes on its way in cannot be found again.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE narrow (k INT); INSERT INTO narrow VALUES (4294967297); SELECT k FROM narrow",
            standard: "error",
            openmldb: "1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "INSERT of a number that FLOAT or DOUBLE does not hold",
        standard: "An integer that would lose digits is refused, and so is a decimal out of range.",
        openmldb: "An integer is rounded, and a decimal out of range is infinite.",
        why: "A value that changes on its way in cannot be found again.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE wide (k INT, f FLOAT); INSERT INTO wide VALUES (1, 16777217); SELECT bigint(f) FROM wide",
            standard: "error",
            openmldb: "16777216",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "LOAD DATA of files with other columns than the table",
        standard: "Columns are matched by name; a name that the table does not have is an error. Options: `match_by = 'position'`, `unknown_columns = 'ignore'`.",
        openmldb: "The first line of a CSV file is left out and its columns go by their order; columns of a Parquet file that the table does not have are left out. A warning says so.",
        why: "Nobody sees that two columns of numbers were swapped.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT 1 AS b, 2 AS c INTO OUTFILE '{folder}/file.csv' OPTIONS(mode='overwrite'); CREATE TABLE swapped (c INT, b INT); LOAD DATA INFILE '{folder}/file.csv' INTO TABLE swapped OPTIONS(mode='append'); SELECT c FROM swapped",
            standard: "2",
            openmldb: "1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "LOAD DATA with deep_copy=false and mode='overwrite'",
        standard: "Replaces the offline data of the table.",
        openmldb: "Is refused where the table has offline data.",
        why: "To overwrite is to replace what is there.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT 1 AS k INTO OUTFILE '{folder}/linked.csv' OPTIONS(mode='overwrite'); CREATE TABLE linked (k INT); SET @@execute_mode = 'offline'; LOAD DATA INFILE '{folder}/linked.csv' INTO TABLE linked OPTIONS(deep_copy=false, mode='overwrite'); LOAD DATA INFILE '{folder}/linked.csv' INTO TABLE linked OPTIONS(deep_copy=false, mode='overwrite'); SELECT k FROM linked",
            standard: "1",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "INSERT of a text into a TIMESTAMP",
        standard: "Reads the text as CAST does.",
        openmldb: "Is refused.",
        why: "CAST reads it; an INSERT should too.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE late (t TIMESTAMP); INSERT INTO late VALUES ('2020-05-22'); SELECT t FROM late",
            standard: "2020-05-22 00:00:00",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "time zone",
        standard: "The session's time zone, UTC by default.",
        openmldb: "UTC+8, always.",
        why: "The setting leaves the time zone alone; `SET time_zone = 'Etc/GMT-8'` gives OpenMLDB's results.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "hour(timestamp(0))",
            standard: "0",
            openmldb: "8",
        },
        is_restored: false,
    },
    CompatibilityDifference {
        name: "CREATE TABLE without INDEX",
        openmldb: "The table has an index over its first column that is not FLOAT or DOUBLE, which DELETE goes by.",
        standard: "The table has no declared index; DELETE may compare any column.",
        why: "Nobody needs to declare an index; no query gives another result for it.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE plain (k INT, v INT); INSERT INTO plain VALUES (1, 5); DELETE FROM plain WHERE v = 5; SELECT count(*) FROM plain",
            standard: "0",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "rows that one index keeps and another does not",
        openmldb: "A query whose WHERE fixes the key of an index sees the rows that this index keeps; so does a request through the index that its windows and joins read. An index that DEPLOY makes keeps the newest row of a key for a LAST JOIN and the rows of the frame for a window, also where a further condition passes over some of them; VERIFY shows what a request then misses.",
        standard: "A row is seen everywhere as long as one declared index keeps it.",
        why: "Which rows there are must not depend on how a query is written.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE kept (k INT, g INT, t TIMESTAMP, INDEX(KEY=k, TS=t, TTL=1, TTL_TYPE=latest), INDEX(KEY=g, TS=t)); INSERT INTO kept VALUES (1, 1, 1000), (1, 2, 2000); SELECT count(*) FROM kept WHERE k = 1",
            standard: "2",
            openmldb: "1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "INTERVAL",
        standard: "`INTERVAL '5' MINUTE` and `5m` are a number of milliseconds, of type BIGINT.",
        openmldb: "A duration stands only in a frame, a TTL or an option.",
        why: "`ts + INTERVAL '5' MINUTE` is how SQL writes it.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "INTERVAL '5' MINUTE",
            standard: "300000",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "TIMESTAMP - TIMESTAMP",
        standard: "The milliseconds between the two, of type BIGINT.",
        openmldb: "There is no such operator.",
        why: "The age of a row is an ordinary feature.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "timestamp(3000) - timestamp(1000)",
            standard: "2000",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "one OVER behind an expression with several aggregates",
        standard: "Belongs to the aggregate before it; the others need an OVER of their own.",
        openmldb: "Is the window of all aggregates in the expression.",
        why: "In standard SQL an aggregate without OVER is over a group.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE spread (k STRING, ts TIMESTAMP, d INT, INDEX(KEY=k, TS=ts)); INSERT INTO spread VALUES ('a', 1, 4); SELECT max(d) - min(d) OVER w FROM spread WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
            standard: "error",
            openmldb: "0",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "a window without a frame",
        standard: "Over an order it is that of all rows up to the current one, as in standard SQL.",
        openmldb: "A window needs a frame.",
        why: "Queries from other databases leave it out.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE frameless (k INT, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts)); INSERT INTO frameless VALUES (1, 1, 1000), (1, 2, 2000); SELECT sum(v) OVER (PARTITION BY k ORDER BY ts) AS s FROM frameless LIMIT 1 OFFSET 1",
            standard: "3",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "row_number, rank and dense_rank",
        standard: "They number the rows of a window up to the current one, whatever its frame.",
        openmldb: "There are no such functions.",
        why: "They are standard SQL, and need no later row.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE numbered (k INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts)); INSERT INTO numbered VALUES (1, 1000), (1, 2000); SELECT row_number() OVER (PARTITION BY k ORDER BY ts) AS n FROM numbered LIMIT 1 OFFSET 1",
            standard: "2",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "a window without PARTITION BY",
        standard: "All rows have one key, as in standard SQL.",
        openmldb: "A window needs PARTITION BY.",
        why: "What happened to everybody in the last minutes is a feature, too.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE everybody (k INT, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts)); INSERT INTO everybody VALUES (1, 1, 1000), (2, 2, 2000); SELECT sum(v) OVER (ORDER BY ts) AS s FROM everybody LIMIT 1 OFFSET 1",
            standard: "3",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "RANGE in a frame",
        standard: "It is another word for ROWS_RANGE: the frame is over event time.",
        openmldb: "Only ROWS_RANGE is.",
        why: "RANGE BETWEEN INTERVAL … is standard SQL.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE ranged (k INT, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts)); INSERT INTO ranged VALUES (1, 1, 1000), (1, 2, 2000); SELECT sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '500' MILLISECOND PRECEDING AND CURRENT ROW) AS s FROM ranged LIMIT 1 OFFSET 1",
            standard: "2",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "unix_timestamp of NULL and ''",
        standard: "NULL.",
        openmldb: "The current time.",
        why: "A feature must not depend on when it is computed.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "unix_timestamp('')",
            standard: "NULL",
            openmldb: "the current time",
        },
        is_restored: false,
    },
    CompatibilityDifference {
        name: "date_format beyond 80 bytes",
        standard: "The whole text.",
        openmldb: "Fails.",
        why: "There is no buffer to run over.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "char_length(date_format(date('2020-05-22'), rpad('', 100, 'x')))",
            standard: "100",
            openmldb: "error",
        },
        is_restored: false,
    },
];

/// Every addition in functions and expressions.
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
        why: "It is SQL, and OpenMLDB refuses it.",
        cases: &[],
    },
    Addition {
        name: "LIKE, ILIKE, like_match, ilike_match with a NULL pattern or escape",
        what: "The result is NULL; OpenMLDB refuses the literal NULL here and accepts a NULL that is not a literal.",
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
        why: "Newer releases of OpenMLDB do the same; older ones refuse it.",
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
            for text in [difference.openmldb, difference.standard, difference.why] {
                assert!(text.ends_with('.'), "`{}`: {text}", difference.name);
            }
            let example = difference.example;
            assert_ne!(example.standard, example.openmldb, "`{}` shows it", difference.name);
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
