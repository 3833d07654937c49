//! Test support of this crate: stored tables, plans over them, and an aggregate that returns the
//! rows of its frame.

use std::{
    collections::VecDeque,
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::array::RecordBatch;
use datafusion::{
    common::DFSchema,
    logical_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder, TableSource},
};
use lockstep_diagnostic::Result;
use lockstep_function::{
    AggregateFunction, BoundAggregate, RowState, RowStateForm, RowsEnd, Settings, SignatureError,
    StateClass, StateForm,
};
use lockstep_host::ManualClock;
use lockstep_plan::{AggregateCall, CatalogTable, WindowAggregate, WindowGroup};
use lockstep_row::{
    Arena, Column, DataType, Datum, TableSchema, Value,
    arrow::{ColumnReader, arrow_schema, arrow_type},
};
use lockstep_table::{Arrivals, Table};

use crate::{ExecuteOptions, StoredTables, WindowSkew, execute};

/// The stored tables of a test; the id of a table is its position.
#[derive(Default)]
pub(crate) struct TestTables {
    tables: Vec<(CatalogTable, Arc<Table>)>,
    arrivals: Arc<Arrivals>,
}

impl StoredTables for TestTables {
    fn table(&self, id: u64) -> Option<Arc<Table>> {
        let (_, table) = self.tables.get(usize::try_from(id).ok()?)?;
        Some(Arc::clone(table))
    }
}

impl TestTables {
    /// Stores a table and returns a scan of it.
    pub(crate) fn table(
        &mut self,
        name: &str,
        columns: &[(&str, DataType)],
        rows: &[Vec<Datum<'_>>],
    ) -> LogicalPlan {
        let columns = columns.iter().map(|(name, data_type)| Column::new(*name, data_type.clone()));
        let schema = TableSchema { columns: columns.collect(), indexes: Vec::new() };
        let clock = Arc::new(ManualClock::new(0));
        let table = Table::new(schema.clone(), clock, Arc::clone(&self.arrivals)).unwrap();
        table.append(rows).unwrap();
        let catalog = CatalogTable {
            id: u64::try_from(self.tables.len()).unwrap(),
            database: "db".to_owned(),
            name: name.to_owned(),
            arrow_schema: arrow_schema(&schema),
            schema: Arc::new(schema),
            source: None,
        };
        let source: Arc<dyn TableSource> = Arc::new(catalog.clone());
        self.tables.push((catalog, Arc::new(table)));
        LogicalPlanBuilder::scan(name, source, None).unwrap().build().unwrap()
    }

    /// Runs a plan on two threads, in memory and on disk, with and without time slices, and returns
    /// its rows.
    pub(crate) fn rows(&self, plan: &LogicalPlan) -> Result<Vec<Vec<Value>>> {
        let options = ExecuteOptions { threads: NonZeroUsize::new(2), ..ExecuteOptions::default() };
        let rows = rows_of(&execute(plan, self, &options)?);
        let sliced = ExecuteOptions {
            window_skew: WindowSkew::Always,
            parallel_rows_min: Some(1),
            ..options.clone()
        };
        assert_eq!(rows_of(&execute(plan, self, &sliced)?), rows, "the same rows from slices");
        let on_disk = ExecuteOptions { on_disk: true, ..options };
        assert_eq!(rows_of(&execute(plan, self, &on_disk)?), rows, "the same rows from disk");
        let sliced = ExecuteOptions { slice_rows: Some(3), ..on_disk };
        assert_eq!(rows_of(&execute(plan, self, &sliced)?), rows, "the same from slices on disk");
        Ok(rows)
    }
}

/// Returns the values of batches, row by row.
pub(crate) fn rows_of(batches: &[RecordBatch]) -> Vec<Vec<Value>> {
    let arena = Arena::new();
    let mut rows = Vec::new();
    for batch in batches {
        let readers: Vec<_> =
            batch.columns().iter().map(|column| ColumnReader::new(column)).collect();
        rows.extend((0..batch.num_rows()).map(|row| {
            readers.iter().map(|reader| reader.get(row, &arena).to_value()).collect::<Vec<_>>()
        }));
    }
    rows
}

/// Returns the windows of one SELECT over an input.
pub(crate) fn window(
    input: LogicalPlan,
    unions: Vec<LogicalPlan>,
    groups: Vec<WindowGroup>,
) -> LogicalPlan {
    let mut fields: Vec<_> = input
        .schema()
        .iter()
        .map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
        .collect();
    for call in groups.iter().flat_map(|group| &group.calls) {
        let data_type = arrow_type(&call.bound.returns);
        let field = arrow::datatypes::Field::new(&call.output, data_type, true);
        fields.push((None, Arc::new(field)));
    }
    let schema = DFSchema::new_with_metadata(fields, std::collections::HashMap::new()).unwrap();
    let node = WindowAggregate { input, unions, groups, schema: Arc::new(schema) };
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

/// Returns a call of [`TRACE`].
pub(crate) fn trace(argument: Expr, output: &str) -> AggregateCall {
    AggregateCall {
        function: &TRACE,
        bound: bind_trace(),
        arguments: vec![argument],
        settings: Settings::default(),
        output: output.to_owned(),
    }
}

/// Returns the BIGINTs that it was given, oldest first, with a blank after each.
static TRACE: AggregateFunction = AggregateFunction {
    name: "trace",
    aliases: &[],
    category: "test",
    signature: "trace(x BIGINT) → STRING",
    doc: "Returns the rows of the frame.",
    examples: &[],
    is_ordered: true,
    class: StateClass::Rows("the result lists the rows"),
    bind: |_| -> std::result::Result<BoundAggregate, SignatureError> { Ok(bind_trace()) },
};

fn bind_trace() -> BoundAggregate {
    let make = |_used| -> Box<dyn RowState> { Box::new(FrameTrace::default()) };
    let class = StateClass::Rows("the result lists the rows");
    let form = RowStateForm { make: Arc::new(make), class, condition: None, pick: None };
    let parameters = vec![DataType::BigInt];
    BoundAggregate { parameters, returns: DataType::String, state: StateForm::Rows(form) }
}

#[derive(Default)]
struct FrameTrace(VecDeque<i64>);

impl RowState for FrameTrace {
    fn add(&mut self, arguments: &[Datum<'_>], end: RowsEnd) {
        assert_eq!(end, RowsEnd::Newest, "batch mode adds rows in event order");
        self.0.push_back(arguments[0].as_i64().unwrap());
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        assert_eq!(self.0.pop_front(), arguments[0].as_i64(), "the oldest row goes first");
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        let text: String = self.0.iter().map(|id| format!("{id} ")).collect();
        Datum::String(arena.alloc_str(&text))
    }

    fn value_with<'a>(&mut self, arguments: &[Datum<'_>], arena: &'a Arena) -> Datum<'a> {
        self.add(arguments, RowsEnd::Newest);
        let found = self.value(arena);
        self.0.pop_back();
        found
    }

    fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<i64>()
    }

    fn reset(&mut self) {
        self.0.clear();
    }
}

/// A directory of a test's own, removed at the end.
pub(crate) struct TestDirectory(PathBuf);

impl TestDirectory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the number has to be new.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockstep-batch-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
