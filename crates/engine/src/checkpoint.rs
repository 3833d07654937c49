//! Checkpoints: the catalog and all rows in files, so that the log before them is not needed.
//!
//! The catalog is taken at one position of the log, then each table at a position of its own; opening
//! a directory applies to each the records from its position on. Nobody waits for a checkpoint but
//! another one.
//!
//! A table writes its own files, of the rows that arrived since the checkpoint before, and has them from when the
//! manifest is committed: a disk table to read its rows from, a memory table for the next opening (`parts`).

pub(crate) mod parts;

use std::{collections::BTreeSet, path::Path, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::failpoint;
use lockstep_table::{Durability, FlushedTable, FrozenTable, LoggedIndexes, Table};
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

/// When a checkpoint has written so many bytes, freed memory is given back to the machine.
const GIVE_BACK_BYTES_MIN: u64 = 16 << 20;

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
    /// For each index by position its runs, the newest one first. Older versions have listed none of a memory
    /// table, so that it is read as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) runs: Option<Vec<Vec<ListedRun>>>,
    /// Whether it is a memory table that has runs. A version that does not know the field opens it as a disk table.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) in_memory: bool,
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
    /// The last block, which has no rows. Older versions have listed none of a memory table.
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
            let written =
                store.checkpoint(|directory, log| self.write_checkpoint(directory, log))?;
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
            store.checkpoint(|directory, log| {
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

    fn write_checkpoint(&self, directory: &DatabaseDirectory, log: &dyn Log) -> Result<Checkpoint> {
        let WrittenCheckpoint { done, listed, body, flushed } =
            write_frozen(self.freeze(), (directory, None))?;
        failpoint::reach("checkpoint.written");
        // What the files hold must not be more than what is on the disk of the log.
        log.wait(log.end(), Durability::Disk).map_err(|error| log_error(&error))?;
        let manifest = directory.manifest().successor(done.position, listed, body);
        directory.commit(manifest).map_err(|error| log_error(&error))?;
        failpoint::reach("checkpoint.committed");
        for (table, flushed) in &flushed {
            table.install(flushed);
        }
        let bytes: u64 = flushed.iter().map(|(_, flushed)| flushed.bytes()).sum();
        drop(flushed);
        if bytes >= GIVE_BACK_BYTES_MIN {
            // The rows have left memory, which the allocator would keep.
            lockstep_table::reclaim();
            lockstep_host::memory::give_back();
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
        for (_, progress) in objects.progress_tables() {
            tables.insert(progress.id(), Arc::clone(progress.table()));
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
    let (from, log) = source.unzip();
    // What was flushed has its files open, which are not removed meanwhile.
    let WrittenCheckpoint { done, listed, body, flushed: _flushed } =
        write_frozen(frozen, (copy, from))?;
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
    /// The tables, and what was flushed of them.
    flushed: Vec<(Arc<Table>, FlushedTable)>,
}

/// Writes what was frozen, except what files have already. What these have in another directory, the second one, is
/// copied.
fn write_frozen(
    frozen: FrozenEngine,
    (directory, source): (&DatabaseDirectory, Option<&DatabaseDirectory>),
) -> Result<WrittenCheckpoint> {
    let mut done = Checkpoint { position: frozen.position(), ..Checkpoint::default() };
    let FrozenEngine { mut body, tables } = frozen;
    let (mut listed, mut flushed) = (Vec::new(), Vec::new());
    for (id, frozen) in &tables {
        let create = &mut || directory.create_data_file();
        let written = frozen.flush(create).map_err(|error| table_error(&error))?;
        let ListedParts { extents, runs, files } = parts::list(&written, directory, source)?;
        done.rows += written.rows();
        done.bytes += written.bytes();
        done.kept_files += u64::try_from(written.before().file_count()).unwrap_or(u64::MAX);
        debug_assert!(
            extents.last().is_none_or(|last| last.to <= frozen.position()),
            "files end before the position"
        );
        debug_assert!(
            runs.iter().all(|of_index| of_index.is_empty() || !extents.is_empty()),
            "an index has rows of the table"
        );
        let is_late = failpoint::is_seeded("checkpoint_position_too_late");
        body.tables.push(TableCheckpoint {
            id: *id,
            position: if is_late { frozen.position() + 3 } else { frozen.position() },
            indexes: frozen.indexes().clone(),
            now_ms: frozen.now_ms(),
            extents,
            runs: Some(runs),
            in_memory: frozen.is_of_memory(),
        });
        listed.extend(files);
        flushed.push((Arc::clone(frozen.table()), written));
    }
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
