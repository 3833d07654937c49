//! A series shows what a sorted list of its rows shows, also while it is written.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_row::Retention;
use proptest::{collection::vec, prelude::*};

use crate::{
    Bounds, Guard, HashedKey, KeyRow, RECORD_SIZE_MAX, RecordFormat, RowAction, RowBatch, RowLog,
    RowRef, Series, pin,
};

mod pages;
mod runs;

/// A series, the log that owns its rows, and the arrival of the next one.
#[derive(Debug, Default)]
struct SeriesFixture {
    // Dropped first: it leads to the rows.
    series: Series,
    log: RowLog,
    next: AtomicU64,
}

impl SeriesFixture {
    /// Makes a series that stores records of this size; 0: none.
    fn with_records(size: usize) -> Self {
        let series = match size {
            0 => Series::new(),
            size => Series::with_records(Arc::new(RecordFormat::new(widths(size), write_record))),
        };
        Self { series, ..Self::default() }
    }

    /// Stores a row whose bytes are its arrival, with the next arrival.
    fn insert(&self, key: &[u8], event_time: i64) {
        // Relaxed: the number itself is all that is shared.
        self.insert_as(self.next.fetch_add(1, Ordering::Relaxed), key, event_time);
    }

    /// Stores a row; those of smaller arrivals are in the log already.
    fn insert_as(&self, arrival: u64, key: &[u8], event_time: i64) {
        let (position, _) = self.log.append(&batch(arrival), arrival, 0);
        let guard = pin();
        let row = self.log.rows_from(position, &guard).next_row().unwrap();
        self.lead_to(row, key, event_time, &guard);
    }

    fn hashed<'k>(&self, key: &'k [u8]) -> HashedKey<'k> {
        HashedKey { hash: self.series.hash(key), key }
    }

    fn lead_to(&self, row: RowRef<'_>, key: &[u8], event_time: i64, guard: &Guard) {
        // SAFETY: the log keeps its rows until it is dropped, after the series.
        unsafe { self.series.insert(self.hashed(key), KeyRow { event_time, row }, guard) };
    }

    /// Inserts rows, the late ones of each key together and after the others, as `table` does.
    fn insert_together<'g>(
        &self,
        inserts: &[Insert],
        rows: impl Iterator<Item = RowRef<'g>>,
        guard: &Guard,
    ) -> i64 {
        let (mut grown, mut late) = (0, BTreeMap::<u8, Vec<KeyRow<'_>>>::new());
        for ((key, event_time), row) in inserts.iter().zip(rows) {
            let key_bytes = [*key];
            let hashed = self.hashed(&key_bytes);
            let row = KeyRow { event_time: *event_time, row };
            // SAFETY: the log keeps its rows until it is dropped, after the series.
            match unsafe { self.series.insert_newest(hashed, row, guard) } {
                Some(more) => grown += more,
                None => late.entry(*key).or_default().push(row),
            }
        }
        for (key, mut run) in late {
            run.sort_by_key(KeyRow::position);
            let key_bytes = [key];
            let hashed = self.hashed(&key_bytes);
            // SAFETY: as above.
            grown += unsafe { self.series.insert_late(hashed, &run, guard) };
        }
        grown
    }

    fn retain(&self, is_kept: impl Fn(u64) -> bool) -> usize {
        let action = |_, row: RowRef<'_>| {
            if is_kept(row.arrival()) { RowAction::Keep } else { RowAction::Remove }
        };
        // SAFETY: no row moves.
        unsafe { self.series.retain(|| action) }
    }
}

fn batch(arrival: u64) -> RowBatch {
    let mut batch = RowBatch::default();
    let pushed: Result<(), ()> = batch.push(|out| {
        out.extend(arrival.to_le_bytes());
        Ok(())
    });
    pushed.unwrap();
    batch
}

/// A row that a test inserts: key and event time; the position is the arrival.
type Insert = (u8, i64);

