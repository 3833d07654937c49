//! FROM and WHERE: the rows of a query before they are grouped and projected.

use lockstep_diagnostic::{Diagnostic, Result};
use sqlparser::ast::{Expr, Ident, Select, TableAlias, TableFactor, TableWithJoins};

use super::{
    analysis::{conjuncts, object_name},
    evaluation::Evaluator,
    join::{CatalogJoinKind, CatalogJoinStep, JoinSpec, is_bound, join_spec},
    scope::{BoundTable, JoinedRow, Scope},
};

/// The rows of FROM.
#[derive(Debug, Default)]
pub(super) struct JoinedRows {
    pub(super) tables: Vec<BoundTable>,
    pub(super) rows: Vec<JoinedRow>,
}

/// The conditions of WHERE that are not checked yet, and the names of all tables of the query.
pub(super) struct OpenConditions<'q> {
    pub(super) list: Vec<&'q Expr>,
    pub(super) aliases: Vec<String>,
}

impl<'q> OpenConditions<'q> {
    /// Takes the conditions whose tables are all there.
    fn take_ready(&mut self, tables: &[BoundTable]) -> Vec<&'q Expr> {
        let conditions = std::mem::take(&mut self.list).into_iter();
        let (ready, later) = conditions.partition(|expr| is_bound(expr, tables, &self.aliases));
        self.list = later;
        ready
    }
}

impl Evaluator<'_> {
    /// Returns the rows of FROM for which WHERE is true.
    pub(super) fn joined(
        &mut self,
        select: &Select,
        outer: Option<&Scope<'_>>,
    ) -> Result<JoinedRows> {
        let mut conditions = OpenConditions {
            list: select.selection.as_ref().map(conjuncts).unwrap_or_default(),
            aliases: select.from.iter().flat_map(aliases_of).collect(),
        };
        let mut joined = JoinedRows { tables: Vec::new(), rows: vec![Vec::new()] };
        for item in &select.from {
            self.join_item(item, &mut joined, &mut conditions, outer)?;
        }
        let mut kept = Vec::new();
        for row in std::mem::take(&mut joined.rows) {
            self.step()?;
            let scope = Scope::new(&joined.tables, &row, outer);
            if self.all_true(&conditions.list, &scope)? {
                kept.push(row);
            }
        }
        debug_assert!(
            kept.iter().all(|row| row.len() == joined.tables.len()),
            "a joined row has a row of each table"
        );
        joined.rows = kept;
        Ok(joined)
    }

    /// Joins an item of FROM, with the joins behind it, to the rows before it.
    pub(super) fn join_item<'q>(
        &mut self,
        item: &'q TableWithJoins,
        joined: &mut JoinedRows,
        conditions: &mut OpenConditions<'q>,
        outer: Option<&Scope<'_>>,
    ) -> Result<()> {
        let first =
            JoinSpec { kind: CatalogJoinKind::Inner, on: Vec::new(), using: Some(Vec::new()) };
        let mut specs = vec![(&item.relation, first)];
        for join in &item.joins {
            specs.push((&join.relation, join_spec(join)?));
        }
        // Rows that an outer join adds must not be left out before.
        let has_right = specs
            .iter()
            .any(|(_, s)| matches!(s.kind, CatalogJoinKind::Right | CatalogJoinKind::Full));
        for (factor, spec) in specs {
            let source = self.source(factor, outer)?;
            let bound = self.bound(factor, &source, outer)?;
            let tables_before = joined.tables.len();
            joined.tables.extend(bound);
            let ready = if has_right { Vec::new() } else { conditions.take_ready(&joined.tables) };
            let (tables, aliases) = (joined.tables.as_slice(), conditions.aliases.as_slice());
            let step = CatalogJoinStep { spec, ready, tables, tables_before, aliases, outer };
            let before = std::mem::take(&mut joined.rows);
            joined.rows = self.join(&source, before, &step)?;
        }
        Ok(())
    }

    /// Returns whether all conditions are true.
    pub(super) fn all_true(&mut self, conditions: &[&Expr], scope: &Scope<'_>) -> Result<bool> {
        for condition in conditions {
            if !self.moment(condition, scope)?.is_true() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the names of the tables of an item of FROM.
pub(super) fn aliases_of(item: &TableWithJoins) -> impl Iterator<Item = String> {
    let factors = std::iter::once(&item.relation).chain(item.joins.iter().map(|j| &j.relation));
    let mut names = Vec::new();
    for factor in factors {
        let alias_name = |alias: &Option<TableAlias>| alias.as_ref().map(|a| folded(&a.name));
        match factor {
            TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. } => {
                names.push(alias_name(alias).unwrap_or_else(|| object_name(name).1));
            }
            TableFactor::Derived { alias, .. } | TableFactor::UNNEST { alias, .. } => {
                names.extend(alias_name(alias));
            }
            TableFactor::NestedJoin { table_with_joins, .. } => {
                names.extend(aliases_of(table_with_joins).collect::<Vec<_>>());
            }
            _ => {}
        }
    }
    names.into_iter()
}

/// Returns a name as PostgreSQL reads it: without quotes, in lower case.
pub(super) fn folded(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() }
}

/// Makes the error for what catalog queries cannot have.
pub(super) fn unsupported<T>(what: &str) -> Result<T> {
    let message = format!("{what} is not supported in catalog queries");
    Diagnostic::unsupported(message).err()
}
