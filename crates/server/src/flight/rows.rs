//! A result on its way: from the thread that computes it, batch by batch, to the connection.
//!
//! At most [`PARTS_AHEAD`] batches wait, so that a result of any size needs the memory of some batches.
//! Where they wait, the query is parked: the engine passes batches on from the middle of its run, so that
//! the query keeps its thread, but it leaves its place in the pool to others until a batch is taken. Where
//! nobody takes one for `limits.write_timeout_ms`, the query ends with an error.

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
use lockstep_host::{query, sync::Mutex};
use lockstep_protocol::StatementOutcome;
use lockstep_row::DataType;
use prost::Message;
use tokio::{
    runtime::Handle,
    sync::mpsc::{self, error::TrySendError},
};
use tonic::Status;

use super::{
    arrow_bytes::{schema_of, with_schema},
    running::RunningFlightCall,
    status::{malformed, to_status},
};
use crate::{server_state::ServerState, work_pool::WorkClass};

/// The batches that wait for the client.
pub(crate) const PARTS_AHEAD: usize = 4;

/// How often a call that waits for its client is checked for its end.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(50);

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
    state: Arc<ServerState>,
    /// The class of the pool whose thread computes the result.
    class: WorkClass,
    runtime: Handle,
    schema: Option<SchemaRef>,
}

impl RowSender {
    /// Makes it for work of a class. To be called where the runtime of the server is entered.
    pub(crate) fn new(
        sender: mpsc::Sender<FlightRowPart>,
        state: &Arc<ServerState>,
        class: WorkClass,
    ) -> Self {
        let (state, runtime) = (Arc::clone(state), Handle::current());
        Self { sender, state, class, runtime, schema: None }
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
            return Diagnostic::internal("rows were sent before their columns").err();
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

    /// Waits for rows to send; the call leaves its place in the pool to others. Fails if the client is gone.
    pub(crate) fn parked(&self, wait: impl FnOnce()) -> Result<()> {
        self.state.pools.parked(self.class, wait);
        match self.sender.is_closed() {
            true => Diagnostic::interrupted(None).err(),
            false => Ok(()),
        }
    }

    fn send(&self, part: FlightRowPart) -> Result<()> {
        match self.sender.try_send(part) {
            Ok(()) => Ok(()),
            // The client is gone.
            Err(TrySendError::Closed(_)) => Diagnostic::interrupted(None).err(),
            Err(TrySendError::Full(part)) => {
                let wait = || self.runtime.block_on(self.send_when_taken(part));
                self.state.pools.parked(self.class, wait)
            }
        }
    }

    /// Sends a part when there is space for it. Fails where the call is cancelled or its deadline passes
    /// before, or where the client takes too long.
    async fn send_when_taken(&self, part: FlightRowPart) -> Result<()> {
        let timeout = Duration::from_millis(self.state.settings().write_timeout_ms);
        let too_long = tokio::time::sleep(timeout);
        let space = self.sender.reserve();
        tokio::pin!(space, too_long);
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        loop {
            tokio::select! {
                biased;
                reserved = &mut space => {
                    // The client may be gone.
                    let reserved = reserved.map_err(|_closed| Diagnostic::interrupted(None))?;
                    reserved.send(part);
                    return Ok(());
                }
                () = &mut too_long => {
                    let message = "the client did not read rows in time";
                    return Diagnostic::new(code::QUERY_CANCELED, message)
                        .with_hint("Read rows faster, or raise limits.write_timeout_ms.")
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
