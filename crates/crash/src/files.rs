//! Sources and sinks of files under SIGKILL: each line is one row, and each row is in one file.
//!
//! # Life of a cycle
//!
//! 1. The driver writes files to the folder `in`, some of whose lines are no rows, and takes files away from the folder
//!    `out`, as a consumer would.
//! 2. A child opens the directory, whose source, stream and sink lead from `in` to `out`. It stops, starts and changes
//!    them, until it is killed, after a drawn time or at a failpoint.
//! 3. The driver opens the directory, waits until everything has arrived, and compares the files with the tables.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use lockstep_engine::Session;
use lockstep_testkit::random::Random;

use crate::work::{self, WorkKillOptions, count, open, remove, texts};

/// The most milliseconds until a child is killed.
const KILL_MS_MAX: usize = 1_500;
/// The most milliseconds between two statements of a child.
const WORK_MS_MAX: usize = 600;
/// The most cycles of a directory.
const CYCLES_MAX: usize = 8;
/// The most lines of a file.
const LINES_MAX: usize = 60;
/// How long the driver waits until everything has arrived, and until it believes that nothing more does, in turns of
/// ten milliseconds.
const TURNS_MAX: usize = 3_000;
const QUIET_TURNS: usize = 500;

/// The failpoints that sources and sinks of files reach, and those of appends and checkpoints.
pub const FILE_FAILPOINTS: &[&str] = &[
    "source.stored",
    "sink.staged",
    "sink.written",
    "sink.stored",
    "stream.stored",
    "wal.before_copy",
    "wal.after_copy",
    "wal.after_sync",
    "table.rows_logged",
    "table.rows_stored",
    "catalog.logged",
    "checkpoint.written",
    "checkpoint.committed",
    "recovery.record",
];

/// The bugs of sources and sinks of files, each of which is to be found.
pub const FILE_BUGS: &[&str] = &[
    "source_offsets_first",
    "source_offsets_forgotten",
    "source_file_forgotten",
    "sink_file_not_staged",
    "sink_staged_file_forgotten",
];

/// What was done and found.
#[derive(Debug, Clone, Default)]
pub struct FilesReport {
    /// Children that were killed, or have ended at a failpoint.
    pub kills: u64,
    /// Directories.
    pub directories: u64,
    /// Lines of files, each of which was looked for.
    pub read: u64,
    /// Those of them that are no rows.
    pub bad: u64,
    /// Rows of files, each of which was compared with its row.
    pub written: u64,
    /// The files that have them.
    pub files: u64,
    /// What was wrong.
    pub violations: Vec<String>,
}

impl fmt::Display for FilesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, directories, read, bad, written, files, violations } = self;
        writeln!(
            f,
            "{kills} kills over {directories} directories: {read} lines in, {bad} of them no rows, \
             {written} rows out in {files} files, {} violations",
            violations.len()
        )?;
        violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

/// Kills children until it was done as often as said, or something is wrong.
pub fn run(options: &WorkKillOptions) -> FilesReport {
    assert!(options.program.is_file(), "it is this program");
    let mut report = FilesReport::default();
    let mut random = Random::new(options.seed);
    while report.kills < options.cycles && report.violations.is_empty() {
        let directory = options.new_directory("files", &mut random);
        report.directories += 1;
        let mut driver = FileDriver::new(&directory);
        for _ in 0..=random.below(CYCLES_MAX) {
            driver.cycle(options, &directory, &mut random);
            report.kills += 1;
            if let Err(what) = driver.compare(&directory) {
                report.violations.push(format!("{}: {what}", directory.display()));
                break;
            }
        }
        report.read += number(driver.sent.len());
        report.bad += number(driver.sent.iter().filter(|is_row| !**is_row).count());
        report.written += driver.written;
        report.files += driver.files;
        if report.violations.is_empty() {
            remove(&directory);
            remove(&driver.folder);
        }
    }
    report
}

