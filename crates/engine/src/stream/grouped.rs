//! A run of a stream over sources with a group: a query for each partition that this process has claimed.
//!
//! Whether a row is late, and when a result is final, is decided within a partition, so that it does not depend on which
//! process computes it, nor on the other partitions that it has. The offsets of messages are the arrivals of its rows.
//!
//! # Exactly once
//!
//! How far a partition is, the group notes with it ([`StreamNote`]). A batch of results counts once its note is written,
//! which the brokers take from the process alone that has the partition. It is stored in three steps:
//!
//! 1. The rows and the note are *prepared*: stored beside the progress of the stream, where nobody reads them.
//! 2. The note is written. That decides it.
//! 3. The rows are appended to the tables of the stream, and what was prepared is removed, together.
//!
//! A process that ends between the steps finds what is prepared, and reads from the group whether it was decided: each
//! note has the number of the last batch of each process that took part. If another process has gone on without it, which
//! takes a number of its own, the rows are dropped: that one computes them again. If none has, the batch is decided as soon
//! as this process has the partition.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    ipc::{reader::StreamReader, writer::StreamWriter},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::failpoint;
use lockstep_kafka::{Claims, GroupNote, PartitionName};
use lockstep_stream::JoinCounts;
use lockstep_table::{BulkLoad, TailSignal};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    GoingOn, Stream, StreamQuery,
    run::{COUNTED_AFTER_NS, STORED_AFTER_NS, batch_of_late_rows},
};
use crate::{
    Conversion, Database,
    access::OwnerGuard,
    append::{push_batch, table_error},
    append_tables::{storing_as, writing_to},
    catalog::TableEntry,
    connector::{GroupedSources, ProcessGroup},
    continuous::{ContinuousProgress, QueryPart, divided_sources},
    progress::ProgressTable,
    worker::{WorkFigures, WorkStep},
};

/// The number under which the batch of the first partition is prepared; the others follow.
const FIRST_PREPARED: i32 = 2;
/// A note has the last batches of so many processes.
const PROCESSES_MAX: usize = 16;

/// A run of a stream over sources with a group.
pub(crate) struct GroupedRun {
    group: Arc<ProcessGroup>,
    /// The topic of the main rows, with whose partitions the group notes how far they are.
    topic: String,
    /// What the progress of the stream is called in notes.
    key: String,
    /// The tables of the query's sources.
    tables: Vec<u64>,
    /// The columns of each table with the partition and the offset.
    columns: BTreeMap<u64, (usize, usize)>,
    queries: BTreeMap<i32, PartitionQuery>,
    /// What is prepared and not stored yet.
    prepared: BTreeMap<i32, PreparedRows>,
    totals: GroupedProgress,
    /// Whether what was read of the queries is prepared.
    is_consistent: bool,
    owners: Option<OwnerGuard>,
    signal: Arc<TailSignal>,
    noted_at_ns: u64,
    /// When the group was last looked at for what became of batches that this process cannot decide.
    looked_at_ns: Option<u64>,
    counted_at_ns: Option<u64>,
}

/// The query of a partition.
struct PartitionQuery {
    /// The claim that it is of.
    claim: u64,
    query: StreamQuery,
    /// What was noted last.
    note: StreamNote,
    /// Whether this process has noted something since it has the partition.
    is_noted: bool,
    /// How many of its late rows are in the total.
    late_counted: u64,
}

/// How far a stream is in a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StreamNote {
    progress: ContinuousProgress,
    /// Grows with each batch, and with each process that goes on.
    number: u64,
    /// The number of the last one of each process.
    last: BTreeMap<String, u64>,
}

/// The notes about a partition: those of each stream.
type PartitionNotes = BTreeMap<String, StreamNote>;

/// What is known of the stream in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct GroupedProgress {
    /// The name of this process.
    process: String,
    rows_written: u64,
    rows_late: u64,
    /// Of each partition the places in the tables from which on rows count.
    positions: BTreeMap<i32, Vec<u64>>,
}

