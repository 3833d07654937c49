//! Tests over a broker in this process, which fails where a test says so.

use std::time::Duration;

use krafka::{
    error::ErrorCode,
    testing::{ApiKey, Control, FakeBroker},
};
use lockstep_diagnostic::{Diagnostic, Kind, code};
use tokio::time::Instant;

use crate::{
    Brokers, Bytes, Delivery, Offsets, OutgoingMessage, ReadEnd, Topic, TopicMessage,
    TopicPosition, TopicReader, TopicStart, TopicWriter, runtime::runtime,
};

const WRITER: &str = "writer";
const POSITION: &str = "position";
/// A test fails that waits for longer.
const WAIT_MAX: Duration = Duration::from_secs(30);

struct TestCluster {
    broker: FakeBroker,
    brokers: Brokers,
}

impl TestCluster {
    fn new(partitions: i32) -> Self {
        let broker = runtime().unwrap().block_on(FakeBroker::start()).unwrap();
        assert!(broker.create_topic("t", partitions));
        let addresses = broker.bootstrap_servers();
        Self { broker, brokers: Brokers { addresses, tls: None, sasl: None } }
    }

    fn topic(&self) -> Topic {
        Topic::open(&self.brokers, "t").unwrap()
    }

    fn write(&self, delivery: Delivery<'_>, values: std::ops::Range<u64>) {
        let mut writer = TopicWriter::open(&self.topic(), delivery).unwrap();
        writer.write(values.map(outgoing).collect()).unwrap();
    }

    fn reader(&self, from: &TopicPosition, on_lost: ReadEnd) -> TopicReader {
        TopicReader::open(&self.brokers, "t", from, on_lost).unwrap()
    }
}

fn outgoing(number: u64) -> OutgoingMessage {
    OutgoingMessage {
        key: Some(Bytes::from(format!("k{}", number % 7))),
        value: Bytes::from(number.to_string()),
        headers: vec![
            (WRITER.to_owned(), Bytes::from_static(b"me")),
            (POSITION.to_owned(), Bytes::from(number.to_string())),
        ],
        time_ms: Some(1_000),
    }
}

/// Reads messages until there are so many.
fn read(reader: &mut TopicReader, count: usize) -> Vec<TopicMessage> {
    let (mut found, begun) = (Vec::new(), Instant::now());
    while found.len() < count {
        assert!(begun.elapsed() < WAIT_MAX, "{} of {count} messages", found.len());
        match reader.next(Duration::from_millis(100)) {
            Ok(batch) => found.extend(batch.into_iter().flat_map(|batch| batch.messages)),
            Err(error) => assert_eq!(error.kind, Kind::Retry, "{error}"),
        }
    }
    found
}

