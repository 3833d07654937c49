//! Compiled requests: the program of a deployment or a query, and its answers to request rows.

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
};

use arrow::{
    array::{ArrayRef, RecordBatch},
    datatypes::SchemaRef,
};
use datafusion::logical_expr::LogicalPlan;
use lockstep_batch::{ExecuteOptions, StoredTables};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::Compatibility;
use lockstep_host::temporary::TemporaryStorage;
use lockstep_plan::{BoundQuery, columns_read, future_frame};
use lockstep_request::{
    CheckOutcome, CompileOptions, PlanRunner, PreAggregate, PreAggregation, Program, RequestBatch,
    SeenSnapshots,
};
use lockstep_row::{
    Arena, Column, DataType, Datum, Value,
    arrow::{ColumnBuilder, ColumnReader},
};
use lockstep_table::{LIKE_SECONDS, Snapshot, Table};

use crate::{
    Database, Output, Session,
    access::{AccessGuard, OwnerGuard, Requirement},
    answer_log::{AnswerLog, SeenTables},
    append::{MissingColumn, conform},
    catalog::{Definition, TableEntry},
    conversion::Conversion,
    database::TableSet,
    deployment::source_of,
    lint,
    named_source::not_stored,
    output::schema_of,
    view::{requirements_of, views_of},
};

/// A compiled request. May be shared between threads. That of a user checks at each answer that the user
/// still may ask; it costs an atomic load. A clone is the same request.
#[derive(Clone)]
pub struct PreparedRequest {
    compiled: Arc<CompiledRequest>,
    guard: Option<Arc<AccessGuard>>,
}

/// A request that somebody prepared, without keeping its deployment alive: once that is dropped or
/// replaced, and nobody is being answered, its memory is free.
#[derive(Clone)]
pub struct WeakRequest {
    compiled: Weak<CompiledRequest>,
    guard: Option<Arc<AccessGuard>>,
}

/// What a request was compiled from.
#[derive(Default)]
struct RequestSources {
    /// A deployment, or the tables and views of a query. Once one of them is dropped or replaced, every
    /// answer is an error.
    definitions: Vec<Arc<Definition>>,
    /// What a user needs who asks for answers.
    requirements: Vec<Requirement>,
    /// The check of the owners of the deployment and of the views.
    owners: Option<OwnerGuard>,
}

/// What requests of all users share.
struct CompiledRequest {
    program: Program,
    sources: RequestSources,
    /// The columns of the request row, as the table declares them.
    columns: Vec<Column>,
    /// For each of them, whether an answer depends on it.
    reads: Vec<bool>,
    /// Those that are the event time of an index, and TIMESTAMP.
    times: Vec<usize>,
    input: Vec<(String, DataType)>,
    output: Vec<(String, DataType)>,
    /// The schema of answers, which all batches of them share.
    output_schema: SchemaRef,
    /// Where its answers are logged, if they are.
    answer_log: OnceLock<AnswerLog>,
}

impl fmt::Debug for PreparedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedRequest")
            .field("output", &self.compiled.output)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WeakRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakRequest").field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl WeakRequest {
    /// Returns whether the request is still held. Does not hold it for a moment itself, which could put off
    /// what its end releases.
    pub(crate) fn is_held(&self) -> bool {
        self.compiled.strong_count() > 0
    }

    /// Returns the request, unless its deployment was dropped or replaced. It still checks at each
    /// answer that the user who prepared it may ask.
    pub fn upgrade(&self) -> Option<PreparedRequest> {
        let compiled = self.compiled.upgrade()?;
        Some(PreparedRequest { compiled, guard: self.guard.clone() })
    }
}

/// Returns the columns of a table, of type TIMESTAMP, that are event times of its indexes.
fn times_of(tables: &TableSet, id: u64) -> Vec<usize> {
    let Some(table) = tables.by_id.get(&id) else { return Vec::new() };
    let schema = table.schema();
    let mut times: Vec<usize> =
        schema.indexes.iter().filter_map(|index| index.event_time).collect();
    times.retain(|column| schema.columns[*column].data_type == DataType::Timestamp);
    times.sort_unstable();
    times.dedup();
    times
}

