//! Counts the rows that a snapshot shows by each index, for who verifies a table.
//!
//! `engine` calls it for `lockstep check`: by every index there are as many rows as in order of arrival.
//! *Cost*: reads every row, and once more by each index; holds all keys of an index in memory.

use std::collections::BTreeSet;

use crate::{ReadError, Snapshot, Table, state};

/// How many rows of a table there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowCounts {
    /// In order of arrival.
    pub scanned: u64,
    /// By each index, with its name.
    pub by_index: Vec<(String, u64)>,
}

impl RowCounts {
    /// Returns whether every index shows as many rows as there are.
    pub fn agree(&self) -> bool {
        self.by_index.iter().all(|(_, rows)| *rows == self.scanned)
    }
}

impl Table {
    /// Counts the live rows, in order of arrival and by each index.
    pub fn row_counts(&self) -> Result<RowCounts, ReadError> {
        let snapshot = self.snapshot();
        let scanned = snapshot.count(None)?;
        let present = snapshot.state().present();
        let by_index =
            present.map(|(at, (spec, _))| Ok((spec.name.clone(), snapshot.rows_by(at)?)));
        Ok(RowCounts { scanned, by_index: by_index.collect::<Result<_, _>>()? })
    }
}

impl Snapshot<'_> {
    /// Counts the rows of all keys of an index.
    fn rows_by(&self, index: usize) -> Result<u64, ReadError> {
        let spec = &self.schema().indexes[index];
        let mut keys = BTreeSet::new();
        let mut key = Vec::new();
        let mut rows = self.scan();
        while let Some(found) = rows.next_row()? {
            key.clear();
            state::encode_key(spec, found.row, &mut key);
            if !keys.contains(&key) {
                keys.insert(key.clone());
            }
        }
        let count = |key: &Vec<u8>| {
            let mut rows = self.rows(index, key);
            rows.try_fold(0, |count, row| row.map(|_| count + 1))
        };
        keys.iter().map(count).sum()
    }
}
