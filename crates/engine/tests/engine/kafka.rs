//! Sources and sinks over a broker in this process: each message is one row and each row one message, however often the
//! directory is opened.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use krafka::{
    Kafka, Record,
    testing::{ApiKey, Control, FakeBroker},
};
use lockstep_engine::{Database, Session, code};
use tokio::runtime::Runtime;

use crate::test_directory::TestDirectory;

/// A test fails that waits for longer, in turns of five milliseconds.
const TURNS_MAX: usize = 12_000;

/// A broker with the topics `in` and `out`, of three partitions each.
pub(crate) struct TestBroker {
    pub(crate) runtime: Runtime,
    pub(crate) broker: FakeBroker,
}

impl TestBroker {
    pub(crate) fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let broker = runtime.block_on(FakeBroker::start()).unwrap();
        assert!(broker.create_topic("in", 3) && broker.create_topic("out", 3));
        Self { runtime, broker }
    }

    /// Returns the options that name the broker and a topic.
    pub(crate) fn options(&self, topic: &str, more: &str) -> String {
        format!("OPTIONS(brokers='{}', topic='{topic}'{more})", self.broker.bootstrap_servers())
    }

    /// Writes messages to the topic `in`: keys and values.
    pub(crate) fn write<'m>(&self, messages: impl IntoIterator<Item = (&'m str, String)>) {
        self.runtime.block_on(async {
            let kafka = Kafka::builder(self.broker.bootstrap_servers()).connect().await.unwrap();
            let producer = kafka.producer().build().await.unwrap();
            for (key, value) in messages {
                let record = Record::new("in", value).key(key.to_owned()).timestamp(5_000);
                let record = record.header("trace", format!("of {key}"));
                assert!(producer.send(record).await.is_ok());
            }
            producer.close().await.unwrap();
        });
    }

    /// Returns the values of the committed messages of the topic `out`, sorted.
    pub(crate) fn written(&self) -> Vec<String> {
        let records = self.broker.committed_records("out").unwrap();
        let mut values: Vec<String> =
            records.iter().map(|record| record.value_str().unwrap().to_owned()).collect();
        values.sort_unstable();
        values
    }
}

/// Returns the rows of a query as text.
pub(crate) fn rows(session: &Session, sql: &str) -> String {
    let batches = session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).batches;
    batches.iter().map(|batch| format!("{:?}", batch.columns())).collect()
}

/// Returns the number that a query returns.
pub(crate) fn number(session: &Session, sql: &str) -> i64 {
    let text = rows(session, sql);
    let line = text.lines().find(|line| line.starts_with("  ")).unwrap_or_default();
    line.trim().trim_end_matches(',').parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns the text that a query returns.
pub(crate) fn text(session: &Session, sql: &str) -> String {
    let text = rows(session, sql);
    let line = text.lines().find(|line| line.starts_with("  ")).unwrap_or_default();
    line.trim().trim_end_matches(',').trim_matches('"').to_owned()
}

/// Waits until something is so.
pub(crate) fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut turns = 0;
    while !is_so() {
        turns += 1;
        assert!(turns < TURNS_MAX, "{what}");
        lockstep_host::pause(5);
    }
}

pub(crate) fn wait_for_rows(session: &Session, table: &str, count: i64) {
    let sql = format!("SELECT count(*) FROM {table}");
    wait(&format!("{count} rows of {table}"), || number(session, &sql) >= count);
    assert_eq!(number(session, &sql), count);
}

