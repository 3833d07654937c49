//! Opens a log: finds where it ends, and makes sure that it ends there.
//!
//! Calls [`Cursor`] for every group, gives the groups to the caller on the way, and decides what the
//! place means at which there is no further group. Called once, before the log is anybody's.
//!
//! # Torn or damaged
//!
//! The first place without a whole group is where the log *ends* if nothing that was on the disk is
//! missing, and *damage* otherwise. Every record says up to which position the log was on the disk
//! when it was written; so all that is left of the log is searched, the bytes behind the end included,
//! wherever a whole header stands there. If one of them knows of a position behind the end, the log
//! is damaged and is not opened. Otherwise what stands behind the end was never acknowledged as
//! being on the disk; it is cut, and reported.
//!
//! Two things are damage whatever the records say: a log that ends before the position at which it was
//! last closed ([`close_mark`]), and a segment that is shorter than its header says, since the whole length
//! of a segment is on the disk before it gets its name.
//!
//! # Cutting
//!
//! 1. Segments behind the one in which the log ends are removed, newest first, the directory synced
//!    after each: at no time is there a gap.
//! 2. Everything behind the end is written over with zeros: bytes that stay could follow a record
//!    written later, and have the right position.
//! 3. What is not known to be on the disk is written again. A process that stopped after a failed
//!    sync leaves pages in the cache that count as written and are not.
//! 4. The directory and all segments are synced. Only then does the log take a record.

use std::{
    collections::VecDeque,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_host::file::{self, Disk, OpenMode};

use crate::{
    Entries, Error, LogId, Options,
    bug::{self, Bug},
    close_mark,
    cursor::{Cursor, ReadWindow, Step},
    format::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES},
    remains::Remains,
    segment::{self, NotCreated, Segment},
};

/// How far apart the places are that recovery remembers, in bytes.
const PLACE_BYTES: u64 = 1 << 20;

/// What a log lacks that ends before the mark of its last clean close.
pub(crate) const ENDS_EARLY: &str = "the log ends before the position at which it was last closed";

/// What a segment lacks.
pub(crate) const SHORT: &str = "the file is shorter than its header specifies";

/// What reading a log found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Which log it is.
    pub log_id: LogId,
    /// The first position in the log.
    pub first: u64,
    /// The position after the last one.
    pub end: u64,
    /// Groups that were read.
    pub groups: u64,
    /// Records that were read.
    pub records: u64,
    /// Bytes of the segments up to the end of the log.
    pub bytes: u64,
    /// What stood behind the end of the log; opening the log cuts it.
    pub cut: Option<Cut>,
}

/// Bytes that were never acknowledged as being on the disk, and were not whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The segment in which the log ends.
    pub file: PathBuf,
    /// Where it ends, in bytes.
    pub offset: u64,
    /// How many bytes stood behind the end, of later segments as well.
    pub bytes: u64,
    /// Why the bytes at the end are no group.
    pub what: &'static str,
}

/// A log as it is found, ready to be appended to.
#[derive(Debug)]
pub(crate) struct OpenedLog {
    pub(crate) segments: VecDeque<Arc<Segment>>,
    /// The segment to go on in after the last one.
    pub(crate) next: Option<Arc<Segment>>,
    pub(crate) offset: u64,
    pub(crate) recovered: Recovered,
}

/// Where in the log a group begins.
#[derive(Debug, Clone, Copy)]
struct RecordLocation {
    position: u64,
    index: usize,
    offset: u64,
}

