//! The public entry points that take text, called with an input.
//!
//! [`super::run`] counts the calls by entry point. Every result is consumed: a relation is
//! collected, a prepared request answers rows, a deployment is requested and verified.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use arrow::{
    array::{NullArray, RecordBatch},
    datatypes::{DataType as ArrowType, Field, Schema, TimeUnit},
};
use lockstep_engine::{Database, Diagnostic, Kind, Parameter, PreparedRequest, Session};
use lockstep_row::{DataType, Datum, Value};
use lockstep_sql::{Parsed, ast::Statement, parse};

use super::{FuzzStage, TABLES, input::FuzzInput, stopwatch::Stopwatch};
use crate::{random::Random, rows::to_batch};

/// Every entry point, by name.
pub const ENTRIES: &[&str] = &[
    "sql::parse",
    "Session::execute",
    "Session::execute_with",
    "Session::prepare",
    "Session::execute_prepared",
    "Session::query",
    "Session::query_with",
    "Relation::collect",
    "Session::prepare_request",
    "Session::request",
    "Session::verify",
    "Session::deployment",
    "Session::append",
    "Session::appender",
    "Session::has_table",
    "Session::create_table",
    "Session::indexes",
    "Session::complete",
    "file",
];

/// The calls of entry points: how many of each, and which one took longest.
#[derive(Debug, Default)]
pub struct Calls {
    /// Calls by entry point.
    pub counts: BTreeMap<&'static str, u64>,
    running: Option<(&'static str, Stopwatch)>,
    longest: Longest,
}

/// The longest call: its counted milliseconds, and of which entry point.
pub type Longest = (u64, &'static str);

impl Calls {
    /// Records the begin of a call, which ends the one before it.
    pub fn begin(&mut self, entry: &'static str) {
        self.end();
        *self.counts.entry(entry).or_default() += 1;
        self.running = Some((entry, Stopwatch::start()));
    }

    /// Returns the longest call since the last time this was called.
    pub fn take_longest(&mut self) -> Longest {
        self.end();
        std::mem::take(&mut self.longest)
    }

    fn end(&mut self) {
        if let Some((entry, stopwatch)) = self.running.take() {
            self.longest = self.longest.max((stopwatch.counted_ms(), entry));
        }
    }
}

/// Most UNION branches of a query that is run: unions and joins multiply rows, which is no defect.
const UNIONS_MAX: usize = 8;

/// Most joins of a query that is run, other than LAST JOINs.
const JOINS_MAX: usize = 2;

/// Runs an input through every stage that accepts it, in a database of its own. The error is an
/// internal one.
pub fn exercise(
    input: &FuzzInput,
    random: &mut Random,
    calls: &mut Calls,
) -> Result<FuzzStage, String> {
    let session = Database::in_memory().session();
    session.execute(TABLES).map_err(|error| error.render(Some(TABLES)))?;
    let given = match input {
        FuzzInput::Sql { parameters, .. } => parameters.as_slice(),
        FuzzInput::Name(_) | FuzzInput::File { .. } => &[],
    };
    let mut entry = EntryPoint { session, random, calls, given };
    match input {
        FuzzInput::Sql { text, .. } => entry.sql(text),
        FuzzInput::Name(name) => entry.name(name),
        FuzzInput::File { content, statement } => entry.file(content, statement),
    }
}

struct EntryPoint<'a> {
    session: Session,
    random: &'a mut Random,
    calls: &'a mut Calls,
    /// The values that belong to the input's `?`.
    given: &'a [Parameter],
}

impl EntryPoint<'_> {
    fn count(&mut self, entry: &'static str) {
        debug_assert!(ENTRIES.contains(&entry), "{entry}");
        self.calls.begin(entry);
    }

    fn sql(&mut self, text: &str) -> Result<FuzzStage, String> {
        self.count("sql::parse");
        let Ok(statements) = parse(text) else { return Ok(FuzzStage::Refused) };
        let mut reached = FuzzStage::Parsed;
        for parsed in &statements {
            let text = &text[parsed.span.start..parsed.span.end];
            reached = reached.max(self.statement(parsed, text)?);
        }
        Ok(reached)
    }

    fn statement(&mut self, parsed: &Parsed, text: &str) -> Result<FuzzStage, String> {
        match &parsed.statement {
            Statement::Query(query) => self.query(parsed, text, query.into_outfile.is_some()),
            // These read files or wait.
            Statement::LoadData(_) | Statement::CreateFunction(_) | Statement::StopJob(_) => {
                Ok(FuzzStage::Parsed)
            }
            Statement::CreateTable(create) if create.like.is_some() => Ok(FuzzStage::Parsed),
            Statement::Deploy(deploy) => {
                self.execute(text)?;
                self.deployed(&deploy.name.name.text)?;
                Ok(FuzzStage::Parsed)
            }
            _ if parsed.parameter_count > 0 => {
                self.count("Session::prepare");
                let Some(prepared) = checked(self.session.prepare(text))? else {
                    return Ok(FuzzStage::Parsed);
                };
                let values = self.parameters(parsed);
                self.count("Session::execute_prepared");
                checked(self.session.execute_prepared(&prepared, &values))?;
                self.count("Session::execute_with");
                checked(self.session.execute_with(text, &values))?;
                Ok(FuzzStage::Parsed)
            }
            _ => {
                self.execute(text)?;
                Ok(FuzzStage::Parsed)
            }
        }
    }

