//! A topic: its partitions, their offsets, and the last position that a sink has written to it.

use std::{collections::BTreeMap, time::Duration};

use krafka::{
    Kafka, KrafkaError,
    admin::DescribeTopicsOptions,
    consumer::{AutoOffsetReset, Consumer, IsolationLevel},
};
use lockstep_diagnostic::Result;
use tokio::time::{Instant, sleep};

use crate::{
    Brokers,
    error::{no_topic, open_transaction, topic_error},
    runtime::wait,
};

/// An offset of each partition.
pub type Offsets = BTreeMap<i32, i64>;

/// Where a topic is read from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicPosition {
    /// The id of the topic: one that is created again has another id. Empty if the brokers have none.
    pub id: String,
    /// The offset of each partition.
    pub offsets: Offsets,
}

/// An answer of the brokers has so many bytes of a partition at most, or one batch.
const PARTITION_BYTES_MAX: i32 = 512 << 10;
/// How long a call waits for the leader of a partition, and how often it looks.
const LEADER_WAIT: Duration = Duration::from_secs(5);
const LEADER_DELAY: Duration = Duration::from_millis(100);
/// How long a read waits for messages that are known to be there: a broker that waits for more may take as long, and what
/// it answers later is lost.
const POLL_TIMEOUT: Duration = Duration::from_millis(500);

/// One end of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopicStart {
    /// From the first message that is kept.
    Earliest,
    /// From the next message.
    Latest,
}

/// A topic of a cluster.
#[derive(Debug)]
pub struct Topic {
    kafka: Kafka,
    name: String,
}

impl Topic {
    /// Finds a topic. Fails if it does not exist.
    pub fn open(brokers: &Brokers, name: &str) -> Result<Self> {
        wait(async {
            let kafka = brokers.connect().await?;
            let topic = Self { kafka, name: name.to_owned() };
            let partitions = partitions(&topic.kafka, name).await?;
            debug_assert!(!partitions.numbers.is_empty(), "a topic has partitions");
            Ok(topic)
        })
    }

    /// Returns how many partitions it has.
    pub fn partition_count(&self) -> Result<usize> {
        wait(async { Ok(partitions(&self.kafka, &self.name).await?.numbers.len()) })
    }

    /// Returns one end of the topic.
    pub fn position(&self, start: TopicStart) -> Result<TopicPosition> {
        wait(async {
            let consumer = self.consumer().await?;
            let found = partitions(&self.kafka, &self.name).await?;
            let mut offsets = Offsets::new();
            for partition in found.numbers {
                let (first, end) = watermarks(&consumer, &self.name, partition).await?;
                let offset = if start == TopicStart::Earliest { first } else { end };
                offsets.insert(partition, offset);
            }
            Ok(TopicPosition { id: found.topic_id, offsets })
        })
    }

    /// Returns the greatest number that a header has, of committed messages from these offsets on whose header `writer`
    /// is `id`. Fails, for a while, where others have not ended a transaction that was begun before such a message: it is
    /// not seen until then. *Cost*: it reads all of these messages.
    pub fn last_position(
        &self,
        from: &Offsets,
        (writer, id): (&str, &str),
        position: &str,
    ) -> Result<Option<u64>> {
        wait(async {
            let committed = self.consumer().await?;
            let ends = self.ends(&committed).await?;
            let uncommitted = self.consumer_of(IsolationLevel::ReadUncommitted).await?;
            let all_ends = self.ends(&uncommitted).await?;
            let own = Headers { writer: (writer, id), position };
            let last = self.last_between(&committed, (from, &ends), own).await?;
            let hidden = self.last_between(&uncommitted, (&ends, &all_ends), own).await?;
            match hidden {
                None => Ok(last),
                Some(_) => Err(open_transaction(&self.name)),
            }
        })
    }

    /// Returns the greatest position of the messages that a consumer sees between offsets.
    async fn last_between(
        &self,
        consumer: &Consumer,
        (from, ends): (&Offsets, &Offsets),
        Headers { writer: (writer, id), position }: Headers<'_>,
    ) -> Result<Option<u64>> {
        let begin = |partition: &i32| from.get(partition).copied().unwrap_or(0);
        let unread = |(partition, end): (&i32, &i64)| {
            (begin(partition) < *end).then_some((*partition, begin(partition)))
        };
        let unread: Offsets = ends.iter().filter_map(unread).collect();
        if unread.is_empty() {
            return Ok(None);
        }
        assign(consumer, &self.name, &unread).await?;
        let mut last = None;
        loop {
            let mut is_read = true;
            for partition in unread.keys() {
                let reached = consumer.fetch_position(&self.name, *partition).await;
                is_read &= reached.is_some_and(|reached| reached >= ends[partition]);
            }
            let longest = if is_read { Duration::ZERO } else { POLL_TIMEOUT };
            let records = consumer.poll(longest).await;
            let records = records.map_err(|error| topic_error(&self.name, &error))?;
            if records.is_empty() && is_read {
                return Ok(last);
            }
            let own = records.iter().filter(|record| record.header_str(writer) == Some(id));
            let positions = own.filter_map(|record| record.header_str(position)?.parse().ok());
            last = last.max(positions.max());
        }
    }

