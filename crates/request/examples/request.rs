//! Measures a request over a window of 1,000 rows with six aggregates, in nanoseconds per request
//! and per row. The states do next to nothing, so that what is measured is the scan.

use std::sync::Arc;

use arrow::{
    array::RecordBatch,
    datatypes::{DataType as ArrowType, Field},
};
use datafusion::{
    common::DFSchema,
    logical_expr::{Extension, LogicalPlan, LogicalPlanBuilder, col},
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::{
    AggregateFunction, BoundAggregate, RowState, RowStateForm, RowsEnd, Settings, SignatureError,
    StateClass, StateForm,
};
use lockstep_host::{Clock, ManualClock, SystemClock};
use lockstep_plan::{AggregateCall, CatalogTable, Frame, Window, WindowAggregate, WindowGroup};
use lockstep_request::{PlanRunner, Program, SeenSnapshots, TableResolver};
use lockstep_row::{Arena, Column, DataType, Datum, TableSchema, arrow::arrow_schema};
use lockstep_table::{Arrivals, Table};

const KEYS: i64 = 50;
const ROWS_PER_KEY: i64 = 2_000;
const WINDOW_ROWS: u64 = 1_000;
const REQUESTS: u32 = 5_000;

#[derive(Debug)]
struct OneTable(Arc<Table>);

impl TableResolver for OneTable {
    fn table(&self, _id: u64) -> Option<Arc<Table>> {
        Some(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct NoBatchMode;

impl PlanRunner for NoBatchMode {
    fn run(&self, _plan: &LogicalPlan, _seen: SeenSnapshots<'_>) -> Result<Vec<RecordBatch>> {
        Diagnostic::internal("nothing here needs batch mode").err()
    }
}

/// Folds integers with a function.
struct Fold {
    value: i64,
    start: i64,
    fold: fn(i64, Option<i64>) -> i64,
}

impl RowState for Fold {
    fn add(&mut self, arguments: &[Datum<'_>], _end: RowsEnd) {
        self.value = (self.fold)(self.value, arguments.first().and_then(Datum::as_i64));
    }

    fn remove(&mut self, _arguments: &[Datum<'_>]) {}

    fn value<'a>(&self, _arena: &'a Arena) -> Datum<'a> {
        Datum::BigInt(self.value)
    }

    fn value_with<'a>(&mut self, arguments: &[Datum<'_>], _arena: &'a Arena) -> Datum<'a> {
        Datum::BigInt((self.fold)(self.value, arguments.first().and_then(Datum::as_i64)))
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn reset(&mut self) {
        self.value = self.start;
    }
}

const CLASS: StateClass = StateClass::Rows("an example");

static FOLD: AggregateFunction = AggregateFunction {
    name: "fold",
    aliases: &[],
    category: "test",
    signature: "fold(BIGINT) → BIGINT",
    doc: "Folds integers.",
    examples: &[],
    is_ordered: false,
    class: CLASS,
    bind: |_| Err(SignatureError::Mismatch("is bound by hand".to_owned())),
};

fn call(
    column: &str,
    output: &str,
    start: i64,
    fold: fn(i64, Option<i64>) -> i64,
) -> AggregateCall {
    let make = move |_used| -> Box<dyn RowState> { Box::new(Fold { value: start, start, fold }) };
    let form = RowStateForm { make: Arc::new(make), class: CLASS, condition: None, pick: None };
    let state = StateForm::Rows(form);
    AggregateCall {
        function: &FOLD,
        bound: BoundAggregate { parameters: vec![], returns: DataType::BigInt, state },
        arguments: vec![col(format!("t.{column}"))],
        settings: Settings::default(),
        output: output.to_owned(),
    }
}

fn plan(table: CatalogTable) -> LogicalPlan {
    let input = LogicalPlanBuilder::scan("t", Arc::new(table), None)
        .and_then(LogicalPlanBuilder::build)
        .expect("the table has columns");
    let window = Window {
        partition_by: vec![col("t.k")],
        order_by: Some(col("t.ts")),
        frame: Frame::Rows { from: Some(WINDOW_ROWS - 1), to: 0 },
        ahead: None,
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    };
    let sum = |total: i64, value: Option<i64>| total.wrapping_add(value.unwrap_or(0));
    let count = |total: i64, value: Option<i64>| total + i64::from(value.is_some());
    let least = |least: i64, value: Option<i64>| least.min(value.unwrap_or(i64::MAX));
    let calls = vec![
        call("a", "sum_a", 0, sum),
        call("b", "count_a", 0, count),
        call("k", "min_a", i64::MAX, least),
        call("ts", "sum_b", 1, sum),
        call("a", "count_b", 1, count),
        call("b", "min_b", i64::MAX, least),
    ];
    let own = input.schema().iter();
    let own = own.map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)));
    let outputs =
        calls.iter().map(|call| (None, Arc::new(Field::new(&call.output, ArrowType::Int64, true))));
    let schema = DFSchema::new_with_metadata(own.chain(outputs).collect(), [].into());
    let schema = Arc::new(schema.expect("column names are unique"));
    let groups = vec![WindowGroup { window, unions: vec![], calls }];
    let node = WindowAggregate { input, unions: vec![], groups, schema };
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

fn filled_table(schema: &TableSchema) -> Arc<Table> {
    let clock = Arc::new(ManualClock::new(0));
    let table = Table::new(schema.clone(), clock, Arc::new(Arrivals::new(0)));
    let table = table.expect("the schema has no indexes");
    for time in 0..ROWS_PER_KEY {
        let rows = (0..KEYS).map(|key| [key, time, time % 7, key % 5].map(Datum::BigInt));
        table.append(rows).expect("the rows fit the schema");
    }
    Arc::new(table)
}

#[expect(clippy::print_stdout, reason = "the measurement is printed")]
fn main() {
    let columns = ["k", "ts", "a", "b"].map(|name| Column::new(name, DataType::BigInt));
    let schema = TableSchema { columns: columns.into(), indexes: Vec::new() };
    let table = filled_table(&schema);
    let arrow_schema = arrow_schema(&schema);
    let (database, name) = ("db".to_owned(), "t".to_owned());
    let catalog_table = CatalogTable {
        id: 0,
        database,
        name,
        schema: Arc::new(schema),
        arrow_schema,
        source: None,
    };
    let plan = plan(catalog_table);
    let program = Program::compile(&plan, &OneTable(table), Arc::new(NoBatchMode));
    let program = program.expect("the plan is a window over a table");
    println!("{}", program.explain());

    let clock = SystemClock::new();
    let mut arena = Arena::new();
    let start_ns = clock.monotonic_ns();
    for request in 0..i64::from(REQUESTS) {
        arena.reset();
        let row = [request % KEYS, ROWS_PER_KEY, 1, 1].map(Datum::BigInt);
        let answer = program.answer(&row, &arena);
        assert!(answer.is_ok_and(|row| row.is_some()), "each request has an answer");
    }
    let spent_ns = clock.monotonic_ns() - start_ns;
    let per_request_ns = spent_ns / u64::from(REQUESTS);
    println!("{per_request_ns} ns per request, {} ns per row", per_request_ns / WINDOW_ROWS);
}
