//! Continuous queries: the rows of a query with windows over tables, each as soon as it is final.
//!
//! A [`ContinuousQuery`] follows the tables of its query ([`lockstep_table::TableTail`]) and gives each main row once,
//! when the watermark has passed the end of its windows: with the values that batch mode computes over all rows that
//! were not late, bit for bit. Request mode's programs compute what is below and above the windows row by row; the
//! windows and the LAST JOINs are a [`WindowJoin`].
//!
//! Of its tables, the one whose rows are the oldest is read first, so that the rows of the others do not wait in
//! memory: it has the rows of the lateness and of the longest frame, however many are stored.
//!
//! An [`ArrivalQuery`] gives the row of each main row at once instead, as a request.
//!
//! # Going on after an end
//!
//! [`ContinuousQuery::progress`] says how far it is. Whoever stores that together with the rows that were given makes
//! another one of it which goes on: it reads the rows again that count for main rows which were not given
//! ([`source`]), and gives each of these once.

mod arrival;
mod explain;
mod last_join;
mod one_level;
mod plan;
mod rows;
mod source;

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use arrow::{array::RecordBatch, compute::concat_batches};
use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::Clock;
use lockstep_plan::BoundQuery;
use lockstep_request::{CompileOptions, Program, SingleRowProgram};
use lockstep_row::{Arena, DataType, Datum, TableSchema};
use lockstep_sql::ast::Statement;
use lockstep_stream::{
    JoinCounts, JoinProgress, JoinedRound, JoinerOutput, JoinerParts, Lateness, MainProgram,
    TeamCounts, WindowJoin, WindowedRow,
};
use lockstep_table::{TailError, TailOptions, TailSignal};
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    arrival::ArrivalQuery,
    explain::explain,
    plan::{Meeting, divided_sources},
    source::LateSourceRow,
};
use self::{
    last_join::JoinedRowProgram,
    plan::{ContinuousPlan, JoinedMain, SourcePlan},
    rows::{JoinerRows, RowBuffer, merged},
    source::{FollowedSource, SourcePart, SourcePlace, SourceProgram},
};
use crate::{
    Database, Session, append::table_error, catalog::TableEntry, database::TableSet,
    prepared_request::BatchModeFallback,
};

/// How many rows of a source are read before another one may be behind.
const ROWS_AT_ONCE: usize = 1_024;

/// How often rows are read for one round at most.
const READS_MAX: usize = 16;

/// The arena is reset when it has allocated more bytes than this.
const ARENA_BYTES_MAX: usize = 1 << 20;

/// How a continuous query is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContinuousOptions {
    /// How much later than the newest row of its source a row may come and still count, in milliseconds of event time.
    pub lateness_ms: i64,
    /// After how many milliseconds without a row a source does not hold the others up any longer; `None` for never.
    pub idle_after_ms: Option<i64>,
    /// How much later than its arrival the event time of a row may be, in milliseconds; `None` for any time. A row above it
    /// is late: it would make others late.
    pub ahead_ms_max: Option<i64>,
    /// Whether the rows that are stored already are read. Otherwise those are that arrive from now on.
    pub from_earliest: bool,
    /// How many bytes of rows may be kept for each table that were removed before they were read.
    pub tail_bytes_max: u64,
    /// Whether late rows are given, and not only counted.
    pub keeps_late_rows: bool,
    /// How many joiners compute the windows; from two on, each has a thread.
    pub joiners: NonZeroUsize,
}

impl Default for ContinuousOptions {
    fn default() -> Self {
        Self {
            lateness_ms: 0,
            idle_after_ms: None,
            ahead_ms_max: None,
            from_earliest: true,
            tail_bytes_max: 256 << 20,
            keeps_late_rows: false,
            joiners: NonZeroUsize::MIN,
        }
    }
}