    /// Returns the end of each partition.
    async fn ends(&self, consumer: &Consumer) -> Result<Offsets> {
        let mut ends = Offsets::new();
        for partition in partitions(&self.kafka, &self.name).await?.numbers {
            let (_, end) = watermarks(consumer, &self.name, partition).await?;
            ends.insert(partition, end);
        }
        Ok(ends)
    }

    /// Makes a consumer of committed messages, in no group, that has no partitions yet. A partition whose offset is not
    /// there any more is an error, since messages would be missed.
    pub(crate) async fn consumer(&self) -> Result<Consumer> {
        self.consumer_of(IsolationLevel::ReadCommitted).await
    }

    async fn consumer_of(&self, isolation: IsolationLevel) -> Result<Consumer> {
        let builder = self
            .kafka
            .consumer_without_group()
            .auto_offset_reset(AutoOffsetReset::None)
            .enable_auto_commit(false)
            .isolation_level(isolation)
            .fetch_max_wait(Duration::from_millis(100))
            .max_partition_fetch_bytes(PARTITION_BYTES_MAX)
            // What is above a number of records would be read again.
            .max_poll_records(-1)
            .metrics_push(false);
        builder.build().await.map_err(|error| topic_error(&self.name, &error))
    }

    pub(crate) fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// The headers of messages that tell who has written them, and which.
#[derive(Debug, Clone, Copy)]
struct Headers<'h> {
    /// The header with the writer, and what it is.
    writer: (&'h str, &'h str),
    /// The header with the position.
    position: &'h str,
}

/// The partitions of a topic.
pub(crate) struct Partitions {
    /// The id of the topic in hexadecimal digits.
    pub(crate) topic_id: String,
    /// Their numbers, in order.
    pub(crate) numbers: Vec<i32>,
}

/// Returns the partitions of a topic, as the brokers have them now.
pub(crate) async fn partitions(kafka: &Kafka, topic: &str) -> Result<Partitions> {
    // What clients remember is not used: a topic may have been created again since.
    let described = kafka.admin().describe_topics([topic], DescribeTopicsOptions::default()).await;
    let mut described = described.map_err(|error| topic_error(topic, &error))?;
    let Some(found) = described.remove(topic) else { return Err(no_topic(topic)) };
    let found = found.map_err(|error| topic_error(topic, &error))?;
    let mut numbers: Vec<i32> = found.partitions.iter().map(|found| found.partition).collect();
    if numbers.is_empty() {
        return Err(no_topic(topic));
    }
    numbers.sort_unstable();
    Ok(Partitions { topic_id: hexadecimal(&found.topic_id), numbers })
}

/// Returns the id of a topic that a consumer knows last, without asking the brokers.
pub(crate) async fn known_id(consumer: &Consumer, topic: &str) -> Option<String> {
    let known = consumer.fetch_metadata(None).await.ok()?;
    let known = known.topics.into_iter().find(|info| info.name == topic)?;
    Some(hexadecimal(&known.topic_id))
}

/// Writes the id of a topic; brokers that have none send zeros.
fn hexadecimal(id: &[u8; 16]) -> String {
    if *id == [0; 16] {
        return String::new();
    }
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the first offset of a partition and the one behind its last committed message.
pub(crate) async fn watermarks(
    consumer: &Consumer,
    topic: &str,
    partition: i32,
) -> Result<(i64, i64)> {
    let until = Instant::now() + LEADER_WAIT;
    loop {
        match consumer.fetch_watermarks(topic, partition).await {
            Ok(found) => return Ok(found),
            // A partition that was just created, or whose broker has ended, has no leader for a while.
            Err(KrafkaError::Broker { code, .. })
                if code.is_retriable() && Instant::now() < until =>
            {
                sleep(LEADER_DELAY).await;
            }
            Err(error) => return Err(topic_error(topic, &error)),
        }
    }
}

/// Lets a consumer read partitions from offsets on.
pub(crate) async fn assign(consumer: &Consumer, topic: &str, from: &Offsets) -> Result<()> {
    let assigned = consumer.assign(topic, from.keys().copied().collect()).await;
    assigned.map_err(|error| topic_error(topic, &error))?;
    for (partition, offset) in from {
        let sought = consumer.seek(topic, *partition, *offset).await;
        sought.map_err(|error| topic_error(topic, &error))?;
    }
    Ok(())
}
