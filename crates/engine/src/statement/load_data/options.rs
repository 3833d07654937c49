//! OPTIONS of LOAD DATA, and the values that those of INTO OUTFILE share with them.

use lockstep_batch::load::{ColumnMatch, FileFormat, LoadOptions, OnError, UnknownColumns};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, Settings};
use lockstep_sql::ast::LoadData;

use crate::{
    append::AppendRule,
    offline_data::LoadMode,
    options::{OptionArgument, OptionSpec, OptionTable, UnknownOption},
};

/// The most threads that a load may be given.
const THREADS_MAX: i32 = 50;

/// The values of the options.
pub(super) struct LoadDataOptions {
    /// How the files are read.
    pub(super) files: LoadOptions,
    /// What happens with data that is there already; `None` where the statement does not say.
    pub(super) mode: Option<LoadMode>,
    /// Whether rows are copied; otherwise the file is linked.
    pub(super) is_deep_copy: bool,
    pub(super) is_local: bool,
    pub(super) rule: AppendRule<'static>,
    pub(super) query: Option<LoadQuery>,
}

/// A query over the file, whose table it names `file`.
pub(super) struct LoadQuery {
    pub(super) sql: String,
    pub(super) span: Span,
}

const OPTIONS: OptionTable<'_, LoadDataOptions> = OptionTable {
    specs: SPECS,
    unknown: UnknownOption::Warning,
    error_code: code::INVALID_PARAMETER,
};

const SPECS: &[OptionSpec<LoadDataOptions>] = &[
    OptionSpec {
        name: "format",
        set: |options, argument| {
            options.files.format = file_format(argument)?;
            Ok(())
        },
    },
    OptionSpec {
        name: "delimiter",
        set: |options, argument| {
            let csv = &mut options.files.csv;
            csv.delimiter = argument.character()?.unwrap_or(csv.delimiter);
            Ok(())
        },
    },
    OptionSpec {
        name: "header",
        set: |options, argument| {
            options.files.csv.header = argument.boolean()?;
            Ok(())
        },
    },
    OptionSpec {
        name: "null_value",
        set: |options, argument| {
            options.files.csv.null_value = argument.string()?;
            Ok(())
        },
    },
    OptionSpec {
        name: "quote",
        set: |options, argument| {
            options.files.csv.quote = argument.character()?;
            Ok(())
        },
    },
    OptionSpec {
        name: "on_error",
        set: |options, argument| {
            let choices = [OnError::Fail, OnError::Skip];
            options.files.csv.on_error = choices[argument.one_of(&["fail", "skip"])?];
            Ok(())
        },
    },
    OptionSpec {
        name: "mode",
        set: |options, argument| {
            options.mode = match LoadMode::from_name(&argument.string()?) {
                Some(mode) => Some(mode),
                None => return argument.invalid("must be error_if_exists, overwrite or append"),
            };
            Ok(())
        },
    },
    OptionSpec {
        name: "deep_copy",
        set: |options, argument| {
            options.is_deep_copy = argument.boolean()?;
            Ok(())
        },
    },
    OptionSpec {
        name: "load_mode",
        set: |options, argument| {
            options.is_local = argument.one_of(&["cluster", "local"])? == 1;
            Ok(())
        },
    },
    OptionSpec {
        name: "thread",
        set: |_, argument| {
            let expected = format!("must be an integer from 1 to {THREADS_MAX}");
            if argument.integer(1..=THREADS_MAX, &expected)? > 1 {
                warn_no_effect(argument);
            }
            Ok(())
        },
    },
    OptionSpec {
        name: "writer_type",
        set: |_, argument| {
            if argument.one_of(&["single", "batch"])? == 1 {
                warn_no_effect(argument);
            }
            Ok(())
        },
    },
    OptionSpec {
        name: "put_if_absent",
        set: |options, argument| {
            if argument.boolean()? {
                options.rule = AppendRule::Absent;
            }
            Ok(())
        },
    },
    OptionSpec {
        name: "match_by",
        set: |options, argument| {
            let choices = [ColumnMatch::Name, ColumnMatch::Position];
            options.files.columns = choices[argument.one_of(&["name", "position"])?];
            Ok(())
        },
    },
    OptionSpec {
        name: "unknown_columns",
        set: |options, argument| {
            let choices = [UnknownColumns::Fail, UnknownColumns::Ignore];
            options.files.unknown_columns = choices[argument.one_of(&["fail", "ignore"])?];
            Ok(())
        },
    },
    OptionSpec {
        name: "sql",
        set: |options, argument| {
            let (sql, span) = (argument.string()?, argument.item().span);
            if !sql.is_empty() {
                options.query = Some(LoadQuery { sql, span });
            }
            Ok(())
        },
    },
];

/// Reads the options; the warnings are the second value.
pub(super) fn read(
    load: &LoadData,
    settings: Settings,
) -> Result<(LoadDataOptions, Vec<Diagnostic>)> {
    let columns = match settings.compatibility {
        Compatibility::Standard => ColumnMatch::Name,
        Compatibility::OpenMldb => ColumnMatch::OpenMldb,
    };
    let format = format_of_path(&load.path);
    let mut options = LoadDataOptions {
        files: LoadOptions { format, columns, ..LoadOptions::default() },
        mode: None,
        is_deep_copy: true,
        is_local: false,
        rule: AppendRule::Timed,
        query: None,
    };
    options.files.csv.delimiter = FileFormat::delimiter_of_path(&load.path);
    let warnings = OPTIONS.read(&load.options, &mut options)?;
    Ok((options, warnings))
}

/// Warns that the option changes nothing here.
fn warn_no_effect(argument: &mut OptionArgument<'_>) {
    let item = argument.item();
    let message = format!("option `{}` has no effect: one thread reads the file", item.key.text);
    let warning = Diagnostic::new(code::INVALID_PARAMETER, message).at(item.span);
    argument.warn(warning);
}

/// Fails because an option does not go with the storage that the rows are loaded into.
pub(super) fn conflict<T>(load: &LoadData, option: &str, expected: &str) -> Result<T> {
    let item = load.options.iter().find(|item| item.key.text == option);
    let span = item.expect("only an option that was written can conflict").span;
    Diagnostic::new(code::INVALID_PARAMETER, format!("option `{option}` {expected}")).at(span).err()
}

/// Returns the format that a path's extension names; CSV for every other.
fn format_of_path(path: &str) -> FileFormat {
    FileFormat::of_path(path).unwrap_or_default()
}

/// Reads the name of a file format.
fn file_format(argument: &OptionArgument<'_>) -> Result<FileFormat> {
    match FileFormat::from_name(&argument.string()?) {
        Some(format) => Ok(format),
        None => argument.invalid("must be csv, parquet, json or arrow"),
    }
}
