//! Export to a folder of files, `part-00000.csv` and so on, as Spark writes one; with folders
//! `name=value` by the values of columns, as Hive, Spark and DuckDB read them.
//!
//! Rows are written while they come, each to the file of its folder. The files become visible when all
//! are written, and `_SUCCESS` after them; after a failure the folder is as it was before.
//!
//! **Memory**: [`OPEN_MAX`] files are open at most; what Parquet holds of them is written out before it
//! exceeds [`MEMORY_BYTES`], so that many folders get smaller groups of rows, and a folder whose rows
//! come in many pieces several files.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write as _,
    io, mem,
    path::{Path, PathBuf},
};

use ::arrow::{
    array::{RecordBatch, UInt32Array},
    compute::take_record_batch,
    datatypes::{Schema, SchemaRef},
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::{Compatibility, Settings, cast::Printer};
use lockstep_host::{disk, query};
use lockstep_row::{Arena, Datum, arrow::ColumnReader};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::{
    ClosedFile, Destination, ExportOptions, Exporter, WriteMode, exists, time_text::TimeText,
};
use crate::{
    error::{from_arrow, from_io, interrupted},
    load::NULL_FOLDER,
    operator::memory_share,
};

/// The file that is written when all parts are complete.
const MARKER: &str = "_SUCCESS";

/// The most files that are written at the same time.
const OPEN_MAX: usize = 64;

/// The most bytes that the open files hold in memory.
const MEMORY_BYTES: usize = 64 << 20;
/// The same where memory is scarce: less would make row groups of few rows.
const MEMORY_BYTES_MIN: usize = 16 << 20;

/// What a name of a folder has in another form, as Hive writes it.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'\'')
    .add(b'*')
    .add(b'/')
    .add(b':')
    .add(b'=')
    .add(b'?')
    .add(b'\\')
    .add(b'<')
    .add(b'>')
    .add(b'|')
    .add(b'{')
    .add(b'}')
    .add(b'[')
    .add(b']')
    .add(b'^');

/// A writer of a folder. Dropped before [`FolderExporter::finish`], it leaves the folder as it was.
#[derive(Debug)]
pub struct FolderExporter {
    folder: PathBuf,
    mode: WriteMode,
    /// The options of each file.
    options: ExportOptions,
    /// The columns of the files.
    columns: Vec<usize>,
    names: Vec<String>,
    schema: SchemaRef,
    /// The columns of the folders, outermost first, and what begins their names.
    partition_by: Vec<(usize, String)>,
    /// The files that were there.
    old: Vec<PathBuf>,
    taken: HashSet<PathBuf>,
    /// The files that are written, by their folder within the folder.
    open: BTreeMap<String, OpenPart>,
    write_count: u64,
    closed: Vec<ClosedFile>,
    /// Dropped after the files within them.
    made: MadeFolders,
}

/// A file that is being written.
#[derive(Debug)]
struct OpenPart {
    exporter: Exporter,
    /// When it was last written to, as a number of writes.
    used: u64,
}

/// The folders that were made, which are removed unless they are kept.
#[derive(Debug, Default)]
struct MadeFolders(Vec<PathBuf>);

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // Fails unless the folder is empty: files that somebody else put there stay.
            drop(disk::remove_folder(folder));
        }
    }
}

impl FolderExporter {
    /// Starts a folder. `names` are the columns' names, which may repeat in CSV; `schema` is that of the
    /// batches; `partition_by` are the positions of the columns that are folders, outermost first.
    pub fn new(
        path: &str,
        names: &[String],
        schema: &Schema,
        options: &ExportOptions,
        partition_by: &[usize],
    ) -> Result<Self> {
        let folder = PathBuf::from(path.strip_prefix("file://").unwrap_or(path));
        let failed = |error: io::Error| from_io(&error, "write", &folder);
        let columns: Vec<usize> =
            (0..names.len()).filter(|column| !partition_by.contains(column)).collect();
        if columns.is_empty() {
            let message = "partition_by must leave at least one column for the files";
            return Diagnostic::new(code::INVALID_PARAMETER, message).err();
        }
        if disk::is_file(&folder) {
            if options.mode != WriteMode::Overwrite {
                return Err(exists(&folder));
            }
            disk::remove_file(&folder).map_err(failed)?;
        }
        let mut old = Vec::new();
        if disk::exists(&folder) {
            add_old_parts(&folder, &mut old).map_err(failed)?;
        }
        if options.mode == WriteMode::ErrorIfExists && !old.is_empty() {
            return Err(exists(&folder));
        }
        let role = |column: &usize| options.roles.get(*column).copied().flatten();
        let roles = columns.iter().map(role).collect();
        let encoded = |column: &usize| {
            let name = utf8_percent_encode(&names[*column], ENCODED);
            (*column, format!("{name}="))
        };
        let mut exporter = Self {
            partition_by: partition_by.iter().map(encoded).collect(),
            mode: options.mode,
            options: ExportOptions { mode: WriteMode::Overwrite, roles, ..options.clone() },
            names: columns.iter().map(|column| names[*column].clone()).collect(),
            schema: schema.project(&columns).map_err(|error| from_arrow(&error))?.into(),
            columns,
            folder,
            old,
            taken: HashSet::new(),
            open: BTreeMap::new(),
            write_count: 0,
            closed: Vec::new(),
            made: MadeFolders::default(),
        };
        exporter.make_folder("")?;
        Ok(exporter)
    }

