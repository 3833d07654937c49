//! The bytes of segments and records, as drawn at the top of the crate.
//!
//! Encodes and decodes headers; knows no files. A header that does not decode is `None`: what that
//! means is decided by who reads.

use crate::bug::{self, Bug};

/// The newest format that this program reads, and the one that it writes.
pub(crate) const FORMAT_VERSION: u32 = 1;

pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
pub(crate) const RECORD_HEADER_BYTES: usize = 40;
const RECORD_HEADER_LENGTH: u32 = 40;

/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

/// What a segment spends on itself: its header, the record it begins with, and the one that seals it.
pub(crate) const SEGMENT_OVERHEAD_BYTES: u64 =
    (SEGMENT_HEADER_BYTES + 2 * RECORD_HEADER_BYTES) as u64;

const MAGIC: [u8; 8] = *b"LSTEPWAL";

const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(ALIGNMENT));
const _: () = assert!(RECORD_HEADER_LENGTH as usize == RECORD_HEADER_BYTES);
const _: () = assert!(RECORD_HEADER_BYTES.is_multiple_of(ALIGNMENT));

/// Which log a segment belongs to: 128 bits drawn when the log was created.
pub type LogId = [u8; 16];

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) log_id: LogId,
    pub(crate) number: u64,
    /// The file's length, in bytes.
    pub(crate) length: u64,
}

/// Why a file does not begin as a segment does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSegment {
    /// Its version, which is greater than this program's.
    Newer(u32),
    Damaged,
}

impl SegmentHeader {
    pub(crate) fn encode(self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.log_id);
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.length.to_le_bytes());
        let checksum = Self::checksum(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Result<Self, NoSegment> {
        let is_whole = u32_at(bytes, 12) == Self::checksum(bytes);
        if bytes[0..8] != MAGIC || !is_whole {
            return Err(NoSegment::Damaged);
        }
        // The first sixteen bytes and the place of the checksum are the same in every version.
        let version = u32_at(bytes, 8);
        if version > FORMAT_VERSION {
            return Err(NoSegment::Newer(version));
        }
        let log_id = bytes[16..32].try_into().expect("sixteen bytes");
        Ok(Self { log_id, number: u64_at(bytes, 32), length: u64_at(bytes, 40) })
    }

    fn checksum(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
    }

    /// What the checksums of the segment's records begin with.
    pub(crate) fn seed(self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.log_id), &self.number.to_le_bytes())
    }
}

/// Says what a record's payload is; the log's own kinds are the last sixteen.
pub type RecordKind = u8;

/// The first kind that is not a caller's.
pub const KIND_RESERVED: RecordKind = 0xf0;

/// The first record of each segment: the position of the record that follows.
pub(crate) const BEGIN: RecordKind = 0xf0;
/// The last record of a segment that is followed by another one.
pub(crate) const SEAL: RecordKind = 0xf1;
/// Says again how far the log is durable, for a log to which nothing is appended.
pub(crate) const MARK: RecordKind = 0xf2;

/// The record is the last one of its group.
const LAST: u8 = 1;

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Bytes of the payload.
    pub(crate) payload: u32,
    pub(crate) payload_checksum: u32,
    /// The position of its first row, or of the next record's when it has none.
    pub(crate) position: u64,
    /// Everything before this position was on the disk when the record was written.
    pub(crate) durable: u64,
    pub(crate) rows: u32,
    pub(crate) kind: RecordKind,
    pub(crate) is_last: bool,
}

impl RecordHeader {
    /// A record of the log's own.
    pub(crate) fn internal(kind: RecordKind, position: u64, durable: u64) -> Self {
        Self { payload: 0, payload_checksum: 0, position, durable, rows: 0, kind, is_last: true }
    }

    /// Bytes that the record takes, with what fills it up.
    pub(crate) fn size(&self) -> u64 {
        record_size(self.payload as usize)
    }

    pub(crate) fn is_internal(&self) -> bool {
        self.kind >= KIND_RESERVED
    }

