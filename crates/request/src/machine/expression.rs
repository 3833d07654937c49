//! Expressions that have a machine form, as trees of a few operations.
//!
//! [`lower`] knows the rules of the dialect: what each function does with NULL, overflow and zero
//! is written down in `lockstep_function`, and here once more as operations that the emitter turns
//! into instructions. What is not lowered keeps its row form.

use datafusion::{
    common::{DFSchema, ScalarValue},
    logical_expr::{BinaryExpr, Case, Expr, Operator, expr::ScalarFunction},
};
use lockstep_function::{Compatibility, ScalarImplementation, udf::as_scalar};
use lockstep_row::{DataType, arrow};

/// The types of machine values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Bool,
    SmallInt,
    Int,
    BigInt,
    Timestamp,
    Date,
    Float,
    Double,
}

impl Kind {
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

    /// Whether values are held in 64 bits, sign-extended.
    pub(crate) fn is_integer(self) -> bool {
        !matches!(self, Self::Bool | Self::Float | Self::Double)
    }

    /// The range of an integer type that is narrower than 64 bits.
    pub(crate) fn range(self) -> Option<(i64, i64)> {
        match self {
            Self::SmallInt => Some((i16::MIN.into(), i16::MAX.into())),
            Self::Int | Self::Date => Some((i32::MIN.into(), i32::MAX.into())),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An expression in operations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// A column of the schema.
    Column(usize, Kind),
    /// The bits of a value (an integer sign-extended), or NULL.
    Constant(Kind, Option<u64>),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    Not(Box<Self>),
    IsNull(Box<Self>),
    /// The second where the first is true, else the third.
    Select(Kind, Box<[Self; 3]>),
    /// The first that is not NULL.
    Coalesce(Kind, Vec<Self>),
    /// NULL where a side is, where the type does not hold the result, and where zero divides.
    Arithmetic(Arithmetic, Kind, Box<[Self; 2]>),
    /// Integers and BOOLs of one kind, or numbers as DOUBLE.
    Compare(Comparison, Box<[Self; 2]>),
    Negate(Kind, Box<Self>),
    Cast(Kind, Box<Self>),
}

impl Node {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Column(_, kind)
            | Self::Constant(kind, _)
            | Self::Select(kind, _)
            | Self::Coalesce(kind, _)
            | Self::Arithmetic(_, kind, _)
            | Self::Negate(kind, _)
            | Self::Cast(kind, _) => *kind,
            Self::And(_) | Self::Or(_) | Self::Not(_) | Self::IsNull(_) | Self::Compare(..) => {
                Kind::Bool
            }
        }
    }

    /// Whether there is something to compute from.
    pub(crate) fn reads_columns(&self) -> bool {
        let mut columns = Vec::new();
        self.columns(&mut columns);
        !columns.is_empty()
    }

    /// The number of operations.
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

