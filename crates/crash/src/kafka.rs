//! Sources and sinks under SIGKILL: each message is one row, and each row one committed message.
//!
//! # Life of a cycle
//!
//! 1. The driver is the broker. It writes messages to the topic `in`, some of which are no rows, and loses connections
//!    and answers now and then.
//! 2. A child opens the directory, whose source, stream and sink lead from `in` to the topic `out`. It stops, starts and
//!    changes them, until it is killed: after a drawn time, after a drawn number of its requests, or at a failpoint.
//! 3. The driver opens the directory, waits until everything has arrived, and compares both topics with the tables.

use std::{collections::BTreeMap, fmt, path::Path};

use krafka::{
    Record,
    testing::{ApiKey, Control},
};
use lockstep_engine::Session;
use lockstep_testkit::random::Random;

use crate::{
    broker::DriverBroker,
    work::{self, WorkKillOptions, count, open, remove, texts},
};

/// The most milliseconds until a child is killed that need not have sent any request.
const KILL_MS_MAX: usize = 500;
/// The most milliseconds that a child has for its requests.
const REQUESTS_MS_MAX: usize = 4_000;
/// The most milliseconds between two statements of a child.
const WORK_MS_MAX: usize = 600;
/// The most milliseconds between the last request of a child and its end.
const AFTER_MS_MAX: usize = 20;
/// The most cycles of a directory.
const CYCLES_MAX: usize = 8;
/// How long the driver waits until everything has arrived, in turns of ten milliseconds.
const TURNS_MAX: usize = 3_000;

/// The failpoints that sources and sinks reach, and those of appends and checkpoints.
pub const KAFKA_FAILPOINTS: &[&str] = &[
    "source.stored",
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

/// The bugs of sources and sinks, each of which is to be found.
pub const KAFKA_BUGS: &[&str] = &[
    "source_offsets_first",
    "source_offsets_forgotten",
    "sink_position_forgotten",
    "sink_rows_not_left_out",
    "sink_without_transactions",
];

/// What was done and found.
#[derive(Debug, Clone, Default)]
pub struct KafkaReport {
    /// Children that were killed, or have ended at a failpoint.
    pub kills: u64,
    /// Those of them that have read messages.
    pub had_read: u64,
    /// Those of them that have ended transactions.
    pub had_written: u64,
    /// Directories.
    pub directories: u64,
    /// Messages of the topic `in`, each of which was looked for.
    pub read: u64,
    /// Those of them that are no rows.
    pub bad: u64,
    /// Messages of the topic `out`, each of which was compared with its row.
    pub written: u64,
    /// What was wrong.
    pub violations: Vec<String>,
}

impl fmt::Display for KafkaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, had_read, had_written, directories, read, bad, written, violations } =
            self;
        writeln!(
            f,
            "{kills} kills ({had_read} after reads, {had_written} after writes) over {directories} \
             directories: {read} messages in, {bad} of them no rows, {written} messages out, {} violations",
            violations.len()
        )?;
        violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

/// Kills children until it was done as often as said, or something is wrong.
pub fn run(options: &WorkKillOptions) -> KafkaReport {
    assert!(options.program.is_file(), "it is this program");
    let mut report = KafkaReport::default();
    let mut random = Random::new(options.seed);
    while report.kills < options.cycles && report.violations.is_empty() {
        let directory = options.new_directory("kafka", &mut random);
        report.directories += 1;
        let mut driver = BrokerDriver::new();
        for _ in 0..=random.below(CYCLES_MAX) {
            let [reads, writes] = driver.cycle(options, &directory, &mut random);
            report.kills += 1;
            report.had_read += u64::from(reads > 0);
            report.had_written += u64::from(writes > 0);
            if let Err(what) = driver.compare(&directory) {
                report.violations.push(format!("{}: {what}", directory.display()));
                break;
            }
        }
        report.read += u64::try_from(driver.sent.len()).unwrap_or(0);
        report.bad += driver.bad;
        report.written += driver.written;
        if report.violations.is_empty() {
            remove(&directory);
        }
    }
    report
}