/// A batch of a partition whose note may not be written yet.
#[derive(Debug, Clone)]
struct PreparedRows {
    /// The claim that it is of; `None` of one from before the run.
    claim: Option<u64>,
    note: StreamNote,
    rows: RecordBatch,
    late: Option<RecordBatch>,
}

/// The same, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct StoredBatch {
    note: StreamNote,
    rows: String,
    late: Option<String>,
}

impl GroupedRun {
    /// Begins to work in the group.
    pub(super) fn new(
        stream: &Stream,
        database: &Database,
        sources: &GroupedSources,
    ) -> Result<Self> {
        sources.check_partitions()?;
        let tables = divided_sources(&stream.query)?.tables;
        let main = tables.first().and_then(|table| sources.sources.get(table));
        let Some(main) = main else {
            return Diagnostic::internal("a stream has main rows").err();
        };
        let mut texts = stream.progress.read_all()?;
        let totals = match stream.progress.read()? {
            Some(totals) => totals,
            None => {
                let id = database.host().random.id();
                let process = id[..6].iter().map(|byte| format!("{byte:02x}")).collect();
                let totals = GroupedProgress { process, ..GroupedProgress::default() };
                stream.progress.store(&totals)?;
                totals
            }
        };
        texts.retain(|number, text| *number >= FIRST_PREPARED && text != "null");
        if failpoint::is_seeded("group_prepared_forgotten") {
            texts.clear();
        }
        let prepared = texts.into_iter().map(|(number, text)| {
            Ok((number - FIRST_PREPARED, StoredBatch::read(&text)?.prepared()?))
        });
        Ok(Self {
            topic: main.topic.clone(),
            key: key_of(stream),
            tables,
            columns: sources.sources.iter().map(|(table, of)| (*table, of.columns)).collect(),
            queries: BTreeMap::new(),
            prepared: prepared.collect::<Result<_>>()?,
            totals,
            is_consistent: true,
            owners: OwnerGuard::new(database, stream.owned.clone(), &stream.views),
            signal: TailSignal::new(),
            noted_at_ns: database.clock().monotonic_ns(),
            looked_at_ns: None,
            counted_at_ns: None,
            group: sources.join(database)?,
        })
    }

    pub(super) fn signal(&self) -> &Arc<TailSignal> {
        &self.signal
    }

    /// Returns whether a step that failed may succeed later in the same run.
    pub(super) fn is_tried_again(&self, error: &Diagnostic) -> bool {
        self.is_consistent && (error.kind == Kind::Retry || error.code == code::OUT_OF_MEMORY)
    }

    /// Reads some rows of each partition and stores what is final.
    pub(super) fn step(&mut self, stream: &Stream, database: &Database) -> Result<WorkStep> {
        if let Some(owners) = &self.owners {
            owners.check()?;
        }
        self.group.member.check()?;
        self.settle(stream, database)?;
        self.claim(stream, database)?;
        let mut is_busy = false;
        self.is_consistent = false;
        let mut next = BTreeMap::new();
        for (partition, of_partition) in &mut self.queries {
            let stored = self.tables.iter().map(|table| {
                let stored = self.group.stored(*table, *partition).unwrap_or(0);
                u64::try_from(stored).unwrap_or(0)
            });
            // Before the rows are read: what is stored by then is read.
            let stored: Vec<u64> = stored.collect();
            let query = &mut of_partition.query;
            let rows = query.poll()?;
            query.check_stored(&stored)?;
            let late = query.take_late_rows();
            is_busy |= !query.is_caught_up();
            if rows.arrivals.is_empty() && late.is_empty() {
                continue;
            }
            let late = (!late.is_empty()).then(|| batch_of_late_rows(stream, &late)).transpose()?;
            let note = of_partition.next_note(&self.totals.process);
            let claim = Some(of_partition.claim);
            next.insert(*partition, PreparedRows { claim, note, rows: rows.batch, late });
        }
        if !next.is_empty() {
            self.prepare(stream, database, next)?;
        }
        self.is_consistent = true;
        self.settle(stream, database)?;
        let now_ns = database.clock().monotonic_ns();
        if now_ns.saturating_sub(self.noted_at_ns) >= STORED_AFTER_NS {
            self.noted_at_ns = now_ns;
            self.note_progress()?;
        }
        self.note_figures(stream, database);
        Ok(if is_busy { WorkStep::Busy } else { WorkStep::CaughtUp })
    }

