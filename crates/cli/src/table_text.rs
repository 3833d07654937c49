//! Prints a result as an aligned table of text.

use lockstep_engine::Output;
use lockstep_function::Zone;
use lockstep_row::{Arena, arrow::ColumnReader};
use unicode_width::UnicodeWidthStr;

use crate::cell_text;

/// The greatest width of a cell unless another is given: longer text is truncated, so that one
/// cell does not widen the whole table.
const CELL_WIDTH_MAX: usize = 60;

/// The most characters that the last column has in all where its texts stand whole, over several
/// lines if they have them: it widens no other column. Plans and statements are read this way.
const LAST_COLUMN_MAX: usize = 8_000;

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
    /// shown, if there are any. A cell has at most `width` columns of the terminal; `None`: 60, and
    /// the texts of the last column stand whole while they are 8,000 characters in all.
    pub fn draw(&self, width: Option<usize>) -> String {
        let width_max = width.unwrap_or(CELL_WIDTH_MAX);
        let is_last_whole = width.is_none() && self.is_last_column_short();
        let names: Vec<String> = self.names.iter().map(|name| one_line(name, width_max)).collect();
        let rows: Vec<DrawnRow> =
            self.rows.iter().map(|row| DrawnRow::new(row, width_max, is_last_whole)).collect();
        let widths: Vec<usize> = (0..names.len())
            .map(|column| {
                let cells = rows.iter().map(|row| row.width(column));
                cells.chain([names[column].width()]).max().unwrap_or(0)
            })
            .collect();
        let rule = widths.iter().enumerate().map(|(column, width)| {
            let is_last = column + 1 == widths.len();
            "-".repeat(if is_last { *width.min(&RULE_WIDTH_MAX) } else { *width })
        });
        let rule: Vec<String> = rule.collect();
        let mut lines = vec![self.line(&names, &widths), rule.join("-+-")];
        debug_assert!(
            rows.iter().all(|row| is_last_whole || row.more.is_empty()),
            "only a last column that stands whole has further lines"
        );
        let indent: usize = widths.iter().rev().skip(1).map(|width| width + 3).sum();
        for row in &rows {
            lines.push(self.line(&row.cells, &widths));
            lines.extend(row.more.iter().map(|line| format!("{:indent$}{line}", "")));
        }
        if self.row_count > self.rows.len() {
            lines.push(format!("… {} more rows", self.row_count - self.rows.len()));
        }
        lines.join("\n")
    }

    /// Draws as many of the first columns as fit in `columns` columns of the terminal, one at least.
    /// Returns the drawing and the number of columns that are not shown.
    pub(crate) fn draw_within(mut self, columns: usize) -> (String, usize) {
        let cell_width = |text: &str| one_line(text, CELL_WIDTH_MAX).width();
        let width_of = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].as_deref().unwrap_or("NULL"));
            cells.chain([self.names[column].as_str()]).map(cell_width).max().unwrap_or(0)
        };
        let ends = (0..self.names.len()).scan(0, |end, column| {
            // The first has nothing before it, each other ` | `.
            *end += width_of(column) + if column == 0 { 0 } else { 3 };
            Some(*end)
        });
        let shown = ends.take_while(|end| *end <= columns).count().max(1);
        let hidden = self.names.len().saturating_sub(shown);
        if hidden == 0 {
            return (self.draw(None), 0);
        }
        self.names.truncate(shown);
        self.is_number.truncate(shown);
        self.rows.iter_mut().for_each(|row| row.truncate(shown));
        (self.draw(Some(CELL_WIDTH_MAX)), hidden)
    }

    /// Whether the last column is text, and little of it.
    fn is_last_column_short(&self) -> bool {
        let last = self.rows.iter().filter_map(|row| row.last()?.as_deref());
        let is_text = self.is_number.last().is_some_and(|is_number| !is_number);
        is_text && last.map(str::len).sum::<usize>() <= LAST_COLUMN_MAX
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

/// The longest line under a name.
const RULE_WIDTH_MAX: usize = 80;

/// The cells of a row as they are drawn.
struct DrawnRow {
    cells: Vec<String>,
    /// The further lines of the last cell.
    more: Vec<String>,
}

impl DrawnRow {
    fn new(row: &[Option<String>], width_max: usize, is_last_whole: bool) -> Self {
        let text = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "NULL".to_owned());
        let mut cells: Vec<String> =
            row.iter().map(|cell| one_line(&text(cell), width_max)).collect();
        let mut more = Vec::new();
        if let (true, Some(last), Some(drawn)) = (is_last_whole, row.last(), cells.last_mut()) {
            let whole = text(last);
            let mut lines = whole.lines().map(|line| one_line(line, usize::MAX));
            *drawn = lines.next().unwrap_or_default();
            more = lines.collect();
            debug_assert_eq!(more.len() + 1, whole.lines().count().max(1), "no line is lost");
        }
        Self { cells, more }
    }

    /// Returns the width of a cell.
    fn width(&self, column: usize) -> usize {
        let is_last = column + 1 == self.cells.len();
        let more = self.more.iter().filter(|_| is_last).map(|line| line.width());
        more.chain([self.cells[column].width()]).max().unwrap_or(0)
    }
}

/// Escapes characters that would break the line, and truncates text that is wider.
fn one_line(text: &str, width_max: usize) -> String {
    let escape = |character: char| match character {
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        other if other.is_control() => other.escape_default().to_string(),
        other => other.to_string(),
    };
    let mut shown = String::new();
    let mut width: usize = 0;
    for character in text.chars() {
        let escaped = escape(character);
        width += escaped.width();
        if width >= width_max {
            shown.push('…');
            break;
        }
        shown.push_str(&escaped);
    }
    debug_assert!(shown.width() <= width_max.max(1), "a cell is not too wide");
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
        let drawn = table_text(output, rows_max).draw(None);
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

    /// A result with one column of text for each list.
    fn texts(columns: &[&[&str]]) -> Output {
        let names = (0..columns.len()).map(|at| Field::new(at.to_string(), ArrowType::Utf8, true));
        let schema = Schema::new(names.collect::<Vec<_>>());
        let arrays =
            columns.iter().map(|texts| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) });
        Output {
            columns: vec![("c".into(), DataType::String); columns.len()],
            batches: vec![RecordBatch::try_new(Arc::new(schema), arrays.collect()).unwrap()],
            ..Output::default()
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        check(&texts(&[&["日本", "x"]]), 10, &["c", "----", "日本", "x"]);
    }

    #[test]
    fn few_texts_of_the_last_column_stand_whole() {
        let long = "x".repeat(70);
        let both = texts(&[&[long.as_str(), "a"], &["one\n  two", long.as_str()]]);
        let cut = format!("{}…", "x".repeat(59));
        let blank = " ".repeat(59);
        let expected = [
            format!("c{blank} | c"),
            format!("{}-+-{}", "-".repeat(60), "-".repeat(70)),
            format!("{cut} | one"),
            format!("{blank}      two"),
            format!("a{blank} | {long}"),
        ];
        check(&both, 10, &expected.each_ref().map(String::as_str));
        // With a width, each cell is a line of so many columns.
        let narrow = table_text(&both, 10).draw(Some(4));
        assert_eq!(narrow, "c    | c\n-----+-----\nxxx… | one…\na    | xxx…");
        // A column of much text is cut.
        let much = vec![long.as_str(); 200];
        let drawn = table_text(&texts(&[&much]), 200).draw(None);
        assert!(drawn.lines().skip(2).all(|line| line == cut), "{drawn}");
    }
}
