//! `check` and `salvage` on whole directories and on damaged ones.
//!
//! For each damage: it is found; every row that is saved is the row that had this arrival; every row
//! that is not saved has an arrival that a finding names; the new directory has nothing wrong.

#![expect(clippy::unwrap_used, reason = "the functions that tests share fail as tests do")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_engine::{Database, OpenOptions, Salvage, Session, check, code, salvage};
use lockstep_host::file::SystemDisk;
use lockstep_row::{RowCodec, TableSchema};
use lockstep_sim::Random;
use lockstep_table::{RescuedRows, TableChange, TableRecord, visit_block};
use lockstep_wal::{Access, CheckedPart, DatabaseDirectory, Entry, check_with};

use crate::test_directory::TestDirectory;

impl TestDirectory {
    /// Makes a directory with the same files, which must not be written to.
    fn linked_as(&self, name: &str) -> Self {
        let copy = Self::new(name);
        for inner in ["", "log", "data"] {
            fs::create_dir(copy.0.join(inner)).unwrap();
            for entry in fs::read_dir(self.0.join(inner)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    fs::hard_link(&path, copy.0.join(inner).join(path.file_name().unwrap()))
                        .unwrap();
                }
            }
        }
        copy
    }

    /// Returns the names of its files, except the lock's.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = vec![PathBuf::from("MANIFEST")];
        for inner in ["log", "data"] {
            let entries = fs::read_dir(self.0.join(inner)).unwrap();
            let names = entries.map(|entry| Path::new(inner).join(entry.unwrap().file_name()));
            files.extend(names);
        }
        files.sort();
        files
    }
}

