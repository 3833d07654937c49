//! The result of a statement.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::{Field, Schema, SchemaRef},
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::{Settings, scalar::feature_role::FeatureRole};
use lockstep_row::{
    DataType, Datum, Value,
    arrow::{ColumnBuilder, arrow_type},
};

/// The result of a statement.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// Names (which may repeat) and types of the columns; empty for a statement without rows.
    pub columns: Vec<(String, DataType)>,
    /// The rows. The fields of the batches' schema have unique names; use `columns` to print.
    pub batches: Vec<RecordBatch>,
    /// Rows written, for statements that write.
    pub rows_affected: Option<u64>,
    /// The name of a statement without rows, such as `CREATE TABLE`.
    pub message: Option<String>,
    /// Warnings, such as lints.
    pub warnings: Vec<Diagnostic>,
    /// The session's settings, by which values are printed: times in its time zone.
    pub settings: Settings,
    /// What each column is to a model, as signatures such as `continuous(…)` in the select list mark it;
    /// empty for none.
    pub roles: Vec<Option<FeatureRole>>,
}

impl Output {
    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Returns the schema of the batches, or one made from the columns when there is no batch.
    pub fn schema(&self) -> SchemaRef {
        if let Some(batch) = self.batches.first() {
            return batch.schema();
        }
        schema_of(&self.columns)
    }

    /// Makes the output of a statement without rows.
    pub(crate) fn of_message(message: &str) -> Self {
        Self { message: Some(message.to_owned()), ..Self::default() }
    }

    /// Makes the output of `row_count` rows from a builder for each column.
    pub(crate) fn of_columns(
        columns: Vec<(String, DataType)>,
        builders: Vec<ColumnBuilder>,
        row_count: usize,
    ) -> Result<Self> {
        let schema = schema_of(&columns);
        Self::with_schema(columns, schema, builders, row_count)
    }

    /// Makes the same with the schema that [`schema_of`] has made of the columns.
    pub(crate) fn with_schema(
        columns: Vec<(String, DataType)>,
        schema: SchemaRef,
        mut builders: Vec<ColumnBuilder>,
        row_count: usize,
    ) -> Result<Self> {
        debug_assert_eq!(columns.len(), builders.len(), "each column has its builder");
        let arrays = builders.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
        Ok(Self { columns, batches: vec![batch], ..Self::default() })
    }

    /// Makes the output of rows of strings; `None` is NULL.
    pub(crate) fn of_texts(names: &[&str], rows: &[Vec<Option<String>>]) -> Result<Self> {
        let columns: Vec<(String, DataType)> =
            names.iter().map(|name| ((*name).to_owned(), DataType::String)).collect();
        let mut builders = builders_of(&columns, rows.len());
        for row in rows {
            debug_assert_eq!(row.len(), names.len(), "a row has a value for each column");
            for (builder, value) in builders.iter_mut().zip(row) {
                builder.push(value.as_deref().map_or(Datum::Null, Datum::String));
            }
        }
        Self::of_columns(columns, builders, rows.len())
    }

    /// Makes the output of rows of scalars, which have the types of the columns or are NULL.
    pub(crate) fn of_values(names: &[(&str, DataType)], rows: &[Vec<Value>]) -> Result<Self> {
        let columns: Vec<(String, DataType)> =
            names.iter().map(|(name, data_type)| ((*name).to_owned(), data_type.clone())).collect();
        let mut builders = builders_of(&columns, rows.len());
        for row in rows {
            debug_assert_eq!(row.len(), names.len(), "a row has a value for each column");
            for (builder, value) in builders.iter_mut().zip(row) {
                builder.push(value.as_scalar().unwrap_or_default());
            }
        }
        Self::of_columns(columns, builders, rows.len())
    }

    /// Makes the output of one column of strings.
    pub(crate) fn of_list<'a>(name: &str, values: impl Iterator<Item = &'a str>) -> Result<Self> {
        let rows: Vec<_> = values.map(|value| vec![Some(value.to_owned())]).collect();
        Self::of_texts(&[name], &rows)
    }
}

/// Makes a schema whose names are unique: a repeated name gets a number.
pub(crate) fn schema_of(columns: &[(String, DataType)]) -> SchemaRef {
    let mut counts: HashMap<&str, usize> = HashMap::with_capacity(columns.len());
    let mut fields = Vec::with_capacity(columns.len());
    for (name, data_type) in columns {
        let count = counts.entry(name).or_default();
        *count += 1;
        let name = if *count == 1 { name.clone() } else { format!("{name}:{count}") };
        fields.push(Field::new(name, arrow_type(data_type), true));
    }
    Arc::new(Schema::new(fields))
}

fn builders_of(columns: &[(String, DataType)], row_count: usize) -> Vec<ColumnBuilder> {
    columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, row_count)).collect()
}
