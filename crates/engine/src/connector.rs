//! Sources and sinks: rows from a topic of Kafka, or from files, into a table, and from a table into a topic or files.
//!
//! CREATE SOURCE and CREATE SINK make them (`statement/connector.rs`). Each has a thread ([`Worker`]). What changes one
//! makes another object in its place, which goes on from the stored progress.
//!
//! # Exactly once
//!
//! A [source](source) appends rows, what is no row, and how far it is together, to three tables
//! (`lockstep_table::BulkLoad::finish_all`): a crash leaves all of them or none. A [sink](sink) writes messages in
//! transactions, or files that get their names when they are complete, and stores afterwards how far it is; what of the
//! last transaction was committed it reads from the topic itself, and which file was about to get its name it has stored.

mod group;
mod message;
mod options;
mod registered;
mod sink;
mod source;
mod work;

use std::{fmt::Write as _, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{Column, DataType, TableSchema};
use lockstep_sql::ast::{ConnectorKind, ConnectorSystem};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub(crate) use self::{
    group::{GroupedSources, ProcessGroup, ProcessGroups},
    options::{ConnectorOptions, SystemOptions, WrittenConnectorOptions},
    sink::{files::SinkFiles, topic::SinkProgress},
    source::{
        files::{SourceFiles, files_before},
        topic::SourceOffsets,
    },
    work::ConnectorFigures,
};
use self::{
    options::{KafkaOptions, MessageFormat, RegistryOptions},
    source::ConnectorProgress,
};
use crate::{
    Conversion,
    catalog::{CatalogRecord, Definition, ObjectKind, QualifiedName, TableReference},
    deployment::QuerySource,
    progress::ProgressTable,
    worker::Worker,
};

/// A source or a sink.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) definition: Arc<Definition>,
    pub(crate) kind: ConnectorKind,
    /// The table that takes or gives the rows.
    pub(crate) table: TableReference,
    /// The stream whose results a sink writes.
    pub(crate) stream: Option<QualifiedName>,
    /// The table that takes the messages or lines that are no rows.
    pub(crate) bad_rows: Option<TableReference>,
    pub(crate) options: ConnectorOptions,
    /// Whether STOP has stopped it.
    pub(crate) is_stopped: bool,
    /// The session's conversion of values at CREATE.
    pub(crate) conversion: Conversion,
    /// Names the sink in its transactions, messages and files, whatever it is called.
    pub(crate) id: String,
    /// Whether a user of a server has made it, who may open some files only.
    pub(crate) is_of_user: bool,
    pub(crate) progress: ProgressTable,
    pub(crate) worker: Worker<ConnectorFigures>,
}

/// What the log has of a source or a sink beside its statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConnectorRecord {
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_stopped: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_of_user: bool,
    /// The id of the table of its progress.
    pub(crate) progress: u64,
}

/// Whether a statement shows passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passwords {
    Shown,
    Masked,
}

impl Connector {
    pub(crate) fn name(&self) -> &QualifiedName {
        self.definition.name()
    }

    /// Returns the topic, and the path of the files, of which it has one.
    pub(crate) fn topic_and_path(&self) -> (Option<&str>, Option<&str>) {
        match &self.options.system {
            SystemOptions::Kafka(options) => (Some(&options.topic), None),
            SystemOptions::Files(options) => (None, Some(&options.path)),
        }
    }

    /// Returns the tables that it writes to.
    pub(crate) fn written_tables(&self) -> impl Iterator<Item = &TableReference> {
        let target = (self.kind == ConnectorKind::Source).then_some(&self.table);
        target.into_iter().chain(&self.bad_rows)
    }