fn message(id: i64) -> (&'static str, String) {
    let key = ["ann", "bob", "cid"][usize::try_from(id % 3).unwrap()];
    (key, format!(r#"{{"id": {id}, "k": "{key}", "ts": {}, "x": {id}.5}}"#, 1_000 * id))
}

const TABLE: &str =
    "CREATE TABLE t (id INT, k STRING, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts))";

#[test]
fn each_message_is_one_row_however_often_the_directory_is_opened() {
    let (broker, directory) = (TestBroker::new(), TestDirectory::new("kafka-source"));
    broker.write((0..50).map(message));
    let session = directory.open();
    session.execute(TABLE).unwrap();
    let create = format!("CREATE SOURCE s INTO TABLE t FROM KAFKA {}", broker.options("in", ""));
    session.execute(&create).unwrap();
    wait_for_rows(&session, "t", 50);
    drop(session);
    for round in 1..8 {
        if round % 2 == 0 {
            broker.write((50 * round..50 * (round + 1)).map(message));
        }
        let session = directory.open();
        if round % 2 == 1 {
            broker.write((50 * round..50 * (round + 1)).map(message));
        }
        if round == 3 {
            session.execute("CHECKPOINT").unwrap();
        }
        if round == 5 {
            broker.broker.on_times(ApiKey::Fetch, 5, |_| Control::Disconnect);
        }
        wait_for_rows(&session, "t", 50 * (round + 1));
        assert_eq!(number(&session, "SELECT count(DISTINCT id) FROM t"), 50 * (round + 1));
    }
    let session = directory.open();
    assert_eq!(number(&session, "SELECT messages_read FROM lockstep.sources"), 400);
    assert_eq!(text(&session, "SELECT target FROM lockstep.sources"), "default.t");
    assert_eq!(number(&session, "SELECT sum(id) FROM t"), (0..400).sum::<i64>());
}

#[test]
fn a_message_that_is_no_row_is_stored_with_the_reason() {
    let (broker, database) = (TestBroker::new(), Database::in_memory());
    let session = database.session();
    session
        .execute("CREATE TABLE t (id INT NOT NULL, k STRING, ts TIMESTAMP DEFAULT 7000)")
        .unwrap();
    let options = broker.options("in", ", on_error='skip into bad'");
    session.execute(&format!("CREATE SOURCE s INTO TABLE t FROM KAFKA {options}")).unwrap();
    let values = [
        r#"{"id": 1, "k": "a", "ts": "1970-01-01 00:00:09"}"#,
        r#"{"id": 2}"#,
        r#"{"id": "three"}"#,
        r#"{"k": "no id"}"#,
        r#"{"id": 5, "other": 1}"#,
        r"not JSON",
        r#"{"id": 7, "k": null}"#,
    ];
    broker.write(values.map(|value| ("key", value.to_owned())));
    wait_for_rows(&session, "t", 3);
    wait_for_rows(&session, "bad", 4);
    assert_eq!(number(&session, "SELECT count(*) FROM t WHERE id = 2 AND ts = TIMESTAMP(7000)"), 1);
    let reasons = rows(&session, "SELECT reason, message FROM bad ORDER BY topic_offset");
    for expected in [
        "column `id` is of type INT but the value is a string",
        "column `id`",
        "column `other` does not exist",
        "invalid message: expected",
        "not JSON",
    ] {
        assert!(reasons.contains(expected), "{expected} is not in {reasons}");
    }
    let places = "SELECT count(*) FROM bad WHERE source = 's' AND topic = 'in' AND message_key = 'key' \
                  AND message_time = TIMESTAMP(5000) AND topic_partition IS NOT NULL";
    assert_eq!(number(&session, places), 4);
    assert_eq!(number(&session, "SELECT messages_bad FROM lockstep.sources"), 4);
}

#[test]
fn a_source_stops_at_a_message_that_is_no_row_and_continues_as_it_is_told() {
    let (broker, directory) = (TestBroker::new(), TestDirectory::new("kafka-stop"));
    let session = directory.open();
    session.execute(TABLE).unwrap();
    let create = format!("CREATE SOURCE s INTO TABLE t FROM KAFKA {}", broker.options("in", ""));
    session.execute(&create).unwrap();
    // One key: one partition, in this order.
    broker.write([("a", message(1).1), ("a", "{".to_owned()), ("a", message(2).1)]);
    let state = "SELECT state FROM lockstep.sources";
    wait("the source fails", || text(&session, state) == "failed");
    wait_for_rows(&session, "t", 1);
    let error = text(&session, "SELECT error FROM lockstep.sources");
    assert!(error.contains("is not a row of table `t`: invalid message"), "{error}");
    assert!(error.contains("the message at offset 1 of partition"), "{error}");
    session.execute("START SOURCE s").unwrap();
    wait("it fails again", || text(&session, state) == "failed");
    wait_for_rows(&session, "t", 1);
    session.execute("ALTER SOURCE s SET OPTIONS(on_error='skip')").unwrap();
    wait_for_rows(&session, "t", 2);
    assert_eq!(number(&session, "SELECT messages_bad FROM lockstep.sources"), 1);
    drop(session);
    let session = directory.open();
    let shown = rows(&session, "SHOW CREATE SOURCE s");
    assert!(shown.contains("on_error='skip'"), "{shown}");
    session.execute("STOP SOURCE s").unwrap();
    broker.write([("a", message(3).1)]);
    drop(session);
    let session = directory.open();
    assert_eq!(text(&session, state), "stopped");
    session.execute("START SOURCE s").unwrap();
    wait_for_rows(&session, "t", 3);
}

#[test]
fn parts_of_a_message_are_columns() {
    let (broker, database) = (TestBroker::new(), Database::in_memory());
    let session = database.session();
    let columns = "v INT, k STRING, p INT, o BIGINT, t TIMESTAMP, h STRING";
    for (table, format) in [("of_json", "json"), ("of_csv", "csv")] {
        session.execute(&format!("CREATE TABLE {table} ({columns})")).unwrap();
        let more = format!(
            ", format='{format}', on_error='skip', key_column='k', partition_column='p', \
             offset_column='o', time_column='t', headers_column='h'"
        );
        let options = broker.options("in", &more);
        let create = format!("CREATE SOURCE from_{table} INTO TABLE {table} FROM KAFKA {options}");
        session.execute(&create).unwrap();
    }
    broker.write([("a", r#"{"v": 1}"#.to_owned()), ("a", "2".to_owned()), ("a", "3,4".to_owned())]);
    for (table, value, offset) in [("of_json", 1, 0), ("of_csv", 2, 1)] {
        wait_for_rows(&session, table, 1);
        let sql = format!(
            "SELECT count(*) FROM {table} WHERE v = {value} AND k = 'a' AND o = {offset} AND p >= 0 AND \
             t = TIMESTAMP(5000) AND h = '{{\"trace\":\"of a\"}}'"
        );
        assert_eq!(number(&session, &sql), 1, "{table}");
    }
}

#[test]
fn results_of_a_stream_are_messages_once() {
    let (broker, directory) = (TestBroker::new(), TestDirectory::new("kafka-sink"));
    let session = directory.open();
    session.execute(TABLE).unwrap();
    let source = format!("CREATE SOURCE s INTO TABLE t FROM KAFKA {}", broker.options("in", ""));
    session.execute(&source).unwrap();
    session
        .execute(
            "CREATE STREAM counted INTO TABLE counts OPTIONS(emit='arrival') AS SELECT id, k, count(x) \
             OVER w AS n FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h \
             PRECEDING AND CURRENT ROW)",
        )
        .unwrap();
    let options = broker.options("out", ", key='k'");
    session.execute(&format!("CREATE SINK o FROM STREAM counted INTO KAFKA {options}")).unwrap();
    let error = session.execute("DROP STREAM counted").unwrap_err();
    assert_eq!(error.code, code::DEPENDENT_OBJECTS);
    assert_eq!(error.message, "stream `counted` is read by sink `o`");
    let error = session.execute("DROP TABLE t").unwrap_err();
    assert_eq!(error.message, "table `t` is written by source `s`");
    drop(session);
    for round in 0..8_i64 {
        let session = directory.open();
        broker.write((20 * round..20 * (round + 1)).map(message));
        match round {
            2 => {
                let lost = |_: &_| Control::ApplyThen(Box::new(Control::Disconnect));
                broker.broker.on_times(ApiKey::EndTxn, 2, lost);
            }
            3 => broker.broker.on_times(ApiKey::Produce, 2, |_| Control::Disconnect),
            4 => drop(session.execute("STOP SINK o").unwrap()),
            5 => drop(session.execute("START SINK o").unwrap()),
            _ => {}
        }
        if round % 3 != 1 {
            wait_for_rows(&session, "counts", 20 * (round + 1));
            if round != 4 {
                let count = usize::try_from(20 * (round + 1)).unwrap();
                wait("messages", || broker.written().len() >= count);
            }
        }
    }
    let session = directory.open();
    wait_for_rows(&session, "counts", 160);
    wait("messages", || broker.written().len() >= 160);
    let ids = |value: &String| value.split_once(',').unwrap().0.to_owned();
    let written = broker.written();
    let distinct: std::collections::BTreeSet<String> = written.iter().map(ids).collect();
    assert_eq!((written.len(), distinct.len()), (160, 160), "each row once");
    assert!(written.contains(&r#"{"id":4,"k":"bob","n":2}"#.to_owned()), "{written:?}");
    let first = broker.broker.committed_records("out").unwrap().swap_remove(0);
    assert!(["ann", "bob", "cid"].contains(&first.key_str().unwrap()));
    assert!(first.header_str("lockstep-position").is_some());
    session.execute("DROP TABLE counts CASCADE").unwrap();
    assert_eq!(number(&session, "SELECT count(*) FROM lockstep.sinks"), 0);
}

#[test]
fn a_sink_continues_behind_the_last_row_whose_transaction_was_committed() {
    let (broker, directory) = (TestBroker::new(), TestDirectory::new("kafka-unknown"));
    let session = directory.open();
    session.execute(TABLE).unwrap();
    let options = broker.options("out", "");
    session.execute(&format!("CREATE SINK o FROM TABLE t INTO KAFKA {options}")).unwrap();
    for round in 0..6 {
        // The engine ends while the answer to the commit is lost, or the commit itself.
        let is_committed = round % 2 == 0;
        broker.broker.on(ApiKey::EndTxn, move |_| match is_committed {
            true => Control::ApplyThen(Box::new(Control::Disconnect)),
            false => Control::Disconnect,
        });
        session.execute(&format!("INSERT INTO t VALUES ({round}, 'a', {round}, 1.0)")).unwrap();
        lockstep_host::pause(100);
        session.execute("STOP SINK o").unwrap();
        broker.broker.clear_hooks();
        // It is read together with the row that may be written.
        session.execute(&format!("INSERT INTO t VALUES ({}, 'b', 1, 1.0)", 100 + round)).unwrap();
        session.execute("START SINK o").unwrap();
        wait("messages", || broker.written().len() >= 2 * (round + 1));
    }
    assert_eq!(broker.written().len(), 12, "each row once");
    // The topic has them a moment before the sink has counted them.
    let counted = "SELECT messages_written FROM lockstep.sinks";
    wait("the count", || number(&session, counted) >= 12);
    assert_eq!(number(&session, counted), 12);
}

#[test]
fn what_is_wrong_is_said_and_leaves_nothing() {
    let (broker, database) = (TestBroker::new(), Database::in_memory());
    let session = database.session();
    session.execute(TABLE).unwrap();
    let absent = broker.options("absent", "");
    let column = broker.options("in", ", key_column='x', on_error='skip into bad'");
    let key = broker.options("out", ", key='kk'");
    for (sql, code, message) in [
        (
            format!("CREATE SOURCE s INTO TABLE t FROM KAFKA {absent}"),
            code::UNDEFINED_OBJECT,
            "topic `absent` does not exist",
        ),
        (
            format!("CREATE SOURCE s INTO TABLE t FROM KAFKA {column}"),
            code::DATATYPE_MISMATCH,
            "column `x` is of type DOUBLE but must be STRING",
        ),
        (
            format!("CREATE SINK s FROM TABLE t INTO KAFKA {key}"),
            code::UNDEFINED_COLUMN,
            "column `kk` does not exist",
        ),
        (
            "CREATE SOURCE s INTO TABLE t FROM KAFKA OPTIONS(brokers='127.0.0.1:1', topic='t')"
                .to_owned(),
            code::NOT_CONNECTED,
            "could not connect to Kafka at `127.0.0.1:1`",
        ),
    ] {
        let error = session.execute(&sql).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, message));
    }
    assert_eq!(number(&session, "SELECT count(*) FROM lockstep.tables WHERE name = 'bad'"), 0);
    assert_eq!(number(&session, "SELECT count(*) FROM lockstep.sources"), 0);
}

#[test]
fn a_password_is_masked() {
    let broker = TestBroker::new();
    broker.broker.require_sasl_plain("me", "hush");
    let directory = TestDirectory::new("kafka-password");
    let session = directory.open();
    session.execute(TABLE).unwrap();
    let create = |password: &str| {
        let more =
            format!(", sasl_mechanism='plain', sasl_username='me', sasl_password='{password}'");
        format!("CREATE SOURCE s INTO TABLE t FROM KAFKA {}", broker.options("in", &more))
    };
    let error = session.execute(&create("wrong")).unwrap_err();
    assert_eq!(error.code, code::INVALID_AUTHORIZATION, "{error}");
    session.execute(&create("hush")).unwrap();
    for sql in ["SHOW CREATE SOURCE s", "SELECT statement FROM lockstep.sources", "SHOW SOURCES"] {
        let shown = rows(&session, sql);
        assert!(shown.contains("sasl_password='***'") && !shown.contains("hush"), "{shown}");
    }
    drop(session);
    let session = directory.open();
    let state = "SELECT state FROM lockstep.sources";
    lockstep_host::pause(300);
    assert_eq!(text(&session, state), "running", "it logs in again");
}
