//! How far opening a directory is, for who waits for it.

use std::{fmt, ops::ControlFlow, path::Path, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{
    Clock,
    file::{Disk, File, OpenMode},
};
use lockstep_wal::Manifest;

/// How often the listener is told.
const LISTEN_INTERVAL_NS: u64 = 500_000_000;

/// How many rows are read between two looks at the clock.
const ROWS_PER_LOOK: u64 = 4_096;

/// The block of a segment that is read to find its end.
const BLOCK_BYTES: u64 = 4_096;

/// Bytes of a record of the log in addition to its payload, about.
const RECORD_BYTES: u64 = 44;

/// How far opening a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenProgress {
    /// Rows that were read so far.
    pub rows: u64,
    /// The time since it began.
    pub milliseconds: u64,
    /// How long it will go on, if the rest is read as fast; `None` where that is not known. An
    /// estimate from the sizes of the files.
    pub milliseconds_left: Option<u64>,
}

/// A function that is told how far opening is, every half second.
#[derive(Clone)]
pub struct OpenListener(Arc<dyn Fn(OpenProgress) -> ControlFlow<()> + Send + Sync>);

impl OpenListener {
    /// Makes a listener of a function.
    pub fn new(listen: impl Fn(OpenProgress) + Send + Sync + 'static) -> Self {
        Self::stopping(move |progress| {
            listen(progress);
            ControlFlow::Continue(())
        })
    }

    /// Makes a listener of a function that may end the opening with [`ControlFlow::Break`]: it fails
    /// with [`code::QUERY_CANCELED`], and the directory holds what it held before.
    pub fn stopping(
        listen: impl Fn(OpenProgress) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(listen))
    }
}

impl fmt::Debug for OpenListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenListener").finish_non_exhaustive()
    }
}

/// Counts the rows that were read, and tells a listener.
#[derive(Debug)]
pub(super) struct ProgressReport {
    listener: Option<OpenListener>,
    clock: Arc<dyn Clock>,
    begun_ns: u64,
    told_ns: u64,
    rows: u64,
    looked_rows: u64,
    bytes: u64,
    /// Those of the log.
    log_bytes: u64,
    /// The bytes of all files; zero where they are not known.
    bytes_total: u64,
}

impl ProgressReport {
    pub(super) fn new(listener: Option<OpenListener>, clock: &Arc<dyn Clock>) -> Self {
        let (clock, begun_ns) = (Arc::clone(clock), clock.monotonic_ns());
        let (told_ns, rows, looked_rows) = (begun_ns, 0, 0);
        let (bytes, log_bytes, bytes_total) = (0, 0, 0);
        Self {
            listener,
            clock,
            begun_ns,
            told_ns,
            rows,
            looked_rows,
            bytes,
            log_bytes,
            bytes_total,
        }
    }

    /// Finds out how many bytes will be read, if somebody is told.
    pub(super) fn expect_files(&mut self, disk: &dyn Disk, path: &Path, manifest: &Manifest) {
        if self.listener.is_none() {
            return;
        }
        let of_log = log_bytes(disk, &path.join("log")).unwrap_or(0);
        self.bytes_total = of_log + manifest.files.iter().map(|file| file.bytes).sum::<u64>();
    }

    /// Counts bytes that were read.
    pub(super) fn add_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Counts a record of the log.
    pub(super) fn add_record(&mut self, payload: &[u8]) {
        let bytes = RECORD_BYTES + u64::try_from(payload.len()).unwrap_or(u64::MAX);
        self.add_bytes(bytes);
        self.log_bytes = self.log_bytes.saturating_add(bytes);
    }

    /// Returns the bytes of the log that were read.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Counts rows. Fails when the listener ends the opening.
    pub(super) fn add(&mut self, rows: u64) -> Result<()> {
        self.rows = self.rows.saturating_add(rows);
        if self.listener.is_some() && self.rows >= self.looked_rows + ROWS_PER_LOOK {
            self.looked_rows = self.rows;
            return self.look();
        }
        Ok(())
    }

