//! A session: it reads messages and answers them, until the client or the server ends it.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Kind, Span, code};
use lockstep_engine::{Session, guarded};
use lockstep_function::Zone;

use super::{
    ClientFailure,
    cancel::{CancelKey, CancellableCall},
    client_settings::ClientSettings,
    command::ClientCommand,
    deployment_call::DescribedAnswer,
    execution::StatementAnswer,
    fatal_error,
    frame::{FrameError, FrameStream},
    message::ClientMessage,
    portal::PreparedObjects,
    response::{
        RowFormat, Severity, bare, character_position, command_complete, ready_for_query, report,
        row_description,
    },
    rows::{RowCursor, SendMore},
    script::{Script, TokenCursor},
    session_start::SessionStart,
    token::SqlTokenKind,
    transaction::{BlockSettings, Transaction},
    value_input::{InputRules, WireFormat},
};
use crate::{
    call_id::CallId, connections::Activity, deployments::DeploymentCache, phase::Phase,
    server_state::ServerState,
};

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
    pub(crate) block: BlockSettings,
    pub(crate) has_warned: bool,
    pub(crate) objects: PreparedObjects,
    /// The statement that runs, where it is traced or has an id.
    pub(crate) call: Option<CallId>,
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

/// Fails where a statement of a script has a parameter: only Bind gives values to them.
fn check_unbound(statement: TokenCursor<'_>) -> Result<(), Box<Diagnostic>> {
    let mut tokens = statement.tokens().iter();
    let Some(token) = tokens.find(|token| token.kind == SqlTokenKind::Parameter) else {
        return Ok(());
    };
    let message = format!("there is no parameter {}", token.text(statement.sql()));
    Diagnostic::new(code::UNDEFINED_PARAMETER, message)
        .with_kind(Kind::FixRequest)
        .at(Span::new(token.start(), token.end()))
        .with_hint("Use the extended query protocol, which binds values to parameters.")
        .err()
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
            block: BlockSettings::default(),
            has_warned: false,
            objects: PreparedObjects::default(),
            call: None,
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
        if error.code == code::PROTOCOL_VIOLATION {
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
        let script = match guarded(|| Script::of_session(sql, &self.session)) {
            Ok(script) => script,
            Err(error) => {
                let failure = ClientFailure::Error(error);
                self.begin_statement(sql);
                self.end_trace(sql, Some(&failure));
                return Err(failure);
            }
        };
        let mut is_empty = true;
        for statement in script.statements() {
            is_empty = false;
            let begun_ns = self.begin_statement(script.text_behind(statement));
            let read = check_unbound(statement).and_then(|()| ClientCommand::read(statement));
            if let Some(trace) = self.trace() {
                trace.phase_since("parse", begun_ns);
            }
            let done = match read {
                Ok(command) => self.run_statement(&command).await,
                Err(error) => Err(error.into()),
            };
            self.end_statement(begun_ns, statement.text(), &done);
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
        if let Some(translation) = command.subscription() {
            return self.send_subscription(translation).await;
        }
        if let ClientCommand::FunctionCall(call) = command
            && let Some(rows) = self.call_here(call, &[], &[], DescribedAnswer::Missing)?
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
            let begun_ns = self.state.clock.monotonic_ns();
            self.send_rows(&mut rows, &[], usize::MAX).await?;
            self.trace_rows(begun_ns, rows.sent);
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
