//! Processes with one group under SIGKILL: each main row has one result in all of their directories together, and one
//! message, with the bits of batch mode.
//!
//! # Life of a cycle
//!
//! 1. The driver is the broker. It writes messages to the topics `a` and `b`, and loses connections and answers.
//! 2. One or two children open a directory each, whose stream joins the topics and whose sink writes the results to the
//!    topic `out`. They stop and start them, until they are killed: after a drawn time, or at a failpoint. The broker
//!    then takes all members for dead, also one that goes on.
//! 3. The driver opens both directories, writes rows that make those before final, waits for all results, and compares
//!    them with what batch mode computes over the messages.

use std::{collections::BTreeMap, fmt, path::Path, process::Child};

use krafka::{
    Record,
    testing::{ApiKey, Control},
};
use lockstep_engine::Database;
use lockstep_testkit::random::Random;

use crate::{
    broker::DriverBroker,
    work::{self, WorkKillOptions, count, open, remove, texts},
};

const PARTITIONS: usize = 3;
const KEYS: usize = 8;
/// Rows with greater ids only make those before final.
const IDS_MAX: usize = 1_000_000;
/// The most milliseconds until children are killed: the broker shares partitions once a second.
const KILL_MS_MAX: usize = 6_000;
/// The most milliseconds between two statements of a child.
const WORK_MS_MAX: usize = 3_000;
/// The most rounds of children before their directories are compared.
const ROUNDS_MAX: usize = 3;
/// The most cycles of two directories.
const CYCLES_MAX: usize = 6;
/// How long the driver waits for all results, in turns of ten milliseconds.
const TURNS_MAX: usize = 6_000;

/// The failpoints that a stream over a group reaches, and those of appends and of what is beside it.
pub const GROUP_FAILPOINTS: &[&str] = &[
    "group.prepared",
    "group.decided",
    "stream.stored",
    "source.stored",
    "sink.written",
    "wal.after_copy",
    "table.rows_logged",
    "table.rows_stored",
    "checkpoint.committed",
];

/// The bugs of streams over a group, each of which is to be found.
pub const GROUP_BUGS: &[&str] = &[
    "group_note_first",
    "group_rows_first",
    "group_prepared_forgotten",
    "group_claims_ignored",
    "group_claim_unchecked",
    "group_progress_of_process",
];

/// What was done and found.
#[derive(Debug, Clone, Default)]
pub struct GroupReport {
    /// Children that were killed, or have ended at a failpoint.
    pub kills: u64,
    /// Pairs of directories.
    pub directories: u64,
    /// Main rows, each of whose results was compared.
    pub results: u64,
    /// Those of them that the first directory has, and the second.
    pub shares: [u64; 2],
    /// What was wrong.
    pub violations: Vec<String>,
}

impl fmt::Display for GroupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, directories, results, shares: [first, second], violations } = self;
        writeln!(
            f,
            "{kills} kills over {directories} pairs of directories: {results} results, {first} of them in the first \
             directory and {second} in the second, {} violations",
            violations.len()
        )?;
        violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

/// Kills children until it was done as often as said, or something is wrong.
pub fn run(options: &WorkKillOptions) -> GroupReport {
    assert!(options.program.is_file(), "it is this program");
    let mut report = GroupReport::default();
    let mut random = Random::new(options.seed);
    while report.kills < options.cycles && report.violations.is_empty() {
        let directories = [0; 2].map(|_| options.new_directory("group", &mut random));
        report.directories += 1;
        let mut driver = GroupDriver::new();
        for _ in 0..=random.below(CYCLES_MAX) {
            report.kills +=
                driver.cycle(options, directories.each_ref().map(|it| &**it), &mut random);
            let compared = driver.compare(directories.each_ref().map(|it| &**it));
            match compared {
                Ok(shares) => driver.shares = shares,
                Err(what) => {
                    let [first, second] = &directories;
                    let found = format!("{}, {}: {what}", first.display(), second.display());
                    report.violations.push(found);
                    break;
                }
            }
        }
        for (total, share) in report.shares.iter_mut().zip(driver.shares) {
            *total += share;
            report.results += share;
        }
        if report.violations.is_empty() {
            directories.iter().for_each(|directory| remove(directory));
        }
    }
    report
}

/// The broker, and what was written to it.
struct GroupDriver {
    kafka: DriverBroker,
    /// The number of main rows.
    rows: usize,
    /// The number of times that rows were made final.
    markers: usize,
    /// The event time of the next rows.
    now_ms: usize,
    shares: [u64; 2],
}

/// The bits of results by the ids of their main rows, as text, with how often each was found.
type Results = BTreeMap<String, usize>;

impl GroupDriver {
    fn new() -> Self {
        let partitions = i32::try_from(PARTITIONS).unwrap_or(1);
        let topics = ["a", "b", "out"].map(|topic| (topic, partitions));
        let (kafka, now_ms) = (DriverBroker::new(&topics), 100_000);
        Self { kafka, rows: 0, markers: 0, now_ms, shares: [0; 2] }
    }

