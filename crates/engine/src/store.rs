//! The directory of an engine: its log, its lock, and errors of both as diagnostics.
//!
//! An engine in memory has none. `recovery` opens it; from then on every change of the catalog and of
//! the tables goes through its log before it is made.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{file::Lock, sync::Mutex};
use lockstep_table::{Durability, durability};
use lockstep_wal::{Error, Group, Log, SegmentedLog};

use crate::{
    Database,
    catalog::{CATALOG, CatalogRecord},
};

/// An open directory.
pub(crate) struct Store {
    path: PathBuf,
    log: StoreLog,
    /// Held until the engine is closed.
    lock: Mutex<Option<Box<dyn Lock>>>,
}

/// The log of a directory.
pub(crate) enum StoreLog {
    /// One that is written.
    Writable(Arc<SegmentedLog>),
    /// One that was read when the engine was opened.
    ReadOnly(Arc<dyn Log>),
}

impl Store {
    pub(crate) fn new(path: &Path, log: StoreLog, lock: Box<dyn Lock>) -> Self {
        Self { path: path.to_owned(), log, lock: Mutex::new(Some(lock)) }
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> Arc<dyn Log> {
        match &self.log {
            StoreLog::Writable(log) => Arc::<SegmentedLog>::clone(log),
            StoreLog::ReadOnly(log) => Arc::clone(log),
        }
    }

    /// Appends a record of the catalog to the log.
    fn append(&self, record: &CatalogRecord) -> Result<u64, Error> {
        let payload = record.to_bytes();
        let positions = self.log().append(&Group::of(CATALOG, 1, &payload), &mut |_| ())?;
        Ok(positions.end)
    }

    /// Closes the log and gives the directory up.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let closed = match &self.log {
            StoreLog::Writable(log) => log.close(),
            StoreLog::ReadOnly(_) => Ok(()),
        };
        drop(self.lock.lock().take());
        closed
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
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

    /// Logs a record about which nobody waits for an answer: a full disk, or an engine that only reads,
    /// does not fail the statement that it is about.
    pub(crate) fn log_aside(&self, record: &CatalogRecord) {
        if let Some(store) = self.store() {
            let _refused = store.append(record);
        }
    }

    /// Ends the engine: everything that was acknowledged is put on the disk, and the directory may be
    /// opened by others. Statements fail from then on. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        self.mark_closed();
        self.store().map_or(Ok(()), |store| store.close().map_err(|error| log_error(&error)))
    }
}

/// Returns the diagnostic of an error of the log.
pub(crate) fn log_error(error: &Error) -> Box<Diagnostic> {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        message = format!("{message}: {inner}");
        source = inner.source();
    }
    let (code, kind, hint) = match error {
        Error::Stopped { .. } => (
            code::LOG_STOPPED,
            Kind::FreeResources,
            "Reads go on. Find out what the disk says, then open the directory again: what was \
             acknowledged is there.",
        ),
        Error::Full { .. } => (
            code::DISK_FULL,
            Kind::FreeResources,
            "Nothing of the statement was stored. Reads go on, and writes as soon as there is \
             space.",
        ),
        Error::TooLarge { .. } => {
            (code::VALUE_TOO_LARGE, Kind::FixRequest, "Write fewer rows at once.")
        }
        Error::ReadOnly => (
            code::READ_ONLY,
            Kind::FixRequest,
            "The directory was opened to be read only; connect without read_only to write.",
        ),
        Error::Closed => {
            (code::DATABASE_CLOSED, Kind::FixRequest, "Connect to the directory again.")
        }
        Error::NewerFormat { .. } => (
            code::NEWER_FORMAT,
            Kind::FixRequest,
            "Open it with the version of Lockstep that wrote it, or a newer one.",
        ),
        Error::Damaged { .. } | Error::Foreign { .. } => (
            code::DATA_CORRUPTED,
            Kind::FixData,
            "`lockstep check` lists what is damaged; with --salvage it writes what can be read \
             to another directory.",
        ),
        Error::Disk { .. } | Error::Thread { .. } | Error::NotHere { .. } => {
            (code::IO_ERROR, Kind::Retry, "Nothing of the statement was stored.")
        }
    };
    Box::new(Diagnostic::new(code, message).with_kind(kind).with_hint(hint))
}
