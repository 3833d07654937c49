//! PostgreSQL's protocol, version 3, the part that the benchmarks need.
//!
//! One round trip for each prepared statement: Bind, Execute and Sync go out together. Values of
//! prepared statements travel in binary form both ways; those of plain queries as text.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
};

use super::{super::NextLines, NAME};
use crate::{
    answer::AnswerValue,
    error::{Error, Result, Trying},
};

/// Object ids of the types that answers have.
mod oid {
    pub(super) const INT8: u32 = 20;
    pub(super) const INT2: u32 = 21;
    pub(super) const INT4: u32 = 23;
    pub(super) const FLOAT8: u32 = 701;
    pub(super) const TIMESTAMP: u32 = 1114;
}

/// Milliseconds from 1970 to 2000, where its binary timestamps begin.
const EPOCH_MS: i64 = 946_684_800_000;

/// How values of a result are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueFormat {
    Text,
    Binary,
}

/// A connection.
#[derive(Debug)]
pub(super) struct PostgresWire {
    stream: UnixStream,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Where the next message begins in `input`.
    at: usize,
    /// For each prepared statement, the types of its columns.
    prepared: Vec<Vec<u32>>,
}

impl PostgresWire {
    /// Starts a session of the user `bench`, whom the server trusts.
    pub(super) fn start(stream: UnixStream) -> Result<Self> {
        let mut wire =
            Self { stream, out: Vec::new(), input: Vec::new(), at: 0, prepared: Vec::new() };
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        body.extend(b"user\0bench\0database\0postgres\0\0");
        let length = u32::try_from(body.len() + 4).expect("it is short");
        wire.out.extend(length.to_be_bytes());
        wire.out.extend(body);
        wire.send()?;
        wire.until_ready(&[], ValueFormat::Text)?;
        Ok(wire)
    }

    /// Runs a statement.
    pub(super) fn query(&mut self, sql: &str) -> Result<Vec<Vec<AnswerValue>>> {
        self.message(b'Q', |body| c_text(body, sql));
        self.send()?;
        self.until_ready(&[], ValueFormat::Text).map(|(rows, _)| rows)
    }

    /// Prepares a statement, whose casts say the types of its parameters.
    pub(super) fn prepare(&mut self, sql: &str) -> Result<usize> {
        let number = self.prepared.len();
        let name = format!("s{number}");
        self.message(b'P', |body| {
            c_text(body, &name);
            c_text(body, sql);
            body.extend(0_u16.to_be_bytes());
        });
        self.message(b'D', |body| {
            body.push(b'S');
            c_text(body, &name);
        });
        self.message(b'S', |_| {});
        self.send()?;
        let (_, columns) = self.until_ready(&[], ValueFormat::Binary)?;
        self.prepared.push(columns);
        Ok(number)
    }

    /// Runs a prepared statement.
    pub(super) fn run(
        &mut self,
        prepared: usize,
        values: &mut dyn Iterator<Item = &AnswerValue>,
    ) -> Result<Vec<Vec<AnswerValue>>> {
        self.message(b'B', |body| {
            body.push(0);
            c_text(body, &format!("s{prepared}"));
            body.extend([0, 1, 0, 1]);
            let count_at = body.len();
            body.extend([0, 0]);
            let mut count = 0_u16;
            for value in values {
                binary(body, value);
                count += 1;
            }
            body[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
            body.extend([0, 1, 0, 1]);
        });
        self.message(b'E', |body| body.extend([0; 5]));
        self.message(b'S', |_| {});
        self.send()?;
        let columns = std::mem::take(&mut self.prepared[prepared]);
        let rows = self.until_ready(&columns, ValueFormat::Binary);
        self.prepared[prepared] = columns;
        rows.map(|(rows, _)| rows)
    }

    /// Runs a COPY … FROM STDIN.
    pub(super) fn copy_in(&mut self, sql: &str, next: &mut NextLines<'_>) -> Result<()> {
        self.message(b'Q', |body| c_text(body, sql));
        self.send()?;
        let mut lines = String::new();
        while next(&mut lines) > 0 {
            self.message(b'd', |body| body.extend(lines.as_bytes()));
            self.send()?;
            lines.clear();
        }
        self.message(b'c', |_| {});
        self.send()?;
        self.until_ready(&[], ValueFormat::Text).map(drop)
    }

    fn message(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(kind);
        let at = self.out.len();
        self.out.extend([0; 4]);
        body(&mut self.out);
        let length = u32::try_from(self.out.len() - at).expect("messages are short");
        self.out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.out).trying(|| format!("write to {NAME}"))?;
        self.out.clear();
        Ok(())
    }

