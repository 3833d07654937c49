//! The checks of argument counts and types that scalar functions share.
//!
//! Used by every `resolve` in this folder. A NULL literal has every type.

use lockstep_row::{DataType, Value};

use super::{CallArguments, SignatureError};

/// A set of types that an argument may have.
#[derive(Clone, Copy)]
pub(super) struct ScalarTypeClass {
    name: &'static str,
    accepts: fn(&DataType) -> bool,
}

/// SMALLINT to DOUBLE.
pub(super) const NUMBER: ScalarTypeClass =
    ScalarTypeClass { name: "a number", accepts: DataType::is_number };
/// SMALLINT to DOUBLE, and BOOL.
pub(super) const NUMBER_OR_BOOL: ScalarTypeClass = ScalarTypeClass {
    name: "a number or BOOL",
    accepts: |data_type| data_type.is_number() || *data_type == DataType::Bool,
};
/// SMALLINT, INT, BIGINT.
pub(super) const INTEGER: ScalarTypeClass =
    ScalarTypeClass { name: "an integer", accepts: DataType::is_integer };
/// SMALLINT, INT, BIGINT, and BOOL.
pub(super) const INTEGER_OR_BOOL: ScalarTypeClass = ScalarTypeClass {
    name: "an integer or BOOL",
    accepts: |data_type| data_type.is_integer() || *data_type == DataType::Bool,
};
/// BOOL.
pub(super) const BOOL: ScalarTypeClass =
    ScalarTypeClass { name: "BOOL", accepts: |data_type| *data_type == DataType::Bool };
/// STRING.
pub(super) const TEXT: ScalarTypeClass =
    ScalarTypeClass { name: "STRING", accepts: |data_type| *data_type == DataType::String };
/// Everything but ARRAY and MAP.
pub(super) const PLAIN: ScalarTypeClass = ScalarTypeClass {
    name: "a scalar value",
    accepts: |data_type| !matches!(data_type, DataType::Array(_) | DataType::Map(_, _)),
};
/// Everything.
pub(super) const ANY: ScalarTypeClass = ScalarTypeClass { name: "a value", accepts: |_| true };
/// ARRAY<STRING>, and the empty array.
pub(super) const TEXTS: ScalarTypeClass = ScalarTypeClass {
    name: "ARRAY<STRING>",
    accepts: |data_type| match data_type {
        DataType::Array(element) => matches!(**element, DataType::String | DataType::Null),
        _ => false,
    },
};
/// Types with a calendar day.
pub(super) const DAY: ScalarTypeClass = ScalarTypeClass {
    name: "a TIMESTAMP, a DATE or BIGINT (milliseconds)",
    accepts: |data_type| {
        matches!(data_type, DataType::Timestamp | DataType::Date | DataType::BigInt)
    },
};
/// Types with a time of day.
pub(super) const INSTANT: ScalarTypeClass = ScalarTypeClass {
    name: "a TIMESTAMP or BIGINT (milliseconds)",
    accepts: |data_type| matches!(data_type, DataType::Timestamp | DataType::BigInt),
};
/// TIMESTAMP or DATE.
pub(super) const DATE_OR_TIMESTAMP: ScalarTypeClass = ScalarTypeClass {
    name: "a TIMESTAMP or a DATE",
    accepts: |data_type| matches!(data_type, DataType::Timestamp | DataType::Date),
};
/// Types that can be read as a day or an instant.
pub(super) const READABLE_DATE: ScalarTypeClass = ScalarTypeClass {
    name: "a DATE, a TIMESTAMP or a STRING",
    accepts: |data_type| {
        matches!(data_type, DataType::Timestamp | DataType::Date | DataType::String)
    },
};

/// Checks the number of arguments.
pub(super) fn expect_count(
    arguments: &CallArguments<'_>,
    least: usize,
    most: usize,
) -> Result<(), SignatureError> {
    debug_assert!(least <= most, "some number of arguments is accepted");
    debug_assert_eq!(arguments.constants.len(), arguments.types.len(), "one for each argument");
    let found = arguments.types.len();
    if (least..=most).contains(&found) {
        return Ok(());
    }
    let plural = |count: usize| if count == 1 { "argument" } else { "arguments" };
    let expected = match (least, most) {
        (0, 0) => "no arguments".to_owned(),
        (least, usize::MAX) => format!("at least {least} {}", plural(least)),
        (least, most) if least == most => format!("{least} {}", plural(least)),
        (least, most) if least + 1 == most => format!("{least} or {most} arguments"),
        (least, most) => format!("{least} to {most} arguments"),
    };
    Err(SignatureError::Count { expected, found })
}

/// Checks one argument, counted from 0.
pub(super) fn expect_type(
    arguments: &CallArguments<'_>,
    index: usize,
    class: ScalarTypeClass,
) -> Result<(), SignatureError> {
    let found = &arguments.types[index];
    if *found == DataType::Null || (class.accepts)(found) {
        return Ok(());
    }
    Err(SignatureError::Type {
        position: index + 1,
        expected: class.name.to_owned(),
        found: found.clone(),
    })
}

/// Checks that there are exactly as many arguments as classes, and each of them.
pub(super) fn expect(
    arguments: &CallArguments<'_>,
    classes: &[ScalarTypeClass],
) -> Result<(), SignatureError> {
    expect_between(arguments, classes.len(), classes)
}

/// Checks that there are at least so many arguments and at most one for each class.
pub(super) fn expect_between(
    arguments: &CallArguments<'_>,
    least: usize,
    classes: &[ScalarTypeClass],
) -> Result<(), SignatureError> {
    debug_assert!(least <= classes.len(), "each argument has a class");
    expect_count(arguments, least, classes.len())?;
    (0..arguments.types.len()).try_for_each(|index| expect_type(arguments, index, classes[index]))
}

/// Returns the argument's type, or `default` for a NULL literal.
pub(super) fn type_or(arguments: &CallArguments<'_>, index: usize, default: DataType) -> DataType {
    match &arguments.types[index] {
        DataType::Null => default,
        data_type => data_type.clone(),
    }
}

/// Returns the text of an argument that is a constant STRING.
pub(super) fn constant_text<'a>(arguments: &'a CallArguments<'_>, index: usize) -> Option<&'a str> {
    match arguments.constants.get(index) {
        Some(Some(Value::String(text))) => Some(text),
        _ => None,
    }
}
