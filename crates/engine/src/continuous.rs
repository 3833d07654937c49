//! Continuous queries: the rows of a query with windows over tables, each as soon as it is final.
//!
//! A [`ContinuousQuery`] follows the tables of its query ([`lockstep_table::TableTail`]) and gives each main row once,
//! when the watermark has passed the end of its windows: with the values that batch mode computes over all rows that
//! were not late, bit for bit. Request mode's programs compute what is below and above the windows row by row; the
//! windows are a [`WindowJoin`].
//!
//! Of its tables, the one whose rows are the oldest is read first, so that the rows of the others do not wait in
//! memory: it has the rows of the lateness and of the longest frame, however many are stored.

mod plan;

use std::{sync::Arc, time::Duration};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::Clock;
use lockstep_plan::BoundQuery;
use lockstep_request::{CompileOptions, Program};
use lockstep_row::{Arena, DataType, Datum, arrow::ColumnBuilder};
use lockstep_sql::ast::Statement;
use lockstep_stream::{JoinCounts, Lateness, StreamRow, WindowJoin, WindowedRow};
use lockstep_table::{TableTail, TailError, TailOptions, TailRow, TailSignal};

use self::plan::{ContinuousPlan, SourcePlan};
use crate::{
    Database, Session, append::table_error, database::TableSet, output::schema_of,
    prepared_request::BatchModeFallback,
};

/// How many rows of a source are read before another one may be behind.
const ROWS_AT_ONCE: usize = 1_024;

/// A batch of rows is given when it has so many.
const ROWS_PER_BATCH: usize = 8_192;

/// The arena is reset when it has allocated more bytes than this.
const ARENA_BYTES_MAX: usize = 1 << 20;

/// How a continuous query is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContinuousOptions {
    /// How much later than the newest row of its source a row may come and still count, in milliseconds of event time.
    pub lateness_ms: i64,
    /// After how many milliseconds without a row a source does not hold the others up any longer; `None` for never.
    pub idle_after_ms: Option<i64>,
    /// Whether the rows that are stored already are read. Otherwise those are that arrive from now on.
    pub from_earliest: bool,
    /// How many bytes of rows may be kept for each table that were removed before they were read.
    pub tail_bytes_max: u64,
}

impl Default for ContinuousOptions {
    fn default() -> Self {
        Self { lateness_ms: 0, idle_after_ms: None, from_earliest: true, tail_bytes_max: 256 << 20 }
    }
}

/// A query whose rows are given as they become final.
#[derive(Debug)]
pub struct ContinuousQuery {
    sources: Vec<FollowedSource>,
    join: WindowJoin,
    output: OutputRows,
    signal: Arc<TailSignal>,
    clock: Arc<dyn Clock>,
}

/// A source of a continuous query.
#[derive(Debug)]
struct FollowedSource {
    number: usize,
    /// The name of its table.
    table: String,
    tail: TableTail,
    /// Computes the columns of a row.
    program: Program,
    arena: Arena,
    /// Whether the last read found no more rows.
    is_read: bool,
}

/// The rows that are given next.
#[derive(Debug)]
struct OutputRows {
    /// Computes them from joined rows.
    program: Program,
    columns: Vec<(String, DataType)>,
    schema: SchemaRef,
    builders: Vec<ColumnBuilder>,
    arrivals: Vec<u64>,
    arena: Arena,
    /// Why no more rows can be computed.
    failed: Option<Box<Diagnostic>>,
}

/// Rows that a continuous query gave.
#[derive(Debug, Clone)]
pub struct FinalRows {
    /// The rows.
    pub batch: RecordBatch,
    /// For each the arrival of its main row.
    pub arrivals: Vec<u64>,
}

impl Session {
    /// Begins a continuous query: a SELECT with windows over tables and their filters.
    #[doc(hidden)]
    pub fn continuous_query(
        &self,
        sql: &str,
        options: ContinuousOptions,
    ) -> Result<ContinuousQuery> {
        let statements = lockstep_sql::parse(sql)?;
        let [parsed] = statements.as_slice() else {
            return Diagnostic::new(code::SYNTAX_ERROR, "one query is expected").err();
        };
        let Statement::Query(query) = &parsed.statement else {
            return Diagnostic::new(code::SYNTAX_ERROR, "a query is expected").err();
        };
        let bound = self.bind(query)?;
        ContinuousQuery::new(&bound, &self.database, options)
    }
}

