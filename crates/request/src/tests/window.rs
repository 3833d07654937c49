//! Windows: every answer is compared with a direct implementation of `lockstep_plan`'s definition.

use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, col, lit, when};
use lockstep_plan::{Frame, Window};
use proptest::prelude::*;

use crate::testing::{TestDatabase, TestRow, answer, column, group, project, windows};

/// Computes the ids of a frame, newest first.
fn frame(current: &TestRow, main: &[TestRow], unions: &[&[TestRow]], window: &Window) -> Vec<i64> {
    let order_of = |row: &TestRow| if window.order_by.is_some() { row.ts } else { Some(0) };
    let now = order_of(current);
    let mut history: Vec<(i64, usize, u64, i64)> = Vec::new();
    for (source, rows) in std::iter::once(main).chain(unions.iter().copied()).enumerate() {
        for row in rows.iter().filter(|row| row.k == current.k) {
            let (Some(order), Some(now)) = (order_of(row), now) else { continue };
            let is_main = source == 0;
            let is_earlier =
                order < now || order == now && (!is_main || row.arrival < current.arrival);
            let is_excluded = window.exclude_current_time && order == now
                || window.instance_not_in_window && is_main;
            if is_earlier && !is_excluded {
                history.push((order, source, row.arrival, row.id));
            }
        }
    }
    history.sort_by(|a, b| (b.0, a.1, b.2).cmp(&(a.0, b.1, a.2)));
    let is_in = |position: u64, distance: i128| match window.frame {
        Frame::Rows { from, to } => position >= to && from.is_none_or(|from| position <= from),
        Frame::Range { from, to } => {
            distance >= i128::from(to) && from.is_none_or(|from| distance <= i128::from(from))
        }
    };
    let mut ids = Vec::new();
    if is_in(0, 0) && !window.exclude_current_row {
        ids.push(current.id);
    }
    for (position, (order, _, _, id)) in (1..).zip(&history) {
        if is_in(position, i128::from(now.unwrap()) - i128::from(*order)) {
            ids.push(*id);
        }
    }
    ids.truncate(usize::try_from(window.max_size.unwrap_or(1000)).unwrap());
    ids
}

fn listed(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("[{}]", ids.join(","))
}

fn frames() -> impl Strategy<Value = Frame> {
    // A frame of 32 rows or more is read from what an index includes, so is one without an end.
    let from = prop_oneof![4 => 0_u64..6, 1 => 32_u64..60];
    let rows =
        (proptest::option::of(from), 0_u64..3).prop_map(|(from, to)| Frame::Rows { from, to });
    let range = (proptest::option::of(-1_i64..6), 0_i64..3)
        .prop_map(|(from, to)| Frame::Range { from, to });
    prop_oneof![rows, range]
}

/// Draws windows by `k`, in the order of `ts` or of arrival.
pub(super) fn any_window(is_ordered: bool) -> impl Strategy<Value = Window> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let max_size = proptest::option::of(prop_oneof![2 => 1_u64..4, 1 => 32_u64..40]);
    (frames(), max_size, flags).prop_map(move |(frame, max_size, flags)| Window {
        partition_by: vec![column(0, "k")],
        order_by: is_ordered.then(|| column(0, "ts")),
        frame,
        ahead: None,
        max_size,
        exclude_current_time: flags.0,
        exclude_current_row: flags.1,
        instance_not_in_window: flags.2,
    })
}

/// Changes a window so that its frame begins at the same row as that of another one, unless one is by
/// rows and the other by time and the other one does not begin at the current row.
pub(super) fn begin_alike(window: &Window, other: &Window) -> Window {
    let frame = match (window.frame, other.frame) {
        (Frame::Rows { from, .. }, Frame::Rows { to, .. }) => Frame::Rows { from, to },
        (Frame::Range { from, .. }, Frame::Range { to, .. }) => Frame::Range { from, to },
        (Frame::Rows { from, .. }, Frame::Range { .. }) => Frame::Rows { from, to: 0 },
        (Frame::Range { from, .. }, Frame::Rows { .. }) => Frame::Range { from, to: 0 },
    };
    Window { frame, max_size: window.max_size, ..other.clone() }
}

