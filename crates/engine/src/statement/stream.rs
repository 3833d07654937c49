//! CREATE STREAM, DROP STREAM, ALTER STREAM, START STREAM, STOP STREAM, SHOW STREAMS and SHOW CREATE STREAM.

use std::sync::Arc;

use arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_plan::{BoundQuery, stored_tables};
use lockstep_sql::{
    Parsed,
    ast::{CreateStream, ObjectName, OptionItem, Statement, StreamStatement},
    parse,
};
use lockstep_table::Table;

use super::{at_name, create_table::schema_of_query, outcome, tables_of_rows::TablesOfRows};
use crate::{
    Output, Session,
    access::OwnedReads,
    append::push_batch,
    catalog::{CatalogCommand, Definition, ObjectKind, QualifiedName, TableReference},
    connector::GroupedSources,
    continuous::{divided_sources, explain},
    deployment::{QuerySource, query_text},
    output::schema_of,
    progress::ProgressTable,
    session::object_name,
    stream::{GoingOn, Stream, StreamOptions, StreamQuery, StreamRecord, WrittenOptions},
    system::{self, STREAM_COLUMNS},
    view::{requirements_of, views_of},
    worker::Worker,
};

/// Returns what a statement does, as it is recorded.
pub(super) fn action_of(statement: &StreamStatement) -> &'static str {
    match statement {
        StreamStatement::Create(_) => "CREATE STREAM",
        StreamStatement::Drop { .. } => "DROP STREAM",
        StreamStatement::Alter { .. } => "ALTER STREAM",
        StreamStatement::Start(_) => "START STREAM",
        StreamStatement::Stop(_) => "STOP STREAM",
        StreamStatement::Subscribe { .. } => "SUBSCRIBE",
        StreamStatement::Explain(_) => "EXPLAIN STREAM",
    }
}

impl Session {
    /// Runs a statement about a stream.
    pub(crate) fn run_stream_statement(
        &self,
        statement: &StreamStatement,
        parsed: &Parsed,
        script: &str,
    ) -> Result<Output> {
        match statement {
            StreamStatement::Create(create) => {
                self.create_stream(create, script, parsed.parameter_count)
            }
            StreamStatement::Drop { name, if_exists } => self.drop_stream(name, *if_exists),
            StreamStatement::Alter { name, options } => self.alter_stream(name, options),
            StreamStatement::Start(name) => self.start_stream(name),
            StreamStatement::Stop(name) => self.stop_stream(name),
            StreamStatement::Explain(name) => self.explain_stream(name),
            StreamStatement::Subscribe { name, .. } => {
                Diagnostic::unsupported("this client cannot run SUBSCRIBE")
                    .at(name.name.span)
                    .with_detail("Its rows have no end.")
                    .with_hint(
                        "Use subscribe() in Python, Arrow Flight, PostgreSQL's protocol, or GET \
                         /v1/subscriptions/{name}.",
                    )
                    .err()
            }
        }
    }

    /// Runs CREATE STREAM.
    fn create_stream(
        &self,
        create: &CreateStream,
        script: &str,
        parameter_count: usize,
    ) -> Result<Output> {
        let name = self.qualified(&create.name);
        let tolerated = create.if_not_exists.then_some(code::DUPLICATE_TABLE);
        let free = self.database.objects().check_name_free(&name);
        if free.is_err() {
            return outcome(free, tolerated, &create.name, "CREATE STREAM");
        }
        if parameter_count > 0 {
            return Diagnostic::unsupported("a stream cannot have parameters")
                .at(create.query.span)
                .with_hint("Write the value.")
                .err();
        }
        let written = WrittenOptions::read(&create.options)?;
        let options = written.of_new();
        let seen = self.database.objects().epoch();
        let query = self.bind(&create.query)?;
        let is_grouped = self.check_group(&query, &written, create.query.span)?;
        written.check_waiting(&create.options, options)?;
        // Finds what a stream cannot compute.
        StreamQuery::new(
            &query,
            &self.database,
            options.of_query(false),
            (options, GoingOn::default()),
        )
        .map_err(|error| at_query(error, create.query.span))?;
        let mut tables = TablesOfRows::new(self);
        let schema = schema_of_query(&query.columns, create.query.span)?;
        let target = tables.find_or_create(&create.target, schema, create.target.name.span)?;
        self.check_target(&target, &query, create.query.span)?;
        let late_rows = tables.of_late_rows(written.late_rows.as_ref())?;
        let sql = query_text(script, create.query.span);
        let new = NewStream {
            name,
            sql,
            query,
            target,
            late_rows,
            options,
            progress: ProgressTable::new(&self.database)?,
            is_grouped,
            is_stopped: false,
        };
        let stream = Arc::new(self.new_stream(new));
        let command = CatalogCommand::CreateStream { stream: Arc::clone(&stream), seen };
        let committed = self.database.commit(&command);
        if committed.is_ok() {
            tables.keep();
            Worker::start(&stream, &self.database);
        }
        outcome(committed, tolerated, &create.name, "CREATE STREAM")
    }

