//! A writer of a topic: messages in transactions, all or none, or each at least once.

use std::time::Duration;

use bytes::Bytes;
use krafka::{
    Compression, Record,
    producer::{Acks, DeliveryHandle, Producer, TransactionalProducer},
};
use lockstep_diagnostic::Result;

use crate::{Offsets, Topic, error::topic_error, runtime::wait};

/// How long the brokers keep a transaction open whose producer is silent.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a message is tried before it counts as not written.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(45);
/// How long a call waits until the buffer has space, or for the coordinator of transactions.
const BLOCK_MAX: Duration = Duration::from_secs(20);
/// How long messages wait for others.
const LINGER: Duration = Duration::from_millis(2);

/// How often a message may be in the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery<'a> {
    /// Once, for those who read committed messages: messages are written in transactions of this id. Opening a writer
    /// ends the transactions of an earlier one.
    ExactlyOnce(&'a str),
    /// At least once.
    AtLeastOnce,
}

/// A message to be written.
#[derive(Debug, Clone, Default)]
pub struct OutgoingMessage {
    /// The key, which decides about the partition.
    pub key: Option<Bytes>,
    /// The value.
    pub value: Bytes,
    /// The headers.
    pub headers: Vec<(String, Bytes)>,
    /// The time of the message in milliseconds since the epoch; `None`: now.
    pub time_ms: Option<i64>,
}

/// A writer of a topic.
#[derive(Debug)]
pub struct TopicWriter {
    topic: String,
    producer: AnyProducer,
}

#[derive(Debug)]
enum AnyProducer {
    Transactional(Box<TransactionalProducer>),
    Idempotent(Box<Producer>),
}

impl TopicWriter {
    /// Begins to write to a topic.
    pub fn open(topic: &Topic, delivery: Delivery<'_>) -> Result<Self> {
        let builder = topic
            .kafka()
            .producer()
            .acks(Acks::All)
            .compression(Compression::Lz4)
            .batch_size(256 << 10)
            .linger(LINGER)
            .delivery_timeout(DELIVERY_TIMEOUT)
            .max_block(BLOCK_MAX)
            .metrics_push(false);
        let producer = wait(async {
            let made = match delivery {
                Delivery::ExactlyOnce(id) => {
                    let builder = builder.transaction_timeout(TRANSACTION_TIMEOUT);
                    builder
                        .build_transactional(id)
                        .await
                        .map(|made| AnyProducer::Transactional(Box::new(made)))
                }
                Delivery::AtLeastOnce => {
                    builder.build().await.map(|made| AnyProducer::Idempotent(Box::new(made)))
                }
            };
            made.map_err(|error| topic_error(topic.name(), &error))
        })?;
        Ok(Self { topic: topic.name().to_owned(), producer })
    }

    /// Writes messages, and waits until the topic has all of them. Returns for each partition the offset behind the last
    /// one. After an error, a writer that writes exactly once is to be opened again, which says what was written.
    pub fn write(&mut self, messages: Vec<OutgoingMessage>) -> Result<Offsets> {
        let Self { topic, producer } = self;
        wait(async {
            let written = match producer {
                AnyProducer::Transactional(producer) => {
                    write_transaction(producer, topic, messages).await
                }
                AnyProducer::Idempotent(producer) => {
                    write_all(|record| producer.enqueue(record), topic, messages).await
                }
            };
            written.map_err(|error| topic_error(topic, &error))
        })
    }
}

async fn write_transaction(
    producer: &TransactionalProducer,
    topic: &str,
    messages: Vec<OutgoingMessage>,
) -> krafka::Result<Offsets> {
    producer.begin()?;
    let offsets = write_all(|record| producer.enqueue(record), topic, messages).await?;
    producer.commit().await?;
    Ok(offsets)
}

/// Passes messages to a producer, and waits until they are written.
async fn write_all<F: Future<Output = krafka::Result<DeliveryHandle>>>(
    enqueue: impl Fn(Record) -> F,
    topic: &str,
    messages: Vec<OutgoingMessage>,
) -> krafka::Result<Offsets> {
    let count = messages.len();
    let mut handles = Vec::with_capacity(count);
    for message in messages {
        handles.push(enqueue(record(topic, message)).await?);
    }
    let mut offsets = Offsets::new();
    for handle in handles {
        let written = handle.await?;
        let end = offsets.entry(written.partition).or_insert(0);
        *end = (*end).max(written.offset + 1);
    }
    debug_assert!(offsets.len() <= count, "a partition has a message");
    Ok(offsets)
}

fn record(topic: &str, message: OutgoingMessage) -> Record {
    let OutgoingMessage { key, value, headers, time_ms } = message;
    let mut record = Record::new(topic, value);
    if let Some(key) = key {
        record = record.key(key);
    }
    if let Some(time_ms) = time_ms {
        record = record.timestamp(time_ms);
    }
    for (name, value) in headers {
        record = record.header(name, value);
    }
    record
}
