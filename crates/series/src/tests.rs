//! A series shows what a sorted list of its rows shows, also while it is written.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use lockstep_row::Retention;
use proptest::{collection::vec, prelude::*};

use crate::{Bounds, RowHandle, RowRef, Series, pin};

fn row(arrival: u64) -> RowHandle {
    let mut row = RowHandle::new(&arrival.to_le_bytes());
    row.place(arrival, 0);
    row
}

/// What a test inserts: key and event time; the position is the arrival.
type Insert = (u8, i64);

fn filled(inserts: &[Insert]) -> Series {
    let series = Series::new();
    for (arrival, (key, event_time)) in (0..).zip(inserts) {
        series.insert(&[*key], *event_time, row(arrival));
    }
    series
}

/// Newest first, what a key shows: (event time, arrival).
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

/// A retention at a moment.
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
    rows.map(|found| {
        assert_eq!(found.row.bytes(), found.row.arrival().to_le_bytes());
        (found.event_time, found.row.arrival())
    })
    .collect()
}

fn check(inserts: &[Insert], visible: u64, keeps: Keeps, event_time_max: i64) {
    let series = filled(inserts);
    let bounds = Bounds::new(visible, keeps.retention, keeps.now_ms);
    for key in 0..4 {
        let mut expected = model(inserts, key, visible, keeps);
        assert_eq!(shown(&series, key, bounds, None), expected);
        let guard = pin();
        for (arrival, (_, event_time)) in (0..).zip(inserts).filter(|(_, insert)| insert.0 == key) {
            let rows = series.seek(&[key], bounds, &guard).unwrap();
            let is_shown = expected.contains(&(*event_time, arrival));
            assert_eq!(rows.contains(*event_time, arrival), is_shown);
        }
        expected.retain(|(event_time, _)| *event_time <= event_time_max);
        assert_eq!(shown(&series, key, bounds, Some(event_time_max)), expected);
        let mut oldest: Vec<(i64, u64)> = series
            .oldest_first(&[key], visible, &guard)
            .map(|found| (found.event_time, found.row.arrival()))
            .collect();
        oldest.reverse();
        let forever = Keeps { retention: Retention::Forever, ..keeps };
        assert_eq!(oldest, model(inserts, key, visible, forever));
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

fn inserts() -> impl Strategy<Value = Vec<Insert>> {
    let any_order = (0_u8..3, prop_oneof![9 => 0_i64..50, 1 => Just(i64::MIN)]);
    let one_key = (Just(0_u8), 0_i64..1_000);
    prop_oneof![
        vec(any_order, 0..80),
        vec(one_key, 100..700),
        (0_usize..700).prop_map(|count| (0..).map(|time| (0, time / 3)).take(count).collect()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

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
    fn retain_leaves_the_rows_kept(inserts in inserts(), divisor in 1_u64..5, late in inserts()) {
        let series = filled(&inserts);
        let is_kept = |arrival: u64| arrival.is_multiple_of(divisor);
        let removed = series.retain(|| |_, row: RowRef<'_>| is_kept(row.arrival()));
        let count = u64::try_from(inserts.len()).unwrap();
        prop_assert_eq!(removed, (0..count).filter(|arrival| !is_kept(*arrival)).count());
        for (arrival, (key, event_time)) in (count..).zip(&late) {
            series.insert(&[*key], *event_time, row(arrival));
        }
        let all: Vec<Insert> = inserts.iter().chain(&late).copied().collect();
        for key in 0..4 {
            let mut expected =
                model(&all, key, u64::MAX, Keeps { retention: Retention::Forever, now_ms: 0 });
            expected.retain(|(_, arrival)| *arrival >= count || is_kept(*arrival));
            prop_assert_eq!(shown(&series, key, Bounds::everything(), None), expected);
        }
    }
}

#[test]
fn a_removed_key_comes_back_with_new_rows_only() {
    let series = filled(&[(1, 10), (2, 20)]);
    assert_eq!(series.retain(|| |_, _: RowRef<'_>| false), 2);
    assert_eq!(series.key_count(), 0);
    series.insert(&[1], 30, row(2));
    assert_eq!(shown(&series, 1, Bounds::everything(), None), [(30, 2)]);
    assert_eq!(shown(&series, 2, Bounds::everything(), None), []);
}

#[test]
fn many_keys_come_and_go_in_bounded_memory() {
    let series = Series::new();
    let empty = series.memory_bytes();
    for round in 0_u64..20 {
        for key in 0_u64..500 {
            series.insert(&(round * 500 + key).to_le_bytes(), 0, row(key));
        }
        assert_eq!(series.key_count(), 500);
        assert_eq!(series.retain(|| |_, _: RowRef<'_>| false), 500);
    }
    assert!(series.memory_bytes() < empty + 500 * 16 * 16, "{}", series.memory_bytes());
}

/// Waits until the only handle is the caller's. Bounded: other tests hold guards for a moment.
fn is_released(handle: &RowHandle) -> bool {
    (0..100_000).any(|_| {
        pin().flush();
        std::thread::yield_now();
        handle.handle_count() == 1
    })
}

#[test]
fn a_removed_row_is_released() {
    let series = filled(&(0..300).map(|time| (0, time)).collect::<Vec<_>>());
    let (kept, gone) = (row(1_000), row(1_001));
    series.insert(&[0], 5, kept.clone());
    series.insert(&[0], 5, gone.clone());
    assert_eq!((kept.handle_count(), gone.handle_count()), (2, 2));
    series.retain(|| |_, row: RowRef<'_>| row.arrival() != 1_001);
    assert!(is_released(&gone));
    assert_eq!(kept.handle_count(), 2);
    drop(series);
    assert_eq!(kept.handle_count(), 1);
}

#[test]
fn a_reader_sees_whole_rows_in_order_while_writers_go_on() {
    const ROWS: u64 = 20_000;
    let series = Arc::new(Series::new());
    let visible = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (series, visible) = (Arc::clone(&series), Arc::clone(&visible));
            let body = move || loop {
                let guard = pin();
                // Acquire: pairs with the Release of the writer below.
                let seen = visible.load(Ordering::Acquire);
                let Some(rows) = series.seek(b"key", Bounds::visible(seen), &guard) else {
                    assert_eq!(seen, 0);
                    continue;
                };
                let mut count = 0;
                let mut newer = (i64::MAX, u64::MAX);
                for found in rows {
                    let position = (found.event_time, found.row.arrival());
                    assert!(position < newer);
                    assert_eq!(found.row.bytes(), found.row.arrival().to_le_bytes());
                    newer = position;
                    count += 1;
                }
                assert_eq!(count, seen);
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
        series.insert(b"key", event_time, row(arrival));
        // Release: pairs with the Acquire of the readers above.
        visible.store(arrival + 1, Ordering::Release);
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn several_writers_lose_no_row() {
    const ROWS: u64 = 3_000;
    let series = Arc::new(Series::new());
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let series = Arc::clone(&series);
            let body = move || {
                for arrival in (writer..ROWS).step_by(3) {
                    let key = arrival.to_le_bytes()[0];
                    series.insert(&[key], 0, row(arrival));
                }
            };
            lockstep_host::spawn("writer", body).unwrap()
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let mut arrivals: Vec<u64> = (0..=u8::MAX)
        .flat_map(|key| shown(&series, key, Bounds::everything(), None))
        .map(|(_, arrival)| arrival)
        .collect();
    arrivals.sort_unstable();
    assert_eq!(arrivals, (0..ROWS).collect::<Vec<_>>());
}
