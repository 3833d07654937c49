//! A session: it reads messages and answers them, until the client or the server ends it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_engine::{ClientInfo, Session, guarded};
use lockstep_function::Zone;

use super::{
    ClientFailure,
    cancel::{CancelKey, CancellableCall},
    client_settings::{ClientSettings, SettingChange},
    command::ClientCommand,
    execution::{StatementAnswer, Transaction},
    fatal_error,
    frame::{FrameError, FrameStream},
    login::{LoginRequest, log_in, readable_token},
    message::{ClientMessage, PROTOCOL_VIOLATION},
    portal::PreparedObjects,
    response::{
        RowFormat, Severity, bare, character_position, command_complete, message, parameter_status,
        ready_for_query, report, row_description,
    },
    rows::{RowCursor, SendMore},
    script::Script,
    startup::ConnectionOpener,
    translation::push_string,
    value_input::{InputRules, WireFormat},
};
use crate::{
    connections::Activity, deployments::DeploymentCache, phase::Phase, protocol::Protocol,
    server_state::ServerState,
};

/// The setting with which a client says that it sends a token.
const AUTHENTICATION: &str = "lockstep.authentication";

/// A session that was opened and has not begun.
#[derive(Debug)]
pub(crate) struct SessionStart {
    session: Arc<Session>,
    settings: ClientSettings,
    running: Arc<CancellableCall>,
    key: CancelKey,
}

impl SessionStart {
    /// Logs a client in, and writes what it is told before its first message.
    pub(crate) async fn new(
        state: &Arc<ServerState>,
        opener: &mut ConnectionOpener<'_>,
        parameters: &BTreeMap<String, String>,
        address: IpAddr,
    ) -> Result<Self, ClientFailure> {
        let user = parameters.get("user").map_or("", String::as_str);
        if user.is_empty() {
            let message = "no user name is in the startup packet";
            return Ok(Diagnostic::new(code::INVALID_AUTHORIZATION, message).err()?);
        }
        let requested = requested_settings(parameters)?;
        let has_token =
            requested.iter().any(|(name, value)| name == AUTHENTICATION && value == "token");
        if has_token && !opener.is_encrypted && !address.to_canonical().is_loopback() {
            return Ok(readable_token().err()?);
        }
        let client = ClientInfo {
            address: Some(address.to_canonical().to_string()),
            application: parameters.get("application_name").cloned(),
            protocol: Some(Protocol::PostgreSql.name().to_owned()),
        };
        let request = LoginRequest { user, has_token, address, client };
        let session = log_in(state, &mut opener.frames, request).await?;
        use_database(&session, parameters.get("database").map_or(user, String::as_str), user)?;
        let mut settings = ClientSettings::default();
        settings.fix("session_authorization", session.user());
        for (name, value) in &requested {
            apply_setting(&session, &mut settings, name, Some(value))?;
        }
        let running = Arc::<CancellableCall>::default();
        let key = state.cancel_keys.register(session.id(), &running);
        let start = Self { session: Arc::new(session), settings, running, key };
        start.write(&mut opener.frames.output);
        Ok(start)
    }

    fn write(&self, out: &mut Vec<u8>) {
        for (name, value) in self.settings.reported() {
            parameter_status(out, name, value);
        }
        parameter_status(out, "TimeZone", &zone_name(&self.session));
        message(out, b'K', |out| {
            out.extend_from_slice(&self.key.process.to_be_bytes());
            out.extend_from_slice(&self.key.secret.to_be_bytes());
        });
        ready_for_query(out, Transaction::Idle.status());
    }
}

/// Returns the settings that a startup packet wants, in order.
fn requested_settings(parameters: &BTreeMap<String, String>) -> Result<Vec<(String, String)>> {
    let mut requested = Vec::new();
    for (name, value) in parameters {
        match name.as_str() {
            "user" | "database" => {}
            "options" => requested.extend(options(value)?),
            "replication" if !["false", "off", "no", "0"].contains(&value.as_str()) => {
                return Diagnostic::unsupported("replication connections are not supported").err();
            }
            name if name == "replication" || name.starts_with("_pq_.") => {}
            name => requested.push((name.to_owned(), value.clone())),
        }
    }
    Ok(requested)
}