fn numbers(messages: &[TopicMessage]) -> Vec<u64> {
    let number = |message: &TopicMessage| {
        let value = message.value.as_ref().unwrap();
        std::str::from_utf8(value).unwrap().parse::<u64>().unwrap()
    };
    let mut numbers: Vec<u64> = messages.iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn messages_are_read_from_their_offsets_in_the_order_of_each_partition() {
    let cluster = TestCluster::new(3);
    cluster.write(Delivery::AtLeastOnce, 0..1_000);
    let first = cluster.topic().position(TopicStart::Earliest).unwrap();
    assert_eq!(first.offsets, Offsets::from([(0, 0), (1, 0), (2, 0)]));
    let all = read(&mut cluster.reader(&first, ReadEnd::Fail), 1_000);
    assert_eq!(numbers(&all), Vec::from_iter(0..1_000));
    assert_eq!(all[0].time_ms, 1_000);
    assert_eq!(all[0].headers[0].0, WRITER);
    for partition in 0..3 {
        let offsets: Vec<i64> =
            all.iter().filter(|m| m.partition == partition).map(|m| m.offset).collect();
        assert!(!offsets.is_empty());
        assert!(offsets.is_sorted(), "{offsets:?}");
    }
    // Another reader goes on behind the first half of each partition.
    let mut halves = cluster.topic().position(TopicStart::Latest).unwrap();
    halves.offsets.values_mut().for_each(|offset| *offset /= 2);
    let is_rest = |message: &&TopicMessage| message.offset >= halves.offsets[&message.partition];
    let rest = all.iter().filter(is_rest).count();
    let mut reader = cluster.reader(&halves, ReadEnd::Fail);
    assert_eq!(read(&mut reader, rest).len(), rest);
    assert!(reader.next(Duration::from_millis(300)).unwrap().is_none(), "there are no more");
    assert_eq!(reader.lag(), 0);
}

#[test]
fn only_committed_messages_are_read() {
    let cluster = TestCluster::new(1);
    cluster.write(Delivery::ExactlyOnce("one"), 0..10);
    cluster
        .broker
        .on_once(ApiKey::EndTxn, |_| Control::Error(ErrorCode::TransactionalIdAuthorizationFailed));
    let topic = cluster.topic();
    let mut writer = TopicWriter::open(&topic, Delivery::ExactlyOnce("one")).unwrap();
    let error = writer.write((10..20).map(outgoing).collect()).unwrap_err();
    assert_eq!(error.code, code::INSUFFICIENT_PRIVILEGE);
    drop(writer);
    // The next one ends what the last one has left.
    let mut writer = TopicWriter::open(&topic, Delivery::ExactlyOnce("one")).unwrap();
    writer.write((20..30).map(outgoing).collect()).unwrap();
    let mut reader = cluster.reader(&TopicPosition::default(), ReadEnd::Fail);
    let found = numbers(&read(&mut reader, 20));
    assert_eq!(found, Vec::from_iter((0..10).chain(20..30)));
    assert!(reader.next(Duration::from_millis(300)).unwrap().is_none());
}

#[test]
fn a_writer_that_is_opened_again_keeps_the_other_one_out() {
    let cluster = TestCluster::new(1);
    let topic = cluster.topic();
    let mut before = TopicWriter::open(&topic, Delivery::ExactlyOnce("one")).unwrap();
    before.write(vec![outgoing(0)]).unwrap();
    let mut after = TopicWriter::open(&topic, Delivery::ExactlyOnce("one")).unwrap();
    let error = before.write(vec![outgoing(1)]).unwrap_err();
    assert_eq!(error.code, code::DATABASE_IN_USE, "{error}");
    after.write(vec![outgoing(2)]).unwrap();
    let found = read(&mut cluster.reader(&TopicPosition::default(), ReadEnd::Fail), 2);
    assert_eq!(numbers(&found), [0, 2]);
}

#[test]
fn the_topic_tells_the_last_position_of_a_writer() {
    let cluster = TestCluster::new(3);
    let topic = cluster.topic();
    let last =
        |from: &Offsets, id: &str| topic.last_position(from, (WRITER, id), POSITION).unwrap();
    let begin = topic.position(TopicStart::Latest).unwrap().offsets;
    assert_eq!(last(&begin, "me"), None);
    cluster.write(Delivery::ExactlyOnce("one"), 0..100);
    assert_eq!(last(&begin, "me"), Some(99));
    assert_eq!(last(&begin, "another"), None);
    let end = topic.position(TopicStart::Latest).unwrap().offsets;
    assert_eq!(last(&end, "me"), None, "behind the last one there is none");
    // An answer that is lost: the transaction is committed, and its writer does not know.
    let mut writer = TopicWriter::open(&topic, Delivery::ExactlyOnce("one")).unwrap();
    cluster.broker.on_once(ApiKey::EndTxn, |_| Control::ApplyThen(Box::new(Control::Disconnect)));
    let _written = writer.write((100..150).map(outgoing).collect());
    drop(writer);
    TopicWriter::open(&topic, Delivery::ExactlyOnce("one")).unwrap();
    assert_eq!(last(&end, "me"), Some(149));
}

/// Returns the error with which a reader ends.
fn failure(reader: &mut TopicReader) -> Box<Diagnostic> {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < WAIT_MAX);
        match reader.next(Duration::from_millis(100)) {
            Err(error) if error.kind != Kind::Retry => return error,
            _ => {}
        }
    }
}

#[test]
fn messages_that_are_gone_are_an_error_or_are_left_out() {
    let cluster = TestCluster::new(1);
    cluster.write(Delivery::AtLeastOnce, 0..10);
    let beyond = TopicPosition { id: String::new(), offsets: Offsets::from([(0, 500)]) };
    let opened = TopicReader::open(&cluster.brokers, "t", &beyond, ReadEnd::Fail);
    assert_eq!(
        opened.unwrap_err().message,
        "messages from offset 500 on are not in partition 0 of topic `t`"
    );
    // Those before were read.
    let mut reader = cluster.reader(&beyond, ReadEnd::Skip);
    cluster.write(Delivery::AtLeastOnce, 10..15);
    assert_eq!(numbers(&read(&mut reader, 5)), Vec::from_iter(10..15));
}

#[test]
fn an_end_that_is_behind_for_a_while_is_waited_for() {
    let cluster = TestCluster::new(1);
    cluster.write(Delivery::AtLeastOnce, 0..10);
    let ahead = TopicPosition { id: String::new(), offsets: Offsets::from([(0, 12)]) };
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| cluster.reader(&ahead, ReadEnd::Fail));
        cluster.write(Delivery::AtLeastOnce, 10..20);
        assert_eq!(numbers(&read(&mut opened.join().unwrap(), 8)), Vec::from_iter(12..20));
    });
}

