//! LAST JOINs in a stream: the newest row of each key, which main rows are joined with.
//!
//! Rows are settled in event order, so that the newest row of a key that has been settled is the one that a main row of
//! this time is joined with: no other is kept. What the windows read of a joined row is computed by a [`MainProgram`].
//!
//! A join that reads rows again joins main rows again as well, those that windows may still contain. The rows that a
//! lookup *holds* are those that it needs for them: all but those that a newer one of their key has replaced before all
//! these main rows. Their fingerprint tells whether a join that has read the source again holds the same, though others
//! may have been removed meanwhile.

use std::{collections::VecDeque, fmt, hash::BuildHasher};

use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry};
use lockstep_diagnostic::Result;
use lockstep_row::{Arena, Datum, Value, key::encode_key};

use crate::{
    bug::{self, StreamBug},
    reorder::{SettledRows, UnsettledRow},
    spec::{LookupSpec, WindowJoinSpec},
};

/// Computes rows of windows from main rows that were joined by LAST JOINs.
pub trait MainProgram: fmt::Debug + Send {
    /// Computes the columns of a row of the windows; `None` for a row that a condition leaves out. `joined` has the
    /// columns of the main row, and then those of each LAST JOIN, which are NULL where there is no match.
    fn compute<'a>(
        &self,
        joined: &[Datum<'_>],
        arrival: u64,
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>>;
}

/// The LAST JOINs of a stream.
#[derive(Debug)]
pub(crate) struct Lookups {
    /// Those below the windows, and then those above.
    lookups: Vec<Lookup>,
    /// How many are below.
    below: usize,
    /// `None` where there are none below.
    program: Option<Box<dyn MainProgram>>,
    /// The number of columns of a row that was joined, by its source.
    widths: Box<[usize]>,
    /// The rows that were joined last: those of one time.
    entries: Vec<UnsettledRow>,
    values: Vec<Value>,
}

/// The newest row of each key of a source.
#[derive(Debug)]
struct Lookup {
    spec: LookupSpec,
    newest: HashTable<NewestRow>,
    hasher: DefaultHashBuilder,
    /// The fingerprint of the rows that it holds, settled or not.
    held: u64,
    /// The fingerprints of those that were replaced, each with the time of the row that did, in the order of times.
    /// `None` where main rows of any time may be joined again.
    replaced: Option<VecDeque<(i64, u64)>>,
    /// About how many bytes the rows have.
    bytes: usize,
}

/// The newest row of a key.
#[derive(Debug)]
struct NewestRow {
    key: Box<[u8]>,
    time: i64,
    arrival: u64,
    /// The columns that are joined.
    columns: Box<[Value]>,
}

impl Lookups {
    /// Makes the LAST JOINs of a stream. The program is that of those below the windows.
    pub(crate) fn new(spec: &WindowJoinSpec, program: Option<Box<dyn MainProgram>>) -> Self {
        debug_assert_eq!(program.is_none(), spec.lookups.is_empty(), "it computes what is joined");
        let mut widths: Box<[usize]> = spec.sources.iter().map(|source| source.width).collect();
        let added = spec.output_lookups.iter().map(|lookup| lookup.columns);
        widths[0] = spec.width + added.sum::<usize>();
        let is_bounded = spec.reach_ms().is_some() && spec.ahead_ms().is_some();
        let lookups = spec.lookups.iter().chain(&spec.output_lookups).cloned();
        let lookups = lookups.map(|lookup| Lookup::new(lookup, is_bounded)).collect();
        let below = spec.lookups.len();
        Self { lookups, below, program, widths, entries: Vec::new(), values: Vec::new() }
    }

    /// Takes note of a row that waits.
    pub(crate) fn hold(&mut self, source: usize, arrival: u64) {
        if let Some(lookup) = self.of_source(source) {
            lookup.held = lookup.held.wrapping_add(fingerprint(arrival));
        }
    }

