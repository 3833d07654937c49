//! Reads groups of a log that is open, from a position on.
//!
//! A reader goes up to where the log ended when it was made. It takes no lock while it reads, and
//! goes on after the segments that it reads were truncated.

use std::{ops::Range, path::PathBuf, sync::Arc};

use crate::{
    Error, RecordKind,
    cursor::{Cursor, Step},
    format::{RECORD_HEADER_BYTES, RecordHeader},
    segment::Segment,
};

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'b> {
    /// What its writer said that it is.
    pub kind: RecordKind,
    /// The position of its first row.
    pub position: u64,
    /// How many positions it takes.
    pub rows: u32,
    /// Its bytes.
    pub payload: &'b [u8],
}

/// The records of one group, in order.
#[derive(Debug, Clone)]
pub struct Entries<'b> {
    /// From the header of one record on; all of them were checked.
    pub(crate) bytes: &'b [u8],
}

impl<'b> Iterator for Entries<'b> {
    type Item = Entry<'b>;

    fn next(&mut self) -> Option<Entry<'b>> {
        let (header, rest) = self.bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let header = RecordHeader::of_checked(header);
        let (payload, _) = rest.split_at(header.payload as usize);
        let size = usize::try_from(header.size()).expect("it lies in memory");
        // What fills up the last record may be behind the end of a file that was cut.
        self.bytes = self.bytes.get(size..).unwrap_or_default();
        let RecordHeader { kind, position, rows, .. } = header;
        Some(Entry { kind, position, rows, payload })
    }
}

/// Gives the groups of a log one after the other.
#[derive(Debug)]
pub struct Reader {
    segments: Vec<Arc<Segment>>,
    directory: PathBuf,
    /// The segment that is read, by index.
    index: usize,
    cursor: Cursor,
    positions: Range<u64>,
}

impl Reader {
    /// Makes a reader of the groups that reach into `positions`. The first segment holds the first of
    /// them.
    pub(crate) fn new(
        segments: Vec<Arc<Segment>>,
        directory: PathBuf,
        positions: Range<u64>,
    ) -> Self {
        let mut cursor = Cursor::new();
        cursor.position = segments.first().and_then(|segment| segment.first());
        Self { segments, directory, index: 0, cursor, positions }
    }

    /// Reads the next group; `None` at the end.
    pub fn next_group(&mut self) -> Result<Option<Entries<'_>>, Error> {
        loop {
            let next = self.cursor.position.expect("a segment of an open log has begun");
            if next >= self.positions.end {
                return Ok(None);
            }
            let segment = Arc::clone(&self.segments[self.index]);
            match self.cursor.step(&segment)? {
                Step::Group { start, end } => {
                    let after = self.cursor.position.expect("it is the position after a group");
                    if after > self.positions.start {
                        return Ok(Some(self.cursor.entries(&segment, start, end)?));
                    }
                }
                Step::Sealed if self.index + 1 < self.segments.len() => {
                    self.index += 1;
                    self.cursor.enter();
                }
                Step::Sealed => return Err(self.damaged(&segment, "the segment is sealed")),
                Step::Nothing(what) => return Err(self.damaged(&segment, what)),
            }
        }
    }

    fn damaged(&self, segment: &Segment, what: &'static str) -> Error {
        Error::Damaged {
            file: segment.path(&self.directory),
            offset: self.cursor.offset,
            what,
            from: self.cursor.position.unwrap_or_default(),
            to: self.positions.end,
        }
    }
}
