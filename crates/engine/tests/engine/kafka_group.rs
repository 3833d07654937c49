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

const LAST_JOIN: &str = "
    SELECT a.id AS id, b.id AS n, c.x AS s FROM a
    LAST JOIN b ORDER BY b.ts ON a.k = b.k AND b.ts <= a.ts
    LAST JOIN b AS c ORDER BY c.ts ON a.k = c.k AND c.ts < a.ts AND c.x > 500.0";

const GROUP: &str = ", \"group\"='g', partitioned_by='k', partition_column='p', offset_column='o'";

/// The two topics of a test, and what was written to them.
struct Topics {
    broker: TestBroker,
    query: &'static str,
    /// The state of the generator.
    state: u64,
    written: i64,
    markers: i64,
}

impl Topics {
    fn new(query: &'static str) -> Self {
        let broker = TestBroker::new();
        for topic in ["a", "b"] {
            assert!(broker.broker.create_topic(topic, PARTITIONS));
        }
        Self { broker, query, state: 1, written: 0, markers: 0 }
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
        let create =
            format!("CREATE STREAM st INTO TABLE r OPTIONS(lateness='2s') AS {}", self.query);
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
        results(&session, self.query)
    }
}

/// Results by the ids of their main rows: the count, and the bits of the sum. One has several if it was computed twice.
type Results = BTreeMap<i64, Vec<(Option<i64>, Option<u64>)>>;

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
            let result = (count, sum.map(f64::to_bits));
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
    let mut topics = Topics::new(QUERY);
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
    // `lockstep-crash group` does more.
    for (seed, query) in [(1, QUERY), (2, LAST_JOIN)] {
        let mut topics = Topics::new(query);
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

#[test]
fn rows_at_arrival_have_one_result_in_whichever_process() {
    let mut topics = Topics::new(QUERY);
    let directories = ["one", "two"].map(TestDirectory::new);
    let query = "SELECT id, count(x) OVER w AS n, sum(x) OVER w AS s FROM a
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 4s PRECEDING AND CURRENT ROW)";
    let create = |session: &Session, topics: &Topics| {
        session.execute(TABLES).unwrap();
        let options = topics.broker.options("a", GROUP);
        let source = format!("CREATE SOURCE a_in INTO TABLE a FROM KAFKA {options}");
        session.execute(&source).unwrap();
        let stream = format!("CREATE STREAM st INTO TABLE r OPTIONS(emit='arrival') AS {query}");
        session.execute(&stream).unwrap();
    };
    topics.write(200);
    let one = directories[0].open();
    create(&one, &topics);
    wait_for_results(&[&one], 100);
    let two = directories[1].open();
    create(&two, &topics);
    topics.write(200);
    wait_for_results(&[&one, &two], 400);
    drop(one);
    topics.write(200);
    wait("the second one goes on alone", || {
        number(&two, "SELECT count(*) FROM r WHERE id >= 400") == 200
    });
    let one = directories[0].open();
    topics.write(100);
    wait_for_results(&[&one, &two], 700);
    let found = all_results(&[&one, &two]);
    assert_eq!(found.len(), 700);
    // All rows of a partition are read in its order, whoever reads them.
    let whole = Database::in_memory().session();
    whole.execute(TABLES).unwrap();
    let options = topics.broker.options("a", ", partition_column='p', offset_column='o'");
    whole.execute(&format!("CREATE SOURCE a_in INTO TABLE a FROM KAFKA {options}")).unwrap();
    let stream = format!("CREATE STREAM st INTO TABLE r OPTIONS(emit='arrival') AS {query}");
    whole.execute(&stream).unwrap();
    wait_for_results(&[&whole], 700);
    assert_eq!(found, all_results(&[&whole]));
}