/// A query whose rows are given as they become final.
#[derive(Debug)]
pub struct ContinuousQuery {
    sources: Vec<FollowedSource>,
    join: WindowJoin<OutputRows>,
    /// No rows, with the columns of all others.
    no_rows: FinalRows,
    signal: Arc<TailSignal>,
    clock: Arc<dyn Clock>,
    /// The rounds of the join that have ended and were not taken.
    rounds: VecDeque<QueryRound>,
    /// What is given next.
    ready: Vec<FinalRows>,
    /// The late rows up to the round that was taken last, and how many there were.
    late: Vec<LateSourceRow>,
    rows_late: u64,
    /// How far it is with the round that was taken last.
    progress: ContinuousProgress,
    /// Whether it reads rows again that the query has had with which it goes on.
    is_replaying: bool,
    /// Why it cannot go on.
    failed: Option<Box<Diagnostic>>,
}

/// How far the sources were at the end of a round.
#[derive(Debug)]
struct QueryRound {
    /// `None` while rows are read again.
    places: Option<Vec<SourcePlace>>,
    /// The late rows since the round before, and how many there were in all.
    late: Vec<LateSourceRow>,
    rows_late: u64,
}

/// How far a continuous query is. Whoever stores it with the rows that were given can go on from there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinuousProgress {
    /// Of each source, the main rows' first.
    sources: Vec<SourcePlace>,
    watermark: Option<i64>,
    /// The main rows that wait although the watermark has passed them, where their number of rows decides it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<u64>,
}

/// The rows of its tables that a query is computed over: those of one partition of the topics that fill them.
#[derive(Debug, Clone)]
pub(crate) struct QueryPart {
    pub(crate) partition: i32,
    /// The columns of each table with the partition and the offset.
    pub(crate) columns: BTreeMap<u64, (usize, usize)>,
    /// The places in the tables of its sources before which no row counts, where they are known.
    pub(crate) from: Vec<u64>,
    /// What is raised when there are rows to read.
    pub(crate) signal: Arc<TailSignal>,
}

/// The rows that a joiner gives next.
#[derive(Debug)]
struct OutputRows {
    /// Computes them from joined rows.
    program: SingleRowProgram,
    /// How many columns of a main row come before the results of its windows, and which come after them.
    places: (usize, usize),
    rows: RowBuffer,
    /// For each the event time of its main row.
    times: Vec<Option<i64>>,
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
        self.new_continuous(sql, options, None)
    }

    /// Goes on with a continuous query that was this far when it ended.
    #[doc(hidden)]
    pub fn continue_query(
        &self,
        sql: &str,
        options: ContinuousOptions,
        progress: &ContinuousProgress,
    ) -> Result<ContinuousQuery> {
        self.new_continuous(sql, options, Some(progress))
    }

    fn new_continuous(
        &self,
        sql: &str,
        options: ContinuousOptions,
        progress: Option<&ContinuousProgress>,
    ) -> Result<ContinuousQuery> {
        let statements = lockstep_sql::parse(sql)?;
        let [parsed] = statements.as_slice() else {
            return Diagnostic::new(code::SYNTAX_ERROR, "one query is expected").err();
        };
        let Statement::Query(query) = &parsed.statement else {
            return Diagnostic::new(code::SYNTAX_ERROR, "a query is expected").err();
        };
        let bound = self.bind(query)?;
        ContinuousQuery::new(&bound, &self.database, options, (progress, None))
    }
}

