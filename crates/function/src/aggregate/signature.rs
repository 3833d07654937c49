//! The checks of argument types and constants that aggregates share.

use std::{ops::RangeInclusive, sync::Arc};

use lockstep_row::{DataType, Value};

use super::{
    BoundAggregate, RowStateForm, StateForm,
    state::{Fold, RowState, StateClass, StateUse},
};
use crate::{CallArguments, SignatureError};

/// A set of types that an argument may have.
pub(super) struct AggregateTypeClass {
    pub(super) name: &'static str,
    pub(super) accepts: fn(&DataType) -> bool,
    /// The type of a NULL literal.
    pub(super) null_as: DataType,
}

pub(super) const NUMBER: AggregateTypeClass = AggregateTypeClass {
    name: "a number",
    accepts: DataType::is_number,
    null_as: DataType::BigInt,
};
pub(super) const SUMMABLE: AggregateTypeClass = AggregateTypeClass {
    name: "a number or a TIMESTAMP",
    accepts: |data_type| data_type.is_number() || *data_type == DataType::Timestamp,
    null_as: DataType::BigInt,
};
pub(super) const ORDERABLE: AggregateTypeClass = AggregateTypeClass {
    name: "a number, a TIMESTAMP, a DATE or a STRING",
    accepts: |data_type| {
        let others = [DataType::Timestamp, DataType::Date, DataType::String];
        data_type.is_number() || others.contains(data_type)
    },
    null_as: DataType::BigInt,
};
pub(super) const CATEGORY: AggregateTypeClass = AggregateTypeClass {
    name: "an integer, a TIMESTAMP, a DATE or a STRING",
    accepts: |data_type| (ORDERABLE.accepts)(data_type) && !data_type.is_float(),
    null_as: DataType::String,
};
pub(super) const SCALAR: AggregateTypeClass = AggregateTypeClass {
    name: "a scalar value",
    accepts: |data_type| !matches!(data_type, DataType::Array(_) | DataType::Map(..)),
    null_as: DataType::Bool,
};
pub(super) const BOOL: AggregateTypeClass = AggregateTypeClass {
    name: "BOOL",
    accepts: |data_type| *data_type == DataType::Bool,
    null_as: DataType::Bool,
};
pub(super) const INTEGER: AggregateTypeClass = AggregateTypeClass {
    name: "an integer",
    accepts: DataType::is_integer,
    null_as: DataType::BigInt,
};
pub(super) const TEXT: AggregateTypeClass = AggregateTypeClass {
    name: "STRING",
    accepts: |data_type| *data_type == DataType::String,
    null_as: DataType::String,
};

pub(super) fn expect_count(
    arguments: &CallArguments<'_>,
    counts: RangeInclusive<usize>,
) -> Result<(), SignatureError> {
    debug_assert_eq!(arguments.constants.len(), arguments.types.len(), "one for each argument");
    let found = arguments.types.len();
    if counts.contains(&found) {
        return Ok(());
    }
    let (from, to) = counts.into_inner();
    let plural = if to == 1 { "" } else { "s" };
    let expected = if from == to { format!("{to}") } else { format!("{from} to {to}") };
    Err(SignatureError::Count { expected: format!("{expected} argument{plural}"), found })
}

/// Returns the type of an argument; an error if it is not in the class.
pub(super) fn expect(
    arguments: &CallArguments<'_>,
    index: usize,
    class: &AggregateTypeClass,
) -> Result<DataType, SignatureError> {
    match &arguments.types[index] {
        DataType::Null => Ok(class.null_as.clone()),
        found if (class.accepts)(found) => Ok(found.clone()),
        found => Err(SignatureError::Type {
            position: index + 1,
            expected: class.name.to_owned(),
            found: found.clone(),
        }),
    }
}

/// Returns the value of an argument that must be a constant; `expected` describes it in the error.
pub(super) fn expect_constant<'a>(
    arguments: &CallArguments<'a>,
    index: usize,
    expected: &str,
) -> Result<&'a Value, SignatureError> {
    arguments.constants[index].as_ref().ok_or_else(|| wrong_constant(index, expected))
}

/// Returns a constant integer; `None` for NULL.
pub(super) fn expect_integer(
    arguments: &CallArguments<'_>,
    index: usize,
) -> Result<Option<i64>, SignatureError> {
    expect(arguments, index, &INTEGER)?;
    let constant = expect_constant(arguments, index, "a constant integer")?;
    Ok(constant.as_scalar().and_then(|value| value.as_i64()))
}

/// Returns a constant count: an integer that is not negative. NULL counts as 0.
pub(super) fn expect_size(
    arguments: &CallArguments<'_>,
    index: usize,
) -> Result<usize, SignatureError> {
    let number = expect_integer(arguments, index)?.unwrap_or(0);
    usize::try_from(number)
        .map_err(|_error| wrong_constant(index, "a non-negative constant integer"))
}

/// Returns a constant BOOL that may be left out; NULL counts as false.
pub(super) fn expect_flag(
    arguments: &CallArguments<'_>,
    index: usize,
) -> Result<bool, SignatureError> {
    if index >= arguments.types.len() {
        return Ok(false);
    }
    expect(arguments, index, &BOOL)?;
    Ok(*expect_constant(arguments, index, "a constant BOOL")? == Value::Bool(true))
}

pub(super) fn wrong_constant(index: usize, expected: &str) -> SignatureError {
    SignatureError::Constant { position: index + 1, expected: expected.to_owned() }
}

/// Makes a bound aggregate that folds one value of each row.
pub(super) fn bound_fold(
    parameters: Vec<DataType>,
    returns: DataType,
    fold: Fold,
) -> BoundAggregate {
    debug_assert!(
        fold.value.is_none_or(|value| value < parameters.len()),
        "a value is an argument"
    );
    BoundAggregate { parameters, returns, state: StateForm::Fold(fold) }
}

/// Makes a bound aggregate from a function that makes its states.
pub(super) fn bound_rows<S: RowState>(
    parameters: Vec<DataType>,
    returns: DataType,
    class: StateClass,
    make: impl Fn(StateUse) -> S + Send + Sync + 'static,
) -> BoundAggregate {
    let make = move |used| -> Box<dyn RowState> { Box::new(make(used)) };
    let form = RowStateForm { make: Arc::new(make), class, condition: None, pick: None };
    BoundAggregate { parameters, returns, state: StateForm::Rows(form) }
}

/// Returns the first `count` arguments.
pub(super) fn leading<'a>(arguments: &CallArguments<'a>, count: usize) -> CallArguments<'a> {
    CallArguments {
        types: &arguments.types[..count],
        constants: &arguments.constants[..count],
        settings: arguments.settings,
    }
}
