//! Sources and sinks: rows from a topic of Kafka into a table, and from a table into a topic.
//!
//! CREATE SOURCE and CREATE SINK make them (`statement/connector.rs`). Each has a thread ([`Worker`]). What changes one
//! makes another object in its place, which goes on from the stored progress.
//!
//! # Exactly once
//!
//! A [source](source) appends rows, messages that are no rows, and the offsets behind them together, to three tables
//! (`lockstep_table::BulkLoad::finish_all`): a crash leaves all of them or none. A [sink](sink) writes messages in
//! transactions, and stores afterwards how far it is; what of the last transaction was committed it reads from the topic
//! itself.

mod message;
mod options;
mod registered;
mod sink;
mod source;
mod work;

use std::{fmt::Write as _, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_kafka::Brokers;
use lockstep_row::{Column, DataType, TableSchema};
use lockstep_sql::ast::ConnectorKind;
use serde::{Deserialize, Serialize};

use self::options::{MessageFormat, RegistryOptions};
pub(crate) use self::{
    options::{ConnectorOptions, WrittenConnectorOptions},
    sink::SinkProgress,
    source::SourceOffsets,
    work::ConnectorFigures,
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
    /// The table that takes the messages that are no rows.
    pub(crate) bad_rows: Option<TableReference>,
    pub(crate) options: ConnectorOptions,
    /// Whether STOP has stopped it.
    pub(crate) is_stopped: bool,
    /// The session's conversion of values at CREATE.
    pub(crate) conversion: Conversion,
    /// Names the sink in its transactions and messages, whatever it is called.
    pub(crate) id: String,
    pub(crate) progress: ProgressTable,
    pub(crate) worker: Worker<ConnectorFigures>,
}

/// What the log has of a source or a sink beside its statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConnectorRecord {
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_stopped: bool,
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

    pub(crate) fn brokers(&self) -> &Brokers {
        &self.options.brokers
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
                progress: self.progress.id(),
            },
        }
    }

    /// Shows how far it was when it ended.
    pub(crate) fn note_progress(&self) -> Result<()> {
        match self.kind {
            ConnectorKind::Source => {
                let stored: Option<SourceOffsets> = self.progress.read()?;
                stored.unwrap_or_default().note(self);
            }
            ConnectorKind::Sink => {
                let stored: Option<SinkProgress> = self.progress.read()?;
                stored.unwrap_or_default().note(self);
            }
        }
        Ok(())
    }

    /// Writes the statement that makes it.
    pub(crate) fn script(&self, passwords: Passwords) -> String {
        let (name, table) = (self.name().script(), self.table.name.script());
        let mut script = match (self.kind, &self.stream) {
            (ConnectorKind::Source, _) => {
                format!("CREATE SOURCE {name} INTO TABLE {table} FROM KAFKA")
            }
            (ConnectorKind::Sink, Some(stream)) => {
                format!("CREATE SINK {name} FROM STREAM {} INTO KAFKA", stream.script())
            }
            (ConnectorKind::Sink, None) => {
                format!("CREATE SINK {name} FROM TABLE {table} INTO KAFKA")
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
    match connector.kind {
        ConnectorKind::Source => message::MessageReader::new(connector, schema).map(|_| ()),
        ConnectorKind::Sink => sink::key_columns(&connector.options.sink.key, schema).map(|_| ()),
    }
}

/// Checks that the registry answers and that its schemas are what the options say; registers that of a sink.
pub(crate) fn check_registry(connector: &Connector, schema: &TableSchema) -> Result<()> {
    let options = &connector.options;
    let (MessageFormat::Registered(language), Some(RegistryOptions { registry, subject })) =
        (options.format, &options.registry)
    else {
        return Ok(());
    };
    if connector.kind == ConnectorKind::Sink {
        return sink::register_schema(connector, schema);
    }
    let latest = registry.client()?.latest(subject)?;
    let Some(other) = latest.filter(|latest| !latest.is(language)) else { return Ok(()) };
    let message =
        format!("the schemas of subject `{subject}` are in {}, not in {language}", other.language);
    Diagnostic::new(code::INVALID_PARAMETER, message)
        .with_hint("Choose the format of the topic's messages.")
        .err()
}

/// Returns the columns of a table of messages that are no rows.
pub(crate) fn schema_of_bad_rows() -> TableSchema {
    let columns = [
        ("source", DataType::String),
        ("topic", DataType::String),
        ("topic_partition", DataType::Int),
        ("topic_offset", DataType::BigInt),
        ("message_time", DataType::Timestamp),
        ("message_key", DataType::String),
        ("message", DataType::String),
        ("reason", DataType::String),
    ];
    let columns = columns.into_iter().map(|(name, data_type)| Column::new(name, data_type));
    TableSchema { columns: columns.collect(), indexes: Vec::new() }
}
