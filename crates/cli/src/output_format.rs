//! The formats of results: the table of the terminal, a line for each column, CSV, JSON and Markdown.
//! A terminal gets what a reader can take in, and is told what is left out; everything else gets all rows.
//!
//! | type | CSV | JSON |
//! |---|---|---|
//! | numbers | the fewest digits that read back the same; `NaN`, `Infinity`, `-Infinity` | the same; these three as strings |
//! | TIMESTAMP, DATE | as in the table, in the session's time zone | the same as a string |
//! | ARRAY, MAP | the JSON | array; object whose keys are texts |
//! | NULL | nothing; an empty STRING is `""` | `null` |
//!
//! Numbers are as the server writes them in its answers. Called by the printer; prints nothing itself.

mod csv_text;
mod expanded_text;
mod json_text;
mod markdown_text;

use lockstep_engine::Output;
use lockstep_function::Zone;
use lockstep_row::{Arena, Datum, arrow::ColumnReader};

use self::{
    csv_text::csv_text, expanded_text::expanded_text, json_text::json_text,
    markdown_text::markdown_text,
};
use crate::table_text;

/// The most rows of a table that are printed on a terminal. A pipe or a file gets all of them.
const ROWS_SHOWN_MAX: usize = 1_000;

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OutputFormat {
    #[default]
    Table,
    Expanded,
    /// A table, or expanded where that is wider than the terminal.
    Auto,
    Csv,
    Json,
    Markdown,
}

impl OutputFormat {
    /// Reads the name of a format: ours, or DuckDB's.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "table" | "box" | "duckbox" | "aligned" => Some(Self::Table),
            "expanded" | "line" => Some(Self::Expanded),
            "auto" => Some(Self::Auto),
            "csv" => Some(Self::Csv),
            "json" => Some(Self::Json),
            "markdown" | "md" => Some(Self::Markdown),
            _ => None,
        }
    }

    /// Returns its name.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Expanded => "expanded",
            Self::Auto => "auto",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Markdown => "markdown",
        }
    }

    /// Writes a result, with the end of its last line, and an empty one where that parts it from the next.
    /// On a terminal, which has `columns_max` columns, a table has the columns that fit, and the first 1,000
    /// rows; the last line says what is left out.
    pub(crate) fn text(self, output: &Output, columns_max: Option<usize>) -> String {
        match self {
            Self::Table => table(output, columns_max).0,
            Self::Expanded => expanded_text(output, rows_max(columns_max)),
            Self::Auto => match table(output, columns_max) {
                (text, 0) => text,
                _ => expanded_text(output, rows_max(columns_max)),
            },
            Self::Csv => csv_text(output),
            Self::Json => json_text(output),
            Self::Markdown => markdown_text(output),
        }
    }
}

/// Returns how many rows are shown: without a terminal, all of them.
fn rows_max(columns_max: Option<usize>) -> usize {
    columns_max.map_or(usize::MAX, |_| ROWS_SHOWN_MAX)
}

/// Writes a table. Returns it with the number of columns that are not in it.
fn table(output: &Output, columns_max: Option<usize>) -> (String, usize) {
    let rows_max = rows_max(columns_max);
    let whole = table_text(output, rows_max);
    let count = whole.names.len();
    let (drawn, hidden) = match columns_max {
        Some(columns) => whole.draw_within(columns),
        None => (whole.draw(None), 0),
    };
    debug_assert!(hidden < count.max(1), "a column is shown");
    let mut notes = rows_note(output.row_count(), rows_max);
    if hidden > 0 {
        notes.push_str(&format!("; {hidden} of {count} columns hidden, `\\x` shows them"));
    }
    (format!("{drawn}\n({}{notes})\n\n", rows_text(output.row_count())), hidden)
}

/// Says how many rows are left out where `rows_max` are shown, and how to see them.
fn rows_note(row_count: usize, rows_max: usize) -> String {
    match row_count.saturating_sub(rows_max) {
        0 => String::new(),
        left => format!("; {left} not shown, `\\o FILE` writes all rows"),
    }
}

/// Writes a count of rows.
pub(crate) fn rows_text(rows: usize) -> String {
    format!("{rows} {}", if rows == 1 { "row" } else { "rows" })
}

