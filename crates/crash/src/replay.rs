//! Drawn statements on a directory in one process: after it was opened again, everything is as before.
//!
//! The same operations go to a database in memory, which is to have the same all the time.

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use lockstep_engine::{Database, Session, set_chunk_rows, set_disk_tuning};
use lockstep_testkit::random::Random;

use crate::{
    child::{ChildOptions, disk_tuning, open},
    difference::{Violation, ViolationKind, compare},
    kill::moved_rows,
    model::{BEGIN_MS, ModelDatabase},
    objects::create_shared,
    observation::Observation,
    operation::is_done,
    report::Report,
    scripts,
    workload::Writer,
};

/// The most operations between two openings.
const OPERATIONS_MAX: usize = 40;
/// The most times that a directory is opened again.
const OPENINGS_MAX: usize = 2;
const HOUR_MS: i64 = 3_600_000;

/// What is run.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// Where directories are made.
    pub directory: PathBuf,
    /// The number of cases.
    pub cases: u64,
    /// What everything is drawn from.
    pub seed: u64,
    /// Whether the run ends with the first violation.
    pub stops_early: bool,
}

/// Runs cases. The directory of a case with a violation is kept.
pub fn run(options: &ReplayOptions) -> Report {
    let mut report = Report::default();
    let mut random = Random::new(options.seed);
    for case in 0..options.cases {
        let seed = random.number();
        let path = options.directory.join(format!("{seed:016x}"));
        remove(&path);
        let before = report.violation_count();
        Case::new(&path, seed, &mut report).run(case);
        set_chunk_rows(usize::MAX);
        if report.violation_count() == before {
            remove(&path);
        } else if options.stops_early {
            break;
        }
    }
    report
}

/// Removes a directory and its files.
fn remove(path: &Path) {
    let _absent = fs::remove_dir_all(path);
    let _absent = fs::remove_dir_all(path.with_extension("files"));
}

/// A case: one directory.
struct Case<'a> {
    report: &'a mut Report,
    random: Random,
    path: PathBuf,
    seed: u64,
    writer: Writer,
    model: ModelDatabase,
    options: ChildOptions,
    /// What was done, for who looks at a violation.
    history: String,
}

impl<'a> Case<'a> {
    fn new(path: &Path, seed: u64, report: &'a mut Report) -> Self {
        let mut random = Random::new(seed);
        let options = ChildOptions {
            now_ms: BEGIN_MS,
            segment_bytes: *random.pick(&[4 << 10, 64 << 10, 1 << 20]),
            part_bytes: *random.pick(&[500, 64 << 20]),
            chunk_rows: *random.pick(&[1, 2, 5, 128]),
            writers: 1,
            ..ChildOptions::default()
        };
        set_chunk_rows(options.chunk_rows);
        set_disk_tuning(disk_tuning(options.chunk_rows));
        let files = path.with_extension("files");
        fs::create_dir_all(&files).expect("the folder of directories is writable");
        let (writer, model) = (Writer::new(0, files), ModelDatabase::new(1));
        report.directories += 1;
        let (path, history) = (path.to_owned(), String::new());
        Self { report, random, path, seed, writer, model, options, history }
    }

    fn run(mut self, case: u64) {
        let Some(mut database) = self.open(case) else { return };
        let session = database.session();
        for sql in create_shared() {
            let action = crate::operation::Action::Script(sql);
            let done = action.run(&session);
            assert!(is_done(&done), "{done}");
            self.model.create(&action);
        }
        drop(session);
        for _ in 0..=self.random.below(OPENINGS_MAX) {
            self.report.cycles += 1;
            let session = database.session();
            if self.random.chance(80) {
                // Nothing is killed, and much is faster.
                session.execute("SET durability = 'memory'").expect("it is a level");
            }
            self.operate(&session, case);
            drop(session);
            let before = self.observe(&database);
            let expected = self.model.observe();
            self.compare(&expected, &before, &format!("case {case}, before"));
            if self.random.chance(50) {
                database.close().expect("a directory closes");
                self.report.closed += 1;
            }
            drop(database);
            self.advance();
            let Some(opened) = self.open(case) else { return };
            database = opened;
            let after = self.observe(&database);
            let expected = self.model.observe();
            self.compare(&expected, &after, &format!("case {case}, after"));
            let moved = moved_rows(&before, &after, &BTreeSet::new());
            self.add(moved, &format!("case {case}, after"));
        }
        self.add(scripts::check(&database), &format!("case {case}, scripts"));
    }