    pub(crate) fn encode(&self, seed: u32) -> [u8; RECORD_HEADER_BYTES] {
        let length = self.payload + RECORD_HEADER_LENGTH;
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.position.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.durable.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.rows.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.payload_checksum.to_le_bytes());
        bytes[32] = self.kind;
        bytes[33] = if self.is_last { LAST } else { 0 };
        let checksum = Self::checksum(&bytes, seed);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The record whose header `bytes` are; `None` when they are none of this segment.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_BYTES], seed: u32) -> Option<Self> {
        let is_long_enough = u32_at(bytes, 0) >= RECORD_HEADER_LENGTH;
        // What a newer version might put there is a newer version's.
        let is_known = bytes[33] <= LAST && bytes[34..40] == [0; 6];
        let is_whole = is_long_enough && is_known;
        let is_whole = is_whole && u32_at(bytes, 4) == Self::checksum(bytes, seed);
        is_whole.then(|| Self::of_checked(bytes))
    }

    /// The record whose header `bytes` are, which were checked before.
    pub(crate) fn of_checked(bytes: &[u8; RECORD_HEADER_BYTES]) -> Self {
        Self {
            payload: u32_at(bytes, 0) - RECORD_HEADER_LENGTH,
            payload_checksum: u32_at(bytes, 28),
            position: u64_at(bytes, 8),
            durable: u64_at(bytes, 16),
            rows: u32_at(bytes, 24),
            kind: bytes[32],
            is_last: bytes[33] == LAST,
        }
    }

    fn checksum(bytes: &[u8; RECORD_HEADER_BYTES], seed: u32) -> u32 {
        // One run of 36 bytes: the length stands where the checksum will.
        let mut covered = [0; RECORD_HEADER_BYTES - 4];
        covered.copy_from_slice(&bytes[4..]);
        covered[..4].copy_from_slice(&bytes[..4]);
        if bug::is_seeded(Bug::PositionNotInChecksum) {
            covered[4..12].fill(0);
        }
        crc32c::crc32c_append(seed, &covered)
    }
}

/// Bytes that a record with a payload of so many bytes takes.
pub(crate) const fn record_size(payload: usize) -> u64 {
    (RECORD_HEADER_BYTES + payload).next_multiple_of(ALIGNMENT) as u64
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::{NoSegment, RecordHeader, SegmentHeader};
    use crate::bug::{self, Bug};

    const RECORD: RecordHeader = RecordHeader {
        payload: 100,
        payload_checksum: 7,
        position: 1 << 40,
        durable: 3,
        rows: 2,
        kind: 5,
        is_last: false,
    };

    /// Flips each bit of a record's header; fails when one is not seen.
    fn flip_each_bit() -> Result<(), String> {
        let mut bytes = RECORD.encode(9);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if RecordHeader::decode(&bytes, 9).is_some() {
                return Err(format!("bit {bit} is not seen"));
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    #[test]
    fn a_record_is_what_it_was_and_any_flipped_bit_is_seen() {
        let bytes = RECORD.encode(9);
        assert_eq!(RecordHeader::decode(&bytes, 9), Some(RECORD));
        assert_eq!(RecordHeader::decode(&bytes, 8), None);
        assert_eq!(RecordHeader::decode(&[0; 40], 0), None);
        assert_eq!(flip_each_bit(), Ok(()));
        assert!(bug::with(Bug::PositionNotInChecksum, flip_each_bit).is_err());
    }

    #[test]
    fn a_segment_is_what_it_was_and_any_flipped_bit_is_seen() {
        let header = SegmentHeader { log_id: *b"sixteen bytes ok", number: 7, length: 1 << 26 };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bytes), Err(NoSegment::Damaged), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn the_bytes_of_version_1_stay_what_they_are() {
        let header = SegmentHeader { log_id: [1; 16], number: 2, length: 4_096 };
        let bytes = header.encode();
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(&bytes[..8], b"LSTEPWAL");
        assert_eq!(hex(&bytes[8..]), GOLDEN_SEGMENT);
        assert_eq!(hex(&RECORD.encode(header.seed())), GOLDEN_RECORD);
    }

    const GOLDEN_SEGMENT: &str = "010000002bd286b6010101010101010101010101010101010200000000000000001000000000000000000000000000000000000000000000";
    const GOLDEN_RECORD: &str =
        "8c000000282de71a0000000000010000030000000000000002000000070000000500000000000000";
}
