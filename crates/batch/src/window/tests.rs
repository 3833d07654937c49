//! Windows compared with an evaluator that examines every row for every current row.

use datafusion::logical_expr::col;
use lockstep_plan::{Frame, FrameAhead, Window, WindowGroup};
use lockstep_row::{DataType, Datum, Value};
use proptest::{prelude::*, test_runner::Config};

use crate::testing::{TestTables, trace, window as select};

/// A row: key, order value, id.
#[derive(Debug, Clone)]
struct TestRow {
    key: Option<i32>,
    order: Option<i64>,
    id: i64,
}

/// A row beside a current row.
struct FrameCandidate<'a> {
    row: &'a TestRow,
    /// 0 for main rows, from 1 for UNION sources as written.
    rank: usize,
    arrival: usize,
    precedes: bool,
}

/// Returns the ids of the frame of `main[current]`, oldest first: what `lockstep_plan` says, word
/// by word.
fn naive(main: &[TestRow], current: usize, unions: &[&[TestRow]], window: &Window) -> String {
    let is_ordered = window.order_by.is_some();
    let order_of = |row: &TestRow| if is_ordered { row.order } else { Some(0) };
    let q = &main[current];
    let (mut sequence, mut following) = (Vec::<(i128, i64)>::new(), Vec::new());
    if let Some(time) = order_of(q) {
        let mut candidates = Vec::new();
        let sources = std::iter::once(main).chain(unions.iter().copied());
        for (rank, source) in sources.enumerate() {
            for (arrival, row) in source.iter().enumerate() {
                let Some(order) = order_of(row) else { continue };
                let is_self = rank == 0 && arrival == current;
                let precedes = order < time || order == time && (rank > 0 || arrival < current);
                let left_out = rank == 0 && window.instance_not_in_window
                    || window.exclude_current_time && order == time;
                if row.key == q.key && !is_self && !left_out {
                    candidates.push(FrameCandidate { row, rank, arrival, precedes });
                }
            }
        }
        candidates.sort_by_key(|candidate| {
            let order = order_of(candidate.row).unwrap();
            (std::cmp::Reverse(order), candidate.rank, std::cmp::Reverse(candidate.arrival))
        });
        let distance = |row: &TestRow| i128::from(time) - i128::from(order_of(row).unwrap());
        let place = |one: &FrameCandidate<'_>| (distance(one.row), one.row.id);
        sequence.extend(candidates.iter().filter(|one| one.precedes).map(place));
        // The next one first.
        following.extend(candidates.iter().rev().filter(|one| !one.precedes).map(place));
    }
    sequence.insert(0, (0, q.id));
    let in_frame = |position: usize, distance: i128| match window.frame {
        Frame::Rows { from, to } => {
            let position = u64::try_from(position).unwrap();
            from.is_none_or(|from| position <= from) && position >= to
        }
        Frame::Range { from, to } => {
            from.is_none_or(|from| distance <= i128::from(from)) && distance >= i128::from(to)
        }
    };
    let is_ahead = |at: usize, distance: i128| {
        let Some(FrameAhead { nearest, farthest }) = window.ahead else { return false };
        let place = match window.frame {
            Frame::Rows { .. } => i128::try_from(at).unwrap() + 1,
            Frame::Range { .. } => -distance,
        };
        place >= i128::from(nearest) && farthest.is_none_or(|most| place <= i128::from(most))
    };
    let mut frame: Vec<i64> = Vec::new();
    for (at, (distance, id)) in following.into_iter().enumerate() {
        if is_ahead(at, distance) {
            frame.insert(0, id);
        }
    }
    for (position, (distance, id)) in sequence.into_iter().enumerate() {
        let is_q = position == 0;
        if in_frame(position, distance) && !(is_q && window.exclude_current_row) {
            frame.push(id);
        }
    }
    frame.truncate(window.max_size.map_or(usize::MAX, |rows| usize::try_from(rows).unwrap()));
    frame.iter().rev().map(|id| format!("{id} ")).collect()
}

fn columns(prefix: &str) -> Vec<(String, DataType)> {
    [("k", DataType::Int), ("ts", DataType::BigInt), ("id", DataType::BigInt)]
        .map(|(name, data_type)| (format!("{prefix}{name}"), data_type))
        .to_vec()
}