    fn query(&mut self, parsed: &Parsed, text: &str, writes: bool) -> Result<FuzzStage, String> {
        let upper = text.to_ascii_uppercase();
        let joins = upper.matches("JOIN").count() - upper.matches("LAST JOIN").count();
        let is_runnable =
            joins <= JOINS_MAX && upper.matches("UNION ").count() <= UNIONS_MAX && !writes;
        if parsed.parameter_count > 0 {
            return self.query_with_parameters(parsed, text, is_runnable);
        }
        self.count("Session::query");
        let Some(relation) = checked(self.session.query(text))? else {
            return Ok(FuzzStage::Parsed);
        };
        if !writes {
            self.execute(&format!("EXPLAIN {text}"))?;
        }
        if is_runnable {
            self.count("Relation::collect");
            checked(relation.collect(None))?;
        }
        drop(relation);
        self.count("Session::prepare_request");
        let Some(request) = checked(self.session.prepare_request(text))? else {
            return Ok(FuzzStage::Bound);
        };
        if is_runnable {
            self.request(text, &request)?;
            if self.random.chance(20) {
                self.execute(&format!("DEPLOY fuzzed AS {text}"))?;
                self.deployed("fuzzed")?;
            }
        }
        Ok(FuzzStage::Compiled)
    }

    fn query_with_parameters(
        &mut self,
        parsed: &Parsed,
        text: &str,
        is_runnable: bool,
    ) -> Result<FuzzStage, String> {
        let values = self.parameters(parsed);
        self.count("Session::query_with");
        let Some(relation) = checked(self.session.query_with(text, &values))? else {
            return Ok(FuzzStage::Parsed);
        };
        if is_runnable {
            self.count("Relation::collect");
            checked(relation.collect(None))?;
            self.count("Session::execute_with");
            checked(self.session.execute_with(text, &values))?;
            self.count("Session::prepare");
            if let Some(prepared) = checked(self.session.prepare(text))? {
                self.count("Session::execute_prepared");
                checked(self.session.execute_prepared(&prepared, &values))?;
            }
        }
        Ok(FuzzStage::Bound)
    }

    fn execute(&mut self, text: &str) -> Result<(), String> {
        self.count("Session::execute");
        checked(self.session.execute(text)).map(drop)
    }

    /// Returns the values that a statement was drawn with, or values of any type for its `?`.
    fn parameters(&mut self, parsed: &Parsed) -> Vec<Parameter> {
        if self.given.len() == parsed.parameter_count {
            return self.given.to_vec();
        }
        let choices = [
            (Value::Int(1), DataType::Int),
            (Value::Null, DataType::Null),
            (Value::String("a:1".into()), DataType::String),
            (Value::Double(f64::NAN), DataType::Double),
            (Value::BigInt(i64::MIN), DataType::BigInt),
            (Value::Timestamp(i64::MAX), DataType::Timestamp),
            (Value::Date(i32::MAX), DataType::Date),
        ];
        (0..parsed.parameter_count).map(|_| self.random.pick(&choices).clone()).collect()
    }

    /// Sends requests to a query: a row of usual values, one of NULLs, one of extremes.
    fn request(&mut self, target: &str, request: &PreparedRequest) -> Result<(), String> {
        // A MAP of a request row has no Arrow image that `to_batch` makes: the column is left out.
        let columns: Vec<(String, DataType)> = request
            .input()
            .iter()
            .filter(|(_, data_type)| !matches!(data_type, DataType::Map(..) | DataType::Array(_)))
            .cloned()
            .collect();
        let rows: Vec<Vec<Value>> = [0, 1, 2]
            .map(|kind| columns.iter().map(|(_, data_type)| value(data_type, kind)).collect())
            .to_vec();
        for row in rows {
            self.count("Session::request");
            checked(self.session.request(target, &[to_batch(&columns, &[row])]))?;
        }
        Ok(())
    }

    /// Returns requests, describes, verifies and drops a deployment, if it exists.
    fn deployed(&mut self, name: &str) -> Result<(), String> {
        self.count("Session::deployment");
        if checked(self.session.deployment(name))?.is_none() {
            return Ok(());
        }
        self.count("Session::prepare_request");
        if let Some(request) = checked(self.session.prepare_request(name))? {
            self.request(name, &request)?;
        }
        self.count("Session::verify");
        checked(self.session.verify(name))?;
        self.execute(&format!("DROP DEPLOYMENT `{name}`"))
    }