/// Returns widths of fields that take so many bytes together.
fn widths(size: usize) -> Vec<usize> {
    let mut left = size;
    let width = |width: &usize| {
        let width = left.min(*width);
        left -= width;
        width
    };
    [1, 8, 4, 16, 2].iter().cycle().map(width).take_while(|width| *width > 0).collect()
}

/// Writes the record of a row: the row's bytes, repeated.
fn write_record(row: &[u8], record: &mut [u8]) {
    for (byte, value) in record.iter_mut().zip(row.iter().cycle()) {
        *byte = *value;
    }
}

/// Makes a series with some rows; two of three have records.
fn filled(inserts: &[Insert]) -> SeriesFixture {
    let fixture = SeriesFixture::with_records([0, 17, RECORD_SIZE_MAX][inserts.len() % 3]);
    for (key, event_time) in inserts {
        fixture.insert(&[*key], *event_time);
    }
    fixture
}

/// Returns the rows that a key shows, newest first: (event time, arrival).
fn model(inserts: &[Insert], key: u8, visible: u64, keeps: Keeps) -> Vec<(i64, u64)> {
    let mut rows: Vec<(i64, u64)> = (0..)
        .zip(inserts)
        .filter(|(arrival, (other, _))| *other == key && *arrival < visible)
        .map(|(arrival, (_, event_time))| (*event_time, arrival))
        .collect();
    rows.sort_unstable_by(|left, right| right.cmp(left));
    let kept = |(n, (event_time, _)): &(u64, (i64, u64))| {
        !keeps.retention.is_expired(*event_time, *n, keeps.now_ms)
    };
    (1..).zip(rows).filter(kept).map(|(_, row)| row).collect()
}

/// A retention at a time.
#[derive(Debug, Clone, Copy)]
struct Keeps {
    retention: Retention,
    now_ms: i64,
}

fn shown(series: &Series, key: u8, bounds: Bounds, event_time_max: Option<i64>) -> Vec<(i64, u64)> {
    let guard = pin();
    let Some(mut rows) = series.seek(&[key], bounds, &guard) else { return Vec::new() };
    if let Some(event_time_max) = event_time_max {
        rows.seek(event_time_max);
    }
    let in_runs = runs::shown(rows.clone());
    let shown: Vec<(i64, u64)> = rows
        .map(|found| {
            assert_eq!(found.row.bytes(), found.row.arrival().to_le_bytes());
            (found.event_time, found.row.arrival())
        })
        .collect();
    assert_eq!(in_runs, shown, "the rows of the runs are the rows");
    shown
}

fn check(inserts: &[Insert], visible: u64, keeps: Keeps, event_time_max: i64) {
    let SeriesFixture { series, log, .. } = &filled(inserts);
    let bounds = Bounds::new(visible, keeps.retention, keeps.now_ms);
    for key in 0..4 {
        let mut expected = model(inserts, key, visible, keeps);
        assert_eq!(shown(series, key, bounds, None), expected);
        let guard = pin();
        for (arrival, (_, event_time)) in (0..).zip(inserts).filter(|(_, insert)| insert.0 == key) {
            let rows = series.seek(&[key], bounds, &guard).unwrap();
            let is_shown = expected.contains(&(*event_time, arrival));
            assert_eq!(rows.contains(*event_time, arrival), is_shown);
        }
        expected.retain(|(event_time, _)| *event_time <= event_time_max);
        assert_eq!(shown(series, key, bounds, Some(event_time_max)), expected);
    }
    let guard = pin();
    let arrived: Vec<u64> = log.rows(visible, &guard).map(|found| found.row.arrival()).collect();
    let count = u64::try_from(inserts.len()).unwrap();
    assert_eq!(arrived, (0..visible.min(count)).collect::<Vec<_>>());
    let trimmed = filled(inserts);
    trimmed.series.trim(bounds);
    for key in 0..4 {
        assert_eq!(
            shown(&trimmed.series, key, Bounds::visible(visible), None),
            model(inserts, key, visible, keeps),
            "what is trimmed is what is not shown"
        );
    }
}