fn run(session: &Session, statement: &str) {
    session.execute(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
}

/// Inserts rows with the numbers from `from` on, in statements of `rows` each.
fn insert(session: &Session, table: &str, from: usize, statements: usize, rows: usize) {
    let text = "x".repeat(700);
    for statement in 0..statements {
        let begin = from + statement * rows;
        let row = |n: usize| format!("('k{}', {n}, '{n}{text}', {n})", n % 7);
        let values: Vec<String> = (begin..begin + rows).map(row).collect();
        run(session, &format!("INSERT INTO {table} VALUES {}", values.join(", ")));
    }
}

/// Runs statements of every kind that changes something, with `half` in the middle.
fn write(session: &Session, half: impl Fn(usize)) {
    for table in ["t", "u", "gone"] {
        run(session, &format!("CREATE TABLE {table} (k STRING, n INT, s STRING, ts TIMESTAMP)"));
    }
    insert(session, "gone", 0, 2, 3);
    run(session, "DROP TABLE gone");
    insert(session, "t", 0, 40, 20);
    half(0);
    run(session, "CREATE INDEX i ON t (k) OPTIONS (ts=ts)");
    insert(session, "u", 0, 20, 3);
    insert(session, "t", 800, 40, 20);
    run(session, "DELETE FROM t WHERE ts = 3");
    half(1);
    run(
        session,
        "DEPLOY d AS SELECT k, count(n) OVER w AS c FROM t WINDOW w AS (PARTITION BY k ORDER BY ts
            ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    );
    insert(session, "t", 2_000, 20, 1);
    run(session, "TRUNCATE TABLE u");
    insert(session, "u", 100, 10, 2);
    run(session, "CREATE DATABASE other");
    run(session, "CREATE TABLE other.v (k STRING, n INT, s STRING, ts TIMESTAMP)");
    insert(session, "other.v", 0, 10, 2);
    run(session, "DELETE FROM t WHERE ts = 2001");
    insert(session, "t", 3_000, 10, 1);
}

/// Kinds of directories: all in the log; two checkpoints and the log behind them, which reaches
/// further back; a backup, whose log does not.
fn written(kind: &str) -> TestDirectory {
    let directory = TestDirectory::new(kind);
    let backup = TestDirectory::new(&format!("{kind}-backup"));
    let session = Database::open(&directory.0).unwrap().session();
    write(&session, |_| {
        if kind != "log" {
            run(&session, "CHECKPOINT");
        }
    });
    if kind != "backup" {
        return directory;
    }
    run(&session, &format!("BACKUP TO '{}'", backup.0.display()));
    let session = Database::open(&backup.0).unwrap().session();
    insert(&session, "t", 4_000, 10, 2);
    run(&session, "DELETE FROM t WHERE ts = 4001");
    insert(&session, "u", 4_000, 10, 2);
    drop(session);
    backup
}

/// Collects the rows of a record of the log, or the schema of a table.
fn read_entry(
    entry: &Entry<'_>,
    codecs: &mut BTreeMap<u64, RowCodec>,
    logged: &mut BTreeMap<u64, RescuedRows>,
) {
    match TableRecord::read(entry.kind, entry.payload).unwrap() {
        Some(TableRecord { table, change: TableChange::Rows(rows) }) => {
            let Some(codec) = codecs.get(&table) else { return };
            let all = || RescuedRows::new(codec.clone(), std::iter::once(0..u64::MAX).collect());
            logged.entry(table).or_insert_with(all).rows(entry.position, &rows);
        }
        Some(_) => {}
        None => read_schema(&serde_json::from_slice(entry.payload).unwrap(), codecs),
    }
}

/// Reads the schema of a table from a record of the catalog, if it has one.
fn read_schema(json: &serde_json::Value, codecs: &mut BTreeMap<u64, RowCodec>) {
    if json["command"] == "create_table" {
        let schema: TableSchema = serde_json::from_value(json["schema"].clone()).unwrap();
        codecs.insert(json["id"].as_u64().unwrap(), RowCodec::new(&schema));
    }
}

/// Returns every row in the files of a directory, with its arrival.
fn stored(path: &Path) -> BTreeMap<u64, Vec<u8>> {
    let mut rows = BTreeMap::new();
    let mut codecs = BTreeMap::new();
    let mut logged: BTreeMap<u64, RescuedRows> = BTreeMap::new();
    // The last block of each extent, which has no rows, by its file.
    let mut extents: BTreeMap<u64, u64> = BTreeMap::new();
    let visit = &mut |part: CheckedPart<'_>| match part {
        CheckedPart::Manifest(manifest) if !manifest.body.is_empty() => {
            let body: serde_json::Value = serde_json::from_slice(&manifest.body).unwrap();
            let records = body["catalog"].as_array().unwrap();
            records.iter().for_each(|record| read_schema(record, &mut codecs));
            let tables = body["tables"].as_array().unwrap();
            let of_tables = tables.iter().flat_map(|table| table["extents"].as_array().unwrap());
            extents.extend(of_tables.map(|extent| {
                let last_block = extent["last_block"]["offset"].as_u64().unwrap();
                (extent["file"].as_u64().unwrap(), last_block)
            }));
        }
        CheckedPart::Block { file, offset, .. }
            if extents.get(&file.number).is_none_or(|last_block| *last_block == offset) => {}
        CheckedPart::Block { payload, .. } => {
            assert!(visit_block(payload, &mut |arrival, bytes| {
                rows.insert(arrival, bytes.to_vec());
            }));
        }
        CheckedPart::Group(entries) => {
            entries.for_each(|entry| read_entry(&entry, &mut codecs, &mut logged));
        }
        _ => {}
    };
    check_with(&SystemDisk, path, visit).unwrap();
    for mut found in logged.into_values() {
        assert!(visit_block(&found.take_block(u64::MAX), &mut |arrival, bytes| {
            rows.insert(arrival, bytes.to_vec());
        }));
    }
    rows
}

/// What every directory must show that was saved from an undamaged one.
fn shown(path: &Path) -> Vec<String> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let session = Database::open_with(path, &options).unwrap().session();
    let shows = [
        "SELECT * FROM t",
        "SELECT * FROM u",
        "SELECT * FROM other.v",
        "SHOW CREATE TABLE t",
        "SHOW DEPLOYMENT d",
        "SHOW INDEXES FROM t",
        "CALL d ('k1', 9, 's', 900)",
    ];
    let show = |sql: &str| format!("{:?}", session.execute(sql).unwrap().batches);
    shows.map(show).to_vec()
}

