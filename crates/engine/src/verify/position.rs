//! Verification row by row, at the position of each: for deployments whose answers do not come one from
//! each stored row, and for those that batch mode answers.
//!
//! A stored row is a request over the tables as they were before it arrived. Its answer has to be what
//! batch mode gives for it, by definition: the rows that come from it where it is the latest arrival of
//! its table (ADR 0006), over the tables as they were with it. Late rows and rows of right tables are
//! seen at the positions at which they arrived.
//!
//! *Cost*: a run of the query in batch mode for each row, and another where batch mode answers; for several
//! rows at once.

use std::num::NonZeroUsize;

use arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::cast::print_datum;
use lockstep_host::query;
use lockstep_request::{KnownAnswers, answer_of_last_row};
use lockstep_row::{Arena, Datum, Value, arrow::ColumnReader};
use lockstep_table::{ReadError, RowCopy, StoredRow};

use super::{
    RowSample, Verification, VerifyOptions,
    report::{ReplayReport, RowComparison},
};
use crate::{context::checkpoint, deployment::Deployment, known::KnownTables};

/// The number of rows that are replayed unless the options say how many.
pub(super) const SAMPLE_DEFAULT: u64 = 256;

/// Replays rows of the request table, which is among the tables.
pub(super) fn verify_at_positions<'r>(
    deployment: &Deployment,
    (tables, request_table): (&KnownTables<'_>, u64),
    (options, threads): (&VerifyOptions, NonZeroUsize),
    mut report: ReplayReport<'r>,
) -> Result<ReplayReport<'r>> {
    let Some(main_table) = tables.now(request_table) else {
        return Diagnostic::internal("the request table is a table of the query").err();
    };
    let index = tables.index_read(request_table);
    let total = main_table.count(index)?;
    let size = options.sample.unwrap_or(SAMPLE_DEFAULT);
    let mut sample = RowSample::new(Some(size), total);
    report.begin(total);
    let (columns, settings) = (report.columns(), report.settings());
    // Each run of batch mode may use the memory of the whole call.
    let is_limited = query::current().is_some_and(|context| context.memory_bytes().is_some());
    let threads = if is_limited { NonZeroUsize::MIN } else { threads };
    let (shared, table) = (tables.share(), main_table.table());
    let worker = || {
        let mut tables = shared.open();
        let mut answers = deployment.request.program().known_answers();
        move |(row, stored): SampledRow| -> Result<(u64, Verification)> {
            let mut comparison = RowComparison::new(columns, settings);
            let stored = stored?;
            let stored = stored.view(table);
            let (batch, answered) =
                answer_at((deployment, request_table), stored, (&mut tables, &mut answers))?;
            comparison.count_request();
            compare(row, batch, answered, &mut comparison);
            Ok((row + 1, comparison.found))
        }
    };
    let sampled = (0..)
        .zip(main_table.scan_by(index).map_rows(|row| RowCopy::of(&row)))
        .filter(|(row, stored)| sample.contains(*row) || stored.is_err());
    report.add_blocks(threads, sampled, worker)?;
    Ok(report)
}

/// A stored row of a sample, and its number among all.
type SampledRow = (u64, Result<RowCopy, ReadError>);

/// The rows of a result.
type ResultRows = Vec<Vec<Value>>;

/// Returns the rows of batch mode and those of the program for a stored row, at its position.
fn answer_at(
    (deployment, request_table): (&Deployment, u64),
    stored: StoredRow<'_>,
    (tables, answers): (&mut KnownTables<'_>, &mut KnownAnswers<'_>),
) -> Result<(ResultRows, ResultRows)> {
    checkpoint()?;
    let Some(main_table) = tables.now(request_table) else {
        return Diagnostic::internal("the request table is a table of the query").err();
    };
    let (arrived_ms, width) =
        (main_table.arrival_ms(stored.arrival)?, main_table.schema().columns.len());
    let index = tables.index_read(request_table);
    tables.go_to(stored.arrival + 1, arrived_ms);
    let known = tables.then(request_table).map_or(Ok(0), |then| then.count(index))?;
    let plan = answer_of_last_row(&deployment.query.plan, known)?;
    let batches = lockstep_batch::execute(&plan, &*tables, &tables.execute_options())?;
    let batch = rows_of(&batches);
    let arena = Arena::new();
    let request: Vec<Datum<'_>> =
        (0..width).map(|column| stored.row.get_in(column, &arena)).collect();
    tables.go_to(stored.arrival, arrived_ms);
    let mut answered = Vec::new();
    answers.answer(&request, tables.moment(), &mut |answer| {
        answered.push(answer.iter().map(|value| value.to_value()).collect());
    })?;
    Ok((batch, answered))
}

/// Compares the rows of an answer, whose order is not part of it.
fn compare(
    row: u64,
    mut batch: Vec<Vec<Value>>,
    mut request: Vec<Vec<Value>>,
    comparison: &mut RowComparison<'_>,
) {
    if batch.len() != request.len() {
        let shown = |rows: usize| match rows {
            0 => "no row".to_owned(),
            1 => "a row".to_owned(),
            rows => format!("{rows} rows"),
        };
        comparison.add(row, "", shown(batch.len()), shown(request.len()));
        return;
    }
    if batch.len() > 1 {
        let settings = comparison.settings;
        let text = |values: &Vec<Value>| -> Vec<String> {
            let arena = Arena::new();
            values.iter().map(|value| print_datum(value.as_datum(&arena), settings)).collect()
        };
        batch.sort_by_cached_key(text);
        request.sort_by_cached_key(text);
    }
    for (batch, request) in batch.iter().zip(&request) {
        let arena = Arena::new();
        comparison.compare_row(row, &data_of(batch, &arena), &data_of(request, &arena));
    }
}

/// Returns the values of a row, in an arena.
pub(crate) fn data_of<'a>(row: &'a [Value], arena: &'a Arena) -> Vec<Datum<'a>> {
    row.iter().map(|value| value.as_datum(arena)).collect()
}

/// Copies the rows out of batches.
fn rows_of(batches: &[RecordBatch]) -> Vec<Vec<Value>> {
    let arena = Arena::new();
    let of_batch = |batch: &RecordBatch| -> Vec<Vec<Value>> {
        let readers: Vec<ColumnReader<'_>> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        let row = |row| readers.iter().map(|reader| reader.get(row, &arena).to_value()).collect();
        (0..batch.num_rows()).map(row).collect()
    };
    batches.iter().flat_map(of_batch).collect()
}
