//! Reading a log in order of arrival. Borrows a guard and allocates nothing.

use std::fmt;

use super::{LogPosition, block_at};
use crate::{RowRef, block::LogBlock, directory::Directory};

/// A row of the log.
#[derive(Debug, Clone, Copy)]
pub struct LogRow<'g> {
    /// The row.
    pub row: RowRef<'g>,
    /// When it arrived, in milliseconds since the epoch.
    pub arrival_ms: i64,
}

/// Rows in order of arrival. See [`crate::RowLog::rows`].
pub struct LogRows<'g> {
    directory: &'g Directory<LogBlock>,
    position: LogPosition,
    /// The block at the position, and where its rows end.
    block: Option<&'g LogBlock>,
    end: usize,
    /// The number of blocks to read.
    block_count: usize,
    /// Rows with a smaller arrival are visible.
    visible: u64,
}

impl<'g> LogRows<'g> {
    /// Reads from a position on.
    pub(super) fn new(
        directory: &'g Directory<LogBlock>,
        position: LogPosition,
        visible: u64,
    ) -> Self {
        let block_count = directory.len();
        Self { directory, position, block: None, end: 0, block_count, visible }
    }

    /// Reads the rows of one block.
    pub(super) fn of_block(directory: &'g Directory<LogBlock>, at: usize) -> Self {
        let position = LogPosition { block: at, offset: 0 };
        Self { block_count: at + 1, ..Self::new(directory, position, u64::MAX) }
    }

    /// Goes on to the first row with an arrival of at least `from`.
    pub(super) fn skip_before(&mut self, from: u64) {
        while let Some((row, block)) = self.next_in_block() {
            debug_assert!(self.position.offset <= block.rows_end(), "a row is within its block");
            if row.arrival() >= from {
                // It is in the block that the reader is in now.
                self.position.offset -= row.stored_size();
                return;
            }
        }
    }

    /// Returns the position of the next row.
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// Returns the next row, without the time of its arrival.
    #[inline]
    pub fn next_row(&mut self) -> Option<RowRef<'g>> {
        self.next_in_block().map(|(row, _)| row)
    }

    /// Returns the next row and its block.
    #[inline]
    fn next_in_block(&mut self) -> Option<(RowRef<'g>, &'g LogBlock)> {
        loop {
            if let Some(block) = self.block
                && self.position.offset < self.end
            {
                let row = block.row(self.position.offset);
                if row.arrival() >= self.visible {
                    // The position stays at the row.
                    self.block_count = self.position.block;
                    self.end = 0;
                    return None;
                }
                self.position.offset += row.stored_size();
                debug_assert!(self.position.offset <= self.end, "a row ends within its block");
                return Some((row, block));
            }
            if self.block.is_some() {
                if self.position.block + 1 >= self.block_count {
                    // The position stays at the end of the last block, which may still grow.
                    return None;
                }
                self.position = LogPosition { block: self.position.block + 1, offset: 0 };
            }
            if self.position.block >= self.block_count {
                return None;
            }
            let block = block_at(self.directory, self.position.block);
            self.end = block.rows_end();
            self.block = Some(block);
        }
    }
}

impl<'g> Iterator for LogRows<'g> {
    type Item = LogRow<'g>;

    #[inline]
    fn next(&mut self) -> Option<LogRow<'g>> {
        let (row, block) = self.next_in_block()?;
        Some(LogRow { row, arrival_ms: block.arrived_ms(row.arrival()) })
    }
}

impl fmt::Debug for LogRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogRows").field("position", &self.position).finish_non_exhaustive()
    }
}
