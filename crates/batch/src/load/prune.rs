//! Leaving out files and parts of files in which no row can pass a query's filters.
//!
//! DataFusion's pruning decides from the least and the greatest value of each column: those of a
//! folder's name for a file, or what a lake table's metadata says of it; those of the statistics for
//! a row group of Parquet. What is not known is read. Floats are never decided: statistics leave NaN
//! out, which is greater than every number.

use std::{collections::HashSet, sync::Arc};

use ::arrow::{
    array::{ArrayRef, BooleanArray, UInt64Array},
    datatypes::SchemaRef,
};
use ::parquet::arrow::arrow_reader::{
    ParquetRecordBatchReaderBuilder, statistics::StatisticsConverter,
};
use datafusion::{
    common::{Column as DataFusionColumn, ScalarValue, pruning::PruningStatistics},
    physical_expr::PhysicalExpr,
    physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder},
};
use lockstep_row::{
    DataType, Datum, TableSchema, Value,
    arrow::{ColumnBuilder, import_array, in_milliseconds},
};

use super::{
    LoadTarget,
    imported::FileImport,
    location::{ColumnBounds, FileChunks, InputFile},
};

/// Decides which files and row groups are read.
#[derive(Debug, Clone)]
pub(crate) struct Pruning {
    predicate: Arc<PruningPredicate>,
}

impl Pruning {
    /// Makes the pruning of a filter over the columns of the files; `None` where no value can
    /// decide it.
    pub(crate) fn new(filter: Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> Option<Self> {
        let predicate = PruningPredicateBuilder::new()
            .with_file_schema(Arc::clone(schema))
            .try_build(filter)
            .ok()?;
        (!predicate.always_true()).then(|| Self { predicate: Arc::new(predicate) })
    }

    /// Returns for each file whether it may have a wanted row, by what is known without opening it.
    pub(super) fn files(&self, target: &LoadTarget, files: &[InputFile]) -> Vec<bool> {
        let known = KnownFiles { target, files };
        let wanted = self.predicate.prune(&known).unwrap_or_else(|_| vec![true; files.len()]);
        debug_assert_eq!(wanted.len(), files.len(), "each file is decided");
        wanted
    }

    /// Returns the row groups of a file that may have a wanted row.
    pub(super) fn row_groups(
        &self,
        import: &FileImport,
        builder: &ParquetRecordBatchReaderBuilder<FileChunks>,
    ) -> Vec<usize> {
        let count = builder.metadata().num_row_groups();
        let groups = RowGroups { schema: &import.target().schema, import, builder };
        let wanted = self.predicate.prune(&groups).unwrap_or_else(|_| vec![true; count]);
        debug_assert_eq!(wanted.len(), count, "each row group is decided");
        (0..count).filter(|group| wanted[*group]).collect()
    }
}

/// Returns the position of a column whose least and greatest values decide.
fn decisive(schema: &TableSchema, column: &DataFusionColumn) -> Option<usize> {
    let position = schema.find_column(&column.name)?;
    let data_type = &schema.columns[position].data_type;
    (!matches!(data_type, DataType::Float | DataType::Double)).then_some(position)
}

/// What is known of files without opening them: the values that folders give them, and statistics.
struct KnownFiles<'f> {
    target: &'f LoadTarget,
    files: &'f [InputFile],
}

impl KnownFiles<'_> {
    /// Returns the value of a column that a folder gives to all rows of a file, or the bound that
    /// its statistics have; NULL where neither is known.
    fn bounds(
        &self,
        column: &DataFusionColumn,
        bound: impl Fn(&ColumnBounds) -> Option<&Value>,
    ) -> Option<ArrayRef> {
        let position = decisive(&self.target.schema, column)?;
        let lockstep_row::Column { name, data_type, .. } = &self.target.schema.columns[position];
        let is_folder = self.target.folder_columns.contains(&position);
        let mut builder = ColumnBuilder::new(data_type, self.files.len());
        let mut is_any_known = is_folder;
        for file in self.files {
            if is_folder {
                builder.push(self.target.default_of(position, file).ok()?);
                continue;
            }
            let value = file.bounds(name).and_then(&bound).and_then(Value::as_scalar);
            let value = value.filter(|value| value.data_type() == *data_type);
            is_any_known |= value.is_some();
            builder.push(value.unwrap_or(Datum::Null));
        }
        is_any_known.then(|| builder.finish())
    }
}

