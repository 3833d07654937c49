//! Reading a block of a part: its bytes, and what they mean, or the error with the place.

use lockstep_host::query;
use lockstep_wal::{BlockPlace, BlockReader};

use crate::{ReadError, ReadFailure};

/// What a block of a part takes beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockFootprint {
    /// Bytes on the disk.
    pub(crate) files: u64,
    /// Bytes of memory while the file is open.
    pub(crate) memory: u64,
}

/// Reads a block, and makes something of its bytes, unless they have another layout.
pub(super) fn read_block<T>(
    file: &BlockReader,
    place: BlockPlace,
    make: impl FnOnce(Vec<u8>) -> Result<T, ReadFailure>,
) -> Result<T, ReadError> {
    query::report_block(u64::from(place.length));
    let bytes = file.read(place).map_err(|error| ReadFailure::of(&error));
    bytes.and_then(make).map_err(|reason| ReadError::new(file.path(), place.offset, reason))
}

/// Reads the contents of a last block, which begins with the version of its format.
pub(super) fn read_versioned<T>(
    bytes: &[u8],
    supported: u32,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, ReadFailure> {
    let version = bytes.first_chunk().map(|version| u32::from_le_bytes(*version));
    match version {
        Some(found) if found > supported => Err(ReadFailure::NewerFormat { found, supported }),
        _ => read(bytes).ok_or(ReadFailure::Damaged),
    }
}
