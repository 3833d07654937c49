//! One system of M9, in a process of its own.
//!
//! Lockstep, DuckDB and the hand-written loop are this program with `--training-step` and a JSON object;
//! Polars and Spark are Python programs with the same conversation, which `measured_process` describes.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use lockstep_engine::Database;
use lockstep_host::{Clock, SystemClock, disk};
use serde_json::{Value as Json, json};

use super::{
    baseline::M9Rows,
    flights,
    shape::{QueryDialect, TrainingShape, frame_ms},
};
use crate::{
    error::{Error, Result, Trying},
    measured_process::{MeasuredProcess, ProcessFigures, work},
    peer::{SqlPeer as _, duckdb::DuckDb, install::python_program},
};

/// The bytes for each row that a query over files may use: fewer than eight columns take.
const LIMIT_PER_ROW: u64 = 40;
/// It may use at least so many bytes.
const LIMIT_MIN: u64 = 32 << 20;
/// Peers are measured with at most so many rows.
const PEER_ROWS_MAX: u64 = 10_000_000;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrainingSystem {
    Lockstep,
    /// Rows that stay in files, with less memory than they take.
    LockstepLimited,
    SpeedOfLight,
    DuckDb,
    Polars,
    Spark,
}

impl TrainingSystem {
    const ALL: [Self; 6] = [
        Self::Lockstep,
        Self::LockstepLimited,
        Self::SpeedOfLight,
        Self::DuckDb,
        Self::Polars,
        Self::Spark,
    ];

    /// Returns its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lockstep => "lockstep",
            Self::LockstepLimited => "lockstep_limited",
            Self::SpeedOfLight => "speed_of_light",
            Self::DuckDb => "duckdb",
            Self::Polars => "polars",
            Self::Spark => "spark",
        }
    }

    /// Whether it can do this in minutes. Spark has no point-in-time join, and adds all rows of each frame
    /// anew, which 80 % of the rows in one key make a quadratic number; the loop is for windows of one
    /// frame. The wide query is beside DuckDB only, the flights are Lockstep's. Peers take part up to as
    /// many rows as they do in minutes; the result of the wide query of more would not fit the disk.
    pub(super) fn has(self, shape: TrainingShape, rows: u64) -> bool {
        let is_own = matches!(self, Self::Lockstep | Self::LockstepLimited | Self::SpeedOfLight);
        if rows > PEER_ROWS_MAX && (!is_own || shape == TrainingShape::Wide) {
            return false;
        }
        match shape {
            TrainingShape::Joins => !matches!(self, Self::Spark | Self::SpeedOfLight),
            TrainingShape::Skew => self != Self::Spark,
            TrainingShape::Wide => {
                matches!(self, Self::Lockstep | Self::LockstepLimited | Self::DuckDb)
            }
            TrainingShape::Flights => self == Self::Lockstep,
            TrainingShape::OneWindow | TrainingShape::FourWindows => true,
        }
    }

    /// Returns its program, where it is one of Python, with the environment that has its package.
    fn python(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Polars => Some(("polars", include_str!("polars_step.py"))),
            Self::Spark => Some(("pyspark", include_str!("spark_step.py"))),
            _ => None,
        }
    }
}

/// A system with what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrainingStep {
    pub(super) system: TrainingSystem,
    pub(super) shape: TrainingShape,
    pub(super) rows: u64,
    /// The folder of the files with the rows.
    pub(super) source: PathBuf,
}

/// A system that has its rows.
pub(super) enum TrainingTables {
    Lockstep { database: Database, query: String, memory_limit: Option<u64> },
    DuckDb { database: Box<DuckDb>, query: String },
    SpeedOfLight(M9Rows),
}

impl TrainingStep {
    pub(super) fn to_json(&self) -> Json {
        json!({ "system": self.system.name(), "shape": self.shape.name(), "rows": self.rows,
            "source": self.source, "keys": self.shape.keys(), "frame_ms": frame_ms(self.rows) })
    }

    pub(super) fn of_text(text: &str) -> Option<Self> {
        let json: Json = serde_json::from_str(text).ok()?;
        let system = json["system"].as_str()?;
        let shape = json["shape"].as_str()?;
        Some(Self {
            system: TrainingSystem::ALL.into_iter().find(|one| one.name() == system)?,
            shape: TrainingShape::of_name(shape)?,
            rows: json["rows"].as_u64()?,
            source: json["source"].as_str()?.into(),
        })
    }

