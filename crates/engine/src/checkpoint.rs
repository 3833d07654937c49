//! Checkpoints: the catalog and all rows in files, so that the log before them is not needed.
//!
//! The catalog is taken at one position of the log, then each table at a position of its own; opening
//! a directory applies to each the records from its position on. Nobody waits for a checkpoint but
//! another one, and it takes a block of rows at a time.
//!
//! A table's rows are in *extents*, files of rows in order of arrival. The next checkpoint keeps the
//! files of rows that are all there still, and writes what has arrived since; small files at the end
//! are written together with it, so that their number grows with the logarithm of the rows. Rows that
//! have expired stay in their file until they are half of the table's; a DELETE or TRUNCATE, which
//! makes rows disappear that would not expire, has the table written as a whole.
//!
//! A disk table writes its own files, of the rows that arrived since the checkpoint before, and reads its rows
//! from all of them once the manifest is committed (`parts`).

pub(crate) mod parts;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::failpoint;
use lockstep_table::{
    CheckpointBlock, Durability, FlushedTable, FrozenTable, LoggedIndexes, Table,
};
use lockstep_wal::{DataFile, DatabaseDirectory, Entry, Error, Group, Log, Options};
use serde::{Deserialize, Serialize};

use self::parts::ListedParts;
pub(crate) use self::parts::{ListedPlace, ListedRun};
use crate::{
    Database,
    append::table_error,
    catalog::{CatalogRecord, Objects, columns_of},
    job::Job,
    log_error::log_error,
};

/// A file of rows ends when it has so many bytes.
const EXTENT_BYTES: u64 = 64 << 20;

/// What a manifest says of the files of its checkpoint.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CheckpointBody {
    /// Records of the catalog from this position on are not in it.
    pub(crate) catalog_position: u64,
    pub(crate) catalog: Vec<CatalogRecord>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) next_table_id: u64,
    pub(crate) tables: Vec<TableCheckpoint>,
}

/// A table in a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TableCheckpoint {
    pub(crate) id: u64,
    /// Records of the table from this position on are not in it.
    pub(crate) position: u64,
    pub(crate) indexes: LoggedIndexes,
    /// Rows that had expired by this time may be missing.
    pub(crate) now_ms: i64,
    pub(crate) extents: Vec<Extent>,
    /// For each index by position the runs of a disk table, the newest one first; `None` for a memory table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) runs: Option<Vec<Vec<ListedRun>>>,
}

impl TableCheckpoint {
    /// Whether the files have rows, in order of arrival, from before the position.
    pub(crate) fn is_in_order(&self) -> bool {
        let mut from = 0;
        self.extents.iter().all(|extent| {
            let is_next = from <= extent.from && extent.from < extent.to;
            from = extent.to;
            is_next && extent.to <= self.position
        })
    }
}

/// A file of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// The number of the data file.
    pub(crate) file: u64,
    /// The arrival of the first row.
    pub(crate) from: u64,
    /// The arrival after that of the last row.
    pub(crate) to: u64,
    pub(crate) rows: u64,
    /// The last block, which has no rows; of a disk table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_block: Option<ListedPlace>,
}

/// What a checkpoint did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// Everything before this position is in files, and the log before it is not needed.
    pub position: u64,
    /// Rows that were written.
    pub rows: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Files of rows that were kept as they are.
    pub kept_files: u64,
}

/// The files of the current checkpoint, by table.
#[derive(Debug, Default)]
pub(crate) struct CheckpointFiles {
    by_table: BTreeMap<u64, TableFiles>,
}

/// The files of one table.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableFiles {
    /// The number that [`FrozenTable::generation`] was then.
    generation: u64,
    files: Vec<ExtentFile>,
}

/// An extent and its file.
#[derive(Debug, Clone, Copy)]
struct ExtentFile {
    extent: Extent,
    file: DataFile,
}

