//! A client of PostgreSQL's protocol for tests: it writes bytes of its own, so that they may be wrong, and
//! reads messages with another implementation than the server's.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use bytes::BytesMut;
use pgwire::messages::{
    DecodeContext, PgWireBackendMessage,
    response::{ErrorResponse, TransactionStatus},
    startup::{Authentication, SecretKey},
};

use crate::support::TestServer;

/// What an answer has: everything up to the next `ReadyForQuery`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// For each described answer the names and types of its columns.
    pub(crate) columns: Vec<(String, u32)>,
    /// The values of rows; binary ones as they are.
    pub(crate) rows: Vec<Vec<Option<Vec<u8>>>>,
    pub(crate) tags: Vec<String>,
    /// Fields of errors and notices, by their type.
    pub(crate) errors: Vec<Vec<(u8, String)>>,
    pub(crate) notices: Vec<String>,
    pub(crate) parameters: Vec<u32>,
    /// Other messages, by a letter of their name.
    pub(crate) others: String,
    /// The data of COPY.
    pub(crate) copied: Vec<u8>,
    /// The state of the transaction; a blank where the connection has ended.
    pub(crate) status: char,
}

impl Reply {
    /// Returns the rows as texts.
    pub(crate) fn texts(&self) -> Vec<Vec<Option<&str>>> {
        self.rows
            .iter()
            .map(|row| row.iter().map(|value| text_of(value.as_deref())).collect())
            .collect()
    }

    /// Returns the one value of the one row.
    pub(crate) fn value(&self) -> &str {
        let [row] = self.rows.as_slice() else { panic!("one row: {self:?}") };
        let [Some(value)] = row.as_slice() else { panic!("one value: {self:?}") };
        std::str::from_utf8(value).unwrap()
    }

    /// Returns a field of the first error.
    pub(crate) fn error(&self, field: u8) -> &str {
        let error = self.errors.first().unwrap_or_else(|| panic!("an error: {self:?}"));
        let found = error.iter().find(|(kind, _)| *kind == field);
        found.map_or("", |(_, text)| text.as_str())
    }

    /// Returns the SQLSTATE of the first error.
    pub(crate) fn code(&self) -> &str {
        self.error(b'C')
    }
}

fn text_of(value: Option<&[u8]>) -> Option<&str> {
    value.map(|bytes| std::str::from_utf8(bytes).unwrap())
}

/// A connection.
pub(crate) struct PgClient<S = TcpStream> {
    pub(crate) stream: S,
    input: BytesMut,
    context: DecodeContext,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) key: Option<(i32, i32)>,
}

/// Makes a frame.
pub(crate) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind][..], &length, body].concat()
}

/// Makes a packet without a type.
pub(crate) fn packet(code: i32, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 8).unwrap().to_be_bytes();
    [&length[..], &code.to_be_bytes(), body].concat()
}

/// Makes a startup packet of parameters.
pub(crate) fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in parameters {
        body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    body.push(0);
    packet(196_608, &body)
}

/// Makes a body of texts that zeros end.
pub(crate) fn texts(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect()
}

impl TestServer {
    /// Opens a connection of PostgreSQL's protocol on which nothing was sent.
    pub(crate) fn connect_postgres(&self) -> PgClient {
        let stream = TcpStream::connect(self.postgres).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        PgClient::new(stream)
    }

    /// Opens a session that needs no password.
    pub(crate) fn session_postgres(&self, parameters: &[(&str, &str)]) -> PgClient {
        let mut client = self.connect_postgres();
        let all = [&[("user", "tester")], parameters].concat();
        client.send(&startup(&all));
        let reply = client.reply();
        assert_eq!(reply.status, 'I', "{reply:?}");
        client
    }
}

