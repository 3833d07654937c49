//! Results with a line for each column of a row, for rows that are wider than the terminal.

use lockstep_engine::Output;
use unicode_width::UnicodeWidthStr;

use super::{rows_note, rows_text};
use crate::{TableText, table_text};

/// Writes the first `rows_max` rows and the number of all, and says how many are left out.
pub(super) fn expanded_text(output: &Output, rows_max: usize) -> String {
    let TableText { names, rows, row_count, .. } = table_text(output, rows_max);
    let width = names.iter().map(|name| name.width()).max().unwrap_or(0);
    let mut text = String::new();
    for (number, row) in (1..).zip(&rows) {
        text.push_str(&format!("-[ ROW {number} ]\n"));
        for (name, value) in names.iter().zip(row) {
            let value = value.as_deref().unwrap_or("NULL");
            let mut name = name.as_str();
            for line in if value.is_empty() { vec![""] } else { value.lines().collect() } {
                let blank = " ".repeat(width - name.width());
                text.push_str(format!("{name}{blank} | {line}").trim_end());
                text.push('\n');
                name = "";
            }
        }
    }
    if row_count > rows.len() {
        text.push_str(&format!("… {} more rows\n", row_count - rows.len()));
    }
    text + &format!("({}{})\n\n", rows_text(row_count), rows_note(row_count, rows_max))
}
