//! Printing of expressions: the name of a result column that has no alias.
//!
//! The binder calls it. The text is normalised (one space around operators, functions in lower
//! case, only the parentheses that are needed), so the same expression gets the same name however
//! it is spaced. Recurses as deep as the tree is tall, which [`crate::TREE_HEIGHT_MAX`] bounds.

use std::fmt::{self, Write};

use crate::ast::{
    BinaryOperator, Call, Expr, ExprKind, Ident, Interval, IntervalUnit, LikeOperator, Literal,
    Over, TypeName, UnaryOperator,
};
use crate::expression::{Precedence, precedence};

impl Expr {
    /// Returns the name of a result column that has no alias: a column's own name without its
    /// table, or the printed expression, e.g. `sum(c4)over w1`.
    pub fn name(&self) -> String {
        match &self.kind {
            ExprKind::Column(parts) => {
                parts.last().map_or_else(String::new, |part| part.text.clone())
            }
            _ => self.to_string(),
        }
    }

    /// Returns the precedence of the outermost operator.
    fn precedence(&self) -> Precedence {
        match &self.kind {
            ExprKind::Binary { operator, .. } => precedence(*operator),
            ExprKind::Unary { operator: UnaryOperator::Not, .. } => Precedence::Not,
            ExprKind::IsNull { .. }
            | ExprKind::Between { .. }
            | ExprKind::InList { .. }
            | ExprKind::Like { .. } => Precedence::Comparison,
            _ => Precedence::Unary,
        }
    }

    /// Prints the expression as an operand, in parentheses if it binds looser than `loosest`.
    fn operand(&self, f: &mut fmt::Formatter<'_>, loosest: Precedence) -> fmt::Result {
        if self.precedence() < loosest { write!(f, "({self})") } else { write!(f, "{self}") }
    }

    fn binary(
        f: &mut fmt::Formatter<'_>,
        operator: BinaryOperator,
        left: &Self,
        right: &Self,
    ) -> fmt::Result {
        let precedence = precedence(operator);
        // An associative chain needs no parentheses on either side; comparisons need both.
        let (loosest_left, loosest_right) = match precedence {
            Precedence::Or | Precedence::And | Precedence::Xor => (precedence, precedence),
            Precedence::Comparison => (precedence.tighter(), precedence.tighter()),
            _ => (precedence, precedence.tighter()),
        };
        left.operand(f, loosest_left)?;
        write!(f, " {} ", symbol(operator))?;
        right.operand(f, loosest_right)
    }