impl<S: Read + Write> PgClient<S> {
    pub(crate) fn new(stream: S) -> Self {
        let mut context = DecodeContext::default();
        context.awaiting_frontend_ssl = false;
        context.awaiting_frontend_startup = false;
        context.protocol_version = pgwire::messages::ProtocolVersion::PROTOCOL3_0;
        Self { stream, input: BytesMut::new(), context, settings: Vec::new(), key: None }
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Runs a script.
    pub(crate) fn query(&mut self, sql: &str) -> Reply {
        self.send(&frame(b'Q', &texts(&[sql])));
        self.reply()
    }

    /// Reads a message; `None` where the server has closed the connection.
    pub(crate) fn message(&mut self) -> Option<PgWireBackendMessage> {
        loop {
            let decoded = PgWireBackendMessage::decode(&mut self.input, &self.context);
            if let Some(message) = decoded.unwrap() {
                return Some(message);
            }
            let mut part = [0; 8192];
            let count = self.stream.read(&mut part).unwrap_or(0);
            if count == 0 {
                assert!(self.input.is_empty(), "a message was cut: {:?}", self.input);
                return None;
            }
            self.input.extend_from_slice(&part[..count]);
        }
    }

    /// Reads messages up to `ReadyForQuery`, the begin of a COPY from the client, or the end.
    pub(crate) fn reply(&mut self) -> Reply {
        let mut reply = Reply { status: ' ', ..Reply::default() };
        while let Some(message) = self.message() {
            use PgWireBackendMessage as Message;
            match message {
                Message::ReadyForQuery(ready) => {
                    reply.status = match ready.status {
                        TransactionStatus::Idle => 'I',
                        TransactionStatus::Transaction => 'T',
                        TransactionStatus::Error => 'E',
                    };
                    return reply;
                }
                Message::CopyInResponse(copy) => {
                    reply.status = 'G';
                    reply.others.push(if copy.format == 1 { 'B' } else { 'T' });
                    return reply;
                }
                Message::RowDescription(description) => {
                    let column = |field: &pgwire::messages::data::FieldDescription| {
                        (field.name.clone(), field.type_id)
                    };
                    reply.columns = description.fields.iter().map(column).collect();
                }
                Message::DataRow(row) => reply.rows.push(fields(&row.data, row.field_count)),
                Message::CommandComplete(done) => reply.tags.push(done.tag),
                Message::ErrorResponse(ErrorResponse { fields, .. }) => reply.errors.push(fields),
                Message::NoticeResponse(notice) => {
                    let text = notice.fields.iter().find(|(kind, _)| *kind == b'M');
                    reply.notices.push(text.unwrap().1.clone());
                }
                Message::ParameterStatus(status) => {
                    self.settings.push((status.name, status.value));
                }
                Message::BackendKeyData(key) => {
                    let SecretKey::I32(secret) = key.secret_key else { panic!("{key:?}") };
                    self.key = Some((key.pid, secret));
                }
                Message::ParameterDescription(found) => reply.parameters = found.types,
                Message::CopyData(data) => reply.copied.extend_from_slice(&data.data),
                Message::Authentication(Authentication::Ok) => reply.others.push('R'),
                Message::CopyOutResponse(_) => reply.others.push('H'),
                Message::CopyDone(_) => reply.others.push('c'),
                Message::ParseComplete(_) => reply.others.push('1'),
                Message::BindComplete(_) => reply.others.push('2'),
                Message::CloseComplete(_) => reply.others.push('3'),
                Message::NoData(_) => reply.others.push('n'),
                Message::PortalSuspended(_) => reply.others.push('s'),
                Message::EmptyQueryResponse(_) => reply.others.push('I'),
                other => panic!("{other:?}"),
            }
        }
        reply
    }
}

/// Reads the values of a row.
fn fields(data: &[u8], count: i16) -> Vec<Option<Vec<u8>>> {
    let mut rest = data;
    let field = |_| {
        let (length, after) = rest.split_first_chunk::<4>().unwrap();
        rest = after;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
        let (value, after) = rest.split_at(length);
        rest = after;
        Some(value.to_vec())
    };
    let fields = (0..count).map(field).collect();
    assert!(rest.is_empty(), "a row has nothing behind its values");
    fields
}
