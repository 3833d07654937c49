//! Arrow batches into tables, from a front end or a file; and the errors of tables as diagnostics.

use std::collections::{HashMap, HashSet};

use arrow::array::{ArrayRef, RecordBatch};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{CallStep, query};
use lockstep_row::{
    Arena, Column, DataType, Datum, RowError, TableSchema, Value,
    arrow::{ColumnBuilder, ColumnReader},
};
use lockstep_sql::ast::ObjectName;
use lockstep_table::{Appended, BulkLoad, Durability, Table, TableError, with_durability};

use crate::{
    Output, Session,
    access::{Needs, Requirement},
    conversion::Conversion,
    entrance::{CallDescription, no_plan},
    lint,
    log_error::log_error,
    missing_columns::missing_columns,
    session::{object_name, retried},
    user::{Privilege, Securable},
};

impl Session {
    /// Appends rows to a table: all or none. Columns are matched by name, and a column that the
    /// batches lack takes its default. Types are converted where no value is lost. Returns the
    /// number of rows.
    pub fn append(&self, table: &str, batches: &[RecordBatch]) -> Result<u64> {
        Ok(self.append_batches(table, batches)?.rows_affected.unwrap_or(0))
    }

    /// Appends rows as [`Self::append`] does. The output warns of rows that had expired before
    /// they arrived.
    pub fn append_batches(&self, table: &str, batches: &[RecordBatch]) -> Result<Output> {
        self.append_batches_as(table, batches, None)
    }

    /// Appends rows as [`Self::append_batches`] does. They are acknowledged when they are as durable as
    /// this says; `None`: as the table or the session says.
    pub fn append_batches_as(
        &self,
        table: &str,
        batches: &[RecordBatch],
        durability: Option<Durability>,
    ) -> Result<Output> {
        let (name, conversion) = (object_name(table), self.conversion());
        let append = |table: &Table| append_rows(batches, table, AppendRule::Any, conversion);
        let write = || self.find_entry(&name)?.write_as(durability, append);
        let of_session = self.durability();
        let appended = self.enter(
            || self.append_operation(table),
            || {
                self.check_insert_memory()?;
                with_durability(of_session, || retried(write))
            },
        )?;
        Ok(Output {
            rows_affected: Some(appended.rows),
            warnings: append_warnings(appended),
            ..Output::of_message("APPEND")
        })
    }

    /// Describes an append for the entrance.
    pub(crate) fn append_operation<'a>(&self, table: &'a str) -> CallDescription<'a> {
        let needs = Needs::of(vec![self.insertion_into(&object_name(table))]);
        CallDescription { action: "APPEND", text: table, needs, is_audited: true, plan: &no_plan }
    }

    /// Returns what an append needs.
    pub(crate) fn insertion_into(&self, name: &ObjectName) -> Requirement {
        Requirement::new(Privilege::Insert, Securable::Table(self.qualified(name)))
    }

    /// Refuses rows where the tables hold the percentage of `max_memory` that the variable
    /// `insert_memory_usage_limit` names.
    pub(crate) fn check_insert_memory(&self) -> Result<()> {
        let Some(percent) = self.insert_memory_percent() else {
            return Ok(());
        };
        let now = self.database.memory_use();
        let Some(limit) = now.limit else { return Ok(()) };
        if u128::from(now.used) * 100 < u128::from(limit) * u128::from(percent) {
            return Ok(());
        }
        let message = format!(
            "insert_memory_usage_limit exceeded: tables use {} bytes, at least {percent} percent \
             of max_memory",
            now.used
        );
        Diagnostic::new(code::OUT_OF_MEMORY, message)
            .with_kind(Kind::FreeResources)
            .with_hint("Delete rows, raise max_memory, or SET insert_memory_usage_limit = 0.")
            .err()
    }
}

/// After how many converted rows an append says how far it is.
const ROWS_PER_REPORT: u64 = 4096;

/// Which rows an append takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppendRule<'c> {
    /// All: an event time may be NULL or negative, as in rows of data frames.
    Any,
    /// Rows that have the event times of all declared indexes; another row is an error.
    Timed,
    /// The same, and rows that are stored already are left out.
    Absent,
    /// The same, and rows with a key are left out that a stored row has, in the declared indexes that keep
    /// one row of each key; of those, in the ones over these columns, if given.
    NewKeys(Option<&'c [usize]>),
}

