//! Where a server of M14 listens, how its answers are told from each other, and one exchange with it.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
};

use super::http2::{self, Http2State};
use crate::error::{Error, Result, Trying};

/// Where a server listens.
#[derive(Debug, Clone)]
pub(super) enum ListenAddress {
    /// On loopback.
    Tcp(SocketAddr),
    /// On a socket in the file system.
    Unix(PathBuf),
}

/// How the answers of a protocol are told from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// HTTP/1.1 with a `Content-Length`.
    Http,
    /// One text of Redis' protocol.
    Resp,
    /// The messages of PostgreSQL's protocol up to `ReadyForQuery`.
    Postgres,
    /// The frames of HTTP/2 up to the end of a stream.
    Http2,
}

/// A server and its protocol.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) address: ListenAddress,
    pub(super) framing: Framing,
    /// What each connection exchanges before its first request.
    pub(super) setup: Vec<Vec<u8>>,
}

/// An answer in the bytes that were received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FramedAnswer {
    /// Where its body begins.
    pub(super) body: usize,
    /// Where it ends.
    pub(super) end: usize,
    /// Whether the server did what it was to do.
    pub(super) is_ok: bool,
}

impl Framing {
    /// Finds the first answer; `None` while it is not whole.
    pub(super) fn first(self, bytes: &[u8]) -> Option<FramedAnswer> {
        match self {
            Self::Http => http_answer(bytes),
            Self::Resp => resp_answer(bytes),
            Self::Postgres => postgres_answer(bytes),
            Self::Http2 => http2::answer(bytes),
        }
    }
}

/// What a connection sends and has received.
#[derive(Debug)]
pub(super) struct Exchanges {
    framing: Framing,
    /// Bytes that were received, of which the last answer is left until the next request.
    pub(super) received: Vec<u8>,
    sent: Vec<u8>,
    answered: usize,
    http2: Http2State,
}

impl Exchanges {
    /// Makes those of a new connection.
    pub(super) fn new(framing: Framing) -> Self {
        let (received, sent) = (Vec::with_capacity(65_536), Vec::new());
        Self { framing, received, sent, answered: 0, http2: Http2State::default() }
    }

    /// Returns the bytes of a request as the connection sends them.
    pub(super) fn begin<'b>(&'b mut self, request: &'b [u8]) -> &'b [u8] {
        self.received.drain(..self.answered);
        self.answered = 0;
        if self.framing != Framing::Http2 {
            return request;
        }
        self.sent.clear();
        self.http2.write(request, &mut self.sent);
        &self.sent
    }

    /// Finds the answer in what was received; `None` while it is not whole. What is about a
    /// connection may follow an answer of HTTP/2; behind others there is nothing.
    pub(super) fn end(&mut self) -> Result<Option<FramedAnswer>> {
        let Some(answer) = self.framing.first(&self.received) else { return Ok(None) };
        let is_all = self.framing == Framing::Http2 || answer.end == self.received.len();
        if !answer.is_ok || !is_all {
            return Err(self.no_answer());
        }
        self.answered = answer.end;
        if self.framing == Framing::Http2 {
            self.http2.note(&self.received[..answer.end]);
        }
        Ok(Some(answer))
    }

    /// Makes the error of a connection that has ended, or has answered with an error.
    pub(super) fn no_answer(&self) -> Error {
        let said = String::from_utf8_lossy(&self.received).into_owned();
        Error::peer("server", format!("no response: {said}"))
    }
}

fn http_answer(bytes: &[u8]) -> Option<FramedAnswer> {
    let body = find(bytes, b"\r\n\r\n")? + 4;
    let head = &bytes[..body];
    let length = head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(CONTENT_LENGTH.len())?;
        name.eq_ignore_ascii_case(CONTENT_LENGTH).then(|| number(value))
    });
    let end = body + length.unwrap_or(0);
    (bytes.len() >= end).then(|| FramedAnswer {
        body,
        end,
        is_ok: head.starts_with(b"HTTP/1.1 200 "),
    })
}

const CONTENT_LENGTH: &[u8] = b"content-length:";

fn resp_answer(bytes: &[u8]) -> Option<FramedAnswer> {
    let line = find(bytes, b"\r\n")?;
    let body = line + 2;
    if bytes[0] != b'$' {
        return Some(FramedAnswer { body: 0, end: body, is_ok: false });
    }
    let end = body + number(&bytes[1..line]) + 2;
    (bytes.len() >= end).then_some(FramedAnswer { body, end, is_ok: true })
}

fn postgres_answer(bytes: &[u8]) -> Option<FramedAnswer> {
    let (mut at, mut is_ok) = (0, true);
    loop {
        let (kind, _, next) = postgres_message(bytes, at)?;
        is_ok &= kind != b'E';
        at = next;
        if kind == b'Z' {
            return Some(FramedAnswer { body: 0, end: at, is_ok });
        }
    }
}

/// Reads the message at a place: its kind, where its content is, and where the next one begins. `None`
/// while it is not whole.
pub(super) fn postgres_message(bytes: &[u8], at: usize) -> Option<(u8, &[u8], usize)> {
    let (kind, rest) = bytes.get(at..)?.split_first()?;
    let (length, _) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let content = rest.get(4..length)?;
    Some((*kind, content, at + 1 + length))
}

/// Reads the digits at the begin of a text, after spaces.
fn number(text: &[u8]) -> usize {
    let digits = text.trim_ascii_start().iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}

impl Endpoint {
    /// Sends a request on a connection of its own and returns the body of the answer. Over TCP alone.
    pub(super) fn exchange(&self, request: &[u8]) -> Result<Vec<u8>> {
        let ListenAddress::Tcp(address) = &self.address else {
            return Err(Error::peer("server", "an exchange requires a TCP connection"));
        };
        let trying = || format!("call {address}");
        let mut stream = TcpStream::connect(address).trying(trying)?;
        let mut exchanges = Exchanges::new(self.framing);
        let mut answer = Vec::new();
        for part in self.setup.iter().map(Vec::as_slice).chain([request]) {
            stream.write_all(exchanges.begin(part)).trying(trying)?;
            answer = receive(&mut stream, &mut exchanges)?;
        }
        Ok(answer)
    }

    /// Receives one answer of a connection on which the caller sends, and returns its body.
    pub(super) fn receive(&self, stream: &mut TcpStream) -> Result<Vec<u8>> {
        receive(stream, &mut Exchanges::new(self.framing))
    }
}

fn receive(stream: &mut TcpStream, exchanges: &mut Exchanges) -> Result<Vec<u8>> {
    let mut part = [0; 65_536];
    loop {
        let count = stream.read(&mut part).trying(|| "read a response".to_owned())?;
        exchanges.received.extend_from_slice(&part[..count]);
        match exchanges.end()? {
            Some(FramedAnswer { body, end, .. }) => {
                return Ok(exchanges.received[body..end].to_vec());
            }
            None if count > 0 => {}
            None => return Err(exchanges.no_answer()),
        }
    }
}