/// The broker, and what was written to it.
struct BrokerDriver {
    kafka: DriverBroker,
    /// The messages of the topic `in` by their numbers; whether each is a row.
    sent: Vec<bool>,
    bad: u64,
    written: u64,
}

impl BrokerDriver {
    fn new() -> Self {
        let kafka = DriverBroker::new(&[("in", 3), ("out", 2)]);
        Self { kafka, sent: Vec::new(), bad: 0, written: 0 }
    }

    /// Lets a child work on a directory while messages arrive, and kills it. Returns how often it has read, and how many
    /// transactions it has ended.
    fn cycle(
        &mut self,
        options: &WorkKillOptions,
        directory: &Path,
        random: &mut Random,
    ) -> [usize; 2] {
        let brokers = self.kafka.broker.bootstrap_servers();
        let arguments = ["kafka-child".as_ref(), directory.as_os_str(), brokers.as_ref()];
        let before = self.requests();
        let mut child = options.start(&arguments, 30, random);
        // A child takes a while until it reads: a drawn time alone would end most of them before.
        let enough = match random.below(4) {
            0 => [usize::MAX; 2],
            1 => [before[0] + 1 + random.below(40), usize::MAX],
            _ => [usize::MAX, before[1] + 1 + random.below(8)],
        };
        let is_timed = enough == [usize::MAX; 2];
        let mut left = if is_timed { random.below(KILL_MS_MAX) } else { REQUESTS_MS_MAX };
        let is_enough = |now: [usize; 2]| now[0] >= enough[0] || now[1] >= enough[1];
        while left > 0 && !is_enough(self.requests()) && work::is_running(&mut child) {
            let step = left.min(5 + random.below(40));
            self.send(random);
            self.fail(random);
            lockstep_host::pause(u32::try_from(step).unwrap_or(0));
            left -= step;
        }
        if !is_timed {
            lockstep_host::pause(u32::try_from(random.below(AFTER_MS_MAX)).unwrap_or(0));
        }
        work::kill(child);
        self.kafka.broker.clear_hooks();
        let after = self.requests();
        [after[0] - before[0], after[1] - before[1]]
    }

    /// Returns how many requests there were that read, and that ended transactions.
    fn requests(&self) -> [usize; 2] {
        [ApiKey::Fetch, ApiKey::EndTxn].map(|key| self.kafka.broker.request_count(key))
    }

