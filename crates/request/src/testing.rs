//! What the tests of this crate are built from: small tables, plans built by hand, and an aggregate that
//! lists the rows that it was given, in order.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch},
    datatypes::{DataType as ArrowType, Field},
};
use datafusion::{
    common::{DFSchema, DFSchemaRef},
    logical_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder, TableSource, col},
};
use lockstep_diagnostic::Result;
use lockstep_function::{
    AggregateFunction, BoundAggregate, RowState, RowStateForm, RowsEnd, Settings, SignatureError,
    StateClass, StateForm,
};
use lockstep_host::ManualClock;
use lockstep_plan::{AggregateCall, CatalogTable, LastJoin, Window, WindowAggregate, WindowGroup};
use lockstep_row::{Arena, Column, DataType, Datum, TableSchema, arrow::arrow_schema};
use lockstep_table::{Arrivals, Table};

use crate::{PlanRunner, Program, SeenSnapshots, TableResolver};

/// A row of a test table `(id, k, ts)`. `arrival` is its position among all rows of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestRow {
    pub(crate) id: i64,
    pub(crate) k: Option<i64>,
    pub(crate) ts: Option<i64>,
    pub(crate) arrival: u64,
}

impl TestRow {
    pub(crate) fn values(&self) -> [Datum<'static>; 3] {
        let nullable = |value: Option<i64>| value.map_or(Datum::Null, Datum::BigInt);
        [Datum::BigInt(self.id), nullable(self.k), nullable(self.ts)]
    }
}

/// A row that is appended to a table: the table's position, key and time.
pub(crate) type LaterRow = (usize, (Option<i64>, Option<i64>));

/// The tables of a test, by position.
#[derive(Debug)]
pub(crate) struct TestDatabase {
    tables: Vec<(Arc<CatalogTable>, Arc<Table>)>,
    /// Each row arrives at a time of its own.
    clock: Arc<ManualClock>,
    pub(crate) rows: Vec<Vec<TestRow>>,
    arrivals: Arc<Arrivals>,
}

impl TableResolver for TestDatabase {
    fn table(&self, id: u64) -> Option<Arc<Table>> {
        let (_, table) = self.tables.get(usize::try_from(id).ok()?)?;
        Some(Arc::clone(table))
    }
}

impl TestDatabase {
    /// Makes a database with one table `t0`, `t1`, … for each list of `(k, ts)`; ids count from 1 over all.
    pub(crate) fn new(tables: &[Vec<(Option<i64>, Option<i64>)>]) -> Self {
        let mut database = Self {
            tables: Vec::new(),
            clock: Arc::new(ManualClock::new(0)),
            rows: Vec::new(),
            arrivals: Arc::new(Arrivals::new(0)),
        };
        for rows in tables {
            database.add(rows);
        }
        database
    }

    fn add(&mut self, rows: &[(Option<i64>, Option<i64>)]) {
        let columns = ["id", "k", "ts"].map(|name| Column::new(name, DataType::BigInt));
        let schema = TableSchema { columns: columns.into(), indexes: Vec::new() };
        let id = self.tables.len();
        let clock = Arc::<ManualClock>::clone(&self.clock);
        let table = Table::new(schema.clone(), clock, Arc::clone(&self.arrivals));
        let table = Arc::new(table.unwrap());
        let mut stored = Vec::new();
        for (k, ts) in rows {
            let arrival = self.arrivals.next();
            let id = i64::try_from(arrival).unwrap() + 1;
            let row = TestRow { id, k: *k, ts: *ts, arrival };
            self.clock.set_ms(id);
            table.append([row.values()]).unwrap();
            stored.push(row);
        }
        let arrow_schema = arrow_schema(&schema);
        let catalog_table = CatalogTable {
            id: id as u64,
            database: "db".to_owned(),
            name: format!("t{id}"),
            schema: Arc::new(schema),
            arrow_schema,
            source: None,
        };
        self.tables.push((Arc::new(catalog_table), table));
        self.rows.push(stored);
    }

    /// Appends rows to tables that exist: the position of the table, key and time.
    pub(crate) fn append(&mut self, rows: &[LaterRow]) {
        for (table, (k, ts)) in rows {
            let arrival = self.arrivals.next();
            let id = i64::try_from(arrival).unwrap() + 1;
            let row = TestRow { id, k: *k, ts: *ts, arrival };
            self.clock.set_ms(id);
            self.tables[*table].1.append([row.values()]).unwrap();
            self.rows[*table].push(row);
        }
    }

    pub(crate) fn scan(&self, table: usize) -> LogicalPlan {
        self.scan_as(table, &format!("t{table}"))
    }

    pub(crate) fn scan_as(&self, table: usize, name: &str) -> LogicalPlan {
        let source: Arc<dyn TableSource> = Arc::<CatalogTable>::clone(&self.tables[table].0);
        LogicalPlanBuilder::scan(name, source, None).unwrap().build().unwrap()
    }

    pub(crate) fn compile(&self, plan: &LogicalPlan) -> Program {
        self.try_compile(plan).unwrap()
    }

    pub(crate) fn try_compile(&self, plan: &LogicalPlan) -> Result<Program> {
        Program::compile(plan, self, Arc::new(FirstTableBatchMode(self.rows.clone())))
    }
}

/// A batch mode that is never used.
#[derive(Debug)]
pub(crate) struct NoBatchMode;

impl PlanRunner for NoBatchMode {
    fn run(&self, plan: &LogicalPlan, _seen: SeenSnapshots<'_>) -> Result<Vec<RecordBatch>> {
        panic!("nothing here needs batch mode: {plan}")
    }
}

