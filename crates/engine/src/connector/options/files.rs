//! The options of a source or a sink of files.

use std::sync::Arc;

use lockstep_batch::load::{ColumnMatch, CsvOptions, FileFormat, LoadOptions, UnknownColumns};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_sql::ast::{ConnectorKind, Literal, OptionValue};

use super::{NamedColumn, WrittenConnectorOptions, WrittenItems, flag, set};
use crate::options::{OptionArgument, OptionSpec, word};

/// Which files are read or written, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileOptions {
    pub(crate) path: String,
    /// The position of the option's value.
    pub(crate) path_span: Span,
    /// How files are read, and in which format they are written.
    pub(crate) load: LoadOptions,
    /// Of a source: what happens with a file that has changed.
    pub(crate) on_change: ChangeRule,
    /// Of a source: for how long a file has not changed when it is read.
    pub(crate) settle_ms: u64,
    /// Of a source: the columns that take the place of a row.
    pub(crate) columns: Vec<(FilePart, NamedColumn)>,
    /// Of a sink: how many rows a file has at most.
    pub(crate) rows_per_file: u64,
    /// Of a sink: how long after its first row a file is complete.
    pub(crate) roll_ms: u64,
    /// Of a sink: the end of the names of its files.
    pub(crate) extension: String,
}

/// What happens with a file that has changed after it was read, or while it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ChangeRule {
    #[default]
    Stop,
    Skip,
    Read,
}

/// What is known of a row beside its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilePart {
    /// The path of its file.
    File,
    /// Its number in the file.
    Row,
}

