//! Sources of a query that are not stored tables: files where they lie, and Arrow objects.
//!
//! `engine` makes a [`ExternalRows`] for each one that a query names and puts it into its
//! [`CatalogTable`](lockstep_plan::CatalogTable); the planner asks it for an operator. Only the columns that the query
//! reads are read, a limit ends the reading, and filters leave out files and row groups by what
//! their folders and statistics say ([`Pruning`]). The rows keep the order of the files, and of the
//! rows in them: that is their order of arrival.

mod exec;
#[cfg(test)]
mod tests;

use std::{fmt, iter, sync::Arc};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use datafusion::{
    common::{Result as DataFusionResult, stats::Precision},
    physical_expr::PhysicalExpr,
    physical_plan::ExecutionPlan,
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::Settings;
use lockstep_row::{
    Column, DataType, TableSchema,
    arrow::{arrow_schema, import_array, importable, in_milliseconds},
};

use crate::{
    error::{from_arrow, into_datafusion},
    load::{
        AbsentColumns, InferredFiles, LakeVersion, LoadOptions, PermitFile, Pruning, WantedRows,
        find_lake_files, infer_files, read_inferred,
    },
    operator::{BATCH_ROWS, OperatorOptions},
};
pub(crate) use exec::{BlockingScan, PushBatch, SourceExec};

/// The rows of files or of an Arrow object.
#[derive(Debug)]
pub struct ExternalRows {
    rows: SourceRows,
    schema: Arc<TableSchema>,
    arrow_schema: SchemaRef,
    /// Names and types of the columns that have no type of the dialect.
    left_out: Vec<(String, String)>,
}

#[derive(Debug)]
enum SourceRows {
    Files(InferredFiles),
    Arrow {
        /// The position of each column of the schema in the batches.
        columns: Vec<usize>,
        batches: Vec<RecordBatch>,
    },
}

/// The options of a source of files.
#[derive(Debug, Clone, Default)]
pub struct FileSourceOptions {
    /// How the files are read.
    pub load: LoadOptions,
    /// Whether a file may lack columns of the first one, which are NULL for its rows.
    pub union_by_name: bool,
}

/// What a query wants of a source.
#[derive(Debug)]
pub(crate) struct SourceScan {
    /// The positions of the columns.
    pub(crate) columns: Vec<usize>,
    /// A condition that the wanted rows pass, over all columns of the source.
    pub(crate) filter: Option<Arc<dyn PhysicalExpr>>,
    /// The most rows.
    pub(crate) limit: Option<usize>,
}

/// The batches of a source, read one after the other.
pub(crate) type SourceBatches = Box<dyn Iterator<Item = DataFusionResult<RecordBatch>> + Send>;

impl ExternalRows {
    /// Finds the files that the paths name, and infers their columns from the first one. A column
    /// of a type that the dialect does not have is left out, with a warning.
    pub fn of_files(
        paths: &[String],
        options: FileSourceOptions,
        settings: Settings,
    ) -> Result<(Self, Vec<Diagnostic>)> {
        let absent = match options.union_by_name {
            true => AbsentColumns::Default,
            false => AbsentColumns::Refused,
        };
        Ok(Self::of_inferred(infer_files(paths, options.load, settings, absent)?))
    }

    /// Finds the files of a state of a Delta or Iceberg table, and its columns. A column that a file
    /// does not have is NULL for its rows; a column of a type that the dialect does not have is left
    /// out, with a warning. `permit` is called for each file outside of the table's folder before it
    /// is opened. Fails where a file of the table's metadata is missing or damaged, and where the
    /// table uses what is not read.
    pub fn of_lake(
        path: &str,
        version: LakeVersion,
        settings: Settings,
        permit: PermitFile<'_>,
    ) -> Result<(Self, Vec<Diagnostic>)> {
        Ok(Self::of_inferred(find_lake_files(path, version, settings, permit)?))
    }

    fn of_inferred(files: InferredFiles) -> (Self, Vec<Diagnostic>) {
        let left_out = files.left_out.clone();
        let warnings = left_out_warnings(&files.shown, &left_out);
        let (schema, arrow_schema) =
            (Arc::new(files.schema.clone()), Arc::clone(&files.arrow_schema));
        (Self { rows: SourceRows::Files(files), schema, arrow_schema, left_out }, warnings)
    }

    /// Takes the rows of an Arrow object, which are not copied. A column of a type that the dialect
    /// does not have is left out, with a warning.
    pub fn of_arrow(
        name: &str,
        given: &SchemaRef,
        batches: Vec<RecordBatch>,
    ) -> Result<(Self, Vec<Diagnostic>)> {
        let (mut columns, mut positions, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for (position, field) in given.fields().iter().enumerate() {
            match importable(field.data_type()) {
                Some(data_type) if !matches!(data_type, DataType::Null) => {
                    columns.push(Column::new(field.name(), data_type));
                    positions.push(position);
                }
                _ => left_out.push((field.name().clone(), field.data_type().to_string())),
            }
        }
        let schema = TableSchema { columns, indexes: Vec::new() };
        let is_second = |(at, column): (usize, &Column)| {
            schema.find_column(&column.name).is_some_and(|first| first < at)
        };
        if let Some(at) = schema.columns.iter().enumerate().position(is_second) {
            let message =
                format!("column `{}` occurs more than once in `{name}`", schema.columns[at].name);
            return Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData).err();
        }
        let arrow_schema = arrow_schema(&schema);
        let rows = SourceRows::Arrow { columns: positions, batches };
        let warnings = left_out_warnings(name, &left_out);
        Ok((Self { rows, schema: Arc::new(schema), arrow_schema, left_out }, warnings))
    }

    /// Returns the columns of the rows.
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// Returns the names and types of the columns that the dialect has no type for.
    pub fn left_out(&self) -> &[(String, String)] {
        &self.left_out
    }

    /// Returns the columns as an Arrow schema.
    pub fn arrow_schema(&self) -> &SchemaRef {
        &self.arrow_schema
    }

    /// Returns the number of rows where it is known without reading.
    fn row_count(&self) -> Option<usize> {
        match &self.rows {
            SourceRows::Files(_) => None,
            SourceRows::Arrow { batches, .. } => {
                Some(batches.iter().map(RecordBatch::num_rows).sum())
            }
        }
    }

    /// Makes the operator that reads what a query wants.
    pub(crate) fn plan(
        self: &Arc<Self>,
        scan: SourceScan,
        options: &OperatorOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let schema = Arc::new(self.arrow_schema.project(&scan.columns)?);
        let scan = ExternalScan { source: Arc::clone(self), scan };
        Ok(Arc::new(SourceExec::new(Arc::new(scan), schema, options.context.clone())))
    }

    /// Opens the source.
    fn open(self: &Arc<Self>, scan: &SourceScan) -> Result<SourceBatches> {
        match &self.rows {
            SourceRows::Files(files) => {
                let filter = scan.filter.clone();
                let pruning = filter.and_then(|filter| Pruning::new(filter, &self.arrow_schema));
                let columns = scan.columns.clone();
                let rows = read_inferred(files, WantedRows { columns, pruning })?;
                let hint = files.missing_hint;
                let failed = move |error| into_datafusion(with_missing_hint(error, hint));
                Ok(Box::new(rows.map(move |batch| batch.map_err(failed))))
            }
            SourceRows::Arrow { .. } => {
                let (source, columns) = (Arc::clone(self), scan.columns.clone());
                let mut next = (0, 0);
                let imported = iter::from_fn(move || source.next_imported(&columns, &mut next));
                Ok(Box::new(imported.map(|batch| batch.map_err(into_datafusion))))
            }
        }
    }

    /// Converts the next rows of an Arrow object from a position, batch and row, which it moves on.
    fn next_imported(
        &self,
        wanted: &[usize],
        next: &mut (usize, usize),
    ) -> Option<Result<RecordBatch>> {
        let SourceRows::Arrow { columns, batches } = &self.rows else { return None };
        while batches.get(next.0).is_some_and(|batch| next.1 >= batch.num_rows()) {
            *next = (next.0 + 1, 0);
        }
        let batch = batches.get(next.0)?;
        let count = BATCH_ROWS.min(batch.num_rows() - next.1);
        debug_assert!(count > 0, "a position within a batch has a row");
        let rows = batch.slice(next.1, count);
        next.1 += count;
        let imported = wanted.iter().map(|column| {
            let declared = &self.schema.columns[*column];
            let given = in_milliseconds(rows.column(columns[*column]));
            import_array(&given, &declared.data_type).map_err(|error| {
                let message = format!("column `{}`: {error}", declared.name);
                Box::new(Diagnostic::new(code::DATATYPE_MISMATCH, message).with_kind(Kind::FixData))
            })
        });
        let batch = imported.collect::<Result<Vec<_>>>().and_then(|imported| {
            let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(count));
            let schema = self.arrow_schema.project(wanted).map_err(|error| from_arrow(&error))?;
            RecordBatch::try_new_with_options(Arc::new(schema), imported, &options)
                .map_err(|error| from_arrow(&error))
        });
        Some(batch)
    }
}

