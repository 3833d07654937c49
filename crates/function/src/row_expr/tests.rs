//! Claims about row expressions: they equal DataFusion's physical expressions, bit for bit.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::Schema};
use datafusion::{
    common::{DFSchema, ScalarValue},
    logical_expr::{Expr, col, lit, when},
    prelude::SessionContext,
};
use lockstep_row::{
    Arena, Column, DataType, Datum, TableSchema, Value,
    arrow::{ColumnBuilder, ColumnReader, arrow_schema},
};
use proptest::{collection, prelude::any, prop_assert, proptest};

use super::RowExpr;
use crate::{NullHandling, ScalarImplementation, Settings, udf::scalar_call};

const COLUMNS: [(&str, DataType); 8] = [
    ("a", DataType::Bool),
    ("b", DataType::Bool),
    ("i", DataType::Int),
    ("j", DataType::Int),
    ("s", DataType::String),
    ("t", DataType::String),
    ("f", DataType::Double),
    ("g", DataType::Double),
];

fn schema() -> Arc<Schema> {
    let columns = COLUMNS.map(|(name, data_type)| Column::new(name, data_type));
    arrow_schema(&TableSchema { columns: columns.to_vec(), indexes: Vec::new() })
}

/// Choices, read one after the other; the last one is repeated for ever.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self, count: u8) -> u8 {
        let choice = self.0.first().copied().unwrap_or(0);
        if self.0.len() > 1 {
            self.0 = &self.0[1..];
        }
        choice % count
    }

    fn value(&mut self, data_type: &DataType) -> Value {
        let choice = self.next(6);
        match (choice, data_type) {
            (0, _) => Value::Null,
            (choice, DataType::Bool) => Value::Bool(choice % 2 == 0),
            (choice, DataType::Int) => Value::Int(i32::from(choice) - 3),
            (choice, DataType::String) => {
                Value::String(["", "a", "b", "ab", "ž"][usize::from(choice) - 1].into())
            }
            (choice, _) => {
                let floats = [f64::NAN, -0.0, 0.0, f64::INFINITY, 1.5];
                Value::Double(floats[usize::from(choice) - 1])
            }
        }
    }

    fn boolean(&mut self, depth: u8) -> Expr {
        match self.next(if depth == 0 { 4 } else { 13 }) {
            0 => col("a"),
            1 => col("b"),
            2 => lit(true),
            3 => Expr::Literal(ScalarValue::Boolean(None), None),
            4 => self.boolean(depth - 1).and(self.boolean(depth - 1)),
            5 => self.boolean(depth - 1).or(self.boolean(depth - 1)),
            6 => Expr::Not(Box::new(self.boolean(depth - 1))),
            7 => self.boolean(depth - 1).is_null(),
            8 => self.integer(depth - 1).is_not_null(),
            9 => {
                let sides = (self.integer(depth - 1), self.integer(depth - 1));
                self.comparison(sides)
            }
            10 => {
                let sides = (self.text(depth - 1), self.text(depth - 1));
                self.comparison(sides)
            }
            11 => self.comparison((col("f"), col("g"))),
            _ => self.boolean(depth - 1).is_not_true(),
        }
    }

    fn comparison(&mut self, (left, right): (Expr, Expr)) -> Expr {
        match self.next(6) {
            0 => left.eq(right),
            1 => left.not_eq(right),
            2 => left.lt(right),
            3 => left.lt_eq(right),
            4 => left.gt(right),
            _ => left.gt_eq(right),
        }
    }

    fn integer(&mut self, depth: u8) -> Expr {
        match self.next(if depth == 0 { 3 } else { 7 }) {
            0 => col("i"),
            1 => col("j"),
            2 => lit(1_i32),
            3 => when(self.boolean(depth - 1), self.integer(depth - 1)).end().unwrap(),
            4 => when(self.boolean(depth - 1), self.integer(depth - 1))
                .when(self.boolean(depth - 1), self.integer(depth - 1))
                .otherwise(self.integer(depth - 1))
                .unwrap(),
            5 => plus(self.integer(depth - 1), self.integer(depth - 1)),
            _ => self.integer(depth - 1) + self.integer(depth - 1),
        }
    }

    fn text(&mut self, depth: u8) -> Expr {
        match self.next(if depth == 0 { 3 } else { 4 }) {
            0 => col("s"),
            1 => col("t"),
            2 => lit("ab"),
            _ => joined(self.text(depth - 1), self.text(depth - 1)),
        }
    }
}

