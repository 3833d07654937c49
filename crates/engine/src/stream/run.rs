//! A run of a stream: its query, and the rows that it has given and that are not stored yet.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch},
    error::ArrowError,
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::failpoint;
use lockstep_row::{Datum, arrow::ColumnBuilder};
use lockstep_stream::{JoinCounts, TeamCounts};
use lockstep_table::{BulkLoad, TailSignal};
use serde::{Deserialize, Serialize};

use super::{GoingOn, Stream, StreamQuery, schema_of_late_rows};
use crate::{
    Conversion, Database,
    access::OwnerGuard,
    append::{push_batch, table_error},
    append_tables::{storing_as, writing_to},
    catalog::TableEntry,
    continuous::{ContinuousProgress, FinalRows, LateSourceRow},
    progress::ProgressTable,
    worker::{WorkFigures, WorkStep},
};

/// Progress without a row to write is stored after so long.
pub(super) const STORED_AFTER_NS: u64 = 1_000_000_000;
/// The memory of a run is looked at so often: that visits each key.
pub(super) const COUNTED_AFTER_NS: u64 = 1_000_000_000;

/// A run of a stream over all rows of its tables.
pub(crate) struct WholeRun {
    query: StreamQuery,
    owners: Option<OwnerGuard>,
    /// What is to be stored next: it is tried again where memory is lacking.
    unstored: Option<UnstoredRows>,
    /// What was stored last.
    stored: StoredProgress,
    /// What was stored before the run began.
    before: StoredProgress,
    stored_at_ns: u64,
    counted_at_ns: Option<u64>,
}

/// Rows that are stored together.
struct UnstoredRows {
    rows: FinalRows,
    late: Vec<LateSourceRow>,
    progress: StoredProgress,
}

/// How far a stream is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StoredProgress {
    query: ContinuousProgress,
    /// How many rows it has written.
    rows_written: u64,
    /// How many rows were late.
    rows_late: u64,
}

/// How far a stream is, and what it has.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamFigures {
    pub(crate) rows_read: u64,
    pub(crate) rows_written: u64,
    pub(crate) rows_late: u64,
    pub(crate) watermark: Option<i64>,
    /// The newest event time of all sources.
    pub(super) newest: Option<i64>,
    /// The rows that are not final.
    pub(crate) rows_waiting: usize,
    /// The rows that frames may hold.
    pub(crate) rows_kept: usize,
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
    /// How its rows are divided among joiners.
    pub(crate) teams: TeamCounts,
}

impl StreamFigures {
    /// Notes what the queries of the stream have.
    pub(super) fn count(&mut self, queries: &[JoinCounts]) {
        let sum = |count: fn(&JoinCounts) -> usize| queries.iter().map(count).sum();
        self.rows_waiting = sum(|counts| counts.unsettled + counts.pending);
        self.rows_kept = sum(|counts| counts.candidates);
        self.keys = sum(|counts| counts.keys);
        self.bytes = sum(|counts| counts.bytes);
    }

    /// Returns the newest event time less the watermark.
    pub(crate) fn lag_ms(&self) -> Option<i64> {
        Some(self.newest?.saturating_sub(self.watermark?))
    }
}

impl WholeRun {
    /// Goes on where the stream was stored last.
    pub(super) fn new(stream: &Stream, database: &Database) -> Result<Self> {
        let stored: Option<StoredProgress> = stream.progress.read()?;
        let options = stream.options.of_query(stream.late_rows.is_some());
        let progress = stored.as_ref().map(|stored| &stored.query);
        let going_on = GoingOn { progress, part: None };
        let going_on = (stream.options, going_on);
        let query = StreamQuery::new(&stream.query, database, options, going_on)?;
        let stored = stored.unwrap_or_default();
        Ok(Self {
            query,
            owners: OwnerGuard::new(database, stream.owned.clone(), &stream.views),
            unstored: None,
            before: stored.clone(),
            stored,
            stored_at_ns: database.clock().monotonic_ns(),
            counted_at_ns: None,
        })
    }

    /// Reads some rows and stores what is final.
    pub(super) fn step(&mut self, stream: &Stream, database: &Database) -> Result<WorkStep> {
        if self.unstored.is_none() {
            if let Some(owners) = &self.owners {
                owners.check()?;
            }
            let rows = self.query.poll()?;
            let late = self.query.take_late_rows();
            let is_due = self.is_due(database);
            if !rows.arrivals.is_empty() || !late.is_empty() || is_due {
                self.unstored = Some(self.unstored_rows(rows, late));
            }
        }
        self.store(stream, database)?;
        self.note(stream, database);
        Ok(if self.query.is_caught_up() { WorkStep::CaughtUp } else { WorkStep::Busy })
    }

    pub(super) fn signal(&self) -> &Arc<TailSignal> {
        self.query.signal()
    }

    /// Returns whether a step that failed may succeed later: rows could not be stored for which memory was lacking.
    pub(super) fn is_tried_again(&self, error: &Diagnostic) -> bool {
        self.unstored.is_some() && error.code == code::OUT_OF_MEMORY
    }

    /// Stores how far the stream is before the run ends.
    pub(super) fn end(&mut self, stream: &Stream, database: &Database) -> Result<()> {
        self.store(stream, database)?;
        // What was read and is not final is read again.
        if self.query.progress() != self.stored.query {
            let (rows, late) = (self.query.no_rows()?, self.query.take_late_rows());
            self.unstored = Some(self.unstored_rows(rows, late));
            self.store(stream, database)?;
        }
        Ok(())
    }

