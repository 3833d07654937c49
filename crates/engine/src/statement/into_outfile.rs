//! SELECT … INTO OUTFILE: writes the rows of a query to a file, or to a folder of files.
//!
//! The options are read before the query runs, so that a wrong one costs nothing.

use std::path::{Path, PathBuf};

use lockstep_batch::{
    export::{ExportOptions, Exporter, Quote, WriteMode, export_folder},
    load::FileFormat,
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::{Compatibility, Settings};
use lockstep_host::disk;
use lockstep_sql::ast::IntoOutfile;

use super::load_data::{file_format, format_of_path};
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
            options.export.format = file_format(argument)?;
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
                None => return argument.invalid("takes error_if_exists, overwrite or append"),
            };
            Ok(())
        },
    },
    OptionSpec {
        name: "coalesce",
        set: |options, argument| {
            let expected = format!("takes a number of files from 0 to {PARTS_MAX}");
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
        let is_folder = as_openmldb || disk::is_folder(&path) || written.path.ends_with('/');
        let format = format_of_path(&written.path);
        let delimiter = FileFormat::delimiter_of_path(&written.path);
        let export = ExportOptions { format, delimiter, settings, ..ExportOptions::default() };
        let mut options = OutfileOptions { export, parts: 1 };
        let mut warnings = OPTIONS.read(&written.options, &mut options)?;
        if options.parts > 1 && !is_folder {
            let message = "option `coalesce` has no effect: one file is written";
            let warning = Diagnostic::new(code::INVALID_PARAMETER, message).at(written.span);
            let hint = "A path that ends in `/` is a folder of that many files.";
            warnings.push(warning.with_hint(hint));
        }
        if options.export.mode == WriteMode::ErrorIfExists && !is_folder && disk::exists(&path) {
            return Diagnostic::new(
                code::DUPLICATE_FILE,
                format!("file `{}` exists already", path.display()),
            )
            .at(written.span)
            .with_hint("Say `mode = 'overwrite'` or `mode = 'append'`.")
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
            let message = format!("could not create folder `{}`: {error}", folder.display());
            Box::new(Diagnostic::new(code::INVALID_PARAMETER, message).at(self.written.span))
        })
    }

    /// Runs the query and writes its rows, into one file while they are computed.
    pub(super) fn write(self, relation: &Relation) -> Result<Output> {
        debug_assert!(self.options.parts >= 1, "a folder has at least one file");
        let names: Vec<String> = relation.columns().iter().map(|(name, _)| name.clone()).collect();
        let schema = schema_of(relation.columns());
        let (path, options) = (&self.written.path, &self.options.export);
        let at_path = |error: Box<Diagnostic>| Box::new(error.at(self.written.span));
        let mut warnings = self.warnings.clone();
        let count = if self.is_folder {
            let output = relation.collect(None)?;
            warnings.extend(output.warnings);
            let parts = self.options.parts;
            export_folder(path, &names, &schema, &output.batches, options, parts)
        } else {
            let mut exporter = Exporter::new(path, &names, &schema, options).map_err(at_path)?;
            let write = &mut |batch| exporter.write(&batch).map_err(at_path);
            warnings.extend(relation.run_each(None, write)?);
            exporter.finish()
        };
        Ok(Output {
            rows_affected: Some(count.map_err(at_path)?),
            warnings,
            ..Output::of_message("INTO OUTFILE")
        })
    }
}

fn path_of(written: &IntoOutfile) -> PathBuf {
    PathBuf::from(written.path.strip_prefix("file://").unwrap_or(&written.path))
}
