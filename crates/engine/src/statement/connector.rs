//! CREATE, DROP, ALTER, START, STOP and SHOW of sources and sinks.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_kafka::{Topic, TopicStart};
use lockstep_row::TableSchema;
use lockstep_sql::{
    Parsed,
    ast::{
        ConnectorKind, ConnectorStatement, CreateConnector, Ident, Literal, ObjectName, OptionItem,
        OptionValue, Statement,
    },
    parse,
};

use super::{at_name, outcome, tables_of_rows::TablesOfRows};
use crate::{
    Output, Session,
    catalog::{CatalogCommand, Definition, QualifiedName, TableReference},
    connector::{
        Connector, ConnectorOptions, ConnectorRecord, Passwords, SinkFiles, SinkProgress,
        SourceFiles, SourceOffsets, SystemOptions, WrittenConnectorOptions, check_columns,
        check_registry, files_before, object_kind,
    },
    deployment::QuerySource,
    progress::ProgressTable,
    session::object_name,
    system::{self, SINK_COLUMNS, SOURCE_COLUMNS},
    worker::Worker,
};

/// Returns what a statement does, as it is recorded.
pub(super) fn action_of(statement: &ConnectorStatement) -> &'static str {
    use ConnectorKind::{Sink, Source};
    match statement {
        ConnectorStatement::Create(create) => match create.kind {
            Source => "CREATE SOURCE",
            Sink => "CREATE SINK",
        },
        ConnectorStatement::Drop { kind: Source, .. } => "DROP SOURCE",
        ConnectorStatement::Drop { kind: Sink, .. } => "DROP SINK",
        ConnectorStatement::Alter { kind: Source, .. } => "ALTER SOURCE",
        ConnectorStatement::Alter { kind: Sink, .. } => "ALTER SINK",
        ConnectorStatement::Start(Source, _) => "START SOURCE",
        ConnectorStatement::Start(Sink, _) => "START SINK",
        ConnectorStatement::Stop(Source, _) => "STOP SOURCE",
        ConnectorStatement::Stop(Sink, _) => "STOP SINK",
    }
}

impl Session {
    /// Runs a statement about a source or a sink.
    pub(crate) fn run_connector_statement(&self, statement: &ConnectorStatement) -> Result<Output> {
        let message = action_of(statement);
        match statement {
            ConnectorStatement::Create(create) => self.create_connector(create, message),
            ConnectorStatement::Drop { kind, name, if_exists } => {
                let name_of = self.qualified(name);
                let command =
                    CatalogCommand::DropConnector { kind: object_kind(*kind), name: name_of };
                let tolerated = if_exists.then_some(code::UNDEFINED_OBJECT);
                outcome(self.database().commit(&command), tolerated, name, message)
            }
            ConnectorStatement::Alter { kind, name, options } => {
                self.alter_connector(*kind, name, options)?;
                Ok(Output::of_message(message))
            }
            ConnectorStatement::Start(kind, name) | ConnectorStatement::Stop(kind, name) => {
                let before = self.find_connector(*kind, name)?;
                let is_stopped = matches!(statement, ConnectorStatement::Stop(..));
                let (options, bad_rows) = (before.options.clone(), before.bad_rows.clone());
                let after = before.changed(options, bad_rows, is_stopped);
                self.replace_connector(&before, after)?;
                Ok(Output::of_message(message))
            }
        }
    }

    /// Runs CREATE SOURCE or CREATE SINK: connects to the topic or looks for the files, and stores where it begins.
    fn create_connector(&self, create: &CreateConnector, message: &str) -> Result<Output> {
        let name = self.qualified(&create.name);
        let tolerated = create.if_not_exists.then_some(code::DUPLICATE_TABLE);
        let free = self.database().objects().check_name_free(&name);
        if free.is_err() {
            return outcome(free, tolerated, &create.name, message);
        }
        let (kind, system) = (create.kind, create.system);
        let written = WrittenConnectorOptions::read(kind, system, &create.options)?;
        let named = written.bad_rows.clone();
        let mut tables = TablesOfRows::new(self);
        let new = NewConnector {
            rows: self.rows_of(create)?,
            options: written.of_new(kind, system, create.name.name.span)?,
            bad_rows: tables.of_bad_rows(system, named.as_ref())?,
            progress: ProgressTable::new(self.database())?,
            record: None,
        };
        let connector = Arc::new(self.new_connector(kind, name, new));
        self.check_columns(&connector)?;
        check_registry(&connector, &*self.schema_of(&connector)?)?;
        self.store_start(&connector)?;
        let command = CatalogCommand::CreateConnector { connector: Arc::clone(&connector) };
        let committed = self.database().commit(&command);
        if committed.is_ok() {
            tables.keep();
            Worker::start(&connector, self.database());
        }
        outcome(committed, tolerated, &create.name, message)
    }

