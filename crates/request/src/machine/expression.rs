//! Expressions that can be machine code, as trees of a few operations.
//!
//! [`lower`] has the rules of the dialect: what each function does with NULL, overflow and zero is
//! defined in `lockstep_function`, and repeated here as operations that the emitter turns into
//! instructions. An expression that is not lowered is interpreted.

use datafusion::{
    common::{DFSchema, ScalarValue},
    logical_expr::{BinaryExpr, Case, Expr, Operator, expr::ScalarFunction},
};
use lockstep_function::{Compatibility, ScalarImplementation, udf::as_scalar};
use lockstep_row::{DataType, arrow};

/// The type of a machine value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MachineKind {
    Bool,
    SmallInt,
    Int,
    BigInt,
    Timestamp,
    Date,
    Float,
    Double,
}

impl MachineKind {
    /// Returns the kind of a SQL type; `None` where its values cannot be machine values.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Bool => Self::Bool,
            DataType::SmallInt => Self::SmallInt,
            DataType::Int => Self::Int,
            DataType::BigInt => Self::BigInt,
            DataType::Timestamp => Self::Timestamp,
            DataType::Date => Self::Date,
            DataType::Float => Self::Float,
            DataType::Double => Self::Double,
            DataType::Null | DataType::String | DataType::Array(_) | DataType::Map(..) => {
                return None;
            }
        })
    }

    /// Returns whether values are 64-bit integers; narrower ones are sign-extended.
    pub(crate) fn is_integer(self) -> bool {
        !matches!(self, Self::Bool | Self::Float | Self::Double)
    }

    /// Returns the range of an integer type that is narrower than 64 bits.
    pub(crate) fn range(self) -> Option<(i64, i64)> {
        match self {
            Self::SmallInt => Some((i16::MIN.into(), i16::MAX.into())),
            Self::Int | Self::Date => Some((i32::MIN.into(), i32::MAX.into())),
            _ => None,
        }
    }
}

/// An arithmetic operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ArithmeticOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ComparisonOp {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An expression as a tree of operations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum MachineExpr {
    /// A column of the schema.
    Column(usize, MachineKind),
    /// The bits of a value (an integer sign-extended), or NULL.
    Constant(MachineKind, Option<u64>),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    Not(Box<Self>),
    IsNull(Box<Self>),
    /// The second where the first is true, else the third.
    Select(MachineKind, Box<[Self; 3]>),
    /// The first that is not NULL.
    Coalesce(MachineKind, Vec<Self>),
    /// NULL where a side is, where the type does not have the result, and for a division by zero.
    Arithmetic(ArithmeticOp, MachineKind, Box<[Self; 2]>),
    /// Integers and BOOLs of one kind, or numbers as DOUBLE.
    Compare(ComparisonOp, Box<[Self; 2]>),
    Negate(MachineKind, Box<Self>),
    Cast(MachineKind, Box<Self>),
}

impl MachineExpr {
    /// Returns the type of the value.
    pub(crate) fn kind(&self) -> MachineKind {
        match self {
            Self::Column(_, kind)
            | Self::Constant(kind, _)
            | Self::Select(kind, _)
            | Self::Coalesce(kind, _)
            | Self::Arithmetic(_, kind, _)
            | Self::Negate(kind, _)
            | Self::Cast(kind, _) => *kind,
            Self::And(_) | Self::Or(_) | Self::Not(_) | Self::IsNull(_) | Self::Compare(..) => {
                MachineKind::Bool
            }
        }
    }

    /// Returns whether the expression reads a column.
    pub(crate) fn reads_columns(&self) -> bool {
        let mut columns = Vec::new();
        self.columns(&mut columns);
        !columns.is_empty()
    }

    /// Returns whether the value may be NaN: it is a float, and not a constant number.
    pub(crate) fn may_be_nan(&self) -> bool {
        match self {
            Self::Constant(_, None) => false,
            Self::Constant(MachineKind::Double, Some(bits)) => f64::from_bits(*bits).is_nan(),
            Self::Constant(MachineKind::Float, Some(bits)) => {
                u32::try_from(*bits).is_ok_and(|bits| f32::from_bits(bits).is_nan())
            }
            other => is_float(other.kind()),
        }
    }

