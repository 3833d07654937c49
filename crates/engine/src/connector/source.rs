//! A source: what it reads becomes rows of a table.
//!
//! A [`SourceInput`] reads: messages of a topic ([`topic`]) or lines of files ([`files`]). A [`SourceRun`] stores what was
//! read, together with how far that is: the rows, what is no row, and the progress are one append to three tables.

pub(super) mod files;
mod folder;
pub(super) mod rows;
pub(super) mod topic;

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{Clock, failpoint};
use lockstep_row::{Arena, Datum, TableSchema};
use lockstep_table::{BulkLoad, TableError};
use serde::{Serialize, de::DeserializeOwned};

use self::rows::{BadRow, ItemRow, ItemRows, default_row, reason_of};
use super::{Connector, options::MessageErrorRule};
use crate::{
    Database,
    append::table_error,
    append_tables::{storing_as, writing_to},
    catalog::TableEntry,
    progress::ProgressTable,
    worker::{WorkFigures, WorkStep},
};

/// What a source reads from.
pub(crate) trait SourceInput: Sized {
    /// How far it is.
    type Progress: ConnectorProgress;
    /// Items that were read together and are not stored.
    type Batch;

    /// Returns the next items for a table with this schema; `None` if there are none for now, after a short wait.
    fn next(&mut self, source: &Connector, table: InputTable<'_>) -> Result<Option<Self::Batch>>;

    /// Returns the number of items.
    fn count(batch: &Self::Batch) -> usize;

    /// Makes rows of a table with this schema of the items.
    fn read<'a>(
        &mut self,
        source: &Connector,
        schema: &Arc<TableSchema>,
        batch: &'a Self::Batch,
        arena: &'a Arena,
    ) -> Result<ItemRows<'a>>;

    /// Notes in the progress that the first so many items were stored. Returns whether there is something to store even
    /// if these are none.
    fn advance(progress: &mut Self::Progress, batch: &Self::Batch, end: usize) -> bool;

    /// Adds what is stored beside the progress.
    fn push_more(_load: &mut BulkLoad<'_>, _batch: &Self::Batch, _end: usize) -> Result<()> {
        Ok(())
    }

    /// Notes that the first so many items were stored.
    fn stored(&mut self, batch: &Self::Batch, end: usize);

    /// Removes the first so many items.
    fn drain(batch: &mut Self::Batch, end: usize);

    /// Returns the values of the columns that the row of an item has which is no row of the table.
    fn bad_values<'a>(
        source: &'a Connector,
        batch: &'a Self::Batch,
        bad: &'a BadRow,
        arena: &'a Arena,
    ) -> Vec<(&'static str, Datum<'a>)>;

    /// Names an item, for errors.
    fn name_of(batch: &Self::Batch, at: usize) -> String;

    /// Returns how much there is still to read, where so many items that were read are not stored.
    fn lag(&self, unstored: u64) -> u64;
}

/// How far a source is, as it is stored.
pub(crate) trait ConnectorProgress: Clone + Default + Serialize + DeserializeOwned {
    /// Returns how many items were read, and how many of them were no rows.
    fn counts(&self) -> [u64; 2];

    /// Adds items, some of which were no rows.
    fn count(&mut self, items: u64, bad: u64);

    /// Shows how far the source was when it ended.
    fn note(&self, source: &Connector) {
        let [items, bad] = self.counts();
        source.worker.figures(|WorkFigures { own, .. }| (own.messages, own.bad) = (items, bad));
    }
}

/// The table that items are read for, whose columns do not change while it has a source.
#[derive(Clone, Copy)]
pub(crate) struct InputTable<'t> {
    pub(super) schema: &'t Arc<TableSchema>,
    pub(super) clock: &'t Arc<dyn Clock>,
}

/// A run of a source.
pub(crate) struct SourceRun<I: SourceInput> {
    input: I,
    progress: I::Progress,
    /// What is to be stored next: it is tried again where memory is lacking.
    unstored: Option<I::Batch>,
}

/// The tables that a batch is stored in.
#[derive(Clone, Copy)]
struct SourceTables<'t> {
    target: &'t TableEntry,
    bad_rows: Option<&'t TableEntry>,
}

impl<I: SourceInput> SourceRun<I> {
    /// Goes on with an input behind what was stored.
    pub(super) fn new(input: I, progress: I::Progress) -> Self {
        Self { input, progress, unstored: None }
    }

    /// Stores some items.
    pub(super) fn step(&mut self, source: &Connector, database: &Database) -> Result<WorkStep> {
        let (target, bad_rows) = {
            let objects = database.objects();
            let bad_rows = source.bad_rows.as_ref();
            let bad_rows = bad_rows.map(|table| objects.entry(table).cloned()).transpose()?;
            (objects.entry(&source.table)?.clone(), bad_rows)
        };
        if self.unstored.is_none() {
            let schema = target.table.schema();
            let table = InputTable { schema: &schema, clock: database.clock() };
            let next = self.input.next(source, table);
            self.unstored = next.inspect_err(|_| self.note(source))?;
        }
        let Some(mut batch) = self.unstored.take() else {
            self.note(source);
            return Ok(WorkStep::CaughtUp);
        };
        let tables = SourceTables { target: &target, bad_rows: bad_rows.as_ref() };
        let stored = writing_to(tables.all(), || self.store(&mut batch, source, tables, database));
        if stored.is_err() {
            self.unstored = Some(batch);
        }
        self.note(source);
        stored.map(|()| WorkStep::Busy)
    }

