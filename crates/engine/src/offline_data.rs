//! The offline data of a table, which statements in offline mode read: rows copied from files, and
//! linked files.
//!
//! LOAD DATA and ALTER TABLE change it, SELECT reads it. Offline data never expires and answers no
//! request: it is history for training sets.

use std::{collections::BTreeMap, sync::Arc};

use lockstep_batch::load::{ColumnMatch, FileFormat, LoadOptions, read_file};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_host::QueryContext;
use lockstep_row::{Retention, TableSchema};
use lockstep_table::{Appended, Table};
use serde::{Deserialize, Serialize};

use crate::{
    Database,
    access::Caller,
    append::{self, AppendRule, table_error},
    catalog::{CatalogRecord, TableEntry},
    conversion::Conversion,
    copied_rows::{ValueSource, copy_rows},
    database::TableSet,
};

/// The offline data of one table.
#[derive(Debug, Clone, Default)]
pub(crate) struct OfflineData {
    /// The copied rows.
    rows: Option<Arc<Table>>,
    /// The linked files, which each query reads.
    files: Vec<OfflineFile>,
}

/// A linked file, or a folder of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OfflineFile {
    path: String,
    options: LoadOptions,
}

/// The option `mode`: what happens with data that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadMode {
    /// The load fails if there is any.
    ErrorIfExists,
    /// The load replaces it.
    Overwrite,
    /// The load adds to it.
    Append,
}

impl LoadMode {
    /// Reads the value of the option; `None` for another word.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "error_if_exists" | "errorifexists" => Some(Self::ErrorIfExists),
            "overwrite" => Some(Self::Overwrite),
            "append" => Some(Self::Append),
            _ => None,
        }
    }
}

/// A change of the offline data of a table.
#[derive(Debug)]
pub(crate) enum OfflineChange {
    /// ALTER TABLE: all of its actions or none.
    Paths(Vec<PathChange>),
    /// LOAD DATA with `deep_copy=false`.
    Link { path: String, options: LoadOptions, mode: LoadMode, span: Span },
    /// LOAD DATA with `deep_copy=true`. The rows were appended to the table of
    /// [`OfflineData::rows_for`], or are a table of their own.
    AddRows { rows: Arc<Table>, mode: LoadMode, span: Span },
}

/// A path that ALTER TABLE adds or drops.
#[derive(Debug)]
pub(crate) struct PathChange {
    /// ADD; DROP otherwise.
    pub(crate) add: bool,
    pub(crate) path: String,
    /// The position of the path.
    pub(crate) span: Span,
}

/// The offline data of a table as the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct OfflineRecord {
    /// The id of the table of copied rows.
    rows: Option<u64>,
    files: Vec<OfflineFile>,
}

impl OfflineRecord {
    /// Returns the id of the table of copied rows.
    pub(crate) fn rows(&self) -> Option<u64> {
        self.rows
    }
}

impl OfflineData {
    /// Makes the data that a record describes, with its copied rows.
    pub(crate) fn of_record(record: OfflineRecord, rows: Option<Arc<Table>>) -> Self {
        Self { rows, files: record.files }
    }

    /// Describes the data as the log has it.
    pub(crate) fn record(&self) -> OfflineRecord {
        let rows = self.rows.as_ref().and_then(|rows| rows.log_id());
        OfflineRecord { rows, files: self.files.clone() }
    }

    /// Returns the table of copied rows, and its id in the log.
    pub(crate) fn logged_rows(&self) -> Option<(u64, &Arc<Table>)> {
        let rows = self.rows.as_ref()?;
        Some((rows.log_id()?, rows))
    }

    /// Applies a change, or changes nothing.
    pub(crate) fn apply(&mut self, change: &OfflineChange) -> Result<()> {
        match change {
            OfflineChange::Paths(actions) => {
                let mut changed = self.clone();
                for PathChange { add, path, span } in actions {
                    match add {
                        true => changed.add_path(path, *span)?,
                        false => changed.drop_path(path, *span)?,
                    }
                }
                *self = changed;
                Ok(())
            }
            OfflineChange::Link { path, options, mode, span } => {
                self.link(path, options, *mode, *span)
            }
            OfflineChange::AddRows { rows, mode, span } => {
                self.add_rows(Arc::clone(rows), *mode, *span)
            }
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_none() && self.files.is_empty()
    }

    /// Whether rows were copied.
    pub(crate) fn has_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// Returns the paths of the linked files, as they were written.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    /// Returns the format of the linked files.
    pub(crate) fn format(&self) -> Option<&'static str> {
        self.files.first().map(|file| file.options.format.name())
    }

    /// Links a path: ALTER TABLE … ADD `offline_path`.
    fn add_path(&mut self, path: &str, span: Span) -> Result<()> {
        if self.files.iter().any(|file| file.path == path) {
            let message = format!("offline path '{path}' already exists");
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(span).err();
        }
        let options = LoadOptions { format: FileFormat::Parquet, ..LoadOptions::default() };
        let options = self.files.first().map_or(options, |file| file.options.clone());
        self.files.push(OfflineFile { path: path.to_owned(), options });
        Ok(())
    }

    /// Unlinks a path: ALTER TABLE … DROP `offline_path`.
    fn drop_path(&mut self, path: &str, span: Span) -> Result<()> {
        let Some(at) = self.files.iter().position(|file| file.path == path) else {
            let message = format!("offline path '{path}' does not exist");
            return Diagnostic::new(code::UNDEFINED_OBJECT, message)
                .at(span)
                .with_nearest(path, self.files.iter().map(|file| file.path.as_str()))
                .err();
        };
        self.files.remove(at);
        Ok(())
    }