/// The folders beside a directory, and what was written to them.
struct FileDriver {
    folder: PathBuf,
    /// The lines of the files by their numbers; whether each is a row.
    sent: Vec<bool>,
    /// The files that were written to `in`.
    sent_files: usize,
    /// How often each line was in a file that was taken away.
    taken: BTreeMap<String, usize>,
    written: u64,
    files: u64,
}

impl FileDriver {
    fn new(directory: &Path) -> Self {
        let folder = directory.with_extension("files");
        remove(&folder);
        for name in ["in", "out"] {
            fs::create_dir_all(folder.join(name)).expect("the folder is writable");
        }
        Self {
            folder,
            sent: Vec::new(),
            sent_files: 0,
            taken: BTreeMap::new(),
            written: 0,
            files: 0,
        }
    }

    /// Lets a child work on a directory while files arrive and are taken away, and kills it.
    fn cycle(&mut self, options: &WorkKillOptions, directory: &Path, random: &mut Random) {
        let arguments = ["files-child".as_ref(), directory.as_os_str(), self.folder.as_os_str()];
        let mut child = options.start(&arguments, 8, random);
        let mut left = random.below(KILL_MS_MAX);
        while left > 0 && work::is_running(&mut child) {
            let step = left.min(5 + random.below(80));
            match random.below(3) {
                0 => self.take(),
                _ => self.send(random),
            }
            lockstep_host::pause(u32::try_from(step).unwrap_or(0));
            left -= step;
        }
        work::kill(child);
    }

    /// Writes a file to `in`, whose name may be before those of others.
    fn send(&mut self, random: &mut Random) {
        let mut content = "id,k,ts\n".to_owned();
        for _ in 0..random.below(LINES_MAX) {
            let id = self.sent.len();
            let is_row = random.below(12) > 0;
            let line =
                if is_row { format!("{id},{},{id}\n", id % 4) } else { format!("bad {id}\n") };
            content.push_str(&line);
            self.sent.push(is_row);
        }
        let name = format!("{}-{}.csv", random.below(100), self.sent_files);
        self.sent_files += 1;
        let hidden = self.folder.join("in").join(".new");
        fs::write(&hidden, content).expect("the folder is writable");
        fs::rename(hidden, self.folder.join("in").join(name)).expect("the folder is writable");
    }

    /// Takes the files of `out` away, and counts their lines.
    fn take(&mut self) {
        let out = fs::read_dir(self.folder.join("out")).expect("it was made");
        for path in out.map(|entry| entry.expect("it is readable").path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a file with its name stays");
            for line in text.lines() {
                *self.taken.entry(line.to_owned()).or_default() += 1;
                self.written += 1;
            }
            self.files += 1;
            fs::remove_file(path).expect("it was read");
        }
    }

    /// Waits until everything has arrived, and compares files with tables.
    fn compare(&mut self, directory: &Path) -> Result<(), String> {
        let session = open(directory)?;
        if count(&session, "lockstep.sinks")? == 0 {
            return Ok(());
        }
        for name in ["SOURCE source", "STREAM counted", "SINK sink"] {
            session.execute(&format!("START {name}")).map_err(|error| error.to_string())?;
        }
        let rows = self.sent.iter().filter(|is_row| **is_row).count();
        let bad = self.sent.len() - rows;
        let (mut turns, mut quiet, mut before) = (0, 0, None);
        loop {
            self.take();
            let found =
                (count(&session, "t")?, count(&session, "bad")?, count(&session, "counts")?);
            let written: usize = self.taken.values().sum();
            if found == (rows, bad, rows) && written >= rows {
                break;
            }
            turns += 1;
            let now = Some((found, written));
            quiet = if now == before && lag(&session)? == 0 { quiet + 1 } else { 0 };
            before = now;
            if turns == TURNS_MAX
                || quiet == QUIET_TURNS
                || found.0 > rows
                || found.1 > bad
                || found.2 > rows
            {
                let states = work::states(&session);
                return Err(format!(
                    "{rows} rows and {bad} others were sent; found {found:?}, written {written}; {states}"
                ));
            }
            lockstep_host::pause(10);
        }
        // What was written twice would be there by now, or is with the next cycle.
        self.compare_in(&session)?;
        self.compare_out(&session)
    }