    /// Stores items with the progress behind them. Those that were stored before an error are removed.
    fn store(
        &mut self,
        batch: &mut I::Batch,
        source: &Connector,
        tables: SourceTables<'_>,
        database: &Database,
    ) -> Result<()> {
        let (target, count) = (tables.target, I::count(batch));
        let arena = Arena::new();
        let mut read = self.input.read(source, &target.table.schema(), batch, &arena)?;
        let mut load = load_rows(target, &read.rows);
        if matches!(load, Err(TableError::Row { .. })) {
            test_rows(&mut read, target);
            load = load_rows(target, &read.rows);
        }
        let stops = source.options.source.on_error == MessageErrorRule::Stop;
        debug_assert!(read.bad.is_sorted_by_key(|bad| bad.at), "in the order of the items");
        debug_assert_eq!(read.rows.len() + read.bad.len(), count, "each is one of them");
        let stops_at = read.bad.first().map(|bad| bad.at).filter(|_| stops);
        let end = stops_at.unwrap_or(count);
        if stops_at.is_some() {
            read.rows.retain(|row| row.at < end);
            load = load_rows(target, &read.rows);
        }
        let load = load.map_err(|error| table_error(&error))?;
        let mut progress = self.progress.clone();
        let is_due = I::advance(&mut progress, batch, end);
        let bad = if stops { &[] } else { &*read.bad };
        progress.count(number(end), number(bad.len()));
        if end > 0 || is_due {
            let stored = SourceAppend::<I> { batch, end, bad, progress: &progress };
            storing_as(target, database, || stored.append(source, load, tables))?;
            failpoint::reach("source.stored");
            self.progress = progress;
            self.input.stored(batch, end);
        }
        let Some(at) = stops_at else { return Ok(()) };
        let reason = read.bad.swap_remove(0).reason;
        let error = not_a_row(source, &I::name_of(batch, at), &reason);
        drop(read);
        I::drain(batch, at);
        Err(error)
    }

    /// Notes how far the source is.
    fn note(&self, source: &Connector) {
        self.progress.note(source);
        let unstored = self.unstored.as_ref().map_or(0, |batch| number(I::count(batch)));
        let lag = self.input.lag(unstored);
        source.worker.figures(|WorkFigures { own, .. }| own.lag = lag);
    }
}

impl<'t> SourceTables<'t> {
    fn all(self) -> impl Iterator<Item = &'t TableEntry> {
        std::iter::once(self.target).chain(self.bad_rows)
    }
}

/// Finds the rows that the table does not accept, by a test of each one.
fn test_rows(read: &mut ItemRows<'_>, target: &TableEntry) {
    let ItemRows { rows, bad } = read;
    rows.retain(|row| match load_rows(target, std::slice::from_ref(row)) {
        Err(error @ TableError::Row { .. }) => {
            bad.push(BadRow { at: row.at, reason: reason_of(&table_error(&error)) });
            false
        }
        _ => true,
    });
    bad.sort_by_key(|bad| bad.at);
}

/// Begins to append rows to a table. Fails where it does not accept one of them.
fn load_rows<'t>(
    target: &'t TableEntry,
    rows: &[ItemRow<'_>],
) -> std::result::Result<BulkLoad<'t>, TableError> {
    let mut load = target.table.load_any();
    load.push(rows)?;
    Ok(load)
}

/// What is stored together with the rows.
struct SourceAppend<'b, I: SourceInput> {
    batch: &'b I::Batch,
    /// So many of its items are stored.
    end: usize,
    bad: &'b [BadRow],
    progress: &'b I::Progress,
}

impl<I: SourceInput> SourceAppend<'_, I> {
    /// Appends rows and what is no row to their tables, and the progress to that of the source.
    fn append(
        &self,
        source: &Connector,
        load: BulkLoad<'_>,
        tables: SourceTables<'_>,
    ) -> Result<()> {
        let failed = |error: TableError| table_error(&error);
        debug_assert!(self.bad.len() <= self.end, "they are of the batch");
        let mut loads = vec![load];
        if let Some(bad_rows) = tables.bad_rows.filter(|_| !self.bad.is_empty()) {
            let (arena, schema) = (Arena::new(), bad_rows.table.schema());
            let mut load = bad_rows.table.load_any();
            for bad in self.bad {
                load.push([self.bad_row(source, bad, &schema, &arena)]).map_err(failed)?;
            }
            loads.push(load);
        }
        let mut load = source.progress.table().load_any();
        ProgressTable::push(&mut load, self.progress)?;
        I::push_more(&mut load, self.batch, self.end)?;
        if failpoint::is_seeded("source_offsets_first") {
            BulkLoad::finish_all(vec![load]).map_err(failed)?;
            failpoint::reach("source.stored");
        } else if !failpoint::is_seeded("source_offsets_forgotten") {
            loads.push(load);
        }
        BulkLoad::finish_all(loads).map_err(failed).map(|_| ())
    }

    /// Makes the row of an item that is no row.
    fn bad_row<'a>(
        &'a self,
        source: &'a Connector,
        bad: &'a BadRow,
        schema: &TableSchema,
        arena: &'a Arena,
    ) -> Vec<Datum<'a>> {
        let mut row = default_row(schema, arena);
        for (name, value) in I::bad_values(source, self.batch, bad, arena) {
            if let Some(at) = schema.find_column(name) {
                row[at] = value;
            }
        }
        row
    }
}

/// Makes the error of an item that is no row.
fn not_a_row(source: &Connector, item: &str, reason: &str) -> Box<Diagnostic> {
    let what = format!("{item} is not a row of table `{}`: {reason}", source.table.name.name);
    Box::new(
        Diagnostic::new(code::BAD_COPY_FORMAT, what)
            .with_kind(Kind::FixData)
            .with_hint("Set on_error = 'skip into table_name' to store such rows in a table."),
    )
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
