//! The index that numbers the distinct entity keys of some columns.
//!
//! Windows partition by it and joins look keys up in it. NULL equals NULL, and equal integers of
//! different types are one key (`lockstep_row::key`).

use std::hash::BuildHasher;

use arrow::array::ArrayRef;
use hashbrown::{DefaultHashBuilder, HashTable};
use lockstep_row::{Arena, arrow::ColumnReader, key::encode_key};

/// The keys seen so far, numbered from 0 in the order in which they appeared.
#[derive(Debug, Default)]
pub(crate) struct KeyIndex {
    hasher: DefaultHashBuilder,
    table: HashTable<u32>,
    /// The bytes of all keys, one after the other.
    bytes: Vec<u8>,
    /// The end of each key in `bytes`.
    ends: Vec<usize>,
}

impl KeyIndex {
    /// Returns the number of distinct keys.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Inserts the key of each row and returns its number; new keys get the next numbers. Without
    /// columns every row has the same key.
    pub(crate) fn insert(&mut self, columns: &[ArrayRef], row_count: usize) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(row_count);
        for_each_key(columns, row_count, |key| numbers.push(self.insert_one(key)));
        numbers
    }

    /// Returns the number of each row's key; `None` for keys that were never inserted.
    pub(crate) fn find(&self, columns: &[ArrayRef], row_count: usize) -> Vec<Option<u32>> {
        let mut numbers = Vec::with_capacity(row_count);
        for_each_key(columns, row_count, |key| {
            let hash = self.hasher.hash_one(key);
            numbers.push(
                self.table.find(hash, |at| bytes_of(&self.bytes, &self.ends, *at) == key).copied(),
            );
        });
        numbers
    }

    fn insert_one(&mut self, key: &[u8]) -> u32 {
        let Self { hasher, table, bytes, ends } = self;
        let hash = hasher.hash_one(key);
        if let Some(number) = table.find(hash, |at| bytes_of(bytes, ends, *at) == key) {
            return *number;
        }
        let number = u32::try_from(ends.len()).expect("there are no more keys than rows");
        bytes.extend_from_slice(key);
        ends.push(bytes.len());
        table.insert_unique(hash, number, |at| hasher.hash_one(bytes_of(bytes, ends, *at)));
        debug_assert_eq!(table.len(), ends.len(), "each key has one number");
        number
    }
}

/// Calls `body` with the bytes of each row's key, in the order of the rows.
pub(crate) fn for_each_key(columns: &[ArrayRef], row_count: usize, mut body: impl FnMut(&[u8])) {
    let readers: Vec<_> = columns.iter().map(|column| ColumnReader::new(column)).collect();
    // Keys are scalars: nothing is ever laid out in the arena.
    let arena = Arena::new();
    let mut key = Vec::new();
    for row in 0..row_count {
        key.clear();
        encode_key(readers.iter().map(|reader| reader.get(row, &arena)), &mut key);
        body(&key);
    }
}

fn bytes_of<'a>(bytes: &'a [u8], ends: &[usize], number: u32) -> &'a [u8] {
    let at = number as usize;
    let start = if at == 0 { 0 } else { ends[at - 1] };
    &bytes[start..ends[at]]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray};

    use super::KeyIndex;

    #[test]
    fn equal_keys_share_a_number_across_integer_types_and_null_is_a_key() {
        let left: ArrayRef =
            Arc::new(Int32Array::from(vec![Some(1), None, Some(2), Some(1), None]));
        let right: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), Some(3), None]));
        let mut index = KeyIndex::default();
        assert_eq!(index.insert(&[left], 5), [0, 1, 2, 0, 1]);
        assert_eq!(index.find(&[right], 3), [Some(2), None, Some(1)]);
        assert_eq!(index.len(), 3);
    }

    #[test]
    fn without_columns_there_is_one_key() {
        let mut index = KeyIndex::default();
        assert_eq!(index.insert(&[], 3), [0, 0, 0]);
    }

    #[test]
    fn many_keys_survive_growth() {
        let names: Vec<String> = (0..5_000).map(|number| format!("key {number}")).collect();
        let column: ArrayRef = Arc::new(StringArray::from(names));
        let mut index = KeyIndex::default();
        let numbers = index.insert(&[Arc::clone(&column)], 5_000);
        assert_eq!(numbers, (0..5_000).collect::<Vec<u32>>());
        let found = index.find(&[column], 5_000);
        assert!(found.iter().zip(0..).all(|(found, number)| *found == Some(number)));
    }
}
