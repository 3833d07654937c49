//! Steps run in a database, and what a database shows.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_engine::{
    Database, Diagnostic, Durability, OpenOptions, Output, Session, StorageTuning, TableBatches,
    code,
};
use lockstep_host::{Host, ManualClock, Threads, file::Disk};
use lockstep_sim::{SimulatedDisk, SimulatedRandom};

use super::workload::{FILES, START_MS, WorkloadAction, WorkloadStep};

/// Where the database is on the simulated disk.
pub const PATH: &str = "/db";

/// Bytes of a segment of the log, so small that many begin.
const SEGMENT_BYTES: u64 = 8 << 10;

/// A database and the clock of its rows.
#[derive(Debug)]
pub struct Run {
    database: Database,
    session: Session,
    offline: Session,
    clock: Arc<ManualClock>,
    is_durable: bool,
}

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepOutcome {
    /// It was acknowledged.
    Done,
    /// It was refused with this code and message, as it would be with any disk.
    Refused(String),
    /// The disk failed, with this code.
    Failed(String),
}

/// Returns what became of a statement.
fn outcome_of(ran: Result<Output, Box<Diagnostic>>) -> StepOutcome {
    match ran {
        Ok(_) => StepOutcome::Done,
        Err(error) if FAULTS.contains(&error.code) => StepOutcome::Failed(error.code.to_owned()),
        Err(error) => StepOutcome::Refused(format!("{}: {}", error.code, error.message)),
    }
}

/// The codes that a statement may fail with when the disk does.
const FAULTS: [&str; 3] = [code::LOG_STOPPED, code::DISK_FULL, code::IO_ERROR];

impl Run {
    /// Makes a database in memory.
    pub fn in_memory() -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        let database = Database::with_clock(Arc::<ManualClock>::clone(&clock));
        Self::of(database, clock, false)
    }

    /// Opens the database on a disk when its clock shows `now_ms`. Memory tables are read from the disk until they are
    /// loaded.
    pub fn open(disk: &SimulatedDisk, now_ms: i64) -> Result<Self, Box<Diagnostic>> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let clock = Arc::new(ManualClock::new(now_ms));
        let options = OpenOptions {
            host: Host {
                clock: Arc::<ManualClock>::clone(&clock),
                disk,
                random: Arc::new(SimulatedRandom::new(now_ms.unsigned_abs())),
                threads: Threads::None,
            },
            tuning: StorageTuning {
                segment_bytes: SEGMENT_BYTES,
                part_bytes: 1,
                ..StorageTuning::default()
            },
            ..OpenOptions::default()
        };
        let database = Database::open_with(Path::new(PATH), &options)?;
        Ok(Self::of(database, clock, true))
    }

    fn of(database: Database, clock: Arc<ManualClock>, is_durable: bool) -> Self {
        let (session, offline) = (database.session(), database.session());
        let set = offline.execute("SET @@execute_mode = 'offline'");
        set.expect("every engine has the mode");
        Self { database, session, offline, clock, is_durable }
    }

    /// Puts memory tables into memory that are read from the disk. Where it fails, they stay there.
    pub fn load(&self) {
        drop(self.database.load_tables());
    }

    /// Moves the clock.
    pub fn set_now_ms(&self, now_ms: i64) {
        debug_assert!(now_ms >= 0, "workloads are of this age");
        self.clock.set_ms(now_ms);
    }

    /// Runs a step.
    pub fn step(&self, step: &WorkloadStep) -> StepOutcome {
        let (session, sql) = match &step.action {
            WorkloadAction::AppendTables(rows) => return self.append_tables(rows, step.level),
            WorkloadAction::Advance { milliseconds } => {
                self.clock.advance_ms(*milliseconds);
                return StepOutcome::Done;
            }
            WorkloadAction::Execute(sql) => (&self.session, sql),
            WorkloadAction::ExecuteOffline(sql) => (&self.offline, sql),
        };
        if self.is_durable {
            let level = match step.level {
                Durability::Disk => "disk",
                Durability::Os => "os",
                Durability::Memory => "memory",
            };
            let set = session.execute(&format!("SET SESSION durability = '{level}'"));
            set.expect("a session's variable is no write");
        }
        let outcome = outcome_of(session.execute(sql));
        if step.is_checkpoint() {
            // One that fails changes nothing.
            drop(self.database.compact_disk_tables());
        }
        outcome
    }

    /// Appends the rows of queries to several tables at once.
    fn append_tables(&self, rows: &[(String, String)], level: Durability) -> StepOutcome {
        let batches = rows.iter().map(|(_, query)| self.session.execute(query));
        let batches: Vec<Output> = match batches.collect::<Result<_, _>>() {
            Ok(batches) => batches,
            Err(error) => return outcome_of(Err(error)),
        };
        let of_table = rows.iter().zip(&batches);
        let of_table = of_table
            .map(|((table, _), output)| TableBatches { table, batches: &output.batches })
            .collect::<Vec<_>>();
        outcome_of(self.session.append_tables(&of_table, Some(level)))
    }

    /// Closes the database.
    pub fn close(&self) -> Result<(), Box<Diagnostic>> {
        self.database.close()
    }

    /// Shows what is in the database, by the statements that [`shows`] lists: each with its answer.
    pub fn show(&self, tables: &[&str]) -> Vec<String> {
        let mut shown: Vec<String> =
            shows(tables).iter().map(|sql| answer(&self.session, sql)).collect();
        for table in tables {
            shown.push(answer(&self.offline, &format!("SELECT * FROM {table}")));
        }
        shown
    }
}

