//! The rows that are not stored and that a query names: files in FROM, and Arrow objects of the
//! program that asks.
//!
//! The binder looks names up while the catalog is locked, where nothing may be opened. So a look-up
//! that finds nothing is noted and fails, [`NamedSources::open_missing`] opens what was noted, and
//! the query is bound again.

mod options;

use std::{
    cell::RefCell,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_batch::ExternalRows;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_plan::{CatalogTable, in_view};
use lockstep_sql::ast::{FileTable, ObjectName};

use crate::{Session, access::NeededFile};

/// The rows of an Arrow object: its schema and its batches.
pub type ArrowRows = (SchemaRef, Vec<RecordBatch>);

/// A function that finds an Arrow object of the caller by its name.
pub type FindObject<'f> = &'f dyn Fn(&str) -> Result<Option<ArrowRows>>;

/// The first id of a source; stored tables count from 1, system tables down from the greatest.
const FIRST_ID: u64 = 1 << 62;

/// The most columns that an error names.
const SHOWN_COLUMNS_MAX: usize = 10;

/// The sources of one statement.
#[derive(Debug, Default)]
pub(crate) struct NamedSources {
    files: Vec<(FileTable, Arc<CatalogTable>)>,
    /// The objects by name; `None` where the caller has none of that name.
    objects: Vec<(String, Option<Arc<CatalogTable>>)>,
    missing: RefCell<Vec<MissingSource>>,
    warnings: Vec<Diagnostic>,
}

/// A source that was looked up and is not open.
#[derive(Debug)]
enum MissingSource {
    /// Files; `views` are those in whose queries they are, as [`lockstep_plan::Catalog`] names them.
    Files {
        files: FileTable,
        views: Vec<ObjectName>,
    },
    Object {
        database: String,
        name: String,
    },
}

impl NamedSources {
    /// Makes sources of which one has this name in a database, with these rows.
    pub(crate) fn of_rows(
        database: &str,
        name: &str,
        (schema, batches): ArrowRows,
    ) -> Result<Self> {
        let mut sources = Self::default();
        let rows = |_: &str| Ok(Some((SchemaRef::clone(&schema), batches.clone())));
        sources.open_object(database.to_owned(), name.to_owned(), Some(&rows))?;
        Ok(sources)
    }

    /// Returns the names of the objects of the caller.
    pub(crate) fn object_names(&self) -> impl Iterator<Item = &str> {
        let found = self.objects.iter().filter(|(_, object)| object.is_some());
        found.map(|(name, _)| name.as_str())
    }

    /// Finds the files of an item of FROM, which may be in the query of a view.
    pub(crate) fn find_files(
        &self,
        files: &FileTable,
        views: &[ObjectName],
    ) -> Result<Arc<CatalogTable>> {
        if let Some((_, table)) = self.files.iter().find(|(known, _)| known == files) {
            return Ok(Arc::clone(table));
        }
        let missing = MissingSource::Files { files: files.clone(), views: views.to_vec() };
        self.missing.borrow_mut().push(missing);
        Diagnostic::internal("the files are opened and the query is bound again").err()
    }

    /// Finds an Arrow object of the caller.
    pub(crate) fn find_object(&self, database: &str, name: &str) -> Option<Arc<CatalogTable>> {
        if let Some((_, found)) = self.objects.iter().find(|(known, _)| known == name) {
            return found.clone();
        }
        let (database, name) = (database.to_owned(), name.to_owned());
        self.missing.borrow_mut().push(MissingSource::Object { database, name });
        None
    }

    /// Opens what was looked up and not found. Returns whether anything new was looked up.
    pub(crate) fn open_missing(
        &mut self,
        session: &Session,
        find_object: Option<FindObject<'_>>,
    ) -> Result<bool> {
        let missing = self.missing.take();
        let is_any = !missing.is_empty();
        for missing in missing {
            match missing {
                MissingSource::Files { files, views } => {
                    // An error is one at the use of the view that the statement's text names.
                    let inside = |error, view| *in_view(error, view);
                    let opened = self.open_files(session, files, views.first());
                    opened.map_err(|error| Box::new(views.iter().rev().fold(*error, inside)))?;
                }
                MissingSource::Object { database, name } => {
                    self.open_object(database, name, find_object)?;
                }
            }
        }
        Ok(is_any)
    }

    /// Returns the error of a column that does not exist, or what is wrong with the column if a source
    /// leaves it out.
    pub(crate) fn with_left_out(&self, error: Box<Diagnostic>) -> Box<Diagnostic> {
        let is_meant = |name: &&str| {
            error.message.strip_suffix("` does not exist").is_some_and(|column| {
                column == format!("column `{name}") || column.ends_with(&format!(".{name}"))
            })
        };
        if error.code != code::UNDEFINED_COLUMN {
            return error;
        }
        let left_out = self.files.iter().map(|(_, table)| table);
        let left_out = left_out.chain(self.objects.iter().filter_map(|(_, table)| table.as_ref()));
        let left_out = left_out.filter_map(|table| table.source.as_ref()?.downcast_ref());
        let left_out = left_out.flat_map(ExternalRows::left_out);
        let Some((name, data_type)) =
            left_out.into_iter().find(|(name, _)| is_meant(&name.as_str()))
        else {
            return error;
        };
        let message = format!("cannot read column `{name}`");
        let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message)
            .with_kind(Kind::FixData)
            .with_detail(format!("Its type {data_type} is not supported."))
            .with_hint("Convert it to a numeric, string, Boolean, date or timestamp type.");
        Box::new(match error.span {
            Some(span) => diagnostic.at(span),
            None => diagnostic,
        })
    }

    /// Returns the warnings about columns that the sources leave out.
    pub(crate) fn into_warnings(self) -> Vec<Diagnostic> {
        self.warnings
    }

    fn open_files(
        &mut self,
        session: &Session,
        files: FileTable,
        view: Option<&ObjectName>,
    ) -> Result<()> {
        session.permit_files(
            files.paths.iter().map(|path| NeededFile { path: path.text.clone(), span: path.span }),
        )?;
        let opened = session.opening_files(|| open(session, &files));
        let (source, warnings) = opened.map_err(|error| match error.span {
            Some(_) => error,
            None => Box::new(error.at(files.span)),
        })?;
        check_columns(&files.paths[0].text, &source, &warnings)
            .map_err(|error| Box::new(error.at(files.span)))?;
        let at = view.map_or(files.span, |view| view.name.span);
        self.warnings.extend(warnings.into_iter().map(|warning| warning.at(at)));
        let name = table_name(&files.paths[0].text);
        let table = table_of(source, String::new(), name);
        self.files.push((files, table));
        Ok(())
    }

    fn open_object(
        &mut self,
        database: String,
        name: String,
        find: Option<FindObject<'_>>,
    ) -> Result<()> {
        let table = match find.map(|find| find(&name)).transpose()?.flatten() {
            Some((schema, batches)) => {
                let (source, warnings) = ExternalRows::of_arrow(&name, &schema, batches)?;
                check_columns(&name, &source, &warnings)?;
                self.warnings.extend(warnings);
                Some(table_of(source, database, name.clone()))
            }
            None => None,
        };
        self.objects.push((name, table));
        Ok(())
    }
}

