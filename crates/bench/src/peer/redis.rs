//! Redis: a server, without persistence unless a workload is about it, and its protocol.
//!
//! A client puts several commands into one write and reads their replies in order; replies stay in
//! the receive buffer until the next write, so that nothing is copied.

use std::{
    io::{Read as _, Write as _},
    ops::Range,
    os::unix::net::UnixStream,
    path::Path,
    process::Command,
};

use super::{
    folder::TemporaryFolder,
    server::{Server, program},
};
use crate::error::{Error, Result, Trying};

const NAME: &str = "redis";

/// A running server.
#[derive(Debug)]
pub(crate) struct Redis {
    server: Server,
    persistence: RedisPersistence,
}

/// What a server keeps on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedisPersistence {
    /// Nothing.
    None,
    /// What SAVE writes (RDB).
    Snapshots,
    /// Every command (AOF), synced each second, and never rewritten.
    LogEverySecond,
    /// Every command, synced before it is answered.
    LogAlways,
}

impl RedisPersistence {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::None | Self::Snapshots => &["--appendonly", "no"],
            Self::LogEverySecond => {
                &["--appendonly", "yes", "--appendfsync", "everysec", NO_REWRITE, "0"]
            }
            Self::LogAlways => &["--appendonly", "yes", "--appendfsync", "always", NO_REWRITE, "0"],
        }
    }
}

const NO_REWRITE: &str = "--auto-aof-rewrite-percentage";

impl Redis {
    /// Starts an empty server.
    pub(crate) fn start() -> Result<Self> {
        Self::start_with(RedisPersistence::None)
    }

    /// Starts an empty server that keeps its data.
    pub(crate) fn start_with(persistence: RedisPersistence) -> Result<Self> {
        let scratch = TemporaryFolder::new(NAME)?;
        let socket = scratch.path().join("socket");
        let mut command = command(scratch.path(), persistence)?;
        let server = Server::start(NAME, &mut command, socket, scratch, |_| Some(()))?;
        Ok(Self { server, persistence })
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.server.crash(libc::SIGKILL)
    }

    /// Starts the server again and waits until `answer` gives a value: while the server reads its
    /// data, every command is an error.
    pub(crate) fn restart<T>(&mut self, answer: impl Fn(&mut Resp) -> Result<T>) -> Result<T> {
        let mut command = command(self.server.folder(), self.persistence)?;
        self.server.restart(&mut command, |stream| answer(&mut Resp::new(stream)).ok())
    }

    /// Returns the folder of its data.
    pub(crate) fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// Returns a connection.
    pub(crate) fn connect(&self) -> Result<Resp> {
        Ok(Resp::new(self.server.connect()?))
    }

    /// Returns the memory of the data, as the server states it, in bytes.
    pub(crate) fn used_bytes(&self) -> Result<u64> {
        let mut resp = self.connect()?;
        resp.command(&[b"INFO", b"memory"]);
        resp.send()?;
        let Reply::Bulk(text) = resp.reply()? else {
            return Err(Error::peer(NAME, "INFO did not return a string"));
        };
        let text = String::from_utf8_lossy(resp.bytes(text)).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
        let bytes = line.and_then(|bytes| bytes.trim().parse().ok());
        bytes.ok_or_else(|| Error::peer(NAME, "INFO did not return used_memory"))
    }
}

/// Returns the command that starts a server on a folder.
fn command(folder: &Path, persistence: RedisPersistence) -> Result<Command> {
    let mut command = Command::new(program(NAME, "redis-server")?);
    command.args(["--port", "0", "--save", ""]).args(persistence.arguments());
    command.arg("--unixsocket").arg(folder.join("socket")).current_dir(folder);
    Ok(command)
}

/// One reply. An array's elements are the replies that follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// An integer.
    Int(i64),
    /// A text, as a range of the connection's buffer.
    Bulk(Range<usize>),
    /// Nothing.
    Nil,
    /// The number of replies that follow.
    Array(usize),
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Resp {
    stream: UnixStream,
    out: Vec<u8>,
    input: Vec<u8>,
    at: usize,
}

impl Resp {
    fn new(stream: UnixStream) -> Self {
        Self { stream, out: Vec::new(), input: Vec::new(), at: 0 }
    }