fn plus(left: Expr, right: Expr) -> Expr {
    let implementation = ScalarImplementation {
        parameters: vec![DataType::Int; 2],
        returns: DataType::Int,
        nulls: NullHandling::Propagate,
        row: Arc::new(|values, _arena| match values {
            [Datum::Int(left), Datum::Int(right)] => Datum::Int(left.wrapping_add(*right)),
            _ => Datum::Null,
        }),
    };
    scalar_call("plus", implementation, &[None, None], &Settings::default(), vec![left, right])
}

fn joined(left: Expr, right: Expr) -> Expr {
    let implementation = ScalarImplementation {
        parameters: vec![DataType::String; 2],
        returns: DataType::String,
        nulls: NullHandling::Passed,
        row: Arc::new(|values, arena| {
            let text: String = values.iter().map(|value| value.as_str().unwrap_or("?")).collect();
            Datum::String(arena.alloc_str(&text))
        }),
    };
    scalar_call("joined", implementation, &[None, None], &Settings::default(), vec![left, right])
}

fn batch(rows: &[Vec<Value>]) -> RecordBatch {
    let arena = Arena::new();
    let columns = COLUMNS.iter().enumerate().map(|(index, (_, data_type))| {
        let mut builder = ColumnBuilder::new(data_type, rows.len());
        rows.iter().for_each(|row| builder.push(row[index].as_datum(&arena)));
        builder.finish()
    });
    RecordBatch::try_new(schema(), columns.collect()).unwrap()
}

fn check(expr: &Expr, rows: &[Vec<Value>]) {
    let schema = DFSchema::try_from(schema()).unwrap();
    let physical = SessionContext::new().create_physical_expr(expr.clone(), &schema).unwrap();
    let expected = physical.evaluate(&batch(rows)).unwrap().into_array(rows.len()).unwrap();
    let compiled = RowExpr::compile(expr, &schema).unwrap();
    let arena = Arena::new();
    let reader = ColumnReader::new(expected.as_ref());
    for (index, row) in rows.iter().enumerate() {
        let row: Vec<Datum<'_>> = row.iter().map(|value| value.as_datum(&arena)).collect();
        let (value, expected) = (compiled.eval(&row, &arena), reader.get(index, &arena));
        assert!(value.is_bit_equal(&expected), "{expr}: {value:?}, expected {expected:?}");
    }
}

proptest! {
    #[test]
    fn a_row_expression_is_the_physical_expression(
        choices in collection::vec(any::<u8>(), 1..80),
        cells in collection::vec(any::<u8>(), 64),
    ) {
        let mut cells = Choices(&cells);
        let mut row = || COLUMNS.iter().map(|(_, each)| cells.value(each)).collect::<Vec<_>>();
        let rows: Vec<Vec<Value>> = (0..8).map(|_| row()).collect();
        let mut choices = Choices(&choices);
        check(&choices.boolean(4), &rows);
        check(&choices.integer(4), &rows);
        check(&choices.text(3), &rows);
        prop_assert!(!rows.is_empty());
    }
}

#[test]
fn columns_are_listed_once_in_order() {
    let schema = DFSchema::try_from(schema()).unwrap();
    let expr = col("t").eq(col("s")).or(col("t").is_null().and(col("a")));
    let compiled = RowExpr::compile(&expr, &schema).unwrap();
    assert_eq!(compiled.columns(), [0, 4, 5]);
    assert_eq!(compiled.data_type(), &DataType::Bool);
    assert_eq!(RowExpr::compile(&col("i"), &schema).unwrap().as_column(), Some(2));
}

#[test]
fn a_column_that_is_not_there_is_reported() {
    let schema = DFSchema::try_from(schema()).unwrap();
    assert!(RowExpr::compile(&col("nowhere"), &schema).is_err());
}