    /// Links a path: LOAD DATA with `deep_copy=false`. 'overwrite' replaces other links; it is
    /// refused where rows were copied, which are stored nowhere else.
    fn link(
        &mut self,
        path: &str,
        options: &LoadOptions,
        mode: LoadMode,
        span: Span,
    ) -> Result<()> {
        let is_empty = self.rows.is_none() && self.files.is_empty();
        let replaces = mode == LoadMode::Overwrite && self.rows.is_none();
        if !is_empty && mode != LoadMode::Append && !replaces {
            return exists(span);
        }
        if replaces {
            // OpenMLDB refuses to link a path that is linked.
            let is_linked = |file: &OfflineFile| file.path == path;
            if options.columns == ColumnMatch::OpenMldb && self.files.iter().any(is_linked) {
                return exists(span);
            }
            self.files.clear();
        }
        self.add_path(path, span)?;
        let added = self.files.last_mut().expect("add_path added the file");
        debug_assert_eq!(added.path, path, "the file is added at the end");
        added.options = options.clone();
        Ok(())
    }

    /// Returns the copied rows to which a load in this mode adds its own. Fails where there is data
    /// already and the mode does not allow it.
    pub(crate) fn rows_for(&self, mode: LoadMode, span: Span) -> Result<Option<Arc<Table>>> {
        self.check_mode(mode, span)?;
        Ok(self.rows.clone().filter(|_| mode == LoadMode::Append))
    }

    /// Adds copied rows: LOAD DATA with `deep_copy=true`. They were appended to the table of
    /// [`Self::rows_for`], or are a table of their own.
    fn add_rows(&mut self, rows: Arc<Table>, mode: LoadMode, span: Span) -> Result<()> {
        self.check_mode(mode, span)?;
        if mode == LoadMode::Overwrite {
            self.files.clear();
            self.rows = None;
        }
        match &self.rows {
            Some(present) if Arc::ptr_eq(present, &rows) => {}
            // A concurrent load was first.
            Some(present) => drop(copy_all(&rows, present)?),
            None => self.rows = Some(rows),
        }
        Ok(())
    }

    fn check_mode(&self, mode: LoadMode, span: Span) -> Result<()> {
        let is_empty = self.rows.is_none() && self.files.is_empty();
        if !is_empty && mode == LoadMode::ErrorIfExists { exists(span) } else { Ok(()) }
    }

    /// Returns one table with all rows: the copied ones and those of the files.
    fn read_all(
        &self,
        database: &Database,
        schema: &TableSchema,
        conversion: Conversion,
    ) -> Result<Arc<Table>> {
        if let (Some(rows), true) = (&self.rows, self.files.is_empty()) {
            return Ok(Arc::clone(rows));
        }
        let table = empty_table(database, schema)?;
        if let Some(rows) = &self.rows {
            copy_all(rows, &table)?;
        }
        for file in &self.files {
            let batches = read_file(&file.path, &file.options, schema, &conversion.settings())?;
            append::load(batches, &table, AppendRule::Any, conversion)?;
        }
        Ok(table)
    }
}

/// Fails because the table has offline data.
fn exists<T>(span: Span) -> Result<T> {
    Diagnostic::new(code::DUPLICATE_OBJECT, "the table already has offline data")
        .at(span)
        .with_hint("Use mode='append' to add to it.")
        .err()
}

/// Copies all rows of a table to another one of the same columns.
fn copy_all(from: &Table, to: &Table) -> Result<Appended> {
    let columns = 0..from.schema().columns.len();
    copy_rows(from, to, &columns.map(ValueSource::Column).collect::<Vec<_>>())
}

/// Makes an empty table of this schema whose rows do not expire, and are not in the log.
fn empty_table(database: &Database, schema: &TableSchema) -> Result<Arc<Table>> {
    let made = database.make_unlogged_table(keeping_everything(schema));
    made.map(Arc::new).map_err(|error| table_error(&error))
}

/// Makes an empty table of copied rows for a table of this schema.
pub(crate) fn table_of_rows(database: &Database, schema: &TableSchema) -> Result<Arc<Table>> {
    let made = database.make_table(keeping_everything(schema));
    let rows = made.map(Arc::new).map_err(|error| table_error(&error))?;
    let (id, schema) = (rows.log_id().unwrap_or(0), TableSchema::clone(&rows.schema()));
    database.log_unnamed_table(id, &rows, &CatalogRecord::CreateOfflineRows { id, schema })?;
    Ok(rows)
}

/// Returns a schema whose indexes keep every row.
fn keeping_everything(schema: &TableSchema) -> TableSchema {
    let mut schema = schema.clone();
    schema.indexes.iter_mut().for_each(|index| index.retention = Retention::Forever);
    schema
}

impl Database {
    /// Returns the offline data of these tables, as tables of the same ids. Opens linked files as a caller
    /// may.
    pub(crate) fn offline_tables(
        &self,
        entries: &[TableEntry],
        conversion: Conversion,
        caller: &Caller,
    ) -> Result<TableSet> {
        let opening = QueryContext::opening(self.file_access(caller));
        let mut by_id = BTreeMap::new();
        for entry in entries {
            let offline = Arc::clone(&entry.offline);
            let read = || offline.read_all(self, &entry.table.schema(), conversion);
            by_id.insert(entry.id, opening.run(|| QueryContext::scratch().run(read))?);
        }
        Ok(TableSet { by_id, ..TableSet::default() })
    }
}
