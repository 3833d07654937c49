//! Finds the next whole block of a data file behind a header that is damaged.
//!
//! Only to save what can be read: a reader that needs all of a file stops at the damage. A block is
//! taken for one when its header's checksum is that of one of the next indexes and its payload's is
//! right as well.
//!
//! *Cost*: one checksum of twelve bytes for each byte that may begin a header, for each index.

use std::ops::Range;

use lockstep_host::file::{self, File};

use super::data_file::{BLOCK_HEADER_BYTES, BlockHeader};
use crate::format::u32_at;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 1 << 20;
/// How many blocks may be lost at once.
const INDEXES_MAX: u32 = 16;

/// The search in one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockSearch {
    /// What the checksums of the file's block headers begin with.
    pub(super) seed: u32,
    /// Where the last block ends.
    pub(super) end: u64,
}

impl BlockSearch {
    /// Returns where the first whole block with one of these indexes begins, from `from` on, and its
    /// index.
    pub(super) fn find(
        self,
        file: &dyn File,
        mut from: u64,
        indexes: Range<u32>,
    ) -> Result<Option<(u64, u32)>, file::Error> {
        let indexes = indexes.start..indexes.end.min(indexes.start.saturating_add(INDEXES_MAX));
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let filled = file.read_full_at(from, &mut buffer)?;
            for (at, bytes) in buffer[..filled].windows(BLOCK_HEADER_BYTES).enumerate() {
                let offset = from + at as u64;
                if let Some(index) = self.index_of(file, offset, bytes, &indexes)? {
                    return Ok(Some((offset, index)));
                }
            }
            if filled < READ_BYTES {
                return Ok(None);
            }
            from += (READ_BYTES - BLOCK_HEADER_BYTES + 1) as u64;
        }
    }

    /// Returns the index of the block that begins with these bytes, if one does.
    fn index_of(
        self,
        file: &dyn File,
        offset: u64,
        bytes: &[u8],
        indexes: &Range<u32>,
    ) -> Result<Option<u32>, file::Error> {
        let begin = offset + BLOCK_HEADER_BYTES as u64;
        if begin + u64::from(u32_at(bytes, 0)) > self.end {
            return Ok(None);
        }
        let Some(bytes) = bytes.first_chunk() else { return Ok(None) };
        for index in indexes.clone() {
            if let Some(header) = BlockHeader::decode(bytes, self.seed, index) {
                let length = usize::try_from(header.length).expect("a block fits into memory");
                let mut payload = vec![0; length];
                let filled = file.read_full_at(begin, &mut payload)?;
                let is_whole = filled == length && crc32c::crc32c(&payload) == header.checksum;
                return Ok(is_whole.then_some(index));
            }
        }
        Ok(None)
    }
}
