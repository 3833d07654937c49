//! PostgreSQL's protocol over a socket, as far as the soak calls it: scripts and COPY.

use std::{
    io::{self, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use super::{
    connection::CallFailure,
    row::{Cell, CellRows, CellType},
};

/// A server that answers nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The version of the protocol.
const VERSION: i32 = 196_608;

/// The longest message of an answer, in bytes: more is no answer.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A connection.
#[derive(Debug)]
pub struct SoakPostgres {
    stream: BufReader<TcpStream>,
}

/// A message of the server.
struct ServerMessage {
    kind: u8,
    body: Vec<u8>,
}

impl SoakPostgres {
    /// Connects, and waits until the session is ready.
    pub fn connect(address: SocketAddr) -> Result<Self, CallFailure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut connection = Self { stream: BufReader::new(stream) };
        let parameters = b"user\0soak\0database\0default\0\0";
        let mut packet = VERSION.to_be_bytes().to_vec();
        packet.extend(parameters);
        connection.write(&with_length(&packet))?;
        connection.rows(&[])?;
        Ok(connection)
    }

    /// Sends a script without reading its answer.
    pub fn send(&mut self, sql: &str) -> io::Result<()> {
        let body = [sql.as_bytes(), b"\0"].concat();
        self.write(&[b"Q", with_length(&body).as_slice()].concat())
    }

    /// Runs a script and returns the rows of its last statement.
    pub fn query(&mut self, sql: &str, types: &[CellType]) -> Result<CellRows, CallFailure> {
        self.send(sql)?;
        self.rows(types)
    }

    /// Copies lines into a table.
    pub fn copy(&mut self, statement: &str, lines: &str) -> Result<(), CallFailure> {
        self.send(statement)?;
        let data = [b"d", with_length(lines.as_bytes()).as_slice()].concat();
        loop {
            match self.message()? {
                ServerMessage { kind: b'G', .. } => break,
                ServerMessage { kind: b'E', body } => {
                    self.rows(&[])?;
                    return Err(failure_of(&body));
                }
                _ => {}
            }
        }
        self.write(&[data, b"c\0\0\0\x04".to_vec()].concat())?;
        self.rows(&[]).map(drop)
    }

    /// Reads messages until the server is ready.
    fn rows(&mut self, types: &[CellType]) -> Result<CellRows, CallFailure> {
        let (mut rows, mut failure) = (CellRows::new(), None);
        loop {
            let ServerMessage { kind, body } = self.message()?;
            match kind {
                b'T' => rows.clear(),
                b'D' => rows.push(row_of(&body, types).ok_or_else(|| {
                    CallFailure::Wrong(format!("not a row of the answer: {}", body.escape_ascii()))
                })?),
                b'E' => failure = Some(failure_of(&body)),
                b'Z' => return failure.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> Result<ServerMessage, CallFailure> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0);
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(CallFailure::Wrong(format!("a message of {length} bytes")));
        }
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body)?;
        Ok(ServerMessage { kind, body })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }
}

/// Puts the length, which counts itself, before bytes.
fn with_length(bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < MESSAGE_BYTES_MAX, "a message of the soak is short");
    let length = i32::try_from(bytes.len() + 4).unwrap_or(i32::MAX);
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Reads a row of texts.
fn row_of(body: &[u8], types: &[CellType]) -> Option<Vec<Cell>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    if usize::from(u16::from_be_bytes(*count)) != types.len() {
        return None;
    }
    let mut row = Vec::with_capacity(types.len());
    for cell_type in types {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            row.push(Cell::Null);
            rest = behind;
            continue;
        };
        let (value, behind) = behind.split_at_checked(length)?;
        row.push(cell_type.read(std::str::from_utf8(value).ok()?)?);
        rest = behind;
    }
    Some(row)
}

/// Reads the code and the message of an error.
fn failure_of(body: &[u8]) -> CallFailure {
    let field = |kind: u8| {
        let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&kind));
        found.map_or_else(String::new, |field| String::from_utf8_lossy(&field[1..]).into_owned())
    };
    CallFailure::Refused { code: field(b'C'), message: field(b'M') }
}
