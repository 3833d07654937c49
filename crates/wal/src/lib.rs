//! The log: every change of a database, in one order, in segments that are memory as well as files.
//!
//! `table` and `engine` append groups of records and read them again when a database is opened. A
//! record's payload is bytes to the log, which knows no rows, no catalog and no SQL. All files are
//! reached through [`lockstep_host::file`]. Callers go through [`Log`], so that a replicated log can
//! take the place of [`SegmentedLog`]. (ADR 0027)
//!
//! The directory in which a database has its log, and the checkpoints beside it, are drawn in
//! [`directory`] and [`checkpoint`]; [`check()`] verifies all of it. (ADR 0028)
//!
//! # Words
//!
//! A *record* takes one or more *positions*, one for each row; the arrival of a row is its position.
//! Positions begin at zero and have no gaps. A *group* is one or more records that are wholly in the
//! log or not at all. Ends are exclusive: a log with end 3 has the positions 0, 1 and 2.
//!
//! # Layout
//!
//! A log is a directory. Segment N is the file `N.wal`, N as twenty digits, from 1 on, without gaps;
//! `N.wal.new` is a segment that was not finished and means nothing. `CLOSED` says where the log ended when
//! it was last closed ([`close_mark`]). All numbers are little-endian.
//!
//! ```text
//! segment      0         64            104                                          length
//!              +---------+-------------+----------+----------+-----+------+---------+
//!              | header  | BEGIN       | record   | record   | ... | SEAL | zeros   |
//!              +---------+-------------+----------+----------+-----+------+---------+
//!                 every record begins at a multiple of 8; what fills it up is zero
//!
//! header       0  magic "LSTEPWAL"
//!              8  u32  format version: 1
//!             12  u32  CRC32C of bytes 0-11 and 16-63
//!             16  log id: 128 random bits, the same in all segments of a log
//!             32  u64  segment number
//!             40  u64  length of the file in bytes
//!             48  zeros
//!
//! record       0  u32  length of header and payload, without what fills it up; 0: no record
//!              4  u32  CRC32C of log id, segment number, and bytes 0-3 and 8-39
//!              8  u64  position of the first row
//!             16  u64  durable: everything before this position was on the disk when the record
//!                      was written; never beyond the record's own position
//!             24  u32  rows: how many positions it takes
//!             28  u32  CRC32C of the payload
//!             32  u8   kind: below 0xf0 a caller's
//!             33  u8   flags: 1 = last record of its group
//!             34  zeros
//!             40  payload
//! ```
//!
//! Three kinds are the log's own; they have no rows, no payload, and are a group each. Their position
//! is that of the next record.
//!
//! - `0xf0 BEGIN` is the first record of each segment, and stands nowhere else.
//! - `0xf1 SEAL` is the last one of a segment that is followed by another. It needs space: a record
//!   ends at least 40 bytes before the segment does.
//! - `0xf2 MARK` repeats how far the log is durable, for a log to which nothing is appended.
//!
//! The header's checksum covers the position, and begins with the log and the segment: a record in
//! another place, of another log, or of an earlier use of the same blocks is none.
//! A group lies in one segment; a larger one gets a segment of its own size.
//!
//! # What is promised
//!
//! - A group for which `wait(.., Disk)` returned is there after any crash, and so is all before it.
//! - A group for which `append` returned is there after the process ends in any way.
//! - What is there after a crash is a prefix of what was appended, in whole groups, at the same
//!   positions. What was refused is never there.
//! - Damage to what was on the disk is an error when the log is opened, not a shorter log, as soon as
//!   one later record is left; a mark is written when a log has been idle for
//!   [`Options::durability_window_ms`]. So is a segment that is shorter than its header says, and a log
//!   that ends before the position at which it was last closed. Not promised: to tell a torn tail from
//!   damage to the last records that were synced before the first mark after them, where the log was not
//!   closed since.
//! - After a failed sync no write is accepted ([`Error::Stopped`]).
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use lockstep_host::file::{Disk, SystemDisk};
//! use lockstep_wal::{Durability, Group, Log, Options, SegmentedLog};
//!
//! let directory = std::env::temp_dir().join(format!("lockstep-wal-example-{}", std::process::id()));
//! SystemDisk.create_directory(&directory)?;
//! let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
//! let options = Options { segment_bytes: 1 << 20, ..Options::new([7; 16]) };
//! let (log, _) = SegmentedLog::open(Arc::clone(&disk), &directory, options.clone(), &mut |_| ())?;
//! let mut group = Group::new();
//! group.push(1, 2, b"two rows");
//! group.push(2, 1, b"one of another table");
//! let positions = log.append(&group, &mut |first| assert_eq!(first, 0))?;
//! log.wait(positions.end, Durability::Disk)?;
//! log.close()?;
//!
//! let mut found = Vec::new();
//! let (log, recovered) = SegmentedLog::open(disk, &directory, options, &mut |entries| {
//!     found.extend(entries.map(|entry| (entry.position, entry.payload.to_vec())));
//! })?;
//! assert_eq!((recovered.end, recovered.cut), (3, None));
//! assert_eq!(found, [(0, b"two rows".to_vec()), (2, b"one of another table".to_vec())]);
//! drop(log);
//! std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Cost
//!
//! `append` takes one lock, copies the group once, and computes one checksum of 36 bytes for each
//! record under the lock; those of the payloads are computed when the group is made. It waits for the
//! disk only when the next segment is not ready. `wait(.., Disk)` costs a share of one `fdatasync`.