    /// Measures the work in a process of its own, which writes the training set to a file.
    pub(super) fn perform(&self, target: &Path) -> Result<ProcessFigures> {
        let mut json = self.to_json();
        json["target"] = json!(target);
        let mut command = match self.system.python() {
            None => {
                let program = std::env::current_exe().trying(|| "find this program".to_owned())?;
                let mut command = Command::new(program);
                command.arg("--training-step");
                command
            }
            Some((environment, text)) => {
                let script = self.source.join(format!("{environment}_step.py"));
                let written =
                    disk::create(&script).and_then(|mut file| file.write_all(text.as_bytes()));
                written.trying(|| format!("write {}", script.display()))?;
                let mut command = Command::new(python_program(environment));
                command.arg(script);
                command
            }
        };
        MeasuredProcess::start(command.arg(json.to_string()))?.measure()
    }

    /// Fills a system in this process.
    pub(super) fn fill(&self) -> Result<TrainingTables> {
        let names = match self.shape.has_joins() {
            true => ["t", "r1", "r2"].as_slice(),
            false => ["t"].as_slice(),
        };
        let file = |name: &str| self.source.join(format!("{name}.parquet")).display().to_string();
        let create = |name: &&str| format!("CREATE TABLE {name} AS SELECT * FROM '{}'", file(name));
        let script = names.iter().map(create).collect::<Vec<_>>();
        match self.system {
            TrainingSystem::Lockstep => {
                let database = Database::in_memory();
                let session = database.session();
                session.execute("CREATE DATABASE d; USE d")?;
                match self.shape {
                    TrainingShape::Flights => flights::fill(&session, &self.source)?,
                    _ => drop(session.execute(&script.join("; "))?),
                }
                let query = self.shape.query(QueryDialect::Lockstep, self.rows);
                Ok(TrainingTables::Lockstep { database, query, memory_limit: None })
            }
            TrainingSystem::LockstepLimited => {
                let database = Database::in_memory();
                database.session().execute("CREATE DATABASE d")?;
                let mut query = self.shape.query(QueryDialect::Lockstep, self.rows);
                for name in names {
                    for before in ["FROM", "LAST JOIN"] {
                        let of_file = format!("{before} '{}' AS {name} ", file(name));
                        query = query.replace(&format!("{before} {name} "), &of_file);
                    }
                }
                let memory_limit = Some((self.rows * LIMIT_PER_ROW).max(LIMIT_MIN));
                Ok(TrainingTables::Lockstep { database, query, memory_limit })
            }
            TrainingSystem::DuckDb => {
                let database = Box::new(DuckDb::open_at(None)?);
                let mut client = database.connect()?;
                for statement in &script {
                    client.execute(statement)?;
                }
                drop(client);
                let query = self.shape.query(QueryDialect::DuckDb, self.rows);
                Ok(TrainingTables::DuckDb { database, query })
            }
            TrainingSystem::SpeedOfLight => {
                let rows = M9Rows::read(&file("t"), self.shape.keys(), frame_ms(self.rows))?;
                Ok(TrainingTables::SpeedOfLight(rows))
            }
            TrainingSystem::Polars | TrainingSystem::Spark => {
                let message = format!("{} runs in Python", self.system.name());
                Err(Error::Page { message })
            }
        }
    }
}

impl TrainingTables {
    /// Writes the training set to a Parquet file.
    pub(super) fn write(&self, target: &Path) -> Result<()> {
        let target = target.display();
        match self {
            Self::Lockstep { database, query, memory_limit } => {
                let session = database.session();
                if let Some(bytes) = memory_limit {
                    session.execute(&format!("SET memory_limit = '{}MB'", bytes >> 20))?;
                }
                let options = "OPTIONS(format = 'parquet', mode = 'overwrite')";
                session.execute("USE d")?;
                session.execute(&format!("{query} INTO OUTFILE '{target}' {options}"))?;
                Ok(())
            }
            Self::DuckDb { database, query } => {
                let copy =
                    format!("COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION snappy)");
                database.connect()?.execute(&copy)?;
                Ok(())
            }
            Self::SpeedOfLight(rows) => rows.write(&target.to_string()),
        }
    }
}

/// Does the step of the command line.
pub(crate) fn run_step(text: &str) -> Result<()> {
    let refused = || Error::Page { message: format!("unrecognized step of M9: {text}") };
    let step = TrainingStep::of_text(text).ok_or_else(refused)?;
    let json: Json = serde_json::from_str(text).map_err(|_error| refused())?;
    let target = PathBuf::from(json["target"].as_str().ok_or_else(refused)?);
    let filled = step.fill()?;
    work(|| {
        let clock = SystemClock::new();
        filled.write(&target)?;
        Ok(json!({ "ms": clock.monotonic_ns() as f64 / 1e6 }))
    })
}
