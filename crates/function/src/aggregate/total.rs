//! `count`, `sum` and `avg`. The states are exact, so that `remove` undoes `add`.

use lockstep_row::{Arena, DataType, Datum};

use super::{
    Accumulator, AggregateFunction, BoundAggregate,
    fold::{AnswerKind, StateKind},
    key::wrapped_integer,
    signature::{NUMBER, SUMMABLE, bound, expect, expect_count},
};
use crate::{CallArguments, Compatibility, SignatureError, exact_sum::ExactSum};

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "count",
        aliases: &[],
        category: "statistics",
        signature: "count(*) → BIGINT; count(x ANY) → BIGINT",
        doc: "Counts the rows, or the rows in which `x` is not NULL. 0 when there are none.",
        examples: &[("count(*)", "5"), ("count(x)", "4")],
        is_ordered: false,
        bind: bind_count,
    },
    AggregateFunction {
        name: "sum",
        aliases: &[],
        category: "statistics",
        signature: "sum(x SMALLINT|INT|BIGINT) → BIGINT; sum(x FLOAT) → FLOAT; \
                    sum(x DOUBLE) → DOUBLE; sum(x TIMESTAMP) → TIMESTAMP",
        doc: "Adds the values that are not NULL; NULL when there are none. The sum is computed \
              exactly. A sum of integers or of timestamps that 64 bits do not hold is NULL; a sum of floats is rounded once, to the nearest value of the type, whatever the \
              order of the rows. With `compatibility = 'openmldb'` a sum of integers has the type \
              of its argument and wraps.",
        examples: &[("sum(x)", "11"), ("sum(y)", "14.5")],
        is_ordered: false,
        bind: bind_sum,
    },
    AggregateFunction {
        name: "avg",
        aliases: &[],
        category: "statistics",
        signature: "avg(x SMALLINT|INT|BIGINT|FLOAT|DOUBLE) → DOUBLE",
        doc: "The mean of the values that are not NULL; NULL when there are none. It is their \
              exact sum, rounded to DOUBLE, divided by their number.",
        examples: &[("avg(x)", "2.75")],
        is_ordered: false,
        bind: bind_avg,
    },
];

pub(super) fn bind_count(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 0..=1)?;
    let bound = bound(arguments.types.to_vec(), DataType::BigInt, |_feeding| RowCounter(0));
    Ok(bound.with_fold(StateKind::Count, AnswerKind::Count))
}

pub(super) fn bind_sum(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let parameter = expect(arguments, 0, &SUMMABLE)?;
    let wraps = arguments.settings.compatibility == Compatibility::OpenMldb;
    let returns = match &parameter {
        integer if integer.is_integer() && !wraps => DataType::BigInt,
        other => other.clone(),
    };
    let answer = match &returns {
        DataType::Float => TotalAnswer::Float,
        DataType::Double => TotalAnswer::Double,
        integer if wraps => TotalAnswer::Wrapped(integer.clone()),
        integer => TotalAnswer::Checked(integer.clone()),
    };
    Ok(bind_total(parameter, returns, answer))
}

pub(super) fn bind_avg(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let parameter = expect(arguments, 0, &NUMBER)?;
    let answer =
        if parameter.is_float() { TotalAnswer::FloatMean } else { TotalAnswer::IntegerMean };
    Ok(bind_total(parameter, DataType::Double, answer))
}

fn bind_total(parameter: DataType, returns: DataType, answer: TotalAnswer) -> BoundAggregate {
    let kind = AnswerKind::Total(answer.clone());
    let make = move |_feeding| Total { answer: answer.clone(), sums: Sums::default() };
    bound(vec![parameter], returns, make).with_fold(StateKind::Total, kind)
}

/// The accumulator of `count`: the number of rows, or of rows whose argument is not NULL.
struct RowCounter(i64);

