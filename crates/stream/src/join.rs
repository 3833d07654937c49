//! The windows of a stream, as rows arrive and the watermark passes them.

use lockstep_row::{Arena, Datum, Value};

use crate::{
    bug::{self, StreamBug},
    reorder::{ReorderBuffer, SettledRows},
    results::{PendingResults, PendingRow, RowId},
    scan::{Scan, SettledRow, Settling},
    spec::{SpecError, WindowJoinSpec},
    watermark::{Lateness, PassedTimes, SourceProgress, Watermark},
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
    scans: Vec<Scan>,
    pending: PendingResults,
    /// Whether main rows may wait for results after they were settled.
    keeps_rows: bool,
    /// The main rows among those that are being settled, with their places there.
    main: Vec<(usize, RowId)>,
    arena: Arena,
    counts: JoinCounts,
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
    /// Its columns.
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
    /// The candidates of all scans.
    pub candidates: usize,
    /// The keys of all scans.
    pub keys: usize,
    /// About how many bytes it has.
    pub bytes: usize,
}

impl WindowJoin {
    /// Makes a join of rows with so many columns. Fails when a window is never final.
    pub fn new(
        spec: WindowJoinSpec,
        columns: usize,
        lateness: Lateness,
        now_ms: i64,
    ) -> Result<Self, SpecError> {
        spec.check()?;
        Ok(Self {
            outputs: spec.outputs(),
            watermark: Watermark::new(spec.sources, lateness, now_ms),
            reorder: ReorderBuffer::new(columns, lateness.lateness_ms),
            scans: spec.scans.iter().map(Scan::new).collect(),
            pending: PendingResults::default(),
            keeps_rows: spec.waits(),
            main: Vec::new(),
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
    ) -> Pushed {
        let StreamRow { source, arrival, columns } = row;
        let pushed = match columns[self.spec.order].as_i64() {
            None if source == 0 => {
                self.join_unordered(arrival, columns, emit);
                Pushed::Taken
            }
            None => Pushed::Ignored,
            Some(time) => match self.watermark.see(source, time, now_ms) {
                true if !bug::is_seeded(StreamBug::LateRowCounts) => Pushed::Late,
                _ => {
                    self.buffer(time, row);
                    Pushed::Taken
                }
            },
        };
        *match pushed {
            Pushed::Taken => &mut self.counts.taken,
            Pushed::Late => &mut self.counts.late,
            Pushed::Ignored => &mut self.counts.ignored,
        } += 1;
        pushed
    }

    fn buffer(&mut self, time: i64, row: StreamRow<'_>) {
        if bug::is_seeded(StreamBug::RowDropped) && row.arrival % 16 == 7 {
            return;
        }
        // Of the rows of one time main rows are the last, and UNION sources come as most windows sort them.
        let rank = match bug::is_seeded(StreamBug::TiesByArrival) {
            true => 0,
            false => u32::try_from(self.spec.sources - row.source).unwrap_or(u32::MAX),
        };
        let values = row.columns.iter().map(Datum::to_value);
        self.reorder.push((time, rank, (row.source, row.arrival)), values);
    }

    /// Takes note that no row will come from a source.
    pub fn end(&mut self, source: usize) {
        self.watermark.end(source);
    }

    /// Gives the main rows whose windows are final now. To be called after some rows were pushed, and now and then when
    /// none come.
    pub fn advance(&mut self, now_ms: i64, emit: &mut dyn FnMut(WindowedRow<'_>)) {
        let passed = self.watermark.advance(now_ms);
        let Self { reorder, scans, pending, main, arena, counts, outputs, keeps_rows, .. } = self;
        let mut joined = 0;
        let mut emit = |row: WindowedRow<'_>| {
            joined += 1;
            emit(row);
        };
        while let Some(rows) = reorder.next(passed) {
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
    }

    fn join_unordered(
        &mut self,
        arrival: u64,
        columns: &[Datum<'_>],
        emit: &mut dyn FnMut(WindowedRow<'_>),
    ) {
        let columns: Vec<Value> = columns.iter().map(Datum::to_value).collect();
        let row = self.pending.begin(arrival, None, self.outputs);
        for scan in &self.scans {
            scan.join_alone(&columns, &self.arena, |output, value| {
                self.pending.set(row, output, value);
            });
        }
        emit(self.pending.row(row).joined(Some(&columns)));
        self.pending.end(row);
        self.counts.joined += 1;
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
        let bytes = self.scans.iter().map(Scan::bytes).sum::<usize>();
        JoinCounts {
            unsettled: self.reorder.len(),
            pending: self.pending.len(),
            candidates,
            keys,
            bytes: bytes + self.reorder.bytes() + self.pending.bytes(),
            ..self.counts
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
