//! The bodies of OpenMLDB's calls: JSON in which a number may also be `NaN`, `Infinity` or `-Infinity`,
//! and rows of values.
//!
//! The texts of values stay as they were sent until the column is known, so that no digit is lost.

use std::collections::HashMap;

use axum::body::Bytes;
use lockstep_diagnostic::{Diagnostic, code};
use lockstep_engine::{
    Conversion,
    text_rows::{JsonRow, KeyRule, RowSchema},
};
use lockstep_row::{Arena, DataType};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    super::error::{HttpError, HttpResult},
    refusal,
};

/// The words for numbers that are not finite, the longer ones first.
const WORDS: [(&[u8], &[u8]); 5] = [
    (b"-Infinity", b"\"-Infinity\""),
    (b"-Inf", b"\"-Infinity\""),
    (b"Infinity", b"\"Infinity\""),
    (b"Inf", b"\"Infinity\""),
    (b"NaN", b"\"NaN\""),
];

/// The members of a body.
pub(super) type Members = HashMap<String, Box<RawValue>>;

/// What is wrong with the text of a body: OpenMLDB's number for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonFailure(pub(super) u8);

/// Reads the members of a body; one that is no object has none.
pub(super) fn members(body: &Bytes) -> Result<Members, JsonFailure> {
    let body = with_quoted_words(body);
    let text: &RawValue = serde_json::from_slice(&body).map_err(|error| failure(&error))?;
    match text.get().starts_with('{') {
        true => serde_json::from_str(text.get()).map_err(|error| failure(&error)),
        false => Ok(Members::new()),
    }
}

/// Returns the number that OpenMLDB's parser has for an error.
fn failure(error: &serde_json::Error) -> JsonFailure {
    /// Texts of the parser here, and the number there; the first that is in the message.
    const NUMBERS: &[(&str, u8)] = &[
        ("EOF while parsing a value", 1),
        ("trailing characters", 2),
        ("key must be a string", 4),
        ("expected `:`", 5),
        ("expected `,` or `}`", 6),
        ("EOF while parsing an object", 6),
        ("expected `,` or `]`", 7),
        ("EOF while parsing a list", 7),
        ("surrogate", 9),
        ("escape", 10),
        ("EOF while parsing a string", 11),
        ("unicode", 12),
        ("number out of range", 13),
    ];
    let text = error.to_string();
    let found = NUMBERS.iter().find(|(part, _)| text.contains(part));
    JsonFailure(found.map_or(3, |(_, number)| *number))
}

/// Puts quotes around bare words for numbers that are not finite.
fn with_quoted_words(body: &Bytes) -> Bytes {
    let has_word = body.windows(3).any(|part| part == b"NaN" || part == b"Inf");
    if !has_word {
        return body.clone();
    }
    let mut quoted = Vec::with_capacity(body.len() + 16);
    let (mut at, mut is_text) = (0, false);
    while let Some(byte) = body.get(at) {
        let rest = &body[at..];
        let word = WORDS.iter().find(|(word, _)| !is_text && rest.starts_with(word));
        if let Some((word, replacement)) = word {
            quoted.extend_from_slice(replacement);
            at += word.len();
            continue;
        }
        if is_text && *byte == b'\\' {
            quoted.extend_from_slice(&rest[..rest.len().min(2)]);
            at += 2;
            continue;
        }
        is_text ^= *byte == b'"';
        quoted.push(*byte);
        at += 1;
    }
    quoted.into()
}

/// Reads the items of an array; `None` for another value.
pub(super) fn items(text: &RawValue) -> Option<Vec<&RawValue>> {
    Vec::deserialize(&mut serde_json::Deserializer::from_str(text.get())).ok()
}

/// Returns whether a member is `true`.
pub(super) fn is_true(members: &Members, name: &str) -> bool {
    members.get(name).is_some_and(|value| value.get() == "true")
}

/// The columns of rows, and how the texts of their values are converted.
pub(super) struct ValueSchema {
    columns: Vec<(String, DataType)>,
    schema: RowSchema,
}

impl ValueSchema {
    /// Makes a schema of columns.
    pub(super) fn new(columns: &[(String, DataType)], conversion: Conversion) -> Self {
        let keys = KeyRule::AllReadAndMore(vec![true; columns.len()]);
        let schema = RowSchema::new(columns, conversion, keys);
        Self { columns: columns.to_vec(), schema }
    }

