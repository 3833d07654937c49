//! `salvage`: writes what can be read of a damaged directory to another one.
//!
//! 1. [`Inspection`] goes over all files: what is damaged, and which rows of damaged blocks the log has.
//! 2. [`rescue`] goes over them again and applies what can be read to an engine in memory.
//! 3. That engine is written as a backup is: a checkpoint, and an empty log that goes on behind the
//!    last known position. So every row keeps its arrival, and no position is given out twice.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{Host, file::Disk};
use lockstep_table::visit_block;
use lockstep_wal::{
    CheckReport, CheckedPart, DatabaseDirectory, ReadOnlyLog, check_with, data_file_numbers,
    lock_against_writers, read_unlisted_file,
};
use serde::Serialize;

use super::{
    CheckFinding, CheckResult, Inspection, inspect, inspection::is_last, log_path, manifest_path,
    remarks, uncheckable,
};
use crate::{
    Database, OpenOptions,
    checkpoint::CheckpointBody,
    log_error::log_error,
    recovery::{Rescue, Rescued},
};

/// What was saved of a directory, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Salvage {
    /// What was found in the damaged directory, with everything that could not be saved.
    pub check: CheckResult,
    /// The new directory.
    pub target: String,
    /// The tables in it.
    pub saved: Vec<SalvagedTable>,
    /// Rows in it.
    pub rows_saved: u64,
    /// Rows of data files that are lost. Those of the log are in the findings, by their positions.
    pub rows_lost: u64,
    /// Rows that can be read, and of which nobody knows the table.
    pub rows_not_assignable: u64,
}

/// A table that was saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SalvagedTable {
    /// Its name, with that of its database.
    pub name: String,
    /// Rows that were saved, without those that have expired.
    pub rows: u64,
    /// Rows of its data files that can be read neither there nor in the log. Rows that had been
    /// deleted or had expired may be among them.
    pub rows_lost: u64,
}

impl Salvage {
    /// Returns the result as one JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names are text")
    }
}

/// What was read of a directory that is damaged.
pub(super) struct RescuedDirectory {
    pub(super) database: Database,
    pub(super) findings: Vec<CheckFinding>,
    rows_not_assignable: u64,
    tables: Vec<SalvagedTable>,
}

/// Writes what can be read of the database in the directory `path` to the directory `target`, which does
/// not exist or is empty. Changes nothing in `path`.
pub fn salvage(path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<Salvage> {
    salvage_as(path.as_ref(), target.as_ref(), &OpenOptions::default())
}

/// Saves a directory as [`salvage`] does, on the disk and with the clock of the options.
pub fn salvage_as(path: &Path, target: &Path, options: &OpenOptions) -> Result<Salvage> {
    let begun_ns = options.host.clock.monotonic_ns();
    check_target(path, target, &*options.host.disk)?;
    // Nobody writes between the passes.
    let _lock =
        lock_against_writers(&*options.host.disk, path).map_err(|error| uncheckable(&error))?;
    let (inspection, report) = inspect(path, options)?;
    let mut check = inspection.result(&report);
    check.remarks = remarks::of(path, options, &report);
    let rescued = rescue(path, options, inspection)?;
    check.findings.extend(rescued.findings);
    let end = end_of(&report, &rescued.database);
    rescued.database.write_salvaged(target, end)?;
    check.milliseconds = (options.host.clock.monotonic_ns() - begun_ns) / 1_000_000;
    Ok(Salvage {
        check,
        target: target.display().to_string(),
        rows_saved: rescued.tables.iter().map(|table| table.rows).sum(),
        rows_lost: rescued.tables.iter().map(|table| table.rows_lost).sum(),
        rows_not_assignable: rescued.rows_not_assignable,
        saved: rescued.tables,
    })
}

/// Fails unless `target` is a place for a new directory outside of the damaged one.
fn check_target(path: &Path, target: &Path, disk: &dyn Disk) -> Result<()> {
    let refuse = |what: String| {
        Diagnostic::new(code::DUPLICATE_FILE, what)
            .with_kind(Kind::FixRequest)
            .with_hint("Specify a directory that does not exist, or an empty directory.")
            .err()
    };
    let (path, resolved) = (resolved(path), resolved(target));
    if resolved.starts_with(&path) {
        let (inner, outer) = (target.display(), path.display());
        return refuse(format!("{inner} is inside {outer}, which salvage must not change"));
    }
    if path.starts_with(&resolved) {
        let (outer, inner) = (target.display(), path.display());
        return refuse(format!("{outer} contains {inner}, which salvage must not change"));
    }
    match disk.list(target) {
        Ok(names) if !names.is_empty() => {
            refuse(format!("directory {} is not empty", target.display()))
        }
        _ => Ok(()),
    }
}

/// Returns a path without links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for parent in path.ancestors() {
        if let Ok(found) = lockstep_host::disk::resolve(parent) {
            return match path.strip_prefix(parent) {
                Ok(rest) if !rest.as_os_str().is_empty() => found.join(rest),
                _ => found,
            };
        }
    }
    path
}

