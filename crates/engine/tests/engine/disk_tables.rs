//! Disk tables in a directory: larger than memory, read only, checked, saved, copied, moved.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use arrow::{
    array::{AsArray as _, RecordBatch},
    compute::concat_batches,
    datatypes::Int64Type,
};
use lockstep_engine::{Database, OpenOptions, Session, check, code, salvage};

use crate::test_directory::TestDirectory;

impl TestDirectory {
    /// The data files.
    fn data(&self) -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(self.0.join("data")).expect("it is a database");
        entries.map(|entry| entry.expect("it is listed").path()).collect()
    }
}

fn run(session: &Session, statement: &str) {
    session.execute(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
}

/// What a query returns, as text.
fn shown(session: &Session, query: &str) -> String {
    let output = session.execute(query).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    format!("{:?}", output.batches)
}

/// The number that a query returns.
fn number(session: &Session, query: &str) -> i64 {
    let output = session.execute(query).expect("a query");
    output.batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

/// The lines of EXPLAIN ANALYZE that say what was measured, without the time.
fn measured(session: &Session, statement: &str) -> Vec<String> {
    let output =
        session.execute(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    let lines = output.batches[0].column(0).as_string::<i32>().iter().flatten();
    let measured = lines.skip_while(|line| !line.starts_with("measured"));
    measured.filter(|line| !line.contains("time: ")).map(|line| line.trim().to_owned()).collect()
}

/// Inserts rows with the numbers from `from` on, of seven keys.
fn insert(session: &Session, from: usize, rows: usize) {
    let text = "x".repeat(100);
    let row = |n: usize| format!("('k{}', {n}, '{n}{text}', {})", n % 7, 1_000 * (n % 911));
    let values: Vec<String> = (from..from + rows).map(row).collect();
    run(session, &format!("INSERT INTO t VALUES {}", values.join(", ")));
}

const CREATE: &str = "CREATE TABLE t (k STRING, n INT, s STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts))
    OPTIONS(storage_mode='disk')";
const DEPLOY: &str = "DEPLOY d AS SELECT k, count(n) OVER w AS c, sum(n) OVER w AS s FROM t
    WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 99 PRECEDING AND CURRENT ROW)";
const SHOWS: [&str; 4] = [
    "SELECT * FROM t",
    "SELECT k, count(n) OVER w AS c FROM t
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "CALL d ('k3', 1, 'x', 500000)",
    "SELECT k, count(*), sum(n), max(ts) FROM t GROUP BY k ORDER BY k",
];

/// The rows of each query, however they are split into batches.
fn all_shown(session: &Session) -> Vec<RecordBatch> {
    let rows = |query: &&str| {
        let output = session.execute(query).unwrap_or_else(|error| panic!("{query}: {error:?}"));
        let schema = output.batches.first().expect("there are rows").schema();
        concat_batches(&schema, &output.batches).expect("they have one schema")
    };
    SHOWS.iter().map(rows).collect()
}

#[test]
fn a_table_may_be_larger_than_the_memory_of_all_tables() {
    const ROWS: usize = 120_000;
    let directory = TestDirectory::new("larger");
    let session = directory.open();
    run(&session, CREATE);
    run(&session, "SET GLOBAL max_memory = '6MB'");
    for from in (0..ROWS).step_by(2_000) {
        insert(&session, from, 2_000);
    }
    let counted = shown(&session, "SELECT count(*) FROM t");
    assert!(counted.contains(&ROWS.to_string()), "{counted}");
    let used = session.execute("SELECT used_bytes FROM lockstep.memory").expect("it is shown");
    let used = format!("{:?}", used.batches);
    run(&session, DEPLOY);
    let before = all_shown(&session);
    let stored = shown(&session, "SELECT rows FROM lockstep.storage");
    assert!(stored.contains(&ROWS.to_string()), "{stored} {used}");
    drop(session);
    assert_eq!(all_shown(&directory.open()), before);
}

#[test]
fn changes_after_a_checkpoint_are_there_for_who_only_reads() {
    let directory = TestDirectory::new("read-only");
    let session = directory.open();
    run(&session, CREATE);
    insert(&session, 0, 500);
    run(&session, "CHECKPOINT");
    run(&session, DEPLOY);
    run(&session, "CREATE INDEX i ON t (n) OPTIONS (ts=ts)");
    run(&session, "DELETE FROM t WHERE k = 'k5'");
    insert(&session, 500, 20);
    let before = all_shown(&session);
    drop(session);
    assert_eq!(all_shown(&directory.open_to_read()), before);
    assert_eq!(all_shown(&directory.open_to_read()), before, "and again");
    let found = check(&directory.0).expect("it can be checked");
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    assert_eq!(all_shown(&directory.open()), before);
}

#[test]
fn explain_analyze_says_what_was_read() {
    let directory = TestDirectory::new("analyze");
    let session = directory.open();
    run(&session, CREATE);
    insert(&session, 0, 2_000);
    run(&session, DEPLOY);
    let call = "EXPLAIN ANALYZE CALL d ('k3', 1, 'x', 500000)";
    let in_memory =
        ["pages found in the page cache: 0", "blocks read from files of tables: 0 (0 bytes)"];
    assert_eq!(measured(&session, call)[2..], in_memory);
    run(&session, "CHECKPOINT");
    let first = measured(&session, call);
    assert_eq!(
        first[..3],
        ["measured in request mode", "rows: 1", "pages found in the page cache: 0"]
    );
    assert!(!first[3].contains(" 0 ("), "{first:?}");
    // Now they are in the page cache.
    let second = measured(&session, call);
    assert!(!second[2].ends_with(" 0"), "{second:?}");
    assert_eq!(second[3], in_memory[1]);
    let query = "SELECT k, count(n) OVER w AS c FROM t
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)";
    let request =
        "CONFIG(execute_mode='request', values=[('k3', 1, 'x', 500000), ('k4', 1, 'x', 0)])";
    let requests = measured(&session, &format!("EXPLAIN ANALYZE {query} {request}"));
    assert_eq!(requests[..2], ["measured in request mode", "rows: 2"]);
    let batch = measured(&session, &format!("EXPLAIN ANALYZE {query}"));
    assert_eq!(batch[..2], ["measured in batch mode", "rows: 2000"]);
    assert!(!batch[3].contains(" 0 ("), "{batch:?}");
    // Nothing is kept of what it does, and nothing is written.
    let outfile = directory.0.join("rows.csv");
    let written = format!("EXPLAIN ANALYZE SELECT k FROM t INTO OUTFILE '{}'", outfile.display());
    assert_eq!(session.execute(&written).unwrap_err().code, code::FEATURE_NOT_SUPPORTED);
    assert!(!outfile.exists());
    run(&session, "SET @@execute_mode = 'offline'");
    assert_eq!(
        session.execute("EXPLAIN ANALYZE SELECT 1").unwrap_err().code,
        code::FEATURE_NOT_SUPPORTED
    );
}

#[test]
fn conditions_on_times_leave_out_blocks_and_a_limit_ends_the_reading() {
    let directory = TestDirectory::new("times");
    let session = directory.open();
    run(
        &session,
        "CREATE TABLE t (n INT, s STRING, ts TIMESTAMP, INDEX(KEY=n, TS=ts))
        OPTIONS(storage_mode='disk')",
    );
    let text = "x".repeat(400);
    for from in (0..8_000).step_by(1_000) {
        let row = |n: i64| format!("({n}, '{text}', {})", 1_000 * n);
        let values: Vec<String> = (from..from + 1_000).map(row).collect();
        run(&session, &format!("INSERT INTO t VALUES {}", values.join(", ")));
    }
    run(&session, "CHECKPOINT");
    let blocks = |query: &str| -> u64 {
        let measured = measured(&session, &format!("EXPLAIN ANALYZE {query}"));
        let (_, read) = measured[3].split_once(": ").expect("the number of blocks");
        read.split(' ').next().and_then(|count| count.parse().ok()).expect("a number")
    };
    let all = blocks("SELECT count(s) FROM t");
    assert!(all > 8, "{all} blocks");
    let late = "SELECT count(s) FROM t WHERE ts > '1970-01-01 02:10:00'";
    assert_eq!((blocks(late), number(&session, late)), (1, 199));
    let some = "SELECT count(s) FROM t WHERE ts >= '1970-01-01 01:00:00' \
                AND ts < '1970-01-01 01:01:00' AND s IS NOT NULL";
    assert_eq!(number(&session, some), 60);
    assert!(blocks(some) <= 2);
    let none = "SELECT count(s) FROM t WHERE ts > '1999-01-01 00:00:00'";
    assert_eq!((blocks(none), number(&session, none)), (0, 0));
    assert!(blocks("SELECT * FROM t LIMIT 5") < all);
}

#[test]
fn an_estimate_of_stored_rows_is_that_of_their_files() {
    let directory = TestDirectory::new("estimate");
    let session = directory.open();
    run(&session, CREATE);
    assert_eq!(session.execute("ESTIMATE TABLE t").unwrap_err().code, code::INVALID_PARAMETER);
    for from in (0..40_000).step_by(2_000) {
        insert(&session, from, 2_000);
    }
    run(&session, "CHECKPOINT");
    let on_disk = number(&session, "SELECT file_bytes FROM lockstep.storage");
    let memory = number(&session, "SELECT memory_bytes FROM lockstep.storage");
    let estimate = session.execute("ESTIMATE TABLE t").expect("there are rows");
    let of_table = |column: usize| {
        let values = estimate.batches[0].column(column).as_primitive::<Int64Type>();
        (values.value(0), values.value(1) + values.value(2))
    };
    for (column, taken) in [(4, on_disk), (5, memory)] {
        let (estimated, sum) = of_table(column);
        assert_eq!(estimated, sum);
        assert!(estimated.abs_diff(taken) * 10 <= taken.unsigned_abs(), "{estimated} for {taken}");
    }
    run(&session, "ALTER TABLE t SET OPTIONS(storage_mode='memory')");
    let in_memory = session.execute("ESTIMATE TABLE t").expect("there are rows");
    assert_eq!(in_memory.batches, estimate.batches, "both modes are estimated in either");
}

#[test]
fn a_table_moves_between_memory_and_disk_and_a_copy_has_its_rows() {
    let directory = TestDirectory::new("moved");
    let session = directory.open();
    run(&session, CREATE);
    run(&session, DEPLOY);
    insert(&session, 0, 300);
    run(&session, "CHECKPOINT");
    insert(&session, 300, 300);
    let before = all_shown(&session);
    let copy = TestDirectory::new("copy");
    run(&session, &format!("BACKUP TO '{}'", copy.0.display()));
    assert_eq!(all_shown(&copy.open()), before);
    for mode in ["memory", "disk", "ssd", "memory", "disk"] {
        run(&session, &format!("ALTER TABLE t SET OPTIONS(storage_mode='{mode}')"));
        assert_eq!(all_shown(&session), before, "{mode}");
        run(&session, "CHECKPOINT");
        assert_eq!(all_shown(&session), before, "{mode}, flushed");
    }
    drop(session);
    assert_eq!(all_shown(&directory.open()), before);
}

/// Flips a bit in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).expect("it can be written");
}

