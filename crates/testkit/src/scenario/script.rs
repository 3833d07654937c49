//! Writes a scenario as a script for the shell.

use std::fmt::Write as _;

use lockstep_row::{DataType, Value};

use super::{EVENT_TIME, Indexes, KEY, SECOND_KEY, Scenario};
use crate::oracle::{
    FrameEnd, Item, OracleJoin, OracleMode, OracleTable, OracleWindow,
    fold::{Function, OracleCondition, Plain},
};

/// Milliseconds of a second.
const SECOND_MS: i64 = 1_000;

/// The statement that turns the compatibility setting on.
pub const SET_OPENMLDB: &str = "SET compatibility = 'openmldb'";

/// Writes the tables, their rows and the query.
pub fn script(scenario: &Scenario) -> String {
    let deployed = if scenario.is_deployed { ", deployed before the rows" } else { "" };
    let mut text = format!("-- chunks of {} rows{deployed}\n", scenario.chunk_rows);
    if scenario.query.mode == OracleMode::OpenMldb {
        let _ = writeln!(text, "{SET_OPENMLDB};");
    }
    for table in &scenario.tables {
        text.push_str(&create(scenario, table));
        text.push('\n');
        if !table.rows.is_empty() {
            let rows: Vec<String> = table.rows.iter().map(|row| tuple(row, table)).collect();
            let _ = writeln!(text, "INSERT INTO {} VALUES\n  {};", table.name, rows.join(",\n  "));
        }
    }
    text.push_str(&query(scenario));
    text.push_str(";\n");
    text
}

/// Writes the CREATE TABLE of one table.
pub fn create(scenario: &Scenario, table: &OracleTable) -> String {
    let columns: Vec<String> =
        table.columns.iter().map(|(name, data_type)| format!("{name} {data_type}")).collect();
    let name = |column: usize| &table.columns[column].0;
    let (key, second, time) = (name(KEY), name(SECOND_KEY), name(EVENT_TIME));
    let index = match scenario.indexes {
        Indexes::None => String::new(),
        Indexes::One => format!(", INDEX(KEY={key}, TS={time})"),
        Indexes::Several => format!(
            ", INDEX(KEY={key}, TS={time}), INDEX(KEY=({second}, {key}), TS={time}), \
             INDEX(KEY={second})"
        ),
    };
    format!("CREATE TABLE {} ({}{index});", table.name, columns.join(", "))
}

/// Writes the SELECT.
pub fn query(scenario: &Scenario) -> String {
    let query = &scenario.query;
    let items: Vec<String> = query
        .items
        .iter()
        .enumerate()
        .map(|(index, item)| match item {
            Item::Column(column) => format!("{} AS c{index}", column_name(scenario, *column)),
            Item::Call { window, function } => {
                format!("{} OVER w{window} AS c{index}", call(scenario, function))
            }
        })
        .collect();
    let mut text = format!("SELECT {}\nFROM t1", items.join(",\n  "));
    for join in &query.joins {
        text.push_str(&last_join(scenario, join));
    }
    for (index, window) in query.windows.iter().enumerate() {
        let separator = if index == 0 { "\nWINDOW" } else { ",\n " };
        let _ = write!(text, "{separator} w{index} AS ({})", window_spec(scenario, window));
    }
    text
}

/// Writes one function call, without its window.
pub fn call(scenario: &Scenario, function: &Function) -> String {
    let name = |column: &usize| column_name(scenario, *column);
    match function {
        Function::CountRows => "count(*)".to_owned(),
        Function::Plain(plain, column) => format!("{}({})", plain_name(*plain), name(column)),
        Function::Where(plain, column, condition) => format!(
            "{}_where({}, {})",
            plain_name(*plain),
            name(column),
            comparison(scenario, *condition)
        ),
        Function::DistinctCount(column) => format!("distinct_count({})", name(column)),
        Function::FirstValue(column) => format!("first_value({})", name(column)),
        Function::LastValue(column) => format!("last_value({})", name(column)),
        Function::Lag { column, offset } => format!("lag({}, {offset})", name(column)),
        Function::Top(column, size) => format!("top({}, {size})", name(column)),
        Function::TopFrequency(column, size) => {
            format!("topn_frequency({}, {size})", name(column))
        }
        Function::Median(column) => format!("median({})", name(column)),
        Function::Unmodelled { name: function, column, rest } => {
            format!("{function}({}{rest})", name(column))
        }
    }
}

/// Returns the name of an aggregate.
pub fn plain_name(plain: Plain) -> &'static str {
    match plain {
        Plain::Count => "count",
        Plain::Sum => "sum",
        Plain::Avg => "avg",
        Plain::Min => "min",
        Plain::Max => "max",
    }
}

fn comparison(scenario: &Scenario, condition: OracleCondition) -> String {
    let operator = if condition.is_greater { ">" } else { "<=" };
    format!("{} {operator} {}", column_name(scenario, condition.column), condition.constant)
}

/// Returns the qualified name of a column of the joined row.
fn column_name(scenario: &Scenario, column: usize) -> String {
    let width = scenario.columns().len();
    let table = match column.checked_div(width) {
        Some(0) | None => &scenario.tables[0],
        Some(join) => &scenario.tables[scenario.query.joins[join - 1].table],
    };
    format!("{}.{}", table.name, table.columns[column % width].0)
}

