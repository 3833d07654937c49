//! Draws queries over long windows: the windows, and the aggregates over them.
//!
//! An aggregate is one that the oracle computes, or an example of the declaration of a function over
//! the columns of the drawn tables.

use lockstep_function::{
    StateClass,
    aggregate::{self, AggregateFunction},
};
use lockstep_row::DataType;

use super::{constructs::ConstructCounts, rows::LongWindowColumns};
use crate::{
    l3::draw::over_our_columns,
    oracle::{
        Excludes, FrameEnd, Item, OracleMode, OracleQuery, OracleTable, OracleWindow,
        fold::{Function, OracleCondition, Plain},
    },
    random::Random,
    scenario::{EVENT_TIME, FIRST_VALUE, ID, Indexes, KEY, SECOND_KEY, Scenario, script},
};

/// A query over long windows.
#[derive(Debug)]
pub struct LongWindowQuery {
    /// The tables, with their rows, and what the oracle computes of the query.
    pub model: Scenario,
    /// The whole query. Its first columns are those of the oracle.
    pub sql: String,
    /// Whether the oracle computes what the query does.
    pub is_modelled: bool,
    /// Whether it is a GROUP BY, whose rows are in order of arrival.
    pub is_group: bool,
}

/// Draws a query over a main table and, for a window union, another one.
pub fn query(
    columns: &LongWindowColumns,
    random: &mut Random,
    counts: &mut ConstructCounts,
) -> LongWindowQuery {
    if random.chance(25) {
        return group(columns, random, counts);
    }
    let windows = windows(random, counts);
    let mut items = vec![Item::Column(ID)];
    let mut examples = Vec::new();
    for window in 0..windows.len() {
        for _ in 0..1 + random.below(2) {
            items.push(Item::Call { window, function: modelled(columns, random, counts) });
        }
        for _ in 0..1 + random.below(3) {
            examples.push(format!("{} OVER w{window}", example(random, counts)));
        }
    }
    let model = model(columns, windows, items);
    let sql = write(&model, &examples);
    LongWindowQuery { model, sql, is_modelled: true, is_group: false }
}

/// Makes the tables, and what the oracle computes.
fn model(columns: &LongWindowColumns, windows: Vec<OracleWindow>, items: Vec<Item>) -> Scenario {
    let table = |name: &str| OracleTable {
        name: name.to_owned(),
        columns: columns.clone(),
        rows: Vec::new(),
    };
    let query = OracleQuery { mode: OracleMode::Standard, joins: Vec::new(), windows, items };
    let tables = vec![table("t1"), table("u0")];
    Scenario { tables, query, indexes: Indexes::None, chunk_rows: 2, is_deployed: true }
}

/// Draws a GROUP BY: for a request, a window over all rows with its keys, in order of arrival.
fn group(
    columns: &LongWindowColumns,
    random: &mut Random,
    counts: &mut ConstructCounts,
) -> LongWindowQuery {
    counts.note("GROUP BY");
    let keys =
        random.pick(&[vec![KEY], vec![KEY], vec![SECOND_KEY], vec![KEY, SECOND_KEY]]).clone();
    let window = OracleWindow {
        partition_by: keys.clone(),
        order_by: None,
        is_range: false,
        start: FrameEnd::Unbounded,
        end: FrameEnd::CurrentRow,
        max_size: None,
        excludes: Excludes::default(),
        unions: Vec::new(),
    };
    let mut items: Vec<Item> = keys.iter().map(|key| Item::Column(*key)).collect();
    // Without values of rows at a position nothing depends on the order.
    let has_order = random.chance(50);
    for _ in 0..1 + random.below(3) {
        let function = loop {
            let function = modelled(columns, random, counts);
            let is_ordered = matches!(
                function,
                Function::FirstValue(_) | Function::LastValue(_) | Function::Lag { .. }
            );
            if has_order || !is_ordered {
                break function;
            }
        };
        items.push(Item::Call { window: 0, function });
    }
    let examples = if has_order { 1 + random.below(3) } else { 0 };
    let examples: Vec<String> = (0..examples).map(|_| example(random, counts)).collect();
    let is_filtered = random.chance(15);
    let model = model(columns, vec![window], items);
    let filter = if is_filtered {
        counts.note("GROUP BY with WHERE");
        "\nWHERE id < 40 OR id > 90"
    } else {
        ""
    };
    let of_model = model.query.items.iter().map(|item| match item {
        Item::Column(column) => columns[*column].0.clone(),
        Item::Call { function, .. } => script::call(&model, function),
    });
    let items = select_list(of_model.chain(examples));
    let keys: Vec<&str> = keys.iter().map(|key| columns[*key].0.as_str()).collect();
    let sql = format!("SELECT {items}\nFROM t1{filter}\nGROUP BY {}", keys.join(", "));
    LongWindowQuery { model, sql, is_modelled: !is_filtered, is_group: true }
}

