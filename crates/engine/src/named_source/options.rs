//! The functions that read files in FROM, and their options.

use lockstep_batch::{
    FileSourceOptions,
    load::{ColumnMatch, FileFormat, LoadOptions, UnknownColumns},
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::Settings;
use lockstep_sql::ast::FileTable;

use crate::options::{OptionSpec, OptionTable, UnknownOption};

/// The functions, and the formats that they read.
const FUNCTIONS: &[(&str, FileFormat)] = &[
    ("read_csv", FileFormat::Csv),
    ("read_parquet", FileFormat::Parquet),
    ("read_json", FileFormat::Json),
    ("read_arrow", FileFormat::Arrow),
];

const OPTIONS: OptionTable<'_, FileSourceOptions> = OptionTable {
    specs: SPECS,
    unknown: UnknownOption::Error,
    error_code: code::INVALID_PARAMETER,
};

const SPECS: &[OptionSpec<FileSourceOptions>] = &[
    OptionSpec {
        name: "delimiter",
        set: |options, argument| {
            let csv = &mut options.load.csv;
            csv.delimiter = argument.character()?.unwrap_or(csv.delimiter);
            Ok(())
        },
    },
    OptionSpec {
        name: "header",
        set: |options, argument| {
            options.load.csv.header = argument.boolean()?;
            Ok(())
        },
    },
    OptionSpec {
        name: "null_value",
        set: |options, argument| {
            options.load.csv.null_value = argument.string()?;
            Ok(())
        },
    },
    OptionSpec {
        name: "quote",
        set: |options, argument| {
            options.load.csv.quote = argument.character()?;
            Ok(())
        },
    },
    OptionSpec {
        name: "union_by_name",
        set: |options, argument| {
            options.union_by_name = argument.boolean()?;
            Ok(())
        },
    },
];

/// Reads which format the files have, and the options of reading them.
pub(super) fn read(files: &FileTable, _: Settings) -> Result<FileSourceOptions> {
    let format = format_of(files)?;
    let mut options = FileSourceOptions {
        load: LoadOptions {
            format,
            columns: ColumnMatch::Name,
            unknown_columns: UnknownColumns::Ignore,
            ..LoadOptions::default()
        },
        union_by_name: false,
    };
    options.load.csv.delimiter = FileFormat::delimiter_of_path(&files.paths[0].text);
    OPTIONS.read(&files.options, &mut options)?;
    Ok(options)
}

fn format_of(files: &FileTable) -> Result<FileFormat> {
    let Some(function) = &files.function else {
        let path = &files.paths[0];
        return FileFormat::of_path(&path.text).ok_or_else(|| {
            let message = format!("the name `{}` does not say the format of the file", path.text);
            let diagnostic = Diagnostic::new(code::INVALID_PARAMETER, message).at(path.span);
            Box::new(diagnostic.with_hint(
                "Write read_csv('…'), read_parquet('…'), read_json('…') or read_arrow('…').",
            ))
        });
    };
    let known = FUNCTIONS.iter().find(|(name, _)| *name == function.text);
    known.map(|(_, format)| *format).ok_or_else(|| {
        let message = format!("function `{}` reads no files", function.text);
        let names = FUNCTIONS.iter().map(|(name, _)| *name);
        let diagnostic = Diagnostic::new(code::UNDEFINED_FUNCTION, message).at(function.span);
        Box::new(diagnostic.with_nearest(&function.text, names))
    })
}
