//! The directory of a database: who has it open, its log, and its current checkpoint.
//!
//! `engine` opens a database here, writes checkpoints and commits them. Knows no rows and no SQL: what
//! a checkpoint holds is the caller's, its bytes are drawn in [`crate::checkpoint`], those of the
//! log at the top of the crate. (ADR 0028)
//!
//! # Layout
//!
//! ```text
//! features.lockstep/
//!   LOCK           locked by who has the database open: exclusively to write, else shared. In it
//!                  the id of the process that wrote last, as text
//!   MANIFEST       which checkpoint is current, and from which position the log is needed
//!   MANIFEST.new   a manifest that was not committed; means nothing
//!   log/           the segments of the log, at least one, and the mark of its last clean close
//!   data/N.data    data files of checkpoints; those that MANIFEST does not list mean nothing
//! ```
//!
//! # Life of a directory
//!
//! 1. It is created if it does not exist; LOCK is locked, `log` and `data` and the first segment of
//!    the log are created, and all of them synced, the parent directory included.
//! 2. Only then MANIFEST gets its name. So MANIFEST is never there without the rest, and what is there
//!    without it has never held a row: the next one who opens it begins again with step 1.
//! 3. When it is opened again, the directory is synced before anything else: a process that stopped
//!    because that failed has left a name that only looks durable. Then leftovers are removed.
//!
//! # Life of a checkpoint
//!
//! 1. Data files are written with new numbers and synced.
//! 2. [`DatabaseDirectory::commit`] syncs `data`, writes MANIFEST.new, syncs it, renames it to
//!    MANIFEST, and syncs the directory. In every state that a crash can leave there is one
//!    MANIFEST, the old one or the new one, and all files that it lists.
//! 3. Only then are the data files removed that it does not list.
//!
//! # What is promised
//!
//! - When `commit` returned, the new checkpoint is current after any crash; before, the old one or the
//!   new one.
//! - When it fails, this process goes on with the old one. When the failure was that of a sync of a
//!   directory, nobody knows which one is on the disk: both stay, and this process commits no more
//!   ([`Error::CheckpointsStopped`]).
//! - Who opens a directory for reading changes nothing on the disk.

mod commit;
mod creation;
mod numbers;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use lockstep_host::{
    file::{self, Disk, Lock, LockMode, OpenMode},
    sync::Mutex,
};

pub(crate) use numbers::NumberReservation;
use numbers::{FileNumbers, NumberSnapshot};

use crate::{
    BlockReader, DataFile, DataFileReader, DataFileWriter, Entries, Error, LogId,
    MANIFEST_BYTES_MAX, Manifest, Options, Recovered, SegmentedLog,
    bug::{self, Bug},
    checkpoint::{DataFileHeader, decode},
    recovery::{self, refused},
    segment::{self, Segment},
};

pub(crate) const LOCK: &str = "LOCK";
pub(crate) const MANIFEST: &str = "MANIFEST";
const MANIFEST_NEW: &str = "MANIFEST.new";
pub(crate) const LOG: &str = "log";
pub(crate) const DATA: &str = "data";

/// The directory of a database that is open.
#[derive(Debug)]
pub struct DatabaseDirectory {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    access: Access,
    database_id: LogId,
    numbers: Arc<Mutex<FileNumbers>>,
    current: Mutex<Arc<Manifest>>,
    /// Held by who commits, over calls to the disk; `numbers` and `current` are taken under it.
    committing: Mutex<()>,
    /// The sync that failed, after which nothing is committed.
    failure: OnceLock<Arc<file::Error>>,
    /// Whether the directory was created for a copy.
    is_new: bool,
    /// Ends with the directory.
    _lock: Box<dyn Lock>,
}

/// What a directory is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For reading and writing, by nobody else at the same time. Created where there is none.
    ReadWrite {
        /// The id of a database that is created; random.
        new_id: LogId,
    },
    /// For reading, while nobody has it open for writing.
    ReadOnly,
}

