//! AS KNOWN AT a column: rows are known by a time that they carry, which every table of the query has.
//!
//! The tables are copied to others in memory, in the order of that time, where a position cuts each of
//! them. So files and Arrow objects can be read, and rows that were stored in another order than that
//! in which they became known. A row is known to a row of the main table when its time is not later; of the
//! rows of the main table with the same time, those before it. A row without a time is never
//! known, and a row of the main table without a time knows none.
//!
//! *Cost*: the rows of all tables in memory, those of the main table twice; sorted once.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{RecordBatch, UInt32Array},
    compute::{concat_batches, take_record_batch},
};
use datafusion::{
    common::tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    logical_expr::{LogicalPlan, LogicalPlanBuilder, TableSource},
};
use lockstep_batch::StoredTables;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::{query, temporary::TemporaryStorage};
use lockstep_plan::{BoundQuery, CatalogTable};
use lockstep_request::PreAggregation;
use lockstep_row::{Arena, DataType, Datum, Retention, TableSchema, arrow::ColumnReader};
use lockstep_sql::ast::Ident;
use lockstep_table::{Arrivals, Snapshot, Table};

use super::{
    KnownRun, KnownTables, Requests, ResultRange, answers::ConsumeBatch, arrival::rows_gone,
    does_not_fit,
};
use crate::{
    Database, PreparedRequest, ProgressCallback,
    append::{AppendRule, load, table_error},
    catalog::TableEntry,
    conversion::Conversion,
    database::TableSet,
};

/// What is answered.
pub(crate) struct ColumnRun<'r> {
    pub(crate) database: &'r Database,
    pub(crate) query: &'r BoundQuery,
    pub(crate) column: &'r Ident,
    /// The stored tables of the query.
    pub(crate) entries: &'r [TableEntry],
    pub(crate) read_through: BTreeMap<u64, usize>,
    pub(crate) temporary: TemporaryStorage,
    pub(crate) conversion: Conversion,
    pub(crate) range: ResultRange,
}

/// A copy of a table in the order in which its rows became known.
struct KnownCopy {
    table: Arc<Table>,
    /// The times of its rows, ascending; rows without one are after them.
    times: Vec<i64>,
    /// The rows as they were read.
    rows: RecordBatch,
    /// For each of them, its arrival in the copy.
    positions: Vec<u64>,
    /// For each of them, its time.
    known_at: Vec<Option<i64>>,
    /// The arrival of the first row of the copy; the others follow it.
    first: u64,
}

