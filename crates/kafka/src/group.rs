//! A consumer group: which partitions of its topics this process works on, and what the group has noted about each.
//!
//! Only the membership and the notes are those of Kafka: messages are read by [`TopicReader`](crate::TopicReader), from
//! offsets that the caller knows. A note is the text that is committed with an offset. The brokers accept one from a
//! member of the group alone, and a member writes one only about a partition that it has *claimed* and that was not taken
//! from it since: whoever claims a partition next reads the last note.
//!
//! The protocol is that of KIP-848: the brokers assign partitions, and give one to another member only when this one has
//! given it up, or was not heard of for the session timeout of the brokers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use krafka::{
    Kafka, KrafkaError,
    admin::ListConsumerGroupOffsetsOptions,
    consumer::{
        AutoOffsetReset, Consumer, ConsumerRebalanceListener, GroupProtocol, OffsetAndMetadata,
        TopicPartition,
    },
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::{failpoint, sync::Mutex};
use tokio::{
    sync::{self, Notify},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    Brokers,
    error::group_error,
    runtime::{runtime, wait},
};

/// How long a turn of the membership takes.
const TURN: Duration = Duration::from_millis(100);
/// How long a membership rests between two of them. A turn may take no time at all, when messages of paused partitions fill
/// the consumer's buffer, and all connections of the process share one thread.
const TURN_PAUSE: Duration = Duration::from_millis(20);
/// How long a member waits after an error.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// How long the brokers have to take a note, and to let a member go.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// A partition of a topic: its name, and the number.
pub type PartitionName = (String, i32);

/// The partitions that a member has claimed, each with the number of the claim: one that comes back has another number.
pub type Claims = BTreeMap<PartitionName, u64>;

/// What a group has noted about a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupNote {
    /// The offset of the next message, for whoever looks at the group.
    pub offset: i64,
    /// The text.
    pub text: String,
}

/// A member of a consumer group.
pub struct GroupMember {
    group: String,
    kafka: Kafka,
    consumer: Arc<Consumer>,
    claimed: Arc<ClaimedPartitions>,
    topics: Mutex<BTreeSet<String>>,
    /// Why it is no member at present.
    error: Arc<Mutex<Option<Box<Diagnostic>>>>,
    ending: Arc<Notify>,
    task: Option<JoinHandle<()>>,
}

/// The partitions of a member.
#[derive(Debug, Default)]
struct ClaimedPartitions {
    claims: Mutex<(Claims, u64)>,
    /// The last notes that were written or read, each with the number of its claim. Held while some are written, so that
    /// no partition is given up meanwhile.
    notes: sync::Mutex<BTreeMap<PartitionName, (u64, GroupNote)>>,
}

impl GroupMember {
    /// Joins a group.
    pub fn join(brokers: &Brokers, group: &str) -> Result<Self> {
        debug_assert!(!group.is_empty(), "a group has a name");
        let claimed = Arc::new(ClaimedPartitions::default());
        let (kafka, consumer) = wait(async {
            let kafka = brokers.connect().await?;
            let builder = kafka
                .consumer(group)
                .group_protocol(GroupProtocol::Consumer)
                .group_remote_assignor("range")
                .auto_offset_reset(AutoOffsetReset::Latest)
                .enable_auto_commit(false)
                // Nothing is read here.
                .max_partition_fetch_bytes(1)
                .idle_poll_backoff(TURN)
                .rebalance_listener(Arc::clone(&claimed))
                .metrics_push(false);
            let consumer = builder.build().await.map_err(|error| group_error(group, &error))?;
            Ok((kafka, Arc::new(consumer)))
        })?;
        let (ending, error) = (Arc::new(Notify::new()), Arc::default());
        let turns = MemberTurns {
            group: group.to_owned(),
            consumer: Arc::clone(&consumer),
            error: Arc::clone(&error),
            ending: Arc::clone(&ending),
        };
        let task = Some(runtime()?.spawn(turns.run()));
        let (group, topics) = (group.to_owned(), Mutex::default());
        Ok(Self { group, kafka, consumer, claimed, topics, error, ending, task })
    }

    /// Adds a topic whose partitions the members share.
    pub fn add_topic(&self, topic: &str) -> Result<()> {
        let topics = {
            let mut topics = self.topics.lock();
            if !topics.insert(topic.to_owned()) {
                return Ok(());
            }
            topics.clone()
        };
        let subscribed = wait(async {
            let subscribed = self.consumer.subscribe(&topics).await;
            subscribed.map_err(|error| group_error(&self.group, &error))
        });
        if subscribed.is_err() {
            self.topics.lock().remove(topic);
        }
        subscribed
    }

    /// Returns the partitions that it works on.
    pub fn claims(&self) -> Claims {
        self.claimed.claims.lock().0.clone()
    }

    /// Fails while it is no member of the group.
    pub fn check(&self) -> Result<()> {
        self.error.lock().clone().map_or(Ok(()), Err)
    }

    /// Reads the notes of partitions, whoever works on them; those without a note are left out. *Cost*: one call.
    pub fn notes(
        &self,
        partitions: &BTreeSet<PartitionName>,
    ) -> Result<BTreeMap<PartitionName, GroupNote>> {
        wait(self.read_notes(partitions))
    }

