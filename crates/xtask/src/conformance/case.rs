//! One record of the conformance data, read from JSON into typed values.
//!
//! The format is described in the data's README. A record that cannot be read is a defect of the
//! data or of this file, and stops the run.

use std::{borrow::Cow, collections::BTreeMap, fs, path::Path};

use lockstep_row::{DataType, Value};
use serde_json::Value as Json;

/// Days from the civil calendar's day 0000-03-01 to the epoch.
const EPOCH_DAY: i64 = 719_468;

/// A case: tables, statements, and the expected results.
#[derive(Debug, Clone)]
pub(crate) struct ConformanceCase {
    pub(crate) id: String,
    pub(crate) area: String,
    pub(crate) kind: String,
    /// The modes as the record names them.
    pub(crate) modes: Vec<String>,
    pub(crate) database: String,
    pub(crate) inputs: Vec<CaseInput>,
    pub(crate) statements: Vec<String>,
    /// The request rows of batch-request mode, when they are not rows of the request table.
    pub(crate) batch_request: Option<CaseInput>,
    /// The values for `?`.
    pub(crate) parameters: Option<CaseInput>,
    pub(crate) long_windows: Option<String>,
    pub(crate) deployment: String,
    /// Statements with their expected results; the first one is the deployment's query.
    pub(crate) steps: Vec<CaseStep>,
    pub(crate) expectation: Expectation,
    /// Expectations that differ by mode.
    pub(crate) expectation_by_mode: BTreeMap<String, Expectation>,
    /// Whether only OpenMLDB's cluster tests run it, which compare numbers loosely and insert rows
    /// as SQL text.
    pub(crate) is_loose: bool,
    /// The record, if cells of it are relative to the current time.
    timed_record: Option<Json>,
}

/// A table to create and fill.
#[derive(Debug, Clone)]
pub(crate) struct CaseInput {
    pub(crate) name: String,
    pub(crate) database: Option<String>,
    pub(crate) columns: Vec<(String, DataType)>,
    /// The statement that creates it; `None` when the case's own statements do.
    pub(crate) create: Option<String>,
    pub(crate) rows: Vec<Vec<Value>>,
    /// Statements that fill it, instead of `rows`.
    pub(crate) inserts: Vec<String>,
    /// Values for the `?` of `inserts`, one row for each run, as texts of the columns' types.
    pub(crate) insert_values: Vec<Vec<Json>>,
    /// The number of times each row is inserted.
    pub(crate) repeat: usize,
}

/// A statement and its expected result.
#[derive(Debug, Clone)]
pub(crate) struct CaseStep {
    pub(crate) statement: String,
    pub(crate) expectation: Expectation,
}

/// An expected result.
#[derive(Debug, Clone)]
pub(crate) struct Expectation {
    pub(crate) is_success: bool,
    /// `None`: not checked.
    pub(crate) columns: Option<Vec<(String, DataType)>>,
    /// Cells as written; their types are the columns'. `None`: not checked.
    pub(crate) rows: Option<Vec<Vec<Json>>>,
    /// The column by which both sides are sorted.
    pub(crate) order: Option<String>,
    pub(crate) count: Option<usize>,
    /// Checks on objects of the database, by the record's own names.
    pub(crate) object_checks: Vec<(String, Json)>,
    /// The time at which the record was read, for `$now_ms`.
    pub(crate) now_ms: i64,
}

/// Reads every record of a folder, the files by name. `area` is the file's name.
pub(crate) fn read_folder(folder: &Path, now_ms: i64) -> Result<Vec<ConformanceCase>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let area = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let text = fs::read_to_string(&file).map_err(|error| format!("{file:?}: {error}"))?;
        for (index, line) in text.lines().filter(|line| !line.trim().is_empty()).enumerate() {
            let record = serde_json::from_str(line).map_err(|error| error.to_string());
            let case =
                record.and_then(|json: Json| ConformanceCase::read(&json, area.as_deref(), now_ms));
            cases.push(case.map_err(|error| format!("{}:{}: {error}", file.display(), index + 1))?);
        }
    }
    Ok(cases)
}

