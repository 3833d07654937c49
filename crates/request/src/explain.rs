//! What a program will do, in words: which scans and joins, by which index, for which windows,
//! and where it falls back on something slower.

use std::fmt;

use datafusion::logical_expr::LogicalPlan;

use crate::{
    chain::LeafKind,
    compile::Parts,
    source::{Access, Order, Source},
};

/// Lines, indented by what they belong to.
#[derive(Debug, Default)]
pub(crate) struct Explain {
    lines: Vec<(usize, String)>,
    depth: usize,
}

/// A line whose text follows later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line(usize);

impl Explain {
    /// Begins a line; lines until it is closed belong to it.
    pub(crate) fn open(&mut self) -> Line {
        self.lines.push((self.depth, String::new()));
        self.depth += 1;
        Line(self.lines.len() - 1)
    }

    /// Ends a line.
    pub(crate) fn close(&mut self, line: Line, text: String) {
        self.depth -= 1;
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

impl Parts {
    /// Says how a source finds its rows.
    pub(crate) fn describe_source(&self, source: &Source, plan: &LogicalPlan) -> String {
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
        let (catalog_table, table) = &self.tables[table];
        let name = format!("{}.{}", catalog_table.database, catalog_table.name);
        let Access::Index { index, .. } = source.access else {
            return format!("fallback: every row of {name}{and_row}, no index can hold its keys");
        };
        let schema = table.schema();
        let column = |position: usize| schema.columns[position].name.as_str();
        let spec = &schema.indexes[index];
        let keys: Vec<&str> = spec.keys.iter().map(|key| column(*key)).collect();
        let order = match source.order {
            Order::Arrival => "newest arrival first".to_owned(),
            Order::Index { column: time } => format!("newest `{}` first", column(time)),
            Order::Computed(_) => "fallback: sorts the rows of the key".to_owned(),
        };
        let checks = if source.residual.is_empty() { "" } else { ", checks the other keys" };
        let keys = keys.join(", ");
        format!("{name} by index `{}` on ({keys}){and_row}, {order}{checks}", spec.name)
    }
}