impl DatabaseDirectory {
    /// Opens the database in the directory at `path`.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, access: Access) -> Result<Self, Error> {
        let lock = match access {
            Access::ReadWrite { new_id } => creation::lock_or_create(&*disk, path, new_id)?,
            Access::ReadOnly => lock_to_read(&*disk, path)?,
        };
        let (manifest, next_number) = read_manifest(&*disk, path)?;
        check_log(&*disk, path, manifest.database_id)?;
        let numbers = FileNumbers::new(&*disk, &path.join(DATA), next_number)?;
        let directory = Self {
            disk,
            path: path.to_owned(),
            access,
            database_id: manifest.database_id,
            numbers: Arc::new(Mutex::new(numbers)),
            current: Mutex::new(Arc::new(manifest)),
            committing: Mutex::new(()),
            failure: OnceLock::new(),
            is_new: false,
            _lock: lock,
        };
        if access != Access::ReadOnly {
            if !bug::is_seeded(Bug::ManifestNotSyncedOnOpen) {
                directory.disk.sync_directory(path)?;
            }
            let numbers = directory.numbers.lock().snapshot();
            directory.remove_leftovers(&numbers);
        }
        Ok(directory)
    }

    /// Creates a database on the same disk, for a copy of this one: at `path` there is nothing, or an
    /// empty directory. Its log begins at `position`. It is a database only once a checkpoint is
    /// committed: a copy that was interrupted is none.
    pub fn create_copy(&self, path: &Path, new_id: LogId, position: u64) -> Result<Self, Error> {
        Self::create(Arc::clone(&self.disk), path, new_id, position)
    }

    /// Creates a database as [`Self::create_copy`] does, of what was read of one that cannot be opened.
    pub fn create(
        disk: Arc<dyn Disk>,
        path: &Path,
        new_id: LogId,
        position: u64,
    ) -> Result<Self, Error> {
        let (lock, is_new) = creation::create_copy(&*disk, path, new_id, position)?;
        let numbers = FileNumbers::new(&*disk, &path.join(DATA), creation::FIRST_NUMBER);
        let numbers = numbers.inspect_err(|_| creation::remove_copy(&*disk, path, is_new))?;
        Ok(Self {
            disk,
            path: path.to_owned(),
            access: Access::ReadWrite { new_id },
            database_id: new_id,
            numbers: Arc::new(Mutex::new(numbers)),
            current: Mutex::new(Arc::new(Manifest { position, ..Manifest::first(new_id) })),
            committing: Mutex::new(()),
            failure: OnceLock::new(),
            is_new,
            _lock: lock,
        })
    }

    /// Removes a copy that could not be completed, so that nothing of it is left. Not for a database that
    /// was opened.
    pub fn discard_copy(self) {
        let Self { disk, path, is_new, .. } = self;
        creation::remove_copy(&*disk, &path, is_new);
    }

    /// Gives its path, as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the path of the log's directory.
    pub fn log_path(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// Gives the id of the database, which is the id of its log.
    pub fn database_id(&self) -> LogId {
        self.database_id
    }

    /// Gives the current manifest.
    pub fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.current.lock())
    }

    /// Opens the log from where the current checkpoint needs it; `options` say how, without the id
    /// and the needed position. See [`SegmentedLog::open`].
    pub fn open_log(
        &self,
        options: Options,
        visit: &mut dyn FnMut(Entries<'_>),
    ) -> Result<(SegmentedLog, Recovered), Error> {
        self.check_writable()?;
        let needed = self.manifest().position;
        let options = Options { log_id: self.database_id, needed, ..options };
        SegmentedLog::open(Arc::clone(&self.disk), &self.log_path(), options, visit)
    }

    /// Reads the log from where the current checkpoint needs it, and changes nothing. Nobody has it
    /// open. See [`crate::read_log`].
    pub fn read_log(&self, visit: &mut dyn FnMut(Entries<'_>)) -> Result<Recovered, Error> {
        recovery::read_log(&*self.disk, &self.log_path(), self.manifest().position, visit)
    }

    /// Creates a data file for the next checkpoint, with a number that no file had.
    pub fn create_data_file(&self) -> Result<DataFileWriter, Error> {
        self.check_writable()?;
        let reservation = NumberReservation::new(&self.numbers);
        let header = self.header(reservation.number());
        let disk = Arc::clone(&self.disk);
        DataFileWriter::create(disk, &self.path.join(DATA), header, reservation)
    }

    /// Opens a data file that a manifest lists.
    pub fn read_data_file(&self, file: DataFile) -> Result<DataFileReader, Error> {
        DataFileReader::open(&*self.disk, &self.path.join(DATA), self.header(file.number), file)
    }

    /// Opens a data file to read single blocks of it. One that no manifest lists yet was finished before.
    pub fn open_blocks(&self, file: DataFile) -> Result<BlockReader, Error> {
        BlockReader::open(&*self.disk, &self.path.join(DATA), self.header(file.number), file)
    }

    fn header(&self, number: u64) -> DataFileHeader {
        DataFileHeader { database_id: self.database_id, number }
    }

    /// Fails when nothing may be written, or not any more.
    fn check_writable(&self) -> Result<(), Error> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly { path: self.path.clone() });
        }
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => Err(Error::CheckpointsStopped { source: Arc::clone(failure) }),
        }
    }
}

