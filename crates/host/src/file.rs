//! Files and directories behind two traits, [`Disk`] and [`File`].
//!
//! [`SystemDisk`] is the machine's; a simulated disk takes its place in tests, so that a crash or a
//! failure at any call can be tried. What must survive a crash goes through here and nowhere else.
//! Knows nothing of what the files hold. New files and directories are those of their user alone.
//!
//! # What survives a crash
//!
//! - Bytes of a file: those that were written before [`File::sync_data`] began and returned `Ok`.
//! - Names: those whose directory was synced by [`Disk::sync_directory`] after the change.
//! - After a sync that failed nobody knows what is on the disk, and a second one that succeeds says
//!   nothing about the bytes of the first. Whoever gets the error has to stop writing.

mod mapping;
mod system;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use mapping::Mapping;
pub use system::SystemDisk;

/// A place that holds files in directories.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens or creates the file at `path`.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, Error>;

    /// Creates the directory at `path`, whose parent exists. Fails with `AlreadyExists` when there
    /// is one.
    fn create_directory(&self, path: &Path) -> Result<(), Error>;

    /// Lists the names in a directory, sorted.
    fn list(&self, path: &Path) -> Result<Vec<String>, Error>;

    /// Renames a file. One that has the new name is replaced, in one step.
    fn rename(&self, source: &Path, target: &Path) -> Result<(), Error>;

    /// Removes a file. Whoever has it open goes on reading it.
    fn remove(&self, path: &Path) -> Result<(), Error>;

    /// Removes a directory, which is empty.
    fn remove_directory(&self, path: &Path) -> Result<(), Error>;

    /// Puts the names in a directory on the disk: what was created, renamed and removed.
    fn sync_directory(&self, path: &Path) -> Result<(), Error>;

    /// Locks the file at `path`. The lock ends when the value is dropped or the process ends. Fails
    /// with [`Error::Locked`] when somebody holds a lock that excludes it, this process included.
    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn Lock>, Error>;

    /// Gives how many bytes this process may still allocate on the file system of `path`.
    fn free_space(&self, path: &Path) -> Result<u64, Error>;
}

/// An open file. Offsets and lengths are in bytes.
pub trait File: Send + Sync + fmt::Debug {
    /// Gives the path under which it was opened.
    fn path(&self) -> &Path;

    /// Gives the file's length.
    fn length(&self) -> Result<u64, Error>;

    /// Reads from `offset` on; gives how many bytes were read, which may be fewer than requested.
    /// Zero means the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error>;

    /// Writes all of `bytes` at `offset`; the file grows when they end behind its end.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Cuts the file, or lengthens it by zeros that need no space on the disk yet.
    fn set_length(&self, length: u64) -> Result<(), Error>;

    /// Reserves space for the first `length` bytes, which lengthens a shorter file by zeros: a write
    /// to them, also through a mapping, does not fail for want of space. Not so on a file system
    /// that writes elsewhere what is written over.
    fn allocate(&self, length: u64) -> Result<(), Error>;

    /// Puts the file's bytes and its length on the disk, those written through mappings included.
    fn sync_data(&self) -> Result<(), Error>;

    /// Maps the file from its begin to `length`, which the file has, as memory that it shares.
    fn map(&self, length: usize) -> Result<Mapping, Error>;

    /// Reads until `buffer` is full or the file ends; gives how many bytes were read.
    fn read_full_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < buffer.len() {
            let read = self.read_at(offset + filled as u64, &mut buffer[filled..])?;
            if read == 0 {
                break;
            }
            assert!(read <= buffer.len() - filled, "no more is read than was requested");
            filled += read;
        }
        Ok(filled)
    }
}

/// A lock on a file, held until it is dropped.
pub trait Lock: Send + Sync + fmt::Debug {}

/// Whom a lock excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Everybody else. The file is created when there is none, and gets the process's id.
    Exclusive,
    /// Who wants an exclusive lock. The file exists and is not changed.
    Shared,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; an existing file is emptied.
    Create,
    /// For reading and writing; fails with `AlreadyExists` when there is one.
    CreateNew,
}

/// An operation of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is named after the call")]
pub enum Operation {
    Open,
    Length,
    Read,
    Write,
    SetLength,
    Allocate,
    SyncData,
    Map,
    CreateDirectory,
    List,
    Rename,
    Remove,
    SyncDirectory,
    Lock,
    FreeSpace,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Length => "read the length of",
            Self::Read => "read",
            Self::Write => "write",
            Self::SetLength => "set the length of",
            Self::Allocate => "allocate",
            Self::SyncData => "sync",
            Self::Map => "map",
            Self::CreateDirectory => "create directory",
            Self::List => "list directory",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::SyncDirectory => "sync directory",
            Self::Lock => "lock",
            Self::FreeSpace => "read the free space at",
        })
    }
}

/// Why an operation of the disk failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine refused.
    #[error("could not {operation} {}", path.display())]
    Io {
        /// The operation that failed.
        operation: Operation,
        /// Of which file or directory.
        path: PathBuf,
        /// What the machine says.
        source: io::Error,
    },
    /// Another process holds the lock, or this one holds it already.
    #[error("{} is locked by {}", path.display(), LockOwner(*process_id))]
    Locked {
        /// The file that is locked.
        path: PathBuf,
        /// The process that holds it, when the file says so.
        process_id: Option<u32>,
        /// How it is held.
        mode: LockMode,
    },
}

impl Error {
    /// Makes the error of a call.
    pub fn io(operation: Operation, path: &Path, source: io::Error) -> Self {
        Self::Io { operation, path: path.to_owned(), source }
    }

    /// Names the kind of failure in `std`'s words.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } => source.kind(),
            Self::Locked { .. } => io::ErrorKind::WouldBlock,
        }
    }

    /// Tells whether the file system gives no locks.
    pub fn lacks_locks(&self) -> bool {
        // ENOLCK has no name in `std`.
        const NO_LOCKS: i32 = if cfg!(target_os = "macos") { 77 } else { 37 };
        let Self::Io { operation: Operation::Lock, source, .. } = self else { return false };
        source.kind() == io::ErrorKind::Unsupported || source.raw_os_error() == Some(NO_LOCKS)
    }

    /// Tells whether there was no space: the call may succeed when something was removed.
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// A process as text.
struct LockOwner(Option<u32>);

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(process_id) => write!(f, "process {process_id}"),
            None => f.write_str("another process"),
        }
    }
}

#[cfg(test)]
mod tests;
