//! The first pass over a directory: each part is compared with what the catalog and the manifest say.
//!
//! `check` gives it every block and every group that can be read. It lists what contradicts, and
//! collects from the log the rows that damaged blocks have lost. Applies nothing to any table.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
};

use lockstep_row::{RowCodec, TableSchema};
use lockstep_table::{LoggedRows, RescuedRows, TableChange, TableRecord, visit_block};
use lockstep_wal::{CheckReport, CheckedPart, Damage, DataFile, Entry, Manifest};

use super::{CheckFinding, CheckResult, log_path, manifest_path};
use crate::{
    catalog::{CATALOG, CatalogRecord},
    checkpoint::{CheckpointBody, Extent},
    statement::LoggedCondition,
};

/// What is known of a directory.
pub(super) struct Inspection {
    pub(super) path: PathBuf,
    pub(super) tables: BTreeMap<u64, InspectedTable>,
    /// Data files by their numbers.
    files: BTreeMap<u64, InspectedFile>,
    /// Rows that damaged blocks have lost, by table.
    pub(super) rescued: BTreeMap<u64, RescuedRows>,
    /// Whether all files were gone over, and the log comes.
    is_in_log: bool,
    /// Tables with an id below had a CREATE before the checkpoint.
    pub(super) next_table_id: u64,
    rows: u64,
    log_bytes: u64,
    pub(super) findings: Vec<CheckFinding>,
}

/// A table whose CREATE was read.
pub(super) struct InspectedTable {
    pub(super) name: String,
    codec: RowCodec,
    /// Records before this position are in the checkpoint.
    pub(super) position: u64,
    is_dropped: bool,
    /// Rows of its files that cannot be read.
    pub(super) rows_lost: u64,
}

/// A data file that the manifest lists.
struct InspectedFile {
    /// Its table and what the manifest's body says of it.
    listed: Option<(u64, Extent)>,
    /// Of a file that has the rows of extents once more, by an index: the id of its table.
    run_of: Option<u64>,
    path: PathBuf,
    /// The arrival after that of the last row that was read.
    next: u64,
    rows: u64,
    /// Arrivals of rows that cannot be read.
    gaps: Vec<Range<u64>>,
    /// Whether the last gap has no end yet.
    is_in_gap: bool,
    /// The gap of each damage, by the byte at which it is.
    gap_at: BTreeMap<u64, usize>,
}

