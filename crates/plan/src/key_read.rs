//! Reads by key: the rows of a table that its conditions leave, as keys of a declared index.
//!
//! A condition is used only to read fewer rows: it stays in the plan, so the rows of a [`KeyRead`]
//! may be more than those that pass, and never fewer. `column = constant`, `OR` of such for one
//! column (which IN is), and comparisons of the event time with constants are used; both sides have
//! one type, since values of two types may be equal without having one key.

use std::{collections::BTreeMap, ops::RangeInclusive};

use datafusion::logical_expr::{BinaryExpr, Expr, Operator, utils::split_conjunction};
use lockstep_function::udf;
use lockstep_row::{DataType, Datum, IndexSpec, TableSchema, Value, key::encode_key};

use crate::literal::constant;

/// The most keys that are looked up in place of a scan.
const KEYS_MAX: usize = 4096;

/// Rows of some keys of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRead {
    /// Position of the index in the table's schema.
    pub index: usize,
    /// The encoded keys, each once.
    pub keys: Vec<Vec<u8>>,
    /// Bounds of the event time; all times where the conditions have none.
    pub event_times: RangeInclusive<i64>,
}

impl KeyRead {
    /// Returns the read that answers a conjunction of conditions on one table: by the declared index with
    /// the most key columns, all of which are compared with constants. `only` allows one index alone.
    pub fn find<'e>(
        schema: &TableSchema,
        conditions: impl IntoIterator<Item = &'e Expr>,
        only: Option<usize>,
    ) -> Option<Self> {
        let conditions = conditions.into_iter().flat_map(split_conjunction);
        let bounds = ConditionBounds::of(schema, conditions);
        let indexes = schema.indexes.iter().enumerate();
        let usable = indexes.filter(|(at, spec)| {
            spec.declared
                && !spec.keys.is_empty()
                && only.is_none_or(|only| only == *at)
                && spec.keys.iter().all(|column| bounds.values.contains_key(column))
        });
        let worth = |(at, spec): &(usize, &IndexSpec)| {
            let is_bounded = spec.event_time.is_some_and(|column| bounds.has_range(column));
            (spec.keys.len(), is_bounded, std::cmp::Reverse(*at))
        };
        let (index, spec) = usable.max_by_key(worth)?;
        let event_times = spec.event_time.map_or(i64::MIN..=i64::MAX, |at| bounds.range(at));
        let keys = match event_times.is_empty() {
            true => Vec::new(),
            false => bounds.keys(spec)?,
        };
        Some(Self { index, keys, event_times })
    }
}

/// Returns the ranges of integer and time columns, by their positions, that a conjunction of conditions on one table
/// lets pass; NULL passes none of them.
pub fn column_ranges<'e>(
    schema: &TableSchema,
    conditions: impl IntoIterator<Item = &'e Expr>,
) -> Vec<(usize, RangeInclusive<i64>)> {
    let conditions = conditions.into_iter().flat_map(split_conjunction);
    ConditionBounds::of(schema, conditions).ranges.into_iter().collect()
}

/// Returns whether a condition bounds a column by which a declared index may be read.
pub(crate) fn bounds_an_index(schema: &TableSchema, condition: &Expr) -> bool {
    let Some(bound) = ColumnBound::of(schema, condition) else { return false };
    let mut declared = schema.indexes.iter().filter(|spec| spec.declared);
    match bound {
        ColumnBound::Values(column, _) => {
            declared.any(|spec| spec.keys.contains(&column) || spec.event_time == Some(column))
        }
        ColumnBound::Range(column, _) => declared.any(|spec| spec.event_time == Some(column)),
    }
}

/// The bounds of columns, by their positions, that a conjunction sets.
#[derive(Debug, Default)]
struct ConditionBounds {
    values: BTreeMap<usize, Vec<Value>>,
    ranges: BTreeMap<usize, RangeInclusive<i64>>,
}

