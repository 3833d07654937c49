//! A scan: the keys of some windows over the same keys and sources.

use std::{collections::VecDeque, hash::BuildHasher};

use hashbrown::{DefaultHashBuilder, HashTable};
use lockstep_plan::has_current_row;
use lockstep_row::{Arena, Value, key::encode_key};

use crate::{
    bug::{self, StreamBug},
    key_rows::{KeyCopy, KeyWindows, ScanContext, WindowOfScan},
    results::{PendingResults, RowId},
    slide::WindowStates,
    spec::{ScanSpec, back_ms},
    watermark::PassedTimes,
};

/// The keys of a scan.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The columns of the key.
    keys: Vec<usize>,
    /// The sources, those first whose rows come first at equal times; main rows are of source 0.
    sources: Vec<usize>,
    without_main: bool,
    /// The columns that calls read of a candidate.
    lanes: Vec<usize>,
    windows: Vec<WindowOfScan>,
    places: HashTable<u32>,
    hasher: DefaultHashBuilder,
    rows_of_keys: Vec<Option<KeyWindows>>,
    free: Vec<u32>,
    /// For each window that goes on after its row, the rows whose results wait, in event order, with their keys.
    waiting: Vec<VecDeque<(i64, u32)>>,
    /// After how long without a row a key has no candidate that is needed; `None` where it always may.
    kept_ms: Option<i64>,
    /// The keys, each with the time when it is to be looked at, in the order of these times.
    looked_at: VecDeque<(i64, u32)>,
    encoded: Vec<u8>,
}

/// A row that is settled in a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettledRow<'r> {
    pub(crate) time: i64,
    pub(crate) columns: &'r [Value],
    /// The partition of its key.
    pub(crate) partition: u16,
    pub(crate) is_main: bool,
    /// The number of a main row whose windows are computed here.
    pub(crate) computed: Option<RowId>,
}

/// What scans share while rows are settled.
#[derive(Debug)]
pub(crate) struct Settling<'s> {
    pub(crate) passed: PassedTimes,
    pub(crate) pending: &'s mut PendingResults,
    pub(crate) arena: &'s Arena,
}

impl Scan {
    pub(crate) fn new(spec: &ScanSpec) -> Self {
        let calls = || spec.groups.iter().flat_map(|group| &group.calls);
        let mut lanes: Vec<usize> = calls().flat_map(|call| &call.arguments).copied().collect();
        lanes.sort_unstable();
        lanes.dedup();
        let lane = |column| lanes.binary_search(&column).expect("each argument is a lane");
        let windows = spec.groups.iter().map(|group| WindowOfScan {
            window: group.window.clone(),
            states: WindowStates::new(group, lane),
        });
        let windows: Vec<_> = windows.collect();
        let backs = spec.groups.iter().map(|group| back_ms(&group.window));
        // A window over rows before its row needs them however old they are.
        let kept_ms = backs.into_iter().try_fold(0, |most: i64, back| Some(most.max(back?)));
        Self {
            keys: spec.keys.clone(),
            sources: spec.unions.iter().rev().copied().chain([0]).collect(),
            without_main: spec.without_main,
            waiting: windows.iter().map(|_| VecDeque::new()).collect(),
            lanes,
            windows,
            places: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            rows_of_keys: Vec::new(),
            free: Vec::new(),
            kept_ms,
            looked_at: VecDeque::new(),
            encoded: Vec::new(),
        }
    }

    /// Returns the place of a source among those of a scan; `None` where it is none of them.
    pub(crate) fn rank(&self, source: usize) -> Option<usize> {
        self.sources.iter().position(|other| *other == source)
    }

    /// Returns whether rows of one time are settled in the order in which they wait.
    pub(crate) fn is_in_order(&self) -> bool {
        self.sources.is_sorted_by(|left, right| left >= right)
    }

    /// Computes the windows of a main row that has no event time: passes each result with the position of its call.
    pub(crate) fn join_alone(
        &self,
        columns: &[Value],
        arena: &Arena,
        mut give: impl FnMut(usize, Value),
    ) {
        for WindowOfScan { window, states } in &self.windows {
            states.compute_alone(has_current_row(window), columns, arena, &mut give);
        }
    }

    /// Settles a row.
    pub(crate) fn settle(&mut self, shared: &mut Settling<'_>, row: SettledRow<'_>) {
        let key = self.key_of(row, shared.arena);
        let Self { windows, rows_of_keys, lanes, waiting, .. } = self;
        let rows = rows_of_keys[key as usize].as_mut().expect("the key has rows");
        let width = lanes.len();
        let Settling { pending, arena, .. } = shared;
        let mut ctx = ScanContext { windows, width, pending, arena };
        debug_assert!(row.columns.len() >= width, "a row has all columns");
        let is_candidate = !row.is_main || !self.without_main;
        if is_candidate {
            let values = lanes.iter().map(|column| row.columns[*column].clone());
            rows.push(&mut ctx, row.time, values);
        }
        if let Some(main) = row.computed {
            let place = rows.place(row.time, is_candidate);
            for (window, waiting) in waiting.iter_mut().enumerate() {
                let waits = rows.settle(&mut ctx, window, (main, place, row.columns));
                if waits && ctx.windows[window].ahead_ms().is_some() {
                    waiting.push_back((row.time, key));
                }
            }
        }
        rows.compute_counted(&mut ctx, false);
    }

