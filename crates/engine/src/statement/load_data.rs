//! LOAD DATA: rows of files into a table, or into its offline data.
//!
//! The statement runs as a job that SHOW JOBS lists. In online mode the rows become visible
//! together; in offline mode they are copied, or the file is linked and read by each query.

mod options;
mod source;

use arrow::array::RecordBatch;
use lockstep_batch::load::{ColumnMatch, LoadOptions, infer_schema, read_file};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::query;
use lockstep_row::{TableSchema, arrow::arrow_schema};
use lockstep_sql::ast::LoadData;
use lockstep_table::Table;

use self::{
    options::{LoadDataOptions, conflict},
    source::LoadSource,
};
use crate::{
    Output, Session,
    append::{self, AppendRule},
    catalog::TableEntry,
    offline_data::{self, LoadMode, OfflineChange},
    variables::Storage,
};

/// The name of the file's rows in the query of the option `sql`.
const FILE: &str = "file";

impl Session {
    /// Runs LOAD DATA as a job: all rows or none, unless `on_error = 'skip'`.
    pub(crate) fn load_data(&self, load: &LoadData, sql: &str) -> Result<Output> {
        let entry = self.find_entry(&load.table)?;
        let storage = self.storage();
        let kind = match storage {
            Storage::Online => "ImportOnlineStorage",
            Storage::Offline => "ImportOfflineStorage",
        };
        self.run_job(kind, sql, || {
            let (options, warnings) = options::read(load, self.settings())?;
            let output = match storage {
                Storage::Online => entry.write(|table| self.load_online(load, &options, table)),
                Storage::Offline => entry.write(|_| self.load_offline(load, &options, &entry)),
            }?;
            Ok(Output { warnings: [warnings, output.warnings].concat(), ..output })
        })
    }

    /// Appends the rows to the table itself.
    fn load_online(
        &self,
        load: &LoadData,
        options: &LoadDataOptions,
        table: &Table,
    ) -> Result<Output> {
        if !matches!(options.mode, None | Some(LoadMode::Append)) {
            return conflict(load, "mode", "must be 'append' for an online table");
        }
        if !options.is_deep_copy {
            return conflict(load, "deep_copy", "must be true for an online table");
        }
        let mut source = self.open_source(load, options, &table.schema())?;
        let appended = append::load(&mut source, table, options.rule, self.conversion())?;
        let mut warnings = source.warnings();
        warnings.extend(append::append_warnings(appended));
        Ok(loaded(appended.rows, warnings))
    }

    /// Copies the rows into the table's offline data, or links the files there.
    fn load_offline(
        &self,
        load: &LoadData,
        options: &LoadDataOptions,
        entry: &TableEntry,
    ) -> Result<Output> {
        if options.is_local {
            return conflict(load, "load_mode", "must be 'cluster' for offline data");
        }
        let mode = options.mode.unwrap_or(LoadMode::ErrorIfExists);
        let schema = entry.table.schema();
        if !options.is_deep_copy {
            if options.query.is_some() {
                return conflict(load, "sql", "requires deep_copy = true");
            }
            let warnings = self.check_link(load, &options.files, &schema)?;
            let (path, span) = (load.path.clone(), load.path_span);
            let change = OfflineChange::Link { path, options: options.files.clone(), mode, span };
            self.database.commit(&entry.offline_command(change))?;
            return Ok(loaded(0, warnings));
        }
        // The lock is not held while the file is read, so that queries of the table go on.
        let offline = self.find_entry(&load.table)?.offline;
        let present = offline.rows_for(mode, load.path_span)?;
        let mut source = self.open_source(load, options, &schema)?;
        let rows = match present {
            Some(present) => present,
            None => offline_data::table_of_rows(&self.database, &schema)?,
        };
        let appended = append::load(&mut source, &rows, AppendRule::Any, self.conversion())?;
        let change = OfflineChange::AddRows { rows, mode, span: load.path_span };
        self.database.commit(&entry.offline_command(change))?;
        Ok(loaded(appended.rows, source.warnings()))
    }

    /// Returns the warnings about the columns of a file that is linked. A file that does not exist
    /// yet is checked when a query reads it.
    fn check_link(
        &self,
        load: &LoadData,
        files: &LoadOptions,
        schema: &TableSchema,
    ) -> Result<Vec<Diagnostic>> {
        match read_file(&load.path, files, schema, &self.settings()) {
            Ok(rows) => rows.check().map_err(|error| Box::new(error.at(load.path_span))),
            Err(error) if error.code == code::UNDEFINED_FILE => Ok(Vec::new()),
            Err(error) => Err(Box::new(error.at(load.path_span))),
        }
    }

    /// Opens the file, or runs the query of the option `sql` over it. For a query, the types of
    /// the file's columns are inferred from their values.
    fn open_source(
        &self,
        load: &LoadData,
        options: &LoadDataOptions,
        schema: &TableSchema,
    ) -> Result<LoadSource> {
        let settings = self.settings();
        let Some(query) = &options.query else {
            return LoadSource::open(load, &options.files, schema, settings);
        };
        // The query chooses among the file's own columns, so all of them are read.
        let files = LoadOptions { columns: ColumnMatch::Position, ..options.files.clone() };
        let schema = infer_schema(&load.path, &files, &settings)
            .map_err(|error| Box::new(error.at(load.path_span)))?;
        let mut file = LoadSource::open(load, &files, &schema, settings)?;
        let rows = (arrow_schema(&schema), held(&mut file)?);
        // The text is the user's: it runs with no other rights than the statement has.
        let run = self.relation_over(&query.sql, FILE, rows);
        let run = run.and_then(|relation| relation.collect(None));
        // A position within the query is none within this statement.
        let output =
            run.map_err(|error| Box::new(Diagnostic { span: None, ..*error }.at(query.span)))?;
        Ok(file.with_selected(output.batches))
    }
}

/// Reads all rows into memory, of which the statement may have so much.
fn held(file: &mut LoadSource) -> Result<Vec<RecordBatch>> {
    let allowed = query::current().and_then(|context| context.memory_bytes());
    let (mut batches, mut bytes) = (Vec::new(), 0_u64);
    for batch in file {
        let batch = batch?;
        bytes += u64::try_from(batch.get_array_memory_size()).unwrap_or(u64::MAX);
        if let Some(allowed) = allowed.filter(|allowed| bytes > *allowed) {
            return Diagnostic::new(
                code::OUT_OF_MEMORY,
                "the file does not fit in the memory of the statement",
            )
            .with_kind(Kind::FreeResources)
            .with_detail(format!(
                "Option `sql` holds all rows of the file in memory: {bytes} of {allowed} bytes."
            ))
            .with_hint(
                "Raise memory_limit, or use INSERT INTO … SELECT … FROM the file, which needs less \
                 memory.",
            )
            .err();
        }
        batches.push(batch);
    }
    Ok(batches)
}

fn loaded(count: u64, warnings: Vec<Diagnostic>) -> Output {
    Output { rows_affected: Some(count), warnings, ..Output::of_message("LOAD DATA") }
}
