//! A reader of a topic: the messages of all its partitions, from given offsets on.
//!
//! A task polls the brokers, so that messages arrive while the caller works on those before. It puts the partitions into
//! one order ([`PartitionMerge`]), finds those that are added later, and reads them from their beginning.
//!
//! *Memory*: what three answers of the brokers have, each of half a megabyte for each partition at most, and 20,000
//! messages of each partition that wait for another one.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use krafka::{
    ConsumerRecord, Kafka, KrafkaError,
    consumer::{Consumer, PartitionLag},
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    Brokers, Offsets, Topic, TopicPosition,
    error::topic_error,
    merge::PartitionMerge,
    runtime::{runtime, wait},
    topic::{assign, known_id, partitions, watermarks},
};

/// How long a poll waits for messages.
const POLL_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the reader waits after an error.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// A partition of which so many messages wait for another partition is not read meanwhile.
const WAITING_MAX: usize = 20_000;
/// How long the reader waits for the end of a partition to reach an offset that was read, and how often it looks.
const END_WAIT: Duration = Duration::from_secs(10);
const END_DELAY: Duration = Duration::from_millis(200);
/// How often the reader looks for new partitions.
const PARTITIONS_INTERVAL: Duration = Duration::from_secs(10);

/// A message of a topic.
#[derive(Debug, Clone)]
pub struct TopicMessage {
    /// The partition.
    pub partition: i32,
    /// The place in the partition.
    pub offset: i64,
    /// The time of the message, in milliseconds since the epoch.
    pub time_ms: i64,
    /// The key.
    pub key: Option<Bytes>,
    /// The value.
    pub value: Option<Bytes>,
    /// The headers, in their order.
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// Messages of a topic.
#[derive(Debug, Clone)]
pub struct MessageBatch {
    /// The id of the topic: where it is not that of the batch before, the topic was created again.
    pub topic_id: Arc<str>,
    /// The messages; those of each partition are in their order.
    pub messages: Vec<TopicMessage>,
}

/// What a reader does about messages that were removed before it has read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// It ends with an error.
    Fail,
    /// It goes on with the next message that there is.
    Skip,
}

/// Which partitions of a topic are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadPartitions {
    /// All of them, in the order of their messages' times.
    All,
    /// These, which another process may read before and after this one ([`TopicReader::set_partitions`]). Each is in its own
    /// order; messages that the topic lost before one of them was added are left out.
    Of(BTreeSet<i32>),
}

/// A reader of a topic.
#[derive(Debug)]
pub struct TopicReader {
    batches: mpsc::Receiver<Result<MessageBatch>>,
    task: JoinHandle<()>,
    lag: Arc<AtomicU64>,
    partitions: watch::Sender<ReadPartitions>,
}

impl TopicReader {
    /// Reads partitions of a topic: those that `from` names from these offsets on, others from the beginning. A topic
    /// that was created again has lost all messages.
    pub fn open(
        brokers: &Brokers,
        topic: &str,
        from: &TopicPosition,
        (partitions, on_lost): (ReadPartitions, ReadEnd),
    ) -> Result<Self> {
        let topic = Topic::open(brokers, topic)?;
        let from = from.clone();
        let (partitions, wanted) = watch::channel(partitions);
        let (sender, batches) = mpsc::channel(1);
        let lag = Arc::new(AtomicU64::new(0));
        let pump = wait(async {
            let mut pump = Pump {
                kafka: topic.kafka().clone(),
                consumer: topic.consumer().await?,
                topic: topic.name().to_owned(),
                topic_id: from.id.into(),
                from: from.offsets,
                wanted,
                read_to: Offsets::new(),
                ends: Offsets::new(),
                is_assigned: false,
                waiting: PartitionMerge::default(),
                paused: BTreeSet::new(),
                on_lost,
                lag: Arc::clone(&lag),
            };
            pump.find_partitions().await?;
            Ok(pump)
        })?;
        let task = runtime()?.spawn(pump.run(sender));
        Ok(Self { batches, task, lag, partitions })
    }