impl Accumulator for RowCounter {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        self.0 += i64::from(counts(arguments));
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        self.0 -= i64::from(counts(arguments));
        debug_assert!(self.0 >= 0, "a row that leaves was added");
    }

    fn value<'a>(&self, _arena: &'a Arena) -> Datum<'a> {
        Datum::BigInt(self.0)
    }

    fn reset(&mut self) {
        self.0 = 0;
    }
}

fn counts(arguments: &[Datum<'_>]) -> bool {
    arguments.first().is_none_or(|value| !value.is_null())
}

/// The result that is computed from [`Sums`].
#[derive(Debug, Clone)]
pub(super) enum TotalAnswer {
    Checked(DataType),
    Wrapped(DataType),
    Float,
    Double,
    IntegerMean,
    FloatMean,
}

/// The number of values and their sum; only the sum of the argument's kind is used.
#[derive(Debug, Default)]
pub(super) struct Sums {
    count: u64,
    integer: i128,
    float: ExactSum,
}

impl Sums {
    pub(super) fn add_integers(&mut self, values: &[i64]) {
        self.count += values.len() as u64;
        // Fewer than 2^64 values of 64 bits: the sum does not wrap.
        let sum = |sum: i128, value: &i64| sum.wrapping_add(i128::from(*value));
        self.integer = values.iter().fold(self.integer, sum);
    }

    pub(super) fn add_floats(&mut self, values: &[f64]) {
        self.count += values.len() as u64;
        self.float.add_all(values);
    }

    pub(super) fn reset(&mut self) {
        self.count = 0;
        self.integer = 0;
        self.float.reset();
    }
}

impl TotalAnswer {
    /// Computes the result.
    pub(super) fn of<'a>(&self, sums: &Sums) -> Datum<'a> {
        let mut result = Datum::Null;
        self.write(sums, &mut result);
        result
    }

    /// Writes the result to `out`; see [`FoldState::write_answer`](super::fold::FoldState::write_answer).
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "rounds the exact sum to DOUBLE")]
    pub(super) fn write(&self, sums: &Sums, out: &mut Datum<'_>) {
        if sums.count == 0 {
            *out = Datum::Null;
            return;
        }
        debug_assert!(sums.count < 1 << 53, "a count of rows is exact in DOUBLE");
        let count = sums.count as f64;
        match self {
            Self::Checked(data_type) => match (i64::try_from(sums.integer), data_type) {
                (Ok(sum), DataType::BigInt) => *out = Datum::BigInt(sum),
                (Ok(_), data_type) => *out = wrapped_integer(sums.integer, data_type),
                (Err(_), _) => *out = Datum::Null,
            },
            Self::Wrapped(data_type) => *out = wrapped_integer(sums.integer, data_type),
            Self::Float => *out = Datum::Float(sums.float.to_f32()),
            Self::Double => *out = Datum::Double(sums.float.to_f64()),
            Self::IntegerMean => *out = Datum::Double(sums.integer as f64 / count),
            Self::FloatMean => *out = Datum::Double(sums.float.to_f64() / count),
        }
    }
}

struct Total {
    answer: TotalAnswer,
    sums: Sums,
}

impl Accumulator for Total {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        match arguments[0] {
            Datum::Null => return,
            Datum::Float(value) => self.sums.float.add(value.into()),
            Datum::Double(value) => self.sums.float.add(value),
            other => self.sums.integer += i128::from(other.as_i64().unwrap_or(0)),
        }
        self.sums.count += 1;
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        debug_assert!(
            arguments[0].is_null() || self.sums.count > 0,
            "a value that leaves was added"
        );
        match arguments[0] {
            Datum::Null => return,
            Datum::Float(value) => self.sums.float.remove(value.into()),
            Datum::Double(value) => self.sums.float.remove(value),
            other => self.sums.integer -= i128::from(other.as_i64().unwrap_or(0)),
        }
        self.sums.count -= 1;
    }

    fn value<'a>(&self, _arena: &'a Arena) -> Datum<'a> {
        self.answer.of(&self.sums)
    }

    fn reset(&mut self) {
        self.sums.reset();
    }
}
