//! A segment: one file of the log, and its memory.
//!
//! Creates a segment so that its name appears only when it is whole, opens an existing one, and
//! writes records into its mapping. Knows no order of records; `log` does.
//!
//! # Life of a segment
//!
//! 1. `N.wal.new` is created and its whole length allocated: here a full disk shows, and not later
//!    as a signal in the middle of a write to memory.
//! 2. Its header, and where it is the first of its log its first record, are written and synced.
//! 3. It is renamed to `N.wal` and the directory is synced: from now on a crash does not take it
//!    back, and `N.wal` has a whole header in every state that a crash can leave.
//! 4. Records are copied into the mapping, from the first multiple of eight on.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use lockstep_host::{
    failpoint,
    file::{self, Disk, File, Mapping, OpenMode},
};

use crate::{
    Error,
    bug::{self, Bug},
    format::{
        BEGIN, FORMAT_VERSION, LogId, NoSegment, RECORD_HEADER_BYTES, RecordHeader,
        SEGMENT_HEADER_BYTES, SegmentHeader,
    },
};

const SUFFIX: &str = ".wal";
const SUFFIX_NEW: &str = ".wal.new";

/// One file of a log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    /// What the checksums of its records begin with.
    pub(crate) seed: u32,
    pub(crate) file: Arc<dyn File>,
    mapping: OnceLock<Mapping>,
    /// The position of its first record, when it has one.
    first: OnceLock<u64>,
}

/// Why a segment was not created.
#[derive(Debug)]
pub(crate) enum NotCreated {
    /// Nothing has happened; it may be tried again.
    Refused(file::Error),
    /// It is not known whether the directory is on the disk.
    NotSynced(file::Error),
}

impl Segment {
    /// Creates the file of a segment. With `first` its first record is written as well.
    pub(crate) fn create(
        disk: &dyn Disk,
        directory: &Path,
        header: SegmentHeader,
        first: Option<u64>,
    ) -> Result<Self, NotCreated> {
        let unfinished = directory.join(file_name(header.number, SUFFIX_NEW));
        let target = directory.join(file_name(header.number, SUFFIX));
        let created = Self::create_unfinished(disk, &unfinished, header, first);
        let renamed = created.and_then(|segment| {
            disk.rename(&unfinished, &target)?;
            failpoint::reach("wal.segment_renamed");
            Ok(segment)
        });
        let segment = renamed.map_err(|error| {
            // Gives its space back; when that fails, the next attempt empties the file.
            let _left = disk.remove(&unfinished);
            NotCreated::Refused(error)
        })?;
        if !bug::is_seeded(Bug::DirectoryNotSynced) {
            disk.sync_directory(directory).map_err(NotCreated::NotSynced)?;
        }
        Ok(segment)
    }

    fn create_unfinished(
        disk: &dyn Disk,
        path: &Path,
        header: SegmentHeader,
        first: Option<u64>,
    ) -> Result<Self, file::Error> {
        let file = disk.open(path, OpenMode::Create)?;
        failpoint::reach("wal.segment_created");
        file.allocate(header.length)?;
        file.write_at(0, &header.encode())?;
        let segment = Self::of(header, file);
        if let Some(position) = first {
            let begin = RecordHeader::internal(BEGIN, position, position).encode(segment.seed);
            segment.file.write_at(SEGMENT_HEADER_BYTES as u64, &begin)?;
            segment.set_first(position);
        }
        segment.map()?;
        if !bug::is_seeded(Bug::HeaderNotSynced) {
            segment.file.sync_data()?;
        }
        failpoint::reach("wal.segment_synced");
        Ok(segment)
    }

    /// Opens the file of a segment and reads its header.
    pub(crate) fn open(
        disk: &dyn Disk,
        directory: &Path,
        number: u64,
        mode: OpenMode,
    ) -> Result<Self, Error> {
        let path = directory.join(file_name(number, SUFFIX));
        let file = disk.open(&path, mode)?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        file.read_full_at(0, &mut bytes)?;
        let damaged = |what| Error::Damaged { file: path.clone(), offset: 0, what, from: 0, to: 0 };
        let header = SegmentHeader::decode(&bytes).map_err(|reason| match reason {
            NoSegment::Damaged => damaged("the segment header is invalid"),
            NoSegment::Newer(found) => {
                Error::NewerFormat { file: path.clone(), found, supported: FORMAT_VERSION }
            }
        })?;
        if header.number != number {
            return Err(damaged("the segment header contains the number of another segment"));
        }
        Ok(Self::of(header, file))
    }

