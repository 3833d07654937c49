//! The manifest: what it says, and its bytes as drawn in [`crate::checkpoint`].
//!
//! Encodes and decodes; touches no file.

use std::path::Path;

use super::DataFile;
use crate::{
    Error, LogId,
    bug::{self, Bug},
    format::{u32_at, u64_at},
};

/// What a manifest may take, in bytes.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// The newest format of databases that this program reads, and the one that it writes.
const MANIFEST_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"LSTEPMAN";
const BYTE_ORDER: u32 = 0x0102_0304;
/// Bytes that are the same in all versions.
const PREFIX_BYTES: usize = 20;
/// Where what the second checksum covers begins.
const COVERED: usize = 24;
const HEADER_BYTES: usize = 80;
const DATA_FILE_BYTES: usize = 24;

/// Which checkpoint is current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Which database it is; the id of its log as well.
    pub database_id: LogId,
    /// How many checkpoints there were before.
    pub generation: u64,
    /// The log is needed from this position on.
    pub position: u64,
    /// The files of the checkpoint, in the caller's order.
    pub files: Vec<DataFile>,
    /// What the caller says about the files.
    pub body: Vec<u8>,
}

impl Manifest {
    /// Makes the manifest of a database that is created.
    pub(crate) fn first(database_id: LogId) -> Self {
        Self { database_id, generation: 0, position: 0, files: Vec::new(), body: Vec::new() }
    }

    /// Makes the manifest of the checkpoint that follows this one.
    #[must_use]
    pub fn successor(&self, position: u64, files: Vec<DataFile>, body: Vec<u8>) -> Self {
        let Self { database_id, generation, .. } = *self;
        Self { database_id, generation: generation + 1, position, files, body }
    }

    /// The manifest's bytes. Data files from `next_number` on were never written.
    pub(crate) fn encode(&self, next_number: u64) -> Result<Vec<u8>, Error> {
        let length = (HEADER_BYTES + self.files.len() * DATA_FILE_BYTES) as u64;
        let length = length + self.body.len() as u64;
        if length > MANIFEST_BYTES_MAX {
            return Err(Error::ManifestTooLarge { bytes: length });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).expect("it is limited"));
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        bytes.extend_from_slice(&MANIFEST_VERSION.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&self.database_id);
        for number in [self.generation, self.position, next_number] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for count in [self.files.len(), self.body.len()] {
            let count = u32::try_from(count).expect("the manifest is limited");
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        assert_eq!(bytes.len(), HEADER_BYTES, "the header is as it is drawn");
        for file in &self.files {
            bytes.extend_from_slice(&file.number.to_le_bytes());
            bytes.extend_from_slice(&file.bytes.to_le_bytes());
            bytes.extend_from_slice(&file.blocks.to_le_bytes());
            bytes.extend_from_slice(&file.checksum.to_le_bytes());
        }
        bytes.extend_from_slice(&self.body);
        assert_eq!(bytes.len() as u64, length, "the manifest has the length in its header");
        let checksum = crc32c::crc32c(&bytes[COVERED..]);
        bytes[PREFIX_BYTES..COVERED].copy_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }
}

/// Reads the manifest and the next number from the bytes of the file at `path`.
pub(crate) fn decode(path: &Path, bytes: &[u8]) -> Result<(Manifest, u64), Error> {
    let damaged = |offset: usize, what| {
        let file = path.to_owned();
        Err(Error::CheckpointDamaged { file, offset: offset as u64, what })
    };
    let Some(prefix) = bytes.first_chunk::<PREFIX_BYTES>() else {
        return damaged(bytes.len(), "the file ends within its header");
    };
    if prefix[..8] != MAGIC {
        return damaged(0, "the file does not start with a manifest signature");
    }
    if u32_at(prefix, 8) == BYTE_ORDER.swap_bytes() {
        return Err(Error::ByteOrder { file: path.to_owned() });
    }
    if u32_at(prefix, 16) != crc32c::crc32c(&prefix[..16]) {
        return damaged(8, "checksum mismatch in the byte order and version");
    }
    if u32_at(prefix, 8) != BYTE_ORDER {
        return damaged(8, "the byte order field is invalid");
    }
    let found = u32_at(prefix, 12);
    if found > MANIFEST_VERSION {
        let file = path.to_owned();
        return Err(Error::NewerFormat { file, found, supported: MANIFEST_VERSION });
    }
    if bytes.len() < HEADER_BYTES {
        return damaged(bytes.len(), "the file ends within its header");
    }
    let is_whole = u32_at(bytes, PREFIX_BYTES) == crc32c::crc32c(&bytes[COVERED..]);
    if !is_whole && !bug::is_seeded(Bug::ManifestChecksumNotCompared) {
        return if u64_at(bytes, 24) > bytes.len() as u64 {
            damaged(bytes.len(), "the file is shorter than its header specifies")
        } else {
            damaged(COVERED, "checksum mismatch in the manifest")
        };
    }
    decode_whole(bytes)
        .map_or_else(|| damaged(COVERED, "the lengths in the header do not match the file"), Ok)
}

