//! Reads a data file and checks every byte of it.
//!
//! [`crate::DatabaseDirectory`] makes readers; several files may be read at the same time. The file is
//! read in blocks of a mebibyte, from its begin to its end, and never mapped: what the device cannot
//! read is an error and not a signal.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_host::file::{Disk, File, OpenMode};

use super::{
    DataFile, DataFileHeader, Manifest,
    block_search::BlockSearch,
    data_file::{
        BLOCK_HEADER_BYTES, BlockHeader, DATA_FILE_HEADER_BYTES, DATA_FILE_VERSION, file_name,
    },
};
use crate::{
    Error,
    bug::{self, Bug},
    directory::DATA,
    format::NoSegment,
};

/// How much is read at once, in bytes.
const READ_BYTES: usize = 1 << 20;

/// A data file that is being read. When a call fails, what earlier ones gave is still what was
/// written, but maybe for another checkpoint.
#[derive(Debug)]
pub struct DataFileReader {
    path: PathBuf,
    file: Arc<dyn File>,
    /// As the manifest lists it.
    listed: DataFile,
    seed: u32,
    /// Bytes of the file, from `start` on.
    buffer: Vec<u8>,
    start: u64,
    filled: usize,
    /// Where the next block begins, or the end of the file after a header that was not whole.
    offset: u64,
    index: u32,
    /// The checksum of the lengths and checksums of all blocks so far.
    checksum: u32,
    purpose: ReadPurpose,
    /// Whether blocks were left out that cannot be read.
    has_gap: bool,
}

/// What a data file is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadPurpose {
    /// All of it is needed.
    Open,
    /// What can be read is wanted.
    Salvage,
}

impl DataFileReader {
    /// Opens a data file of the database at `path`, which cannot be opened itself, as a manifest
    /// lists it: to save what can be read. A damage of its length or of its header is returned beside
    /// the reader, which reads the blocks all the same. Nobody has the database open for writing.
    pub fn salvage(
        disk: &dyn Disk,
        path: &Path,
        manifest: &Manifest,
        file: DataFile,
    ) -> Result<(Self, Option<Error>), Error> {
        let header = DataFileHeader { database_id: manifest.database_id, number: file.number };
        let mut reader = Self::unchecked(disk, &path.join(DATA), header, file)?;
        reader.purpose = ReadPurpose::Salvage;
        let checked = reader.check_header(header).and_then(|()| reader.check_length());
        Ok((reader, checked.err()))
    }

    pub(crate) fn open(
        disk: &dyn Disk,
        directory: &Path,
        expected: DataFileHeader,
        listed: DataFile,
    ) -> Result<Self, Error> {
        let mut reader = Self::unchecked(disk, directory, expected, listed)?;
        reader.check_length()?;
        reader.check_header(expected)?;
        Ok(reader)
    }

    /// Opens a data file and compares nothing yet.
    fn unchecked(
        disk: &dyn Disk,
        directory: &Path,
        expected: DataFileHeader,
        listed: DataFile,
    ) -> Result<Self, Error> {
        let file = open_listed(disk, directory, expected, listed)?;
        Ok(Self {
            path: file.path().to_path_buf(),
            file,
            listed,
            seed: expected.seed(),
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            offset: DATA_FILE_HEADER_BYTES as u64,
            index: 0,
            checksum: 0,
            purpose: ReadPurpose::Open,
            has_gap: false,
        })
    }

    /// Gives the number of the file.
    pub fn number(&self) -> u64 {
        self.listed.number
    }

    /// Gives where the next block begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Tells whether there may be blocks that were not read.
    pub(crate) fn has_more(&self) -> bool {
        self.offset < self.listed.bytes
    }

    /// Reads the next block; `None` at the end. After an error about one block the next call goes on
    /// with the block behind it, where that can be found.
    pub fn next_block(&mut self) -> Result<Option<&[u8]>, Error> {
        if !self.has_more() {
            return self.check_end().map(|()| None);
        }
        let offset = self.offset;
        let header = self.read_header(offset)?;
        let begin = offset + BLOCK_HEADER_BYTES as u64;
        let end = begin + u64::from(header.length);
        if end > self.listed.bytes {
            self.skip_to_block(offset + 1)?;
            return Err(self.damaged(offset, "a block extends past the end of the file"));
        }
        self.offset = end;
        self.index += 1;
        let length = usize::try_from(header.length).expect("a block fits into memory");
        let payload = self.view(begin, length)?;
        let is_whole = crc32c::crc32c(payload) == header.checksum;
        let is_whole = is_whole || bug::is_seeded(Bug::BlockChecksumNotCompared);
        if payload.len() < length || !is_whole {
            return Err(self.damaged(offset, "the payload of a block is invalid"));
        }
        let at = usize::try_from(begin - self.start).expect("the block is in the buffer");
        Ok(Some(&self.buffer[at..at + length]))
    }

    fn read_header(&mut self, offset: u64) -> Result<BlockHeader, Error> {
        let (seed, index) = (self.seed, self.index);
        let bytes = self.view(offset, BLOCK_HEADER_BYTES)?;
        let bytes: Option<[u8; BLOCK_HEADER_BYTES]> = bytes.try_into().ok();
        let Some(header) = bytes.and_then(|bytes| BlockHeader::decode(&bytes, seed, index)) else {
            // Where the next block begins, only this header knew.
            self.skip_to_block(offset + 1)?;
            return Err(self.damaged(offset, "the header of a block is invalid"));
        };
        self.checksum = header.append_checksum(self.checksum);
        Ok(header)
    }