#[test]
fn a_damaged_file_fails_who_needs_it_and_salvage_keeps_the_rows_of_the_others() {
    let directory = TestDirectory::new("damaged");
    let session = directory.open();
    run(&session, CREATE);
    run(&session, &DEPLOY.replace("99 PRECEDING", "99999 PRECEDING"));
    insert(&session, 0, 3_000);
    run(&session, "CHECKPOINT");
    let before = shown(&session, SHOWS[0]);
    let mut reads: Vec<String> = SHOWS.map(str::to_owned).to_vec();
    reads.extend((0..7).map(|key| format!("CALL d ('k{key}', 1, 'x', 999000)")));
    drop(session);
    let files = directory.data();
    assert!(files.len() >= 2, "an extent and a run: {files:?}");
    let mut salvaged = 0;
    for file in &files {
        let whole = fs::read(file).expect("it is there");
        flip(file);
        let found = check(&directory.0).expect("it can be checked");
        assert!(!found.findings.is_empty(), "{file:?}");
        assert!(found.findings.iter().all(|finding| finding.tables == ["default.t"]));
        let target = TestDirectory::new("salvaged");
        let saved = salvage(&directory.0, &target.0).expect("it is saved");
        if saved.rows_lost == 0 {
            salvaged += 1;
            assert_eq!(shown(&target.open(), SHOWS[0]), before, "{file:?}");
        }
        // Who does not need the page goes on; who does has an error that says where.
        let reader = directory.open_to_read();
        let outcomes: Vec<_> =
            reads.iter().map(|query| reader.execute(query).map(|_| ())).collect();
        for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            assert_eq!(error.code, "XX001", "{error:?}");
            assert!(error.message.contains("offset"), "{error:?}");
        }
        assert!(outcomes.iter().any(Result::is_err), "{file:?}");
        drop(reader);
        fs::write(file, whole).expect("it can be written");
    }
    assert!(salvaged >= 1, "runs have the rows of extents once more");
    assert_eq!(shown(&directory.open(), SHOWS[0]), before);
}