    /// Makes a stream again as its record says. Its thread is not started.
    pub(crate) fn restore_stream(
        &self,
        name: &QualifiedName,
        source: &QuerySource,
        record: &StreamRecord,
        progress: ProgressTable,
    ) -> Result<()> {
        let script = record.script(name, &source.sql);
        let Some(Parsed { statement: Statement::Stream(StreamStatement::Create(create)), .. }) =
            parse(&script)?.into_iter().next()
        else {
            return Diagnostic::internal("the record is not of a stream").err();
        };
        let written = WrittenOptions::read(&create.options)?;
        let seen = self.database.objects().epoch();
        let reference = |name: &ObjectName| self.find_entry(name).map(|entry| entry.reference());
        let late_rows = written.late_rows.as_ref().map(|(table, _)| reference(&object_name(table)));
        let new = NewStream {
            name: name.clone(),
            sql: source.sql.clone(),
            query: self.bind(&create.query)?,
            target: reference(&create.target)?,
            late_rows: late_rows.transpose()?,
            options: written.of_new(),
            progress,
            is_grouped: record.is_grouped,
            is_stopped: record.is_stopped(),
        };
        let stream = Arc::new(self.new_stream(new));
        self.database.commit(&CatalogCommand::CreateStream { stream, seen })
    }

    fn new_stream(&self, new: NewStream) -> Stream {
        let NewStream { name, sql, query, target, late_rows, options, progress, .. } = new;
        let NewStream { is_grouped, is_stopped, .. } = new;
        debug_assert!(options.lateness_ms >= 0, "the options were read");
        let definition = Definition::new(ObjectKind::Stream, name);
        let tables = tables_of(&query);
        Stream {
            owned: OwnedReads::new(&definition, self.object_owner(), requirements_of(&query)),
            definition,
            sql,
            target,
            late_rows,
            tables,
            views: views_of(&query),
            query,
            options,
            is_grouped,
            is_stopped,
            settings: self.settings(),
            current_database: self.current_database(),
            progress,
            worker: Worker::default(),
        }
    }

    /// Returns whether a query is over sources with a group. Fails where its rows cannot be divided as theirs.
    fn check_group(
        &self,
        query: &BoundQuery,
        written: &WrittenOptions,
        span: Span,
    ) -> Result<bool> {
        let tables: Vec<TableReference> = tables_of(query);
        let of_tables = GroupedSources::of_tables(&self.database.objects(), &tables);
        let Some(sources) = of_tables.map_err(|error| at_query(error, span))? else {
            return Ok(false);
        };
        written.check_start_of_group()?;
        written.check_joiners_of_group()?;
        let checked = || {
            let of_query = divided_sources(query)?;
            if written.of_new().emits_at_arrival && tables.len() > 1 {
                return Diagnostic::unsupported(
                    "a stream over sources with a group cannot use emit='arrival' with several tables",
                )
                .with_detail(
                    "Which rows of the other tables have arrived would depend on the process.",
                )
                .err();
            }
            sources.check_meetings(&of_query.tables, &of_query.meetings)?;
            sources.check_partitions()
        };
        checked().map_err(|error| at_query(error, span))?;
        Ok(true)
    }

    /// Checks that a table takes the rows of a query.
    fn check_target(&self, target: &TableReference, query: &BoundQuery, span: Span) -> Result<()> {
        let table: Arc<Table> = Arc::clone(&self.database.objects().entry(target)?.table);
        let none = RecordBatch::new_empty(schema_of(&query.columns));
        let pushed = push_batch(&mut table.load_any(), &none, &table.schema(), self.conversion());
        pushed.map_err(|error| at_query(error, span))
    }

    /// Runs DROP STREAM.
    fn drop_stream(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let command = CatalogCommand::DropStream { name: self.qualified(name) };
        let tolerated = if_exists.then_some(code::UNDEFINED_OBJECT);
        outcome(self.database.commit(&command), tolerated, name, "DROP STREAM")
    }

    /// Runs ALTER STREAM … SET OPTIONS.
    fn alter_stream(&self, name: &ObjectName, items: &[OptionItem]) -> Result<Output> {
        let before = self.find_stream(name)?;
        let written = WrittenOptions::read(items)?;
        let options = written.changing(before.options)?;
        written.check_waiting(items, options)?;
        if before.is_grouped {
            written.check_joiners_of_group()?;
        }
        let mut tables = TablesOfRows::new(self);
        let late_rows = tables.of_late_rows(written.late_rows.as_ref())?;
        let late_rows = late_rows.or_else(|| before.late_rows.clone());
        self.replace_stream(&before, before.changed(options, late_rows, before.is_stopped))?;
        tables.keep();
        Ok(Output::of_message("ALTER STREAM"))
    }

