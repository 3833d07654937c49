//! A joiner: computes the LAST JOINs and windows of the main rows that are its own, over all rows that these may meet.

use std::{collections::BTreeSet, fmt, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_row::{Arena, Value};

use crate::{
    bug::{self, StreamBug},
    key_rows::KeyCopy,
    lookup::{LookupCopy, Lookups, MainProgram},
    reorder::{ReorderBuffer, SettledRows, UnsettledRow, UnsettledRows},
    results::{PendingResults, PendingRow, RowId},
    scan::{Scan, SettledRow, Settling},
    spec::WindowJoinSpec,
    watermark::PassedTimes,
};

/// The arena is reset when it has allocated more bytes than this.
const ARENA_BYTES_MAX: usize = 1 << 20;

/// What is made of joined rows. Each joiner has one.
pub trait JoinerOutput: fmt::Debug + Send + 'static {
    /// What it makes of them.
    type Rows: fmt::Debug + Send + 'static;
    /// Takes a row.
    fn add(&mut self, row: WindowedRow<'_>);
    /// Returns what it has made of the rows since the last call.
    fn take(&mut self) -> Result<Self::Rows>;
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

/// What one joiner computes with.
#[derive(Debug)]
pub struct JoinerParts<O> {
    /// Computes rows of the windows from what LAST JOINs below them have joined, if there are some.
    pub program: Option<Box<dyn MainProgram>>,
    /// Takes what is joined.
    pub output: O,
}

/// A joiner.
#[derive(Debug)]
pub(crate) struct Joiner<O> {
    /// Its number among all joiners.
    number: u8,
    spec: Arc<WindowJoinSpec>,
    outputs: usize,
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
    passed: PassedTimes,
    arena: Arena,
    output: O,
    /// How many main rows it has joined.
    joined: u64,
    /// Why it is of no use any more.
    failed: Option<Box<Diagnostic>>,
}

/// The main rows that a join has given before it reads rows again.
#[derive(Debug, Clone)]
pub(crate) struct GivenMainRows {
    pub(crate) passed: PassedTimes,
    /// How long after its time a main row is final; `None` where `waiting` has those that were not.
    pub(crate) ahead_ms: Option<i64>,
    pub(crate) waiting: BTreeSet<u64>,
    /// The rows without an event time with a smaller arrival.
    pub(crate) before_arrival: u64,
}

/// What a joiner has of a partition, for another one.
#[derive(Debug)]
pub(crate) struct PartitionCopy {
    unsettled: UnsettledRows,
    scans: Vec<Vec<KeyCopy>>,
    lookups: Vec<LookupCopy>,
}

/// What a joiner gives at the end of a round.
#[derive(Debug)]
pub(crate) struct RoundResult<R> {
    pub(crate) rows: R,
    /// The main rows that wait although the watermark has passed them, where rows decide when they are final.
    pub(crate) waiting: Vec<u64>,
    /// For each LAST JOIN the fingerprint of the rows that it holds, of the partitions for which this joiner tells it.
    pub(crate) held: Vec<u64>,
    /// How many main rows were joined in all rounds.
    pub(crate) joined: u64,
}

/// What a joiner has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JoinerSize {
    pub(crate) unsettled: usize,
    pub(crate) pending: usize,
    pub(crate) candidates: usize,
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
}

impl<O: JoinerOutput> Joiner<O> {
    pub(crate) fn new(
        spec: &Arc<WindowJoinSpec>,
        (number, parts): (u8, JoinerParts<O>),
        lateness_ms: i64,
    ) -> Self {
        let widths = spec.sources.iter().map(|source| source.width).collect();
        let has_lookups = !(spec.lookups.is_empty() && spec.output_lookups.is_empty());
        let JoinerParts { program, output } = parts;
        Self {
            number,
            outputs: spec.outputs(),
            reorder: ReorderBuffer::new(widths, lateness_ms),
            lookups: has_lookups.then(|| Lookups::new(spec, program)),
            scans: spec.scans.iter().map(Scan::new).collect(),
            pending: PendingResults::default(),
            keeps_rows: spec.waits(),
            main: Vec::new(),
            given: None,
            passed: PassedTimes::Before(i64::MIN),
            arena: Arena::new(),
            output,
            joined: 0,
            failed: None,
            spec: Arc::clone(spec),
        }
    }

    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// Takes note of the main rows that were given already.
    pub(crate) fn begin_replay(&mut self, given: GivenMainRows) {
        debug_assert_eq!(self.joined, 0, "it is new");
        self.given = Some(given);
    }

    /// Takes a row.
    pub(crate) fn push(&mut self, row: UnsettledRow, values: impl Iterator<Item = Value>) {
        if let Some(lookups) = &mut self.lookups {
            lookups.hold(&row);
        }
        self.reorder.push(row, values);
    }

    /// Takes some rows.
    pub(crate) fn extend(&mut self, rows: UnsettledRows) {
        if let Some(lookups) = &mut self.lookups {
            rows.entries.iter().for_each(|row| lookups.hold(row));
        }
        self.reorder.extend(rows);
    }

    /// Joins a main row without an event time, whose windows have no other row.
    pub(crate) fn join_unordered(&mut self, arrival: u64, columns: Vec<Value>) {
        if self.failed.is_none() {
            self.failed = self.joined_alone(arrival, columns).err();
        }
    }

    /// Gives the main rows whose windows are final when the watermark has passed these times.
    pub(crate) fn advance(&mut self, passed: PassedTimes) {
        self.passed = passed;
        if self.failed.is_none() {
            self.failed = self.advanced().err();
        }
    }

    fn advanced(&mut self) -> Result<()> {
        let Self { spec, reorder, lookups, scans, pending, main, given, arena, .. } = self;
        let Self { outputs, keeps_rows, passed, output, joined, .. } = self;
        let mut emit = |row: WindowedRow<'_>| {
            if given.as_mut().is_none_or(|given| !given.has(&row)) {
                *joined += 1;
                output.add(row);
            }
        };
        while let Some(mut rows) = reorder.next(*passed) {
            if let Some(lookups) = lookups {
                rows = lookups.join(&rows, arena)?;
            }
            begin(*keeps_rows, &rows, *outputs, (pending, main));
            for scan in scans.iter_mut() {
                settle(scan, &rows, main, &mut Settling { passed: *passed, pending, arena });
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
            scan.advance(&mut Settling { passed: *passed, pending, arena });
        }
        while let Some(row) = pending.next_complete() {
            emit(pending.row(row).joined(None));
            pending.end(row);
        }
        if arena.allocated_bytes() > ARENA_BYTES_MAX {
            arena.reset();
        }
        if let Some(lookups) = lookups {
            lookups.release(spec.needed_from(passed.time()));
        }
        Ok(())
    }

    fn joined_alone(&mut self, arrival: u64, mut columns: Vec<Value>) -> Result<()> {
        let Self { lookups, scans, pending, given, arena, outputs, output, joined, .. } = self;
        if let Some(lookups) = lookups {
            match lookups.main_row((&columns, None), arrival, arena)? {
                Some(of_joins) => columns = of_joins,
                None => return Ok(()),
            }
        }
        let row = pending.begin(arrival, None, *outputs);
        for scan in scans {
            scan.join_alone(&columns, arena, |output, value| pending.set(row, output, value));
        }
        let windowed = pending.row(row).joined(Some(&columns));
        if given.as_mut().is_none_or(|given| !given.has(&windowed)) {
            output.add(windowed);
            *joined += 1;
        }
        pending.end(row);
        Ok(())
    }

    /// Returns what was joined since the last round; `is_told` says of which partitions it tells what LAST JOINs hold.
    pub(crate) fn end_round(
        &mut self,
        is_told: impl Fn(usize) -> bool,
    ) -> Result<RoundResult<O::Rows>> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let rows = self.output.take().inspect_err(|error| self.failed = Some(error.clone()))?;
        let waiting = match self.spec.ahead_ms() {
            Some(_) => Vec::new(),
            None => self.pending.arrivals().collect(),
        };
        let held = self.lookups.as_ref().map_or_else(Vec::new, |lookups| lookups.held(is_told));
        Ok(RoundResult { rows, waiting, held, joined: self.joined })
    }

    /// Returns what another joiner needs to compute windows over a partition.
    pub(crate) fn copy_of(&self, partition: u16) -> PartitionCopy {
        let has_main = self.spec.has_main_candidates();
        let is_candidate = |row: &UnsettledRow| row.source > 0 || has_main;
        let mut unsettled = match bug::is_seeded(StreamBug::UnsettledNotCopied) {
            true => UnsettledRows::default(),
            false => self.reorder.rows_of(partition, is_candidate),
        };
        if !bug::is_seeded(StreamBug::CopiedRowsComputed) {
            // This joiner gives them.
            unsettled.entries.iter_mut().for_each(|row| row.is_computed = false);
        }
        let candidates = |scan: &Scan| match bug::is_seeded(StreamBug::CandidatesNotCopied) {
            true => Vec::new(),
            false => scan.copy_of(partition),
        };
        let lookups = self.lookups.as_ref();
        PartitionCopy {
            unsettled,
            scans: self.scans.iter().map(candidates).collect(),
            lookups: lookups.map_or_else(Vec::new, |lookups| lookups.copy_of(partition)),
        }
    }

    /// Adds what another joiner has of a partition.
    pub(crate) fn install(&mut self, partition: u16, copy: PartitionCopy) {
        let PartitionCopy { unsettled, scans, lookups } = copy;
        debug_assert_eq!(scans.len(), self.scans.len(), "they compute the same");
        // Without a note of what LAST JOINs hold: the copy has one.
        self.reorder.extend(unsettled);
        for (scan, copies) in self.scans.iter_mut().zip(scans) {
            scan.install(copies, partition, self.passed);
        }
        if let Some(own) = &mut self.lookups {
            own.install(lookups, partition);
        }
    }

    /// Drops a partition, none of whose main rows waits here.
    pub(crate) fn forget(&mut self, partition: u16) {
        if bug::is_seeded(StreamBug::PartitionNotForgotten) {
            return;
        }
        self.reorder.forget(partition);
        self.scans.iter_mut().for_each(|scan| scan.forget(partition));
        if let Some(lookups) = &mut self.lookups {
            lookups.forget(partition);
        }
    }

    /// Returns what it has. *Cost*: a visit to each key.
    pub(crate) fn size(&self) -> JoinerSize {
        let sizes = self.scans.iter().map(Scan::size);
        let (candidates, keys) = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        let of_scans = self.scans.iter().map(Scan::bytes).sum::<usize>();
        let of_lookups = self.lookups.as_ref().map_or((0, 0), |of| (of.rows(), of.bytes()));
        JoinerSize {
            unsettled: self.reorder.len(),
            pending: self.pending.len(),
            candidates: candidates + of_lookups.0,
            keys: keys + of_lookups.0,
            bytes: of_scans + of_lookups.1 + self.reorder.bytes() + self.pending.bytes(),
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

/// Begins with the main rows among some that are computed here, and notes their places.
fn begin(
    keeps_rows: bool,
    rows: &SettledRows<'_>,
    outputs: usize,
    (pending, main): (&mut PendingResults, &mut Vec<(usize, RowId)>),
) {
    debug_assert!(main.is_empty(), "those before were settled");
    let entries = rows.entries.iter().enumerate();
    for (at, entry) in entries.filter(|(_, entry)| entry.source == 0 && entry.is_computed) {
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
    let rank = |scan: &Scan, at: &usize| scan.rank(rows.entries[*at].source.into());
    let mut order: Vec<usize> = Vec::new();
    if rows.entries.len() > 1 && !scan.is_in_order() {
        order.extend(0..rows.entries.len());
        order.sort_by_key(|at| (rank(scan, at), rows.entries[*at].arrival));
    }
    for place in 0..rows.entries.len() {
        let at = order.get(place).copied().unwrap_or(place);
        if rank(scan, &at).is_some() {
            let found = main.binary_search_by_key(&at, |(at, _)| *at).ok();
            let computed = found.map(|found| main[found].1);
            let UnsettledRow { time, source, partition, .. } = rows.entries[at];
            let (columns, is_main) = (rows.columns(at), source == 0);
            scan.settle(shared, SettledRow { time, columns, partition, is_main, computed });
        }
    }
}
