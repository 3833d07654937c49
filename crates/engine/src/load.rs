//! Files in: LOAD DATA and CREATE TABLE … LIKE, and the values of options that OUTFILE has too.

use std::{collections::VecDeque, path::Path};

use arrow::array::RecordBatch;
use lockstep_batch::load::{
    ColumnMatch, FileFormat, FileRows, LoadOptions, OnError, UnknownColumns, infer_schema,
    read_file,
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, Settings};
use lockstep_host::QueryContext;
use lockstep_row::{TableSchema, arrow::arrow_schema};
use lockstep_sql::ast::{CreateLike, Literal, LoadData, OptionItem, OptionValue};
use lockstep_table::Table;

use crate::{
    Output, Session,
    append::{self, Rows},
    catalog::TableEntry,
    context::checkpoint,
    offline_data::{self, LoadMode},
    settings::Storage,
    table_options::ignored,
};

/// Options of LOAD DATA and INTO OUTFILE.
pub(crate) const OPTIONS: &[&str] = &[
    "format",
    "delimiter",
    "header",
    "null_value",
    "quote",
    "mode",
    "on_error",
    "deep_copy",
    "load_mode",
    "thread",
    "writer_type",
    "put_if_absent",
    "sql",
    "coalesce",
    "match_by",
    "unknown_columns",
];

/// Most threads of a load.
const THREADS_MAX: i32 = 50;

/// What the options of LOAD DATA say.
struct Load {
    files: LoadOptions,
    mode: Option<LoadMode>,
    is_deep_copy: bool,
    is_local: bool,
    rows: Rows,
    /// A query over the file, which it names `file`.
    query: Option<OptionItem>,
    warnings: Vec<Diagnostic>,
}

impl Session {
    /// Runs LOAD DATA as a job: all rows or none, unless `on_error = 'skip'`.
    pub(crate) fn load_data(&self, load: &LoadData, sql: &str) -> Result<Output> {
        let entry = self.find_entry(&load.table)?;
        let storage = self.storage();
        let kind = match storage {
            Storage::Online => "ImportOnlineStorage",
            Storage::Offline => "ImportOfflineStorage",
        };
        self.as_job(kind, sql, || {
            let options = read_options(load, self.settings())?;
            match storage {
                Storage::Online => entry.write(|table| self.load_online(load, options, table)),
                Storage::Offline => entry.write(|_| self.load_offline(load, options, &entry)),
            }
        })
    }

    fn load_online(&self, load: &LoadData, options: Load, table: &Table) -> Result<Output> {
        if !matches!(options.mode, None | Some(LoadMode::Append)) {
            return refuse(load, "mode", "Rows are added to an online table: it is 'append'.");
        }
        if !options.is_deep_copy {
            return refuse(load, "deep_copy", "Only offline data can stay in its files.");
        }
        let mut source = self.source(load, &options, &table.schema())?;
        let appended = append::load(&mut source, table, options.rows, self.conversion())?;
        let mut warnings = source.warnings();
        warnings.extend(append::expired(appended));
        Ok(loaded(appended.rows, options.warnings, warnings))
    }

    fn load_offline(&self, load: &LoadData, options: Load, entry: &TableEntry) -> Result<Output> {
        if options.is_local {
            return refuse(load, "load_mode", "A local load is for online tables.");
        }
        let mode = options.mode.unwrap_or(LoadMode::ErrorIfExists);
        let schema = entry.table.schema();
        if !options.is_deep_copy {
            if options.query.is_some() {
                return refuse(load, "sql", "Data that stays in its files is taken as it is.");
            }
            let warnings = self.check_link(load, &options.files, &schema)?;
            entry.offline.write().link(&load.path, &options.files, mode, load.path_span)?;
            return Ok(loaded(0, options.warnings, warnings));
        }
        // Nobody who looks at the table waits while the file is read.
        let held = entry.offline.read().rows_for(mode, load.path_span)?;
        let mut source = self.source(load, &options, &schema)?;
        let rows = match held {
            Some(held) => held,
            None => offline_data::empty(&self.database, &schema)?,
        };
        let appended = append::load(&mut source, &rows, Rows::Any, self.conversion())?;
        entry.offline.write().take(rows, (mode, load.path_span))?;
        Ok(loaded(appended.rows, options.warnings, source.warnings()))
    }

    /// What there is to say of the columns of a file that is read later. A file that is not there
    /// yet is looked at when it is read.
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

