//! The directory of an engine: its log, and its lock.
//!
//! An engine in memory has none. `recovery` opens it; from then on every change of the catalog and of
//! the tables goes through its log before it is made.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_diagnostic::Result;
use lockstep_host::{OwnerProcess, sync::Mutex};
use lockstep_table::{Durability, Table, durability};
use lockstep_wal::{DatabaseDirectory, Error, Group, Log, SegmentedLog};

use crate::{
    AuditEvent, Database,
    audit::AuditFiles,
    catalog::{CATALOG, CatalogRecord},
    checkpoint::Checkpoint,
    checkpoint_thread::CheckpointThread,
    log_error::log_error,
};

/// A log that is smaller is read at once: no checkpoint is written when the engine ends.
const REPLAY_BYTES_MIN: u64 = 4 << 20;

/// A log that is smaller may be of rows that are gone.
const GONE_BYTES_MIN: u64 = 64 << 20;
/// How many milliseconds a thread that merges files of a directory has to end.
const GIVEN_UP_LOOKS: u32 = 10_000;

/// An open directory.
pub(crate) struct OpenDirectory {
    /// Who has it open. A process that was forked from it has nothing to do with it.
    owner: OwnerProcess,
    path: PathBuf,
    database_id: [u8; 16],
    log: DirectoryLog,
    /// Locked until the engine is closed.
    directory: Mutex<Option<Arc<DatabaseDirectory>>>,
    /// Held by who writes a checkpoint.
    checkpointing: Mutex<()>,
    checkpoints: CheckpointThread,
    audit: AuditFiles,
    /// The bytes of the log, as [`Self::log_bytes`] counts them, that opening the directory need not read.
    needless_bytes: AtomicU64,
    /// The durability window of a test, which the variable does not change.
    durability_window_ms: Option<u32>,
}

/// The log of a directory.
pub(crate) enum DirectoryLog {
    /// One that is written.
    Writable(Arc<SegmentedLog>),
    /// One that was read when the engine was opened.
    ReadOnly(Arc<dyn Log>),
}

impl OpenDirectory {
    pub(crate) fn new(
        log: DirectoryLog,
        directory: Arc<DatabaseDirectory>,
        audit: AuditFiles,
    ) -> Self {
        Self {
            owner: OwnerProcess::current(),
            path: directory.path().to_owned(),
            database_id: directory.database_id(),
            log,
            directory: Mutex::new(Some(directory)),
            checkpointing: Mutex::new(()),
            checkpoints: CheckpointThread::default(),
            audit,
            needless_bytes: AtomicU64::new(0),
            durability_window_ms: None,
        }
    }

    /// Gives the log another durability window than that of the variable.
    pub(crate) fn with_durability_window_ms(self, window_ms: Option<u32>) -> Self {
        Self { durability_window_ms: window_ms, ..self }
    }

    /// Returns the path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Calls `write` with what a checkpoint needs, after a checkpoint that is being written.
    pub(crate) fn checkpoint(
        &self,
        write: impl FnOnce(&DatabaseDirectory, &dyn Log) -> Result<Checkpoint>,
    ) -> Result<Checkpoint> {
        let _checkpointing = self.checkpointing.lock();
        let directory = self.directory.lock().clone();
        match (directory, &self.log) {
            (None, _) => Err(log_error(&Error::Closed)),
            (_, DirectoryLog::ReadOnly(_)) => {
                Err(log_error(&Error::ReadOnly { path: self.path.clone() }))
            }
            (Some(directory), DirectoryLog::Writable(log)) => write(&directory, &**log),
        }
    }

    /// Returns the id of the directory.
    pub(crate) fn database_id(&self) -> [u8; 16] {
        self.database_id
    }