impl ColumnRun<'_> {
    /// Answers each row of the first table, in its order, over the rows that were known by then.
    pub(crate) fn run(
        &self,
        progress: Option<ProgressCallback>,
        consume: ConsumeBatch<'_>,
    ) -> Result<Vec<Diagnostic>> {
        let Some(main_table) = &self.query.request_table else {
            let message = "AS KNOWN AT requires a table in FROM";
            return Diagnostic::unsupported(message).at(self.column.span).err();
        };
        let (copies, warnings) = self.copies()?;
        let by_id = copies.iter().map(|(id, copy)| (*id, Arc::clone(&copy.table))).collect();
        let temporary = self.temporary.clone();
        let set = TableSet { by_id, temporary, ..TableSet::default() };
        let request =
            PreparedRequest::compile_over(&stored(self.query)?, &set, PreAggregation::Off)?;
        let program = request.program();
        let tables = KnownTables::new(program, &set, BTreeMap::new());
        let copy = &copies[&main_table.id];
        let readers: Vec<ColumnReader<'_>> =
            copy.rows.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        let total = u64::try_from(copy.rows.num_rows()).unwrap_or(u64::MAX);
        let columns = &self.query.columns;
        let (range, threads) = (self.range, self.database.host().threads.count());
        let run = KnownRun { program, columns, range, total, progress, threads };
        let answer = |row: usize, requests: &mut Requests<'_>| {
            let arena = Arena::new();
            let values: Vec<Datum<'_>> =
                readers.iter().map(|reader| reader.get(row, &arena)).collect();
            requests.tables.go_to_each(i64::MAX, |id| match copy.known_at[row] {
                None => 0,
                Some(_) if id == main_table.id => copy.positions[row],
                Some(time) => copies[&id].known_by(time),
            });
            requests.answer(&values)
        };
        run.run(&tables, 0..copy.known_at.len(), answer, consume)?;
        Ok(warnings)
    }

    /// Copies the tables, all as they are at one moment.
    fn copies(&self) -> Result<(BTreeMap<u64, KnownCopy>, Vec<Diagnostic>)> {
        let set = TableSet::of(self.entries);
        let mut snapshots: Vec<(u64, Snapshot<'_>)> =
            set.by_id.iter().map(|(id, table)| (*id, table.snapshot())).collect();
        Snapshot::align(&mut snapshots.iter_mut().map(|(_, one)| one).collect::<Vec<_>>());
        let lacking = snapshots.iter().filter(|(_, one)| one.may_lack(i64::MIN));
        let lacking: Vec<u64> = lacking.map(|(id, _)| *id).collect();
        let warnings = self.entries.iter().filter(|entry| lacking.contains(&entry.id));
        let warnings = warnings.map(|entry| rows_gone(&entry.definition.name().name)).collect();
        let read = ReadTables { snapshots };
        // One order of arrival for all, as the tables of an engine have.
        let arrivals = Arc::<Arrivals>::default();
        let mut copies = BTreeMap::new();
        for table in tables_of(&self.query.plan) {
            let copy = self.copy(&table, &read, &arrivals)?;
            copies.insert(table.id, copy);
            self.check_memory(&copies)?;
        }
        Ok((copies, warnings))
    }

    fn copy(
        &self,
        table: &CatalogTable,
        read: &ReadTables<'_>,
        arrivals: &Arc<Arrivals>,
    ) -> Result<KnownCopy> {
        let column = self.time_column(table)?;
        let batches = lockstep_batch::execute(&scan(table)?, read, &read.options(self))?;
        let rows = concat_batches(&table.arrow_schema, &batches).map_err(|e| internal(&e))?;
        let known_at = times(&rows, column);
        let Ok(count) = u32::try_from(rows.num_rows()) else { return too_many_rows(table).err() };
        let mut order: Vec<u32> = (0..count).collect();
        let time = |row: &u32| known_at[*row as usize];
        // NULL is after every time.
        order.sort_by_key(|row| time(row).map_or((true, 0), |time| (false, time)));
        let times: Vec<i64> = order.iter().map_while(time).collect();
        let mut positions = vec![0; order.len()];
        for (position, row) in (0_u64..).zip(&order) {
            positions[*row as usize] = position;
        }
        let sorted = take_record_batch(&rows, &UInt32Array::from(order));
        let sorted = sorted.map_err(|error| internal(&error))?;
        let first = arrivals.next();
        let clock = Arc::clone(self.database.clock());
        let copied = Table::new(schema_of_copy(&table.schema), clock, Arc::clone(arrivals));
        let copied = Arc::new(copied.map_err(|error| table_error(&error))?);
        load([Ok(sorted)].into_iter(), &copied, AppendRule::Any, self.conversion)?;
        positions.iter_mut().for_each(|position| *position += first);
        Ok(KnownCopy { table: copied, times, rows, positions, known_at, first })
    }

    /// Finds the column of a table that says when a row became known.
    fn time_column(&self, table: &CatalogTable) -> Result<usize> {
        let (name, columns) = (&self.column.text, &table.schema.columns);
        let Some(at) = table.schema.find_column(name) else {
            let message = format!("column `{name}` does not exist in `{}`", table.name);
            return Diagnostic::new(code::UNDEFINED_COLUMN, message)
                .at(self.column.span)
                .with_detail(
                    "AS KNOWN AT a column requires a column of this name in each table of the \
                     query.",
                )
                .with_nearest(name, columns.iter().map(|column| column.name.as_str()))
                .err();
        };
        match &columns[at].data_type {
            DataType::Timestamp | DataType::BigInt => Ok(at),
            other => {
                let message = format!("column `{name}` of `{}` is of type {other}", table.name);
                Diagnostic::new(code::DATATYPE_MISMATCH, message)
                    .at(self.column.span)
                    .with_hint(
                        "Use a column of type TIMESTAMP, or a BIGINT of milliseconds, after AS \
                         KNOWN AT.",
                    )
                    .err()
            }
        }
    }

    /// Fails where the copies need more memory than the call may use.
    fn check_memory(&self, copies: &BTreeMap<u64, KnownCopy>) -> Result<()> {
        let Some(most) = query::current().and_then(|context| context.memory_bytes()) else {
            return Ok(());
        };
        let of_copy = |copy: &KnownCopy| {
            let rows = u64::try_from(copy.rows.get_array_memory_size()).unwrap_or(u64::MAX);
            copy.table.memory_bytes().saturating_add(rows)
        };
        if copies.values().map(of_copy).fold(0, u64::saturating_add) <= most {
            return Ok(());
        }
        does_not_fit().at(self.column.span).err()
    }
}