    /// Lets children work while messages arrive, and kills them. Returns how many.
    fn cycle(
        &mut self,
        options: &WorkKillOptions,
        directories: [&Path; 2],
        random: &mut Random,
    ) -> u64 {
        let brokers = self.kafka.broker.bootstrap_servers();
        let mut kills = 0;
        for _ in 0..=random.below(ROUNDS_MAX) {
            let mut children: Vec<Child> = Vec::new();
            let alone = random.below(3);
            for (number, directory) in directories.into_iter().enumerate() {
                if alone != number {
                    let name = "group-child".as_ref();
                    let arguments = [name, directory.as_os_str(), brokers.as_ref()];
                    children.push(options.start(&arguments, 40, random));
                    kills += 1;
                }
            }
            while let Some(child) = children.pop() {
                self.work(child, random);
            }
        }
        self.kafka.broker.clear_hooks();
        kills
    }

    /// Writes messages for a while, and kills a child.
    fn work(&mut self, mut child: Child, random: &mut Random) {
        let mut left = random.below(KILL_MS_MAX);
        while left > 0 && work::is_running(&mut child) {
            let step = left.min(5 + random.below(60));
            self.send(random);
            self.fail(random);
            lockstep_host::pause(u32::try_from(step).unwrap_or(0));
            left -= step;
        }
        work::kill(child);
        self.forget_members();
    }

    /// Takes all members of the group for dead, as after the timeout of their sessions.
    fn forget_members(&self) {
        self.kafka.broker.with_state(|state| {
            if let Some(group) = state.groups.get_mut("g") {
                group.consumer_members.clear();
                group.group_epoch += 1;
            }
        });
    }

