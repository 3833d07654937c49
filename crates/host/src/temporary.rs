//! Temporary files: what a query has on the disk while it runs.
//!
//! [`TemporaryStorage`] says where they are and how much all of them may take together. The files of
//! a query ([`TemporaryFiles`]) are in a folder of its own, which is made with the first of them and
//! removed, with all that is in it, when the query ends. What is written counts against the space
//! until the file is dropped.
//!
//! # Leftovers
//!
//! Who makes a folder locks the file `owner` in it. A process that is killed leaves the folder and
//! gives up the lock; whoever makes the next folder beside it removes those whose lock is free. That
//! may also happen to a folder that was just made and is not locked yet: its owner then finds that the
//! file it locked has no name any more, and makes another folder. Links, and folders of other users of
//! the machine, are left alone.

#![expect(clippy::disallowed_methods, reason = "this is the real disk")]

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{OwnerProcess, sync::Mutex};

/// The beginning of the names of folders of temporary files.
pub const FOLDER_PREFIX: &str = "lockstep-temp-";

/// The file whose lock the owner of a folder holds.
const OWNER: &str = "owner";

/// The most names that are tried for a folder.
const ATTEMPTS_MAX: u32 = 1_000;

/// The reason why a temporary file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TemporaryError {
    /// The space for temporary files is used up.
    #[error("temporary space exhausted: {wanted} more bytes needed, {used} of {limit} in use")]
    LimitReached {
        /// Where the file is.
        folder: PathBuf,
        /// The bytes that were to be written.
        wanted: u64,
        /// The bytes that all temporary files take.
        used: u64,
        /// The most that they may take.
        limit: u64,
    },
    /// The disk has no space, or the system allows no more.
    #[error("could not write {wanted} bytes of a temporary file: no space left on device")]
    DiskFull {
        /// Where the file is.
        folder: PathBuf,
        /// The bytes that were to be written.
        wanted: u64,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("could not write temporary files")]
    System {
        /// Where the file is, or was to be.
        folder: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The query of the file has ended.
    #[error("the query has ended")]
    Ended,
}

impl TemporaryError {
    /// Makes the error of a call of the system that was to write some bytes.
    fn of_system(folder: &Path, wanted: u64, source: io::Error) -> Self {
        let folder = folder.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::DiskFull { folder, wanted, source },
            _ => Self::System { folder, source },
        }
    }

    /// Returns the error that an error of [`TemporaryWriter`] carries.
    pub fn of_io(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// The bytes that the temporary files of several queries take together.
#[derive(Debug, Default)]
pub struct TemporarySpace {
    used: AtomicU64,
    /// The most; 0 is no limit.
    limit: AtomicU64,
}

impl TemporarySpace {
    /// Limits the bytes; `None` is no limit. What is written already stays.
    pub fn set_limit(&self, bytes: Option<u64>) {
        // Relaxed: the number itself is all that is shared.
        self.limit.store(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the bytes that are used.
    pub fn used_bytes(&self) -> u64 {
        // Relaxed: as above.
        self.used.load(Ordering::Relaxed)
    }

    /// Counts bytes; fails with the bytes that are used and the most where they are too many.
    fn reserve(&self, bytes: u64) -> Result<(), (u64, u64)> {
        // Relaxed: as above.
        let limit = self.limit.load(Ordering::Relaxed);
        let add = |used: u64| {
            let wanted = used.saturating_add(bytes);
            (limit == 0 || wanted <= limit).then_some(wanted)
        };
        // Relaxed: as above.
        let reserved = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        reserved.map(drop).map_err(|used| (used, limit))
    }

    /// Gives bytes back.
    fn release(&self, bytes: u64) {
        // Relaxed: as above.
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "what is given back was counted");
    }
}

/// Where temporary files are, and the space that they share.
#[derive(Debug, Clone, Default)]
pub struct TemporaryStorage {
    /// The resolved path of the folder; `None` is the system's.
    pub folder: Option<PathBuf>,
    /// What they count against.
    pub space: Arc<TemporarySpace>,
}

impl TemporaryStorage {
    /// Makes the files of one query: none yet.
    pub fn files(&self) -> Arc<TemporaryFiles> {
        let state = FilesState { folder: None, file_count: 0, has_ended: false };
        let (parent, space) = (self.folder.clone(), Arc::clone(&self.space));
        let is_resolved = parent.is_some();
        let parent = parent.unwrap_or_else(std::env::temp_dir);
        let (owner, state) = (OwnerProcess::current(), Mutex::new(state));
        Arc::new(TemporaryFiles { parent, is_resolved, space, owner, state })
    }
}

/// The temporary files of one query.
pub struct TemporaryFiles {
    parent: PathBuf,
    /// Whether the path was resolved when it was chosen: no link leads elsewhere since then.
    is_resolved: bool,
    space: Arc<TemporarySpace>,
    owner: OwnerProcess,
    state: Mutex<FilesState>,
}

struct FilesState {
    /// Made with the first file.
    folder: Option<OwnFolder>,
    file_count: u64,
    has_ended: bool,
}

impl fmt::Debug for TemporaryFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TemporaryFiles").field("parent", &self.parent).finish_non_exhaustive()
    }
}

