//! Names, expressions, literals and type names.

use lockstep_diagnostic::Span;

use super::{Query, WindowSpec};

/// A name as written, without its quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ident {
    /// The name.
    pub text: String,
    /// Its position in the text.
    pub span: Span,
}

/// A possibly qualified name: `[db.]table`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// The database, if given.
    pub database: Option<Ident>,
    /// The object.
    pub name: Ident,
}

/// An expression and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// The form of the expression, with its operands.
    pub kind: ExprKind,
    /// Its position in the text.
    pub span: Span,
}

/// The forms of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// `a`, `t.a`, `db.t.a`.
    Column(Vec<Ident>),
    /// A constant.
    Literal(Literal),
    /// A text in double quotes, escapes resolved. In other systems it is a name; here that depends
    /// on the names in scope.
    QuotedText(String),
    /// An anonymous `?`, numbered from 0 in the order of the text.
    Parameter(usize),
    /// `-a`, `NOT a`.
    Unary {
        /// The operator.
        operator: UnaryOperator,
        /// Its operand.
        operand: Box<Expr>,
    },
    /// `a + b`.
    Binary {
        /// The operator.
        operator: BinaryOperator,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
    },
    /// `a IS [NOT] NULL`.
    IsNull {
        /// The operand.
        operand: Box<Expr>,
        /// IS NOT NULL.
        negated: bool,
    },
    /// `a [NOT] BETWEEN low AND high`.
    Between {
        /// The operand.
        operand: Box<Expr>,
        /// NOT BETWEEN.
        negated: bool,
        /// Lower end, inclusive.
        low: Box<Expr>,
        /// Upper end, inclusive.
        high: Box<Expr>,
    },
    /// `a [NOT] IN (b, …)`.
    InList {
        /// The operand.
        operand: Box<Expr>,
        /// NOT IN.
        negated: bool,
        /// The list; at least one item.
        items: Vec<Expr>,
    },
    /// `a [NOT] LIKE | ILIKE | RLIKE pattern [ESCAPE 'c']`.
    Like {
        /// Which of the three.
        operator: LikeOperator,
        /// The text.
        operand: Box<Expr>,
        /// NOT LIKE.
        negated: bool,
        /// The pattern.
        pattern: Box<Expr>,
        /// The escape, if given (never with RLIKE).
        escape: Option<Box<Expr>>,
    },
    /// `CASE [operand] WHEN … THEN … [ELSE …] END`.
    Case {
        /// The operand of a simple CASE.
        operand: Option<Box<Expr>>,
        /// (WHEN, THEN) pairs; at least one.
        branches: Vec<(Expr, Expr)>,
        /// ELSE.
        otherwise: Option<Box<Expr>>,
    },
    /// `CAST(a AS type)`.
    Cast {
        /// The operand.
        operand: Box<Expr>,
        /// The type.
        to: TypeName,
    },
    /// `f(a, …) [OVER w]`.
    Call(Call),
    /// `a[i]`.
    Index {
        /// The array or map.
        operand: Box<Expr>,
        /// The position or key.
        index: Box<Expr>,
    },
    /// `[a, …]`, `ARRAY<type>[a, …]`.
    Array {
        /// The element type, if given.
        element: Option<TypeName>,
        /// The elements.
        items: Vec<Expr>,
    },
    /// `(SELECT …)`, `EXISTS (SELECT …)`; as the only item of IN, `a IN (SELECT …)`.
    SubQuery {
        /// EXISTS.
        exists: bool,
        /// The query.
        query: Box<Query>,
    },
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The name as written.
    pub name: Ident,
    /// The arguments; with `star`, those after it, so none for `f(*)`.
    pub arguments: Vec<Expr>,
    /// `f(*)`, `f(*, …)`: the first argument is a star.
    pub star: bool,
    /// `f(DISTINCT …)`.
    pub distinct: bool,
    /// The window.
    pub over: Option<Over>,
}

/// The window of an OVER clause.
#[derive(Debug, Clone, PartialEq)]
pub enum Over {
    /// `OVER w`.
    Named(Ident),
    /// `OVER (…)`.
    Spec(Box<WindowSpec>),
}

impl Over {
    /// Returns the position of the name or of the window.
    pub fn span(&self) -> Span {
        match self {
            Self::Named(name) => name.span,
            Self::Spec(spec) => spec.span,
        }
    }
}

/// A constant.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// NULL.
    Null,
    /// TRUE, FALSE.
    Bool(bool),
    /// An integer that fits 32 bits.
    Int(i32),
    /// An integer that needs 64 bits, or has the suffix `L`.
    BigInt(i64),
    /// A decimal number with the suffix `f`.
    Float(f32),
    /// A decimal number.
    Double(f64),
    /// A quoted text, escapes resolved.
    String(String),
    /// `10s`, `30d`: in frames, options and INDEX only.
    Interval(Interval),
}

/// A duration literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The number.
    pub amount: i64,
    /// The unit.
    pub unit: IntervalUnit,
}

/// The unit of a duration literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalUnit {
    /// `s`.
    Second,
    /// `m`.
    Minute,
    /// `h`.
    Hour,
    /// `d`.
    Day,
}

impl Interval {
    /// Returns the duration in milliseconds; `None` when it does not fit 64 bits.
    pub fn milliseconds(self) -> Option<i64> {
        let unit = match self.unit {
            IntervalUnit::Second => 1_000,
            IntervalUnit::Minute => 60_000,
            IntervalUnit::Hour => 3_600_000,
            IntervalUnit::Day => 86_400_000,
        };
        self.amount.checked_mul(unit)
    }
}

/// A type, e.g. `varchar(10)`, `map<string, int>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeName {
    /// The name, as written; of a name of several words (`DOUBLE PRECISION`) or with a precision
    /// (`FLOAT(53)`), the type that it means.
    pub name: Ident,
    /// Type arguments of ARRAY and MAP.
    pub arguments: Vec<Self>,
    /// The maximum length of a text, in characters: `varchar(10)`.
    pub length: Option<u32>,
}

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOperator {
    /// `+`.
    Plus,
    /// `-`.
    Minus,
    /// `~`.
    BitNot,
    /// NOT, `!`.
    Not,
}

/// Operators with two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOperator {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// DIV.
    IntegerDivide,
    /// `%`, MOD.
    Modulo,
    /// `&`.
    BitAnd,
    /// `|`.
    BitOr,
    /// `^`.
    BitXor,
    /// `=`, `==`.
    Equal,
    /// `!=`, `<>`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// AND.
    And,
    /// OR.
    Or,
    /// XOR.
    Xor,
    /// `||`: concatenation, as in standard SQL.
    Concat,
}

/// The operators that match patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LikeOperator {
    /// LIKE.
    Like,
    /// ILIKE.
    ILike,
    /// RLIKE.
    RLike,
}
