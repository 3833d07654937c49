//! The rows of one entity key in a run, newest first, read page by page; and the pages that are kept in
//! memory meanwhile.

use std::{cell::RefCell, fmt, ops::Range, sync::Arc};

use lockstep_row::RowCodec;
use lockstep_series::{Bounds, ChunkRun, Page, RecordFormat, SeriesRows};

use crate::{
    ReadError,
    part::{
        bug::{self, PartBug},
        page_cache::{PageCache, PageId},
        run::IndexRun,
    },
};

/// Pages that stay in memory as long as rows of them are read.
#[derive(Debug, Default)]
pub struct Pins {
    pages: RefCell<Vec<Arc<Page>>>,
}

/// Where the pages of an index's runs come from.
#[derive(Debug, Clone, Copy)]
pub struct PageSource<'s> {
    /// Has the pages that were read.
    pub cache: &'s PageCache,
    /// The codec of the rows.
    pub codec: &'s RowCodec,
    /// How records are made, where the index has some, and the number of its projection.
    pub format: Option<&'s Arc<RecordFormat>>,
    /// A number that stands for the format.
    pub projection: u64,
    /// Keeps the pages.
    pub pins: &'s Pins,
}

impl Pins {
    /// Keeps a page as long as this exists.
    fn pin(&self, page: Arc<Page>) -> &Page {
        let pinned: *const Page = &*page;
        self.pages.borrow_mut().push(page);
        // SAFETY: the page is shared, does not move, and is not given up while `self` is borrowed.
        unsafe { &*pinned }
    }
}

impl<'s> PageSource<'s> {
    /// Returns a page of a run.
    fn page(&self, run: &IndexRun, page: usize) -> Result<&'s Page, ReadError> {
        let Self { cache, codec, format, projection, pins } = *self;
        let number = u32::try_from(page).expect("a file has fewer than 2^32 blocks");
        let key = PageId { file: run.number(), page: number, projection };
        let page = cache.page(key, || run.read_page(page, format, codec))?;
        Ok(pins.pin(page))
    }
}

/// The rows of a key in a run that arrived before a snapshot.
#[derive(Clone)]
pub struct RunRows<'s> {
    run: &'s IndexRun,
    /// The pages that were not entered yet.
    pages: Range<usize>,
    /// The rows of the page that was entered last.
    rows: Option<SeriesRows<'s>>,
    /// Rows with a smaller arrival are shown.
    visible: u64,
}

impl<'s> RunRows<'s> {
    /// Makes a cursor before the newest row of a key. Reads nothing.
    pub(crate) fn new(run: &'s IndexRun, key: &[u8], visible: u64) -> Self {
        Self { run, pages: run.pages_of(key), rows: None, visible }
    }

    /// Returns an event time that no row ahead is newer than; `None` when there is no row ahead. Reads
    /// nothing.
    pub(crate) fn event_time_max(&self, key: &[u8]) -> Option<i64> {
        if self.rows.is_some() {
            return Some(i64::MAX);
        }
        (!self.pages.is_empty()).then(|| self.run.event_time_max(self.pages.start, key))
    }

    /// Skips rows newer than an event time, at least those of pages that have no others.
    pub(crate) fn seek(&mut self, event_time_max: i64) {
        if let Some(rows) = &mut self.rows {
            rows.seek(event_time_max);
        } else {
            self.pages = self.run.skip_newer(self.pages.clone(), event_time_max);
        }
    }

    /// Returns the next rows that are stored together.
    pub(crate) fn next_run(
        &mut self,
        key: &[u8],
        source: &PageSource<'s>,
    ) -> Result<Option<ChunkRun<'s>>, ReadError> {
        loop {
            if let Some(run) = self.rows.as_mut().and_then(SeriesRows::next_run) {
                return Ok(Some(run));
            }
            let Some(page) = self.pages.next() else {
                self.rows = None;
                return Ok(None);
            };
            let page = source.page(self.run, page)?;
            let visible = match bug::is_seeded(PartBug::LaterRowsShown) {
                true => u64::MAX,
                false => self.visible,
            };
            self.rows = page.rows(key, Bounds::visible(visible));
        }
    }
}

impl fmt::Debug for RunRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunRows").field("pages", &self.pages).finish_non_exhaustive()
    }
}