#[test]
fn an_index_that_was_built_is_listed_soon() {
    let directory = TestDirectory::new("listed");
    let session = directory.open();
    run(&session, CREATE);
    for from in (0..70_000).step_by(10_000) {
        insert(&session, from, 10_000);
    }
    run(&session, "CHECKPOINT");
    let manifest = || fs::read(directory.0.join("MANIFEST")).expect("it is there");
    let before = manifest();
    run(&session, "CREATE INDEX i ON t (n) OPTIONS (ts=ts)");
    let is_listed = || {
        lockstep_host::pause(1);
        manifest() != before
    };
    assert!((0..20_000).any(|_| is_listed()), "a checkpoint follows");
    assert_eq!(number(&session, "SELECT count(*) FROM t WHERE n = 12345"), 1);
}

/// Every so many bytes of a file a bit is flipped, so that each of its blocks has one.
const BYTES_PER_FLIP: usize = 2_039;

#[test]
fn a_flipped_bit_in_any_block_is_found_and_is_in_no_answer() {
    let directory = TestDirectory::new("flipped");
    let session = directory.open();
    run(&session, CREATE);
    run(&session, &DEPLOY.replace("99 PRECEDING", "99999 PRECEDING"));
    for from in [0, 700] {
        insert(&session, from, 700);
        run(&session, "CHECKPOINT");
    }
    let mut reads: Vec<String> = SHOWS.map(str::to_owned).to_vec();
    reads.extend((0..7).map(|key| format!("CALL d ('k{key}', 1, 'x', 999000)")));
    let expected: Vec<String> = reads.iter().map(|query| shown(&session, query)).collect();
    drop(session);
    let (mut flips, mut errors, mut unopened) = (0, 0, 0);
    for file in directory.data() {
        let whole = fs::read(&file).expect("it is there");
        for at in (0..whole.len()).step_by(BYTES_PER_FLIP).chain([whole.len() - 1]) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&file, bytes).expect("it can be written");
            flips += 1;
            let found = check(&directory.0).expect("it can be checked");
            assert!(!found.findings.is_empty(), "byte {at} of {file:?}");
            let options = OpenOptions { read_only: true, ..OpenOptions::default() };
            let reader = match Database::open_with(&directory.0, &options) {
                Ok(database) => database.session(),
                Err(error) => {
                    assert_eq!(error.code, "XX001", "byte {at} of {file:?}: {error:?}");
                    unopened += 1;
                    continue;
                }
            };
            for (query, expected) in reads.iter().zip(&expected) {
                match reader.execute(query) {
                    Ok(output) => {
                        let found = format!("{:?}", output.batches);
                        assert_eq!(found, *expected, "{query}: byte {at} of {file:?}");
                    }
                    Err(error) => {
                        assert_eq!(error.code, "XX001", "byte {at} of {file:?}: {error:?}");
                        errors += 1;
                    }
                }
            }
        }
        fs::write(&file, whole).expect("it can be written");
    }
    assert!(flips > 150 && errors + unopened > flips, "{flips}, {errors}, {unopened}");
}
