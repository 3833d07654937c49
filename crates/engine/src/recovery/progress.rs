//! How far opening a directory is, for who waits for it.

use std::{fmt, sync::Arc};

use lockstep_host::Clock;

/// How often the listener is told.
const LISTEN_INTERVAL_NS: u64 = 500_000_000;

/// How many rows are read between two looks at the clock.
const ROWS_PER_LOOK: u64 = 4_096;

/// How far opening a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenProgress {
    /// Rows that were read so far.
    pub rows: u64,
    /// The time since it began.
    pub milliseconds: u64,
}

/// A function that is told how far opening is, every half second.
#[derive(Clone)]
pub struct OpenListener(Arc<dyn Fn(OpenProgress) + Send + Sync>);

impl OpenListener {
    /// Makes a listener of a function.
    pub fn new(listen: impl Fn(OpenProgress) + Send + Sync + 'static) -> Self {
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
}

impl ProgressReport {
    pub(super) fn new(listener: Option<OpenListener>, clock: &Arc<dyn Clock>) -> Self {
        let (clock, begun_ns) = (Arc::clone(clock), clock.monotonic_ns());
        Self { listener, clock, begun_ns, told_ns: begun_ns, rows: 0, looked_rows: 0 }
    }

    /// Counts rows.
    pub(super) fn add(&mut self, rows: u64) {
        self.rows = self.rows.saturating_add(rows);
        if self.listener.is_some() && self.rows >= self.looked_rows + ROWS_PER_LOOK {
            self.looked_rows = self.rows;
            self.look();
        }
    }

    /// Tells the listener if it is time.
    fn look(&mut self) {
        let now_ns = self.clock.monotonic_ns();
        if now_ns - self.told_ns >= LISTEN_INTERVAL_NS {
            self.told_ns = now_ns;
            if let Some(OpenListener(listen)) = &self.listener {
                listen(self.progress());
            }
        }
    }

    /// Returns what was counted, and the time since the begin.
    pub(super) fn progress(&self) -> OpenProgress {
        let milliseconds = (self.clock.monotonic_ns() - self.begun_ns) / 1_000_000;
        OpenProgress { rows: self.rows, milliseconds }
    }
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
            report.add(ROWS_PER_LOOK);
            report.add(1);
        }
        let found: Vec<_> = told.lock().iter().map(|p| (p.rows, p.milliseconds)).collect();
        assert_eq!(found, [(8_193, 500), (16_387, 1_000)]);
        assert_eq!(report.progress().rows, 4 * ROWS_PER_LOOK + 4);
    }
}
