//! Type rules of aggregates, as straight checks that name the argument in the error.

use std::{ops::RangeInclusive, sync::Arc};

use lockstep_row::{DataType, Value};

use super::{
    Accumulator, BoundAggregate, Feeding,
    fold::{Answer, Asked, Fold, StateKind},
};
use crate::{Arguments, SignatureError};

/// A class of types that an argument may have.
pub(super) struct Class {
    pub(super) name: &'static str,
    pub(super) accepts: fn(&DataType) -> bool,
    /// The type that a bare NULL gets.
    pub(super) null_as: DataType,
}

pub(super) const NUMBER: Class =
    Class { name: "a number", accepts: DataType::is_number, null_as: DataType::BigInt };
pub(super) const SUMMABLE: Class = Class {
    name: "a number or a timestamp",
    accepts: |data_type| data_type.is_number() || *data_type == DataType::Timestamp,
    null_as: DataType::BigInt,
};
pub(super) const ORDERABLE: Class = Class {
    name: "a number, a timestamp, a date or a string",
    accepts: |data_type| {
        let others = [DataType::Timestamp, DataType::Date, DataType::String];
        data_type.is_number() || others.contains(data_type)
    },
    null_as: DataType::BigInt,
};
pub(super) const CATEGORY: Class = Class {
    name: "an integer, a timestamp, a date or a string",
    accepts: |data_type| (ORDERABLE.accepts)(data_type) && !data_type.is_float(),
    null_as: DataType::String,
};
pub(super) const SCALAR: Class = Class {
    name: "a value that is neither an array nor a map",
    accepts: |data_type| !matches!(data_type, DataType::Array(_) | DataType::Map(..)),
    null_as: DataType::Bool,
};
pub(super) const BOOL: Class = Class {
    name: "a BOOL",
    accepts: |data_type| *data_type == DataType::Bool,
    null_as: DataType::Bool,
};
pub(super) const INTEGER: Class =
    Class { name: "an integer", accepts: DataType::is_integer, null_as: DataType::BigInt };
pub(super) const TEXT: Class = Class {
    name: "a STRING",
    accepts: |data_type| *data_type == DataType::String,
    null_as: DataType::String,
};

pub(super) fn expect_count(
    arguments: &Arguments<'_>,
    counts: RangeInclusive<usize>,
) -> Result<(), SignatureError> {
    let found = arguments.types.len();
    if counts.contains(&found) {
        return Ok(());
    }
    let (from, to) = counts.into_inner();
    let plural = if to == 1 { "" } else { "s" };
    let expected = if from == to { format!("{to}") } else { format!("{from} to {to}") };
    Err(SignatureError::Count { expected: format!("{expected} argument{plural}"), found })
}

/// The type of an argument, which must be of the class.
pub(super) fn expect(
    arguments: &Arguments<'_>,
    index: usize,
    class: &Class,
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

/// The value of an argument that must be a constant; `expected` says so in the error.
pub(super) fn expect_constant<'a>(
    arguments: &Arguments<'a>,
    index: usize,
    expected: &str,
) -> Result<&'a Value, SignatureError> {
    arguments.constants[index].as_ref().ok_or_else(|| wrong_constant(index, expected))
}

/// A constant integer; `None` for NULL.
pub(super) fn expect_integer(
    arguments: &Arguments<'_>,
    index: usize,
) -> Result<Option<i64>, SignatureError> {
    expect(arguments, index, &INTEGER)?;
    let constant = expect_constant(arguments, index, "a constant integer")?;
    Ok(constant.as_scalar().and_then(|value| value.as_i64()))
}

/// A constant count: an integer that is not negative. NULL counts as 0.
pub(super) fn expect_size(
    arguments: &Arguments<'_>,
    index: usize,
) -> Result<usize, SignatureError> {
    let number = expect_integer(arguments, index)?.unwrap_or(0);
    usize::try_from(number)
        .map_err(|_error| wrong_constant(index, "a constant integer that is not negative"))
}

/// A constant BOOL that may be left out; NULL counts as false.
pub(super) fn expect_flag(arguments: &Arguments<'_>, index: usize) -> Result<bool, SignatureError> {
    if index >= arguments.types.len() {
        return Ok(false);
    }
    expect(arguments, index, &BOOL)?;
    Ok(*expect_constant(arguments, index, "a constant BOOL")? == Value::Bool(true))
}

pub(super) fn wrong_constant(index: usize, expected: &str) -> SignatureError {
    SignatureError::Constant { position: index + 1, expected: expected.to_owned() }
}

/// A bound aggregate from a function that makes its accumulators.
pub(super) fn bound<A: Accumulator + 'static>(
    parameters: Vec<DataType>,
    returns: DataType,
    make: impl Fn(Feeding) -> A + Send + Sync + 'static,
) -> BoundAggregate {
    let make = move |feeding| -> Box<dyn Accumulator> { Box::new(make(feeding)) };
    BoundAggregate { parameters, returns, make: Arc::new(make), fold: None }
}

impl BoundAggregate {
    /// Says that the same comes of a state over the first argument.
    pub(super) fn folded(mut self, state: StateKind, asked: Asked) -> Self {
        let value = (!self.parameters.is_empty()).then_some(0);
        self.fold = Some(Fold { value, condition: None, state, answer: Answer(asked) });
        self
    }
}

/// The first `count` arguments alone.
pub(super) fn leading<'a>(arguments: &Arguments<'a>, count: usize) -> Arguments<'a> {
    Arguments {
        types: &arguments.types[..count],
        constants: &arguments.constants[..count],
        settings: arguments.settings,
    }
}