impl ContinuousQuery {
    /// Begins a query, or goes on with one that was so far.
    pub(crate) fn new(
        query: &BoundQuery,
        database: &Database,
        options: ContinuousOptions,
        (progress, part): (Option<&ContinuousProgress>, Option<&QueryPart>),
    ) -> Result<Self> {
        let plan = ContinuousPlan::new(query)?;
        if progress.is_some_and(|progress| progress.sources.len() != plan.sources.len()) {
            return Diagnostic::internal("the progress is of another query").err();
        }
        let entries = database.entries_of(&query.plan)?;
        let clock = Arc::clone(database.clock());
        let tables = plan.tables(database, &entries)?;
        let compile = |plan: &LogicalPlan| compile(plan, &tables);
        let signal = part.map_or_else(TailSignal::new, |part| Arc::clone(&part.signal));
        let source =
            |(number, SourcePlan { table, plan: of_rows, times }): (usize, &SourcePlan)| {
                let known = progress.map(|progress| &progress.sources[number]);
                let earliest = options.from_earliest.then_some(0);
                let part = part.map(|part| part.of_source(number, *table, known));
                let from = match &part {
                    Some((_, from)) => Some(*from),
                    None => known.map_or(earliest, |known| Some(known.from())),
                };
                let tail_options = TailOptions { from, limit_bytes: options.tail_bytes_max };
                let entry = entries.iter().find(|entry| entry.id == *table);
                let entry = entry.expect("the entries are of all tables of the query");
                let (table, tail) =
                    (entry.definition.name(), entry.table.tail(tail_options, &signal));
                let order = plan.join.sources[number].order;
                let times = times.as_ref().map(&compile).transpose()?;
                let rows = SourceProgram { rows: compile(of_rows)?, order, times };
                let part = part.map(|(part, _)| part);
                // Where the rows end that are read again, only a row behind them tells.
                let is_kept = part.is_some() && plan.join.is_of_lookup(number);
                let tail = if is_kept { tail.keeping_read() } else { tail };
                Ok(FollowedSource::new(number, table.to_string(), tail, rows, (known, part)))
            };
        let sources: Vec<FollowedSource> =
            plan.sources.iter().enumerate().map(source).collect::<Result<_>>()?;
        let mut join = plan.start_join((query, database), options, &tables)?;
        if let Some(ContinuousProgress { sources, watermark, waiting }) = progress {
            let newest: Vec<Option<i64>> = sources.iter().map(SourcePlace::newest).collect();
            let of_join = JoinProgress { watermark: *watermark, waiting: waiting.clone() };
            join.begin_replay(&newest, sources[0].reached(), &of_join);
        }
        let ContinuousOptions { keeps_late_rows, ahead_ms_max, .. } = options;
        let sources = sources
            .into_iter()
            .map(|source| source.keeping_late_rows(keeps_late_rows).with_times_up_to(ahead_ms_max));
        let mut query = Self {
            sources: sources.collect(),
            join,
            no_rows: RowBuffer::new(query.columns.clone()).take()?,
            signal,
            clock,
            rounds: VecDeque::new(),
            ready: Vec::new(),
            late: Vec::new(),
            rows_late: 0,
            progress: progress.cloned().unwrap_or_default(),
            is_replaying: progress.is_some(),
            failed: None,
        };
        if !query.is_replaying {
            // Where it began is known from now on.
            query.end_round();
            query.take_rounds(0)?;
        }
        Ok(query)
    }

    /// Returns the rows that are final and were not given yet, some thousand at most; none when there are none for
    /// now, or those that were read are not computed yet ([`Self::is_caught_up`]). Does not wait for rows to come. A
    /// query that has failed once fails again.
    pub fn poll(&mut self) -> Result<FinalRows> {
        self.check()?;
        self.sources.iter_mut().for_each(FollowedSource::look_again);
        let mut has_read = false;
        for _ in 0..READS_MAX {
            let Some(source) = self.next_source()? else { break };
            has_read |= self.read(source)?;
            self.advance();
        }
        self.advance();
        self.end_round();
        // While joiners compute what was read, the rows of the round before are given.
        self.take_rounds(usize::from(has_read && !self.join.has_one_joiner()))?;
        self.take_ready()
    }

    /// Waits until there are rows to read, as long as said at most.
    pub fn wait(&self, longest: Duration) -> bool {
        self.signal.wait(longest)
    }

    /// Returns what [`Self::wait`] waits for.
    pub(crate) fn signal(&self) -> &Arc<TailSignal> {
        &self.signal
    }

