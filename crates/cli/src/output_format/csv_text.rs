//! Results as CSV: RFC 4180, with a header.

use lockstep_engine::Output;
use lockstep_function::Zone;
use lockstep_row::Datum;

use super::{each_row, json_text};
use crate::cell_text;

/// Writes all rows.
pub(super) fn csv_text(output: &Output) -> String {
    let names: Vec<String> = output.columns.iter().map(|(name, _)| field(name)).collect();
    let mut text = line(&names);
    each_row(output, |values, zone| {
        let fields: Vec<String> = values.iter().map(|value| value_field(value, zone)).collect();
        text.push_str(&line(&fields));
    });
    text
}

fn line(fields: &[String]) -> String {
    fields.join(",") + "\r\n"
}

fn value_field(value: &Datum<'_>, zone: Zone) -> String {
    match value {
        Datum::Null => String::new(),
        Datum::Float(_) | Datum::Double(_) => json_text::number(value),
        Datum::Array(_) | Datum::Map(_) => field(&json_text::value(value, zone)),
        other => field(&cell_text(other, zone)),
    }
}

/// Puts a text in quotes where it must be, and where it is empty, to tell it from NULL.
fn field(text: &str) -> String {
    if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('"', "\"\""))
}
