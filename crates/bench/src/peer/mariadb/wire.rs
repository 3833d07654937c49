//! MariaDB's client protocol, the part that the benchmarks need.
//!
//! A packet is three bytes of length, one of sequence, and a body. Prepared statements take and
//! give values in binary form, plain queries give text.

use std::{
    io::{Read as _, Write as _},
    ops::Range,
    os::unix::net::UnixStream,
};

use lockstep_row::calendar;

use super::{super::NextLines, NAME};
use crate::{
    answer::AnswerValue,
    error::{Error, Result, Trying},
    statement::PeerType,
};

/// Column types of the protocol.
mod column {
    pub(super) const TINY: u8 = 1;
    pub(super) const SHORT: u8 = 2;
    pub(super) const LONG: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const DOUBLE: u8 = 5;
    pub(super) const LONGLONG: u8 = 8;
    pub(super) const INT24: u8 = 9;
    pub(super) const DATETIME: u8 = 12;
    pub(super) const YEAR: u8 = 13;
    pub(super) const VAR_STRING: u8 = 253;
}

/// First bytes of answers.
const OK: u8 = 0x00;
const LOCAL_FILE: u8 = 0xfb;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

/// Long passwords, local files, protocol 4.1, transactions, secure connection, named plugins.
const CAPABILITIES: u32 = 0x1 | 0x80 | 0x200 | 0x2000 | 0x8000 | 0x8_0000;

/// A prepared statement.
#[derive(Debug)]
struct MariaDbStatement {
    id: u32,
    kinds: Vec<PeerType>,
    column_types: Vec<u8>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct MariaDbWire {
    stream: UnixStream,
    input: Vec<u8>,
    /// Where the next packet begins in `input`.
    at: usize,
    sequence: u8,
    prepared: Vec<MariaDbStatement>,
}

impl MariaDbWire {
    /// Performs the handshake with a server that checks no passwords.
    pub(super) fn start(stream: UnixStream) -> Result<Self> {
        let mut wire = Self { stream, input: Vec::new(), at: 0, sequence: 0, prepared: Vec::new() };
        wire.receive()?;
        let mut body = CAPABILITIES.to_le_bytes().to_vec();
        body.extend(0x0100_0000_u32.to_le_bytes());
        // Character set 8: latin1.
        body.push(8);
        body.extend([0; 23]);
        body.extend(b"root\0\0mysql_native_password\0");
        wire.send(&body)?;
        let answer = wire.receive()?;
        if wire.input[answer.start] == END {
            wire.send(&[])?;
            let answer = wire.receive()?;
            wire.check(&answer)?;
        } else {
            wire.check(&answer)?;
        }
        Ok(wire)
    }

    /// Runs a statement.
    pub(super) fn query(&mut self, sql: &str) -> Result<Vec<Vec<AnswerValue>>> {
        self.command(0x03, sql.as_bytes())?;
        let first = self.receive()?;
        self.check(&first)?;
        let Some(count) = self.column_count(&first) else { return Ok(Vec::new()) };
        let types = self.columns(count)?;
        self.rows(|body| text_row(body, &types))
    }

    /// Prepares a statement.
    pub(super) fn prepare(&mut self, sql: &str, kinds: &[PeerType]) -> Result<usize> {
        self.command(0x16, sql.as_bytes())?;
        let first = self.receive()?;
        self.check(&first).map_err(|error| Error::peer(NAME, format!("{error}\n{sql}")))?;
        let body = &self.input[first];
        let id = u32::from_le_bytes(body[1..5].try_into().expect("four bytes"));
        let (columns, parameters) = (half(&body[5..]), half(&body[7..]));
        self.columns(parameters)?;
        let column_types = self.columns(columns)?;
        assert_eq!(parameters, kinds.len(), "each `?` has its value");
        self.prepared.push(MariaDbStatement { id, kinds: kinds.to_vec(), column_types });
        Ok(self.prepared.len() - 1)
    }