    /// Goes to the next whole block from `from` on; to the end when there is none, or none is wanted.
    fn skip_to_block(&mut self, from: u64) -> Result<(), Error> {
        self.has_gap = true;
        self.offset = u64::MAX;
        if self.purpose == ReadPurpose::Salvage {
            let search = BlockSearch { seed: self.seed, end: self.listed.bytes };
            let indexes = self.index + 1..self.listed.blocks;
            if let Some((offset, index)) = search.find(&*self.file, from, indexes)? {
                (self.offset, self.index) = (offset, index);
            }
        }
        Ok(())
    }

    /// Fails when the blocks that were read are whole but are not those that the manifest lists.
    fn check_end(&self) -> Result<(), Error> {
        if self.has_gap {
            return Ok(());
        }
        if self.index != self.listed.blocks {
            return Err(self.damaged(self.offset, "the number of blocks differs from the manifest"));
        }
        if self.checksum != self.listed.checksum && !bug::is_seeded(Bug::FileChecksumNotCompared) {
            return Err(
                self.damaged(self.offset, "the checksum of the file differs from the manifest")
            );
        }
        Ok(())
    }

    fn check_length(&self) -> Result<(), Error> {
        check_length(&*self.file, &self.listed)
    }

    fn check_header(&mut self, expected: DataFileHeader) -> Result<(), Error> {
        let path = self.path.clone();
        check_header(&path, self.view(0, DATA_FILE_HEADER_BYTES)?, expected)
    }

    /// The bytes at `offset`: `length` of them, or fewer where the file ends.
    fn view(&mut self, offset: u64, length: usize) -> Result<&[u8], Error> {
        assert!(offset >= self.start, "a file is read from its begin to its end");
        let end = self.start + self.filled as u64;
        if offset + length as u64 > end {
            let kept = usize::try_from(offset - self.start).expect("it follows what was read");
            let kept = kept.min(self.filled);
            self.buffer.copy_within(kept..self.filled, 0);
            self.filled -= kept;
            self.start = offset;
            let wanted = length.max(READ_BYTES);
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
            let rest = &mut self.buffer[self.filled..];
            self.filled += self.file.read_full_at(offset + self.filled as u64, rest)?;
        }
        let at = usize::try_from(offset - self.start).expect("it is in the buffer");
        Ok(&self.buffer[at.min(self.filled)..self.filled.min(at + length)])
    }

    fn damaged(&self, offset: u64, what: &'static str) -> Error {
        damaged(self.path.clone(), offset, what)
    }
}

/// Opens a data file that a manifest lists, and compares nothing yet.
pub(super) fn open_listed(
    disk: &dyn Disk,
    directory: &Path,
    expected: DataFileHeader,
    listed: DataFile,
) -> Result<Arc<dyn File>, Error> {
    assert_eq!(expected.number, listed.number, "the header is that of the file");
    let path = directory.join(file_name(listed.number));
    match disk.open(&path, OpenMode::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(damaged(path, 0, "the file is missing"))
        }
        file => Ok(file?),
    }
}

/// Fails when the length of a file is not that which a manifest lists.
pub(super) fn check_length(file: &dyn File, listed: &DataFile) -> Result<(), Error> {
    debug_assert!(listed.bytes >= DATA_FILE_HEADER_BYTES as u64, "a data file has a header");
    let length = file.length()?;
    if length == listed.bytes {
        return Ok(());
    }
    let what = if length < listed.bytes {
        "the file is shorter than the manifest specifies"
    } else {
        "the file is longer than the manifest specifies"
    };
    Err(damaged(file.path().to_path_buf(), length.min(listed.bytes), what))
}

/// Fails when the bytes with which a file begins are not the expected header.
pub(super) fn check_header(
    path: &Path,
    bytes: &[u8],
    expected: DataFileHeader,
) -> Result<(), Error> {
    let wrong = |offset, what| damaged(path.to_path_buf(), offset, what);
    let bytes: Option<[u8; DATA_FILE_HEADER_BYTES]> = bytes.try_into().ok();
    let Some(bytes) = bytes else {
        return Err(wrong(0, "the file ends within its header"));
    };
    let header = match DataFileHeader::decode(&bytes) {
        Ok(header) => header,
        Err(NoSegment::Damaged) => return Err(wrong(0, "the file header is invalid")),
        Err(NoSegment::Newer(found)) => {
            let file = path.to_path_buf();
            return Err(Error::NewerFormat { file, found, supported: DATA_FILE_VERSION });
        }
    };
    if header.database_id != expected.database_id {
        return Err(wrong(16, "the file belongs to another database"));
    }
    if header.number != expected.number {
        return Err(wrong(32, "the file header contains the number of another file"));
    }
    Ok(())
}

pub(super) fn damaged(file: PathBuf, offset: u64, what: &'static str) -> Error {
    Error::CheckpointDamaged { file, offset, what }
}
