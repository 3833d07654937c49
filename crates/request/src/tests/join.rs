//! LAST JOINs: every answer is compared with a direct implementation of `lockstep_plan`'s definition.

use datafusion::{
    common::ScalarValue,
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, col, lit, when},
};
use lockstep_plan::{Frame, TimeBound, Window};
use proptest::prelude::*;

use crate::testing::{TestDatabase, TestRow, answer, column, group, last_join, project, windows};

/// The plan of the right side; its rows are those of `t1` in each case.
#[derive(Debug, Clone, Copy)]
enum RightSide {
    Table,
    Reordered,
    ComputedKey,
    ComputedTime,
    Filtered,
    Materialised,
}

fn computed(expr: Expr) -> Expr {
    when(expr.clone().is_null(), lit(ScalarValue::Int64(None))).otherwise(expr).unwrap()
}

impl RightSide {
    fn plan(self, database: &TestDatabase) -> LogicalPlan {
        let scan = LogicalPlanBuilder::from(database.scan_as(1, "s"));
        let plan = match self {
            Self::Table => Ok(scan),
            Self::Reordered => scan.project(vec![col("ts"), col("k"), col("id")]),
            Self::ComputedKey => {
                scan.project(vec![col("id"), computed(col("k")).alias("k"), col("ts")])
            }
            Self::ComputedTime => {
                scan.project(vec![col("id"), col("k"), computed(col("ts")).alias("ts")])
            }
            Self::Filtered => scan.filter(col("id").gt(lit(-1_i64))),
            Self::Materialised => scan.distinct(),
        };
        plan.and_then(|plan| plan.alias("t1")).and_then(LogicalPlanBuilder::build).unwrap()
    }
}

#[derive(Debug, Clone, Copy)]
struct JoinShape {
    right: RightSide,
    is_keyed: bool,
    order: JoinOrder,
    has_filter: bool,
}

/// Which of two right rows is newer, and how new a right row may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JoinOrder {
    ByArrival,
    ByTime,
    BeforeLeft,
    UpToLeft,
}

fn shapes() -> impl Strategy<Value = JoinShape> {
    let right = prop_oneof![
        Just(RightSide::Table),
        Just(RightSide::Reordered),
        Just(RightSide::ComputedKey),
        Just(RightSide::ComputedTime),
        Just(RightSide::Filtered),
        Just(RightSide::Materialised),
    ];
    let order = prop_oneof![
        Just(JoinOrder::ByArrival),
        Just(JoinOrder::ByTime),
        Just(JoinOrder::BeforeLeft),
        Just(JoinOrder::UpToLeft),
    ];
    (right, any::<bool>(), order, any::<bool>()).prop_map(|(right, is_keyed, order, has_filter)| {
        JoinShape { right, is_keyed, order, has_filter }
    })
}

fn plan(database: &TestDatabase, shape: JoinShape) -> LogicalPlan {
    let keys = if shape.is_keyed { vec![(column(0, "k"), column(1, "k"))] } else { vec![] };
    let joined = last_join(database.scan(0), shape.right.plan(database), keys, |join| {
        join.order_by = (shape.order != JoinOrder::ByArrival).then(|| column(1, "ts"));
        let inclusive = shape.order == JoinOrder::UpToLeft;
        join.time_bound = matches!(shape.order, JoinOrder::BeforeLeft | JoinOrder::UpToLeft)
            .then(|| TimeBound { left: column(0, "ts"), inclusive });
        join.filter = shape
            .has_filter
            .then(|| column(1, "k").is_null().or(column(1, "ts").not_eq(column(0, "k"))));
    });
    project(joined, vec![column(1, "id")])
}

fn is_match(left: &TestRow, right: &TestRow, shape: JoinShape) -> bool {
    let has_key = !shape.is_keyed || left.k == right.k;
    let is_in_time = match (shape.order, left.ts, right.ts) {
        (JoinOrder::ByArrival | JoinOrder::ByTime, _, _) => true,
        (JoinOrder::BeforeLeft, Some(end), Some(time)) => time < end,
        (JoinOrder::UpToLeft, Some(end), Some(time)) => time <= end,
        (JoinOrder::BeforeLeft | JoinOrder::UpToLeft, _, _) => false,
    };
    let differs = matches!((right.ts, left.k), (Some(time), Some(k)) if time != k);
    has_key && is_in_time && (!shape.has_filter || right.k.is_none() || differs)
}

fn newest_match(left: &TestRow, rights: &[TestRow], shape: JoinShape) -> Option<i64> {
    let matches = rights.iter().filter(|right| is_match(left, right, shape));
    let newest = matches.max_by_key(|right| {
        let order = if shape.order == JoinOrder::ByArrival { Some(0) } else { right.ts };
        (order, right.arrival)
    });
    newest.map(|right| right.id)
}

