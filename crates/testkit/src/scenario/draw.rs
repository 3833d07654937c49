//! The strategies that draw scenarios.
//!
//! Keys and event times come from small domains, so that rows share keys, tie in time and arrive
//! late; values include NULL, NaN, both zeros, infinities and long texts.

use lockstep_row::{DataType, Value};
use proptest::{
    collection::vec,
    option,
    prelude::{BoxedStrategy, Just, Strategy, any},
    prop_oneof,
    sample::{Index, select},
};

use super::{EVENT_TIME, FIRST_VALUE, ID, Indexes, KEY, SECOND_KEY, Scenario};
use crate::oracle::{
    Excludes, FrameEnd, Item, JoinBound, OracleJoin, OracleMode, OracleQuery, OracleRow,
    OracleTable, OracleWindow,
    fold::{Function, OracleCondition, Plain},
};

/// Rows of the main table at most; of the others half as many.
const ROWS_MAX: usize = 24;

/// Names and types of columns.
type DrawnColumns = Vec<(String, DataType)>;

/// The use of the other tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScenarioShape {
    Unions(usize),
    Joins(usize),
}

/// How the tables of a scenario are stored and requested.
#[derive(Debug, Clone, Copy)]
struct Setup {
    indexes: Indexes,
    chunk_rows: usize,
    is_deployed: bool,
}

/// Draws a scenario.
pub fn scenario() -> impl Strategy<Value = Scenario> {
    let shape = prop_oneof![
        2 => Just(ScenarioShape::Unions(0)),
        1 => (1_usize..=2).prop_map(ScenarioShape::Unions),
        1 => (1_usize..=2).prop_map(ScenarioShape::Joins),
    ];
    let setup = (
        select(vec![Indexes::None, Indexes::One, Indexes::Several]),
        select(vec![2_usize, 2, 5, 128]),
        any::<bool>(),
    )
        .prop_map(|(indexes, chunk_rows, is_deployed)| Setup {
            indexes,
            chunk_rows,
            is_deployed,
        });
    (columns(), shape, 0..8_u8, setup).prop_flat_map(|(columns, shape, order, setup)| {
        let is_ordered = order > 0;
        (tables(&columns, shape), query(&columns, shape, is_ordered), Just(setup))
            .prop_map(|(tables, query, setup)| assemble(tables, query, setup))
    })
}

/// Assembles a scenario; it declares an index only if every row has an event time of a type that
/// indexes take.
fn assemble(tables: Vec<OracleTable>, mut query: OracleQuery, setup: Setup) -> Scenario {
    let Setup { indexes: wanted, chunk_rows, is_deployed } = setup;
    assert!(!tables.is_empty(), "a scenario has a main table");
    let is_timed =
        tables.iter().all(|table| table.rows.iter().all(|row| row[EVENT_TIME] != Value::Null));
    let takes_index =
        matches!(tables[0].columns[EVENT_TIME].1, DataType::Timestamp | DataType::BigInt);
    let indexes = if is_timed && takes_index { wanted } else { Indexes::None };
    for join in &mut query.joins {
        join.implied_order = (indexes != Indexes::None).then_some(EVENT_TIME);
    }
    Scenario { tables, query, indexes, chunk_rows, is_deployed }
}

fn columns() -> impl Strategy<Value = DrawnColumns> {
    let key = select(vec![
        DataType::String,
        DataType::Int,
        DataType::BigInt,
        DataType::SmallInt,
        DataType::Date,
        DataType::Bool,
        DataType::Timestamp,
    ]);
    let event_time =
        select(vec![DataType::Timestamp, DataType::Timestamp, DataType::BigInt, DataType::Int]);
    let value = select(vec![
        DataType::Double,
        DataType::Float,
        DataType::String,
        DataType::BigInt,
        DataType::SmallInt,
        DataType::Bool,
        DataType::Date,
        DataType::Timestamp,
    ]);
    (key, event_time, vec(value, 0..=3)).prop_map(|(key, event_time, values)| {
        let mut columns: DrawnColumns = vec![
            ("id".to_owned(), DataType::BigInt),
            ("k1".to_owned(), key),
            ("k2".to_owned(), DataType::Int),
            ("ts".to_owned(), event_time),
            ("v0".to_owned(), DataType::Int),
        ];
        let named = values.into_iter().enumerate();
        columns.extend(named.map(|(index, data_type)| (format!("v{}", index + 1), data_type)));
        columns
    })
}