    /// Writes some messages to the topic `in`.
    fn send(&mut self, random: &mut Random) {
        let mut records = Vec::new();
        for _ in 0..random.below(30) {
            let number = self.sent.len();
            let is_row = random.below(12) > 0;
            let value = match is_row {
                true => format!(r#"{{"id": {number}, "k": {}, "ts": {number}}}"#, number % 4),
                false => format!(r#"{{"id": "{number}"}}"#),
            };
            records.push(Record::new("in", value).key((number % 5).to_string()));
            self.sent.push(is_row);
        }
        self.kafka.write(records);
    }

    /// Loses a connection, or an answer.
    fn fail(&self, random: &mut Random) {
        let lost = |_: &_| Control::ApplyThen(Box::new(Control::Disconnect));
        match random.below(50) {
            0 => self.kafka.broker.on_once(ApiKey::EndTxn, lost),
            1 => self.kafka.broker.on_once(ApiKey::EndTxn, |_| Control::Disconnect),
            2 => self.kafka.broker.on_once(ApiKey::Fetch, |_| Control::Disconnect),
            3 => self.kafka.broker.on_once(ApiKey::InitProducerId, lost),
            4 => self.kafka.broker.on_once(ApiKey::AddPartitionsToTxn, lost),
            _ => {}
        }
    }

    /// Waits until everything has arrived, and compares topics with tables.
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
        let mut turns = 0;
        loop {
            let found =
                (count(&session, "t")?, count(&session, "bad")?, count(&session, "counts")?);
            let written =
                self.kafka.broker.committed_records("out").map_err(|e| e.to_string())?.len();
            if found == (rows, bad, rows) && written >= rows {
                break;
            }
            turns += 1;
            if turns == TURNS_MAX || found.0 > rows || found.1 > bad || found.2 > rows {
                let states = work::states(&session);
                return Err(format!(
                    "{rows} rows and {bad} others were sent; found {found:?}, written {written}; {states}"
                ));
            }
            lockstep_host::pause(10);
        }
        // What was written twice would have come by now, or comes with the next cycle.
        self.bad = u64::try_from(bad).unwrap_or(0);
        self.compare_in(&session)?;
        self.compare_out(&session)
    }

    /// Checks that each message is in its table once.
    fn compare_in(&self, session: &Session) -> Result<(), String> {
        let in_t = texts(session, "SELECT CAST(id AS STRING) FROM t")?;
        let in_bad = texts(session, "SELECT message FROM bad")?;
        for (number, is_row) in self.sent.iter().enumerate() {
            let (table, text) = match is_row {
                true => (&in_t, number.to_string()),
                false => (&in_bad, format!(r#"{{"id": "{number}"}}"#)),
            };
            let times = table.get(&text).copied().unwrap_or(0);
            if times != 1 {
                return Err(format!("message {number} was stored {times} times"));
            }
        }
        Ok(())
    }

    /// Checks that each result is a message once.
    fn compare_out(&mut self, session: &Session) -> Result<(), String> {
        let results = "SELECT concat('{\"id\":', CAST(id AS STRING), ',\"n\":', CAST(n AS STRING), '}') \
                       FROM counts";
        let results = texts(session, results)?;
        let records =
            self.kafka.broker.committed_records("out").map_err(|error| error.to_string())?;
        let mut written: BTreeMap<String, usize> = BTreeMap::new();
        for record in &records {
            *written.entry(record.value_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        self.written = u64::try_from(records.len()).unwrap_or(0);
        if written == results {
            return Ok(());
        }
        let twice = written.iter().find(|(value, times)| results.get(*value) != Some(times));
        let missing = results.keys().find(|value| !written.contains_key(*value));
        Err(format!("not as the table has them: {twice:?}; missing: {missing:?}"))
    }
}

/// Runs a child, which works until it is killed.
pub fn child(
    directory: &Path,
    brokers: &str,
    seed: u64,
    failpoint: Option<(&str, u64)>,
    bug: Option<&str>,
) {
    let definitions = definitions(brokers);
    let Some(session) = work::begin_child(directory, &definitions, failpoint, bug) else { return };
    let mut random = Random::new(seed);
    loop {
        // What is started again connects first: it works only where it is left alone for a while.
        let pause = if random.below(3) == 0 { 10 } else { WORK_MS_MAX };
        lockstep_host::pause(u32::try_from(random.below(pause)).unwrap_or(0));
        let sql = match random.below(12) {
            0 | 1 => "CHECKPOINT",
            2 => "STOP SOURCE source",
            3 => "START SOURCE source",
            4 => "STOP SINK sink",
            5 => "START SINK sink",
            6 => continue,
            7 => "STOP STREAM counted",
            8 => "START STREAM counted",
            9 => "ALTER SOURCE source SET OPTIONS(unknown_columns='ignore')",
            _ => "START SOURCE source; START STREAM counted; START SINK sink",
        };
        if sql.split("; ").any(|sql| session.execute(sql).is_err()) {
            return;
        }
    }
}

/// Returns the statements that make the objects where they are not there yet.
fn definitions(brokers: &str) -> Vec<String> {
    let options =
        |topic: &str, more: &str| format!("OPTIONS(brokers='{brokers}', topic='{topic}', {more})");
    vec![
        "CREATE TABLE IF NOT EXISTS t (id INT, k INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))".to_owned(),
        format!(
            "CREATE SOURCE IF NOT EXISTS source INTO TABLE t FROM KAFKA {}",
            options("in", "on_error='skip into bad'")
        ),
        "CREATE STREAM IF NOT EXISTS counted INTO TABLE counts OPTIONS(emit='arrival') AS SELECT id, \
         count(id) OVER w AS n FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h \
         PRECEDING AND CURRENT ROW)"
            .to_owned(),
        format!(
            "CREATE SINK IF NOT EXISTS sink FROM STREAM counted INTO KAFKA {}",
            options("out", "key='id'")
        ),
    ]
}
