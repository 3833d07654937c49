//! A table: its schema, its indexes and all of its rows in order of arrival.
//!
//! `engine` appends; `online` and `offline` read through a [`Snapshot`], which never waits for a
//! writer. Knows rows and indexes, not SQL.

mod error;
mod snapshot;
mod table;

pub use error::TableError;
pub use snapshot::{KeyRows, Rows, Snapshot, StoredRow};
pub use table::{Arrivals, Table};
