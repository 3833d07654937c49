//! A scalar function or cast, resolved, as a DataFusion function.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef},
    datatypes::DataType as ArrowType,
};
use datafusion::{
    common::{DataFusionError, Result, ScalarValue, exec_err},
    logical_expr::{
        ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
        expr::ScalarFunction,
    },
};
use lockstep_row::{
    Arena, Datum, Value,
    arrow::{ColumnBuilder, ColumnReader, arrow_type},
};

use crate::{NullHandling, ScalarImplementation, Settings, value_limit};

/// The number of rows after which the scratch memory is reset.
const CHUNK_ROWS: usize = 1024;

/// The bytes of scratch memory after which it is reset earlier.
const CHUNK_BYTES: usize = 32 << 20;

/// A resolved function. Two are equal when they have the same name, parameters, result type,
/// constants and settings.
#[derive(Debug, Clone)]
pub struct ScalarUdf {
    name: String,
    implementation: ScalarImplementation,
    identity: Box<str>,
    settings: Settings,
    signature: Signature,
}

/// Returns a call of a resolved function. `constants` are those that it was resolved with, `None`
/// for an argument that is not a constant.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "callers hold their settings by reference")]
pub fn scalar_call(
    name: &str,
    implementation: ScalarImplementation,
    constants: &[Option<Value>],
    settings: &Settings,
    arguments: Vec<Expr>,
) -> Expr {
    let udf = ScalarUdf::new(name, implementation, constants, settings);
    let udf = Arc::new(ScalarUDF::new_from_impl(udf));
    Expr::ScalarFunction(ScalarFunction::new_udf(udf, arguments))
}

/// Returns the [`ScalarUdf`] of a DataFusion function; `None` for any other function.
pub fn as_scalar(udf: &ScalarUDF) -> Option<&ScalarUdf> {
    udf.inner().downcast_ref()
}

impl ScalarUdf {
    /// Returns whether it is the operator `=`.
    pub fn is_equality(&self) -> bool {
        &*self.name == "op_eq"
    }

    /// Wraps an implementation. The name is displayed and is part of the identity: that of a cast
    /// should have its target type.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "callers hold their settings by reference"
    )]
    pub fn new(
        name: impl Into<String>,
        implementation: ScalarImplementation,
        constants: &[Option<Value>],
        settings: &Settings,
    ) -> Self {
        let name = name.into();
        let ScalarImplementation { parameters, returns, .. } = &implementation;
        let identity = format!("{name} {parameters:?} {returns:?} {constants:?} {settings:?}");
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { name, implementation, identity: identity.into(), settings: *settings, signature }
    }

    /// Returns the implementation, which computes one row.
    pub fn implementation(&self) -> &ScalarImplementation {
        &self.implementation
    }

    /// Returns the settings that it was bound with.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    fn compute(&self, inputs: &[ArgumentValues<'_>], rows: usize) -> ArrayRef {
        let ScalarImplementation { returns, nulls, row: row_form, .. } = &self.implementation;
        debug_assert_eq!(
            inputs.len(),
            self.implementation.parameters.len(),
            "`coerce_types` checked the number of arguments"
        );
        let mut output = ColumnBuilder::new(returns, rows);
        let constants_arena = Arena::new();
        let constants: Vec<Datum<'_>> = inputs
            .iter()
            .map(|input| match input {
                ArgumentValues::Constant(reader) => reader.get(0, &constants_arena),
                ArgumentValues::Column(_) => Datum::Null,
            })
            .collect();
        let columns: Vec<(usize, &ColumnReader<'_>)> = inputs
            .iter()
            .enumerate()
            .filter_map(|(position, input)| match input {
                ArgumentValues::Column(reader) => Some((position, reader)),
                ArgumentValues::Constant(_) => None,
            })
            .collect();
        let mut arena = Arena::new();
        let mut start = 0;
        while start < rows && !value_limit::is_exceeded() {
            let end = rows.min(start + CHUNK_ROWS);
            let mut values = constants.clone();
            while start < end {
                for (position, reader) in &columns {
                    values[*position] = reader.get(start, &arena);
                }
                if *nulls == NullHandling::Propagate && values.iter().any(Datum::is_null) {
                    output.push_null();
                } else {
                    output.push(row_form(&values, &arena));
                }
                start += 1;
                if arena.allocated_bytes() - arena.chunk_capacity() > CHUNK_BYTES {
                    break;
                }
            }
            drop(values);
            arena.reset();
        }
        output.finish()
    }
}

/// Fails when a function of this thread exceeded a limit of its result.
pub(super) fn check_limits() -> Result<()> {
    value_limit::check().map_err(|error| DataFusionError::External(Box::new(error)))
}

/// The values of an argument.
enum ArgumentValues<'a> {
    Column(ColumnReader<'a>),
    Constant(ColumnReader<'a>),
}

impl PartialEq for ScalarUdf {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for ScalarUdf {}

impl Hash for ScalarUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
    }
}

impl ScalarUDFImpl for ScalarUdf {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[ArrowType]) -> Result<Vec<ArrowType>> {
        let expected = self.implementation.parameters.len();
        if arg_types.len() != expected {
            return exec_err!(
                "{} requires {expected} arguments, not {}",
                self.name,
                arg_types.len()
            );
        }
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, _arg_types: &[ArrowType]) -> Result<ArrowType> {
        Ok(arrow_type(&self.implementation.returns))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
        let all_constant = args.args.iter().all(is_constant);
        let arrays: Vec<ArrayRef> =
            args.args.iter().map(|arg| arg.to_array(1)).collect::<Result<_>>()?;
        let inputs: Vec<ArgumentValues<'_>> = arrays
            .iter()
            .zip(&args.args)
            .map(|(array, arg)| {
                let reader = ColumnReader::new(array as &dyn Array);
                if is_constant(arg) {
                    ArgumentValues::Constant(reader)
                } else {
                    ArgumentValues::Column(reader)
                }
            })
            .collect();
        if all_constant {
            let value = self.compute(&inputs, 1);
            check_limits()?;
            if !value_limit::may_be_planned(value.get_array_memory_size()) {
                return exec_err!("the constant is too long to be computed during planning");
            }
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&value, 0)?));
        }
        let values = self.compute(&inputs, args.number_rows);
        check_limits()?;
        Ok(ColumnarValue::Array(values))
    }
}
