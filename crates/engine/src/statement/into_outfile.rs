//! SELECT … INTO OUTFILE: writes the rows of a query to a file, or to a folder of files.
//!
//! The options are read before the query runs, so that a wrong one costs nothing.

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use lockstep_batch::{
    export::{
        ExportFormat, ExportOptions, Exporter, FolderExporter, Quote, WriteMode, export_folder,
    },
    load::FileFormat,
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, Settings, scalar::feature_role::FeatureRole};
use lockstep_host::disk;
use lockstep_row::{DataType, Value};
use lockstep_sql::ast::{Ident, IntoOutfile, Literal, OptionItem, OptionValue};

use crate::{
    Output, Relation,
    options::{OptionSpec, OptionTable, UnknownOption},
    output::schema_of,
    variables::Storage,
};

/// The most files of a folder.
const PARTS_MAX: i32 = 10_000;

/// The file or folder that the rows of a query are written to, and how.
pub(super) struct Outfile<'a> {
    written: &'a IntoOutfile,
    options: OutfileOptions,
    is_folder: bool,
    warnings: Vec<Diagnostic>,
}

/// The values of the options.
struct OutfileOptions {
    export: ExportOptions,
    /// The number of files in the folder.
    parts: usize,
    /// The names of the columns whose values are folders, outermost first.
    partition_by: Vec<String>,
}

const OPTIONS: OptionTable<'_, OutfileOptions> = OptionTable {
    specs: SPECS,
    unknown: UnknownOption::Warning,
    error_code: code::INVALID_PARAMETER,
};

const SPECS: &[OptionSpec<OutfileOptions>] = &[
    OptionSpec {
        name: "format",
        set: |options, argument| {
            options.export.format = match ExportFormat::from_name(&argument.string()?) {
                Some(format) => format,
                None => {
                    let expected = "must be csv, parquet, json, arrow, libsvm or tfrecord";
                    return argument.invalid(expected);
                }
            };
            Ok(())
        },
    },
    OptionSpec {
        name: "delimiter",
        set: |options, argument| {
            let delimiter = argument.character()?.unwrap_or(options.export.delimiter);
            options.export.delimiter = delimiter;
            Ok(())
        },
    },
    OptionSpec {
        name: "header",
        set: |options, argument| {
            options.export.header = Some(argument.boolean()?);
            Ok(())
        },
    },
    OptionSpec {
        name: "null_value",
        set: |options, argument| {
            options.export.null_value = argument.string()?;
            Ok(())
        },
    },
    OptionSpec {
        name: "quote",
        set: |options, argument| {
            options.export.quote = argument.character()?.map_or(Quote::Never, Quote::Texts);
            Ok(())
        },
    },
    OptionSpec {
        name: "mode",
        set: |options, argument| {
            options.export.mode = match WriteMode::from_name(&argument.string()?) {
                Some(mode) => mode,
                None => return argument.invalid("must be error_if_exists, overwrite or append"),
            };
            Ok(())
        },
    },
    OptionSpec {
        name: "partition_by",
        set: |options, argument| {
            let names = argument.string()?;
            options.partition_by = names.split(',').map(|name| name.trim().to_owned()).collect();
            let is_wrong = |(at, name): (usize, &String)| {
                name.is_empty() || options.partition_by[..at].contains(name)
            };
            match options.partition_by.iter().enumerate().any(is_wrong) {
                true => argument.invalid("must be a comma-separated list of distinct column names"),
                false => Ok(()),
            }
        },
    },
    OptionSpec {
        name: "coalesce",
        set: |options, argument| {
            let expected = format!("must be a number of files from 0 to {PARTS_MAX}");
            let count = argument.integer(0..=PARTS_MAX, &expected)?;
            options.parts = usize::try_from(count).unwrap_or(1).max(1);
            Ok(())
        },
    },
];