    /// Makes a source or a sink again as its record says. Its thread is not started.
    pub(crate) fn restore_connector(
        &self,
        name: &QualifiedName,
        source: &QuerySource,
        record: ConnectorRecord,
        progress: ProgressTable,
    ) -> Result<()> {
        let Some(Parsed {
            statement: Statement::Connector(ConnectorStatement::Create(create)),
            ..
        }) = parse(&source.sql)?.into_iter().next()
        else {
            return Diagnostic::internal("the record is not of a source or a sink").err();
        };
        let (kind, system) = (create.kind, create.system);
        let written = WrittenConnectorOptions::read(kind, system, &create.options)?;
        let bad_rows = written.bad_rows.as_ref();
        let bad_rows = bad_rows.map(|(table, _)| self.find_entry(&object_name(table)));
        let new = NewConnector {
            rows: self.rows_of(&create)?,
            bad_rows: bad_rows.transpose()?.map(|entry| entry.reference()),
            options: written.of_new(kind, system, Span::default())?,
            progress,
            record: Some(record),
        };
        let connector = Arc::new(self.new_connector(kind, name.clone(), new));
        connector.note_progress()?;
        self.database().commit(&CatalogCommand::CreateConnector { connector })
    }

    /// Finds the table of a source or a sink, and the stream whose results it has.
    fn rows_of(&self, create: &CreateConnector) -> Result<(TableReference, Option<QualifiedName>)> {
        if !create.is_stream {
            return Ok((self.find_entry(&create.rows)?.reference(), None));
        }
        let wanted = self.qualified(&create.rows);
        let objects = self.database().objects();
        match objects.find_stream(&wanted) {
            Some(stream) => Ok((stream.target.clone(), Some(wanted))),
            None => at_name(objects.no_stream(&wanted), &create.rows).err(),
        }
    }

    fn new_connector(
        &self,
        kind: ConnectorKind,
        name: QualifiedName,
        new: NewConnector,
    ) -> Connector {
        let NewConnector { rows: (table, stream), options, bad_rows, progress, record } = new;
        let hex = |bytes: [u8; 16]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Connector {
            definition: Definition::new(object_kind(kind), name),
            kind,
            table,
            stream,
            bad_rows,
            options,
            is_stopped: record.as_ref().is_some_and(|record| record.is_stopped),
            is_of_user: match &record {
                Some(record) => record.is_of_user,
                None => !self.caller().is_process(),
            },
            conversion: self.conversion(),
            id: record.map_or_else(|| hex(self.database().host().random.id()), |record| record.id),
            progress,
            worker: Worker::default(),
        }
    }

    /// Checks the columns that the options name.
    fn check_columns(&self, connector: &Connector) -> Result<()> {
        check_columns(connector, &*self.schema_of(connector)?)
    }

    /// Returns the schema of its table.
    fn schema_of(&self, connector: &Connector) -> Result<Arc<TableSchema>> {
        Ok(self.database().objects().entry(&connector.table)?.table.schema())
    }

    /// Stores where a new source or sink begins: connects to the topic, or looks for the files.
    fn store_start(&self, connector: &Connector) -> Result<()> {
        let from_earliest = connector.options.from_earliest;
        let first_row = || -> Result<u64> {
            let objects = self.database().objects();
            let arrived = objects.entry(&connector.table)?.table.arrived_before();
            Ok(if from_earliest { 0 } else { arrived })
        };
        match (&connector.options.system, connector.kind) {
            (SystemOptions::Kafka(options), ConnectorKind::Source) => {
                let start = match from_earliest {
                    true => TopicStart::Earliest,
                    false => TopicStart::Latest,
                };
                let topic = Topic::open(&options.brokers, &options.topic)?;
                let begun = SourceOffsets::new(topic.position(start)?);
                connector.progress.store(&begun)
            }
            (SystemOptions::Kafka(options), ConnectorKind::Sink) => {
                let topic = Topic::open(&options.brokers, &options.topic)?;
                let end = topic.position(TopicStart::Latest)?;
                connector.progress.store(&SinkProgress::new(first_row()?, end.offsets))
            }
            (SystemOptions::Files(options), ConnectorKind::Source) => {
                let before = files_before(&options.path);
                let mut before = before.map_err(|error| Box::new(error.at(options.path_span)))?;
                if from_earliest {
                    before.clear();
                }
                connector.progress.store_all(&SourceFiles::default(), &before)
            }
            (SystemOptions::Files(_), ConnectorKind::Sink) => {
                connector.progress.store(&SinkFiles::new(first_row()?))
            }
        }
    }