    /// Computes the results that the watermark has decided, and forgets keys that are not needed any more.
    pub(crate) fn advance(&mut self, shared: &mut Settling<'_>) {
        let Self { windows, rows_of_keys, lanes, waiting, .. } = self;
        let width = lanes.len();
        let Settling { passed, pending, arena } = shared;
        let mut ctx = ScanContext { windows, width, pending, arena };
        let early = i64::from(bug::is_seeded(StreamBug::DecidedTooEarly));
        for (window, waiting) in waiting.iter_mut().enumerate() {
            let Some(ahead_ms) = ctx.windows[window].ahead_ms() else { continue };
            let is_decided =
                |(time, _): &mut (i64, u32)| passed.includes_after(*time, ahead_ms - early);
            while let Some((_, key)) = waiting.pop_front_if(is_decided) {
                let rows =
                    rows_of_keys[key as usize].as_mut().expect("a key with a row that waits");
                rows.compute_waiting(&mut ctx, window);
            }
        }
        if *passed == PassedTimes::All {
            rows_of_keys.iter_mut().flatten().for_each(|rows| rows.compute_counted(&mut ctx, true));
        }
        self.forget_keys(shared.passed);
    }

    /// Returns how many candidates there are, of how many keys.
    pub(crate) fn size(&self) -> (usize, usize) {
        let keys = self.rows_of_keys.iter().flatten();
        (keys.clone().map(KeyWindows::len).sum(), keys.count())
    }

    /// Returns about how many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        let entry = size_of::<(i64, u32)>();
        let waiting = self.waiting.iter().chain([&self.looked_at]);
        self.rows_of_keys.iter().flatten().map(KeyWindows::bytes).sum::<usize>()
            + waiting.map(|rows| rows.capacity() * entry).sum::<usize>()
            + self.places.capacity() * size_of::<u32>()
    }

    /// Returns the key of a row, which is made if there is none.
    fn key_of(&mut self, row: SettledRow<'_>, arena: &Arena) -> u32 {
        let Self { places, rows_of_keys, encoded, hasher, .. } = self;
        encoded.clear();
        encode_key(self.keys.iter().map(|column| row.columns[*column].as_datum(arena)), encoded);
        let hash = hasher.hash_one(&encoded[..]);
        let key_at = |at: u32| &*rows_of_keys[at as usize].as_ref().expect("it has rows").key;
        if let Some(at) = places.find(hash, |at| key_at(*at) == &encoded[..]) {
            return *at;
        }
        let rows = KeyWindows::new(encoded, row.partition, &self.windows);
        self.add_key(hash, rows, row.time)
    }

    /// Adds a key, which has no candidate after a time.
    fn add_key(&mut self, hash: u64, rows: KeyWindows, time: i64) -> u32 {
        let Self { places, rows_of_keys, hasher, .. } = self;
        let at = self.free.pop().unwrap_or_else(|| {
            rows_of_keys.push(None);
            u32::try_from(rows_of_keys.len() - 1).expect("there are fewer than 2^32 keys")
        });
        rows_of_keys[at as usize] = Some(rows);
        let key_at = |at: u32| &*rows_of_keys[at as usize].as_ref().expect("it has rows").key;
        places.insert_unique(hash, at, |at| hasher.hash_one(key_at(*at)));
        if let Some(kept_ms) = self.kept_ms {
            self.looked_at.push_back((time.saturating_add(kept_ms), at));
        }
        at
    }

    /// Returns copies of the candidates of a partition.
    pub(crate) fn copy_of(&self, partition: u16) -> Vec<KeyCopy> {
        let rows = self.rows_of_keys.iter().flatten();
        rows.filter(|rows| rows.partition == partition).map(KeyWindows::copy).collect()
    }

    /// Adds the candidates of a partition that another joiner has.
    pub(crate) fn install(&mut self, copies: Vec<KeyCopy>, partition: u16, passed: PassedTimes) {
        let PassedTimes::Before(end) = passed else { return };
        for copy in copies {
            let hash = self.hasher.hash_one(&*copy.key);
            let rows = KeyWindows::of_copy(copy, partition, &self.windows);
            self.add_key(hash, rows, end);
        }
    }

    /// Drops the candidates of a partition, none of whose main rows waits.
    pub(crate) fn forget(&mut self, partition: u16) {
        let is_of = |rows: &Option<KeyWindows>| {
            rows.as_ref().is_some_and(|rows| rows.partition == partition)
        };
        let keys = self.rows_of_keys.iter().zip(0_u32..).filter(|(rows, _)| is_of(rows));
        let keys: Vec<u32> = keys.map(|(_, at)| at).collect();
        self.looked_at.retain(|(_, at)| keys.binary_search(at).is_err());
        keys.into_iter().for_each(|at| self.remove_key(at));
    }

    /// Forgets the keys none of whose candidates is needed any more.
    fn forget_keys(&mut self, passed: PassedTimes) {
        let (Some(kept_ms), PassedTimes::Before(end)) = (self.kept_ms, passed) else { return };
        let kept_ms = if bug::is_seeded(StreamBug::KeyDropped) { kept_ms / 2 } else { kept_ms };
        let is_due = |(time, _): &mut (i64, u32)| passed.includes(*time);
        while let Some((_, at)) = self.looked_at.pop_front_if(is_due) {
            let rows = self.rows_of_keys[at as usize].as_ref().expect("a key is looked at once");
            if !rows.is_over(passed, kept_ms) {
                self.looked_at.push_back((end.saturating_add(kept_ms), at));
                continue;
            }
            self.remove_key(at);
        }
    }

    fn remove_key(&mut self, at: u32) {
        let rows = self.rows_of_keys[at as usize].take().expect("it has rows");
        let hash = self.hasher.hash_one(&*rows.key);
        let entry = self.places.find_entry(hash, |other| *other == at);
        entry.expect("each key has a place").remove();
        self.free.push(at);
    }
}
