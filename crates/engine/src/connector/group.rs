//! Groups: processes that share the partitions of topics, and what they compute of them.
//!
//! Each process reads the partitions that it has claimed ([`GroupMember`]) into its own tables, and goes on with one where
//! it was itself: what others have read of it meanwhile, it reads again from the topic. So the rows of a partition are
//! those of its topic in every process, and which process reads them may change at any time.
//!
//! What is computed of a partition must not be computed twice. How far it is, the group notes with the partition
//! (`stream/grouped.rs`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::sync::Mutex;
use lockstep_kafka::{Brokers, GroupMember, Topic};
use lockstep_sql::ast::ConnectorKind;

use super::{
    Connector,
    options::{GroupOptions, KafkaOptions, MessagePart},
};
use crate::{
    Database,
    catalog::{Objects, TableReference},
    continuous::Meeting,
};

/// The groups in which this process works.
#[derive(Debug, Default)]
pub(crate) struct ProcessGroups {
    joined: Mutex<Vec<(Brokers, Weak<ProcessGroup>)>>,
    /// Held while one is joined, which takes a while where no broker answers.
    joining: Mutex<()>,
}

/// A group in which this process works.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    name: String,
    pub(crate) member: GroupMember,
    /// Of each table and partition the offset behind the last message that is stored.
    stored: Mutex<BTreeMap<(u64, i32), i64>>,
}

/// The sources of a group that fill the tables of a stream.
#[derive(Debug)]
pub(crate) struct GroupedSources {
    brokers: Brokers,
    name: String,
    /// Those of the tables, by their ids.
    pub(crate) sources: BTreeMap<u64, GroupedSource>,
}

/// A source of a group.
#[derive(Debug, Clone)]
pub(crate) struct GroupedSource {
    /// The name of the source.
    name: String,
    pub(crate) topic: String,
    /// The columns of its table with the partition and the offset of each row.
    pub(crate) columns: (usize, usize),
    /// The columns by which its topic is partitioned, with their names.
    partitioned_by: Vec<(usize, String)>,
}

impl ProcessGroups {
    /// Works in a group from now on: joins it, unless this process has joined it already.
    pub(crate) fn join(
        &self,
        brokers: &Brokers,
        name: &str,
        topic: &str,
    ) -> Result<Arc<ProcessGroup>> {
        let _joining = self.joining.lock();
        let group = match self.joined(brokers, name) {
            Some(group) => group,
            None => {
                let member = GroupMember::join(brokers, name)?;
                let group =
                    ProcessGroup { name: name.to_owned(), member, stored: Mutex::default() };
                let group = Arc::new(group);
                let mut joined = self.joined.lock();
                joined.retain(|(_, group)| group.strong_count() > 0);
                joined.push((brokers.clone(), Arc::downgrade(&group)));
                group
            }
        };
        group.member.add_topic(topic)?;
        Ok(group)
    }

    /// Returns a group if this process works in it.
    pub(crate) fn joined(&self, brokers: &Brokers, name: &str) -> Option<Arc<ProcessGroup>> {
        let joined = self.joined.lock();
        let mut of_brokers = joined.iter().filter(|(of_brokers, _)| of_brokers == brokers);
        of_brokers.find_map(|(_, group)| group.upgrade().filter(|group| group.name == name))
    }
}

impl ProcessGroup {
    /// Returns the numbers of the partitions that it has claimed, of any topic: those of the other topics belong to them.
    pub(crate) fn partitions(&self) -> BTreeSet<i32> {
        self.member.claims().into_keys().map(|(_, partition)| partition).collect()
    }

    /// Notes that the messages of a partition before an offset are stored in a table.
    pub(crate) fn note_stored(&self, table: u64, partition: i32, offset: i64) {
        let mut stored = self.stored.lock();
        let reached = stored.entry((table, partition)).or_insert(offset);
        *reached = offset.max(*reached);
    }

    /// Returns the offset behind the last message of a partition that is stored in a table.
    pub(crate) fn stored(&self, table: u64, partition: i32) -> Option<i64> {
        self.stored.lock().get(&(table, partition)).copied()
    }
}

impl GroupedSources {
    /// Finds the sources of the tables of a stream; `None` where none has a group. Fails where others have none, or
    /// another one.
    pub(crate) fn of_tables(objects: &Objects, tables: &[TableReference]) -> Result<Option<Self>> {
        let is_source = |connector: &&Arc<Connector>| connector.kind == ConnectorKind::Source;
        let all: Vec<&Arc<Connector>> = objects.connectors().filter(is_source).collect();
        let is_read = |source: &&&Arc<Connector>| tables.contains(&source.table);
        let mut read = all.iter().filter(is_read);
        let Some((options, group)) = read.find_map(|source| source.options.group()) else {
            return Ok(None);
        };
        let mut grouped = Self {
            brokers: options.brokers.clone(),
            name: group.name.clone(),
            sources: BTreeMap::new(),
        };
        for table in tables {
            let of_table = all.iter().copied().filter(|source| source.table == *table);
            let of_table: Vec<&Arc<Connector>> = of_table.collect();
            grouped.sources.insert(table.id, grouped.source(objects, table, &of_table)?);
        }
        Ok(Some(grouped))
    }

