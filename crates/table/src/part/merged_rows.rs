//! The rows of one entity key from memory and from runs as one sequence, newest first.
//!
//! Each source has its rows in order; the merge hands out parts of their runs. As a rule rows arrive
//! in the order of their event times, so that the sources follow each other, and whole runs are handed
//! out; late rows cut them.
//!
//! Which rows are expired is decided here, since rules may count rows over all sources; the sources
//! show every row that is visible. A source is read only when its rows may be the next: where memory
//! has all rows of a window, no page is touched.

use std::fmt;

use lockstep_series::{Bounds, ChunkRun, RowRef, SeriesRows};

use crate::{
    ReadError,
    part::{
        bug::{self, PartBug},
        run::{IndexRun, KeyPosition},
        run_rows::{PageSource, RunRows},
    },
    table::number,
};

/// The rows of a key in several places.
#[derive(Clone)]
pub struct MergedRows<'s> {
    key: Vec<u8>,
    sources: Vec<MergeSource<'s>>,
    /// Hides rows that are expired.
    bounds: Bounds,
    /// The number of rows that were passed.
    passed: u64,
    /// No row with a greater position is ahead.
    last: KeyPosition,
    /// All rows with a greater position are among those that were passed, read or not.
    counted: KeyPosition,
    /// Whether all rows ahead are expired.
    has_ended: bool,
    /// A run of which not all rows were handed out singly.
    current: Option<ChunkRun<'s>>,
}

#[derive(Clone)]
struct MergeSource<'s> {
    rows: RowsOfSource<'s>,
    /// Its next rows, if they were read.
    head: Option<ChunkRun<'s>>,
    has_ended: bool,
}

