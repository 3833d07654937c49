//! The part of a table that is on a disk: runs of its indexes, and how readers take their rows.
//!
//! An [`IndexRun`] has rows of one index, sorted by entity key, in a data file. [`MergedRows`] shows the rows
//! of a key from memory and from runs as one sequence. The [`PageCache`] keeps pages that were read.
//! (ADR 0058)

mod block;
pub(crate) mod bug;
mod extent;
mod key_filter;
mod key_scan;
mod merge;
mod merged_rows;
mod node_rows;
mod page_cache;
mod run;
mod run_rows;
#[cfg(test)]
mod tests;

pub(crate) use block::BlockFootprint;
pub use extent::{ArrivedPlace, ExtentBlock, ExtentWriter, RowExtent};
pub(crate) use extent::{TimeBounds, block_footprint, time_columns};
pub(crate) use key_filter::filter_bytes;
pub(crate) use key_scan::{KeyScan, for_each_row};
pub(crate) use merge::merge_scans;
pub use merge::{MergeError, MergeRule, merge};
pub use merged_rows::MergedRows;
pub(crate) use node_rows::NodeRows;
pub use page_cache::{PageCache, PageCacheUse, PageId};
pub(crate) use run::fence_footprint;
pub use run::{IndexRun, RunCounts, RunWriter};
pub use run_rows::{PageSource, Pins, RunRows};
