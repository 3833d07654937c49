//! Which columns of its request table a query reads: those that a request row has to have.
//!
//! Goes down a plan with the columns that are needed above, as request mode's compiler does, and marks
//! what each operator itself reads. All scans of the table count: the request row is a row of each. Where
//! an operator is not known here, all its columns count, so that a mark can only be missing where nothing
//! that the answer depends on reads the column.

use datafusion::{
    common::DFSchema,
    logical_expr::{Distinct, Expr, Join, LogicalPlan, TableScan},
};

use crate::{CatalogTable, LastJoin, WindowAggregate, lineage};

/// Marks each column that an expression reads as needed.
pub fn mark_columns(expr: &Expr, schema: &DFSchema, needed: &mut [bool]) {
    debug_assert_eq!(schema.fields().len(), needed.len(), "a mark for each column");
    let columns = expr.column_refs().into_iter();
    let positions: Vec<usize> =
        columns.filter_map(|column| schema.maybe_index_of_column(column)).collect();
    for position in positions {
        needed[position] = true;
    }
}

/// Returns for each column of a table whether the plan's rows depend on it.
pub fn columns_read(plan: &LogicalPlan, table: &CatalogTable) -> Vec<bool> {
    let read = vec![false; table.schema.columns.len()];
    let mut marks = Marks { table: table.id, read };
    lockstep_host::with_large_stack(|| marks.mark_all(plan));
    marks.read
}

/// The columns of one table that are marked so far.
struct Marks {
    table: u64,
    read: Vec<bool>,
}

impl Marks {
    /// Marks what a plan reads to give all its columns.
    fn mark_all(&mut self, plan: &LogicalPlan) {
        self.mark(plan, &vec![true; plan.schema().fields().len()]);
    }

    /// Marks what a plan reads to give the `needed` ones of its columns.
    fn mark(&mut self, plan: &LogicalPlan, needed: &[bool]) {
        debug_assert_eq!(plan.schema().fields().len(), needed.len(), "a mark for each column");
        match plan {
            LogicalPlan::TableScan(scan) => self.mark_scan(scan, needed),
            LogicalPlan::SubqueryAlias(node) => self.mark(&node.input, needed),
            LogicalPlan::Limit(node) => self.mark(&node.input, needed),
            LogicalPlan::Projection(node) => {
                let wanted = node.expr.iter().zip(needed).filter(|(_, is_needed)| **is_needed);
                self.mark_input(&node.input, &[], wanted.map(|(expr, _)| expr));
            }
            LogicalPlan::Filter(node) => self.mark_input(&node.input, needed, [&node.predicate]),
            LogicalPlan::Sort(node) => {
                self.mark_input(&node.input, needed, node.expr.iter().map(|sort| &sort.expr));
            }
            LogicalPlan::Distinct(Distinct::All(input)) => self.mark_all(input),
            LogicalPlan::Aggregate(node) => {
                let calls = needed.iter().skip(node.group_expr.len());
                let calls = node.aggr_expr.iter().zip(calls).filter(|(_, is_needed)| **is_needed);
                let exprs = node.group_expr.iter().chain(calls.map(|(call, _)| call));
                self.mark_input(&node.input, &[], exprs);
            }
            LogicalPlan::Union(node) => {
                node.inputs.iter().for_each(|input| self.mark(input, needed));
            }
            LogicalPlan::Join(node) => self.mark_join(node, needed),
            _ => match (lineage::window(plan), lineage::last_join(plan)) {
                (Some(window), _) => self.mark_windows(window, needed),
                (_, Some(join)) => self.mark_last_join(join, needed),
                _ => plan.inputs().into_iter().for_each(|input| self.mark_all(input)),
            },
        }
    }

    fn mark_scan(&mut self, scan: &TableScan, needed: &[bool]) {
        let Some(table) = CatalogTable::of(scan.source.as_ref()) else { return };
        if table.id != self.table {
            return;
        }
        for (at, _) in needed.iter().enumerate().filter(|(_, is_needed)| **is_needed) {
            let column = scan.projection.as_ref().map_or(at, |projection| projection[at]);
            self.read[column] = true;
        }
        let filtered = scan.filters.iter().flat_map(Expr::column_refs);
        let filtered: Vec<usize> =
            filtered.filter_map(|column| table.schema.find_column(&column.name)).collect();
        for at in filtered {
            self.read[at] = true;
        }
    }

    /// Marks what an input gives: its columns that are needed above, which may be fewer than it has,
    /// and those that expressions over it read.
    fn mark_input<'e>(
        &mut self,
        input: &LogicalPlan,
        above: &[bool],
        exprs: impl IntoIterator<Item = &'e Expr>,
    ) {
        let mut below = above.to_vec();
        below.resize(input.schema().fields().len(), false);
        exprs.into_iter().for_each(|expr| mark_columns(expr, input.schema(), &mut below));
        self.mark(input, &below);
    }

    fn mark_join(&mut self, join: &Join, needed: &[bool]) {
        let (left, right) = (join.left.schema(), join.right.schema());
        let width = left.fields().len();
        if needed.len() != width + right.fields().len() {
            // A semi join gives the columns of one side.
            self.mark_all(&join.left);
            return self.mark_all(&join.right);
        }
        let (above_left, above_right) = needed.split_at(width);
        let filter = || join.filter.iter();
        self.mark_input(&join.left, above_left, join.on.iter().map(|on| &on.0).chain(filter()));
        self.mark_input(&join.right, above_right, join.on.iter().map(|on| &on.1).chain(filter()));
    }

    fn mark_last_join(&mut self, join: &LastJoin, needed: &[bool]) {
        let (above_left, above_right) = needed.split_at(join.left.schema().fields().len());
        let filter = || join.filter.iter();
        let bound = join.time_bound.iter().map(|bound| &bound.left);
        let left = join.keys.iter().map(|(left, _)| left).chain(bound).chain(filter());
        self.mark_input(&join.left, above_left, left);
        let right = join.keys.iter().map(|(_, right)| right).chain(&join.order_by).chain(filter());
        self.mark_input(&join.right, above_right, right);
    }

    fn mark_windows(&mut self, node: &WindowAggregate, needed: &[bool]) {
        let (above, mut calls_needed) = needed.split_at(node.input.schema().fields().len());
        let mut below = above.to_vec();
        let mut below_unions = vec![vec![false; below.len()]; node.unions.len()];
        for group in &node.groups {
            let (of_group, rest) = calls_needed.split_at(group.calls.len());
            calls_needed = rest;
            let calls = group.calls.iter().zip(of_group).filter(|(_, is_needed)| **is_needed);
            let arguments: Vec<&Expr> = calls.flat_map(|(call, _)| &call.arguments).collect();
            if !of_group.contains(&true) {
                continue;
            }
            let mut read = vec![false; below.len()];
            let keys = group.window.partition_by.iter().chain(&group.window.order_by);
            for expr in keys.chain(arguments) {
                mark_columns(expr, node.input.schema(), &mut read);
            }
            // A union source has the same columns at the same positions.
            group.unions.iter().for_each(|union| add(&mut below_unions[*union], &read));
            add(&mut below, &read);
        }
        assert!(calls_needed.is_empty(), "each call is a column of the output");
        self.mark(&node.input, &below);
        for (input, below) in node.unions.iter().zip(&below_unions) {
            self.mark(input, below);
        }
    }
}

/// Adds marks to others of the same columns.
fn add(marks: &mut [bool], others: &[bool]) {
    marks.iter_mut().zip(others).for_each(|(mark, other)| *mark |= other);
}