/// The number of requests of a batch whose rows are decoded together.
const REQUESTS_AT_ONCE: usize = 256;

/// Runs in batch mode the parts of a plan that request mode does not compile.
#[derive(Debug)]
pub(crate) struct BatchModeFallback {
    pub(crate) tables: TableSet,
}

impl PlanRunner for BatchModeFallback {
    fn run(&self, plan: &LogicalPlan, seen: SeenSnapshots<'_>) -> Result<Vec<RecordBatch>> {
        let temporary = self.tables.temporary.clone();
        let options = ExecuteOptions { temporary, ..ExecuteOptions::default() };
        lockstep_batch::execute(plan, &SeenTableSet { tables: &self.tables, seen }, &options)
    }
}

/// Tables, some of which are read as an answer sees them.
struct SeenTableSet<'s> {
    tables: &'s TableSet,
    seen: SeenSnapshots<'s>,
}

impl StoredTables for SeenTableSet<'_> {
    fn table(&self, id: u64) -> Option<Arc<Table>> {
        StoredTables::table(self.tables, id)
    }

    fn view(&self, id: u64) -> Option<&Snapshot<'_>> {
        self.seen.of(id)
    }
}

impl PreparedRequest {
    /// Compiles a bound query against the tables that it names.
    pub(crate) fn compile(
        query: &BoundQuery,
        database: &Database,
        entries: &[TableEntry],
        temporary: TemporaryStorage,
    ) -> Result<Self> {
        let tables = entries.iter().map(|entry| Arc::clone(&entry.definition));
        let views = views_of(query);
        let sources = RequestSources {
            owners: OwnerGuard::new(database, None, &views),
            definitions: tables
                .chain(views.iter().map(|view| Arc::clone(&view.definition)))
                .collect(),
            requirements: requirements_of(query),
        };
        let tables = TableSet::of(entries).spilling_to(temporary);
        Self::compile_with(query, &tables, sources, CompileOptions::default())
    }

    /// Compiles the query of a deployment or a procedure, whose requests are frequent and whose
    /// tables cannot be dropped: adds the columns that its windows read to its indexes.
    pub(crate) fn compile_deployed(
        query: &BoundQuery,
        tables: &TableSet,
        definition: &Arc<Definition>,
        owners: Option<OwnerGuard>,
        pre_aggregation: PreAggregation,
    ) -> Result<Self> {
        let options =
            CompileOptions { includes: true, pre_aggregation, ..CompileOptions::default() };
        let sources = RequestSources {
            definitions: vec![Arc::clone(definition)],
            requirements: vec![definition.requirement()],
            owners,
        };
        Self::compile_with(query, tables, sources, options)
    }

    /// Compiles a bound query against tables that are not in the catalog.
    pub(crate) fn compile_over(
        query: &BoundQuery,
        tables: &TableSet,
        pre_aggregation: PreAggregation,
    ) -> Result<Self> {
        let options = CompileOptions { pre_aggregation, ..CompileOptions::default() };
        Self::compile_with(query, tables, RequestSources::default(), options)
    }

