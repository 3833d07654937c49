//! What goes wrong with a log.

use std::{fmt, path::PathBuf, sync::Arc};

use lockstep_host::file;

/// Why an operation of the log failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A sync failed earlier: nobody knows what is on the disk, so this process writes no more.
    /// What was appended can be read; opening the log again finds what has survived.
    #[error("the log is read-only after a failed sync")]
    Stopped {
        /// The failure.
        source: Arc<file::Error>,
    },
    /// The log belongs to the process from which this one was forked.
    #[error("the log belongs to process {process_id}, from which this one was forked")]
    Forked {
        /// The process that opened it.
        process_id: u32,
    },
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// There is no space for the next segment. Nothing of the group was written; it may be appended
    /// again when there is space.
    #[error("the disk is full")]
    Full {
        /// The call that found no space.
        source: file::Error,
    },
    /// A call failed that changes nothing that was appended; it may be tried again.
    #[error("disk operation failed")]
    Disk {
        /// The call.
        #[from]
        source: file::Error,
    },
    /// The thread that looks after the log could not be started.
    #[error("could not start the background thread of the log")]
    Thread {
        /// What the machine says.
        source: std::io::Error,
    },
    /// A group is larger than the log takes.
    #[error("a write of {bytes} bytes exceeds the log's limit of {} bytes", crate::GROUP_BYTES_MAX)]
    TooLarge {
        /// The group's size, as it would be written.
        bytes: u64,
    },
    /// The records from a position on are not here any more, or are not here yet.
    #[error("position {position} is not in the log, which contains positions {first} to {end}")]
    NotHere {
        /// The requested position.
        position: u64,
        /// The first position in the log.
        first: u64,
        /// The position after the last one.
        end: u64,
    },
    /// Records that were on the disk are not there as they were written.
    #[error("{} is damaged at byte {offset}: {what}; {} are at risk",
        file.display(), Positions(*from, *to))]
    Damaged {
        /// The damaged or missing file.
        file: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What was found.
        what: &'static str,
        /// The first position in danger.
        from: u64,
        /// The position after the last one that is known to have been there.
        to: u64,
    },
    /// A segment is of another log.
    #[error("{} belongs to another log", file.display())]
    Foreign {
        /// The segment.
        file: PathBuf,
    },
    /// A newer version of the program has written a segment.
    #[error(
        "{} has format version {found}, but this program supports versions up to {supported}",
        file.display()
    )]
    NewerFormat {
        /// The segment.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this program reads.
        supported: u32,
    },
    /// A file of a checkpoint is not as it was written: the manifest, or a data file.
    #[error("{} is damaged at byte {offset}: {what}", file.display())]
    CheckpointDamaged {
        /// The damaged or missing file.
        file: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What was found.
        what: &'static str,
    },
    /// A directory could not be synced earlier: nobody knows which manifest is on the disk, so this
    /// process commits no checkpoint any more. The log is not touched by this.
    #[error("checkpoints are disabled after a failed sync of the database directory")]
    CheckpointsStopped {
        /// The failure.
        source: Arc<file::Error>,
    },
    /// A manifest is larger than it may be.
    #[error("a manifest of {bytes} bytes exceeds the limit of {} bytes", crate::MANIFEST_BYTES_MAX)]
    ManifestTooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Numbers in a file begin with the most significant byte.
    #[error("{} was written with a different byte order than this machine's", file.display())]
    ByteOrder {
        /// The file.
        file: PathBuf,
    },
    /// There is something else where the directory of the database would be.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// The path that was given.
        path: PathBuf,
    },
    /// There is no database to read.
    #[error("{} does not contain a database", path.display())]
    NoDatabase {
        /// The path that was given.
        path: PathBuf,
    },
    /// No database is created beside files that are not its own.
    #[error(
        "{} is not a database and contains other files, such as {}",
        path.display(), file.display()
    )]
    ForeignFiles {
        /// The path that was given.
        path: PathBuf,
        /// One of the files.
        file: PathBuf,
    },
    /// This user may not write to the directory.
    #[error("{} is not writable", path.display())]
    NotWritable {
        /// The path that was given.
        path: PathBuf,
        /// The call.
        source: file::Error,
    },
    /// Somebody has the database open, this process included.
    #[error("{} is open for {} by {}", path.display(), purpose(*is_read), owner(*process_id))]
    InUse {
        /// The path that was given.
        path: PathBuf,
        /// Who has it open, when that is known.
        process_id: Option<u32>,
        /// Whether it is open for reading.
        is_read: bool,
    },
    /// The file system gives no locks, without which two processes could write at the same time.
    #[error("the file system of {} does not support locks", path.display())]
    NoLocks {
        /// The path that was given.
        path: PathBuf,
        /// The call.
        source: file::Error,
    },
    /// The database has no log.
    #[error("{} is missing or contains no log", path.display())]
    LogMissing {
        /// The directory of the log.
        path: PathBuf,
    },
    /// The database was opened for reading.
    #[error("{} is open read-only", path.display())]
    ReadOnly {
        /// Its path.
        path: PathBuf,
    },
}

/// Positions of a log, of which the end may not be known.
struct Positions(u64, u64);

impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(from, to) = self;
        match from < to {
            true => write!(f, "positions {from} to {to}"),
            false => write!(f, "positions {from} and later"),
        }
    }
}

fn purpose(is_read: bool) -> &'static str {
    if is_read { "reading" } else { "writing" }
}

/// A process as text.
fn owner(process_id: Option<u32>) -> String {
    process_id.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"))
}
