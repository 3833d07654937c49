//! Messages of several partitions in one order: that of their times, as far as it is known.
//!
//! What follows a topic takes rows that come much later than others for late ones. A client gets what has piled up
//! partition by partition, so that without this a reader that begins again, or one that is behind, would make most rows
//! late. The order of each partition is kept, as in Kafka Streams.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
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
    /// partition that has more than is here. `behind` are these partitions. *Cost*: for each message the logarithm of the
    /// number of partitions.
    pub(crate) fn take(&mut self, behind: &BTreeSet<i32>) -> Vec<TopicMessage> {
        let mut taken = Vec::with_capacity(self.len());
        if !behind.iter().any(|partition| self.is_awaited(*partition)) {
            self.take_in_order(behind, &mut taken);
        }
        match self.waits_since {
            _ if !taken.is_empty() || self.len() == 0 => self.waits_since = None,
            None => self.waits_since = Some(Instant::now()),
            Some(since) if since.elapsed() >= WAIT_MAX => {
                let silent =
                    behind.iter().copied().filter(|partition| self.len_of(*partition) == 0);
                self.silent = silent.collect();
            }
            Some(_) => {}
        }
        taken
    }

    /// Takes messages until one of a partition that is behind has to be waited for.
    fn take_in_order(&mut self, behind: &BTreeSet<i32>, taken: &mut Vec<TopicMessage>) {
        let front = |(partition, queue): (&i32, &VecDeque<TopicMessage>)| {
            queue.front().map(|first| Reverse((first.time_ms, *partition)))
        };
        let mut fronts: BinaryHeap<_> = self.queues.iter().filter_map(front).collect();
        while let Some(Reverse((_, partition))) = fronts.pop() {
            let Some(queue) = self.queues.get_mut(&partition) else { continue };
            taken.extend(queue.pop_front());
            match queue.front() {
                Some(next) => fronts.push(Reverse((next.time_ms, partition))),
                None if behind.contains(&partition) => break,
                None => {}
            }
        }
    }

    /// Whether a message of a partition that is behind has to come first.
    fn is_awaited(&self, partition: i32) -> bool {
        self.len_of(partition) == 0 && !self.silent.contains(&partition)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        let taken = merge.take(&BTreeSet::new());
        assert_eq!(times(&taken), [(2, 0), (0, 1), (1, 3), (1, 4), (0, 5), (0, 2)]);
        assert_eq!(merge.len(), 0);
    }

    #[test]
    fn a_partition_that_has_more_is_waited_for() {
        let mut merge = merge(&[(0, 1), (0, 2), (0, 9), (1, 3)]);
        assert!(
            merge.take(&BTreeSet::from([0, 1, 2])).is_empty(),
            "nothing of partition 2 is here"
        );
        // What comes next of partition 1 may be before 9.
        assert_eq!(times(&merge.take(&BTreeSet::from([0, 1]))), [(0, 1), (0, 2), (1, 3)]);
        assert!(merge.take(&BTreeSet::from([1])).is_empty());
        assert_eq!(merge.len_of(0), 1);
        assert_eq!(times(&merge.take(&BTreeSet::new())), [(0, 9)], "it has no more");
    }
}
