//! Goes through the records of a segment and checks each of them.
//!
//! Recovery and readers share it. It says what it finds; whether that is the end of the log or
//! damage is decided by who asks. Reads the file in blocks of a mebibyte, never the mapping: a block
//! that the device cannot read is then an error and not a signal.

use lockstep_host::file;

use crate::{
    Entries,
    bug::{self, Bug},
    format::{BEGIN, MARK, RECORD_HEADER_BYTES, RecordHeader, SEAL, SEGMENT_HEADER_BYTES},
    segment::Segment,
};

/// Bytes read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// A part of a file in memory.
#[derive(Debug, Default)]
pub(crate) struct ReadWindow {
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    start: u64,
    filled: usize,
}

impl ReadWindow {
    /// The bytes at `offset`: `length` of them, or fewer where the file ends. What is in memory from
    /// `keep` on, which is not behind `offset`, stays there: bytes that were checked are not read again.
    pub(crate) fn view(
        &mut self,
        segment: &Segment,
        keep: u64,
        offset: u64,
        length: usize,
    ) -> Result<&[u8], file::Error> {
        assert!(keep <= offset, "what is kept begins before what is read");
        let end = self.start + self.filled as u64;
        if keep < self.start || offset + length as u64 > end {
            let block = usize::try_from(segment.header.length).unwrap_or(BLOCK_BYTES);
            let needed = usize::try_from(offset - keep).unwrap_or(usize::MAX) + length;
            // Twice what is needed, so that a long group is not moved for each of its records.
            let wanted =
                needed.saturating_mul(2).min(block).max(needed).max(block.min(BLOCK_BYTES));
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
            self.move_to(keep);
            let read_at = self.start + self.filled as u64;
            let rest = &mut self.buffer[self.filled..];
            self.filled += segment.file.read_full_at(read_at, rest)?;
        }
        let at = usize::try_from(offset - self.start).expect("it lies in the buffer");
        Ok(&self.buffer[at.min(self.filled)..self.filled.min(at + length)])
    }

    /// Lets the buffer begin at `keep`, with what it has from there on.
    fn move_to(&mut self, keep: u64) {
        let kept = usize::try_from(keep.wrapping_sub(self.start)).unwrap_or(usize::MAX);
        if kept < self.filled {
            self.buffer.copy_within(kept..self.filled, 0);
            self.filled -= kept;
        } else {
            self.filled = 0;
        }
        self.start = keep;
    }

    /// Forgets what was read, before another file is.
    pub(crate) fn clear(&mut self) {
        self.filled = 0;
    }
}

/// A place in a segment, between two groups.
#[derive(Debug)]
pub(crate) struct Cursor {
    window: ReadWindow,
    pub(crate) offset: u64,
    /// The position of the next record; the first segment of a log says it.
    pub(crate) position: Option<u64>,
    /// The position of the first record of the segment, when it was gone over.
    pub(crate) begin: Option<u64>,
    /// The greatest position of which a record said that everything before it is on the disk.
    pub(crate) durable: u64,
    /// Records of callers so far.
    pub(crate) records: u64,
}

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A whole group, between two offsets.
    Group { start: u64, end: u64 },
    /// The end of this segment; another one follows.
    Sealed,
    /// No whole group, and why.
    Nothing(&'static str),
}

impl Cursor {
    pub(crate) fn new() -> Self {
        let offset = SEGMENT_HEADER_BYTES as u64;
        let window = ReadWindow::default();
        Self { window, offset, position: None, begin: None, durable: 0, records: 0 }
    }

    /// Goes to the begin of another segment.
    pub(crate) fn enter(&mut self) {
        self.window.clear();
        self.begin = None;
        self.offset = SEGMENT_HEADER_BYTES as u64;
    }