impl Inspection {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            tables: BTreeMap::new(),
            files: BTreeMap::new(),
            rescued: BTreeMap::new(),
            is_in_log: false,
            next_table_id: 0,
            rows: 0,
            log_bytes: 0,
            findings: Vec::new(),
        }
    }

    /// Looks at a part.
    pub(super) fn visit(&mut self, part: CheckedPart<'_>) {
        match part {
            CheckedPart::Manifest(manifest) => self.manifest(manifest),
            CheckedPart::Block { file, path, offset, payload } => {
                self.block(file, path, offset, payload);
            }
            CheckedPart::DamagedFile { file, damage } => self.damaged_file(file, damage),
            CheckedPart::Group(entries) => {
                self.end_files();
                entries.for_each(|entry| self.entry(&entry));
            }
        }
    }

    /// Ends the pass.
    pub(super) fn finish(&mut self) {
        self.end_files();
    }

    fn manifest(&mut self, manifest: &Manifest) {
        assert!(!self.is_in_log, "the manifest comes before the log");
        if manifest.body.is_empty() {
            return;
        }
        let path = manifest_path(&self.path);
        let byte = 80 + 24 * u64::try_from(manifest.files.len()).unwrap_or(u64::MAX);
        let body: CheckpointBody = match serde_json::from_slice(&manifest.body) {
            Ok(body) => body,
            Err(error) => {
                let what = format!("could not read the body of the manifest: {error}");
                return self.findings.push(CheckFinding::new(&path, byte, what));
            }
        };
        let mut wrong = |what: String| self.findings.push(CheckFinding::new(&path, byte, what));
        self.next_table_id = body.next_table_id;
        for record in &body.catalog {
            catalog_record(&mut self.tables, record);
        }
        let numbers: BTreeSet<u64> = manifest.files.iter().map(|file| file.number).collect();
        let mut ids = BTreeSet::new();
        for checkpoint in &body.tables {
            let Some(table) = self.tables.get_mut(&checkpoint.id) else {
                wrong(format!(
                    "the manifest lists rows of table {}, but no CREATE record of the table",
                    checkpoint.id
                ));
                continue;
            };
            if !ids.insert(checkpoint.id) {
                wrong(format!("table {} is listed more than once", table.name));
            }
            table.position = checkpoint.position;
            let mut from = 0;
            for extent in &checkpoint.extents {
                let Extent { file, rows, .. } = *extent;
                let is_known = numbers.contains(&file);
                let listed = Some((checkpoint.id, *extent));
                let inspected = InspectedFile::new(listed, extent.from);
                let is_taken = self.files.insert(file, inspected).is_some();
                if !is_known || is_taken {
                    wrong(format!("data file {file} of {} is not listed exactly once", table.name));
                }
                let is_in_order = from <= extent.from && extent.from < extent.to;
                if !is_in_order || extent.to > checkpoint.position || rows > extent.to - extent.from
                {
                    let Extent { from, to, .. } = extent;
                    let name = &table.name;
                    wrong(format!("{rows} rows of {name} cannot have arrivals {from} to {to}"));
                }
                from = extent.to;
            }
            for run in checkpoint.runs.iter().flatten().flatten() {
                let mut inspected = InspectedFile::new(None, 0);
                inspected.run_of = Some(checkpoint.id);
                let is_taken = self.files.insert(run.file, inspected).is_some();
                if !numbers.contains(&run.file) || is_taken {
                    let (file, name) = (run.file, &table.name);
                    wrong(format!("data file {file} of {name} is not listed exactly once"));
                }
            }
        }
        for number in numbers.iter().filter(|number| !self.files.contains_key(number)) {
            wrong(format!("data file {number} is listed but belongs to no table"));
        }
    }

    fn file(&mut self, file: &DataFile, path: &Path) -> &mut InspectedFile {
        let inspected = self.files.entry(file.number);
        let inspected = inspected.or_insert_with(|| InspectedFile::new(None, 0));
        path.clone_into(&mut inspected.path);
        inspected
    }

    fn damaged_file(&mut self, file: &DataFile, damage: &Damage) {
        let inspected = self.file(file, &damage.file);
        if !inspected.is_in_gap {
            let next = inspected.next;
            inspected.gaps.push(next..next);
            inspected.is_in_gap = true;
        }
        inspected.gap_at.insert(damage.offset, inspected.gaps.len() - 1);
    }

    fn block(&mut self, file: &DataFile, path: &Path, offset: u64, payload: &[u8]) {
        assert!(!self.is_in_log, "files come before the log");
        let inspected = self.file(file, path);
        let listed = inspected.listed;
        let last_block = listed.and_then(|(_, extent)| extent.last_block);
        if inspected.run_of.is_some() || last_block.is_some_and(|place| place.offset == offset) {
            return;
        }
        let table = listed.and_then(|(id, _)| self.tables.get(&id));
        let inspected = self.files.get_mut(&file.number).expect("it was added");
        let mut are_rows = true;
        let is_block = visit_block(payload, &mut |arrival, bytes| {
            inspected.end_gap(arrival);
            let is_in_extent =
                listed.is_none_or(|(_, extent)| (extent.from..extent.to).contains(&arrival));
            let is_later = arrival >= inspected.next;
            let is_row = table.is_none_or(|table| table.codec.is_row(bytes));
            are_rows &= is_in_extent && is_later && is_row;
            inspected.next = arrival + 1;
            inspected.rows += 1;
        });
        if !is_block || !are_rows {
            let what = "a block contains rows that do not match its table or position";
            let mut finding = CheckFinding::new(path, offset, what);
            finding.tables.extend(table.map(|table| table.name.clone()));
            self.findings.push(finding);
        }
    }

    /// Compares what was read of each data file with what is said of it.
    fn end_files(&mut self) {
        if std::mem::replace(&mut self.is_in_log, true) {
            return;
        }
        let mut wanted: BTreeMap<u64, Vec<Range<u64>>> = BTreeMap::new();
        for inspected in self.files.values_mut() {
            self.rows += inspected.rows;
            if inspected.run_of.is_some() {
                continue;
            }
            let Some((id, extent)) = inspected.listed else {
                let what =
                    format!("{} rows of this file cannot be assigned to a table", inspected.rows);
                self.findings.push(CheckFinding::new(&inspected.path, 0, what));
                continue;
            };
            let Some(table) = self.tables.get_mut(&id) else { continue };
            inspected.end_gap(extent.to);
            if inspected.gaps.is_empty() {
                let is_complete = inspected.rows == extent.rows && inspected.next == extent.to;
                if !is_complete && !inspected.path.as_os_str().is_empty() {
                    let found = inspected.rows;
                    let what =
                        format!("the file has {found} rows, but {} were expected", extent.rows);
                    let finding = CheckFinding::new(&inspected.path, 0, what);
                    let (tables, positions) = (vec![table.name.clone()], extent.from..extent.to);
                    self.findings.push(CheckFinding { tables, positions, ..finding });
                }
                continue;
            }
            table.rows_lost += extent.rows.saturating_sub(inspected.rows);
            wanted.entry(id).or_default().extend(inspected.gaps.iter().cloned());
        }
        for (id, gaps) in wanted {
            let codec = self.tables[&id].codec.clone();
            self.rescued.insert(id, RescuedRows::new(codec, gaps));
        }
    }

    /// Looks at a record of the log.
    fn entry(&mut self, entry: &Entry<'_>) {
        self.log_bytes += u64::try_from(entry.payload.len()).unwrap_or(u64::MAX);
        if entry.kind == CATALOG {
            match CatalogRecord::read(entry.payload) {
                Ok(record) => catalog_record(&mut self.tables, &record),
                Err(error) => self.wrong_record(entry, None, &error.to_string()),
            }
            return;
        }
        match TableRecord::read(entry.kind, entry.payload) {
            Ok(Some(record)) => self.table_record(entry, &record),
            Ok(None) => self.wrong_record(entry, None, "unknown record kind"),
            Err(error) => self.wrong_record(entry, None, &error.to_string()),
        }
    }

    fn table_record(&mut self, entry: &Entry<'_>, record: &TableRecord<'_>) {
        let id = record.table;
        let rescued = self.rescued.get_mut(&id);
        let is_right = match (&record.change, self.tables.get(&id)) {
            (TableChange::Rows(rows), table) => {
                self.rows += u64::from(entry.rows);
                if let Some(rescued) = rescued {
                    rescued.rows(entry.position, rows);
                }
                table.is_none_or(|table| are_rows(rows, &table.codec, entry.rows))
            }
            (TableChange::Delete { condition, .. }, _) => match LoggedCondition::read(condition) {
                Ok(condition) => {
                    if let Some(rescued) = rescued {
                        rescued.delete(|row| condition.holds(row));
                    }
                    true
                }
                Err(_unreadable) => false,
            },
            (TableChange::Truncate, _) => {
                if let Some(rescued) = rescued {
                    rescued.truncate();
                }
                true
            }
            (TableChange::Indexes(_), _) => true,
        };
        if !is_right {
            let what = match record.change {
                TableChange::Rows(_) => "its rows do not match the table",
                _ => "its condition cannot be read; deleted rows may reappear",
            };
            self.wrong_record(entry, Some(id), what);
        }
    }

    fn wrong_record(&mut self, entry: &Entry<'_>, table: Option<u64>, what: &str) {
        let what = format!("could not apply the record at position {}: {what}", entry.position);
        let mut finding = CheckFinding::new(&log_path(&self.path), 0, what);
        finding.positions = entry.position..entry.position + u64::from(entry.rows);
        finding.tables.extend(table.map(|id| self.name(id)));
        self.findings.push(finding);
    }

    /// Returns the name of a table.
    pub(super) fn name(&self, id: u64) -> String {
        self.tables.get(&id).map_or_else(|| format!("table {id}"), |table| table.name.clone())
    }

    /// Returns what was found so far.
    pub(super) fn result(&self, report: &CheckReport) -> CheckResult {
        let damages = report.damages.iter().map(|damage| self.finding(damage));
        let log = report.log.damages.iter().map(|damage| self.log_finding(damage, report));
        let mut findings: Vec<CheckFinding> = damages.chain(log).collect();
        findings.extend(self.findings.iter().cloned());
        let tables = self.tables.values().filter(|table| !table.is_dropped).count();
        CheckResult {
            directory: self.path.display().to_string(),
            tables: u64::try_from(tables).unwrap_or(u64::MAX),
            files: report.files,
            blocks: report.blocks,
            records: report.log.records,
            rows: self.rows,
            bytes: report.block_bytes + self.log_bytes,
            end: report.log.end,
            milliseconds: 0,
            findings,
            remarks: Vec::new(),
        }
    }

    /// Returns the finding of damage to a file that is not the log's.
    fn finding(&self, damage: &Damage) -> CheckFinding {
        let finding = CheckFinding::new(&damage.file, damage.offset, damage.what.clone());
        let inspected = self.files.values().find(|inspected| inspected.path == damage.file);
        if let Some(id) = inspected.and_then(|file| file.run_of) {
            return CheckFinding { tables: vec![self.name(id)], ..finding };
        }
        let Some((inspected, (id, extent))) = inspected.and_then(|file| Some((file, file.listed?)))
        else {
            return finding;
        };
        let gap = inspected.gap_at.get(&damage.offset).map(|at| inspected.gaps[*at].clone());
        let positions = gap.unwrap_or(extent.from..extent.to);
        CheckFinding { tables: vec![self.name(id)], positions, ..finding }
    }

    /// Returns the finding of damage to the log.
    fn log_finding(&self, damage: &Damage, report: &CheckReport) -> CheckFinding {
        let finding = CheckFinding::new(&damage.file, damage.offset, damage.what.clone());
        let and_later = is_last(damage, report);
        let tables = self.tables_behind(damage, report);
        CheckFinding { tables, positions: damage.positions.clone(), and_later, ..finding }
    }

    /// Returns the tables that may have changes in a damaged part of the log which are in no checkpoint.
    pub(super) fn tables_behind(&self, damage: &Damage, report: &CheckReport) -> Vec<String> {
        let and_later = is_last(damage, report);
        let tables = self.tables.values().filter(|table| !table.is_dropped);
        let tables = tables.filter(|table| and_later || table.position < damage.positions.end);
        tables.map(|table| table.name.clone()).collect()
    }
}