impl CheckpointFiles {
    /// Notes the files of a table that was read from them.
    pub(crate) fn restore(&mut self, table: &Table, id: u64, extents: &[(Extent, DataFile)]) {
        let files =
            extents.iter().map(|(extent, file)| ExtentFile { extent: *extent, file: *file });
        let files = TableFiles { generation: table.generation(), files: files.collect() };
        self.by_table.insert(id, files);
    }
}

/// Everything that a checkpoint takes of an engine before it writes.
struct FrozenEngine {
    body: CheckpointBody,
    tables: Vec<(u64, FrozenTable)>,
}

impl Database {
    /// Writes a checkpoint: what the log holds is put into files, and the log before is let go of.
    /// Requests and writes go on. An engine in memory has none: nothing is written.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let Some(store) = self.store() else { return Ok(Checkpoint::default()) };
        // Nobody waits for it but its caller: requests and writes come first.
        self.host().threads.in_background("lockstep-checkpoint", || {
            let log_bytes = store.log_bytes();
            let written = store
                .checkpoint(|files, directory, log| self.write_checkpoint(files, directory, log))?;
            store.note_checkpoint(log_bytes);
            Ok(written)
        })
    }

    /// Writes a copy of the database into a directory that does not exist, or is empty. Requests and
    /// writes go on; the copy is as the database was at the position that is returned.
    pub fn backup(&self, path: &Path) -> Result<Checkpoint> {
        let Some(store) = self.store() else {
            return Diagnostic::unsupported("cannot back up an in-memory database")
                .with_hint("Connect to a directory, or export tables with SELECT … INTO OUTFILE.")
                .err();
        };
        self.host().threads.in_background("lockstep-backup", || {
            store.checkpoint(|_, directory, log| {
                // What the copy holds must not be more than what is on the disk of the log.
                let frozen = self.freeze();
                let copy = directory.create_copy(path, self.host().random.id(), frozen.position());
                let copy = copy.map_err(|error| log_error(&error))?;
                let written = write_copy(frozen, &copy, Some((directory, log)));
                if written.is_err() {
                    copy.discard_copy();
                }
                written
            })
        })
    }

    /// Writes everything into a directory that was created for it. Nobody writes to the tables.
    pub(crate) fn write_copy(&self, copy: &DatabaseDirectory) -> Result<Checkpoint> {
        write_copy(self.freeze(), copy, None)
    }

    fn write_checkpoint(
        &self,
        files: &mut CheckpointFiles,
        directory: &DatabaseDirectory,
        log: &dyn Log,
    ) -> Result<Checkpoint> {
        let WrittenCheckpoint { done, listed, body, flushed } =
            write_frozen(self.freeze(), files, (directory, None))?;
        failpoint::reach("checkpoint.written");
        // What the files hold must not be more than what is on the disk of the log.
        log.wait(log.end(), Durability::Disk).map_err(|error| log_error(&error))?;
        let manifest = directory.manifest().successor(done.position, listed, body);
        directory.commit(manifest).map_err(|error| log_error(&error))?;
        failpoint::reach("checkpoint.committed");
        for (table, flushed) in &flushed {
            table.install(flushed);
        }
        log.truncate(done.position).map_err(|error| log_error(&error))?;
        Ok(done)
    }

    /// Takes the catalog, and each table.
    fn freeze(&self) -> FrozenEngine {
        let (mut body, mut tables, objects) = {
            // Nothing about the catalog is logged meanwhile.
            let _changing = self.lock_catalog_changes();
            let jobs = self.jobs();
            let objects = Objects::clone(&self.objects());
            let body = CheckpointBody {
                catalog_position: self.arrivals().next(),
                jobs: jobs.all().to_vec(),
                next_table_id: self.next_table_id(),
                ..CheckpointBody::default()
            };
            (body, self.tables_being_loaded(), objects)
        };
        for entry in objects.databases().values().flat_map(|found| found.tables.values()) {
            tables.insert(entry.id, Arc::clone(&entry.table));
            if let Some((id, rows)) = entry.offline.logged_rows() {
                tables.insert(id, Arc::clone(rows));
            }
        }
        let listed: BTreeSet<u64> = objects.table_ids().collect();
        for (id, table) in tables.iter().filter(|(id, _)| !listed.contains(id)) {
            let schema = columns_of(table);
            body.catalog.push(CatalogRecord::CreateOfflineRows { id: *id, schema });
        }
        body.catalog.extend(objects.records());
        let tables = tables.into_iter().map(|(id, table)| (id, table.freeze())).collect();
        FrozenEngine { body, tables }
    }
}