    /// Writes the rows of a batch, unless the thread's call was interrupted.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        query::checkpoint().map_err(interrupted)?;
        if self.partition_by.is_empty() {
            return self.write_to("", batch);
        }
        let rows_of = self.rows_by_folder(batch)?;
        for (folder, rows) in rows_of {
            let part = batch.project(&self.columns);
            let part = match rows.len() == batch.num_rows() {
                true => part,
                false => part.and_then(|part| take_record_batch(&part, &UInt32Array::from(rows))),
            };
            self.write_to(&folder, &part.map_err(|error| from_arrow(&error))?)?;
        }
        Ok(())
    }

    /// Returns the rows of each folder, in their order; folders in the order of their first rows.
    fn rows_by_folder(&self, batch: &RecordBatch) -> Result<Vec<(String, Vec<u32>)>> {
        // With all digits, whatever OpenMLDB prints.
        let settings = Settings { compatibility: Compatibility::Standard, ..self.options.settings };
        let (printer, times) = (Printer::new(&settings), TimeText::new(&self.options.settings));
        let arena = Arena::new();
        let readers: Vec<(ColumnReader<'_>, &str)> = self
            .partition_by
            .iter()
            .map(|(column, name)| (ColumnReader::new(batch.column(*column)), name.as_str()))
            .collect();
        let mut found: Vec<(String, Vec<u32>)> = Vec::new();
        let mut positions: HashMap<String, usize> = HashMap::new();
        let mut folder = String::new();
        for (row, number) in (0..batch.num_rows()).zip(0_u32..) {
            folder.clear();
            for (reader, name) in &readers {
                let separator = if folder.is_empty() { "" } else { "/" };
                let text = match reader.get(row, &arena) {
                    Datum::Null => NULL_FOLDER.to_owned(),
                    Datum::Bool(value) => value.to_string(),
                    Datum::Timestamp(ms) => {
                        let mut text = String::new();
                        times.write(ms, &mut text).expect("a text takes what is written");
                        text
                    }
                    datum => printer.print(datum),
                };
                let text = utf8_percent_encode(&text, ENCODED);
                write!(folder, "{separator}{name}{text}").expect("a text takes what is written");
            }
            let position = match positions.get(&folder) {
                Some(position) => *position,
                None => {
                    positions.insert(folder.clone(), found.len());
                    found.push((folder.clone(), Vec::new()));
                    found.len() - 1
                }
            };
            found[position].1.push(number);
        }
        Ok(found)
    }

    /// Writes rows to the file of a folder, which is begun where there is none.
    fn write_to(&mut self, folder: &str, rows: &RecordBatch) -> Result<()> {
        self.begin(folder)?;
        self.write_count += 1;
        let part = self.open.get_mut(folder).expect("it was begun");
        part.used = self.write_count;
        part.exporter.write(rows)?;
        let held = |part: &OpenPart| part.exporter.memory_bytes();
        let memory_max = memory_share()
            .map_or(MEMORY_BYTES, |share| share.clamp(MEMORY_BYTES_MIN, MEMORY_BYTES));
        while self.open.values().map(held).sum::<usize>() > memory_max {
            let largest = self.open.values_mut().max_by_key(|part| held(part));
            largest.expect("some part holds it").exporter.flush()?;
        }
        Ok(())
    }

    /// Opens a file in a folder, unless one is open.
    fn begin(&mut self, folder: &str) -> Result<()> {
        if self.open.contains_key(folder) {
            return Ok(());
        }
        if self.open.len() >= OPEN_MAX {
            let oldest = self.open.iter().min_by_key(|(_, part)| part.used);
            let oldest = oldest.expect("files are open").0.clone();
            self.close(&oldest)?;
        }
        self.make_folder(folder)?;
        let extension = self.options.format.name();
        let directory = self.folder.join(folder);
        let path = (0..)
            .map(|number| directory.join(format!("part-{number:05}.{extension}")))
            .find(|path| {
                let is_old = self.mode != WriteMode::Overwrite && self.old.contains(path);
                !is_old && !self.taken.contains(path)
            })
            .expect("there is always another number");
        let exporter =
            Exporter::new(&path.to_string_lossy(), &self.names, &self.schema, &self.options)?;
        self.taken.insert(path);
        self.open.insert(folder.to_owned(), OpenPart { exporter, used: self.write_count });
        Ok(())
    }

    /// Completes the file of a folder, which does not become visible yet.
    fn close(&mut self, folder: &str) -> Result<()> {
        if let Some(part) = self.open.remove(folder) {
            self.closed.push(part.exporter.close()?);
        }
        Ok(())
    }

    /// Makes a folder within the folder, and those above it.
    fn make_folder(&mut self, folder: &str) -> Result<()> {
        let path = if folder.is_empty() { self.folder.clone() } else { self.folder.join(folder) };
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !disk::exists(path);
        let missing: Vec<PathBuf> =
            path.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        disk::create_folders(&path).map_err(|error| from_io(&error, "write", &path))?;
        self.made.0.extend(missing.into_iter().rev());
        Ok(())
    }

    /// Completes the files under their final names, and returns the number of rows written.
    pub fn finish(mut self) -> Result<u64> {
        if self.partition_by.is_empty() && self.taken.is_empty() {
            self.begin("")?;
        }
        let open: Vec<String> = self.open.keys().cloned().collect();
        open.iter().try_for_each(|folder| self.close(folder))?;
        let _commit = query::commit().map_err(interrupted)?;
        let mut row_count = 0;
        for file in mem::take(&mut self.closed) {
            row_count += file.publish()?;
        }
        let failed = |error: io::Error| from_io(&error, "write", &self.folder);
        if self.mode == WriteMode::Overwrite {
            for path in self.old.iter().filter(|path| !self.taken.contains(*path)) {
                disk::remove_file(path).map_err(failed)?;
                self.remove_empty(path);
            }
        }
        let marker = Destination::of(&self.folder.join(MARKER))?;
        disk::create(&marker.target).map_err(failed)?;
        self.made.0.clear();
        Ok(row_count)
    }

    /// Removes the folders above a removed file, as far as nothing is left in them.
    fn remove_empty(&self, path: &Path) {
        for folder in path.ancestors().skip(1).take_while(|folder| **folder != *self.folder) {
            if disk::remove_folder(folder).is_err() {
                return;
            }
        }
    }
}

