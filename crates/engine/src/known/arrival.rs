//! AS KNOWN AT ARRIVAL: rows are known by the positions at which they arrived.
//!
//! The arrivals of all tables of an engine are positions in one order, so one number cuts all of them.

use std::{collections::BTreeMap, num::NonZeroUsize};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::temporary::TemporaryStorage;
use lockstep_row::{Arena, Column, DataType, Datum, TableSchema};
use lockstep_table::{ReadError, RowCopy};

use super::{KnownRun, KnownTables, Requests, ResultRange, answers::ConsumeBatch};
use crate::{PreparedRequest, ProgressCallback, catalog::TableEntry, database::TableSet};

/// What is answered.
pub(crate) struct ArrivalRun<'r> {
    pub(crate) request: &'r PreparedRequest,
    pub(crate) columns: &'r [(String, DataType)],
    /// The tables of the query and the main table.
    pub(crate) entries: &'r [TableEntry],
    /// The id of the main table.
    pub(crate) main_table: u64,
    pub(crate) read_through: BTreeMap<u64, usize>,
    pub(crate) temporary: TemporaryStorage,
    pub(crate) range: ResultRange,
    pub(crate) threads: NonZeroUsize,
}

impl ArrivalRun<'_> {
    /// Answers each row of the main table, over the rows that had arrived before it. Returns warnings about
    /// rows that were known and are gone.
    pub(crate) fn run(
        &self,
        progress: Option<ProgressCallback>,
        consume: ConsumeBatch<'_>,
    ) -> Result<Vec<Diagnostic>> {
        let set = TableSet::of(self.entries).spilling_to(self.temporary.clone());
        let program = self.request.program();
        let tables = KnownTables::new(program, &set, self.read_through.clone());
        let Some(main_table) = tables.now(self.main_table).cloned() else {
            return Diagnostic::internal("the main table is a table of the query").err();
        };
        let positions = positions(self.request, main_table.schema())?;
        let is_other = program.input_table() != Some(self.main_table);
        let kept_by = self.read_through.get(&self.main_table).copied();
        let rows = || main_table.scan_by(kept_by);
        let first = rows().next_row()?.map(|row| row.arrival);
        let first = first.map(|arrival| main_table.arrival_ms(arrival)).transpose()?;
        let warnings = first.map(|first_ms| self.warnings(&tables.that_may_lack(first_ms)));
        let total = set.by_id.get(&self.main_table).map_or(0, |table| table.row_count());
        let run = KnownRun {
            program,
            columns: self.columns,
            range: self.range,
            total,
            progress,
            threads: self.threads,
        };
        let (request_program, main_table_id) = (self.request, self.main_table);
        let (table, copies) = (main_table.table(), rows().map_rows(|row| RowCopy::of(&row)));
        let answer = |copy: Result<RowCopy, ReadError>, requests: &mut Requests<'_>| {
            let (copy, arena) = (copy?, Arena::new());
            let stored = copy.view(table);
            let value = |position: &Option<usize>| match position {
                Some(column) => stored.row.get_in(*column, &arena),
                None => Datum::Null,
            };
            let request: Vec<Datum<'_>> = positions.iter().map(value).collect();
            if is_other {
                request_program.check(&request)?;
            }
            let main_table = requests.tables.now(main_table_id);
            let arrival_ms = main_table.map_or(Ok(0), |table| table.arrival_ms(stored.arrival))?;
            requests.tables.go_to(stored.arrival, arrival_ms);
            requests.answer(&request)
        };
        run.run(&tables, copies, answer, consume)?;
        Ok(warnings.unwrap_or_default())
    }

    /// Makes the warnings about tables of which rows may be gone.
    fn warnings(&self, ids: &[u64]) -> Vec<Diagnostic> {
        let entries = self.entries.iter().filter(|entry| ids.contains(&entry.id));
        entries.map(|entry| rows_gone(&entry.definition.name().name)).collect()
    }
}

/// Warns that rows of a table that were known may be gone.
pub(super) fn rows_gone(table: &str) -> Diagnostic {
    let message = format!("known rows of table `{table}` may have been removed");
    Diagnostic::new(code::KNOWN_ROWS_REMOVED, message)
        .with_detail(
            "Retention, DELETE or ALTER TABLE may have removed some; results are computed without \
             them.",
        )
        .with_hint("For as-known training sets and queries, use a longer TTL, or none.")
}

/// Returns for each column of the request row the column of the main table that has it.
fn positions(request: &PreparedRequest, main_table: &TableSchema) -> Result<Vec<Option<usize>>> {
    let find = |((name, data_type), is_read): ((&String, &DataType), &bool)| {
        let at = main_table.columns.iter().position(|column: &Column| column.name == *name);
        match at.map(|at| (at, &main_table.columns[at].data_type)) {
            Some((at, found)) if found == data_type => Ok(Some(at)),
            Some((_, found)) if *is_read => {
                let message = format!(
                    "column `{name}` of the main table is of type {found}, not {data_type}"
                );
                Diagnostic::new(code::DATATYPE_MISMATCH, message).err()
            }
            None if *is_read => {
                let message =
                    format!("the main table has no column `{name}`, which the query reads");
                Diagnostic::new(code::UNDEFINED_COLUMN, message)
                    .with_nearest(
                        name,
                        main_table.columns.iter().map(|column| column.name.as_str()),
                    )
                    .err()
            }
            _ => Ok(None),
        }
    };
    let columns = request.input().iter().map(|(name, data_type)| (name, data_type));
    columns.zip(request.reads()).map(find).collect()
}