    /// Goes over the next group. When there is none, the cursor stays before it.
    pub(crate) fn step(&mut self, segment: &Segment) -> Result<Step, file::Error> {
        let (mut offset, mut position) = (self.offset, self.position);
        let (mut records, mut kept) = (0, offset);
        loop {
            let header = match self.record(segment, offset, position, kept)? {
                Ok(header) => header,
                Err(_) if records > 0 && bug::is_seeded(Bug::LastFlagIgnored) => break,
                Err(what) => return Ok(Step::Nothing(what)),
            };
            if header.is_internal() && records > 0 {
                return Ok(Step::Nothing("a group of records is incomplete"));
            }
            self.durable = self.durable.max(header.durable);
            let Some(next) = header.position.checked_add(u64::from(header.rows)) else {
                return Ok(Step::Nothing("a position is too large"));
            };
            (offset, position) = (offset + header.size(), Some(next));
            if header.is_internal() {
                (self.offset, self.position, kept) = (offset, position, offset);
                if header.kind == BEGIN {
                    self.begin = position;
                }
                if header.kind == SEAL {
                    return Ok(Step::Sealed);
                }
                continue;
            }
            records += 1;
            if header.is_last {
                break;
            }
        }
        let start = std::mem::replace(&mut self.offset, offset);
        self.position = position;
        self.records += records;
        Ok(Step::Group { start, end: offset })
    }

    /// The record at `offset`, if it is whole and the one that belongs there; or what it is instead. Its
    /// group begins at `kept`.
    fn record(
        &mut self,
        segment: &Segment,
        offset: u64,
        position: Option<u64>,
        kept: u64,
    ) -> Result<Result<RecordHeader, &'static str>, file::Error> {
        let bytes = self.window.view(segment, kept, offset, RECORD_HEADER_BYTES)?;
        let Ok(bytes) = bytes.try_into() else { return Ok(Err("unexpected end of file")) };
        let Some(header) = RecordHeader::decode(bytes, segment.seed) else {
            let is_empty = bytes.iter().all(|byte| *byte == 0);
            return Ok(Err(if is_empty {
                "no record"
            } else {
                "the header of a record is invalid"
            }));
        };
        if let Some(what) = misplaced(&header, offset, position) {
            return Ok(Err(what));
        }
        if offset + header.size() > segment.header.length {
            return Ok(Err("a record extends past the end of its segment"));
        }
        let length = header.payload as usize;
        let payload =
            self.window.view(segment, kept, offset + RECORD_HEADER_BYTES as u64, length)?;
        if payload.len() < length {
            return Ok(Err("unexpected end of file"));
        }
        let is_whole = crc32c::crc32c(payload) == header.payload_checksum;
        if !is_whole && !bug::is_seeded(Bug::ChecksumNotCompared) {
            return Ok(Err("the payload of a record is invalid"));
        }
        Ok(Ok(header))
    }

    /// The records of a group that was found.
    pub(crate) fn entries(
        &mut self,
        segment: &Segment,
        start: u64,
        end: u64,
    ) -> Result<Entries<'_>, file::Error> {
        let length = usize::try_from(end - start).expect("a segment fits into memory");
        Ok(Entries { bytes: self.window.view(segment, start, start, length)? })
    }
}

/// Why a whole record cannot be the next one.
fn misplaced(header: &RecordHeader, offset: u64, position: Option<u64>) -> Option<&'static str> {
    let is_first = offset == SEGMENT_HEADER_BYTES as u64;
    if position.is_some_and(|position| position != header.position) {
        return Some("the position of a record is not the next one");
    }
    if header.durable > header.position {
        return Some("the durable position in a record is after the record");
    }
    if is_first != (header.kind == BEGIN) {
        return Some("a segment does not start with its position");
    }
    match header.kind {
        BEGIN | SEAL | MARK if header.rows == 0 && header.payload == 0 && header.is_last => None,
        _ if !header.is_internal() && header.rows > 0 => None,
        _ => Some("a record is of an unknown kind"),
    }
}
