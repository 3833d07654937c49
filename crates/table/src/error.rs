//! The errors of a table: why it refuses a row or an index.

use lockstep_host::Interrupt;
use lockstep_row::{DataType, RowError};

use crate::{LogFailure, ReadError};

/// An error of a table, which refuses a row or an index. Row numbers count from 1 within the append.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A row does not fit the schema.
    #[error("row {row_number}")]
    Row {
        /// The number of the row in the append, from 1.
        row_number: u64,
        /// The error of the row codec.
        source: RowError,
    },
    /// NULL in the event-time column of a declared index.
    #[error("null value in event-time column `{column}` of index `{index}` in row {row_number}")]
    NullEventTime {
        /// The column.
        column: String,
        /// The index.
        index: String,
        /// The number of the row, from 1: in the append, or in order of arrival when an index is added.
        row_number: u64,
    },
    /// The table was dropped while a caller still referred to it.
    #[error("the table was dropped")]
    Dropped,
    /// The engine's tables would take more memory than they may.
    #[error("max_memory exceeded: {needed} more bytes needed, {used} of {limit} in use")]
    OutOfMemory {
        /// Bytes that the rows were expected to take.
        needed: u64,
        /// Bytes that all tables take.
        used: u64,
        /// The most bytes that they may take.
        limit: u64,
    },
    /// The machine would not give the process the memory.
    #[error("memory limit of the process exceeded: {needed} more bytes needed")]
    MachineFull {
        /// Bytes that the rows were expected to take.
        needed: u64,
    },
    /// An append of the table panicked: how much of it was stored is not known, so nothing after it is
    /// shown.
    #[error(
        "the table accepts no appends: an earlier one failed midway; rows stored before it can be \
         read"
    )]
    Damaged,
    /// The change could not be logged, and was not made.
    #[error("{0}")]
    Log(LogFailure),
    /// Rows of a disk table could not be written to the disk; what is stored is as it was.
    #[error("{0}")]
    Part(LogFailure),
    /// Rows that the change depends on could not be read; it was not made.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The call was interrupted before anything changed.
    #[error("the call was interrupted")]
    Interrupted(Interrupt),
    /// A negative value in the event-time column of a declared index.
    #[error(
        "event-time column `{column}` of index `{index}` must not be negative: {event_time} in row \
         {row_number}"
    )]
    NegativeEventTime {
        /// The column.
        column: String,
        /// The index.
        index: String,
        /// The value.
        event_time: i64,
        /// The number of the row, from 1: in the append, or in order of arrival when an index is added.
        row_number: u64,
    },
    /// An index names a column that the table does not have.
    #[error("index `{index}` references column {position}, but the table has {columns} columns")]
    ColumnMissing {
        /// The index.
        index: String,
        /// The column's position, from 0.
        position: usize,
        /// How many columns there are.
        columns: usize,
    },
    /// The event-time column of an index is of a type that has no order in time.
    #[error(
        "event-time column `{column}` must be of type BIGINT, TIMESTAMP, INT or SMALLINT, not \
         {data_type}"
    )]
    EventTimeType {
        /// The column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// A key column of an index is an array or a map.
    #[error("column `{column}` of type {data_type} cannot be part of an entity key")]
    KeyType {
        /// The column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// Two indexes of one name.
    #[error("index `{name}` already exists")]
    IndexExists {
        /// The name.
        name: String,
    },
    /// No declared index of this name.
    #[error("index `{name}` does not exist")]
    IndexMissing {
        /// The name.
        name: String,
    },
}
