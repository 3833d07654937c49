//! The numbers of the entity keys of some rows, for windows.
//!
//! The keys are those of [`KeyIndex`]: NULL equals NULL, and each row of the same key has the same
//! number. All rows are there at once, so each column is numbered on its own, by its type, and the
//! numbers of several columns are combined pair by pair. Where there are no more possible values, or
//! pairs, than rows, a number is looked up in an array.

use std::hash::{BuildHasher, Hash};

use arrow::{
    array::{Array, ArrayRef, AsArray, PrimitiveArray},
    datatypes::{
        ArrowPrimitiveType, DataType as ArrowType, Date32Type, Int16Type, Int32Type, Int64Type,
        TimeUnit, TimestampMillisecondType,
    },
};
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::key_index::KeyIndex;

/// What an array has that no row had yet.
const NONE: u32 = u32::MAX;

/// The numbers of the keys of some rows, from 0 on.
#[derive(Debug)]
pub(crate) struct KeyNumbers {
    /// The number of each row's key.
    pub(crate) rows: Vec<u32>,
    /// How many numbers there are.
    pub(crate) count: usize,
}

impl KeyNumbers {
    /// Numbers the keys of fewer than 2^32 rows. Without columns all rows have the same key.
    ///
    /// *Cost*: O(rows · columns). Beside the result up to 12 bytes for each row, and 20 to 45 for each distinct
    /// value, or pair of numbers, that is not looked up in an array.
    pub(crate) fn of(columns: &[ArrayRef], row_count: usize) -> Self {
        let mut columns = columns.iter().map(Self::of_column);
        let first = columns.next();
        let first = first.unwrap_or_else(|| Self { rows: vec![0; row_count], count: 1 });
        columns.fold(first, |keys, column| keys.combined(&column))
    }

    fn of_column(column: &ArrayRef) -> Self {
        match column.data_type() {
            ArrowType::Utf8 => Self::of_distinct(column.as_string::<i32>().iter()),
            ArrowType::Int16 => Self::of_integers::<Int16Type>(column),
            ArrowType::Int32 => Self::of_integers::<Int32Type>(column),
            ArrowType::Int64 => Self::of_integers::<Int64Type>(column),
            ArrowType::Date32 => Self::of_integers::<Date32Type>(column),
            ArrowType::Timestamp(TimeUnit::Millisecond, None) => {
                Self::of_integers::<TimestampMillisecondType>(column)
            }
            _ => {
                let mut index = KeyIndex::default();
                let rows = index.insert(std::slice::from_ref(column), column.len());
                Self { rows, count: index.len() }
            }
        }
    }

    fn of_integers<T: ArrowPrimitiveType>(column: &ArrayRef) -> Self
    where
        i64: From<T::Native>,
    {
        let column: &PrimitiveArray<T> = column.as_primitive();
        let valid = || column.iter().flatten().map(i64::from);
        let (least, greatest) = valid().fold((i64::MAX, i64::MIN), |(least, greatest), value| {
            (least.min(value), greatest.max(value))
        });
        let value = |row: usize| column.is_valid(row).then(|| i64::from(column.value(row)));
        let range = greatest.checked_sub(least).and_then(|range| usize::try_from(range).ok());
        let range = range.filter(|range| *range < column.len());
        match range {
            // The place after all values is that of NULL.
            Some(range) => Self::of_places(column.len(), range + 2, |row| match value(row) {
                Some(value) => usize::try_from(value - least).expect("it is in the range"),
                None => range + 1,
            }),
            None => Self::of_distinct((0..column.len()).map(value)),
        }
    }

    /// Combines the numbers of the keys with those of one more column.
    fn combined(&self, other: &Self) -> Self {
        let rows = self.rows.len();
        match self.count.checked_mul(other.count).filter(|pairs| *pairs <= rows) {
            Some(pairs) => Self::of_places(rows, pairs, |row| {
                self.rows[row] as usize * other.count + other.rows[row] as usize
            }),
            None => Self::of_distinct(self.rows.iter().copied().zip(other.rows.iter().copied())),
        }
    }

