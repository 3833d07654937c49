//! The files of a disk table in a checkpoint: what a manifest says of them, opening them, copying them.
//!
//! The table writes its parts itself (`lockstep_table`); a checkpoint lists them. A backup copies their blocks,
//! which stand at the same places in the copy.

use std::sync::Arc;

use lockstep_diagnostic::Result;
use lockstep_table::{
    FlushedTable, TableParts,
    part::{IndexRun, RowExtent},
};
use lockstep_wal::{BlockPlace, DataFile, DatabaseDirectory, Error};
use serde::{Deserialize, Serialize};

use super::Extent;
use crate::log_error::log_error;

/// The place of a block in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedPlace {
    pub(crate) offset: u64,
    index: u32,
    length: u32,
}

impl From<BlockPlace> for ListedPlace {
    fn from(BlockPlace { offset, index, length }: BlockPlace) -> Self {
        Self { offset, index, length }
    }
}

impl From<ListedPlace> for BlockPlace {
    fn from(ListedPlace { offset, index, length }: ListedPlace) -> Self {
        Self { offset, index, length }
    }
}

/// A run of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedRun {
    /// The number of the data file.
    pub(crate) file: u64,
    pub(crate) last_block: ListedPlace,
}

/// The files of a disk table, as a manifest lists them.
#[derive(Debug, Default)]
pub(super) struct ListedParts {
    pub(super) extents: Vec<Extent>,
    /// For each index by position its runs, the newest one first.
    pub(super) runs: Vec<Vec<ListedRun>>,
    pub(super) files: Vec<DataFile>,
}

/// Lists the files of a table that was flushed into `directory`. Where the parts from before are in another one,
/// `source`, they are copied first.
pub(super) fn list(
    flushed: &FlushedTable,
    directory: &DatabaseDirectory,
    source: Option<&DatabaseDirectory>,
) -> Result<ListedParts> {
    let mut place = |file: DataFile| match source {
        None => Ok(file),
        Some(source) => copy_file(source, file, directory),
    };
    let mut listed = ListedParts::default();
    listed.add(flushed.before(), &mut place).map_err(|error| log_error(&error))?;
    listed.add(flushed.written(), &mut |file| Ok(file)).map_err(|error| log_error(&error))?;
    debug_assert!(
        listed.extents.is_sorted_by(|one, next| one.to <= next.from),
        "extents are in order of arrival"
    );
    Ok(listed)
}

impl ListedParts {
    /// Adds parts that are newer than those listed; `place` says which file each is in.
    fn add(
        &mut self,
        parts: &TableParts,
        place: &mut dyn FnMut(DataFile) -> std::result::Result<DataFile, Error>,
    ) -> std::result::Result<(), Error> {
        for extent in parts.extents() {
            let file = place(extent.file())?;
            let arrivals = extent.arrivals();
            self.extents.push(Extent {
                file: file.number,
                from: arrivals.start,
                to: arrivals.end,
                rows: extent.row_count(),
                last_block: Some(extent.last_block().into()),
            });
            self.files.push(file);
        }
        self.runs.resize_with(self.runs.len().max(parts.all_runs().len()), Vec::new);
        for (runs, added) in self.runs.iter_mut().zip(parts.all_runs()) {
            let mut newer = Vec::new();
            for run in added {
                let file = place(run.file())?;
                newer.push(ListedRun { file: file.number, last_block: run.last_block().into() });
                self.files.push(file);
            }
            runs.splice(0..0, newer);
        }
        Ok(())
    }
}

/// Copies the blocks of a data file into a new one of another database.
fn copy_file(
    from: &DatabaseDirectory,
    file: DataFile,
    to: &DatabaseDirectory,
) -> std::result::Result<DataFile, Error> {
    let (mut reader, mut writer) = (from.read_data_file(file)?, to.create_data_file()?);
    while let Some(block) = reader.next_block()? {
        writer.push_block(block)?;
    }
    let copy = writer.finish()?;
    debug_assert_eq!((copy.bytes, copy.blocks), (file.bytes, file.blocks), "blocks stay in place");
    Ok(copy)
}

/// Opens the parts of a table that a manifest lists; `find` finds a file by its number. `None` where one is not
/// listed.
pub(crate) fn open(
    directory: &DatabaseDirectory,
    extents: &[Extent],
    runs: &[Vec<ListedRun>],
    find: impl Fn(u64) -> Option<DataFile>,
) -> Result<Option<TableParts>> {
    let blocks = |file| directory.open_blocks(file).map_err(|error| log_error(&error));
    let mut opened_extents = Vec::new();
    for extent in extents {
        let (Some(file), Some(place)) = (find(extent.file), extent.last_block) else {
            return Ok(None);
        };
        let opened = RowExtent::open(blocks(file)?, place.into())?;
        let (arrivals, rows) = (opened.arrivals(), opened.row_count());
        if (arrivals.start, arrivals.end, rows) != (extent.from, extent.to, extent.rows) {
            return Ok(None);
        }
        opened_extents.push(Arc::new(opened));
    }
    let mut opened_runs = Vec::new();
    for of_index in runs {
        let mut opened = Vec::new();
        for run in of_index {
            let Some(file) = find(run.file) else { return Ok(None) };
            opened.push(Arc::new(IndexRun::open(blocks(file)?, run.last_block.into())?));
        }
        opened_runs.push(opened);
    }
    Ok(Some(TableParts::new(opened_extents, opened_runs)))
}