    /// Reads messages up to `ReadyForQuery` and returns their rows and the types of the columns.
    /// `columns` are those of a prepared statement, which the server does not repeat.
    fn until_ready(
        &mut self,
        columns: &[u32],
        form: ValueFormat,
    ) -> Result<(Vec<Vec<AnswerValue>>, Vec<u32>)> {
        let mut columns = columns.to_vec();
        let mut rows = Vec::new();
        let mut refusal: Option<String> = None;
        loop {
            let (kind, body) = match (self.receive(), &refusal) {
                // After a fatal error the server closes the connection.
                (Err(_), Some(_)) => break,
                (message, _) => message?,
            };
            let body = &self.input[body];
            match kind {
                b'T' => columns = types(body),
                b'D' => rows.push(row(body, &columns, form)),
                b'E' => refusal = Some(complaint(body)),
                b'Z' => break,
                _ => {}
            }
        }
        match refusal {
            Some(message) => Err(Error::peer(NAME, message)),
            None => Ok((rows, columns)),
        }
    }

    /// Reads the next message and returns its kind and the range of its body in `input`.
    fn receive(&mut self) -> Result<(u8, std::ops::Range<usize>)> {
        if self.at == self.input.len() {
            self.input.clear();
            self.at = 0;
        }
        self.fill(5)?;
        let kind = self.input[self.at];
        let length = word(&self.input[self.at + 1..]);
        self.fill(1 + length)?;
        let body = self.at + 5..self.at + 1 + length;
        self.at = body.end;
        Ok((kind, body))
    }

    /// Reads until `input` has `count` bytes after `at`.
    fn fill(&mut self, count: usize) -> Result<()> {
        let mut chunk = [0; 16_384];
        debug_assert!(self.at <= self.input.len(), "a packet begins in what was read");
        while self.input.len() < self.at + count {
            let read = self.stream.read(&mut chunk).trying(|| format!("read from {NAME}"))?;
            if read == 0 {
                return Err(Error::peer(NAME, "the server closed the connection"));
            }
            self.input.extend(&chunk[..read]);
        }
        Ok(())
    }
}

fn c_text(body: &mut Vec<u8>, text: &str) {
    body.extend(text.as_bytes());
    body.push(0);
}

fn binary(body: &mut Vec<u8>, value: &AnswerValue) {
    let mut sized = |bytes: &[u8]| {
        let length = i32::try_from(bytes.len()).expect("values are short");
        body.extend(length.to_be_bytes());
        body.extend(bytes);
    };
    match value {
        AnswerValue::Null => body.extend((-1_i32).to_be_bytes()),
        AnswerValue::Int(value) => sized(&value.to_be_bytes()),
        AnswerValue::Double(value) => sized(&value.to_be_bytes()),
        AnswerValue::Time(ms) => sized(&((ms - EPOCH_MS) * 1_000).to_be_bytes()),
        AnswerValue::Text(text) => sized(text.as_bytes()),
    }
}

fn word(bytes: &[u8]) -> usize {
    let word = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
    usize::try_from(word).expect("a message's length fits")
}

fn half(bytes: &[u8]) -> usize {
    usize::from(u16::from_be_bytes(bytes[..2].try_into().expect("two bytes")))
}

/// Returns the types of a row description: after each name a table's id, a column's number, the
/// type.
fn types(body: &[u8]) -> Vec<u32> {
    let mut rest = &body[2..];
    let column = |_| {
        let name = rest.iter().position(|byte| *byte == 0).expect("a name ends");
        let types = &rest[name + 7..];
        rest = &rest[name + 19..];
        u32::from_be_bytes(types[..4].try_into().expect("four bytes"))
    };
    (0..half(body)).map(column).collect()
}

fn row(body: &[u8], columns: &[u32], form: ValueFormat) -> Vec<AnswerValue> {
    let mut rest = &body[2..];
    let value = |column: &u32| {
        let length = word(rest);
        rest = &rest[4..];
        // A length of -1 means NULL.
        if u32::try_from(length) == Ok(u32::MAX) {
            return AnswerValue::Null;
        }
        let (bytes, after) = rest.split_at(length);
        rest = after;
        cell(bytes, *column, form)
    };
    columns.iter().map(value).collect()
}

fn cell(bytes: &[u8], column: u32, form: ValueFormat) -> AnswerValue {
    let text = || AnswerValue::Text(String::from_utf8_lossy(bytes).into());
    match (form, column) {
        (ValueFormat::Binary, oid::INT2 | oid::INT4 | oid::INT8 | oid::TIMESTAMP) => {
            let mut wide = [if bytes[0] & 0x80 == 0 { 0 } else { 0xff }; 8];
            wide[8 - bytes.len()..].copy_from_slice(bytes);
            let value = i64::from_be_bytes(wide);
            if column == oid::TIMESTAMP {
                AnswerValue::Time(value / 1_000 + EPOCH_MS)
            } else {
                AnswerValue::Int(value)
            }
        }
        (ValueFormat::Binary, oid::FLOAT8) => AnswerValue::Double(f64::from_be_bytes(
            bytes.try_into().expect("a double has eight bytes"),
        )),
        (ValueFormat::Text, oid::INT2 | oid::INT4 | oid::INT8) => std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.parse().ok())
            .map_or_else(text, AnswerValue::Int),
        _ => text(),
    }
}

/// Returns the message of an error response: its fields are a letter and a text.
fn complaint(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let wanted = fields.filter(|field| matches!(field.first(), Some(b'M' | b'P' | b'D')));
    let texts: Vec<String> =
        wanted.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).collect();
    texts.join("; ")
}