impl FrozenEngine {
    /// Returns the position from which the log is needed beside what was frozen.
    fn position(&self) -> u64 {
        let tables = self.tables.iter().map(|(_, frozen)| frozen.position());
        tables.fold(self.body.catalog_position, u64::min)
    }
}

/// Writes what was frozen and what the log has behind it into a directory that was created for it.
fn write_copy(
    frozen: FrozenEngine,
    copy: &DatabaseDirectory,
    source: Option<(&DatabaseDirectory, &dyn Log)>,
) -> Result<Checkpoint> {
    let failed = |error| log_error(&error);
    let position = frozen.position();
    let mut no_files = CheckpointFiles::default();
    let (from, log) = source.unzip();
    // What was flushed has its files open, which are not removed meanwhile.
    let WrittenCheckpoint { done, listed, body, flushed: _flushed } =
        write_frozen(frozen, &mut no_files, (copy, from))?;
    let options = Options::new(copy.database_id());
    let (copied_log, _) = copy.open_log(options, &mut |_| ()).map_err(failed)?;
    let end = match log {
        Some(log) => copy_log(log, position, &copied_log).map_err(failed)?,
        None => position,
    };
    copied_log.close().map_err(failed)?;
    let manifest = copy.manifest().successor(position, listed, body);
    copy.commit(manifest).map_err(failed)?;
    Ok(Checkpoint { position: end, ..done })
}

/// What was written of an engine.
struct WrittenCheckpoint {
    done: Checkpoint,
    listed: Vec<DataFile>,
    /// What the manifest says of the files.
    body: Vec<u8>,
    /// Disk tables, and what was flushed of them.
    flushed: Vec<(Arc<Table>, FlushedTable)>,
}

/// Writes what was frozen, except what the files of the checkpoint before hold; `files` are then those of this
/// checkpoint. What disk tables have in another directory, the second one, is copied.
fn write_frozen(
    frozen: FrozenEngine,
    files: &mut CheckpointFiles,
    (directory, source): (&DatabaseDirectory, Option<&DatabaseDirectory>),
) -> Result<WrittenCheckpoint> {
    let mut done = Checkpoint { position: frozen.position(), ..Checkpoint::default() };
    let FrozenEngine { mut body, tables } = frozen;
    let (mut by_table, mut listed, mut flushed) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (id, frozen) in &tables {
        let create = &mut || directory.create_data_file();
        if let Some(written) = frozen.flush(create).map_err(|error| table_error(&error))? {
            let ListedParts { extents, runs, files } = parts::list(&written, directory, source)?;
            done.rows += written.rows();
            done.bytes += written.bytes();
            done.kept_files += u64::try_from(written.before().file_count()).unwrap_or(u64::MAX);
            body.tables.push(TableCheckpoint {
                id: *id,
                position: frozen.position(),
                indexes: frozen.indexes().clone(),
                now_ms: frozen.now_ms(),
                extents,
                runs: Some(runs),
            });
            listed.extend(files);
            flushed.push((Arc::clone(frozen.table()), written));
            continue;
        }
        let before = files.by_table.get(id).cloned().unwrap_or_default();
        let written = write_table(directory, frozen, before, &mut done)?;
        body.tables.push(TableCheckpoint {
            id: *id,
            position: if failpoint::is_seeded("checkpoint_position_too_late") {
                frozen.position() + 3
            } else {
                frozen.position()
            },
            indexes: frozen.indexes().clone(),
            now_ms: frozen.now_ms(),
            extents: written.files.iter().map(|file| file.extent).collect(),
            runs: None,
        });
        by_table.insert(*id, written);
    }
    let of_memory_tables = by_table.values().flat_map(|table: &TableFiles| &table.files);
    listed.extend(of_memory_tables.map(|file| file.file));
    files.by_table = by_table;
    let body = serde_json::to_vec(&body).expect("names are text");
    done.bytes += u64::try_from(body.len()).unwrap_or(u64::MAX);
    Ok(WrittenCheckpoint { done, listed, body, flushed })
}

