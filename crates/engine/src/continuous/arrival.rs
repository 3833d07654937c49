//! Queries whose rows are given at once: each main row is answered as a request, over the rows that had arrived before
//! it, with the values of AS KNOWN AT ARRIVAL.
//!
//! The state is that of the tables and their indexes, so that the place in the order of arrival is all that has to be
//! stored to go on: whenever a row is answered, the tables are cut where it arrived. A row is answered when no row that
//! has arrived before it, in any of the tables, can become visible any more.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_plan::BoundQuery;
use lockstep_row::{Arena, Datum};
use lockstep_table::{TableTail, TailOptions, TailRow, TailSignal};

use super::{
    ContinuousOptions, ContinuousProgress, FinalRows, QueryPart, ROWS_AT_ONCE, RowBuffer, lost,
    source::{SourcePart, SourcePlace},
};
use crate::{
    Database, PreparedRequest, catalog::TableEntry, database::TableSet, known::KnownTables,
};

/// A query that gives the row of each main row when it arrives.
#[derive(Debug)]
pub(crate) struct ArrivalQuery {
    request: PreparedRequest,
    tables: TableSet,
    main_table: u64,
    /// The name of the main table.
    name: String,
    tail: TableTail,
    output: RowBuffer,
    signal: Arc<TailSignal>,
    rows_read: u64,
    is_read: bool,
    /// Which rows it answers; `None` for all.
    part: Option<SourcePart>,
    failed: Option<Box<Diagnostic>>,
}

impl ArrivalQuery {
    /// Begins a query, or goes on with one that was so far.
    pub(crate) fn new(
        query: &BoundQuery,
        database: &Database,
        options: ContinuousOptions,
        (progress, of_part): (Option<&ContinuousProgress>, Option<&QueryPart>),
    ) -> Result<Self> {
        let entries = database.entries_of(&query.plan)?;
        let temporary = database.temporary_storage();
        let request = PreparedRequest::compile(query, database, &entries, temporary.clone())?;
        let is_main = |entry: &&TableEntry| {
            query.request_table.as_ref().is_some_and(|table| table.id == entry.id)
        };
        let Some(main) = entries.iter().find(is_main) else {
            return Diagnostic::unsupported("a continuous query has a table in FROM").err();
        };
        let known = progress.and_then(|progress| progress.sources.first());
        let earliest = options.from_earliest.then_some(0);
        let part = of_part.map(|part| part.of_source(0, main.id, known));
        let from = match &part {
            Some((_, from)) => Some(*from),
            None => known.map_or(earliest, |known| Some(known.reached())),
        };
        let signal = of_part.map_or_else(TailSignal::new, |part| Arc::clone(&part.signal));
        let tail_options = TailOptions { from, limit_bytes: options.tail_bytes_max };
        Ok(Self {
            request,
            tables: TableSet::of(&entries).spilling_to(temporary),
            main_table: main.id,
            name: main.definition.name().to_string(),
            tail: main.table.tail(tail_options, &signal),
            output: RowBuffer::new(query.columns.clone()),
            signal,
            rows_read: known.map_or(0, SourcePlace::rows_read),
            is_read: false,
            part: part.map(|(part, _)| part),
            failed: None,
        })
    }

    /// Returns the rows of the next main rows, some thousand at most; none when no more have arrived. A query that has
    /// failed once fails again.
    pub(crate) fn poll(&mut self) -> Result<FinalRows> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let polled = self.answer_some();
        if let Err(error) = &polled {
            self.failed = Some(error.clone());
        }
        polled
    }

    fn answer_some(&mut self) -> Result<FinalRows> {
        let Self { request, tables, main_table, tail, output, part, .. } = self;
        let program = request.program();
        // Before the snapshots: what has arrived before a row and is not visible yet is waited for.
        let end = tables.by_id.values().map(|table| table.arrived_before()).min();
        let mut known = KnownTables::new(program, tables, std::collections::BTreeMap::new());
        let mut answers = program.known_answers();
        let columns = request.input().len();
        debug_assert!(known.now(*main_table).is_some(), "the main table is one of them");
        let mut failed = None;
        let (mut arena, mut of_part) = (Arena::new(), 0);
        let is_part = part.is_some();
        let read = tail.read_before(
            end.unwrap_or(0),
            ROWS_AT_ONCE,
            |TailRow { arrival, arrival_ms, row }| {
                if failed.is_some() {
                    return;
                }
                let number = match part {
                    None => arrival,
                    Some(part) => {
                        let Some(offset) = part.offset(row, &arena) else { return };
                        part.next = offset + 1;
                        of_part += 1;
                        offset
                    }
                };
                let values: Vec<Datum<'_>> =
                    (0..columns).map(|column| row.get_in(column, &arena)).collect();
                known.go_to(arrival, arrival_ms);
                let answered = answers.answer(&values, known.moment(), &mut |row| {
                    output.push(row, number);
                });
                failed = answered.err();
                drop(values);
                arena.reset();
            },
        );
        if let Some(error) = failed {
            return Err(error);
        }
        let count = read.map_err(|error| lost(&error, &self.name))?;
        self.is_read = count < ROWS_AT_ONCE;
        let count = if is_part { of_part } else { count };
        self.rows_read += u64::try_from(count).unwrap_or(u64::MAX);
        self.output.take()
    }

    /// Describes how a row is answered.
    pub(crate) fn explain(&self) -> Vec<String> {
        self.request.explain().lines().map(str::to_owned).collect()
    }

    /// Returns no rows, with the columns of all others.
    pub(crate) fn no_rows(&mut self) -> Result<FinalRows> {
        self.output.take()
    }

    /// Returns how far it is, the rows of the last [`Self::poll`] included.
    pub(crate) fn progress(&self) -> ContinuousProgress {
        let reached = self.part.map_or_else(|| self.tail.position(), |part| part.next);
        let source = SourcePlace::without_rows(reached, self.rows_read);
        ContinuousProgress { sources: vec![source], ..ContinuousProgress::default() }
    }

    /// Returns the place in its table from which on rows count.
    pub(crate) fn position(&self) -> u64 {
        self.tail.position()
    }

    pub(crate) fn signal(&self) -> &Arc<TailSignal> {
        &self.signal
    }

    /// Returns whether the last call has read all rows that there were.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.is_read
    }

    /// Counts the rows that were read, each once.
    pub(crate) fn rows_read(&self) -> u64 {
        self.rows_read
    }
}