/// Names the items of a select list.
fn select_list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> =
        items.enumerate().map(|(at, item)| format!("{item} AS c{at}")).collect();
    items.join(",\n  ")
}

/// Writes the query: first the columns that the oracle computes, then the examples.
fn write(model: &Scenario, examples: &[String]) -> String {
    let of_model = model.query.items.iter().map(|item| match item {
        Item::Column(column) => model.tables[0].columns[*column].0.clone(),
        Item::Call { window, function } => {
            format!("{} OVER w{window}", script::call(model, function))
        }
    });
    let items = select_list(of_model.chain(examples.iter().cloned()));
    let windows = model.query.windows.iter().enumerate();
    let windows: Vec<String> = windows
        .map(|(at, window)| format!("w{at} AS ({})", script::window_spec(model, window)))
        .collect();
    format!("SELECT {items}\nFROM t1\nWINDOW {}", windows.join(",\n  "))
}

fn windows(random: &mut Random, counts: &mut ConstructCounts) -> Vec<OracleWindow> {
    let count = *random.pick(&[1, 1, 2, 3]);
    counts.note(if count == 1 { "one window" } else { "several windows" });
    let mut windows: Vec<OracleWindow> = vec![window(random, counts)];
    while windows.len() < count {
        let mut next = window(random, counts);
        if random.chance(70) {
            let first = &windows[0];
            next.partition_by.clone_from(&first.partition_by);
            next.unions.clone_from(&first.unions);
            next.excludes.main_rows = first.excludes.main_rows;
            counts.note("windows that share a scan");
        }
        windows.push(next);
    }
    windows
}

fn window(random: &mut Random, counts: &mut ConstructCounts) -> OracleWindow {
    let partition_by =
        random.pick(&[vec![KEY], vec![KEY], vec![SECOND_KEY], vec![KEY, SECOND_KEY]]).clone();
    let mut drawn = |percent: usize, construct: &'static str| {
        let is_drawn = random.chance(percent);
        if is_drawn {
            counts.note(construct);
        }
        is_drawn
    };
    let has_union = drawn(25, "WINDOW UNION");
    let excludes = Excludes {
        current_row: drawn(15, "EXCLUDE CURRENT_ROW"),
        current_time: drawn(15, "EXCLUDE CURRENT_TIME"),
        main_rows: has_union && drawn(25, "INSTANCE_NOT_IN_WINDOW"),
    };
    let is_range = random.chance(60);
    counts.note(if is_range { "ROWS_RANGE" } else { "ROWS" });
    if partition_by.len() > 1 {
        counts.note("two columns");
    }
    let (start, end) = frame(is_range, random, counts);
    let max_size = (is_range && random.chance(25)).then(|| *random.pick(&[1, 7, 40, 90, 1_000]));
    if max_size.is_some() {
        counts.note("MAXSIZE");
    }
    let unions = if has_union { vec![1] } else { Vec::new() };
    OracleWindow {
        partition_by,
        order_by: Some(EVENT_TIME),
        is_range,
        start,
        end,
        max_size,
        excludes,
        unions,
    }
}

