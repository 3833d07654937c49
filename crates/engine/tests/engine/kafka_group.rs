//! Processes with one group: directories that share the partitions of topics over a broker in this process. Each main row
//! has one result in all of them together, that of batch mode, whichever of them come and go.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{Float64Type, Int64Type},
};
use krafka::{
    Kafka, Record,
    error::ErrorCode,
    testing::{ApiKey, Control},
};
use lockstep_engine::{Database, Session};

use crate::{
    kafka::{TestBroker, number, text, wait},
    test_directory::TestDirectory,
};

const PARTITIONS: i32 = 4;
/// The keys of rows; that of each is in one partition of both topics.
const KEYS: i64 = 13;
/// Ids from here on are of rows that only move the watermark.
const FIRST_MARKER: i64 = 1_000_000;

const TABLES: &str = "
    CREATE TABLE a (id BIGINT, k STRING, ts TIMESTAMP, x DOUBLE, p INT, o BIGINT, INDEX(KEY=k, TS=ts));
    CREATE TABLE b (id BIGINT, k STRING, ts TIMESTAMP, x DOUBLE, p INT, o BIGINT, INDEX(KEY=k, TS=ts))";

const QUERY: &str = "
    SELECT id, count(x) OVER w AS n, sum(x) OVER w AS s FROM a
    WINDOW w AS (UNION b PARTITION BY k ORDER BY ts
        ROWS_RANGE BETWEEN 4s PRECEDING AND 3s FOLLOWING)";

const GROUP: &str = ", \"group\"='g', partitioned_by='k', partition_column='p', offset_column='o'";

/// The two topics of a test, and what was written to them.
struct Topics {
    broker: TestBroker,
    /// The state of the generator.
    state: u64,
    written: i64,
    markers: i64,
}

impl Topics {
    fn new() -> Self {
        let broker = TestBroker::new();
        for topic in ["a", "b"] {
            assert!(broker.broker.create_topic(topic, PARTITIONS));
        }
        Self { broker, state: 1, written: 0, markers: 0 }
    }

    fn next(&mut self, below: i64) -> i64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
        i64::try_from(self.state >> 33).unwrap() % below
    }

    /// Writes so many rows to each topic, each at most a second before those that precede it.
    fn write(&mut self, rows: i64) {
        let mut records = Vec::new();
        for id in self.written..self.written + rows {
            for topic in ["a", "b"] {
                let ts = 100_000 + 150 * id - self.next(1_000);
                let (key, x) = (self.next(KEYS), self.next(1_000));
                let value = format!(r#"{{"id": {id}, "k": "k{key}", "ts": {ts}, "x": {x}.25}}"#);
                let partition = i32::try_from(key).unwrap() % PARTITIONS;
                records.push(Record::new(topic, value).partition(partition));
            }
        }
        self.written += rows;
        self.send(records);
    }

    /// Writes a row to each partition that makes all rows before it final.
    fn write_markers(&mut self) {
        let ts = 200_000 + 150 * self.written + self.markers;
        let (id, mut records) = (FIRST_MARKER + self.markers, Vec::new());
        self.markers += 1;
        for partition in 0..PARTITIONS {
            for topic in ["a", "b"] {
                let value =
                    format!(r#"{{"id": {id}, "k": "marker{partition}", "ts": {ts}, "x": 0}}"#);
                records.push(Record::new(topic, value).partition(partition));
            }
        }
        self.send(records);
    }

    fn send(&self, records: Vec<Record>) {
        self.broker.runtime.block_on(async {
            let kafka = Kafka::builder(self.broker.broker.bootstrap_servers());
            let kafka = kafka.connect().await.unwrap();
            let producer = kafka.producer().build().await.unwrap();
            let mut sent = Vec::new();
            for record in records {
                sent.push(producer.enqueue(record).await.unwrap());
            }
            for sent in sent {
                assert!(sent.await.is_ok());
            }
            producer.close().await.unwrap();
        });
    }

    /// Creates the tables, the sources and the stream of a process.
    fn create(&self, session: &Session) {
        session.execute(TABLES).unwrap();
        for topic in ["a", "b"] {
            let options = self.broker.options(topic, GROUP);
            let create =
                format!("CREATE SOURCE {topic}_in INTO TABLE {topic} FROM KAFKA {options}");
            session.execute(&create).unwrap();
        }
        let create = format!("CREATE STREAM st INTO TABLE r OPTIONS(lateness='2s') AS {QUERY}");
        session.execute(&create).unwrap();
    }

    /// Returns what batch mode computes over all that was written.
    fn expected(&self) -> Results {
        let session = Database::in_memory().session();
        session.execute(TABLES).unwrap();
        for topic in ["a", "b"] {
            let options = self.broker.options(topic, ", partition_column='p', offset_column='o'");
            let create =
                format!("CREATE SOURCE {topic}_in INTO TABLE {topic} FROM KAFKA {options}");
            session.execute(&create).unwrap();
        }
        let rows = self.written + i64::from(PARTITIONS) * self.markers;
        for topic in ["a", "b"] {
            let count = format!("SELECT count(*) FROM {topic}");
            wait("all rows are read", || number(&session, &count) == rows);
        }
        results(&session, QUERY)
    }
}

/// Results by the ids of their main rows: the count, and the bits of the sum. One has several if it was computed twice.
type Results = BTreeMap<i64, Vec<(i64, Option<u64>)>>;

fn results(session: &Session, sql: &str) -> Results {
    let mut results = Results::new();
    for batch in session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).batches {
        add_results(&batch, &mut results);
    }
    results
}

