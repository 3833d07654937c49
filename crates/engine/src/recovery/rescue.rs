//! Applying what can be read of a damaged directory to an empty engine.
//!
//! `check` gives it the parts in order. It applies them as opening does, but goes on behind what cannot
//! be applied, and says what that was. Rows that damaged blocks have lost are taken from the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_table::{RescuedRows, Table, TableRecord, visit_block};
use lockstep_wal::Entry;

use super::{
    EngineRecovery, RecoveredTable,
    progress::ProgressReport,
    replay_error,
    writers::{ReplayedTable, RowWork, RowWriters},
};
use crate::{
    Database,
    catalog::{CATALOG, Cascade, CatalogCommand, CatalogRecord, QualifiedName},
    checkpoint::{CheckpointBody, Extent},
};

/// A damaged directory that is being applied.
pub(crate) struct Rescue<'d> {
    recovery: EngineRecovery<'d>,
    /// By its number for each file of rows the table, and the offset of a last block without rows.
    files: BTreeMap<u64, (u64, Option<u64>)>,
    /// Rows of the log that are missing in the files, by table.
    rescued: BTreeMap<u64, RescuedRows>,
    /// Tables that were there and were dropped.
    dropped: BTreeSet<u64>,
    /// Tables before this id were there when the checkpoint was taken, or had been dropped.
    checkpoint_next_id: u64,
    is_in_log: bool,
    result: Rescued,
}

/// What could not be applied.
#[derive(Debug, Default)]
pub(crate) struct Rescued {
    pub(crate) failures: Vec<RescueFailure>,
    /// Rows of tables whose CREATE is lost, by the table's id: how many, and at which positions.
    pub(crate) unknown_tables: BTreeMap<u64, UnknownTable>,
    /// Rows that were lost in a file and found in the log, by table.
    pub(crate) found_in_log: BTreeMap<u64, u64>,
}

/// Something that was read and cannot be applied.
#[derive(Debug)]
pub(crate) struct RescueFailure {
    pub(crate) what: String,
    pub(crate) table: Option<u64>,
    /// Where in the log it is; empty for what is in the manifest or follows from the rest.
    pub(crate) positions: Range<u64>,
}

/// Rows whose table is not known.
#[derive(Debug, Default)]
pub(crate) struct UnknownTable {
    pub(crate) rows: u64,
    pub(crate) positions: Range<u64>,
}

impl<'d> Rescue<'d> {
    /// Begins with an empty engine.
    pub(crate) fn new(database: &'d Database, rescued: BTreeMap<u64, RescuedRows>) -> Self {
        let progress = ProgressReport::new(None, database.clock());
        // Without threads: what cannot be stored is noted where it stands, and the next is tried.
        let recovery = EngineRecovery {
            writers: RowWriters::default(),
            ..EngineRecovery::new(database, progress)
        };
        Self {
            recovery,
            files: BTreeMap::new(),
            rescued,
            dropped: BTreeSet::new(),
            checkpoint_next_id: 0,
            is_in_log: false,
            result: Rescued::default(),
        }
    }

    /// Applies what a manifest says. It comes first.
    pub(crate) fn body(&mut self, body: CheckpointBody, position: u64) {
        assert!(self.files.is_empty() && !self.is_in_log, "the manifest comes first");
        for record in body.catalog {
            let applied = self.recovery.apply_catalog(record, position);
            self.note(applied, None, 0..0);
        }
        for job in body.jobs {
            self.recovery.database.jobs().restore(job);
        }
        self.recovery.catalog_position = body.catalog_position;
        self.recovery.next_table_id = self.recovery.next_table_id.max(body.next_table_id);
        self.checkpoint_next_id = body.next_table_id;
        for checkpoint in body.tables {
            let last_block = |extent: &Extent| extent.last_block.map(|place| place.offset);
            let files = checkpoint.extents.iter();
            let files = files.map(|extent| (extent.file, (checkpoint.id, last_block(extent))));
            self.files.extend(files);
            let Some(found) = self.recovery.tables.get_mut(&checkpoint.id) else { continue };
            let RecoveredTable { replayed: ReplayedTable { table, replay }, position, .. } = found;
            *position = checkpoint.position;
            let mut replay = replay.lock();
            let applied = replay.indexes(table, checkpoint.position, &checkpoint.indexes);
            replay.note_time(checkpoint.now_ms);
            drop(replay);
            let applied = applied.map_err(|error| replay_error(&error));
            self.note(applied, Some(checkpoint.id), 0..0);
        }
    }

    /// Stores the rows of a block, and before them what the log has of the rows that are missing.
    pub(crate) fn block(&mut self, file: u64, offset: u64, payload: &[u8]) {
        assert!(!self.is_in_log, "files come before the log");
        // Runs of disk tables have the rows of extents once more.
        let Some((id, last_block)) = self.files.get(&file).copied() else { return };
        if last_block == Some(offset) {
            return;
        }
        let mut first = None;
        // One that is not wholly a block has been listed.
        let _is_block = visit_block(payload, &mut |arrival, _| {
            first.get_or_insert(arrival);
        });
        if let Some(first) = first {
            self.store_missing(id, first);
            self.store(id, payload);
        }
    }

    /// Stores the rows of the log that arrived before `end`, are missing in the files, and were in them.
    fn store_missing(&mut self, id: u64, end: u64) {
        let Some(rescued) = self.rescued.get_mut(&id) else { return };
        let count = rescued.len();
        let block = rescued.take_block(end);
        let found = u64::try_from(count - rescued.len()).unwrap_or(u64::MAX);
        *self.result.found_in_log.entry(id).or_default() += found;
        self.store(id, &block);
    }