    /// Returns whether the last call has read all rows that there were.
    pub(crate) fn is_caught_up(&self) -> bool {
        let waits = |source: &FollowedSource| source.is_replaying() && !source.is_replayed_next();
        self.rounds.is_empty()
            && self.sources.iter().all(FollowedSource::is_read)
            && (!self.is_replaying || self.sources.iter().any(waits))
    }

    /// Fails where rows that are to be read again are gone: before a poll that found no more, those of each source before
    /// an offset were stored.
    pub(crate) fn check_stored(&mut self, stored: &[u64]) -> Result<()> {
        let mut sources = self.sources.iter_mut().zip(stored);
        sources.try_for_each(|(source, stored)| source.check_stored(*stored))
    }

    /// Returns the places in the tables of its sources from which on rows count.
    pub(crate) fn positions(&self) -> Vec<u64> {
        self.sources.iter().map(FollowedSource::position).collect()
    }

    /// Reads all rows that there are and takes them for the last ones: all rows are final. Returns those that were not
    /// given yet.
    pub fn end(&mut self) -> Result<FinalRows> {
        self.check()?;
        self.sources.iter_mut().for_each(FollowedSource::look_again);
        while let Some(source) = self.next_source()? {
            self.read(source)?;
            self.advance();
        }
        for source in &self.sources {
            self.join.end(source.number());
        }
        self.advance();
        self.end_round();
        self.take_rounds(0)?;
        self.take_ready()
    }

    /// Returns how far it is, the rows of the last [`Self::poll`] included.
    pub fn progress(&self) -> ContinuousProgress {
        self.progress.clone()
    }

    /// Returns no rows, with the columns of all others.
    pub(crate) fn no_rows(&self) -> FinalRows {
        self.no_rows.clone()
    }

    /// Ends a round of the join.
    fn end_round(&mut self) {
        let join = &self.join;
        let sources = self.sources.iter_mut();
        let places = match self.is_replaying {
            true => None,
            false => Some(sources.map(|source| source.progress(join)).collect()),
        };
        let late = self.sources.iter_mut().flat_map(FollowedSource::take_late_rows).collect();
        let rows_late = self.sources.iter().map(FollowedSource::rows_late).sum();
        self.rounds.push_back(QueryRound { places, late, rows_late });
        self.join.end_round();
        debug_assert_eq!(self.rounds.len(), self.join.rounds(), "each is a round of the join");
    }

    /// Waits for the rounds that have ended but for some, and returns which rows of LAST JOINs are held.
    fn take_rounds(&mut self, left: usize) -> Result<Vec<Option<u64>>> {
        let mut held = Vec::new();
        while self.rounds.len() > left {
            let taken = self.join.take_round();
            let of_join = taken.transpose().expect("it has as many rounds");
            let JoinedRound { rows, progress, held: of_round } = self.note(of_join)?;
            let round = self.rounds.pop_front().expect("there is one");
            let rows = self.note(merged(rows))?;
            self.ready.extend((!rows.arrivals.is_empty()).then_some(rows));
            self.late.extend(round.late);
            self.rows_late = round.rows_late;
            if let Some(places) = round.places {
                let places = places.into_iter().zip(&of_round);
                let sources = places.map(|(place, held)| place.holding(*held)).collect();
                let JoinProgress { watermark, waiting } = progress;
                self.progress = ContinuousProgress { sources, watermark, waiting };
            }
            held = of_round;
        }
        Ok(held)
    }

    /// Takes the rows that are ready.
    fn take_ready(&mut self) -> Result<FinalRows> {
        if self.ready.len() == 1 {
            return Ok(self.ready.remove(0));
        }
        let batches = self.ready.iter().map(|rows| &rows.batch);
        let batch = concat_batches(&self.no_rows.batch.schema(), batches)
            .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
        let arrivals = self.ready.drain(..).flat_map(|rows| rows.arrivals).collect();
        Ok(FinalRows { batch, arrivals })
    }

    /// Counts the rows that were read of all sources, each once.
    pub(crate) fn rows_read(&self) -> u64 {
        self.sources.iter().map(FollowedSource::rows_read).sum()
    }

