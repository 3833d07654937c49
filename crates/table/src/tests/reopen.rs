//! A table that is opened from its files, as a directory is: from those of a disk table, and from those of a
//! memory table before and after they are put into memory.

use std::sync::Arc;

use lockstep_row::TableSchema;

use super::{check, steps::TableFixture};
use crate::{Arrivals, Table, TableReplay};

impl TableFixture {
    /// Puts everything into files, and opens another table from them.
    pub(super) fn reopen(&mut self) {
        // Holds end with the process.
        self.levels.clear();
        self.holds.clear();
        let create = &mut || self.directory.create_data_file();
        // Rows that were frozen before go first.
        self.table.install(&self.table.freeze().flush(create).unwrap());
        let frozen = self.table.freeze();
        let flushed = frozen.flush(create).unwrap();
        let parts = flushed.before().with_newer(flushed.written());
        let end = u64::try_from(self.model.rows.len()).unwrap();
        let schema =
            TableSchema { columns: self.table.schema().columns.clone(), indexes: Vec::new() };
        let clock: Arc<_> = Arc::clone(&self.clock);
        let opened = Table::new(schema, clock, Arc::new(Arrivals::new(end))).unwrap();
        opened.set_directory(&self.directory);
        let mut replay = TableReplay::default();
        replay.indexes(&opened, 0, frozen.indexes()).unwrap();
        replay.note_time(frozen.now_ms());
        replay.parts(&opened, parts, frozen.is_of_memory()).unwrap();
        replay.finish(&opened);
        assert_eq!(opened.is_of_memory(), self.table.is_of_memory());
        opened.remove_unheld();
        self.frozen = None;
        self.table = Arc::new(opened);
        check(&self.table, &self.model);
    }
}