/// Opens the log in a directory, or creates one where there is none.
pub(crate) fn open(
    disk: &dyn Disk,
    directory: &Path,
    options: &Options,
    visit: &mut dyn FnMut(Entries<'_>),
) -> Result<OpenedLog, Error> {
    let listing = segment::list(disk, directory)?;
    for name in listing.unfinished {
        disk.remove(&directory.join(name))?;
    }
    let mut recovery = Recovery::new(disk, directory, OpenMode::Write);
    if listing.numbers.is_empty() {
        recovery.closed = close_mark::read(disk, directory, None)?;
        return recovery.create(options);
    }
    recovery.open_segments(&listing.numbers)?;
    let (last, what) = recovery.walk(options.needed, visit)?;
    recovery.finish(last, what, options.needed)
}

/// Reads the log in `directory` and changes nothing: gives every group to `visit` that reaches to
/// position `needed` or behind, in order, and says where the log ends. What stands behind the end is
/// in [`Recovered::cut`] and stays. When it fails, what `visit` was given is not to be used. Nobody
/// has the log open for writing.
pub fn read_log(
    disk: &dyn Disk,
    directory: &Path,
    needed: u64,
    visit: &mut dyn FnMut(Entries<'_>),
) -> Result<Recovered, Error> {
    let listing = segment::list(disk, directory)?;
    let mut recovery = Recovery::new(disk, directory, OpenMode::Read);
    if listing.numbers.is_empty() {
        return Err(recovery.damaged(1, 0, "the log has no segments", 0..needed));
    }
    recovery.open_segments(&listing.numbers)?;
    let (last, what) = recovery.walk(needed, visit)?;
    let ending = recovery.ending(last, what, needed)?;
    Ok(recovery.recovered(&ending))
}

struct Recovery<'d> {
    disk: &'d dyn Disk,
    directory: PathBuf,
    /// How segments are opened.
    mode: OpenMode,
    segments: Vec<Arc<Segment>>,
    cursor: Cursor,
    /// Some places on the way, in order.
    places: Vec<RecordLocation>,
    groups: u64,
    /// The position after the last one when the log was last closed.
    closed: u64,
}

/// Where a log ends.
#[derive(Debug)]
struct Ending {
    /// The index of the segment in which it ends.
    last: usize,
    /// The offset there.
    offset: u64,
    /// Why no further group stands there.
    what: &'static str,
    first: u64,
    /// The position after the last one.
    end: u64,
    remains: Remains,
}

impl<'d> Recovery<'d> {
    fn new(disk: &'d dyn Disk, directory: &Path, mode: OpenMode) -> Self {
        Self {
            disk,
            directory: directory.to_owned(),
            mode,
            segments: Vec::new(),
            cursor: Cursor::new(),
            places: Vec::new(),
            groups: 0,
            closed: 0,
        }
    }

    fn create(&self, options: &Options) -> Result<OpenedLog, Error> {
        let to = options.needed.max(self.closed);
        if to > 0 {
            return Err(self.damaged(1, 0, "the log has no segments", 0..to));
        }
        let header = segment::header(options.log_id, 1, options.segment_bytes());
        let created = Segment::create(self.disk, &self.directory, header, Some(0));
        let segment = created.map_err(|error| match error {
            NotCreated::Refused(error) => refused(error),
            NotCreated::NotSynced(error) => error.into(),
        })?;
        let recovered = Recovered {
            log_id: options.log_id,
            first: 0,
            end: 0,
            groups: 0,
            records: 0,
            bytes: 0,
            cut: None,
        };
        let offset = (SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES) as u64;
        Ok(OpenedLog { segments: [Arc::new(segment)].into(), next: None, offset, recovered })
    }

    /// Opens every segment; all are of one log, and none is missing between two others.
    fn open_segments(&mut self, numbers: &[u64]) -> Result<(), Error> {
        for (number, expected) in numbers.iter().zip(numbers[0]..) {
            if *number != expected {
                return Err(self.damaged(expected, 0, "the segment is missing", 0..0));
            }
            let segment = Segment::open(self.disk, &self.directory, *number, self.mode)?;
            let log_id = self.segments.first().map(|first| first.header.log_id);
            if log_id.is_some_and(|log_id| log_id != segment.header.log_id) {
                return Err(Error::Foreign { file: segment.path(&self.directory) });
            }
            self.segments.push(Arc::new(segment));
        }
        let log_id = self.segments.first().map(|first| first.header.log_id);
        self.closed = close_mark::read(self.disk, &self.directory, log_id)?;
        Ok(())
    }

    /// Goes through all groups; gives the segment in which the log ends, and why it does.
    fn walk(
        &mut self,
        needed: u64,
        visit: &mut dyn FnMut(Entries<'_>),
    ) -> Result<(usize, &'static str), Error> {
        for index in 0..self.segments.len() {
            let segment = Arc::clone(&self.segments[index]);
            if index > 0 {
                self.cursor.enter();
            }
            loop {
                self.remember(index);
                let step = self.cursor.step(&segment)?;
                if let Some(position) = self.cursor.begin {
                    segment.set_first(position);
                }
                match step {
                    Step::Group { start, end } => {
                        self.groups += 1;
                        self.give(&segment, start..end, needed, visit)?;
                    }
                    Step::Sealed => break,
                    Step::Nothing(what) => return Ok((index, what)),
                }
            }
            if index + 1 == self.segments.len() {
                let number = segment.header.number + 1;
                let from = self.cursor.position.unwrap_or_default();
                let what = "the segment after a sealed segment is missing";
                return Err(self.damaged(number, 0, what, from..from));
            }
        }
        unreachable!("the last segment is either sealed or the end")
    }

    /// Gives the group that the cursor went over to the caller, who needs what reaches to a position.
    fn give(
        &mut self,
        segment: &Segment,
        bytes: Range<u64>,
        needed: u64,
        visit: &mut dyn FnMut(Entries<'_>),
    ) -> Result<(), file::Error> {
        if self.cursor.position > Some(needed) {
            visit(self.cursor.entries(segment, bytes.start, bytes.end)?);
        }
        Ok(())
    }

    /// Remembers a place now and then, so that what follows a position is found again.
    fn remember(&mut self, index: usize) {
        let position = self.cursor.position.unwrap_or(0);
        let offset = self.cursor.offset;
        let is_far = self
            .places
            .last()
            .is_none_or(|last| last.index != index || offset - last.offset >= PLACE_BYTES);
        if is_far {
            self.places.push(RecordLocation { position, index, offset });
        }
    }

    /// Decides what the end of the walk means.
    fn ending(&self, last: usize, what: &'static str, needed: u64) -> Result<Ending, Error> {
        let offset = self.cursor.offset;
        let number = self.segments[last].header.number;
        let Some(end) = self.cursor.position else {
            return Err(self.damaged(
                number,
                offset,
                "the log has no start position",
                0..needed.max(self.closed),
            ));
        };
        let remains = self.remains(last, offset)?;
        let known = self.cursor.durable.max(remains.durable).max(needed);
        if known > end && !bug::is_seeded(Bug::EvidenceIgnored) {
            return Err(self.damaged(number, offset, what, end..known.max(self.closed)));
        }
        if self.closed > end && !bug::is_seeded(Bug::EvidenceIgnored) {
            return Err(self.damaged(number, offset, ENDS_EARLY, end..self.closed));
        }
        for segment in &self.segments[last..] {
            if let Some(length) = segment.short_length()? {
                return Err(self.damaged(segment.header.number, length, SHORT, end..end));
            }
        }
        let first = self.segments[0].first().unwrap_or(end);
        if first > needed {
            return Err(self.damaged(
                self.segments[0].header.number,
                SEGMENT_HEADER_BYTES as u64,
                "the log starts after the first position that is needed",
                needed..first,
            ));
        }
        Ok(Ending { last, offset, what, first, end, remains })
    }

    /// Decides what the end of the walk means, and lets the log end there.
    fn finish(mut self, last: usize, what: &'static str, needed: u64) -> Result<OpenedLog, Error> {
        let ending = self.ending(last, what, needed)?;
        let Ending { offset, ref remains, .. } = ending;
        let next = self.remove_behind(last, remains)?;
        // A process that stopped because this failed has left names that only look durable.
        if !bug::is_seeded(Bug::DirectoryNotSyncedOnOpen) {
            self.disk.sync_directory(&self.directory)?;
        }
        let known = self.cursor.durable.max(remains.durable);
        if !bug::is_seeded(Bug::NotWrittenAgain) {
            self.write_again(known, last, offset)?;
        }
        self.cut(last, offset, remains.used_to[0])?;
        let recovered = self.recovered(&ending);
        self.segments.truncate(last + 1);
        Ok(OpenedLog { segments: self.segments.into(), next, offset, recovered })
    }

    /// Says what was found.
    fn recovered(&self, ending: &Ending) -> Recovered {
        let Ending { last, offset, what, first, end, ref remains } = *ending;
        assert!(first <= end, "a log ends behind its begin");
        let cut = (remains.bytes > 0).then(|| Cut {
            file: self.segments[last].path(&self.directory),
            offset,
            bytes: remains.bytes,
            what,
        });
        let earlier = self.segments[..last].iter().map(|segment| segment.header.length);
        Recovered {
            log_id: self.segments[last].header.log_id,
            first,
            end,
            groups: self.groups,
            records: self.cursor.records,
            bytes: earlier.sum::<u64>() + offset,
            cut,
        }
    }

    /// Looks at all that stands behind the end.
    fn remains(&self, last: usize, offset: u64) -> Result<Remains, file::Error> {
        let mut remains = Remains::default();
        for (index, segment) in self.segments.iter().enumerate().skip(last) {
            let from = if index == last { offset } else { SEGMENT_HEADER_BYTES as u64 };
            let used_to = remains.add(segment, from)?;
            remains.used_to.push(used_to);
            remains.bytes += used_to.saturating_sub(from);
        }
        Ok(remains)
    }

    /// Removes the segments behind the one in which the log ends. The first of them stays when
    /// nothing was written to it: the log goes on there.
    fn remove_behind(&self, last: usize, remains: &Remains) -> Result<Option<Arc<Segment>>, Error> {
        for index in (last + 1..self.segments.len()).rev() {
            let segment = &self.segments[index];
            if index == last + 1 && remains.used_to[1] == 0 {
                segment.file.allocate(segment.header.length).map_err(refused)?;
                segment.map()?;
                return Ok(Some(Arc::clone(segment)));
            }
            self.disk.remove(&segment.path(&self.directory))?;
            self.disk.sync_directory(&self.directory)?;
        }
        Ok(None)
    }

    /// Writes again what is not known to be on the disk, from position `known` to the end, and syncs
    /// it, except for the last segment.
    fn write_again(&self, known: u64, last: usize, end: u64) -> Result<(), file::Error> {
        // Not the place at `known` itself: a seal or mark before it has the same position, and may have
        // been written after the sync.
        let before = self.places.iter().rev().find(|place| place.position < known);
        let Some(from) = before.or_else(|| self.places.first()) else { return Ok(()) };
        let mut window = ReadWindow::default();
        for index in from.index..=last {
            let segment = &self.segments[index];
            let begin = SEGMENT_HEADER_BYTES as u64;
            let mut offset = if index == from.index { from.offset } else { begin };
            let end = if index == last { end } else { segment.file.length()? };
            window.clear();
            while offset < end {
                let length = (end - offset).min(PLACE_BYTES);
                let length = usize::try_from(length).expect("a place is small");
                let bytes = window.view(segment, offset, offset, length)?;
                segment.file.write_at(offset, bytes)?;
                offset += length as u64;
            }
            if index < last {
                segment.file.sync_data()?;
            }
        }
        Ok(())
    }

    /// Puts zeros between the end of the log and `used_to`, gives the segment its length, and
    /// syncs it.
    fn cut(&self, last: usize, offset: u64, used_to: u64) -> Result<(), Error> {
        let segment = &self.segments[last];
        // First the length, then the bytes: a file that was cut short has its space again.
        segment.file.allocate(segment.header.length).map_err(refused)?;
        if !bug::is_seeded(Bug::TailNotZeroed) {
            let mut offset = offset;
            while offset < used_to {
                let zeros = [0; 4_096];
                let count = (used_to - offset).min(zeros.len() as u64);
                let zeros = &zeros[..usize::try_from(count).expect("it is some page")];
                segment.file.write_at(offset, zeros)?;
                offset += count;
            }
        }
        segment.map()?;
        if !bug::is_seeded(Bug::ZerosNotSynced) {
            segment.file.sync_data()?;
        }
        Ok(())
    }

    fn damaged(
        &self,
        number: u64,
        offset: u64,
        what: &'static str,
        positions: Range<u64>,
    ) -> Error {
        let file = segment::path(&self.directory, number);
        Error::Damaged { file, offset, what, from: positions.start, to: positions.end }
    }
}

/// No space is an error of its own.
pub(crate) fn refused(error: file::Error) -> Error {
    if error.is_full() { Error::Full { source: error } } else { Error::Disk { source: error } }
}