impl PruningStatistics for KnownFiles<'_> {
    fn min_values(&self, column: &DataFusionColumn) -> Option<ArrayRef> {
        self.bounds(column, |bounds| bounds.least.as_ref())
    }

    fn max_values(&self, column: &DataFusionColumn) -> Option<ArrayRef> {
        self.bounds(column, |bounds| bounds.greatest.as_ref())
    }

    fn num_containers(&self) -> usize {
        self.files.len()
    }

    fn null_counts(&self, column: &DataFusionColumn) -> Option<ArrayRef> {
        let position = self.target.schema.find_column(&column.name)?;
        let name = &self.target.schema.columns[position].name;
        let counts = self.files.iter().map(|file| file.bounds(name)?.null_count);
        Some(Arc::new(counts.collect::<UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let counts = self.files.iter().map(|file| file.statistics.as_ref()?.row_count);
        Some(Arc::new(counts.collect::<UInt64Array>()))
    }

    fn contained(&self, _: &DataFusionColumn, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// The statistics of the row groups of a file.
struct RowGroups<'f> {
    schema: &'f TableSchema,
    import: &'f FileImport,
    builder: &'f ParquetRecordBatchReaderBuilder<FileChunks>,
}

impl RowGroups<'_> {
    fn converter(&self, position: usize) -> Option<StatisticsConverter<'_>> {
        let of_file = self.import.of_file(position)?;
        let file_schema = self.builder.schema();
        let name = file_schema.field(of_file).name();
        let parquet = self.builder.parquet_schema();
        StatisticsConverter::try_new(name, file_schema, parquet).ok()
    }

    /// Returns bounds of the values as the reader would return them: each conversion keeps the
    /// order of values.
    fn bounds(
        &self,
        column: &DataFusionColumn,
        read: impl FnOnce(&StatisticsConverter<'_>) -> Option<ArrayRef>,
    ) -> Option<ArrayRef> {
        let position = decisive(self.schema, column)?;
        let bounds = read(&self.converter(position)?)?;
        import_array(&in_milliseconds(&bounds), &self.schema.columns[position].data_type).ok()
    }
}

impl PruningStatistics for RowGroups<'_> {
    fn min_values(&self, column: &DataFusionColumn) -> Option<ArrayRef> {
        let groups = self.builder.metadata().row_groups();
        self.bounds(column, |converter| converter.row_group_mins(groups).ok())
    }

    fn max_values(&self, column: &DataFusionColumn) -> Option<ArrayRef> {
        let groups = self.builder.metadata().row_groups();
        self.bounds(column, |converter| converter.row_group_maxes(groups).ok())
    }

    fn num_containers(&self) -> usize {
        self.builder.metadata().num_row_groups()
    }

    fn null_counts(&self, column: &DataFusionColumn) -> Option<ArrayRef> {
        let converter = self.converter(self.schema.find_column(&column.name)?)?;
        let counts = converter.with_missing_null_counts_as_zero(false);
        let counts = counts.row_group_null_counts(self.builder.metadata().row_groups()).ok()?;
        Some(Arc::new(counts))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows = self.builder.metadata().row_groups().iter();
        let rows = rows.map(|group| u64::try_from(group.num_rows()).ok());
        Some(Arc::new(rows.collect::<UInt64Array>()))
    }

    fn contained(&self, _: &DataFusionColumn, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
