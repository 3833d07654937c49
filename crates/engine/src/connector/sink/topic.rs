//! Rows as messages of a topic, as a sink writes them.
//!
//! # Exactly once
//!
//! A step writes rows in one transaction and then stores how far it is. Where the second part is missing, or the answer
//! to the first was lost, the sink connects again: the brokers end its open transaction, and the topic, read from the
//! offsets that were stored, tells the last row that was committed. Each message has the sink and the row in its headers.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::failpoint;
use lockstep_kafka::{Bytes, Delivery, Offsets, OutgoingMessage, Topic, TopicWriter};
use lockstep_row::{Arena, RowView, TableSchema};
use lockstep_table::{TableTail, TailRow, TailSignal};
use serde::{Deserialize, Serialize};

use super::{BYTES_AT_ONCE, ROWS_AT_ONCE, not_read, tail_of};
use crate::{
    Database,
    connector::{
        Connector,
        options::{KafkaOptions, MessageFormat, NamedColumn},
        registered::RegisteredWriter,
    },
    json_text::{write_json, write_json_array, write_json_object},
    worker::{WorkFigures, WorkStep},
};

/// The header with the id of the sink.
const SINK_HEADER: &str = "lockstep-sink";
/// The header with the place of the row in its table.
const POSITION_HEADER: &str = "lockstep-position";

/// How far a sink is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SinkProgress {
    /// Rows with a smaller arrival were written.
    position: u64,
    /// An offset of each partition before which no message is of a row from there on.
    offsets: Offsets,
    /// How many messages were written.
    messages: u64,
}

/// Registers the schema of a sink's messages, if its format has one.
pub(crate) fn register_schema(
    sink: &Connector,
    options: &KafkaOptions,
    schema: &TableSchema,
) -> Result<()> {
    RowEncoder::new(sink, options, schema).map(|_| ())
}

/// A run of a sink.
pub(crate) struct TopicSinkRun {
    options: Arc<KafkaOptions>,
    tail: TableTail,
    signal: Arc<TailSignal>,
    encoder: RowEncoder,
    writer: Option<TopicWriter>,
    stored: SinkProgress,
    unwritten: Option<UnwrittenRows>,
}

/// Rows that are written together.
struct UnwrittenRows {
    messages: Vec<OutgoingMessage>,
    /// The arrival of each one.
    arrivals: Vec<u64>,
    /// When the first one arrived, in milliseconds since the epoch.
    first_ms: i64,
    /// The arrival from which on rows are read next.
    end: u64,
}

impl SinkProgress {
    /// Notes how far a sink was when it ended.
    pub(crate) fn note(&self, sink: &Connector) {
        sink.worker.figures(|WorkFigures { own, .. }| own.messages = self.messages);
    }

    /// Returns the progress of a sink that has written nothing.
    pub(crate) fn new(position: u64, offsets: Offsets) -> Self {
        Self { position, offsets, messages: 0 }
    }
}

impl TopicSinkRun {
    /// Goes on behind the last row that was stored as written.
    pub(crate) fn new(
        sink: &Connector,
        options: &Arc<KafkaOptions>,
        database: &Database,
    ) -> Result<Self> {
        let stored: SinkProgress = sink.progress.read()?.unwrap_or_default();
        let signal = TailSignal::new();
        let tail = tail_of(sink, database, stored.position, &signal)?;
        let encoder = RowEncoder::new(sink, options, &tail.table().schema())?;
        let options = Arc::clone(options);
        Ok(Self { options, tail, signal, encoder, writer: None, stored, unwritten: None })
    }

    /// Returns what is raised when there are rows to write.
    pub(crate) fn signal(&self) -> &Arc<TailSignal> {
        &self.signal
    }

