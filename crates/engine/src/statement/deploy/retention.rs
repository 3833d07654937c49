//! The indexes that a deployment reads, and the retention that they need for it.
//!
//! The indexes of a query are those by which its windows and joins look rows up. Compiling the
//! request program builds the missing ones. This file widens the retention of an index that keeps
//! fewer rows than the query reads, for as long as the deployment exists.

use std::collections::BTreeMap;

use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::{Expr, JoinType, LogicalPlan},
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_plan::{Frame, lineage};
use lockstep_row::Retention;
use lockstep_table::{IndexHold, IndexNeed, Provision, Widened};

use super::options::{Bias, DeployOptions};
use crate::{append::table_error, catalog::TableEntry, statement::retention_text};

const MINUTE_MS: i64 = 60_000;

/// What identifies an index: its table, sorted key columns and event time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IndexKey {
    pub(super) table: u64,
    pub(super) keys: Vec<usize>,
    pub(super) event_time: Option<usize>,
}

/// Returns the indexes that a plan reads, each with the retention that is enough for all of its
/// uses.
pub(super) fn needed(plan: &LogicalPlan, options: &DeployOptions) -> BTreeMap<IndexKey, Retention> {
    let mut needed = BTreeMap::new();
    let visit = plan.apply(|node| {
        visit(node, &mut |key, retention| {
            let retention = with_bias(retention, options);
            let entry = needed.entry(key).or_insert(retention);
            *entry = entry.union(retention);
        });
        Ok(TreeNodeRecursion::Continue)
    });
    visit.expect("the visitor never fails");
    needed
}

/// Calls `need` for each index by which one node of a plan looks rows up.
fn visit(node: &LogicalPlan, need: &mut dyn FnMut(IndexKey, Retention)) {
    if let Some(windows) = lineage::window(node) {
        for group in &windows.groups {
            let window = &group.window;
            let main = (!window.instance_not_in_window).then_some(&windows.input);
            let unions = group.unions.iter().map(|union| &windows.unions[*union]);
            for source in main.into_iter().chain(unions) {
                let schema = windows.input.schema();
                let at = |expr: &Expr| lineage::column(expr, schema);
                let keys = window.partition_by.iter().map(at);
                if let Some(key) = index_of(source, keys, window.order_by.as_ref().map(at)) {
                    need(key, of_frame(window.frame));
                }
            }
        }
    } else if let Some(join) = lineage::last_join(node) {
        let at = |expr: &Expr| lineage::column(expr, join.right.schema());
        // A condition on an expression gives no key; the others are enough.
        let keys = join.keys.iter().map(|(_, right)| at(right)).filter(Option::is_some);
        if let Some(key) = index_of(&join.right, keys, join.order_by.as_ref().map(at)) {
            need(key, Retention::Latest { latest: 1 });
        }
    } else if let LogicalPlan::Join(join) = node
        && join.join_type == JoinType::Left
    {
        let keys = join.on.iter().map(|(_, right)| lineage::column(right, join.right.schema()));
        if let Some(key) = index_of(&join.right, keys.filter(Option::is_some), None) {
            need(key, Retention::Forever);
        }
    }
}

/// Returns the index over these columns of a plan's output; `None` where they are not stored
/// columns.
fn index_of(
    source: &LogicalPlan,
    keys: impl Iterator<Item = Option<usize>>,
    order: Option<Option<usize>>,
) -> Option<IndexKey> {
    let table = lineage::leaf_table(source)?.id;
    let stored = |column: Option<usize>| lineage::to_leaf(source, column?);
    let mut keys = keys.map(stored).collect::<Option<Vec<usize>>>()?;
    keys.sort_unstable();
    keys.dedup();
    let event_time = match order {
        Some(order) => Some(stored(order)?),
        None => None,
    };
    (!keys.is_empty()).then_some(IndexKey { table, keys, event_time })
}