    fn compile_with(
        query: &BoundQuery,
        tables: &TableSet,
        sources: RequestSources,
        options: CompileOptions,
    ) -> Result<Self> {
        if let Some(source) = query.files.first() {
            return not_stored(&source.name).err();
        }
        if let Some(source) = source_of(&query.plan) {
            return not_stored(&source.name).err();
        }
        if let Some(window) =
            query.written.windows.iter().find(|found| found.window.ahead.is_some())
        {
            let end = window.spec.frame.as_ref().map_or(window.spec.span, |frame| frame.end.span);
            return future_frame().at(end).err();
        }
        let batch = Arc::new(BatchModeFallback { tables: tables.clone() });
        let index_rows_only = query.settings.compatibility == Compatibility::OpenMldb;
        let options = CompileOptions { index_rows_only, ..options };
        let program = Program::compile_with(&query.plan, tables, batch, options)?;
        let (columns, reads) = match &query.request_table {
            Some(table) => (table.schema.columns.clone(), columns_read(&query.plan, table)),
            None => (Vec::new(), Vec::new()),
        };
        let times = query.request_table.as_ref().map_or_else(Vec::new, |t| times_of(tables, t.id));
        let input = columns.iter().map(|c| (c.name.clone(), c.data_type.clone())).collect();
        let output = query.columns.clone();
        let compiled = CompiledRequest {
            program,
            sources,
            columns,
            reads,
            times,
            input,
            output_schema: schema_of(&output),
            output,
            answer_log: OnceLock::new(),
        };
        Ok(Self { compiled: Arc::new(compiled), guard: None })
    }

    /// Makes the same request for the caller of a session, who has to have what it needs.
    pub(crate) fn for_session(self: &Arc<Self>, session: &Session) -> Result<Arc<Self>> {
        if session.caller().is_process() {
            return Ok(Arc::clone(self));
        }
        let guard = session.guard(self.requirements())?.map(Arc::new);
        Ok(Arc::new(Self { compiled: Arc::clone(&self.compiled), guard }))
    }

    /// Returns the request for somebody who keeps it for later calls of the same user.
    ///
    /// ```
    /// let session = lockstep_engine::Database::in_memory().session();
    /// session.execute("CREATE TABLE t (v INT); DEPLOY d AS SELECT v FROM t")?;
    /// let kept = session.prepare_request("d")?.downgrade();
    /// assert!(kept.upgrade().is_some());
    /// session.execute("DROP DEPLOYMENT d")?;
    /// assert!(kept.upgrade().is_none());
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn downgrade(&self) -> WeakRequest {
        WeakRequest { compiled: Arc::downgrade(&self.compiled), guard: self.guard.clone() }
    }

    /// Has all answers from now on logged. Panics when they are logged already.
    pub(crate) fn log_to(&self, log: AnswerLog) {
        assert!(self.compiled.answer_log.set(log).is_ok(), "answers are logged to one table");
    }

    /// Returns where the answers are logged.
    pub(crate) fn answer_log(&self) -> Option<&AnswerLog> {
        self.compiled.answer_log.get()
    }

    /// Compares answers that took nodes of pre-aggregates with those from rows alone.
    pub(crate) fn check_samples(&self) {
        self.compiled.program.check_samples();
    }

    /// Returns the outcome of these comparisons.
    pub(crate) fn check_outcome(&self) -> CheckOutcome {
        self.compiled.program.check_outcome()
    }

    /// Returns the pre-aggregates of its windows.
    pub(crate) fn pre_aggregates(&self) -> &[Arc<PreAggregate>] {
        self.compiled.program.pre_aggregates()
    }

    /// Returns what a user needs for it.
    pub(crate) fn requirements(&self) -> Vec<Requirement> {
        self.compiled.sources.requirements.clone()
    }

    /// Fails once a definition from which the request was compiled was dropped or replaced, or its user or
    /// an owner lost a privilege.
    #[inline]
    pub(crate) fn check_definitions(&self) -> Result<()> {
        if let Some(guard) = &self.guard {
            guard.check()?;
        }
        if let Some(owners) = &self.compiled.sources.owners {
            owners.check()?;
        }
        self.compiled.sources.definitions.iter().try_for_each(|definition| definition.check())
    }

    /// Returns the columns of the request row; empty for a query without a table.
    pub fn input(&self) -> &[(String, DataType)] {
        &self.compiled.input
    }