/// Reads `-c name=value --name=value`; a backslash is before a blank of a value.
fn options(text: &str) -> Result<Vec<(String, String)>> {
    let mut words: Vec<String> = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let word = words.last_mut().expect("there is a word");
        match character {
            '\\' => word.extend(characters.next()),
            character if character.is_whitespace() => words.push(String::new()),
            character => word.push(character),
        }
    }
    let mut settings = Vec::new();
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let pair = match word.strip_prefix("--") {
            Some(rest) => rest.to_owned(),
            None if word == "-c" => words.next().unwrap_or_default(),
            None => word.strip_prefix("-c").unwrap_or_default().to_owned(),
        };
        let Some((name, value)) = pair.split_once('=') else {
            let message = format!("invalid command-line argument for server process: {word}");
            return Diagnostic::new(code::SYNTAX_ERROR, message).err();
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

/// Lets a session begin in a database. A client that names none, or that of PostgreSQL's installation,
/// begins in the default one.
fn use_database(session: &Session, name: &str, user: &str) -> Result<()> {
    if name.contains('`') {
        let message = format!("database \"{name}\" does not exist");
        return Diagnostic::new(code::UNDEFINED_DATABASE, message).err();
    }
    let used = guarded(|| session.execute(&format!("USE `{name}`")));
    match used {
        Err(error) if error.code == code::UNDEFINED_DATABASE => {
            if name == user || name == "postgres" || name.is_empty() { Ok(()) } else { Err(error) }
        }
        other => other.map(drop),
    }
}

/// Returns the name of a session's time zone.
pub(crate) fn zone_name(session: &Session) -> String {
    session.conversion().settings().time_zone.to_string()
}

/// Sets a setting of PostgreSQL or of the engine; `None` is the default. Returns the name and the value
/// where clients are told.
pub(crate) fn apply_setting(
    session: &Session,
    settings: &mut ClientSettings,
    name: &str,
    value: Option<&str>,
) -> Result<Option<(&'static str, String)>> {
    let is_zone = name.eq_ignore_ascii_case("timezone");
    match settings.set(name, value)? {
        SettingChange::Same => return Ok(None),
        SettingChange::Reported(name, value) => return Ok(Some((name, value))),
        // Settings of extensions have dots, and no effect here.
        SettingChange::NotFound if name.contains('.') => return Ok(None),
        SettingChange::NotFound => {}
    }
    let name = if is_zone { "time_zone" } else { name };
    if name.contains('`') {
        let message = format!("unrecognized configuration parameter \"{name}\"");
        return Diagnostic::new(code::UNDEFINED_OBJECT, message).err();
    }
    let default = match (is_zone, name) {
        (true, _) => "UTC",
        (_, "statement_timeout") => "0",
        _ => "",
    };
    let mut sql = format!("SET {name} = ");
    push_string(&mut sql, value.unwrap_or(default));
    guarded(|| session.execute(&sql)).map_err(|mut error| {
        // The position is one of this text.
        error.span = None;
        error
    })?;
    Ok(is_zone.then(|| ("TimeZone", zone_name(session))))
}

/// Forgets the key of a connection when it ends.
#[derive(Debug)]
struct KeyGuard {
    state: Arc<ServerState>,
    key: CancelKey,
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        self.state.cancel_keys.remove(self.key);
    }
}

/// A connection with a session.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) state: Arc<ServerState>,
    pub(crate) frames: FrameStream,
    pub(crate) session: Arc<Session>,
    pub(crate) deployments: DeploymentCache,
    pub(crate) settings: ClientSettings,
    pub(crate) running: Arc<CancellableCall>,
    pub(crate) transaction: Transaction,
    pub(crate) has_warned: bool,
    pub(crate) objects: PreparedObjects,
    activity: Arc<Activity>,
    key: KeyGuard,
    /// Whether messages are skipped up to the next Sync, after an error.
    is_skipping: bool,
}

/// Whether the session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    Open,
    Ended,
}

impl Connection {
    /// Makes it of a session that was opened.
    pub(crate) fn new(
        state: Arc<ServerState>,
        frames: FrameStream,
        activity: Arc<Activity>,
        start: SessionStart,
    ) -> Self {
        let key = KeyGuard { state: Arc::clone(&state), key: start.key };
        Self {
            state,
            frames,
            session: start.session,
            deployments: DeploymentCache::default(),
            settings: start.settings,
            running: start.running,
            transaction: Transaction::Idle,
            has_warned: false,
            objects: PreparedObjects::default(),
            activity,
            key,
            is_skipping: false,
        }
    }