    /// Returns the newest event time of all sources.
    pub(crate) fn newest(&self) -> Option<i64> {
        self.join.newest()
    }

    /// Takes the late rows that were read since the last call, if they are kept.
    pub(crate) fn take_late_rows(&mut self) -> Vec<LateSourceRow> {
        std::mem::take(&mut self.late)
    }

    /// Returns how many rows were late since it was made, those that were read again not counted.
    pub(crate) fn rows_late(&self) -> u64 {
        self.rows_late
    }

    /// Returns what it has done, and has.
    pub fn counts(&mut self) -> JoinCounts {
        self.join.counts()
    }

    /// Returns how the rows are divided among joiners.
    pub(crate) fn teams(&self) -> TeamCounts {
        self.join.teams()
    }

    /// Returns the time before which all rows have come, as far as it has given rows.
    pub fn watermark(&self) -> Option<i64> {
        self.progress.watermark
    }

    /// Returns the source that is behind, of those that may have rows.
    fn next_source(&mut self) -> Result<Option<usize>> {
        if self.is_replaying && !self.sources.iter().any(FollowedSource::is_replaying) {
            self.end_replay()?;
        }
        let is_next = |source: &&FollowedSource| match self.is_replaying {
            true => source.is_replayed_next(),
            false => !source.is_read(),
        };
        let unread = self.sources.iter().filter(is_next);
        let behind = unread.min_by_key(|source| self.join.sources()[source.number()].newest);
        Ok(behind.map(FollowedSource::number))
    }

    /// Goes on from where the other query was, whose rows were read again.
    fn end_replay(&mut self) -> Result<()> {
        self.join.end_replay(self.clock.now_ms());
        self.advance();
        self.end_round();
        let held = self.take_rounds(0)?;
        let mut sources = self.sources.iter().zip(held);
        let checked = sources.try_for_each(|(source, held)| source.check_held(held));
        self.note(checked)?;
        self.is_replaying = false;
        Ok(())
    }

    fn read(&mut self, source: usize) -> Result<bool> {
        let now_ms = self.clock.now_ms();
        let read = self.sources[source].read((&mut self.join, now_ms));
        self.note(read)
    }

    fn advance(&mut self) {
        self.join.advance(self.clock.now_ms());
    }

    /// Fails once it has failed.
    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Takes note of a failure.
    fn note<T>(&mut self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.failed = Some(error.clone());
        }
        done
    }
}

impl ContinuousProgress {
    /// Returns the number of the next row of the main table.
    pub(crate) fn reached(&self) -> u64 {
        self.sources.first().map_or(0, SourcePlace::reached)
    }
}

impl QueryPart {
    /// Returns the part of a source, and the place in its table from which on it is read.
    fn of_source(
        &self,
        number: usize,
        table: u64,
        known: Option<&SourcePlace>,
    ) -> (SourcePart, u64) {
        let next = known.map_or(0, SourcePlace::from);
        let columns = self.columns[&table];
        let part = SourcePart { partition: self.partition, columns, next };
        (part, self.from.get(number).copied().unwrap_or(0))
    }
}

