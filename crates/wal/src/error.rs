//! What goes wrong with a log.

use std::{path::PathBuf, sync::Arc};

use lockstep_host::file;

/// Why an operation of the log failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A sync failed earlier: nobody knows what is on the disk, so this process writes no more.
    /// What was appended can be read; opening the log again finds what has survived.
    #[error("the log accepts no writes since a sync failed")]
    Stopped {
        /// The failure.
        source: Arc<file::Error>,
    },
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The log was opened to be read only.
    #[error("the database was opened to be read only")]
    ReadOnly,
    /// There is no space for the next segment. Nothing of the group was written; it may be appended
    /// again when there is space.
    #[error("the disk is full")]
    Full {
        /// The call that found no space.
        source: file::Error,
    },
    /// A call failed that changes nothing that was appended; it may be tried again.
    #[error("the log could not be reached")]
    Disk {
        /// The call.
        #[from]
        source: file::Error,
    },
    /// The thread that looks after the log could not be started.
    #[error("could not start a thread")]
    Thread {
        /// What the machine says.
        source: std::io::Error,
    },
    /// A group is larger than the log takes.
    #[error(
        "a group of {bytes} bytes is larger than the {} bytes that the log takes at once",
        crate::GROUP_BYTES_MAX
    )]
    TooLarge {
        /// The group's size, as it would be written.
        bytes: u64,
    },
    /// The records from a position on are not here any more, or are not here yet.
    #[error("position {position} is not in the log, which has {first} to {end}")]
    NotHere {
        /// The requested position.
        position: u64,
        /// The first position in the log.
        first: u64,
        /// The position after the last one.
        end: u64,
    },
    /// Records that were on the disk are not there as they were written.
    #[error("{} is damaged at byte {offset}: {what}; positions {from} to {to} are in danger",
        file.display())]
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
    #[error("{} has format version {found}, this program reads up to {supported}", file.display())]
    NewerFormat {
        /// The segment.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this program reads.
        supported: u32,
    },
}