/// Returns the warnings about rows that were accepted.
pub(crate) fn append_warnings(appended: Appended) -> Vec<Diagnostic> {
    let expired = expired_warning(appended);
    expired.into_iter().chain(lint::warning_of_append(appended)).collect()
}

/// Returns the warning about rows that had expired before they arrived, if there are any.
fn expired_warning(appended: Appended) -> Option<Diagnostic> {
    let Appended { rows, expired, .. } = appended;
    (expired > 0).then(|| {
        let message = format!("{expired} of {rows} rows had expired before they arrived");
        Diagnostic::new(code::ROWS_EXPIRED, message)
            .with_detail(
                "No index of the table retains them: they are older than its TTL, or their key has \
                 enough newer rows. No query returns them.",
            )
            .with_hint(
                "Check the TTL of the indexes with DESC, or create an index with a longer TTL.",
            )
    })
}

/// Appends batches one by one, whose rows become visible together: all or none. Needs little more
/// memory than the stored rows.
pub(crate) fn load(
    batches: impl Iterator<Item = Result<RecordBatch>>,
    table: &Table,
    rule: AppendRule<'_>,
    conversion: Conversion,
) -> Result<Appended> {
    let mut load = match rule {
        AppendRule::Any => table.load_any(),
        AppendRule::Timed => table.load(),
        AppendRule::Absent | AppendRule::NewKeys(_) => {
            let batches = batches.collect::<Result<Vec<_>>>()?;
            return append_rows(&batches, table, rule, conversion);
        }
    };
    let schema = table.schema();
    for batch in batches {
        let batch = batch?;
        push_batch(&mut load, &batch, &schema, conversion)?;
        query::report_rows(u64::try_from(batch.num_rows()).unwrap_or(0));
    }
    load.finish().map_err(|error| table_error(&error))
}

/// Adds a batch to a load of a table that has this schema.
pub(crate) fn push_batch(
    load: &mut BulkLoad<'_>,
    batch: &RecordBatch,
    schema: &TableSchema,
    conversion: Conversion,
) -> Result<()> {
    let arrays = conform(batch, &schema.columns, MissingColumn::Default, conversion)?;
    debug_assert!(
        arrays.iter().all(|array| array.len() == batch.num_rows()),
        "a column has a value for each row"
    );
    let readers: Vec<ColumnReader<'_>> =
        arrays.iter().map(|array| ColumnReader::new(array.as_ref())).collect();
    let arena = Arena::new();
    let rows = (0..batch.num_rows()).map(|row| -> Vec<Datum<'_>> {
        readers.iter().map(|reader| reader.get(row, &arena)).collect()
    });
    load.push(rows).map_err(|error| table_error(&error))
}

/// Appends batches: all rows or none.
fn append_rows(
    batches: &[RecordBatch],
    table: &Table,
    rule: AppendRule<'_>,
    conversion: Conversion,
) -> Result<Appended> {
    let schema = table.schema();
    let arena = Arena::new();
    let columns: Vec<Vec<ArrayRef>> = batches
        .iter()
        .map(|batch| conform(batch, &schema.columns, MissingColumn::Default, conversion))
        .collect::<Result<_>>()?;
    let readers: Vec<(usize, Vec<ColumnReader<'_>>)> = batches
        .iter()
        .zip(&columns)
        .map(|(batch, columns)| {
            let readers = columns.iter().map(|column| ColumnReader::new(column.as_ref()));
            (batch.num_rows(), readers.collect())
        })
        .collect();
    let (mut done, total) = (0, readers.iter().map(|(count, _)| *count as u64).sum());
    let rows = readers.iter().flat_map(|(count, readers)| {
        let arena = &arena;
        (0..*count).map(move |row| -> Vec<Datum<'_>> {
            readers.iter().map(|reader| reader.get(row, arena)).collect()
        })
    });
    let rows = rows.inspect(|_| {
        if done % ROWS_PER_REPORT == 0 {
            query::report(CallStep::ConvertRows, done, total);
        }
        done += 1;
    });
    let stored = match rule {
        AppendRule::Any => table.append(rows),
        AppendRule::Timed => table.append_timed(rows),
        AppendRule::Absent => table.append_absent(rows),
        AppendRule::NewKeys(columns) => table.append_new_keys(rows, columns),
    };
    stored.map_err(|error| table_error(&error))
}

/// What happens where a batch lacks a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingColumn<'a> {
    /// The column takes its default.
    Default,
    /// It is NULL, or an error where the mark of the column is set.
    NullUnlessRead(&'a [bool]),
}