impl ConformanceCase {
    fn read(json: &Json, area: Option<&str>, now_ms: i64) -> Result<Self, String> {
        let expectation = Expectation::read(&json["expect"], now_ms)?;
        let mut expectation_by_mode = BTreeMap::new();
        for (mode, expect) in json["expect_by_mode"].as_object().into_iter().flatten() {
            expectation_by_mode.insert(mode.clone(), Expectation::read(expect, now_ms)?);
        }
        let is_loose = texts(&json["run_by"]) == ["java"];
        let input = |json: &Json| -> Result<CaseInput, String> {
            let mut input = CaseInput::read(json, now_ms)?;
            if is_loose {
                input.resolve_escapes();
            }
            Ok(input)
        };
        Ok(Self {
            id: text(json, "id").ok_or("a record without an id")?,
            area: text(json, "area").or(area.map(str::to_owned)).unwrap_or_default(),
            kind: text(json, "kind").ok_or("a record without a kind")?,
            modes: texts(&json["modes"]),
            database: text(json, "db").unwrap_or_else(|| "db".to_owned()),
            inputs: items(&json["inputs"]).iter().map(input).collect::<Result<_, _>>()?,
            statements: texts(&json["sqls"]),
            batch_request: object(&json["batch_request"]).map(input).transpose()?,
            parameters: object(&json["parameters"]).map(input).transpose()?,
            long_windows: text(json, "long_windows"),
            deployment: text(json, "deployment_name").unwrap_or_else(|| "deployment".to_owned()),
            steps: items(&json["steps"])
                .iter()
                .map(|step| CaseStep::read(step, now_ms))
                .collect::<Result<_, _>>()?,
            expectation,
            expectation_by_mode,
            is_loose,
            timed_record: json.to_string().contains("$now_ms").then(|| json.clone()),
        })
    }

    /// Returns the case with times relative to `now_ms`, if it has such times.
    pub(crate) fn as_of(&self, now_ms: i64) -> Cow<'_, Self> {
        match &self.timed_record {
            None => Cow::Borrowed(self),
            Some(record) => Cow::Owned(
                Self::read(record, Some(&self.area), now_ms).expect("it was read once already"),
            ),
        }
    }

    /// Returns the expected result in a mode.
    pub(crate) fn expectation_in(&self, mode: &str) -> &Expectation {
        let mode = if mode == "offline" { "batch" } else { mode };
        self.expectation_by_mode.get(mode).unwrap_or(&self.expectation)
    }
}

impl CaseInput {
    fn read(json: &Json, now_ms: i64) -> Result<Self, String> {
        let columns = columns(&json["columns"])?;
        let row = |row: &Json| -> Result<Vec<Value>, String> {
            let cells = items(row).iter().zip(&columns);
            cells.map(|(cell, (_, data_type))| typed(cell, data_type, now_ms)).collect()
        };
        let rows = items(&json["rows"]).iter().map(row).collect::<Result<_, _>>()?;
        let is_unrolled = json["repeat_applied"].as_bool() == Some(true);
        let repeat = if is_unrolled { 1 } else { json["repeat"].as_u64().unwrap_or(1) };
        Ok(Self {
            name: text(json, "name").unwrap_or_default(),
            database: text(json, "db"),
            rows,
            create: text(json, "create").or_else(|| made_create(json)),
            insert_values: match columns.is_empty() {
                true => items(&json["rows"]).iter().map(|row| items(row).to_vec()).collect(),
                false => Vec::new(),
            },
            inserts: texts(&json["inserts"]),
            repeat: usize::try_from(repeat).map_err(|error| error.to_string())?,
            columns,
        })
    }

    /// Reads the texts of the rows as literals of SQL.
    fn resolve_escapes(&mut self) {
        for value in self.rows.iter_mut().flatten() {
            if let Value::String(text) = value {
                *text = unescaped(text).into();
            }
        }
    }

    /// Returns the rows, each as often as it is inserted.
    pub(crate) fn repeated_rows(&self) -> Vec<Vec<Value>> {
        self.rows.iter().flat_map(|row| std::iter::repeat_n(row, self.repeat)).cloned().collect()
    }

