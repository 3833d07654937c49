//! EXPLAIN: the plan of batch mode, the program of request mode, the indexes it would add, and with
//! ANALYZE what the query took.

use std::time::Duration;

use lockstep_batch::{ExecuteOptions, IndexRead, index_reads};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_plan::BoundQuery;
use lockstep_row::{Arena, IndexSpec};
use lockstep_sql::ast::Query;

use super::{
    deploy::pre_aggregation_of,
    procedure::{CalledRequest, data_of},
};
use crate::{
    Output, Parameter, PreparedRequest, Session,
    catalog::TableEntry,
    database::TableSet,
    index_read,
    known::KnownQuery,
    lint::{self, Purpose},
    relation::{MeasuredMode, QueryMeasure, measured},
    variables::Storage,
};

impl Session {
    /// Runs EXPLAIN. Compiles against empty tables with the indexes of these, so that nothing is
    /// built; with `analyze`, the query then runs.
    pub(crate) fn explain(
        &self,
        query: &Query,
        analyze: bool,
        parameters: &[Parameter],
        script: &str,
    ) -> Result<Output> {
        let (written, known) = (query, KnownQuery::of(query)?);
        let query = known.as_ref().map_or(query, |(_, plain)| plain);
        let bound = self.bind_with(query, parameters)?;
        let entries = self.database.entries_for(&bound.plan, self.caller())?;
        let known = known.map(|(known, _)| known.describe());
        let mut lines: Vec<String> = known.into_iter().chain(["batch mode".to_owned()]).collect();
        let plan = bound.plan.display_indent().to_string();
        lines.extend(plan.lines().map(|line| format!("  {line}")));
        lines.extend(self.index_reads(&bound, &entries));
        lines.push("request mode".to_owned());
        let pre_aggregation = pre_aggregation_of(self.variables().pre_aggregation());
        let empty_copies = self.database.empty_copies_of(&entries)?;
        match PreparedRequest::compile_over(&bound, &empty_copies, pre_aggregation) {
            Ok(request) => {
                lines.extend(request.explain().lines().map(|line| format!("  {line}")));
                lines
                    .extend(entries.iter().flat_map(|entry| missing_indexes(entry, &empty_copies)));
            }
            Err(error) => lines.push(format!("  not available: {error}")),
        }
        if analyze {
            lines.extend(self.measured(written, parameters)?);
        }
        let warnings = lint::check(&bound, &TableSet::of(&entries), Purpose::Explaining, script);
        Ok(Output { warnings, ..Output::of_list("plan", lines.iter().map(String::as_str))? })
    }
}

impl Session {
    /// Runs a query, discards its rows, and describes what that took.
    fn measured(&self, query: &Query, parameters: &[Parameter]) -> Result<Vec<String>> {
        self.require_online("EXPLAIN ANALYZE", query.span)?;
        if let Some(outfile) = &query.into_outfile {
            let message = "EXPLAIN ANALYZE of a query with INTO OUTFILE is not supported";
            return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message)
                .at(outfile.span)
                .with_hint("Omit INTO OUTFILE; the rows are discarded.")
                .err();
        }
        let measure = self.relation(query, parameters, None)?.measure()?;
        Ok(describe(&measure))
    }

    /// Runs EXPLAIN ANALYZE of a call: its program, and what its answer took.
    pub(crate) fn explain_call(&self, call: &CalledRequest) -> Result<Output> {
        let CalledRequest { request, row } = call;
        let arena = Arena::new();
        let row = data_of(row, &arena);
        let mut rows = 0;
        let (run, reads) = measured(&self.database, || {
            rows = u64::from(request.answer(&row, &arena)?.is_some());
            Ok(())
        })?;
        let measure =
            QueryMeasure { rows, mode: MeasuredMode::Request { compilation: None }, run, reads };
        let program = request.explain();
        let program = program.lines().map(|line| format!("  {line}"));
        let mut lines: Vec<String> =
            std::iter::once("request mode".to_owned()).chain(program).collect();
        lines.extend(describe(&measure));
        Output::of_list("plan", lines.iter().map(String::as_str))
    }

    /// Describes the indexes that batch mode reads by key.
    fn index_reads(&self, bound: &BoundQuery, entries: &[TableEntry]) -> Vec<String> {
        if self.storage() == Storage::Offline {
            return Vec::new();
        }
        let read_through = index_read::of(self.settings().compatibility, &bound.plan);
        let options = ExecuteOptions { read_through, ..ExecuteOptions::default() };
        let reads = index_reads(&bound.plan, &TableSet::of(entries), &options);
        let line = |read: IndexRead| {
            let table = entries.iter().find(|entry| entry.id == read.table)?;
            let time = read.event_time.map(|column| format!(", bounded by {column}"));
            Some(format!(
                "  reads index {} of {} over ({}){}",
                read.index,
                table.definition.name(),
                read.keys.join(", "),
                time.unwrap_or_default()
            ))
        };
        reads.unwrap_or_default().into_iter().filter_map(line).collect()
    }
}

/// Describes what a query took.
fn describe(measure: &QueryMeasure) -> Vec<String> {
    let QueryMeasure { rows, mode, run, reads } = measure;
    let milliseconds = |elapsed: &Duration| format!("{:.3} ms", elapsed.as_secs_f64() * 1_000.0);
    let run = milliseconds(run);
    let (name, time) = match mode {
        MeasuredMode::Batch => ("batch", run),
        MeasuredMode::Request { compilation: None } => ("request", run),
        MeasuredMode::Request { compilation: Some(compilation) } => {
            ("request", format!("{run}, after {} of compilation", milliseconds(compilation)))
        }
    };
    vec![
        format!("measured in {name} mode"),
        format!("  rows: {rows}"),
        format!("  time: {time}"),
        format!("  pages found in the page cache: {}", reads.cached),
        format!("  blocks read from files of tables: {} ({} bytes)", reads.read, reads.bytes),
    ]
}

/// Describes the indexes that the compilation added to the empty copy of a table and the table
/// does not have.
fn missing_indexes(entry: &TableEntry, empty_copies: &TableSet) -> Vec<String> {
    let (schema, compiled) = (entry.table.schema(), empty_copies.by_id[&entry.id].schema());
    let is_missing =
        |index: &&IndexSpec| schema.find_index(&index.keys, index.event_time).is_none();
    let name = |column: &usize| schema.columns[*column].name.as_str();
    let line = |index: &IndexSpec| {
        let keys: Vec<&str> = index.keys.iter().map(name).collect();
        let order = index.event_time.as_ref().map(|column| format!(", by {}", name(column)));
        format!(
            "  requires an index of {} over ({}){} that does not exist yet",
            entry.definition.name(),
            keys.join(", "),
            order.unwrap_or_default()
        )
    };
    compiled.indexes.iter().filter(is_missing).map(line).collect()
}