fn tables(
    columns: &DrawnColumns,
    shape: ScenarioShape,
) -> impl Strategy<Value = Vec<OracleTable>> + use<> {
    let (others, prefix) = match shape {
        ScenarioShape::Unions(count) => (count, "u"),
        ScenarioShape::Joins(count) => (count, "r"),
    };
    let main = vec(row(columns), 1..=ROWS_MAX);
    let others = vec(vec(row(columns), 0..=ROWS_MAX / 2), others);
    let columns = columns.clone();
    (main, others).prop_map(move |(main, others)| {
        let mut tables = vec![table("t1", &columns, main, 0)];
        for (index, rows) in others.into_iter().enumerate() {
            let first_id = 100 * (i64::try_from(index).expect("two tables") + 1);
            tables.push(table(&format!("{prefix}{index}"), &columns, rows, first_id));
        }
        tables
    })
}

/// Creates a table and numbers its rows by arrival.
fn table(
    name: &str,
    columns: &DrawnColumns,
    mut rows: Vec<OracleRow>,
    first_id: i64,
) -> OracleTable {
    for (row, id) in rows.iter_mut().zip(first_id..) {
        row[ID] = Value::BigInt(id);
    }
    OracleTable { name: name.to_owned(), columns: columns.clone(), rows }
}

fn row(columns: &DrawnColumns) -> impl Strategy<Value = OracleRow> + use<> {
    let cells: Vec<BoxedStrategy<Value>> = columns
        .iter()
        .enumerate()
        .map(|(column, (_, data_type))| match column {
            ID => Just(Value::BigInt(0)).boxed(),
            KEY | SECOND_KEY => key(data_type),
            EVENT_TIME => event_time(data_type),
            _ => value(data_type),
        })
        .collect();
    cells
}

fn or_null(strategy: impl Strategy<Value = Value> + 'static, weight: u32) -> BoxedStrategy<Value> {
    prop_oneof![weight => strategy, 1 => Just(Value::Null)].boxed()
}

fn key(data_type: &DataType) -> BoxedStrategy<Value> {
    let data_type = data_type.clone();
    let key = (0_i16..3).prop_map(move |key| match data_type {
        DataType::String => Value::String(["", "a", "a|b"][usize::from(key.unsigned_abs())].into()),
        DataType::Bool => Value::Bool(key > 0),
        DataType::SmallInt => Value::SmallInt(key - 1),
        DataType::Int => Value::Int(i32::from(key) - 1),
        DataType::Date => Value::Date(i32::from(key) + 18_000),
        DataType::Timestamp => Value::Timestamp(i64::from(key)),
        _ => Value::BigInt(i64::from(key) << 33),
    });
    or_null(key, 8)
}

fn event_time(data_type: &DataType) -> BoxedStrategy<Value> {
    let data_type = data_type.clone();
    let event_time = (0_i32..8, -1_i32..=1).prop_map(move |(second, jitter)| {
        let ms = (second * 1_000 + jitter).max(0);
        match data_type {
            DataType::Int => Value::Int(ms),
            DataType::BigInt => Value::BigInt(i64::from(ms)),
            _ => Value::Timestamp(i64::from(ms)),
        }
    });
    or_null(event_time, 30)
}

fn value(data_type: &DataType) -> BoxedStrategy<Value> {
    let value = match data_type {
        DataType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        DataType::SmallInt => {
            prop_oneof![-3_i16..4, any::<i16>()].prop_map(Value::SmallInt).boxed()
        }
        DataType::Int => {
            prop_oneof![3 => -5_i32..6, 1 => any::<i32>()].prop_map(Value::Int).boxed()
        }
        DataType::BigInt => {
            prop_oneof![-3_i64..4, -(1_i64 << 58)..(1_i64 << 58)].prop_map(Value::BigInt).boxed()
        }
        DataType::Float => float().prop_map(Value::Float).boxed(),
        DataType::Double => double().prop_map(Value::Double).boxed(),
        DataType::String => text().prop_map(|text| Value::String(text.into())).boxed(),
        DataType::Timestamp => (0_i64..5_000_000).prop_map(Value::Timestamp).boxed(),
        DataType::Date => (17_000_i32..17_005).prop_map(Value::Date).boxed(),
        DataType::Null | DataType::Array(_) | DataType::Map(..) => Just(Value::Null).boxed(),
    };
    or_null(value, 5)
}