/// Calls `each` with the values of each row.
fn each_row(output: &Output, mut each: impl FnMut(&[Datum<'_>], Zone)) {
    let zone = Zone::new(output.settings.time_zone);
    let mut arena = Arena::new();
    for batch in &output.batches {
        let columns: Vec<ColumnReader<'_>> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        for row in 0..batch.num_rows() {
            let values: Vec<Datum<'_>> =
                columns.iter().map(|column| column.get(row, &arena)).collect();
            each(&values, zone);
            drop(values);
            arena.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_engine::{Database, Output};

    use super::{OutputFormat, rows_note};

    fn output(sql: &str) -> Output {
        Database::in_memory().session().execute(sql).unwrap()
    }

    fn check(format: OutputFormat, sql: &str, expected: &str) {
        assert_eq!(format.text(&output(sql), None), expected, "{sql}");
    }

    #[test]
    fn names_of_formats() {
        use OutputFormat::{Auto, Csv, Expanded, Json, Markdown, Table};
        for format in [Table, Expanded, Auto, Csv, Json, Markdown] {
            assert_eq!(OutputFormat::of_word(format.word()), Some(format));
        }
        assert_eq!(OutputFormat::of_word("LINE"), Some(Expanded));
        assert_eq!(OutputFormat::of_word("xml"), None);
    }

    #[test]
    fn csv_is_that_of_rfc_4180() {
        let sql =
            "SELECT 'a,b' AS `k``1`, 'say \"x\"' AS b, '' AS c, NULL AS d, 'l1\\nl2' AS `e,f`";
        let expected = "k`1,b,c,d,\"e,f\"\r\n\"a,b\",\"say \"\"x\"\"\",\"\",,\"l1\nl2\"\r\n";
        check(OutputFormat::Csv, sql, expected);
        let sql = "SELECT 1.5 AS a, true AS b, timestamp(1500) AS t, date '2020-05-01' AS d";
        check(OutputFormat::Csv, sql, "a,b,t,d\r\n1.5,true,1970-01-01 00:00:01.500,2020-05-01\r\n");
    }

    #[test]
    fn json_is_an_array_of_objects() {
        let sql = "SELECT 'a\"\\n' AS k, 9223372036854775807 AS n, NULL AS k";
        let expected = "[{\"k\":\"a\\\"\\n\",\"n\":9223372036854775807,\"k_2\":null}]\n";
        check(OutputFormat::Json, sql, expected);
        let sql = "SELECT cast('nan' AS double) AS a, -cast('inf' AS double) AS b, 0.1 + 0.2 AS c";
        let expected = "[{\"a\":\"NaN\",\"b\":\"-Infinity\",\"c\":0.30000000000000004}]\n";
        check(OutputFormat::Json, sql, expected);
        check(OutputFormat::Json, "SELECT 1 AS a FROM (SELECT 1 AS b) AS t WHERE b = 2", "[]\n");
    }

    #[test]
    fn markdown_is_a_table_whose_cells_are_lines() {
        let sql = "SELECT 'a|b\\nc' AS `x|y`, 1 AS n";
        check(OutputFormat::Markdown, sql, "| x\\|y | n |\n|---|---:|\n| a\\|b<br>c | 1 |\n");
    }

    #[test]
    fn a_row_may_be_a_line_for_each_column() {
        let expected = "-[ ROW 1 ]\nlong | x\nk    | l1\n     | l2\n(1 row)\n\n";
        check(OutputFormat::Expanded, "SELECT 'x' AS `long`, 'l1\\nl2' AS k", expected);
    }

    #[test]
    fn a_table_that_does_not_fit_may_be_expanded() {
        let wide = output("SELECT 11 AS a, 22 AS b, 33 AS c");
        let expanded = "-[ ROW 1 ]\na | 11\nb | 22\nc | 33\n(1 row)\n\n";
        assert_eq!(OutputFormat::Auto.text(&wide, Some(8)), expanded);
        let table = OutputFormat::Table.text(&wide, None);
        assert_eq!(OutputFormat::Auto.text(&wide, Some(12)), table);
        assert_eq!(OutputFormat::Auto.text(&wide, None), table);
        // A single column is always shown, however wide.
        let single = output("SELECT 'a long text' AS a");
        assert_eq!(
            OutputFormat::Auto.text(&single, Some(8)),
            OutputFormat::Table.text(&single, None)
        );
    }

    #[test]
    fn rows_that_are_left_out_are_counted() {
        assert_eq!(rows_note(1_000, 1_000), "");
        assert_eq!(rows_note(1_500, 1_000), "; 500 not shown, `\\o FILE` writes all rows");
        assert_eq!(rows_note(1_500, usize::MAX), "");
    }

    #[test]
    fn columns_that_do_not_fit_are_counted() {
        let text = OutputFormat::Table.text(&output("SELECT 11 AS a, 22 AS b, 33 AS c"), Some(8));
        let note = "(1 row; 1 of 3 columns hidden, `\\x` shows them)";
        assert_eq!(text, format!(" a |  b\n---+---\n11 | 22\n{note}\n\n"));
        let text = OutputFormat::Table.text(&output("SELECT 11 AS a, 22 AS b"), Some(8));
        assert!(text.ends_with("\n(1 row)\n\n"), "{text}");
    }
}
