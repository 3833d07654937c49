//! Verifies everything of a database that this crate knows: the manifest, every block of every data
//! file, every record of the log. Lists all damage and not only the first.
//!
//! `engine` calls it for `lockstep check`, and looks into the blocks itself. It changes nothing;
//! nobody has the database open for writing meanwhile.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use lockstep_host::file::{Disk, Lock, LockMode, OpenMode};

use crate::{
    DataFile, DataFileReader, Entries, Error, LogExpectation, LogSurvey, Manifest,
    checkpoint::{DATA_FILE_HEADER_BYTES, DataFileHeader},
    directory::{self, DATA, LOG, MANIFEST},
    survey::{self, Damage, survey_log},
};

/// What was found in a database.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// The current manifest, when it could be read. Without it no data file can be.
    pub manifest: Option<Manifest>,
    /// Data files that are wholly as they were written.
    pub files: u64,
    /// Blocks that are as they were written.
    pub blocks: u64,
    /// Bytes of their payloads.
    pub block_bytes: u64,
    /// What was found in the log, its damage included.
    pub log: LogSurvey,
    /// Damage to manifest, data files, and the directory.
    pub damages: Vec<Damage>,
}

impl CheckReport {
    /// Tells whether there is no damage.
    pub fn is_whole(&self) -> bool {
        self.damages.is_empty() && self.log.damages.is_empty()
    }

    fn damaged(&mut self, error: &Error, path: &Path, positions: Range<u64>) {
        let (file, offset, what) = match error {
            Error::CheckpointDamaged { file, offset, what }
            | Error::Damaged { file, offset, what, .. } => {
                (file.clone(), *offset, (*what).to_owned())
            }
            error => (path.to_owned(), 0, survey::chain(error)),
        };
        self.damages.push(Damage { file, offset, what, positions });
    }
}