fn rows() -> impl Strategy<Value = Vec<(Option<i64>, Option<i64>)>> {
    let key = prop_oneof![4 => (1_i64..4).prop_map(Some), 1 => Just(None)];
    let time = prop_oneof![8 => (0_i64..8).prop_map(Some), 1 => Just(None)];
    proptest::collection::vec((key, time), 0..16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn last_join_takes_the_newest_match(tables in (rows(), rows()), shape in shapes()) {
        let database = TestDatabase::new(&[tables.0, tables.1]);
        let program = database.compile(&plan(&database, shape));
        for left in &database.rows[0] {
            let expected = newest_match(left, &database.rows[1], shape);
            let expected = expected.map_or_else(|| "-".to_owned(), |id| id.to_string());
            prop_assert_eq!(answer(&program, left), Some(vec![expected]), "{}", program.explain());
        }
    }

    /// The joined column is the argument of a window: history rows are joined, too.
    #[test]
    fn history_rows_are_joined_as_well(tables in (rows(), rows())) {
        let database = TestDatabase::new(&[tables.0, tables.1]);
        let shape = JoinShape {
            right: RightSide::Table,
            is_keyed: true,
            order: JoinOrder::UpToLeft,
            has_filter: false,
        };
        let joined = last_join(
            database.scan(0),
            database.scan(1),
            vec![(column(0, "k"), column(1, "k"))],
            |join| {
                join.order_by = Some(column(1, "ts"));
                join.time_bound = Some(TimeBound { left: column(0, "ts"), inclusive: true });
            },
        );
        let window = Window {
            partition_by: vec![column(0, "k")],
            order_by: Some(column(0, "ts")),
            frame: Frame::Rows { from: Some(3), to: 0 },
            ahead: None,
            max_size: None,
            exclude_current_time: false,
            exclude_current_row: true,
            instance_not_in_window: false,
        };
        let group = group(window, vec![], vec![column(0, "id"), column(1, "id")], "w");
        let program = database.compile(&windows(joined, vec![], vec![group]));
        let lefts = &database.rows[0];
        for current in lefts {
            let Some(now) = current.ts else { continue };
            let mut history: Vec<&TestRow> = lefts
                .iter()
                .filter(|row| row.k == current.k)
                .filter(|row| row.ts.is_some_and(|ts| (ts, row.arrival) < (now, current.arrival)))
                .collect();
            history.sort_by_key(|row| std::cmp::Reverse((row.ts, row.arrival)));
            let texts: Vec<String> = history
                .iter()
                .take(3)
                .map(|row| {
                    let right = newest_match(row, &database.rows[1], shape);
                    let right = right.map_or_else(|| "-".to_owned(), |id| id.to_string());
                    format!("{}:{right}", row.id)
                })
                .collect();
            let found = answer(&program, current).unwrap();
            prop_assert_eq!(found.last().unwrap(), &format!("[{}]", texts.join(",")));
        }
    }
}

#[test]
fn a_join_whose_columns_nobody_reads_is_not_made() {
    let database = TestDatabase::new(&[vec![(Some(1), Some(1))], vec![(Some(1), Some(1))]]);
    let keys = vec![(column(0, "k"), column(1, "k"))];
    let joined = last_join(database.scan(0), database.scan(1), keys, |_| {});
    let program = database.compile(&project(joined, vec![column(0, "id")]));
    assert!(!program.explain().contains("join"), "{}", program.explain());
    assert_eq!(answer(&program, &database.rows[0][0]), Some(vec!["1".to_owned()]));
}

#[test]
fn a_right_side_with_a_window_is_computed_per_right_row() {
    let history = vec![(Some(1), Some(1)), (Some(1), Some(2)), (Some(2), Some(3))];
    let database = TestDatabase::new(&[vec![(Some(1), Some(9))], history]);
    let window = Window {
        partition_by: vec![column(1, "k")],
        order_by: Some(column(1, "ts")),
        frame: Frame::Rows { from: None, to: 0 },
        ahead: None,
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    };
    let right =
        windows(database.scan(1), vec![], vec![group(window, vec![], vec![column(1, "id")], "w")]);
    let keys = vec![(column(0, "k"), column(1, "k"))];
    let joined =
        last_join(database.scan(0), right, keys, |join| join.order_by = Some(column(1, "ts")));
    let program = database.compile(&project(joined, vec![col("w")]));
    assert_eq!(answer(&program, &database.rows[0][0]), Some(vec!["[3,2]".to_owned()]));
}

#[test]
fn two_window_queries_over_the_request_table_meet_in_the_request_row() {
    let database =
        TestDatabase::new(&[vec![(Some(1), Some(1)), (Some(1), Some(2)), (Some(1), Some(9))]]);
    let half = |name: &str, frame: Frame, output: &str| {
        let window = Window {
            partition_by: vec![column(0, "k")],
            order_by: Some(column(0, "ts")),
            frame,
            ahead: None,
            max_size: None,
            exclude_current_time: false,
            exclude_current_row: false,
            instance_not_in_window: false,
        };
        let group = group(window, vec![], vec![column(0, "id")], output);
        let plan = windows(database.scan(0), vec![], vec![group]);
        let plan = project(plan, vec![column(0, "id"), col(output)]);
        LogicalPlanBuilder::from(plan).alias(name).unwrap().build().unwrap()
    };
    let left = half("a", Frame::Rows { from: Some(1), to: 0 }, "v");
    let right = half("b", Frame::Range { from: None, to: 1 }, "w");
    let joined = last_join(left, right, vec![(col("a.id"), col("b.id"))], |_| {});
    let program = database.compile(&project(joined, vec![col("v"), col("w")]));
    let request = TestRow { id: 7, k: Some(1), ts: Some(3), arrival: u64::MAX };
    let expected = vec!["[7,2]".to_owned(), "[2,1]".to_owned()];
    assert_eq!(answer(&program, &request), Some(expected));
}