fn last_join(scenario: &Scenario, join: &OracleJoin) -> String {
    let table = &scenario.tables[join.table];
    let right = |column: usize| format!("{}.{}", table.name, table.columns[column].0);
    let mut text = format!("\nLAST JOIN {}", table.name);
    if let Some(order_by) = join.order_by {
        let _ = write!(text, " ORDER BY {}", right(order_by));
    }
    let mut conditions: Vec<String> = join
        .keys
        .iter()
        .map(|(left, key)| format!("{} = {}", column_name(scenario, *left), right(*key)))
        .collect();
    if let (Some(order_by), Some(bound)) = (join.order_by, join.bound) {
        let operator = if bound.is_inclusive { "<=" } else { "<" };
        let left = column_name(scenario, bound.left);
        conditions.push(format!("{} {operator} {left}", right(order_by)));
    }
    if let Some((less, left)) = join.less {
        conditions.push(format!("{} < {}", right(less), column_name(scenario, left)));
    }
    let _ = write!(text, " ON {}", conditions.join(" AND "));
    text
}

/// Writes the specification of a window, without its parentheses.
pub fn window_spec(scenario: &Scenario, window: &OracleWindow) -> String {
    let mut text = String::new();
    let unions: Vec<&str> =
        window.unions.iter().map(|table| scenario.tables[*table].name.as_str()).collect();
    if !unions.is_empty() {
        let _ = write!(text, "UNION {} ", unions.join(", "));
    }
    let keys: Vec<String> =
        window.partition_by.iter().map(|column| column_name(scenario, *column)).collect();
    if !keys.is_empty() {
        let _ = write!(text, "PARTITION BY {} ", keys.join(", "));
    }
    if let Some(order_by) = window.order_by {
        let _ = write!(text, "ORDER BY {} ", column_name(scenario, order_by));
    }
    let unit = if window.is_range { "ROWS_RANGE" } else { "ROWS" };
    let start = end(window.start, window.is_range);
    let _ = write!(text, "{unit} BETWEEN {start} AND {}", end(window.end, window.is_range));
    if let Some(max_size) = window.max_size {
        let _ = write!(text, " MAXSIZE {max_size}");
    }
    for (is_set, name) in [
        (window.excludes.current_time, " EXCLUDE CURRENT_TIME"),
        (window.excludes.current_row, " EXCLUDE CURRENT_ROW"),
        (window.excludes.main_rows, " INSTANCE_NOT_IN_WINDOW"),
    ] {
        if is_set {
            text.push_str(name);
        }
    }
    text
}

fn end(end: FrameEnd, is_range: bool) -> String {
    let distance = |distance: i64| {
        if is_range && distance > 0 && distance % SECOND_MS == 0 {
            format!("{}s", distance / SECOND_MS)
        } else {
            distance.to_string()
        }
    };
    match end {
        FrameEnd::Unbounded => "UNBOUNDED PRECEDING".to_owned(),
        FrameEnd::Preceding(rows) => format!("{} PRECEDING", distance(rows)),
        FrameEnd::OpenPreceding(rows) => format!("{} OPEN PRECEDING", distance(rows)),
        FrameEnd::CurrentRow => "CURRENT ROW".to_owned(),
        FrameEnd::Following(rows) => format!("{} FOLLOWING", distance(rows)),
        FrameEnd::OpenFollowing(rows) => format!("{} OPEN FOLLOWING", distance(rows)),
        FrameEnd::UnboundedFollowing => "UNBOUNDED FOLLOWING".to_owned(),
    }
}

fn tuple(row: &[Value], table: &OracleTable) -> String {
    let literals: Vec<String> = row
        .iter()
        .zip(&table.columns)
        .map(|(value, (_, data_type))| literal(value, data_type))
        .collect();
    format!("({})", literals.join(", "))
}

/// Writes a value as a literal of the dialect, or as a cast where the dialect has no literal.
pub fn literal(value: &Value, data_type: &DataType) -> String {
    let float = |text: String| {
        let is_plain = text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            && text.contains(|c: char| c.is_ascii_digit());
        if is_plain { text } else { format!("CAST('{text}' AS {data_type})") }
    };
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::SmallInt(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::BigInt(value) | Value::Timestamp(value) => value.to_string(),
        Value::Float(value) => float(format!("{value:?}")),
        Value::Double(value) => float(format!("{value:?}")),
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        Value::Date(days) => format!("'{}'", date(*days)),
        Value::Array(_) | Value::Map(_) => panic!("tables hold no arrays and no maps here"),
    }
}

/// Formats days since the epoch as `yyyy-mm-dd`.
pub fn date(days: i32) -> String {
    let shifted = i64::from(days) + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use lockstep_row::{DataType, Value};

    use super::{date, literal};

    #[test]
    fn dates_count_from_the_epoch() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(-1), "1969-12-31");
        assert_eq!(date(18_321), "2020-02-29");
        assert_eq!(date(18_322), "2020-03-01");
    }

    #[test]
    fn values_without_a_literal_are_casts() {
        let check = |value: Value, data_type: DataType, expected: &str| {
            assert_eq!(literal(&value, &data_type), expected);
        };
        check(Value::Double(-0.0), DataType::Double, "-0.0");
        check(Value::Float(1.5), DataType::Float, "1.5");
        check(Value::Double(f64::NAN), DataType::Double, "CAST('NaN' AS DOUBLE)");
        check(Value::Float(f32::NEG_INFINITY), DataType::Float, "CAST('-inf' AS FLOAT)");
        check(Value::String("it's".into()), DataType::String, "'it\\'s'");
        check(Value::Null, DataType::Int, "NULL");
    }
}
