//! The LAST JOINs and windows of a stream, as rows arrive and the watermark passes them.

use std::collections::BTreeSet;

use lockstep_diagnostic::Result;
use lockstep_row::{Arena, Datum, Value};

use crate::{
    bug::{self, StreamBug},
    lookup::{Lookups, MainProgram},
    reorder::{ReorderBuffer, SettledRows},
    results::{PendingResults, PendingRow, RowId},
    scan::{Scan, SettledRow, Settling},
    spec::{SpecError, WindowJoinSpec},
    watermark::{Lateness, PassedTimes, SourceProgress, Timeliness, Watermark},
};

/// The arena is reset when it has allocated more bytes than this.
const ARENA_BYTES_MAX: usize = 1 << 20;

/// The windows of a query over the rows of its sources: gives each main row that is not late once, with the results of
/// its windows, when they are final.
///
/// One thread uses it. What it gives depends on the rows, on their order of arrival in each source, and
/// on what is late because a source was idle; not on when [`Self::advance`] is called.
#[derive(Debug)]
pub struct WindowJoin {
    spec: WindowJoinSpec,
    outputs: usize,
    watermark: Watermark,
    reorder: ReorderBuffer,
    /// `None` where main rows are joined with nothing.
    lookups: Option<Lookups>,
    scans: Vec<Scan>,
    pending: PendingResults,
    /// Whether main rows may wait for results after they were settled.
    keeps_rows: bool,
    /// The main rows among those that are being settled, with their places there.
    main: Vec<(usize, RowId)>,
    /// The main rows that were given before a replay.
    given: Option<GivenMainRows>,
    arena: Arena,
    counts: JoinCounts,
}

/// How far a join is: which main rows it has given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JoinProgress {
    /// The time before which all rows have come, if one is known.
    pub watermark: Option<i64>,
    /// The arrivals of the main rows that the watermark has passed and whose windows are not final, where the number
    /// of rows that come decides it. Empty where the watermark says when windows are final.
    pub waiting: Vec<u64>,
}

/// The main rows that a join has given before it reads rows again.
#[derive(Debug)]
struct GivenMainRows {
    passed: PassedTimes,
    /// How long after its time a main row is final; `None` where `waiting` has those that were not.
    ahead_ms: Option<i64>,
    waiting: BTreeSet<u64>,
    /// The rows without an event time with a smaller arrival.
    before_arrival: u64,
}

/// A row of a source.
#[derive(Debug, Clone, Copy)]
pub struct StreamRow<'r> {
    /// The number of its source.
    pub source: usize,
    /// Its arrival: greater than those of the rows of its source before it.
    pub arrival: u64,
    /// Its columns.
    pub columns: &'r [Datum<'r>],
}

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It counts.
    Taken,
    /// It is late, and counts for nothing.
    Late,
    /// It is late because the stream did not wait for its source, which was idle; and counts for nothing.
    LateAfterIdle,
    /// It is a row of a UNION source without an event time, which no frame holds.
    Ignored,
}

/// A main row with the results of its windows.
#[derive(Debug, Clone, Copy)]
pub struct WindowedRow<'r> {
    /// Its arrival.
    pub arrival: u64,
    /// Its event time; `None` for NULL.
    pub time: Option<i64>,
    /// Its columns, and those that LAST JOINs above the windows have joined.
    pub columns: &'r [Value],
    /// The results, by the positions of their calls.
    pub results: &'r [Value],
}

/// What a join has done, and has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JoinCounts {
    /// The rows that count.
    pub taken: u64,
    /// The rows that were late.
    pub late: u64,
    /// The rows of UNION sources without an event time.
    pub ignored: u64,
    /// The main rows that were joined.
    pub joined: u64,
    /// The rows that the watermark has not passed.
    pub unsettled: usize,
    /// The main rows whose windows are not all computed, beside those.
    pub pending: usize,
    /// The candidates of all scans, and the rows that LAST JOINs may need.
    pub candidates: usize,
    /// The keys of all scans and LAST JOINs.
    pub keys: usize,
    /// About how many bytes it has.
    pub bytes: usize,
}

