//! A server on a free port for tests, and a client that speaks HTTP/1.1 over a socket of its own.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

use lockstep_engine::Database;
use lockstep_host::JoinHandle;
use lockstep_server::{DrainOutcome, RunningServer, ServerHandle, ServerSettings};

/// A running server, which is ended when it is dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) postgres: SocketAddr,
    pub(crate) handle: ServerHandle,
    pub(crate) database: Database,
    pub(crate) start_token: Option<String>,
    waiting: Option<JoinHandle<DrainOutcome>>,
}

impl TestServer {
    /// Starts a server on a free port of loopback, with these settings and after these statements. It
    /// asks nobody for a password, unless the settings say so.
    pub(crate) fn start(settings: &[(&str, &str)], setup: &str) -> Self {
        let database = Database::in_memory();
        database.session().execute(setup).unwrap();
        Self::of(database, settings)
    }

    /// Starts a server of a database.
    pub(crate) fn of(database: Database, pairs: &[(&str, &str)]) -> Self {
        let mut settings = ServerSettings::default();
        settings.set("http.listen", "127.0.0.1:0").unwrap();
        settings.set("postgres.listen", "127.0.0.1:0").unwrap();
        settings.set("flight.listen", "127.0.0.1:0").unwrap();
        settings.set("server.authentication", "none").unwrap();
        for (key, value) in pairs {
            settings.set(key, value).unwrap();
        }
        let server = RunningServer::start(database.clone(), settings).unwrap();
        let (address, handle) = (server.http_address(), server.handle());
        let postgres = server.postgres_address().unwrap();
        let start_token = server.start_token().map(str::to_owned);
        let waiting = lockstep_host::spawn("waits", move || server.wait()).unwrap();
        Self { address, postgres, handle, database, start_token, waiting: Some(waiting) }
    }

    /// Opens a connection.
    pub(crate) fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).unwrap())
    }

    /// Sends one request over a connection of its own.
    pub(crate) fn send(&self, request: Request<'_>) -> Reply {
        self.connect().send(request)
    }

    /// Waits for the end of the server.
    pub(crate) fn wait(mut self) -> DrainOutcome {
        self.waiting.take().unwrap().join().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            self.handle.drain();
            self.handle.stop();
            waiting.join().unwrap();
        }
    }
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'r> {
    pub(crate) method: &'r str,
    pub(crate) path: &'r str,
    pub(crate) headers: &'r [(&'r str, &'r str)],
    pub(crate) body: &'r [u8],
}

/// Makes a request without a body.
pub(crate) fn get(path: &str) -> Request<'_> {
    Request { method: "GET", path, headers: &[], body: b"" }
}

/// Makes a request with a body.
pub(crate) fn post<'r>(path: &'r str, body: &'r (impl AsRef<[u8]> + ?Sized)) -> Request<'r> {
    Request { method: "POST", path, headers: &[], body: body.as_ref() }
}

impl<'r> Request<'r> {
    /// Sets the headers.
    pub(crate) fn with(self, headers: &'r [(&'r str, &'r str)]) -> Self {
        Self { headers, ..self }
    }

    /// Returns the bytes of the request.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", self.method, self.path);
        for (name, value) in self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        [head.as_bytes(), self.body].concat()
    }
}

/// A connection.
pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: BufReader<S>,
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Sends a request and reads the reply.
    pub(crate) fn send(&mut self, request: Request<'_>) -> Reply {
        self.stream.get_mut().write_all(&request.bytes()).unwrap();
        self.reply().expect("the server replies")
    }

    /// Reads a reply; `None` where the server has closed the connection.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        // Bytes that are no HTTP are no reply.
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut reply = Reply { status, headers, body: Vec::new() };
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                reply.body.extend_from_slice(&chunk);
            }
            return Some(reply);
        }
        let size = reply.header("content-length").map_or(0, |text| text.parse().unwrap());
        reply.body = vec![0; size];
        self.stream.read_exact(&mut reply.body).ok()?;
        Some(reply)
    }

    /// Reads the next part of a body that is sent in chunks; `None` after the last one.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok()?;
        let size = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let mut chunk = vec![0; size + 2];
        self.stream.read_exact(&mut chunk).ok()?;
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// Sends a request and reads the status and the headers of the reply.
    pub(crate) fn begin(&mut self, request: Request<'_>) -> String {
        self.stream.get_mut().write_all(&request.bytes()).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && self.stream.read_line(&mut head).unwrap() > 0 {}
        head
    }

    /// Returns whether the server closes the connection without another reply.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.stream.fill_buf().map_or(true, <[u8]>::is_empty)
    }
}

/// A reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Returns a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the SQLSTATE of an error.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }
}
