//! How far a call is: what it does now, how much of that is done, and what it has read.
//!
//! A front end makes a [`CallProgress`], runs a call in a context that has it
//! ([`QueryContext::watched`](crate::QueryContext::watched)), and reads it from another thread or
//! from the call's own poll function. The layers below note what they have done with
//! [`query::report`](crate::query::report), at most every few thousand rows. Nothing is called, so that
//! a report may be made under a lock.
//!
//! **Cost** of a report: three stores; without somebody who looks, a thread-local is read.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CallStep {
    /// It reads files.
    ReadFiles = 1,
    /// It converts rows that it was given.
    ConvertRows,
    /// It inserts rows into the indexes of a table.
    InsertRows,
    /// It builds an index of rows that are stored.
    BuildIndex,
    /// It copies the rows of a table.
    CopyRows,
    /// It computes windows.
    ComputeWindows,
    /// It finds the rows of a LAST JOIN.
    JoinRows,
    /// It answers requests for stored rows.
    AnswerRequests,
}

const STEPS: [CallStep; 8] = [
    CallStep::ReadFiles,
    CallStep::ConvertRows,
    CallStep::InsertRows,
    CallStep::BuildIndex,
    CallStep::CopyRows,
    CallStep::ComputeWindows,
    CallStep::JoinRows,
    CallStep::AnswerRequests,
];

impl CallStep {
    /// Returns what a user reads.
    pub fn text(self) -> &'static str {
        match self {
            Self::ReadFiles => "reading files",
            Self::ConvertRows => "converting rows",
            Self::InsertRows => "inserting rows",
            Self::BuildIndex => "building an index",
            Self::CopyRows => "copying rows",
            Self::ComputeWindows => "computing windows",
            Self::JoinRows => "joining rows",
            Self::AnswerRequests => "answering requests",
        }
    }
}

/// How far a call is. Written by the call's threads, and read by others.
#[derive(Debug, Default)]
pub struct CallProgress {
    /// The number of the step; 0 before the first.
    step: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
    rows: AtomicU64,
    cached_pages: AtomicU64,
    blocks: AtomicU64,
    block_bytes: AtomicU64,
}

/// What a call has read of the files of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockReads {
    /// How many pages were in the page cache.
    pub cached: u64,
    /// How many pages and other blocks were read.
    pub read: u64,
    /// How many bytes were read.
    pub bytes: u64,
}

impl CallProgress {
    /// Notes that `done` of `total` parts of a step are done.
    pub fn set(&self, step: CallStep, done: u64, total: u64) {
        debug_assert!(done <= total, "{done} of {total} parts of {step:?}");
        // Relaxed: a reader that finds the number of one step with the parts of another shows a wrong
        // fraction until it looks again.
        self.step.store(step as u8, Relaxed);
        self.done.store(done, Relaxed);
        self.total.store(total, Relaxed);
    }

    /// Counts rows that the call has loaded, written or passed on.
    pub fn add_rows(&self, count: u64) {
        // Relaxed: a number to look at.
        self.rows.fetch_add(count, Relaxed);
    }

    /// Returns the rows that were counted.
    pub fn rows(&self) -> u64 {
        // Relaxed: as above.
        self.rows.load(Relaxed)
    }

    /// Counts a page that was in the page cache.
    pub fn add_cached_page(&self) {
        // Relaxed: as above.
        self.cached_pages.fetch_add(1, Relaxed);
    }

    /// Counts a block that was read, of so many bytes.
    pub fn add_block(&self, bytes: u64) {
        // Relaxed: as above.
        self.blocks.fetch_add(1, Relaxed);
        self.block_bytes.fetch_add(bytes, Relaxed);
    }

    /// Returns what was read of the files of tables.
    pub fn block_reads(&self) -> BlockReads {
        // Relaxed: as above.
        let [cached, read, bytes] = [&self.cached_pages, &self.blocks, &self.block_bytes]
            .map(|counter| counter.load(Relaxed));
        BlockReads { cached, read, bytes }
    }

    /// Returns what the call does, and the fraction of it that is done, from 0 to 1; `None` where it has
    /// reported nothing.
    #[expect(clippy::cast_precision_loss, reason = "a fraction for a reader")]
    pub fn get(&self) -> Option<(CallStep, f64)> {
        // Relaxed: as above.
        let number = usize::from(self.step.load(Relaxed));
        let step = *STEPS.get(number.checked_sub(1)?)?;
        let (done, total) = (self.done.load(Relaxed), self.total.load(Relaxed));
        Some((step, (done as f64 / total.max(1) as f64).min(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{BlockReads, CallProgress, CallStep, STEPS};
    use crate::{QueryContext, query};

    #[test]
    fn each_step_has_its_number() {
        for (at, step) in STEPS.into_iter().enumerate() {
            assert_eq!(usize::from(step as u8), at + 1);
            let progress = CallProgress::default();
            progress.set(step, 1, 4);
            assert_eq!(progress.get(), Some((step, 0.25)));
        }
    }

    #[test]
    fn a_report_reaches_all_that_look() {
        let (outer, inner) = (Arc::new(CallProgress::default()), Arc::new(CallProgress::default()));
        query::report(CallStep::CopyRows, 1, 2);
        QueryContext::new().watched(Arc::clone(&outer)).run(|| {
            assert_eq!(outer.get(), None);
            QueryContext::scratch().run(|| query::report(CallStep::CopyRows, 1, 2));
            assert_eq!(outer.get(), Some((CallStep::CopyRows, 0.5)));
            QueryContext::nested().watched(Arc::clone(&inner)).run(|| {
                query::report(CallStep::JoinRows, 0, 0);
                query::report_rows(3);
            });
            query::report_rows(4);
            query::report_cached_page();
            query::report_block(512);
            query::report_block(256);
        });
        assert_eq!(outer.block_reads(), BlockReads { cached: 1, read: 2, bytes: 768 });
        assert_eq!(inner.block_reads(), BlockReads::default());
        assert_eq!(inner.get(), Some((CallStep::JoinRows, 0.0)));
        assert_eq!(outer.get(), Some((CallStep::JoinRows, 0.0)));
        assert_eq!((inner.rows(), outer.rows()), (3, 7));
    }

    #[test]
    fn a_context_that_is_watched_is_the_call() {
        let context = QueryContext::new();
        let watched = context.clone().watched(Arc::default());
        watched.run(|| drop(query::commit().unwrap()));
        assert!(context.has_committed());
        context.cancel();
        watched.run(|| assert!(query::checkpoint().is_err()));
    }
}