impl TemporaryFiles {
    /// Makes an empty file.
    pub fn create(self: &Arc<Self>) -> Result<Arc<CountedFile>, TemporaryError> {
        let failed = |error| TemporaryError::of_system(&self.parent, 0, error);
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(TemporaryError::Ended);
        }
        debug_assert!(self.owner.is_current(), "a fork runs no query of its parent");
        state.file_count += 1;
        let number = state.file_count;
        let folder = match &mut state.folder {
            Some(folder) => folder,
            none => {
                self.check_parent().map_err(failed)?;
                none.insert(OwnFolder::make(&self.parent).map_err(failed)?)
            }
        };
        let path = folder.path.join(number.to_string());
        new_file(&path).map_err(failed)?;
        Ok(Arc::new(CountedFile { files: Arc::clone(self), path, bytes: AtomicU64::new(0) }))
    }

    /// Fails where a link has taken the place of the folder, or of one above it.
    fn check_parent(&self) -> io::Result<()> {
        if !self.is_resolved || fs::canonicalize(&self.parent)? == self.parent {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotADirectory, "a link has taken its place"))
    }

    /// Removes all files and their folder, although they may be in use: who has one open goes on, and
    /// no other can be made or opened.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        // A fork has no part in what its parent runs.
        if let Some(folder) = state.folder.take().filter(|_| self.owner.is_current()) {
            remove_folder(&folder.path);
        }
    }
}

impl Drop for TemporaryFiles {
    fn drop(&mut self) {
        self.end();
    }
}

/// A temporary file, whose bytes count. Dropping the last clone of its handle removes it and gives its space back.
#[derive(Debug)]
pub struct CountedFile {
    files: Arc<TemporaryFiles>,
    path: PathBuf,
    /// The bytes that it counts.
    bytes: AtomicU64,
}

impl CountedFile {
    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes that were written.
    pub fn bytes(&self) -> u64 {
        // Relaxed: the number itself is all that is shared.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Opens it for reading from its beginning.
    pub fn open(&self) -> Result<File, TemporaryError> {
        File::open(&self.path).map_err(|error| self.failed(0, error))
    }

    /// Opens it for writing at its end. Each write is one of the system's.
    pub fn writer(self: &Arc<Self>) -> Result<TemporaryWriter, TemporaryError> {
        let file = OpenOptions::new().append(true).open(&self.path);
        let file = file.map_err(|error| self.failed(0, error))?;
        Ok(TemporaryWriter { file, target: Arc::clone(self) })
    }

    fn failed(&self, wanted: u64, error: io::Error) -> TemporaryError {
        match error.kind() {
            io::ErrorKind::NotFound if self.files.state.lock().has_ended => TemporaryError::Ended,
            _ => TemporaryError::of_system(&self.files.parent, wanted, error),
        }
    }

    fn reserve(&self, bytes: u64) -> Result<(), TemporaryError> {
        let reserved = self.files.space.reserve(bytes);
        reserved.map_err(|(used, limit)| {
            let folder = self.files.parent.clone();
            TemporaryError::LimitReached { folder, wanted: bytes, used, limit }
        })?;
        // Relaxed: as above.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, bytes: u64) {
        // Relaxed: as above.
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "what is given back was counted");
        self.files.space.release(bytes);
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        if self.files.owner.is_current() {
            // It is gone where its query has ended.
            drop(fs::remove_file(&self.path));
        }
        self.files.space.release(self.bytes());
    }
}