    /// Notes how far it is before the run ends.
    pub(super) fn end(&mut self, stream: &Stream, database: &Database) -> Result<()> {
        self.settle(stream, database)?;
        self.note_progress()?;
        for (partition, of_partition) in self.queries.iter().filter(|(_, of)| of.is_noted) {
            self.totals.positions.insert(*partition, of_partition.query.positions());
        }
        stream.progress.store(&self.totals)
    }

    fn name_of(&self, partition: i32) -> PartitionName {
        (self.topic.clone(), partition)
    }

    /// Returns the claims of the main rows' topic.
    fn claims(&self) -> BTreeMap<i32, u64> {
        let claims = self.group.member.claims().into_iter();
        let own = claims.filter(|((topic, _), _)| *topic == self.topic);
        own.map(|((_, partition), claim)| (partition, claim)).collect()
    }

    /// Ends the queries of partitions that were given up, and begins those of partitions that were claimed.
    fn claim(&mut self, stream: &Stream, database: &Database) -> Result<()> {
        let claims = self.claims();
        self.queries.retain(|partition, of| claims.get(partition) == Some(&of.claim));
        let is_new = |partition: &i32| {
            !self.queries.contains_key(partition) && !self.prepared.contains_key(partition)
        };
        let new: BTreeSet<i32> = claims.keys().copied().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut notes = self.read_notes(&new)?;
        for partition in new {
            let mut note = notes.remove(&partition);
            if failpoint::is_seeded("group_progress_of_process") {
                note = None;
            }
            if note.is_none() {
                self.check_notes(partition)?;
            }
            let positions = self.totals.positions.get(&partition);
            let part = QueryPart {
                partition,
                columns: self.columns.clone(),
                from: positions.cloned().unwrap_or_default(),
                signal: Arc::clone(&self.signal),
            };
            let going_on =
                GoingOn { progress: note.as_ref().map(|note| &note.progress), part: Some(&part) };
            let of_query = stream.options.of_query(stream.late_rows.is_some());
            let going_on = (stream.options, going_on);
            let query = StreamQuery::new(&stream.query, database, of_query, going_on)?;
            let (claim, note) = (claims[&partition], note.unwrap_or_default());
            let of_partition =
                PartitionQuery { claim, query, note, is_noted: false, late_counted: 0 };
            self.queries.insert(partition, of_partition);
        }
        Ok(())
    }

    /// Reads the notes of this stream about partitions, of which some may have none.
    fn read_notes(&self, partitions: &BTreeSet<i32>) -> Result<BTreeMap<i32, StreamNote>> {
        let names = partitions.iter().map(|partition| self.name_of(*partition)).collect();
        let notes = self.group.member.notes(&names)?.into_iter();
        let own = notes.filter_map(|((_, partition), note)| {
            Some((partition, parse_notes(&note).remove(&self.key)?))
        });
        Ok(own.collect())
    }

    /// Fails where the group has no notes of this stream although this process has noted some.
    fn check_notes(&self, partition: i32) -> Result<()> {
        let noted: BTreeSet<i32> = self.totals.positions.keys().copied().collect();
        let is_forgotten =
            noted.contains(&partition) || !noted.is_empty() && self.read_notes(&noted)?.is_empty();
        if is_forgotten { Err(forgotten(&self.topic, partition)) } else { Ok(()) }
    }

    /// Stores rows and their notes, so that they are there whenever their notes are written.
    fn prepare(
        &mut self,
        stream: &Stream,
        database: &Database,
        next: BTreeMap<i32, PreparedRows>,
    ) -> Result<()> {
        let (target, _) = stream.written_entries(database)?;
        let mut load = stream.progress.table().load_any();
        for (partition, rows) in &next {
            let stored = StoredBatch::of(rows)?;
            ProgressTable::push_at(&mut load, FIRST_PREPARED + partition, &stored)?;
        }
        let store = || BulkLoad::finish_all(vec![load]).map_err(|error| table_error(&error));
        if !failpoint::is_seeded("group_note_first") {
            storing_as(&target, database, store)?;
        }
        failpoint::reach("group.prepared");
        self.prepared.extend(next);
        Ok(())
    }