    /// Returns all of its tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableReference> {
        std::iter::once(&self.table).chain(&self.bad_rows)
    }

    /// Returns it with other options, stopped or not; it goes on from where this one is.
    pub(crate) fn changed(
        &self,
        options: ConnectorOptions,
        bad_rows: Option<TableReference>,
        is_stopped: bool,
    ) -> Self {
        Self {
            definition: Definition::new(self.definition.kind(), self.name().clone()),
            kind: self.kind,
            table: self.table.clone(),
            stream: self.stream.clone(),
            bad_rows,
            options,
            is_stopped,
            conversion: self.conversion,
            id: self.id.clone(),
            is_of_user: self.is_of_user,
            progress: self.progress.clone(),
            worker: self.worker.successor(),
        }
    }

    /// Describes it as the log has it.
    pub(crate) fn record(&self) -> CatalogRecord {
        let script = self.script(Passwords::Shown);
        CatalogRecord::CreateConnector {
            name: self.name().clone(),
            source: QuerySource::new(&script, &self.name().database, self.conversion.settings()),
            connector: ConnectorRecord {
                id: self.id.clone(),
                is_stopped: self.is_stopped,
                is_of_user: self.is_of_user,
                progress: self.progress.id(),
            },
        }
    }

    /// Shows how far it was when it ended.
    pub(crate) fn note_progress(&self) -> Result<()> {
        use ConnectorKind::{Sink, Source};
        use ConnectorSystem::{Files, Kafka};
        match (self.options.system.system(), self.kind) {
            (Kafka, Source) => self.stored::<SourceOffsets>()?.note(self),
            (Files, Source) => self.stored::<SourceFiles>()?.note(self),
            (Kafka, Sink) => self.stored::<SinkProgress>()?.note(self),
            (Files, Sink) => self.stored::<SinkFiles>()?.note(self),
        }
        Ok(())
    }

    fn stored<P: Default + DeserializeOwned>(&self) -> Result<P> {
        Ok(self.progress.read()?.unwrap_or_default())
    }

    /// Writes the statement that makes it.
    pub(crate) fn script(&self, passwords: Passwords) -> String {
        let (name, table) = (self.name().script(), self.table.name.script());
        let system = match self.options.system.system() {
            ConnectorSystem::Kafka => "KAFKA",
            ConnectorSystem::Files => "FILES",
        };
        let mut script = match (self.kind, &self.stream) {
            (ConnectorKind::Source, _) => {
                format!("CREATE SOURCE {name} INTO TABLE {table} FROM {system}")
            }
            (ConnectorKind::Sink, Some(stream)) => {
                format!("CREATE SINK {name} FROM STREAM {} INTO {system}", stream.script())
            }
            (ConnectorKind::Sink, None) => {
                format!("CREATE SINK {name} FROM TABLE {table} INTO {system}")
            }
        };
        script.push_str(" OPTIONS(");
        for (at, (option, value)) in self.options.written.iter().enumerate() {
            let is_masked = passwords == Passwords::Masked && is_password(option);
            let value = if is_masked { "***" } else { value };
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            let comma = if at > 0 { ", " } else { "" };
            // Writing to a string does not fail.
            let _written = write!(script, "{comma}{option}='{value}'");
        }
        script.push(')');
        script
    }
}

fn is_password(option: &str) -> bool {
    ["sasl_password", "schema_registry_password"].contains(&option)
}

/// Returns the kind of object that a statement makes.
pub(crate) fn object_kind(kind: ConnectorKind) -> ObjectKind {
    match kind {
        ConnectorKind::Source => ObjectKind::Source,
        ConnectorKind::Sink => ObjectKind::Sink,
    }
}

/// Checks that a table has the columns that the options name, and that they take what they are for.
pub(crate) fn check_columns(connector: &Connector, schema: &TableSchema) -> Result<()> {
    match (&connector.options.system, connector.kind) {
        (SystemOptions::Kafka(options), ConnectorKind::Source) => {
            let columns = options.group.iter().flat_map(|group| &group.partitioned_by);
            for column in columns {
                column.find(schema, |_| true, "a column")?;
            }
            message::MessageReader::new(connector, options, schema).map(|_| ())
        }
        (SystemOptions::Kafka(options), ConnectorKind::Sink) => {
            sink::topic::key_columns(&options.key, schema).map(|_| ())
        }
        (SystemOptions::Files(options), ConnectorKind::Source) => {
            source::files::part_columns(&options.columns, schema).map(|_| ())
        }
        (SystemOptions::Files(options), ConnectorKind::Sink) => {
            let checked = sink::files::check_folder(&options.path);
            checked.map_err(|error| Box::new(error.at(options.path_span)))
        }
    }
}

/// Checks that the registry answers and that its schemas are what the options say; registers that of a sink.
pub(crate) fn check_registry(connector: &Connector, schema: &TableSchema) -> Result<()> {
    let SystemOptions::Kafka(options) = &connector.options.system else { return Ok(()) };
    let KafkaOptions {
        format: MessageFormat::Registered(language),
        registry: Some(RegistryOptions { registry, subject }),
        ..
    } = &**options
    else {
        return Ok(());
    };
    if connector.kind == ConnectorKind::Sink {
        return sink::topic::register_schema(connector, options, schema);
    }
    let latest = registry.client()?.latest(subject)?;
    let Some(other) = latest.filter(|latest| !latest.is(*language)) else { return Ok(()) };
    let message =
        format!("the schemas of subject `{subject}` are in {}, not in {language}", other.language);
    Diagnostic::new(code::INVALID_PARAMETER, message)
        .with_hint("Choose the format of the topic's messages.")
        .err()
}

/// Returns the columns of a table of messages that are no rows.
pub(crate) fn schema_of_bad_messages() -> TableSchema {
    schema_of([
        ("source", DataType::String),
        ("topic", DataType::String),
        ("topic_partition", DataType::Int),
        ("topic_offset", DataType::BigInt),
        ("message_time", DataType::Timestamp),
        ("message_key", DataType::String),
        ("message", DataType::String),
        ("reason", DataType::String),
    ])
}

/// Returns the columns of a table of lines of files that are no rows.
pub(crate) fn schema_of_bad_lines() -> TableSchema {
    schema_of([
        ("source", DataType::String),
        ("file", DataType::String),
        ("file_row", DataType::BigInt),
        ("line", DataType::BigInt),
        ("message", DataType::String),
        ("reason", DataType::String),
    ])
}

fn schema_of<const COUNT: usize>(columns: [(&str, DataType); COUNT]) -> TableSchema {
    let columns = columns.into_iter().map(|(name, data_type)| Column::new(name, data_type));
    TableSchema { columns: columns.collect(), indexes: Vec::new() }
}
