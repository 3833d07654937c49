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
        standard: "A result that is out of range of its type is NULL.",
        openmldb: "The result wraps at the width of the type.",
        why: "A number that wraps looks like a valid value.",
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
        why: "A FLOAT has 24 significant bits: a time in milliseconds loses its minutes.",
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
        standard: "Both sides are converted to DOUBLE.",
        openmldb: "Both sides are converted to FLOAT, so that 16777217 equals 16777216.0.",
        why: "A comparison must not depend on the precision of FLOAT.",
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
        standard: "NaN equals itself and is greater than every number, as in ORDER BY, GROUP BY, max and PostgreSQL.",
        openmldb: "As in IEEE 754, NaN is neither equal to, less than nor greater than anything.",
        why: "A row whose value is NaN must not fail both a condition and its negation, nor be excluded from its own group.",
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
        standard: "A negative distance is an error.",
        openmldb: "A negative distance means CURRENT ROW.",
        why: "A frame other than the one that is written computes wrong features without an error.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE framed (v INT, ts TIMESTAMP); INSERT INTO framed VALUES (1, 1000); SELECT sum(v) OVER (PARTITION BY v ORDER BY ts ROWS BETWEEN 1 PRECEDING AND -1 PRECEDING) FROM framed",
            standard: "error",
            openmldb: "1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "string compared with another type (also nullif, minimum, maximum, least, greatest)",
        standard: "A string constant is converted to the type of the other side, and is an error if it is not a valid value of that type; a string that is stored or computed can be compared only with strings.",
        openmldb: "Both sides are compared as strings.",
        why: "As a string, '9' is greater than '10', and no day equals a time of that day; a constant in quotes stands for its value.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "'9' < 10",
            standard: "true",
            openmldb: "false",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "string in double quotes that is also the name of a column",
        standard: "It is an error; single quotes denote a string, and back-quotes a column.",
        openmldb: "It is a string.",
        why: "Other systems read it as the column, and the wrong interpretation leads to a wrong result without an error.",
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
        standard: "A string with more than `n` characters is rejected by a column, and truncated by a cast.",
        openmldb: "The length is parsed but not enforced.",
        why: "A limit that is declared must be enforced.",
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
        standard: "No rows are deleted, since nothing equals NULL; `column IS NULL` selects the rows.",
        openmldb: "The rows whose column is NULL are deleted.",
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
        standard: "Rows are grouped; the two zeros form one group, and so do all NaNs.",
        openmldb: "It is an error.",
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
        standard: "The name is the expression as SQL that can be executed again.",
        openmldb: "The name is the expression with six decimals in floats, type names for casts, and neither quotes nor parentheses.",
        why: "The name `1.500000` for 1.5 is unexpected, and different expressions could have the same name.",
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
        standard: "A name that is not the name of a column may be an alias of the select list.",
        openmldb: "An alias is an error.",
        why: "The meaning is clear, as in GROUP BY and ORDER BY.",
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
        standard: "A value that is out of range is NULL.",
        openmldb: "The low bits are kept.",
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
        standard: "The result is NULL, also for NaN.",
        openmldb: "The result is undefined; under the setting it saturates, and NaN is 0.",
        why: "The limit of the range is not the value.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "int(1e10)",
            standard: "NULL",
            openmldb: "2147483647",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "FLOAT and DOUBLE to STRING",
        standard: "The string has the fewest digits that read back as the same value, and an exponent below 1e-4 and from 1e15 on; also NaN and Infinity.",
        openmldb: "The string has six significant digits: 12345678.9 is 1.23457e+07; nan and inf are in lower case.",
        why: "Six digits lose part of the number, and make different numbers equal as strings.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "string(12345678.9)",
            standard: "12345678.9",
            openmldb: "1.23457e+07",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "floats in strings (top, topn_frequency, *_cate, gcformat, csv, libsvm)",
        standard: "A float has the fewest digits that read back as the same value, as everywhere else.",
        openmldb: "A float has six digits after the decimal point.",
        why: "A small number becomes 0, and a large number loses digits.",
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
        standard: "A float has the fewest digits that read back as the same value; a TIMESTAMP is in ISO 8601 with milliseconds.",
        openmldb: "A float has six digits after the decimal point; a TIMESTAMP is an integer number of milliseconds.",
        why: "Exported values must equal the stored values, and other tools must be able to read them.",
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
        standard: "The result is a file, or a directory of parts if the path is a directory or ends in `/`.",
        openmldb: "The result is a directory of parts, whatever the path is.",
        why: "The path `result.csv` is meant to be a file; scripts that read parts still work under the setting.",
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
        standard: "NULL is an empty field, unless the option `null_value` is specified.",
        openmldb: "NULL is the word null, unless the option `null_value` is specified.",
        why: "Most readers read an empty field as NULL, and the word as a string.",
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
        standard: "An empty field is NULL; the empty string is `\"\"`.",
        openmldb: "An empty field is the empty string, unless the option `null_value` is `''`.",
        why: "Most readers read an empty field as NULL.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT CAST(NULL AS STRING) AS s, 1 AS n INTO OUTFILE '{folder}/file.csv' OPTIONS(mode='overwrite', null_value=''); CREATE TABLE lines (s STRING, n INT); LOAD DATA INFILE '{folder}/file.csv' INTO TABLE lines OPTIONS(mode='append'); SELECT s IS NULL AS missing FROM lines",
            standard: "true",
            openmldb: "false",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "a string that reads like NULL in CSV files (INTO OUTFILE)",
        standard: "The string is quoted, and therefore read back as a string.",
        openmldb: "The string is not quoted, and therefore read back as NULL, unless the option `quote` is specified.",
        why: "Exported values must equal the stored values.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT 'null' AS s, 1 AS n INTO OUTFILE '{folder}/file.csv' OPTIONS(mode='overwrite'); CREATE TABLE lines (line STRING); LOAD DATA INFILE '{folder}/file.csv' INTO TABLE lines OPTIONS(delimiter=';', quote='', header=false, mode='append'); SELECT line FROM lines WHERE line NOT LIKE 's,%'",
            standard: "\"null\",1",
            openmldb: "null,1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "TIMESTAMP to STRING",
        standard: "The string includes milliseconds unless they are 0.",
        openmldb: "The string is truncated to seconds.",
        why: "Different times must not have the same string.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "string(timestamp(1001))",
            standard: "1970-01-01 00:00:01.001",
            openmldb: "1970-01-01 00:00:01",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "STRING to TIMESTAMP and DATE",
        standard: "The string may also have blanks around it, `T` for the blank within, no seconds or a fraction of a second, and `Z`, `UTC` or an offset at the end.",
        openmldb: "The string must have the form YYYY-MM-DD HH:MM:SS, YYYY-MM-DD or YYYYMMDD.",
        why: "Strings in the forms that most systems write would otherwise be NULL, without a warning.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "timestamp('2020-05-22T10:43:40Z')",
            standard: "2020-05-22 10:43:40",
            openmldb: "NULL",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "STRING with a year before 1900 to TIMESTAMP and DATE",
        standard: "The result is the time or the day.",
        openmldb: "The result is NULL.",
        why: "Tables can contain such days, and their strings must be readable.",
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
        standard: "Lengths and positions are counted in characters.",
        openmldb: "Lengths and positions are counted in bytes.",
        why: "A position inside a character is useless; if OpenMLDB's result is not UTF-8, U+FFFD replaces the partial character.",
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
        standard: "`_` matches one character; ILIKE ignores case in every script.",
        openmldb: "`_` matches one byte; ILIKE ignores the case of ASCII letters only.",
        why: "Users see characters, not bytes.",
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
        standard: "Every letter that has the other case is converted.",
        openmldb: "Only ASCII letters are converted.",
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
        standard: "Characters are reversed.",
        openmldb: "Bytes are reversed.",
        why: "Reversed bytes are not valid UTF-8 outside ASCII.",
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
        standard: "The result is the character with that Unicode code point, or NULL if the code point is not valid.",
        openmldb: "The result is one byte, the code modulo 256.",
        why: "A byte from 128 on is not valid UTF-8; under the setting it is U+FFFD.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "char(321)",
            standard: "Ł",
            openmldb: "A",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "hex of a STRING",
        standard: "Each byte has two digits.",
        openmldb: "Digits are not padded, and bytes from 0x80 on are prefixed with six F.",
        why: "`unhex` must be able to read the result.",
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
        standard: "The result has the digits of 64 bits.",
        openmldb: "The result has the digits of the argument's type.",
        why: "The same number must have the same digits in every type.",
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
        standard: "The statement fails.",
        openmldb: "The result is NULL.",
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
        standard: "The result is NULL if the bytes are not UTF-8.",
        openmldb: "The result may have any bytes.",
        why: "A STRING is UTF-8; under the setting U+FFFD replaces invalid bytes.",
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
        standard: "The result is complete.",
        openmldb: "The result is limited to 4096 bytes; the rest is dropped.",
        why: "A list that is truncated silently is a wrong feature.",
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
        standard: "The delimiter is between the elements that are not NULL.",
        openmldb: "The delimiter precedes every element except the first, so that a leading NULL leaves a delimiter.",
        why: "A delimiter with nothing before it is an extra, empty element when the string is split.",
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
        standard: "The result is the same as for any other time.",
        openmldb: "The result is NULL for a TIMESTAMP before 1970.",
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
        standard: "Two labels are an error, and so are two indexes.",
        openmldb: "The last label is used.",
        why: "A line has one label; the other one is a mistake.",
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
        standard: "The argument is returned unchanged.",
        openmldb: "The argument is converted to DOUBLE and back, so that beyond 2^53 another number is returned.",
        why: "An integer needs no rounding.",
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
        standard: "The result is NULL if either argument is NULL.",
        openmldb: "The result is the right argument if the left one is NULL.",
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
        standard: "The result is BIGINT, or NULL if it is out of range of 64 bits.",
        openmldb: "The result has the type of the argument and wraps.",
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
        standard: "The two middle integers are added exactly.",
        openmldb: "The two middle integers are added in their own type, which may wrap.",
        why: "A mean must lie between its values.",
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
        standard: "NULL is not counted.",
        openmldb: "NULL counts as the zero, or the empty string, of the type.",
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
        standard: "The list has only the values that occur.",
        openmldb: "The list is padded with the word NULL.",
        why: "The word cannot be distinguished from a string that contains NULL.",
        example: Example {
            form: ExampleForm::Aggregate,
            sql: "topn_frequency(c, 3)",
            standard: "a,b",
            openmldb: "a,b,NULL",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "aggregates that return lists (*_cate, top_n_*, window_split*)",
        standard: "The result is complete.",
        openmldb: "The result is limited to 4096 bytes; the rest is dropped.",
        why: "A list that is truncated silently is a wrong feature.",
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
        standard: "Values that are 0 are included.",
        openmldb: "Values that are 0 are skipped: the mean excludes them, and a sum of zeros only is NULL.",
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
        name: "INSERT of an integer that is out of range of its column",
        standard: "The statement fails.",
        openmldb: "The low bits are kept.",
        why: "A value that is changed by INSERT cannot be found again.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE narrow (k INT); INSERT INTO narrow VALUES (4294967297); SELECT k FROM narrow",
            standard: "error",
            openmldb: "1",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "INSERT of a number that FLOAT or DOUBLE cannot represent",
        standard: "An integer that would lose digits is an error, and so is a decimal that is out of range.",
        openmldb: "An integer is rounded, and a decimal that is out of range is infinite.",
        why: "A value that is changed by INSERT cannot be found again.",
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
        standard: "Columns are matched by name; a name that is not a column of the table is an error. Options: `match_by = 'position'`, `unknown_columns = 'ignore'`.",
        openmldb: "The first line of a CSV file is ignored and its columns are matched by position; columns of a Parquet file that are not columns of the table are ignored. A warning reports it.",
        why: "Swapped columns of numbers go unnoticed.",
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
        standard: "The offline data of the table is replaced.",
        openmldb: "The statement fails if the table has offline data.",
        why: "To overwrite means to replace existing data.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "SELECT 1 AS k INTO OUTFILE '{folder}/linked.csv' OPTIONS(mode='overwrite'); CREATE TABLE linked (k INT); SET @@execute_mode = 'offline'; LOAD DATA INFILE '{folder}/linked.csv' INTO TABLE linked OPTIONS(deep_copy=false, mode='overwrite'); LOAD DATA INFILE '{folder}/linked.csv' INTO TABLE linked OPTIONS(deep_copy=false, mode='overwrite'); SELECT k FROM linked",
            standard: "1",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "INSERT of a string into a TIMESTAMP",
        standard: "The string is converted as by CAST.",
        openmldb: "The statement fails.",
        why: "INSERT should accept what CAST accepts.",
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
        standard: "The session's time zone is used, UTC by default.",
        openmldb: "The time zone is always UTC+8.",
        why: "The setting does not change the time zone; `SET time_zone = 'Etc/GMT-8'` restores OpenMLDB's results.",
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
        openmldb: "The table has an index on its first column that is not FLOAT or DOUBLE, and DELETE must compare that column.",
        standard: "The table has no declared index; DELETE may compare any column.",
        why: "An index need not be declared; no query returns another result because of it.",
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
        openmldb: "A query whose WHERE fixes the key of an index sees the rows that this index keeps; so does a request through the index that its windows and joins read. An index that DEPLOY creates keeps the newest row of a key for a LAST JOIN, and the rows of the frame for a window, even if a further condition excludes some of them; VERIFY reports the rows that a request then misses.",
        standard: "A row is visible everywhere while at least one declared index keeps it.",
        why: "The rows that a query sees must not depend on how it is written.",
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
        openmldb: "A duration is allowed only in a frame, a TTL or an option.",
        why: "`ts + INTERVAL '5' MINUTE` is standard SQL.",
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
        standard: "The result is the number of milliseconds between the two, of type BIGINT.",
        openmldb: "The operator is not supported.",
        why: "The age of a row is a common feature.",
        example: Example {
            form: ExampleForm::Expression,
            sql: "timestamp(3000) - timestamp(1000)",
            standard: "2000",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "one OVER after an expression with several aggregates",
        standard: "OVER applies to the aggregate before it; each of the others needs its own OVER.",
        openmldb: "OVER is the window of all aggregates in the expression.",
        why: "In standard SQL an aggregate without OVER is computed over a group.",
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
        standard: "A window with ORDER BY has the frame of all rows up to the current row, as in standard SQL.",
        openmldb: "A window requires a frame.",
        why: "Queries from other databases omit it.",
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
        standard: "The functions number the rows of a window up to the current row, whatever its frame.",
        openmldb: "The functions are not supported.",
        why: "They are standard SQL, and do not depend on later rows.",
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
        standard: "All rows have the same key, as in standard SQL.",
        openmldb: "A window requires PARTITION BY.",
        why: "An aggregate over the last minutes of all keys is a feature, too.",
        example: Example {
            form: ExampleForm::Statements,
            sql: "CREATE TABLE keyless (k INT, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts)); INSERT INTO keyless VALUES (1, 1, 1000), (2, 2, 2000); SELECT sum(v) OVER (ORDER BY ts) AS s FROM keyless LIMIT 1 OFFSET 1",
            standard: "3",
            openmldb: "error",
        },
        is_restored: true,
    },
    CompatibilityDifference {
        name: "RANGE in a frame",
        standard: "RANGE is a synonym for ROWS_RANGE: the frame is over event time.",
        openmldb: "RANGE is not supported, only ROWS_RANGE.",
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
        standard: "The result is NULL.",
        openmldb: "The result is the current time.",
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
        standard: "The result is complete.",
        openmldb: "The function fails.",
        why: "The result is not written to a buffer of fixed size.",
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
        what: "The functions coalesce, nullif, if, least, greatest, trim, ltrim, rtrim, lpad, rpad, left, right, octet_length, starts_with, ends_with, sign, date_trunc, quarter, timestampadd, now, current_timestamp, current_date, percentile and approx_distinct are supported.",
        why: "Queries from other databases use them.",
        cases: &[],
    },
    Addition {
        name: "`||`",
        what: "Concatenates two values as strings.",
        why: "It is standard SQL, and OpenMLDB rejects it.",
        cases: &[],
    },
    Addition {
        name: "LIKE, ILIKE, like_match, ilike_match with a NULL pattern or escape",
        what: "The result is NULL; OpenMLDB rejects the literal NULL here, and accepts a NULL that is not a literal.",
        why: "NULL is a valid value, and a parameter may be NULL.",
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
        what: "The result is NULL of that type.",
        why: "Newer releases of OpenMLDB return the same; older releases reject it.",
        cases: &[
            "function/expression/test_type#5_0",
            "function/expression/test_type#5_2",
            "function/expression/test_type#5_3",
            "function/expression/test_type#5_4",
        ],
    },
    Addition {
        name: "aggregates over a whole table",
        what: "`count(1)` and other aggregates are supported without a window and without GROUP BY, in every mode.",
        why: "One result row for a table is a common query.",
        cases: &["function/v040/test_udaf#1"],
    },
    Addition {
        name: "names in double quotes",
        what: "`\"x\"` is a name in every place in which only a name is allowed (a table, an alias, a window, a column of INSERT or CREATE TABLE, both sides of a dot).",
        why: "It is standard SQL, and has no other meaning in these places.",
        cases: &[],
    },
    Addition {
        name: "DELETE with `column IS NULL`",
        what: "The rows whose column is NULL are deleted.",
        why: "The condition states the intent.",
        cases: &[],
    },
    Addition {
        name: "arrays of arrays",
        what: "ARRAY<ARRAY<INT>> is a valid type.",
        why: "Nesting needs no limit of one level.",
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
