//! The tables over which catalog queries run, with indexes that are made where a join asks for them.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use super::value::CatalogValue;
use crate::postgres::types::Oid;

/// A row.
pub(super) type CatalogRow = Arc<[CatalogValue]>;

/// The positions of the rows with a key.
type KeyPositions = HashMap<String, Vec<usize>>;

/// A column of a row of the catalogs: its name, its type and its value.
pub(super) type CatalogField = (&'static str, Oid, CatalogValue);

/// The columns of a table: names and types.
#[derive(Debug)]
pub(super) struct CatalogColumns {
    pub(super) list: Vec<(String, Oid)>,
    /// Whether columns that are not listed are NULL.
    pub(super) has_any_column: bool,
}

impl CatalogColumns {
    /// Returns the position of a column.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|(column, _)| column.eq_ignore_ascii_case(name))
    }
}

/// A table.
#[derive(Debug, Clone)]
pub(super) struct CatalogRelation {
    pub(super) columns: Arc<CatalogColumns>,
    pub(super) rows: Arc<[CatalogRow]>,
    /// For each column its index.
    indexes: Arc<[OnceLock<KeyPositions>]>,
}

impl CatalogRelation {
    /// Makes a table of the catalogs: a row of each item. Columns that `fields` does not have are NULL.
    pub(super) fn listing<T: Default>(
        items: &[T],
        fields: impl Fn(&T) -> Vec<CatalogField>,
    ) -> Self {
        let columns = fields(&T::default());
        let list = columns.into_iter().map(|(name, number, _)| (name.to_owned(), number)).collect();
        let row = |item: &T| fields(item).into_iter().map(|(_, _, value)| value).collect();
        let mut made = Self::of(list, items.iter().map(row).collect());
        if let Some(columns) = Arc::get_mut(&mut made.columns) {
            columns.has_any_column = true;
        }
        made
    }

    /// Makes a table of the catalogs without rows.
    pub(super) fn empty() -> Self {
        let fields = |(): &()| vec![("oid", crate::postgres::types::oid::OID, CatalogValue::Null)];
        Self::listing(&[] as &[()], fields)
    }

    /// Makes the result of a query.
    pub(super) fn of(list: Vec<(String, Oid)>, rows: Vec<CatalogRow>) -> Self {
        debug_assert!(
            rows.windows(2).all(|pair| pair[0].len() == pair[1].len()),
            "rows of a table have the same columns"
        );
        let indexes = rows.first().map_or(list.len(), |row| row.len());
        Self {
            columns: Arc::new(CatalogColumns { list, has_any_column: false }),
            rows: rows.into(),
            indexes: (0..indexes).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Returns the positions of the rows that may have this value in a column.
    pub(super) fn lookup(&self, column: usize, value: &CatalogValue) -> &[usize] {
        let Some(index) = self.indexes.get(column) else { return &[] };
        let index = index.get_or_init(|| {
            let mut positions = KeyPositions::new();
            for (at, row) in self.rows.iter().enumerate().filter(|(_, row)| !row[column].is_null())
            {
                positions.entry(row[column].key()).or_default().push(at);
            }
            positions
        });
        index.get(&value.key()).map_or(&[], Vec::as_slice)
    }
}
