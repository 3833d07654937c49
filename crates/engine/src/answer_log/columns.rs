//! The columns of a table of answers.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{
    Arena, Column, DataType, Datum, IndexSpec, Retention, RowView, TableSchema, Value,
};

use super::{SeenTables, not_logged};
use crate::{PreparedRequest, catalog::TableEntry};

/// The columns that every table of answers has: when the request was answered, by which definition of the
/// deployment and which version, what it saw, and whether there was an answer.
pub(super) const FIXED: [(&str, DataType); 5] = [
    ("answered_at", DataType::Timestamp),
    ("definition", DataType::String),
    ("version", DataType::String),
    ("seen", DataType::String),
    ("has_answer", DataType::Bool),
];

/// Where a table of answers has its columns.
#[derive(Debug)]
pub(crate) struct AnswerColumns {
    fixed: [usize; FIXED.len()],
    /// For each column of the request row; `None` where no answer depends on it.
    request: Vec<Option<usize>>,
    answer: Vec<usize>,
}

/// A logged answer.
#[derive(Debug)]
pub(super) struct LoggedAnswer {
    /// Its position among the logged answers, from 0.
    pub(super) number: u64,
    /// When it was answered, in milliseconds since the epoch.
    pub(super) answered_ms: i64,
    pub(super) definition: String,
    pub(super) version: String,
    /// The ids of tables, each with the arrival before which the request saw its rows.
    pub(super) seen: Vec<(u64, u64)>,
    pub(super) request: Vec<Value>,
    pub(super) answer: Option<Vec<Value>>,
}

impl LoggedAnswer {
    /// Returns the arrival before which the request saw the rows of a table.
    pub(super) fn seen_of(&self, table: u64) -> u64 {
        self.seen.iter().find(|(id, _)| *id == table).map_or(0, |(_, arrival)| *arrival)
    }
}

/// Returns the schema of the table of a request's answers: the fixed columns, `request_…` for each column on
/// which an answer depends, and `answer_…` for each of its columns. Its index has the answers of each
/// definition in the order of time.
pub(crate) fn schema_of_answers(request: &PreparedRequest) -> Result<TableSchema> {
    let mut schema = TableSchema::default();
    for (name, data_type) in FIXED {
        schema.columns.push(Column { nullable: false, ..Column::new(name, data_type) });
    }
    for (name, data_type) in needed(request) {
        if schema.find_column(&name).is_some() {
            let message = format!("the answers have more than one column named `{name}`");
            return Diagnostic::new(code::DUPLICATE_OBJECT, message)
                .with_hint("Rename a column of the query with AS.")
                .err();
        }
        if matches!(data_type, DataType::Null | DataType::Array(_)) {
            let reason = format!("Column `{name}` has type {data_type}, which cannot be stored.");
            return not_logged(&reason).with_hint("Convert it to another type with CAST.").err();
        }
        schema.columns.push(Column::new(name, data_type));
    }
    let keys = vec![1];
    debug_assert_eq!(schema.columns[1].name, "definition", "the key of the index");
    schema.indexes.push(IndexSpec {
        name: "by_time".to_owned(),
        keys,
        event_time: Some(0),
        retention: Retention::Forever,
        declared: true,
    });
    Ok(schema)
}

/// Returns the columns of a request and of its answer, as the table names them.
fn needed(request: &PreparedRequest) -> Vec<(String, DataType)> {
    let read = request.input().iter().zip(request.reads()).filter(|(_, is_read)| **is_read);
    let inputs = read.map(|((name, kind), _)| (format!("request_{name}"), kind.clone()));
    let outputs = request.output().iter();
    inputs.chain(outputs.map(|(name, kind)| (format!("answer_{name}"), kind.clone()))).collect()
}

