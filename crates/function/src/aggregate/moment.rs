//! Variances and standard deviations, over exact sums (see [`crate::exact_sum`]).

use lockstep_row::{DataType, Datum};

use super::{
    AggregateFunction, BoundAggregate,
    signature::{NUMBER, bound_fold, expect, expect_count},
    state::{AnswerKind, Fold, StateClass, StateKind},
};
use crate::{
    CallArguments, SignatureError,
    exact_sum::{Divisor, ExactMoments},
};

macro_rules! moment {
    ($name:literal, $aliases:expr, $what:literal, $few:literal, $divisor:ident, $root:literal, $example:expr) => {
        AggregateFunction {
            name: $name,
            aliases: $aliases,
            category: "statistics",
            signature: concat!($name, "(x number) → DOUBLE"),
            doc: concat!(
                "Returns the ",
                $what,
                " of the values that are not NULL, or NULL if there are fewer than ",
                $few,
                " such values. Integers are converted to DOUBLE. The sum of squared deviations \
                 is computed exactly and rounded once, so that no digits cancel."
            ),
            examples: &[$example],
            is_ordered: false,
            class: StateClass::Retractable,
            bind: |arguments| bind(arguments, Divisor::$divisor, $root),
        }
    };
}

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    moment!(
        "stddev",
        &["std", "stddev_samp"],
        "sample standard deviation",
        "2",
        Sample,
        true,
        ("stddev(x)", "1.5")
    ),
    moment!(
        "stddev_pop",
        &[],
        "population standard deviation",
        "1",
        Population,
        true,
        ("stddev_pop(x)", "1.299038105676658")
    ),
    moment!(
        "var_samp",
        &["variance"],
        "sample variance",
        "2",
        Sample,
        false,
        ("var_samp(x)", "2.25")
    ),
    moment!(
        "var_pop",
        &[],
        "population variance",
        "1",
        Population,
        false,
        ("var_pop(x)", "1.6875")
    ),
];

fn bind(
    arguments: &CallArguments<'_>,
    divisor: Divisor,
    root: bool,
) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    expect(arguments, 0, &NUMBER)?;
    let answer = MomentAnswer { divisor, root };
    let fold = Fold::new(Some(0), StateKind::Moments, AnswerKind::Moment(answer));
    Ok(bound_fold(vec![DataType::Double], DataType::Double, fold))
}

/// The result that is computed from moments.
#[derive(Debug, Clone, Copy)]
pub(super) struct MomentAnswer {
    divisor: Divisor,
    /// Whether the result is the square root: a standard deviation.
    root: bool,
}

impl MomentAnswer {
    pub(super) fn of<'a>(self, moments: &ExactMoments) -> Datum<'a> {
        let answer = if self.root {
            moments.deviation(self.divisor)
        } else {
            moments.variance(self.divisor)
        };
        answer.map_or(Datum::Null, Datum::Double)
    }
}