/// Returns the name of the table of a file: that of the file up to its first dot, unless it begins with
/// dots.
fn table_name(path: &str) -> String {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    match name.trim_start_matches('.').split('.').next() {
        None | Some("") => "file".to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// Refuses rows without a column that a query could read; the warnings are about those left out.
fn check_columns(name: &str, source: &ExternalRows, warnings: &[Diagnostic]) -> Result<()> {
    if !source.schema().columns.is_empty() {
        return Ok(());
    }
    let left_out = warnings.iter().take(SHOWN_COLUMNS_MAX).map(|warning| {
        let detail = warning.detail.as_deref().unwrap_or_default();
        format!("{}: {detail}", warning.message)
    });
    let detail = left_out.collect::<Vec<_>>().join(" ");
    let detail = if detail.is_empty() { "The source has no columns.".to_owned() } else { detail };
    Diagnostic::new(code::DATATYPE_MISMATCH, format!("`{name}` has no readable column"))
        .with_kind(Kind::FixData)
        .with_detail(detail)
        .with_hint("Convert a column to a numeric, string, Boolean, date or timestamp type.")
        .err()
}

/// Finds files, or those of a lake table, and their columns.
fn open(session: &Session, files: &FileTable) -> Result<(ExternalRows, Vec<Diagnostic>)> {
    let settings = session.settings();
    let Some(version) = options::lake_version(files)? else {
        let options = options::read(files, settings)?;
        let paths: Vec<String> = files.paths.iter().map(|path| path.text.clone()).collect();
        return ExternalRows::of_files(&paths, options, settings);
    };
    let table = &files.paths[0];
    let permit = |path: &str| {
        let needed = NeededFile { path: path.to_owned(), span: table.span };
        session.permit_files(std::iter::once(needed))
    };
    ExternalRows::of_lake(&table.text, version, settings, &permit)
}

fn table_of(source: ExternalRows, database: String, name: String) -> Arc<CatalogTable> {
    static NEXT: AtomicU64 = AtomicU64::new(FIRST_ID);
    Arc::new(CatalogTable {
        // Relaxed: only the number has to be new.
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        database,
        name,
        schema: Arc::clone(source.schema()),
        arrow_schema: Arc::clone(source.arrow_schema()),
        source: Some(Arc::new(source)),
    })
}

/// Makes the error for a statement that needs stored rows and names others.
pub(crate) fn not_stored(name: &str) -> Diagnostic {
    let message = format!("`{name}` is not a stored table");
    Diagnostic::unsupported(&message)
        .with_detail("Deployments, requests and VERIFY read stored tables.")
        .with_hint("Create a table from the files with CREATE TABLE … LIKE PARQUET and LOAD DATA.")
}
