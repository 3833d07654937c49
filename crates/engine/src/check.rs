//! `check` and `salvage`: what is wrong with a directory, and saving what can be read of it.
//!
//! Both begin with the same pass over all files ([`inspection`]), which goes on behind damage. What is
//! wrong is a [`CheckFinding`] and never an error: an error says that nothing could be checked. The
//! directory is not changed, and nobody has it open for writing meanwhile.
//!
//! *Cost*: `check` reads everything twice, the second time to open the database, which then is in
//! memory as a whole; so does `salvage`.

mod inspection;
mod remarks;
mod salvage;

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_wal::{CheckReport, CheckedPart, Error, check_with};
use serde::Serialize;

use crate::{Database, OpenOptions, log_error::log_error};

pub use salvage::{Salvage, SalvagedTable, salvage, salvage_as};

use inspection::Inspection;

/// What was found in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// The directory.
    pub directory: String,
    /// Tables, as far as their CREATE could be read.
    pub tables: u64,
    /// Data files that are wholly as they were written.
    pub files: u64,
    /// Blocks that are as they were written.
    pub blocks: u64,
    /// Records of the log that are as they were written.
    pub records: u64,
    /// Rows in both. A row may be in the log and in a data file.
    pub rows: u64,
    /// Bytes of blocks and of records.
    pub bytes: u64,
    /// The position after the last one in the log.
    pub end: u64,
    /// How long it took.
    pub milliseconds: u64,
    /// What is wrong.
    pub findings: Vec<CheckFinding>,
    /// What is unusual and harms nothing.
    pub remarks: Vec<String>,
}

/// A place at which a directory is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckFinding {
    /// The file.
    pub file: String,
    /// Where in it, in bytes.
    pub byte: u64,
    /// What was found.
    pub what: String,
    /// Tables of which rows or changes are in danger. Empty when that is unknown, or when the same is
    /// in a checkpoint.
    pub tables: Vec<String>,
    /// The positions in danger: arrivals of rows, and other changes.
    pub positions: Range<u64>,
    /// Whether later positions are in danger as well: nothing behind them could be read, so that nobody
    /// knows how many there were.
    pub and_later: bool,
}

impl CheckFinding {
    /// Makes the finding of a place where nothing is known to be in danger.
    fn new(file: &Path, byte: u64, what: impl Into<String>) -> Self {
        let (file, what) = (file.display().to_string(), what.into());
        Self { file, byte, what, tables: Vec::new(), positions: 0..0, and_later: false }
    }
}

impl CheckResult {
    /// Returns whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }

    /// Returns the result as one JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names are text")
    }
}

/// Verifies every checksum and every cross-reference of the database in a directory. Fails when it
/// could not be checked: there is no database, it is open for writing, or its format is newer.
pub fn check(path: impl AsRef<Path>) -> Result<CheckResult> {
    check_as(path.as_ref(), &OpenOptions::default())
}

/// Verifies a directory as [`check`] does, on the disk and with the clock of the options.
pub fn check_as(path: &Path, options: &OpenOptions) -> Result<CheckResult> {
    let begun_ns = options.host.clock.monotonic_ns();
    let (inspection, report) = inspect(path, options)?;
    let mut result = inspection.result(&report);
    result.remarks = remarks::of(path, options, &report);
    if result.is_whole() {
        // The same as in a directory that is opened to be used.
        result.findings = opening_findings(path, options);
    } else {
        // What a whole directory would have said when it was opened.
        let rescued = salvage::rescue(path, options, inspection)?;
        result.findings.extend(rescued.findings);
    }
    result.milliseconds = (options.host.clock.monotonic_ns() - begun_ns) / 1_000_000;
    Ok(result)
}

/// Goes over all files of a directory.
fn inspect(path: &Path, options: &OpenOptions) -> Result<(Inspection, CheckReport)> {
    let mut inspection = Inspection::new(path);
    let visit = &mut |part: CheckedPart<'_>| inspection.visit(part);
    let report =
        check_with(&*options.host.disk, path, visit).map_err(|error| uncheckable(&error))?;
    inspection.finish();
    Ok((inspection, report))
}

/// Opens the directory and counts the rows of all tables by each index.
fn opening_findings(path: &Path, options: &OpenOptions) -> Vec<CheckFinding> {
    let options = OpenOptions { read_only: true, ..options.clone() };
    let database = match Database::open_with(path, &options) {
        Ok(database) => database,
        Err(error) => return vec![CheckFinding::new(path, 0, error.message)],
    };
    let mut findings = Vec::new();
    for (name, table) in database.all_tables() {
        let counts = match table.row_counts() {
            Ok(counts) => counts,
            Err(error) => {
                let finding = CheckFinding::new(path, 0, error.to_string());
                findings.push(CheckFinding { tables: vec![name.clone()], ..finding });
                continue;
            }
        };
        for (index, rows) in counts.by_index.iter().filter(|(_, rows)| *rows != counts.scanned) {
            let scanned = counts.scanned;
            let what = format!("index `{index}` contains {rows} of {scanned} rows");
            let finding = CheckFinding::new(path, 0, what);
            findings.push(CheckFinding { tables: vec![name.clone()], ..finding });
        }
    }
    findings
}

/// Returns the diagnostic of a directory about which nothing can be said.
fn uncheckable(error: &Error) -> Box<Diagnostic> {
    let diagnostic = log_error(error);
    match error {
        Error::NoDatabase { .. } => {
            Box::new(diagnostic.with_hint("Specify the directory of a database."))
        }
        _ => diagnostic,
    }
}

/// Returns the path of the manifest.
fn manifest_path(path: &Path) -> PathBuf {
    path.join("MANIFEST")
}

/// Returns the path of the log's directory.
fn log_path(path: &Path) -> PathBuf {
    path.join("log")
}
