//! Rows and answers of the soak, so that those of all protocols can be compared.

use arrow::array::RecordBatch;
use lockstep_row::{DataType, Value};
use lockstep_testkit::rows::{of_batch, to_batch};

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct SoakRow {
    /// The entity key.
    pub key: String,
    /// Its number, of all rows of the client.
    pub id: i64,
    /// A number.
    pub x: Option<i64>,
    /// Another one.
    pub d: Option<f64>,
    /// The append that it is of.
    pub batch: i64,
    /// The event time, in milliseconds.
    pub ts: i64,
}

/// A value of an answer. Numbers of different bits differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// NULL.
    Null,
    /// A whole number.
    Whole(i64),
    /// The bits of a DOUBLE.
    Double(u64),
    /// A text.
    Text(String),
}

/// The type of a column of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellType {
    /// BIGINT.
    Whole,
    /// DOUBLE.
    Double,
    /// STRING.
    Text,
}

/// The rows of an answer.
pub type CellRows = Vec<Vec<Cell>>;

impl CellType {
    /// Reads a value from text; `None` where it is of another type.
    pub fn read(self, text: &str) -> Option<Cell> {
        match self {
            Self::Whole => text.parse().ok().map(Cell::Whole),
            Self::Double => text.parse::<f64>().ok().map(|number| Cell::Double(number.to_bits())),
            Self::Text => Some(Cell::Text(text.to_owned())),
        }
    }
}

impl From<&Value> for Cell {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::BigInt(number) => Self::Whole(*number),
            Value::Double(number) => Self::Double(number.to_bits()),
            Value::String(text) => Self::Text(text.to_string()),
            other => Self::Text(format!("{other:?}")),
        }
    }
}

/// Returns rows of Arrow.
pub fn cells_of(batches: &[RecordBatch]) -> CellRows {
    let rows = batches.iter().flat_map(of_batch);
    rows.map(|row| row.iter().map(Cell::from).collect()).collect()
}

/// Makes rows of Arrow.
pub fn batch_of(rows: &[SoakRow]) -> RecordBatch {
    let columns = [
        ("k", DataType::String),
        ("id", DataType::BigInt),
        ("x", DataType::BigInt),
        ("d", DataType::Double),
        ("batch", DataType::BigInt),
        ("ts", DataType::Timestamp),
    ];
    let columns = columns.map(|(name, data_type)| (name.to_owned(), data_type));
    let values = |row: &SoakRow| {
        vec![
            Value::String(row.key.as_str().into()),
            Value::BigInt(row.id),
            row.x.map_or(Value::Null, Value::BigInt),
            row.d.map_or(Value::Null, Value::Double),
            Value::BigInt(row.batch),
            Value::Timestamp(row.ts),
        ]
    };
    to_batch(&columns, &rows.iter().map(values).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{Cell, CellType, SoakRow, batch_of, cells_of};

    #[test]
    fn numbers_of_different_bits_differ() {
        let double = |text| CellType::Double.read(text).unwrap();
        assert_ne!(double("0.0"), double("-0.0"));
        assert_eq!(double("1e0"), double("1"));
        assert_eq!(CellType::Whole.read("1.5"), None);
    }

    #[test]
    fn rows_keep_their_values() {
        let (key, d) = ("a".to_owned(), Some(0.1));
        let rows = cells_of(&[batch_of(&[SoakRow { key, id: 3, x: None, d, batch: 9, ts: 5 }])]);
        assert_eq!(rows[0][..3], [Cell::Text("a".to_owned()), Cell::Whole(3), Cell::Null]);
        assert_eq!(rows[0][3], Cell::Double(0.1_f64.to_bits()));
    }
}
