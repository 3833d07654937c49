//! VERIFY: proves that a deployment's online answers equal its training set (promise L2).

use std::{collections::BTreeMap, sync::Arc};

use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::{Expr, LogicalPlan},
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::{Settings, cast::print_datum};
use lockstep_offline::ExecuteOptions;
use lockstep_plan::{BoundQuery, WindowAggregate};
use lockstep_row::{Arena, DataType, Datum, Value, arrow::ColumnReader};

use crate::{Database, PreparedRequest, append::refused, database::Tables};

/// How many differences are reported in full.
const DIFFERENCES_MAX: usize = 20;

/// What VERIFY found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verification {
    /// Requests replayed.
    pub requests: u64,
    /// Values compared.
    pub values: u64,
    /// Values that differ in any bit.
    pub differing: u64,
    /// The first differences.
    pub differences: Vec<Difference>,
}

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The stored row, in order of arrival, from 0.
    pub row: u64,
    /// The column of the answer.
    pub column: String,
    /// What batch mode computed.
    pub batch: String,
    /// What request mode computed.
    pub request: String,
}

/// Replays every stored row of the request table as a request against the rows that precede it,
/// then stores it; the other tables are as they are. The shadow holds only the request table, so
/// that memory grows by one copy of it.
pub(crate) fn verify(database: &Database, query: &BoundQuery) -> Result<Verification> {
    refuse_reordering(&query.plan)?;
    let Some(request_table) = &query.request_table else {
        return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "the deployment reads no table").err();
    };
    let tables = Tables::of(&database.entries_of(&query.plan)?);
    let stored = Arc::clone(&tables.by_id[&request_table.id]);
    let batch = lockstep_offline::execute(&query.plan, &tables, &ExecuteOptions::default())?;

    let schema = stored.schema();
    let rows: Vec<Vec<Value>> = {
        let snapshot = stored.snapshot();
        let arena = Arena::new();
        let columns = 0..schema.columns.len();
        let scan = snapshot.scan();
        scan.map(|stored| {
            columns.clone().map(|column| stored.row.get_in(column, &arena).to_value()).collect()
        })
        .collect()
    };
    let order = replay_order(&rows, event_time_column(&query.plan, &schema.columns));

    let shadow = Arc::new(database.make_table((*schema).clone()).map_err(|e| refused(&e))?);
    let mut shadowed = tables;
    shadowed.by_id.insert(request_table.id, Arc::clone(&shadow));
    let program = PreparedRequest::compile_over(query, &shadowed)?;
    let mut answers: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    let mut arena = Arena::new();
    for at in order {
        {
            let row: Vec<Datum<'_>> = rows[at].iter().map(|value| value.as_datum(&arena)).collect();
            if let Some(answer) = program.answer(&row, &arena)? {
                answers.insert(at, answer.iter().map(Datum::to_value).collect());
            }
            shadow.append([row]).map_err(|error| refused(&error))?;
        }
        arena.reset();
    }
    compare(&batch, &answers, program.output(), query.settings)
}

/// ORDER BY, LIMIT and the like give batch mode another row order than one answer per request.
fn refuse_reordering(plan: &LogicalPlan) -> Result<()> {
    let mut at = plan;
    while let LogicalPlan::Projection(_)
    | LogicalPlan::Filter(_)
    | LogicalPlan::SubqueryAlias(_)
    | LogicalPlan::Extension(_) = at
    {
        at = at.inputs().first().copied().expect("these nodes have an input");
    }
    if matches!(at, LogicalPlan::TableScan(_)) {
        return Ok(());
    }
    Diagnostic::new(
        code::FEATURE_NOT_SUPPORTED,
        "VERIFY compares queries that give one row for each stored row",
    )
    .with_hint("Leave GROUP BY, UNION, ORDER BY, LIMIT and DISTINCT out of the deployment.")
    .err()
}

/// The column of the request table that windows order by, when it is a plain column of it.
fn event_time_column(plan: &LogicalPlan, columns: &[lockstep_row::Column]) -> Option<usize> {
    let mut found = None;
    let visit = plan.apply(|node| {
        if let LogicalPlan::Extension(extension) = node
            && let Some(windows) = extension.node.as_any().downcast_ref::<WindowAggregate>()
        {
            let orders = windows.groups.iter().filter_map(|group| group.window.order_by.as_ref());
            for order in orders {
                if let Expr::Column(column) = order {
                    found = columns.iter().position(|known| known.name == column.name);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visit.expect("the visitor never fails");
    found
}

/// Positions of the rows by (event time, arrival).
fn replay_order(rows: &[Vec<Value>], event_time: Option<usize>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    if let Some(column) = event_time {
        order.sort_by_key(|at| rows[*at][column].as_scalar().and_then(|datum| datum.as_i64()));
    }
    order
}

fn compare(
    batches: &[arrow::array::RecordBatch],
    answers: &BTreeMap<usize, Vec<Value>>,
    columns: &[(String, DataType)],
    settings: Settings,
) -> Result<Verification> {
    let mut report = Verification { requests: answers.len() as u64, ..Verification::default() };
    let batch_rows: usize = batches.iter().map(arrow::array::RecordBatch::num_rows).sum();
    if batch_rows != answers.len() {
        let message = format!("batch mode gave {batch_rows} rows, request mode {}", answers.len());
        return Diagnostic::internal(message).err();
    }
    let mut answers = answers.iter();
    for batch in batches {
        let readers: Vec<ColumnReader<'_>> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        let arena = Arena::new();
        for row in 0..batch.num_rows() {
            let (at, answer) = answers.next().expect("the counts are equal");
            for ((reader, value), (name, _)) in readers.iter().zip(answer).zip(columns) {
                let (batch, request) = (reader.get(row, &arena), value.as_datum(&arena));
                report.values += 1;
                if batch.is_bit_equal(&request) {
                    continue;
                }
                report.differing += 1;
                if report.differences.len() < DIFFERENCES_MAX {
                    report.differences.push(Difference {
                        row: *at as u64,
                        column: name.clone(),
                        batch: print_datum(batch, &settings),
                        request: print_datum(request, &settings),
                    });
                }
            }
        }
    }
    Ok(report)
}