    /// Counts the operations.
    pub(crate) fn size(&self) -> usize {
        let sum = |parts: &[Self]| parts.iter().map(Self::size).sum::<usize>();
        1 + match self {
            Self::Column(..) | Self::Constant(..) => 0,
            Self::And(sides) | Self::Or(sides) | Self::Compare(_, sides) => sum(&sides[..]),
            Self::Arithmetic(_, _, sides) => sum(&sides[..]),
            Self::Select(_, parts) => sum(&parts[..]),
            Self::Coalesce(_, parts) => sum(parts),
            Self::Not(operand)
            | Self::IsNull(operand)
            | Self::Negate(_, operand)
            | Self::Cast(_, operand) => operand.size(),
        }
    }

    /// Adds the columns that are read to `found`, each once, in the order in which they occur.
    pub(crate) fn columns(&self, found: &mut Vec<(usize, MachineKind)>) {
        match self {
            Self::Column(column, kind) => {
                if !found.contains(&(*column, *kind)) {
                    found.push((*column, *kind));
                }
            }
            Self::Constant(..) => {}
            Self::And(sides) | Self::Or(sides) | Self::Compare(_, sides) => {
                sides.iter().for_each(|side| side.columns(found));
            }
            Self::Arithmetic(_, _, sides) => sides.iter().for_each(|side| side.columns(found)),
            Self::Select(_, parts) => parts.iter().for_each(|part| part.columns(found)),
            Self::Coalesce(_, parts) => parts.iter().for_each(|part| part.columns(found)),
            Self::Not(operand)
            | Self::IsNull(operand)
            | Self::Negate(_, operand)
            | Self::Cast(_, operand) => operand.columns(found),
        }
    }
}

/// Lowers an expression over the columns of a schema. Returns `None` where it cannot be machine code.
pub(crate) fn lower(expr: &Expr, schema: &DFSchema) -> Option<MachineExpr> {
    Some(match expr {
        Expr::Alias(alias) => lower(&alias.expr, schema)?,
        Expr::Column(column) => {
            let index = schema.maybe_index_of_column(column)?;
            let data_type = arrow::data_type(schema.field(index).data_type())?;
            MachineExpr::Column(index, MachineKind::of(&data_type)?)
        }
        Expr::Literal(value, _) => literal(value)?,
        Expr::BinaryExpr(binary) => lower_binary(binary, schema)?,
        Expr::Not(operand) => MachineExpr::Not(Box::new(lower_bool(operand, schema)?)),
        Expr::IsNull(operand) => MachineExpr::IsNull(Box::new(lower(operand, schema)?)),
        Expr::IsNotNull(operand) => {
            MachineExpr::Not(Box::new(MachineExpr::IsNull(Box::new(lower(operand, schema)?))))
        }
        Expr::Case(case) => lower_case(case, schema)?,
        Expr::ScalarFunction(call) => lower_call(call, schema)?,
        _ => return None,
    })
}

fn lower_bool(expr: &Expr, schema: &DFSchema) -> Option<MachineExpr> {
    lower(expr, schema).filter(|node| node.kind() == MachineKind::Bool)
}

fn literal(value: &ScalarValue) -> Option<MachineExpr> {
    let integer = |value: i64| value.cast_unsigned();
    let (kind, bits) = match value {
        ScalarValue::Boolean(value) => (MachineKind::Bool, value.map(u64::from)),
        ScalarValue::Int16(value) => {
            (MachineKind::SmallInt, value.map(|value| integer(value.into())))
        }
        ScalarValue::Int32(value) => (MachineKind::Int, value.map(|value| integer(value.into()))),
        ScalarValue::Int64(value) => (MachineKind::BigInt, value.map(integer)),
        ScalarValue::Float32(value) => {
            (MachineKind::Float, value.map(|value| value.to_bits().into()))
        }
        ScalarValue::Float64(value) => (MachineKind::Double, value.map(f64::to_bits)),
        ScalarValue::TimestampMillisecond(value, _) => (MachineKind::Timestamp, value.map(integer)),
        ScalarValue::Date32(value) => (MachineKind::Date, value.map(|value| integer(value.into()))),
        _ => return None,
    };
    Some(MachineExpr::Constant(kind, bits))
}

