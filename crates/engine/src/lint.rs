//! Lints: what may go wrong with a query that is right as SQL.
//!
//! DEPLOY and CREATE PROCEDURE run them all, EXPLAIN those that are not about serving only, and queries
//! and training sets those about training. Each is declared once, in a file of its own, and what it
//! finds becomes a warning with the lint's code, the position, the reason and a fix. A lint reads the query as it was written, the catalog and,
//! within limits, the stored rows; it changes nothing and never refuses. One that would fire on
//! queries that are right is no lint.
//!
//! *Cost*: at most [`ROWS_READ_MAX`] rows are read for each table that a lint looks into.

mod all_rows;
mod clock;
mod computed_key;
mod future_frame;
mod integer_time;
mod no_table;
mod offset_unit;
mod oldest_row;
mod own_label;
mod quoted_name;
mod repeated_key;
mod request_table;
mod retention;
mod seconds;
mod ties;
mod timeless_join;

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
};

use datafusion::logical_expr::{Expr, LogicalPlan};
use lockstep_diagnostic::{Diagnostic, Span};
use lockstep_plan::{BoundQuery, CatalogTable, WrittenWindow, lineage};
use lockstep_row::key::encode_key;

pub(crate) use self::seconds::{warning_of_append, warning_of_request};
use crate::database::TableSet;

/// Stored rows that a lint reads of a table at most: the first ones that arrived.
const ROWS_READ_MAX: usize = 65_536;

/// A lint, declared once.
#[derive(Debug, Clone, Copy)]
pub struct Lint {
    /// What warnings of it carry: five characters of SQLSTATE's class of warnings.
    pub code: &'static str,
    /// The name, in words joined by hyphens.
    pub name: &'static str,
    /// When it fires; full sentences.
    pub fires: &'static str,
    /// Why that matters; one sentence.
    pub reason: &'static str,
    /// What to do; one sentence.
    pub fix: &'static str,
    /// Statements of which the last one warns.
    pub example: &'static str,
    /// The statements that run it.
    pub scope: LintScope,
    check: fn(&Facts<'_>, &mut Vec<Finding>),
}

/// Every lint, by code.
pub const LINTS: &[Lint] = &[
    retention::LINT,
    future_frame::LINT,
    integer_time::LINT,
    ties::LINT,
    timeless_join::LINT,
    all_rows::LINT,
    clock::LINT,
    quoted_name::LINT,
    request_table::LINT,
    repeated_key::LINT,
    computed_key::LINT,
    seconds::LINT,
    oldest_row::LINT,
    offset_unit::LINT,
    own_label::LINT,
    no_table::LINT,
];

/// The statements that run a lint; each later one is run by those of the earlier ones, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LintScope {
    /// DEPLOY and CREATE PROCEDURE.
    Serving,
    /// EXPLAIN, too.
    Plans,
    /// SELECT in batch mode and the training set of a deployment, too.
    Queries,
}

/// The statement that checks a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// DEPLOY, CREATE PROCEDURE: it will serve requests.
    Serving,
    /// EXPLAIN: it may be for batch mode only.
    Explaining,
    /// SELECT, or the training set of a deployment: its rows train a model.
    Training,
}

impl Purpose {
    /// Returns whether the statement runs a lint.
    fn runs(self, lint: &Lint) -> bool {
        match self {
            Self::Serving => true,
            Self::Explaining => lint.scope >= LintScope::Plans,
            Self::Training => lint.scope == LintScope::Queries,
        }
    }
}

/// A place where a lint fires.
struct Finding {
    span: Span,
    /// One line, no trailing dot.
    message: String,
    /// What to do, where that can be said closer than the lint's own fix does.
    fix: Option<String>,
    /// The window that it is about, as a warning names it.
    window: Option<String>,
}

impl Finding {
    fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), fix: None, window: None }
    }

    /// Sets the fix.
    fn with_fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    /// Says which window it is about.
    fn about(self, window: &WrittenWindow) -> Self {
        let name = window.name.as_ref().map_or("OVER (…)", |name| &name.text);
        Self { window: Some(name.to_owned()), ..self }
    }
}

/// What the same finding in several places is told as: once, at the first of them.
struct Merged {
    first: Finding,
    /// The windows that it is about.
    windows: Vec<String>,
}

/// The names of windows that a warning lists.
const LISTED_WINDOWS_MAX: usize = 20;

/// What the lints look at.
struct Facts<'a> {
    query: &'a BoundQuery,
    tables: &'a TableSet,
    /// The text that positions refer to; empty if it is not known.
    script: &'a str,
    purpose: Purpose,
}

/// A stored table as a window or a join reads it.
struct TableSource<'a> {
    /// As it was when the query was bound.
    table: &'a CatalogTable,
    /// The key columns.
    keys: Vec<usize>,
    /// The order column; `None` without an order.
    event_time: Option<usize>,
}

/// Runs the lints. Warnings come by code, each position once.
pub(crate) fn check(
    query: &BoundQuery,
    tables: &TableSet,
    purpose: Purpose,
    script: &str,
) -> Vec<Diagnostic> {
    let facts = Facts { query, tables, script, purpose };
    let mut warnings: Vec<Diagnostic> = Vec::new();
    for lint in LINTS.iter().filter(|lint| purpose.runs(lint)) {
        let mut findings = Vec::new();
        (lint.check)(&facts, &mut findings);
        let mut seen = HashSet::new();
        findings.retain(|finding| seen.insert((finding.span.start, finding.message.clone())));
        warnings.extend(merged(findings).into_iter().map(|Merged { first, windows }| {
            Diagnostic::new(lint.code, first.message)
                .at(first.span)
                .with_detail(format!("{}{}", lint.reason, listed(&windows)))
                .with_hint(first.fix.as_deref().unwrap_or(lint.fix))
        }));
    }
    warnings
}