fn retention() -> impl Strategy<Value = Retention> {
    let (ttl_ms, latest) = (0_i64..40, 0_u64..30);
    prop_oneof![
        Just(Retention::Forever),
        ttl_ms.clone().prop_map(|ttl_ms| Retention::Absolute { ttl_ms }),
        latest.clone().prop_map(|latest| Retention::Latest { latest }),
        (ttl_ms.clone(), latest.clone())
            .prop_map(|(ttl_ms, latest)| Retention::AbsOrLat { ttl_ms, latest }),
        (ttl_ms, latest).prop_map(|(ttl_ms, latest)| Retention::AbsAndLat { ttl_ms, latest }),
    ]
}

/// The most rows of a key: of several chunks; fewer where each takes a millisecond.
const ROWS_MAX: usize = if cfg!(miri) { 150 } else { 700 };

fn inserts() -> impl Strategy<Value = Vec<Insert>> {
    let any_order = (0_u8..3, prop_oneof![9 => 0_i64..50, 1 => Just(i64::MIN)]);
    let one_key = (Just(0_u8), 0_i64..1_000);
    prop_oneof![
        vec(any_order, 0..80),
        vec(one_key, ROWS_MAX / 7..ROWS_MAX),
        (0_usize..ROWS_MAX).prop_map(|count| (0..).map(|time| (0, time / 3)).take(count).collect()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    #[test]
    fn a_series_shows_what_a_sorted_list_shows(
        inserts in inserts(),
        cut in 0_u64..20,
        retention in retention(),
        now_ms in 0_i64..80,
        event_time_max in prop_oneof![-5_i64..60, 0_i64..1_000, Just(i64::MIN), Just(i64::MAX)],
    ) {
        let count = u64::try_from(inserts.len()).unwrap();
        check(&inserts, count.saturating_sub(cut), Keeps { retention, now_ms }, event_time_max);
    }

    #[test]
    fn rows_that_are_inserted_together_are_shown_as_those_inserted_one_by_one(
        inserts in inserts(),
        batch_rows in 1_usize..300,
    ) {
        let fixture = SeriesFixture::with_records([0, 17][inserts.len() % 2]);
        let count = u64::try_from(inserts.len()).unwrap();
        let mut grown = 0;
        for arrival in 0..count {
            fixture.log.append(&batch(arrival), arrival, 0);
        }
        for from in (0..inserts.len()).step_by(batch_rows) {
            let guard = pin();
            let rows = fixture.log.rows(u64::MAX, &guard).skip(from).map(|found| found.row);
            grown += fixture.insert_together(&inserts[from..], rows.take(batch_rows), &guard);
            // SAFETY: nothing that was read is used further.
            unsafe { guard.free_retired() };
        }
        let forever = Keeps { retention: Retention::Forever, now_ms: 0 };
        for key in 0..4 {
            let expected = model(&inserts, key, u64::MAX, forever);
            prop_assert_eq!(shown(&fixture.series, key, Bounds::everything(), None), expected);
        }
        prop_assert_eq!(fixture.series.memory_bytes(), counted(&fixture.series));
        let empty = SeriesFixture::default().series.memory_bytes();
        prop_assert_eq!(fixture.series.memory_bytes(), empty + u64::try_from(grown).unwrap());
    }

    #[test]
    fn retain_leaves_the_rows_kept(inserts in inserts(), divisor in 1_u64..5, late in inserts()) {
        let fixture = filled(&inserts);
        let is_kept = |arrival: u64| arrival.is_multiple_of(divisor);
        let removed = fixture.retain(is_kept);
        let count = u64::try_from(inserts.len()).unwrap();
        prop_assert_eq!(removed, (0..count).filter(|arrival| !is_kept(*arrival)).count());
        for (key, event_time) in &late {
            fixture.insert(&[*key], *event_time);
        }
        let all: Vec<Insert> = inserts.iter().chain(&late).copied().collect();
        for key in 0..4 {
            let mut expected =
                model(&all, key, u64::MAX, Keeps { retention: Retention::Forever, now_ms: 0 });
            expected.retain(|(_, arrival)| *arrival >= count || is_kept(*arrival));
            prop_assert_eq!(shown(&fixture.series, key, Bounds::everything(), None), expected);
        }
        prop_assert_eq!(fixture.series.memory_bytes(), counted(&fixture.series));
    }

    #[test]
    fn rows_move_when_little_is_left_of_their_block(
        inserts in inserts(),
        divisor in 1_u64..9,
        late in inserts(),
    ) {
        let fixture = filled(&inserts);
        let is_kept = |arrival: u64| arrival.is_multiple_of(divisor);
        fixture.retain(is_kept);
        let guard = pin();
        let plan = fixture.log.plan(&mut |found| is_kept(found.row.arrival()), &guard);
        let count = u64::try_from(inserts.len()).unwrap();
        prop_assert_eq!(
            plan.removed_count(),
            (0..count).filter(|arrival| !is_kept(*arrival)).count()
        );
        let move_to = |_, row: RowRef<'_>| plan.moved(row).map_or(RowAction::Keep, RowAction::Move);
        // SAFETY: the plan holds the blocks until it is installed; the series leads to no row
        // that is not kept, then to no old place.
        unsafe {
            prop_assert_eq!(fixture.series.retain(|| move_to), 0);
            fixture.log.install(&plan, &guard);
        }
        drop((plan, guard));
        for (key, event_time) in &late {
            fixture.insert(&[*key], *event_time);
        }
        let all: Vec<Insert> = inserts.iter().chain(&late).copied().collect();
        for key in 0..4 {
            let mut expected =
                model(&all, key, u64::MAX, Keeps { retention: Retention::Forever, now_ms: 0 });
            expected.retain(|(_, arrival)| *arrival >= count || is_kept(*arrival));
            prop_assert_eq!(shown(&fixture.series, key, Bounds::everything(), None), expected);
        }
        let guard = pin();
        let left: Vec<u64> = fixture.log.rows(u64::MAX, &guard).map(|f| f.row.arrival()).collect();
        prop_assert!(left.is_sorted());
        let expected = (0..count).filter(|arrival| is_kept(*arrival));
        let expected: Vec<u64> = expected.chain(count..count + late.len() as u64).collect();
        let is_left = |arrival: &&u64| left.contains(arrival);
        prop_assert_eq!(expected.iter().filter(is_left).count(), expected.len());
        prop_assert_eq!(fixture.log.row_count(&guard), expected.len());
    }
}

/// Counts what the entries and buckets take one by one.
fn counted(series: &Series) -> u64 {
    series.memory_bytes_counted()
}

#[test]
fn a_removed_key_comes_back_with_new_rows_only() {
    let fixture = filled(&[(1, 10), (2, 20)]);
    assert_eq!(fixture.retain(|_| false), 2);
    assert_eq!(fixture.series.key_count(), 0);
    fixture.insert(&[1], 30);
    assert_eq!(shown(&fixture.series, 1, Bounds::everything(), None), [(30, 2)]);
    assert_eq!(shown(&fixture.series, 2, Bounds::everything(), None), []);
}

#[test]
fn many_keys_are_added_and_removed_in_bounded_memory() {
    let fixture = SeriesFixture::default();
    let empty = fixture.series.memory_bytes();
    for round in 0_u64..if cfg!(miri) { 2 } else { 20 } {
        for key in 0_u64..500 {
            fixture.insert(&(round * 500 + key).to_le_bytes(), 0);
        }
        assert_eq!(fixture.series.key_count(), 500);
        let full = fixture.series.memory_bytes() - empty;
        assert!(full <= 500 * (64 + 8), "{full}");
        assert_eq!(fixture.retain(|_| false), 500);
        assert_eq!(fixture.series.memory_bytes(), empty);
    }
}

/// The promise about memory: what an index takes beside the rows, by rows for each key.
fn check_memory(rows_per_key: u64, bytes_per_row_max: u64) {
    let fixture = SeriesFixture::default();
    let keys = (if cfg!(miri) { 50 } else { 40_000_u64 }).div_ceil(rows_per_key);
    for row in 0..keys * rows_per_key {
        fixture.insert(&(row % keys).to_le_bytes(), i64::try_from(row).unwrap());
    }
    let empty = Series::default().memory_bytes();
    let taken = fixture.series.memory_bytes() - empty;
    assert_eq!(fixture.series.memory_bytes(), counted(&fixture.series));
    if cfg!(miri) {
        // Too few keys to a shard for its buckets to be used as they are by many.
        return;
    }
    let allowed = keys * (64 + 8) + keys * rows_per_key * bytes_per_row_max;
    assert!(taken <= allowed, "{rows_per_key} rows per key: {taken} of {allowed}");
}

#[test]
fn a_key_takes_64_bytes_and_itself_and_each_further_row_16() {
    check_memory(1, 0);
    let most = if cfg!(miri) { 200 } else { u64::MAX };
    let rows = [2, 3, 5, 8, 10, 20, 50, 100, 200, 500, 1_000, 10_000];
    for rows_per_key in rows.into_iter().filter(|rows| *rows <= most) {
        check_memory(rows_per_key, 16);
    }
}

#[test]
fn blocks_without_rows_are_given_back() {
    let fixture = filled(&(0..3_000).map(|time| (0, time)).collect::<Vec<_>>());
    let full = fixture.log.memory_bytes();
    fixture.retain(|arrival| arrival >= 2_990);
    let guard = pin();
    let plan = fixture.log.plan(&mut |found| found.row.arrival() >= 2_990, &guard);
    let move_to = |_, row: RowRef<'_>| plan.moved(row).map_or(RowAction::Keep, RowAction::Move);
    // SAFETY: as above.
    unsafe {
        fixture.series.retain(|| move_to);
        fixture.log.install(&plan, &guard);
    }
    assert!(fixture.log.memory_bytes() * 10 < full, "{} of {full}", fixture.log.memory_bytes());
    let times: Vec<i64> =
        shown(&fixture.series, 0, Bounds::everything(), None).iter().map(|row| row.0).collect();
    assert_eq!(times, (2_990..3_000).rev().collect::<Vec<_>>());
}

#[test]
fn a_log_says_when_a_row_arrived() {
    let log = RowLog::new();
    // Too far apart for one block, at last; and several appends in one millisecond.
    let times = [5, 5, 6, 6, 6, 1_000, i64::from(u32::MAX), i64::from(u32::MAX) + 6, i64::MAX];
    for (arrival, arrival_ms) in (100..).zip(times) {
        log.append(&batch(arrival), arrival, arrival_ms);
    }
    let guard = pin();
    let shown: Vec<i64> = log.rows(u64::MAX, &guard).map(|found| found.arrival_ms).collect();
    assert_eq!(shown, times);
    for (arrival, arrival_ms) in (100..).zip(times) {
        assert_eq!(log.arrival_ms(arrival, &guard), arrival_ms);
    }
    assert_eq!(log.rows(103, &guard).count(), 3);
}

/// Late rows, NULL event times and event times that 32 bits do not span.
#[test]
fn event_times_may_lie_far_apart() {
    let far = i64::from(u32::MAX);
    let times = [0, far, far + 1, i64::MIN, i64::MAX, -1, far * 3, far * 3, 5, i64::MIN];
    for count in 1..=times.len() {
        let inserts: Vec<Insert> = times[..count].iter().map(|time| (0, *time)).collect();
        let forever = Keeps { retention: Retention::Forever, now_ms: 0 };
        check(&inserts, u64::MAX, forever, far);
    }
    let mixed = (0..600).map(|at| (0, if at % 150 == 149 { at * far } else { at }));
    let forever = Keeps { retention: Retention::Forever, now_ms: 0 };
    check(&mixed.collect::<Vec<_>>(), u64::MAX, forever, 300);
}

#[test]
fn a_key_may_be_long() {
    let fixture = SeriesFixture::default();
    let keys = [0_usize, 0xfffe, 0xffff, 0x1_0000].map(|size| vec![7; size]);
    for key in &keys {
        fixture.insert(key, 1);
        fixture.insert(key, 2);
    }
    let guard = pin();
    for key in &keys {
        assert_eq!(fixture.series.seek(key, Bounds::everything(), &guard).unwrap().count(), 2);
    }
}

#[test]
fn a_reader_sees_whole_rows_in_order_while_writers_go_on() {
    const ROWS: u64 = if cfg!(miri) { 150 } else { 20_000 };
    let fixture = Arc::new(SeriesFixture::with_records(20));
    let visible = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (fixture, visible) = (Arc::clone(&fixture), Arc::clone(&visible));
            let body = move || loop {
                let guard = pin();
                // Acquire: pairs with the Release of the writer below.
                let seen = visible.load(Ordering::Acquire);
                let Some(rows) = fixture.series.seek(b"key", Bounds::visible(seen), &guard) else {
                    assert_eq!(seen, 0);
                    continue;
                };
                let mut count = 0;
                let mut newer = (i64::MAX, u64::MAX);
                for found in rows.clone() {
                    let position = (found.event_time, found.row.arrival());
                    assert!(position < newer);
                    assert_eq!(found.row.bytes(), found.row.arrival().to_le_bytes());
                    newer = position;
                    count += 1;
                }
                assert_eq!(count, seen);
                let in_runs = runs::shown(rows);
                assert!(in_runs.is_sorted_by(|newer, older| newer > older));
                assert_eq!(in_runs.len() as u64, seen);
                if seen == ROWS {
                    break;
                }
            };
            lockstep_host::spawn("reader", body).unwrap()
        })
        .collect();
    for arrival in 0..ROWS {
        // Every fourth row is late, by up to a few chunks.
        let late = if arrival % 4 == 0 { arrival.wrapping_mul(7_919) % 500 } else { 0 };
        let event_time = i64::try_from(arrival.saturating_sub(late)).unwrap();
        fixture.insert(b"key", event_time);
        // Release: pairs with the Acquire of the readers above.
        visible.store(arrival + 1, Ordering::Release);
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn several_writers_lose_no_row() {
    const ROWS: u64 = if cfg!(miri) { 60 } else { 3_000 };
    let fixture = Arc::new(SeriesFixture::default());
    for arrival in 0..ROWS {
        fixture.log.append(&batch(arrival), arrival, 0);
    }
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let fixture = Arc::clone(&fixture);
            let body = move || {
                for arrival in (writer..ROWS).step_by(3) {
                    let guard = pin();
                    let mut rows = fixture.log.rows(u64::MAX, &guard);
                    let row = rows.nth(usize::try_from(arrival).unwrap()).unwrap().row;
                    fixture.lead_to(row, &[arrival.to_le_bytes()[0]], 0, &guard);
                }
            };
            lockstep_host::spawn("writer", body).unwrap()
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let mut arrivals: Vec<u64> = (0..=u8::MAX)
        .flat_map(|key| shown(&fixture.series, key, Bounds::everything(), None))
        .map(|(_, arrival)| arrival)
        .collect();
    arrivals.sort_unstable();
    assert_eq!(arrivals, (0..ROWS).collect::<Vec<_>>());
}