    /// Writes notes about claimed partitions: `change` makes each of the one before. Returns those whose claims were still
    /// valid; nothing is written about the others. After an error, notes may be written or not. *Cost*: one call.
    pub fn write(
        &self,
        claims: &Claims,
        mut change: impl FnMut(&PartitionName, &GroupNote) -> GroupNote,
    ) -> Result<BTreeSet<PartitionName>> {
        wait(async {
            let mut notes = self.claimed.notes.lock().await;
            let valid = self.claims();
            let valid: Claims = claims
                .iter()
                .filter(|(name, claim)| {
                    valid.get(*name) == Some(claim) || failpoint::is_seeded("group_claim_unchecked")
                })
                .map(|(name, claim)| (name.clone(), *claim))
                .collect();
            if valid.is_empty() {
                return Ok(BTreeSet::new());
            }
            notes.retain(|name, (claim, _)| valid.get(name).is_none_or(|valid| valid == claim));
            let unread = valid.keys().filter(|name| !notes.contains_key(*name)).cloned().collect();
            let mut read = self.read_notes(&unread).await?;
            let mut written = BTreeMap::new();
            for (name, claim) in &valid {
                // As long as the brokers have not answered, it is not known which one counts.
                let before = notes.remove(name).map(|(_, note)| note);
                let before = before.or_else(|| read.remove(name)).unwrap_or_default();
                written.insert(name.clone(), (*claim, change(name, &before)));
            }
            let offsets: HashMap<TopicPartition, OffsetAndMetadata> = written
                .iter()
                .map(|((topic, partition), (_, note))| {
                    let metadata = OffsetAndMetadata::with_metadata(note.offset, note.text.clone());
                    (TopicPartition::new(topic.clone(), *partition), metadata)
                })
                .collect();
            let committed = timeout(WRITE_TIMEOUT, self.consumer.commit_offsets(&offsets)).await;
            let committed = committed.unwrap_or_else(|_elapsed| {
                Err(KrafkaError::timeout("the group coordinator did not answer"))
            });
            committed.map_err(|error| group_error(&self.group, &error))?;
            debug_assert_eq!(written.len(), valid.len(), "a note for each");
            notes.extend(written);
            Ok(valid.into_keys().collect())
        })
    }

    async fn read_notes(
        &self,
        partitions: &BTreeSet<PartitionName>,
    ) -> Result<BTreeMap<PartitionName, GroupNote>> {
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let of_group = |error: &KrafkaError| group_error(&self.group, error);
        let named = partitions.iter();
        let named = named.map(|(topic, number)| TopicPartition::new(topic.clone(), *number));
        let options = ListConsumerGroupOffsetsOptions::default()
            .partitions(named.collect::<Vec<_>>())
            .timeout(WRITE_TIMEOUT);
        let admin = self.kafka.admin();
        let found = admin.list_consumer_group_offsets(self.group.as_str(), options).await;
        let mut found = found.map_err(|error| of_group(&error))?;
        let mut notes = BTreeMap::new();
        for name in partitions {
            let partition = TopicPartition::new(name.0.clone(), name.1);
            let Some(note) = found.remove(&partition) else { continue };
            let note = note.map_err(|error| of_group(&error))?;
            if let (Some(offset), Some(text)) = (note.offset, note.metadata) {
                notes.insert(name.clone(), GroupNote { offset, text });
            }
        }
        Ok(notes)
    }
}

impl fmt::Debug for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupMember").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        self.ending.notify_one();
        if let (Some(task), Ok(runtime)) = (self.task.take(), runtime()) {
            // Who does not leave is waited for by the others until its session ends.
            let _left = runtime.block_on(async { timeout(LEAVE_TIMEOUT, task).await });
        }
    }
}

impl ConsumerRebalanceListener for ClaimedPartitions {
    async fn on_partitions_assigned(&self, partitions: &[TopicPartition]) {
        let (claims, last) = &mut *self.claims.lock();
        debug_assert!(claims.values().all(|claim| claim <= last), "claims are numbered");
        for partition in partitions {
            *last += 1;
            claims.insert((partition.topic().to_owned(), partition.partition()), *last);
        }
    }

    async fn on_partitions_revoked(&self, partitions: &[TopicPartition]) {
        let _notes = self.notes.lock().await;
        let (claims, _) = &mut *self.claims.lock();
        for partition in partitions {
            claims.remove(&(partition.topic().to_owned(), partition.partition()));
        }
    }

    async fn on_partitions_lost(&self, partitions: &[TopicPartition]) {
        self.on_partitions_revoked(partitions).await;
    }
}

/// What keeps a membership alive.
struct MemberTurns {
    group: String,
    consumer: Arc<Consumer>,
    error: Arc<Mutex<Option<Box<Diagnostic>>>>,
    ending: Arc<Notify>,
}

impl MemberTurns {
    /// Takes part in the group until it is to end, and leaves it.
    async fn run(self) {
        loop {
            let done = tokio::select! {
                biased;
                () = self.ending.notified() => break,
                done = self.turn() => done,
            };
            let pause = if done.is_err() { RETRY_DELAY } else { TURN_PAUSE };
            *self.error.lock() = done.err();
            tokio::select! {
                () = self.ending.notified() => break,
                () = sleep(pause) => {}
            }
        }
        // It has nothing that could be lost.
        let _closed = timeout(LEAVE_TIMEOUT, self.consumer.close()).await;
    }

    async fn turn(&self) -> Result<()> {
        let polled = self.consumer.poll(TURN).await;
        polled.map_err(|error| group_error(&self.group, &error))?;
        let assigned: BTreeMap<_, _> = self.consumer.assignment().await.into_iter().collect();
        for (topic, partitions) in assigned {
            self.consumer.pause(&topic, &partitions).await;
        }
        Ok(())
    }
}