pub(super) fn rows(count_max: usize) -> impl Strategy<Value = Vec<(Option<i64>, Option<i64>)>> {
    let key = prop_oneof![4 => Just(Some(1)), 2 => Just(Some(2)), 1 => Just(None)];
    // An index stores NULL as the least value.
    let time = prop_oneof![
        24 => (0_i64..8).prop_map(Some),
        3 => Just(None),
        2 => Just(Some(i64::MIN)),
        1 => Just(Some(i64::MAX)),
    ];
    proptest::collection::vec((key, time), 0..count_max)
}

/// Draws how many rows fill a chunk, so that a key has one chunk or many.
pub(super) fn chunk_rows() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![2, 5, 16, 128])
}

/// Returns the rows of a table, each at its own position, and as requests after all stored rows.
pub(super) fn currents(database: &TestDatabase) -> Vec<TestRow> {
    let stored = database.rows[0].iter().copied();
    let requests = database.rows[0].iter().map(|row| TestRow { arrival: u64::MAX, id: 77, ..*row });
    stored.chain(requests).collect()
}

/// Union sources of a window: of another table, of a third one whose key or time may be computed,
/// and of the window's own table.
const UNIONS: [&[usize]; 7] = [&[], &[0], &[1], &[1, 0], &[2], &[2, 0], &[0, 1, 2]];

fn is_null(expr: Expr) -> Expr {
    expr.is_null()
}

/// Makes an expression with the same value that no index has.
fn computed(expr: Expr) -> Expr {
    when(is_null(expr.clone()), lit(datafusion::common::ScalarValue::Int64(None)))
        .otherwise(expr)
        .unwrap()
}

