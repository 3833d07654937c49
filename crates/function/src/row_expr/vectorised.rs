//! DataFusion's evaluation over a batch of one row, for expressions without a native form.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array},
    datatypes::{Field, Schema, SchemaRef},
};
use datafusion::{
    common::DFSchema, error::DataFusionError, logical_expr::Expr, physical_expr::PhysicalExpr,
    prelude::SessionContext,
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_row::{
    Arena, DataType, Datum,
    arrow::{ColumnBuilder, ColumnReader, arrow_type, data_type},
};

use super::{
    RowSource,
    compile::{columns_of, defect, type_of},
};

/// A physical expression, with the schema and columns of its batches of one row.
#[derive(Debug)]
pub(super) struct Vectorised {
    physical: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    /// One NULL per column, for the columns that the expression does not read.
    nulls: Vec<ArrayRef>,
    /// The columns that it reads, with their types.
    columns: Vec<(usize, DataType)>,
}

impl Vectorised {
    pub(super) fn new(expr: &Expr, schema: &DFSchema) -> Result<Self> {
        type_of(expr, schema)?;
        let physical = SessionContext::new()
            .create_physical_expr(expr.clone(), schema)
            .map_err(|error| defect(&error))?;
        let typed = |column: usize| {
            let arrow_type = schema.field(column).data_type();
            data_type(arrow_type).map(|data_type| (column, data_type)).ok_or_else(|| {
                Box::new(Diagnostic::internal(format!(
                    "a column has the unsupported Arrow type {arrow_type}"
                )))
            })
        };
        let columns =
            columns_of(expr, schema)?.into_iter().map(typed).collect::<Result<Vec<_>>>()?;
        let field = |index: usize| match columns.iter().find(|(column, _)| *column == index) {
            Some((_, data_type)) => arrow_type(data_type),
            None => schema.field(index).data_type().clone(),
        };
        let fields: Vec<Field> = (0..schema.fields().len())
            .map(|index| Field::new(schema.field(index).name(), field(index), true))
            .collect();
        let nulls = fields.iter().map(|field| new_null_array(field.data_type(), 1)).collect();
        Ok(Self { physical, schema: Arc::new(Schema::new(fields)), nulls, columns })
    }

    pub(super) fn eval<'a>(&self, row: &dyn RowSource<'a>, arena: &'a Arena) -> Datum<'a> {
        self.evaluate(row).map_or(Datum::Null, |array| {
            let scratch = Arena::new();
            copy(ColumnReader::new(array.as_ref()).get(0, &scratch), arena)
        })
    }

    fn evaluate(&self, row: &dyn RowSource<'_>) -> Result<ArrayRef, DataFusionError> {
        debug_assert_eq!(self.nulls.len(), self.schema.fields().len(), "one for each column");
        let mut arrays = self.nulls.clone();
        for (index, data_type) in &self.columns {
            let mut builder = ColumnBuilder::new(data_type, 1);
            builder.push(row.column(*index));
            arrays[*index] = builder.finish();
        }
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?;
        self.physical.evaluate(&batch)?.into_array(1)
    }
}

fn copy<'a>(value: Datum<'_>, arena: &'a Arena) -> Datum<'a> {
    match value {
        Datum::Null => Datum::Null,
        Datum::Bool(value) => Datum::Bool(value),
        Datum::SmallInt(value) => Datum::SmallInt(value),
        Datum::Int(value) => Datum::Int(value),
        Datum::BigInt(value) => Datum::BigInt(value),
        Datum::Float(value) => Datum::Float(value),
        Datum::Double(value) => Datum::Double(value),
        Datum::String(text) => Datum::String(arena.alloc_str(text)),
        Datum::Timestamp(value) => Datum::Timestamp(value),
        Datum::Date(value) => Datum::Date(value),
        Datum::Array(items) => {
            Datum::Array(arena.alloc_slice_fill_iter(items.iter().map(|item| copy(*item, arena))))
        }
        Datum::Map(entries) => Datum::Map(arena.alloc_slice_fill_iter(
            entries.iter().map(|(key, value)| (copy(*key, arena), copy(*value, arena))),
        )),
    }
}
