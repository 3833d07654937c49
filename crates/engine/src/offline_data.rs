//! What statements in offline mode see of a table: rows copied from files, and files read in place.
//!
//! LOAD DATA and ALTER TABLE change it, SELECT reads it. Offline data never expires and answers no
//! request: it is history for training sets.

use std::{collections::BTreeMap, sync::Arc};

use lockstep_batch::load::{ColumnMatch, FileFormat, LoadOptions, read_file};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_host::QueryContext;
use lockstep_row::{Arena, Datum, Retention, TableSchema};
use lockstep_table::{Appended, Table};

use crate::{
    Database,
    append::{self, refused},
    catalog::TableEntry,
    conversion::Conversion,
    database::Tables,
};

/// The offline data of one table.
#[derive(Debug, Clone, Default)]
pub(crate) struct OfflineData {
    /// The copied rows.
    rows: Option<Arc<Table>>,
    /// Files that are read when a query needs them.
    files: Vec<OfflineFile>,
}

/// Files that belong to a table.
#[derive(Debug, Clone)]
struct OfflineFile {
    path: String,
    options: LoadOptions,
}

/// What becomes of the data that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadMode {
    /// There must be none.
    ErrorIfExists,
    /// It is replaced.
    Overwrite,
    /// It stays.
    Append,
}

impl LoadMode {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "error_if_exists" | "errorifexists" => Some(Self::ErrorIfExists),
            "overwrite" => Some(Self::Overwrite),
            "append" => Some(Self::Append),
            _ => None,
        }
    }
}

impl OfflineData {
    /// Whether rows were copied.
    pub(crate) fn has_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// The files, as they were named.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    /// The format of the files.
    pub(crate) fn format(&self) -> Option<&'static str> {
        self.files.first().map(|file| match file.options.format {
            FileFormat::Csv => "csv",
            FileFormat::Parquet => "parquet",
        })
    }

    /// ALTER TABLE … ADD `offline_path`.
    pub(crate) fn add_path(&mut self, path: &str, span: Span) -> Result<()> {
        if self.files.iter().any(|file| file.path == path) {
            let message = format!("the table has the offline path '{path}' already");
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(span).err();
        }
        let options = LoadOptions { format: FileFormat::Parquet, ..LoadOptions::default() };
        let options = self.files.first().map_or(options, |file| file.options.clone());
        self.files.push(OfflineFile { path: path.to_owned(), options });
        Ok(())
    }

    /// ALTER TABLE … DROP `offline_path`.
    pub(crate) fn drop_path(&mut self, path: &str, span: Span) -> Result<()> {
        let Some(at) = self.files.iter().position(|file| file.path == path) else {
            let message = format!("the table has no offline path '{path}'");
            return Diagnostic::new(code::UNDEFINED_OBJECT, message)
                .at(span)
                .with_nearest(path, self.files.iter().map(|file| file.path.as_str()))
                .err();
        };
        self.files.remove(at);
        Ok(())
    }

    /// LOAD DATA with `deep_copy=false`: remembers the path. 'overwrite' replaces other links; it
    /// is refused where rows were copied, which it could not bring back.
    pub(crate) fn link(
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
            // OpenMLDB refuses to link what is linked.
            let is_again = |file: &OfflineFile| file.path == path;
            if options.columns == ColumnMatch::OpenMldb && self.files.iter().any(is_again) {
                return exists(span);
            }
            self.files.clear();
        }
        self.add_path(path, span)?;
        self.files.last_mut().expect("it was added").options = options.clone();
        Ok(())
    }

    /// The rows to which a load in this mode adds its own. Refuses data that is there already,
    /// where there must be none.
    pub(crate) fn rows_for(&self, mode: LoadMode, span: Span) -> Result<Option<Arc<Table>>> {
        self.check_mode(mode, span)?;
        Ok(self.rows.clone().filter(|_| mode == LoadMode::Append))
    }

    /// LOAD DATA with `deep_copy=true`: takes rows that were added to [`Self::rows_for`], or are a
    /// table of their own.
    pub(crate) fn take(&mut self, rows: Arc<Table>, (mode, span): (LoadMode, Span)) -> Result<()> {
        self.check_mode(mode, span)?;
        if mode == LoadMode::Overwrite {
            self.files.clear();
            self.rows = None;
        }
        match &self.rows {
            Some(held) if Arc::ptr_eq(held, &rows) => {}
            // Others were loaded first.
            Some(held) => drop(copy_rows(&rows, held)?),
            None => self.rows = Some(rows),
        }
        Ok(())
    }

    fn check_mode(&self, mode: LoadMode, span: Span) -> Result<()> {
        let is_empty = self.rows.is_none() && self.files.is_empty();
        if !is_empty && mode == LoadMode::ErrorIfExists { exists(span) } else { Ok(()) }
    }

    /// One table with all of it, as it is now.
    fn read(
        &self,
        database: &Database,
        schema: &TableSchema,
        conversion: Conversion,
    ) -> Result<Arc<Table>> {
        if let (Some(rows), true) = (&self.rows, self.files.is_empty()) {
            return Ok(Arc::clone(rows));
        }
        let table = empty(database, schema)?;
        if let Some(rows) = &self.rows {
            copy_rows(rows, &table)?;
        }
        for file in &self.files {
            let batches = read_file(&file.path, &file.options, schema, &conversion.settings())?;
            append::load(batches, &table, append::Rows::Any, conversion)?;
        }
        Ok(table)
    }
}

fn exists<T>(span: Span) -> Result<T> {
    Diagnostic::new(code::DUPLICATE_OBJECT, "the table has offline data already")
        .at(span)
        .with_hint("mode='append' adds to it.")
        .err()
}

fn copy_rows(from: &Table, to: &Table) -> Result<Appended> {
    let snapshot = from.snapshot();
    let arena = Arena::new();
    let columns = from.schema().columns.len();
    let rows = snapshot.scan().map(|stored| -> Vec<Datum<'_>> {
        (0..columns).map(|column| stored.row.get_in(column, &arena)).collect()
    });
    to.append(rows).map_err(|error| refused(&error))
}

/// A table like another, without rows and whose rows do not expire.
pub(crate) fn empty(database: &Database, schema: &TableSchema) -> Result<Arc<Table>> {
    let mut schema = schema.clone();
    schema.indexes.iter_mut().for_each(|index| index.retention = Retention::Forever);
    database.make_table(schema).map(Arc::new).map_err(|error| refused(&error))
}

impl Database {
    /// The offline data of these tables, as tables of the same ids.
    pub(crate) fn offline_tables(
        &self,
        entries: &[TableEntry],
        conversion: Conversion,
    ) -> Result<Tables> {
        let mut by_id = BTreeMap::new();
        for entry in entries {
            let offline = entry.offline.read().clone();
            let read = || offline.read(self, &entry.table.schema(), conversion);
            by_id.insert(entry.id, QueryContext::scratch().run(read)?);
        }
        Ok(Tables { by_id, ..Tables::default() })
    }
}
