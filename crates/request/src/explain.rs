//! The text of EXPLAIN: which scans and joins a program has, by which index, for which windows, and
//! where it falls back to something slower.

use std::fmt;

use datafusion::logical_expr::LogicalPlan;

use crate::{
    chain::LeafKind,
    compile::{ProgramResources, ProgramTable},
    source::{AccessPath, KeyedSource, Order},
};

/// Lines of text, each indented below the line that it belongs to.
#[derive(Debug, Default)]
pub(crate) struct Explain {
    lines: Vec<(usize, String)>,
    depth: usize,
}

/// A line that is open: its text is set when it is closed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExplainLine(usize);

impl Explain {
    /// Opens a line; the lines that follow belong to it until it is closed.
    pub(crate) fn open(&mut self) -> ExplainLine {
        self.lines.push((self.depth, String::new()));
        self.depth += 1;
        ExplainLine(self.lines.len() - 1)
    }

    /// Closes a line and sets its text. Lines are closed in the reverse order of opening.
    pub(crate) fn close(&mut self, line: ExplainLine, text: String) {
        self.depth = self.depth.checked_sub(1).expect("a line is closed once");
        self.lines[line.0].1 = text;
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, text) in &self.lines {
            writeln!(f, "{:indent$}{text}", "", indent = depth * 2)?;
        }
        Ok(())
    }
}

impl ProgramResources {
    /// Describes how a source finds its rows.
    pub(crate) fn describe_source(&self, source: &KeyedSource, plan: &LogicalPlan) -> String {
        let table = match source.chain.leaf {
            LeafKind::Nothing => return "no rows".to_owned(),
            LeafKind::Materialised(at) => {
                let plan = plan.display();
                let and_row = match self.materialised[at].request_table {
                    Some(_) => ", with the request row",
                    None => "",
                };
                return format!("fallback: runs in batch mode for each request{and_row}: {plan}");
            }
            LeafKind::Table(table) => table,
        };
        let and_row = if source.request.is_some() { ", and the request row" } else { "" };
        let ProgramTable { catalog, stored } = &self.tables[table];
        let name = format!("{}.{}", catalog.database, catalog.name);
        let AccessPath::Index { index, .. } = source.access else {
            return format!(
                "fallback: every row of {name}{and_row}, because no index can hold its keys"
            );
        };
        let schema = stored.schema();
        let column = |position: usize| schema.columns[position].name.as_str();
        let spec = &schema.indexes[index];
        let keys: Vec<&str> = spec.keys.iter().map(|key| column(*key)).collect();
        let order = match source.order {
            Order::Stored if spec.event_time.is_some() => "in any order".to_owned(),
            Order::Arrival | Order::Stored => "newest arrival first".to_owned(),
            Order::Index { column: time } => format!("newest `{}` first", column(time)),
            Order::Computed(_) => "fallback: sorts the rows of the key".to_owned(),
        };
        let checks = if source.residual.is_empty() { "" } else { ", checks the other keys" };
        let keys = keys.join(", ");
        format!("{name} by index `{}` on ({keys}){and_row}, {order}{checks}", spec.name)
    }
}