    /// Returns its name in a statement.
    pub(crate) fn quoted_name(&self) -> String {
        match &self.database {
            Some(database) => format!("`{database}`.`{}`", self.name),
            None => format!("`{}`", self.name),
        }
    }

    /// Returns the name that its rows are appended to.
    pub(crate) fn qualified_name(&self) -> String {
        match &self.database {
            Some(database) => format!("{database}.{}", self.name),
            None => self.name.clone(),
        }
    }
}

impl CaseStep {
    fn read(json: &Json, now_ms: i64) -> Result<Self, String> {
        Ok(Self {
            statement: text(json, "sql").ok_or("a step without a statement")?,
            expectation: Expectation::read(&json["expect"], now_ms)?,
        })
    }
}

impl Expectation {
    fn read(json: &Json, now_ms: i64) -> Result<Self, String> {
        /// The keys that this runner compares.
        const COMPARED: &[&str] = &["success", "columns", "rows", "order", "count", "msg", "code"];
        const IGNORED: &[&str] =
            &["has_node_tree_str", "has_plan_tree_str", "common_column_indices", "json"];
        let is_object = |key: &str| !COMPARED.contains(&key) && !IGNORED.contains(&key);
        let entries = json.as_object().into_iter().flatten();
        let object_checks = entries
            .filter(|(key, _)| is_object(key))
            .map(|(key, expected)| (key.clone(), expected.clone()));
        let rows = json["rows"].as_array();
        let count = json["count"].as_u64();
        Ok(Self {
            is_success: json["success"].as_bool().unwrap_or(true),
            columns: match &json["columns"] {
                Json::Array(_) => Some(columns(&json["columns"])?),
                _ => None,
            },
            rows: rows.map(|rows| rows.iter().map(|row| items(row).to_vec()).collect()),
            order: text(json, "order"),
            count: count.map(|count| usize::try_from(count).expect("a count of rows in a file")),
            object_checks: object_checks.collect(),
            now_ms,
        })
    }
}

/// Reads a cell as a value of a column's type. A cell whose text does not fit stays a text, which
/// is then of the wrong type for the column.
pub(crate) fn typed(cell: &Json, data_type: &DataType, now_ms: i64) -> Result<Value, String> {
    let misfit = || format!("cell {cell} does not fit {data_type}");
    if cell.is_null() {
        return Ok(Value::Null);
    }
    if let Some(raw) = cell["$raw"].as_str() {
        return Ok(Value::String(raw.into()));
    }
    let integer = match cell["$now_ms"].as_i64() {
        Some(offset) => Some(now_ms + offset),
        None => cell.as_i64().or_else(|| cell.as_str().and_then(|text| text.parse().ok())),
    };
    let value = match data_type {
        DataType::Bool => cell.as_bool().map(Value::Bool),
        DataType::SmallInt => integer.and_then(|i| i16::try_from(i).ok()).map(Value::SmallInt),
        DataType::Int => integer.and_then(|i| i32::try_from(i).ok()).map(Value::Int),
        DataType::BigInt => integer.map(Value::BigInt),
        DataType::Timestamp => integer.map(Value::Timestamp),
        DataType::Float => number(cell).map(|value| Value::Float(value.0)),
        DataType::Double => number(cell).map(|value| Value::Double(value.1)),
        DataType::String => cell.as_str().map(|text| Value::String(text.into())),
        DataType::Date => cell.as_str().and_then(day).map(Value::Date),
        DataType::Null | DataType::Array(_) | DataType::Map(..) => None,
    };
    value.ok_or_else(misfit)
}

/// Removes the escapes of a text: a backslash is replaced by the character after it.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.extend(characters.next().map(|escaped| match escaped {
                'n' => '\n',
                't' => '\t',
                other => other,
            })),
            other => out.push(other),
        }
    }
    out
}

/// Reads a number cell as FLOAT and as DOUBLE, each rounded once from the decimal text.
fn number(cell: &Json) -> Option<(f32, f64)> {
    let text = match cell {
        Json::Number(number) => number.to_string(),
        Json::String(text) => text.clone(),
        _ => return None,
    };
    Some((text.parse().ok()?, text.parse().ok()?))
}

