//! The mark of a clean close: up to which position the log was on the disk when it was closed.
//!
//! It lies beside the segments, in a file of its own, so that a log whose last bytes are missing is not
//! taken for one that ends there. It is never removed: what was on the disk once belongs to the log for
//! ever, also while it is open again. A log without it has never been closed, or was by an older version.
//!
//! # Layout
//!
//! `CLOSED`, 40 bytes; all numbers are little-endian:
//!
//! ```text
//!  0  magic "LSTEPEND"
//!  8  u32  format version: 1
//! 12  u32  CRC32C of bytes 0-11 and 16-39
//! 16  log id
//! 32  u64  position after the last one
//! ```
//!
//! It is written as `CLOSED.new`, synced and renamed, so that a crash leaves a whole one or none.

use std::{io, path::Path};

use lockstep_host::file::{self, Disk, OpenMode};

use crate::{
    Error, LogId,
    format::{u32_at, u64_at},
};

const NAME: &str = "CLOSED";
const NAME_NEW: &str = "CLOSED.new";
const MAGIC: [u8; 8] = *b"LSTEPEND";
const VERSION: u32 = 1;
const BYTES: usize = 40;

/// Whether a file in the directory of a log has the name of the mark, finished or not.
pub(crate) fn is_name(name: &str) -> bool {
    [NAME, NAME_NEW].contains(&name)
}

/// Writes the mark of a log in `directory` that is on the disk up to `end`, in place of the one before.
pub(crate) fn write(
    disk: &dyn Disk,
    directory: &Path,
    log_id: LogId,
    end: u64,
) -> Result<(), file::Error> {
    let (unfinished, target) = (directory.join(NAME_NEW), directory.join(NAME));
    let file = disk.open(&unfinished, OpenMode::Create)?;
    file.write_at(0, &encode(log_id, end))?;
    file.sync_data()?;
    disk.rename(&unfinished, &target)?;
    disk.sync_directory(directory)
}

/// Returns up to which position the log of an id was on the disk when it was closed; 0 where there is no
/// mark. Without an id the mark may be that of any log.
pub(crate) fn read(disk: &dyn Disk, directory: &Path, log_id: Option<LogId>) -> Result<u64, Error> {
    let path = directory.join(NAME);
    let file = match disk.open(&path, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        opened => opened?,
    };
    let mut bytes = [0; BYTES];
    let filled = file.read_full_at(0, &mut bytes)?;
    let is_whole =
        filled == BYTES && bytes[0..8] == MAGIC && u32_at(&bytes, 12) == checksum(&bytes);
    if !is_whole {
        let what = "the mark of the last clean close is invalid";
        return Err(Error::Damaged { file: path, offset: 0, what, from: 0, to: 0 });
    }
    let found = u32_at(&bytes, 8);
    if found > VERSION {
        return Err(Error::NewerFormat { file: path, found, supported: VERSION });
    }
    if log_id.is_some_and(|log_id| bytes[16..32] != log_id) {
        return Err(Error::Foreign { file: path });
    }
    Ok(u64_at(&bytes, 32))
}

fn encode(log_id: LogId, end: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(&log_id);
    bytes[32..40].copy_from_slice(&end.to_le_bytes());
    let checksum = checksum(&bytes);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn checksum(bytes: &[u8; BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn the_bytes_of_version_1_stay_what_they_are() {
        let bytes = encode([1; 16], 7);
        let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(&bytes[..8], b"LSTEPEND");
        assert_eq!(hex[16..24], *"01000000");
        assert_eq!(hex[32..], *"010101010101010101010101010101010700000000000000");
    }
}