    /// Runs ALTER … SET OPTIONS.
    fn alter_connector(
        &self,
        kind: ConnectorKind,
        name: &ObjectName,
        items: &[OptionItem],
    ) -> Result<()> {
        let before = self.find_connector(kind, name)?;
        let system = before.options.system.system();
        let changes = WrittenConnectorOptions::read(kind, system, items)?;
        changes.check_changes(&before.options)?;
        let span = name.name.span;
        let item = |(name, value): (String, String)| OptionItem {
            key: Ident { text: name, span },
            value: OptionValue::Literal(Literal::String(value)),
            span,
        };
        let merged: Vec<OptionItem> =
            changes.merged(&before.options).into_iter().map(item).collect();
        let written = WrittenConnectorOptions::read(kind, system, &merged)?;
        let mut tables = TablesOfRows::new(self);
        let bad_rows = tables.of_bad_rows(system, written.bad_rows.as_ref())?;
        let options = written.of_new(kind, system, span)?;
        let after = before.changed(options, bad_rows, before.is_stopped);
        self.check_columns(&after)?;
        self.replace_connector(&before, after)?;
        tables.keep();
        Ok(())
    }

    /// Puts a source or a sink in the place of another one, which has ended by then, and starts it.
    fn replace_connector(&self, before: &Arc<Connector>, connector: Connector) -> Result<()> {
        debug_assert_eq!(connector.progress.id(), before.progress.id(), "it continues");
        let connector = Arc::new(connector);
        let command = CatalogCommand::ReplaceConnector {
            connector: Arc::clone(&connector),
            before: Arc::clone(before),
        };
        self.database().commit(&command)?;
        Worker::start(&connector, self.database());
        Ok(())
    }

    fn find_connector(&self, kind: ConnectorKind, name: &ObjectName) -> Result<Arc<Connector>> {
        let wanted = self.qualified(name);
        let objects = self.database().objects();
        match objects.find_connector(object_kind(kind), &wanted) {
            Some(connector) => Ok(Arc::clone(connector)),
            None => at_name(objects.no_connector(object_kind(kind), &wanted), name).err(),
        }
    }

    /// Runs SHOW SOURCES or SHOW SINKS: those of the current database.
    pub(super) fn show_connectors(&self, kind: ConnectorKind) -> Result<Output> {
        let current = self.current_database();
        let rows = system::connector_rows(self.database(), self.caller(), kind, Some(&current));
        let columns = match kind {
            ConnectorKind::Source => SOURCE_COLUMNS,
            ConnectorKind::Sink => SINK_COLUMNS,
        };
        Output::of_values(columns, &rows)
    }

    /// Runs SHOW CREATE SOURCE or SHOW CREATE SINK.
    pub(super) fn show_create_connector(
        &self,
        kind: ConnectorKind,
        name: &ObjectName,
    ) -> Result<Output> {
        let connector = self.find_connector(kind, name)?;
        let columns = match kind {
            ConnectorKind::Source => ["source", "create_source"],
            ConnectorKind::Sink => ["sink", "create_sink"],
        };
        let row = [connector.name().name.clone(), connector.script(Passwords::Masked)].map(Some);
        Output::of_texts(&columns, &[row.to_vec()])
    }
}

/// What a source or a sink is made of.
struct NewConnector {
    rows: (TableReference, Option<QualifiedName>),
    options: ConnectorOptions,
    bad_rows: Option<TableReference>,
    progress: ProgressTable,
    /// What the log has, if it is not new.
    record: Option<ConnectorRecord>,
}