fn check(main: &[TestRow], unions: &[Vec<TestRow>], windows: &[(Window, Vec<usize>)]) {
    let mut world = TestTables::default();
    let mut store = |name: &str, prefix: &str, rows: &[TestRow]| {
        let columns = columns(prefix);
        let columns: Vec<_> =
            columns.iter().map(|(name, of)| (name.as_str(), of.clone())).collect();
        let datums = rows.iter().map(|row| {
            let key = row.key.map_or(Datum::Null, Datum::Int);
            vec![key, row.order.map_or(Datum::Null, Datum::BigInt), Datum::BigInt(row.id)]
        });
        world.table(name, &columns, &datums.collect::<Vec<_>>())
    };
    let input = store("main", "", main);
    let sources =
        unions.iter().enumerate().map(|(at, rows)| store(&format!("u{at}"), "other_", rows));
    let sources = sources.collect();
    let groups = windows.iter().enumerate().map(|(at, (window, unions))| WindowGroup {
        window: window.clone(),
        unions: unions.clone(),
        calls: vec![trace(col("main.id"), &format!("w{at}"))],
    });
    let plan = select(input, sources, groups.collect());
    let rows = world.rows(&plan).unwrap();
    assert_eq!(rows.len(), main.len(), "each main row is emitted once");
    for (current, (row, expected)) in rows.iter().zip(main).enumerate() {
        assert_eq!(row[2], Value::BigInt(expected.id), "in the order of arrival");
        for (at, (window, used)) in windows.iter().enumerate() {
            let used: Vec<&[TestRow]> =
                used.iter().map(|union| unions[*union].as_slice()).collect();
            let frame = naive(main, current, &used, window);
            let found = &row[3 + at];
            assert_eq!(*found, Value::String(frame.into()), "row {current} of {window}");
        }
    }
}

fn draw_row() -> impl Strategy<Value = TestRow> {
    let key = prop_oneof![1 => Just(None), 5 => (0..3_i32).prop_map(Some)];
    let order = prop_oneof![1 => Just(None), 12 => (0..12_i64).prop_map(Some)];
    (key, order).prop_map(|(key, order)| TestRow { key, order, id: 0 })
}

fn draw_rows(count_max: usize) -> impl Strategy<Value = Vec<TestRow>> {
    prop::collection::vec(draw_row(), 0..count_max)
}

fn draw_frame() -> impl Strategy<Value = Frame> {
    let rows = (prop::option::of(0..6_u64), 0..4_u64);
    let range = (prop::option::of(0..9_i64), 0..5_i64);
    prop_oneof![
        rows.prop_map(|(from, to)| Frame::Rows { from, to: if to < 2 { 0 } else { to - 1 } }),
        range.prop_map(|(from, to)| Frame::Range { from, to: if to < 2 { 0 } else { to - 1 } }),
    ]
}

/// Draws what a window covers after the current row, and whether that is all.
fn draw_ahead() -> impl Strategy<Value = Option<(i64, Option<i64>, bool)>> {
    let ahead = (0..4_i64, prop::option::weighted(0.8, 0..5_i64), prop::bool::weighted(0.3));
    prop::option::of(ahead)
}

/// Adds what a window covers after the current row to its frame.
fn with_ahead(
    frame: Frame,
    ahead: Option<(i64, Option<i64>, bool)>,
) -> (Frame, Option<FrameAhead>) {
    let Some((nearest, more, is_all)) = ahead else { return (frame, None) };
    // Where there is more, there is nothing between.
    let (frame, nearest) = match (frame, is_all) {
        (Frame::Rows { .. }, true) => (Frame::Rows { from: Some(0), to: 1 }, nearest + 1),
        (Frame::Rows { from, .. }, false) => (Frame::Rows { from, to: 0 }, 1),
        (Frame::Range { .. }, true) => (Frame::Range { from: Some(0), to: 1 }, nearest),
        (Frame::Range { from, .. }, false) => (Frame::Range { from, to: 0 }, 0),
    };
    (frame, Some(FrameAhead { nearest, farthest: more.map(|more| nearest + more) }))
}

fn draw_window() -> impl Strategy<Value = (Window, Vec<usize>)> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let unions = prop_oneof![Just(vec![]), Just(vec![0]), Just(vec![1, 0]), Just(vec![0, 1])];
    let size = prop::option::of(1..4_u64);
    (draw_frame(), draw_ahead(), size, flags, 0..6_u8, unions).prop_map(
        |(frame, ahead, max_size, flags, order, unions)| {
            let (frame, ahead) = with_ahead(frame, ahead);
            let window = Window {
                partition_by: vec![col("main.k")],
                order_by: (order > 0).then(|| col("main.ts")),
                frame,
                ahead,
                max_size,
                exclude_current_time: flags.0,
                exclude_current_row: flags.1,
                instance_not_in_window: flags.2,
            };
            (window, unions)
        },
    )
}

fn number(rows: &mut [TestRow], first: i64) {
    for (row, id) in rows.iter_mut().zip(first..) {
        row.id = id;
    }
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn windows_hold_the_rows_that_the_plan_says(
        mut main in draw_rows(40),
        mut first in draw_rows(15),
        mut second in draw_rows(15),
        windows in prop::collection::vec(draw_window(), 1..5),
    ) {
        number(&mut main, 0);
        number(&mut first, 1_000);
        number(&mut second, 2_000);
        check(&main, &[first, second], &windows);
    }
}

#[test]
fn a_late_row_lands_before_newer_rows() {
    let row = |order, id| TestRow { key: Some(1), order: Some(order), id };
    let window = Window {
        partition_by: vec![col("main.k")],
        order_by: Some(col("main.ts")),
        frame: Frame::Rows { from: None, to: 0 },
        ahead: None,
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    };
    check(&[row(10, 1), row(30, 2), row(20, 3), row(20, 4)], &[], &[(window, vec![])]);
}