    /// Runs START STREAM.
    fn start_stream(&self, name: &ObjectName) -> Result<Output> {
        let before = self.find_stream(name)?;
        let late_rows = before.late_rows.clone();
        self.replace_stream(&before, before.changed(before.options, late_rows, false))?;
        Ok(Output::of_message("START STREAM"))
    }

    /// Runs STOP STREAM.
    fn stop_stream(&self, name: &ObjectName) -> Result<Output> {
        let before = self.find_stream(name)?;
        let late_rows = before.late_rows.clone();
        self.replace_stream(&before, before.changed(before.options, late_rows, true))?;
        Ok(Output::of_message("STOP STREAM"))
    }

    /// Puts a stream in the place of another one, which has ended by then, and starts it.
    fn replace_stream(&self, before: &Arc<Stream>, stream: Stream) -> Result<()> {
        debug_assert_eq!(stream.progress.id(), before.progress.id(), "it continues");
        let stream = Arc::new(stream);
        let command = CatalogCommand::ReplaceStream {
            stream: Arc::clone(&stream),
            before: Arc::clone(before),
        };
        self.database.commit(&command)?;
        Worker::start(&stream, &self.database);
        Ok(())
    }

    fn find_stream(&self, name: &ObjectName) -> Result<Arc<Stream>> {
        let wanted = self.qualified(name);
        let objects = self.database.objects();
        match objects.find_stream(&wanted) {
            Some(stream) => Ok(Arc::clone(stream)),
            None => at_name(objects.no_stream(&wanted), name).err(),
        }
    }

    /// Runs EXPLAIN STREAM.
    fn explain_stream(&self, name: &ObjectName) -> Result<Output> {
        let stream = self.find_stream(name)?;
        let options = stream.options;
        let of_query = options.of_query(false);
        let query = StreamQuery::new(
            &stream.query,
            &self.database,
            of_query,
            (options, GoingOn::default()),
        )?;
        let (first, lines) = match &query {
            StreamQuery::Final(_) => {
                let lateness_ms = options.lateness_ms;
                let first = format!("results when they are final, lateness {lateness_ms} ms");
                (first, explain(&stream.query)?)
            }
            StreamQuery::AtArrival(query) => {
                ("results at arrival, answered in request mode".to_owned(), query.explain())
            }
        };
        let lines = lines.iter().map(|line| format!("  {line}"));
        let lines: Vec<String> = std::iter::once(first).chain(lines).collect();
        Output::of_list("plan", lines.iter().map(String::as_str))
    }

    /// Runs SHOW STREAMS: those of the current database.
    pub(super) fn show_streams(&self) -> Result<Output> {
        let objects = self.database.objects();
        let current = self.current_database();
        let found = objects.databases().get(&current);
        let streams = found.into_iter().flat_map(|found| found.streams.values());
        let is_seen = |stream: &&Arc<Stream>| {
            self.caller().sees_table(&objects, &current, &stream.name().name)
        };
        let rows: Vec<_> =
            streams.filter(is_seen).map(|stream| system::stream_row(stream)).collect();
        Output::of_values(STREAM_COLUMNS, &rows)
    }

    /// Runs SHOW CREATE STREAM.
    pub(super) fn show_create_stream(&self, name: &ObjectName) -> Result<Output> {
        let stream = self.find_stream(name)?;
        let row = [&stream.name().name, &stream.script(), &stream.current_database]
            .map(|text| Some(text.clone()));
        Output::of_texts(&["stream", "create_stream", "current_database"], &[row.to_vec()])
    }
}

/// What a stream is made of.
struct NewStream {
    name: QualifiedName,
    sql: String,
    query: BoundQuery,
    target: TableReference,
    late_rows: Option<TableReference>,
    options: StreamOptions,
    progress: ProgressTable,
    is_grouped: bool,
    is_stopped: bool,
}

/// Returns the stored tables that a query reads.
fn tables_of(query: &BoundQuery) -> Vec<TableReference> {
    let tables = stored_tables(&query.plan);
    let stored = tables.iter().filter(|table| !system::is_system(table.id));
    stored.map(|table| TableReference::of(table)).collect()
}

/// Says that an error is about the query, unless it says more.
fn at_query(error: Box<Diagnostic>, span: Span) -> Box<Diagnostic> {
    match error.span {
        Some(_) => error,
        None => Box::new(error.at(span)),
    }
}