#[test]
fn a_whole_directory_has_nothing_wrong_and_is_saved_as_a_whole() {
    for kind in ["log", "checkpoint", "backup"] {
        let directory = written(kind);
        let result = check(&directory.0).unwrap();
        assert!(result.is_whole() && result.remarks.is_empty(), "{kind}: {result:?}");
        assert_eq!((result.tables, result.files > 0), (3, kind != "log"), "{kind}: {result:?}");
        let target = TestDirectory::new(&format!("{kind}-saved"));
        let saved = salvage(&directory.0, &target.0).unwrap();
        assert!(saved.check.is_whole(), "{saved:?}");
        assert_eq!((saved.rows_lost, saved.rows_not_assignable), (0, 0));
        assert_eq!(shown(&target.0), shown(&directory.0), "{kind}");
        let (all, kept) = (stored(&directory.0), stored(&target.0));
        assert_eq!(u64::try_from(kept.len()), Ok(saved.rows_saved));
        assert!(kept.iter().all(|(arrival, row)| all.get(arrival) == Some(row)));
        let session = Database::open(&target.0).unwrap().session();
        insert(&session, "t", 9_000, 3, 2);
        drop(session);
        assert!(check(&target.0).unwrap().is_whole());
        assert!(stored(&target.0).keys().next_back() > all.keys().next_back());
    }
}

#[derive(Debug, Clone, Copy)]
enum FileDamage {
    Flip,
    Zeros,
    Noise,
    Cut,
    Removed,
}

/// Damages a file at `offset`; returns whether its bytes are others then.
fn damage(
    path: &Path,
    used: &[u8],
    offset: usize,
    damage: FileDamage,
    random: &mut Random,
) -> bool {
    let length = fs::metadata(path).unwrap().len();
    fs::remove_file(path).unwrap();
    let mut bytes = used.to_vec();
    let end = used.len().min(offset + 600);
    match damage {
        FileDamage::Flip => bytes[offset] ^= 1 << random.index(8),
        FileDamage::Zeros => bytes[offset..end].fill(0),
        FileDamage::Noise => bytes[offset..end].copy_from_slice(&random.bytes(end - offset)),
        FileDamage::Cut => bytes.truncate(offset),
        FileDamage::Removed => return true,
    }
    fs::write(path, &bytes).unwrap();
    if !matches!(damage, FileDamage::Cut) {
        fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
    }
    bytes != used
}

/// What a whole directory holds.
struct Expected {
    /// Rows that were ever in it, as far as its files have them.
    all: BTreeMap<u64, Vec<u8>>,
    /// Rows that are in it.
    live: BTreeMap<u64, Vec<u8>>,
}

impl Expected {
    fn of(directory: &TestDirectory, kind: &str) -> Self {
        let target = TestDirectory::new(&format!("{kind}-reference"));
        salvage(&directory.0, &target.0).unwrap();
        Self { all: stored(&directory.0), live: stored(&target.0) }
    }

    /// Compares what was saved; returns how many rows were not.
    fn check(&self, saved: &Salvage, kept: &BTreeMap<u64, Vec<u8>>, what: &str) -> usize {
        for (arrival, row) in kept {
            assert!(self.all.get(arrival) == Some(row), "{what}: row {arrival} is another one");
        }
        let findings = &saved.check.findings;
        let was_cut = !saved.check.remarks.is_empty();
        let lost: Vec<u64> =
            self.live.keys().filter(|arrival| !kept.contains_key(arrival)).copied().collect();
        for arrival in &lost {
            let is_named = findings.iter().any(|finding| {
                let is_later = finding.and_later && finding.positions.start <= *arrival;
                finding.positions.contains(arrival) || is_later
            });
            let is_cut = was_cut && *arrival >= saved.check.end;
            assert!(is_named || is_cut, "{what}: row {arrival} is lost: {findings:?}");
        }
        if kept.keys().any(|arrival| !self.live.contains_key(arrival)) {
            let is_said = findings.iter().any(|finding| finding.what.contains("may reappear"));
            assert!(is_said || was_cut, "{what}: rows are back: {findings:?}");
        }
        lost.len()
    }
}

/// The rows of the damaged directories of a test, together.
#[derive(Debug, Default)]
struct DamageCounts {
    damages: usize,
    saved_rows: usize,
    lost_rows: usize,
}

