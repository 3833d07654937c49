//! Rows into tables.

use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
};
use arrow_flight::{
    FlightData, FlightDescriptor, encode::FlightDataEncoderBuilder, error::FlightError, sql::Any,
};
use futures::{Stream, StreamExt, stream};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::sync::Mutex;
use lockstep_protocol::{Append, AppendCreates, NamedMessage, StatementOutcome};
use prost::Message;
use std::sync::Arc;

use crate::{
    RemoteClient,
    failure::{malformed, of_flight, of_status},
};

/// What became of rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppendedRows {
    /// How many were appended.
    pub rows: u64,
    /// Warnings, such as about rows that had expired.
    pub warnings: Vec<Diagnostic>,
}

/// How a server creates a table of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteCreation<'c> {
    /// Whether it takes the place of a table of this name, which is an error otherwise.
    pub replaces: bool,
    /// `disk`, `os` or `memory`; without it the session says what the call waits for.
    pub durability: Option<&'c str>,
    /// `memory` or `disk`; without it the rows are in memory.
    pub storage_mode: Option<&'c str>,
}

impl RemoteCreation<'_> {
    fn creates(&self) -> AppendCreates {
        if self.replaces { AppendCreates::Replacement } else { AppendCreates::New }
    }
}

/// Rows of one schema on their way, with the number of their table.
struct RemoteRows {
    table: u32,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl RemoteRows {
    /// Splits the rows of a table where their schema changes. A table without rows has one part.
    fn of(table: usize, batches: &[RecordBatch]) -> Vec<Self> {
        let table = u32::try_from(table).unwrap_or(u32::MAX);
        let same = |left: &RecordBatch, right: &RecordBatch| left.schema() == right.schema();
        let mut parts: Vec<Self> = batches
            .chunk_by(same)
            .map(|part| Self { table, schema: part[0].schema(), batches: part.to_vec() })
            .collect();
        if parts.is_empty() {
            let schema = Arc::new(Schema::empty());
            parts.push(Self { table, schema, batches: Vec::new() });
        }
        parts
    }
}

impl RemoteClient {
    /// Appends rows to a table, all or none. `durability` is `disk`, `os` or `memory`; without it the
    /// table or the session says what the call waits for. The server holds one batch at a time.
    pub fn append(
        &self,
        table: &str,
        batches: &[RecordBatch],
        durability: Option<&str>,
    ) -> Result<AppendedRows> {
        self.append_tables(&[(table, batches)], durability)
    }

    /// Creates a table with the columns and the rows of the batches, of which there is one at least.
    pub fn create_table_of(
        &self,
        table: &str,
        batches: &[RecordBatch],
        creation: &RemoteCreation<'_>,
    ) -> Result<AppendedRows> {
        self.put(
            &[(table, batches)],
            Append {
                durability: creation.durability.map(str::to_owned),
                creates: creation.creates().into(),
                storage_mode: creation.storage_mode.map(str::to_owned),
                ..Append::default()
            },
        )
    }

    /// Appends rows to several tables, all or none.
    pub fn append_tables(
        &self,
        rows: &[(&str, &[RecordBatch])],
        durability: Option<&str>,
    ) -> Result<AppendedRows> {
        let durability = durability.map(str::to_owned);
        self.put(rows, Append { durability, ..Append::default() })
    }

    /// Sends rows, and how they are appended; which tables they are for is added here.
    fn put(&self, rows: &[(&str, &[RecordBatch])], append: Append) -> Result<AppendedRows> {
        let tables = rows.iter().map(|(table, _)| (*table).to_owned()).collect();
        let append = Append { tables, ..append };
        let command = Any { type_url: Append::type_url(), value: append.encode_to_vec().into() };
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        let first = FlightData::new().with_descriptor(descriptor);
        let parts = rows.iter().enumerate();
        let rows: Vec<RemoteRows> =
            parts.flat_map(|(table, (_, batches))| RemoteRows::of(table, batches)).collect();
        let failed = Arc::new(Mutex::new(None));
        let messages = stream::iter([first]).chain(encoded(rows, Arc::clone(&failed)));
        let call = self.begin()?;
        let request = call.request(messages);
        let mut flight = call.flight();
        let outcome = call.wait(async {
            let results = flight.do_put(request).await.map_err(|status| of_status(&status))?;
            let result = results.into_inner().message().await;
            let result = result.map_err(|status| of_status(&status))?;
            let result = result.ok_or_else(|| malformed("missing result of the append"))?;
            StatementOutcome::decode(result.app_metadata).map_err(malformed)
        });
        if let Some(error) = failed.lock().take() {
            return Err(of_flight(&error));
        }
        let outcome = outcome?;
        self.state.note_session(outcome.session);
        Ok(AppendedRows {
            rows: outcome.rows_affected.unwrap_or(0),
            warnings: outcome.warnings.into_iter().map(Diagnostic::from).collect(),
        })
    }
}

/// Returns the messages of rows. They end where rows cannot be encoded, which `failed` says.
fn encoded(
    rows: Vec<RemoteRows>,
    failed: Arc<Mutex<Option<FlightError>>>,
) -> impl Stream<Item = FlightData> + Send + 'static {
    let of_table = |RemoteRows { table, schema, batches }: RemoteRows| {
        let batches = stream::iter(batches.into_iter().map(Ok));
        let number = table.to_le_bytes().to_vec();
        FlightDataEncoderBuilder::new()
            .with_schema(schema)
            .with_metadata(number.into())
            .build(batches)
    };
    stream::iter(rows.into_iter().map(of_table)).flatten().map_while_ok(failed)
}

/// Ends a stream at its first error, which is kept.
trait MapWhileOk: Stream<Item = Result<FlightData, FlightError>> + Sized {
    fn map_while_ok(
        self,
        failed: Arc<Mutex<Option<FlightError>>>,
    ) -> impl Stream<Item = FlightData> + Send + 'static
    where
        Self: Send + 'static,
    {
        self.scan((), move |(), item| {
            let kept = item.map_err(|error| *failed.lock() = Some(error)).ok();
            futures::future::ready(kept)
        })
    }
}

impl<S: Stream<Item = Result<FlightData, FlightError>>> MapWhileOk for S {}
