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
        "Converts `value` to BOOL. A number or TIMESTAMP is true unless it is 0. A STRING is true for `t`, `true`, `y`, `yes` and `1`, false for `f`, `false`, `n`, `no` and `0`, ignoring case, and NULL otherwise. A DATE is NULL.",
        &[("bool(2)", "true"), ("bool('No')", "false"), ("bool('maybe')", "NULL")],
        DataType::Bool
    ),
    conversion!(
        "smallint",
        &["int16", "i16"],
        "smallint(value) → SMALLINT",
        "Converts `value` to an integer of 16 bits. The fraction of a float is dropped. NULL if the value is out of range, for a STRING that is not an integer, and for a DATE.",
        &[("smallint('12')", "12"), ("smallint(65537)", "NULL"), ("smallint(1.9)", "1")],
        DataType::SmallInt
    ),
    conversion!(
        "int",
        &["integer", "int32", "i32"],
        "int(value) → INT",
        "Converts `value` to an integer of 32 bits. The fraction of a float is dropped. NULL if the value is out of range, for a STRING that is not an integer, and for a DATE.",
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
        "Converts `value` to an integer of 64 bits. A TIMESTAMP is converted to milliseconds since 1970-01-01 00:00:00 UTC. The fraction of a float is dropped. NULL if the value is out of range, for a STRING that is not an integer, and for a DATE.",
        &[("bigint(timestamp('1970-01-01 00:00:01'))", "1000"), ("bigint('')", "NULL")],
        DataType::BigInt
    ),
    conversion!(
        "float",
        &["float32"],
        "float(value) → FLOAT",
        "Converts `value` to the nearest FLOAT; a DOUBLE that is out of range is infinite. NULL for a STRING that is not a number or is out of range, and for a DATE.",
        &[("float('1.5')", "1.5"), ("float('1.5x')", "NULL")],
        DataType::Float
    ),
    conversion!(
        "double",
        &["float64"],
        "double(value) → DOUBLE",
        "Converts `value` to the nearest DOUBLE. NULL for a STRING that is not a number or is out of range, and for a DATE.",
        &[("double('1e3')", "1000"), ("double('inf')", "Infinity"), ("double('1e999')", "NULL")],
        DataType::Double
    ),
    conversion!(
        "string",
        &["varchar"],
        "string(value) → STRING",
        "Converts `value` to STRING. A FLOAT or DOUBLE has the fewest digits that read back as the same value. A TIMESTAMP is in the session's time zone, with milliseconds unless they are 0.",
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
        "Returns the day of a TIMESTAMP in the session's time zone, or the day in a STRING of the form `YYYY-MM-DD`, `YYYYMMDD` or of a date and time as in `timestamp`. NULL for any other STRING.",
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
        "Converts `value` to TIMESTAMP. A number is milliseconds since 1970-01-01 00:00:00 UTC; NULL if it is negative or out of range. A DATE is midnight in the session's time zone. A STRING has the form `YYYY-MM-DD`, `YYYYMMDD` or `YYYY-MM-DD HH:MM:SS`, in which the seconds may be omitted or have a fraction, `T` may replace the blank, and `Z`, `UTC` or an offset such as `+08:00` may follow; without one of these it is in the session's time zone. NULL for any other STRING.",
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
        expected: format!("of a type that can be cast to {to}"),
        found: from.clone(),
    })
}

/// Resolves the operator `||`, which is the function `concat`.
pub(super) fn concatenate(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, 2)?;
    concat(arguments)
}
