//! What the names of an expression mean: the tables of its query, their row, and those of outer queries.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::Arc,
};

use lockstep_diagnostic::{Diagnostic, Result, code};
use sqlparser::ast::Function;

use super::{
    relation::{CatalogColumns, CatalogRow},
    value::{CatalogValue, row_bytes},
};
use crate::postgres::types::Oid;

/// A table in FROM.
#[derive(Debug, Clone)]
pub(super) struct BoundTable {
    pub(super) alias: String,
    pub(super) columns: Arc<CatalogColumns>,
}

/// The row of each table; `None` where an outer join has found none.
pub(super) type JoinedRow = Vec<Option<CatalogRow>>;

/// Which elements a set-returning function in a select list gives: those at `at`. `count` becomes the
/// number of elements of the longest.
#[derive(Debug)]
pub(super) struct SetPosition<'a> {
    pub(super) at: usize,
    pub(super) count: Cell<usize>,
    pub(super) elements: &'a SetElements,
}

/// The elements of the set-returning functions of a row.
#[derive(Debug, Default)]
pub(super) struct SetElements {
    by_call: RefCell<Vec<(CallAddress, Arc<[CatalogValue]>)>>,
    /// How many bytes were kept since [`Self::take_bytes`].
    bytes: Cell<usize>,
}

/// The address of a call in the tree of the query, which stays where it is while the query runs.
pub(super) type CallAddress = *const Function;

impl SetPosition<'_> {
    /// Returns the elements of a call, where they are kept.
    pub(super) fn elements(&self, call: &Function) -> Option<Arc<[CatalogValue]>> {
        let by_call = self.elements.by_call.borrow();
        let found = by_call.iter().find(|(known, _)| std::ptr::eq(*known, call));
        found.map(|(_, elements)| Arc::clone(elements))
    }

    /// Keeps the elements of a call for the next rows.
    pub(super) fn keep(&self, call: &Function, elements: &Arc<[CatalogValue]>) {
        self.elements.bytes.update(|bytes| bytes + row_bytes(elements));
        self.elements.by_call.borrow_mut().push((call, Arc::clone(elements)));
    }
}

impl SetElements {
    /// Returns how many bytes were kept since the last call.
    pub(super) fn take_bytes(&self) -> usize {
        self.bytes.take()
    }
}

/// The rows over which window functions run, and their values so far.
#[derive(Debug)]
pub(super) struct CatalogWindowRows<'a> {
    pub(super) rows: &'a [JoinedRow],
    /// For each call its values.
    pub(super) values: RefCell<HashMap<CallAddress, Arc<[CatalogValue]>>>,
}

/// The tables that an expression sees.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) tables: &'a [BoundTable],
    pub(super) row: &'a [Option<CatalogRow>],
    pub(super) outer: Option<&'a Self>,
    /// The rows of a group, for aggregates.
    pub(super) group: Option<&'a [JoinedRow]>,
    /// The rows of the query and the number of this one, for window functions.
    pub(super) window: Option<(&'a CatalogWindowRows<'a>, usize)>,
    pub(super) set: Option<&'a SetPosition<'a>>,
}

impl<'a> Scope<'a> {
    /// Makes the scope of a row.
    pub(super) fn new(
        tables: &'a [BoundTable],
        row: &'a [Option<CatalogRow>],
        outer: Option<&'a Self>,
    ) -> Self {
        debug_assert!(row.len() <= tables.len(), "a row has no more tables than the query");
        Self { tables, row, outer, group: None, window: None, set: None }
    }

    /// Returns the value of a column, of the innermost query that has it.
    pub(super) fn column(&self, table: Option<&str>, name: &str) -> Result<CatalogValue> {
        let mut scope = Some(self);
        let mut is_open = false;
        while let Some(found) = scope {
            if let Some(value) = found.own_column(table, name) {
                return Ok(value);
            }
            is_open |= found.tables.iter().any(|bound| {
                bound.columns.has_any_column && table.is_none_or(|t| bound.is_named(t))
            });
            scope = found.outer;
        }
        if is_open {
            return Ok(CatalogValue::Null);
        }
        let qualified = table.map_or_else(|| name.to_owned(), |table| format!("{table}.{name}"));
        let message = format!("column {qualified} does not exist");
        Diagnostic::new(code::UNDEFINED_COLUMN, message)
            .with_hint(
                "Use DESC and SHOW: the catalogs contain only the columns that common tools read.",
            )
            .err()
    }

    fn own_column(&self, table: Option<&str>, name: &str) -> Option<CatalogValue> {
        let (at, position) = find_column(self.tables, table, name)?;
        let row = self.row.get(at).and_then(Option::as_ref);
        let value = row.and_then(|row| row.get(position)).cloned();
        Some(value.unwrap_or(CatalogValue::Null))
    }

    /// Returns the whole row of a table as its only value, where the name is one of such a table:
    /// `SELECT number FROM generate_series(1, 2) AS number`.
    pub(super) fn only_value(&self, name: &str) -> Option<CatalogValue> {
        let at = self.tables.iter().position(|bound| bound.is_named(name))?;
        if self.tables[at].columns.list.len() != 1 {
            return None;
        }
        let row = self.row.get(at).and_then(Option::as_ref);
        Some(row.and_then(|row| row.first()).cloned().unwrap_or(CatalogValue::Null))
    }
}

impl BoundTable {
    /// Returns whether the table has this name in the query.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.alias.eq_ignore_ascii_case(name)
    }
}

/// Returns the number of the table that has a column, and the position of the column.
pub(super) fn find_column(
    tables: &[BoundTable],
    table: Option<&str>,
    name: &str,
) -> Option<(usize, usize)> {
    tables.iter().enumerate().find_map(|(at, bound)| {
        let is_table = table.is_none_or(|table| bound.is_named(table));
        Some((at, is_table.then(|| bound.columns.position(name)).flatten()?))
    })
}

/// Returns the type of a column.
pub(super) fn column_type(tables: &[BoundTable], table: Option<&str>, name: &str) -> Option<Oid> {
    let (at, position) = find_column(tables, table, name)?;
    Some(tables[at].columns.list[position].1)
}