    /// Takes note that no main row before a time will be joined again.
    pub(crate) fn release(&mut self, needed_from: Option<i64>) {
        for Lookup { replaced, held, .. } in &mut self.lookups {
            let early = bug::is_seeded(StreamBug::ReplacedRowReleased);
            let is_over = |(time, _): &mut (i64, u64)| Some(*time) < needed_from || early;
            while let Some((_, row)) = replaced.as_mut().and_then(|rows| rows.pop_front_if(is_over))
            {
                *held = held.wrapping_sub(row);
            }
        }
    }

    /// Returns the fingerprint of the rows of a source that are held; `None` where it is not that of a LAST JOIN.
    pub(crate) fn held(&self, source: usize) -> Option<u64> {
        Some(self.lookups.iter().find(|lookup| lookup.spec.source == source)?.held)
    }

    /// Joins the main rows among those of one time. Returns the rows of the windows.
    pub(crate) fn join(
        &mut self,
        rows: &SettledRows<'_>,
        arena: &Arena,
    ) -> Result<SettledRows<'_>> {
        self.entries.clear();
        self.values.clear();
        // Before and after the main rows of this time: those that a LAST JOIN takes of it, and those that it does not.
        self.settle(rows, true, arena);
        for (at, entry) in rows.entries.iter().enumerate() {
            let start = self.values.len();
            let UnsettledRow { time, rank, arrival, source, .. } = *entry;
            let columns = rows.columns(at);
            match source {
                0 => {
                    let Some(columns) = self.main_row((columns, Some(time)), arrival, arena)?
                    else {
                        continue;
                    };
                    self.values.extend(columns);
                }
                source if self.held(source as usize).is_some() => continue,
                _ => self.values.extend_from_slice(columns),
            }
            self.entries.push(UnsettledRow::new(time, rank, (source as usize, arrival), start));
        }
        self.settle(rows, false, arena);
        Ok(SettledRows { entries: &self.entries, values: &self.values, widths: &self.widths })
    }

    /// Joins a main row, and returns the columns that windows read of it and those that are joined above them; `None`
    /// where a condition leaves it out. No row is older than one without an event time.
    pub(crate) fn main_row(
        &self,
        (columns, time): (&[Value], Option<i64>),
        arrival: u64,
        arena: &Arena,
    ) -> Result<Option<Vec<Value>>> {
        let (below, above) = self.lookups.split_at(self.below);
        let mut row: Vec<Value> = match &self.program {
            Some(program) => {
                let joined = joined(below, columns, time, arena);
                let Some(columns) = program.compute(&joined, arrival, arena)? else {
                    return Ok(None);
                };
                columns.iter().map(Datum::to_value).collect()
            }
            None => columns.to_vec(),
        };
        if !above.is_empty() {
            let joined = joined(above, &row, time, arena);
            let added: Vec<Value> = joined[row.len()..].iter().map(Datum::to_value).collect();
            row.extend(added);
        }
        debug_assert_eq!(row.len(), self.widths[0], "it has all columns");
        Ok(Some(row))
    }

    /// Returns how many rows are kept, which is one for each key.
    pub(crate) fn rows(&self) -> usize {
        self.lookups.iter().map(|lookup| lookup.newest.len()).sum()
    }

    /// Returns about how many bytes they have.
    pub(crate) fn bytes(&self) -> usize {
        let of_lookup = |lookup: &Lookup| {
            let replaced = lookup.replaced.as_ref().map_or(0, VecDeque::capacity);
            lookup.bytes
                + lookup.newest.capacity() * size_of::<NewestRow>()
                + replaced * size_of::<(i64, u64)>()
        };
        self.lookups.iter().map(of_lookup).sum()
    }