impl<'a> Outfile<'a> {
    /// Reads the options, and checks that the path is free.
    pub(super) fn new(
        written: &'a IntoOutfile,
        settings: Settings,
        storage: Storage,
    ) -> Result<Self> {
        let path = path_of(written);
        let as_openmldb =
            settings.compatibility == Compatibility::OpenMldb && storage == Storage::Offline;
        let format = ExportFormat::of_path(&written.path);
        let delimiter = FileFormat::delimiter_of_path(&written.path);
        // OpenMLDB writes a word, and an empty text as nothing.
        let null_value = match settings.compatibility {
            Compatibility::Standard => String::new(),
            Compatibility::OpenMldb => "null".to_owned(),
        };
        let export =
            ExportOptions { format, delimiter, null_value, settings, ..ExportOptions::default() };
        let mut options = OutfileOptions { export, parts: 1, partition_by: Vec::new() };
        let mut warnings = OPTIONS.read(&written.options, &mut options)?;
        let is_folder = as_openmldb
            || disk::is_folder(&path)
            || written.path.ends_with('/')
            || !options.partition_by.is_empty();
        if options.parts > 1 && !options.partition_by.is_empty() {
            let message = "partition_by and coalesce cannot be used together";
            return Diagnostic::new(code::INVALID_PARAMETER, message)
                .with_hint("Omit coalesce: each directory contains one file.")
                .at(written.span)
                .err();
        }
        if options.parts > 1 && !is_folder {
            let message = "option `coalesce` has no effect: one file is written";
            let warning = Diagnostic::new(code::INVALID_PARAMETER, message).at(written.span);
            let hint = "End the path with `/` to write a directory of that many files.";
            warnings.push(warning.with_hint(hint));
        }
        if options.export.mode == WriteMode::ErrorIfExists && !is_folder && disk::exists(&path) {
            return Diagnostic::new(
                code::DUPLICATE_FILE,
                format!("file `{}` already exists", path.display()),
            )
            .at(written.span)
            .with_hint("Use `mode = 'overwrite'` or `mode = 'append'`.")
            .err();
        }
        let outfile = Self { written, options, is_folder, warnings };
        if storage == Storage::Offline {
            outfile.create_parent(&path)?;
        }
        Ok(outfile)
    }

    /// Creates the folder that the file is written into. Only an offline export does so: it names
    /// a folder of its own, not a file beside others.
    fn create_parent(&self, path: &Path) -> Result<()> {
        let Some(folder) = path.parent() else { return Ok(()) };
        disk::create_folders(folder).map_err(|error| {
            let message = format!("could not create directory `{}`: {error}", folder.display());
            Box::new(Diagnostic::new(code::INVALID_PARAMETER, message).at(self.written.span))
        })
    }

    /// Returns the positions of the columns whose values are folders.
    fn partition_columns(&self, columns: &[(String, DataType)]) -> Result<Vec<usize>> {
        let position = |wanted: &String| {
            let Some(found) = columns.iter().position(|(name, _)| name == wanted) else {
                let message =
                    format!("partition_by: column `{wanted}` does not exist in the query");
                let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message);
                let names = columns.iter().map(|(name, _)| name.as_str());
                return diagnostic.at(self.written.span).with_nearest(wanted, names).err();
            };
            let data_type = &columns[found].1;
            if matches!(data_type, DataType::Array(_) | DataType::Map(..)) {
                let message =
                    format!("partition_by: column `{wanted}` cannot be of type {data_type}");
                return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                    .with_hint("Partition by a number, a string, a DATE or a TIMESTAMP.")
                    .at(self.written.span)
                    .err();
            }
            Ok(found)
        };
        self.options.partition_by.iter().map(position).collect()
    }

    /// Refuses a file whose columns are found by their names and have one twice: it could not be read
    /// back. OpenMLDB writes such CSV.
    fn check_names(&self, names: &[String]) -> Result<()> {
        let options = &self.options.export;
        let has_names = match options.format {
            ExportFormat::Libsvm => false,
            ExportFormat::Table(FileFormat::Csv) => {
                options.header != Some(false)
                    && options.settings.compatibility == Compatibility::Standard
            }
            _ => true,
        };
        let is_second = |(at, name): &(usize, &String)| names[..*at].contains(*name);
        let Some((_, name)) = names.iter().enumerate().find(is_second).filter(|_| has_names) else {
            return Ok(());
        };
        let message = format!("the file would have more than one column named `{name}`");
        Diagnostic::new(code::DUPLICATE_COLUMN, message)
            .with_hint("Rename one of the columns with AS.")
            .at(self.written.span)
            .err()
    }

    /// Runs the query and writes its rows while they are computed; those of several parts afterwards.
    pub(super) fn write(self, relation: &Relation) -> Result<Output> {
        let columns = (relation.columns(), relation.roles());
        self.write_rows(columns, &mut |write| relation.run_each(None, write))
    }

    /// Writes the rows that `produce` passes on.
    fn write_rows(
        mut self,
        (columns, roles): WrittenColumns<'_>,
        produce: RowProducer<'_>,
    ) -> Result<Output> {
        debug_assert!(self.options.parts >= 1, "a directory has at least one file");
        let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
        self.check_names(&names)?;
        let schema = schema_of(columns);
        self.options.export.roles = roles;
        let (path, options) = (&self.written.path, &self.options.export);
        let at_path = |error: Box<Diagnostic>| Box::new(error.at(self.written.span));
        let mut warnings = self.warnings.clone();
        let count = if self.is_folder && self.options.parts == 1 {
            let partition_by = self.partition_columns(columns)?;
            let exporter = FolderExporter::new(path, &names, &schema, options, &partition_by);
            let mut exporter = exporter.map_err(at_path)?;
            warnings.extend(produce(&mut |batch| exporter.write(&batch).map_err(at_path))?);
            exporter.finish()
        } else if self.is_folder {
            let mut batches = Vec::new();
            warnings.extend(produce(&mut |batch| {
                batches.push(batch);
                Ok(())
            })?);
            export_folder(path, &names, &schema, &batches, options, self.options.parts)
        } else {
            let mut exporter = Exporter::new(path, &names, &schema, options).map_err(at_path)?;
            warnings.extend(produce(&mut |batch| exporter.write(&batch).map_err(at_path))?);
            exporter.finish()
        };
        Ok(Output {
            rows_affected: Some(count.map_err(at_path)?),
            warnings,
            ..Output::of_message("INTO OUTFILE")
        })
    }
}