/// Locks a directory for reading; there is a database in it.
fn lock_to_read(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Lock>, Error> {
    let no_database = || Error::NoDatabase { path: path.to_owned() };
    let names = list(disk, path)?.ok_or_else(no_database)?;
    if !names.iter().any(|name| name == MANIFEST) {
        return Err(no_database());
    }
    lock(disk, path, LockMode::Shared)
}

/// Lists the names in a directory; `None` when there is none at `path`.
pub(crate) fn list(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<String>>, Error> {
    match disk.list(path) {
        Ok(names) => Ok(Some(names)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Ok(None),
            io::ErrorKind::NotADirectory => Err(Error::NotADirectory { path: path.to_owned() }),
            _ => Err(error.into()),
        },
    }
}

pub(crate) fn lock(disk: &dyn Disk, path: &Path, mode: LockMode) -> Result<Box<dyn Lock>, Error> {
    disk.lock(&path.join(LOCK), mode).map_err(|error| match error {
        file::Error::Locked { process_id, mode, .. } => {
            let is_read = mode == LockMode::Shared;
            Error::InUse { path: path.to_owned(), process_id, is_read }
        }
        error @ file::Error::Io { .. } => match mode {
            _ if error.lacks_locks() => Error::NoLocks { path: path.to_owned(), source: error },
            LockMode::Exclusive => not_writable(path, error),
            LockMode::Shared => error.into(),
        },
    })
}

/// Says that a directory cannot be written to, when that is why a call failed.
fn not_writable(path: &Path, error: file::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::NotWritable { path: path.to_owned(), source: error }
        }
        _ => refused(error),
    }
}

/// Reads the manifest and the next number.
pub(crate) fn read_manifest(disk: &dyn Disk, path: &Path) -> Result<(Manifest, u64), Error> {
    let path = path.join(MANIFEST);
    let file = disk.open(&path, OpenMode::Read)?;
    let length = file.length()?;
    if length > MANIFEST_BYTES_MAX {
        let what = "the manifest exceeds the maximum size";
        return Err(Error::CheckpointDamaged { file: path, offset: MANIFEST_BYTES_MAX, what });
    }
    let mut bytes = vec![0; usize::try_from(length).expect("it is limited")];
    let read = file.read_full_at(0, &mut bytes)?;
    decode(&path, &bytes[..read])
}

/// Checks that there is a log, and that it is this database's.
fn check_log(disk: &dyn Disk, path: &Path, database_id: LogId) -> Result<(), Error> {
    let log = path.join(LOG);
    let missing = || Error::LogMissing { path: log.clone() };
    let listing = match segment::list(disk, &log) {
        Ok(listing) => listing,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => return Err(missing()),
            _ => return Err(error.into()),
        },
    };
    let first = *listing.numbers.first().ok_or_else(missing)?;
    let segment = Segment::open(disk, &log, first, OpenMode::Read)?;
    if segment.header.log_id != database_id {
        return Err(Error::Foreign { file: segment.path(&log) });
    }
    Ok(())
}
