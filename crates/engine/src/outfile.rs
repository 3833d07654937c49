//! SELECT … INTO OUTFILE: a file, or a folder of files.
//!
//! The options are read before the query runs, so that a wrong one costs nothing.

use std::path::{Path, PathBuf};

use lockstep_batch::export::{ExportOptions, Quote, WriteMode, export, export_folder};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::{Compatibility, Settings};
use lockstep_sql::ast::{IntoOutfile, Literal, OptionValue};

use crate::{
    Output,
    load::{OPTIONS, boolean, character, format, format_of, text, wrong},
    settings::Storage,
    table_options::ignored,
};

/// Where the rows of a query go, and how.
pub(crate) struct Outfile<'a> {
    written: &'a IntoOutfile,
    options: ExportOptions,
    /// How many files are asked for.
    parts: usize,
    is_folder: bool,
    warnings: Vec<Diagnostic>,
}

impl<'a> Outfile<'a> {
    /// Reads the options, and looks whether the place is free.
    pub(crate) fn new(
        written: &'a IntoOutfile,
        settings: Settings,
        storage: Storage,
    ) -> Result<Self> {
        let path = place(written);
        let as_openmldb =
            settings.compatibility == Compatibility::OpenMldb && storage == Storage::Offline;
        let mut outfile = Self {
            options: ExportOptions {
                format: format_of(&written.path),
                settings,
                ..ExportOptions::default()
            },
            parts: 1,
            is_folder: as_openmldb || path.is_dir() || written.path.ends_with('/'),
            written,
            warnings: Vec::new(),
        };
        outfile.read_options()?;
        if outfile.parts > 1 && !outfile.is_folder {
            let message = "option `coalesce` has no effect: one file is written";
            let warning = Diagnostic::new(code::INVALID_PARAMETER, message).at(written.span);
            let hint = "A path that ends in `/` is a folder of that many files.";
            outfile.warnings.push(warning.with_hint(hint));
        }
        if outfile.options.mode == WriteMode::ErrorIfExists && !outfile.is_folder && path.exists() {
            return Diagnostic::new(
                code::DUPLICATE_FILE,
                format!("file `{}` exists already", path.display()),
            )
            .at(written.span)
            .with_hint("Say `mode = 'overwrite'` or `mode = 'append'`.")
            .err();
        }
        if storage == Storage::Offline {
            outfile.make_parent(&path)?;
        }
        Ok(outfile)
    }

    fn read_options(&mut self) -> Result<()> {
        let options = &mut self.options;
        for item in &self.written.options {
            match item.key.text.as_str() {
                "format" => options.format = format(item)?,
                "delimiter" => options.delimiter = character(item)?.unwrap_or(options.delimiter),
                "header" => options.header = Some(boolean(item)?),
                "null_value" => options.null_value = text(item)?,
                "quote" => options.quote = character(item)?.map_or(Quote::Never, Quote::Texts),
                "mode" => match WriteMode::from_name(&text(item)?) {
                    Some(mode) => options.mode = mode,
                    None => return wrong(item, "It is error_if_exists, overwrite or append."),
                },
                "coalesce" => match &item.value {
                    OptionValue::Literal(Literal::Int(count))
                        if (0..=PARTS_MAX).contains(count) =>
                    {
                        self.parts = usize::try_from(*count).unwrap_or(1).max(1);
                    }
                    _ => return wrong(item, "It is a number of files, 0 to 10000."),
                },
                _ => self.warnings.push(ignored(item, OPTIONS)),
            }
        }
        Ok(())
    }

    /// Makes the folder that a file is to be written into: an offline export is given a place, not
    /// a file beside others.
    fn make_parent(&self, path: &Path) -> Result<()> {
        let Some(folder) = path.parent() else { return Ok(()) };
        std::fs::create_dir_all(folder).map_err(|error| {
            let message = format!("folder `{}` cannot be made: {error}", folder.display());
            Box::new(Diagnostic::new(code::INVALID_PARAMETER, message).at(self.written.span))
        })
    }

    /// Writes a result.
    pub(crate) fn write(self, output: &Output) -> Result<Output> {
        let names: Vec<String> = output.columns.iter().map(|(name, _)| name.clone()).collect();
        let (path, schema, options) = (&self.written.path, output.schema(), &self.options);
        let count = if self.is_folder {
            export_folder(path, &names, &schema, &output.batches, options, self.parts)
        } else {
            export(path, &names, &schema, output.batches.iter().cloned().map(Ok), options)
        };
        Ok(Output {
            rows_affected: Some(count.map_err(|error| Box::new(error.at(self.written.span)))?),
            message: Some("INTO OUTFILE".to_owned()),
            warnings: self.warnings,
            ..Output::default()
        })
    }
}

/// Most files of a folder.
const PARTS_MAX: i32 = 10_000;

fn place(written: &IntoOutfile) -> PathBuf {
    PathBuf::from(written.path.strip_prefix("file://").unwrap_or(&written.path))
}