    /// Runs a prepared statement.
    pub(super) fn run(
        &mut self,
        prepared: usize,
        values: &mut dyn Iterator<Item = &AnswerValue>,
    ) -> Result<Vec<Vec<AnswerValue>>> {
        let body = execution(&self.prepared[prepared], values);
        self.command(0x17, &body)?;
        let first = self.receive()?;
        self.check(&first)?;
        let Some(count) = self.column_count(&first) else { return Ok(Vec::new()) };
        let mut types = std::mem::take(&mut self.prepared[prepared].column_types);
        // The types of expressions over parameters are known only now.
        types.clone_from(&self.columns(count)?);
        let rows = self.rows(|body| binary_row(body, &types));
        self.prepared[prepared].column_types = types;
        rows
    }

    /// Runs a LOAD DATA LOCAL: the server asks for the file, and gets the lines.
    pub(super) fn load(&mut self, sql: &str, next: &mut NextLines<'_>) -> Result<()> {
        self.command(0x03, sql.as_bytes())?;
        let first = self.receive()?;
        self.check(&first)?;
        if self.input[first.start] != LOCAL_FILE {
            return Err(Error::peer(NAME, "LOAD DATA did not request a file"));
        }
        let mut lines = String::new();
        while next(&mut lines) > 0 {
            self.send(lines.as_bytes())?;
            lines.clear();
        }
        self.send(&[])?;
        let last = self.receive()?;
        self.check(&last)
    }

    fn command(&mut self, command: u8, body: &[u8]) -> Result<()> {
        self.sequence = 0;
        let mut packet = vec![command];
        packet.extend(body);
        self.send(&packet)
    }

    fn send(&mut self, body: &[u8]) -> Result<()> {
        let length = u32::try_from(body.len()).expect("packets are short");
        assert!(length < 0xff_ffff, "a longer packet would have to be split");
        let mut packet = length.to_le_bytes();
        packet[3] = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        let mut whole = packet.to_vec();
        whole.extend(body);
        self.stream.write_all(&whole).trying(|| format!("write to {NAME}"))
    }