#[test]
fn late_rows_are_those_of_their_partition_in_whichever_process() {
    let mut topics = Topics::new(QUERY);
    let directories = ["one", "two"].map(TestDirectory::new);
    let create = "CREATE STREAM st INTO TABLE r OPTIONS(lateness='300ms', late_rows='late') AS ";
    let mut sessions = Vec::new();
    for directory in &directories {
        topics.write(200);
        let session = directory.open();
        session.execute(TABLES).unwrap();
        for topic in ["a", "b"] {
            let options = topics.broker.options(topic, GROUP);
            let source =
                format!("CREATE SOURCE {topic}_in INTO TABLE {topic} FROM KAFKA {options}");
            session.execute(&source).unwrap();
        }
        session.execute(&format!("{create}{QUERY}")).unwrap();
        wait("it has partitions", || {
            text(&session, "SELECT partitions FROM lockstep.sources WHERE name = 'a_in'").len() > 2
        });
        sessions.push(session);
    }
    topics.write(100);
    topics.write_markers();
    let late =
        |session: &Session| number(session, "SELECT count(*) FROM late WHERE source = 'default.a'");
    let all = || sessions.iter().map(|session| count(session) + late(session)).sum::<i64>();
    wait("each row has a result or is late", || all() >= topics.written);
    assert_eq!(all(), topics.written);
    let of_late: i64 = sessions.iter().map(late).sum();
    assert!(of_late > 20, "{of_late}");
    let counted = |session: &Session| number(session, "SELECT rows_late FROM lockstep.streams");
    let of_both = |session: &Session| number(session, "SELECT count(*) FROM late");
    assert_eq!(
        sessions.iter().map(counted).sum::<i64>(),
        sessions.iter().map(of_both).sum::<i64>()
    );
    // A row is late where one of its partition is more than the lateness before it: told from the messages.
    let mut newest: BTreeMap<i32, i64> = BTreeMap::new();
    let mut expected = 0;
    for record in topics.broker.broker.committed_records("a").unwrap() {
        let value: serde_json::Value = serde_json::from_str(record.value_str().unwrap()).unwrap();
        let (id, ts) = (value["id"].as_i64().unwrap(), value["ts"].as_i64().unwrap());
        let newest = newest.entry(record.partition).or_insert(ts);
        expected += i64::from(id < FIRST_MARKER && ts < *newest - 300);
        *newest = ts.max(*newest);
    }
    assert_eq!(of_late, expected);
}

/// Returns a query with a window over the table `a` and others.
fn window(union: &str, keys: &str) -> String {
    format!(
        "SELECT count(x) OVER w AS n FROM a WINDOW w AS ({union} PARTITION BY {keys} ORDER BY ts \
         ROWS_RANGE BETWEEN 1s PRECEDING AND CURRENT ROW)"
    )
}

/// Makes a source of a topic for a table.
fn create_source(
    topics: &Topics,
    session: &Session,
    (table, topic): (&str, &str),
    group: &str,
) -> lockstep_engine::Result<()> {
    let options = topics.broker.options(topic, group);
    let create = format!("CREATE SOURCE {table}_in INTO TABLE {table} FROM KAFKA {options}");
    session.execute(&create).map(|_| ())
}

#[test]
fn what_cannot_be_shared_is_said() {
    let topics = Topics::new(QUERY);
    assert!(topics.broker.broker.create_topic("c", PARTITIONS + 1));
    let session = Database::in_memory().session();
    session.execute(TABLES).unwrap();
    let of_a = TABLES.split(';').next().unwrap();
    for table in ["c", "d", "e"] {
        session.execute(&of_a.replace("TABLE a", &format!("TABLE {table}"))).unwrap();
    }
    let source = |of: (&str, &str), group: &str| create_source(&topics, &session, of, group);
    for topic in ["a", "b", "c"] {
        source((topic, topic), GROUP).unwrap();
    }
    source(("d", "b"), &GROUP.replace("'g'", "'other'")).unwrap();
    let error = source(("e", "a"), &GROUP.replace("='k'", "='key'")).unwrap_err();
    assert_eq!(error.message, "column `key` does not exist in the table");
    let error = |options: &str, query: &str| {
        let create = format!("CREATE STREAM st INTO TABLE r OPTIONS({options}) AS {query}");
        session.execute(&create).unwrap_err().message
    };
    for (union, keys, expected) in [
        ("UNION e", "k", "table `default.e` has no source with group `g`"),
        ("UNION d", "k", "source `default.d_in` of table `default.d` has not group `g`"),
        ("UNION c", "k", "topic `c` has 5 partitions but topic `a` has 4"),
        (
            "UNION b",
            "id",
            "topic `a` is partitioned by `k`, which is no key of a window or LAST JOIN",
        ),
    ] {
        assert_eq!(error("", &window(union, keys)), expected);
    }
    let several = window("UNION b", "k");
    assert_eq!(
        error("start='latest'", &several),
        "a stream over sources with a group cannot begin with the latest row"
    );
    assert_eq!(
        error("joiners=2", &several),
        "a stream over sources with a group cannot have several joiners"
    );
    assert_eq!(
        error("emit='arrival'", &several),
        "a stream over sources with a group cannot use emit='arrival' with several tables"
    );
    assert_eq!(
        error("", "SELECT a.id FROM a LAST JOIN b ORDER BY b.ts ON a.id = b.id AND b.ts <= a.ts"),
        "topic `a` is partitioned by `k`, which is no key of a window or LAST JOIN"
    );
    let more = "CREATE SOURCE more INTO TABLE a FROM FILES OPTIONS(path='/tmp/none*.csv')";
    session.execute(more).unwrap();
    assert_eq!(error("", &window("", "k")), "table `default.a` has several sources");
}

