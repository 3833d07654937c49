//! Children that work on a directory until they are killed: what the cycles of streams and those of sources and sinks
//! have in common.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use lockstep_engine::{Database, OpenOptions, Session, StorageTuning};
use lockstep_host::failpoint;
use lockstep_testkit::random::Random;

/// What is run.
#[derive(Debug, Clone)]
pub struct WorkKillOptions {
    /// This program.
    pub program: PathBuf,
    /// Where directories are made.
    pub directory: PathBuf,
    /// The number of kills.
    pub cycles: u64,
    /// What everything is drawn from.
    pub seed: u64,
    /// The failpoints at which children end now and then.
    pub failpoints: &'static [&'static str],
    /// The bug that each child has.
    pub bug: Option<String>,
}

impl WorkKillOptions {
    /// Makes the name of a directory that is not there yet.
    pub(crate) fn new_directory(&self, of: &str, random: &mut Random) -> PathBuf {
        let directory = self.directory.join(format!("{of}-{:016x}", random.number()));
        remove(&directory);
        fs::create_dir_all(&self.directory).expect("the folder of directories is writable");
        directory
    }

    /// Starts a child. One of two ends at a failpoint, when it is reached `count_max` times at the latest.
    pub(crate) fn start(
        &self,
        arguments: &[&OsStr],
        count_max: usize,
        random: &mut Random,
    ) -> Child {
        assert!(count_max > 0, "a failpoint is reached");
        assert!(arguments.len() > 1, "a child has a directory");
        let mut command = Command::new(&self.program);
        command.args(arguments).arg(format!("--seed={}", random.number()));
        if !self.failpoints.is_empty() && random.below(2) == 0 {
            command.arg(format!("--failpoint={}", random.pick(self.failpoints)));
            command.arg(format!("--count={}", 1 + random.below(count_max)));
        }
        if let Some(bug) = &self.bug {
            command.arg(format!("--bug={bug}"));
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("this program runs")
    }
}

/// Returns whether a child has not ended by itself.
pub(crate) fn is_running(child: &mut Child) -> bool {
    child.try_wait().expect("it was started").is_none()
}

/// Kills a child.
pub(crate) fn kill(mut child: Child) {
    // Fails when it has ended by itself.
    let _killed = child.kill();
    child.wait().expect("it was started");
}

/// Gives this process, a child, the failpoint and the bug that it was started with.
pub(crate) fn arm(failpoint: Option<(&str, u64)>, bug: Option<&str>) {
    if let Some((name, count)) = failpoint {
        assert!(count > 0, "{name} is reached");
        failpoint::arm(name, count);
    }
    if let Some(bug) = bug {
        failpoint::seed(bug);
    }
}

/// Opens the directory of this process, a child, and makes its objects where they are not there yet. `None` where it cannot.
pub(crate) fn begin_child(
    directory: &Path,
    definitions: &[String],
    failpoint: Option<(&str, u64)>,
    bug: Option<&str>,
) -> Option<Session> {
    assert!(!definitions.is_empty(), "a child has something to do");
    arm(failpoint, bug);
    let session = open(directory).ok()?;
    // Another child may have been killed between these.
    definitions.iter().all(|sql| session.execute(sql).is_ok()).then_some(session)
}

/// Returns the states of what works in a database, with the errors.
pub(crate) fn states(session: &Session) -> String {
    let sql = "SELECT state, error FROM lockstep.sources UNION ALL SELECT state, error FROM \
               lockstep.streams UNION ALL SELECT state, error FROM lockstep.sinks";
    let output = session.execute(sql).map(|output| format!("{:?}", output.batches));
    output.unwrap_or_else(|error| error.to_string())
}

/// Removes a directory if there is one.
pub(crate) fn remove(directory: &Path) {
    // There may be none.
    drop(fs::remove_dir_all(directory));
}

/// Opens a directory with a small log.
pub(crate) fn open(directory: &Path) -> Result<Session, String> {
    let tuning = StorageTuning {
        segment_bytes: 32 << 10,
        durability_window_ms: Some(20),
        ..StorageTuning::default()
    };
    assert!(tuning.segment_bytes < StorageTuning::default().segment_bytes, "the log has segments");
    let opened = Database::open_with(directory, &OpenOptions { tuning, ..OpenOptions::default() });
    opened.map(|database| database.session()).map_err(|error| error.to_string())
}

/// Returns the number of rows of a table.
pub(crate) fn count(session: &Session, table: &str) -> Result<usize, String> {
    let text = texts(session, &format!("SELECT CAST(count(*) AS STRING) FROM {table}"))?;
    let count = text.keys().next().and_then(|text| text.parse().ok());
    count.ok_or_else(|| format!("table {table} has no number of rows"))
}

/// Returns how often each text is in the only column of a query.
pub(crate) fn texts(session: &Session, sql: &str) -> Result<BTreeMap<String, usize>, String> {
    let output = session.execute(sql).map_err(|error| format!("{sql}: {error}"))?;
    let mut found = BTreeMap::new();
    for row in output.batches.iter().flat_map(lockstep_testkit::rows::of_batch) {
        if let Some(lockstep_row::Value::String(text)) = row.first() {
            *found.entry(text.to_string()).or_default() += 1;
        }
    }
    Ok(found)
}
