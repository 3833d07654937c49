//! A result as a folder of files, `part-00000.csv` and so on, as Spark leaves one.
//!
//! Scripts of OpenMLDB's users look for such files. The parts appear when all are written, and
//! `_SUCCESS` after them; a failure leaves what was there before.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use ::arrow::{array::RecordBatch, datatypes::Schema};
use lockstep_diagnostic::Result;

use super::{ExportOptions, Exporter, WriteMode, exists};
use crate::{error::from_io, load::FileFormat};

/// Written when all parts are there.
const MARKER: &str = "_SUCCESS";

/// Writes rows to so many files of a folder, in their order, and returns the number of rows.
/// Other files of the folder than parts are left alone.
pub fn export_folder(
    path: &str,
    names: &[String],
    schema: &Schema,
    batches: &[RecordBatch],
    options: &ExportOptions,
    parts: usize,
) -> Result<u64> {
    let folder = PathBuf::from(path.strip_prefix("file://").unwrap_or(path));
    let failed = |error: io::Error| from_io(&error, "write", &folder);
    if folder.is_file() {
        if options.mode != WriteMode::Overwrite {
            return Err(exists(&folder));
        }
        fs::remove_file(&folder).map_err(failed)?;
    }
    let is_new = !folder.exists();
    let old = if is_new { Vec::new() } else { old_parts(&folder).map_err(failed)? };
    if options.mode == WriteMode::ErrorIfExists && !old.is_empty() {
        return Err(exists(&folder));
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    let written = write_parts(&folder, &old, names, schema, batches, (options, parts));
    if written.is_err() && is_new {
        // Only an empty folder goes; what somebody else put into it stays.
        drop(fs::remove_dir(&folder));
    }
    let (count, parts) = written?;
    if options.mode == WriteMode::Overwrite {
        for path in old.iter().filter(|path| !parts.contains(path)) {
            fs::remove_file(path).map_err(failed)?;
        }
    }
    lockstep_host::disk::create(&folder.join(MARKER)).map_err(failed)?;
    Ok(count)
}

/// The rows written, and the files that hold them.
fn write_parts(
    folder: &Path,
    old: &[PathBuf],
    names: &[String],
    schema: &Schema,
    batches: &[RecordBatch],
    (options, parts): (&ExportOptions, usize),
) -> Result<(u64, Vec<PathBuf>)> {
    let extension = match options.format {
        FileFormat::Csv => "csv",
        FileFormat::Parquet => "parquet",
    };
    let place = |number: usize| folder.join(format!("part-{number:05}.{extension}"));
    let is_free = |path: &PathBuf| options.mode == WriteMode::Overwrite || !old.contains(path);
    let paths: Vec<PathBuf> = (0..).map(place).filter(is_free).take(parts.max(1)).collect();
    let each = ExportOptions { mode: WriteMode::Overwrite, ..options.clone() };
    let open = |path: &PathBuf| Exporter::new(&path.to_string_lossy(), names, schema, &each);
    let mut exporters = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
    let row_count: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let rows_per_part = row_count.div_ceil(exporters.len()).max(1);
    let mut at = 0;
    for batch in batches {
        let mut from = 0;
        while from < batch.num_rows() {
            let room = rows_per_part - at % rows_per_part;
            let count = room.min(batch.num_rows() - from);
            exporters[at / rows_per_part].write(&batch.slice(from, count))?;
            at += count;
            from += count;
        }
    }
    let mut count = 0;
    for exporter in exporters {
        count += exporter.finish()?;
    }
    Ok((count, paths))
}

/// The parts that an export left in a folder.
fn old_parts(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("part-") {
            parts.push(entry.path());
        }
    }
    parts.sort();
    Ok(parts)
}
