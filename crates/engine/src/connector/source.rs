//! A source: messages of a topic become rows of a table.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::failpoint;
use lockstep_kafka::{MessageBatch, Offsets, ReadEnd, TopicMessage, TopicPosition, TopicReader};
use lockstep_row::{Arena, Datum, TableSchema};
use lockstep_table::{BulkLoad, TableError, with_durability};
use serde::{Deserialize, Serialize};

use super::{
    Connector,
    message::{BadMessage, MessageReader, MessageRow, ReadMessages, default_row, reason_of},
    options::MessageErrorRule,
};
use crate::{
    Database,
    append::table_error,
    catalog::TableEntry,
    progress::ProgressTable,
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
        let (_, reader) = self.rows.as_mut().expect("it was found");
        let arena = Arena::new();
        let mut read = reader.read(messages, &arena)?;
        let mut load = load_rows(&target, &read.rows);
        if matches!(load, Err(TableError::Row { .. })) {
            test_rows(&mut read, &target);
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

/// Finds the rows that the table does not accept, by a test of each one.
fn test_rows(read: &mut ReadMessages<'_>, target: &TableEntry) {
    let ReadMessages { rows, bad } = read;
    rows.retain(|row| match load_rows(target, std::slice::from_ref(row)) {
        Err(error @ TableError::Row { .. }) => {
            bad.push(BadMessage { at: row.at, reason: reason_of(&table_error(&error)) });
            false
        }
        _ => true,
    });
    bad.sort_by_key(|bad| bad.at);
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
