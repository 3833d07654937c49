//! The messages of a client, read from the bodies of frames.
//!
//! Every byte is the client's: a body that is too short, too long or not UTF-8 is an error and never
//! more.

use bytes::{Buf, Bytes};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::failpoint;

use super::{
    frame::MessageFrame,
    types::Oid,
    value_input::{WireFormat, text_of},
};

/// A message of a client in a session.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    /// A script of statements.
    Query(String),
    /// Prepares a statement.
    Parse(ParseMessage),
    /// Gives values to the parameters of a statement.
    Bind(BindMessage),
    /// Asks for the columns of a statement or a portal.
    Describe(DescribedObject),
    /// Runs a portal up to so many rows; 0: all.
    Execute { portal: String, rows_max: usize },
    /// Closes a statement or a portal.
    Close(DescribedObject),
    /// Asks for what was written so far.
    Flush,
    /// Ends a group of messages.
    Sync,
    /// Data of COPY, after an error.
    CopyData,
    /// The end of data of COPY, after an error.
    CopyEnd,
    /// Ends the session.
    Terminate,
}

/// The name of a statement or a portal; an empty one is the unnamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DescribedObject {
    Statement(String),
    Portal(String),
}

/// Prepares a statement.
#[derive(Debug)]
pub(crate) struct ParseMessage {
    pub(crate) name: String,
    pub(crate) sql: String,
    pub(crate) types: Vec<Oid>,
}

/// Gives values to the parameters of a statement.
#[derive(Debug)]
pub(crate) struct BindMessage {
    pub(crate) portal: String,
    pub(crate) statement: String,
    pub(crate) formats: Vec<WireFormat>,
    pub(crate) values: Vec<Option<Bytes>>,
    pub(crate) result_formats: Vec<WireFormat>,
}

impl ClientMessage {
    /// Reads the message of a frame.
    pub(crate) fn read(frame: MessageFrame) -> Result<Self> {
        let mut body = BodyReader { bytes: frame.body };
        let message = match frame.kind {
            b'Q' => Self::Query(body.string()?),
            b'P' => Self::Parse(ParseMessage {
                name: body.string()?,
                sql: body.string()?,
                types: body.list(BodyReader::u32)?,
            }),
            b'B' => Self::Bind(BindMessage {
                portal: body.string()?,
                statement: body.string()?,
                formats: body.list(BodyReader::format)?,
                values: body.list(BodyReader::value)?,
                result_formats: body.list(BodyReader::format)?,
            }),
            b'D' => Self::Describe(body.object()?),
            b'C' => Self::Close(body.object()?),
            b'E' => Self::Execute {
                portal: body.string()?,
                // A negative number is no limit, as in PostgreSQL.
                rows_max: usize::try_from(body.i32()?).unwrap_or(0),
            },
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'X' => Self::Terminate,
            b'd' => return Ok(Self::CopyData),
            b'c' | b'f' => return Ok(Self::CopyEnd),
            kind => {
                return violation(format!("invalid frontend message type {kind}"));
            }
        };
        body.end()?;
        Ok(message)
    }
}

/// Makes the error for a message that breaks the protocol.
pub(crate) fn violation<T>(message: impl Into<String>) -> Result<T> {
    Diagnostic::new(code::PROTOCOL_VIOLATION, message).with_kind(Kind::FixRequest).err()
}

/// Reads the parts of a body.
#[derive(Debug)]
pub(crate) struct BodyReader {
    bytes: Bytes,
}

impl BodyReader {
    /// Reads from the first byte of a body.
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { bytes }
    }

    /// Reads so many bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<Bytes> {
        if count > self.bytes.len() && !failpoint::is_seeded("postgres_length_not_checked") {
            return violation("insufficient data left in message");
        }
        Ok(self.bytes.split_to(count))
    }

    /// Reads a text that a zero ends.
    pub(crate) fn string(&mut self) -> Result<String> {
        let Some(length) = self.bytes.iter().position(|byte| *byte == 0) else {
            return violation("invalid string in message");
        };
        let text = self.bytes.split_to(length);
        self.bytes.advance(1);
        Ok(text_of(&text)?.to_owned())
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        Ok(self.take(4)?.get_i32())
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.take(4)?.get_u32())
    }

    fn format(&mut self) -> Result<WireFormat> {
        WireFormat::of_code(self.take(2)?.get_i16())
    }

    /// Reads bytes with their length before them; -1 is NULL.
    pub(crate) fn value(&mut self) -> Result<Option<Bytes>> {
        match self.i32()? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.take(length).map(Some),
                Err(_) => violation("invalid value length in message"),
            },
        }
    }

    fn object(&mut self) -> Result<DescribedObject> {
        let kind = self.take(1)?[0];
        let name = self.string()?;
        match kind {
            b'S' => Ok(DescribedObject::Statement(name)),
            b'P' => Ok(DescribedObject::Portal(name)),
            _ => violation(format!("invalid object type {kind} in message")),
        }
    }

    /// Reads a list with its length before it.
    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.take(2)?.get_u16();
        (0..count).map(|_| read(self)).collect()
    }

    /// Fails where something was not read.
    pub(crate) fn end(&self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { violation("invalid message format") }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{ClientMessage, MessageFrame};

    fn read(kind: u8, body: &'static [u8]) -> Result<ClientMessage, &'static str> {
        let frame = MessageFrame { kind, body: Bytes::from_static(body) };
        ClientMessage::read(frame).map_err(|error| error.code)
    }

    #[test]
    fn messages_are_read() {
        let parsed = read(b'P', b"s\0SELECT $1\0\0\x01\0\0\0\x17").unwrap();
        let ClientMessage::Parse(parsed) = parsed else { panic!("{parsed:?}") };
        assert_eq!((parsed.name.as_str(), parsed.types), ("s", vec![23]));
        let bound = read(b'B', b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\0").unwrap();
        let ClientMessage::Bind(bound) = bound else { panic!("{bound:?}") };
        assert_eq!(bound.values, [Some(Bytes::from_static(b"x")), None]);
        assert!(matches!(
            read(b'E', b"\0\0\0\0\x05"),
            Ok(ClientMessage::Execute { rows_max: 5, .. })
        ));
    }

    #[test]
    fn a_body_of_another_form_is_an_error() {
        for (kind, body) in [
            (b'Q', &b"no end"[..]),
            (b'Q', b"a\0b"),
            (b'P', b"s\0q\0\0\x05\0\0"),
            (b'P', b"s\0q\0"),
            (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            (b'B', b"\0\0\0\x01\0\x07\0\0\0\0"),
            (b'D', b"X\0"),
            (b'C', b""),
            (b'E', b"\0\0"),
            (b'S', b"x"),
            (b'F', b""),
            (0, b""),
        ] {
            assert_eq!(read(kind, body).unwrap_err(), "08P01", "{kind} {body:?}");
        }
        assert_eq!(read(b'Q', b"\xff\0").unwrap_err(), "22021");
    }
}
