//! The declared index through which a batch query reads a table, as OpenMLDB does.
//!
//! For sessions with `compatibility = 'openmldb'`: there a WHERE with constants for the whole key
//! of an index is answered from that index, so that a row that has expired from it is not seen,
//! even if another index keeps it.

use std::collections::BTreeMap;

use datafusion::{
    common::{
        Column,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator},
};
use lockstep_function::Compatibility;
use lockstep_plan::CatalogTable;

/// Returns the indexes through which a query reads its tables under a setting.
pub(crate) fn of(compatibility: Compatibility, plan: &LogicalPlan) -> BTreeMap<u64, usize> {
    match compatibility {
        Compatibility::OpenMldb => read_through(plan),
        Compatibility::Standard => BTreeMap::new(),
    }
}

/// Returns the index of each table, by the table's id. A table that is read twice has none.
fn read_through(plan: &LogicalPlan) -> BTreeMap<u64, usize> {
    let mut scans: BTreeMap<u64, usize> = BTreeMap::new();
    let mut found = BTreeMap::new();
    let visit = plan.apply(|node| {
        match node {
            LogicalPlan::TableScan(scan) => {
                if let Some(table) = CatalogTable::of(scan.source.as_ref()) {
                    *scans.entry(table.id).or_default() += 1;
                }
            }
            LogicalPlan::Filter(filter) => {
                if let Some((id, index)) = fixed_index(&filter.predicate, &filter.input) {
                    found.insert(id, index);
                }
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visit.expect("the visitor never fails");
    found.retain(|id, _| scans.get(id) == Some(&1));
    found
}

/// Returns the first declared index whose key columns are all compared with constants.
fn fixed_index(predicate: &Expr, input: &LogicalPlan) -> Option<(u64, usize)> {
    let LogicalPlan::TableScan(scan) = input else { return None };
    let table = CatalogTable::of(scan.source.as_ref())?;
    let mut fixed = Vec::new();
    collect_fixed(predicate, &mut fixed);
    let is_fixed = |key: &usize| {
        let name = &table.schema.columns[*key].name;
        fixed.iter().any(|column| column.name == *name)
    };
    let is_read = |index: &lockstep_row::IndexSpec| {
        index.declared && !index.keys.is_empty() && index.keys.iter().all(is_fixed)
    };
    Some((table.id, table.schema.indexes.iter().position(is_read)?))
}

/// Collects the columns that a conjunction compares with constants.
fn collect_fixed<'a>(predicate: &'a Expr, fixed: &mut Vec<&'a Column>) {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = predicate else { return };
    match (op, left.as_ref(), right.as_ref()) {
        (Operator::And, left, right) => {
            collect_fixed(left, fixed);
            collect_fixed(right, fixed);
        }
        (Operator::Eq, Expr::Column(column), Expr::Literal(..))
        | (Operator::Eq, Expr::Literal(..), Expr::Column(column)) => fixed.push(column),
        _ => {}
    }
}
