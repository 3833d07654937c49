//! INSERT: rows of constants, or of a query, into a table.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema},
};
use lockstep_diagnostic::{Diagnostic, Result, code, listed};
use lockstep_function::Compatibility;
use lockstep_plan::{BindOptions, bind_constant};
use lockstep_row::{Arena, Column, DataType, Datum, RowError, TableSchema, Value};
use lockstep_sql::ast::{Expr, Ident, IgnoredRows, Insert, InsertRow};
use lockstep_table::{Appended, Table};

use super::create_index::find_column;
use crate::{
    Output, Parameter, Session,
    append::{self, AppendRule, append_warnings, table_error},
    constant,
    context::checkpoint,
    literal::{ConstantPosition, coerce},
};

/// The number of rows between two checks whether the statement was interrupted.
const ROWS_PER_CHECKPOINT: usize = 256;

impl Session {
    /// Runs INSERT: all rows or none.
    pub(crate) fn insert(&self, insert: &Insert, parameters: &[Parameter]) -> Result<Output> {
        self.require_online("INSERT", insert.table.name.span)?;
        self.check_insert_memory()?;
        let entry = self.find_entry(&insert.table)?;
        let mut insert = Cow::Borrowed(insert);
        if self.is_of_postgres() {
            use_stored_names(&mut insert, &entry.table.schema());
        }
        let insert = insert.as_ref();
        let mut warnings = Vec::new();
        let appended = match &insert.query {
            Some(query) => {
                let rows = self.relation(query, parameters, None)?.collect(None)?;
                warnings.extend(rows.warnings.iter().cloned());
                entry.write(|table| self.insert_rows(table, insert, &rows))?
            }
            None => entry.write(|table| self.insert_into(table, insert, parameters))?,
        };
        warnings.extend(append_warnings(appended));
        Ok(Output { rows_affected: Some(appended.rows), warnings, ..Output::of_message("INSERT") })
    }

    /// Inserts the rows of a query, whose columns are those of the statement in their order.
    fn insert_rows(&self, table: &Table, insert: &Insert, rows: &Output) -> Result<Appended> {
        let schema = table.schema();
        let positions = positions(insert, &schema)?;
        if rows.columns.len() != positions.len() {
            let (expected, found) = (positions.len(), rows.columns.len());
            let message = format!("expected {expected} columns, but the query has {found}");
            let span = insert.query.as_ref().map_or(insert.table.name.span, |query| query.span);
            return Diagnostic::new(code::SYNTAX_ERROR, message).at(span).err();
        }
        let names = positions.iter().map(|position| schema.columns[*position].name.clone());
        let names: Vec<String> = names.collect();
        let columns = conflict_columns(insert, &schema)?;
        let rule = rule_of(insert, columns.as_deref());
        let batches = rows.batches.iter().map(|batch| renamed(batch, &names));
        append::load(batches, table, rule, self.conversion())
    }

    fn insert_into(
        &self,
        table: &Table,
        insert: &Insert,
        parameters: &[Parameter],
    ) -> Result<Appended> {
        let options = self.bind_options(parameters);
        let schema = table.schema();
        let values = RowValues {
            session: self,
            schema: &schema,
            positions: positions(insert, &schema)?,
            options: &options,
            parameters,
        };
        let rows: Vec<Vec<Value>> = insert
            .rows
            .iter()
            .enumerate()
            .map(|(at, row)| {
                if at % ROWS_PER_CHECKPOINT == 0 {
                    checkpoint()?;
                }
                values.of(row)
            })
            .collect::<Result<_>>()?;
        let arena = Arena::new();
        let rows = rows.iter().map(|row| -> Vec<Datum<'_>> {
            row.iter().map(|value| value.as_datum(&arena)).collect()
        });
        let columns = conflict_columns(insert, &schema)?;
        let stored = match rule_of(insert, columns.as_deref()) {
            AppendRule::NewKeys(columns) => table.append_new_keys(rows, columns),
            AppendRule::Absent => table.append_absent(rows),
            AppendRule::Any | AppendRule::Timed => table.append_timed(rows),
        };
        stored.map_err(|error| table_error(&error))
    }
}

fn rule_of<'c>(insert: &Insert, columns: Option<&'c [usize]>) -> AppendRule<'c> {
    match insert.ignored {
        IgnoredRows::None => AppendRule::Timed,
        IgnoredRows::Equal => AppendRule::Absent,
        IgnoredRows::WithKeys { .. } => AppendRule::NewKeys(columns),
    }
}

/// Returns the columns of ON CONFLICT, if it has some; an index over them keeps one row of each key.
fn conflict_columns(insert: &Insert, schema: &TableSchema) -> Result<Option<Vec<usize>>> {
    let IgnoredRows::WithKeys { columns: Some(names), span } = &insert.ignored else {
        return Ok(None);
    };
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        columns.push(find_column(schema, &name.text, name.span)?);
    }
    if schema.indexes.iter().any(|index| index.keeps_one_row() && index.has_keys(&columns)) {
        return Ok(Some(columns));
    }
    let message = "no index over these columns keeps one row per key";
    Diagnostic::new(code::INVALID_COLUMN_REFERENCE, message)
        .at(*span)
        .with_hint("Create one with ALTER TABLE t ADD PRIMARY KEY (k).")
        .err()
}

