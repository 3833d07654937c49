//! Results as a table of GitHub's Markdown.

use lockstep_engine::Output;

use super::each_row;
use crate::cell_text;

/// Writes all rows.
pub(super) fn markdown_text(output: &Output) -> String {
    let names: Vec<String> = output.columns.iter().map(|(name, _)| cell(name)).collect();
    let rules: Vec<&str> = output
        .columns
        .iter()
        .map(|(_, data_type)| if data_type.is_number() { "---:" } else { "---" })
        .collect();
    let mut text = line(&names) + &format!("|{}|\n", rules.join("|"));
    each_row(output, |values, zone| {
        let cells: Vec<String> = values.iter().map(|value| cell(&cell_text(value, zone))).collect();
        text.push_str(&line(&cells));
    });
    text
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Makes a text one line, without the character that ends a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace("\r\n", "<br>").replace(['\n', '\r'], "<br>")
}