#[derive(Clone)]
enum RowsOfSource<'s> {
    Memory(SeriesRows<'s>),
    Run(RunRows<'s>),
}

impl<'s> MergedRows<'s> {
    /// Makes a merge without sources.
    pub fn new(key: &[u8], bounds: Bounds) -> Self {
        Self {
            key: key.to_vec(),
            sources: Vec::new(),
            bounds,
            passed: 0,
            last: (i64::MAX, u64::MAX),
            counted: (i64::MAX, u64::MAX),
            has_ended: false,
            current: None,
        }
    }

    /// Adds rows in memory, all that are visible.
    pub fn add_memory(&mut self, rows: SeriesRows<'s>) {
        self.add(RowsOfSource::Memory(rows));
    }

    /// Adds the rows of a run that are visible. Reads nothing.
    pub fn add_run(&mut self, run: &'s IndexRun, visible: u64) {
        let rows = RunRows::new(run, &self.key, visible);
        self.add(RowsOfSource::Run(rows));
    }

    fn add(&mut self, rows: RowsOfSource<'s>) {
        self.sources.push(MergeSource { rows, head: None, has_ended: false });
    }

    /// Skips the rows newer than an event time; never goes back. Reads nothing.
    pub fn seek(&mut self, event_time_max: i64) {
        self.skip_behind((event_time_max, u64::MAX));
    }

    /// Skips the rows that are not before a row of this event time and arrival; never goes back. Reads
    /// nothing.
    pub fn seek_before(&mut self, event_time: i64, arrival: u64) {
        match (arrival.checked_sub(1), event_time.checked_sub(1)) {
            (Some(arrival), _) => self.skip_behind((event_time, arrival)),
            (None, Some(event_time)) => self.skip_behind((event_time, u64::MAX)),
            // No row is before the least event time and arrival.
            (None, None) => (self.has_ended, self.current) = (true, None),
        }
    }

    /// Skips the rows newer than an event time, of which there are so many; never goes back. Reads nothing, also
    /// where rules count rows. To be called when all rows that were returned are passed.
    pub fn skip_to(&mut self, event_time_max: i64, rows: u64) {
        debug_assert!(self.current.is_none(), "the rows of a run are passed as a whole");
        let last = (event_time_max, u64::MAX).min(self.last);
        (self.last, self.counted) = (last, last);
        self.passed += rows;
        for source in &mut self.sources {
            if let Some(head) = source.head.take() {
                let newer = count_after(&head, last);
                source.head = Some(head.slice(newer..head.len())).filter(|run| !run.is_empty());
            }
            if source.head.is_none() {
                source.seek(last);
            }
        }
    }

    /// Returns whether the row with this event time is kept if it comes after so many of the rows ahead, and with
    /// it all that are newer.
    pub fn keeps_after(&self, event_time: i64, rows: u64) -> bool {
        !self.bounds.is_expired(event_time, self.passed + rows + 1)
    }

    fn skip_behind(&mut self, last: KeyPosition) {
        if let Some(current) = self.current.take() {
            let newer = count_after(&current, last);
            self.current = Some(current.slice(newer..current.len())).filter(|run| !run.is_empty());
        }
        if last >= self.last {
            return;
        }
        self.last = last;
        for source in &mut self.sources {
            if let Some(head) = source.head.take() {
                let newer = count_after(&head, last);
                self.passed += number(newer);
                source.head = Some(head.slice(newer..head.len())).filter(|run| !run.is_empty());
            }
            // Where rows are counted, each of those that are skipped is: when they are read.
            if source.head.is_none() && !self.bounds.counts_rows() {
                source.seek(last);
            }
        }
    }

    /// Gives back the last rows of the run that was returned last: they are the next ones again.
    pub fn put_back(&mut self, rest: ChunkRun<'s>) {
        debug_assert!(self.current.is_none(), "of one run, and once");
        self.current = Some(rest).filter(|run| !run.is_empty());
    }

    /// Returns the next rows that are stored together, follow each other and are shown, at most so many. After an
    /// error of `is_shown` the cursor is before the row.
    pub fn next_run_of(
        &mut self,
        pages: &PageSource<'s>,
        rows_max: usize,
        mut is_shown: impl FnMut(RowRef<'s>) -> Result<bool, ReadError>,
    ) -> Result<Option<ChunkRun<'s>>, ReadError> {
        while let Some(run) = self.next_run(pages)? {
            let (mut shown, mut at) = (0..0, 0);
            while at < run.len() && shown.len() < rows_max {
                match is_shown(run.row(at)) {
                    Ok(true) if shown.is_empty() => shown = at..at + 1,
                    Ok(true) => shown.end = at + 1,
                    Ok(false) if shown.is_empty() => {}
                    Ok(false) => break,
                    Err(error) => {
                        self.put_back(run.slice(shown.start.min(at)..run.len()));
                        return Err(error);
                    }
                }
                at += 1;
            }
            self.put_back(run.slice(shown.end.max(at)..run.len()));
            if !shown.is_empty() {
                return Ok(Some(run.slice(shown)));
            }
        }
        Ok(None)
    }

    /// Returns the next rows that are stored together and follow each other.
    pub fn next_run(&mut self, pages: &PageSource<'s>) -> Result<Option<ChunkRun<'s>>, ReadError> {
        if let Some(current) = self.current.take() {
            return Ok(Some(current));
        }
        if self.has_ended {
            return Ok(None);
        }
        let Some(run) = self.next_merged(pages)? else { return Ok(None) };
        let kept = self.count_kept(&run);
        if !bug::is_seeded(PartBug::CountedBySource) {
            self.passed += number(kept);
        }
        self.has_ended = kept < run.len();
        // What is ahead is older, of whatever source.
        self.last = (run.event_time(run.len() - 1), u64::MAX);
        Ok(Some(run.slice(0..kept)).filter(|run| !run.is_empty()))
    }

    /// Returns the next rows, whether they are expired or not.
    fn next_merged(&mut self, pages: &PageSource<'s>) -> Result<Option<ChunkRun<'s>>, ReadError> {
        let (last, counted) = (self.last, self.counted);
        let Self { key, sources, bounds, passed, .. } = self;
        // The event time that no row of a source that was not read is newer than. Expired rows are not read;
        // nor are those that are older, of whatever source.
        let unread = |source: &MergeSource<'s>, passed: u64| {
            let event_time_max = source.event_time_max(key, last).filter(|_| source.head.is_none());
            event_time_max.filter(|time| !bounds.is_expired(*time, passed + 1))
        };
        let mut filling =
            Filling { key, last, counted, bounds: *bounds, passed: *passed, skipped: 0, pages };
        // Of the rows that were read the newest one, which may not be the newest of all.
        let mut newest: Option<(usize, KeyPosition)> = None;
        for (at, source) in sources.iter_mut().enumerate() {
            // So is a source with rows to be skipped and counted: its bound is the last position.
            let may_be_next = |time: i64| newest.is_none_or(|(_, (newest, _))| time >= newest);
            if unread(source, *passed).is_some_and(may_be_next) {
                let filled = filling.fill(source);
                if filled.is_err() {
                    *passed += filling.skipped;
                }
                filled?;
            }
            if let Some(position) = source.position()
                && newest.is_none_or(|(_, other)| position > other)
            {
                newest = Some((at, position));
            }
        }
        if !bug::is_seeded(PartBug::SkippedNotCounted) {
            *passed += filling.skipped;
        }
        let Some((at, _)) = newest else { return Ok(None) };
        // Rows of other sources come before those of this one from here on.
        let others = sources.iter().enumerate().filter(|(other, _)| *other != at);
        let next = others.filter_map(|(_, source)| {
            source.position().or_else(|| Some((unread(source, *passed)?, u64::MAX)))
        });
        let next = next.max();
        let run = sources[at].head.take().expect("it has the newest row");
        let count = next.map_or(run.len(), |next| count_after(&run, next));
        debug_assert!(count > 0, "the newest row is before those of other sources");
        if count < run.len() {
            sources[at].head = Some(run.slice(count..run.len()));
        }
        Ok(Some(run.slice(0..count)))
    }

    /// Counts the rows of a run, which are the next ones, that are not expired.
    fn count_kept(&self, run: &ChunkRun<'_>) -> usize {
        if self.bounds.keeps_everything() {
            return run.len();
        }
        // Expiry is monotone: see `Bounds`.
        let (mut low, mut high) = (0, run.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let position = self.passed + number(middle + 1);
            if self.bounds.is_expired(run.event_time(middle), position) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

/// Reads the next rows of sources.
struct Filling<'f, 's> {
    key: &'f [u8],
    last: KeyPosition,
    /// Rows with a greater position are counted already.
    counted: KeyPosition,
    bounds: Bounds,
    /// The number of rows that were passed before.
    passed: u64,
    /// The number of rows that were skipped because they are newer than the last position.
    skipped: u64,
    pages: &'f PageSource<'s>,
}

impl<'s> Filling<'_, 's> {
    /// Reads the next rows of a source up to the last position.
    fn fill(&mut self, source: &mut MergeSource<'s>) -> Result<(), ReadError> {
        while source.head.is_none() {
            let run = match &mut source.rows {
                RowsOfSource::Memory(rows) => rows.next_run(),
                RowsOfSource::Run(rows) => rows.next_run(self.key, self.pages)?,
            };
            // When as many rows as are kept were skipped, all that follow are expired.
            let run = run.filter(|_| !self.bounds.is_exhausted(self.passed + self.skipped));
            let Some(run) = run else {
                source.has_ended = true;
                return Ok(());
            };
            let newer = count_after(&run, self.last);
            let is_counted = !bug::is_seeded(PartBug::NodesCountedTwice);
            let counted = if is_counted { count_after(&run, self.counted) } else { 0 };
            self.skipped += number(newer - counted);
            source.head = Some(run.slice(newer..run.len())).filter(|run| !run.is_empty());
        }
        Ok(())
    }
}

impl MergeSource<'_> {
    /// Skips rows behind a position that were not read, at least those of whole pages.
    fn seek(&mut self, last: KeyPosition) {
        match &mut self.rows {
            RowsOfSource::Memory(rows) => rows.seek(last.0),
            RowsOfSource::Run(rows) => rows.seek(last),
        }
    }

    /// Returns the position of the next row, if it was read.
    fn position(&self) -> Option<KeyPosition> {
        let arrival = |run: &ChunkRun<'_>| match bug::is_seeded(PartBug::TiesNotCompared) {
            true => 0,
            false => run.row(0).arrival(),
        };
        self.head.as_ref().map(|run| (run.event_time(0), arrival(run)))
    }

    /// Returns an event time that no row ahead is newer than; `None` when there is no row ahead.
    fn event_time_max(&self, key: &[u8], last: KeyPosition) -> Option<i64> {
        if self.has_ended {
            return None;
        }
        match &self.rows {
            RowsOfSource::Memory(_) => Some(last.0),
            RowsOfSource::Run(rows) => {
                rows.event_time_max(key).map(|event_time| event_time.min(last.0))
            }
        }
    }
}

/// Counts the rows of a run with a greater position; they are its first rows.
fn count_after(run: &ChunkRun<'_>, (event_time, arrival): KeyPosition) -> usize {
    let mut count = run.partition_point(|of_row| of_row > event_time);
    // Only where event times are equal, rows are touched.
    debug_assert!(count <= run.len(), "a prefix of the run");
    while count < run.len()
        && run.event_time(count) == event_time
        && run.row(count).arrival() > arrival
    {
        count += 1;
    }
    count
}

impl fmt::Debug for MergedRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergedRows").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}