    fn case(
        f: &mut fmt::Formatter<'_>,
        operand: Option<&Self>,
        branches: &[(Self, Self)],
        otherwise: Option<&Self>,
    ) -> fmt::Result {
        f.write_str("CASE")?;
        if let Some(operand) = operand {
            write!(f, " {operand}")?;
        }
        for (condition, result) in branches {
            write!(f, " WHEN {condition} THEN {result}")?;
        }
        if let Some(otherwise) = otherwise {
            write!(f, " ELSE {otherwise}")?;
        }
        f.write_str(" END")
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: bool| if negated { " NOT" } else { "" };
        let tight = Precedence::BitOr;
        match &self.kind {
            ExprKind::Column(parts) => separated(f, ".", parts),
            ExprKind::Literal(literal) => write!(f, "{literal}"),
            ExprKind::QuotedText(text) => write_text(f, text),
            ExprKind::Parameter(_) => f.write_char('?'),
            ExprKind::Unary { operator, operand } => {
                let (sign, loosest) = match operator {
                    UnaryOperator::Plus => ("+", Precedence::Unary),
                    UnaryOperator::Minus => ("-", Precedence::Unary),
                    UnaryOperator::BitNot => ("~", Precedence::Unary),
                    UnaryOperator::Not => ("NOT ", Precedence::Not),
                };
                f.write_str(sign)?;
                // `--` would start a comment.
                let is_double =
                    matches!(operand.kind, ExprKind::Unary { .. }) && loosest > Precedence::Not;
                if is_double { write!(f, "({operand})") } else { operand.operand(f, loosest) }
            }
            ExprKind::Binary { operator, left, right } => Self::binary(f, *operator, left, right),
            ExprKind::IsNull { operand, negated } => {
                operand.operand(f, tight)?;
                write!(f, " IS{} NULL", not(*negated))
            }
            ExprKind::Between { operand, negated, low, high } => {
                operand.operand(f, tight)?;
                write!(f, "{} BETWEEN ", not(*negated))?;
                low.operand(f, tight)?;
                f.write_str(" AND ")?;
                high.operand(f, tight)
            }
            ExprKind::InList { operand, negated, items } => {
                operand.operand(f, tight)?;
                write!(f, "{} IN (", not(*negated))?;
                separated(f, ", ", items)?;
                f.write_char(')')
            }
            ExprKind::Like { operator, operand, negated, pattern, escape } => {
                operand.operand(f, tight)?;
                write!(f, "{} {} ", not(*negated), like_word(*operator))?;
                pattern.operand(f, tight)?;
                let Some(escape) = escape else { return Ok(()) };
                f.write_str(" ESCAPE ")?;
                escape.operand(f, tight)
            }
            ExprKind::Case { operand, branches, otherwise } => {
                Self::case(f, operand.as_deref(), branches, otherwise.as_deref())
            }
            ExprKind::Cast { operand, to } => write!(f, "CAST({operand} AS {to})"),
            ExprKind::Call(call) => write!(f, "{call}"),
            ExprKind::Index { operand, index } => {
                operand.operand(f, Precedence::Unary)?;
                write!(f, "[{index}]")
            }
            // The query itself is not printed: the binder refuses a sub-query in an expression.
            ExprKind::SubQuery { exists, .. } => {
                f.write_str(if *exists { "EXISTS(SELECT …)" } else { "(SELECT …)" })
            }
            ExprKind::Array { element, items } => {
                if let Some(element) = element {
                    write!(f, "ARRAY<{element}>")?;
                }
                f.write_char('[')?;
                separated(f, ", ", items)?;
                f.write_char(']')
            }
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name.text.to_lowercase())?;
        if self.star {
            f.write_str(if self.arguments.is_empty() { "*" } else { "*, " })?;
        }
        if self.distinct {
            f.write_str("DISTINCT ")?;
        }
        separated(f, ", ", &self.arguments)?;
        f.write_char(')')?;
        match &self.over {
            None => Ok(()),
            Some(Over::Named(window)) => write!(f, "over {window}"),
            Some(Over::Spec(_)) => f.write_str("over (...)"),
        }
    }
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name.text.to_lowercase())?;
        if let Some(length) = self.length {
            write!(f, "({length})")?;
        }
        if self.arguments.is_empty() {
            return Ok(());
        }
        f.write_char('<')?;
        separated(f, ", ", &self.arguments)?;
        f.write_char('>')
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::BigInt(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::String(text) => write_text(f, text),
            Self::Interval(interval) => write!(f, "{interval}"),
        }
    }
}

/// Writes a text in single quotes.
fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            IntervalUnit::Second => 's',
            IntervalUnit::Minute => 'm',
            IntervalUnit::Hour => 'h',
            IntervalUnit::Day => 'd',
        };
        write!(f, "{}{unit}", self.amount)
    }
}

pub(crate) fn symbol(operator: BinaryOperator) -> &'static str {
    match operator {
        BinaryOperator::Add => "+",
        BinaryOperator::Subtract => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::IntegerDivide => "DIV",
        BinaryOperator::Modulo => "%",
        BinaryOperator::BitAnd => "&",
        BinaryOperator::BitOr => "|",
        BinaryOperator::BitXor => "^",
        BinaryOperator::Equal => "=",
        BinaryOperator::NotEqual => "!=",
        BinaryOperator::Less => "<",
        BinaryOperator::LessOrEqual => "<=",
        BinaryOperator::Greater => ">",
        BinaryOperator::GreaterOrEqual => ">=",
        BinaryOperator::And => "AND",
        BinaryOperator::Or => "OR",
        BinaryOperator::Xor => "XOR",
        BinaryOperator::Concat => "||",
    }
}

pub(crate) fn like_word(operator: LikeOperator) -> &'static str {
    match operator {
        LikeOperator::Like => "LIKE",
        LikeOperator::ILike => "ILIKE",
        LikeOperator::RLike => "RLIKE",
    }
}

fn separated<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    between: &str,
    items: &[T],
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::parse_expression;

    fn check(sql: &str, expected: &str) {
        assert_eq!(parse_expression(sql).unwrap().name(), expected, "{sql}");
    }

    #[test]
    fn a_column_is_named_without_its_table() {
        check("c1", "c1");
        check("db.t1.c1", "c1");
    }

    #[test]
    fn an_expression_is_named_by_its_text_however_it_is_spaced() {
        check("c2+1", "c2 + 1");
        check("SUM( c4 )  OVER w1", "sum(c4)over w1");
        check("count(merchant_id) over w10d", "count(merchant_id)over w10d");
        check("csv()", "csv()");
        check("(a+b)*c - (d-e)", "(a + b) * c - (d - e)");
        check("sum(c) over (partition by k rows 1 preceding)", "sum(c)over (...)");
    }
}
