//! How many rows a second the window operator gives: 300,000 rows, 60 aggregates over three
//! windows.
//!
//! Run it with `cargo run -p lockstep-batch --example window_rate`.
#![expect(clippy::print_stdout, reason = "an example reports to a person")]

use std::{collections::HashMap, sync::Arc};

use datafusion::{
    arrow::datatypes::Field,
    common::DFSchema,
    logical_expr::{Extension, LogicalPlan, LogicalPlanBuilder, TableSource, col},
};
use lockstep_batch::{ExecuteOptions, StoredTables, execute};
use lockstep_function::{CallArguments, Settings, aggregate};
use lockstep_host::{Clock, SystemClock};
use lockstep_plan::{AggregateCall, CatalogTable, Frame, Window, WindowAggregate, WindowGroup};
use lockstep_row::{
    Column, DataType, Datum, TableSchema,
    arrow::{arrow_schema, arrow_type},
};
use lockstep_table::{Arrivals, Table};

const ROWS: i64 = 300_000;
const KEYS: i64 = 3_000;
const FUNCTIONS: [&str; 5] = ["sum", "avg", "min", "max", "count"];

struct One(Arc<Table>);

impl StoredTables for One {
    fn table(&self, _: u64) -> Option<Arc<Table>> {
        Some(Arc::clone(&self.0))
    }
}

fn main() {
    let types = [DataType::BigInt, DataType::Timestamp, DataType::Double, DataType::BigInt];
    let columns = ["k", "ts", "x", "n"].into_iter().zip(types);
    let columns = columns.map(|(name, of)| Column::new(name, of)).collect();
    let schema = TableSchema { columns, indexes: Vec::new() };
    let clock = Arc::new(SystemClock::new());
    let shared: Arc<dyn Clock> = Arc::<SystemClock>::clone(&clock);
    let table =
        Table::new(schema.clone(), shared, Arc::new(Arrivals::new(0))).expect("plain columns");
    let rows = (0..ROWS).map(|row| {
        let x = f64::from(i32::try_from(row * 7_919 % 10_007).expect("small"));
        let key = row * 2_654_435_761 % KEYS;
        [
            Datum::BigInt(key),
            Datum::Timestamp(row * 10),
            Datum::Double(x / 7.0),
            Datum::BigInt(row % 97),
        ]
    });
    table.append(rows).expect("rows fit");
    let source: Arc<dyn TableSource> = Arc::new(CatalogTable {
        id: 0,
        database: "db".to_owned(),
        name: "t".to_owned(),
        arrow_schema: arrow_schema(&schema),
        schema: Arc::new(schema),
        source: None,
    });
    let scan = LogicalPlanBuilder::scan("t", source, None).and_then(LogicalPlanBuilder::build);
    let plan = plan(scan.expect("a scan of a table"));
    let tables = One(Arc::new(table));
    for _ in 0..3 {
        let start_ms = clock.now_ms();
        let batches = execute(&plan, &tables, &ExecuteOptions::default()).expect("the plan runs");
        let taken_ms = (clock.now_ms() - start_ms).max(1);
        let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
        println!("{rows} rows in {taken_ms} ms: {} rows/s", ROWS * 1_000 / taken_ms);
    }
}

fn plan(input: LogicalPlan) -> LogicalPlan {
    let frames = [
        Frame::Rows { from: Some(100), to: 0 },
        Frame::Range { from: Some(600_000), to: 0 },
        Frame::Range { from: None, to: 0 },
    ];
    let groups: Vec<_> =
        frames.into_iter().enumerate().map(|(at, frame)| group(at, frame)).collect();
    let mut fields: Vec<_> =
        input.schema().iter().map(|(of, field)| (of.cloned(), Arc::clone(field))).collect();
    for call in groups.iter().flat_map(|group| &group.calls) {
        let field = Field::new(&call.output, arrow_type(&call.bound.returns), true);
        fields.push((None, Arc::new(field)));
    }
    let schema = DFSchema::new_with_metadata(fields, HashMap::new()).expect("unique names");
    let node = WindowAggregate { input, unions: Vec::new(), groups, schema: Arc::new(schema) };
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

fn group(at: usize, frame: Frame) -> WindowGroup {
    let settings = Settings::default();
    let call = |number: usize| {
        let function =
            aggregate::find(FUNCTIONS[number % FUNCTIONS.len()]).expect("it is declared");
        let (name, data_type) = if number.is_multiple_of(2) {
            ("t.x", DataType::Double)
        } else {
            ("t.n", DataType::BigInt)
        };
        let arguments =
            CallArguments { types: &[data_type], constants: &[None], settings: &settings };
        AggregateCall {
            function,
            bound: (function.bind)(&arguments).expect("numbers are taken"),
            arguments: vec![col(name)],
            settings,
            output: format!("f{at}_{number}"),
        }
    };
    let window = Window {
        partition_by: vec![col("t.k")],
        order_by: Some(col("t.ts")),
        frame,
        ahead: None,
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    };
    WindowGroup { window, unions: Vec::new(), calls: (0..20).map(call).collect() }
}