/// Writes rows to `parts` files of a folder, in their order and of equal length, and returns the number
/// of rows. Other files of the folder are not changed.
pub fn export_folder(
    path: &str,
    names: &[String],
    schema: &Schema,
    batches: &[RecordBatch],
    options: &ExportOptions,
    parts: usize,
) -> Result<u64> {
    let mut exporter = FolderExporter::new(path, names, schema, options, &[])?;
    let parts = parts.max(1);
    let row_count: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let rows_per_part = row_count.div_ceil(parts).max(1);
    let mut at = 0;
    for batch in batches {
        let mut from = 0;
        while from < batch.num_rows() {
            let rest_of_part = rows_per_part - at % rows_per_part;
            let count = rest_of_part.min(batch.num_rows() - from);
            exporter.write(&batch.slice(from, count))?;
            at += count;
            from += count;
            if at % rows_per_part == 0 {
                exporter.close("")?;
            }
        }
    }
    debug_assert_eq!(at, row_count, "every row is in a part");
    while exporter.taken.len() < parts {
        exporter.close("")?;
        exporter.begin("")?;
    }
    exporter.finish()
}

/// Adds the parts in a folder and in its folders `name=value`, in the order of their names.
fn add_old_parts(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for path in disk::list(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if disk::is_folder(&path) {
            if name.contains('=') {
                add_old_parts(&path, found)?;
            }
        } else if name.starts_with("part-") {
            found.push(path);
        }
    }
    Ok(())
}
