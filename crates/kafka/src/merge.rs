//! Messages of several partitions in one order: that of their times, as far as it is known.
//!
//! What follows a topic takes rows that come much later than others for late ones. A client gets what has piled up
//! partition by partition, so that without this a reader that begins again, or one that is behind, would make most rows
//! late. The order of each partition is kept, as in Kafka Streams.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::TopicMessage;

/// A partition of which nothing arrives although it has messages is not waited for any longer.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// The messages that are not given yet.
#[derive(Debug, Default)]
pub(crate) struct PartitionMerge {
    queues: BTreeMap<i32, VecDeque<TopicMessage>>,
    /// Since when messages wait for a partition.
    waits_since: Option<Instant>,
    /// Partitions that were waited for in vain: until something arrives of them.
    silent: BTreeSet<i32>,
}

impl PartitionMerge {
    /// Adds a message behind those of its partition.
    pub(crate) fn push(&mut self, message: TopicMessage) {
        self.silent.remove(&message.partition);
        let queue = self.queues.entry(message.partition).or_default();
        debug_assert!(queue.back().is_none_or(|last| last.offset < message.offset), "in order");
        queue.push_back(message);
    }

    /// Forgets all messages: they are read again.
    pub(crate) fn clear(&mut self) {
        self.queues.clear();
        self.waits_since = None;
    }

    /// Returns how many messages wait, of all partitions.
    pub(crate) fn len(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    /// Returns how many messages of a partition wait.
    pub(crate) fn len_of(&self, partition: i32) -> usize {
        self.queues.get(&partition).map_or(0, VecDeque::len)
    }

    /// Takes the messages that no other partition can precede: those before the time of the first message of each
    /// partition that has more than is here. `behind` are these partitions.
    pub(crate) fn take(&mut self, behind: &[i32]) -> Vec<TopicMessage> {
        let mut taken = Vec::with_capacity(self.len());
        while !self.is_awaiting(behind) {
            let fronts = self.queues.values_mut().filter(|queue| !queue.is_empty());
            let first = fronts.min_by_key(|queue| queue.front().map(|first| first.time_ms));
            let Some(first) = first.and_then(VecDeque::pop_front) else { break };
            taken.push(first);
        }
        match self.waits_since {
            _ if !taken.is_empty() || self.len() == 0 => self.waits_since = None,
            None => self.waits_since = Some(Instant::now()),
            Some(since) if since.elapsed() >= WAIT_MAX => {
                let silent = behind.iter().filter(|partition| self.len_of(**partition) == 0);
                self.silent.extend(silent.copied().collect::<Vec<_>>());
            }
            Some(_) => {}
        }
        taken
    }

    /// Whether a message of one of these partitions is to come first.
    fn is_awaiting(&self, behind: &[i32]) -> bool {
        let is_awaited = |found: &&i32| self.len_of(**found) == 0 && !self.silent.contains(*found);
        behind.iter().any(|found| is_awaited(&found))
    }
}

#[cfg(test)]
mod tests {
    use super::PartitionMerge;
    use crate::TopicMessage;

    fn merge(messages: &[(i32, i64)]) -> PartitionMerge {
        let mut merge = PartitionMerge::default();
        for (offset, (partition, time_ms)) in (0..).zip(messages) {
            merge.push(TopicMessage {
                partition: *partition,
                offset,
                time_ms: *time_ms,
                key: None,
                value: None,
                headers: Vec::new(),
            });
        }
        merge
    }

    fn times(messages: &[TopicMessage]) -> Vec<(i32, i64)> {
        messages.iter().map(|message| (message.partition, message.time_ms)).collect()
    }

    #[test]
    fn messages_are_in_the_order_of_their_times_and_of_their_partitions() {
        let mut merge = merge(&[(0, 1), (0, 5), (0, 2), (1, 3), (1, 4), (2, 0)]);
        let taken = merge.take(&[]);
        assert_eq!(times(&taken), [(2, 0), (0, 1), (1, 3), (1, 4), (0, 5), (0, 2)]);
        assert_eq!(merge.len(), 0);
    }

    #[test]
    fn a_partition_that_has_more_is_waited_for() {
        let mut merge = merge(&[(0, 1), (0, 2), (0, 9), (1, 3)]);
        assert!(merge.take(&[0, 1, 2]).is_empty(), "nothing of partition 2 is here");
        // What comes next of partition 1 may be before 9.
        assert_eq!(times(&merge.take(&[0, 1])), [(0, 1), (0, 2), (1, 3)]);
        assert!(merge.take(&[1]).is_empty());
        assert_eq!(merge.len_of(0), 1);
        assert_eq!(times(&merge.take(&[])), [(0, 9)], "it has no more");
    }
}
