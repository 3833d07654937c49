//! Runs a scenario in the engine: in batch mode, and row by row in request mode.
//!
//! The three results are compared with the oracle, and bit by bit with each other.

use lockstep_engine::{Database, Session, set_chunk_rows};
use lockstep_row::Value;

use crate::{
    oracle::{self, Item, OracleMode, OracleRow, OracleTable, fold::Function, integer},
    rows::{of_output, to_batch},
    scenario::{EVENT_TIME, ID, Scenario, script, script::SET_OPENMLDB},
};

/// One row that is appended or requested.
#[derive(Debug, Clone, Copy)]
struct ReplayStep<'a> {
    table: usize,
    row: &'a OracleRow,
}

/// Compares oracle, batch mode and request mode. The error is a script for the shell and names the
/// values that differ.
pub fn check(scenario: &Scenario) -> Result<(), String> {
    let expected = oracle::evaluate(&scenario.query, &scenario.tables);
    let explain =
        |what: &str, error: String| format!("{}\n-- {what}: {error}", script::script(scenario));
    let batch = batch(scenario).map_err(|error| explain("batch mode", error))?;
    let requests = replay(scenario).map_err(|error| explain("replay in request mode", error))?;
    let last = request_last(scenario).map_err(|error| explain("the last row's request", error))?;
    let mut differences = Vec::new();
    differences.extend(compare(scenario, "oracle", &expected, "batch", &batch));
    differences.extend(compare(scenario, "oracle", &expected, "replay", &requests));
    differences.extend(compare(scenario, "batch", &batch, "replay", &requests));
    let batch_last = batch.last().cloned().into_iter().collect::<Vec<_>>();
    differences.extend(compare(scenario, "batch", &batch_last, "last request", &last));
    if differences.is_empty() {
        Ok(())
    } else {
        Err(explain("differences", format!("\n--   {}", differences.join("\n--   "))))
    }
}

/// Runs batch mode and returns its result, sorted by `id`.
pub(crate) fn batch(scenario: &Scenario) -> Result<Vec<OracleRow>, String> {
    let session = open(scenario)?;
    for table in &scenario.tables {
        append(&session, table, &table.rows)?;
    }
    let sql = script::query(scenario);
    let output = session.execute(&sql).map_err(|error| error.render(Some(&sql)))?;
    Ok(by_id(of_output(&output)))
}

/// Stores all rows but the last main row, and requests that.
fn request_last(scenario: &Scenario) -> Result<Vec<OracleRow>, String> {
    let session = open(scenario)?;
    deploy(&session, scenario)?;
    let (last, stored) = scenario.tables[0].rows.split_last().ok_or("the main table is empty")?;
    append(&session, &scenario.tables[0], stored)?;
    for table in &scenario.tables[1..] {
        append(&session, table, &table.rows)?;
    }
    request(&session, scenario, last)
}

/// Requests and then stores every main row in (event time, arrival) order; union rows are
/// stored before the main rows of their time, and right tables first.
fn replay(scenario: &Scenario) -> Result<Vec<OracleRow>, String> {
    let session = open(scenario)?;
    deploy(&session, scenario)?;
    let mut answers = Vec::new();
    for step in steps(scenario) {
        let table = &scenario.tables[step.table];
        if step.table == 0 {
            answers.extend(request(&session, scenario, step.row)?);
        }
        append(&session, table, std::slice::from_ref(step.row))?;
    }
    Ok(by_id(answers))
}

/// Stores all rows in the order in which they were drawn, deploys the query, and runs VERIFY: no
/// value may differ, and each main row must be replayed.
pub fn verify(scenario: &Scenario) -> Result<(), String> {
    let explain = |error: String| format!("{}\n-- verify: {error}", script::script(scenario));
    let session = open(scenario).map_err(explain)?;
    for table in &scenario.tables {
        append(&session, table, &table.rows).map_err(explain)?;
    }
    let render = |error: Box<lockstep_engine::Diagnostic>| explain(error.render(None));
    session.execute(&format!("DEPLOY d AS {}", script::query(scenario))).map_err(render)?;
    let found = session.verify("d").map_err(render)?;
    let rows = u64::try_from(scenario.tables[0].rows.len()).map_err(|error| error.to_string())?;
    if found.differing > 0 || found.requests != rows {
        return Err(explain(format!("{found:?}")));
    }
    Ok(())
}

fn steps(scenario: &Scenario) -> Vec<ReplayStep<'_>> {
    let of_table =
        |table: usize| scenario.tables[table].rows.iter().map(move |row| ReplayStep { table, row });
    let others = 1..scenario.tables.len();
    if !scenario.query.joins.is_empty() || !scenario.is_ordered() {
        let mut main: Vec<ReplayStep<'_>> = of_table(0).collect();
        if scenario.is_ordered() {
            main.sort_by_key(|step| integer(&step.row[EVENT_TIME]));
        }
        return others.flat_map(of_table).chain(main).collect();
    }
    let mut steps: Vec<ReplayStep<'_>> = others.flat_map(of_table).chain(of_table(0)).collect();
    steps.sort_by_key(|step| (integer(&step.row[EVENT_TIME]), step.table == 0));
    steps
}