    /// Reads these partitions from now on. One that comes back goes on behind the last message of it that was read.
    pub fn set_partitions(&self, partitions: BTreeSet<i32>) {
        self.partitions.send_if_modified(|wanted| {
            let is_other = !matches!(wanted, ReadPartitions::Of(known) if *known == partitions);
            *wanted = ReadPartitions::Of(partitions);
            is_other
        });
    }

    /// Returns the next messages; `None` if there are none within this time. After an error that may pass, the next call
    /// goes on.
    pub fn next(&mut self, longest: Duration) -> Result<Option<MessageBatch>> {
        let batches = &mut self.batches;
        wait(async {
            match timeout(longest, batches.recv()).await {
                Err(_elapsed) => Ok(None),
                Ok(Some(batch)) => batch.map(Some),
                Ok(None) => Diagnostic::internal("the reader of the topic has ended").err(),
            }
        })
    }

    /// Returns how many messages there were behind the last ones that were read from the brokers.
    pub fn lag(&self) -> u64 {
        // Relaxed: it guards no data.
        self.lag.load(Ordering::Relaxed)
    }
}

impl Drop for TopicReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What polls the brokers.
struct Pump {
    kafka: Kafka,
    consumer: Consumer,
    topic: String,
    topic_id: Arc<str>,
    /// The offsets from which on partitions are read that are not read yet.
    from: Offsets,
    /// Which partitions are to be read.
    wanted: watch::Receiver<ReadPartitions>,
    /// The partitions that are read, each with the offset behind the last message that was given.
    read_to: Offsets,
    /// The end of each partition when it was found.
    ends: Offsets,
    /// Whether the consumer reads from there on.
    is_assigned: bool,
    /// Messages that were read and not given.
    waiting: PartitionMerge,
    /// Partitions of which so many wait that no more are read.
    paused: BTreeSet<i32>,
    on_lost: ReadEnd,
    lag: Arc<AtomicU64>,
}

