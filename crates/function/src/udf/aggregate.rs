//! A bound aggregate as a DataFusion function, for GROUP BY.
//!
//! Aggregates whose states are merged are computed by [`groups`], all groups in one object. For the
//! others the rows of a group are buffered in columns until its value is computed, and then added in
//! the order of the input, which the plan makes event order; their partial state in a
//! two-phase GROUP BY is the rows themselves. An aggregate that depends on the order of rows has no
//! partial state.

mod groups;

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType as ArrowType, Field, FieldRef},
};
use datafusion::{
    common::{Result, ScalarValue, exec_err, not_impl_err, utils::SingleRowListArrayBuilder},
    logical_expr::{
        Accumulator as DataFusionAccumulator, AggregateUDF, AggregateUDFImpl, Expr,
        GroupsAccumulator, Signature, Volatility,
        expr::AggregateFunction as AggregateExpr,
        expr::AggregateFunctionParams,
        function::{AccumulatorArgs, StateFieldsArgs},
        lit, udaf_default_display_name, udaf_default_schema_name,
        utils::{AggregateOrderSensitivity, format_state_name},
    },
};
use lockstep_row::{
    Arena, DataType, Datum, Value,
    arrow::{ColumnBuilder, ColumnReader, arrow_type},
};

use self::groups::{GroupedAggregate, WholeAggregate};
use crate::{
    AggregateFunction, BoundAggregate, NestedAggregate, RowsEnd, Settings, StateClass, StateUse,
};

/// A bound aggregate. Two are equal when they have the same name, parameters, result type,
/// constants and settings.
#[derive(Debug, Clone)]
pub struct AggregateUdf {
    function: &'static AggregateFunction,
    bound: BoundAggregate,
    identity: Box<str>,
    signature: Signature,
}

/// Returns a call of a bound aggregate. `count(*)`, which has no arguments, gets a constant to
/// count, since DataFusion passes rows to an aggregate only as argument values.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "callers hold their settings by reference")]
pub fn aggregate_call(
    function: &'static AggregateFunction,
    bound: BoundAggregate,
    constants: &[Option<Value>],
    settings: &Settings,
    mut arguments: Vec<Expr>,
) -> Expr {
    if arguments.is_empty() {
        arguments.push(lit(true));
    }
    let udf = AggregateUdf::new(function, bound, constants, settings);
    let udf = Arc::new(AggregateUDF::new_from_impl(udf));
    let call = AggregateExpr::new_udf(udf, arguments, false, None, Vec::new(), None);
    Expr::AggregateFunction(call)
}

/// Returns the [`AggregateUdf`] of a DataFusion function; `None` for any other function.
pub fn as_aggregate(udf: &AggregateUDF) -> Option<&AggregateUdf> {
    udf.inner().downcast_ref()
}

impl AggregateUdf {
    /// Wraps a bound aggregate.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "callers hold their settings by reference"
    )]
    pub fn new(
        function: &'static AggregateFunction,
        bound: BoundAggregate,
        constants: &[Option<Value>],
        settings: &Settings,
    ) -> Self {
        let BoundAggregate { parameters, returns, .. } = &bound;
        let name = function.name;
        let identity = format!("{name} {parameters:?} {returns:?} {constants:?} {settings:?}");
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { function, bound, identity: identity.into(), signature }
    }

    /// Returns the declaration.
    pub fn function(&self) -> &'static AggregateFunction {
        self.function
    }

    /// Returns the bound aggregate.
    pub fn bound(&self) -> &BoundAggregate {
        &self.bound
    }

    /// Returns whether the rows are the state.
    fn buffers_rows(&self) -> bool {
        matches!(self.bound.class(), StateClass::Rows(_))
    }

    /// Returns an error where phases, which do not keep the order of rows, would change the result.
    fn check_partial(&self) -> Result<()> {
        if !self.function.is_ordered {
            return Ok(());
        }
        let name = self.function.name;
        not_impl_err!("{name} depends on the order of rows and must be computed in one phase")
    }

    /// Returns the types of the columns that DataFusion passes: those of the parameters, or of the
    /// constant that `count(*)` counts.
    fn columns(&self) -> Vec<DataType> {
        match self.bound.parameters.as_slice() {
            [] => vec![DataType::Bool],
            parameters => parameters.to_vec(),
        }
    }
}

/// Returns the call of a nested aggregate as it was written; `None` for any other aggregate. A call
/// with a parameter gets a hash, since calls with different values are different.
fn written_call(params: &AggregateFunctionParams) -> Option<String> {
    let Some(Expr::Literal(ScalarValue::Utf8(Some(label)), _)) = params.args.first() else {
        return None;
    };
    let call = NestedAggregate::call_of(label)?;
    if !call.contains('?') {
        return Some(call.to_owned());
    }
    let mut hasher = DefaultHasher::new();
    label.hash(&mut hasher);
    Some(format!("{call} #{:x}", hasher.finish()))
}

impl PartialEq for AggregateUdf {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for AggregateUdf {}

impl Hash for AggregateUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
    }
}