/// Returns a warning for each column that is left out.
fn left_out_warnings(shown: &str, left_out: &[(String, String)]) -> Vec<Diagnostic> {
    let warnings = left_out.iter().map(|(name, data_type)| {
        let message = format!("column `{name}` of `{shown}` is ignored");
        Diagnostic::new(code::DATATYPE_MISMATCH, message)
            .with_detail(format!("Its type {data_type} is not supported."))
    });
    warnings.collect()
}

/// Adds what to do to the error of a file that does not exist.
fn with_missing_hint(error: Box<Diagnostic>, hint: Option<&'static str>) -> Box<Diagnostic> {
    match hint {
        Some(hint) if error.code == code::UNDEFINED_FILE => Box::new(error.with_hint(hint)),
        _ => error,
    }
}

/// What a query reads of a source.
#[derive(Debug)]
struct ExternalScan {
    source: Arc<ExternalRows>,
    scan: SourceScan,
}

impl fmt::Display for ExternalScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} columns", self.scan.columns.len())?;
        match &self.scan.filter {
            Some(filter) => write!(f, ", pruned by {filter}"),
            None => Ok(()),
        }
    }
}

impl BlockingScan for ExternalScan {
    fn open(&self) -> DataFusionResult<SourceBatches> {
        self.source.open(&self.scan).map_err(into_datafusion)
    }

    fn limit(&self) -> Option<usize> {
        self.scan.limit
    }

    fn row_count(&self) -> Precision<usize> {
        self.source.row_count().map_or(Precision::Absent, Precision::Exact)
    }
}