/// Projects `input` so that its key, its time, or both are computed.
fn hide(input: LogicalPlan, table: usize, hides: (bool, bool)) -> LogicalPlan {
    let pick = |name: &str, hides: bool| {
        let own = column(table, name);
        if hides { computed(own).alias_qualified(Some(format!("t{table}")), name) } else { own }
    };
    project(input, vec![pick("id", false), pick("k", hides.0), pick("ts", hides.1)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Random frames, flags and unions; several windows, some of which share scans.
    #[test]
    fn windows_hold_the_rows_that_the_definition_says(
        tables in (rows(24), rows(8), rows(8)),
        windows_with_unions in proptest::collection::vec(
            (any_window(true), any_window(false), any::<bool>(), 0_usize..UNIONS.len()), 1..4),
        are_alike in any::<bool>(),
        hides in (any::<bool>(), any::<bool>()),
        chunk_rows in chunk_rows(),
    ) {
        lockstep_table::set_chunk_rows(chunk_rows);
        let database = TestDatabase::new(&[tables.0, tables.1, tables.2]);
        let windows_with_unions: Vec<(Window, Vec<usize>)> = windows_with_unions
            .into_iter()
            .map(|(ordered, unordered, is_ordered, unions)| {
                (if is_ordered { ordered } else { unordered }, UNIONS[unions].to_vec())
            })
            .collect();
        let alike = |(window, _): &(Window, Vec<usize>)| {
            (begin_alike(window, &windows_with_unions[0].0), windows_with_unions[0].1.clone())
        };
        let windows_with_unions = if are_alike { windows_with_unions.iter().map(alike).collect() } else { windows_with_unions };
        let groups = windows_with_unions.iter().enumerate().map(|(position, (window, unions))| {
            group(window.clone(), unions.clone(), vec![column(0, "id")], &format!("w{position}"))
        });
        let input = hide(database.scan(0), 0, hides);
        let second = hide(database.scan(2), 2, (hides.1, hides.0));
        let unions = vec![database.scan(1), second, database.scan(0)];
        let program = database.compile(&windows(input, unions, groups.collect()));
        for current in currents(&database) {
            // A request row is a row of its table wherever that is read once more.
            let mut own = database.rows[0].clone();
            own.extend((current.arrival == u64::MAX).then_some(current));
            let rows_of = [&database.rows[1], &database.rows[2], &own];
            let expected: Vec<String> = windows_with_unions
                .iter()
                .map(|(window, unions)| {
                    let unions: Vec<&[TestRow]> =
                        unions.iter().map(|union| &rows_of[*union][..]).collect();
                    listed(&frame(&current, &database.rows[0], &unions, window))
                })
                .collect();
            let found = answer(&program, &current).unwrap();
            prop_assert_eq!(&found[3..], &expected[..], "{:?}\n{}", current, program.explain());
        }
    }

    /// A window over the rows of a subquery that has a window itself.
    #[test]
    fn a_window_over_windows_sees_each_row_as_of_its_own_time(
        table in rows(16),
        inner in any_window(true),
        outer in any_window(true),
    ) {
        let database = TestDatabase::new(&[table]);
        let plan = windows(database.scan(0), vec![], vec![
            group(inner.clone(), vec![], vec![column(0, "id")], "a"),
        ]);
        let plan = project(plan, vec![column(0, "ts"), column(0, "id"), col("a"), column(0, "k")]);
        let plan = windows(plan, vec![], vec![
            group(outer.clone(), vec![], vec![column(0, "id"), col("a")], "b"),
        ]);
        let program = database.compile(&plan);
        let main = &database.rows[0];
        for current in currents(&database) {
            let rows = frame(&current, main, &[], &outer);
            let texts: Vec<String> = rows
                .iter()
                .map(|id| {
                    let row = main.iter().find(|row| row.id == *id).unwrap_or(&current);
                    format!("{id}:{}", listed(&frame(row, main, &[], &inner)))
                })
                .collect();
            let found = answer(&program, &current).unwrap();
            prop_assert_eq!(&found[4], &format!("[{}]", texts.join(",")), "{:?}", current);
        }
    }
}

const PLAIN: Window = Window {
    partition_by: vec![],
    order_by: None,
    frame: Frame::Rows { from: None, to: 0 },
    ahead: None,
    max_size: None,
    exclude_current_time: false,
    exclude_current_row: false,
    instance_not_in_window: false,
};

fn by_time(frame: Frame) -> Window {
    Window { partition_by: vec![column(0, "k")], order_by: Some(column(0, "ts")), frame, ..PLAIN }
}

fn four_rows() -> TestDatabase {
    TestDatabase::new(&[vec![
        (Some(1), Some(10)),
        (Some(1), Some(20)),
        (Some(2), Some(20)),
        (Some(1), Some(30)),
    ]])
}

/// Checks the last column of a plan for the request `(9, 1, 20)`.
#[track_caller]
fn check(database: &TestDatabase, plan: &LogicalPlan, expected: Option<&str>) {
    let request = TestRow { id: 9, k: Some(1), ts: Some(20), arrival: u64::MAX };
    let found = answer(&database.compile(plan), &request);
    assert_eq!(found.as_ref().map(|row| row.last().unwrap().as_str()), expected);
}

fn last_rows(database: &TestDatabase) -> LogicalPlan {
    let window = by_time(Frame::Rows { from: Some(2), to: 0 });
    windows(database.scan(0), vec![], vec![group(window, vec![], vec![column(0, "id")], "w")])
}

#[test]
fn a_request_comes_after_rows_of_its_own_time() {
    let database = four_rows();
    check(&database, &last_rows(&database), Some("[9,2,1]"));
}

#[test]
fn a_filter_below_a_window_hides_rows_from_it() {
    let database = four_rows();
    let filtered = LogicalPlanBuilder::from(database.scan(0))
        .filter(column(0, "id").not_eq(lit(2_i64)))
        .and_then(LogicalPlanBuilder::build)
        .unwrap();
    let window = by_time(Frame::Rows { from: Some(2), to: 0 });
    let plan = windows(filtered, vec![], vec![group(window, vec![], vec![column(0, "id")], "w")]);
    check(&database, &plan, Some("[9,1]"));
}

#[test]
fn a_filter_above_a_window_hides_the_answer_only() {
    let database = four_rows();
    let filter = |keeps: i64| {
        LogicalPlanBuilder::from(last_rows(&database))
            .filter(column(0, "id").eq(lit(keeps)))
            .and_then(LogicalPlanBuilder::build)
            .unwrap()
    };
    check(&database, &filter(9), Some("[9,2,1]"));
    check(&database, &filter(8), None);
}

#[test]
fn limit_zero_gives_no_row_and_any_other_limit_the_row() {
    let database = four_rows();
    let limit = |fetch: usize| {
        LogicalPlanBuilder::from(last_rows(&database))
            .limit(0, Some(fetch))
            .and_then(LogicalPlanBuilder::build)
            .unwrap()
    };
    check(&database, &limit(0), None);
    check(&database, &limit(1), Some("[9,2,1]"));
}

#[test]
fn a_query_without_a_table_has_one_row() {
    let database = four_rows();
    let plan = LogicalPlanBuilder::empty(true).project(vec![lit(7_i64)]).unwrap().build().unwrap();
    let program = database.compile(&plan);
    assert!(program.input().is_none());
    let arena = lockstep_row::Arena::new();
    assert_eq!(program.answer(&[], &arena), Ok(Some(&[lockstep_row::Datum::BigInt(7)][..])));
}

#[test]
fn the_request_row_comes_out_of_the_first_input_of_a_union() {
    let database = four_rows();
    let plan = LogicalPlanBuilder::from(database.scan(0))
        .union(database.scan(0))
        .unwrap()
        .build()
        .unwrap();
    let program = database.compile(&plan);
    assert!(program.is_compiled());
    let row = TestRow { id: 9, k: None, ts: Some(1), arrival: u64::MAX };
    let arena = lockstep_row::Arena::new();
    assert_eq!(program.answer(&row.values(), &arena), Ok(Some(&row.values()[..])));
}

#[test]
fn a_union_source_that_is_no_row_source_is_run_in_batch_mode() {
    let database = TestDatabase::new(&[
        vec![(Some(1), Some(10))],
        vec![(Some(1), Some(15)), (Some(2), Some(16))],
    ]);
    let union = LogicalPlanBuilder::from(database.scan(1)).distinct().unwrap().build().unwrap();
    let window = by_time(Frame::Rows { from: None, to: 0 });
    let group = group(window, vec![0], vec![column(0, "id")], "w");
    let plan = windows(database.scan(0), vec![union], vec![group]);
    check(&database, &plan, Some("[9,2,1]"));
    assert!(database.compile(&plan).explain().contains("batch mode"));
}

#[test]
fn windows_that_differ_only_in_their_frames_share_a_scan() {
    let database = four_rows();
    let frames = [Frame::Rows { from: Some(1), to: 0 }, Frame::Range { from: Some(15), to: 5 }];
    let groups = frames
        .iter()
        .zip(["a", "b"])
        .map(|(frame, name)| group(by_time(*frame), vec![], vec![column(0, "id")], name));
    let plan = windows(database.scan(0), vec![], groups.collect());
    check(&database, &plan, Some("[1]"));
    let explain = database.compile(&plan).explain();
    assert_eq!(explain.matches("scan for").count(), 1, "{explain}");
    assert!(explain.contains("on (k), newest `ts` first"), "{explain}");
}

#[test]
fn answers_of_a_batch_do_not_see_each_other() {
    let database = four_rows();
    let program = database.compile(&last_rows(&database));
    let requests: Vec<_> = (7..9)
        .map(|id| TestRow { id, k: Some(1), ts: Some(20), arrival: u64::MAX }.values())
        .collect();
    let requests: Vec<&[_]> = requests.iter().map(|request| &request[..]).collect();
    let mut lists = Vec::new();
    let list =
        |answer: &[lockstep_row::Datum<'_>]| lists.push(answer[3].as_str().unwrap().to_owned());
    program.batch().answer(&requests, list).unwrap();
    assert_eq!(lists, ["7,2,1", "8,2,1"]);
}
