//! The syntax tree of a catalog query.

use lockstep_row::Value;

use crate::postgres::types::Oid;

/// A query.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SelectQuery {
    pub(super) is_distinct: bool,
    pub(super) items: Vec<CatalogSelectItem>,
    pub(super) from: Vec<Source>,
    pub(super) filter: Option<CatalogExpr>,
    pub(super) order: Vec<OrderItem>,
    pub(super) limit: Option<CatalogExpr>,
    pub(super) offset: Option<CatalogExpr>,
    /// Further rows, and whether those that repeat are left out.
    pub(super) union: Option<(Box<Self>, UnionKind)>,
}

/// How the rows of two queries become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnionKind {
    All,
    Distinct,
}

/// A column of a query.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CatalogSelectItem {
    /// `*`, or `table.*`.
    All(Option<String>),
    Expr {
        expr: CatalogExpr,
        name: String,
    },
}

/// A term of ORDER BY.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OrderItem {
    pub(super) expr: CatalogExpr,
    pub(super) is_descending: bool,
}

/// A table of FROM, and how it is joined with those before it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Source {
    pub(super) rows: SourceRows,
    pub(super) alias: String,
    pub(super) is_left: bool,
    pub(super) on: Option<CatalogExpr>,
}

/// The rows of a source.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SourceRows {
    /// A table of the catalogs.
    Table(String),
    Query(Box<SelectQuery>),
    /// A function that returns rows of one column.
    Function {
        name: String,
        arguments: Vec<CatalogExpr>,
    },
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CatalogExpr {
    Constant(Value),
    /// The number of a parameter, from 1.
    Parameter(u16),
    Column {
        table: Option<String>,
        name: String,
    },
    Not(Box<Self>),
    Negative(Box<Self>),
    Binary {
        operator: Operator,
        left: Box<Self>,
        right: Box<Self>,
    },
    IsNull(Box<Self>),
    /// `left operator ANY (right)` and IN: a list, an array or a query.
    Any {
        operator: Operator,
        left: Box<Self>,
        right: Box<MemberList>,
    },
    Case {
        operand: Option<Box<Self>>,
        branches: Vec<(Self, Self)>,
        otherwise: Option<Box<Self>>,
    },
    Call {
        name: String,
        arguments: Vec<Self>,
    },
    Cast {
        operand: Box<Self>,
        data_type: Oid,
    },
    Scalar(Box<SelectQuery>),
    Exists(Box<SelectQuery>),
    /// `ARRAY(query)`.
    ArrayOf(Box<SelectQuery>),
    Array(Vec<Self>),
    Element {
        array: Box<Self>,
        index: Box<Self>,
    },
}

/// What a value may be equal to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MemberList {
    List(Vec<CatalogExpr>),
    Query(Box<SelectQuery>),
}

/// An operator of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `~`, and `~*` where letters of both cases are the same.
    Matches,
    MatchesAnyCase,
    Like,
    LikeAnyCase,
    Concatenate,
    Add,
    Subtract,
    Multiply,
    Divide,
    BitAnd,
}

impl CatalogExpr {
    /// Makes an expression of two operands.
    pub(super) fn binary(operator: Operator, left: Self, right: Self) -> Self {
        Self::Binary { operator, left: Box::new(left), right: Box::new(right) }
    }

    /// Returns the parts that AND joins.
    pub(super) fn conjuncts(&self) -> Vec<&Self> {
        match self {
            Self::Binary { operator: Operator::And, left, right } => {
                [left.conjuncts(), right.conjuncts()].concat()
            }
            other => vec![other],
        }
    }

    /// Calls `visit` for each column outside of inner queries. Returns whether there is an inner query.
    pub(super) fn columns(&self, visit: &mut impl FnMut(Option<&str>, &str)) -> bool {
        match self {
            Self::Constant(_) | Self::Parameter(_) => false,
            Self::Column { table, name } => {
                visit(table.as_deref(), name);
                false
            }
            Self::Not(operand)
            | Self::Negative(operand)
            | Self::IsNull(operand)
            | Self::Cast { operand, .. } => operand.columns(visit),
            Self::Binary { left, right, .. } | Self::Element { array: left, index: right } => {
                let has_query = left.columns(visit);
                right.columns(visit) || has_query
            }
            Self::Any { left, right, .. } => {
                let has_query = left.columns(visit);
                match right.as_ref() {
                    MemberList::List(list) => any_columns(list, visit) || has_query,
                    MemberList::Query(_) => true,
                }
            }
            Self::Case { operand, branches, otherwise } => {
                let mut has_query = false;
                for (condition, value) in branches {
                    has_query |= condition.columns(visit);
                    has_query |= value.columns(visit);
                }
                for part in operand.iter().chain(otherwise) {
                    has_query |= part.columns(visit);
                }
                has_query
            }
            Self::Call { arguments, .. } | Self::Array(arguments) => any_columns(arguments, visit),
            Self::Scalar(_) | Self::Exists(_) | Self::ArrayOf(_) => true,
        }
    }
}

fn any_columns(list: &[CatalogExpr], visit: &mut impl FnMut(Option<&str>, &str)) -> bool {
    let mut has_query = false;
    for expr in list {
        has_query |= expr.columns(visit);
    }
    has_query
}