    /// Decides what is prepared, and appends what is decided.
    fn settle(&mut self, stream: &Stream, database: &Database) -> Result<()> {
        if self.prepared.is_empty() {
            return Ok(());
        }
        let claims = self.claims();
        let is_claimed = |(partition, rows): &(&i32, &PreparedRows)| {
            rows.claim.is_some()
                && (claims.get(partition).copied() == rows.claim
                    || failpoint::is_seeded("group_claim_unchecked"))
        };
        let claimed = self.prepared.iter().filter(is_claimed);
        let claimed: Claims = claimed
            .filter_map(|(partition, rows)| Some((self.name_of(*partition), rows.claim?)))
            .collect();
        if failpoint::is_seeded("group_rows_first") {
            let all = self.prepared.keys().copied().collect();
            self.append(stream, database, &all, &BTreeSet::new())?;
            failpoint::reach("group.decided");
        }
        let written = self.group.member.write(&claimed, |(_, partition), before| {
            let note = self.prepared[partition].note.clone();
            self.noted(before, note)
        })?;
        failpoint::reach("group.decided");
        if failpoint::is_seeded("group_rows_first") {
            self.prepared.clear();
            return Ok(());
        }
        let mut decided: BTreeSet<i32> =
            written.into_iter().map(|(_, partition)| partition).collect();
        let dropped = self.find_outcomes(&claims, &mut decided, database)?;
        self.append(stream, database, &decided, &dropped)?;
        for partition in decided {
            let Some(rows) = self.prepared.remove(&partition) else { continue };
            if let Some(of) =
                self.queries.get_mut(&partition).filter(|of| Some(of.claim) == rows.claim)
            {
                (of.note, of.is_noted) = (rows.note, true);
            }
        }
        self.prepared.retain(|partition, _| !dropped.contains(partition));
        self.queries.retain(|partition, _| !dropped.contains(partition));
        Ok(())
    }

    /// Finds out what became of batches whose claims are over: adds those that were decided, and returns those that nobody
    /// can decide any more, since a process has gone on without them.
    fn find_outcomes(
        &mut self,
        claims: &BTreeMap<i32, u64>,
        decided: &mut BTreeSet<i32>,
        database: &Database,
    ) -> Result<BTreeSet<i32>> {
        let now_ns = database.clock().monotonic_ns();
        let is_due = self
            .looked_at_ns
            .is_none_or(|looked_ns| now_ns.saturating_sub(looked_ns) >= STORED_AFTER_NS);
        let is_unknown = |partition: &i32| {
            !decided.contains(partition) && (is_due || claims.contains_key(partition))
        };
        let unknown: BTreeSet<i32> = self.prepared.keys().copied().filter(is_unknown).collect();
        let mut dropped = BTreeSet::new();
        if unknown.is_empty() {
            return Ok(dropped);
        }
        self.looked_at_ns = Some(now_ns);
        let mut notes = self.read_notes(&unknown)?;
        for partition in unknown {
            let note = notes.remove(&partition).unwrap_or_default();
            let Some(rows) = self.prepared.get_mut(&partition) else { continue };
            let number = rows.note.number;
            let of_process = note.last.get(&self.totals.process);
            if of_process.is_some_and(|last| *last >= number)
                || failpoint::is_seeded("group_claims_ignored")
            {
                decided.insert(partition);
            } else if note.number >= number {
                dropped.insert(partition);
            } else if let Some(claim) = claims.get(&partition) {
                // Nobody has gone on: it follows what is noted, and this process may decide it now.
                rows.claim = Some(*claim);
            }
        }
        Ok(dropped)
    }