    /// Reads the next packet and returns the range of its body in `input`.
    fn receive(&mut self) -> Result<Range<usize>> {
        if self.at == self.input.len() {
            self.input.clear();
            self.at = 0;
        }
        self.fill(4)?;
        let head = &self.input[self.at..self.at + 4];
        let length = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
        self.sequence = head[3].wrapping_add(1);
        self.fill(4 + length)?;
        let body = self.at + 4..self.at + 4 + length;
        self.at = body.end;
        Ok(body)
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

    /// Returns an error for an error packet: its code, then `#` and a state, then the text.
    fn check(&self, body: &Range<usize>) -> Result<()> {
        let body = &self.input[body.clone()];
        match body.first() {
            Some(&ERROR) => Err(Error::peer(NAME, String::from_utf8_lossy(&body[3..]))),
            Some(_) => Ok(()),
            None => Err(Error::peer(NAME, "an empty packet")),
        }
    }

    /// Returns the number of columns; `None` for a statement without rows.
    fn column_count(&self, first: &Range<usize>) -> Option<usize> {
        match self.input[first.start] {
            OK => None,
            count => Some(usize::from(count)).filter(|count| *count < 251).or_else(|| {
                let bytes = &self.input[first.start + 1..];
                Some(half(bytes))
            }),
        }
    }

    /// Reads the types of columns or parameters: a packet for each, and one for the end.
    fn columns(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut types = Vec::with_capacity(count);
        for _ in 0..count {
            let body = self.receive()?;
            // After six texts: a length, the character set, the width, and then the type.
            let mut rest = &self.input[body];
            for _ in 0..6 {
                take_text(&mut rest);
            }
            types.push(rest[7]);
        }
        if count > 0 {
            self.receive()?;
        }
        Ok(types)
    }

    fn rows(
        &mut self,
        decode: impl Fn(&[u8]) -> Vec<AnswerValue>,
    ) -> Result<Vec<Vec<AnswerValue>>> {
        let mut rows = Vec::new();
        loop {
            let body = self.receive()?;
            self.check(&body)?;
            if self.input[body.start] == END && body.len() < 9 {
                return Ok(rows);
            }
            rows.push(decode(&self.input[body]));
        }
    }
}

/// Returns the body of a command that runs a prepared statement.
fn execution(
    prepared: &MariaDbStatement,
    values: &mut dyn Iterator<Item = &AnswerValue>,
) -> Vec<u8> {
    let mut body = prepared.id.to_le_bytes().to_vec();
    body.extend([0, 1, 0, 0, 0]);
    let nulls_at = body.len();
    if prepared.kinds.is_empty() {
        return body;
    }
    body.resize(nulls_at + prepared.kinds.len().div_ceil(8), 0);
    body.push(1);
    for kind in &prepared.kinds {
        let code = match kind {
            PeerType::Text(_) => column::VAR_STRING,
            PeerType::Int => column::LONGLONG,
            PeerType::Double => column::DOUBLE,
            PeerType::Time => column::DATETIME,
        };
        body.extend([code, 0]);
    }
    for (place, value) in values.enumerate() {
        if *value == AnswerValue::Null {
            body[nulls_at + place / 8] |= 1 << (place % 8);
        }
        binary(&mut body, value);
    }
    body
}

fn binary(body: &mut Vec<u8>, value: &AnswerValue) {
    match value {
        AnswerValue::Null => {}
        AnswerValue::Int(value) => body.extend(value.to_le_bytes()),
        AnswerValue::Double(value) => body.extend(value.to_le_bytes()),
        AnswerValue::Text(text) => {
            body.push(u8::try_from(text.len()).expect("texts are shorter than 251 bytes"));
            body.extend(text.as_bytes());
        }
        AnswerValue::Time(ms) => {
            let (days, time) = calendar::split_ms(*ms);
            let civil = calendar::civil_from_days(days);
            let year = u16::try_from(civil.year).expect("a year of our data");
            let byte = |number: u32| u8::try_from(number).expect("a part of a moment");
            body.push(11);
            body.extend(year.to_le_bytes());
            body.extend([civil.month, civil.day, time.hour, time.minute, time.second].map(byte));
            body.extend((time.millisecond * 1_000).to_le_bytes());
        }
    }
}

/// Takes a text that its length precedes; `None` for NULL.
fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (start, length) = match rest[0] {
        0xfb => {
            *rest = &rest[1..];
            return None;
        }
        0xfc => (3, half(&rest[1..])),
        length => (1, usize::from(length)),
    };
    let text = &rest[start..start + length];
    *rest = &rest[start + length..];
    Some(text)
}

fn half(bytes: &[u8]) -> usize {
    usize::from(u16::from_le_bytes(bytes[..2].try_into().expect("two bytes")))
}

fn text_row(body: &[u8], types: &[u8]) -> Vec<AnswerValue> {
    let mut rest = body;
    let value = |column: &u8| match take_text(&mut rest) {
        None => AnswerValue::Null,
        Some(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            match *column {
                column::TINY | column::SHORT | column::LONG | column::LONGLONG => {
                    text.parse().map_or(AnswerValue::Null, AnswerValue::Int)
                }
                _ => AnswerValue::Text(text.into()),
            }
        }
    };
    types.iter().map(value).collect()
}

fn binary_row(body: &[u8], types: &[u8]) -> Vec<AnswerValue> {
    let nulls = &body[1..];
    // Two bits are reserved before the first column's.
    let mut rest = &body[1 + (types.len() + 9) / 8..];
    let value = |(place, column): (usize, &u8)| {
        if nulls[(place + 2) / 8] & 1 << ((place + 2) % 8) != 0 {
            return AnswerValue::Null;
        }
        take_binary(&mut rest, *column)
    };
    types.iter().enumerate().map(value).collect()
}

fn take_binary(rest: &mut &[u8], column: u8) -> AnswerValue {
    let width = match column {
        column::TINY => 1,
        column::SHORT | column::YEAR => 2,
        column::LONG | column::INT24 | column::FLOAT => 4,
        column::LONGLONG | column::DOUBLE => 8,
        _ => {
            let text = take_text(rest).unwrap_or_default();
            return AnswerValue::Text(String::from_utf8_lossy(text).into());
        }
    };
    let (bytes, after) = rest.split_at(width);
    *rest = after;
    if column == column::DOUBLE {
        return AnswerValue::Double(f64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    }
    let mut wide = [if bytes[width - 1] & 0x80 == 0 { 0 } else { 0xff }; 8];
    wide[..width].copy_from_slice(bytes);
    AnswerValue::Int(i64::from_le_bytes(wide))
}
