//! A deployment called by PostgreSQL's extended protocol: prepared once, bound for each request.

use lockstep_row::Datum;

use super::{connection::postgres_message, features::FeatureSet};
use crate::{
    answer::AnswerValue,
    error::{Error, Result},
    m1::moment,
};

/// The version 3.0 of the protocol.
const PROTOCOL: u32 = 196_608;

/// Returns what a connection sends first: who it is.
pub(super) fn startup() -> Vec<u8> {
    let mut start = PROTOCOL.to_be_bytes().to_vec();
    start.extend_from_slice(b"user\0root\0database\0default\0TimeZone\0UTC\0\0");
    message(None, &start)
}

/// Returns a statement in the simple protocol.
pub(super) fn query(sql: &str) -> Vec<u8> {
    message(Some(b'Q'), format!("{sql}\0").as_bytes())
}

/// Returns rows of COPY.
pub(super) fn copy_data(rows: &[u8]) -> Vec<u8> {
    message(Some(b'd'), rows)
}

/// Returns the end of the rows of COPY.
pub(super) fn copy_done() -> Vec<u8> {
    message(Some(b'c'), b"")
}

/// Returns the first value of the first row of an answer, as text.
pub(super) fn first_value(bytes: &[u8]) -> Option<String> {
    let mut at = 0;
    loop {
        let (kind, content, next) = postgres_message(bytes, at)?;
        at = next;
        if kind == b'D' {
            let row = read_row(content, &[AnswerValue::Text("".into())])?;
            return match row.first()? {
                AnswerValue::Text(text) => Some(text.to_string()),
                _ => None,
            };
        }
    }
}

/// Returns what a connection exchanges first: who it is, and the statement.
pub(super) fn setup(set: FeatureSet) -> Vec<Vec<u8>> {
    let names = set.column_names();
    let arguments = names.iter().enumerate().map(|(at, name)| format!("{name} => ${}", at + 1));
    let arguments: Vec<String> = arguments.collect();
    let sql = format!("SELECT * FROM {}({})", set.name(), arguments.join(", "));
    let mut parse = b"q\0".to_vec();
    parse.extend_from_slice(sql.as_bytes());
    // No types of parameters: the server knows them.
    parse.extend_from_slice(b"\0\0\0");
    let mut statement = message(Some(b'P'), &parse);
    statement.extend_from_slice(&message(Some(b'S'), b""));
    vec![startup(), statement]
}

/// Returns the requests: Bind, Execute and Sync in one write.
pub(super) fn requests(set: FeatureSet) -> Vec<Vec<u8>> {
    set.write_rows(request)
}

fn request(row: &[Datum<'_>]) -> Vec<u8> {
    // The unnamed portal, the statement, and parameters in text.
    let mut bind = b"\0q\0\0\0".to_vec();
    let count = u16::try_from(row.len()).expect("a row has few columns");
    bind.extend_from_slice(&count.to_be_bytes());
    for value in row {
        match text_of(value) {
            None => bind.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(text) => {
                let length = i32::try_from(text.len()).expect("a value is short");
                bind.extend_from_slice(&length.to_be_bytes());
                bind.extend_from_slice(text.as_bytes());
            }
        }
    }
    // The answer in text.
    bind.extend_from_slice(b"\0\0");
    let mut request = message(Some(b'B'), &bind);
    request.extend_from_slice(&message(Some(b'E'), b"\0\0\0\0\0"));
    request.extend_from_slice(&message(Some(b'S'), b""));
    request
}

fn text_of(value: &Datum<'_>) -> Option<String> {
    match *value {
        Datum::String(text) => Some(text.to_owned()),
        Datum::Double(value) => Some(value.to_string()),
        Datum::Timestamp(ms) => Some(moment(ms)),
        _ => value.as_i64().map(|value| value.to_string()),
    }
}

/// Makes a message; the first one of a connection has no kind.
fn message(kind: Option<u8>, content: &[u8]) -> Vec<u8> {
    let mut message: Vec<u8> = kind.into_iter().collect();
    let length = u32::try_from(content.len() + 4).expect("a message is short");
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(content);
    message
}

/// Reads the row of an answer, whose values are of the kinds of the expected ones.
pub(super) fn read_answer(bytes: &[u8], expected: &[AnswerValue]) -> Result<Vec<AnswerValue>> {
    let wrong = || Error::peer("lockstep", "the response is not a row".to_owned());
    let mut at = 0;
    while let Some((kind, content, next)) = postgres_message(bytes, at) {
        at = next;
        if kind == b'D' {
            return read_row(content, expected).ok_or_else(wrong);
        }
    }
    Err(wrong())
}

fn read_row(content: &[u8], expected: &[AnswerValue]) -> Option<Vec<AnswerValue>> {
    let (count, mut rest) = content.split_first_chunk()?;
    if usize::from(u16::from_be_bytes(*count)) != expected.len() {
        return None;
    }
    let mut row = Vec::new();
    for expected in expected {
        let (length, after) = rest.split_first_chunk()?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            rest = after;
            row.push(AnswerValue::Null);
            continue;
        };
        let (text, after) = after.split_at_checked(length)?;
        rest = after;
        let text = std::str::from_utf8(text).ok()?;
        let read = match expected {
            AnswerValue::Int(_) => text.parse().ok().map(AnswerValue::Int),
            AnswerValue::Double(_) => text.parse().ok().map(AnswerValue::Double),
            _ => None,
        };
        row.push(read.unwrap_or_else(|| AnswerValue::Text(text.into())));
    }
    Some(row)
}
