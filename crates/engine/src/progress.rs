//! The stored progress of a stream, a source or a sink: the rows of a table that nobody names, of which the last one of
//! each number counts.

use std::{collections::BTreeMap, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_row::{Column, DataType, Datum, IndexSpec, Retention, TableSchema};
use lockstep_table::{BulkLoad, Table, TailOptions, TailSignal};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Database, append::table_error, catalog::CatalogRecord};

/// The number of the row that says how far it is.
const OWN_NUMBER: i32 = 1;

/// The table with the progress of one of them.
#[derive(Debug, Clone)]
pub(crate) struct ProgressTable(Arc<Table>);

impl ProgressTable {
    /// Makes the table of one that has not begun.
    pub(crate) fn new(database: &Database) -> Result<Self> {
        let made = database.make_table(Self::schema()).map_err(|error| table_error(&error))?;
        let table = made.shared(database.host().threads);
        let (id, schema) = (table.log_id().unwrap_or(0), TableSchema::clone(&table.schema()));
        database.log_unnamed_table(id, &table, &CatalogRecord::CreateOfflineRows { id, schema })?;
        Ok(Self(table))
    }

    /// Takes the table of one whose directory is opened.
    pub(crate) fn of_table(table: Arc<Table>) -> Self {
        Self(table)
    }

    /// Returns the columns and indexes of such a table. Of its rows it keeps the last one.
    pub(crate) fn schema() -> TableSchema {
        let columns = [("stream", DataType::Int), ("progress", DataType::String)];
        let columns = columns.map(|(name, data_type)| Column::new(name, data_type));
        let index = IndexSpec {
            name: "progress".to_owned(),
            keys: vec![0],
            event_time: None,
            retention: Retention::Latest { latest: 1 },
            declared: true,
        };
        TableSchema { columns: columns.into(), indexes: vec![index] }
    }

    /// Returns the id under which it is logged.
    pub(crate) fn id(&self) -> u64 {
        self.0.log_id().unwrap_or(0)
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.0
    }

    /// Reads what was stored last; `None` where it has not begun.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let last = self.read_all()?.remove(&OWN_NUMBER);
        let parse = |text: String| serde_json::from_str(&text);
        last.map(parse).transpose().map_err(|error| unreadable(&error.to_string()))
    }

    /// Reads what was stored last under each number.
    pub(crate) fn read_all(&self) -> Result<BTreeMap<i32, String>> {
        let options = TailOptions { from: Some(0), limit_bytes: u64::MAX };
        let mut tail = self.0.tail(options, &TailSignal::new());
        let mut last = BTreeMap::new();
        let read = tail.read(usize::MAX, |found| {
            let arena = lockstep_row::Arena::new();
            let value = |column| found.row.get_in(column, &arena);
            if let (Datum::Int(number), Datum::String(text)) = (value(0), value(1)) {
                last.insert(number, text.to_owned());
            }
        });
        read.map_err(|error| unreadable(&error.to_string()))?;
        Ok(last)
    }

    /// Stores a progress by itself.
    pub(crate) fn store(&self, progress: &impl Serialize) -> Result<()> {
        let mut load = self.0.load_any();
        Self::push(&mut load, progress)?;
        let stored = BulkLoad::finish_all(vec![load]);
        stored.map(|_| ()).map_err(|error| table_error(&error))
    }

    /// Stores texts under their numbers, and a progress.
    pub(crate) fn store_all(
        &self,
        progress: &impl Serialize,
        texts: &BTreeMap<i32, String>,
    ) -> Result<()> {
        let mut load = self.0.load_any();
        Self::push(&mut load, progress)?;
        texts.iter().try_for_each(|(number, text)| push_text(&mut load, *number, text))?;
        let stored = BulkLoad::finish_all(vec![load]);
        stored.map(|_| ()).map_err(|error| table_error(&error))
    }

    /// Adds the row that says how far it is.
    pub(crate) fn push(load: &mut BulkLoad<'_>, progress: &impl Serialize) -> Result<()> {
        Self::push_at(load, OWN_NUMBER, progress)
    }

    /// Adds a row with another number, of which the last one counts, too.
    pub(crate) fn push_at(
        load: &mut BulkLoad<'_>,
        number: i32,
        value: &impl Serialize,
    ) -> Result<()> {
        let text = serde_json::to_string(value);
        let text = text.map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
        push_text(load, number, &text)
    }
}

fn push_text(load: &mut BulkLoad<'_>, number: i32, text: &str) -> Result<()> {
    debug_assert!(number >= OWN_NUMBER, "numbers begin with that of the progress");
    let row = vec![Datum::Int(number), Datum::String(text)];
    load.push([row]).map_err(|error| table_error(&error))
}

fn unreadable(why: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(format!("the progress cannot be read: {why}")))
}