/// Damages each file of a directory of this kind at several places.
fn damage_everywhere(kind: &str, places: usize) {
    let seed = 14;
    let mut random = Random::new(seed);
    let directory = written(kind);
    let expected = Expected::of(&directory, kind);
    let mut counts = DamageCounts::default();
    for file in directory.files() {
        let mut used = fs::read(directory.0.join(&file)).unwrap();
        let end = used.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        used.truncate(end);
        for place in 0..places {
            let kinds = [
                FileDamage::Flip,
                FileDamage::Zeros,
                FileDamage::Noise,
                FileDamage::Cut,
                FileDamage::Removed,
            ];
            let kind_of_damage = kinds[place % kinds.len()];
            let offset = random.index(used.len().max(1));
            let what = format!(
                "seed {seed}, {kind}: {kind_of_damage:?} at byte {offset} of {}",
                file.display()
            );
            let copy = directory.linked_as(&format!("{kind}-damaged"));
            // A segment that was created ahead and has no record yet is not missed.
            let is_unused = used.len() <= 64 && file.starts_with("log");
            if used.is_empty()
                || (is_unused && matches!(kind_of_damage, FileDamage::Removed))
                || !damage(&copy.0.join(&file), &used, offset, kind_of_damage, &mut random)
            {
                continue;
            }
            counts.damages += 1;
            let found = check(&copy.0).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            let is_found = !found.is_whole() || !found.remarks.is_empty();
            assert!(is_found, "{what}: nothing was found");
            let target = TestDirectory::new(&format!("{kind}-target"));
            let saved = salvage(&copy.0, &target.0);
            let saved = saved.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            assert_eq!(saved.check.findings, found.findings, "{what}");
            let kept = stored(&target.0);
            counts.lost_rows += expected.check(&saved, &kept, &what);
            counts.saved_rows += kept.len();
            let result = check(&target.0).unwrap();
            assert!(result.is_whole(), "{what}: {result:?}");
        }
    }
    // Nothing of the damaged directories was changed, whose files are those of this one.
    assert!(check(&directory.0).unwrap().is_whole());
    assert_eq!(stored(&directory.0), expected.all);
    // A damaged directory may have lost rows that were deleted as well.
    assert!(counts.saved_rows + counts.lost_rows >= counts.damages * expected.live.len());
    assert!(counts.saved_rows > counts.lost_rows, "{kind}: {counts:?}");
}

#[test]
fn whatever_is_damaged_in_a_log_is_found_and_the_rest_is_saved() {
    damage_everywhere("log", 5);
}

#[test]
fn whatever_is_damaged_behind_a_checkpoint_is_found_and_the_rest_is_saved() {
    damage_everywhere("checkpoint", 5);
}

#[test]
fn whatever_is_damaged_in_a_backup_is_found_and_the_rest_is_saved() {
    damage_everywhere("backup", 5);
}

#[test]
#[ignore = "takes minutes; part of the nightly run"]
fn whatever_is_damaged_in_many_places_is_found_and_the_rest_is_saved() {
    ["log", "checkpoint", "backup"].iter().for_each(|kind| damage_everywhere(kind, 60));
}

#[test]
fn one_block_of_a_backup_costs_the_rows_of_one_block() {
    let directory = written("backup");
    let file = directory.files().into_iter().find(|file| file.starts_with("data")).unwrap();
    let path = directory.0.join(file);
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let target = TestDirectory::new("block-target");
    let saved = salvage(&directory.0, &target.0).unwrap();
    let table = saved.saved.iter().find(|table| table.name == "default.t").unwrap();
    // A block has 256 KiB, and a row of this test about 740 bytes.
    assert!((300..400).contains(&saved.rows_lost), "{saved:?}");
    assert_eq!((table.rows_lost, table.rows), (saved.rows_lost, 1_647 - saved.rows_lost));
    assert_eq!(saved.check.findings.len(), 1);
    let finding = &saved.check.findings[0];
    assert_eq!((finding.byte, finding.tables.as_slice()), (48, &["default.t".to_owned()][..]));
}

#[test]
fn without_a_manifest_the_rows_of_data_files_are_counted_and_not_assigned() {
    let directory = written("backup");
    fs::remove_file(directory.0.join("MANIFEST")).unwrap();
    let target = TestDirectory::new("no-manifest-target");
    let saved = salvage(&directory.0, &target.0).unwrap();
    assert_eq!(saved.rows_saved, 0);
    // Of the files and of the log, in which no CREATE is.
    assert_eq!(saved.rows_not_assignable, 1_628 + 20 + 20 + 40);
    assert!(check(&target.0).unwrap().is_whole());
}

