//! A source: messages of a topic become rows of a table.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::failpoint;
use lockstep_kafka::{MessageBatch, Offsets, ReadEnd, TopicMessage, TopicPosition, TopicReader};
use lockstep_row::{Arena, Column, DataType, Datum, TableSchema};
use lockstep_table::{BulkLoad, TableError, with_durability};
use serde::{Deserialize, Serialize};

use super::{
    Connector,
    options::{MessageErrorRule, MessageFormat, MessagePart, NamedColumn},
};
use crate::{
    Database,
    append::table_error,
    catalog::TableEntry,
    json_text::write_json_object,
    progress::ProgressTable,
    text_rows::{CsvSchema, KeyRule, RowSchema},
    worker::{WorkFigures, WorkStep},
};

/// How long a step waits for messages.
const WAIT: Duration = Duration::from_millis(50);

/// How far a source is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceOffsets {
    /// The id of the topic.
    topic_id: String,
    /// The offset of each partition behind the last message that was read.
    offsets: Offsets,
    /// How many messages were read.
    messages: u64,
    /// How many of them were no rows.
    bad: u64,
}

impl SourceOffsets {
    /// Notes how far a source was when it ended.
    pub(super) fn note(&self, source: &Connector) {
        source.worker.figures(|WorkFigures { own, .. }| {
            (own.messages, own.bad) = (self.messages, self.bad);
        });
    }

    /// Returns the progress of a source that has read nothing.
    pub(crate) fn new(position: TopicPosition) -> Self {
        let TopicPosition { id, offsets } = position;
        Self { topic_id: id, offsets, ..Self::default() }
    }
}

/// A run of a source.
pub(crate) struct SourceRun {
    reader: TopicReader,
    stored: SourceOffsets,
    /// What is to be stored next: it is tried again where memory is lacking.
    unstored: Option<MessageBatch>,
    /// The schema of the table, with the reader of its rows.
    rows: Option<(Arc<TableSchema>, MessageReader)>,
}

impl SourceRun {
    /// Goes on behind the last message that was stored.
    pub(super) fn new(source: &Connector) -> Result<Self> {
        let stored: SourceOffsets = source.progress.read()?.unwrap_or_default();
        let skips = source.options.source.skips_lost;
        let on_lost = if skips { ReadEnd::Skip } else { ReadEnd::Fail };
        let (brokers, topic) = (source.brokers(), &source.options.topic);
        let from = TopicPosition { id: stored.topic_id.clone(), offsets: stored.offsets.clone() };
        let reader = TopicReader::open(brokers, topic, &from, on_lost)?;
        Ok(Self { reader, stored, unstored: None, rows: None })
    }

    /// Stores some messages.
    pub(super) fn step(&mut self, source: &Connector, database: &Database) -> Result<WorkStep> {
        if self.unstored.is_none() {
            self.unstored = self.reader.next(WAIT)?;
        }
        let Some(mut batch) = self.unstored.take() else {
            self.note(source);
            return Ok(WorkStep::CaughtUp);
        };
        let stored = self.store(&mut batch, source, database);
        if stored.is_err() {
            self.unstored = Some(batch);
        }
        self.note(source);
        stored.map(|()| WorkStep::Busy)
    }

    /// Stores messages with the offsets behind them. Those that were stored before an error are removed.
    fn store(
        &mut self,
        MessageBatch { topic_id, messages }: &mut MessageBatch,
        source: &Connector,
        database: &Database,
    ) -> Result<()> {
        let (target, bad_rows) = {
            let objects = database.objects();
            let bad_rows = source.bad_rows.as_ref();
            let bad_rows = bad_rows.map(|table| objects.entry(table).cloned()).transpose()?;
            (objects.entry(&source.table)?.clone(), bad_rows)
        };
        self.find_schema(source, &target)?;
        let (_, reader) = self.rows.as_ref().expect("it was found");
        let arena = Arena::new();
        let mut read = reader.read(messages, &arena);
        let mut load = load_rows(&target, &read.rows);
        if matches!(load, Err(TableError::Row { .. })) {
            read.test_rows(&target);
            load = load_rows(&target, &read.rows);
        }
        let stops = source.options.source.on_error == MessageErrorRule::Stop;
        debug_assert!(read.bad.is_sorted_by_key(|bad| bad.at), "in the order of the messages");
        debug_assert_eq!(read.rows.len() + read.bad.len(), messages.len(), "each is one of them");
        let stops_at = read.bad.first().map(|bad| bad.at).filter(|_| stops);
        let end = stops_at.unwrap_or(messages.len());
        if stops_at.is_some() {
            read.rows.retain(|row| row.at < end);
            load = load_rows(&target, &read.rows);
        }
        let load = load.map_err(|error| table_error(&error))?;
        let mut progress = self.stored.clone();
        if progress.topic_id != **topic_id {
            progress.topic_id = topic_id.to_string();
            progress.offsets.clear();
        }
        for message in &messages[..end] {
            progress.offsets.insert(message.partition, message.offset + 1);
        }
        progress.messages += number(end);
        if !stops {
            progress.bad += number(read.bad.len());
        }
        if end > 0 {
            let of_engine = database.objects().variables().durability();
            let level = target.options.durability().unwrap_or(of_engine);
            let batch =
                SourceBatch { messages, bad: if stops { &[] } else { &read.bad }, progress };
            let tables = (&target, bad_rows.as_ref());
            with_durability(level, || append(source, load, tables, &batch))?;
            failpoint::reach("source.stored");
            self.stored = batch.progress;
        }
        let Some(at) = stops_at else { return Ok(()) };
        let reason = read.bad.swap_remove(0).reason;
        let error = not_a_row(source, &messages[at], &reason);
        drop(read);
        messages.drain(..at);
        Err(error)
    }

