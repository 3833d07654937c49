//! Fuzzing of the protocols of the server: its own listeners in this process, and clients that send what
//! real clients have sent, changed.
//!
//! After each input the connection ends in time, nothing has panicked, nothing was logged as an internal
//! error, and little memory was taken; after each run the server answers as before.

use std::{net::SocketAddr, panic, time::Duration};

use lockstep_engine::Database;
use lockstep_host::{Clock, SystemClock, failpoint};
use lockstep_server::{RunningServer, ServerSettings};
use lockstep_testkit::{
    fuzz::{FuzzOptions, FuzzReport, FuzzStage, MEMORY_BYTES_MAX, memory},
    random::Random,
};

use super::{
    exchange::{PATIENT, QUIET, exchange},
    internal_errors::{self, SEEN},
    mutation::mutate,
    sessions,
    wire_part::{ConversationForm, PartForm, split},
};

/// A protocol of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FuzzedProtocol {
    /// HTTP/1.1 and HTTP/2.
    Http,
    /// That of PostgreSQL.
    Postgres,
    /// Flight SQL, over gRPC.
    Flight,
}

/// A conversation that takes longer is reported, in milliseconds.
const SLOW_MS: u64 = 10_000;

/// Bytes of an input that a report shows.
const SHOWN_BYTES: usize = 1_500;

/// The settings of the server: nobody waits long for a client that does not go on.
const SETTINGS: [(&str, &str); 11] = [
    ("http.listen", "127.0.0.1:0"),
    ("postgres.listen", "127.0.0.1:0"),
    ("flight.listen", "127.0.0.1:0"),
    ("flight.session_timeout_ms", "86400000"),
    ("server.authentication", "none"),
    ("limits.header_timeout_ms", "2000"),
    ("limits.body_timeout_ms", "2000"),
    ("limits.write_timeout_ms", "2000"),
    ("limits.statement_timeout_ms", "3000"),
    ("limits.query_memory_bytes_max", "100000000"),
    ("limits.body_bytes_max", "4000000"),
];

impl FuzzedProtocol {
    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Postgres => "postgres",
            Self::Flight => "flight",
        }
    }

    fn form(self) -> ConversationForm {
        match self {
            Self::Http | Self::Flight => ConversationForm::Http,
            Self::Postgres => ConversationForm::Postgres,
        }
    }

    /// Returns the name of the bug that a server gets for this protocol, which has to be found.
    fn bug(self) -> &'static str {
        match self {
            Self::Http => "http_values_not_counted",
            Self::Postgres => "postgres_length_not_checked",
            Self::Flight => "flight_table_not_checked",
        }
    }
}

/// A server with the conversations that are changed.
#[derive(Debug)]
pub struct ListenerInputs {
    protocol: FuzzedProtocol,
    address: SocketAddr,
    http: SocketAddr,
    conversations: Vec<Vec<u8>>,
    /// Serves until the process ends.
    _server: RunningServer,
}

impl ListenerInputs {
    /// Starts a server, which has a bug if `is_broken`.
    pub fn new(protocol: FuzzedProtocol, is_broken: bool) -> Result<Self, String> {
        if is_broken {
            failpoint::seed(protocol.bug());
        }
        keep_panics();
        internal_errors::keep();
        let database = Database::in_memory();
        let made = database.session().execute(sessions::TABLES);
        made.map_err(|error| error.message.clone())?;
        let mut settings = ServerSettings::default();
        for (key, value) in SETTINGS {
            settings.set(key, value).map_err(|error| error.to_string())?;
        }
        let server = RunningServer::start(database, settings).map_err(|error| error.to_string())?;
        let flight = server.flight_address().ok_or("it listens for Flight")?;
        let address = match protocol {
            FuzzedProtocol::Http => server.http_address(),
            FuzzedProtocol::Postgres => server.postgres_address().ok_or("it listens for it")?,
            FuzzedProtocol::Flight => flight,
        };
        let mut conversations = sessions::recorded(protocol.name())?;
        if protocol == FuzzedProtocol::Flight {
            conversations.extend(sessions::of_own_client(flight)?);
        }
        let http = server.http_address();
        Ok(Self { protocol, address, http, conversations, _server: server })
    }

    /// Returns how many conversations there are.
    pub fn conversation_count(&self) -> usize {
        self.conversations.len()
    }

    /// Sends each conversation as it is; returns the numbers of those that the server does not answer.
    pub fn unanswered(&self) -> Vec<usize> {
        let is_answered = |bytes: &Vec<u8>, quiet| {
            let answer = self.exchange(bytes, quiet);
            answer.is_ok_and(|answer| {
                self.stage(bytes, &answer) == FuzzStage::Compiled && SEEN.lock().is_empty()
            })
        };
        let numbers = 0..self.conversations.len();
        let is_unanswered = |number: &usize| {
            let bytes = &self.conversations[*number];
            !is_answered(bytes, QUIET) && !is_answered(bytes, PATIENT)
        };
        numbers.filter(is_unanswered).collect()
    }