    fn store(&mut self, id: u64, block: &[u8]) {
        let Some(RecoveredTable { replayed, .. }) = self.recovery.tables.get(&id) else { return };
        let stored = self.recovery.writers.store(replayed, RowWork::Block(block, 0..u64::MAX));
        if let Err(error) = stored {
            self.note(Err(replay_error(&error)), Some(id), 0..0);
        }
    }

    /// Applies a record of the log.
    pub(crate) fn entry(&mut self, entry: &Entry<'_>) {
        self.end_files();
        let positions = entry.position..entry.position + u64::from(entry.rows);
        let mut table = None;
        if entry.kind == CATALOG {
            if entry.position >= self.recovery.catalog_position
                && let Ok(record) = CatalogRecord::read(entry.payload)
                && !self.prepare(&record)
            {
                return;
            }
        } else if let Ok(Some(record)) = TableRecord::read(entry.kind, entry.payload) {
            table = Some(record.table);
            if !self.is_to_be_applied(&record, &positions) {
                return;
            }
        }
        let applied = self.recovery.apply(entry);
        let applied = applied.and_then(|()| self.recovery.store_pending());
        self.note(applied, table, positions);
    }

    /// Stores what is missing at the end of the files of each table. The log follows.
    fn end_files(&mut self) {
        if !std::mem::replace(&mut self.is_in_log, true) {
            let ids: Vec<u64> = self.rescued.keys().copied().collect();
            ids.into_iter().for_each(|id| self.store_missing(id, u64::MAX));
        }
    }

    /// Notes what is dropped, and makes up for a CREATE DATABASE and a DROP TABLE that are lost: a CREATE
    /// TABLE tells of both. Returns whether the record is to be applied.
    fn prepare(&mut self, record: &CatalogRecord) -> bool {
        match record {
            CatalogRecord::CreateTable { name, .. } => {
                self.free_name(name);
                true
            }
            CatalogRecord::DropTable { id, .. } => {
                self.dropped.insert(*id);
                self.result.unknown_tables.remove(id);
                self.recovery.tables.contains_key(id)
            }
            _ => true,
        }
    }

    /// Makes the database that a table is created in, and drops the table that had its name.
    fn free_name(&mut self, name: &QualifiedName) {
        let database = &name.database;
        if !self.recovery.database.objects().databases().contains_key(database) {
            let name = database.clone();
            let made = self.recovery.run(&CatalogCommand::CreateDatabase { name });
            self.note(made, None, 0..0);
        }
        let before = self.recovery.database.objects().find_table(database, &name.name).cloned();
        if let Some(entry) = before {
            self.recovery.tables.remove(&entry.id);
            self.dropped.insert(entry.id);
            let (name, id) = (name.clone(), entry.id);
            let with = Cascade::default();
            let dropped = self.recovery.run(&CatalogCommand::DropTable { name, id, with });
            self.note(dropped, Some(entry.id), 0..0);
        }
    }

    /// Returns whether a record of a table can be applied to it; counts its rows when the table is not
    /// known.
    fn is_to_be_applied(&mut self, record: &TableRecord<'_>, positions: &Range<u64>) -> bool {
        if let Some(found) = self.recovery.tables.get(&record.table) {
            let is_later = positions.start >= found.replayed.table.snapshot().visible_arrival();
            // The checkpoint has others, or they are out of order, which was listed.
            return positions.start < found.position || is_later;
        }
        let was_dropped = self.dropped.contains(&record.table);
        if was_dropped || record.table < self.checkpoint_next_id {
            return false;
        }
        let unknown = self.result.unknown_tables.entry(record.table).or_default();
        if unknown.positions.is_empty() {
            unknown.positions.start = positions.start;
        }
        unknown.positions.end = positions.end;
        if let lockstep_table::TableChange::Rows(_) = record.change {
            unknown.rows += positions.end - positions.start;
        }
        false
    }

    /// Notes what could not be applied.
    fn note(&mut self, applied: Result<()>, table: Option<u64>, positions: Range<u64>) {
        if let Err(error) = applied {
            let what = error.message;
            self.result.failures.push(RescueFailure { what, table, positions });
        }
    }

    /// Compiles queries and sets variables, as far as that succeeds.
    pub(crate) fn finish(mut self) -> Rescued {
        self.end_files();
        let unknown = self.result.unknown_tables.keys().next_back();
        let next = unknown.map_or(0, |id| id.saturating_add(1)).max(self.recovery.next_table_id);
        self.recovery.next_table_id = next;
        let mut result = self.result;
        let finished = self.recovery.finish(u64::MAX, &mut |error: Box<Diagnostic>| {
            let what = error.message;
            result.failures.push(RescueFailure { what, table: None, positions: 0..0 });
            Ok(())
        });
        debug_assert!(finished.is_ok(), "failures are noted");
        result
    }
}

impl Database {
    /// Returns all tables with their names, and those of copied rows.
    pub(crate) fn all_tables(&self) -> Vec<(String, Arc<Table>)> {
        let objects = self.objects();
        let entries = objects.databases().values().flat_map(|found| found.tables.values());
        let mut tables = Vec::new();
        for entry in entries {
            let name = entry.definition.name().to_string();
            if let Some((_, rows)) = entry.offline.logged_rows() {
                tables.push((format!("offline rows of {name}"), Arc::clone(rows)));
            }
            tables.push((name, Arc::clone(&entry.table)));
        }
        for (name, progress) in objects.progress_tables() {
            tables.push((format!("progress of {name}"), Arc::clone(progress.table())));
        }
        tables
    }
}