    /// Runs operations on the directory and in memory.
    fn operate(&mut self, session: &Session, case: u64) {
        self.writer.now_ms = self.options.now_ms;
        for _ in 0..self.random.below(OPERATIONS_MAX) {
            let before = self.writer.objects.clone();
            let operation = self.writer.draw(&mut self.random);
            let found = operation.action.run(session);
            writeln!(self.history, "{:?} -> {found}", operation.action).expect("it is a string");
            let count = self.report.operation(operation.kind);
            count.drawn += 1;
            count.acknowledged += 1;
            if !is_done(&found) {
                self.writer.objects = before;
            }
            if let Some(path) = operation.action.backup().filter(|_| is_done(&found)) {
                self.compare_backup(path, case);
            }
            let Some(expected) = self.model.run(0, &operation) else { continue };
            if found != expected {
                let what = format!("{:?}: expected {expected}, found {found}", operation.action);
                self.add(
                    vec![Violation::new(ViolationKind::Outcome, what)],
                    &format!("case {case}"),
                );
            }
        }
    }

    /// Compares a backup with the database in memory, which has the same.
    fn compare_backup(&mut self, path: &str, case: u64) {
        let place = format!("case {case}, backup");
        match open(Path::new(path), &self.options) {
            Ok(backup) => {
                let (found, expected) = (self.observe(&backup), self.model.observe());
                self.compare(&expected, &found, &place);
            }
            Err(error) => {
                let what = format!("the backup does not open: {error}");
                self.add(vec![Violation::new(ViolationKind::Failure, what)], &place);
            }
        }
    }

    /// Lets time pass while the directory is closed.
    fn advance(&mut self) {
        let hours = i64::try_from(self.random.below(4)).expect("it is small");
        self.options.now_ms += hours * HOUR_MS;
        self.model.reopen(1, self.options.now_ms);
    }

    fn open(&mut self, case: u64) -> Option<Database> {
        writeln!(self.history, "opened at {}", self.options.now_ms).expect("it is a string");
        match open(&self.path, &self.options) {
            Ok(database) => {
                self.report.rows_read += database.opened().map_or(0, |opened| opened.rows);
                Some(database)
            }
            Err(error) => {
                let what = format!("the directory does not open: {error}");
                let violation = Violation::new(ViolationKind::Failure, what);
                self.add(vec![violation], &format!("case {case}"));
                None
            }
        }
    }

    fn observe(&mut self, database: &Database) -> Observation {
        let found = Observation::of(database, 1, self.options.now_ms);
        self.report.texts_compared += u64::try_from(found.texts.len()).expect("they are few");
        let rows: usize = found.arrivals.values().map(Vec::len).sum();
        self.report.rows_compared += u64::try_from(rows).expect("they are few");
        found
    }

    fn compare(&mut self, expected: &Observation, found: &Observation, place: &str) {
        let violations = compare(expected, found);
        self.add(violations, place);
    }

    fn add(&mut self, violations: Vec<Violation>, place: &str) {
        if !violations.is_empty() {
            let written = fs::write(self.path.with_extension("operations"), &self.history);
            written.expect("the folder of directories is writable");
        }
        let place = format!("seed {:016x}, {place}", self.seed);
        self.report.add(violations, &place);
    }
}