fn add_results(batch: &RecordBatch, results: &mut Results) {
    let ids = batch.column(0).as_primitive::<Int64Type>();
    let counts = batch.column(1).as_primitive::<Int64Type>();
    let sums = batch.column(2).as_primitive::<Float64Type>();
    for ((id, count), sum) in ids.iter().zip(counts).zip(sums) {
        let id = id.unwrap();
        if id < FIRST_MARKER {
            let result = (count.unwrap(), sum.map(f64::to_bits));
            results.entry(id).or_default().push(result);
        }
    }
}

/// Returns the results of several processes together.
fn all_results(sessions: &[&Session]) -> Results {
    let mut all = Results::new();
    for session in sessions {
        for (id, results) in results(session, "SELECT id, n, s FROM r") {
            all.entry(id).or_default().extend(results);
        }
    }
    all
}

fn count(session: &Session) -> i64 {
    number(session, "SELECT count(*) FROM r WHERE id < 1000000")
}

/// Waits until processes have so many results together.
fn wait_for_results(sessions: &[&Session], expected: i64) {
    let shown = || {
        let errors = sessions.iter().map(|session| {
            let state = text(
                session,
                "SELECT concat(state, ': ', ifnull(error, '')) FROM lockstep.streams",
            );
            format!("{} rows, {state}", count(session))
        });
        errors.collect::<Vec<_>>().join("; ")
    };
    let mut turns = 0;
    while sessions.iter().map(|session| count(session)).sum::<i64>() < expected {
        turns += 1;
        assert!(turns < 12_000, "{expected} results: {}", shown());
        lockstep_host::pause(5);
    }
}

#[test]
fn each_main_row_has_one_result_whichever_processes_come_and_go() {
    let mut topics = Topics::new();
    let directories = ["one", "two"].map(TestDirectory::new);
    topics.write(200);
    let one = directories[0].open();
    topics.create(&one);
    wait_for_results(&[&one], 50);
    let two = directories[1].open();
    topics.create(&two);
    topics.write(300);
    wait_for_results(&[&one, &two], 400);
    drop(one);
    topics.write(200);
    let of_others = "SELECT count(*) FROM r WHERE id >= 500";
    wait("the second one goes on alone", || number(&two, of_others) > 150);
    let one = directories[0].open();
    topics.write(200);
    topics.write_markers();
    wait_for_results(&[&one, &two], topics.written);
    let (found, expected) = (all_results(&[&one, &two]), topics.expected());
    assert_eq!(found.len(), expected.len());
    assert_eq!(found, expected, "each once, with batch mode's bits");
    assert!(count(&one) > 0 && count(&two) > 0, "both have taken part");
    assert_eq!(number(&one, "SELECT rows_late FROM lockstep.streams"), 0);
}

/// Lets the broker fail in one of the ways in which the group may suffer.
fn disturb(topics: &mut Topics) {
    let fault = topics.next(6);
    let broker = &topics.broker.broker;
    match fault {
        0 => broker.on_times(ApiKey::OffsetCommit, 2, |_| Control::Disconnect),
        1 => {
            let lost = |_: &_| Control::ApplyThen(Box::new(Control::Disconnect));
            broker.on_times(ApiKey::OffsetCommit, 3, lost);
        }
        2 => {
            let fenced = |_: &_| Control::Error(ErrorCode::FencedMemberEpoch);
            broker.on_times(ApiKey::ConsumerGroupHeartbeat, 1, fenced);
        }
        3 => broker.on_times(ApiKey::OffsetFetch, 2, |_| Control::Disconnect),
        4 => {
            let refused = || Box::new(Control::Error(ErrorCode::InvalidCommitOffsetSize));
            broker.on_times(ApiKey::OffsetCommit, 2, move |_| Control::ApplyThen(refused()));
        }
        _ => broker.on_times(ApiKey::Fetch, 4, |_| Control::Disconnect),
    }
}

#[test]
fn no_result_is_lost_or_doubled_while_processes_change_and_the_broker_fails() {
    for seed in 1..4 {
        let mut topics = Topics::new();
        topics.state = seed;
        let directories = ["one", "two", "three"].map(TestDirectory::new);
        let mut sessions: [Option<Session>; 3] = [None, None, None];
        let mut is_created = [false; 3];
        for round in 0..10 {
            let rows = topics.next(120);
            topics.write(rows);
            let at = usize::try_from(topics.next(3)).unwrap();
            let session = sessions[at].take();
            if session.is_none() {
                let opened = directories[at].open();
                if !is_created[at] {
                    topics.create(&opened);
                    is_created[at] = true;
                }
                sessions[at] = Some(opened);
            }
            if round % 2 == 0 {
                disturb(&mut topics);
            }
            lockstep_host::pause(u32::try_from(topics.next(1_500)).unwrap());
        }
        for ((session, directory), is_created) in
            sessions.iter_mut().zip(&directories).zip(is_created)
        {
            if session.is_none() && is_created {
                *session = Some(directory.open());
            }
        }
        topics.write_markers();
        let sessions: Vec<&Session> = sessions.iter().flatten().collect();
        wait_for_results(&sessions, topics.written);
        assert_eq!(all_results(&sessions), topics.expected(), "seed {seed}");
    }
}