fn lower_binary(binary: &BinaryExpr, schema: &DFSchema) -> Option<MachineExpr> {
    let comparison = match binary.op {
        Operator::And | Operator::Or => {
            let sides = [lower_bool(&binary.left, schema)?, lower_bool(&binary.right, schema)?];
            let sides = Box::new(sides);
            return Some(if binary.op == Operator::And {
                MachineExpr::And(sides)
            } else {
                MachineExpr::Or(sides)
            });
        }
        Operator::Eq => ComparisonOp::Equal,
        Operator::NotEq => ComparisonOp::NotEqual,
        Operator::Lt => ComparisonOp::Less,
        Operator::LtEq => ComparisonOp::LessOrEqual,
        Operator::Gt => ComparisonOp::Greater,
        Operator::GtEq => ComparisonOp::GreaterOrEqual,
        _ => return None,
    };
    let (left, right) = (lower(&binary.left, schema)?, lower(&binary.right, schema)?);
    // Floats compare otherwise in DataFusion's operators.
    let is_native = left.kind() == right.kind() && !is_float(left.kind());
    is_native.then(|| MachineExpr::Compare(comparison, Box::new([left, right])))
}

fn is_float(kind: MachineKind) -> bool {
    matches!(kind, MachineKind::Float | MachineKind::Double)
}

/// Lowers a searched CASE, from its last branch to its first.
fn lower_case(case: &Case, schema: &DFSchema) -> Option<MachineExpr> {
    if case.expr.is_some() {
        return None;
    }
    // Each part once: where CASE is nested, twice would be twice at each level.
    let branch = |(when, then): &(Box<Expr>, Box<Expr>)| {
        Some((lower_bool(when, schema)?, lower(then, schema)?))
    };
    let branches = case.when_then_expr.iter().map(branch).collect::<Option<Vec<_>>>()?;
    let kind = branches.first()?.1.kind();
    let mut node = match &case.else_expr {
        Some(otherwise) => lower(otherwise, schema)?,
        None => MachineExpr::Constant(kind, None),
    };
    if branches.iter().map(|(_, then)| then).chain([&node]).any(|part| part.kind() != kind) {
        return None;
    }
    for (when, then) in branches.into_iter().rev() {
        node = MachineExpr::Select(kind, Box::new([when, then, node]));
    }
    Some(node)
}

fn lower_call(call: &ScalarFunction, schema: &DFSchema) -> Option<MachineExpr> {
    let udf = as_scalar(&call.func)?;
    if udf.settings().compatibility != Compatibility::Standard {
        return None;
    }
    let arguments = call.args.iter().map(|argument| lower(argument, schema));
    let arguments = arguments.collect::<Option<Vec<_>>>()?;
    let name = call.func.name();
    function(name, udf.implementation(), arguments)
}