    /// Returns the number of the connection, for `pg_backend_pid()`.
    pub(crate) fn process(&self) -> i32 {
        self.key.key.process
    }

    /// Serves the client until the session ends.
    pub(crate) async fn run(mut self) {
        if let Err(error) = self.serve().await
            && let Some(error) = fatal_error(&self.state, &error)
        {
            self.end(&error).await;
        }
    }

    async fn serve(&mut self) -> Result<(), FrameError> {
        let state = Arc::clone(&self.state);
        self.frames.flush().await?;
        loop {
            let bytes_max = state.settings().body_bytes_max;
            let frame = tokio::select! {
                biased;
                frame = self.frames.read_frame(bytes_max) => frame?,
                () = state.phase.reached(Phase::Draining) => {
                    let message = "terminating connection: the server is shutting down";
                    let error = Diagnostic::new(code::SESSION_ENDED, message);
                    self.end(&error.with_kind(Kind::Retry)).await;
                    return Ok(());
                }
            };
            let call = self.activity.begin_call();
            let kind = frame.kind;
            let answered = match ClientMessage::read(frame) {
                Ok(message) => self.answer_message(message).await?,
                Err(error) => self.refuse_message(kind, &error).await?,
            };
            drop(call);
            if answered == ConnectionState::Ended {
                return Ok(());
            }
        }
    }

    /// Tells the client why its connection ends, and ends it.
    async fn end(&mut self, error: &Diagnostic) {
        report(&mut self.frames.output, Severity::Fatal, error, None);
        self.frames.close().await;
    }

    /// Answers a message whose body is not as expected.
    async fn refuse_message(
        &mut self,
        kind: u8,
        error: &Diagnostic,
    ) -> Result<ConnectionState, FrameError> {
        match kind {
            b'Q' => {
                self.report_error(error, "");
                self.ready().await?;
            }
            b'P' | b'B' | b'D' | b'E' | b'C' => self.fail_extended(error, "").await?,
            _ => {
                self.end(error).await;
                return Ok(ConnectionState::Ended);
            }
        }
        Ok(ConnectionState::Open)
    }

    async fn answer_message(
        &mut self,
        message: ClientMessage,
    ) -> Result<ConnectionState, FrameError> {
        match message {
            ClientMessage::Terminate => return Ok(ConnectionState::Ended),
            ClientMessage::Sync => {
                self.is_skipping = false;
                if self.transaction == Transaction::Idle {
                    self.objects.clear_portals();
                }
                self.ready().await?;
            }
            _ if self.is_skipping => {}
            ClientMessage::Query(sql) => self.query(&sql).await?,
            ClientMessage::Flush => self.frames.flush().await?,
            // What is left of a COPY that has failed.
            ClientMessage::CopyData | ClientMessage::CopyEnd => {}
            other => {
                let mut sql = Arc::from("");
                match self.extended(other, &mut sql).await {
                    Ok(()) => {}
                    Err(ClientFailure::Connection(error)) => return Err(error),
                    Err(ClientFailure::Error(error)) => self.fail_extended(&error, &sql).await?,
                }
                self.frames.flush_full().await?;
            }
        }
        if let Err(error) = self.session.check_present() {
            self.end(&error).await;
            return Ok(ConnectionState::Ended);
        }
        Ok(ConnectionState::Open)
    }

    /// Reports an error of the extended protocol: what follows is skipped up to the next Sync. The
    /// client may wait for the error before it sends that.
    async fn fail_extended(&mut self, error: &Diagnostic, sql: &str) -> Result<(), FrameError> {
        if error.code == PROTOCOL_VIOLATION {
            self.objects.clear_portals();
        }
        self.report_error(error, sql);
        self.is_skipping = true;
        self.frames.flush().await
    }

    /// Writes an error, whose position is one of this text.
    pub(crate) fn report_error(&mut self, error: &Diagnostic, sql: &str) {
        let is_placed = !sql.is_empty();
        let span = error.span.filter(|_| is_placed);
        let position = span.map(|span| character_position(sql, span.start));
        report(&mut self.frames.output, Severity::Error, error, position);
        self.transaction.fail();
    }