    /// Writes some rows.
    pub(crate) fn step(&mut self, sink: &Connector, database: &Database) -> Result<WorkStep> {
        if self.unwritten.is_none() {
            self.unwritten = self.read(sink)?;
        }
        self.note(sink, database);
        if self.writer.is_none() {
            self.connect(sink)?;
        }
        let Some(rows) = &self.unwritten else {
            return Ok(WorkStep::CaughtUp);
        };
        if !rows.messages.is_empty() {
            let writer = self.writer.as_mut().expect("it is connected");
            let written = writer.write(rows.messages.clone());
            if written.is_err() {
                // What was committed is found out when it connects again.
                self.writer = None;
            }
            let ends = written?;
            failpoint::reach("sink.written");
            self.stored.offsets.extend(ends);
        }
        let rows = self.unwritten.take().expect("it has rows");
        self.stored.messages += u64::try_from(rows.messages.len()).unwrap_or(u64::MAX);
        self.store(sink, rows.end)?;
        self.note(sink, database);
        Ok(WorkStep::Busy)
    }

    /// Connects to the brokers, and finds out what was committed of the last transaction.
    fn connect(&mut self, sink: &Connector) -> Result<()> {
        let topic = Topic::open(&self.options.brokers, &self.options.topic)?;
        let id = transactional_id(sink);
        if self.options.at_least_once || failpoint::is_seeded("sink_without_transactions") {
            self.writer = Some(TopicWriter::open(&topic, Delivery::AtLeastOnce)?);
            return Ok(());
        }
        // First: it ends what another writer has begun.
        let writer = TopicWriter::open(&topic, Delivery::ExactlyOnce(&id))?;
        let of_sink = (SINK_HEADER, sink.id.as_str());
        let last = topic.last_position(&self.stored.offsets, of_sink, POSITION_HEADER)?;
        if let Some(last) = last.filter(|last| *last >= self.stored.position)
            && !failpoint::is_seeded("sink_position_forgotten")
        {
            if !failpoint::is_seeded("sink_rows_not_left_out") {
                self.forget_written(last);
            }
            self.store(sink, last + 1)?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    /// Leaves out the rows up to this arrival, which were written.
    fn forget_written(&mut self, last: u64) {
        let Some(rows) = &mut self.unwritten else { return };
        debug_assert!(rows.arrivals.is_sorted(), "in order of arrival");
        let written = rows.arrivals.partition_point(|arrival| *arrival <= last);
        rows.arrivals.drain(..written);
        rows.messages.drain(..written);
        self.stored.messages += u64::try_from(written).unwrap_or(u64::MAX);
    }

    /// Reads the next rows; `None` if there are none.
    fn read(&mut self, sink: &Connector) -> Result<Option<UnwrittenRows>> {
        let Self { tail, encoder, stored, .. } = self;
        let mut messages = Vec::new();
        let (mut arrivals, mut first_ms) = (Vec::new(), i64::MAX);
        let (from, mut written) = (stored.position, 0);
        let read =
            tail.read_some(ROWS_AT_ONCE, BYTES_AT_ONCE, |TailRow { arrival, arrival_ms, row }| {
                // A transaction that was found committed has those before.
                if arrival < from {
                    written += 1;
                    return;
                }
                messages.push(encoder.message(sink, arrival, row));
                arrivals.push(arrival);
                first_ms = first_ms.min(arrival_ms);
            });
        let count = read.map_err(|error| not_read(sink, &error))?;
        encoder.add_values(&mut messages)?;
        debug_assert_eq!(messages.len(), arrivals.len(), "each has an arrival");
        stored.messages += written;
        let end = tail.position();
        Ok((count > 0).then(|| UnwrittenRows { messages, arrivals, first_ms, end }))
    }

    /// Stores how far the sink is.
    fn store(&mut self, sink: &Connector, position: u64) -> Result<()> {
        debug_assert!(position >= self.stored.position, "it goes on");
        self.stored.position = position;
        sink.progress.store(&self.stored)?;
        failpoint::reach("sink.stored");
        Ok(())
    }

    /// Notes how far the sink is.
    fn note(&self, sink: &Connector, database: &Database) {
        let messages = self.stored.messages;
        let waits_ms = self.unwritten.as_ref().map_or(0, |rows| {
            u64::try_from(database.now_ms().saturating_sub(rows.first_ms)).unwrap_or(0)
        });
        sink.worker
            .figures(|WorkFigures { own, .. }| (own.messages, own.lag) = (messages, waits_ms));
    }
}

fn transactional_id(sink: &Connector) -> String {
    format!("lockstep-{}", sink.id)
}

/// Makes messages of rows.
#[derive(Debug)]
struct RowEncoder {
    values: ValueWriter,
    /// The columns of the key.
    key: Vec<usize>,
}

/// Makes values of messages of rows.
#[derive(Debug)]
enum ValueWriter {
    /// With the names of the columns.
    Json(Vec<String>),
    /// Of many rows at once.
    Registered(Box<RegisteredWriter>),
}

impl RowEncoder {
    /// Makes the encoder of a sink, whose schema it registers if the format has one.
    fn new(sink: &Connector, options: &KafkaOptions, schema: &TableSchema) -> Result<Self> {
        let key = key_columns(&options.key, schema)?;
        let values = match (options.format, &options.registry) {
            (MessageFormat::Registered(language), Some(registry)) => {
                let writer = RegisteredWriter::new(sink, language, registry, schema)?;
                ValueWriter::Registered(Box::new(writer))
            }
            _ => ValueWriter::Json(schema.columns.iter().map(|c| c.name.clone()).collect()),
        };
        Ok(Self { values, key })
    }

    /// Makes the message of a row. It has no value before [`Self::add_values`].
    fn message(&mut self, sink: &Connector, arrival: u64, row: RowView<'_>) -> OutgoingMessage {
        let arena = Arena::new();
        let mut value = Vec::new();
        match &mut self.values {
            ValueWriter::Json(names) => {
                debug_assert!(self.key.iter().all(|column| *column < names.len()), "columns");
                let values = (0..names.len()).map(|column| row.get_in(column, &arena));
                write_json_object(&mut value, names.iter().map(String::as_str).zip(values));
            }
            ValueWriter::Registered(writer) => writer.push(row, &arena),
        }
        OutgoingMessage {
            key: self.key(row, &arena),
            value: value.into(),
            headers: vec![
                (SINK_HEADER.to_owned(), Bytes::from(sink.id.clone())),
                (POSITION_HEADER.to_owned(), Bytes::from(arrival.to_string())),
            ],
            time_ms: None,
        }
    }

    /// Gives the messages that were made since the last call their values, where rows are encoded together.
    fn add_values(&mut self, messages: &mut [OutgoingMessage]) -> Result<()> {
        if let ValueWriter::Registered(writer) = &mut self.values {
            let values = writer.take()?;
            debug_assert_eq!(values.len(), messages.len(), "each has a value");
            for (message, value) in messages.iter_mut().zip(values) {
                message.value = value;
            }
        }
        Ok(())
    }

    /// Makes the key: the text of one column, or an array of several.
    fn key<'r>(&self, row: RowView<'r>, arena: &'r Arena) -> Option<Bytes> {
        let values: Vec<_> = self.key.iter().map(|column| row.get_in(*column, arena)).collect();
        let mut out = Vec::new();
        match values.as_slice() {
            [] => return None,
            [value] if value.is_null() => return None,
            [value] => match value.as_str() {
                Some(text) => out.extend_from_slice(text.as_bytes()),
                None => write_json(&mut out, value),
            },
            values => write_json_array(&mut out, values),
        }
        Some(out.into())
    }
}

/// Finds the columns of a key.
pub(crate) fn key_columns(names: &[NamedColumn], schema: &TableSchema) -> Result<Vec<usize>> {
    let find = |NamedColumn { name, span }: &NamedColumn| {
        schema.find_column(name).ok_or_else(|| {
            let message = format!("column `{name}` does not exist");
            let columns = schema.columns.iter().map(|column| column.name.as_str());
            let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message);
            Box::new(diagnostic.with_nearest(name, columns).at(*span))
        })
    };
    names.iter().map(find).collect()
}