impl KnownCopy {
    /// Returns the arrival before which the rows were known by a time.
    fn known_by(&self, time: i64) -> u64 {
        let count = self.times.partition_point(|known| *known <= time);
        self.first + u64::try_from(count).expect("a count fits 64 bits")
    }
}

/// The tables that are copied, as they were at one moment.
struct ReadTables<'t> {
    snapshots: Vec<(u64, Snapshot<'t>)>,
}

impl ReadTables<'_> {
    fn options(&self, run: &ColumnRun<'_>) -> lockstep_batch::ExecuteOptions {
        lockstep_batch::ExecuteOptions {
            read_through: run.read_through.clone(),
            temporary: run.temporary.clone(),
            ..lockstep_batch::ExecuteOptions::default()
        }
    }
}

impl StoredTables for ReadTables<'_> {
    fn table(&self, _id: u64) -> Option<Arc<Table>> {
        None
    }

    fn view(&self, id: u64) -> Option<&Snapshot<'_>> {
        self.snapshots.iter().find(|(known, _)| *known == id).map(|(_, snapshot)| snapshot)
    }
}

/// Returns the tables of a plan, those whose rows are not stored too.
fn tables_of(plan: &LogicalPlan) -> Vec<CatalogTable> {
    let mut tables: BTreeMap<u64, CatalogTable> = BTreeMap::new();
    let visit = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = CatalogTable::of(scan.source.as_ref())
        {
            tables.entry(table.id).or_insert_with(|| table.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visit.expect("the visitor never fails");
    tables.into_values().collect()
}

/// Makes the plan that reads all rows of a table.
fn scan(table: &CatalogTable) -> Result<LogicalPlan> {
    let source: Arc<dyn TableSource> = Arc::new(table.clone());
    let scan = LogicalPlanBuilder::scan("known", source, None);
    scan.and_then(LogicalPlanBuilder::build).map_err(|error| internal(&error))
}

/// Makes a query that reads stored copies of its tables.
fn stored(query: &BoundQuery) -> Result<BoundQuery> {
    let copy_of = |table: &CatalogTable| CatalogTable {
        schema: Arc::new(schema_of_copy(&table.schema)),
        source: None,
        ..table.clone()
    };
    let replaced = query.plan.clone().transform_up(|node| {
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        let Some(table) = CatalogTable::of(scan.source.as_ref()) else {
            return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
        };
        scan.source = Arc::new(copy_of(table));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    });
    let plan = replaced.map_err(|error| internal(&error))?.data;
    let request_table = query.request_table.as_ref().map(|table| Arc::new(copy_of(table)));
    Ok(BoundQuery { plan, request_table, files: Vec::new(), ..query.clone() })
}

/// Returns the schema of the copy of a table: all that is known stays.
fn schema_of_copy(schema: &TableSchema) -> TableSchema {
    let mut copy = schema.clone();
    copy.indexes.retain(|index| index.declared && !index.is_removed());
    copy.indexes.iter_mut().for_each(|index| index.retention = Retention::Forever);
    copy
}

/// Reads the times of a column.
fn times(rows: &RecordBatch, column: usize) -> Vec<Option<i64>> {
    let (reader, arena) = (ColumnReader::new(rows.column(column).as_ref()), Arena::new());
    (0..rows.num_rows()).map(|row| reader.get(row, &arena).as_i64()).collect()
}

fn too_many_rows(table: &CatalogTable) -> Diagnostic {
    Diagnostic::internal(format!("`{}` has more rows than a 32-bit number can count", table.name))
}

fn internal(error: &dyn std::fmt::Display) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(error.to_string()))
}