#[test]
fn a_stream_whose_source_is_dropped_does_not_go_on() {
    let (topics, session) = (Topics::new(QUERY), Database::in_memory().session());
    session.execute(TABLES).unwrap();
    for topic in ["a", "b"] {
        create_source(&topics, &session, (topic, topic), GROUP).unwrap();
    }
    let query = window("UNION b", "k");
    session.execute(&format!("CREATE STREAM st INTO TABLE r AS {query}")).unwrap();
    let error = session.execute("ALTER SOURCE a_in SET OPTIONS(offset_column='id')").unwrap_err();
    assert_eq!(error.message, "option `offset_column` cannot be changed");
    wait("all partitions are claimed", || {
        text(&session, "SELECT partitions FROM lockstep.sources WHERE name = 'a_in'") == "0,1,2,3"
    });
    session.execute("DROP SOURCE b_in; STOP STREAM st; START STREAM st").unwrap();
    wait("it ends", || text(&session, "SELECT state FROM lockstep.streams") != "running");
    let error = text(&session, "SELECT error FROM lockstep.streams");
    assert!(error.starts_with("table `default.b` has no source with group `g`"), "{error}");
    session.execute("DROP SOURCE a_in; STOP STREAM st; START STREAM st").unwrap();
    let dropped = "the sources of the stream's tables were dropped";
    let error = || text(&session, "SELECT ifnull(error, '') FROM lockstep.streams");
    wait(dropped, || error().starts_with(dropped));
}

#[test]
fn topics_of_a_window_are_partitioned_by_the_same_keys() {
    let (topics, session) = (Topics::new(QUERY), Database::in_memory().session());
    session.execute(TABLES).unwrap();
    for (topic, keys) in [("a", "='k,id'"), ("b", "='id,k'")] {
        create_source(&topics, &session, (topic, topic), &GROUP.replace("='k'", keys)).unwrap();
    }
    let query = window("UNION b", "k, id");
    let create = format!("CREATE STREAM st INTO TABLE r AS {query}");
    let error = session.execute(&create).unwrap_err();
    assert_eq!(
        error.message,
        "topics `a` and `b` are partitioned by different keys of a window or LAST JOIN"
    );
}

#[test]
fn a_group_that_has_lost_its_notes_is_not_begun_again() {
    let mut topics = Topics::new(QUERY);
    let directory = TestDirectory::new("forgotten");
    let session = directory.open();
    topics.write(100);
    topics.create(&session);
    wait_for_results(&[&session], 50);
    let before = count(&session);
    drop(session);
    topics.broker.broker.with_state(|state| {
        state.groups.get_mut("g").expect("it was joined").offsets.clear();
    });
    let session = directory.open();
    wait("it fails", || text(&session, "SELECT state FROM lockstep.streams") == "failed");
    let error = text(&session, "SELECT error FROM lockstep.streams");
    let expected = "the group has forgotten how far partition 0 of topic `a` is";
    assert!(error.starts_with(expected), "{error}");
    assert!(count(&session) >= before);
    // The rows that are stored have results once more, in another table.
    let create = format!("CREATE STREAM again INTO TABLE r2 OPTIONS(lateness='2s') AS {QUERY}");
    session.execute(&create).unwrap();
    wait("it begins", || number(&session, "SELECT count(*) FROM r2") >= before);
}
