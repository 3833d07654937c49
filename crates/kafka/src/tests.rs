//! Tests over a broker in this process, which fails where a test says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use krafka::{
    error::ErrorCode,
    testing::{ApiKey, Control, FakeBroker},
};
use lockstep_diagnostic::{Diagnostic, Kind, code};
use tokio::time::Instant;

use crate::{
    Brokers, Bytes, Claims, Delivery, GroupMember, GroupNote, Offsets, OutgoingMessage,
    PartitionName, ReadEnd, ReadPartitions, Topic, TopicMessage, TopicPosition, TopicReader,
    TopicStart, TopicWriter, runtime::runtime,
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
        TopicReader::open(&self.brokers, "t", from, (ReadPartitions::All, on_lost)).unwrap()
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
    let opened =
        TopicReader::open(&cluster.brokers, "t", &beyond, (ReadPartitions::All, ReadEnd::Fail));
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
    let opened =
        TopicReader::open(&cluster.brokers, "t", &begin, (ReadPartitions::All, ReadEnd::Fail));
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

#[test]
fn messages_behind_the_open_transaction_of_another_writer_are_waited_for() {
    let cluster = TestCluster::new(1);
    let topic = cluster.topic();
    cluster.write(Delivery::ExactlyOnce("w"), 0..5);
    let end = topic.position(TopicStart::Latest).unwrap().offsets;
    // The other one ends before its transaction does.
    cluster.broker.on(ApiKey::EndTxn, |_| Control::Disconnect);
    let mut other = TopicWriter::open(&topic, Delivery::ExactlyOnce("other")).unwrap();
    let message = OutgoingMessage { value: Bytes::from_static(b"x"), ..OutgoingMessage::default() };
    assert!(other.write(vec![message]).is_err());
    drop(other);
    cluster.broker.clear_hooks();
    assert!(cluster.broker.transaction_is_open("other"), "nobody has ended it");
    cluster.write(Delivery::ExactlyOnce("w"), 5..9);
    let last = || topic.last_position(&end, (WRITER, "me"), POSITION);
    let error = last().unwrap_err();
    assert_eq!(error.kind, Kind::Retry);
    assert_eq!(error.message, "another transaction in topic `t` is still open");
    assert_eq!(topic.last_position(&end, (WRITER, "nobody"), POSITION), Ok(None));
    assert!(cluster.broker.abort_transaction("other"));
    assert_eq!(last(), Ok(Some(8)));
}

impl TestCluster {
    fn member(&self) -> GroupMember {
        let member = GroupMember::join(&self.brokers, "g").unwrap();
        member.add_topic("t").unwrap();
        member
    }
}

/// Waits until members have claimed so many partitions each.
fn wait_for_claims(members: &[(&GroupMember, usize)]) {
    let begun = Instant::now();
    while members.iter().any(|(member, count)| member.claims().len() != *count) {
        assert!(begun.elapsed() < WAIT_MAX, "the partitions are not shared as expected");
        lockstep_host::pause(20);
    }
}

/// Adds a word to the notes of partitions.
fn note(member: &GroupMember, claims: &Claims, word: &str) -> usize {
    let add = |_: &PartitionName, before: &GroupNote| GroupNote {
        offset: before.offset + 1,
        text: format!("{} {word}", before.text),
    };
    member.write(claims, add).unwrap().len()
}

#[test]
fn members_share_the_partitions_and_find_the_notes_of_those_before() {
    let cluster = TestCluster::new(4);
    let first = cluster.member();
    wait_for_claims(&[(&first, 4)]);
    let all = first.claims();
    assert_eq!(note(&first, &all, "one"), 4);
    let second = cluster.member();
    wait_for_claims(&[(&first, 2), (&second, 2)]);
    let (of_first, of_second) = (first.claims(), second.claims());
    assert!(of_first.keys().all(|name| !of_second.contains_key(name)), "no partition twice");
    // Two of the claims are over.
    assert_eq!(note(&first, &all, "two"), 2);
    assert_eq!(note(&second, &of_second, "other"), 2);
    drop(first);
    wait_for_claims(&[(&second, 4)]);
    assert_eq!(note(&second, &second.claims(), "last"), 4);
    let notes = second.notes(&all.keys().cloned().collect()).unwrap();
    for name in all.keys() {
        let of_first = of_first.contains_key(name);
        let expected = if of_first { " one two last" } else { " one other last" };
        let offset = 3;
        assert_eq!(notes[name], GroupNote { offset, text: expected.to_owned() });
    }
    let unread = BTreeSet::from([("t".to_owned(), 7)]);
    assert_eq!(second.notes(&unread).unwrap(), BTreeMap::new());
    assert_eq!(second.check(), Ok(()));
}

#[test]
fn a_partition_that_comes_back_is_another_claim() {
    let cluster = TestCluster::new(2);
    let first = cluster.member();
    wait_for_claims(&[(&first, 2)]);
    let before = first.claims();
    let second = cluster.member();
    wait_for_claims(&[(&first, 1), (&second, 1)]);
    drop(second);
    wait_for_claims(&[(&first, 2)]);
    let kept = first.claims().iter().filter(|(name, claim)| before[*name] == **claim).count();
    assert_eq!(kept, 1);
    assert_eq!(note(&first, &before, "late"), 1);
}

#[test]
fn a_note_that_the_brokers_may_not_have_taken_is_read_again() {
    let cluster = TestCluster::new(1);
    let member = cluster.member();
    wait_for_claims(&[(&member, 1)]);
    let claims = member.claims();
    assert_eq!(note(&member, &claims, "one"), 1);
    let refused = || Box::new(Control::Error(ErrorCode::InvalidCommitOffsetSize));
    cluster.broker.on_once(ApiKey::OffsetCommit, move |_| Control::ApplyThen(refused()));
    let maybe = GroupNote { offset: 7, text: "maybe".to_owned() };
    let failed = member.write(&claims, |_, _| maybe.clone()).unwrap_err();
    assert_eq!((failed.kind, failed.code), (Kind::Retry, code::CONNECTION_FAILURE));
    assert_eq!(note(&member, &claims, "two"), 1);
    let notes = member.notes(&claims.keys().cloned().collect()).unwrap();
    let expected = GroupNote { offset: 8, text: "maybe two".to_owned() };
    assert_eq!(notes[&("t".to_owned(), 0)], expected);
}

#[test]
fn a_reader_reads_the_partitions_that_it_is_given() {
    let cluster = TestCluster::new(3);
    cluster.write(Delivery::AtLeastOnce, 0..300);
    let from = TopicPosition::default();
    let of = |numbers: &[i32]| numbers.iter().copied().collect::<BTreeSet<i32>>();
    let partitions = ReadPartitions::Of(of(&[]));
    let opened = TopicReader::open(&cluster.brokers, "t", &from, (partitions, ReadEnd::Fail));
    let mut reader = opened.unwrap();
    assert!(reader.next(Duration::from_millis(600)).unwrap().is_none());
    let mut found = Vec::new();
    for numbers in [&[0][..], &[0, 1], &[2], &[0, 1, 2]] {
        reader.set_partitions(of(numbers));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            let batch = reader.next(Duration::from_millis(100)).unwrap();
            found.extend(batch.into_iter().flat_map(|batch| batch.messages));
        }
        let read: BTreeSet<i32> = found.iter().map(|message| message.partition).collect();
        assert!(numbers.iter().all(|number| read.contains(number)), "{read:?} of {numbers:?}");
    }
    assert_eq!(numbers(&found), (0..300).collect::<Vec<u64>>(), "each once");
}
