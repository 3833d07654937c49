//! Request rows over Flight: a deployment or a query, by its name or the handle of what was prepared.
//!
//! A request of one row of a compiled deployment is answered on the thread that read it, as over HTTP: it
//! waits in no queue. Many rows, and requests that cost as much as the query in batch mode, run on a thread
//! of their class.

use std::sync::Arc;

use arrow::{
    array::RecordBatch,
    datatypes::SchemaRef,
    error::ArrowError,
    ipc::writer::{
        DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, StreamWriter,
        write_message,
    },
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_engine::{Output, PreparedRequest, Session};
use lockstep_protocol::{Answers, DeploymentRequest};
use prost::Message;
use tonic::Status;

use super::{
    FlightServer,
    arrow_bytes::names_of,
    call::{CallDeadline, FlightCall},
    prepared::FlightStatement,
    statements::view_of,
    status::malformed,
};
use crate::{
    arrow_input::KnownSchemas, bounded_map::BoundedMap, deployments::is_stale, http::lap,
    metrics::CallPhase, work_pool::WorkClass,
};

/// The most bytes of rows that are read on the thread of the connection.
const BYTES_HERE_MAX: usize = 64 << 10;

/// What request rows are for.
struct RowsTarget {
    name: Arc<str>,
    /// What was prepared: it answers, and nothing newer.
    prepared: Option<Arc<PreparedRequest>>,
}

impl FlightCall {
    /// Answers request rows.
    pub(crate) async fn request(&self, request: DeploymentRequest) -> Result<Vec<u8>, Status> {
        let target = self.target(&request).map_err(|error| self.status(&error))?;
        if let Some(trace) = self.trace() {
            trace.set_text("lockstep.deployment", &target.name);
        }
        let (server, name) = (Arc::clone(&self.server), Arc::clone(&target.name));
        let answered = match self.one_row_here(&target, &request.rows) {
            Some(answered) => answered.map_err(|error| self.status(&error)),
            None => {
                let answer = move |session: &Session| {
                    let mut at_ns = server.state.clock.monotonic_ns();
                    let rows = server.schemas.read(&request.rows)?;
                    let read_ns = lap(&server.state.clock, &mut at_ns);
                    target.answer(&server, session, &rows, (read_ns, at_ns))
                };
                self.run(WorkClass::Requests, CallDeadline::Request, answer).await
            }
        };
        answered.inspect_err(|_| {
            // A name that was never answered may be that of nothing.
            if let Some(metrics) = self.server.state.metrics.known_deployment(&name) {
                metrics.add_error();
            }
        })
    }

    /// Finds what the rows are for.
    fn target(&self, request: &DeploymentRequest) -> Result<RowsTarget> {
        if request.handle.is_empty() {
            return Ok(RowsTarget { name: request.target.as_str().into(), prepared: None });
        }
        let (server, user) = (&self.server, self.session.user());
        match server.prepared.find(&server.state, user, &request.handle)? {
            FlightStatement::Request { target, request } => {
                Ok(RowsTarget { name: target, prepared: Some(request) })
            }
            FlightStatement::Statement { .. } => {
                Err(malformed("the handle identifies a prepared statement, not a prepared request"))
            }
        }
    }

    /// Answers a request of one row on this thread; `None` where it is not one, or has to be compiled.
    fn one_row_here(&self, target: &RowsTarget, rows: &[u8]) -> Option<Result<Vec<u8>>> {
        if rows.len() > BYTES_HERE_MAX {
            return None;
        }
        let server = &self.server;
        let answer = |session: &Session| {
            let found = match &target.prepared {
                Some(request) => Some(Arc::clone(request)),
                None => session.find_prepared(&target.name)?,
            };
            let Some(request) = found.filter(|request| request.is_quick()) else {
                return Ok(None);
            };
            let mut at_ns = server.state.clock.monotonic_ns();
            let rows = server.schemas.read(rows)?;
            if rows.iter().map(RecordBatch::num_rows).sum::<usize>() != 1 {
                return Ok(None);
            }
            let read_ns = lap(&server.state.clock, &mut at_ns);
            let found = RowsTarget { name: Arc::clone(&target.name), prepared: Some(request) };
            let mut answered = found.answer(server, session, &rows, (read_ns, at_ns));
            if target.prepared.is_none() && answered.as_ref().is_err_and(|error| is_stale(error)) {
                // The deployment was replaced meanwhile: the new one answers.
                answered = target.answer(server, session, &rows, (read_ns, at_ns));
            }
            if let Some(trace) = self.trace() {
                trace.phase_since("execute", at_ns);
            }
            answered.map(Some)
        };
        self.run_here(CallDeadline::Request, answer).transpose()
    }
}

impl RowsTarget {
    /// Answers rows that were read in some time, and until a moment.
    fn answer(
        &self,
        server: &FlightServer,
        session: &Session,
        rows: &[RecordBatch],
        (read_ns, mut at_ns): (u64, u64),
    ) -> Result<Vec<u8>> {
        let output = match &self.prepared {
            None => session.request(&self.name, rows)?,
            Some(request) => session.request_prepared(&self.name, request, rows)?,
        };
        let state = &server.state;
        let answer_ns = lap(&state.clock, &mut at_ns);
        let bytes = server.schemas.write(session, &output)?;
        let write_ns = lap(&state.clock, &mut at_ns);
        if is_deployment(&self.name) {
            let metrics = state.metrics.deployment(&self.name);
            metrics.record(CallPhase::Read, read_ns);
            metrics.record(CallPhase::Answer, answer_ns);
            metrics.record(CallPhase::Write, write_ns);
            metrics.add_rows(u64::try_from(output.row_count()).unwrap_or(0));
        }
        Ok(bytes)
    }
}

/// Returns whether the target of a request that was answered is the name of a deployment: the text of a
/// query has blanks.
fn is_deployment(target: &str) -> bool {
    !target.contains(char::is_whitespace)
}

/// The most bytes of all schemas of answers that are kept, and of one; beyond the first all are written
/// again.
const ANSWER_BYTES_MAX: usize = 4 << 20;
const ANSWER_SCHEMA_BYTES_MAX: usize = 256 << 10;

/// Schemas of request rows and of answers: both are the same for each request of a deployment.
#[derive(Debug)]
pub(crate) struct RequestSchemas {
    received: KnownSchemas,
    /// By the address of the schema, which the entry keeps.
    sent: BoundedMap<usize, Arc<AnswerSchema>>,
}

impl Default for RequestSchemas {
    fn default() -> Self {
        let sent = BoundedMap::new(ANSWER_BYTES_MAX, ANSWER_SCHEMA_BYTES_MAX);
        Self { received: KnownSchemas::default(), sent }
    }
}

/// A schema of answers, as it is sent.
#[derive(Debug)]
struct AnswerSchema {
    schema: SchemaRef,
    /// The message with which a stream begins.
    message: Vec<u8>,
    /// [`Answers`] with the names of the columns alone, which follows one without them.
    names: Vec<u8>,
}

impl RequestSchemas {
    /// Reads request rows.
    fn read(&self, rows: &[u8]) -> Result<Vec<RecordBatch>> {
        let (_, batches) = self.received.read_stream(rows).map_err(malformed)?;
        Ok(batches)
    }

    /// Writes the message of answers.
    fn write(&self, session: &Session, output: &Output) -> Result<Vec<u8>> {
        let sent = self.sent(output)?;
        let rows = sent.write_rows(&output.batches).map_err(|error| internal(&error))?;
        let session = Some(view_of(session));
        let mut bytes = Answers { rows, names: Vec::new(), session }.encode_to_vec();
        bytes.extend_from_slice(&sent.names);
        Ok(bytes)
    }

    fn sent(&self, output: &Output) -> Result<Arc<AnswerSchema>> {
        let schema = output.schema();
        let address = Arc::as_ptr(&schema).addr();
        if let Some(found) = self.sent.get(&address) {
            return Ok(found);
        }
        let mut message = Vec::new();
        drop(StreamWriter::try_new(&mut message, &schema).map_err(|error| internal(&error))?);
        let names = Answers { names: names_of(&output.columns), ..Answers::default() };
        let sent = Arc::new(AnswerSchema { schema, message, names: names.encode_to_vec() });
        self.sent.add(address, &sent, sent.message.len() + sent.names.len());
        Ok(sent)
    }
}

impl AnswerSchema {
    /// Writes rows as a stream.
    fn write_rows(&self, batches: &[RecordBatch]) -> std::result::Result<Vec<u8>, ArrowError> {
        let (generator, options) = (IpcDataGenerator::default(), IpcWriteOptions::default());
        let mut dictionaries = DictionaryTracker::new(false);
        let mut bytes = self.message.clone();
        for batch in batches {
            debug_assert!(Arc::ptr_eq(&self.schema, batch.schema_ref()), "batches have one schema");
            let (_, encoded) = generator.encode(
                batch,
                &mut dictionaries,
                &options,
                &mut IpcWriteContext::default(),
            )?;
            write_message(&mut bytes, encoded, &options)?;
        }
        bytes.extend_from_slice(&END_OF_STREAM);
        Ok(bytes)
    }
}

/// What a stream ends with: a message without bytes.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

fn internal(error: &ArrowError) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(error.to_string()))
}