    /// What is to be loaded: the file's rows, or those of the query over them. For a query, the
    /// types of the file's columns are found by looking at them.
    fn source(&self, load: &LoadData, options: &Load, schema: &TableSchema) -> Result<Source> {
        let settings = self.settings();
        let Some(item) = &options.query else {
            return Source::open(load, &options.files, schema, settings);
        };
        // The query names the columns that it wants: the file is read with its own.
        let files = LoadOptions { columns: ColumnMatch::Position, ..options.files.clone() };
        let schema = infer_schema(&load.path, &files, &settings)
            .map_err(|error| Box::new(error.at(load.path_span)))?;
        let mut file = Source::open(load, &files, &schema, settings)?;
        let scratch = self.scratch();
        scratch.execute("SET @@execute_mode = 'online'")?;
        scratch.create_table("file", &arrow_schema(&schema))?;
        let batches = (&mut file).collect::<Result<Vec<_>>>()?;
        QueryContext::scratch().run(|| scratch.append("file", &batches))?;
        let sql = text(item)?;
        let run = scratch.query(&sql).and_then(|relation| relation.collect(None));
        // Positions within the query mean nothing in this statement.
        let output =
            run.map_err(|error| Box::new(Diagnostic { span: None, ..*error }.at(item.span)))?;
        Ok(Source { selected: Some(output.batches.into()), ..file })
    }
}

/// The rows of a load, batch by batch.
struct Source {
    rows: FileRows,
    path_span: Span,
    /// What a query over the file gave, when there is one.
    selected: Option<VecDeque<RecordBatch>>,
}

impl Source {
    fn open(
        load: &LoadData,
        files: &LoadOptions,
        schema: &TableSchema,
        settings: Settings,
    ) -> Result<Self> {
        let path_span = load.path_span;
        let rows = read_file(&load.path, files, schema, &settings);
        let rows = rows.map_err(|error| Box::new(error.at(path_span)))?;
        Ok(Self { rows, path_span, selected: None })
    }

    /// What there is to say of the files, and what was left out of what was read so far.
    fn warnings(&self) -> Vec<Diagnostic> {
        let mut warnings: Vec<Diagnostic> = self.rows.warnings().collect();
        if self.rows.skipped_count() > 0 {
            let first = self.rows.first_skipped().map(ToString::to_string).unwrap_or_default();
            let message = format!("{} malformed rows were skipped", self.rows.skipped_count());
            let skipped = Diagnostic::new(code::BAD_COPY_FORMAT, message);
            warnings.push(skipped.with_detail(format!("The first: {first}.")));
        }
        warnings
    }
}

impl Iterator for Source {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(selected) = &mut self.selected {
            return selected.pop_front().map(Ok);
        }
        if let Err(interrupted) = checkpoint() {
            return Some(Err(interrupted));
        }
        let batch = self.rows.next()?;
        Some(batch.map_err(|error| Box::new(error.at(self.path_span))))
    }
}

/// The option values of LOAD DATA, each checked.
fn read_options(load: &LoadData, settings: Settings) -> Result<Load> {
    let columns = match settings.compatibility {
        Compatibility::Standard => ColumnMatch::Name,
        Compatibility::OpenMldb => ColumnMatch::OpenMldb,
    };
    let of_path = format_of(&load.path);
    let mut found = Load {
        files: LoadOptions { format: of_path, columns, ..LoadOptions::default() },
        mode: None,
        is_deep_copy: true,
        is_local: false,
        rows: Rows::Timed,
        query: None,
        warnings: Vec::new(),
    };
    for item in &load.options {
        let csv = &mut found.files.csv;
        match item.key.text.as_str() {
            "format" => found.files.format = format(item)?,
            "delimiter" => csv.delimiter = character(item)?.unwrap_or(csv.delimiter),
            "header" => csv.header = boolean(item)?,
            "null_value" => csv.null_value = text(item)?,
            "quote" => csv.quote = character(item)?,
            "on_error" => {
                csv.on_error = match one_of(item, &["fail", "skip"])? {
                    0 => OnError::Fail,
                    _ => OnError::Skip,
                }
            }
            "mode" => match LoadMode::from_name(&text(item)?) {
                Some(mode) => found.mode = Some(mode),
                None => return wrong(item, "It is error_if_exists, overwrite or append."),
            },
            "deep_copy" => found.is_deep_copy = boolean(item)?,
            "load_mode" => found.is_local = one_of(item, &["cluster", "local"])? == 1,
            "thread" => match &item.value {
                OptionValue::Literal(Literal::Int(1)) => {}
                OptionValue::Literal(Literal::Int(count)) if (1..=THREADS_MAX).contains(count) => {
                    found.warnings.push(without_effect(item));
                }
                _ => return wrong(item, "It is a number from 1 to 50."),
            },
            "writer_type" if one_of(item, &["single", "batch"])? == 0 => {}
            "writer_type" => found.warnings.push(without_effect(item)),
            "put_if_absent" if boolean(item)? => found.rows = Rows::Absent,
            "put_if_absent" => {}
            "match_by" => {
                found.files.columns = match one_of(item, &["name", "position"])? {
                    0 => ColumnMatch::Name,
                    _ => ColumnMatch::Position,
                }
            }
            "unknown_columns" => {
                found.files.unknown_columns = match one_of(item, &["fail", "ignore"])? {
                    0 => UnknownColumns::Fail,
                    _ => UnknownColumns::Ignore,
                }
            }
            "sql" if text(item)?.is_empty() => {}
            "sql" => found.query = Some(item.clone()),
            _ => found.warnings.push(ignored(item, OPTIONS)),
        }
    }
    Ok(found)
}

