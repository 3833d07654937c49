//! The sizes of what disk tables write: tests use small ones, so that a few rows make many files.

use std::sync::atomic::{AtomicU64, Ordering};

/// The sizes. The usual ones are [`DiskTuning::USUAL`].
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskTuning {
    /// A page of a run ends when it has so many bytes.
    pub page_bytes: u64,
    /// A block of an extent ends when it has so many bytes.
    pub block_bytes: u64,
    /// An extent ends when it has so many bytes; one with fewer may be merged with others.
    pub extent_bytes: u64,
    /// So many runs, or extents, of about one size are merged.
    pub runs_merged: u64,
    /// Runs up to this size are of the first tier.
    pub first_tier_bytes: u64,
    /// With fewer rows, expired ones stay in files.
    pub rewritten_rows_min: u64,
    /// So many bytes of rows are sorted at once for an index that is added.
    pub sorted_bytes: u64,
}

impl DiskTuning {
    /// What users have.
    pub const USUAL: Self = Self {
        page_bytes: 32 << 10,
        block_bytes: 256 << 10,
        extent_bytes: 1 << 30,
        runs_merged: 8,
        first_tier_bytes: 16 << 20,
        rewritten_rows_min: 1 << 16,
        sorted_bytes: 32 << 20,
    };

    /// What tests have: pages of some rows.
    pub const SMALL: Self = Self {
        page_bytes: 128,
        block_bytes: 96,
        extent_bytes: 256,
        runs_merged: 3,
        first_tier_bytes: 256,
        rewritten_rows_min: 8,
        sorted_bytes: 1,
    };
}

const BEGIN: DiskTuning = if cfg!(test) { DiskTuning::SMALL } else { DiskTuning::USUAL };

static PAGE_BYTES: AtomicU64 = AtomicU64::new(BEGIN.page_bytes);
static BLOCK_BYTES: AtomicU64 = AtomicU64::new(BEGIN.block_bytes);
static EXTENT_BYTES: AtomicU64 = AtomicU64::new(BEGIN.extent_bytes);
static RUNS_MERGED: AtomicU64 = AtomicU64::new(BEGIN.runs_merged);
static FIRST_TIER_BYTES: AtomicU64 = AtomicU64::new(BEGIN.first_tier_bytes);
static REWRITTEN_ROWS_MIN: AtomicU64 = AtomicU64::new(BEGIN.rewritten_rows_min);
static SORTED_BYTES: AtomicU64 = AtomicU64::new(BEGIN.sorted_bytes);

/// Sets the sizes, for all tables of the process.
#[doc(hidden)]
pub fn set_disk_tuning(tuning: DiskTuning) {
    let DiskTuning { page_bytes, block_bytes, extent_bytes, .. } = tuning;
    let DiskTuning { runs_merged, first_tier_bytes, rewritten_rows_min, sorted_bytes, .. } = tuning;
    for (size, value) in [
        (&PAGE_BYTES, page_bytes),
        (&BLOCK_BYTES, block_bytes),
        (&EXTENT_BYTES, extent_bytes),
        (&RUNS_MERGED, runs_merged),
        (&FIRST_TIER_BYTES, first_tier_bytes),
        (&REWRITTEN_ROWS_MIN, rewritten_rows_min),
        (&SORTED_BYTES, sorted_bytes),
    ] {
        // Relaxed: the numbers themselves are all that is shared.
        size.store(value, Ordering::Relaxed);
    }
}

/// Returns the sizes.
pub(crate) fn tuning() -> DiskTuning {
    // Relaxed: as above.
    let load = |size: &AtomicU64| size.load(Ordering::Relaxed);
    DiskTuning {
        page_bytes: load(&PAGE_BYTES),
        block_bytes: load(&BLOCK_BYTES),
        extent_bytes: load(&EXTENT_BYTES),
        runs_merged: load(&RUNS_MERGED),
        first_tier_bytes: load(&FIRST_TIER_BYTES),
        rewritten_rows_min: load(&REWRITTEN_ROWS_MIN),
        sorted_bytes: load(&SORTED_BYTES),
    }
}