/// Makes a change to a directory of each kind; what opening says then is true.
fn check_refused(change: impl Fn(&Path)) {
    for kind in ["log", "checkpoint", "backup"] {
        let directory = written(kind);
        change(&directory.0);
        let refused = Database::open(&directory.0).unwrap_err();
        assert_eq!(refused.code, code::DATA_CORRUPTED, "{kind}: {refused:?}");
        let hint = refused.hint.unwrap();
        assert!(hint.contains("`lockstep check`") && hint.contains("--salvage"), "{hint}");
        assert!(!check(&directory.0).unwrap().is_whole(), "{kind}");
        let target = TestDirectory::new("refused-target");
        salvage(&directory.0, &target.0).unwrap();
        assert!(check(&target.0).unwrap().is_whole(), "{kind}");
    }
}

#[test]
fn what_opening_refuses_is_listed_and_saved_as_its_hint_says() {
    check_refused(|path| fs::remove_file(path.join("MANIFEST")).unwrap());
    check_refused(|path| fs::remove_dir_all(path.join("log")).unwrap());
    check_refused(|path| fs::remove_dir_all(path.join("data")).unwrap());
    let other = TestDirectory::new("other");
    drop(Database::open(&other.0).unwrap());
    let first = fs::read(other.0.join("log/00000000000000000001.wal")).unwrap();
    check_refused(|path| {
        fs::write(path.join("log/00000000000000000001.wal"), &first).unwrap();
    });
}

#[test]
fn a_table_that_a_checkpoint_lists_twice_is_refused_and_found() {
    let directory = written("checkpoint");
    let access = Access::ReadWrite { new_id: [0; 16] };
    let opened = DatabaseDirectory::open(Arc::new(SystemDisk), &directory.0, access).unwrap();
    let manifest = opened.manifest();
    let mut body: serde_json::Value = serde_json::from_slice(&manifest.body).unwrap();
    let tables = body["tables"].as_array_mut().unwrap();
    let mut again = tables[0].clone();
    again["extents"] = serde_json::Value::Array(Vec::new());
    tables.push(again);
    let body = serde_json::to_vec(&body).unwrap();
    opened.commit(manifest.successor(manifest.position, manifest.files.clone(), body)).unwrap();
    drop(opened);
    let refused = Database::open(&directory.0).unwrap_err();
    assert_eq!(refused.code, code::DATA_CORRUPTED, "{refused:?}");
    assert!(refused.message.ends_with("a table is listed more than once"), "{refused:?}");
    let report = check(&directory.0).unwrap();
    assert!(report.findings.iter().any(|found| found.what.contains("is listed more than once")));
}

#[test]
fn what_is_no_target_and_what_is_no_database_is_refused() {
    let directory = written("log");
    let refuse = |target: &Path| {
        let refused = salvage(&directory.0, target).unwrap_err();
        assert_eq!(refused.code, code::DUPLICATE_FILE, "{refused:?}");
    };
    refuse(&directory.0);
    refuse(&directory.0.join("data/inner"));
    refuse(&directory.0.join("data/../inner"));
    refuse(directory.0.parent().unwrap());
    let full = TestDirectory::new("full");
    fs::create_dir(&full.0).unwrap();
    fs::write(full.0.join("file"), "text").unwrap();
    refuse(&full.0);
    assert_eq!(check(&full.0).unwrap_err().code, code::UNDEFINED_FILE);
    let _open = Database::open(&directory.0).unwrap();
    let error = check(&directory.0).unwrap_err();
    assert_eq!(error.code, code::DATABASE_IN_USE);
    assert!(error.message.contains(&std::process::id().to_string()), "{error:?}");
}

#[test]
fn foreign_files_and_leftovers_are_remarked_and_are_no_damage() {
    let directory = written("checkpoint");
    for name in ["notes.txt", "log/a.wal", "data/00000000000000000099.data"] {
        fs::write(directory.0.join(name), "text").unwrap();
    }
    let result = check(&directory.0).unwrap();
    assert!(result.is_whole(), "{result:?}");
    let remarks = result.remarks.join("\n");
    assert_eq!(result.remarks.len(), 3, "{remarks}");
    assert!(remarks.contains("notes.txt does not belong to the database"), "{remarks}");
    assert!(remarks.contains("data file 99 belongs to no checkpoint"), "{remarks}");
}