    /// Returns whether nothing may be written.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.log, DirectoryLog::ReadOnly(_))
    }

    /// Returns the thread that writes checkpoints.
    pub(crate) fn checkpoints(&self) -> &CheckpointThread {
        &self.checkpoints
    }

    /// Returns how many bytes of the log there are. A checkpoint lets go of whole segments only.
    pub(crate) fn log_bytes(&self) -> u64 {
        match &self.log {
            DirectoryLog::Writable(log) => log.written_bytes(),
            DirectoryLog::ReadOnly(_) => 0,
        }
    }

    /// Notes how many bytes of the log opening the directory has read.
    pub(crate) fn note_replayed(&self, bytes: u64) {
        // Relaxed: the number itself is all that is shared.
        self.needless_bytes.store(self.log_bytes().saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Notes that a checkpoint has everything before this many bytes of the log.
    pub(crate) fn note_checkpoint(&self, log_bytes: u64) {
        // Segments that it let go of do not count any more.
        let needless = log_bytes.min(self.log_bytes());
        // Relaxed: the number itself is all that is shared.
        self.needless_bytes.store(needless, Ordering::Relaxed);
    }

    /// Returns about how many bytes of the log opening the directory would read.
    pub(crate) fn replayed_bytes(&self) -> u64 {
        // Relaxed: as above.
        self.log_bytes().saturating_sub(self.needless_bytes.load(Ordering::Relaxed))
    }

    /// Adds an event to the files of the record.
    pub(crate) fn record_audit(&self, event: &AuditEvent) {
        if !self.is_read_only() && self.owner.is_current() {
            self.audit.add(event);
        }
    }

    /// Sets after how long what no write waits for is on the disk.
    pub(crate) fn set_durability_window_ms(&self, window_ms: u32) {
        if let DirectoryLog::Writable(log) = &self.log {
            log.set_durability_window_ms(self.durability_window_ms.unwrap_or(window_ms));
        }
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> Arc<dyn Log> {
        match &self.log {
            DirectoryLog::Writable(log) => Arc::<SegmentedLog>::clone(log),
            DirectoryLog::ReadOnly(log) => Arc::clone(log),
        }
    }

    /// Appends a record of the catalog to the log.
    fn append(&self, record: &CatalogRecord) -> Result<u64, Error> {
        let payload = record.to_bytes();
        debug_assert!(CatalogRecord::read(&payload).is_ok(), "what is logged can be read again");
        let positions = self.log().append(&Group::of(CATALOG, 1, &payload), &mut |_| ())?;
        Ok(positions.end)
    }

    /// Fails in a process that was forked from the one that opened the directory.
    pub(crate) fn check_owner(&self) -> Result<(), Error> {
        if self.owner.is_current() {
            return Ok(());
        }
        Err(Error::Forked { process_id: self.owner.id() })
    }

    /// Closes the log and gives the directory up. A process that was forked from the one that opened it
    /// only closes its copy of the file by which the directory is locked.
    pub(crate) fn close(&self) -> Result<(), Error> {
        if !self.owner.is_current() {
            // A thread that the fork did not copy may have held the mutex.
            drop(self.directory.try_lock().and_then(|mut directory| directory.take()));
            return Ok(());
        }
        self.checkpoints.end();
        // After a checkpoint that is being written.
        let _checkpointing = self.checkpointing.lock();
        let closed = match &self.log {
            DirectoryLog::Writable(log) => log.close(),
            DirectoryLog::ReadOnly(_) => Ok(()),
        };
        if let Some(directory) = self.directory.lock().take() {
            given_up(directory);
        }
        closed
    }
}

/// Gives a directory up, and waits for threads that merge files of it: they look now and then whether they are to
/// end, and who opens the directory next finds it locked until then.
fn given_up(directory: Arc<DatabaseDirectory>) {
    let held = Arc::downgrade(&directory);
    drop(directory);
    for _ in 0..GIVEN_UP_LOOKS {
        if held.strong_count() == 0 {
            return;
        }
        lockstep_host::pause(1);
    }
}

impl fmt::Debug for OpenDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenDirectory").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Database {
    /// Logs a record of the catalog, and waits until it is as durable as the thread's writes are to be.
    /// Does nothing for an engine in memory.
    pub(crate) fn log_record(&self, record: &CatalogRecord) -> Result<()> {
        let Some(store) = self.store() else { return Ok(()) };
        let end = store.append(record).map_err(|error| log_error(&error))?;
        if durability() == Durability::Disk {
            store.log().wait(end, Durability::Disk).map_err(|error| log_error(&error))?;
        }
        Ok(())
    }

    /// Logs that there is a table of rows that has no name yet. A checkpoint has it from then on.
    pub(crate) fn log_unnamed_table(
        &self,
        id: u64,
        rows: &Arc<Table>,
        record: &CatalogRecord,
    ) -> Result<()> {
        let _changing = self.lock_catalog_changes();
        self.log_record(record)?;
        self.note_being_loaded(id, rows);
        Ok(())
    }

    /// Logs a record about which nobody waits for an answer: a full disk, or an engine that only reads,
    /// does not fail the statement that it is about.
    pub(crate) fn log_aside(&self, record: &CatalogRecord) {
        if let Some(store) = self.store() {
            let _refused = store.append(record);
        }
    }

    /// Returns whether the log is large, and mostly of rows that no table has any more.
    pub(crate) fn logs_what_is_gone(&self) -> bool {
        let replayed = self.store().map_or(0, OpenDirectory::replayed_bytes);
        replayed >= GONE_BYTES_MIN && replayed / 2 > self.memory_use().used
    }

    /// Writes the checkpoint with which an engine ends, if it is worth it.
    fn checkpoint_at_end(&self) {
        let Some(store) = self.store().filter(|store| !store.is_read_only()) else { return };
        let replayed = store.replayed_bytes();
        // What was dropped may take memory still, while a thread looks at it.
        let objects = self.objects();
        let tables = objects.databases().values().flat_map(|found| found.tables.values());
        let used: u64 = tables.map(|entry| entry.table.memory().total()).sum();
        drop(objects);
        if replayed < REPLAY_BYTES_MIN || replayed <= used {
            return;
        }
        // The log has everything all the same.
        if let Err(error) = self.checkpoint() {
            lockstep_host::log::warn(&format!("checkpoint failed: {}", error.message));
        }
    }

    /// Ends the engine: everything that was acknowledged is put on the disk, and the directory may be
    /// opened by others. Statements fail from then on. A second call does nothing.
    ///
    /// A process that was forked from the one that opened the directory cannot use the engine; there
    /// the call gives up what would keep the directory locked after the end of the other one.
    ///
    /// Writes a checkpoint before, if that is cheaper than reading the log when the directory is opened
    /// again: if the log since the last one is larger than all tables are in memory.
    pub fn close(&self) -> Result<()> {
        if self.check_open().is_ok() {
            self.end_work();
            self.checkpoint_at_end();
        }
        self.mark_closed();
        self.store().map_or(Ok(()), |store| store.close().map_err(|error| log_error(&error)))
    }
}
