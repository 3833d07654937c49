//! `DoPut`: rows into tables, parameters, and statements without rows.
//!
//! The messages are read and decoded on the thread that writes the rows, one after another, so that rows
//! of any number need the memory of one batch besides what the table stores. While the next message has
//! not arrived, the write is parked: it keeps its thread, but leaves its place in the pool to others. It
//! is decoded when the write has a place again.

use std::{sync::Arc, time::Duration};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use arrow_flight::{
    FlightData, PutResult,
    decode::{DecodedFlightData, DecodedPayload, FlightDataDecoder},
    error::{FlightError, Result as FlightResult},
    sql::{
        Any, Command, CommandStatementIngest, DoPutPreparedStatementResult, DoPutUpdateResult,
        TableDefinitionOptions, TableExistsOption, TableNotExistOption,
    },
};
use futures::{
    FutureExt, Stream, StreamExt,
    stream::{self, BoxStream},
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::{
    CreationOptions, Durability, IfExists, Output, Session, StorageMode, TableBatches,
};
use lockstep_host::{failpoint, query};
use lockstep_protocol::{Append, AppendCreates, NamedMessage};
use lockstep_row::arrow::{MessageLimits, check_message, decoded};
use prost::Message;
use tokio::{runtime::Handle, sync::mpsc};
use tonic::{Request, Status, Streaming};

use super::{
    arrow_bytes::parameter_rows,
    call::{CallDeadline, FlightCall},
    prepared::ParameterRows,
    rows::CHECK_INTERVAL,
    statements::{outcome_of, view_of},
    status::malformed,
};
use crate::{server_state::ServerState, work_pool::WorkClass};

/// The option of an ingest that says what it waits for.
const DURABILITY_OPTION: &str = "durability";

/// The option of an ingest that says where the rows of a table lie that it creates.
const STORAGE_OPTION: &str = "storage_mode";

/// The messages of a `DoPut` after the first one, read on the thread that uses them.
struct PutReader {
    messages: PutMessages,
    /// Passes a message that has arrived on to the decoder, which takes it at once.
    arrived: mpsc::UnboundedSender<FlightData>,
    decoder: FlightDataDecoder,
    state: Arc<ServerState>,
    runtime: Handle,
    timeout: Duration,
    /// How many bytes may be collected.
    bytes_max: usize,
}

/// A message of a client, or why there is none.
type PutMessage = std::result::Result<FlightData, Status>;

/// The messages of a client.
type PutMessages = BoxStream<'static, PutMessage>;

impl PutReader {
    /// Makes it for work of the class [`WorkClass::Writes`]. To be called where the runtime of the server
    /// is entered.
    fn new(
        messages: impl Stream<Item = PutMessage> + Send + 'static,
        state: &Arc<ServerState>,
    ) -> Self {
        let settings = state.settings();
        let (arrived, mut receiver) = mpsc::unbounded_channel::<FlightData>();
        let received =
            stream::poll_fn(move |cx| receiver.poll_recv(cx).map(|message| message.map(Ok)));
        Self {
            messages: messages.boxed(),
            arrived,
            decoder: FlightDataDecoder::new(received),
            state: Arc::clone(state),
            runtime: Handle::current(),
            timeout: Duration::from_millis(settings.body_timeout_ms),
            bytes_max: usize::try_from(settings.body_bytes_max).unwrap_or(usize::MAX),
        }
    }

    /// Reads the next schema or batch.
    fn next(&mut self) -> Option<Result<DecodedFlightData>> {
        loop {
            let message = match self.message().transpose()? {
                Ok(message) => message,
                Err(error) => return Some(Err(error)),
            };
            match decoded(|| Ok(self.decode(message))) {
                Ok(Some(next)) => return Some(next.map_err(|error| read_error(&error))),
                // It was a part of what follows, such as a dictionary.
                Ok(None) => {}
                Err(error) => return Some(Err(malformed(error))),
            }
        }
    }

    /// Waits for the next message; `None` where the client has sent all. Where it has not arrived yet,
    /// the write is parked meanwhile.
    fn message(&mut self) -> Result<Option<FlightData>> {
        let arrived = {
            let _entered = self.runtime.enter();
            self.messages.next().now_or_never()
        };
        let next = match arrived {
            Some(next) => next,
            None => {
                let Self { messages, state, runtime, timeout, .. } = self;
                let wait = || runtime.block_on(message_in_time(messages, *timeout));
                state.pools.parked(WorkClass::Writes, wait)?
            }
        };
        next.transpose().map_err(|status| read_error(&FlightError::from(status)))
    }

    /// Decodes a message; `None` where it is a part of what follows.
    fn decode(&mut self, message: FlightData) -> Option<FlightResult<DecodedFlightData>> {
        let message = match checked(message) {
            Ok(message) => message,
            Err(error) => return Some(Err(error)),
        };
        self.arrived.send(message).expect("the decoder has the other end");
        self.decoder.next().now_or_never().flatten()
    }

    /// Reads the next batch, across schemas.
    fn next_batch(&mut self) -> Option<Result<RecordBatch>> {
        loop {
            match self.next()?.map(|message| message.payload) {
                Ok(DecodedPayload::RecordBatch(batch)) => {
                    let is_cut = failpoint::is_seeded("flight_row_dropped");
                    let count = batch.num_rows().saturating_sub(usize::from(is_cut));
                    return Some(Ok(batch.slice(0, count)));
                }
                Ok(DecodedPayload::Schema(_) | DecodedPayload::None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads the schema before the rows.
    fn schema(&mut self) -> Result<SchemaRef> {
        match self.next().map(|message| message.map(|message| message.payload)) {
            Some(Ok(DecodedPayload::Schema(schema))) => Ok(schema),
            Some(Err(error)) => Err(error),
            _ => Err(malformed("rows must be preceded by their schema")),
        }
    }

    /// Reads all rows as parameters.
    fn parameters(&mut self) -> Result<ParameterRows> {
        let mut rows = ParameterRows::new();
        let mut bytes = 0;
        while let Some(batch) = self.next_batch() {
            let batch = batch?;
            self.count(&mut bytes, &batch)?;
            rows.extend(parameter_rows(&batch)?);
        }
        Ok(rows)
    }

    /// Fails where what was collected is too large.
    fn count(&self, bytes: &mut usize, batch: &RecordBatch) -> Result<()> {
        *bytes += batch.get_array_memory_size();
        if *bytes <= self.bytes_max {
            return Ok(());
        }
        let most = self.bytes_max;
        let message = format!("the rows exceed limits.body_bytes_max ({most} bytes)");
        let hint = "Append to one table per call: its rows are then not buffered.";
        Diagnostic::new(code::VALUE_TOO_LARGE, message).with_hint(hint).err()
    }
}

impl FlightCall {
    /// Answers a `DoPut`.
    pub(crate) async fn put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<PutResult, Status> {
        let mut messages = request.into_inner();
        let state = &self.server.state;
        let timeout = Duration::from_millis(state.settings().body_timeout_ms);
        let first = tokio::time::timeout(timeout, messages.message()).await;
        let first = first.map_err(|_elapsed| {
            Status::deadline_exceeded("the first message did not arrive in time")
        })??;
        let Some(mut first) = first else {
            return Err(
                self.status(&malformed("the first message of DoPut must contain a descriptor"))
            );
        };
        let descriptor = first.flight_descriptor.take();
        let command = descriptor
            .ok_or_else(|| malformed("the first message of DoPut must contain a descriptor"));
        let command = command.and_then(|descriptor| read_command(&descriptor.cmd));
        let command = command.map_err(|error| self.status(&error))?;
        let messages = stream::iter([Ok(first)]).chain(messages);
        // A first message may have the command and nothing else.
        let rows = messages.filter(|message| {
            let has_rows = message.as_ref().map_or(true, |message| !message.data_header.is_empty());
            futures::future::ready(has_rows)
        });
        self.put_command(command, PutReader::new(rows, state)).await
    }

    async fn put_command(
        &self,
        command: Command,
        mut reader: PutReader,
    ) -> Result<PutResult, Status> {
        match command {
            Command::CommandStatementUpdate(update) => {
                let count = self.update(update.query, Arc::default()).await?;
                Ok(update_result(count))
            }
            Command::CommandStatementIngest(ingest) => {
                let append = move |session: &Session| ingest_rows(session, &ingest, &mut reader);
                let output = self.write(append).await?;
                let rows = output.rows_affected.unwrap_or(0);
                Ok(update_result(i64::try_from(rows).unwrap_or(i64::MAX)))
            }
            Command::CommandPreparedStatementQuery(bound) => {
                let rows = self.write(move |_| reader.parameters()).await?;
                let handle = bound.prepared_statement_handle;
                let (server, user) = (&self.server, self.session.user());
                let done = server.prepared.bind(user, &handle, rows);
                done.map_err(|error| self.status(&error))?;
                let result =
                    DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) };
                Ok(PutResult { app_metadata: result.encode_to_vec().into() })
            }
            Command::CommandPreparedStatementUpdate(update) => {
                let (sql, bound) = self.find_statement(&update.prepared_statement_handle)?;
                let rows = self.write(move |_| reader.parameters()).await?;
                let rows = if rows.is_empty() { bound } else { Arc::new(rows) };
                Ok(update_result(self.update((*sql).to_owned(), rows).await?))
            }
            Command::Unknown(any) if any.type_url == Append::type_url() => {
                let append = Append::decode(any.value);
                let append = append.map_err(|error| self.status(&malformed(error)))?;
                let outcome = move |session: &Session| {
                    let output = append_rows(session, &append, &mut reader)?;
                    let mut outcome = outcome_of(&output);
                    outcome.session = Some(view_of(session));
                    Ok(outcome)
                };
                let outcome = self.write(outcome).await?;
                Ok(PutResult { app_metadata: outcome.encode_to_vec().into() })
            }
            other => {
                let message = format!("DoPut does not support command {}", other.type_url());
                Err(self.status(&Diagnostic::unsupported(message)))
            }
        }
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session) -> Result<T> + Send + 'static,
    ) -> Result<T, Status> {
        self.run(WorkClass::Writes, CallDeadline::Statement, work).await
    }
}

/// Reads the command of a descriptor or a ticket.
pub(crate) fn read_command(bytes: &[u8]) -> Result<Command> {
    let any = Any::decode(bytes).map_err(malformed)?;
    Command::try_from(any).map_err(malformed)
}

/// Waits for the next message of a client. Fails where the call is cancelled or its deadline passes
/// before, or where the client takes too long.
async fn message_in_time(
    messages: &mut PutMessages,
    timeout: Duration,
) -> Result<Option<PutMessage>> {
    let too_long = tokio::time::sleep(timeout);
    tokio::pin!(too_long);
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    loop {
        tokio::select! {
            biased;
            message = messages.next() => return Ok(message),
            () = &mut too_long => {
                let message = "the next rows did not arrive in time";
                return Diagnostic::new(code::QUERY_CANCELED, message)
                    .with_hint("Send rows faster, or raise limits.body_timeout_ms.")
                    .err();
            }
            _ = checks.tick() => {
                // On the thread of the call: `block_on` polls this there.
                let checked = query::checkpoint();
                checked.map_err(|reason| Diagnostic::interrupted(reason.limit_ms()))?;
            }
        }
    }
}

/// Returns a message whose lengths were checked.
fn checked(message: FlightData) -> FlightResult<FlightData> {
    let limits = MessageLimits::OF_CLIENTS;
    let lengths = check_message(&message.data_header, &message.data_body, limits);
    lengths.map_err(FlightError::DecodeError)?;
    Ok(message)
}

fn update_result(record_count: i64) -> PutResult {
    PutResult { app_metadata: DoPutUpdateResult { record_count }.encode_to_vec().into() }
}

/// Appends rows as an ingest of Flight SQL says.
fn ingest_rows(
    session: &Session,
    ingest: &CommandStatementIngest,
    reader: &mut PutReader,
) -> Result<Output> {
    if ingest.temporary {
        return Diagnostic::unsupported("temporary tables are not supported").err();
    }
    if ingest.transaction_id.as_ref().is_some_and(|id| !id.is_empty()) {
        return Diagnostic::unsupported("transactions are not supported").err();
    }
    let table = match ingest.schema.as_deref() {
        Some(database) if !database.is_empty() => format!("{database}.{}", ingest.table),
        _ => ingest.table.clone(),
    };
    let schema = reader.schema()?;
    let creates = creates(session, &table, ingest.table_definition_options.as_ref())?;
    let durability = ingest.options.get(DURABILITY_OPTION).map(|text| durability(text));
    let durability = durability.transpose()?;
    let storage_mode = ingest.options.get(STORAGE_OPTION).map(|text| StorageMode::of(text));
    let storage_mode = storage_mode.transpose()?;
    let mut batches = std::iter::from_fn(|| reader.next_batch());
    match creates {
        None => session.append_each(&table, &mut batches, durability),
        Some(if_exists) => {
            let options = CreationOptions { if_exists, durability, storage_mode };
            session.create_table_of(&table, &schema, &mut batches, options)
        }
    }
}

/// Returns whether an ingest creates its table, and what becomes of one that is there.
fn creates(
    session: &Session,
    table: &str,
    options: Option<&TableDefinitionOptions>,
) -> Result<Option<IfExists>> {
    let Some(options) = options else { return Ok(None) };
    let exists = session.has_table(table);
    if exists && options.if_exists == TableExistsOption::Fail as i32 {
        let message = format!("table `{table}` already exists");
        return Diagnostic::new(code::DUPLICATE_TABLE, message).err();
    }
    let is_replaced = exists && options.if_exists == TableExistsOption::Replace as i32;
    let is_made = !exists && options.if_not_exist == TableNotExistOption::Create as i32;
    Ok(match (is_replaced, is_made) {
        (true, _) => Some(IfExists::Replace),
        (false, true) => Some(IfExists::Fail),
        (false, false) => None,
    })
}

/// Appends the rows of Lockstep's own client.
fn append_rows(session: &Session, append: &Append, reader: &mut PutReader) -> Result<Output> {
    let durability = append.durability.as_deref().map(durability).transpose()?;
    let storage_mode = append.storage_mode.as_deref().map(StorageMode::of).transpose()?;
    if let [table] = append.tables.as_slice() {
        let if_exists = match append.creates() {
            AppendCreates::No => None,
            AppendCreates::New => Some(IfExists::Fail),
            AppendCreates::Replacement => Some(IfExists::Replace),
        };
        let schema = if_exists.map(|_| reader.schema()).transpose()?;
        let mut batches = std::iter::from_fn(|| reader.next_batch());
        return match if_exists.zip(schema) {
            None => session.append_each(table, &mut batches, durability),
            Some((if_exists, schema)) => {
                let options = CreationOptions { if_exists, durability, storage_mode };
                session.create_table_of(table, &schema, &mut batches, options)
            }
        };
    }
    if append.creates() != AppendCreates::No {
        return Err(malformed("an append that creates a table requires exactly one table"));
    }
    let mut collected: Vec<Vec<RecordBatch>> = vec![Vec::new(); append.tables.len()];
    let (mut at, mut bytes) = (None, 0);
    while let Some(message) = reader.next() {
        let message = message?;
        let number = message.app_metadata();
        match message.payload {
            DecodedPayload::Schema(_) => at = table_number(&number),
            DecodedPayload::RecordBatch(batch) => {
                reader.count(&mut bytes, &batch)?;
                if failpoint::is_seeded("flight_table_not_checked") {
                    assert!(at.is_some_and(|at| at < append.tables.len()), "rows without a table");
                }
                let rows = at.and_then(|at| collected.get_mut(at));
                rows.ok_or_else(|| {
                    malformed("rows must be preceded by a schema that specifies their table")
                })?
                .push(batch);
            }
            DecodedPayload::None => {}
        }
    }
    let tables = append.tables.iter().zip(&collected);
    let rows: Vec<TableBatches<'_>> =
        tables.map(|(table, batches)| TableBatches { table, batches }).collect();
    session.append_tables(&rows, durability)
}

/// Reads the position of a table in the metadata of a schema message.
fn table_number(metadata: &[u8]) -> Option<usize> {
    let bytes = <[u8; 4]>::try_from(metadata).ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

/// Reads what an append waits for.
fn durability(text: &str) -> Result<Durability> {
    match text {
        "memory" => Ok(Durability::Memory),
        "os" => Ok(Durability::Os),
        "disk" => Ok(Durability::Disk),
        _ => {
            let message = format!(
                "invalid value for parameter `durability`: '{text}' (expected disk, os or memory)"
            );
            Diagnostic::new(code::INVALID_PARAMETER, message).err()
        }
    }
}

/// Returns why a message was not read: the client is gone, or has sent something else.
fn read_error(error: &FlightError) -> Box<Diagnostic> {
    match error {
        FlightError::Tonic(status) if status.code() == tonic::Code::OutOfRange => {
            let hint = "Send smaller batches, or raise limits.body_bytes_max.";
            Box::new(Diagnostic::new(code::VALUE_TOO_LARGE, status.message()).with_hint(hint))
        }
        FlightError::Tonic(_) => Box::new(Diagnostic::interrupted(None)),
        other => malformed(other),
    }
}