impl AnswerColumns {
    /// Finds the columns of a request's answers in a table. Fails where one is missing or has another type.
    pub(crate) fn locate(entry: &TableEntry, request: &PreparedRequest) -> Result<Self> {
        let schema = entry.table.schema();
        let table = &entry.definition.name().name;
        let find = |name: &str, data_type: &DataType| match schema.find_column(name) {
            Some(at) if schema.columns[at].data_type == *data_type => Ok(at),
            found => {
                let message = match found {
                    Some(at) => {
                        let found = &schema.columns[at].data_type;
                        format!(
                            "column `{name}` of table `{table}` is of type {found}, not {data_type}"
                        )
                    }
                    None => format!("table `{table}` has no column `{name}` of type {data_type}"),
                };
                Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
                    .with_detail("The table does not match the answers of this deployment.")
                    .with_hint("Specify a table that does not exist; DEPLOY creates it.")
                    .err()
            }
        };
        let mut fixed = [0; FIXED.len()];
        for (at, (name, data_type)) in fixed.iter_mut().zip(&FIXED) {
            *at = find(name, data_type)?;
        }
        let input = request.input().iter().zip(request.reads());
        let input = input.map(|((name, data_type), is_read)| match is_read {
            true => find(&format!("request_{name}"), data_type).map(Some),
            false => Ok(None),
        });
        let output = request.output().iter();
        let output = output.map(|(name, data_type)| find(&format!("answer_{name}"), data_type));
        Ok(Self {
            fixed,
            request: input.collect::<Result<_>>()?,
            answer: output.collect::<Result<_>>()?,
        })
    }

    /// Writes the values of a row of the table; an answer without a value leaves its columns as they are.
    pub(super) fn write<'a>(
        &self,
        row: &mut [Datum<'a>],
        fixed: [Datum<'a>; FIXED.len()],
        request: &[Datum<'a>],
        answer: &[Datum<'a>],
    ) {
        debug_assert_eq!(request.len(), self.request.len(), "a request row has all columns");
        debug_assert!([0, self.answer.len()].contains(&answer.len()), "so has an answer");
        self.fixed.iter().zip(fixed).for_each(|(at, value)| row[*at] = value);
        for (at, value) in self.request.iter().zip(request) {
            if let Some(at) = at {
                row[*at] = *value;
            }
        }
        self.answer.iter().zip(answer).for_each(|(at, value)| row[*at] = *value);
    }

    /// Returns for each column of the request row its column in the table.
    pub(super) fn request(&self) -> &[Option<usize>] {
        &self.request
    }

    /// Returns the arrivals that a row says were seen.
    pub(super) fn seen(&self, row: RowView<'_>) -> Vec<(u64, u64)> {
        let text = text_of(row.get(self.fixed[3]));
        SeenTables::parse(&text).unwrap_or_default()
    }

    /// Returns which definition of the deployment answered.
    pub(super) fn definition<'r>(&self, row: RowView<'r>) -> &'r str {
        match row.get(self.fixed[1]) {
            Datum::String(text) => text,
            _ => "",
        }
    }

    /// Notes in which columns of its answer a row has values.
    pub(super) fn note_values(&self, row: RowView<'_>, columns: &mut [bool]) {
        debug_assert_eq!(columns.len(), self.answer.len(), "one for each column of an answer");
        for (has_values, at) in columns.iter_mut().zip(&self.answer) {
            *has_values |= !row.get(*at).is_null();
        }
    }

    /// Reads a row.
    pub(super) fn read(&self, number: u64, row: RowView<'_>) -> LoggedAnswer {
        let arena = Arena::new();
        let value = |at: usize| row.get_in(at, &arena).to_value();
        let has_answer = matches!(row.get(self.fixed[4]), Datum::Bool(true));
        let answer = || self.answer.iter().map(|at| value(*at)).collect();
        LoggedAnswer {
            number,
            answered_ms: row.get(self.fixed[0]).as_i64().unwrap_or_default(),
            definition: self.definition(row).to_owned(),
            version: text_of(row.get(self.fixed[2])),
            seen: self.seen(row),
            request: self.request.iter().map(|at| at.map_or(Value::Null, value)).collect(),
            answer: has_answer.then(answer),
        }
    }
}

fn text_of(value: Datum<'_>) -> String {
    match value {
        Datum::String(text) => text.to_owned(),
        _ => String::new(),
    }
}