impl ConditionBounds {
    fn of<'e>(schema: &TableSchema, conditions: impl Iterator<Item = &'e Expr>) -> Self {
        let mut bounds = Self::default();
        for bound in conditions.filter_map(|condition| ColumnBound::of(schema, condition)) {
            match bound {
                ColumnBound::Values(column, values) => {
                    bounds.narrow(column, range_of(&values));
                    let known = bounds.values.entry(column).or_insert_with(|| values.clone());
                    if values.len() < known.len() {
                        *known = values;
                    }
                }
                ColumnBound::Range(column, range) => bounds.narrow(column, Some(range)),
            }
        }
        bounds
    }

    fn narrow(&mut self, column: usize, range: Option<RangeInclusive<i64>>) {
        let Some(range) = range else { return };
        let known = self.range(column);
        let (start, end) = (*known.start().max(range.start()), *known.end().min(range.end()));
        debug_assert!(start >= *known.start() && end <= *known.end(), "a range only narrows");
        self.ranges.insert(column, start..=end);
    }

    fn has_range(&self, column: usize) -> bool {
        self.ranges.contains_key(&column)
    }

    fn range(&self, column: usize) -> RangeInclusive<i64> {
        self.ranges.get(&column).cloned().unwrap_or(i64::MIN..=i64::MAX)
    }

    /// Returns the keys of an index whose columns all have values; `None` where they are too many.
    fn keys(&self, spec: &IndexSpec) -> Option<Vec<Vec<u8>>> {
        debug_assert!(!spec.keys.is_empty(), "an index without key columns is not read by key");
        let counts = spec.keys.iter().map(|column| self.values[column].len());
        if counts.fold(1_usize, usize::saturating_mul) > KEYS_MAX {
            return None;
        }
        let mut keys = vec![Vec::new()];
        for column in &spec.keys {
            let longer = keys.iter().flat_map(|key| {
                self.values[column].iter().filter_map(Value::as_scalar).map(move |value| {
                    let mut longer: Vec<u8> = key.clone();
                    encode_key([value], &mut longer);
                    longer
                })
            });
            keys = longer.collect();
        }
        keys.sort_unstable();
        keys.dedup();
        debug_assert!(keys.len() <= KEYS_MAX, "the keys were counted before they were made");
        Some(keys)
    }
}

/// Returns the range of integers and times; `None` for values of another type, and where there are none.
fn range_of(values: &[Value]) -> Option<RangeInclusive<i64>> {
    let integers = values.iter().map(|value| value.as_scalar().and_then(integer));
    let integers = integers.collect::<Option<Vec<_>>>()?;
    Some(*integers.iter().min()?..=*integers.iter().max()?)
}

/// Returns an integer or a time.
fn integer(value: Datum<'_>) -> Option<i64> {
    match value {
        Datum::SmallInt(_) | Datum::Int(_) | Datum::BigInt(_) | Datum::Timestamp(_) => {
            value.as_i64()
        }
        _ => None,
    }
}

/// What one condition leaves of a column's values.
enum ColumnBound {
    /// These values; none where it is compared with NULL.
    Values(usize, Vec<Value>),
    /// Integers or times within bounds.
    Range(usize, RangeInclusive<i64>),
}

impl ColumnBound {
    fn of(schema: &TableSchema, condition: &Expr) -> Option<Self> {
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                let (left, right) = (Self::of(schema, left)?, Self::of(schema, right)?);
                match (left, right) {
                    (Self::Values(column, mut values), Self::Values(other, more))
                        if column == other && values.len() + more.len() <= KEYS_MAX =>
                    {
                        values.extend(more);
                        Some(Self::Values(column, values))
                    }
                    _ => None,
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let op = *op;
                compared(schema, left, op, right)
                    .or_else(|| compared(schema, right, op.swap()?, left))
            }
            Expr::InList(list) if !list.negated && list.list.len() <= KEYS_MAX => {
                let column = column_of(schema, &list.expr)?;
                let values = list.list.iter().map(|item| value_for(schema, column, item));
                let values = values.collect::<Option<Vec<_>>>()?;
                Some(Self::Values(column, values.into_iter().flatten().collect()))
            }
            Expr::ScalarFunction(call)
                if udf::as_scalar(&call.func).is_some_and(udf::ScalarUdf::is_equality) =>
            {
                let [left, right] = call.args.as_slice() else { return None };
                compared(schema, left, Operator::Eq, right)
                    .or_else(|| compared(schema, right, Operator::Eq, left))
            }
            // The optimizer writes `column = true` so.
            Expr::Column(_) => truth(schema, condition, true),
            Expr::Not(operand) => truth(schema, operand, false),
            _ => None,
        }
    }
}

/// Returns the bound of a BOOL column that is a condition itself.
fn truth(schema: &TableSchema, column: &Expr, value: bool) -> Option<ColumnBound> {
    let column = column_of(schema, column)?;
    let is_bool = schema.columns[column].data_type == DataType::Bool;
    is_bool.then(|| ColumnBound::Values(column, vec![Value::Bool(value)]))
}

/// Returns the bound that a comparison of a column with a constant sets.
fn compared(
    schema: &TableSchema,
    column: &Expr,
    op: Operator,
    literal: &Expr,
) -> Option<ColumnBound> {
    let column = column_of(schema, column)?;
    let Some(value) = value_for(schema, column, literal)? else {
        let is_comparison = matches!(
            op,
            Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
        );
        return is_comparison.then(|| ColumnBound::Values(column, Vec::new()));
    };
    if op == Operator::Eq {
        return Some(ColumnBound::Values(column, vec![value]));
    }
    let bound = value.as_scalar().and_then(integer)?;
    let range = match op {
        Operator::Lt => bound.checked_sub(1).map(|last| i64::MIN..=last),
        Operator::LtEq => Some(i64::MIN..=bound),
        Operator::Gt => bound.checked_add(1).map(|first| first..=i64::MAX),
        Operator::GtEq => Some(bound..=i64::MAX),
        _ => return None,
    };
    Some(range.map_or_else(
        || ColumnBound::Values(column, Vec::new()),
        |range| ColumnBound::Range(column, range),
    ))
}