fn function(
    name: &str,
    form: &ScalarImplementation,
    arguments: Vec<MachineExpr>,
) -> Option<MachineExpr> {
    let result = MachineKind::of(&form.returns)?;
    let kinds: Vec<MachineKind> =
        form.parameters.iter().map(MachineKind::of).collect::<Option<Vec<_>>>()?;
    // A NULL literal may be the argument where a parameter has a type.
    if arguments.iter().zip(&kinds).any(|(argument, kind)| argument.kind() != *kind) {
        return None;
    }
    let arithmetic = match name {
        "op_add" => Some(ArithmeticOp::Add),
        "op_subtract" => Some(ArithmeticOp::Subtract),
        "op_multiply" => Some(ArithmeticOp::Multiply),
        "op_divide" | "op_int_divide" => Some(ArithmeticOp::Divide),
        "op_modulo" if result.is_integer() => Some(ArithmeticOp::Modulo),
        _ => None,
    };
    if let Some(arithmetic) = arithmetic {
        let sides: [MachineExpr; 2] = arguments.try_into().ok()?;
        let is_number = |kind: &MachineKind| *kind != MachineKind::Bool;
        let fits = match result {
            MachineKind::Bool => false,
            MachineKind::Float => kinds.iter().all(|kind| *kind == MachineKind::Float),
            MachineKind::Double => kinds.iter().all(is_number),
            _ => kinds.iter().all(|kind| kind.is_integer()),
        };
        return fits.then(|| MachineExpr::Arithmetic(arithmetic, result, Box::new(sides)));
    }
    if let Some(comparison) = comparison(name) {
        let sides: [MachineExpr; 2] = arguments.try_into().ok()?;
        let bools = kinds.iter().filter(|kind| **kind == MachineKind::Bool).count();
        return (bools != 1).then(|| MachineExpr::Compare(comparison, Box::new(sides)));
    }
    conditional(name, result, arguments)
}

fn comparison(name: &str) -> Option<ComparisonOp> {
    Some(match name {
        "op_eq" => ComparisonOp::Equal,
        "op_ne" => ComparisonOp::NotEqual,
        "op_lt" => ComparisonOp::Less,
        "op_le" => ComparisonOp::LessOrEqual,
        "op_gt" => ComparisonOp::Greater,
        "op_ge" => ComparisonOp::GreaterOrEqual,
        _ => return None,
    })
}

fn conditional(
    name: &str,
    result: MachineKind,
    mut arguments: Vec<MachineExpr>,
) -> Option<MachineExpr> {
    let has_result_kind = |node: &MachineExpr| node.kind() == result;
    match name {
        "op_negate" if result != MachineKind::Bool => {
            Some(MachineExpr::Negate(result, Box::new(arguments.pop()?)))
        }
        "op_plus" | "identity" => arguments.pop(),
        "is_null" => Some(MachineExpr::IsNull(Box::new(arguments.pop()?))),
        "coalesce" | "if_null" if arguments.iter().all(has_result_kind) => {
            Some(MachineExpr::Coalesce(result, arguments))
        }
        "if" => Some(MachineExpr::Select(result, Box::new(arguments.try_into().ok()?))),
        "nvl2" => {
            let [tested, present, absent] = arguments.try_into().ok()?;
            let tested = MachineExpr::IsNull(Box::new(tested));
            Some(MachineExpr::Select(result, Box::new([tested, absent, present])))
        }
        "to_bool" => truth(arguments.pop()?),
        "cast_smallint" | "cast_int" | "cast_bigint" | "cast_float" | "cast_double"
        | "cast_bool" => cast(arguments.pop()?, result),
        _ => None,
    }
}

/// Converts a condition to BOOL: a number is true when it is not zero, and so is NaN.
fn truth(operand: MachineExpr) -> Option<MachineExpr> {
    let kind = operand.kind();
    match kind {
        MachineKind::Bool => Some(operand),
        MachineKind::Date => None,
        _ => {
            let zero = Box::new([operand, MachineExpr::Constant(kind, Some(0))]);
            Some(MachineExpr::Compare(ComparisonOp::NotEqual, zero))
        }
    }
}

fn cast(operand: MachineExpr, to: MachineKind) -> Option<MachineExpr> {
    let from = operand.kind();
    let is_lowered = match (from, to) {
        _ if from == to => return Some(operand),
        (MachineKind::Date, _) => false,
        (_, MachineKind::Bool) => return truth(operand),
        // From floats to integers the fraction is dropped and the range checked.
        (MachineKind::Float | MachineKind::Double, to) if to.is_integer() => false,
        _ => true,
    };
    is_lowered.then(|| MachineExpr::Cast(to, Box::new(operand)))
}