/// Draws the two ends of a frame.
fn frame(
    is_range: bool,
    random: &mut Random,
    counts: &mut ConstructCounts,
) -> (FrameEnd, FrameEnd) {
    const FAR_MS: [i64; 9] =
        [999, 5_000, 20_000, 60_000, 60_001, 100_000, 200_000, 600_000, 86_400_000];
    const FAR_ROWS: [i64; 8] = [3, 10, 25, 40, 80, 150, 300, 5_000];
    const NEAR_MS: [i64; 5] = [1, 1_000, 7_000, 30_000, 90_000];
    const NEAR_ROWS: [i64; 4] = [1, 4, 15, 50];
    let (far, near) = if is_range {
        (*random.pick(&FAR_MS), *random.pick(&NEAR_MS))
    } else {
        (*random.pick(&FAR_ROWS), *random.pick(&NEAR_ROWS))
    };
    let end = match random.below(10) {
        0..=1 if near < far => FrameEnd::Preceding(near),
        2 if near < far => FrameEnd::OpenPreceding(near),
        _ => FrameEnd::CurrentRow,
    };
    if end != FrameEnd::CurrentRow {
        counts.note("a frame that ends before the current row");
    }
    let is_wide = end == FrameEnd::CurrentRow || far > near + 2;
    let start = match random.below(10) {
        0..=3 => FrameEnd::Unbounded,
        4..=5 if is_wide => FrameEnd::OpenPreceding(far),
        _ => FrameEnd::Preceding(far),
    };
    if start == FrameEnd::Unbounded {
        counts.note("UNBOUNDED PRECEDING");
    }
    if [start, end].iter().any(|end| matches!(end, FrameEnd::OpenPreceding(_))) {
        counts.note("OPEN PRECEDING");
    }
    (start, end)
}

/// Draws an example of the declaration of a function.
fn example(random: &mut Random, counts: &mut ConstructCounts) -> String {
    let functions: Vec<&AggregateFunction> = aggregate::all().collect();
    let function = loop {
        let function = *random.pick(&functions);
        // A call whose state is the rows keeps its whole scan from having nodes.
        if !matches!(function.class, StateClass::Rows(_)) || random.chance(20) {
            break function;
        }
    };
    counts.note(function.name);
    let (example, _) = *random.pick(function.examples);
    over_our_columns(example)
}

/// Draws a call that the oracle computes.
fn modelled(
    columns: &LongWindowColumns,
    random: &mut Random,
    counts: &mut ConstructCounts,
) -> Function {
    let column = FIRST_VALUE + random.below(columns.len() - FIRST_VALUE);
    let data_type = &columns[column].1;
    let plain = *random.pick(&[Plain::Count, Plain::Sum, Plain::Avg, Plain::Min, Plain::Max]);
    let condition = OracleCondition {
        column: FIRST_VALUE,
        is_greater: random.chance(50),
        constant: i32::try_from(random.below(5)).expect("a small number") - 2,
    };
    let size = random.below(4);
    let is_number = data_type.is_number();
    let takes = match plain {
        Plain::Count => true,
        Plain::Sum | Plain::Avg => is_number,
        Plain::Min | Plain::Max => *data_type != DataType::Bool,
    };
    let (name, function) = match random.below(10) {
        0..=2 if takes => (script::plain_name(plain), Function::Plain(plain, column)),
        3 | 4 if plain == Plain::Count || is_number => {
            (where_name(plain), Function::Where(plain, column, condition))
        }
        5 if data_type.is_integer() => ("top", Function::Top(column, size + 1)),
        6 if data_type.is_integer() || *data_type == DataType::String => {
            ("topn_frequency", Function::TopFrequency(column, size + 1))
        }
        6 | 7 if data_type.is_integer() => ("median", Function::Median(column)),
        0 | 3 | 8 => ("distinct_count", Function::DistinctCount(column)),
        1 | 5 => ("first_value", Function::FirstValue(column)),
        2 | 6 => ("last_value", Function::LastValue(column)),
        4 => ("lag", Function::Lag { column, offset: size }),
        _ => ("count", Function::CountRows),
    };
    counts.note(name);
    function
}

fn where_name(plain: Plain) -> &'static str {
    match plain {
        Plain::Count => "count_where",
        Plain::Sum => "sum_where",
        Plain::Avg => "avg_where",
        Plain::Min => "min_where",
        Plain::Max => "max_where",
    }
}
