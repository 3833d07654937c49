//! The bytes of data files, as drawn in [`crate::checkpoint`]: headers, names, checksums.
//!
//! Encodes and decodes; touches no file. What a header that does not decode means is decided by who
//! reads.

use crate::{
    LogId,
    bug::{self, Bug},
    format::{NoSegment, u32_at, u64_at},
};

/// What one block may hold, in bytes.
pub const BLOCK_BYTES_MAX: u32 = 1 << 30;

/// The newest format of data files that this program reads, and the one that it writes.
pub(crate) const DATA_FILE_VERSION: u32 = 1;

pub(crate) const DATA_FILE_HEADER_BYTES: usize = 48;
/// The bytes before the payload of a block.
pub const BLOCK_HEADER_BYTES: usize = 12;

const MAGIC: [u8; 8] = *b"LSTEPDAT";
const SUFFIX: &str = ".data";

/// A data file, as a manifest lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataFile {
    /// Its number, which is its name and which no other file of the database ever has.
    pub number: u64,
    /// How many blocks it has.
    pub blocks: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// The checksum of the lengths and checksums of its blocks.
    pub checksum: u32,
}

/// Names the data file with a number.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:020}{SUFFIX}")
}

/// The number of the data file that has a name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// The header of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataFileHeader {
    pub(crate) database_id: LogId,
    pub(crate) number: u64,
}

impl DataFileHeader {
    pub(crate) fn encode(self) -> [u8; DATA_FILE_HEADER_BYTES] {
        let mut bytes = [0; DATA_FILE_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&DATA_FILE_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.database_id);
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        let checksum = Self::checksum(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; DATA_FILE_HEADER_BYTES]) -> Result<Self, NoSegment> {
        if bytes[0..8] != MAGIC || u32_at(bytes, 12) != Self::checksum(bytes) {
            return Err(NoSegment::Damaged);
        }
        let version = u32_at(bytes, 8);
        if version > DATA_FILE_VERSION {
            return Err(NoSegment::Newer(version));
        }
        let database_id = bytes[16..32].try_into().expect("sixteen bytes");
        Ok(Self { database_id, number: u64_at(bytes, 32) })
    }

    fn checksum(bytes: &[u8; DATA_FILE_HEADER_BYTES]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
    }

    /// What the checksums of the file's block headers begin with.
    pub(crate) fn seed(self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.database_id), &self.number.to_le_bytes())
    }
}

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// Bytes of the payload.
    pub(crate) length: u32,
    pub(crate) checksum: u32,
}

impl BlockHeader {
    /// The header of a block that is encoded here.
    pub(crate) fn of(payload: &[u8]) -> Self {
        let length = u32::try_from(payload.len()).ok().filter(|bytes| *bytes <= BLOCK_BYTES_MAX);
        let length = length.expect("a block is at most as long as the limit says");
        Self { length, checksum: crc32c::crc32c(payload) }
    }

    pub(crate) fn encode(self, seed: u32, index: u32) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = Self::checksum(&bytes, seed, index);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header that `bytes` are, if it is that of the block with this index.
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEADER_BYTES], seed: u32, index: u32) -> Option<Self> {
        let is_whole = u32_at(bytes, 8) == Self::checksum(bytes, seed, index);
        let header = Self { length: u32_at(bytes, 0), checksum: u32_at(bytes, 4) };
        (is_whole && header.length <= BLOCK_BYTES_MAX).then_some(header)
    }

    /// Goes on with the checksum of a file: over the block's length and checksum, and not over that
    /// of the header: one that runs over bytes and their checksum is the same whatever the bytes are.
    pub(crate) fn append_checksum(self, checksum: u32) -> u32 {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..].copy_from_slice(&self.checksum.to_le_bytes());
        crc32c::crc32c_append(checksum, &bytes)
    }

    fn checksum(bytes: &[u8; BLOCK_HEADER_BYTES], seed: u32, index: u32) -> u32 {
        let index = if bug::is_seeded(Bug::BlockIndexNotInChecksum) { 0 } else { index };
        let seed = crc32c::crc32c_append(seed, &index.to_le_bytes());
        crc32c::crc32c_append(seed, &bytes[..8])
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockHeader, DataFileHeader, file_name, number_of};
    use crate::format::NoSegment;

    const HEADER: DataFileHeader = DataFileHeader { database_id: *b"sixteen bytes ok", number: 7 };

    #[test]
    fn a_block_header_is_that_of_its_file_and_index_and_any_flipped_bit_is_seen() {
        let header = BlockHeader::of(b"rows");
        let mut bytes = header.encode(HEADER.seed(), 3);
        assert_eq!(BlockHeader::decode(&bytes, HEADER.seed(), 3), Some(header));
        assert_eq!(BlockHeader::decode(&bytes, HEADER.seed(), 2), None);
        let other = DataFileHeader { number: 8, ..HEADER };
        assert_eq!(BlockHeader::decode(&bytes, other.seed(), 3), None);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHeader::decode(&bytes, HEADER.seed(), 3), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn any_flipped_bit_of_a_file_header_is_seen() {
        let mut bytes = HEADER.encode();
        assert_eq!(DataFileHeader::decode(&bytes), Ok(HEADER));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(DataFileHeader::decode(&bytes), Err(NoSegment::Damaged), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn the_bytes_of_version_1_stay_what_they_are() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(&HEADER.encode()), GOLDEN_FILE);
        assert_eq!(hex(&BlockHeader::of(b"rows").encode(HEADER.seed(), 3)), GOLDEN_BLOCK);
    }

    const GOLDEN_FILE: &str = "4c5354455044415401000000bb08450c7369787465656e206279746573206f6b07000000000000000000000000000000";
    const GOLDEN_BLOCK: &str = "040000004d099baf9d55b4f0";

    #[test]
    fn a_name_is_twenty_digits() {
        assert_eq!(file_name(7), "00000000000000000007.data");
        assert_eq!(number_of("00000000000000000007.data"), Some(7));
        for name in ["7.data", "+0000000000000000007.data", "00000000000000000007", "a.data"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
