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
    reorder::{SettledRows, UnsettledRow, place_of_next},
    spec::{LookupSpec, WindowJoinSpec},
};

/// Computes rows of windows from main rows that were joined by LAST JOINs.
pub trait MainProgram: fmt::Debug + Send {
    /// Computes the columns of a row of the windows; `None` for a row that a condition leaves out. `joined` has the
    /// columns of the main row, and then those of each LAST JOIN, which are NULL where there is no match.
    fn compute<'a>(
        &mut self,
        joined: &[Datum<'a>],
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
    /// The fingerprints of the rows that it holds, settled or not, by their partitions.
    held: Vec<u64>,
    /// Those that were replaced, in the order of the times of the rows that did. `None` where main rows of any time may be
    /// joined again.
    replaced: Option<VecDeque<ReplacedRow>>,
    /// About how many bytes the rows have.
    bytes: usize,
}

/// A row that a newer one of its key has replaced.
#[derive(Debug, Clone, Copy)]
struct ReplacedRow {
    /// The time of the newer one.
    time: i64,
    fingerprint: u64,
    partition: u16,
}

/// The rows of a partition that a LAST JOIN has, for another joiner.
#[derive(Debug)]
pub(crate) struct LookupCopy {
    newest: Vec<NewestRow>,
    held: u64,
    replaced: Vec<ReplacedRow>,
}

/// The newest row of a key.
#[derive(Debug, Clone)]
struct NewestRow {
    key: Box<[u8]>,
    partition: u16,
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
    pub(crate) fn hold(&mut self, row: &UnsettledRow) {
        if let Some(lookup) = self.of_source(row.source.into()) {
            let held = lookup.held_of(row.partition);
            *held = held.wrapping_add(fingerprint(row.arrival));
        }
    }

    /// Takes note that no main row before a time will be joined again.
    pub(crate) fn release(&mut self, needed_from: Option<i64>) {
        for lookup in &mut self.lookups {
            let early = bug::is_seeded(StreamBug::ReplacedRowReleased);
            let is_over = |row: &mut ReplacedRow| Some(row.time) < needed_from || early;
            while let Some(row) =
                lookup.replaced.as_mut().and_then(|rows| rows.pop_front_if(is_over))
            {
                let held = lookup.held_of(row.partition);
                *held = held.wrapping_sub(row.fingerprint);
            }
        }
    }

    /// Returns for each LAST JOIN the fingerprint of the rows that it holds, of the partitions of which one is told.
    pub(crate) fn held(&self, is_told: impl Fn(usize) -> bool) -> Vec<u64> {
        let told = |lookup: &Lookup| {
            let told = lookup.held.iter().enumerate().filter(|(partition, _)| is_told(*partition));
            told.fold(0_u64, |sum, (_, held)| sum.wrapping_add(*held))
        };
        self.lookups.iter().map(told).collect()
    }

    /// Returns copies of the rows of a partition, for each LAST JOIN.
    pub(crate) fn copy_of(&self, partition: u16) -> Vec<LookupCopy> {
        self.lookups.iter().map(|lookup| lookup.copy_of(partition)).collect()
    }

    /// Adds what another joiner has of a partition.
    pub(crate) fn install(&mut self, copies: Vec<LookupCopy>, partition: u16) {
        debug_assert_eq!(copies.len(), self.lookups.len(), "they join the same");
        for (lookup, copy) in self.lookups.iter_mut().zip(copies) {
            lookup.install(copy, partition);
        }
    }

    /// Drops the rows of a partition.
    pub(crate) fn forget(&mut self, partition: u16) {
        for lookup in &mut self.lookups {
            let bytes = &mut lookup.bytes;
            lookup.newest.retain(|row| {
                let is_kept = row.partition != partition;
                *bytes -= if is_kept { 0 } else { row.bytes() };
                is_kept
            });
            *lookup.held_of(partition) = 0;
            let replaced = lookup.replaced.iter_mut();
            replaced.for_each(|rows| rows.retain(|row| row.partition != partition));
        }
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
            let start = place_of_next(&self.values);
            let UnsettledRow { time, arrival, source, .. } = *entry;
            let columns = rows.columns(at);
            match source {
                0 => {
                    let Some(columns) = self.main_row((columns, Some(time)), arrival, arena)?
                    else {
                        continue;
                    };
                    self.values.extend(columns);
                }
                source if self.is_of_lookup(source.into()) => continue,
                _ => self.values.extend_from_slice(columns),
            }
            self.entries.push(UnsettledRow { start, ..*entry });
        }
        self.settle(rows, false, arena);
        Ok(SettledRows { entries: &self.entries, values: &self.values, widths: &self.widths })
    }