/// The warning for an option that is understood and changes nothing here.
fn without_effect(item: &OptionItem) -> Diagnostic {
    let message = format!("option `{}` has no effect: one thread reads the file", item.key.text);
    Diagnostic::new(code::INVALID_PARAMETER, message).at(item.span)
}

fn loaded(count: u64, mut warnings: Vec<Diagnostic>, more: Vec<Diagnostic>) -> Output {
    warnings.extend(more);
    Output {
        rows_affected: Some(count),
        message: Some("LOAD DATA".to_owned()),
        warnings,
        ..Output::default()
    }
}

/// An option that does not go with where the rows go.
fn refuse<T>(load: &LoadData, option: &str, hint: &str) -> Result<T> {
    let item = load.options.iter().find(|item| item.key.text == option);
    wrong(item.expect("the option was read"), hint)
}

/// The columns of a file.
pub(crate) fn schema_of(like: &CreateLike, settings: Settings) -> Result<TableSchema> {
    let Some(format) = FileFormat::from_name(&like.format) else {
        return Diagnostic::unsupported(format!("LIKE {} is not supported", like.format))
            .at(like.span)
            .with_hint("LIKE PARQUET 'path' takes the columns of a Parquet file.")
            .err();
    };
    let options = LoadOptions { format, ..LoadOptions::default() };
    infer_schema(&like.path, &options, &settings).map_err(|error| Box::new(error.at(like.span)))
}

/// The format that a path's extension names; CSV for every other.
pub(crate) fn format_of(path: &str) -> FileFormat {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    extension.and_then(FileFormat::from_name).unwrap_or_default()
}

pub(crate) fn format(item: &OptionItem) -> Result<FileFormat> {
    match FileFormat::from_name(&text(item)?) {
        Some(format) => Ok(format),
        None => wrong(item, "It is csv or parquet."),
    }
}

pub(crate) fn text(item: &OptionItem) -> Result<String> {
    match &item.value {
        OptionValue::Literal(Literal::String(text)) | OptionValue::Word(text) => Ok(text.clone()),
        _ => wrong(item, "It is a text."),
    }
}

/// Which of some words it is, in any case.
fn one_of(item: &OptionItem, words: &[&str]) -> Result<usize> {
    let text = text(item)?.to_ascii_lowercase();
    match words.iter().position(|word| *word == text) {
        Some(at) => Ok(at),
        None => wrong(item, &format!("It is one of {}.", words.join(", "))),
    }
}

pub(crate) fn boolean(item: &OptionItem) -> Result<bool> {
    match &item.value {
        OptionValue::Literal(Literal::Bool(value)) => Ok(*value),
        _ => wrong(item, "It is true or false."),
    }
}

/// One byte; the empty text is none.
pub(crate) fn character(item: &OptionItem) -> Result<Option<u8>> {
    match text(item)?.as_bytes() {
        [] => Ok(None),
        [byte] => Ok(Some(*byte)),
        _ => wrong(item, "It is one character."),
    }
}

pub(crate) fn wrong<T>(item: &OptionItem, hint: &str) -> Result<T> {
    let message = format!("option `{}` cannot have this value", item.key.text);
    Diagnostic::new(code::INVALID_PARAMETER, message).at(item.span).with_hint(hint).err()
}