/// Returns the retention that a frame needs. Times are whole minutes, and at least one.
fn of_frame(frame: Frame) -> Retention {
    match frame {
        Frame::Rows { from: None, .. } | Frame::Range { from: None, .. } => Retention::Forever,
        Frame::Rows { from: Some(from), .. } => Retention::Latest { latest: from.max(1) },
        Frame::Range { from: Some(from), .. } => Retention::Absolute { ttl_ms: minutes(from) },
    }
}

/// Rounds a duration up to whole minutes, and at least one.
fn minutes(milliseconds: i64) -> i64 {
    let up = milliseconds.saturating_add(MINUTE_MS - 1).div_euclid(MINUTE_MS).max(1);
    up.saturating_mul(MINUTE_MS)
}

/// Adds the options `range_bias` and `rows_bias` to a retention.
fn with_bias(retention: Retention, options: &DeployOptions) -> Retention {
    match retention {
        Retention::Absolute { ttl_ms } => match options.range_bias {
            Bias::Infinite => Retention::Forever,
            Bias::By(more) => {
                let more = i64::try_from(more).unwrap_or(i64::MAX);
                Retention::Absolute { ttl_ms: minutes(ttl_ms.saturating_add(more)) }
            }
        },
        Retention::Latest { latest } => match options.rows_bias {
            Bias::Infinite => Retention::Forever,
            Bias::By(more) => Retention::Latest { latest: latest.saturating_add(more) },
        },
        other => other,
    }
}

/// The holds of a deployment on its indexes.
#[derive(Debug, Default)]
pub(super) struct HeldIndexes {
    pub(super) holds: Vec<IndexHold>,
    /// A warning for each table that keeps more rows than before.
    pub(super) warnings: Vec<Diagnostic>,
}

/// Widens the retention of the indexes to what is needed, for as long as the holds exist. Where
/// stored rows have no event time, an index stays as it is, and the lint about retention warns.
pub(super) fn hold(
    needed: &BTreeMap<IndexKey, Retention>,
    options: &DeployOptions,
    entries: &[TableEntry],
    owner: &str,
) -> Result<HeldIndexes> {
    let mut held = HeldIndexes::default();
    for (key, retention) in needed {
        let Some(entry) = entries.iter().find(|entry| entry.id == key.table) else { continue };
        let table = &entry.table;
        let mut need = IndexNeed {
            keys: key.keys.clone(),
            event_time: key.event_time,
            retention: Some(*retention),
            columns: Vec::new(),
        };
        match table.find_for(&need) {
            // The table keeps enough rows, and no program reads through this index.
            Provision::WouldBuild { widened: None, .. } => continue,
            Provision::Existing { index, .. }
                if options.skip_index_check && table.declared_retention(index).is_some() =>
            {
                need.retention = None;
            }
            _ => {}
        }
        let hold = table.hold(&need, owner).map_err(|error| table_error(&error))?;
        held.warnings.extend(hold.widened().map(|widened| warning(entry, widened)));
        held.holds.push(hold);
    }
    Ok(held)
}

/// Returns the warning that a table keeps more rows than its definition says.
fn warning(entry: &TableEntry, widened: &Widened) -> Diagnostic {
    let Widened { index, from, to } = widened;
    let name = entry.definition.name();
    let message = match from {
        Some(_) => format!("retention of index `{index}` on table `{name}` is extended"),
        None => format!("retention of table `{name}` is extended by a rule of index `{index}`"),
    };
    let from = from.map_or_else(String::new, |from| format!(", not {}", retention_text(from)));
    Diagnostic::new(code::WARNING, message)
        .with_detail(format!(
            "The deployment's windows need {}{from}. Dropping the deployment restores the old \
             retention.",
            retention_text(*to)
        ))
        .with_hint(
            "Use OPTIONS(skip_index_check = 'true') to leave the retention of declared indexes \
             unchanged.",
        )
}
