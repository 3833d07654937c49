//! Feature signatures as columns: what a whole item of a select list is to a model, and its value.
//!
//! `SELECT binary_label(paid) AS label, continuous(price) AS price …` has columns that are plain
//! values, and each has a [`FeatureRole`]. The binder calls [`resolve_column`]; the role is the name
//! of the call in the plan, by which `plan` finds it again, and writers of files for training
//! programs place the columns by it.

use std::fmt;

use lockstep_row::{DataType, Datum, Value};

use super::{
    CallArguments, NullHandling, ScalarFunction, ScalarImplementation, SignatureError,
    feature::{Feature, FeatureKind, feature},
    row_form,
};

/// What a column is to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeatureRole {
    /// A number.
    Continuous,
    /// A category, whose value is its hash; with a number of buckets the bucket, from 0.
    Discrete {
        /// The number of buckets.
        bucket_count: Option<u64>,
    },
    /// What is to be predicted.
    Label,
    /// The number of the row.
    Index,
}

impl fmt::Display for FeatureRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Continuous => f.write_str("feature[continuous]"),
            Self::Discrete { bucket_count: None } => f.write_str("feature[discrete]"),
            Self::Discrete { bucket_count: Some(count) } => write!(f, "feature[discrete {count}]"),
            Self::Label => f.write_str("feature[label]"),
            Self::Index => f.write_str("feature[index]"),
        }
    }
}

impl FeatureRole {
    /// Finds the role that the name of a call in a plan has, as [`Display`](fmt::Display) writes it.
    pub fn of_call(name: &str) -> Option<Self> {
        let role = name.strip_prefix("feature[")?.strip_suffix(']')?;
        Some(match role {
            "continuous" => Self::Continuous,
            "discrete" => Self::Discrete { bucket_count: None },
            "label" => Self::Label,
            "index" => Self::Index,
            _ => Self::Discrete { bucket_count: role.strip_prefix("discrete ")?.parse().ok() },
        })
    }
}

/// Binds a call of a signature as a whole item of a select list.
///
/// `continuous` and `regression_label` are DOUBLE, or FLOAT where their argument is; `binary_label` is
/// 0 or 1; the others are BIGINT. A number of buckets is a constant.
pub fn resolve_column(
    function: &ScalarFunction,
    arguments: &CallArguments<'_>,
) -> Result<(FeatureRole, ScalarImplementation), SignatureError> {
    let feature = feature(function, arguments)?;
    let role = match feature.kind {
        FeatureKind::Continuous => FeatureRole::Continuous,
        FeatureKind::Label => FeatureRole::Label,
        FeatureKind::Index => FeatureRole::Index,
        FeatureKind::Discrete => FeatureRole::Discrete { bucket_count: bucket_count(arguments)? },
    };
    let parameters = feature.parameters.clone();
    let returns = match (function.name, &parameters[0]) {
        ("continuous" | "regression_label", DataType::Float) => DataType::Float,
        ("continuous" | "regression_label", _) => DataType::Double,
        ("binary_label", _) => DataType::Int,
        _ => DataType::BigInt,
    };
    let to = returns.clone();
    let row = row_form(move |arguments, _arena| Some(column_value(&feature, &to, arguments)));
    Ok((role, ScalarImplementation { parameters, returns, nulls: NullHandling::Passed, row }))
}

/// Returns the number of buckets, which is a constant here; `None` where it was not given.
fn bucket_count(arguments: &CallArguments<'_>) -> Result<Option<u64>, SignatureError> {
    if arguments.types.len() < 2 {
        return Ok(None);
    }
    let constant = arguments.constants.get(1).and_then(|constant| constant.as_ref());
    let count = constant.and_then(Value::as_scalar).and_then(|value| value.as_i64());
    match count.and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0) {
        Some(count) => Ok(Some(count)),
        None => {
            let expected = "a positive constant integer".to_owned();
            Err(SignatureError::Constant { position: 2, expected })
        }
    }
}

/// Returns the value of a column, of the type `to`.
fn column_value<'a>(feature: &Feature, to: &DataType, arguments: &[Datum<'a>]) -> Datum<'a> {
    debug_assert_eq!(arguments.len(), feature.parameters.len(), "a value for each parameter");
    let value = feature.value(arguments);
    match to {
        DataType::Double => value.as_f64().map_or(Datum::Null, Datum::Double),
        DataType::BigInt => value.as_i64().map_or(Datum::Null, Datum::BigInt),
        // FLOAT as it is; BOOL is INT already.
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_found_by_the_name_of_its_call() {
        let roles = [
            FeatureRole::Continuous,
            FeatureRole::Discrete { bucket_count: None },
            FeatureRole::Discrete { bucket_count: Some(100) },
            FeatureRole::Label,
            FeatureRole::Index,
        ];
        for role in roles {
            assert_eq!(FeatureRole::of_call(&role.to_string()), Some(role));
        }
        assert_eq!(FeatureRole::of_call("discrete"), None);
    }
}
