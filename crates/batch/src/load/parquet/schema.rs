//! The columns of a Parquet file: their types, and where each is in the file.
//!
//! A file may carry the schema of Arrow that its writer had. It is advice: a type that would give the
//! stored numbers another meaning is not taken. INT96 times are read in microseconds, since those in
//! nanoseconds end in the year 2262. A group without members is no column, but has its place among
//! the fields of the file.

use std::sync::Arc;

use ::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use ::parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    },
    basic::{LogicalType, TimeUnit as ParquetUnit, Type as PhysicalType},
    errors::{ParquetError, Result as ParquetResult},
    file::metadata::ParquetMetaData,
    schema::types::{SchemaDescriptor, Type},
};

/// The columns of a file.
#[derive(Debug, Clone)]
pub(super) struct FileColumns {
    pub(super) schema: SchemaRef,
    /// Positions of the columns among the fields of the file.
    pub(super) roots: Vec<usize>,
    /// Types for Parquet's reader; `None` for those that it chooses itself.
    pub(super) hint: Option<Fields>,
}

impl FileColumns {
    /// Finds the columns of a file.
    pub(super) fn of(metadata: &Arc<ParquetMetaData>) -> ParquetResult<Self> {
        let parquet = metadata.file_metadata().schema_descr();
        let load = |options| ArrowReaderMetadata::try_new(Arc::clone(metadata), options);
        let plain = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let plain = Arc::clone(load(plain)?.schema());
        let fields = parquet.root_schema().get_fields();
        let roots = (0..parquet.num_columns()).map(|leaf| parquet.get_column_root_idx(leaf));
        let mut roots: Vec<usize> = roots.collect();
        roots.dedup();
        let has_names = |(root, field): (&usize, &FieldRef)| fields[*root].name() == field.name();
        if roots.len() != plain.fields().len() || !roots.iter().zip(plain.fields()).all(has_names) {
            let message = "the fields of the schema do not match the columns".to_owned();
            return Err(ParquetError::General(message));
        }
        // Advice has a type for each field, those that are no columns among them.
        if roots.len() != fields.len() {
            return Ok(Self { schema: plain, roots, hint: None });
        }
        let advised = load(ArrowReaderOptions::new())
            .map_or_else(|_| Arc::clone(&plain), |loaded| Arc::clone(loaded.schema()));
        let types = plain.fields().iter().zip(advised.fields()).zip(fields);
        let types = types.map(|((plain, advised), of_file)| {
            let data_type = match has_int96(of_file) {
                true => in_microseconds(advised.data_type()),
                false => believed(plain.data_type(), advised.data_type()),
            };
            Arc::new(Field::clone(advised).with_data_type(data_type))
        });
        let hint: Fields = types.collect();
        let schema = Schema::new_with_metadata(hint.clone(), advised.metadata().clone());
        Ok(Self { schema: Arc::new(schema), roots, hint: Some(hint) })
    }

    /// Returns which leaves of the file are those of some columns.
    pub(super) fn mask(&self, parquet: &SchemaDescriptor, columns: &[usize]) -> ProjectionMask {
        ProjectionMask::roots(parquet, columns.iter().map(|column| self.roots[*column]))
    }

    /// Returns the leaf that a column is; `None` for one that has several values in a row.
    pub(super) fn leaf(&self, parquet: &SchemaDescriptor, column: usize) -> Option<usize> {
        let root = *self.roots.get(column)?;
        (0..parquet.num_columns()).find(|leaf| {
            parquet.get_column_root_idx(*leaf) == root
                && parquet.column(*leaf).path().parts().len() == 1
                && parquet.column(*leaf).max_rep_level() == 0
        })
    }
}