/// Reads what the manifest says; its checksums were compared.
fn decode_whole(bytes: &[u8]) -> Option<(Manifest, u64)> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let (count, body) = (u32_at(header, 72) as usize, u32_at(header, 76) as usize);
    let (files, found_body) = rest.split_at_checked(count.checked_mul(DATA_FILE_BYTES)?)?;
    if found_body.len() != body || u64_at(header, 24) != bytes.len() as u64 {
        return None;
    }
    let (files, _) = files.as_chunks::<DATA_FILE_BYTES>();
    let file = |bytes: &[u8; DATA_FILE_BYTES]| DataFile {
        number: u64_at(bytes, 0),
        bytes: u64_at(bytes, 8),
        blocks: u32_at(bytes, 16),
        checksum: u32_at(bytes, 20),
    };
    let manifest = Manifest {
        database_id: header[32..48].try_into().expect("sixteen bytes"),
        generation: u64_at(header, 48),
        position: u64_at(header, 56),
        files: files.iter().map(file).collect(),
        body: found_body.to_vec(),
    };
    Some((manifest, u64_at(header, 64)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Manifest, decode};
    use crate::{DataFile, Error};

    const FILE: DataFile = DataFile { number: 7, blocks: 1, bytes: 64, checksum: 0x1122_3344 };

    fn manifest() -> Manifest {
        Manifest {
            database_id: *b"sixteen bytes ok",
            generation: 5,
            position: 9,
            files: vec![FILE],
            body: b"body".to_vec(),
        }
    }

    /// The error that bytes give.
    fn error(bytes: &[u8]) -> Error {
        decode(Path::new("MANIFEST"), bytes).unwrap_err()
    }

    #[test]
    fn a_manifest_is_what_it_was_and_any_flipped_bit_or_cut_is_seen() {
        let bytes = manifest().encode(8).unwrap();
        assert_eq!(decode(Path::new("MANIFEST"), &bytes).unwrap(), (manifest(), 8));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(error(&flipped), Error::CheckpointDamaged { .. }), "bit {bit}");
        }
        for length in 0..bytes.len() {
            let Error::CheckpointDamaged { offset, .. } = error(&bytes[..length]) else {
                panic!("{length}");
            };
            assert_eq!(offset, length as u64);
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(matches!(error(&longer), Error::CheckpointDamaged { offset: 24, .. }));
    }

    #[test]
    fn a_newer_version_is_named_whatever_follows_it() {
        let mut bytes = manifest().encode(8).unwrap();
        bytes[12] = 3;
        let checksum = crc32c::crc32c(&bytes[..16]);
        bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
        for length in [20, 21, bytes.len()] {
            let expected =
                "MANIFEST has format version 3, but this program supports versions up to 1";
            assert_eq!(error(&bytes[..length]).to_string(), expected);
        }
    }

    #[test]
    fn another_byte_order_is_named() {
        let mut bytes = manifest().encode(8).unwrap();
        for number in [8..12, 12..16, 16..20] {
            bytes[number].reverse();
        }
        let expected = "MANIFEST was written with a different byte order than this machine's";
        assert_eq!(error(&bytes).to_string(), expected);
    }

    #[test]
    fn the_bytes_of_version_1_stay_what_they_are() {
        let bytes = manifest().encode(8).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
    }

    const GOLDEN: &str = "4c535445504d414e04030201010000005e45bdd36f6e213a6c000000000000007369787465656e206279746573206f6b0500000000000000090000000000000008000000000000000100000004000000070000000000000040000000000000000100000044332211626f6479";
}