/// Returns a batch with other names for its columns.
pub(super) fn renamed(batch: &RecordBatch, names: &[String]) -> Result<RecordBatch> {
    debug_assert_eq!(batch.num_columns(), names.len(), "a name for each column");
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(names);
    let fields: Vec<Field> =
        fields.map(|(field, name)| field.as_ref().clone().with_name(name)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), batch.columns().to_vec())
        .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))
}

/// Replaces names of columns that the table has in other capitals only, as clients of PostgreSQL write them:
/// there, a name without quotes is the same in any.
fn use_stored_names(insert: &mut Cow<'_, Insert>, schema: &TableSchema) {
    let stored = |name: &Ident| {
        let is_it = |column: &&Column| column.name.eq_ignore_ascii_case(&name.text);
        let mut found = schema.columns.iter().filter(is_it);
        let first = found.next()?;
        let is_other = found.next().is_none() && first.name != name.text;
        is_other.then(|| first.name.clone())
    };
    let keys = match &insert.ignored {
        IgnoredRows::WithKeys { columns: Some(keys), .. } => keys.as_slice(),
        _ => &[],
    };
    if !insert.columns.iter().chain(keys).any(|name| stored(name).is_some()) {
        return;
    }
    let Insert { columns, ignored, .. } = insert.to_mut();
    let keys = match ignored {
        IgnoredRows::WithKeys { columns: Some(keys), .. } => keys.as_mut_slice(),
        _ => &mut [],
    };
    for name in columns.iter_mut().chain(keys) {
        if let Some(stored) = stored(name) {
            name.text = stored;
        }
    }
}

/// Returns the position in the table of each column that the statement names.
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
            let message = format!("column `{}` is specified more than once", name.text);
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(name.span).err();
        }
        positions.push(position);
    }
    Ok(positions)
}

/// Evaluates the rows of an INSERT.
struct RowValues<'a> {
    session: &'a Session,
    schema: &'a TableSchema,
    /// The position in the table of each written value.
    positions: Vec<usize>,
    options: &'a BindOptions,
    parameters: &'a [Parameter],
}

impl RowValues<'_> {
    /// Returns the values of a row for every column of the table.
    fn of(&self, row: &InsertRow) -> Result<Vec<Value>> {
        if row.values.len() != self.positions.len() {
            let (expected, found) = (self.positions.len(), row.values.len());
            let message = format!("expected {expected} values, found {found}");
            let columns = self.positions.iter().map(|at| self.schema.columns[*at].name.as_str());
            return Diagnostic::new(code::SYNTAX_ERROR, message)
                .at(row.span)
                .with_hint(format!(
                    "The columns are {}. To insert values for some of them, use INSERT INTO t (a, \
                     b) VALUES ….",
                    listed(columns)
                ))
                .err();
        }
        let columns = &self.schema.columns;
        let mut values: Vec<Value> =
            columns.iter().map(|column| column.default.clone().unwrap_or_default()).collect();
        for (expr, position) in row.values.iter().zip(&self.positions) {
            let value = self.evaluate(expr)?;
            let column = &columns[*position];
            let position_of = ConstantPosition { column: &column.name, span: Some(expr.span) };
            values[*position] =
                coerce(&value, &column.data_type, self.options.settings, &position_of)?;
        }
        for (value, column) in values.iter().zip(columns) {
            if *value == Value::Null && !column.nullable {
                let message =
                    format!("null value in column `{}` violates not-null constraint", column.name);
                return Diagnostic::new(code::NOT_NULL_VIOLATION, message).at(row.span).err();
            }
            if let Value::String(text) = value {
                let too_long = |error: RowError| {
                    let error = Diagnostic::new(code::STRING_TOO_LONG, error.to_string());
                    Box::new(error.at(row.span))
                };
                column.check_length(text).map_err(too_long)?;
            }
        }
        debug_assert_eq!(values.len(), columns.len(), "a row has a value for each column");
        Ok(values)
    }

    fn evaluate(&self, expr: &Expr) -> Result<Value> {
        if let Some(value) = bind_constant(expr, self.options) {
            return Ok(value);
        }
        if !self.takes_expressions() {
            let message = "INSERT supports only constants";
            return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message).at(expr.span).err();
        }
        constant::evaluate(self.session, expr, self.parameters)
    }

    /// Whether the table takes expressions; in OpenMLDB only one with a MAP does.
    fn takes_expressions(&self) -> bool {
        let columns = &self.schema.columns;
        let has_map = || columns.iter().any(|c| matches!(c.data_type, DataType::Map(..)));
        self.options.settings.compatibility == Compatibility::Standard || has_map()
    }
}