/// A writer of a temporary file. Its errors are [`TemporaryError`]s in an [`io::Error`].
#[derive(Debug)]
pub struct TemporaryWriter {
    file: File,
    target: Arc<CountedFile>,
}

impl Write for TemporaryWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.target.reserve(wanted).map_err(io::Error::other)?;
        let written = self.file.write(bytes);
        let counted = written.as_ref().map_or(0, |written| *written);
        self.target.release(wanted - u64::try_from(counted).unwrap_or(wanted));
        written.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ => io::Error::other(self.target.failed(wanted, error)),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A folder of this process.
struct OwnFolder {
    path: PathBuf,
    /// Held until the folder is removed.
    _lock: File,
}

impl OwnFolder {
    /// Makes a folder in another, and removes what ended processes have left there.
    fn make(parent: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        for _ in 0..ATTEMPTS_MAX {
            // Relaxed: only the number has to be new.
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{FOLDER_PREFIX}{}-{number}", std::process::id());
            let path = parent.join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created?,
            }
            match lock_owner(&path) {
                Ok(Some(lock)) => {
                    let folder = Self { path, _lock: lock };
                    remove_leftovers(parent, &folder.path);
                    return Ok(folder);
                }
                // Somebody took it for a leftover.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    remove_folder(&path);
                    return Err(error);
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "no unused directory name found"))
    }
}

/// Makes the file `owner` in a new folder and locks it; `None` where the folder is being removed.
fn lock_owner(folder: &Path) -> io::Result<Option<File>> {
    let file = new_file(&folder.join(OWNER))?;
    if let Err(fs::TryLockError::WouldBlock) = file.try_lock() {
        return Ok(None);
    }
    // Where the system has no locks nobody gets one, and the folder is never taken for a leftover.
    Ok((file.metadata()?.nlink() > 0).then_some(file))
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Removes the folders beside `own` that processes of the same user have left. What cannot be removed
/// stays: the next one tries again.
fn remove_leftovers(parent: &Path, own: &Path) {
    let (Ok(entries), Ok(status)) = (fs::read_dir(parent), fs::symlink_metadata(own)) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_named = entry.file_name().to_string_lossy().starts_with(FOLDER_PREFIX);
        if !is_named || path == own {
            continue;
        }
        let is_ours = fs::symlink_metadata(&path)
            .is_ok_and(|found| found.is_dir() && found.uid() == status.uid());
        if is_ours {
            remove_leftover(&path);
        }
    }
}

fn remove_leftover(folder: &Path) {
    match OpenOptions::new().write(true).open(folder.join(OWNER)) {
        Ok(lock) => {
            if lock.try_lock().is_ok() {
                remove_folder(folder);
            }
        }
        // It was just made, or is being removed; then it is empty.
        Err(_) => drop(fs::remove_dir(folder)),
    }
}

/// Removes a folder and its files, the file with the lock last.
fn remove_folder(folder: &Path) {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    assert!(name.starts_with(FOLDER_PREFIX), "only folders of temporary files are removed");
    let owner = folder.join(OWNER);
    if let Ok(entries) = fs::read_dir(folder) {
        let files = entries.flatten().map(|entry| entry.path()).filter(|path| *path != owner);
        files.for_each(|path| drop(fs::remove_file(path)));
    }
    drop(fs::remove_file(owner));
    drop(fs::remove_dir(folder));
}

#[cfg(test)]
mod tests;