    /// Joins a main row, and returns the columns that windows read of it and those that are joined above them; `None`
    /// where a condition leaves it out. No row is older than one without an event time.
    pub(crate) fn main_row(
        &mut self,
        (columns, time): (&[Value], Option<i64>),
        arrival: u64,
        arena: &Arena,
    ) -> Result<Option<Vec<Value>>> {
        let (below, above) = self.lookups.split_at(self.below);
        let mut row: Vec<Value> = match &mut self.program {
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
                + replaced * size_of::<ReplacedRow>()
        };
        self.lookups.iter().map(of_lookup).sum()
    }

    /// Settles the rows of LAST JOINs that take rows of the main row's time, or of the others.
    fn settle(&mut self, rows: &SettledRows<'_>, is_inclusive: bool, arena: &Arena) {
        for (at, entry) in rows.entries.iter().enumerate() {
            let lookup = self.of_source(entry.source.into());
            let early = bug::is_seeded(StreamBug::JoinedTooEarly);
            let is_now = |lookup: &&mut Lookup| (lookup.spec.is_inclusive || early) == is_inclusive;
            if let Some(lookup) = lookup.filter(is_now) {
                lookup.settle(entry, rows.columns(at), arena);
            }
        }
    }

    fn is_of_lookup(&self, source: usize) -> bool {
        self.lookups.iter().any(|lookup| lookup.spec.source == source)
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
            held: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns the fingerprint of the rows of a partition.
    fn held_of(&mut self, partition: u16) -> &mut u64 {
        let at = usize::from(partition);
        if self.held.len() <= at {
            self.held.resize(at + 1, 0);
        }
        &mut self.held[at]
    }

    fn copy_of(&self, partition: u16) -> LookupCopy {
        let of_partition = |row: &&NewestRow| row.partition == partition;
        let replaced = self.replaced.iter().flatten().copied();
        LookupCopy {
            newest: self.newest.iter().filter(of_partition).cloned().collect(),
            held: self.held.get(usize::from(partition)).copied().unwrap_or(0),
            replaced: replaced.filter(|row| row.partition == partition).collect(),
        }
    }

    fn install(&mut self, copy: LookupCopy, partition: u16) {
        let LookupCopy { newest, held, replaced } = copy;
        *self.held_of(partition) = held;
        let Self { newest: rows, hasher, bytes, .. } = self;
        for row in newest {
            *bytes += row.bytes();
            let hash = hasher.hash_one(&*row.key);
            rows.insert_unique(hash, row, |row| hasher.hash_one(&*row.key));
        }
        if let Some(own) = &mut self.replaced {
            own.extend(replaced);
            own.make_contiguous().sort_by_key(|row| row.time);
        }
    }

    /// Makes a row the newest one of its key.
    fn settle(&mut self, entry: &UnsettledRow, columns: &[Value], arena: &Arena) {
        let Self { spec, newest, hasher, replaced, bytes, .. } = self;
        let mut encoded = Vec::new();
        encode_key(spec.keys.iter().map(|column| columns[*column].as_datum(arena)), &mut encoded);
        let hash = hasher.hash_one(&encoded[..]);
        let columns: Box<[Value]> = columns[..spec.columns].into();
        let UnsettledRow { time, arrival, partition, .. } = *entry;
        let is_same = |row: &NewestRow| *row.key == encoded[..];
        match newest.entry(hash, is_same, |row| hasher.hash_one(&*row.key)) {
            Entry::Occupied(mut row) => {
                let row = row.get_mut();
                debug_assert!(row.time <= time, "rows are in order");
                if let Some(replaced) = replaced
                    && !bug::is_seeded(StreamBug::ReplacedRowHeld)
                {
                    let fingerprint = fingerprint(row.arrival);
                    replaced.push_back(ReplacedRow { time, fingerprint, partition });
                }
                *bytes -= row.bytes();
                (row.time, row.arrival, row.columns) = (time, arrival, columns);
                *bytes += row.bytes();
            }
            Entry::Vacant(place) => {
                let row = NewestRow { key: encoded.into(), partition, time, arrival, columns };
                *bytes += row.bytes();
                place.insert(row);
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

impl NewestRow {
    /// Returns about how many bytes it has, itself not counted.
    fn bytes(&self) -> usize {
        size_of_val(&*self.columns) + self.key.len()
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
