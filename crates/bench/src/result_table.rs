//! Tables of results whose operations are not requests in a closed loop.
//!
//! A table is a JSON object in the result, and Markdown in the terminal and the manual. With several
//! runs a number is the median, with the least and the greatest in parentheses.

use serde_json::{Value as Json, json};

use crate::report::{median, rounded, short};

/// A table.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeasurementTable {
    /// What it shows.
    pub(crate) title: String,
    /// The heads of its columns.
    pub(crate) columns: Vec<&'static str>,
    /// Its rows, each with a cell for every column.
    pub(crate) rows: Vec<Vec<ResultCell>>,
}

/// A cell of a table.
#[derive(Debug, Clone)]
pub(crate) enum ResultCell {
    /// A name.
    Text(String),
    /// A number from each run; none where it does not apply.
    Numbers(Vec<f64>),
}

impl ResultCell {
    fn json(&self) -> Json {
        match self {
            Self::Text(text) => json!(text),
            Self::Numbers(numbers) if numbers.is_empty() => Json::Null,
            Self::Numbers(numbers) => {
                let mut sorted = numbers.clone();
                let middle = rounded(median(&mut sorted));
                match sorted.as_slice() {
                    [_] => json!(middle),
                    [least, .., greatest] => json!([rounded(*least), middle, rounded(*greatest)]),
                    [] => Json::Null,
                }
            }
        }
    }
}

impl MeasurementTable {
    /// Returns the table as a result states it.
    pub(crate) fn json(&self) -> Json {
        debug_assert!(
            self.rows.iter().all(|row| row.len() == self.columns.len()),
            "a row has a cell for every column"
        );
        let rows = self.rows.iter().map(|row| row.iter().map(ResultCell::json).collect());
        let rows: Vec<Vec<Json>> = rows.collect();
        json!({ "title": self.title, "columns": self.columns, "rows": rows })
    }
}

/// Formats a table of a result as Markdown.
pub(crate) fn markdown(table: &Json) -> String {
    let list = |value: &Json| value.as_array().cloned().unwrap_or_default();
    let columns = list(&table["columns"]);
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("{}:\n\n", table["title"].as_str().unwrap_or_default());
    text.push_str(&line(columns.iter().map(cell).collect()));
    text.push_str(&line(columns.iter().map(|_| "---".to_owned()).collect()));
    for row in list(&table["rows"]) {
        text.push_str(&line(list(&row).iter().map(cell).collect()));
    }
    text.push('\n');
    text
}

fn cell(value: &Json) -> String {
    let number = |value: &Json| value.as_f64().map_or_else(|| "–".to_owned(), short);
    match value {
        Json::String(text) => text.clone(),
        Json::Array(spread) if spread.len() == 3 => {
            format!("{} ({}–{})", number(&spread[1]), number(&spread[0]), number(&spread[2]))
        }
        value => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::{MeasurementTable, ResultCell, markdown};

    #[test]
    fn a_table_states_medians_and_what_is_missing() {
        let numbers = |numbers: &[f64]| ResultCell::Numbers(numbers.to_vec());
        let name = ResultCell::Text("redis".to_owned());
        let table = MeasurementTable {
            title: "Rows".to_owned(),
            columns: vec!["system", "ms", "bytes", "rows/s"],
            rows: vec![vec![name, numbers(&[3.0, 1.0, 2.0]), numbers(&[]), numbers(&[4_000.0])]],
        };
        let text = markdown(&table.json());
        let last = text.lines().nth(4).unwrap();
        assert_eq!(last, "| redis | 2.00 (1.00–3.00) | – | 4\u{202f}000 |", "{text}");
    }
}