    /// Writes some rows to both topics, each at most a second before those that precede it.
    fn send(&mut self, random: &mut Random) {
        let mut records = Vec::new();
        for _ in 0..random.below(12) {
            for topic in ["a", "b"] {
                let (id, ts) = (self.rows, self.now_ms - random.below(1_000));
                let (key, x) = (random.below(KEYS), random.below(1_000));
                let value = format!(r#"{{"id": {id}, "k": "k{key}", "ts": {ts}, "x": {x}.5}}"#);
                let partition = i32::try_from(key % PARTITIONS).unwrap_or(0);
                records.push(Record::new(topic, value).partition(partition));
            }
            self.rows += 1;
            self.now_ms += 100;
        }
        self.kafka.write(records);
    }

    /// Writes a row to each partition that makes all before final.
    fn send_markers(&mut self) {
        self.now_ms += 10_000;
        let (id, ts) = (IDS_MAX + self.markers, self.now_ms);
        let mut records = Vec::new();
        for partition in 0..PARTITIONS {
            for topic in ["a", "b"] {
                let value = format!(r#"{{"id": {id}, "k": "m{partition}", "ts": {ts}, "x": 0}}"#);
                let partition = i32::try_from(partition).unwrap_or(0);
                records.push(Record::new(topic, value).partition(partition));
            }
        }
        self.markers += 1;
        self.now_ms += 2_000;
        self.kafka.write(records);
    }

    /// Loses a connection or an answer, or takes a member for dead.
    fn fail(&self, random: &mut Random) {
        let lost = |_: &_| Control::ApplyThen(Box::new(Control::Disconnect));
        match random.below(60) {
            0 => self.kafka.broker.on_once(ApiKey::OffsetCommit, lost),
            1 => self.kafka.broker.on_once(ApiKey::OffsetCommit, |_| Control::Disconnect),
            2 => self.kafka.broker.on_once(ApiKey::OffsetFetch, |_| Control::Disconnect),
            3 => self.kafka.broker.on_once(ApiKey::ConsumerGroupHeartbeat, lost),
            4 => self.kafka.broker.on_once(ApiKey::Fetch, |_| Control::Disconnect),
            5 => self.forget_members(),
            _ => {}
        }
    }

    /// Waits for all results, and compares them with those of batch mode. Returns how many each directory has.
    fn compare(&mut self, directories: [&Path; 2]) -> Result<[u64; 2], String> {
        let sessions = [open(directories[0])?, open(directories[1])?];
        for session in &sessions {
            let brokers = self.kafka.broker.bootstrap_servers();
            for sql in definitions(&brokers) {
                session.execute(&sql).map_err(|error| error.to_string())?;
            }
            for sql in START {
                session.execute(sql).map_err(|error| error.to_string())?;
            }
        }
        self.send_markers();
        let counted = format!("r WHERE id < {IDS_MAX}");
        let mut turns = 0;
        loop {
            let found = [count(&sessions[0], &counted)?, count(&sessions[1], &counted)?];
            let written = self.written()?.values().sum::<usize>();
            let stored: usize = found.iter().sum();
            if stored == self.rows && written == self.rows {
                break;
            }
            turns += 1;
            if turns == TURNS_MAX || stored > self.rows || written > self.rows {
                let states = sessions.each_ref().map(work::states);
                return Err(format!(
                    "{} rows were sent; found {found:?}, written {written}; {states:?}",
                    self.rows
                ));
            }
            lockstep_host::pause(10);
        }
        let mut all = Results::new();
        let mut shares = [0; 2];
        for (session, share) in sessions.iter().zip(&mut shares) {
            let results = texts(session, &format!("SELECT {RESULT} FROM r WHERE id < {IDS_MAX}"))?;
            *share = u64::try_from(results.values().sum::<usize>()).unwrap_or(0);
            for (result, times) in results {
                *all.entry(result).or_default() += times;
            }
        }
        let (expected, written) = (self.expected()?, self.written()?);
        for (what, found) in [("stored", all), ("written", written)] {
            if found != expected {
                let other =
                    found.iter().find(|(result, times)| expected.get(*result) != Some(times));
                let missing = expected.keys().find(|result| !found.contains_key(*result));
                return Err(format!("{what} other than computed: {other:?}; missing: {missing:?}"));
            }
        }
        Ok(shares)
    }

    /// Returns the results in the topic `out`.
    fn written(&self) -> Result<Results, String> {
        let mut written = Results::new();
        for record in
            self.kafka.broker.committed_records("out").map_err(|error| error.to_string())?
        {
            let value: serde_json::Value =
                serde_json::from_str(record.value_str().unwrap_or_default())
                    .map_err(|error| error.to_string())?;
            let result = value["result"].as_str().unwrap_or_default();
            let id = result.split(' ').next().and_then(|id| id.parse::<usize>().ok());
            if id.is_some_and(|id| id < IDS_MAX) {
                *written.entry(result.to_owned()).or_default() += 1;
            }
        }
        Ok(written)
    }

    /// Computes all results in batch mode.
    fn expected(&self) -> Result<Results, String> {
        let session = Database::in_memory().session();
        let run = |sql: &str| session.execute(sql).map_err(|error| error.to_string());
        for topic in ["a", "b"] {
            run(&table(topic))?;
            let mut values = Vec::new();
            for record in
                self.kafka.broker.committed_records(topic).map_err(|error| error.to_string())?
            {
                let value: serde_json::Value =
                    serde_json::from_str(record.value_str().unwrap_or_default())
                        .map_err(|error| error.to_string())?;
                values.push(format!(
                    "({}, {}, {}, {}, 0, 0)",
                    value["id"],
                    value["k"].to_string().replace('"', "'"),
                    value["ts"],
                    value["x"]
                ));
            }
            for values in values.chunks(500) {
                run(&format!("INSERT INTO {topic} VALUES {}", values.join(", ")))?;
            }
        }
        texts(&session, &format!("SELECT {RESULT} FROM ({QUERY}) AS q WHERE id < {IDS_MAX}"))
    }
}

const QUERY: &str = "SELECT id, count(x) OVER w AS n, sum(x) OVER w AS s FROM a WINDOW w AS (UNION b \
     PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 4s PRECEDING AND 3s FOLLOWING)";

/// A result as text.
const RESULT: &str = "concat(CAST(id AS STRING), ' ', CAST(n AS STRING), ' ', CAST(s AS STRING))";

const START: [&str; 4] =
    ["START SOURCE a_in", "START SOURCE b_in", "START STREAM st", "START SINK sink"];

fn table(name: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {name} (id BIGINT, k STRING, ts TIMESTAMP, x DOUBLE, p INT, o BIGINT, \
         INDEX(KEY=k, TS=ts))"
    )
}

/// Returns the statements that make the objects where they are not there yet.
fn definitions(brokers: &str) -> Vec<String> {
    let options =
        |topic: &str, more: &str| format!("OPTIONS(brokers='{brokers}', topic='{topic}', {more})");
    let of_group = "\"group\"='g', partitioned_by='k', partition_column='p', offset_column='o'";
    let source = |topic: &str| {
        let options = options(topic, of_group);
        format!("CREATE SOURCE IF NOT EXISTS {topic}_in INTO TABLE {topic} FROM KAFKA {options}")
    };
    vec![
        table("a"),
        table("b"),
        source("a"),
        source("b"),
        format!(
            "CREATE STREAM IF NOT EXISTS st INTO TABLE r OPTIONS(lateness='2s') AS SELECT id, n, s, \
             {RESULT} AS result FROM ({QUERY}) AS q"
        ),
        format!(
            "CREATE SINK IF NOT EXISTS sink FROM STREAM st INTO KAFKA {}",
            options("out", "key='id'")
        ),
    ]
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
        lockstep_host::pause(u32::try_from(random.below(WORK_MS_MAX)).unwrap_or(0));
        let sql = match random.below(10) {
            0 | 1 => "CHECKPOINT",
            2 => "STOP SOURCE b_in",
            3 => "STOP STREAM st",
            4 => "STOP SINK sink",
            5 => "ALTER STREAM st SET OPTIONS(idle_after='1h')",
            _ => "START SOURCE b_in; START STREAM st; START SINK sink",
        };
        if sql.split("; ").any(|sql| session.execute(sql).is_err()) {
            return;
        }
    }
}
