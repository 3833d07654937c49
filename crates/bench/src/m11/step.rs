//! Steps of M11 that run in a process of their own, which is killed: what Lockstep and DuckDB, which
//! run in process, do before and after the crash.
//!
//! A step is this program with `--restart-step` and a JSON object. It prints a line when it is done, another one
//! when all rows are in memory, and then waits to be killed.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
};

use lockstep_engine::Database;
use lockstep_host::{Clock, SystemClock};
use serde_json::{Value as Json, json};

use super::{
    RestartPart, duckdb, lockstep,
    rows::{RestartRows, RowShape},
};
use crate::{
    error::{Error, Result, Trying},
    peer::duckdb::DuckDb,
    suite::say,
};

/// How often a step looks whether all rows are in memory.
const LOOK_MS: u32 = 1;

/// What a step has opened.
pub(super) enum OpenedSystem {
    Lockstep(Database),
    /// It is open as long as this is there.
    DuckDb(#[expect(dead_code, reason = "it is dropped at the end")] Box<DuckDb>),
}

/// A system that runs in process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmbeddedSystem {
    /// Lockstep.
    Lockstep,
    /// DuckDB.
    DuckDb,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepAction {
    /// Fills an empty directory.
    Load,
    /// Opens it and gives the first answer.
    Open,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RestartStep {
    pub(super) system: EmbeddedSystem,
    pub(super) action: StepAction,
    pub(super) part: RestartPart,
    pub(super) rows: RestartRows,
    pub(super) directory: PathBuf,
}

/// What a step has found.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RestartStepResult {
    /// How long it took until the database was open; 0 after loading.
    pub(super) open_ms: f64,
    /// The rows of the last key.
    pub(super) rows_of_a_key: u64,
}

impl RestartStep {
    fn to_json(&self) -> Json {
        let system = match self.system {
            EmbeddedSystem::Lockstep => "lockstep",
            EmbeddedSystem::DuckDb => "duckdb",
        };
        json!({
            "system": system, "loads": self.action == StepAction::Load, "part": self.part.name(),
            "shape": self.rows.shape.name(), "rows": self.rows.count,
            "directory": self.directory.display().to_string(),
        })
    }

    fn of_text(text: &str) -> Option<Self> {
        let json: Json = serde_json::from_str(text).ok()?;
        let system = match json["system"].as_str()? {
            "lockstep" => EmbeddedSystem::Lockstep,
            _ => EmbeddedSystem::DuckDb,
        };
        let loads = json["loads"].as_bool()?;
        let shape = RowShape::named(json["shape"].as_str()?)?;
        let count = usize::try_from(json["rows"].as_u64()?).ok()?;
        Some(Self {
            system,
            action: if loads { StepAction::Load } else { StepAction::Open },
            part: RestartPart::named(json["part"].as_str()?)?,
            rows: RestartRows { shape, count },
            directory: Path::new(json["directory"].as_str()?).to_owned(),
        })
    }

    /// Does the step in this process. What it opened stays open until the returned value is dropped.
    pub(super) fn perform(&self) -> Result<(RestartStepResult, OpenedSystem)> {
        match (self.system, self.action) {
            (EmbeddedSystem::Lockstep, StepAction::Load) => {
                let loaded = lockstep::load(&self.directory, self.rows, self.part)?;
                Ok((RestartStepResult::default(), OpenedSystem::Lockstep(loaded)))
            }
            (EmbeddedSystem::Lockstep, StepAction::Open) => {
                let (found, opened) = lockstep::open(&self.directory, self.rows)?;
                Ok((found, OpenedSystem::Lockstep(opened)))
            }
            (EmbeddedSystem::DuckDb, StepAction::Load) => {
                let loaded = duckdb::load(&self.directory, self.rows)?;
                Ok((RestartStepResult::default(), OpenedSystem::DuckDb(Box::new(loaded))))
            }
            (EmbeddedSystem::DuckDb, StepAction::Open) => {
                let (found, opened) = duckdb::open(&self.directory, self.rows)?;
                Ok((found, OpenedSystem::DuckDb(Box::new(opened))))
            }
        }
    }

    /// Does the step in a process of its own and kills that process when all rows are in memory. Returns what it
    /// found, and the times from its start until it had and until then, in milliseconds.
    pub(super) fn perform_and_kill(&self) -> Result<(RestartStepResult, f64, f64)> {
        let clock = SystemClock::new();
        let program = std::env::current_exe().trying(|| "find this program".to_owned())?;
        let mut command = Command::new(program);
        command.arg("--restart-step").arg(self.to_json().to_string());
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.trying(|| "start a step".to_owned())?;
        let mut output = process.stdout.take().map(BufReader::new);
        let line = next_line(output.as_mut());
        let ms = clock.monotonic_ns() as f64 / 1e6;
        let loaded = next_line(output.as_mut());
        let loaded_ms = clock.monotonic_ns() as f64 / 1e6;
        // SIGKILL. A step that failed has ended by itself.
        drop(process.kill());
        process.wait().trying(|| "wait for the end of a step".to_owned())?;
        let json: Option<Json> = serde_json::from_str(&line?).ok();
        let json = json.filter(|_| loaded.is_ok_and(|line| !line.is_empty()));
        let json = json.ok_or(Error::Idle { what: "a step of M11 failed" })?;
        let open_ms = json["open_ms"].as_f64().unwrap_or_default();
        let rows_of_a_key = json["rows_of_a_key"].as_u64().unwrap_or_default();
        Ok((RestartStepResult { open_ms, rows_of_a_key }, ms, loaded_ms))
    }
}

fn next_line(output: Option<&mut BufReader<ChildStdout>>) -> Result<String> {
    let mut line = String::new();
    if let Some(output) = output {
        let read = output.read_line(&mut line);
        read.trying(|| "read the result of a step".to_owned())?;
    }
    Ok(line)
}

impl OpenedSystem {
    /// Waits until all rows are in memory that are to be there.
    fn wait_until_loaded(&self) {
        match self {
            Self::Lockstep(database) => {
                while database.rows_to_load() > 0 {
                    lockstep_host::pause(LOOK_MS);
                }
            }
            Self::DuckDb(_) => {}
        }
    }
}

/// Does the step of the command line, prints what it found, and waits until the process is killed or
/// the process that started it has ended.
pub(crate) fn run_step(text: &str) -> Result<()> {
    let step = RestartStep::of_text(text);
    let step =
        step.ok_or_else(|| Error::Page { message: format!("unrecognized step of M11: {text}") })?;
    let (RestartStepResult { open_ms, rows_of_a_key }, opened) = step.perform()?;
    say(&json!({ "open_ms": open_ms, "rows_of_a_key": rows_of_a_key }).to_string());
    opened.wait_until_loaded();
    say("loaded");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).trying(|| "wait for the end".to_owned()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{EmbeddedSystem, RestartPart, RestartRows, RestartStep, RowShape, StepAction};

    #[test]
    fn a_step_is_read_as_it_was_written() {
        let rows = RestartRows { shape: RowShape::Bytes100, count: 3_000 };
        let step = RestartStep {
            system: EmbeddedSystem::DuckDb,
            action: StepAction::Open,
            part: RestartPart::Both,
            rows,
            directory: "/some where".into(),
        };
        assert_eq!(RestartStep::of_text(&step.to_json().to_string()), Some(step));
        assert_eq!(RestartStep::of_text("{}"), None);
    }
}