    /// Returns for each column of the request row whether an answer depends on it. The others may be
    /// NULL, also where the table does not take NULL.
    pub fn reads(&self) -> &[bool] {
        &self.compiled.reads
    }

    /// Returns the warning about a request row, if its event time looks like seconds.
    pub fn warning_of(&self, row: &[Value]) -> Option<Diagnostic> {
        let is_suspect = |column: &&usize| match row.get(**column) {
            Some(Value::Timestamp(time)) => LIKE_SECONDS.contains(time),
            _ => false,
        };
        let found = self.compiled.times.iter().find(is_suspect)?;
        Some(lint::warning_of_request(&self.compiled.columns[*found].name))
    }

    /// Returns the columns of the answer.
    pub fn output(&self) -> &[(String, DataType)] {
        &self.compiled.output
    }

    /// Answers one request row, whose values are in the order of [`PreparedRequest::input`] and
    /// have its types. `None` when a WHERE drops the row. Once the deployment, or a table of the
    /// query, was dropped or replaced, every answer is the error
    /// [`code::STALE_DEFINITION`].
    pub fn answer<'a>(
        &self,
        row: &[Datum<'a>],
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>> {
        self.check(row)?;
        if let Some(log) = self.answer_log() {
            return self.answer_logged(log, row, arena);
        }
        let answer = self.compiled.program.answer(row, arena);
        // A table that was dropped meanwhile was empty while the program read it.
        self.check_definitions()?;
        answer
    }

    /// Answers one request row with all rows that the query has for it, each passed to `give`: at
    /// most one, unless the query has a join other than LAST JOIN.
    pub fn answer_rows<'a>(
        &self,
        row: &[Datum<'a>],
        arena: &'a Arena,
        give: impl FnMut(&'a [Datum<'a>]),
    ) -> Result<()> {
        self.check(row)?;
        if let Some(log) = self.answer_log() {
            self.answer_logged(log, row, arena)?.into_iter().for_each(give);
            return Ok(());
        }
        let answered = self.compiled.program.answer_rows(row, arena, give);
        self.check_definitions()?;
        answered
    }

