//! Export to a folder of files, `part-00000.csv` and so on, as Spark writes one.
//!
//! Scripts of OpenMLDB's users expect such files. The parts become visible when all are written,
//! and `_SUCCESS` after them; after a failure the folder is as it was before.

use std::{
    io,
    path::{Path, PathBuf},
};

use ::arrow::{array::RecordBatch, datatypes::Schema};
use lockstep_diagnostic::Result;
use lockstep_host::disk;

use super::{ExportOptions, Exporter, WriteMode, exists};
use crate::error::from_io;

/// The file that is written when all parts are complete.
const MARKER: &str = "_SUCCESS";

/// Writes rows to `parts` files of a folder, in their order, and returns the number of rows. Other
/// files of the folder are not changed.
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
    if disk::is_file(&folder) {
        if options.mode != WriteMode::Overwrite {
            return Err(exists(&folder));
        }
        disk::remove_file(&folder).map_err(failed)?;
    }
    let is_new = !disk::exists(&folder);
    let old = if is_new { Vec::new() } else { old_parts(&folder).map_err(failed)? };
    if options.mode == WriteMode::ErrorIfExists && !old.is_empty() {
        return Err(exists(&folder));
    }
    disk::create_folders(&folder).map_err(failed)?;
    let written =
        PartsWriter { folder: &folder, names, schema, options, parts }.write(batches, &old);
    if written.is_err() && is_new {
        // Fails unless the folder is empty: files that somebody else put there stay.
        drop(disk::remove_folder(&folder));
    }
    let WrittenParts { row_count, paths } = written?;
    if options.mode == WriteMode::Overwrite {
        for path in old.iter().filter(|path| !paths.contains(path)) {
            disk::remove_file(path).map_err(failed)?;
        }
    }
    disk::create(&folder.join(MARKER)).map_err(failed)?;
    Ok(row_count)
}

/// A writer of the parts of a result.
struct PartsWriter<'a> {
    folder: &'a Path,
    names: &'a [String],
    schema: &'a Schema,
    options: &'a ExportOptions,
    /// The number of parts; 0 counts as 1.
    parts: usize,
}

/// The parts that were written.
struct WrittenParts {
    row_count: u64,
    paths: Vec<PathBuf>,
}

impl PartsWriter<'_> {
    /// Writes the rows to new parts, or over the `old` ones where the options say so.
    fn write(&self, batches: &[RecordBatch], old: &[PathBuf]) -> Result<WrittenParts> {
        let extension = self.options.format.name();
        let part = |number: usize| self.folder.join(format!("part-{number:05}.{extension}"));
        let is_free =
            |path: &PathBuf| self.options.mode == WriteMode::Overwrite || !old.contains(path);
        let paths: Vec<PathBuf> = (0..).map(part).filter(is_free).take(self.parts.max(1)).collect();
        let each = ExportOptions { mode: WriteMode::Overwrite, ..self.options.clone() };
        let open =
            |path: &PathBuf| Exporter::new(&path.to_string_lossy(), self.names, self.schema, &each);
        let mut exporters = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
        let row_count: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let rows_per_part = row_count.div_ceil(exporters.len()).max(1);
        let mut at = 0;
        for batch in batches {
            let mut from = 0;
            while from < batch.num_rows() {
                let rest_of_part = rows_per_part - at % rows_per_part;
                let count = rest_of_part.min(batch.num_rows() - from);
                exporters[at / rows_per_part].write(&batch.slice(from, count))?;
                at += count;
                from += count;
            }
        }
        debug_assert_eq!(at, row_count, "every row is in a part");
        let mut row_count = 0;
        for exporter in exporters {
            row_count += exporter.finish()?;
        }
        Ok(WrittenParts { row_count, paths })
    }
}

/// Returns the parts in a folder, in the order of their names.
fn old_parts(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_part = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("part-"))
    };
    Ok(disk::list(folder)?.into_iter().filter(is_part).collect())
}