    /// Makes the reader of the table's rows, unless it is there.
    fn find_schema(&mut self, source: &Connector, target: &TableEntry) -> Result<()> {
        let schema = target.table.schema();
        if self.rows.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &schema)) {
            return Ok(());
        }
        let reader = MessageReader::new(source, &schema)?;
        self.rows = Some((schema, reader));
        Ok(())
    }

    /// Notes how far the source is.
    fn note(&self, source: &Connector) {
        let SourceOffsets { messages, bad, .. } = self.stored;
        let waiting = self.unstored.as_ref().map_or(0, |batch| number(batch.messages.len()));
        let lag = self.reader.lag() + waiting;
        source.worker.figures(|WorkFigures { own, .. }| {
            (own.messages, own.bad, own.lag) = (messages, bad, lag);
        });
    }
}

/// Makes rows of messages.
#[derive(Debug)]
pub(super) struct MessageReader {
    schema: TableSchema,
    format: MessageFormat,
    json: RowSchema,
    columns: Vec<(String, DataType)>,
    /// The columns of the fields of CSV.
    fields: Vec<usize>,
    /// The columns that take a part of the message beside its value.
    parts: Vec<(MessagePart, usize)>,
    conversion: crate::Conversion,
}

/// The rows of messages, and the messages that are no rows.
struct ReadMessages<'a> {
    rows: Vec<MessageRow<'a>>,
    bad: Vec<BadMessage>,
}

/// The row of a message.
struct MessageRow<'a> {
    /// The position of the message.
    at: usize,
    values: &'a [Datum<'a>],
}

impl<'a> AsRef<[Datum<'a>]> for &MessageRow<'a> {
    fn as_ref(&self) -> &[Datum<'a>] {
        self.values
    }
}

/// A message that is no row.
struct BadMessage {
    /// The position of the message.
    at: usize,
    reason: String,
}

impl MessageReader {
    /// Makes the reader of a source. Fails where a column does not take what it is for.
    pub(super) fn new(source: &Connector, schema: &TableSchema) -> Result<Self> {
        let options = &source.options.source;
        let columns: Vec<(String, DataType)> =
            schema.columns.iter().map(|c| (c.name.clone(), c.data_type.clone())).collect();
        let mut parts = Vec::with_capacity(options.columns.len());
        for (part, NamedColumn { name, span }) in &options.columns {
            let column = part.column(name, schema).map_err(|error| Box::new(error.at(*span)))?;
            parts.push((*part, column));
        }
        let keys = match options.ignores_unknown {
            true => KeyRule::AllReadAndMore(vec![false; columns.len()]),
            false => KeyRule::Some,
        };
        let is_field = |at: &usize| parts.iter().all(|(_, column)| column != at);
        Ok(Self {
            schema: schema.clone(),
            format: options.format,
            json: RowSchema::new(&columns, source.conversion, keys).of_messages(),
            fields: (0..columns.len()).filter(is_field).collect(),
            columns,
            parts,
            conversion: source.conversion,
        })
    }

    fn read<'a>(&self, messages: &'a [TopicMessage], arena: &'a Arena) -> ReadMessages<'a> {
        let defaults = default_row(&self.schema, arena);
        let mut read = ReadMessages { rows: Vec::with_capacity(messages.len()), bad: Vec::new() };
        for (at, message) in messages.iter().enumerate() {
            match self.row(message, &defaults, arena) {
                Ok(values) => read.rows.push(MessageRow { at, values }),
                Err(error) => read.bad.push(BadMessage { at, reason: reason_of(&error) }),
            }
        }
        read
    }