    /// Answers one request row, and logs the answer.
    fn answer_logged<'a>(
        &self,
        log: &AnswerLog,
        row: &[Datum<'_>],
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>> {
        let program = &self.compiled.program;
        let ids = program.tables().map(|(id, _)| id);
        let mut seen = SeenTables::default();
        let answer = program.answer_seeing(row, arena, |snapshots| {
            seen = SeenTables::of(ids, snapshots);
        })?;
        self.check_definitions()?;
        log.add(row, &seen, answer);
        // It may have waited for a table with other columns, and this program has no more log.
        self.check_definitions()?;
        Ok(answer)
    }

    /// Whether a request reads only rows of its keys; otherwise it costs as much as the query in
    /// batch mode.
    pub fn is_compiled(&self) -> bool {
        self.compiled.program.is_compiled()
    }

    /// Returns whether a request takes microseconds, so that no thread need be freed of it: it reads only rows of
    /// its keys, and no disk.
    pub fn is_quick(&self) -> bool {
        self.is_compiled() && !self.program().tables().any(|(_, table)| table.is_on_disk())
    }

    /// Returns the program.
    pub(crate) fn program(&self) -> &Program {
        &self.compiled.program
    }

    /// Describes the program, for EXPLAIN.
    pub fn explain(&self) -> String {
        self.compiled.program.explain()
    }

    /// Answers request rows given as batches whose columns are matched by name, all over one view
    /// of the tables.
    pub(crate) fn answer_batches(
        &self,
        batches: &[RecordBatch],
        conversion: Conversion,
    ) -> Result<Output> {
        let mut builders: Vec<ColumnBuilder> = self
            .compiled
            .output
            .iter()
            .map(|(_, data_type)| ColumnBuilder::new(data_type, 1))
            .collect();
        let mut count = 0;
        let mut view = self.compiled.program.batch();
        for batch in batches {
            let missing = MissingColumn::NullUnlessRead(&self.compiled.reads);
            let arrays = conform(batch, &self.compiled.columns, missing, conversion)?;
            count += self.answer_batch(batch.num_rows(), &arrays, &mut view, &mut builders)?;
        }
        self.check_definitions()?;
        let CompiledRequest { output, output_schema, .. } = &*self.compiled;
        let schema = Arc::clone(output_schema);
        let output = Output::with_schema(output.clone(), schema, builders, count)?;
        Ok(Output { settings: conversion.settings(), ..output })
    }

    /// Answers the rows of one batch and returns how many answers there were.
    fn answer_batch(
        &self,
        row_count: usize,
        arrays: &[ArrayRef],
        view: &mut RequestBatch<'_>,
        builders: &mut [ColumnBuilder],
    ) -> Result<usize> {
        let readers: Vec<ColumnReader<'_>> =
            arrays.iter().map(|array| ColumnReader::new(array.as_ref())).collect();
        let mut arena = Arena::new();
        let mut count = 0;
        for first in (0..row_count).step_by(REQUESTS_AT_ONCE) {
            let rows = first..row_count.min(first + REQUESTS_AT_ONCE);
            let read = |row| readers.iter().map(|reader| reader.get(row, &arena)).collect();
            let requests: Vec<Vec<Datum<'_>>> = rows.map(read).collect();
            requests.iter().try_for_each(|request| self.check(request))?;
            let requests: Vec<&[Datum<'_>]> = requests.iter().map(Vec::as_slice).collect();
            let mut give = |answer: &[Datum<'_>]| {
                builders.iter_mut().zip(answer).for_each(|(builder, value)| builder.push(*value));
                count += 1;
            };
            match self.answer_log() {
                None => view.answer(&requests, give)?,
                Some(log) => self.answer_and_log(log, &requests, view, &mut give)?,
            }
            arena.reset();
        }
        Ok(count)
    }

    /// Answers requests one by one, and logs the answers.
    fn answer_and_log(
        &self,
        log: &AnswerLog,
        requests: &[&[Datum<'_>]],
        view: &mut RequestBatch<'_>,
        give: &mut dyn FnMut(&[Datum<'_>]),
    ) -> Result<()> {
        let ids = self.compiled.program.tables().map(|(id, _)| id);
        let seen = SeenTables::of(ids, view.snapshots());
        for request in requests {
            let mut has_answer = false;
            view.answer(&[request], |answer| {
                debug_assert!(!has_answer, "a request has one answer at most");
                has_answer = true;
                log.add(request, &seen, Some(answer));
                give(answer);
            })?;
            if !has_answer {
                log.add(request, &seen, None);
            }
        }
        Ok(())
    }

    /// Checks the values of a request row against the columns of its table.
    pub(crate) fn check(&self, row: &[Datum<'_>]) -> Result<()> {
        self.check_definitions()?;
        if row.len() != self.compiled.columns.len() {
            let (expected, found) = (self.compiled.columns.len(), row.len());
            let message =
                format!("the request row has {found} values, but the table has {expected} columns");
            return Diagnostic::new(code::DATATYPE_MISMATCH, message).err();
        }
        let columns = self.compiled.columns.iter().zip(&self.compiled.reads);
        for (value, (column, is_read)) in row.iter().zip(columns) {
            if value.is_null() {
                if !column.nullable && *is_read {
                    let message = format!(
                        "null value in column `{}` violates not-null constraint",
                        column.name
                    );
                    return Diagnostic::new(code::NOT_NULL_VIOLATION, message).err();
                }
            } else if !value.is_of_type(&column.data_type) {
                let message = format!(
                    "column `{}` is of type {} but the request value is of type {}",
                    column.name,
                    column.data_type,
                    value.data_type()
                );
                return Diagnostic::new(code::DATATYPE_MISMATCH, message).err();
            }
        }
        Ok(())
    }
}
