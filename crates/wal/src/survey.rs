//! Reads all that can be read of a log, also behind damage, and lists what cannot be read.
//!
//! [`crate::check()`] calls it, and who saves what is left of a database. It changes nothing, and
//! nobody has the log open. Where recovery refuses, this goes on:
//!
//! - A group of which a part is damaged is lost as a whole; the next one begins behind its last record.
//! - When the header of a record is damaged, nothing says where the next one begins: the next whole
//!   header is searched, and its group is lost as well, because it may be the rest of the damaged one.
//! - When there is none in the segment, the next segment says where it begins.
//!
//! The end of the log is torn, and not damaged, by the same rule as in recovery.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use lockstep_host::file::{self, Disk, OpenMode};

use crate::{
    Cut, Entries, Error, LogId, close_mark,
    cursor::{Cursor, ReadWindow, Step},
    format::{RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES},
    recovery,
    remains::{self, Remains},
    segment::{self, Segment},
};

/// A place at which a file is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The damaged or missing file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What was found.
    pub what: String,
    /// The positions in danger: rows and other changes of the database. Empty when none is known.
    pub positions: Range<u64>,
}

/// What was found in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogSurvey {
    /// Which log it is, as its first readable segment says.
    pub log_id: Option<LogId>,
    /// The first position that was read.
    pub first: Option<u64>,
    /// The position after the last one that was read.
    pub end: u64,
    /// Whole groups.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// What stands behind the end of the log and was never acknowledged as being on the disk.
    pub cut: Option<Cut>,
    /// What cannot be read, in the order of positions.
    pub damages: Vec<Damage>,
}

/// What a log should be.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogExpectation {
    /// Its id, when that is known.
    pub log_id: Option<LogId>,
    /// The first position that is needed.
    pub needed: u64,
}