    /// Numbers rows whose keys are places below `place_count`.
    fn of_places(row_count: usize, place_count: usize, place: impl Fn(usize) -> usize) -> Self {
        let mut numbers = vec![NONE; place_count];
        let mut count = 0;
        let rows = (0..row_count).map(|row| {
            let number = &mut numbers[place(row)];
            if *number == NONE {
                *number = count;
                count += 1;
            }
            *number
        });
        let rows = rows.collect();
        Self { rows, count: count as usize }
    }

    /// Numbers keys that are values, in the order in which they appear.
    fn of_distinct<K: Copy + Eq + Hash>(keys: impl Iterator<Item = K>) -> Self {
        let hasher = DefaultHashBuilder::default();
        let mut table: HashTable<u32> = HashTable::new();
        let mut known: Vec<K> = Vec::new();
        let rows = keys.map(|key| {
            let hash = hasher.hash_one(key);
            if let Some(number) = table.find(hash, |number| known[*number as usize] == key) {
                return *number;
            }
            let number = u32::try_from(known.len()).expect("there are fewer than 2^32 rows");
            known.push(key);
            table.insert_unique(hash, number, |at| hasher.hash_one(known[*at as usize]));
            number
        });
        let rows = rows.collect();
        Self { rows, count: known.len() }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::Arc};

    use arrow::array::{
        ArrayRef, BooleanArray, Float64Array, Int16Array, Int32Array, Int64Array, StringArray,
    };
    use proptest::{prelude::*, test_runner::Config};

    use super::KeyNumbers;
    use crate::key_index::KeyIndex;

    /// Makes a column of a type: few or many values, near each other or far apart.
    fn column(kind: usize, values: &[Option<u8>]) -> ArrayRef {
        let scaled = |by: i64| values.iter().map(move |value| value.map(|of| i64::from(of) * by));
        match kind {
            0 => Arc::new(values.iter().map(|of| of.map(i16::from)).collect::<Int16Array>()),
            1 => Arc::new(values.iter().map(|of| of.map(i32::from)).collect::<Int32Array>()),
            2 => Arc::new(scaled(i64::MAX / 256).collect::<Int64Array>()),
            3 => Arc::new(
                values
                    .iter()
                    .map(|of| of.map(|of| if of % 2 == 0 { i64::MIN } else { i64::MAX }))
                    .collect::<Int64Array>(),
            ),
            4 => {
                let float = |of: u8| [0.0, -0.0, f64::NAN, -f64::NAN, 1.5][of as usize % 5];
                Arc::new(values.iter().map(|of| of.map(float)).collect::<Float64Array>())
            }
            5 => Arc::new(values.iter().map(|of| of.map(|of| of > 9)).collect::<BooleanArray>()),
            _ => {
                let text = |of: u8| "key ".repeat(of as usize % 7);
                Arc::new(values.iter().map(|of| of.map(text)).collect::<StringArray>())
            }
        }
    }

    #[test]
    fn rows_have_one_number_where_the_index_of_keys_has_one() {
        let value = prop_oneof![1 => Just(None), 6 => (0..20_u8).prop_map(Some), 1 => any::<u8>().prop_map(Some)];
        let columns = prop::collection::vec((0..7_usize, prop::collection::vec(value, 40)), 0..4);
        proptest!(Config::with_cases(2_000), |(columns in columns, count in 0..40_usize)| {
            let columns: Vec<ArrayRef> =
                columns.iter().map(|(kind, values)| column(*kind, &values[..count])).collect();
            let mut index = KeyIndex::default();
            let expected = index.insert(&columns, count);
            let found = KeyNumbers::of(&columns, count);
            prop_assert_eq!(found.rows.len(), count);
            let (mut forth, mut back) = (HashMap::new(), HashMap::new());
            for (number, key) in found.rows.iter().zip(&expected) {
                prop_assert_eq!(forth.entry(*number).or_insert(*key), key);
                prop_assert_eq!(back.entry(*key).or_insert(*number), number);
                prop_assert!((*number as usize) < found.count);
            }
            if count > 0 {
                prop_assert_eq!(found.count, index.len());
            }
        });
    }
}