    /// Appends rows that are decided to their tables, and removes what was prepared of them and of those that are not.
    fn append(
        &mut self,
        stream: &Stream,
        database: &Database,
        decided: &BTreeSet<i32>,
        dropped: &BTreeSet<i32>,
    ) -> Result<()> {
        if decided.is_empty() && dropped.is_empty() {
            return Ok(());
        }
        let (target, late_rows) = stream.written_entries(database)?;
        let mut totals = self.totals.clone();
        for partition in decided {
            let Some(of) = self.queries.get(partition) else { continue };
            totals.positions.insert(*partition, of.query.positions());
            totals.rows_late += of.query.rows_late() - of.late_counted;
        }
        let rows: Vec<&PreparedRows> =
            decided.iter().filter_map(|partition| self.prepared.get(partition)).collect();
        let written: usize = rows.iter().map(|rows| rows.rows.num_rows()).sum();
        totals.rows_written += u64::try_from(written).unwrap_or(u64::MAX);
        let conversion = Conversion::new(stream.settings, false);
        let entries = std::iter::once(&target).chain(&late_rows);
        let append = || {
            let mut loads =
                vec![load_batches(&target, rows.iter().map(|rows| &rows.rows), conversion)?];
            if let Some(late_rows) = &late_rows {
                let late = rows.iter().filter_map(|rows| rows.late.as_ref());
                loads.push(load_batches(late_rows, late, conversion)?);
            }
            let mut load = stream.progress.table().load_any();
            ProgressTable::push(&mut load, &totals)?;
            for partition in decided.iter().chain(dropped) {
                ProgressTable::push_at(
                    &mut load,
                    FIRST_PREPARED + partition,
                    &None::<StoredBatch>,
                )?;
            }
            loads.push(load);
            BulkLoad::finish_all(loads).map_err(|error| table_error(&error))
        };
        writing_to(entries, || storing_as(&target, database, append))?;
        failpoint::reach("stream.stored");
        for partition in decided {
            if let Some(of) = self.queries.get_mut(partition) {
                of.late_counted = of.query.rows_late();
            }
        }
        self.totals = totals;
        Ok(())
    }

    /// Notes how far partitions are of which there is nothing to store.
    fn note_progress(&mut self) -> Result<()> {
        let mut notes = BTreeMap::new();
        let mut claims = Claims::new();
        for (partition, of) in &mut self.queries {
            let progress = of.query.progress();
            let is_new = !of.is_noted || progress != of.note.progress;
            if is_new && !self.prepared.contains_key(partition) {
                // What another process has prepared does not count any more.
                let number = of.note.number + u64::from(!of.is_noted);
                let last = of.note.last.clone();
                notes.insert(*partition, StreamNote { progress, number, last });
                claims.insert((self.topic.clone(), *partition), of.claim);
            }
        }
        if claims.is_empty() {
            return Ok(());
        }
        let written = self.group.member.write(&claims, |(_, partition), before| {
            self.noted(before, notes[partition].clone())
        })?;
        for (_, partition) in written {
            if let (Some(of), Some(note)) =
                (self.queries.get_mut(&partition), notes.remove(&partition))
            {
                (of.note, of.is_noted) = (note, true);
            }
        }
        Ok(())
    }

    /// Returns the notes about a partition with that of this stream in its place.
    fn noted(&self, before: &GroupNote, note: StreamNote) -> GroupNote {
        let mut notes = parse_notes(before);
        let offset = i64::try_from(note.progress.reached()).unwrap_or(i64::MAX);
        notes.insert(self.key.clone(), note);
        // Maps with names have a text.
        GroupNote { offset, text: serde_json::to_string(&notes).unwrap_or_default() }
    }