fn answer(session: &Session, sql: &str) -> String {
    match session.execute(sql) {
        Ok(output) => {
            let answer = format!("{sql}: {:?}", output.batches);
            // An automatic index has any free name.
            (0..9).fold(answer, |answer, at| answer.replace(&format!("\"auto_{at}\""), "\"auto\""))
        }
        Err(error) if error.code == code::INTERNAL_ERROR => {
            format!("{sql}: error {}: {}", error.code, error.message)
        }
        Err(error) => format!("{sql}: error {}", error.code),
    }
}

/// Lists statements that show all that the steps make.
fn shows(tables: &[&str]) -> Vec<String> {
    let mut shows = Vec::new();
    for table in tables {
        shows.push(format!("SELECT * FROM {table}"));
        shows.push(format!("SHOW CREATE TABLE {table}"));
        shows.push(format!("SHOW INDEXES FROM {table}"));
        shows.push(format!("CALL d{table} ('a', 2, 2.5, {START_MS})"));
        shows.push(format!("CALL e{table} ('a', 2, 2.5, {START_MS})"));
    }
    shows.extend(SHOWS.iter().map(|sql| (*sql).to_owned()));
    shows
}

const SHOWS: &[&str] = &[
    "SHOW DEPLOYMENTS",
    "SHOW DEPLOYMENT d",
    "SHOW CREATE PROCEDURE p",
    "SHOW TABLES",
    "SHOW DATABASES",
    "SHOW GLOBAL VARIABLES LIKE 'statement_timeout'",
    "SHOW USERS",
    "SHOW GRANTS FOR alice",
    "CALL d ('a', 1, 1.0, 2500)",
    "CALL e ('a', 2, 2.5, 2500)",
    "CALL f ('a', 9)",
];

/// A folder with the files that steps load, removed when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes the folder.
    pub fn new(name: &str) -> std::io::Result<Self> {
        let folder = format!("lockstep-{name}-{}", std::process::id());
        let folder = Self(std::env::temp_dir().join(folder));
        std::fs::create_dir_all(&folder.0)?;
        for (file, text) in FILES {
            std::fs::write(folder.0.join(file), text)?;
        }
        Ok(folder)
    }

    /// Returns its path.
    pub fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