impl Relation {
    /// Runs the query and writes its rows to a file or a folder, as INTO OUTFILE with these options
    /// does, while they are computed. An option is a text, a number or a truth value. Returns the number
    /// of rows, and the warnings.
    ///
    /// ```
    /// use lockstep_engine::Database;
    /// use lockstep_row::Value;
    ///
    /// let session = Database::in_memory().session();
    /// # let folder = std::env::temp_dir().join(format!("lockstep-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// # let path = folder.join("ones.csv").display().to_string();
    /// let written = session.query("SELECT 1 AS one")?.write(&path, &[("header".to_owned(), Value::Bool(false))])?;
    /// assert_eq!(written.rows_affected, Some(1));
    /// # assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn write(&self, path: &str, options: &[(String, Value)]) -> Result<Output> {
        let (columns, roles, settings) = (self.columns(), self.roles(), self.settings());
        let rows = PassedRows { columns, roles, settings };
        rows.write(path, options, &mut |write| self.run_each(None, write))
    }
}

impl Output {
    /// Writes the rows to a file or a folder, as [`Relation::write`] does.
    pub fn write(&self, path: &str, options: &[(String, Value)]) -> Result<Self> {
        let (roles, settings) = (self.roles.clone(), self.settings);
        let rows = PassedRows { columns: &self.columns, roles, settings };
        rows.write(path, options, &mut |write| {
            self.batches.iter().cloned().try_for_each(write)?;
            Ok(Vec::new())
        })
    }
}

/// Rows that somebody passes on batch by batch, such as those that a server sends.
#[derive(Debug, Clone)]
pub struct PassedRows<'c> {
    /// The names and types of the columns.
    pub columns: &'c [(String, DataType)],
    /// What each column is to a model; empty for none.
    pub roles: Vec<Option<FeatureRole>>,
    /// The settings by which values are printed.
    pub settings: Settings,
}

/// A function that passes the batches of a result to another one, and returns the warnings.
type RowProducer<'p> =
    &'p mut dyn FnMut(&mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<Vec<Diagnostic>>;

/// The names and types of the columns, and what each is to a model.
type WrittenColumns<'c> = (&'c [(String, DataType)], Vec<Option<FeatureRole>>);

impl PassedRows<'_> {
    /// Writes the rows to a file or a folder, as [`Relation::write`] does, while `produce` passes them on;
    /// it returns the warnings.
    pub fn write(
        self,
        path: &str,
        options: &[(String, Value)],
        produce: RowProducer<'_>,
    ) -> Result<Output> {
        let nowhere = Span::new(0, 0);
        let option = |(key, value): &(String, Value)| {
            let literal = match value {
                Value::Bool(value) => Literal::Bool(*value),
                Value::Int(value) => Literal::Int(*value),
                Value::String(text) => Literal::String(text.to_string()),
                _ => return Diagnostic::internal(format!("`{key}` is of another type")).err(),
            };
            let key = Ident { text: key.clone(), span: nowhere };
            Ok(OptionItem { key, value: OptionValue::Literal(literal), span: nowhere })
        };
        let options = options.iter().map(option).collect::<Result<_>>()?;
        let written = IntoOutfile { path: path.to_owned(), span: nowhere, options };
        let outfile = Outfile::new(&written, self.settings, Storage::Online);
        let columns = (self.columns, self.roles);
        let done = outfile.and_then(|outfile| outfile.write_rows(columns, produce));
        // There is no text that a position would be in.
        done.map_err(|error| Box::new(Diagnostic { span: None, ..*error }))
    }
}

fn path_of(written: &IntoOutfile) -> PathBuf {
    PathBuf::from(written.path.strip_prefix("file://").unwrap_or(&written.path))
}