/// Puts findings together that say the same of several windows.
fn merged(findings: Vec<Finding>) -> Vec<Merged> {
    let mut merged: Vec<Merged> = Vec::new();
    let mut positions: HashMap<(String, Option<String>), usize> = HashMap::new();
    for finding in findings {
        let Some(window) = finding.window.clone() else {
            merged.push(Merged { first: finding, windows: Vec::new() });
            continue;
        };
        let told = (finding.message.clone(), finding.fix.clone());
        let position = *positions.entry(told).or_insert(merged.len());
        if position == merged.len() {
            merged.push(Merged { first: finding, windows: Vec::new() });
        }
        merged[position].windows.push(window);
    }
    merged
}

/// Which windows a warning is about, when there are several.
fn listed(windows: &[String]) -> String {
    if windows.len() < 2 {
        return String::new();
    }
    let shown = &windows[..windows.len().min(LISTED_WINDOWS_MAX)];
    let names: Vec<String> = shown.iter().map(|name| format!("`{name}`")).collect();
    let more = match windows.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(" {} windows are affected: {}{more}.", windows.len(), names.join(", "))
}

/// Writes the manual's page about lints.
pub fn reference() -> String {
    let mut page = "# Lints\n\n\
        <!-- Written by `cargo xtask reference` from the declarations in crates/engine/src/lint. -->\n\n\
        `DEPLOY`, `CREATE PROCEDURE` and `EXPLAIN` check a query for problems that are not errors of SQL.\n\
        Each finding is a warning; the statement still succeeds.\n\
        Some lints also check a `SELECT` in batch mode and the training set of a deployment, whose rows train a model: a session warns once per query.\n\
        Each warning has a code, the position in the statement, a reason and a fix.\n"
        .to_owned();
    for lint in LINTS {
        let Lint { code, name, fires, reason, fix, example, .. } = lint;
        let mut fires = fires.replace(". ", ".\n");
        match lint.scope {
            LintScope::Serving => fires.push_str("\n`EXPLAIN` does not report it."),
            LintScope::Plans => {}
            LintScope::Queries => fires.push_str("\nQueries and training sets report it, too."),
        }
        writeln!(
            page,
            "\n## {name} ({code})\n\n{fires}\n\n**Reason.** {reason}\n\n**Fix.** {fix}\n\n\
             ```sql\n{example}\n```"
        )
        .expect("writing to a string does not fail");
    }
    page
}

impl<'a> Facts<'a> {
    /// The stored tables that a window looks through, those of UNION last.
    fn sources(&self, window: &'a WrittenWindow) -> Vec<TableSource<'a>> {
        let schema = window.base.schema();
        let at = |expr: &Expr| lineage::column(expr, schema);
        let keys: Option<Vec<usize>> = window.window.partition_by.iter().map(at).collect();
        let order = window.window.order_by.as_ref().map(at);
        let (Some(keys), None | Some(Some(_))) = (keys, order) else { return Vec::new() };
        let main = (!window.window.instance_not_in_window).then_some(&window.base);
        let plans = main.into_iter().chain(&window.unions);
        plans.filter_map(|plan| source(plan, &keys, order.flatten())).collect()
    }

    /// Two stored rows of one key that `is_alike` says belong together; `None` when there are no
    /// rows at all.
    fn has_pair(&self, source: &TableSource<'_>, is_alike: Alike) -> Option<bool> {
        let table = self.tables.by_id.get(&source.table.id)?;
        let snapshot = table.snapshot();
        let mut seen = HashSet::new();
        let mut key = Vec::new();
        // Nothing is said about rows that cannot be read.
        let mut rows = snapshot.scan();
        for _ in 0..ROWS_READ_MAX {
            let Ok(Some(stored)) = rows.next_row() else { break };
            key.clear();
            let event_time = match (is_alike, source.event_time) {
                (Alike::SameKey, _) => None,
                (Alike::SameTime, column) => column.map(|column| stored.row.get(column)),
            };
            let values = source.keys.iter().map(|column| stored.row.get(*column));
            encode_key(values.chain(event_time), &mut key);
            if !seen.insert(key.clone()) {
                return Some(true);
            }
        }
        (!seen.is_empty()).then_some(false)
    }
}

/// Which rows belong together.
#[derive(Debug, Clone, Copy)]
enum Alike {
    /// Those of one key.
    SameKey,
    /// Those of one key and one event time.
    SameTime,
}

/// The stored table behind columns of a plan's output; `None` where they are not stored columns.
fn source<'a>(
    plan: &'a LogicalPlan,
    keys: &[usize],
    order: Option<usize>,
) -> Option<TableSource<'a>> {
    let stored = |column: usize| lineage::to_leaf(plan, column);
    let keys = keys.iter().map(|key| stored(*key)).collect::<Option<_>>()?;
    let event_time = match order {
        Some(order) => Some(stored(order)?),
        None => None,
    };
    Some(TableSource { table: lineage::leaf_table(plan)?, keys, event_time })
}

#[cfg(test)]
mod tests;