/// Options as a statement has them.
#[derive(Debug, Clone, Default)]
pub(super) struct WrittenFileOptions {
    path: Option<(String, Span)>,
    format: Option<FileFormat>,
    /// Where its value is and what it says.
    compression: Option<(TextCompression, Span)>,
    match_by: Option<ColumnMatch>,
    delimiter: Option<u8>,
    header: Option<bool>,
    null_value: Option<String>,
    quote: Option<Option<u8>>,
    on_change: ChangeRule,
    settle_ms: Option<u64>,
    columns: Vec<(FilePart, NamedColumn)>,
    rows_per_file: Option<u64>,
    roll_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextCompression {
    None,
    Gzip,
    Zstd,
}

const FORMATS: [FileFormat; 4] =
    [FileFormat::Csv, FileFormat::Json, FileFormat::Parquet, FileFormat::Arrow];

const SETTLE_MS: u64 = 1_000;
const ROWS_PER_FILE: u64 = 1_000_000;
const ROLL_MS: u64 = 60_000;

/// The options of both.
pub(super) const COMMON: &[OptionSpec<WrittenConnectorOptions>] = &[
    OptionSpec {
        name: "path",
        set: |options, argument| {
            let mut path = None;
            set(&mut path, argument)?;
            options.files.path = path.map(|path| (path, argument.item().span));
            Ok(())
        },
    },
    OptionSpec {
        name: "format",
        set: |options, argument| {
            let names = FORMATS.map(FileFormat::name);
            options.files.format = Some(FORMATS[argument.one_of(&names)?]);
            Ok(())
        },
    },
    OptionSpec {
        name: "delimiter",
        set: |options, argument| {
            options.files.delimiter = argument.character()?;
            match options.files.delimiter {
                Some(_) => Ok(()),
                None => argument.invalid("cannot be empty"),
            }
        },
    },
    OptionSpec {
        name: "header",
        set: |options, argument| {
            options.files.header = Some(flag(argument)?);
            Ok(())
        },
    },
    OptionSpec {
        name: "null_value",
        set: |options, argument| {
            options.files.null_value = Some(argument.string()?);
            Ok(())
        },
    },
];

/// The options of a source.
pub(super) const OF_SOURCE: &[OptionSpec<WrittenConnectorOptions>] = &[
    OptionSpec {
        name: "settle_after",
        set: |options, argument| {
            options.files.settle_ms = Some(argument.milliseconds()?.unsigned_abs());
            Ok(())
        },
    },
    OptionSpec {
        name: "on_change",
        set: |options, argument| {
            let rules = [ChangeRule::Stop, ChangeRule::Skip, ChangeRule::Read];
            options.files.on_change = rules[argument.one_of(&["stop", "skip", "read"])?];
            Ok(())
        },
    },
    OptionSpec {
        name: "match_by",
        set: |options, argument| {
            let choices = [ColumnMatch::Name, ColumnMatch::Position];
            options.files.match_by = Some(choices[argument.one_of(&["name", "position"])?]);
            Ok(())
        },
    },
    OptionSpec {
        name: "quote",
        set: |options, argument| {
            options.files.quote = Some(argument.character()?);
            Ok(())
        },
    },
    OptionSpec { name: "file_column", set: |o, a| add_column(o, FilePart::File, a) },
    OptionSpec { name: "row_column", set: |o, a| add_column(o, FilePart::Row, a) },
];

/// The options of a sink.
pub(super) const OF_SINK: &[OptionSpec<WrittenConnectorOptions>] = &[
    OptionSpec {
        name: "rows_per_file",
        set: |options, argument| {
            let read = match argument.value() {
                OptionValue::Literal(Literal::Int(count)) => u64::try_from(*count).ok(),
                value => word(value).and_then(|text| text.trim().parse().ok()),
            };
            options.files.rows_per_file = read.filter(|count| *count > 0);
            match options.files.rows_per_file {
                Some(_) => Ok(()),
                None => argument.invalid("must be an integer from 1"),
            }
        },
    },
    OptionSpec {
        name: "roll_after",
        set: |options, argument| {
            options.files.roll_ms = Some(argument.milliseconds()?.unsigned_abs());
            Ok(())
        },
    },
    OptionSpec {
        name: "compression",
        set: |options, argument| {
            let choices = [TextCompression::None, TextCompression::Gzip, TextCompression::Zstd];
            let chosen = choices[argument.one_of(&["none", "gzip", "zstd"])?];
            options.files.compression = Some((chosen, argument.item().span));
            Ok(())
        },
    },
];

fn add_column(
    options: &mut WrittenConnectorOptions,
    part: FilePart,
    argument: &OptionArgument<'_>,
) -> Result<()> {
    options.files.columns.push((part, NamedColumn::read(argument)?));
    Ok(())
}

impl WrittenFileOptions {
    /// Returns the options of a new source or sink; `span` is that of the statement's name.
    pub(super) fn of_new(
        self,
        kind: ConnectorKind,
        ignores_unknown: bool,
        span: Span,
        items: &WrittenItems,
    ) -> Result<Arc<FileOptions>> {
        let (path, path_span) = self.path.clone().ok_or_else(|| super::missing("path", span))?;
        let format = match (self.format, kind) {
            (Some(format), _) => format,
            (None, ConnectorKind::Sink) => FileFormat::Parquet,
            (None, ConnectorKind::Source) => {
                let of_path = FileFormat::of_path(&path);
                of_path.ok_or_else(|| Box::new(without_format(path_span)))?
            }
        };
        self.check_csv(format, items)?;
        let has_names = self.header.unwrap_or(true);
        let of_header = if has_names { ColumnMatch::Name } else { ColumnMatch::Position };
        let default = CsvOptions::default();
        // An unquoted empty field is NULL in any case; files are written so.
        let null_value = match kind {
            ConnectorKind::Source => default.null_value,
            ConnectorKind::Sink => String::new(),
        };
        let load = LoadOptions {
            format,
            csv: CsvOptions {
                delimiter: self.delimiter.unwrap_or(FileFormat::delimiter_of_path(&path)),
                header: has_names,
                null_value: self.null_value.clone().unwrap_or(null_value),
                quote: self.quote.unwrap_or(default.quote),
                on_error: default.on_error,
            },
            columns: self.match_by.unwrap_or(of_header),
            unknown_columns: match ignores_unknown {
                true => UnknownColumns::Ignore,
                false => UnknownColumns::Fail,
            },
        };
        Ok(Arc::new(FileOptions {
            extension: self.extension(format)?,
            path,
            path_span,
            load,
            on_change: self.on_change,
            settle_ms: self.settle_ms.unwrap_or(SETTLE_MS),
            columns: self.columns,
            rows_per_file: self.rows_per_file.unwrap_or(ROWS_PER_FILE),
            roll_ms: self.roll_ms.unwrap_or(ROLL_MS),
        }))
    }

    /// Fails where an option of CSV is given for another format.
    fn check_csv(&self, format: FileFormat, items: &WrittenItems) -> Result<()> {
        const OF_CSV: [&str; 5] = ["delimiter", "header", "null_value", "quote", "match_by"];
        let named = items.names().find(|name| OF_CSV.contains(name));
        let Some(name) = named.filter(|_| format != FileFormat::Csv) else { return Ok(()) };
        let message = format!("option `{name}` requires the format 'csv'");
        items.at(&[name], Diagnostic::new(code::INVALID_PARAMETER, message)).err()
    }

    /// Returns the end of the names of files that are written.
    fn extension(&self, format: FileFormat) -> Result<String> {
        let is_text = matches!(format, FileFormat::Csv | FileFormat::Json);
        let end = match self.compression {
            None | Some((TextCompression::None, _)) => "",
            Some((_, span)) if !is_text => {
                let message = "option `compression` requires the format 'csv' or 'json'";
                return Diagnostic::new(code::INVALID_PARAMETER, message).at(span).err();
            }
            Some((TextCompression::Gzip, _)) => ".gz",
            Some((TextCompression::Zstd, _)) => ".zst",
        };
        Ok(format!("{}{end}", format.name()))
    }
}

fn without_format(span: Span) -> Diagnostic {
    let message = "option `format` is required: `path` has no extension that names a format";
    Diagnostic::new(code::INVALID_PARAMETER, message)
        .at(span)
        .with_hint("Add format = 'csv', 'json', 'parquet' or 'arrow'.")
}
