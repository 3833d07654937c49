//! The oracle against the worked examples of the dialect.

use lockstep_row::{DataType, Value};

use super::{
    Excludes, FrameEnd, Item, JoinBound, OracleJoin, OracleMode, OracleQuery, OracleTable,
    OracleWindow, evaluate,
    fold::{Function, Plain},
};

/// Returns rows of (key, event time, value).
fn table(name: &str, rows: &[(&str, Option<i64>, i32)]) -> OracleTable {
    let columns = [("k", DataType::String), ("ts", DataType::Timestamp), ("v", DataType::Int)];
    let row = |(key, ts, value): &(&str, Option<i64>, i32)| {
        let ts = ts.map_or(Value::Null, Value::Timestamp);
        vec![Value::String((*key).into()), ts, Value::Int(*value)]
    };
    OracleTable {
        name: name.to_owned(),
        columns: columns.map(|(name, data_type)| (name.to_owned(), data_type)).to_vec(),
        rows: rows.iter().map(row).collect(),
    }
}

fn window(is_range: bool, start: FrameEnd, end: FrameEnd) -> OracleWindow {
    OracleWindow {
        partition_by: vec![0],
        order_by: Some(1),
        is_range,
        start,
        end,
        max_size: None,
        excludes: Excludes::default(),
        unions: Vec::new(),
    }
}

/// Checks the sums of `v` over a window, one for each row of the first table.
fn check(window: OracleWindow, tables: &[OracleTable], expected: &[Option<i64>]) {
    let function = Function::Plain(Plain::Sum, 2);
    let query = OracleQuery {
        mode: OracleMode::Standard,
        joins: Vec::new(),
        windows: vec![window],
        items: vec![Item::Call { window: 0, function }],
    };
    let actual: Vec<Value> =
        evaluate(&query, tables).into_iter().map(|mut row| row.remove(0)).collect();
    let expected: Vec<Value> =
        expected.iter().map(|sum| sum.map_or(Value::Null, Value::BigInt)).collect();
    assert_eq!(actual, expected);
}

fn five() -> Vec<OracleTable> {
    let second = |n: i64| Some(n * 1_000);
    vec![table(
        "t",
        &[
            ("a", second(1), 30),
            ("a", second(2), 31),
            ("a", second(3), 32),
            ("a", second(4), 33),
            ("a", second(5), 34),
        ],
    )]
}

#[test]
fn frames_follow_the_worked_examples() {
    let all = [30, 61, 93, 96, 99].map(Some);
    check(window(true, FrameEnd::Preceding(2_000), FrameEnd::CurrentRow), &five(), &all);
    check(window(false, FrameEnd::Preceding(2), FrameEnd::CurrentRow), &five(), &all);
    let open = [30, 61, 63, 65, 67].map(Some);
    check(window(false, FrameEnd::OpenPreceding(2), FrameEnd::CurrentRow), &five(), &open);
}

#[test]
fn late_rows_take_their_place_in_event_time() {
    let rows = [
        ("a", Some(3), 33),
        ("a", Some(2), 32),
        ("a", Some(0), 30),
        ("a", Some(1), 31),
        ("a", Some(4), 34),
    ];
    let mut window = window(true, FrameEnd::Preceding(6), FrameEnd::CurrentRow);
    window.max_size = Some(3);
    check(window, &[table("t", &rows)], &[96, 93, 30, 61, 99].map(Some));
}

#[test]
fn equal_event_times_go_by_arrival() {
    let rows = [("a", Some(1), 1), ("a", Some(1), 2), ("b", Some(1), 4), ("a", Some(1), 8)];
    let range = window(true, FrameEnd::Preceding(5), FrameEnd::CurrentRow);
    check(range.clone(), &[table("t", &rows)], &[1, 3, 4, 11].map(Some));
    let no_time = Excludes { current_time: true, ..Excludes::default() };
    check(
        OracleWindow { excludes: no_time, ..range.clone() },
        &[table("t", &rows)],
        &[1, 2, 4, 8].map(Some),
    );
    let no_row = Excludes { current_row: true, ..Excludes::default() };
    check(
        OracleWindow { excludes: no_row, ..range },
        &[table("t", &rows)],
        &[None, Some(1), None, Some(3)],
    );
}