impl ContinuousQuery {
    fn new(query: &BoundQuery, database: &Database, options: ContinuousOptions) -> Result<Self> {
        let plan = ContinuousPlan::new(query)?;
        let entries = database.entries_of(&query.plan)?;
        let clock = Arc::clone(database.clock());
        let mut tables = TableSet::of(&entries);
        let joined =
            database.make_unlogged_table(lockstep_row::TableSchema::clone(&plan.joined.schema));
        let joined = joined.map_err(|error| table_error(&error))?;
        tables.by_id.insert(plan.joined.id, Arc::new(joined));
        let compile = |plan: &LogicalPlan| {
            let batch = Arc::new(BatchModeFallback { tables: tables.clone() });
            let program = Program::compile_with(plan, &tables, batch, CompileOptions::default())?;
            match program.is_compiled() {
                true => Ok(program),
                false => Diagnostic::internal("the query is not computed row by row").err(),
            }
        };
        let signal = TailSignal::new();
        let source = |(number, SourcePlan { table, plan }): (usize, &SourcePlan)| {
            let from = options.from_earliest.then_some(0);
            let tail_options = TailOptions { from, limit_bytes: options.tail_bytes_max };
            let entry = entries.iter().find(|entry| entry.id == *table);
            let entry = entry.expect("the entries are of all tables of the query");
            let (table, tail) = (entry.definition.name(), entry.table.tail(tail_options, &signal));
            let (program, arena) = (compile(plan)?, Arena::new());
            let table = table.to_string();
            Ok(FollowedSource { number, table, tail, program, arena, is_read: false })
        };
        let sources = plan.sources.iter().enumerate().map(source).collect::<Result<_>>()?;
        let lateness =
            Lateness { lateness_ms: options.lateness_ms, idle_after_ms: options.idle_after_ms };
        let output = OutputRows::new(compile(&plan.output)?, query.columns.clone());
        let join = WindowJoin::new(plan.join, plan.width, lateness, clock.now_ms());
        let join = join.map_err(|error| {
            Diagnostic::new(code::WINDOWING_ERROR, error.to_string())
                .with_hint("End the frame at a distance: 10s FOLLOWING, for example.")
        })?;
        Ok(Self { sources, join, output, signal, clock })
    }

    /// Returns the rows that are final and were not given yet, some thousand at most; none when there are none for
    /// now. Does not wait.
    pub fn poll(&mut self) -> Result<FinalRows> {
        self.sources.iter_mut().for_each(|source| source.is_read = false);
        while self.output.len() < ROWS_PER_BATCH
            && let Some(source) = self.next_source()
        {
            self.read(source)?;
            self.advance()?;
        }
        self.advance()?;
        self.output.take()
    }

    /// Waits until there are rows to read, as long as said at most.
    pub fn wait(&self, longest: Duration) -> bool {
        self.signal.wait(longest)
    }

    /// Reads all rows that there are and takes them for the last ones: all rows are final. Returns those that were not
    /// given yet.
    pub fn end(&mut self) -> Result<FinalRows> {
        self.sources.iter_mut().for_each(|source| source.is_read = false);
        while let Some(source) = self.next_source() {
            self.read(source)?;
        }
        for source in &self.sources {
            self.join.end(source.number);
        }
        self.advance()?;
        self.output.take()
    }

    /// Returns what it has done, and has.
    pub fn counts(&self) -> JoinCounts {
        self.join.counts()
    }

    /// Returns the time before which all rows have come.
    pub fn watermark(&self) -> Option<i64> {
        self.join.watermark()
    }

    /// Returns the source that is behind, of those that may have rows.
    fn next_source(&self) -> Option<usize> {
        let unread = self.sources.iter().filter(|source| !source.is_read);
        let behind = unread.min_by_key(|source| self.join.sources()[source.number].newest);
        behind.map(|source| source.number)
    }

