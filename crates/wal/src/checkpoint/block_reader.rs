//! Reads single blocks of a data file, each with one read of the disk, and checks every byte of it.
//!
//! [`crate::DatabaseDirectory`] makes readers, which several threads may use at once. The file stays
//! open, so that it can be read after its name was removed. The writer returns the place of each block
//! ([`BlockPlace`]). The checksum of the whole file is not compared: that of a block includes the
//! database, the file and the index of the block.

use std::{path::Path, sync::Arc};

use lockstep_host::file::{Disk, File};

use super::{
    DataFile, DataFileHeader,
    data_file::{BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockHeader, DATA_FILE_HEADER_BYTES},
    reader::{check_header, check_length, damaged, open_listed},
};
use crate::{
    Error,
    bug::{self, Bug},
    directory::NumberReservation,
};

/// The place of a block in its data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// The offset of its header, in bytes.
    pub offset: u64,
    /// The number of blocks before it.
    pub index: u32,
    /// The bytes of its payload.
    pub length: u32,
}

/// A data file whose blocks are read in any order.
#[derive(Debug)]
pub struct BlockReader {
    file: Arc<dyn File>,
    /// As the manifest lists it.
    listed: DataFile,
    seed: u32,
    /// Of a file that this process has written: it is not removed meanwhile.
    _held: Option<Arc<NumberReservation>>,
}

impl BlockReader {
    pub(crate) fn open(
        disk: &dyn Disk,
        directory: &Path,
        expected: DataFileHeader,
        listed: DataFile,
    ) -> Result<Self, Error> {
        let file = open_listed(disk, directory, expected, listed)?;
        check_length(&*file, &listed)?;
        let mut header = [0; DATA_FILE_HEADER_BYTES];
        let filled = file.read_full_at(0, &mut header)?;
        check_header(file.path(), &header[..filled], expected)?;
        Ok(Self { file, listed, seed: expected.seed(), _held: None })
    }

    /// Keeps the file from being removed as long as this exists.
    pub(crate) fn holding(self, reservation: Arc<NumberReservation>) -> Self {
        debug_assert_eq!(reservation.number(), self.listed.number, "the number is the file's");
        Self { _held: Some(reservation), ..self }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the file as a manifest lists it.
    pub fn file(&self) -> DataFile {
        self.listed
    }

    /// Reads a block. One read of the disk, unless the disk gives less than was requested.
    pub fn read(&self, place: BlockPlace) -> Result<Vec<u8>, Error> {
        let BlockPlace { offset, index, length } = place;
        let wrong = |what| damaged(self.path().to_path_buf(), offset, what);
        let size = u64::from(length) + BLOCK_HEADER_BYTES as u64;
        let is_inside = offset.checked_add(size).is_some_and(|end| end <= self.listed.bytes);
        if length > BLOCK_BYTES_MAX || !is_inside {
            return Err(wrong("a block extends past the end of the file"));
        }
        let mut bytes = vec![0; usize::try_from(size).expect("a block fits into memory")];
        let filled = self.file.read_full_at(offset, &mut bytes)?;
        if filled < bytes.len() {
            return Err(wrong("the file ends within a block"));
        }
        let header = bytes.first_chunk::<BLOCK_HEADER_BYTES>();
        let header = header.and_then(|header| BlockHeader::decode(header, self.seed, index));
        let Some(header) = header.filter(|header| header.length == length) else {
            return Err(wrong("the header of a block is invalid"));
        };
        bytes.drain(..BLOCK_HEADER_BYTES);
        debug_assert_eq!(bytes.len() as u64, u64::from(length), "the payload is left");
        let is_whole = crc32c::crc32c(&bytes) == header.checksum;
        if !is_whole && !bug::is_seeded(Bug::BlockChecksumNotCompared) {
            return Err(wrong("the payload of a block is invalid"));
        }
        Ok(bytes)
    }
}