    /// Takes the only source of a table, which has to be of the group.
    fn source(
        &self,
        objects: &Objects,
        table: &TableReference,
        sources: &[&Arc<Connector>],
    ) -> Result<GroupedSource> {
        let name = &table.name;
        let [source] = sources else {
            let message = match sources.is_empty() {
                true => format!("table `{name}` has no source with group `{}`", self.name),
                false => format!("table `{name}` has several sources"),
            };
            return Err(self.refused(message));
        };
        match source.options.group() {
            Some((options, group)) if self.is_of(options, group) => {
                GroupedSource::new(objects, source, options, group)
            }
            _ => {
                let message = format!(
                    "source `{}` of table `{name}` has not group `{}`",
                    source.name(),
                    self.name
                );
                Err(self.refused(message))
            }
        }
    }

    fn is_of(&self, options: &KafkaOptions, group: &GroupOptions) -> bool {
        options.brokers == self.brokers && group.name == self.name
    }

    fn refused(&self, message: String) -> Box<Diagnostic> {
        let diagnostic = Diagnostic::new(code::WRONG_OBJECT_TYPE, message);
        Box::new(diagnostic.with_detail(
            "If a source has a group, each table of the stream has one source with the same brokers and group.",
        ))
    }

    /// Fails unless the topics have as many partitions as each other.
    pub(crate) fn check_partitions(&self) -> Result<()> {
        let mut first: Option<(&str, usize)> = None;
        for source in self.sources.values() {
            let count = Topic::open(&self.brokers, &source.topic)?.partition_count()?;
            let (topic, expected) = *first.get_or_insert((&source.topic, count));
            if count != expected {
                let message = format!(
                    "topic `{}` has {count} partitions but topic `{topic}` has {expected}",
                    source.topic
                );
                return Diagnostic::new(code::INVALID_PARAMETER, message)
                    .with_detail(
                        "The topics of a stream must have the same number of partitions, so that rows of one key are in \
                         partitions of one number.",
                    )
                    .with_hint("Write the messages of one of them to a topic with as many partitions.")
                    .err();
            }
        }
        Ok(())
    }

    /// Fails unless rows that meet are in partitions of one number.
    pub(crate) fn check_meetings(&self, tables: &[u64], meetings: &[Meeting]) -> Result<()> {
        for meeting in meetings {
            let mut first: Option<(&GroupedSource, Vec<usize>)> = None;
            for (source, keys) in meeting {
                let source = &self.sources[&tables[*source]];
                let places = source.partitioning(keys)?;
                let (other, expected) = first.get_or_insert((source, places.clone()));
                if *expected != places {
                    let message = format!(
                        "topics `{}` and `{}` are partitioned by different keys of a window or \
                         LAST JOIN",
                        other.topic, source.topic
                    );
                    return Diagnostic::new(code::WINDOWING_ERROR, message).err();
                }
            }
        }
        Ok(())
    }

    /// Works in the group from now on.
    pub(crate) fn join(&self, database: &Database) -> Result<Arc<ProcessGroup>> {
        let mut joined = None;
        for source in self.sources.values() {
            joined = Some(database.groups().join(&self.brokers, &self.name, &source.topic)?);
        }
        joined.ok_or_else(|| Box::new(Diagnostic::internal("a stream reads a table")))
    }
}

impl GroupedSource {
    fn new(
        objects: &Objects,
        source: &Connector,
        options: &KafkaOptions,
        group: &GroupOptions,
    ) -> Result<Self> {
        let schema = objects.entry(&source.table)?.table.schema();
        let column = |part: MessagePart| {
            let named = options.columns.iter().find(|(found, _)| *found == part);
            let at = named.and_then(|(_, column)| schema.find_column(&column.name));
            at.ok_or_else(|| Box::new(Diagnostic::internal("the options were checked")))
        };
        let partitioned_by = group
            .partitioned_by
            .iter()
            .filter_map(|column| Some((schema.find_column(&column.name)?, column.name.clone())));
        Ok(Self {
            name: source.name().to_string(),
            topic: options.topic.clone(),
            columns: (column(MessagePart::Partition)?, column(MessagePart::Offset)?),
            partitioned_by: partitioned_by.collect(),
        })
    }

    /// Returns where the columns are, among keys, by which its topic is partitioned. Fails where one is not there.
    fn partitioning(&self, keys: &[Option<usize>]) -> Result<Vec<usize>> {
        let place = |(column, name): &(usize, String)| {
            let found = keys.iter().position(|key| *key == Some(*column));
            found.ok_or_else(|| self.not_partitioned(name))
        };
        self.partitioned_by.iter().map(place).collect()
    }

    fn not_partitioned(&self, column: &str) -> Box<Diagnostic> {
        let message = format!(
            "topic `{}` is partitioned by `{column}`, which is no key of a window or LAST JOIN",
            self.topic
        );
        Box::new(
            Diagnostic::new(code::WINDOWING_ERROR, message)
                .with_detail(format!(
                    "Rows with the same key can be in different partitions, which different \
                     processes read. The source is `{}`.",
                    self.name
                ))
                .with_hint(
                    "Write the rows to another topic, with a sink whose `key` has the columns of \
                     the key, and read that.",
                ),
        )
    }
}