/// Returns the type that advice gives to stored values, or their own where the advice would give them
/// another meaning.
fn believed(plain: &DataType, advised: &DataType) -> DataType {
    let inner = |plain: &FieldRef, advised: &FieldRef| {
        let data_type = believed(plain.data_type(), advised.data_type());
        Arc::new(Field::clone(advised).with_data_type(data_type))
    };
    match (plain, advised) {
        (_, DataType::Dictionary(key, value)) => {
            DataType::Dictionary(key.clone(), Box::new(believed(plain, value)))
        }
        (DataType::Timestamp(plain_unit, _), DataType::Timestamp(unit, _))
            if unit != plain_unit =>
        {
            plain.clone()
        }
        (DataType::Decimal128(digits, scale), DataType::Decimal32(other, other_scale))
        | (DataType::Decimal128(digits, scale), DataType::Decimal64(other, other_scale))
        | (DataType::Decimal128(digits, scale), DataType::Decimal256(other, other_scale))
            if (digits, scale) != (other, other_scale) =>
        {
            plain.clone()
        }
        (DataType::List(plain), DataType::List(advised)) => DataType::List(inner(plain, advised)),
        (DataType::List(plain), DataType::LargeList(advised)) => {
            DataType::LargeList(inner(plain, advised))
        }
        (DataType::Map(plain, _), DataType::Map(advised, is_sorted)) => {
            DataType::Map(inner(plain, advised), *is_sorted)
        }
        (DataType::Struct(plain), DataType::Struct(advised)) if plain.len() == advised.len() => {
            DataType::Struct(plain.iter().zip(advised).map(|(a, b)| inner(a, b)).collect())
        }
        _ => advised.clone(),
    }
}

/// Returns whether the times in a field are stored as INT96.
fn has_int96(field: &Type) -> bool {
    let mut leaves = Vec::new();
    add_leaves(field, &mut leaves);
    let is_int96 = |leaf: &&Type| leaf.get_physical_type() == PhysicalType::INT96;
    let is_in_nanoseconds = |leaf: &&Type| {
        let logical = leaf.get_basic_info().logical_type_ref();
        matches!(logical, Some(LogicalType::Timestamp(time)) if time.unit == ParquetUnit::NANOS)
    };
    leaves.iter().any(is_int96) && !leaves.iter().any(is_in_nanoseconds)
}

fn add_leaves<'t>(field: &'t Type, leaves: &mut Vec<&'t Type>) {
    match field.is_group() {
        true => field.get_fields().iter().for_each(|field| add_leaves(field, leaves)),
        false => leaves.push(field),
    }
}

/// Returns a type with the times in it in microseconds, without a zone.
fn in_microseconds(data_type: &DataType) -> DataType {
    let inner = |field: &FieldRef| {
        let data_type = in_microseconds(field.data_type());
        Arc::new(Field::clone(field).with_data_type(data_type))
    };
    match data_type {
        DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Dictionary(_, value) => in_microseconds(value),
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::Map(entries, is_sorted) => DataType::Map(inner(entries), *is_sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::{DataType, TimeUnit, believed};

    #[test]
    fn advice_does_not_change_what_numbers_mean() {
        let time = |unit| DataType::Timestamp(unit, None);
        let zoned = DataType::Timestamp(TimeUnit::Nanosecond, Some("Asia/Tokyo".into()));
        let words = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        for (plain, advised, expected) in [
            (time(TimeUnit::Nanosecond), time(TimeUnit::Second), time(TimeUnit::Nanosecond)),
            (time(TimeUnit::Nanosecond), zoned.clone(), zoned),
            (DataType::Int64, time(TimeUnit::Second), time(TimeUnit::Second)),
            (DataType::Utf8, words.clone(), words),
            (DataType::Decimal128(9, 2), DataType::Decimal256(40, 5), DataType::Decimal128(9, 2)),
            (
                DataType::new_list(time(TimeUnit::Nanosecond), true),
                DataType::new_large_list(time(TimeUnit::Millisecond), true),
                DataType::new_large_list(time(TimeUnit::Nanosecond), true),
            ),
        ] {
            assert_eq!(believed(&plain, &advised), expected, "{plain} as {advised}");
        }
    }
}