impl Pump {
    /// Passes messages on until nobody takes them, or there is an error that does not pass.
    async fn run(mut self, sender: mpsc::Sender<Result<MessageBatch>>) {
        let mut looked = Instant::now();
        loop {
            let polled = self.poll(&mut looked).await;
            let is_last = polled.as_ref().is_err_and(|error| error.kind != Kind::Retry);
            let has_failed = polled.is_err();
            if polled.as_ref().is_ok_and(|batch| batch.messages.is_empty()) {
                if sender.is_closed() {
                    return;
                }
                continue;
            }
            if sender.send(polled).await.is_err() || is_last {
                return;
            }
            if has_failed {
                sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Reads what there is, or waits for it for a while.
    async fn poll(&mut self, looked: &mut Instant) -> Result<MessageBatch> {
        // A poll says nothing of brokers that do not answer, and of a topic that was dropped: this does.
        let is_other = self.wanted.has_changed().unwrap_or(false);
        if !self.is_assigned || is_other || looked.elapsed() >= PARTITIONS_INTERVAL {
            self.find_partitions().await?;
            *looked = Instant::now();
        }
        let records = match self.consumer.poll(POLL_TIMEOUT).await {
            Ok(records) => records,
            Err(KrafkaError::NoOffset { partitions }) => {
                for (_, partition) in partitions {
                    // Those before come first; the client then says it again.
                    if self.waiting.len_of(partition) == 0 {
                        self.find_lost(partition).await?;
                    }
                }
                Vec::new()
            }
            Err(error) => return Err(topic_error(&self.topic, &error)),
        };
        if !records.is_empty() {
            let known = known_id(&self.consumer, &self.topic).await.unwrap_or_default();
            if *known != *self.topic_id {
                // These may be of another topic, from an offset that means nothing there: they are read again.
                self.is_assigned = false;
                self.find_partitions().await?;
                return Ok(self.batch(Vec::new()));
            }
        }
        records.into_iter().map(message).for_each(|message| self.waiting.push(message));
        let messages = self.take().await;
        for message in &messages {
            self.read_to.insert(message.partition, message.offset + 1);
        }
        Ok(self.batch(messages))
    }

    /// Takes the messages that have an order, and notes how many there are behind them.
    async fn take(&mut self) -> Vec<TopicMessage> {
        let lags = self.consumer.lag().await;
        // As long as nothing has arrived of a partition, its end is that which it had in the beginning.
        let was_behind = |partition: &i32| self.read_to.get(partition) < self.ends.get(partition);
        let has_more = |partition: i32, lag: &PartitionLag| {
            lag.lag.map_or_else(|| was_behind(&partition), |behind| behind > 0)
        };
        let is_in_order = *self.wanted.borrow() == ReadPartitions::All;
        let behind: BTreeSet<i32> = lags
            .iter()
            .filter(|(found, lag)| is_in_order && has_more(found.partition(), lag))
            .map(|(found, _)| found.partition())
            .collect();
        let messages = self.waiting.take(&behind);
        for partition in self.read_to.keys() {
            // What is far ahead of others waits for them at the brokers.
            let is_ahead = self.waiting.len_of(*partition) >= WAITING_MAX;
            if is_ahead && self.paused.insert(*partition) {
                self.consumer.pause(&self.topic, &[*partition]).await;
            } else if !is_ahead && self.paused.remove(partition) {
                self.consumer.resume(&self.topic, &[*partition]).await;
            }
        }
        let at_brokers: u64 = lags.values().filter_map(|lag| lag.lag).sum();
        let here = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        // Relaxed: it guards no data.
        self.lag.store(at_brokers + here, Ordering::Relaxed);
        messages
    }

    /// Reads all partitions behind the messages that were given.
    async fn assign(&mut self) -> Result<()> {
        self.waiting.clear();
        self.is_assigned = false;
        assign(&self.consumer, &self.topic, &self.read_to).await?;
        self.is_assigned = true;
        Ok(())
    }

    fn batch(&self, messages: Vec<TopicMessage>) -> MessageBatch {
        MessageBatch { topic_id: Arc::clone(&self.topic_id), messages }
    }

    /// Reads the partitions of the topic that are to be read and are not yet, and no others.
    async fn find_partitions(&mut self) -> Result<()> {
        // The consumer learns of a topic that was created again only when it looks.
        let refreshed = self.consumer.fetch_metadata(Some(&self.topic)).await;
        refreshed.map_err(|error| topic_error(&self.topic, &error))?;
        let found = partitions(&self.kafka, &self.topic).await?;
        self.is_another(found.topic_id)?;
        let wanted = self.wanted.borrow_and_update().clone();
        let is_wanted = |number: &i32| match &wanted {
            ReadPartitions::All => true,
            ReadPartitions::Of(partitions) => partitions.contains(number),
        };
        let is_over = |number: &i32, _: &mut i64| !is_wanted(number);
        let over: Offsets = self.read_to.extract_if(.., is_over).collect();
        let is_new = |number: &i32| is_wanted(number) && !self.read_to.contains_key(number);
        let new: Vec<i32> = found.numbers.into_iter().filter(is_new).collect();
        if new.is_empty() && over.is_empty() && self.is_assigned {
            return Ok(());
        }
        self.from.extend(over);
        debug_assert!(new.is_sorted(), "partitions are in order");
        // Of partitions that others have read meanwhile, what is gone was theirs.
        let on_lost = match wanted {
            ReadPartitions::All => self.on_lost,
            ReadPartitions::Of(_) => ReadEnd::Skip,
        };
        let mut begun = Offsets::new();
        for partition in new {
            let from = self.from.get(&partition).copied();
            let (offset, end) = self.beginning((partition, from), on_lost).await?;
            begun.insert(partition, offset);
            self.ends.insert(partition, end);
        }
        self.from.retain(|partition, _| !begun.contains_key(partition));
        self.read_to.extend(begun);
        self.assign().await
    }

    /// Returns the offset from which on a partition is read: this one, or that of its first message; and its end. The
    /// client would read from the end on where there is no such offset, and say nothing.
    async fn beginning(
        &self,
        (partition, wanted): (i32, Option<i64>),
        on_lost: ReadEnd,
    ) -> Result<(i64, i64)> {
        let until = Instant::now() + END_WAIT;
        loop {
            let (first, end) = watermarks(&self.consumer, &self.topic, partition).await?;
            let wanted = wanted.unwrap_or(first);
            // After a broker has started, the end of a partition is that of a while before.
            match wanted > end && Instant::now() < until {
                true => sleep(END_DELAY).await,
                false if (first..=end).contains(&wanted) => return Ok((wanted, end)),
                false => {
                    let lost = (partition, wanted, (first, end));
                    return Ok((self.lost(lost, on_lost)?, end));
                }
            }
        }
    }

    /// Notes the id of the topic. Returns whether it was created again, so that nothing of it was read.
    fn is_another(&mut self, id: String) -> Result<bool> {
        // One whose id was not known is what is there.
        let is_another = *id != *self.topic_id && !self.topic_id.is_empty();
        if is_another && self.on_lost == ReadEnd::Fail {
            return Err(self.created_again());
        }
        if is_another {
            self.from.clear();
            self.read_to.clear();
            self.waiting.clear();
            self.is_assigned = false;
        }
        self.topic_id = id.into();
        Ok(is_another)
    }

    /// Goes on behind messages that are gone, or fails.
    async fn find_lost(&mut self, partition: i32) -> Result<()> {
        let found = partitions(&self.kafka, &self.topic).await?;
        if self.is_another(found.topic_id)? {
            return self.find_partitions().await;
        }
        let wanted = self.read_to.get(&partition).copied();
        let (offset, _) = self.beginning((partition, wanted), self.on_lost).await?;
        self.read_to.insert(partition, offset);
        let sought = self.consumer.seek(&self.topic, partition, offset).await;
        sought.map_err(|error| topic_error(&self.topic, &error))
    }

    /// Returns the offset to go on with instead of one that is not there.
    fn lost(
        &self,
        (partition, wanted, (first, end)): (i32, i64, (i64, i64)),
        on_lost: ReadEnd,
    ) -> Result<i64> {
        if on_lost == ReadEnd::Skip {
            // Beyond the end: the brokers have lost messages, and those before were read.
            return Ok(if wanted < first { first } else { end });
        }
        let topic = &self.topic;
        let what = if wanted < first { "were removed from" } else { "are not in" };
        let message = format!(
            "messages from offset {wanted} on {what} partition {partition} of topic `{topic}`"
        );
        Diagnostic::new(code::OUT_OF_RANGE, message)
            .with_kind(Kind::FixData)
            .with_detail(format!("The partition has messages from offset {first} up to {end}."))
            .with_hint("Set on_lost = 'skip' to continue with the next message that the topic has.")
            .err()
    }

    /// Makes the error of a topic that is not the one that was read.
    fn created_again(&self) -> Box<Diagnostic> {
        let message = format!("topic `{}` was created again", self.topic);
        let diagnostic = Diagnostic::new(code::STALE_DEFINITION, message).with_kind(Kind::FixData);
        Box::new(
            diagnostic
                .with_detail("Its messages are not those that were read before.")
                .with_hint("Set on_lost = 'skip' to continue with its first message."),
        )
    }
}

fn message(record: ConsumerRecord) -> TopicMessage {
    let ConsumerRecord { partition, offset, timestamp, key, value, headers, .. } = record;
    TopicMessage { partition, offset, time_ms: timestamp, key, value, headers }
}
