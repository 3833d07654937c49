//! Rows into tables: INSERT, and Arrow batches from a door or a file.

use std::collections::{HashMap, HashSet};

use arrow::array::{ArrayRef, RecordBatch};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::Compatibility;
use lockstep_plan::{BindOptions, bind_constant};
use lockstep_row::{
    Arena, Column, DataType, Datum, RowError, TableSchema, Value, arrow::ColumnReader,
};
use lockstep_sql::ast::{Expr, Insert, InsertRow};
use lockstep_table::{Appended, Table, TableError};

use crate::{
    context::checkpoint,
    conversion::Conversion,
    literal::{Place, coerce},
};

/// After how many rows of an INSERT it is asked whether to go on.
const ROWS_PER_CHECKPOINT: usize = 256;

/// Runs an INSERT: all rows or none. An event time of a declared index must be there.
/// `evaluate` gives the value of an expression that is not a mere literal.
pub(crate) fn insert(
    insert: &Insert,
    table: &Table,
    options: &BindOptions,
    evaluate: &dyn Fn(&Expr) -> Result<Value>,
) -> Result<Appended> {
    let schema = table.schema();
    let positions = positions(insert, &schema)?;
    let rows: Vec<Vec<Value>> = insert
        .rows
        .iter()
        .enumerate()
        .map(|(at, row)| {
            if at % ROWS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
            values(row, &positions, (&schema, options), evaluate)
        })
        .collect::<Result<_>>()?;
    let arena = Arena::new();
    let rows = rows
        .iter()
        .map(|row| -> Vec<Datum<'_>> { row.iter().map(|value| value.as_datum(&arena)).collect() });
    let stored =
        if insert.or_ignore { table.append_absent(rows) } else { table.append_timed(rows) };
    stored.map_err(|error| refused(&error))
}

/// Where each written value goes.
fn positions(insert: &Insert, schema: &TableSchema) -> Result<Vec<usize>> {
    if insert.columns.is_empty() {
        return Ok((0..schema.columns.len()).collect());
    }
    let names = schema.columns.iter().map(|column| column.name.as_str());
    let known: HashMap<&str, usize> = names.zip(0..).collect();
    let mut written = HashSet::new();
    let mut positions = Vec::new();
    for name in &insert.columns {
        let Some(&position) = known.get(name.text.as_str()) else {
            let message = format!("column `{}` does not exist", name.text);
            return Diagnostic::new(code::UNDEFINED_COLUMN, message)
                .at(name.span)
                .with_nearest(&name.text, schema.columns.iter().map(|c| c.name.as_str()))
                .err();
        };
        if !written.insert(position) {
            let message = format!("column `{}` is written twice", name.text);
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(name.span).err();
        }
        positions.push(position);
    }
    Ok(positions)
}

fn values(
    row: &InsertRow,
    positions: &[usize],
    (schema, options): (&TableSchema, &BindOptions),
    evaluate: &dyn Fn(&Expr) -> Result<Value>,
) -> Result<Vec<Value>> {
    if row.values.len() != positions.len() {
        let (expected, found) = (positions.len(), row.values.len());
        let message = format!("expected {expected} values, found {found}");
        return Diagnostic::new(code::SYNTAX_ERROR, message).at(row.span).err();
    }
    let mut values: Vec<Value> =
        schema.columns.iter().map(|column| column.default.clone().unwrap_or_default()).collect();
    for (expr, position) in row.values.iter().zip(positions) {
        let value = match bind_constant(expr, options) {
            Some(value) => value,
            None if takes_expressions(schema, options) => evaluate(expr)?,
            None => {
                let message = "INSERT takes constants only";
                return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message).at(expr.span).err();
            }
        };
        let column = &schema.columns[*position];
        let place = Place { column: &column.name, span: Some(expr.span) };
        values[*position] = coerce(&value, &column.data_type, options.settings, &place)?;
    }
    for (value, column) in values.iter().zip(&schema.columns) {
        if *value == Value::Null && !column.nullable {
            let message = format!("column `{}` does not take NULL", column.name);
            return Diagnostic::new(code::NOT_NULL_VIOLATION, message).at(row.span).err();
        }
    }
    Ok(values)
}