/// Returns whether nothing was read behind a damage of the log.
pub(super) fn is_last(damage: &Damage, report: &CheckReport) -> bool {
    damage.positions.start >= report.log.end
}

impl InspectedFile {
    fn new(listed: Option<(u64, Extent)>, next: u64) -> Self {
        let (gaps, gap_at) = (Vec::new(), BTreeMap::new());
        let run_of = None;
        Self { listed, run_of, path: PathBuf::new(), next, rows: 0, gaps, is_in_gap: false, gap_at }
    }

    /// Ends a gap before an arrival.
    fn end_gap(&mut self, arrival: u64) {
        debug_assert!(
            !self.is_in_gap || !self.gaps.is_empty(),
            "a gap that is open is the last one"
        );
        if std::mem::take(&mut self.is_in_gap)
            && let Some(gap) = self.gaps.last_mut()
        {
            gap.end = arrival.max(gap.start);
        }
    }
}

/// Returns whether the rows of a record are rows of a table, and so many.
fn are_rows(rows: &LoggedRows<'_>, codec: &RowCodec, count: u32) -> bool {
    rows.count_rows_of(codec) == Some(u64::from(count))
}

/// Notes the tables that a record of the catalog is about.
fn catalog_record(tables: &mut BTreeMap<u64, InspectedTable>, record: &CatalogRecord) {
    let add = |tables: &mut BTreeMap<_, _>, id: u64, name: String, schema: &TableSchema| {
        let codec = RowCodec::new(schema);
        let new = InspectedTable {
            name: name.clone(),
            codec,
            position: 0,
            is_dropped: false,
            rows_lost: 0,
        };
        // Rows that are logged before the record of their table have no name until then.
        tables.entry(id).or_insert(new).name = name;
    };
    match record {
        CatalogRecord::CreateTable { id, name, schema, or_replace, .. } => {
            let name = name.to_string();
            if *or_replace {
                let others = tables.iter_mut().filter(|(found, _)| *found != id);
                let replaced = others.map(|(_, table)| table).filter(|table| table.name == name);
                replaced.for_each(|replaced| replaced.is_dropped = true);
            }
            add(tables, *id, name, schema);
        }
        CatalogRecord::CreateOfflineRows { id, schema } => {
            add(tables, *id, format!("rows {id} without a table"), schema);
        }
        CatalogRecord::ChangeOffline { table, data } => {
            let owner = tables.get(table).map(|owner| owner.name.clone());
            let rows = data.rows().and_then(|rows| tables.get_mut(&rows));
            if let (Some(owner), Some(rows)) = (owner, rows) {
                rows.name = format!("offline rows of {owner}");
            }
        }
        CatalogRecord::CreateStream { name, stream, .. } => {
            if let Some(progress) = tables.get_mut(&stream.progress) {
                progress.name = format!("progress of {name}");
            }
        }
        CatalogRecord::DropTable { id, .. } => {
            if let Some(dropped) = tables.get_mut(id) {
                dropped.is_dropped = true;
            }
        }
        _ => {}
    }
}