    /// Runs until one of the limits is reached; see `lockstep_testkit::fuzz::run`.
    pub fn run(&self, options: &FuzzOptions<'_>) -> FuzzReport {
        let clock = SystemClock::new();
        let now_ms = || clock.monotonic_ns() / 1_000_000;
        let start_ms = now_ms();
        let mut report = FuzzReport::default();
        while report.executions < options.executions_max
            && now_ms() - start_ms < options.time_ms_max
        {
            let number = options.first + report.executions;
            let mut random = Random::new(options.seed ^ number.wrapping_mul(0x9e37_79b9));
            let session = random.pick(&self.conversations);
            let bytes = mutate(self.protocol.form(), session, &self.conversations, &mut random);
            let text = shown(number, &bytes);
            (options.before)(number, &text);
            let (before, begun_ms) = (memory::start(), now_ms());
            let answer = self.exchange(&bytes, QUIET);
            let (taken, took_ms) = (memory::peak_since(before), now_ms() - begun_ms);
            report.executions += 1;
            report.slowest_ms = report.slowest_ms.max(took_ms);
            report.memory_bytes_max = report.memory_bytes_max.max(taken);
            let slow = (took_ms > SLOW_MS).then(|| format!("slow: {took_ms} ms"));
            let big = (taken > MEMORY_BYTES_MAX).then(|| format!("big: {taken} bytes"));
            match &answer {
                Ok(answer) => {
                    *report.reached.entry(self.stage(&bytes, answer)).or_default() += 1;
                }
                Err(what) => report.add(what.clone(), &text),
            }
            let seen = std::mem::take(&mut *SEEN.lock());
            for what in seen.into_iter().chain(slow).chain(big) {
                report.add(what, &text);
            }
        }
        if let Err(what) = self.check_alive() {
            report.add(what, "the inputs of the run");
        }
        report
    }

    /// Sends bytes; the error is a finding.
    fn exchange(&self, bytes: &[u8], quiet: Duration) -> Result<Vec<u8>, String> {
        let expected = split(self.protocol.form(), bytes)
            .iter()
            .filter(|part| part.form == PartForm::HttpFrame && part.head[0] == HEADERS_FRAME)
            .count();
        let is_answered = |answer: &[u8]| expected > 0 && ended_streams(answer) >= expected;
        let answered = exchange(self.address, bytes, quiet, is_answered);
        let answer = answered.map_err(|error| format!("no connection: {error}"))?;
        if !answer.is_ended {
            return Err("hang: the connection does not end after its client has".to_owned());
        }
        Ok(answer.bytes)
    }

    /// Returns how far an input got: refused without an answer, an error, or an answer.
    fn stage(&self, sent: &[u8], answer: &[u8]) -> FuzzStage {
        let has = |text: &[u8]| answer.windows(text.len()).any(|part| part == text);
        let is_good = match self.protocol {
            FuzzedProtocol::Http if !sent.starts_with(b"PRI") => has(b"HTTP/1.1 200"),
            // A row, or the end of a statement.
            FuzzedProtocol::Postgres => has(b"D\0\0\0") || has(b"C\0\0\0"),
            // A frame with data: an answer, not an error.
            FuzzedProtocol::Http | FuzzedProtocol::Flight => {
                let parts = split(ConversationForm::Http, &framed(answer));
                parts.iter().any(|part| {
                    part.form == PartForm::HttpFrame
                        && part.head[0] == DATA_FRAME
                        && !part.body.is_empty()
                })
            }
        };
        match (is_good, answer.is_empty()) {
            (true, _) => FuzzStage::Compiled,
            (false, false) => FuzzStage::Parsed,
            (false, true) => FuzzStage::Refused,
        }
    }

    /// Asks a deployment. Its answer depends on no row.
    fn check_alive(&self) -> Result<(), String> {
        let body = r#"["x",41,0.5,1]"#;
        let length = body.len();
        let request = format!(
            "POST /v1/deployments/plain HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        let answer =
            exchange(self.http, request.as_bytes(), PATIENT, |answer| answer.ends_with(b"]"));
        let answer = answer.map_err(|error| format!("the server is gone: {error}"))?.bytes;
        if answer.ends_with(br#"["x",41,42]"#) {
            return Ok(());
        }
        Err(format!("the server does not answer as before: {}", String::from_utf8_lossy(&answer)))
    }
}

const DATA_FRAME: u8 = 0;
const HEADERS_FRAME: u8 = 1;
const RESET_FRAME: u8 = 3;
/// The flag of a frame that is the last of its stream.
const END_STREAM: u8 = 1;

/// Returns the frames of a server as a conversation that begins as that of a client.
fn framed(answer: &[u8]) -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", answer].concat()
}

/// Counts the streams that the server has ended.
fn ended_streams(answer: &[u8]) -> usize {
    let parts = split(ConversationForm::Http, &framed(answer));
    let frames = parts.iter().filter(|part| part.form == PartForm::HttpFrame);
    let is_end = |kind: u8, flags: u8| match kind {
        DATA_FRAME | HEADERS_FRAME => flags & END_STREAM != 0,
        kind => kind == RESET_FRAME,
    };
    frames.filter(|part| is_end(part.head[0], part.head[1])).count()
}

/// Returns an input as text: its number and its bytes, with escapes.
fn shown(number: u64, bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SHOWN_BYTES)];
    format!("input {number}, {} bytes: {}", bytes.len(), cut.escape_ascii())
}

/// The panics of all threads are findings, whoever catches them; except those of Arrow's readers, which
/// the server expects. Where it does not, it logs an internal error. They are printed, too: one may be
/// that of a test which judges the run.
fn keep_panics() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let is_expected = panic.location().is_some_and(|at| at.file().contains("/arrow-"));
        if !is_expected {
            SEEN.lock().push(format!("panic: {panic}"));
            print(panic);
        }
    }));
}