/// Applies what can be read of a directory to an engine in memory.
pub(super) fn rescue(
    path: &Path,
    options: &OpenOptions,
    mut inspection: Inspection,
) -> Result<RescuedDirectory> {
    let database = Database::empty(options.host.clone(), false);
    let mut rescue = Rescue::new(&database, std::mem::take(&mut inspection.rescued));
    let visit = &mut |part: CheckedPart<'_>| match part {
        CheckedPart::Manifest(manifest) => {
            if let Ok(body) = serde_json::from_slice::<CheckpointBody>(&manifest.body) {
                rescue.body(body, manifest.position);
            }
        }
        CheckedPart::Block { file, offset, payload, .. } => {
            rescue.block(file.number, offset, payload);
        }
        CheckedPart::DamagedFile { .. } => {}
        CheckedPart::Group(entries) => entries.for_each(|entry| rescue.entry(&entry)),
    };
    let report =
        check_with(&*options.host.disk, path, visit).map_err(|error| uncheckable(&error))?;
    let rescued = rescue.finish();
    let mut rows_not_assignable = rescued.unknown_tables.values().map(|table| table.rows).sum();
    let mut findings = findings(&inspection, &report, &rescued);
    if report.manifest.is_none() {
        findings.extend(unassignable_files(path, &*options.host.disk, &mut rows_not_assignable));
    }
    let tables = saved_tables(&database, &inspection, &rescued)?;
    Ok(RescuedDirectory { database, findings, rows_not_assignable, tables })
}

/// Says what could not be applied, and what follows from what cannot be read.
fn findings(inspection: &Inspection, report: &CheckReport, rescued: &Rescued) -> Vec<CheckFinding> {
    let log = log_path(&inspection.path);
    let mut findings = Vec::new();
    let is_listed = |positions: &Range<u64>| {
        let mut listed = inspection.findings.iter();
        !positions.is_empty() && listed.any(|finding| finding.positions == *positions)
    };
    for failure in rescued.failures.iter().filter(|failure| !is_listed(&failure.positions)) {
        let file = if failure.positions.is_empty() {
            manifest_path(&inspection.path)
        } else {
            log.clone()
        };
        let finding = CheckFinding::new(&file, 0, failure.what.clone());
        let tables = failure.table.map(|id| inspection.name(id)).into_iter().collect();
        findings.push(CheckFinding { tables, positions: failure.positions.clone(), ..finding });
    }
    for (id, unknown) in &rescued.unknown_tables {
        let what = format!(
            "the CREATE record of table {id} is lost: its {} readable rows belong to no known \
             table",
            unknown.rows
        );
        let finding = CheckFinding::new(&log, 0, what);
        let (tables, positions) = (vec![format!("table {id}")], unknown.positions.clone());
        findings.push(CheckFinding { tables, positions, ..finding });
    }
    for damage in &report.log.damages {
        let mut tables = inspection.tables_behind(damage, report);
        let and_later = is_last(damage, report);
        // A DELETE before the checkpoint counts for rows that only the log has.
        let found = rescued.found_in_log.iter().filter(|(_, rows)| **rows > 0);
        tables.extend(found.map(|(id, _)| inspection.name(*id)));
        tables.sort();
        tables.dedup();
        if !tables.is_empty() && (and_later || !damage.positions.is_empty()) {
            let what = "the changes at these positions are unknown: rows removed by DELETE or \
                        TRUNCATE may reappear, and a CREATE or DROP may be missing";
            let finding = CheckFinding::new(&damage.file, damage.offset, what);
            let positions = damage.positions.clone();
            findings.push(CheckFinding { tables, positions, and_later, ..finding });
        }
    }
    findings
}

/// Looks into data files of which no manifest says what they are for. Adds their rows to a count.
fn unassignable_files(path: &Path, disk: &dyn Disk, rows: &mut u64) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    for number in data_file_numbers(disk, path).unwrap_or_default() {
        let mut arrivals = 0..0;
        let mut count = 0_u64;
        let read = read_unlisted_file(disk, path, number, &mut |block| {
            let _is_block = visit_block(block, &mut |arrival, _| {
                if count == 0 {
                    arrivals.start = arrival;
                }
                arrivals.end = arrival + 1;
                count += 1;
            });
        });
        *rows += count;
        let extent = if read.is_ok() { "" } else { " before the first damage" };
        let what = format!(
            "{count} rows{extent} cannot be assigned to a table, because there is no manifest"
        );
        let file = path.join("data").join(format!("{number:020}.data"));
        findings.push(CheckFinding { positions: arrivals, ..CheckFinding::new(&file, 0, what) });
    }
    findings
}

/// Counts the rows of the tables.
fn saved_tables(
    database: &Database,
    inspection: &Inspection,
    rescued: &Rescued,
) -> Result<Vec<SalvagedTable>> {
    let tables = database.all_tables().into_iter().map(|(name, table)| {
        let id = table.log_id().unwrap_or_default();
        let lost = inspection.tables.get(&id).map_or(0, |table| table.rows_lost);
        let found = rescued.found_in_log.get(&id).copied().unwrap_or_default();
        let rows = table.snapshot().count(None)?;
        Ok(SalvagedTable { name, rows, rows_lost: lost.saturating_sub(found) })
    });
    tables.collect()
}

/// Returns a position behind all that are known.
fn end_of(report: &CheckReport, database: &Database) -> u64 {
    let needed = report.manifest.as_ref().map_or(0, |manifest| manifest.position);
    let damages = report.log.damages.iter().map(|damage| damage.positions.end);
    let tables = database.all_tables();
    let visible = tables.iter().map(|(_, table)| table.snapshot().visible_arrival());
    damages.chain(visible).fold(report.log.end.max(needed), u64::max)
}

impl Database {
    /// Writes an engine that was read from a damaged directory to a new one, whose log begins at `end`.
    fn write_salvaged(&self, target: &Path, end: u64) -> Result<()> {
        self.arrivals().continue_in(Arc::new(ReadOnlyLog::new(target, end)));
        let Host { disk, random, .. } = self.host();
        let copy = DatabaseDirectory::create(Arc::clone(disk), target, random.id(), end);
        let copy = copy.map_err(|error| log_error(&error))?;
        self.write_copy(&copy).map(|_| ())
    }
}