    /// Reads a row of values, one for each column, and passes it to `give`.
    pub(super) fn read<T>(
        &self,
        values: &[&RawValue],
        give: impl FnOnce(&JsonRow<'_>) -> lockstep_diagnostic::Result<T>,
    ) -> HttpResult<T> {
        let mut text = String::from("[");
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            match self.columns.get(at) {
                Some((name, data_type)) => text.push_str(&checked(name, data_type, value)?),
                None => text.push_str(value.get()),
            }
        }
        text.push(']');
        let arena = Arena::new();
        Ok(give(&self.schema.read_row(text.as_bytes(), &arena)?)?)
    }
}

/// Returns the text of a value as the reader of rows takes it. A TIMESTAMP is a number here, and a DATE
/// may lack zeros.
fn checked(name: &str, data_type: &DataType, value: &RawValue) -> HttpResult<String> {
    let text = value.get();
    let is_text = text.starts_with('"');
    let wrong = |expected: &str| {
        let message = format!("column `{name}` is of type {data_type} and requires {expected}");
        HttpError::from(Diagnostic::new(code::DATATYPE_MISMATCH, message))
    };
    match data_type {
        DataType::Timestamp if is_text => Err(wrong("a number of milliseconds")),
        DataType::Date if is_text => {
            padded(text.trim_matches('"')).ok_or_else(|| wrong("a string such as \"2020-05-01\""))
        }
        _ => Ok(text.to_owned()),
    }
}

/// Writes a date with its zeros, in quotes.
fn padded(text: &str) -> Option<String> {
    let parts: Vec<u32> = text.split('-').map(str::parse).collect::<Result<_, _>>().ok()?;
    match parts.as_slice() {
        [year, month, day] => Some(format!("\"{year:04}-{month:02}-{day:02}\"")),
        _ => None,
    }
}

/// Returns the values of a row that is an object, in the order of columns.
pub(super) fn values_by_name<'m>(
    members: &'m Members,
    columns: &[(String, DataType)],
) -> HttpResult<Vec<&'m RawValue>> {
    let value = |(name, _): &(String, DataType)| {
        let found = members.get(name).map(Box::as_ref);
        found.ok_or_else(|| refusal(format!("can't find {name}")))
    };
    columns.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use lockstep_engine::Database;
    use lockstep_row::DataType;
    use serde_json::value::RawValue;

    use super::{JsonFailure, ValueSchema, members, with_quoted_words};

    #[test]
    fn words_for_numbers_are_read_outside_of_texts() {
        for (text, expected) in [
            (
                r#"{"a": NaN, "NaN": [-Infinity, Inf]}"#,
                r#"{"a": "NaN", "NaN": ["-Infinity", "Infinity"]}"#,
            ),
            (r#"{"a\"NaN": -Inf}"#, r#"{"a\"NaN": "-Infinity"}"#),
            (r#"["Inf\"#, r#"["Inf\"#),
            ("[1]", "[1]"),
        ] {
            assert_eq!(with_quoted_words(&Bytes::from(text)), Bytes::from(expected));
        }
    }

    #[test]
    fn a_wrong_text_has_the_number_of_openmldb_s_parser() {
        let number = |text: &'static str| members(&Bytes::from(text)).unwrap_err();
        for (text, expected) in [
            ("", 1),
            ("{} {}", 2),
            ("{\"a\": True}", 3),
            ("{1: 2}", 4),
            ("{\"a\" 1}", 5),
            ("{\"a\": 1 \"b\": 2}", 6),
            ("{\"a\": [1\u{ff0c}2]}", 7),
        ] {
            assert_eq!(number(text), JsonFailure(expected), "{text}");
        }
        assert!(members(&Bytes::from("[[]]")).unwrap().is_empty());
    }

    #[test]
    fn times_are_numbers_and_dates_have_three_parts() {
        let columns = [
            ("t".to_owned(), DataType::Timestamp),
            ("d".to_owned(), DataType::Date),
            ("f".to_owned(), DataType::Float),
        ];
        let schema = ValueSchema::new(&columns, Database::in_memory().session().conversion());
        let read = |text: &str| {
            let values: Vec<&RawValue> = serde_json::from_str(text).unwrap();
            schema.read(&values, |row| Ok(format!("{:?}", row.values))).ok()
        };
        let expected = Some("[Timestamp(5), Date(18383), Float(1.5)]".to_owned());
        assert_eq!(read(r#"[5, "2020-5-1", 1.5]"#), expected);
        assert!(read(r#"[null, null, "NaN"]"#).is_some());
        for wrong in [r#"["5", null, 1]"#, r#"[5, "2020", 1]"#, r#"[5, 20200501, 1]"#, "[5, null]"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