fn float() -> impl Strategy<Value = f32> {
    let special =
        select(vec![-0.0, 0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-45]);
    let tenths = (-50_i16..50).prop_map(|tenths| f32::from(tenths) / 10.0);
    prop_oneof![4 => tenths, 1 => special, 1 => any::<f32>()]
}

fn double() -> impl Strategy<Value = f64> {
    let special = select(vec![
        -0.0,
        0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        5e-324,
        1e16,
        -1e16,
    ]);
    let tenths = (-50_i32..50).prop_map(|tenths| f64::from(tenths) / 10.0);
    prop_oneof![4 => tenths, 1 => special, 1 => any::<f64>()]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => select(vec!["", "a", "b", "B", "ü", "漢字", "it's"]).prop_map(str::to_owned),
        1 => (1_usize..60).prop_map(|length| "long ".repeat(length)),
    ]
}

fn query(
    columns: &DrawnColumns,
    shape: ScenarioShape,
    is_ordered: bool,
) -> impl Strategy<Value = OracleQuery> + use<> {
    let unions = if let ScenarioShape::Unions(count) = shape { count } else { 0 };
    let joins: Vec<_> = match shape {
        ScenarioShape::Unions(_) => Vec::new(),
        ScenarioShape::Joins(count) => {
            (0..count).map(|index| join(index + 1, columns.len())).collect()
        }
    };
    let width = columns.len() * (1 + joins.len());
    let types: Vec<DataType> =
        columns.iter().cycle().take(width).map(|(_, data_type)| data_type.clone()).collect();
    let items = vec((any::<Index>(), function(types)), 1..=5);
    let windows = vec(window(unions, is_ordered), 1..=3);
    let column_count = columns.len();
    let mode = select(vec![OracleMode::Standard, OracleMode::Standard, OracleMode::OpenMldb]);
    (joins, windows, items, mode).prop_map(move |(joins, mut windows, calls, mode)| {
        if mode == OracleMode::OpenMldb {
            let without_key = windows.iter_mut().filter(|window| window.partition_by.is_empty());
            without_key.for_each(|window| window.partition_by.push(KEY));
        }
        let mut items = vec![Item::Column(ID)];
        items.extend((1..=joins.len()).map(|join| Item::Column(join * column_count + ID)));
        items.extend(calls.into_iter().map(|(window, function)| Item::Call {
            window: window.index(windows.len()),
            function,
        }));
        OracleQuery { mode, joins, windows, items }
    })
}

/// Draws a join to the right table of this number, by columns of the main row or, for a second key,
/// of the row joined before.
fn join(table: usize, width: usize) -> impl Strategy<Value = OracleJoin> {
    let order = prop_oneof![Just(None), option::of(any::<bool>()).prop_map(Some)];
    (order, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        move |(order, has_second_key, is_chained, is_filtered)| {
            let mut keys = vec![(KEY, KEY)];
            if has_second_key {
                let left = if is_chained { (table - 1) * width + SECOND_KEY } else { SECOND_KEY };
                keys.push((left, SECOND_KEY));
            }
            let bound =
                order.flatten().map(|is_inclusive| JoinBound { left: EVENT_TIME, is_inclusive });
            OracleJoin {
                table,
                keys,
                order_by: order.map(|_| EVENT_TIME),
                implied_order: None,
                bound,
                less: is_filtered.then_some((FIRST_VALUE, FIRST_VALUE)),
            }
        },
    )
}

fn window(unions: usize, is_ordered: bool) -> impl Strategy<Value = OracleWindow> {
    let partition_by = select(vec![
        vec![KEY],
        vec![KEY],
        vec![SECOND_KEY],
        vec![KEY, SECOND_KEY],
        vec![SECOND_KEY, KEY],
        vec![],
    ]);
    let sources: Vec<usize> = (1..=unions).collect();
    let sources = proptest::sample::subsequence(sources, 0..=unions);
    let max_size = option::weighted(0.3, 1_usize..4);
    let excludes = (any::<bool>(), any::<bool>(), any::<bool>());
    (partition_by, sources, frame(is_ordered), max_size, excludes).prop_map(
        move |(partition_by, unions, (is_range, start, end), max_size, excludes)| OracleWindow {
            partition_by,
            order_by: is_ordered.then_some(EVENT_TIME),
            is_range,
            start,
            end,
            max_size: max_size.filter(|_| is_range),
            excludes: Excludes {
                current_time: excludes.0 && is_ordered,
                current_row: excludes.1,
                main_rows: excludes.2 && !unions.is_empty(),
            },
            unions,
        },
    )
}