    /// Returns whether progress is to be stored although there are no rows.
    fn is_due(&mut self, database: &Database) -> bool {
        let now_ns = database.clock().monotonic_ns();
        now_ns.saturating_sub(self.stored_at_ns) >= STORED_AFTER_NS
            && self.query.progress() != self.stored.query
    }

    fn unstored_rows(&mut self, rows: FinalRows, late: Vec<LateSourceRow>) -> UnstoredRows {
        let written = u64::try_from(rows.arrivals.len()).unwrap_or(u64::MAX);
        let progress = StoredProgress {
            query: self.query.progress(),
            rows_written: self.stored.rows_written + written,
            rows_late: self.before.rows_late + self.query.rows_late(),
        };
        UnstoredRows { rows, late, progress }
    }

    /// Stores what is to be stored: all of it or nothing.
    fn store(&mut self, stream: &Stream, database: &Database) -> Result<()> {
        let Some(UnstoredRows { rows, late, progress }) = &self.unstored else { return Ok(()) };
        let (target, late_rows) = stream.written_entries(database)?;
        let mut batches = vec![(&target, rows.batch.clone())];
        if let Some(late_rows) = &late_rows
            && !late.is_empty()
        {
            batches.push((late_rows, batch_of_late_rows(stream, late)?));
        }
        let conversion = Conversion::new(stream.settings, false);
        let append = || append(&batches, (stream, progress), conversion);
        let entries = batches.iter().map(|(entry, _)| *entry);
        writing_to(entries, || storing_as(&target, database, append))?;
        failpoint::reach("stream.stored");
        self.stored = progress.clone();
        self.stored_at_ns = database.clock().monotonic_ns();
        self.unstored = None;
        Ok(())
    }

    /// Notes in the figures of the stream how far it is.
    fn note(&mut self, stream: &Stream, database: &Database) {
        let now_ns = database.clock().monotonic_ns();
        let is_counted = self
            .counted_at_ns
            .is_some_and(|counted_ns| now_ns.saturating_sub(counted_ns) < COUNTED_AFTER_NS);
        let counts = (!is_counted).then(|| {
            self.counted_at_ns = Some(now_ns);
            self.query.counts()
        });
        let rows_read = self.query.rows_read();
        debug_assert!(self.unstored.is_none(), "figures are of stored rows");
        let rows_late = self.before.rows_late + self.query.rows_late();
        stream.worker.figures(|WorkFigures { own: figures, .. }| {
            (figures.rows_read, figures.rows_late) = (rows_read, rows_late);
            figures.rows_written = self.stored.rows_written;
            (figures.newest, figures.watermark) = self.query.times();
            figures.teams = self.query.teams();
            if let Some(counts) = counts {
                figures.count(&[counts]);
            }
        });
    }
}

/// Appends rows to their tables, and the progress to that of the stream.
fn append(
    batches: &[(&TableEntry, RecordBatch)],
    (stream, progress): (&Stream, &StoredProgress),
    conversion: Conversion,
) -> Result<()> {
    let mut loads: Vec<BulkLoad<'_>> = Vec::with_capacity(batches.len() + 1);
    for (entry, batch) in batches {
        let mut load = entry.table.load_any();
        push_batch(&mut load, batch, &entry.table.schema(), conversion)?;
        loads.push(load);
    }
    let mut load = stream.progress.table().load_any();
    ProgressTable::push(&mut load, progress)?;
    if failpoint::is_seeded("stream_progress_first") {
        let stored = BulkLoad::finish_all(vec![load]).map_err(|error| table_error(&error));
        stored?;
        failpoint::reach("stream.stored");
    } else if !failpoint::is_seeded("stream_progress_forgotten") {
        loads.push(load);
    }
    let appended = BulkLoad::finish_all(loads).map_err(|error| table_error(&error));
    appended.map(|_| ())
}

/// Makes the rows of a table of late rows.
pub(super) fn batch_of_late_rows(stream: &Stream, late: &[LateSourceRow]) -> Result<RecordBatch> {
    let columns = schema_of_late_rows().columns;
    let mut builders: Vec<ColumnBuilder> =
        columns.iter().map(|column| ColumnBuilder::new(&column.data_type, late.len())).collect();
    let name = stream.name().to_string();
    for LateSourceRow { table, time, arrival, arrival_ms, row } in late {
        let values = [
            Datum::String(&name),
            Datum::String(table),
            time.map_or(Datum::Null, Datum::Timestamp),
            Datum::BigInt(i64::try_from(*arrival).unwrap_or(i64::MAX)),
            Datum::Timestamp(*arrival_ms),
            Datum::String(row),
        ];
        debug_assert_eq!(values.len(), builders.len(), "a value for each column");
        builders.iter_mut().zip(values).for_each(|(builder, value)| builder.push(value));
    }
    let names = columns.iter().map(|column| column.name.as_str());
    let arrays: Vec<ArrayRef> = builders.iter_mut().map(ColumnBuilder::finish).collect();
    RecordBatch::try_from_iter_with_nullable(
        names.zip(arrays).map(|(name, array)| (name, array, true)),
    )
    .map_err(|error: ArrowError| Box::new(Diagnostic::internal(error.to_string())))
}