    /// Settles the rows of LAST JOINs that take rows of the main row's time, or of the others.
    fn settle(&mut self, rows: &SettledRows<'_>, is_inclusive: bool, arena: &Arena) {
        for (at, entry) in rows.entries.iter().enumerate() {
            let lookup = self.of_source(entry.source as usize);
            let early = bug::is_seeded(StreamBug::JoinedTooEarly);
            let is_now = |lookup: &&mut Lookup| (lookup.spec.is_inclusive || early) == is_inclusive;
            if let Some(lookup) = lookup.filter(is_now) {
                lookup.settle(entry, rows.columns(at), arena);
            }
        }
    }

    fn of_source(&mut self, source: usize) -> Option<&mut Lookup> {
        self.lookups.iter_mut().find(|lookup| lookup.spec.source == source)
    }
}

impl Lookup {
    fn new(spec: LookupSpec, is_bounded: bool) -> Self {
        debug_assert_eq!(spec.keys.len(), spec.main_keys.len(), "keys are compared");
        Self {
            replaced: is_bounded.then(VecDeque::new),
            spec,
            newest: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            held: 0,
            bytes: 0,
        }
    }

    /// Makes a row the newest one of its key.
    fn settle(&mut self, entry: &UnsettledRow, columns: &[Value], arena: &Arena) {
        let Self { spec, newest, hasher, replaced, bytes, .. } = self;
        let mut encoded = Vec::new();
        encode_key(spec.keys.iter().map(|column| columns[*column].as_datum(arena)), &mut encoded);
        let hash = hasher.hash_one(&encoded[..]);
        let columns: Box<[Value]> = columns[..spec.columns].into();
        let added = size_of_val(&*columns);
        let (time, arrival) = (entry.time, entry.arrival);
        let is_same = |row: &NewestRow| *row.key == encoded[..];
        match newest.entry(hash, is_same, |row| hasher.hash_one(&*row.key)) {
            Entry::Occupied(mut row) => {
                let row = row.get_mut();
                debug_assert!(row.time <= time, "rows are in order");
                if let Some(replaced) = replaced
                    && !bug::is_seeded(StreamBug::ReplacedRowHeld)
                {
                    replaced.push_back((time, fingerprint(row.arrival)));
                }
                (row.time, row.arrival, row.columns) = (time, arrival, columns);
            }
            Entry::Vacant(place) => {
                *bytes += added + encoded.len();
                place.insert(NewestRow { key: encoded.into(), time, arrival, columns });
            }
        }
    }

    /// Returns the row that a main row is joined with, if there is one.
    fn find(&self, joined: &[Datum<'_>]) -> Option<&NewestRow> {
        let Self { spec, newest, hasher, .. } = self;
        let mut encoded = Vec::new();
        encode_key(spec.main_keys.iter().map(|column| joined[*column]), &mut encoded);
        let found = newest.find(hasher.hash_one(&encoded[..]), |row| *row.key == encoded[..])?;
        let Some(least) = spec.at_least else { return Some(found) };
        let time = joined[least.column].as_i64()?;
        let is_new = found.time > time || (least.is_inclusive && found.time == time);
        is_new.then_some(found)
    }
}

/// Returns a main row's columns and those that it is joined with.
fn joined<'r>(
    lookups: &'r [Lookup],
    columns: &'r [Value],
    time: Option<i64>,
    arena: &'r Arena,
) -> Vec<Datum<'r>> {
    let mut joined: Vec<Datum<'r>> = columns.iter().map(|value| value.as_datum(arena)).collect();
    for lookup in lookups {
        match time.and_then(|_| lookup.find(&joined)) {
            Some(row) => joined.extend(row.columns.iter().map(|value| value.as_datum(arena))),
            None => joined.extend(std::iter::repeat_n(Datum::Null, lookup.spec.columns)),
        }
    }
    joined
}

/// Returns a number for a row such that the sums of different sets of rows are almost never equal. It is stored with a
/// stream's progress, and never changes: the finalizer of `SplitMix64` (Steele, Lea and Flood, 2014).
fn fingerprint(arrival: u64) -> u64 {
    let mut mixed = arrival.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