    fn of(header: SegmentHeader, file: Arc<dyn File>) -> Self {
        let (mapping, first) = (OnceLock::new(), OnceLock::new());
        Self { header, seed: header.seed(), file, mapping, first }
    }

    /// Maps the file, whose whole length is allocated, so that it can be written.
    pub(crate) fn map(&self) -> Result<(), file::Error> {
        if self.mapping.get().is_none() {
            let length = usize::try_from(self.header.length).expect("a segment fits into memory");
            let mapped = self.file.map(length)?;
            assert_eq!(mapped.length(), length, "a segment's length is a multiple of eight");
            self.mapping.get_or_init(|| mapped);
        }
        Ok(())
    }

    /// Returns the length of a file that is shorter than its header says.
    pub(crate) fn short_length(&self) -> Result<Option<u64>, file::Error> {
        let length = self.file.length()?;
        Ok((length < self.header.length).then_some(length))
    }

    /// Copies a record to `offset`; gives the offset after it.
    pub(crate) fn write(&self, offset: u64, header: &RecordHeader, payload: &[u8]) -> u64 {
        let end = offset + header.size();
        assert!(end <= self.header.length, "a record is written within the free space");
        assert_eq!(payload.len(), header.payload as usize, "the header is that of the payload");
        let mapping = self.mapping();
        let at = usize::try_from(offset).expect("a segment fits into memory");
        mapping.write(at, &header.encode(self.seed));
        mapping.write(at + RECORD_HEADER_BYTES, payload);
        end
    }

    /// Brings in the pages of a range, so that writing to them does not wait for the machine.
    pub(crate) fn prefault(&self, offset: u64, bytes: u64) {
        let offset = offset.next_multiple_of(4 << 10);
        if let (Ok(offset), Ok(bytes)) = (usize::try_from(offset), usize::try_from(bytes)) {
            self.mapping().prefault(offset, bytes);
        }
    }

    fn mapping(&self) -> &Mapping {
        self.mapping.get().expect("a segment is mapped before it is written")
    }

    pub(crate) fn path(&self, directory: &Path) -> PathBuf {
        path(directory, self.header.number)
    }

    /// The position of the segment's first record.
    pub(crate) fn first(&self) -> Option<u64> {
        self.first.get().copied()
    }

    pub(crate) fn set_first(&self, position: u64) {
        let set = *self.first.get_or_init(|| position);
        assert_eq!(set, position, "a segment begins once");
    }
}

/// The path of a segment.
pub(crate) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(file_name(number, SUFFIX))
}

/// The file that a log makes of a new segment's number.
pub(crate) fn header(log_id: LogId, number: u64, length: u64) -> SegmentHeader {
    SegmentHeader { log_id, number, length }
}

fn file_name(number: u64, suffix: &str) -> String {
    format!("{number:020}{suffix}")
}

/// The files of a log in a directory.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The numbers of its segments, in order.
    pub(crate) numbers: Vec<u64>,
    /// Names of segments that were not finished.
    pub(crate) unfinished: Vec<String>,
}

/// Whether a file has the name of a segment, finished or not.
pub(crate) fn is_name(name: &str) -> bool {
    let number = name.strip_suffix(SUFFIX).or_else(|| name.strip_suffix(SUFFIX_NEW));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Lists the segments in a directory; other files are not the log's.
pub(crate) fn list(disk: &dyn Disk, directory: &Path) -> Result<Listing, file::Error> {
    let mut listing = Listing::default();
    for name in disk.list(directory)? {
        if let Some(number) = name.strip_suffix(SUFFIX).and_then(|number| number.parse().ok()) {
            listing.numbers.push(number);
        } else if name.ends_with(SUFFIX_NEW) {
            listing.unfinished.push(name);
        }
    }
    listing.numbers.sort_unstable();
    Ok(listing)
}