    /// Checks that each line is in its table once.
    fn compare_in(&self, session: &Session) -> Result<(), String> {
        let in_t = texts(session, "SELECT CAST(id AS STRING) FROM t")?;
        let in_bad = texts(session, "SELECT message FROM bad")?;
        for (id, is_row) in self.sent.iter().enumerate() {
            let (table, text) = match is_row {
                true => (&in_t, id.to_string()),
                false => (&in_bad, format!("bad {id}")),
            };
            let times = table.get(&text).copied().unwrap_or(0);
            if times != 1 {
                return Err(format!("line {id} was stored {times} times"));
            }
        }
        Ok(())
    }

    /// Checks that each result is in a file once.
    fn compare_out(&self, session: &Session) -> Result<(), String> {
        let results = "SELECT concat(CAST(id AS STRING), ',', CAST(n AS STRING)) FROM counts";
        let results = texts(session, results)?;
        if self.taken == results {
            return Ok(());
        }
        let twice = self.taken.iter().find(|(line, times)| results.get(*line) != Some(times));
        let missing = results.keys().find(|line| !self.taken.contains_key(*line));
        Err(format!("not as the table has them: {twice:?}; missing: {missing:?}"))
    }
}

/// Returns how much there is still to read and to write, as far as sources and sinks know.
fn lag(session: &Session) -> Result<usize, String> {
    let sql = "SELECT CAST(sum(lag) AS STRING) FROM (SELECT lag FROM lockstep.sources UNION ALL SELECT \
               lag_ms AS lag FROM lockstep.sinks)";
    let found = texts(session, sql)?;
    Ok(found.keys().next().and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Runs a child, which works until it is killed.
pub fn child(
    directory: &Path,
    folder: &Path,
    seed: u64,
    failpoint: Option<(&str, u64)>,
    bug: Option<&str>,
) {
    let definitions = definitions(folder);
    let Some(session) = work::begin_child(directory, &definitions, failpoint, bug) else { return };
    let mut random = Random::new(seed);
    loop {
        let pause = if random.below(3) == 0 { 10 } else { WORK_MS_MAX };
        lockstep_host::pause(u32::try_from(random.below(pause)).unwrap_or(0));
        let sql = match random.below(12) {
            0 | 1 => "CHECKPOINT",
            2 => "STOP SOURCE source",
            3 => "START SOURCE source",
            4 => "STOP SINK sink",
            5 => "START SINK sink",
            6 => "STOP STREAM counted",
            7 => "START STREAM counted",
            8 => "ALTER SOURCE source SET OPTIONS(on_change='skip')",
            9 => "ALTER SINK sink SET OPTIONS(rows_per_file=7)",
            _ => "START SOURCE source; START STREAM counted; START SINK sink",
        };
        if sql.split("; ").any(|sql| session.execute(sql).is_err()) {
            return;
        }
    }
}

/// Returns the statements that make the objects where they are not there yet.
fn definitions(folder: &Path) -> Vec<String> {
    let at = |name: &str| folder.join(name).display().to_string();
    vec![
        "CREATE TABLE IF NOT EXISTS t (id INT, k INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))".to_owned(),
        format!(
            "CREATE SOURCE IF NOT EXISTS source INTO TABLE t FROM FILES OPTIONS(path='{}/*.csv', \
             settle_after='0s', on_error='skip into bad')",
            at("in")
        ),
        "CREATE STREAM IF NOT EXISTS counted INTO TABLE counts OPTIONS(emit='arrival') AS SELECT id, \
         count(id) OVER w AS n FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h \
         PRECEDING AND CURRENT ROW)"
            .to_owned(),
        format!(
            "CREATE SINK IF NOT EXISTS sink FROM STREAM counted INTO FILES OPTIONS(path='{}', \
             format='csv', header=false, rows_per_file=25, roll_after='5ms')",
            at("out")
        ),
    ]
}