impl WindowJoin {
    /// Makes a join. The program computes rows of the windows from what LAST JOINs below them have joined, if there are
    /// some. Fails when a window is never final.
    pub fn new(
        spec: WindowJoinSpec,
        program: Option<Box<dyn MainProgram>>,
        lateness: Lateness,
        now_ms: i64,
    ) -> Result<Self, SpecError> {
        spec.check()?;
        let widths = spec.sources.iter().map(|source| source.width).collect();
        let has_lookups = !(spec.lookups.is_empty() && spec.output_lookups.is_empty());
        Ok(Self {
            outputs: spec.outputs(),
            watermark: Watermark::new(spec.sources.len(), lateness, now_ms),
            reorder: ReorderBuffer::new(widths, lateness.lateness_ms),
            lookups: has_lookups.then(|| Lookups::new(&spec, program)),
            scans: spec.scans.iter().map(Scan::new).collect(),
            pending: PendingResults::default(),
            keeps_rows: spec.waits(),
            main: Vec::new(),
            given: None,
            arena: Arena::new(),
            counts: JoinCounts::default(),
            spec,
        })
    }

    /// Takes a row. A main row without an event time is joined at once, since its windows have no other row.
    pub fn push(
        &mut self,
        row: StreamRow<'_>,
        now_ms: i64,
        emit: &mut dyn FnMut(WindowedRow<'_>),
    ) -> Result<Pushed> {
        let StreamRow { source, arrival, columns } = row;
        let pushed = match columns[self.spec.sources[source].order].as_i64() {
            None if source == 0 => {
                self.join_unordered(arrival, columns, emit)?;
                Pushed::Taken
            }
            None => Pushed::Ignored,
            Some(time) => match self.watermark.see(source, time, now_ms) {
                Timeliness::Late if !bug::is_seeded(StreamBug::LateRowCounts) => Pushed::Late,
                Timeliness::LateAfterIdle => Pushed::LateAfterIdle,
                Timeliness::InTime | Timeliness::Late => {
                    self.buffer(time, row);
                    Pushed::Taken
                }
            },
        };
        *match pushed {
            Pushed::Taken => &mut self.counts.taken,
            Pushed::Late | Pushed::LateAfterIdle => &mut self.counts.late,
            Pushed::Ignored => &mut self.counts.ignored,
        } += 1;
        Ok(pushed)
    }

    /// Takes note of a row of a source that a condition has left out: it counts for the watermark alone.
    pub fn pass(&mut self, source: usize, time: i64, now_ms: i64) -> Pushed {
        match self.watermark.see(source, time, now_ms) {
            Timeliness::InTime => Pushed::Ignored,
            Timeliness::Late => Pushed::Late,
            Timeliness::LateAfterIdle => Pushed::LateAfterIdle,
        }
    }

    /// Returns how far it is. Whoever stores it with the rows that were given, and for each source a place from which
    /// on rows are read again, goes on in another join with [`Self::begin_replay`].
    pub fn progress(&self) -> JoinProgress {
        let mut waiting: Vec<u64> = match self.spec.ahead_ms() {
            Some(_) => Vec::new(),
            None => self.pending.arrivals().collect(),
        };
        waiting.sort_unstable();
        JoinProgress { watermark: self.watermark(), waiting }
    }

    /// Returns the time before which rows of a source count for no main row that is still to be given; `None` as long as
    /// all count.
    pub fn needed_from(&self, source: usize) -> Option<i64> {
        if self.held(source).is_some() {
            return None;
        }
        let ahead_ms = match bug::is_seeded(StreamBug::ReplayedTooLittle) {
            true => 0,
            false => self.spec.ahead_ms()?,
        };
        let reach_ms = self.spec.reach_ms()?;
        Some(self.watermark()?.saturating_sub(ahead_ms).saturating_sub(reach_ms))
    }

    /// Returns which rows of the source of a LAST JOIN it holds, as one number: two joins that hold the same rows have the
    /// same one, others almost never. `None` for other sources.
    pub fn held(&self, source: usize) -> Option<u64> {
        self.lookups.as_ref()?.held(source)
    }

    /// Begins to take rows again that another join has had, which was so far; to be called before any row is pushed.
    ///
    /// `newest` has for each source the newest event time of the rows before those that are pushed again, and main rows
    /// with an arrival from `reached` on were not pushed. What was [`Pushed::LateAfterIdle`] is not pushed again.
    pub fn begin_replay(&mut self, newest: &[Option<i64>], reached: u64, progress: &JoinProgress) {
        assert_eq!(self.counts, JoinCounts::default(), "it is new");
        let JoinProgress { watermark, waiting } = progress;
        let passed = PassedTimes::Before(watermark.unwrap_or(i64::MIN));
        self.watermark.begin_replay(newest, passed);
        self.given = Some(GivenMainRows {
            passed,
            ahead_ms: self.spec.ahead_ms(),
            waiting: waiting.iter().copied().collect(),
            before_arrival: reached,
        });
    }

    /// Takes note that all rows were pushed again which the other join has had.
    pub fn end_replay(&mut self, now_ms: i64) {
        self.watermark.end_replay(now_ms);
    }

    fn buffer(&mut self, time: i64, row: StreamRow<'_>) {
        if bug::is_seeded(StreamBug::RowDropped) && row.arrival % 16 == 7 {
            return;
        }
        // Of the rows of one time main rows are the last, and UNION sources come as most windows sort them.
        let rank = match bug::is_seeded(StreamBug::TiesByArrival) {
            true => 0,
            false => u32::try_from(self.spec.sources.len() - row.source).unwrap_or(u32::MAX),
        };
        if let Some(lookups) = &mut self.lookups {
            lookups.hold(row.source, row.arrival);
        }
        let values = row.columns.iter().map(Datum::to_value);
        self.reorder.push((time, rank, (row.source, row.arrival)), values);
    }

    /// Takes note that no row will come from a source.
    pub fn end(&mut self, source: usize) {
        self.watermark.end(source);
    }

    /// Gives the main rows whose windows are final now. To be called after some rows were pushed, and now and then when
    /// none come. Fails where a row of the windows cannot be computed; then the join is of no use any more.
    pub fn advance(&mut self, now_ms: i64, emit: &mut dyn FnMut(WindowedRow<'_>)) -> Result<()> {
        let passed = self.watermark.advance(now_ms);
        let Self { reorder, lookups, scans, pending, main, given, arena, .. } = self;
        let Self { counts, outputs, keeps_rows, .. } = self;
        let mut joined = 0;
        let mut emit = |row: WindowedRow<'_>| {
            if given.as_mut().is_some_and(|given| given.has(&row)) {
                return;
            }
            joined += 1;
            emit(row);
        };
        while let Some(mut rows) = reorder.next(passed) {
            if let Some(lookups) = lookups {
                rows = lookups.join(&rows, arena)?;
            }
            begin(*keeps_rows, &rows, *outputs, (pending, main));
            for scan in scans.iter_mut() {
                settle(scan, &rows, main, &mut Settling { passed, pending, arena });
            }
            for (at, row) in main.drain(..).filter(|_| !*keeps_rows) {
                emit(pending.row(row).joined(Some(rows.columns(at))));
                pending.end(row);
            }
            if arena.allocated_bytes() > ARENA_BYTES_MAX {
                arena.reset();
            }
        }
        for scan in scans {
            scan.advance(&mut Settling { passed, pending, arena });
        }
        while let Some(row) = pending.next_complete() {
            emit(pending.row(row).joined(None));
            pending.end(row);
        }
        counts.joined += joined;
        if arena.allocated_bytes() > ARENA_BYTES_MAX {
            arena.reset();
        }
        let needed_from = self.needed_from(0);
        if let Some(lookups) = &mut self.lookups {
            lookups.release(needed_from);
        }
        Ok(())
    }

    fn join_unordered(
        &mut self,
        arrival: u64,
        columns: &[Datum<'_>],
        emit: &mut dyn FnMut(WindowedRow<'_>),
    ) -> Result<()> {
        let Self { lookups, scans, pending, given, arena, counts, outputs, .. } = self;
        let mut columns: Vec<Value> = columns.iter().map(Datum::to_value).collect();
        if let Some(lookups) = lookups {
            match lookups.main_row((&columns, None), arrival, arena)? {
                Some(joined) => columns = joined,
                None => return Ok(()),
            }
        }
        let row = pending.begin(arrival, None, *outputs);
        for scan in scans {
            scan.join_alone(&columns, arena, |output, value| pending.set(row, output, value));
        }
        let joined = pending.row(row).joined(Some(&columns));
        if !given.as_mut().is_some_and(|given| given.has(&joined)) {
            emit(joined);
            counts.joined += 1;
        }
        pending.end(row);
        Ok(())
    }

    /// Returns how far the sources are.
    pub fn sources(&self) -> &[SourceProgress] {
        self.watermark.sources()
    }

    /// Returns the time before which all rows have come; `None` as long as it is not known, and when all sources have
    /// ended.
    pub fn watermark(&self) -> Option<i64> {
        match self.watermark.reached() {
            PassedTimes::Before(i64::MIN) | PassedTimes::All => None,
            PassedTimes::Before(time) => Some(time),
        }
    }

    /// Returns what it has done, and has. *Cost*: a visit to each key.
    pub fn counts(&self) -> JoinCounts {
        let sizes = self.scans.iter().map(Scan::size);
        let (candidates, keys) = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        let of_scans = self.scans.iter().map(Scan::bytes).sum::<usize>();
        let of_lookups = self.lookups.as_ref().map_or((0, 0), |of| (of.rows(), of.bytes()));
        JoinCounts {
            unsettled: self.reorder.len(),
            pending: self.pending.len(),
            candidates: candidates + of_lookups.0,
            keys: keys + of_lookups.0,
            bytes: of_scans + of_lookups.1 + self.reorder.bytes() + self.pending.bytes(),
            ..self.counts
        }
    }
}

impl GivenMainRows {
    /// Returns whether a main row was given.
    fn has(&mut self, row: &WindowedRow<'_>) -> bool {
        if bug::is_seeded(StreamBug::GivenTwice) {
            return false;
        }
        let Some(time) = row.time else { return row.arrival < self.before_arrival };
        match self.ahead_ms {
            _ if bug::is_seeded(StreamBug::WaitingTakenForGiven) => self.passed.includes(time),
            Some(ahead_ms) => self.passed.includes_after(time, ahead_ms),
            None => self.passed.includes(time) && !self.waiting.remove(&row.arrival),
        }
    }
}

impl PendingRow {
    /// Returns it as a joined row; `columns` are its columns if they are not kept.
    fn joined<'r>(&'r self, columns: Option<&'r [Value]>) -> WindowedRow<'r> {
        let Self { arrival, time, results, .. } = self;
        let columns = columns.unwrap_or(&self.columns);
        WindowedRow { arrival: *arrival, time: *time, columns, results }
    }
}

/// Begins with the main rows among some, and notes their places.
fn begin(
    keeps_rows: bool,
    rows: &SettledRows<'_>,
    outputs: usize,
    (pending, main): (&mut PendingResults, &mut Vec<(usize, RowId)>),
) {
    debug_assert!(main.is_empty(), "those before were settled");
    for (at, entry) in rows.entries.iter().enumerate().filter(|(_, entry)| entry.source == 0) {
        let row = pending.begin(entry.arrival, Some(entry.time), outputs);
        if keeps_rows {
            pending.keep(row, rows.columns(at));
        }
        main.push((at, row));
    }
}

/// Settles rows of one time in a scan, in the order of its sources.
fn settle(
    scan: &mut Scan,
    rows: &SettledRows<'_>,
    main: &[(usize, RowId)],
    shared: &mut Settling<'_>,
) {
    let rank = |scan: &Scan, at: &usize| scan.rank(rows.entries[*at].source as usize);
    let mut order: Vec<usize> = Vec::new();
    if rows.entries.len() > 1 && !scan.is_in_order() {
        order.extend(0..rows.entries.len());
        order.sort_by_key(|at| (rank(scan, at), rows.entries[*at].arrival));
    }
    for place in 0..rows.entries.len() {
        let at = order.get(place).copied().unwrap_or(place);
        if rank(scan, &at).is_some() {
            let found = main.binary_search_by_key(&at, |(at, _)| *at).ok();
            let main = found.map(|found| main[found].1);
            let (time, columns) = (rows.entries[at].time, rows.columns(at));
            scan.settle(shared, SettledRow { time, columns, main });
        }
    }
}
