//! The rows of one entity key in a run, newest first, read page by page; and the pages that are kept in
//! memory meanwhile.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt,
    ops::Range,
    sync::Arc,
};

use lockstep_row::RowCodec;
use lockstep_series::{Bounds, ChunkRun, Page, RecordFormat, SeriesRows};

use crate::{
    ReadError,
    part::{
        bug::{self, PartBug},
        page_cache::{PageCache, PageId},
        run::{IndexRun, KeyPosition},
    },
};

/// Pages that stay in memory as long as rows of them are read, each of them once.
#[derive(Debug, Default)]
pub struct Pins {
    pages: RefCell<HashMap<PageId, Arc<Page>>>,
    /// Copies of rows.
    rows: RefCell<Vec<Box<[u8]>>>,
    /// The bytes of both.
    bytes: Cell<usize>,
}

/// Where the pages of an index's runs come from.
#[derive(Debug, Clone, Copy)]
pub struct PageSource<'s> {
    /// Has the pages that were read.
    pub cache: &'s PageCache,
    /// The codec of the rows.
    pub codec: &'s RowCodec,
    /// How records are made, if the index includes columns.
    pub format: Option<&'s Arc<RecordFormat>>,
    /// Keeps the pages.
    pub pins: &'s Pins,
}

impl Pins {
    /// Returns the bytes of memory of the pages.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Keeps a copy of the bytes of a row as long as this exists.
    pub(crate) fn keep_row(&self, bytes: &[u8]) -> &[u8] {
        let mut rows = self.rows.borrow_mut();
        rows.push(bytes.into());
        self.bytes.set(self.bytes.get() + bytes.len());
        let kept: *const [u8] = &**rows.last().expect("it was pushed just now");
        // SAFETY: the bytes do not move, and are not given up while `self` is borrowed.
        unsafe { &*kept }
    }

    /// Returns a page that was kept.
    fn find(&self, id: PageId) -> Option<&Page> {
        let pinned: *const Page = &**self.pages.borrow().get(&id)?;
        // SAFETY: the page is shared, does not move, and is not given up while `self` is borrowed.
        Some(unsafe { &*pinned })
    }

    /// Keeps a page as long as this exists.
    fn pin(&self, id: PageId, page: Arc<Page>) -> &Page {
        let pinned: *const Page = &*page;
        self.bytes.set(self.bytes.get() + page.memory_bytes());
        let before = self.pages.borrow_mut().insert(id, page);
        debug_assert!(before.is_none(), "a page is kept once");
        // SAFETY: as above.
        unsafe { &*pinned }
    }
}

impl<'s> PageSource<'s> {
    /// Returns a page of a run.
    fn page(&self, run: &IndexRun, page: usize) -> Result<&'s Page, ReadError> {
        let Self { cache, codec, format, pins } = *self;
        let number = u32::try_from(page).expect("a file has fewer than 2^32 blocks");
        let format_id = format.map_or(0, |format| format.id());
        let id = PageId { file: run.file().number, page: number, format: format_id };
        if let Some(page) = pins.find(id) {
            return Ok(page);
        }
        let page = cache.page(id, || run.read_page(page, format, codec))?;
        Ok(pins.pin(id, page))
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

    /// Skips rows behind a position, at least those of pages that have no others. Reads nothing.
    pub(crate) fn seek(&mut self, last: KeyPosition) {
        let pages = self.run.skip_newer(self.pages.clone(), last);
        if pages.start > self.pages.start {
            // Rows of the page that was entered are newer than those of a page that is skipped.
            self.rows = None;
            self.pages = pages;
        } else if let Some(rows) = &mut self.rows {
            rows.seek(last.0);
        }
    }

    /// Returns the next rows that are stored together. After an error the cursor is where it was.
    pub(crate) fn next_run(
        &mut self,
        key: &[u8],
        source: &PageSource<'s>,
    ) -> Result<Option<ChunkRun<'s>>, ReadError> {
        loop {
            if let Some(run) = self.rows.as_mut().and_then(SeriesRows::next_run) {
                return Ok(Some(run));
            }
            self.rows = None;
            if self.pages.is_empty() {
                return Ok(None);
            }
            let page = source.page(self.run, self.pages.start)?;
            self.pages.start += 1;
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