mod background;
mod bug;
mod check;
mod checkpoint;
mod close_mark;
mod commit;
mod cursor;
mod directory;
mod error;
mod format;
mod group;
mod log;
mod read_only;
mod reader;
mod recovery;
mod remains;
mod segment;
mod survey;

use std::{fmt, ops::Range, sync::Arc};

use lockstep_host::{Clock, SystemClock, Threads};

pub use check::{
    CheckReport, CheckedPart, check, check_with, data_file_numbers, lock_against_writers,
    read_unlisted_file,
};
pub use checkpoint::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockPlace, BlockReader, DataFile, DataFileReader,
    DataFileWriter, MANIFEST_BYTES_MAX, Manifest,
};
pub use directory::{Access, DatabaseDirectory};
pub use error::Error;
pub use format::{KIND_RESERVED, LogId, RecordKind};
pub use group::Group;
pub use log::SegmentedLog;
pub use read_only::ReadOnlyLog;
pub use reader::{Entries, Entry, Reader};
pub use recovery::{Cut, Recovered, read_log};
pub use survey::{Damage, LogExpectation, LogSurvey, survey_log};

/// What a group may take, in bytes.
pub const GROUP_BYTES_MAX: u64 = 1 << 30;

/// A log: groups of records in one order.
pub trait Log: Send + Sync + fmt::Debug {
    /// Appends a group and gives the positions that it takes. They are given out in one short turn, in
    /// which `turn` is called once with the first of them, before anything is written; turns come in
    /// the order of positions and one at a time. `turn` must not call the log. When it panics or the
    /// group is refused, nothing of the group is in the log.
    fn append(&self, group: &Group<'_>, turn: &mut dyn FnMut(u64)) -> Result<Range<u64>, Error>;

    /// Waits until everything before `end`, which was appended, is as durable as requested.
    fn wait(&self, end: u64, durability: Durability) -> Result<(), Error>;

    /// Reads the groups that reach to position `from` or behind, up to where the log ends now.
    fn read(&self, from: u64) -> Result<Reader, Error>;

    /// Lets go of records before a position, which nobody needs any more; of how many is the log's
    /// choice.
    fn truncate(&self, before: u64) -> Result<(), Error>;

    /// Fails when the log accepts no writes any more.
    fn check(&self) -> Result<(), Error>;

    /// Gives the position after the last one that was appended.
    fn end(&self) -> u64;

    /// Gives the position up to which everything is on the disk.
    fn durable_end(&self) -> u64;
}

/// What a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Nothing: on the disk within the durability window.
    Memory,
    /// The operating system has it: it survives the process, not the machine.
    Os,
    /// The disk has it.
    Disk,
}

/// How a log is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The id of a log that is created; random.
    pub log_id: LogId,
    /// The first position that the caller needs: a log that begins behind it or ends before it is
    /// damaged. Zero when nothing else is known than the log.
    pub needed: u64,
    /// Bytes of a segment, rounded up to pages of 4 KiB.
    pub segment_bytes: u64,
    /// After how many milliseconds what nobody waits for is on the disk, until
    /// [`SegmentedLog::set_durability_window_ms`] says otherwise.
    pub durability_window_ms: u32,
    /// Whether a thread syncs what nobody waits for, and creates segments ahead. Otherwise the caller
    /// does, by [`SegmentedLog::tick`], and segments are created when they are needed.
    pub threads: Threads,
    /// Tells when the durability window ends.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    /// Makes the usual options: segments of 64 MiB, a window of one second, a thread.
    pub fn new(log_id: LogId) -> Self {
        Self {
            log_id,
            needed: 0,
            segment_bytes: 64 << 20,
            durability_window_ms: 1_000,
            threads: Threads::System,
            clock: Arc::new(SystemClock::new()),
        }
    }

    fn segment_bytes(&self) -> u64 {
        const PAGE_BYTES: u64 = 4 << 10;
        let bytes = self.segment_bytes.clamp(PAGE_BYTES, 2 * GROUP_BYTES_MAX);
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        debug_assert!(bytes >= PAGE_BYTES, "a segment has a page");
        bytes
    }
}

#[cfg(test)]
mod tests;
