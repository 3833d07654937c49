//! What stands behind the end of a log: bytes, and what they know.
//!
//! [`crate::recovery`] and [`crate::survey`] search it for headers of records that are whole: each
//! knows up to which position the log was on the disk. Reads files and changes nothing.

use lockstep_host::file;

use crate::{
    cursor::ReadWindow,
    format::{ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader},
    segment::Segment,
};

/// Bytes looked at at once.
const BLOCK: usize = 1 << 20;
const PAGE: usize = 4 << 10;

/// What stands behind the end of a log.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// The greatest position that a whole header there knows to have been on the disk.
    pub(crate) durable: u64,
    /// Bytes from the end, and from the headers of later segments, to the last one that is not zero.
    pub(crate) bytes: u64,
    /// For each segment from the last one on, the offset behind its last byte that is not zero, or
    /// zero when there is none.
    pub(crate) used_to: Vec<u64>,
}

impl Remains {
    /// Looks at a segment from an offset on; gives the offset behind the last byte that is not zero.
    pub(crate) fn add(&mut self, segment: &Segment, from: u64) -> Result<u64, file::Error> {
        let length = segment.file.length()?;
        let (mut window, mut offset, mut used_to) = (ReadWindow::default(), from, 0);
        // In blocks that overlap by a header, so that none is missed between two.
        while offset < length {
            let wanted = usize::try_from(length - offset).unwrap_or(BLOCK).min(BLOCK);
            let block = window.view(segment, offset, offset, wanted)?;
            let is_end = offset + block.len() as u64 >= length;
            for at in words_in_use(block) {
                let word = &block[at..block.len().min(at + ALIGNMENT)];
                let Some(last) = word.iter().rposition(|byte| *byte != 0) else { continue };
                used_to = used_to.max(offset + (at + last + 1) as u64);
                self.ask(&block[at..], segment);
            }
            if is_end {
                break;
            }
            offset += (BLOCK - RECORD_HEADER_BYTES) as u64;
        }
        Ok(used_to)
    }

    /// Asks a header, if `bytes` begin with one.
    fn ask(&mut self, bytes: &[u8], segment: &Segment) {
        let header =
            bytes.first_chunk().and_then(|bytes| RecordHeader::decode(bytes, segment.seed));
        if let Some(header) = header.filter(|header| header.durable <= header.position) {
            self.durable = self.durable.max(header.durable);
        }
    }
}

/// Gives where the words begin in the pages that are not zero: most of a segment that is not full is, and
/// a page is compared faster than words.
fn words_in_use(block: &[u8]) -> impl Iterator<Item = usize> {
    let pages = (0..block.len()).step_by(PAGE).map(|at| at..block.len().min(at + PAGE));
    let used =
        pages.filter(|page| block[page.clone()].iter().fold(0, |bits, byte| bits | byte) != 0);
    used.flat_map(|page| page.step_by(ALIGNMENT))
}

/// Finds the first whole header of a record behind `offset`, and where it stands.
pub(crate) fn find_header(
    segment: &Segment,
    offset: u64,
) -> Result<Option<(u64, RecordHeader)>, file::Error> {
    let mut window = ReadWindow::default();
    let mut offset = offset + ALIGNMENT as u64;
    loop {
        let bytes = window.view(segment, offset, offset, RECORD_HEADER_BYTES)?;
        let Some(bytes) = bytes.first_chunk() else { return Ok(None) };
        // A record's length is not zero; most of a segment that is not full is.
        let is_empty = bytes[..ALIGNMENT].iter().all(|byte| *byte == 0);
        let header = if is_empty { None } else { RecordHeader::decode(bytes, segment.seed) };
        if let Some(header) = header {
            return Ok(Some((offset, header)));
        }
        offset += ALIGNMENT as u64;
    }
}
