//! The functions that read files in FROM, and their options.

use lockstep_batch::{
    FileSourceOptions,
    load::{ColumnMatch, FileFormat, LakeVersion, LoadOptions, UnknownColumns},
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::Settings;
use lockstep_sql::ast::{FileTable, Literal, OptionValue};

use crate::options::{OptionSpec, OptionTable, UnknownOption};

/// The functions, and the formats that they read.
const FUNCTIONS: &[(&str, FileFormat)] = &[
    ("read_csv", FileFormat::Csv),
    ("read_parquet", FileFormat::Parquet),
    ("read_json", FileFormat::Json),
    ("read_arrow", FileFormat::Arrow),
];

/// The function that reads Delta tables, and that which reads Iceberg tables.
const READ_DELTA: &str = "read_delta";
const READ_ICEBERG: &str = "read_iceberg";

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

const DELTA_OPTIONS: OptionTable<'_, Option<u64>> = OptionTable {
    specs: &[OptionSpec {
        name: "version",
        set: |version, argument| {
            *version = match number(argument.value()).map(u64::try_from) {
                Some(Ok(given)) => Some(given),
                _ => return argument.invalid("must be the number of a version, an integer from 0"),
            };
            Ok(())
        },
    }],
    unknown: UnknownOption::Error,
    error_code: code::INVALID_PARAMETER,
};

const ICEBERG_OPTIONS: OptionTable<'_, Option<i64>> = OptionTable {
    specs: &[OptionSpec {
        name: "snapshot",
        set: |snapshot, argument| {
            *snapshot = match number(argument.value()) {
                Some(given) => Some(given),
                None => return argument.invalid("must be the id of a snapshot, an integer"),
            };
            Ok(())
        },
    }],
    unknown: UnknownOption::Error,
    error_code: code::INVALID_PARAMETER,
};

fn number(value: &OptionValue) -> Option<i64> {
    match value {
        OptionValue::Literal(Literal::Int(value)) => Some(i64::from(*value)),
        OptionValue::Literal(Literal::BigInt(value)) => Some(*value),
        _ => None,
    }
}

/// Reads which state of a lake table is named; `None` where the function reads files.
pub(super) fn lake_version(files: &FileTable) -> Result<Option<LakeVersion>> {
    let Some(function) = &files.function else { return Ok(None) };
    let version = match function.text.as_str() {
        READ_DELTA => {
            let mut version = None;
            DELTA_OPTIONS.read(&files.options, &mut version)?;
            LakeVersion::Delta(version)
        }
        READ_ICEBERG => {
            let mut snapshot = None;
            ICEBERG_OPTIONS.read(&files.options, &mut snapshot)?;
            LakeVersion::Iceberg(snapshot)
        }
        _ => return Ok(None),
    };
    match files.paths.get(1) {
        None => Ok(Some(version)),
        Some(second) => {
            let message = format!("{} requires exactly one path", function.text);
            Diagnostic::new(code::INVALID_PARAMETER, message)
                .at(second.span)
                .with_hint("Combine several tables with UNION ALL.")
                .err()
        }
    }
}

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
            let message =
                format!("cannot determine the format of file `{}` from its name", path.text);
            let diagnostic = Diagnostic::new(code::INVALID_PARAMETER, message).at(path.span);
            Box::new(diagnostic.with_hint(
                "Use read_csv('…'), read_parquet('…'), read_json('…') or read_arrow('…').",
            ))
        });
    };
    let known = FUNCTIONS.iter().find(|(name, _)| *name == function.text);
    known.map(|(_, format)| *format).ok_or_else(|| {
        let message = format!("function `{}` does not read files", function.text);
        let names = FUNCTIONS.iter().map(|(name, _)| *name).chain([READ_DELTA, READ_ICEBERG]);
        let diagnostic = Diagnostic::new(code::UNDEFINED_FUNCTION, message).at(function.span);
        Box::new(diagnostic.with_nearest(&function.text, names))
    })
}