    /// Adds a command to what is sent next.
    pub(crate) fn command(&mut self, parts: &[&[u8]]) {
        self.head(b'*', parts.len());
        for part in parts {
            self.head(b'$', part.len());
            self.out.extend(*part);
            self.out.extend(b"\r\n");
        }
    }

    fn head(&mut self, kind: u8, count: usize) {
        self.out.push(kind);
        write!(self.out, "{count}\r\n").expect("a vector takes everything");
    }

    /// Returns the number of bytes that are not yet sent.
    pub(crate) fn pending(&self) -> usize {
        self.out.len()
    }

    /// Sends the commands, and discards earlier replies.
    pub(crate) fn send(&mut self) -> Result<()> {
        self.input.clear();
        self.at = 0;
        self.stream.write_all(&self.out).trying(|| format!("write to {NAME}"))?;
        self.out.clear();
        Ok(())
    }

    /// Reads the next reply.
    pub(crate) fn reply(&mut self) -> Result<Reply> {
        let line = self.line()?;
        let kind = self.input[line.start];
        let text = line.start + 1..line.end;
        match kind {
            b'-' => Err(Error::peer(NAME, String::from_utf8_lossy(&self.input[text]))),
            b'+' => Ok(Reply::Bulk(text)),
            b':' => Ok(Reply::Int(self.number(text))),
            b'$' => match usize::try_from(self.number(text)) {
                Ok(length) => {
                    self.fill(length + 2)?;
                    let bulk = self.at..self.at + length;
                    self.at += length + 2;
                    Ok(Reply::Bulk(bulk))
                }
                Err(_) => Ok(Reply::Nil),
            },
            _ => Ok(usize::try_from(self.number(text)).map_or(Reply::Nil, Reply::Array)),
        }
    }

    /// Reads a reply that is a text.
    pub(crate) fn bulk(&mut self) -> Result<Range<usize>> {
        match self.reply()? {
            Reply::Bulk(place) => Ok(place),
            other => Err(Error::peer(NAME, format!("expected a string, found {other:?}"))),
        }
    }

    /// Reads a reply that is an integer.
    pub(crate) fn int(&mut self) -> Result<i64> {
        match self.reply()? {
            Reply::Int(value) => Ok(value),
            other => Err(Error::peer(NAME, format!("expected a number, found {other:?}"))),
        }
    }

    /// Reads a reply that is an array and returns its length.
    pub(crate) fn array(&mut self) -> Result<usize> {
        match self.reply()? {
            Reply::Array(count) => Ok(count),
            other => Err(Error::peer(NAME, format!("expected an array, found {other:?}"))),
        }
    }

    /// Returns the bytes of a text.
    pub(crate) fn bytes(&self, place: Range<usize>) -> &[u8] {
        &self.input[place]
    }

    /// Reads and discards the replies of `count` commands, none of which returns an array.
    pub(crate) fn skip(&mut self, count: usize) -> Result<()> {
        (0..count).try_for_each(|_| self.reply().map(drop))
    }

    fn number(&self, place: Range<usize>) -> i64 {
        let text = &self.input[place];
        let (sign, digits) = match text.split_first() {
            Some((b'-', digits)) => (-1, digits),
            _ => (1, text),
        };
        sign * digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
    }

    /// Reads the next line and returns its range, without its end.
    fn line(&mut self) -> Result<Range<usize>> {
        let start = self.at;
        let mut looked = start;
        loop {
            if let Some(length) = self.input[looked..].iter().position(|byte| *byte == b'\r') {
                let end = looked + length;
                self.fill(end + 2 - start)?;
                self.at = end + 2;
                return Ok(start..end);
            }
            looked = self.input.len();
            self.fill(looked - start + 1)?;
        }
    }

    /// Reads until the buffer has `count` bytes after `at`.
    fn fill(&mut self, count: usize) -> Result<()> {
        let wanted = self.at + count;
        while self.input.len() < wanted {
            let have = self.input.len();
            self.input.resize(have + 65_536, 0);
            let read = self.stream.read(&mut self.input[have..]);
            let read = read.trying(|| format!("read from {NAME}"))?;
            self.input.truncate(have + read);
            if read == 0 {
                return Err(Error::peer(NAME, "the server closed the connection"));
            }
        }
        Ok(())
    }
}
