//! Casts written as functions: `int(x)` is `CAST(x AS INT)`.

use lockstep_row::DataType;

use super::{
    CallArguments, Resolved, ScalarFunction, SignatureError, signature::expect_count, text::concat,
};
use crate::cast;

macro_rules! conversion {
    ($name:literal, $aliases:expr, $signature:literal, $doc:literal, $examples:expr, $to:expr) => {
        ScalarFunction {
            name: $name,
            aliases: $aliases,
            category: "conversion",
            signature: $signature,
            doc: $doc,
            examples: $examples,
            resolve: |arguments| convert(arguments, &$to),
        }
    };
}

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    conversion!(
        "bool",
        &["boolean"],
        "bool(value) → BOOL",
        "A number is true unless it is 0. A text is true for t, true, y, yes and 1, false for f, false, n, no and 0, in any case, and NULL otherwise.",
        &[("bool(2)", "true"), ("bool('No')", "false"), ("bool('maybe')", "NULL")],
        DataType::Bool
    ),
    conversion!(
        "smallint",
        &["int16", "i16"],
        "smallint(value) → SMALLINT",
        "Converts to 16 bits. A float drops its fraction; what is out of range, and a text that is no integer, is NULL.",
        &[("smallint('12')", "12"), ("smallint(65537)", "NULL"), ("smallint(1.9)", "1")],
        DataType::SmallInt
    ),
    conversion!(
        "int",
        &["integer", "int32", "i32"],
        "int(value) → INT",
        "Converts to 32 bits. A float drops its fraction; what is out of range, a text that is no integer, and a DATE is NULL.",
        &[
            ("int(' 0x1F ')", "31"),
            ("int(-1.9)", "-1"),
            ("int(1e10)", "NULL"),
            ("int('x')", "NULL")
        ],
        DataType::Int
    ),
    conversion!(
        "bigint",
        &["int64", "i64"],
        "bigint(value) → BIGINT",
        "Converts to 64 bits. A TIMESTAMP is its milliseconds. A float drops its fraction; what is out of range, and a text that is no integer, is NULL.",
        &[("bigint(timestamp('1970-01-01 00:00:01'))", "1000"), ("bigint('')", "NULL")],
        DataType::BigInt
    ),
    conversion!(
        "float",
        &["float32"],
        "float(value) → FLOAT",
        "Converts to the nearest FLOAT. A text must be a number as a whole, otherwise the result is NULL.",
        &[("float('1.5')", "1.5"), ("float('1.5x')", "NULL")],
        DataType::Float
    ),
    conversion!(
        "double",
        &["float64"],
        "double(value) → DOUBLE",
        "Converts to the nearest DOUBLE. A text must be a number as a whole, otherwise the result is NULL.",
        &[("double('1e3')", "1000"), ("double('inf')", "Infinity"), ("double('1e999')", "NULL")],
        DataType::Double
    ),
    conversion!(
        "string",
        &["varchar"],
        "string(value) → STRING",
        "The text of a value. FLOAT and DOUBLE print the fewest digits that read back as the same value; a TIMESTAMP prints in the session's time zone, with milliseconds where it has some.",
        &[
            ("string(0.1)", "0.1"),
            ("string(1000000.0)", "1000000"),
            ("string(true)", "true"),
            ("string(1e20)", "1e+20")
        ],
        DataType::String
    ),
    conversion!(
        "date",
        &[],
        "date(value) → DATE",
        "The day of a TIMESTAMP in the session's time zone, or of a text YYYY-MM-DD, YYYYMMDD or YYYY-MM-DD HH:MM:SS; a text that is none of these is NULL.",
        &[
            ("date('20200522')", "2020-05-22"),
            ("date(timestamp(0))", "1970-01-01"),
            ("date('2020-02-30')", "NULL")
        ],
        DataType::Date
    ),
    conversion!(
        "timestamp",
        &[],
        "timestamp(value) → TIMESTAMP",
        "A number is milliseconds since 1970-01-01 UTC, NULL when negative. A DATE is its midnight and a text its time in the session's time zone.",
        &[
            ("timestamp('2020-05-22 10:43:40')", "2020-05-22 10:43:40"),
            ("timestamp('2020-05-22T10:43:40.5+08:00')", "2020-05-22 02:43:40.500"),
            ("timestamp(-1)", "NULL"),
            ("timestamp(date('2020-05-22'))", "2020-05-22 00:00:00"),
        ],
        DataType::Timestamp
    ),
];

fn convert(arguments: &CallArguments<'_>, to: &DataType) -> Resolved {
    expect_count(arguments, 1, 1)?;
    let from = &arguments.types[0];
    cast::implementation(from, to, arguments.settings).ok_or_else(|| SignatureError::Type {
        position: 1,
        expected: format!("a type that converts to {to}"),
        found: from.clone(),
    })
}

/// Resolves the operator `||`, which is the function `concat`.
pub(super) fn concatenate(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, 2)?;
    concat(arguments)
}