/// Appends everything of a log from a position on to another one, which ends there. Returns where it
/// ends then.
fn copy_log(from: &dyn Log, position: u64, to: &dyn Log) -> Result<u64, Error> {
    debug_assert_eq!(to.end(), position, "the copy begins where the log is read");
    let mut reader = from.read(position)?;
    while let Some(entries) = reader.next_group()? {
        let mut group = Group::new();
        for Entry { kind, rows, payload, .. } in entries {
            group.push(kind, rows, payload);
        }
        to.append(&group, &mut |_| ())?;
    }
    Ok(to.end())
}

/// Writes what no file of the checkpoint before holds. Returns the files that hold the table.
fn write_table(
    directory: &DatabaseDirectory,
    frozen: &FrozenTable,
    before: TableFiles,
    done: &mut Checkpoint,
) -> Result<TableFiles> {
    let mut kept = if before.generation == frozen.generation() { before.files } else { Vec::new() };
    keep_useful(&mut kept, frozen);
    let from = kept.last().map_or(0, |file| file.extent.to);
    done.kept_files += u64::try_from(kept.len()).unwrap_or(u64::MAX);
    let written = write_rows(directory, frozen, from, done).map_err(|error| log_error(&error))?;
    kept.extend(written);
    let is_before = |one: &ExtentFile, next: &ExtentFile| one.extent.to <= next.extent.from;
    debug_assert!(kept.is_sorted_by(is_before), "files are in order of arrival");
    Ok(TableFiles { generation: frozen.generation(), files: kept })
}

/// Removes the files that are to be written again: those without live rows, all when most rows in
/// them have expired, and small ones at the end.
fn keep_useful(kept: &mut Vec<ExtentFile>, frozen: &FrozenTable) {
    let oldest = frozen.oldest_arrival().unwrap_or(u64::MAX);
    kept.retain(|file| file.extent.to > oldest);
    let in_files = kept.iter().map(|file| file.extent.rows).sum::<u64>();
    let from = kept.last().map_or(0, |file| file.extent.to);
    let mut fresh = frozen.row_count_since(from);
    if in_files / 2 > frozen.row_count_since(0) {
        kept.clear();
        return;
    }
    if fresh == 0 {
        return;
    }
    while let Some(last) = kept.last() {
        if last.file.bytes >= EXTENT_BYTES || last.extent.rows > fresh {
            return;
        }
        fresh += last.extent.rows;
        kept.pop();
    }
}

/// Writes the rows with an arrival of at least `from`.
fn write_rows(
    directory: &DatabaseDirectory,
    frozen: &FrozenTable,
    mut from: u64,
    done: &mut Checkpoint,
) -> Result<Vec<ExtentFile>, Error> {
    debug_assert!(from <= frozen.position(), "files end before the position");
    let mut files = Vec::new();
    let mut block = CheckpointBlock::default();
    frozen.write_block(from, &mut block);
    while block.row_count() > 0 {
        let mut writer = directory.create_data_file()?;
        let mut extent = Extent {
            file: writer.number(),
            from: block.arrivals().start,
            to: 0,
            rows: 0,
            last_block: None,
        };
        while block.row_count() > 0 && writer.bytes() < EXTENT_BYTES {
            writer.push_block(block.bytes())?;
            from = block.arrivals().end;
            extent = Extent { to: from, rows: extent.rows + block.row_count(), ..extent };
            frozen.write_block(from, &mut block);
        }
        debug_assert!(extent.from < extent.to && extent.rows > 0, "a file has rows");
        let file = writer.finish()?;
        done.rows += extent.rows;
        done.bytes += file.bytes;
        files.push(ExtentFile { extent, file });
    }
    Ok(files)
}