    /// Tells the listener if it is time.
    fn look(&mut self) -> Result<()> {
        let now_ns = self.clock.monotonic_ns();
        let Some(OpenListener(listen)) = &self.listener else { return Ok(()) };
        if now_ns - self.told_ns < LISTEN_INTERVAL_NS {
            return Ok(());
        }
        self.told_ns = now_ns;
        match listen(self.progress()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                Diagnostic::new(code::QUERY_CANCELED, "opening the database was cancelled")
                    .with_kind(Kind::Retry)
                    .err()
            }
        }
    }

    /// Returns what was counted, and the time since the begin.
    pub(super) fn progress(&self) -> OpenProgress {
        let milliseconds = (self.clock.monotonic_ns() - self.begun_ns) / 1_000_000;
        let left = self.bytes_total.saturating_sub(self.bytes);
        let milliseconds_left = (self.bytes > 0 && self.bytes_total > 0).then(|| {
            let left_ms = u128::from(left) * u128::from(milliseconds) / u128::from(self.bytes);
            u64::try_from(left_ms).unwrap_or(u64::MAX)
        });
        OpenProgress { rows: self.rows, milliseconds, milliseconds_left }
    }
}

/// Returns the bytes that are written of the segments of a log; `None` where they cannot be read.
fn log_bytes(disk: &dyn Disk, log: &Path) -> Option<u64> {
    let mut segments = disk.list(log).ok()?;
    segments.retain(|name| name.ends_with(".wal"));
    segments.sort_unstable();
    let open = |name: &String| disk.open(&log.join(name), OpenMode::Read).ok();
    let last = segments.pop().map_or(Some(0), |name| written_bytes(&*open(&name)?));
    let full = segments.iter().map(|name| open(name)?.length().ok());
    Some(full.sum::<Option<u64>>()? + last?)
}

/// Returns how many bytes of a segment are written, to a block: the rest, which was allocated in advance,
/// is zeros. Binary search.
fn written_bytes(segment: &dyn File) -> Option<u64> {
    let (mut low, mut high) = (0, segment.length().ok()? / BLOCK_BYTES);
    let mut block = [0; 4_096];
    debug_assert_eq!(block.len() as u64, BLOCK_BYTES, "a block is read");
    while low < high {
        let middle = low + (high - low) / 2;
        let read = segment.read_full_at(middle * BLOCK_BYTES, &mut block).ok()?;
        match block[..read].iter().any(|byte| *byte != 0) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Some(low * BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_host::{ManualClock, sync::Mutex};

    use super::{OpenListener, ProgressReport, ROWS_PER_LOOK};

    #[test]
    fn a_listener_is_told_every_half_second() {
        let clock = Arc::new(ManualClock::new(0));
        let told = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&told);
        let listener = OpenListener::new(move |progress| lines.lock().push(progress));
        let shared: Arc<dyn lockstep_host::Clock> = Arc::<ManualClock>::clone(&clock);
        let mut report = ProgressReport::new(Some(listener), &shared);
        for _ in 0..4 {
            clock.advance_ms(250);
            report.add_bytes(100);
            report.add(ROWS_PER_LOOK).unwrap();
            report.add(1).unwrap();
        }
        let found: Vec<_> = told.lock().iter().map(|p| (p.rows, p.milliseconds)).collect();
        assert_eq!(found, [(8_193, 500), (16_387, 1_000)]);
        assert_eq!(report.progress().rows, 4 * ROWS_PER_LOOK + 4);
        assert_eq!(report.progress().milliseconds_left, None);
        report.bytes_total = 1_000;
        assert_eq!(report.progress().milliseconds_left, Some(1_500));
    }

    #[test]
    fn a_listener_may_end_the_opening() {
        let clock = Arc::new(ManualClock::new(0));
        let listener = OpenListener::stopping(|_| std::ops::ControlFlow::Break(()));
        let shared: Arc<dyn lockstep_host::Clock> = Arc::<ManualClock>::clone(&clock);
        let mut report = ProgressReport::new(Some(listener), &shared);
        report.add(ROWS_PER_LOOK).unwrap();
        clock.advance_ms(500);
        let stopped = report.add(ROWS_PER_LOOK).unwrap_err();
        assert_eq!(stopped.code, lockstep_diagnostic::code::QUERY_CANCELED);
    }
}
