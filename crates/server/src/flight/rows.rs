//! A result on its way: from the thread that computes it, batch by batch, to the connection.
//!
//! At most [`PARTS_AHEAD`] batches wait, so that a result of any size needs the memory of some batches.
//! Where nobody takes them for `limits.write_timeout_ms`, the query ends with an error.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use arrow_flight::{FlightData, encode::FlightDataEncoderBuilder, error::FlightError};
use futures::{Stream, StreamExt, stream};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::Output;
use lockstep_host::sync::Mutex;
use lockstep_protocol::StatementOutcome;
use lockstep_row::DataType;
use prost::Message;
use tokio::{runtime::Handle, sync::mpsc};
use tonic::Status;

use super::{
    arrow_bytes::{schema_of, with_schema},
    running::RunningFlightCall,
    status::{malformed, to_status},
};

/// The batches that wait for the client.
pub(crate) const PARTS_AHEAD: usize = 4;

/// The messages of a result.
pub(crate) type FlightDataStream =
    Pin<Box<dyn Stream<Item = std::result::Result<FlightData, Status>> + Send>>;

/// A part of a result.
#[derive(Debug)]
pub(crate) enum FlightRowPart {
    /// The columns: first, and once.
    Schema(SchemaRef),
    /// Rows.
    Batch(RecordBatch),
    /// What is said of the statement beside its rows: last.
    Outcome(Box<StatementOutcome>),
    /// The error that ends the result.
    Failed(Box<Diagnostic>),
}

/// The end of the thread that computes a result.
#[derive(Debug)]
pub(crate) struct RowSender {
    sender: mpsc::Sender<FlightRowPart>,
    runtime: Handle,
    timeout: Duration,
    schema: Option<SchemaRef>,
}

impl RowSender {
    /// Makes it. `timeout` is how long a part may wait for the client.
    pub(crate) fn new(
        sender: mpsc::Sender<FlightRowPart>,
        runtime: Handle,
        timeout: Duration,
    ) -> Self {
        Self { sender, runtime, timeout, schema: None }
    }

    /// Sends the columns, unless they were sent for rows before.
    pub(crate) fn begin(&mut self, columns: &[(String, DataType)]) -> Result<()> {
        if self.schema.is_none() {
            let schema = schema_of(columns);
            self.schema = Some(Arc::clone(&schema));
            self.send(FlightRowPart::Schema(schema))?;
        }
        Ok(())
    }

    /// Sends rows, whose columns were sent.
    pub(crate) fn rows(&self, batch: &RecordBatch) -> Result<()> {
        let Some(schema) = &self.schema else {
            return Diagnostic::internal("rows without columns").err();
        };
        let same = schema.fields().len() == batch.num_columns();
        let batch =
            if same { with_schema(batch, schema).map_err(malformed)? } else { batch.clone() };
        self.send(FlightRowPart::Batch(batch))
    }

    /// Sends an output that is complete.
    pub(crate) fn output(&mut self, output: &Output) -> Result<()> {
        self.begin(&output.columns)?;
        output.batches.iter().try_for_each(|batch| self.rows(batch))
    }

    /// Sends what is said of the statement.
    pub(crate) fn outcome(&self, outcome: StatementOutcome) -> Result<()> {
        self.send(FlightRowPart::Outcome(Box::new(outcome)))
    }

    fn send(&self, part: FlightRowPart) -> Result<()> {
        let sent = self
            .runtime
            .block_on(async { tokio::time::timeout(self.timeout, self.sender.send(part)).await });
        match sent {
            Ok(Ok(())) => Ok(()),
            // The client is gone.
            Ok(Err(_)) => Diagnostic::interrupted(None).err(),
            Err(_) => Diagnostic::new(code::QUERY_CANCELED, "the client has stopped reading rows")
                .with_hint("limits.write_timeout_ms says how long rows wait for it.")
                .err(),
        }
    }
}

/// The end of the connection.
#[derive(Debug)]
pub(crate) struct RowStream {
    receiver: mpsc::Receiver<FlightRowPart>,
    /// Cancels the query when the stream is dropped.
    _running: RunningFlightCall,
    id: String,
}

impl Stream for RowStream {
    type Item = FlightRowPart;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FlightRowPart>> {
        self.receiver.poll_recv(cx)
    }
}

impl RowStream {
    /// Makes it; `id` is that of the call.
    pub(crate) fn new(
        receiver: mpsc::Receiver<FlightRowPart>,
        running: RunningFlightCall,
        id: String,
    ) -> Self {
        Self { receiver, _running: running, id }
    }

    /// Waits for the columns, so that what fails before has a status of its own, and returns the
    /// messages of the rows. With `has_outcome` the last message has an [`StatementOutcome`] as metadata and
    /// nothing else.
    pub(crate) async fn into_flight_data(
        mut self,
        has_outcome: bool,
    ) -> std::result::Result<FlightDataStream, Status> {
        let schema = match self.receiver.recv().await {
            Some(FlightRowPart::Schema(schema)) => schema,
            Some(FlightRowPart::Failed(error)) => return Err(to_status(&error, &self.id)),
            _ => return Err(Status::internal("the result has no columns")),
        };
        let id = self.id.clone();
        let outcome = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&outcome);
        let batches = self.filter_map(move |part| {
            let item = match part {
                FlightRowPart::Batch(batch) => Some(Ok(batch)),
                FlightRowPart::Failed(error) => {
                    Some(Err(FlightError::Tonic(Box::new(to_status(&error, &id)))))
                }
                FlightRowPart::Outcome(found) => {
                    *kept.lock() = Some(found);
                    None
                }
                FlightRowPart::Schema(_) => None,
            };
            futures::future::ready(item)
        });
        let data = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
        let data = data.map(|item| item.map_err(Status::from));
        if !has_outcome {
            return Ok(Box::pin(data));
        }
        let last = stream::once(async move {
            let found = outcome.lock().take();
            found.map(|found| Ok(FlightData::new().with_app_metadata(found.encode_to_vec())))
        });
        Ok(Box::pin(data.chain(last.filter_map(futures::future::ready))))
    }
}