/// Returns the columns of a batch in the table's order and types, matched by name.
pub(crate) fn conform(
    batch: &RecordBatch,
    columns: &[Column],
    missing: MissingColumn<'_>,
    conversion: Conversion,
) -> Result<Vec<ArrayRef>> {
    let schema = batch.schema();
    let mut positions: HashMap<&str, usize> = HashMap::with_capacity(schema.fields().len());
    for (at, field) in schema.fields().iter().enumerate() {
        if positions.insert(field.name(), at).is_some() {
            let message = format!("the data contains column `{}` more than once", field.name());
            return Diagnostic::new(code::AMBIGUOUS_COLUMN, message).with_kind(Kind::FixData).err();
        }
    }
    if missing == MissingColumn::Default {
        let known: HashSet<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let stray = schema.fields().iter().find(|field| !known.contains(field.name().as_str()));
        if let Some(field) = stray {
            let message = format!("column `{}` does not exist in the table", field.name());
            return Diagnostic::new(code::UNDEFINED_COLUMN, message)
                .with_nearest(field.name(), columns.iter().map(|column| column.name.as_str()))
                .err();
        }
    }
    if let MissingColumn::NullUnlessRead(reads) = missing {
        let lacks = |(column, is_read): &(&Column, &bool)| {
            **is_read && !positions.contains_key(column.name.as_str())
        };
        let lacking = columns.iter().zip(reads).filter(lacks);
        let lacking: Vec<_> = lacking.map(|(c, _)| (c.name.as_str(), &c.data_type)).collect();
        if !lacking.is_empty() {
            let names = schema.fields().iter().map(|field| field.name().as_str());
            let others = names.filter(|name| columns.iter().all(|column| column.name != *name));
            return missing_columns(&lacking, others).err();
        }
    }
    let is_default = missing == MissingColumn::Default;
    columns
        .iter()
        .map(|column| match positions.get(column.name.as_str()) {
            Some(at) => conversion.convert(batch.column(*at), column),
            None => {
                let default = column.default.clone().filter(|_| is_default);
                Ok(repeated(&default.unwrap_or_default(), &column.data_type, batch.num_rows()))
            }
        })
        .collect()
}

/// Returns a column of one value, repeated.
fn repeated(value: &Value, data_type: &DataType, count: usize) -> ArrayRef {
    let mut builder = ColumnBuilder::new(data_type, count);
    let arena = Arena::new();
    for _ in 0..count {
        builder.push(value.as_datum(&arena));
    }
    builder.finish()
}

/// Returns the diagnostic of an error of a table.
pub(crate) fn table_error(error: &TableError) -> Box<Diagnostic> {
    let code = match error {
        TableError::Row { source: RowError::Null { .. }, .. }
        | TableError::NullEventTime { .. } => code::NOT_NULL_VIOLATION,
        TableError::Row { source: RowError::Type { .. }, .. } => code::DATATYPE_MISMATCH,
        TableError::Row { source: RowError::Length { .. }, .. } => code::STRING_TOO_LONG,
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
    if let TableError::Read(failure) = error {
        return failure.clone().into();
    }
    if let TableError::Log(failure) | TableError::Part(failure) = error {
        return log_error(failure.error());
    }
    if matches!(error, TableError::MachineFull { .. }) {
        let hint = "Delete rows, or allow the process more memory; SHOW MEMORY lists memory use.";
        let diagnostic = Diagnostic::new(code::OUT_OF_MEMORY, message).with_hint(hint);
        return Box::new(diagnostic.with_kind(Kind::FreeResources));
    }
    if matches!(error, TableError::OutOfMemory { .. }) {
        let hint = "Delete rows, or raise max_memory with SET GLOBAL; SHOW MEMORY lists memory \
                    use.";
        let diagnostic = Diagnostic::new(code::OUT_OF_MEMORY, message).with_hint(hint);
        return Box::new(diagnostic.with_kind(Kind::FreeResources));
    }
    if matches!(error, TableError::Damaged) {
        let hint = "Truncate the table, or drop and re-create it; please report this error.";
        let diagnostic = Diagnostic::new(code::INTERNAL_ERROR, message).with_hint(hint);
        return Box::new(diagnostic.with_kind(Kind::ReportBug));
    }
    Box::new(Diagnostic::new(code, message).with_kind(Kind::FixData))
}