/// The reference takes expressions only into tables with a MAP.
fn takes_expressions(schema: &TableSchema, options: &BindOptions) -> bool {
    let has_map = || schema.columns.iter().any(|c| matches!(c.data_type, DataType::Map(..)));
    options.settings.compatibility == Compatibility::Standard || has_map()
}

/// Whether rows may lack an event time, or be there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// An event time may be NULL or negative: data frames have such rows.
    Any,
    /// The event times of declared indexes must be there.
    Timed,
    /// As well, and rows that are stored already are left out.
    Absent,
}

/// The warning about rows that had expired before they arrived, if there are any.
pub(crate) fn expired(appended: Appended) -> Option<Diagnostic> {
    let Appended { rows, expired } = appended;
    (expired > 0).then(|| {
        let message = format!("{expired} of {rows} rows had expired before they arrived");
        Diagnostic::new(code::ROWS_EXPIRED, message)
            .with_detail(
                "No index of the table keeps them: they are older than its TTL, or there are \
                 enough newer rows of their key. Nothing shows them.",
            )
            .with_hint("DESC says for how long the indexes keep rows; CREATE INDEX takes a TTL.")
    })
}

/// Appends batches: all rows or none.
pub(crate) fn append(
    batches: &[RecordBatch],
    table: &Table,
    conversion: Conversion,
) -> Result<Appended> {
    append_rows(batches, table, Rows::Any, conversion)
}

/// Appends batches one by one that become visible together: all rows or none. Takes little more
/// memory than the rows will take.
pub(crate) fn load(
    batches: impl Iterator<Item = Result<RecordBatch>>,
    table: &Table,
    rule: Rows,
    conversion: Conversion,
) -> Result<Appended> {
    let mut load = match rule {
        Rows::Any => table.load_any(),
        Rows::Timed => table.load(),
        Rows::Absent => {
            let batches = batches.collect::<Result<Vec<_>>>()?;
            return append_rows(&batches, table, rule, conversion);
        }
    };
    let schema = table.schema();
    for batch in batches {
        let batch = batch?;
        let arrays = conform(&batch, &schema.columns, Missing::Default, conversion)?;
        let readers: Vec<ColumnReader<'_>> =
            arrays.iter().map(|array| ColumnReader::new(array.as_ref())).collect();
        let arena = Arena::new();
        let rows = (0..batch.num_rows()).map(|row| -> Vec<Datum<'_>> {
            readers.iter().map(|reader| reader.get(row, &arena)).collect()
        });
        load.push(rows).map_err(|error| refused(&error))?;
    }
    load.finish().map_err(|error| refused(&error))
}

/// Appends batches under a rule: all rows or none.
pub(crate) fn append_rows(
    batches: &[RecordBatch],
    table: &Table,
    rule: Rows,
    conversion: Conversion,
) -> Result<Appended> {
    let schema = table.schema();
    let arena = Arena::new();
    let columns: Vec<Vec<ArrayRef>> = batches
        .iter()
        .map(|batch| conform(batch, &schema.columns, Missing::Default, conversion))
        .collect::<Result<_>>()?;
    let readers: Vec<(usize, Vec<ColumnReader<'_>>)> = batches
        .iter()
        .zip(&columns)
        .map(|(batch, columns)| {
            let readers = columns.iter().map(|column| ColumnReader::new(column.as_ref()));
            (batch.num_rows(), readers.collect())
        })
        .collect();
    let rows = readers.iter().flat_map(|(count, readers)| {
        let arena = &arena;
        (0..*count).map(move |row| -> Vec<Datum<'_>> {
            readers.iter().map(|reader| reader.get(row, arena)).collect()
        })
    });
    let stored = match rule {
        Rows::Any => table.append(rows),
        Rows::Timed => table.append_timed(rows),
        Rows::Absent => table.append_absent(rows),
    };
    stored.map_err(|error| refused(&error))
}

