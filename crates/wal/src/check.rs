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

use lockstep_host::file::{Disk, LockMode};

use crate::{
    DataFile, DataFileReader, Error, LogExpectation, LogSurvey, Manifest,
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

/// Verifies the database in the directory at `path`. Fails only where nothing can be said: there is
/// no database, it is open for writing, or its format is newer.
pub fn check(disk: &dyn Disk, path: &Path) -> Result<CheckReport, Error> {
    let no_database = || Error::NoDatabase { path: path.to_owned() };
    let names = directory::list(disk, path)?.ok_or_else(no_database)?;
    if ![MANIFEST, LOG, DATA].iter().any(|own| names.iter().any(|name| name == own)) {
        return Err(no_database());
    }
    let mut report = CheckReport::default();
    let _lock = match directory::lock(disk, path, LockMode::Shared) {
        Ok(lock) => Some(lock),
        // Who writes has created it: nobody does.
        Err(Error::Disk { source }) if source.kind() == io::ErrorKind::NotFound => {
            let what = "the file is missing".to_owned();
            let file = path.join(directory::LOCK);
            report.damages.push(Damage { file, offset: 0, what, positions: 0..0 });
            None
        }
        Err(error) => return Err(error),
    };
    check_manifest(disk, path, &mut report)?;
    if let Some(manifest) = report.manifest.clone() {
        for file in &manifest.files {
            check_data_file(disk, path, &manifest, *file, &mut report);
        }
    }
    check_log(disk, &path.join(LOG), &mut report);
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

/// Reads all blocks of a data file.
fn check_data_file(
    disk: &dyn Disk,
    path: &Path,
    manifest: &Manifest,
    file: DataFile,
    report: &mut CheckReport,
) {
    // Which of the changes before the checkpoint are in the file, only the caller knows.
    let positions = 0..manifest.position;
    let name: PathBuf = path.join(DATA).join(crate::checkpoint::file_name(file.number));
    let before = report.damages.len();
    let mut reader = match DataFileReader::salvage(disk, path, manifest, file) {
        Ok(reader) => reader,
        Err(error) => return report.damaged(&error, &name, positions),
    };
    loop {
        match reader.next_block() {
            Ok(Some(block)) => {
                report.blocks += 1;
                report.block_bytes += block.len() as u64;
            }
            Ok(None) => break,
            Err(error) => {
                report.damaged(&error, &name, positions.clone());
                // What the device cannot read has no end, and the last error is about the whole.
                if !reader.has_more() || !matches!(error, Error::CheckpointDamaged { .. }) {
                    break;
                }
            }
        }
    }
    report.files += u64::from(report.damages.len() == before);
}

fn check_log(disk: &dyn Disk, log: &Path, report: &mut CheckReport) {
    let (log_id, needed) = match &report.manifest {
        Some(manifest) => (Some(manifest.database_id), manifest.position),
        None => (None, 0),
    };
    let expected = LogExpectation { log_id, needed };
    match survey_log(disk, log, expected, &mut |_| ()) {
        Ok(survey) => report.log = survey,
        Err(error) => report.damaged(&error, log, 0..0),
    }
}