    /// Notes in the figures of the stream how far it is.
    fn note_figures(&mut self, stream: &Stream, database: &Database) {
        let now_ns = database.clock().monotonic_ns();
        let is_counted = self
            .counted_at_ns
            .is_some_and(|counted_ns| now_ns.saturating_sub(counted_ns) < COUNTED_AFTER_NS);
        let counts: Option<Vec<JoinCounts>> =
            (!is_counted).then(|| self.queries.values_mut().map(|of| of.query.counts()).collect());
        let queries = || self.queries.values().map(|of| &of.query);
        let times = || queries().map(StreamQuery::times);
        stream.worker.figures(|WorkFigures { own: figures, .. }| {
            figures.rows_read = queries().map(StreamQuery::rows_read).sum();
            figures.rows_late = self.totals.rows_late;
            figures.teams = queries().map(StreamQuery::teams).next().unwrap_or_default();
            figures.rows_written = self.totals.rows_written;
            figures.newest = times().filter_map(|(newest, _)| newest).max();
            // The partition that is behind.
            figures.watermark = times().filter_map(|(_, watermark)| watermark).min();
            if let Some(counts) = &counts {
                figures.count(counts);
            }
        });
        if counts.is_some() {
            self.counted_at_ns = Some(now_ns);
        }
    }
}

impl PartitionQuery {
    /// Returns the note of the batch that was read last.
    fn next_note(&mut self, process: &str) -> StreamNote {
        let number = self.note.number + 1;
        let mut last = self.note.last.clone();
        last.insert(process.to_owned(), number);
        if last.len() > PROCESSES_MAX {
            let oldest = last.iter().min_by_key(|(_, number)| **number);
            if let Some(oldest) = oldest.map(|(process, _)| process.clone()) {
                last.remove(&oldest);
            }
        }
        StreamNote { progress: self.query.progress(), number, last }
    }
}

impl StoredBatch {
    fn of(rows: &PreparedRows) -> Result<Self> {
        let late = rows.late.as_ref().map(text_of).transpose()?;
        Ok(Self { note: rows.note.clone(), rows: text_of(&rows.rows)?, late })
    }

    fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| unreadable(&error.to_string()))
    }

    fn prepared(self) -> Result<PreparedRows> {
        let Self { note, rows, late } = self;
        let late = late.map(|late| batch_of(&late)).transpose()?;
        Ok(PreparedRows { claim: None, note, rows: batch_of(&rows)?, late })
    }
}

/// Writes a batch as text.
fn text_of(batch: &RecordBatch) -> Result<String> {
    let written = || {
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
        writer.write(batch)?;
        writer.into_inner()
    };
    let bytes = written().map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
    Ok(STANDARD.encode(bytes))
}

/// Reads a batch that was written as text.
fn batch_of(text: &str) -> Result<RecordBatch> {
    let bytes = STANDARD.decode(text).map_err(|error| unreadable(&error.to_string()))?;
    let read = StreamReader::try_new(bytes.as_slice(), None)
        .and_then(|mut reader| reader.next().transpose());
    let read = read.map_err(|error| unreadable(&error.to_string()))?;
    read.ok_or_else(|| unreadable("there is no batch"))
}

fn unreadable(why: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(format!("prepared rows cannot be read: {why}")))
}

/// Reads the notes about a partition. What others have noted counts for none.
fn parse_notes(note: &GroupNote) -> PartitionNotes {
    serde_json::from_str(&note.text).unwrap_or_default()
}

/// Names a stream in notes: another query under the same name has another name there.
fn key_of(stream: &Stream) -> String {
    let digest = Sha256::digest(stream.sql.as_bytes());
    let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{digest}", stream.name())
}

/// Makes the error of a group that has lost its notes.
fn forgotten(topic: &str, partition: i32) -> Box<Diagnostic> {
    let message =
        format!("the group has forgotten how far partition {partition} of topic `{topic}` is");
    Box::new(
        Diagnostic::new(code::UNDEFINED_OBJECT, message)
            .with_kind(Kind::FixData)
            .with_detail(
                "Kafka removes the offsets of a group that no process works in for `offsets.retention.minutes`.",
            )
            .with_hint("Drop the stream, and create it again; it starts with the rows that are stored."),
    )
}

/// Begins to append batches to a table.
fn load_batches<'t, 'b>(
    entry: &'t TableEntry,
    batches: impl Iterator<Item = &'b RecordBatch>,
    conversion: Conversion,
) -> Result<BulkLoad<'t>> {
    let mut load = entry.table.load_any();
    let schema = entry.table.schema();
    for batch in batches {
        push_batch(&mut load, batch, &schema, conversion)?;
    }
    Ok(load)
}
