//! Files: LOAD DATA, SELECT … INTO OUTFILE and CREATE TABLE … LIKE.

use std::path::Path;

use arrow::datatypes::Schema;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::Settings;
use lockstep_offline::{
    export::{ExportOptions, WriteMode, export},
    load::{FileFormat, LoadOptions, OnError, infer_schema, read_file},
};
use lockstep_row::TableSchema;
use lockstep_sql::ast::{CreateLike, IntoOutfile, Literal, LoadData, OptionItem, OptionValue};
use lockstep_table::Table;

use crate::{Output, append};

/// Options that mean something only to a cluster's jobs: accepted and without effect.
const INERT: &[&str] =
    &["deep_copy", "load_mode", "thread", "writer_type", "put_if_absent", "sql", "coalesce"];

/// Runs LOAD DATA: all rows or none, unless `on_error = 'skip'`.
pub(crate) fn load(load: &LoadData, table: &Table, settings: Settings) -> Result<Output> {
    let mut options = LoadOptions { format: format_of(&load.path), ..LoadOptions::default() };
    let mut warnings = Vec::new();
    for item in &load.options {
        let csv = &mut options.csv;
        match item.key.text.as_str() {
            "format" => options.format = format(item)?,
            "delimiter" => csv.delimiter = character(item)?.unwrap_or(csv.delimiter),
            "header" => csv.header = boolean(item)?,
            "null_value" => csv.null_value = text(item)?,
            "quote" => csv.quote = character(item)?,
            "on_error" => {
                csv.on_error = match text(item)?.to_ascii_lowercase().as_str() {
                    "fail" => OnError::Fail,
                    "skip" => OnError::Skip,
                    _ => return wrong(item, "It is 'fail' or 'skip'."),
                }
            }
            "mode" => {
                let mode = text(item)?.to_ascii_lowercase();
                if !["append", "error_if_exists"].contains(&mode.as_str()) {
                    return wrong(item, "Rows are appended: it is 'append'.");
                }
            }
            other if INERT.contains(&other) => {}
            _ => warnings.push(ignored(item)),
        }
    }
    let at = |error: Box<Diagnostic>| Box::new(error.at(load.path_span));
    let mut rows = read_file(&load.path, &options, &table.schema(), &settings).map_err(at)?;
    let mut batches = Vec::new();
    for batch in &mut rows {
        batches.push(batch.map_err(at)?);
    }
    let count = append::append(&batches, table)?;
    if rows.skipped_count() > 0 {
        let first = rows.first_skipped().map(ToString::to_string).unwrap_or_default();
        let message = format!("{} malformed rows were skipped", rows.skipped_count());
        warnings.push(
            Diagnostic::new(code::BAD_COPY_FORMAT, message)
                .with_detail(format!("The first: {first}.")),
        );
    }
    Ok(Output {
        rows_affected: Some(count),
        message: Some("LOAD DATA".to_owned()),
        warnings,
        ..Output::default()
    })
}

/// Writes a result to a file.
pub(crate) fn write_outfile(
    outfile: &IntoOutfile,
    output: &Output,
    settings: Settings,
) -> Result<Output> {
    let mut options =
        ExportOptions { format: format_of(&outfile.path), settings, ..ExportOptions::default() };
    let mut warnings = Vec::new();
    for item in &outfile.options {
        match item.key.text.as_str() {
            "format" => options.format = format(item)?,
            "delimiter" => options.delimiter = character(item)?.unwrap_or(options.delimiter),
            "header" => options.header = boolean(item)?,
            "null_value" => options.null_value = text(item)?,
            "quote" => options.quote = character(item)?,
            "mode" => match WriteMode::from_name(&text(item)?) {
                Some(mode) => options.mode = mode,
                None => return wrong(item, "It is error_if_exists, overwrite or append."),
            },
            other if INERT.contains(&other) => {}
            _ => warnings.push(ignored(item)),
        }
    }
    let names: Vec<String> = output.columns.iter().map(|(name, _)| name.clone()).collect();
    let schema = output.schema();
    let batches = output.batches.iter().cloned().map(Ok);
    let schema: &Schema = &schema;
    let count = export(&outfile.path, &names, schema, batches, &options)
        .map_err(|error| Box::new(error.at(outfile.span)))?;
    Ok(Output {
        rows_affected: Some(count),
        message: Some("INTO OUTFILE".to_owned()),
        warnings,
        ..Output::default()
    })
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
fn format_of(path: &str) -> FileFormat {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    extension.and_then(FileFormat::from_name).unwrap_or_default()
}

fn format(item: &OptionItem) -> Result<FileFormat> {
    match FileFormat::from_name(&text(item)?) {
        Some(format) => Ok(format),
        None => wrong(item, "It is csv or parquet."),
    }
}

fn text(item: &OptionItem) -> Result<String> {
    match &item.value {
        OptionValue::Literal(Literal::String(text)) | OptionValue::Word(text) => Ok(text.clone()),
        _ => wrong(item, "It is a text."),
    }
}

fn boolean(item: &OptionItem) -> Result<bool> {
    match &item.value {
        OptionValue::Literal(Literal::Bool(value)) => Ok(*value),
        _ => wrong(item, "It is true or false."),
    }
}

/// One byte; the empty text is none.
fn character(item: &OptionItem) -> Result<Option<u8>> {
    match text(item)?.as_bytes() {
        [] => Ok(None),
        [byte] => Ok(Some(*byte)),
        _ => wrong(item, "It is one character."),
    }
}

fn wrong<T>(item: &OptionItem, hint: &str) -> Result<T> {
    let message = format!("option `{}` cannot have this value", item.key.text);
    Diagnostic::new(code::INVALID_PARAMETER, message).at(item.span).with_hint(hint).err()
}

fn ignored(item: &OptionItem) -> Diagnostic {
    let message = format!("option `{}` does not exist and is ignored", item.key.text);
    let known = ["format", "delimiter", "header", "null_value", "quote", "mode", "on_error"];
    Diagnostic::new(code::INVALID_PARAMETER, message)
        .at(item.key.span)
        .with_nearest(&item.key.text, known)
}
