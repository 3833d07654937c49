//! Prints a result as an aligned table of text.

use lockstep_engine::Output;
use lockstep_function::Zone;
use lockstep_row::{Arena, arrow::ColumnReader};
use unicode_width::UnicodeWidthStr;

use crate::cell_text;

/// The greatest width of a cell: longer text is truncated, so that one cell does not widen the
/// whole table.
const CELL_WIDTH_MAX: usize = 60;

/// The first rows of a result as text, with the column names, which may repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableText {
    /// Column names.
    pub names: Vec<String>,
    /// Whether each column has numbers, which are aligned to the right.
    pub is_number: Vec<bool>,
    /// The first rows, each with the text of each column; `None` is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// The number of rows of the whole result.
    pub row_count: usize,
}

/// Prints the first `rows_max` rows of a result.
pub fn table_text(output: &Output, rows_max: usize) -> TableText {
    let zone = Zone::new(output.settings.time_zone);
    let mut rows = Vec::new();
    let mut arena = Arena::new();
    for batch in &output.batches {
        let columns: Vec<ColumnReader<'_>> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        for row in 0..batch.num_rows().min(rows_max - rows.len()) {
            let cell = |column: &ColumnReader<'_>| {
                let value = column.get(row, &arena);
                (!value.is_null()).then(|| cell_text(&value, zone))
            };
            rows.push(columns.iter().map(cell).collect());
            arena.reset();
        }
    }
    debug_assert!(rows.len() <= rows_max, "no more rows than wanted");
    TableText {
        names: output.columns.iter().map(|(name, _)| name.clone()).collect(),
        is_number: output.columns.iter().map(|(_, data_type)| data_type.is_number()).collect(),
        rows,
        row_count: output.row_count(),
    }
}

impl TableText {
    /// Draws the table, without a line break at the end. A last line says how many rows are not
    /// shown, if there are any.
    pub fn draw(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| one_line(name)).collect();
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| one_line(cell.as_deref().unwrap_or("NULL"))).collect())
            .collect();
        let widths: Vec<usize> = (0..names.len())
            .map(|column| {
                let cells = rows.iter().map(|row| &row[column]).chain([&names[column]]);
                cells.map(|cell| cell.width()).max().unwrap_or(0)
            })
            .collect();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let mut lines = vec![self.line(&names, &widths), rule.join("-+-")];
        lines.extend(rows.iter().map(|row| self.line(row, &widths)));
        if self.row_count > self.rows.len() {
            lines.push(format!("… {} more rows", self.row_count - self.rows.len()));
        }
        lines.join("\n")
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        debug_assert_eq!(cells.len(), widths.len(), "each column has a cell");
        let padded: Vec<String> = cells
            .iter()
            .enumerate()
            .map(|(column, cell)| {
                let blank = " ".repeat(widths[column] - cell.width());
                if self.is_number[column] { blank + cell } else { format!("{cell}{blank}") }
            })
            .collect();
        padded.join(" | ").trim_end().to_owned()
    }
}

/// Escapes characters that would break the line, and truncates text that is too wide.
fn one_line(text: &str) -> String {
    let escape = |character: char| match character {
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        other if other.is_control() => other.escape_default().to_string(),
        other => other.to_string(),
    };
    let mut shown = String::new();
    for character in text.chars() {
        let escaped = escape(character);
        if shown.width() + escaped.width() >= CELL_WIDTH_MAX {
            shown.push('…');
            break;
        }
        shown.push_str(&escaped);
    }
    debug_assert!(shown.width() <= CELL_WIDTH_MAX, "a cell is not too wide");
    debug_assert!(!shown.contains('\n'), "a cell is one line");
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{ArrayRef, Int32Array, RecordBatch, StringArray},
        datatypes::{DataType as ArrowType, Field, Schema},
    };
    use lockstep_engine::Output;
    use lockstep_row::DataType;

    use super::table_text;

    fn two_columns() -> Output {
        let fields =
            vec![Field::new("0", ArrowType::Utf8, true), Field::new("1", ArrowType::Int32, true)];
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec![Some("ab"), None, Some("a\nb")])),
            Arc::new(Int32Array::from(vec![Some(1), Some(20), None])),
        ];
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        Output {
            columns: vec![("k".into(), DataType::String), ("k".into(), DataType::Int)],
            batches: vec![batch.slice(0, 1), batch.slice(1, 2)],
            ..Output::default()
        }
    }

    fn check(output: &Output, rows_max: usize, expected: &[&str]) {
        let drawn = table_text(output, rows_max).draw();
        assert_eq!(drawn.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn names_may_repeat_and_numbers_stand_right() {
        let expected = ["k    |    k", "-----+-----", "ab   |    1", "NULL |   20", "a\\nb | NULL"];
        check(&two_columns(), 10, &expected);
    }

    #[test]
    fn rows_that_are_not_shown_are_counted() {
        check(&two_columns(), 1, &["k  | k", "---+--", "ab | 1", "… 2 more rows"]);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["日本", "x"]));
        let schema = Schema::new(vec![Field::new("0", ArrowType::Utf8, true)]);
        let output = Output {
            columns: vec![("c".into(), DataType::String)],
            batches: vec![RecordBatch::try_new(Arc::new(schema), vec![text]).unwrap()],
            ..Output::default()
        };
        check(&output, 10, &["c", "----", "日本", "x"]);
    }
}