#[test]
fn a_row_without_event_time_stands_alone() {
    let rows = [("a", Some(1), 1), ("a", None, 2), ("a", Some(1), 4)];
    let range = window(true, FrameEnd::Unbounded, FrameEnd::CurrentRow);
    check(range, &[table("t", &rows)], &[1, 2, 5].map(Some));
}

#[test]
fn union_rows_of_the_same_time_come_before() {
    let main = table("t", &[("a", Some(1), 1), ("a", Some(2), 2)]);
    let side = table("u", &[("a", Some(2), 40), ("a", Some(1), 80), ("b", Some(1), 160)]);
    let tables = [main, side];
    let mut union = window(true, FrameEnd::Unbounded, FrameEnd::CurrentRow);
    union.unions = vec![1];
    check(union.clone(), &tables, &[81, 123].map(Some));
    union.excludes.main_rows = true;
    check(union, &tables, &[81, 122].map(Some));
    // By position: the main row of time 1 is newer than the union row of time 1.
    let rows = OracleWindow {
        unions: vec![1],
        ..window(false, FrameEnd::Preceding(2), FrameEnd::CurrentRow)
    };
    check(rows, &tables, &[81, 43].map(Some));
}

#[test]
fn frames_may_end_before_the_current_row() {
    check(
        window(true, FrameEnd::Preceding(2_000), FrameEnd::Preceding(1_000)),
        &five(),
        &[None, Some(30), Some(61), Some(63), Some(65)],
    );
    check(
        window(false, FrameEnd::Unbounded, FrameEnd::OpenPreceding(1)),
        &five(),
        &[None, None, Some(30), Some(61), Some(93)],
    );
}

#[test]
fn last_join_takes_the_newest_match() {
    let left = table("t", &[("a", Some(5), 1), ("b", Some(5), 2), ("c", Some(5), 3)]);
    let right =
        table("r", &[("a", Some(9), 10), ("a", Some(5), 20), ("a", Some(5), 30), ("b", None, 40)]);
    let tables = [left, right];
    let join = OracleJoin {
        table: 1,
        keys: vec![(0, 0)],
        order_by: Some(1),
        implied_order: None,
        bound: None,
        less: None,
    };
    let check = |join: OracleJoin, expected: [Option<i32>; 3]| {
        let query = OracleQuery {
            mode: OracleMode::Standard,
            joins: vec![join],
            windows: Vec::new(),
            items: vec![Item::Column(5)],
        };
        let expected = expected.map(|value| vec![value.map_or(Value::Null, Value::Int)]);
        assert_eq!(evaluate(&query, &tables), expected);
    };
    check(join.clone(), [Some(10), Some(40), None]);
    let bound = |is_inclusive| Some(JoinBound { left: 1, is_inclusive });
    check(OracleJoin { bound: bound(true), ..join.clone() }, [Some(30), None, None]);
    check(OracleJoin { bound: bound(false), ..join.clone() }, [None, None, None]);
    let by_arrival = OracleJoin { order_by: None, ..join.clone() };
    check(by_arrival.clone(), [Some(30), Some(40), None]);
    check(OracleJoin { implied_order: Some(1), ..by_arrival }, [Some(10), Some(40), None]);
    check(OracleJoin { less: Some((2, 1)), ..join }, [None, None, None]);
}

#[test]
fn lag_looks_past_the_frame() {
    let query = OracleQuery {
        mode: OracleMode::Standard,
        joins: Vec::new(),
        windows: vec![window(false, FrameEnd::CurrentRow, FrameEnd::CurrentRow)],
        items: vec![Item::Call { window: 0, function: Function::Lag { column: 2, offset: 2 } }],
    };
    let actual: Vec<Value> =
        evaluate(&query, &five()).into_iter().map(|mut row| row.remove(0)).collect();
    let expected = [None, None, Some(30), Some(31), Some(32)];
    assert_eq!(actual, expected.map(|value| value.map_or(Value::Null, Value::Int)));
}