fn column_of(schema: &TableSchema, expr: &Expr) -> Option<usize> {
    let Expr::Column(column) = expr else { return None };
    schema.columns.iter().position(|known| known.name == column.name)
}

/// Returns the constant that a column is compared with, `Some(None)` for NULL; `None` where it is no
/// constant, or one whose key is not that of equal values of the column.
fn value_for(schema: &TableSchema, column: usize, expr: &Expr) -> Option<Option<Value>> {
    let value = constant(expr)?;
    let is_comparable = match (&schema.columns[column].data_type, &value) {
        (_, Value::Null) => return Some(None),
        (
            DataType::SmallInt | DataType::Int | DataType::BigInt,
            Value::SmallInt(_) | Value::Int(_) | Value::BigInt(_),
        )
        | (DataType::Bool, Value::Bool(_))
        | (DataType::Float, Value::Float(_))
        | (DataType::Double, Value::Double(_))
        | (DataType::String, Value::String(_))
        | (DataType::Timestamp, Value::Timestamp(_))
        | (DataType::Date, Value::Date(_)) => true,
        _ => false,
    };
    is_comparable.then_some(Some(value))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{Expr, col, lit};
    use lockstep_row::{Column, DataType, IndexSpec, Retention, TableSchema};

    use super::{KEYS_MAX, KeyRead};

    fn schema() -> TableSchema {
        let index = |name: &str, keys: Vec<usize>, event_time, declared| IndexSpec {
            name: name.to_owned(),
            keys,
            event_time,
            retention: Retention::Forever,
            declared,
        };
        let column = |name: &str, data_type| Column::new(name, data_type);
        TableSchema {
            columns: vec![
                column("a", DataType::BigInt),
                column("b", DataType::String),
                column("ts", DataType::Timestamp),
                column("f", DataType::Bool),
            ],
            indexes: vec![
                index("by_a", vec![0], Some(2), true),
                index("automatic", vec![1], Some(2), false),
                index("by_ab", vec![1, 0], None, true),
                index("by_f", vec![3], Some(2), true),
            ],
        }
    }

    fn find(condition: &Expr) -> Option<KeyRead> {
        KeyRead::find(&schema(), [condition], None)
    }

    fn time(ms: i64) -> Expr {
        let value = datafusion::common::ScalarValue::TimestampMillisecond(Some(ms), None);
        Expr::Literal(value, None)
    }

    #[test]
    fn the_index_with_the_most_columns_is_read() {
        let a = col("a").eq(lit(1_i64));
        assert_eq!(find(&a).unwrap().index, 0);
        let both = col("b").eq(lit("x")).and(a.clone());
        let read = find(&both).unwrap();
        assert_eq!((read.index, read.keys.len()), (2, 1));
        assert_eq!(KeyRead::find(&schema(), [&both], Some(0)).unwrap().index, 0);
        assert_eq!(find(&col("b").eq(lit("x"))), None, "an index for deployments is not read");
        assert_eq!(find(&a.or(col("b").eq(lit("x")))), None);
        assert_eq!(find(&col("f")).unwrap().index, 3);
    }

    #[test]
    fn values_of_a_list_are_keys_and_null_is_none() {
        let one = |value: i64| lit(value).eq(col("a"));
        assert_eq!(find(&one(2).or(one(1).or(one(2)))).unwrap().keys.len(), 2);
        let null = Expr::Literal(datafusion::common::ScalarValue::Int64(None), None);
        assert_eq!(find(&col("a").eq(null.clone())).unwrap().keys, Vec::<Vec<u8>>::new());
        let list = col("a").in_list(vec![lit(1_i64), null], false);
        assert_eq!(find(&list).unwrap().keys.len(), 1);
        assert_eq!(find(&col("a").in_list(vec![lit(1_i64)], true)), None);
        let many = (0..).map(|value: i64| lit(value)).take(KEYS_MAX + 1).collect();
        assert_eq!(find(&col("a").in_list(many, false)), None);
    }

    #[test]
    fn another_type_is_not_a_key() {
        assert_eq!(find(&col("a").eq(lit(1.0))), None);
        assert_eq!(find(&col("b").eq(lit(1_i64)).and(col("a").eq(lit(1_i64)))).unwrap().index, 0);
    }

    #[test]
    fn comparisons_bound_the_event_time() {
        let a = col("a").eq(lit(1_i64));
        let since = a.clone().and(col("ts").gt(time(5)).and(time(9).gt_eq(col("ts"))));
        assert_eq!(find(&since).unwrap().event_times, 6..=9);
        let never = a.and(col("ts").gt(time(9))).and(col("ts").lt(time(9)));
        assert_eq!(find(&never).unwrap().keys, Vec::<Vec<u8>>::new());
    }
}