pub(crate) fn open(scenario: &Scenario) -> Result<Session, String> {
    set_chunk_rows(scenario.chunk_rows);
    let session = Database::in_memory().session();
    if scenario.query.mode == OracleMode::OpenMldb {
        session.execute(SET_OPENMLDB).map_err(|error| error.render(None))?;
    }
    for table in &scenario.tables {
        let sql = script::create(scenario, table);
        session.execute(&sql).map_err(|error| error.render(Some(&sql)))?;
    }
    Ok(session)
}

/// Creates the deployment, if requests use one.
pub(crate) fn deploy(session: &Session, scenario: &Scenario) -> Result<(), String> {
    if !scenario.is_deployed {
        return Ok(());
    }
    let sql = format!("DEPLOY d AS {}", script::query(scenario));
    session.execute(&sql).map(drop).map_err(|error| error.render(Some(&sql)))
}

pub(crate) fn append(
    session: &Session,
    table: &OracleTable,
    rows: &[OracleRow],
) -> Result<(), String> {
    if rows.is_empty() {
        return Ok(());
    }
    let appended = session.append(&table.name, &[to_batch(&table.columns, rows)]);
    appended.map(|_| ()).map_err(|error| error.render(None))
}

pub(crate) fn request(
    session: &Session,
    scenario: &Scenario,
    row: &OracleRow,
) -> Result<Vec<OracleRow>, String> {
    let sql = if scenario.is_deployed { "d".to_owned() } else { script::query(scenario) };
    let row = to_batch(scenario.columns(), std::slice::from_ref(row));
    let answer = session.request(&sql, &[row]).map_err(|error| error.render(Some(&sql)))?;
    Ok(of_output(&answer))
}

/// Sorts by the first column of the result, which is the main row's `id`.
fn by_id(mut rows: Vec<OracleRow>) -> Vec<OracleRow> {
    rows.sort_by_key(|row| integer(&row[ID]));
    rows
}

/// Compares results; the error names the values that differ.
pub(crate) fn compare(
    scenario: &Scenario,
    left_name: &str,
    left: &[OracleRow],
    right_name: &str,
    right: &[OracleRow],
) -> Vec<String> {
    if left.len() != right.len() {
        return vec![format!("{left_name}: {} rows, {right_name}: {}", left.len(), right.len())];
    }
    let is_oracle = left_name == "oracle";
    let mut differences = Vec::new();
    for (left, right) in left.iter().zip(right) {
        for (column, item) in scenario.query.items.iter().enumerate() {
            let (Some(left_value), Some(right_value)) = (left.get(column), right.get(column))
            else {
                differences.push(format!("row {:?}: column {column} is missing", left[ID]));
                continue;
            };
            let has_no_model = is_oracle
                && matches!(item, Item::Call { function: Function::Unmodelled { .. }, .. });
            if !has_no_model && !is_same(left_value, right_value, is_oracle) {
                let text = match item {
                    Item::Column(_) => "a column".to_owned(),
                    Item::Call { function, window } => {
                        format!("{} OVER w{window}", script::call(scenario, function))
                    }
                };
                differences.push(format!(
                    "row {:?}, {text}: {left_name} {left_value:?}, {right_name} {right_value:?}",
                    left[ID]
                ));
            }
        }
    }
    differences
}

/// Returns whether two values have the same bits; the oracle's NaN equals every NaN.
pub(crate) fn is_same(left: &Value, right: &Value, is_oracle: bool) -> bool {
    let is_nan = |value: &Value| match value {
        Value::Float(value) => value.is_nan(),
        Value::Double(value) => value.is_nan(),
        _ => false,
    };
    if is_oracle && is_nan(left) && is_nan(right) {
        return left.as_scalar().map(|datum| datum.data_type())
            == right.as_scalar().map(|datum| datum.data_type());
    }
    match (left.as_scalar(), right.as_scalar()) {
        (Some(left), Some(right)) => left.is_bit_equal(&right),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use lockstep_row::Value;

    use super::is_same;

    #[test]
    fn a_difference_of_one_bit_is_seen() {
        let next = f64::from_bits(1.0_f64.to_bits() + 1);
        assert!(!is_same(&Value::Double(1.0), &Value::Double(next), true));
        assert!(!is_same(&Value::Double(0.0), &Value::Double(-0.0), true));
        assert!(!is_same(&Value::Int(1), &Value::BigInt(1), true));
        assert!(!is_same(&Value::Null, &Value::BigInt(0), true));
        assert!(is_same(&Value::Double(f64::NAN), &Value::Double(-f64::NAN), true));
        assert!(!is_same(&Value::Double(f64::NAN), &Value::Double(-f64::NAN), false));
    }
}