impl ContinuousPlan {
    /// Starts the join of the query.
    fn start_join(
        &self,
        (query, database): (&BoundQuery, &Database),
        options: ContinuousOptions,
        tables: &TableSet,
    ) -> Result<WindowJoin<OutputRows>> {
        self.join.check().map_err(|error| {
            Diagnostic::new(code::WINDOWING_ERROR, error.to_string())
                .with_hint("End the frame at a distance: 10s FOLLOWING, for example.")
        })?;
        let places = (self.columns, self.join.width);
        let of_main = |JoinedMain { plan, main_columns, .. }: &JoinedMain| {
            let program = compile(plan, tables)?;
            let program = JoinedRowProgram { program, main_columns: *main_columns };
            Ok::<_, Box<Diagnostic>>(Box::new(program) as Box<dyn MainProgram>)
        };
        let joiner = || {
            let program = self.joined_main.as_ref().map(of_main).transpose()?;
            let output = compile(&self.output, tables)?;
            let output = OutputRows::new(output, places, query.columns.clone());
            Ok::<_, Box<Diagnostic>>(JoinerParts { program, output })
        };
        let threads = database.host().threads;
        let ContinuousOptions { lateness_ms, idle_after_ms, joiners, .. } = options;
        let times = (Lateness { lateness_ms, idle_after_ms }, database.now_ms());
        let start = |count: usize| {
            let joiners = std::iter::repeat_with(joiner).take(count).collect::<Result<Vec<_>>>()?;
            WindowJoin::new(self.join.clone(), joiners, times, threads)
                .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))
        };
        // Where the machine has no further thread, this one computes all.
        start(joiners.get()).or_else(|_| start(1))
    }

    /// Returns the tables of the query, with one without rows for those that its windows and its LAST JOINs give.
    fn tables(&self, database: &Database, entries: &[TableEntry]) -> Result<TableSet> {
        let mut tables = TableSet::of(entries);
        let of_join = self.joined_main.as_ref().map(|main| &main.table);
        for of_rows in std::iter::once(&self.joined).chain(of_join) {
            let empty = database.make_unlogged_table(TableSchema::clone(&of_rows.schema));
            let empty = empty.map_err(|error| table_error(&error))?;
            tables.by_id.insert(of_rows.id, Arc::new(empty));
        }
        Ok(tables)
    }
}

/// Compiles a plan that is computed row by row.
fn compile(plan: &LogicalPlan, tables: &TableSet) -> Result<SingleRowProgram> {
    let batch = Arc::new(BatchModeFallback { tables: tables.clone() });
    let program = Program::compile_with(plan, tables, batch, CompileOptions::default())?;
    let not_by_row = || Box::new(Diagnostic::internal("the query is not computed row by row"));
    SingleRowProgram::new(program).ok_or_else(not_by_row)
}

impl OutputRows {
    fn new(
        program: SingleRowProgram,
        places: (usize, usize),
        columns: Vec<(String, DataType)>,
    ) -> Self {
        let (rows, times) = (RowBuffer::new(columns), Vec::new());
        Self { program, places, rows, times, arena: Arena::new(), failed: None }
    }
}

impl JoinerOutput for OutputRows {
    type Rows = JoinerRows;

    /// Computes the row of a joined row, if there is one.
    fn add(&mut self, joined: WindowedRow<'_>) {
        if self.failed.is_some() {
            return;
        }
        let arena = &self.arena;
        let (before, after) = self.places;
        let (before, after) = (&joined.columns[..before], &joined.columns[after..]);
        let values = before.iter().chain(joined.results).chain(after);
        let values: Vec<Datum<'_>> = values.map(|value| value.as_datum(arena)).collect();
        match self.program.compute(&values, joined.arrival, arena) {
            Ok(None) => {}
            Ok(Some(row)) => {
                self.rows.push(row, joined.arrival);
                self.times.push(joined.time);
            }
            Err(error) => self.failed = Some(error),
        }
        if self.arena.allocated_bytes() > ARENA_BYTES_MAX {
            self.arena.reset();
        }
    }

    fn take(&mut self) -> Result<JoinerRows> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        Ok(JoinerRows { rows: self.rows.take()?, times: std::mem::take(&mut self.times) })
    }
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

/// Makes the error of a query some of whose rows were removed before they were read again.
fn removed(table: &str) -> Box<Diagnostic> {
    let message =
        format!("rows of table `{table}` were removed that its windows or LAST JOINs require");
    Box::new(
        Diagnostic::new(code::UNDEFINED_OBJECT, message)
            .with_detail(
                "A stream that continues reads the rows again that its windows contain, as far \
                 back as their frames and the lateness reach, and the newest row of each key \
                 for LAST JOINs.",
            )
            .with_hint(
                "Keep the rows for longer, and create the stream again; it starts with the rows \
                 that are stored.",
            ),
    )
}
