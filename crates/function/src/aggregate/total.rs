//! Totals: `count`, `sum`, `avg`. Exact, so a removal undoes an addition.

use lockstep_row::{Arena, DataType, Datum};

use super::{
    Accumulator, AggregateFunction, BoundAggregate,
    key::wrapped_integer,
    signature::{NUMBER, SUMMABLE, bound, expect, expect_count},
};
use crate::{Arguments, Compatibility, SignatureError, exact_sum::ExactSum};

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

pub(super) fn bind_count(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 0..=1)?;
    Ok(bound(arguments.types.to_vec(), DataType::BigInt, |_feeding| Count(0)))
}

pub(super) fn bind_sum(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let parameter = expect(arguments, 0, &SUMMABLE)?;
    let wraps = arguments.settings.compatibility == Compatibility::OpenMldb;
    let returns = match &parameter {
        integer if integer.is_integer() && !wraps => DataType::BigInt,
        other => other.clone(),
    };
    let answer = match &returns {
        DataType::Float => Answer::Float,
        DataType::Double => Answer::Double,
        integer if wraps => Answer::Wrapped(integer.clone()),
        integer => Answer::Checked(integer.clone()),
    };
    let make = move |_feeding| Total::new(answer.clone());
    Ok(bound(vec![parameter], returns, make))
}

pub(super) fn bind_avg(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let parameter = expect(arguments, 0, &NUMBER)?;
    let answer = if parameter.is_float() { Answer::FloatMean } else { Answer::IntegerMean };
    let make = move |_feeding| Total::new(answer.clone());
    Ok(bound(vec![parameter], DataType::Double, make))
}

/// Rows, or rows whose argument is not NULL.
struct Count(i64);

impl Accumulator for Count {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        self.0 += i64::from(counts(arguments));
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        self.0 -= i64::from(counts(arguments));
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

/// What a total is asked for.
#[derive(Debug, Clone)]
enum Answer {
    Checked(DataType),
    Wrapped(DataType),
    Float,
    Double,
    IntegerMean,
    FloatMean,
}

/// Sum and count; only the sum of the argument's kind is in use.
struct Total {
    answer: Answer,
    count: u64,
    integer: i128,
    float: ExactSum,
}

impl Total {
    fn new(answer: Answer) -> Self {
        Self { answer, count: 0, integer: 0, float: ExactSum::new() }
    }
}

impl Accumulator for Total {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        match arguments[0] {
            Datum::Null => return,
            Datum::Float(value) => self.float.add(value.into()),
            Datum::Double(value) => self.float.add(value),
            other => self.integer += i128::from(other.as_i64().unwrap_or(0)),
        }
        self.count += 1;
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        match arguments[0] {
            Datum::Null => return,
            Datum::Float(value) => self.float.remove(value.into()),
            Datum::Double(value) => self.float.remove(value),
            other => self.integer -= i128::from(other.as_i64().unwrap_or(0)),
        }
        self.count -= 1;
    }

    #[expect(clippy::cast_precision_loss, reason = "rounds the exact sum to DOUBLE")]
    fn value<'a>(&self, _arena: &'a Arena) -> Datum<'a> {
        if self.count == 0 {
            return Datum::Null;
        }
        let count = self.count as f64;
        match &self.answer {
            Answer::Checked(data_type) => match i64::try_from(self.integer) {
                Ok(_) => wrapped_integer(self.integer, data_type),
                Err(_) => Datum::Null,
            },
            Answer::Wrapped(data_type) => wrapped_integer(self.integer, data_type),
            Answer::Float => Datum::Float(self.float.to_f32()),
            Answer::Double => Datum::Double(self.float.to_f64()),
            Answer::IntegerMean => Datum::Double(self.integer as f64 / count),
            Answer::FloatMean => Datum::Double(self.float.to_f64() / count),
        }
    }

    fn reset(&mut self) {
        self.count = 0;
        self.integer = 0;
        self.float.reset();
    }
}
