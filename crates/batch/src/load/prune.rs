//! Leaving out files and parts of files in which no row can pass a query's filters.
//!
//! DataFusion's pruning decides from the least and the greatest value of each column: those of a
//! folder's name for a file, or what a lake table's metadata says of it; those of the statistics for
//! a row group of Parquet. What is not known is read, and so is what contradicts itself or is known to
//! be wrong in files of some writers. Floats are never decided: statistics leave NaN out, which is
//! greater than every number.

use std::{collections::HashSet, sync::Arc};

use ::arrow::{
    array::{ArrayRef, BooleanArray, UInt64Array},
    compute::{kernels::cmp::gt, nullif, or},
    datatypes::SchemaRef,
};
use ::parquet::{
    arrow::arrow_reader::statistics::StatisticsConverter,
    basic::{ColumnOrder, SortOrder, Type as PhysicalType},
    file::metadata::RowGroupMetaData,
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
    location::{ColumnBounds, InputFile},
    parquet::ParquetSource,
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
    pub(super) fn row_groups(&self, import: &FileImport, file: &ParquetSource) -> Vec<usize> {
        let count = file.metadata().num_row_groups();
        let groups = RowGroups { schema: &import.target().schema, import, file };
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
    /// its statistics have; NULL where neither is known, or the bounds contradict each other.
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
            let bounds = file.bounds(name).filter(|bounds| !is_inverted(bounds));
            let value = bounds.and_then(&bound).and_then(Value::as_scalar);
            let value = value.filter(|value| value.data_type() == *data_type);
            is_any_known |= value.is_some();
            builder.push(value.unwrap_or(Datum::Null));
        }
        is_any_known.then(|| builder.finish())
    }
}

/// Returns whether the least value is greater than the greatest.
fn is_inverted(bounds: &ColumnBounds) -> bool {
    match (&bounds.least, &bounds.greatest) {
        (Some(Value::SmallInt(least)), Some(Value::SmallInt(greatest))) => least > greatest,
        (Some(Value::Int(least)), Some(Value::Int(greatest)))
        | (Some(Value::Date(least)), Some(Value::Date(greatest))) => least > greatest,
        (Some(Value::BigInt(least)), Some(Value::BigInt(greatest)))
        | (Some(Value::Timestamp(least)), Some(Value::Timestamp(greatest))) => least > greatest,
        (Some(Value::String(least)), Some(Value::String(greatest))) => least > greatest,
        _ => false,
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
        let counts = self.files.iter().map(|file| {
            let (bounds, rows) = (file.bounds(name)?, file.statistics.as_ref()?.row_count);
            let is_bounded = bounds.least.is_some() || bounds.greatest.is_some();
            believed_null_count(bounds.null_count?, rows, is_bounded)
        });
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
    file: &'f ParquetSource,
}

/// The least and the greatest value of a column in each row group; NULL where they are not known.
struct GroupBounds {
    least: ArrayRef,
    greatest: ArrayRef,
}

impl RowGroups<'_> {
    fn groups(&self) -> &[RowGroupMetaData] {
        self.file.metadata().row_groups()
    }

    /// Returns the statistics of a column of the table, and its leaf in the file.
    fn converter(&self, position: usize) -> Option<(StatisticsConverter<'_>, usize)> {
        let of_file = self.import.of_file(position)?;
        let leaf = self.file.leaf(of_file)?;
        let field = self.file.schema().field(of_file);
        let parquet = self.file.parquet_schema();
        Some((StatisticsConverter::from_column_index(leaf, field, parquet).ok()?, leaf))
    }

    /// Returns bounds of the values as the reader would return them: each conversion keeps the
    /// order of values. Bounds in another order than that of the values are not used, nor those
    /// that contradict each other.
    fn bounds(&self, column: &DataFusionColumn) -> Option<GroupBounds> {
        let position = decisive(self.schema, column)?;
        let (converter, leaf) = self.converter(position)?;
        let data_type = &self.schema.columns[position].data_type;
        let imported = |bounds: ArrayRef| import_array(&in_milliseconds(&bounds), data_type).ok();
        let least = imported(converter.row_group_mins(self.groups()).ok()?)?;
        let greatest = imported(converter.row_group_maxes(self.groups()).ok()?)?;
        let is_unordered = self.groups().iter().map(|group| Some(!self.is_ordered(group, leaf)));
        let is_inverted = gt(&least, &greatest).ok()?;
        // An unknown bound contradicts no other.
        let is_inverted: BooleanArray =
            is_inverted.iter().map(|inverted| Some(inverted == Some(true))).collect();
        let is_unusable = or(&is_unordered.collect(), &is_inverted).ok()?;
        let [least, greatest] = [least, greatest].map(|bounds| nullif(&bounds, &is_unusable).ok());
        Some(GroupBounds { least: least?, greatest: greatest? })
    }

    /// Returns whether the bounds of a leaf are in the order of its values. The deprecated ones are
    /// in that of signed bytes, and without an order of columns it is not known; numbers with a sign
    /// have only one.
    fn is_ordered(&self, group: &RowGroupMetaData, leaf: usize) -> bool {
        let column = group.column(leaf).column_descr();
        let is_number = matches!(column.physical_type(), PhysicalType::INT32 | PhysicalType::INT64);
        if is_number && column.sort_order() == SortOrder::SIGNED {
            return true;
        }
        let order = self.file.metadata().file_metadata().column_order(leaf);
        let statistics = group.column(leaf).statistics();
        statistics.is_some_and(|statistics| !statistics.is_min_max_deprecated())
            && matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(order) if order != SortOrder::UNDEFINED)
    }
}

/// Returns a number of NULLs that may decide. Some writers have written 0 where there are NULLs
/// (Arrow C++ 4 for dictionaries), and a column with bounds has other values than NULL.
fn believed_null_count(count: u64, rows: Option<u64>, is_bounded: bool) -> Option<u64> {
    (count > 0 && !(is_bounded && Some(count) == rows)).then_some(count)
}

impl PruningStatistics for RowGroups<'_> {
    fn min_values(&self, column: &DataFusionColumn) -> Option<ArrayRef> {
        self.bounds(column).map(|bounds| bounds.least)
    }

    fn max_values(&self, column: &DataFusionColumn) -> Option<ArrayRef> {
        self.bounds(column).map(|bounds| bounds.greatest)
    }

    fn num_containers(&self) -> usize {
        self.groups().len()
    }

    fn null_counts(&self, column: &DataFusionColumn) -> Option<ArrayRef> {
        let (_, leaf) = self.converter(self.schema.find_column(&column.name)?)?;
        let counts = self.groups().iter().map(|group| {
            let chunk = group.column(leaf);
            if chunk.column_descr().max_def_level() == 0 {
                return Some(0);
            }
            let statistics = chunk.statistics()?;
            let is_bounded = statistics.min_bytes_opt().or(statistics.max_bytes_opt()).is_some();
            let rows = u64::try_from(group.num_rows()).ok();
            believed_null_count(statistics.null_count_opt()?, rows, is_bounded)
        });
        Some(Arc::new(counts.collect::<UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows = self.groups().iter().map(|group| u64::try_from(group.num_rows()).ok());
        Some(Arc::new(rows.collect::<UInt64Array>()))
    }

    fn contained(&self, _: &DataFusionColumn, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