    /// Columns that are read, each once, in the order in which they are met.
    pub(crate) fn columns(&self, found: &mut Vec<(usize, Kind)>) {
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

/// The machine form of an expression over the columns of a schema, if it has one.
pub(crate) fn lower(expr: &Expr, schema: &DFSchema) -> Option<Node> {
    Some(match expr {
        Expr::Alias(alias) => lower(&alias.expr, schema)?,
        Expr::Column(column) => {
            let index = schema.maybe_index_of_column(column)?;
            let data_type = arrow::data_type(schema.field(index).data_type())?;
            Node::Column(index, Kind::of(&data_type)?)
        }
        Expr::Literal(value, _) => literal(value)?,
        Expr::BinaryExpr(binary) => lower_binary(binary, schema)?,
        Expr::Not(operand) => Node::Not(Box::new(lower_bool(operand, schema)?)),
        Expr::IsNull(operand) => Node::IsNull(Box::new(lower(operand, schema)?)),
        Expr::IsNotNull(operand) => {
            Node::Not(Box::new(Node::IsNull(Box::new(lower(operand, schema)?))))
        }
        Expr::Case(case) => lower_case(case, schema)?,
        Expr::ScalarFunction(call) => lower_call(call, schema)?,
        _ => return None,
    })
}

fn lower_bool(expr: &Expr, schema: &DFSchema) -> Option<Node> {
    lower(expr, schema).filter(|node| node.kind() == Kind::Bool)
}

fn literal(value: &ScalarValue) -> Option<Node> {
    let integer = |value: i64| value.cast_unsigned();
    let (kind, bits) = match value {
        ScalarValue::Boolean(value) => (Kind::Bool, value.map(u64::from)),
        ScalarValue::Int16(value) => (Kind::SmallInt, value.map(|value| integer(value.into()))),
        ScalarValue::Int32(value) => (Kind::Int, value.map(|value| integer(value.into()))),
        ScalarValue::Int64(value) => (Kind::BigInt, value.map(integer)),
        ScalarValue::Float32(value) => (Kind::Float, value.map(|value| value.to_bits().into())),
        ScalarValue::Float64(value) => (Kind::Double, value.map(f64::to_bits)),
        ScalarValue::TimestampMillisecond(value, _) => (Kind::Timestamp, value.map(integer)),
        ScalarValue::Date32(value) => (Kind::Date, value.map(|value| integer(value.into()))),
        _ => return None,
    };
    Some(Node::Constant(kind, bits))
}

fn lower_binary(binary: &BinaryExpr, schema: &DFSchema) -> Option<Node> {
    let comparison = match binary.op {
        Operator::And | Operator::Or => {
            let sides = [lower_bool(&binary.left, schema)?, lower_bool(&binary.right, schema)?];
            let sides = Box::new(sides);
            return Some(if binary.op == Operator::And {
                Node::And(sides)
            } else {
                Node::Or(sides)
            });
        }
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    };
    let (left, right) = (lower(&binary.left, schema)?, lower(&binary.right, schema)?);
    // Floats compare otherwise in DataFusion's operators.
    let is_native = left.kind() == right.kind() && !is_float(left.kind());
    is_native.then(|| Node::Compare(comparison, Box::new([left, right])))
}

fn is_float(kind: Kind) -> bool {
    matches!(kind, Kind::Float | Kind::Double)
}

/// A searched CASE, from its last branch to its first.
fn lower_case(case: &Case, schema: &DFSchema) -> Option<Node> {
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
        None => Node::Constant(kind, None),
    };
    if branches.iter().map(|(_, then)| then).chain([&node]).any(|part| part.kind() != kind) {
        return None;
    }
    for (when, then) in branches.into_iter().rev() {
        node = Node::Select(kind, Box::new([when, then, node]));
    }
    Some(node)
}

fn lower_call(call: &ScalarFunction, schema: &DFSchema) -> Option<Node> {
    let udf = as_scalar(&call.func)?;
    if udf.settings().compatibility != Compatibility::Standard {
        return None;
    }
    let arguments = call.args.iter().map(|argument| lower(argument, schema));
    let arguments = arguments.collect::<Option<Vec<_>>>()?;
    let name = call.func.name();
    function(name, udf.implementation(), arguments)
}

fn function(name: &str, form: &ScalarImplementation, arguments: Vec<Node>) -> Option<Node> {
    let result = Kind::of(&form.returns)?;
    let kinds: Vec<Kind> = form.parameters.iter().map(Kind::of).collect::<Option<Vec<_>>>()?;
    // A bare NULL may stand where a parameter has a type.
    if arguments.iter().zip(&kinds).any(|(argument, kind)| argument.kind() != *kind) {
        return None;
    }
    let arithmetic = match name {
        "op_add" => Some(Arithmetic::Add),
        "op_subtract" => Some(Arithmetic::Subtract),
        "op_multiply" => Some(Arithmetic::Multiply),
        "op_divide" | "op_int_divide" => Some(Arithmetic::Divide),
        "op_modulo" if result.is_integer() => Some(Arithmetic::Modulo),
        _ => None,
    };
    if let Some(arithmetic) = arithmetic {
        let sides: [Node; 2] = arguments.try_into().ok()?;
        let is_number = |kind: &Kind| *kind != Kind::Bool;
        let fits = match result {
            Kind::Bool => false,
            Kind::Float => kinds.iter().all(|kind| *kind == Kind::Float),
            Kind::Double => kinds.iter().all(is_number),
            _ => kinds.iter().all(|kind| kind.is_integer()),
        };
        return fits.then(|| Node::Arithmetic(arithmetic, result, Box::new(sides)));
    }
    if let Some(comparison) = comparison(name) {
        let sides: [Node; 2] = arguments.try_into().ok()?;
        let bools = kinds.iter().filter(|kind| **kind == Kind::Bool).count();
        return (bools != 1).then(|| Node::Compare(comparison, Box::new(sides)));
    }
    conditional(name, result, arguments)
}

fn comparison(name: &str) -> Option<Comparison> {
    Some(match name {
        "op_eq" => Comparison::Equal,
        "op_ne" => Comparison::NotEqual,
        "op_lt" => Comparison::Less,
        "op_le" => Comparison::LessOrEqual,
        "op_gt" => Comparison::Greater,
        "op_ge" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn conditional(name: &str, result: Kind, mut arguments: Vec<Node>) -> Option<Node> {
    let is_of_result = |node: &Node| node.kind() == result;
    match name {
        "op_negate" if result != Kind::Bool => {
            Some(Node::Negate(result, Box::new(arguments.pop()?)))
        }
        "op_plus" | "identity" => arguments.pop(),
        "is_null" => Some(Node::IsNull(Box::new(arguments.pop()?))),
        "coalesce" | "if_null" if arguments.iter().all(is_of_result) => {
            Some(Node::Coalesce(result, arguments))
        }
        "if" => Some(Node::Select(result, Box::new(arguments.try_into().ok()?))),
        "nvl2" => {
            let [tested, present, absent] = arguments.try_into().ok()?;
            let tested = Node::IsNull(Box::new(tested));
            Some(Node::Select(result, Box::new([tested, absent, present])))
        }
        "to_bool" => truth(arguments.pop()?),
        "cast_smallint" | "cast_int" | "cast_bigint" | "cast_float" | "cast_double"
        | "cast_bool" => cast(arguments.pop()?, result),
        _ => None,
    }
}

/// What counts as a condition: a number that is not zero, NaN included.
fn truth(operand: Node) -> Option<Node> {
    let kind = operand.kind();
    match kind {
        Kind::Bool => Some(operand),
        Kind::Date => None,
        _ => {
            let zero = Box::new([operand, Node::Constant(kind, Some(0))]);
            Some(Node::Compare(Comparison::NotEqual, zero))
        }
    }
}

fn cast(operand: Node, to: Kind) -> Option<Node> {
    let from = operand.kind();
    let is_lowered = match (from, to) {
        _ if from == to => return Some(operand),
        (Kind::Date, _) => false,
        (_, Kind::Bool) => return truth(operand),
        // From floats to integers the fraction is dropped and the range checked.
        (Kind::Float | Kind::Double, to) if to.is_integer() => false,
        _ => true,
    };
    is_lowered.then(|| Node::Cast(to, Box::new(operand)))
}