impl AggregateUDFImpl for AggregateUdf {
    fn name(&self) -> &str {
        self.function.name
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        match written_call(params) {
            Some(call) => Ok(call),
            None => udaf_default_schema_name(self, params),
        }
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        match written_call(params) {
            Some(call) => Ok(call),
            None => udaf_default_display_name(self, params),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[ArrowType]) -> Result<Vec<ArrowType>> {
        let expected = self.columns().len();
        if arg_types.len() != expected {
            return exec_err!(
                "{} requires {expected} columns, not {}",
                self.name(),
                arg_types.len()
            );
        }
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, _arg_types: &[ArrowType]) -> Result<ArrowType> {
        Ok(arrow_type(&self.bound.returns))
    }

    fn default_value(&self, _data_type: &ArrowType) -> Result<ScalarValue> {
        let arena = Arena::new();
        let value = self.bound.value(&self.bound.new_state(StateUse::Fold), &arena);
        scalar_value(&self.bound.returns, value)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        if self.function.is_ordered {
            AggregateOrderSensitivity::HardRequirement
        } else {
            AggregateOrderSensitivity::Insensitive
        }
    }

    fn accumulator(&self, _args: AccumulatorArgs<'_>) -> Result<Box<dyn DataFusionAccumulator>> {
        if !self.buffers_rows() {
            return Ok(Box::new(WholeAggregate::new(self)));
        }
        let columns = self.columns();
        let rows = columns.iter().map(|column| ColumnBuilder::new(column, 0)).collect();
        Ok(Box::new(GroupAccumulator { udf: self.clone(), rows, values: 0, size: 0 }))
    }

    fn groups_accumulator_supported(&self, _args: AccumulatorArgs<'_>) -> bool {
        !self.buffers_rows()
    }

    fn create_groups_accumulator(
        &self,
        _args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(GroupedAggregate::new(self)))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if !self.buffers_rows() {
            let name = format_state_name(args.name, "state");
            return Ok(vec![Arc::new(Field::new(name, ArrowType::Binary, true))]);
        }
        let field = |(position, column): (usize, DataType)| {
            let name = format_state_name(args.name, &format!("argument{position}"));
            Arc::new(Field::new_list(name, Field::new_list_field(arrow_type(&column), true), true))
        };
        Ok(self.columns().into_iter().enumerate().map(field).collect())
    }
}

/// The rows of one group.
struct GroupAccumulator {
    udf: AggregateUdf,
    /// One for each argument.
    rows: Vec<ColumnBuilder>,
    values: usize,
    /// The approximate number of bytes of the buffered values.
    size: usize,
}

impl fmt::Debug for GroupAccumulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupAccumulator")
            .field("function", &self.udf.function.name)
            .field("values", &self.values)
            .finish_non_exhaustive()
    }
}

impl GroupAccumulator {
    fn take_columns(&mut self) -> Vec<ArrayRef> {
        self.size = 0;
        self.values = 0;
        self.rows.iter_mut().map(ColumnBuilder::finish).collect()
    }
}

impl DataFusionAccumulator for GroupAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        debug_assert_eq!(values.len(), self.rows.len(), "one column for each argument");
        let mut arena = Arena::new();
        for (builder, array) in self.rows.iter_mut().zip(values) {
            let reader = ColumnReader::new(array as &dyn Array);
            for row in 0..reader.len() {
                let value = reader.get(row, &arena);
                self.size += size_of::<i64>() + value.as_str().map_or(0, str::len);
                builder.push(value);
            }
            self.values += reader.len();
            arena.reset();
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let columns = self.take_columns();
        let readers: Vec<ColumnReader<'_>> =
            columns.iter().map(|column| ColumnReader::new(column as &dyn Array)).collect();
        let aggregate = &self.udf.bound;
        let mut state = aggregate.new_state(StateUse::Fold);
        let parameters = self.udf.bound.parameters.len();
        debug_assert!(parameters <= readers.len(), "each parameter has a column");
        let mut arena = Arena::new();
        let rows = readers.first().map_or(0, ColumnReader::len);
        for row in 0..rows {
            let arguments: &[Datum<'_>] = arena.alloc_slice_fill_iter(
                readers[..parameters].iter().map(|reader| reader.get(row, &arena)),
            );
            aggregate.add(&mut state, arguments, RowsEnd::Newest);
            arena.reset();
        }
        let value = scalar_value(&aggregate.returns, aggregate.value(&state, &arena))?;
        super::scalar::check_limits()?;
        Ok(value)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.size
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.udf.check_partial()?;
        let list = |column| SingleRowListArrayBuilder::new(column).build_list_scalar();
        Ok(self.take_columns().into_iter().map(list).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        debug_assert_eq!(states.len(), self.rows.len(), "one list for each argument");
        let groups = states.first().map_or(0, |state| state.len());
        for group in 0..groups {
            let columns: Vec<ArrayRef> =
                states.iter().map(|state| state.as_list::<i32>().value(group)).collect();
            self.update_batch(&columns)?;
        }
        Ok(())
    }
}

fn scalar_value(data_type: &DataType, value: Datum<'_>) -> Result<ScalarValue> {
    let mut builder = ColumnBuilder::new(data_type, 1);
    builder.push(value);
    ScalarValue::try_from_array(&builder.finish(), 0)
}
