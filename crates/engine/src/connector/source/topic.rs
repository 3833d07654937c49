//! Messages of a topic, as a source reads them.

use std::{sync::Arc, time::Duration};

use lockstep_diagnostic::Result;
use lockstep_kafka::{
    Bytes, MessageBatch, Offsets, ReadEnd, ReadPartitions, TopicPosition, TopicReader,
};
use lockstep_row::{Arena, Datum, TableSchema};
use serde::{Deserialize, Serialize};

use super::{
    ConnectorProgress, InputTable, SourceInput,
    rows::{BadRow, ItemRows},
};
use crate::connector::{
    Connector, ProcessGroup, ProcessGroups, message::MessageReader, options::KafkaOptions,
};

/// How long a read waits for messages.
const WAIT: Duration = Duration::from_millis(50);

/// How far a source of Kafka is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceOffsets {
    /// The id of the topic.
    topic_id: String,
    /// The offset of each partition behind the last message that was read.
    offsets: Offsets,
    /// How many messages were read.
    messages: u64,
    /// How many of them were no rows.
    bad: u64,
}

impl SourceOffsets {
    /// Returns the progress of a source that has read nothing.
    pub(crate) fn new(position: TopicPosition) -> Self {
        let TopicPosition { id, offsets } = position;
        Self { topic_id: id, offsets, ..Self::default() }
    }
}

impl ConnectorProgress for SourceOffsets {
    fn counts(&self) -> [u64; 2] {
        [self.messages, self.bad]
    }

    fn count(&mut self, items: u64, bad: u64) {
        self.messages += items;
        self.bad += bad;
    }
}

/// A reader of a topic.
pub(crate) struct TopicInput {
    options: Arc<KafkaOptions>,
    reader: TopicReader,
    /// The group of processes that share the partitions, and the table that their messages are stored in.
    group: Option<(Arc<ProcessGroup>, u64)>,
    /// The schema of the table, with the reader of its rows.
    rows: Option<(Arc<TableSchema>, MessageReader)>,
}

impl TopicInput {
    /// Reads behind the last message that was stored.
    pub(crate) fn open(
        source: &Connector,
        options: &Arc<KafkaOptions>,
        stored: &SourceOffsets,
        groups: &ProcessGroups,
    ) -> Result<Self> {
        debug_assert!(source.stream.is_none(), "a source has no stream");
        let on_lost = if options.skips_lost { ReadEnd::Skip } else { ReadEnd::Fail };
        let from = TopicPosition { id: stored.topic_id.clone(), offsets: stored.offsets.clone() };
        let group = match &options.group {
            Some(group) => {
                let group = groups.join(&options.brokers, &group.name, &options.topic)?;
                for (partition, offset) in &stored.offsets {
                    group.note_stored(source.table.id, *partition, *offset);
                }
                Some((group, source.table.id))
            }
            None => None,
        };
        let partitions = match &group {
            Some((group, _)) => ReadPartitions::Of(group.partitions()),
            None => ReadPartitions::All,
        };
        let how = (partitions, on_lost);
        let reader = TopicReader::open(&options.brokers, &options.topic, &from, how)?;
        Ok(Self { options: Arc::clone(options), reader, group, rows: None })
    }
}

/// Messages, and the topic that they are of.
pub(crate) struct TopicBatch {
    topic: Arc<KafkaOptions>,
    read: MessageBatch,
}

impl SourceInput for TopicInput {
    type Progress = SourceOffsets;
    type Batch = TopicBatch;

    fn next(&mut self, _source: &Connector, _table: InputTable<'_>) -> Result<Option<TopicBatch>> {
        if let Some((group, _)) = &self.group {
            group.member.check()?;
            self.reader.set_partitions(group.partitions());
        }
        let read = self.reader.next(WAIT)?;
        Ok(read.map(|read| TopicBatch { topic: Arc::clone(&self.options), read }))
    }

    fn count(batch: &TopicBatch) -> usize {
        batch.read.messages.len()
    }

    fn read<'a>(
        &mut self,
        source: &Connector,
        schema: &Arc<TableSchema>,
        batch: &'a TopicBatch,
        arena: &'a Arena,
    ) -> Result<ItemRows<'a>> {
        if self.rows.as_ref().is_none_or(|(known, _)| !Arc::ptr_eq(known, schema)) {
            let reader = MessageReader::new(source, &self.options, schema)?;
            self.rows = Some((Arc::clone(schema), reader));
        }
        let (_, reader) = self.rows.as_mut().expect("it was made");
        reader.read(&batch.read.messages, arena)
    }

    fn advance(progress: &mut SourceOffsets, batch: &TopicBatch, end: usize) -> bool {
        let MessageBatch { topic_id, messages } = &batch.read;
        if progress.topic_id != **topic_id {
            progress.topic_id = topic_id.to_string();
            progress.offsets.clear();
        }
        for message in &messages[..end] {
            progress.offsets.insert(message.partition, message.offset + 1);
        }
        false
    }

    fn stored(&mut self, batch: &TopicBatch, end: usize) {
        // The reader is behind them already.
        let Some((group, table)) = &self.group else { return };
        let ends = batch.read.messages[..end].iter();
        let ends: Offsets = ends.map(|message| (message.partition, message.offset + 1)).collect();
        for (partition, offset) in ends {
            group.note_stored(*table, partition, offset);
        }
    }

    fn drain(batch: &mut TopicBatch, end: usize) {
        batch.read.messages.drain(..end);
    }

    fn bad_values<'a>(
        source: &'a Connector,
        batch: &'a TopicBatch,
        bad: &'a BadRow,
        arena: &'a Arena,
    ) -> Vec<(&'static str, Datum<'a>)> {
        let message = &batch.read.messages[bad.at];
        let text = |bytes: &Option<Bytes>| match bytes {
            Some(bytes) => Datum::String(arena.alloc_str(&String::from_utf8_lossy(bytes))),
            None => Datum::Null,
        };
        vec![
            ("source", Datum::String(&source.name().name)),
            ("topic", Datum::String(&batch.topic.topic)),
            ("topic_partition", Datum::Int(message.partition)),
            ("topic_offset", Datum::BigInt(message.offset)),
            ("message_time", Datum::Timestamp(message.time_ms)),
            ("message_key", text(&message.key)),
            ("message", text(&message.value)),
            ("reason", Datum::String(&bad.reason)),
        ]
    }

    fn name_of(batch: &TopicBatch, at: usize) -> String {
        let message = &batch.read.messages[at];
        let (partition, offset, topic) = (message.partition, message.offset, &batch.topic.topic);
        format!("the message at offset {offset} of partition {partition} of topic `{topic}`")
    }

    fn lag(&self, unstored: u64) -> u64 {
        self.reader.lag() + unstored
    }
}