    /// Makes the row of a message.
    fn row<'a>(
        &self,
        message: &'a TopicMessage,
        defaults: &[Datum<'a>],
        arena: &'a Arena,
    ) -> Result<&'a [Datum<'a>]> {
        let Some(value) = &message.value else {
            return Diagnostic::new(code::NULL_NOT_ALLOWED, "the message has no value").err();
        };
        let row = match self.format {
            MessageFormat::Json => self.json.read_row(value, arena)?,
            MessageFormat::Csv => {
                let schema = CsvSchema { columns: &self.columns, conversion: self.conversion };
                schema.read_record(value, &self.fields, arena)?
            }
        };
        debug_assert_eq!(row.values.len(), self.columns.len(), "a value for each column");
        let values = arena.alloc_slice_copy(row.values);
        for (at, is_present) in row.present.iter().enumerate() {
            if !is_present {
                values[at] = defaults[at];
            }
        }
        for (part, column) in &self.parts {
            values[*column] = part.value(message, &self.columns[*column].1, arena)?;
        }
        Ok(values)
    }
}

impl ReadMessages<'_> {
    /// Finds the rows that the table does not accept, by a test of each one.
    fn test_rows(&mut self, target: &TableEntry) {
        let mut bad = Vec::new();
        self.rows.retain(|row| match load_rows(target, std::slice::from_ref(row)) {
            Err(error @ TableError::Row { .. }) => {
                bad.push(BadMessage { at: row.at, reason: reason_of(&table_error(&error)) });
                false
            }
            _ => true,
        });
        self.bad.extend(bad);
        self.bad.sort_by_key(|bad| bad.at);
    }
}

impl MessagePart {
    /// Finds the column that takes it.
    fn column(self, name: &str, schema: &TableSchema) -> Result<usize> {
        let Some(at) = schema.find_column(name) else {
            let message = format!("column `{name}` does not exist in the table");
            let names = schema.columns.iter().map(|column| column.name.as_str());
            let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message);
            return diagnostic.with_nearest(name, names).err();
        };
        let data_type = &schema.columns[at].data_type;
        let (takes, expected) = match self {
            Self::Key | Self::Headers => (*data_type == DataType::String, "STRING"),
            Self::Partition => {
                (matches!(data_type, DataType::Int | DataType::BigInt), "INT or BIGINT")
            }
            Self::Offset => (*data_type == DataType::BigInt, "BIGINT"),
            Self::Time => (*data_type == DataType::Timestamp, "TIMESTAMP"),
        };
        if takes {
            return Ok(at);
        }
        let message = format!("column `{name}` is of type {data_type} but must be {expected}");
        Diagnostic::new(code::DATATYPE_MISMATCH, message).err()
    }

    /// Returns its value.
    fn value<'a>(
        self,
        message: &'a TopicMessage,
        data_type: &DataType,
        arena: &'a Arena,
    ) -> Result<Datum<'a>> {
        Ok(match self {
            Self::Key => match &message.key {
                Some(key) => match std::str::from_utf8(key) {
                    Ok(text) => Datum::String(text),
                    Err(_not_text) => {
                        let what = "the key of the message is not valid UTF-8";
                        return Diagnostic::new(code::INVALID_ENCODING, what).err();
                    }
                },
                None => Datum::Null,
            },
            Self::Partition if *data_type == DataType::Int => Datum::Int(message.partition),
            Self::Partition => Datum::BigInt(message.partition.into()),
            Self::Offset => Datum::BigInt(message.offset),
            Self::Time => Datum::Timestamp(message.time_ms),
            Self::Headers => Datum::String(arena.alloc_str(&headers_json(message))),
        })
    }
}

/// Writes the headers as a JSON object. Of headers with one name the last one counts, as in most readers of JSON.
fn headers_json(message: &TopicMessage) -> String {
    let texts: Vec<_> = message
        .headers
        .iter()
        .map(|(_, value)| value.as_ref().map(|value| String::from_utf8_lossy(value)))
        .collect();
    let values = texts.iter().map(|text| text.as_deref().map_or(Datum::Null, Datum::String));
    let names = message.headers.iter().map(|(name, _)| name.as_str());
    let mut out = Vec::new();
    write_json_object(&mut out, names.zip(values));
    String::from_utf8_lossy(&out).into_owned()
}

/// Makes a row of the defaults of its columns.
fn default_row<'a>(schema: &TableSchema, arena: &'a Arena) -> Vec<Datum<'a>> {
    let default = |column: &Column| match &column.default {
        Some(value) => in_arena(value.as_datum(arena), arena),
        None => Datum::Null,
    };
    schema.columns.iter().map(default).collect()
}