#[test]
fn a_topic_that_is_created_again_is_another_one() {
    let cluster = TestCluster::new(1);
    cluster.write(Delivery::AtLeastOnce, 0..10);
    let begin = cluster.topic().position(TopicStart::Earliest).unwrap();
    let mut strict = cluster.reader(&begin, ReadEnd::Fail);
    let mut other = cluster.reader(&begin, ReadEnd::Skip);
    assert_eq!(numbers(&read(&mut strict, 10)), Vec::from_iter(0..10));
    assert_eq!(numbers(&read(&mut other, 10)), Vec::from_iter(0..10));
    assert!(cluster.broker.delete_topic("t") && cluster.broker.create_topic("t", 1));
    cluster.write(Delivery::AtLeastOnce, 20..50);
    assert_eq!(failure(&mut strict).message, "topic `t` was created again");
    assert_eq!(numbers(&read(&mut other, 30)), Vec::from_iter(20..50));
    // Who goes on with the old offsets learns it at once.
    let opened = TopicReader::open(&cluster.brokers, "t", &begin, ReadEnd::Fail);
    assert_eq!(opened.unwrap_err().message, "topic `t` was created again");
}

#[test]
fn a_broker_that_does_not_answer_is_an_error_that_may_pass() {
    let cluster = TestCluster::new(1);
    let mut reader = cluster.reader(&TopicPosition::default(), ReadEnd::Fail);
    let begun = Instant::now();
    cluster.broker.crash(0);
    let error = loop {
        assert!(begun.elapsed() < WAIT_MAX);
        if let Err(error) = reader.next(Duration::from_millis(100)) {
            break error;
        }
    };
    assert_eq!(error.kind, Kind::Retry);
    cluster.broker.restart(0);
    cluster.write(Delivery::AtLeastOnce, 0..10);
    assert_eq!(numbers(&read(&mut reader, 10)), Vec::from_iter(0..10));
}

#[test]
fn partitions_that_are_added_are_read_from_their_beginning() {
    let cluster = TestCluster::new(1);
    let mut reader = cluster.reader(&TopicPosition::default(), ReadEnd::Fail);
    cluster.write(Delivery::AtLeastOnce, 0..10);
    assert_eq!(numbers(&read(&mut reader, 10)), Vec::from_iter(0..10));
    cluster.broker.add_partitions("t", 4);
    cluster.write(Delivery::AtLeastOnce, 10..200);
    assert_eq!(numbers(&read(&mut reader, 190)), Vec::from_iter(10..200));
}

#[test]
fn a_broker_that_fails_for_a_while_is_waited_for() {
    let cluster = TestCluster::new(2);
    cluster.write(Delivery::AtLeastOnce, 0..50);
    cluster.broker.on_times(ApiKey::Fetch, 3, |_| Control::Disconnect);
    let mut reader = cluster.reader(&TopicPosition::default(), ReadEnd::Fail);
    assert_eq!(numbers(&read(&mut reader, 50)), Vec::from_iter(0..50));
    cluster.broker.on_times(ApiKey::Fetch, 2, |_| Control::Error(ErrorCode::NotLeaderForPartition));
    cluster.write(Delivery::AtLeastOnce, 50..60);
    assert_eq!(numbers(&read(&mut reader, 10)), Vec::from_iter(50..60));
}

#[test]
fn a_partition_that_has_no_leader_yet_is_waited_for() {
    let cluster = TestCluster::new(1);
    cluster.write(Delivery::AtLeastOnce, 0..3);
    cluster
        .broker
        .on_times(ApiKey::ListOffsets, 2, |_| Control::Error(ErrorCode::NotLeaderForPartition));
    let end = cluster.topic().position(TopicStart::Latest).unwrap();
    assert_eq!(end.offsets, Offsets::from([(0, 3)]));
}

#[test]
fn what_is_wrong_is_said() {
    let cluster = TestCluster::new(1);
    let error = Topic::open(&cluster.brokers, "absent").unwrap_err();
    assert_eq!((error.code, error.kind), (code::UNDEFINED_OBJECT, Kind::Retry));
    assert_eq!(error.message, "topic `absent` does not exist");
    let nobody = Brokers { addresses: "127.0.0.1:1".to_owned(), tls: None, sasl: None };
    let error = Topic::open(&nobody, "t").unwrap_err();
    assert_eq!((error.code, error.kind), (code::NOT_CONNECTED, Kind::Retry));
    assert_eq!(error.message, "could not connect to Kafka at `127.0.0.1:1`");
}