/// Goes through the log in `directory` and gives every whole group to `visit`, in order.
pub fn survey_log(
    disk: &dyn Disk,
    directory: &Path,
    expected: LogExpectation,
    visit: &mut dyn FnMut(Entries<'_>),
) -> Result<LogSurvey, Error> {
    let listing = segment::list(disk, directory)?;
    let directory = directory.to_owned();
    let cursor = Cursor::new();
    let found = LogSurvey { log_id: expected.log_id, ..LogSurvey::default() };
    let mut survey = Survey {
        directory,
        segments: Vec::new(),
        cursor,
        found,
        undecided: 0,
        needed: expected.needed,
        closed: 0,
    };
    survey.open_segments(disk, &listing.numbers);
    survey.read_close_mark(disk);
    survey.walk(visit);
    Ok(survey.finish())
}

struct Survey {
    directory: PathBuf,
    segments: Vec<SurveyedSegment>,
    cursor: Cursor,
    found: LogSurvey,
    /// Damages from this index on end where the next position is read.
    undecided: usize,
    needed: u64,
    /// The position after the last one when the log was last closed.
    closed: u64,
}

/// A segment by its number, or why it cannot be read.
struct SurveyedSegment {
    number: u64,
    segment: Result<Segment, Unreadable>,
}

struct Unreadable {
    offset: u64,
    what: String,
}

impl Survey {
    fn open_segments(&mut self, disk: &dyn Disk, numbers: &[u64]) {
        let Some(first) = numbers.first() else {
            return self.damage(1, 0, "the log has no segments".into());
        };
        let mut expected = *first;
        for number in numbers {
            if *number != expected {
                let missing = Unreadable { offset: 0, what: "the segment is missing".into() };
                self.segments.push(SurveyedSegment { number: expected, segment: Err(missing) });
            }
            let segment = self.open_segment(disk, *number);
            self.segments.push(SurveyedSegment { number: *number, segment });
            expected = number + 1;
        }
    }

    fn open_segment(&mut self, disk: &dyn Disk, number: u64) -> Result<Segment, Unreadable> {
        let opened = Segment::open(disk, &self.directory, number, OpenMode::Read);
        let segment = opened.map_err(|error| match error {
            Error::Damaged { offset, what, .. } => Unreadable { offset, what: what.to_owned() },
            error => Unreadable { offset: 0, what: chain(&error) },
        })?;
        let log_id = *self.found.log_id.get_or_insert(segment.header.log_id);
        if log_id != segment.header.log_id {
            return Err(Unreadable {
                offset: 16,
                what: "the segment belongs to another log".into(),
            });
        }
        Ok(segment)
    }

    /// Reads where the log ended when it was last closed.
    fn read_close_mark(&mut self, disk: &dyn Disk) {
        match close_mark::read(disk, &self.directory, self.found.log_id) {
            Ok(closed) => self.closed = closed,
            Err(error) => {
                let (file, offset, what) = match error {
                    Error::Damaged { file, offset, what, .. } => (file, offset, what.to_owned()),
                    error => (self.directory.clone(), 0, chain(&error)),
                };
                self.found.damages.push(Damage { file, offset, what, positions: 0..0 });
                self.undecided = self.found.damages.len();
            }
        }
    }

    /// Goes through all segments.
    fn walk(&mut self, visit: &mut dyn FnMut(Entries<'_>)) {
        for index in 0..self.segments.len() {
            self.cursor.enter();
            let SurveyedSegment { number, segment } = &self.segments[index];
            if let Err(Unreadable { offset, what }) = segment {
                self.damage(*number, *offset, what.clone());
                continue;
            }
            match self.walk_segment(index, visit) {
                Ok(SegmentEnd::Sealed) => {}
                Ok(SegmentEnd::End) => return self.unreadable_from(index + 1),
                Err(error) => {
                    let (number, offset) = (self.segments[index].number, self.cursor.offset);
                    self.damage(number, offset, chain(&error.into()));
                }
            }
        }
    }

    /// Lists the segments behind the one in which the log ends that cannot be read: what they held,
    /// nobody knows.
    fn unreadable_from(&mut self, index: usize) {
        debug_assert!(index <= self.segments.len(), "it is one of the segments, or behind them");
        for later in index..self.segments.len() {
            let SurveyedSegment { number, segment } = &self.segments[later];
            if let Err(Unreadable { offset, what }) = segment {
                self.damage(*number, *offset, what.clone());
            }
        }
    }

    /// Goes through one segment, from where the cursor is.
    fn walk_segment(
        &mut self,
        index: usize,
        visit: &mut dyn FnMut(Entries<'_>),
    ) -> Result<SegmentEnd, file::Error> {
        loop {
            let what = match self.step(index, visit)? {
                Step::Group { .. } => continue,
                Step::Sealed if index + 1 < self.segments.len() => return Ok(SegmentEnd::Sealed),
                Step::Sealed => {
                    let number = self.segments[index].number + 1;
                    let what = "the segment after a sealed segment is missing";
                    self.damage(number, 0, what.into());
                    return Ok(SegmentEnd::End);
                }
                Step::Nothing(what) => what,
            };
            let Some(what) = self.missing(index, what)? else { return Ok(SegmentEnd::End) };
            if !self.is_listed(index) {
                let number = self.segments[index].number;
                self.damage(number, self.cursor.offset, what.to_owned());
                // What is there may be whole and only have a later position.
                continue;
            }
            match group_behind(self.segment(index), self.cursor.offset)? {
                Some(offset) => self.cursor.offset = offset,
                None => return Ok(SegmentEnd::Sealed),
            }
        }
    }

    /// Whether the last damage is the place where the cursor is.
    fn is_listed(&self, index: usize) -> bool {
        let file = segment::path(&self.directory, self.segments[index].number);
        let last = self.found.damages.last();
        last.is_some_and(|last| last.file == file && last.offset == self.cursor.offset)
    }

    /// Goes over the next group and gives it to the caller.
    fn step(
        &mut self,
        index: usize,
        visit: &mut dyn FnMut(Entries<'_>),
    ) -> Result<Step, file::Error> {
        let Ok(segment) = &self.segments[index].segment else {
            unreachable!("only what could be opened is read")
        };
        let step = self.cursor.step(segment)?;
        let known = match step {
            Step::Group { start, end } => {
                let entries = self.cursor.entries(segment, start, end)?;
                let first = entries.clone().next().map(|entry| entry.position);
                visit(entries);
                self.found.groups += 1;
                first
            }
            Step::Sealed | Step::Nothing(_) => self.cursor.position,
        };
        if let Some(known) = known {
            for damage in &mut self.found.damages[self.undecided..] {
                damage.positions.end = known.max(damage.positions.start);
            }
            self.undecided = self.found.damages.len();
            self.found.first.get_or_insert(known);
            self.found.end = self.cursor.position.unwrap_or(known);
        }
        Ok(step)
    }

    /// Returns what is missing where there is no group; `None` where the log ends, because nothing knows
    /// of a later position.
    fn missing(
        &mut self,
        index: usize,
        what: &'static str,
    ) -> Result<Option<&'static str>, file::Error> {
        let (offset, mut remains) = (self.cursor.offset, Remains::default());
        let mut is_short = false;
        for later in index..self.segments.len() {
            let Ok(segment) = &self.segments[later].segment else { continue };
            let from = if later == index { offset } else { SEGMENT_HEADER_BYTES as u64 };
            let used_to = remains.add(segment, from)?;
            remains.bytes += used_to.saturating_sub(from);
            is_short |= segment.short_length()?.is_some();
        }
        let known = self.cursor.durable.max(remains.durable).max(self.needed);
        if known > self.end() || (self.cursor.position.is_none() && remains.bytes > 0) {
            return Ok(Some(what));
        }
        if self.closed > self.end() {
            return Ok(Some(recovery::ENDS_EARLY));
        }
        if is_short && self.found.damages.is_empty() {
            return Ok(Some(recovery::SHORT));
        }
        let file = segment::path(&self.directory, self.segments[index].number);
        let bytes = remains.bytes;
        self.found.cut = (bytes > 0).then_some(Cut { file, offset, bytes, what });
        Ok(None)
    }

    /// The position after the last one that was read or is listed as missing.
    fn end(&self) -> u64 {
        self.cursor.position.unwrap_or(self.found.end)
    }

    fn segment(&self, index: usize) -> &Segment {
        self.segments[index].segment.as_ref().ok().expect("only what could be opened is read")
    }

    /// Lists a damage; what follows may have any position.
    fn damage(&mut self, number: u64, offset: u64, what: String) {
        let end = self.end();
        let file = segment::path(&self.directory, number);
        self.found.damages.push(Damage { file, offset, what, positions: end..end });
        debug_assert!(end >= self.found.end, "a survey goes forward");
        self.found.end = end;
        self.cursor.position = None;
    }

    fn finish(mut self) -> LogSurvey {
        let known = self.cursor.durable.max(self.needed).max(self.closed).max(self.found.end);
        for damage in &mut self.found.damages[self.undecided..] {
            damage.positions.end = known;
        }
        if self.found.first.is_some_and(|first| first > self.needed) {
            let number = self.segments[0].number;
            let what = "the log starts after the first position that is needed";
            let positions = self.needed..self.found.first.unwrap_or_default();
            // A damage at the begin has said so already.
            if self.found.damages.iter().all(|damage| damage.positions.start >= positions.end) {
                let file = segment::path(&self.directory, number);
                let offset = SEGMENT_HEADER_BYTES as u64;
                let damage = Damage { file, offset, what: what.into(), positions };
                self.found.damages.insert(0, damage);
            }
        }
        self.found.records = self.cursor.records;
        self.found
    }
}

/// Where the walk through a segment ends.
enum SegmentEnd {
    /// Where another one follows.
    Sealed,
    /// Where the log does.
    End,
}

/// The offset behind the group at `offset`, of which a part is damaged; `None` when no whole header
/// follows in the segment.
fn group_behind(segment: &Segment, offset: u64) -> Result<Option<u64>, file::Error> {
    let (mut window, mut offset) = (ReadWindow::default(), offset);
    loop {
        let bytes = window.view(segment, offset, offset, RECORD_HEADER_BYTES)?;
        let header = bytes.try_into().ok();
        let header = header.and_then(|bytes| RecordHeader::decode(bytes, segment.seed));
        let (at, header) = match header {
            Some(header) => (offset, header),
            None => match remains::find_header(segment, offset)? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        let behind = at + header.size();
        if header.is_internal() && at > offset {
            // A group of its own: what was searched ends before it.
            return Ok(Some(at));
        }
        if header.is_last {
            return Ok(Some(behind));
        }
        offset = behind;
    }
}

/// An error and its sources, as one line.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
