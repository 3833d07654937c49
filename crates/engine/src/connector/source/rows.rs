//! What a source has read: the rows of its table, and what is no row.

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_row::{Arena, Column, Datum, TableSchema};

/// The rows that were read together, and the items among them that are no rows: messages, or lines of a file.
#[derive(Debug, Default)]
pub(crate) struct ItemRows<'a> {
    /// In the order of the items.
    pub(crate) rows: Vec<ItemRow<'a>>,
    pub(crate) bad: Vec<BadRow>,
}

/// The row of an item.
#[derive(Debug)]
pub(crate) struct ItemRow<'a> {
    /// The position of the item.
    pub(crate) at: usize,
    pub(crate) values: &'a mut [Datum<'a>],
}

impl<'a> AsRef<[Datum<'a>]> for &ItemRow<'a> {
    fn as_ref(&self) -> &[Datum<'a>] {
        self.values
    }
}

/// An item that is no row.
#[derive(Debug)]
pub(crate) struct BadRow {
    /// The position of the item.
    pub(crate) at: usize,
    pub(crate) reason: String,
}

impl<'a> ItemRows<'a> {
    /// Adds an item: its values, or why it is no row.
    pub(crate) fn push(&mut self, at: usize, values: Result<&'a mut [Datum<'a>]>) {
        match values {
            Ok(values) => self.rows.push(ItemRow { at, values }),
            Err(error) => self.bad.push(BadRow { at, reason: reason_of(&error) }),
        }
    }
}

/// Returns why an item is no row. It was read alone: which row of the data it was says nothing.
pub(crate) fn reason_of(error: &Diagnostic) -> String {
    error.message.replacen("row 1: ", "", 1)
}

/// Makes a row of the defaults of its columns.
pub(crate) fn default_row<'a>(schema: &TableSchema, arena: &'a Arena) -> Vec<Datum<'a>> {
    let default = |column: &Column| match &column.default {
        Some(value) => in_arena(value.as_datum(arena), arena),
        None => Datum::Null,
    };
    schema.columns.iter().map(default).collect()
}

/// Copies a value without elements into an arena.
pub(crate) fn in_arena<'a>(value: Datum<'_>, arena: &'a Arena) -> Datum<'a> {
    match value {
        Datum::String(text) => Datum::String(arena.alloc_str(text)),
        value => value.detached().copied().unwrap_or(Datum::Null),
    }
}