    /// Writes that the next message may come.
    async fn ready(&mut self) -> Result<(), FrameError> {
        ready_for_query(&mut self.frames.output, self.transaction.status());
        self.frames.flush().await
    }

    /// Runs a script: the simple protocol.
    async fn query(&mut self, sql: &str) -> Result<(), FrameError> {
        self.objects.remove_statement("");
        self.objects.remove_portal("");
        match self.run_script(sql).await {
            Ok(()) => {}
            Err(ClientFailure::Connection(error)) => return Err(error),
            Err(ClientFailure::Error(error)) => self.report_error(&error, sql),
        }
        if self.transaction == Transaction::Idle {
            self.objects.clear_portals();
        }
        self.ready().await
    }

    async fn run_script(&mut self, sql: &str) -> Result<(), ClientFailure> {
        let script = guarded(|| Script::new(sql))?;
        let mut is_empty = true;
        for statement in script.statements() {
            is_empty = false;
            let begun_ns = self.state.clock.monotonic_ns();
            let done = match ClientCommand::read(statement) {
                Ok(command) => self.run_statement(&command).await,
                Err(error) => Err(error.into()),
            };
            self.record(begun_ns, statement.text(), done.is_err());
            done?;
        }
        if is_empty {
            bare(&mut self.frames.output, b'I');
        }
        Ok(())
    }

    /// Runs a statement of the simple protocol and writes its answer.
    async fn run_statement(&mut self, command: &ClientCommand) -> Result<(), ClientFailure> {
        self.check_transaction(command)?;
        if let ClientCommand::Copy(copy) = command {
            return self.copy(copy).await;
        }
        if let ClientCommand::FunctionCall(call) = command
            && let Some(rows) = self.call_here(call, &[], &[], true)?
        {
            command_complete(&mut self.frames.output, &format!("SELECT {rows}"));
            return Ok(());
        }
        let answer = self.answer(command, &[], None).await?;
        if let Some(rows) = &answer.rows {
            row_description(&mut self.frames.output, &rows.columns, &[]);
        }
        self.write_answer(answer).await
    }

    /// Writes all rows of an answer and its end.
    async fn write_answer(&mut self, answer: StatementAnswer) -> Result<(), ClientFailure> {
        self.write_notices(&answer);
        let mut tag = answer.tag;
        if let Some(mut rows) = answer.rows {
            self.send_rows(&mut rows, &[], usize::MAX).await?;
            tag = format!("{tag} {}", rows.sent);
        }
        command_complete(&mut self.frames.output, &tag);
        Ok(())
    }

    /// Writes the notices of an answer.
    pub(crate) fn write_notices(&mut self, answer: &StatementAnswer) {
        for (severity, notice) in &answer.notices {
            report(&mut self.frames.output, *severity, notice, None);
        }
    }

    /// Writes the next rows, up to `rows_max`.
    pub(crate) async fn send_rows(
        &mut self,
        rows: &mut RowCursor,
        formats: &[WireFormat],
        rows_max: usize,
    ) -> Result<(), ClientFailure> {
        let (columns, zone) = (Arc::clone(&rows.columns), self.zone());
        let format = RowFormat { columns: &columns, formats, zone };
        let mut left = rows_max;
        while left > 0 && !rows.is_end() {
            let out = &mut self.frames.output;
            rows.send(|row| {
                format.data_row(out, row)?;
                left -= 1;
                let is_full = left == 0 || out.len() >= super::frame::OUTPUT_BYTES;
                Ok(if is_full { SendMore::No } else { SendMore::Yes })
            })?;
            self.frames.flush_full().await?;
        }
        Ok(())
    }

    /// Returns the time zone of the session.
    pub(crate) fn zone(&self) -> Zone {
        Zone::new(self.session.conversion().settings().time_zone)
    }

    /// Returns the rules by which values of the client are read.
    pub(crate) fn input_rules(&self) -> InputRules {
        InputRules { conversion: self.session.conversion(), zone: self.zone() }
    }
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn options_are_read() {
        let found = options("-c a=1 -cb=x\\ y --c-d=2").unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(found, [pair("a", "1"), pair("b", "x y"), pair("c_d", "2")]);
        assert!(options("").unwrap().is_empty());
        for wrong in ["-c", "-x", "a=1", "-c a"] {
            assert_eq!(options(wrong).unwrap_err().code, "42601", "{wrong}");
        }
    }
}