    fn read(&mut self, source: usize) -> Result<()> {
        let Self { sources, join, output, clock, .. } = self;
        let now_ms = clock.now_ms();
        let FollowedSource { number, table, tail, program, arena, is_read } = &mut sources[source];
        let mut failed = None;
        let columns_of_table = program.input().map_or(0, |schema| schema.columns.len());
        let read = tail.read(ROWS_AT_ONCE, |TailRow { arrival, row, .. }| {
            if failed.is_some() {
                return;
            }
            let columns = (0..columns_of_table).map(|column| row.get_in(column, arena));
            let columns = arena.alloc_slice_fill_iter(columns);
            match program.answer_at(columns, arrival, arena) {
                Ok(None) => {}
                Ok(Some(columns)) => {
                    let row = StreamRow { source: *number, arrival, columns };
                    join.push(row, now_ms, &mut |joined| output.add(joined));
                }
                Err(error) => failed = Some(error),
            }
        });
        arena.reset();
        if let Some(error) = failed {
            return Err(error);
        }
        let count = read.map_err(|error| lost(&error, table))?;
        *is_read = count < ROWS_AT_ONCE;
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        let Self { join, output, clock, .. } = self;
        join.advance(clock.now_ms(), &mut |joined| output.add(joined));
        output.failed.take().map_or(Ok(()), Err)
    }
}

impl OutputRows {
    fn new(program: Program, columns: Vec<(String, DataType)>) -> Self {
        let schema = schema_of(&columns);
        let builders = builders(&columns);
        let (arrivals, arena) = (Vec::new(), Arena::new());
        Self { program, columns, schema, builders, arrivals, arena, failed: None }
    }

    fn len(&self) -> usize {
        self.arrivals.len()
    }

    /// Computes the row of a joined row, if there is one.
    fn add(&mut self, joined: WindowedRow<'_>) {
        if self.failed.is_some() {
            return;
        }
        let arena = &self.arena;
        let values = joined.columns.iter().take(self.width() - joined.results.len());
        let values: Vec<Datum<'_>> =
            values.chain(joined.results).map(|value| value.as_datum(arena)).collect();
        match self.program.answer_at(&values, joined.arrival, arena) {
            Ok(None) => {}
            Ok(Some(row)) => {
                debug_assert_eq!(row.len(), self.builders.len(), "a row has all columns");
                for (builder, value) in self.builders.iter_mut().zip(row) {
                    builder.push(*value);
                }
                self.arrivals.push(joined.arrival);
            }
            Err(error) => self.failed = Some(error),
        }
        if self.arena.allocated_bytes() > ARENA_BYTES_MAX {
            self.arena.reset();
        }
    }

    /// Returns how many columns the rows of the windows have.
    fn width(&self) -> usize {
        self.program.input().map_or(0, |schema| schema.columns.len())
    }

    /// Takes the rows.
    fn take(&mut self) -> Result<FinalRows> {
        debug_assert_eq!(
            self.builders.len(),
            self.schema.fields().len(),
            "each column has a builder"
        );
        let mut builders = std::mem::replace(&mut self.builders, builders(&self.columns));
        let columns: Vec<ArrayRef> = builders.iter_mut().map(ColumnBuilder::finish).collect();
        let arrivals = std::mem::take(&mut self.arrivals);
        let options = RecordBatchOptions::new().with_row_count(Some(arrivals.len()));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        let batch = batch.map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
        Ok(FinalRows { batch, arrivals })
    }
}

fn builders(columns: &[(String, DataType)]) -> Vec<ColumnBuilder> {
    columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, 0)).collect()
}

/// Makes the error of a query that cannot go on from where it is in a table.
fn lost(error: &TailError, table: &str) -> Box<Diagnostic> {
    let message = format!("the rows of table `{table}` cannot be followed");
    Box::new(
        Diagnostic::new(code::OUT_OF_MEMORY, message)
            .with_kind(Kind::FreeResources)
            .with_detail(format!("{error}."))
            .with_hint("Begin the query again, and remove rows later than they are read."),
    )
}
