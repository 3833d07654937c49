//! Statements and their rows.

use std::{fmt, sync::Arc};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use arrow_flight::{
    FlightData, Ticket,
    decode::{DecodedPayload, FlightDataDecoder},
    error::FlightError,
    sql::Any,
};
use futures::{Stream, StreamExt};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::sync::Mutex;
use lockstep_protocol::{Execute, NamedMessage, StatementOutcome, TrainingSet};
use prost::Message;
use tonic::Status;

use crate::{
    RemoteClient,
    arrow_stream::write_rows,
    connection::ClientCall,
    failure::{malformed, of_flight, of_status},
};

/// The rows of a statement that runs. Dropping them cancels it.
pub struct Rows {
    call: ClientCall,
    decoder: FlightDataDecoder,
    schema: SchemaRef,
    /// What the last message says.
    outcome: Arc<Mutex<Option<StatementOutcome>>>,
}

/// The outcome of a statement with all its rows.
#[derive(Debug, Clone)]
pub struct StatementResult {
    /// The columns, with unique names.
    pub schema: SchemaRef,
    /// The names of the columns, which may repeat.
    pub names: Vec<String>,
    /// The rows.
    pub batches: Vec<RecordBatch>,
    /// The rows that were written, by a statement that writes.
    pub rows_affected: Option<u64>,
    /// The name of a statement without rows.
    pub message: Option<String>,
    /// Warnings, such as lints.
    pub warnings: Vec<Diagnostic>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl RemoteClient {
    /// Runs a script, or one statement with a value for each `?`: the columns of a batch of one row.
    /// Returns the rows of the last statement, as they arrive.
    pub fn execute(&self, sql: &str, parameters: Option<&RecordBatch>) -> Result<Rows> {
        self.run(sql, parameters, false)
    }

    /// Runs one query.
    pub fn query(&self, sql: &str, parameters: Option<&RecordBatch>) -> Result<Rows> {
        self.run(sql, parameters, true)
    }

    fn run(&self, sql: &str, parameters: Option<&RecordBatch>, is_query: bool) -> Result<Rows> {
        let parameters = parameters.map(parameter_bytes).transpose()?.unwrap_or_default();
        self.fetch(&Execute { sql: sql.to_owned(), parameters, is_query })
    }

    /// Computes the training set of a deployment. Returns its rows as they arrive.
    pub fn training_set(&self, set: &TrainingSet) -> Result<Rows> {
        self.fetch(set)
    }

    /// Begins to read the rows of what a message names.
    fn fetch<M: NamedMessage>(&self, message: &M) -> Result<Rows> {
        let any = Any { type_url: M::type_url(), value: message.encode_to_vec().into() };
        let call = self.begin()?;
        let request = call.request(Ticket::new(any.encode_to_vec()));
        let mut flight = call.flight();
        let messages =
            call.wait(async { flight.do_get(request).await.map_err(|status| of_status(&status)) })?;
        let outcome = Arc::new(Mutex::new(None));
        let rows = without_outcome(messages.into_inner(), Arc::clone(&outcome));
        let mut decoder = FlightDataDecoder::new(rows);
        let first = call.wait(async { Ok(decoder.next().await) })?;
        let schema = match first {
            Some(Ok(decoded)) => match decoded.payload {
                DecodedPayload::Schema(schema) => schema,
                DecodedPayload::None | DecodedPayload::RecordBatch(_) => {
                    return Err(malformed("missing columns of the rows"));
                }
            },
            Some(Err(error)) => return Err(of_flight(&error)),
            None => return Err(malformed("missing columns of the rows")),
        };
        Ok(Rows { call, decoder, schema, outcome })
    }
}

impl Rows {
    /// Returns the columns, with unique names.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Waits for the next rows; `None` after the last ones.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let next = self.call.wait(async { Ok(self.decoder.next().await) })?;
            let Some(decoded) = next else { return Ok(None) };
            match decoded.map_err(|error| of_flight(&error))?.payload {
                DecodedPayload::RecordBatch(batch) => return Ok(Some(batch)),
                DecodedPayload::Schema(_) | DecodedPayload::None => {}
            }
        }
    }

    /// Reads the rest of the rows, and what is said of the statement.
    pub fn collect(mut self) -> Result<StatementResult> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_batch()? {
            batches.push(batch);
        }
        let outcome = self.outcome.lock().take();
        let outcome = outcome.ok_or_else(|| malformed("unexpected end of the rows"))?;
        self.call.state().note_session(outcome.session);
        Ok(StatementResult {
            schema: self.schema,
            names: outcome.names,
            batches,
            rows_affected: outcome.rows_affected,
            message: outcome.message,
            warnings: outcome.warnings.into_iter().map(Diagnostic::from).collect(),
        })
    }
}

/// Writes a row of parameters.
pub(crate) fn parameter_bytes(parameters: &RecordBatch) -> Result<Vec<u8>> {
    write_rows(&parameters.schema(), std::slice::from_ref(parameters))
}

/// Takes the message with the outcome, which has no rows, out of a stream.
fn without_outcome(
    messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
    outcome: Arc<Mutex<Option<StatementOutcome>>>,
) -> impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static {
    messages.filter_map(move |message| {
        let item = match message {
            Ok(data) if data.data_header.is_empty() => {
                match StatementOutcome::decode(data.app_metadata) {
                    Ok(found) => {
                        *outcome.lock() = Some(found);
                        None
                    }
                    Err(error) => Some(Err(FlightError::DecodeError(error.to_string()))),
                }
            }
            Ok(data) => Some(Ok(data)),
            Err(status) => Some(Err(FlightError::Tonic(Box::new(status)))),
        };
        futures::future::ready(item)
    })
}