    /// Calls the entry points that take the name of an object.
    fn name(&mut self, name: &str) -> Result<FuzzStage, String> {
        self.count("Session::has_table");
        let is_there = self.session.has_table(name);
        self.count("Session::complete");
        drop(self.session.complete(name));
        self.count("Session::indexes");
        checked(self.session.indexes(name))?;
        for batches in self.batches(name) {
            self.count("Session::append");
            checked(self.session.append(name, &batches))?;
        }
        self.count("Session::appender");
        if let Some(appender) = checked(self.session.appender(name))? {
            let nulls = vec![Datum::Null; appender.columns().len()];
            checked(appender.append([nulls]))?;
            checked(appender.append(Vec::<Vec<Datum<'_>>>::new()))?;
        }
        self.count("Session::create_table");
        let schema = Arc::new(self.schema(name));
        checked(self.session.create_table(name, &schema))?;
        self.deployed(name)?;
        self.count("Session::prepare_request");
        checked(self.session.prepare_request(name))?;
        self.count("Session::verify");
        checked(self.session.verify(name))?;
        Ok(if is_there { FuzzStage::Bound } else { FuzzStage::Parsed })
    }

    /// Returns degenerate batches: none at all, no columns, only NULL, a column of a drawn name.
    fn batches(&mut self, name: &str) -> Vec<Vec<RecordBatch>> {
        let empty = RecordBatch::new_empty(Arc::new(Schema::empty()));
        let nulls = |column: &str| {
            let field = Field::new(column, ArrowType::Null, true);
            RecordBatch::try_new(
                Arc::new(Schema::new(vec![field])),
                vec![Arc::new(NullArray::new(2))],
            )
            .expect("the array was made for the field")
        };
        let without_columns = to_batch(&[], &[Vec::new(), Vec::new()]);
        vec![
            Vec::new(),
            vec![empty],
            vec![without_columns],
            vec![nulls("id")],
            vec![nulls("m")],
            vec![nulls(name)],
        ]
    }

    fn schema(&mut self, name: &str) -> Schema {
        let types = [
            ArrowType::Null,
            ArrowType::Int8,
            ArrowType::UInt64,
            ArrowType::Utf8,
            ArrowType::Date64,
            ArrowType::Decimal128(38, 10),
            ArrowType::Timestamp(TimeUnit::Nanosecond, Some("Europe/Paris".into())),
            ArrowType::new_list(ArrowType::Int32, true),
        ];
        let mut field = |name: &str| Field::new(name, self.random.pick(&types).clone(), true);
        Schema::new(vec![field("a"), field(name), field("a")])
    }

    /// Loads a file, or exports into a folder.
    fn file(&mut self, content: &str, statement: &str) -> Result<FuzzStage, String> {
        let folder = std::env::temp_dir().join(format!("lockstep-fuzz-{}", std::process::id()));
        let outcome = self.file_in(&folder, content, statement);
        // A file that cannot be removed stays in the temporary folder.
        drop(fs::remove_dir_all(&folder));
        outcome
    }

    fn file_in(
        &mut self,
        folder: &Path,
        content: &str,
        statement: &str,
    ) -> Result<FuzzStage, String> {
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let file = folder.join("rows.csv");
        fs::write(&file, content).map_err(|error| error.to_string())?;
        let statement = statement
            .replace("{file}", &file.to_string_lossy())
            .replace("{folder}", &folder.to_string_lossy());
        self.count("file");
        let output = checked(self.session.execute(&statement))?;
        Ok(if output.is_some() { FuzzStage::Bound } else { FuzzStage::Parsed })
    }
}

/// Returns a value of a type: a usual one, NULL, or one at a limit of the type.
fn value(data_type: &DataType, kind: usize) -> Value {
    if kind == 1 {
        return Value::Null;
    }
    let is_usual = kind == 0;
    match data_type {
        DataType::Bool => Value::Bool(is_usual),
        DataType::SmallInt => Value::SmallInt(if is_usual { 1 } else { i16::MIN }),
        DataType::Int => Value::Int(if is_usual { 1 } else { i32::MAX }),
        DataType::BigInt => Value::BigInt(if is_usual { 1 } else { i64::MIN }),
        DataType::Float => Value::Float(if is_usual { 1.0 } else { f32::NAN }),
        DataType::Double => Value::Double(if is_usual { 1.0 } else { f64::INFINITY }),
        DataType::Timestamp => Value::Timestamp(if is_usual { 1_500 } else { i64::MAX }),
        DataType::Date => Value::Date(if is_usual { 19_000 } else { i32::MIN }),
        DataType::String => Value::String(if is_usual { "a".into() } else { "\u{0}:2".into() }),
        DataType::Null | DataType::Array(_) | DataType::Map(..) => Value::Null,
    }
}

/// Returns the result, `None` when the input is refused with an error, and an error when that is
/// internal.
fn checked<T>(outcome: Result<T, Box<Diagnostic>>) -> Result<Option<T>, String> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind == Kind::ReportBug => Err(error.message),
        Err(_) => Ok(None),
    }
}