/// Draws `ROWS_RANGE` or not, and two ends of which the first is not the newer.
fn frame(is_ordered: bool) -> impl Strategy<Value = (bool, FrameEnd, FrameEnd)> {
    let milliseconds = select(vec![0_i64, 1, 2, 999, 1_000, 1_001, 2_000, 3_000, 5_000, 1 << 40]);
    let ranged = (milliseconds.clone(), milliseconds);
    // The last one is beyond all rows.
    let counted = select(vec![0_i64, 1, 2, 3, 4, 7, 1_000]);
    let counted = (counted.clone(), counted);
    let distances = (any::<bool>(), ranged, counted);
    let opens = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (distances, opens).prop_map(move |((is_range, ranged, counted), opens)| {
        let (left, right) = if is_range { ranged } else { counted };
        let (is_unbounded, is_current, is_start_open, is_end_open) = opens;
        // ROWS_RANGE without ORDER BY takes no distances.
        let has_distances = is_ordered || !is_range;
        let newest = if is_current || !has_distances { 0 } else { left.min(right) };
        let oldest = left.max(right);
        let end = match newest {
            0 => FrameEnd::CurrentRow,
            newest if is_end_open && newest < oldest => FrameEnd::OpenPreceding(newest),
            newest => FrameEnd::Preceding(newest),
        };
        let start = match oldest {
            _ if is_unbounded || !has_distances => FrameEnd::Unbounded,
            0 => FrameEnd::CurrentRow,
            oldest if is_start_open && oldest >= newest + 2 => FrameEnd::OpenPreceding(oldest),
            oldest => FrameEnd::Preceding(oldest),
        };
        (is_range, start, end)
    })
}

/// Functions of a number that the oracle does not compute, and their further arguments.
const UNMODELLED: [(&str, &str); 4] =
    [("stddev", ""), ("var_pop", ""), ("ew_avg", ", 0.5"), ("drawdown", "")];

fn unmodelled(column: usize, (name, rest): (&'static str, &'static str)) -> Function {
    Function::Unmodelled { name, column, rest }
}

/// Draws a function that takes a column of its type.
fn function(types: Vec<DataType>) -> impl Strategy<Value = Function> {
    let plain = select(vec![Plain::Count, Plain::Sum, Plain::Avg, Plain::Min, Plain::Max]);
    let condition = (any::<bool>(), -2_i32..3);
    (any::<Index>(), 0..10_u8, plain, condition, 0_usize..4).prop_map(
        move |(column, form, plain, (is_greater, constant), size)| {
            let column = column.index(types.len());
            let data_type = &types[column];
            let is_number = data_type.is_number();
            let is_comparable = is_number || *data_type != DataType::Bool;
            let takes = match plain {
                Plain::Count => true,
                Plain::Sum | Plain::Avg => is_number,
                Plain::Min | Plain::Max => is_comparable,
            };
            let condition = OracleCondition { column: FIRST_VALUE, is_greater, constant };
            match form {
                0 | 1 if takes => Function::Plain(plain, column),
                2 | 3 if plain == Plain::Count || is_number => {
                    Function::Where(plain, column, condition)
                }
                4 if data_type.is_integer() => Function::Top(column, size + 1),
                8 if data_type.is_integer() || *data_type == DataType::String => {
                    Function::TopFrequency(column, size + 1)
                }
                9 if data_type.is_integer() && size == 0 => Function::Median(column),
                8 | 9 if is_number => unmodelled(column, UNMODELLED[size]),
                9 => unmodelled(column, ("entropy", "")),
                0 | 4 => Function::DistinctCount(column),
                1 | 5 => Function::FirstValue(column),
                2 | 6 => Function::LastValue(column),
                3 => Function::CountRows,
                _ => Function::Lag { column, offset: size },
            }
        },
    )
}