/// Batch mode for plans whose rows are those of the table named in their first scan.
#[derive(Debug)]
struct FirstTableBatchMode(Vec<Vec<TestRow>>);

impl PlanRunner for FirstTableBatchMode {
    fn run(&self, plan: &LogicalPlan, _seen: SeenSnapshots<'_>) -> Result<Vec<RecordBatch>> {
        let mut scan = plan;
        while let Some(input) = scan.inputs().first() {
            scan = input;
        }
        let LogicalPlan::TableScan(scan) = scan else { panic!("no table below {plan}") };
        let table = CatalogTable::of(scan.source.as_ref()).unwrap();
        let rows = &self.0[usize::try_from(table.id).unwrap()];
        let columns: [ArrayRef; 3] = [
            Arc::new(rows.iter().map(|row| Some(row.id)).collect::<Int64Array>()),
            Arc::new(rows.iter().map(|row| row.k).collect::<Int64Array>()),
            Arc::new(rows.iter().map(|row| row.ts).collect::<Int64Array>()),
        ];
        let schema = Arc::clone(&table.arrow_schema);
        Ok(vec![RecordBatch::try_new(schema, columns.into()).unwrap()])
    }
}

const CLASS: StateClass = StateClass::Rows("the result lists the rows");

/// Lists its arguments, `:` between those of one row and `,` between rows.
static LIST: AggregateFunction = AggregateFunction {
    name: "list",
    aliases: &[],
    category: "test",
    signature: "list(value, …) → STRING",
    doc: "Lists the rows that it is given.",
    examples: &[],
    is_ordered: true,
    class: CLASS,
    bind: |_| Err(SignatureError::Mismatch("is bound by hand".to_owned())),
};

#[derive(Default)]
struct PlanListing(String);

impl RowState for PlanListing {
    fn add(&mut self, arguments: &[Datum<'_>], end: RowsEnd) {
        assert_eq!(end, RowsEnd::Oldest, "request mode adds rows from the newest to the oldest");
        if !self.0.is_empty() {
            self.0.push(',');
        }
        let texts: Vec<String> = arguments.iter().map(|argument| text(*argument)).collect();
        self.0.push_str(&texts.join(":"));
    }

    fn remove(&mut self, _arguments: &[Datum<'_>]) {
        panic!("request mode never removes");
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        Datum::String(arena.alloc_str(&self.0))
    }

    fn value_with<'a>(&mut self, _arguments: &[Datum<'_>], _arena: &'a Arena) -> Datum<'a> {
        panic!("request mode never slides");
    }

    fn heap_bytes(&self) -> usize {
        self.0.capacity()
    }

    fn reset(&mut self) {
        self.0.clear();
    }
}

/// Formats a value.
pub(crate) fn text(value: Datum<'_>) -> String {
    match value {
        Datum::String(text) => format!("[{text}]"),
        other => other.as_i64().map_or_else(|| "-".to_owned(), |value| value.to_string()),
    }
}

/// Makes the call `list(arguments)`.
pub(crate) fn list(arguments: Vec<Expr>, output: &str) -> AggregateCall {
    let make = |_used| -> Box<dyn RowState> { Box::new(PlanListing::default()) };
    let form = RowStateForm { make: Arc::new(make), class: CLASS, condition: None, pick: None };
    let state = StateForm::Rows(form);
    let bound = BoundAggregate { parameters: vec![], returns: DataType::String, state };
    let (settings, output) = (Settings::default(), output.to_owned());
    AggregateCall { function: &LIST, bound, arguments, settings, output }
}

/// Adds windows to a plan.
pub(crate) fn windows(
    input: LogicalPlan,
    unions: Vec<LogicalPlan>,
    groups: Vec<WindowGroup>,
) -> LogicalPlan {
    let calls = groups.iter().flat_map(|group| &group.calls);
    let calls = calls.map(|call| (None, Arc::new(Field::new(&call.output, ArrowType::Utf8, true))));
    let own = input.schema().iter();
    let own = own.map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)));
    let fields = own.chain(calls).collect();
    let schema = DFSchema::new_with_metadata(fields, [].into()).unwrap();
    let node = WindowAggregate { input, unions, groups, schema: Arc::new(schema) };
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

/// Makes a window group with the call `list(arguments) AS output`.
pub(crate) fn group(
    window: Window,
    unions: Vec<usize>,
    arguments: Vec<Expr>,
    output: &str,
) -> WindowGroup {
    WindowGroup { window, unions, calls: vec![list(arguments, output)] }
}

/// Joins two plans; `condition` sets the other parts of the join.
pub(crate) fn last_join(
    left: LogicalPlan,
    right: LogicalPlan,
    keys: Vec<(Expr, Expr)>,
    condition: impl FnOnce(&mut LastJoin),
) -> LogicalPlan {
    let schema: DFSchemaRef = Arc::new(left.schema().join(right.schema()).unwrap());
    let mut node =
        LastJoin { left, right, keys, order_by: None, time_bound: None, filter: None, schema };
    condition(&mut node);
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

/// Projects a plan.
pub(crate) fn project(input: LogicalPlan, exprs: Vec<Expr>) -> LogicalPlan {
    LogicalPlanBuilder::from(input).project(exprs).unwrap().build().unwrap()
}

/// Makes the column `table.name`.
pub(crate) fn column(table: usize, name: &str) -> Expr {
    col(format!("t{table}.{name}"))
}

/// Answers for a row at its own position, as texts.
pub(crate) fn answer(program: &Program, row: &TestRow) -> Option<Vec<String>> {
    let arena = Arena::new();
    let answer = program.answer_at(&row.values(), row.arrival, &arena).unwrap();
    answer.map(|values| values.iter().map(|value| text(*value)).collect())
}