/// Copies a value that a schema has into an arena.
fn in_arena<'a>(value: Datum<'_>, arena: &'a Arena) -> Datum<'a> {
    match value {
        Datum::String(text) => Datum::String(arena.alloc_str(text)),
        value => value.detached().copied().unwrap_or(Datum::Null),
    }
}

/// Begins to append rows to a table. Fails where it does not accept one of them.
fn load_rows<'t>(
    target: &'t TableEntry,
    rows: &[MessageRow<'_>],
) -> std::result::Result<BulkLoad<'t>, TableError> {
    let mut load = target.table.load_any();
    load.push(rows)?;
    Ok(load)
}

/// What is stored together with the rows.
struct SourceBatch<'m> {
    messages: &'m [TopicMessage],
    bad: &'m [BadMessage],
    progress: SourceOffsets,
}

/// Appends rows and messages that are no rows to their tables, and the progress to that of the source.
fn append(
    source: &Connector,
    load: BulkLoad<'_>,
    (target, bad_rows): (&TableEntry, Option<&TableEntry>),
    batch: &SourceBatch<'_>,
) -> Result<()> {
    let failed = |error: TableError| table_error(&error);
    // In one order, as everywhere that several tables are written.
    let entries = std::iter::once(target).chain(bad_rows);
    let by_id: BTreeMap<u64, &TableEntry> = entries.map(|entry| (entry.id, entry)).collect();
    let _writing: Vec<_> = by_id.values().map(|entry| entry.writers.read()).collect();
    let check = || by_id.values().try_for_each(|entry| entry.definition.check());
    check()?;
    debug_assert!(batch.bad.len() <= batch.messages.len(), "they are of the batch");
    let mut loads = vec![load];
    if let Some(bad_rows) = bad_rows.filter(|_| !batch.bad.is_empty()) {
        let (arena, schema) = (Arena::new(), bad_rows.table.schema());
        let mut load = bad_rows.table.load_any();
        for bad in batch.bad {
            load.push([bad_row(source, &batch.messages[bad.at], &bad.reason, &schema, &arena)])
                .map_err(failed)?;
        }
        loads.push(load);
    }
    let mut load = source.progress.table().load_any();
    ProgressTable::push(&mut load, &batch.progress)?;
    if failpoint::is_seeded("source_offsets_first") {
        BulkLoad::finish_all(vec![load]).map_err(failed)?;
        failpoint::reach("source.stored");
    } else if !failpoint::is_seeded("source_offsets_forgotten") {
        loads.push(load);
    }
    let appended = BulkLoad::finish_all(loads).map_err(failed);
    appended.map(|_| ()).or_else(|error| {
        check()?;
        Err(error)
    })
}

/// Makes the row of a message that is no row.
fn bad_row<'a>(
    source: &'a Connector,
    message: &'a TopicMessage,
    reason: &'a str,
    schema: &TableSchema,
    arena: &'a Arena,
) -> Vec<Datum<'a>> {
    let text = |bytes: &Option<lockstep_kafka::Bytes>| match bytes {
        Some(bytes) => Datum::String(arena.alloc_str(&String::from_utf8_lossy(bytes))),
        None => Datum::Null,
    };
    let values = [
        ("source", Datum::String(&source.name().name)),
        ("topic", Datum::String(&source.options.topic)),
        ("topic_partition", Datum::Int(message.partition)),
        ("topic_offset", Datum::BigInt(message.offset)),
        ("message_time", Datum::Timestamp(message.time_ms)),
        ("message_key", text(&message.key)),
        ("message", text(&message.value)),
        ("reason", Datum::String(reason)),
    ];
    let mut row = default_row(schema, arena);
    for (name, value) in values {
        if let Some(at) = schema.find_column(name) {
            row[at] = value;
        }
    }
    row
}

fn reason_of(error: &Diagnostic) -> String {
    error.message.clone()
}

/// Makes the error of a message that is no row.
fn not_a_row(source: &Connector, message: &TopicMessage, reason: &str) -> Box<Diagnostic> {
    let TopicMessage { partition, offset, .. } = message;
    let (topic, table) = (&source.options.topic, &source.table.name.name);
    let what = format!(
        "the message at offset {offset} of partition {partition} of topic `{topic}` is not a row of \
         table `{table}`: {reason}"
    );
    Box::new(
        Diagnostic::new(code::BAD_COPY_FORMAT, what)
            .with_kind(Kind::FixData)
            .with_hint("Set on_error = 'skip into table_name' to store such messages in a table."),
    )
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
