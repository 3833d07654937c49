//! The schema of a table: its columns, its indexes and how long they keep a row.

use serde::{Deserialize, Serialize};

use crate::{DataType, Retention, RowError, Value, persistent::RetentionRecord};

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The name, in the case it was written.
    pub name: String,
    /// The type of its values.
    pub data_type: DataType,
    /// Whether NULL may be stored.
    pub nullable: bool,
    /// The value that an INSERT without the column stores.
    pub default: Option<Value>,
    /// The maximum length of a text, in characters. Earlier versions had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length_max: Option<u32>,
}

impl Column {
    /// Makes a nullable column without a default.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Self { name: name.into(), data_type, nullable: true, default: None, length_max: None }
    }

    /// Returns the type as CREATE TABLE has it: with the maximum length.
    pub fn declared_type(&self) -> String {
        match self.length_max {
            Some(length_max) => format!("VARCHAR({length_max})"),
            None => self.data_type.to_string(),
        }
    }

    /// Returns the error of a text that has more characters than the column takes. Costs a pass over the
    /// text if the column has a maximum length and the text has more bytes than that.
    pub fn check_length(&self, text: &str) -> Result<(), RowError> {
        let Some(length_max) = self.length_max else { return Ok(()) };
        let exceeds =
            |length: usize| u32::try_from(length).map_or(true, |length| length > length_max);
        if !exceeds(text.len()) {
            return Ok(());
        }
        match text.chars().count() {
            length if exceeds(length) => {
                Err(RowError::Length { column: self.name.clone(), length_max, length })
            }
            _ => Ok(()),
        }
    }
}

/// An index: the rows of each entity key in event-time order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSpec {
    /// The name; unique within the table.
    pub name: String,
    /// Positions of the key columns, in the order they were written.
    pub keys: Vec<usize>,
    /// Position of the event-time column (BIGINT, TIMESTAMP, INT or SMALLINT). `None`: rows are
    /// in order of arrival, and the time of arrival counts for retention.
    pub event_time: Option<usize>,
    /// How long it keeps a row.
    #[serde(with = "RetentionRecord")]
    pub retention: Retention,
    /// Whether the user declared it. An index made for a deployment keeps exactly the rows that
    /// some declared index keeps.
    pub declared: bool,
}

impl IndexSpec {
    /// Makes the empty entry that replaces a removed index: the indexes after it keep their positions.
    pub fn removed() -> Self {
        Self {
            name: String::new(),
            keys: Vec::new(),
            event_time: None,
            retention: Retention::Forever,
            declared: false,
        }
    }

    /// Returns whether the index is declared and keeps one row of each key, as a PRIMARY KEY does.
    pub fn keeps_one_row(&self) -> bool {
        debug_assert!(!self.declared || !self.is_removed(), "a removed index is not declared");
        self.declared && self.retention == Retention::Latest { latest: 1 }
    }

    /// Returns whether the key has these columns, in any order.
    pub fn has_keys(&self, columns: &[usize]) -> bool {
        debug_assert!(!columns.is_empty(), "a key has columns");
        self.keys.len() == columns.len() && self.keys.iter().all(|key| columns.contains(key))
    }

    /// Returns whether the index was removed, and only its position is left. It has no name.
    pub fn is_removed(&self) -> bool {
        self.name.is_empty()
    }
}

/// The columns and indexes of a table.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TableSchema {
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// The indexes, in the order they were made; a removed one is replaced by [`IndexSpec::removed`].
    pub indexes: Vec<IndexSpec>,
}

impl TableSchema {
    /// Finds the position of a column, matched case sensitively.
    pub fn find_column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Finds the index over exactly these key columns (in any order) and this event time.
    pub fn find_index(&self, keys: &[usize], event_time: Option<usize>) -> Option<usize> {
        self.indexes.iter().position(|index| {
            !index.is_removed()
                && index.event_time == event_time
                && index.keys.len() == keys.len()
                && index.keys.iter().all(|key| keys.contains(key))
        })
    }
}
