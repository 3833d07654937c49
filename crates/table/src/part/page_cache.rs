//! The page cache: pages that were read from runs, for all tables of an engine, up to a limit.
//!
//! Readers share pages; a page that the cache drops stays until its last reader is gone. The
//! cache of the operating system, which has the bytes of files, is behind it.
//!
//! *Cost*: a hit is a lookup in one of many shards; a miss is a read of the disk, the check of the
//! page and the making of its chunks. Several threads that miss one page read it once.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_host::query;
use lockstep_series::Page;
use quick_cache::{Weighter, sync::Cache};

use crate::{ReadError, table::number};

/// The identity of a page with its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageId {
    /// The number of the run's data file.
    pub file: u64,
    /// The number of the page in the run.
    pub page: u32,
    /// The format of its records ([`lockstep_series::RecordFormat::id`]); 0 without records.
    pub format: u64,
}

/// Weighs a page by its bytes of memory.
#[derive(Debug, Clone, Copy)]
struct PageBytes;

/// Pages that were read, up to a limit of bytes.
pub struct PageCache {
    pages: Cache<PageId, Arc<Page>, PageBytes>,
    /// The limit as it was set; `pages` rounds it.
    limit: AtomicU64,
    hits: AtomicU64,
    reads: AtomicU64,
    /// The bytes of the pages when one was read last, or the limit was set.
    bytes: AtomicU64,
}

/// The contents and the work of a page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageCacheUse {
    /// The bytes of its pages.
    pub bytes: u64,
    /// The maximum of the bytes.
    pub limit: u64,
    /// The number of pages that were found in it.
    pub hits: u64,
    /// The number of pages that were read from the disk.
    pub reads: u64,
}

/// An estimate of the bytes of a page, for the size of the cache's table.
const PAGE_BYTES_ESTIMATED: u64 = 40 << 10;

impl Weighter<PageId, Arc<Page>> for PageBytes {
    fn weight(&self, _: &PageId, page: &Arc<Page>) -> u64 {
        number(page.memory_bytes())
    }
}

impl PageCache {
    /// Makes a cache of at most `limit` bytes.
    pub fn new(limit: u64) -> Self {
        let pages = usize::try_from(limit / PAGE_BYTES_ESTIMATED).unwrap_or(usize::MAX).max(1);
        let pages = Cache::with_weighter(pages, limit, PageBytes);
        let [hits, reads, bytes] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { pages, limit: AtomicU64::new(limit), hits, reads, bytes }
    }

    /// Sets the limit, and drops pages beyond it.
    pub fn set_limit(&self, limit: u64) {
        // Relaxed: a number to report.
        self.limit.store(limit, Ordering::Relaxed);
        self.pages.set_capacity(limit);
        self.note_bytes();
    }

    /// Returns the bytes of the pages.
    pub fn bytes(&self) -> u64 {
        // Relaxed: the number itself is all that is shared.
        self.bytes.load(Ordering::Relaxed)
    }

    fn note_bytes(&self) {
        // Relaxed: as above.
        self.bytes.store(self.pages.weight(), Ordering::Relaxed);
    }

    /// Returns the contents and the work of the cache.
    pub fn cache_use(&self) -> PageCacheUse {
        // Relaxed: numbers to report.
        let [limit, hits, reads] =
            [&self.limit, &self.hits, &self.reads].map(|number| number.load(Ordering::Relaxed));
        PageCacheUse { bytes: self.pages.weight(), limit, hits, reads }
    }

    /// Returns a page, and reads it when it is not here.
    pub fn page(
        &self,
        key: PageId,
        read: impl FnOnce() -> Result<Page, ReadError>,
    ) -> Result<Arc<Page>, ReadError> {
        let mut is_hit = true;
        let page = self.pages.get_or_insert_with(&key, || {
            is_hit = false;
            read().map(Arc::new)
        });
        let counter = if is_hit { &self.hits } else { &self.reads };
        // Relaxed: a number to report.
        counter.fetch_add(1, Ordering::Relaxed);
        match is_hit {
            true => query::report_cached_page(),
            false => self.note_bytes(),
        }
        page
    }
}

impl fmt::Debug for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCache").field("use", &self.cache_use()).finish_non_exhaustive()
    }
}
