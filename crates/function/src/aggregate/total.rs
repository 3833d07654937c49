//! `count`, `sum` and `avg`. The states are exact, so that `remove` undoes `add`.

use lockstep_row::{DataType, Datum};

use super::{
    AggregateFunction, BoundAggregate,
    encoding::{StateReader, put_signed, put_unsigned},
    key::wrapped_integer,
    signature::{NUMBER, SUMMABLE, bound_fold, expect, expect_count},
    state::{AnswerKind, Fold, StateClass, StateKind},
};
use crate::{CallArguments, Compatibility, SignatureError, exact_sum::ExactSum};

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "count",
        aliases: &[],
        category: "statistics",
        signature: "count(*) → BIGINT; count(x ANY) → BIGINT",
        doc: "Returns the number of rows, or of rows in which `x` is not NULL; 0 if there are no \
              such rows.",
        examples: &[("count(*)", "5"), ("count(x)", "4")],
        is_ordered: false,
        class: StateClass::Retractable,
        bind: bind_count,
    },
    AggregateFunction {
        name: "sum",
        aliases: &[],
        category: "statistics",
        signature: "sum(x SMALLINT|INT|BIGINT) → BIGINT; sum(x FLOAT) → FLOAT; \
                    sum(x DOUBLE) → DOUBLE; sum(x TIMESTAMP) → TIMESTAMP",
        doc: "Returns the sum of the values that are not NULL, or NULL if there are no such \
              values. The sum is computed exactly. A sum of integers or TIMESTAMPs that is out of \
              range of 64 bits is NULL; a sum of floats is rounded once, to the nearest value of \
              the type, and does not depend on the order of the rows. With `compatibility = \
              'openmldb'` a sum of integers has the type of its argument and wraps.",
        examples: &[("sum(x)", "11"), ("sum(y)", "14.5")],
        is_ordered: false,
        class: StateClass::Retractable,
        bind: bind_sum,
    },
    AggregateFunction {
        name: "avg",
        aliases: &[],
        category: "statistics",
        signature: "avg(x SMALLINT|INT|BIGINT|FLOAT|DOUBLE) → DOUBLE",
        doc: "Returns the mean of the values that are not NULL, or NULL if there are no such \
              values. It is their exact sum, rounded to DOUBLE, divided by their number.",
        examples: &[("avg(x)", "2.75")],
        is_ordered: false,
        class: StateClass::Retractable,
        bind: bind_avg,
    },
];

pub(super) fn bind_count(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 0..=1)?;
    let value = (!arguments.types.is_empty()).then_some(0);
    let fold = Fold::new(value, StateKind::Count, AnswerKind::Count);
    Ok(bound_fold(arguments.types.to_vec(), DataType::BigInt, fold))
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
    let fold = Fold::new(Some(0), StateKind::Total, AnswerKind::Total(answer));
    bound_fold(vec![parameter], returns, fold)
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
    pub(super) count: u64,
    pub(super) integer: i128,
    pub(super) float: ExactSum,
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
        match values {
            // Windows slide by a row at a time.
            [value] => self.float.add(*value),
            values => self.float.add_all(values),
        }
    }

    pub(super) fn remove_integers(&mut self, values: &[i64]) {
        debug_assert!(self.count >= values.len() as u64, "values that leave were added");
        self.count -= values.len() as u64;
        let sum = |sum: i128, value: &i64| sum.wrapping_sub(i128::from(*value));
        self.integer = values.iter().fold(self.integer, sum);
    }

    pub(super) fn remove_floats(&mut self, values: &[f64]) {
        debug_assert!(self.count >= values.len() as u64, "values that leave were added");
        self.count -= values.len() as u64;
        values.iter().for_each(|value| self.float.remove(*value));
    }

    /// Adds a value that is not NULL.
    #[inline]
    pub(super) fn add(&mut self, value: Datum<'_>) {
        match value {
            Datum::Float(value) => self.float.add(value.into()),
            Datum::Double(value) => self.float.add(value),
            other => self.integer += i128::from(other.as_i64().unwrap_or(0)),
        }
        self.count += 1;
    }

    /// Removes a value that was added.
    #[inline]
    pub(super) fn remove(&mut self, value: Datum<'_>) {
        debug_assert!(self.count > 0, "a value that leaves was added");
        match value {
            Datum::Float(value) => self.float.remove(value.into()),
            Datum::Double(value) => self.float.remove(value),
            other => self.integer -= i128::from(other.as_i64().unwrap_or(0)),
        }
        self.count -= 1;
    }

    /// Adds all that other sums have.
    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        // Fewer than 2^64 values of 64 bits: the sum does not wrap.
        self.integer = self.integer.wrapping_add(other.integer);
        self.float.merge(&other.float);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_unsigned(out, self.count.into());
        put_signed(out, self.integer);
        self.float.encode(out);
    }

    pub(super) fn decode(reader: &mut StateReader<'_>) -> Option<Self> {
        let (count, integer) = (reader.rows()?, reader.signed()?);
        Some(Self { count, integer, float: ExactSum::decode(reader)? })
    }

    /// Adds what `encode` wrote; `None` for damaged bytes.
    #[inline]
    pub(super) fn merge_encoded(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        self.count = self.count.checked_add(reader.rows()?)?;
        self.integer = self.integer.wrapping_add(reader.signed()?);
        self.float.merge_encoded(reader)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.float.heap_bytes()
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
