//! The watermark: the time before which all rows of a stream have come, but for late ones.
//!
//! Each source has one, its newest event time less the lateness, and the stream's is the least of them. It never goes
//! back. A row before the watermark of its own source is *late*, which depends on the rows of this source and on their
//! order of arrival alone. A source from which nothing has come for a while (`idle_after`) holds the
//! others up no longer; what it has before the stream's watermark, when it comes back, is late as well.

use crate::bug::{self, StreamBug};

/// What is late, and for how long a stream waits for a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lateness {
    /// How much later than the newest row of its source a row may come, in milliseconds of event time.
    pub lateness_ms: i64,
    /// After how many milliseconds without a row a source is idle; `None` for never.
    pub idle_after_ms: Option<i64>,
}

/// How far a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceProgress {
    /// The newest event time of its rows.
    pub newest: Option<i64>,
    /// Whether it holds the watermark up no longer.
    pub is_idle: bool,
    /// Whether no row will come from it.
    pub is_ended: bool,
    /// When its last row arrived, or the stream began, in milliseconds since the epoch.
    last_row_ms: i64,
}

/// The watermark of a stream, and of its sources.
#[derive(Debug)]
pub(crate) struct Watermark {
    lateness: Lateness,
    sources: Vec<SourceProgress>,
    reached: PassedTimes,
    /// What it had reached before its rows are read again; `None` unless they are.
    replayed_to: Option<PassedTimes>,
}

/// Whether a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeliness {
    /// It does.
    InTime,
    /// It is before the watermark of its own source.
    Late,
    /// It is before the watermark of the stream, which did not wait for its source.
    LateAfterIdle,
}

/// The times that a watermark has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PassedTimes {
    /// Those before this one.
    Before(i64),
    /// All.
    All,
}

impl PassedTimes {
    /// Returns the time before which all were passed; `None` where none was, or all.
    pub(crate) fn time(self) -> Option<i64> {
        match self {
            Self::Before(i64::MIN) | Self::All => None,
            Self::Before(time) => Some(time),
        }
    }

    /// Returns whether a time was passed.
    #[inline]
    pub(crate) fn includes(self, time: i64) -> bool {
        match self {
            Self::Before(end) => time < end,
            Self::All => true,
        }
    }

    /// Returns whether the time so many milliseconds after another one was passed.
    #[inline]
    pub(crate) fn includes_after(self, time: i64, milliseconds: i64) -> bool {
        match self {
            Self::Before(end) => i128::from(time) + i128::from(milliseconds) < i128::from(end),
            Self::All => true,
        }
    }
}

impl Watermark {
    /// Makes the watermark of so many sources, none of which has had a row.
    pub(crate) fn new(sources: usize, lateness: Lateness, now_ms: i64) -> Self {
        let source =
            SourceProgress { newest: None, is_idle: false, is_ended: false, last_row_ms: now_ms };
        let reached = PassedTimes::Before(i64::MIN);
        Self { lateness, sources: vec![source; sources], reached, replayed_to: None }
    }

    /// Goes back to where the sources had these newest event times. Until [`Self::end_replay`] is called, a source is
    /// waited for however long nothing comes from it.
    pub(crate) fn begin_replay(&mut self, newest: &[Option<i64>], reached: PassedTimes) {
        assert_eq!(newest.len(), self.sources.len(), "each source has a newest row or none");
        for (source, newest) in self.sources.iter_mut().zip(newest) {
            source.newest = *newest;
        }
        self.replayed_to = Some(reached);
    }

    /// Goes on from where it was before: all rows were read again.
    pub(crate) fn end_replay(&mut self, now_ms: i64) {
        let Some(reached) = self.replayed_to.take() else { return };
        self.sources.iter_mut().for_each(|source| source.last_row_ms = now_ms);
        if !bug::is_seeded(StreamBug::WatermarkForgotten) {
            self.reached = self.reached.max(reached);
        }
    }

    /// Takes note of a row, and returns whether it counts. Rows whose time was passed are late.
    pub(crate) fn see(&mut self, source: usize, time: i64, now_ms: i64) -> Timeliness {
        let own = self.of_source(source);
        let of = &mut self.sources[source];
        of.last_row_ms = now_ms;
        of.is_idle = of.is_idle && bug::is_seeded(StreamBug::IdleForEver);
        if own.is_some_and(|own| time < own) {
            return Timeliness::Late;
        }
        if self.reached.includes(time) {
            debug_assert!(self.replayed_to.is_none(), "each source is waited for");
            return Timeliness::LateAfterIdle;
        }
        of.newest = Some(of.newest.map_or(time, |newest| newest.max(time)));
        Timeliness::InTime
    }

    /// Takes note that no row will come from a source.
    pub(crate) fn end(&mut self, source: usize) {
        debug_assert!(source < self.sources.len(), "it is one of the sources");
        self.sources[source].is_ended = true;
    }

    /// Moves on as far as the sources allow, and returns what was passed.
    pub(crate) fn advance(&mut self, now_ms: i64) -> PassedTimes {
        if let (Some(idle_after_ms), None) = (self.lateness.idle_after_ms, self.replayed_to) {
            for source in &mut self.sources {
                source.is_idle |= now_ms.saturating_sub(source.last_row_ms) >= idle_after_ms;
            }
        }
        let is_open = |source: &&SourceProgress| !source.is_ended;
        let end = match self.sources.iter().any(|source| is_open(&source)) {
            false => PassedTimes::All,
            true => {
                let active = (0..self.sources.len()).filter(|source| {
                    let source = &self.sources[*source];
                    is_open(&source) && !source.is_idle
                });
                // Where all are idle, nothing says how far they are.
                let least = active.map(|source| self.of_source(source).unwrap_or(i64::MIN)).min();
                let too_far = i64::from(bug::is_seeded(StreamBug::WatermarkTooFar));
                PassedTimes::Before(least.unwrap_or(i64::MIN).saturating_add(too_far))
            }
        };
        self.reached = self.reached.max(end);
        self.reached
    }

    /// Returns what was passed.
    pub(crate) fn reached(&self) -> PassedTimes {
        self.reached
    }

    /// Returns the newest event time of all sources.
    pub(crate) fn newest(&self) -> Option<i64> {
        self.sources.iter().filter_map(|source| source.newest).max()
    }

    /// Returns how far the sources are.
    pub(crate) fn sources(&self) -> &[SourceProgress] {
        &self.sources
    }

    /// Returns the watermark of a source; `None` as long as it has no row.
    fn of_source(&self, source: usize) -> Option<i64> {
        let newest = self.sources[source].newest?;
        Some(newest.saturating_sub(self.lateness.lateness_ms))
    }
}