/// A part of a database that could be read, or that could not.
#[derive(Debug)]
pub enum CheckedPart<'p> {
    /// The current manifest. It comes first.
    Manifest(&'p Manifest),
    /// A block. Those of a file come in order, and the files in the order of the manifest.
    Block {
        /// The file, as the manifest lists it.
        file: &'p DataFile,
        /// Its path.
        path: &'p Path,
        /// Where in it the block begins, in bytes.
        offset: u64,
        /// What it holds.
        payload: &'p [u8],
    },
    /// A part of a data file that is not as it was written. Without a whole header of a block, all
    /// that follows in the file is lost.
    DamagedFile {
        /// The file, as the manifest lists it.
        file: &'p DataFile,
        /// The damage.
        damage: &'p Damage,
    },
    /// A group of the log. They come after all files, in order.
    Group(Entries<'p>),
}

/// Takes the parts of a database.
type Visit<'v> = &'v mut dyn FnMut(CheckedPart<'_>);

/// Verifies the database in the directory at `path`. Fails only where nothing can be said: there is
/// no database, it is open for writing, or its format is newer.
pub fn check(disk: &dyn Disk, path: &Path) -> Result<CheckReport, Error> {
    check_with(disk, path, &mut |_| ())
}

/// Locks the database at `path` against writers, as [`check()`] does for its own time. `None` when the
/// file is missing that whoever writes has created: nobody does.
pub fn lock_against_writers(disk: &dyn Disk, path: &Path) -> Result<Option<Box<dyn Lock>>, Error> {
    match directory::lock(disk, path, LockMode::Shared) {
        Ok(lock) => Ok(Some(lock)),
        Err(Error::Disk { source }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Verifies the database as [`check()`] does, and gives every part of it to `visit`, the parts behind
/// damage included.
pub fn check_with(
    disk: &dyn Disk,
    path: &Path,
    visit: &mut dyn FnMut(CheckedPart<'_>),
) -> Result<CheckReport, Error> {
    let no_database = || Error::NoDatabase { path: path.to_owned() };
    let names = directory::list(disk, path)?.ok_or_else(no_database)?;
    if ![MANIFEST, LOG, DATA].iter().any(|own| names.iter().any(|name| name == own)) {
        return Err(no_database());
    }
    let mut report = CheckReport::default();
    let lock = lock_against_writers(disk, path)?;
    if lock.is_none() {
        let what = "the file is missing".to_owned();
        let file = path.join(directory::LOCK);
        report.damages.push(Damage { file, offset: 0, what, positions: 0..0 });
    }
    check_manifest(disk, path, &mut report)?;
    if let Some(manifest) = report.manifest.clone() {
        visit(CheckedPart::Manifest(&manifest));
        for file in &manifest.files {
            check_data_file(disk, path, &manifest, file, &mut report, visit);
        }
    }
    check_log(disk, &path.join(LOG), &mut report, visit);
    Ok(report)
}

fn check_manifest(disk: &dyn Disk, path: &Path, report: &mut CheckReport) -> Result<(), Error> {
    match directory::read_manifest(disk, path) {
        Ok((manifest, _)) => report.manifest = Some(manifest),
        Err(error @ (Error::NewerFormat { .. } | Error::ByteOrder { .. })) => return Err(error),
        Err(error) => report.damaged(&error, &path.join(MANIFEST), 0..0),
    }
    Ok(())
}

/// Reads a data file that no manifest lists, up to its first damage, and gives its blocks to `visit`:
/// to say what is in a file of which nobody knows any more what it is for.
pub fn read_unlisted_file(
    disk: &dyn Disk,
    path: &Path,
    number: u64,
    visit: &mut dyn FnMut(&[u8]),
) -> Result<(), Error> {
    let name = path.join(DATA).join(crate::checkpoint::file_name(number));
    let opened = disk.open(&name, OpenMode::Read)?;
    let bytes = opened.length()?;
    let mut header = [0; DATA_FILE_HEADER_BYTES];
    let filled = opened.read_full_at(0, &mut header)?;
    let header = DataFileHeader::decode(&header).ok().filter(|_| filled == header.len());
    let Some(header) = header.filter(|header| header.number == number) else {
        return Err(Error::CheckpointDamaged {
            file: name,
            offset: 0,
            what: "the file header is invalid",
        });
    };
    let manifest = Manifest::first(header.database_id);
    let listed = DataFile { number, blocks: u32::MAX, bytes, checksum: 0 };
    let (mut reader, _) = DataFileReader::salvage(disk, path, &manifest, listed)?;
    while reader.has_more() {
        match reader.next_block()? {
            Some(block) => visit(block),
            None => break,
        }
    }
    Ok(())
}

/// Lists the numbers of the data files in the directory of a database, listed by its manifest or not.
pub fn data_file_numbers(disk: &dyn Disk, path: &Path) -> Result<Vec<u64>, Error> {
    let names = directory::list(disk, &path.join(DATA))?.unwrap_or_default();
    Ok(names.iter().filter_map(|name| crate::checkpoint::number_of(name)).collect())
}

/// Reads all blocks of a data file.
fn check_data_file(
    disk: &dyn Disk,
    path: &Path,
    manifest: &Manifest,
    file: &DataFile,
    report: &mut CheckReport,
    visit: Visit<'_>,
) {
    // Which of the changes before the checkpoint are in the file, only the caller knows.
    let positions = 0..manifest.position;
    let name: PathBuf = path.join(DATA).join(crate::checkpoint::file_name(file.number));
    let before = report.damages.len();
    let damaged = |report: &mut CheckReport, visit: Visit<'_>, error: &Error| {
        report.damaged(error, &name, positions.clone());
        let damage = report.damages.last().expect("one was listed");
        visit(CheckedPart::DamagedFile { file, damage });
    };
    let mut reader = match DataFileReader::salvage(disk, path, manifest, *file) {
        Ok((reader, None)) => reader,
        Ok((reader, Some(error))) => {
            damaged(report, visit, &error);
            reader
        }
        Err(error) => return damaged(report, visit, &error),
    };
    loop {
        let offset = reader.offset();
        match reader.next_block() {
            Ok(Some(payload)) => {
                report.blocks += 1;
                report.block_bytes += payload.len() as u64;
                visit(CheckedPart::Block { file, path: &name, offset, payload });
            }
            Ok(None) => break,
            Err(error) => {
                damaged(report, visit, &error);
                // What the device cannot read has no end, and the last error is about the whole.
                if !reader.has_more() || !matches!(error, Error::CheckpointDamaged { .. }) {
                    break;
                }
            }
        }
    }
    report.files += u64::from(report.damages.len() == before);
}

fn check_log(disk: &dyn Disk, log: &Path, report: &mut CheckReport, visit: Visit<'_>) {
    let (log_id, needed) = match &report.manifest {
        Some(manifest) => (Some(manifest.database_id), manifest.position),
        None => (None, 0),
    };
    let expected = LogExpectation { log_id, needed };
    match survey_log(disk, log, expected, &mut |entries| visit(CheckedPart::Group(entries))) {
        Ok(survey) => report.log = survey,
        Err(error) => report.damaged(&error, log, 0..0),
    }
}