/// Parses `yyyy-mm-dd` as days since the epoch.
fn day(text: &str) -> Option<i32> {
    let mut parts = text.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH_DAY;
    i32::try_from(days).ok()
}

fn columns(json: &Json) -> Result<Vec<(String, DataType)>, String> {
    let column = |column: &Json| -> Result<(String, DataType), String> {
        let name = text(column, "name").ok_or("a column without a name")?;
        let type_name = text(column, "type").ok_or("a column without a type")?;
        Ok((name, data_type(&type_name)?))
    };
    items(json).iter().map(column).collect()
}

fn data_type(name: &str) -> Result<DataType, String> {
    if let Some(inner) = name.strip_prefix("map<").and_then(|rest| rest.strip_suffix('>')) {
        let (key, value) = inner.split_once(',').ok_or("a map has two types")?;
        return Ok(DataType::Map(
            Box::new(data_type(key.trim())?),
            Box::new(data_type(value.trim())?),
        ));
    }
    DataType::from_name(name).ok_or_else(|| format!("type {name} does not exist"))
}

/// Returns the CREATE TABLE of the data. A list of keys that the data quotes as one name is
/// corrected: `` KEY=`c1,c2` `` is `KEY=(c1,c2)`.
fn made_create(json: &Json) -> Option<String> {
    let mut create = text(json, "create_sql")?;
    for index in items(&json["indexes"]) {
        for keys in texts(&index["keys"]).iter().filter(|keys| keys.contains(',')) {
            create = create.replace(&format!("`{keys}`"), &format!("({keys})"));
        }
    }
    Some(create)
}

fn object(json: &Json) -> Option<&Json> {
    json.is_object().then_some(json)
}

fn items(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}

fn text(json: &Json, key: &str) -> Option<String> {
    json[key].as_str().map(str::to_owned)
}

fn texts(json: &Json) -> Vec<String> {
    items(json).iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use lockstep_row::{DataType, Value};
    use serde_json::json;

    use super::{day, typed};

    #[test]
    fn a_cell_is_read_as_its_columns_type() {
        let check = |cell, data_type, expected| {
            assert_eq!(typed(&cell, &data_type, 1_000), Ok(expected));
        };
        check(json!(1), DataType::SmallInt, Value::SmallInt(1));
        check(json!(1), DataType::Double, Value::Double(1.0));
        check(json!(1.1), DataType::Float, Value::Float(1.1));
        check(json!("Infinity"), DataType::Float, Value::Float(f32::INFINITY));
        check(json!({"$now_ms": -1}), DataType::Timestamp, Value::Timestamp(999));
        check(json!("1"), DataType::BigInt, Value::BigInt(1));
        check(json!({"$raw": "x"}), DataType::Int, Value::String("x".into()));
        check(json!(null), DataType::Date, Value::Null);
        assert!(typed(&json!(40_000), &DataType::SmallInt, 0).is_err());
        assert!(typed(&json!("a"), &DataType::Int, 0).is_err());
    }

    #[test]
    fn escapes_stand_for_characters() {
        assert_eq!(super::unescaped(r"\\\%a\n"), "\\%a\n");
    }

    #[test]
    fn a_list_of_keys_is_no_name() {
        let json = json!({
            "create_sql": "CREATE TABLE t (a INT, INDEX(KEY=`a,b`))",
            "indexes": [{"keys": ["a,b"]}],
        });
        let expected = Some("CREATE TABLE t (a INT, INDEX(KEY=(a,b)))".to_owned());
        assert_eq!(super::made_create(&json), expected);
    }

    #[test]
    fn dates_count_from_the_epoch() {
        assert_eq!(day("1970-01-01"), Some(0));
        assert_eq!(day("1969-12-31"), Some(-1));
        assert_eq!(day("2020-02-29"), Some(18_321));
        assert_eq!(day("2020-03-01"), Some(18_322));
        assert_eq!(day("soon"), None);
    }
}
