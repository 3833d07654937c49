//! Values as CSV: as JSON ([`lockstep_engine::json_text`]), but for these.
//!
//! | type | CSV |
//! |---|---|
//! | FLOAT, DOUBLE | words such as `NaN` without quotes |
//! | STRING | the text |
//! | DATE | without quotes |
//! | NULL | nothing |

use lockstep_engine::json_text::{non_finite_word, write_date, write_json};
use lockstep_row::Datum;

/// Appends a value as a field of a CSV row. Text is in quotes where it must be, and where it is empty,
/// to tell it from NULL.
pub(crate) fn write_csv(out: &mut Vec<u8>, value: &Datum<'_>) {
    match value {
        Datum::Null => {}
        Datum::String(text) => write_csv_text(out, text),
        Datum::Array(_) | Datum::Map(_) => {
            let mut text = Vec::new();
            write_json(&mut text, value);
            write_csv_text(out, &String::from_utf8_lossy(&text));
        }
        Datum::Date(days) => write_date(out, *days),
        Datum::Float(number) if !number.is_finite() => {
            out.extend_from_slice(non_finite_word(f64::from(*number)).as_bytes());
        }
        Datum::Double(number) if !number.is_finite() => {
            out.extend_from_slice(non_finite_word(*number).as_bytes());
        }
        other => write_json(out, other),
    }
}

/// Appends a text as a field of a CSV row.
pub(crate) fn write_csv_text(out: &mut Vec<u8>, text: &str) {
    if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use lockstep_row::Datum;

    use super::write_csv;

    #[test]
    fn an_empty_text_is_not_null_in_csv() {
        let mut out = Vec::new();
        for value in [Datum::Null, Datum::String(""), Datum::String("a,b"), Datum::Double(1.0)] {
            write_csv(&mut out, &value);
            out.push(b';');
        }
        assert_eq!(String::from_utf8(out).unwrap(), ";\"\";\"a,b\";1.0;");
    }
}