/// What a column that a batch lacks gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Its default.
    Default,
    /// An error that names it.
    Error,
}

/// The columns of a batch in the table's order and types, matched by name.
pub(crate) fn conform(
    batch: &RecordBatch,
    columns: &[Column],
    missing: Missing,
    conversion: Conversion,
) -> Result<Vec<ArrayRef>> {
    let schema = batch.schema();
    let mut positions: HashMap<&str, usize> = HashMap::with_capacity(schema.fields().len());
    for (at, field) in schema.fields().iter().enumerate() {
        if positions.insert(field.name(), at).is_some() {
            let message = format!("the data has column `{}` twice", field.name());
            return Diagnostic::new(code::AMBIGUOUS_COLUMN, message).with_kind(Kind::FixData).err();
        }
    }
    if missing == Missing::Default {
        let known: HashSet<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let stray = schema.fields().iter().find(|field| !known.contains(field.name().as_str()));
        if let Some(field) = stray {
            let message = format!("the table has no column `{}`", field.name());
            return Diagnostic::new(code::UNDEFINED_COLUMN, message)
                .with_nearest(field.name(), columns.iter().map(|column| column.name.as_str()))
                .err();
        }
    }
    columns
        .iter()
        .map(|column| match (positions.get(column.name.as_str()), missing) {
            (Some(at), _) => conversion.convert(batch.column(*at), column),
            (None, Missing::Error) => {
                let message =
                    format!("column `{}` is missing; it is {}", column.name, column.data_type);
                Diagnostic::new(code::UNDEFINED_COLUMN, message)
                    .with_nearest(&column.name, schema.fields().iter().map(|f| f.name().as_str()))
                    .err()
            }
            (None, Missing::Default) => Ok(repeated(column, batch.num_rows())),
        })
        .collect()
}

fn repeated(column: &Column, count: usize) -> ArrayRef {
    let mut builder = lockstep_row::arrow::ColumnBuilder::new(&column.data_type, count);
    let value = column.default.clone().unwrap_or_default();
    let arena = Arena::new();
    for _ in 0..count {
        builder.push(value.as_datum(&arena));
    }
    builder.finish()
}

/// Why a table refused rows, for a person.
pub(crate) fn refused(error: &TableError) -> Box<Diagnostic> {
    let code = match error {
        TableError::Row { source: RowError::Null { .. }, .. }
        | TableError::NullEventTime { .. } => code::NOT_NULL_VIOLATION,
        TableError::Row { source: RowError::Type { .. }, .. } => code::DATATYPE_MISMATCH,
        TableError::NegativeEventTime { .. } => code::OUT_OF_RANGE,
        TableError::IndexExists { .. } => code::DUPLICATE_OBJECT,
        TableError::Dropped => code::STALE_DEFINITION,
        _ => code::INVALID_TABLE_DEFINITION,
    };
    let mut message = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        message = format!("{message}: {source}");
    }
    if let TableError::Interrupted(interrupt) = error {
        return Box::new(Diagnostic::interrupted(interrupt.limit_ms()));
    }
    if matches!(error, TableError::OutOfMemory { .. }) {
        let hint = "Delete rows, or SET GLOBAL max_memory; SHOW MEMORY says what holds how much.";
        let refused = Diagnostic::new(code::OUT_OF_MEMORY, message).with_hint(hint);
        return Box::new(refused.with_kind(Kind::FreeResources));
    }
    if matches!(error, TableError::Damaged) {
        let hint = "TRUNCATE TABLE or DROP TABLE makes it take rows again; please report it.";
        let refused = Diagnostic::new(code::INTERNAL_ERROR, message).with_hint(hint);
        return Box::new(refused.with_kind(Kind::ReportBug));
    }
    Box::new(Diagnostic::new(code, message).with_kind(Kind::FixData))
}
