//! Expressions and windows as s-expressions.

use lockstep_sql::ast::{
    Call, Expr, ExprKind, FrameBound, FrameBoundKind, FrameClause, Ident, Literal, NullsOrder,
    ObjectName, OrderBy, Over, WindowSpec,
};

use super::statement::table;
use super::{clause, flag, list};

pub(super) fn expr(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Column(parts) => {
            parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(".")
        }
        ExprKind::QuotedText(text) => format!("{text:?}"),
        ExprKind::Literal(value) => literal(value),
        ExprKind::Parameter(index) => format!("?{index}"),
        ExprKind::Unary { operator, operand } => {
            list(&format!("{operator:?}"), [self::expr(operand)])
        }
        ExprKind::Binary { operator, left, right } => {
            list(&format!("{operator:?}"), [self::expr(left), self::expr(right)])
        }
        ExprKind::IsNull { operand, negated } => {
            list("IsNull", [flag(*negated, "not"), self::expr(operand)])
        }
        ExprKind::Between { operand, negated, low, high } => {
            let not = flag(*negated, "not");
            list("Between", [not, self::expr(operand), self::expr(low), self::expr(high)])
        }
        ExprKind::InList { operand, negated, items } => {
            let not = flag(*negated, "not");
            list("In", [not, self::expr(operand)].into_iter().chain(items.iter().map(self::expr)))
        }
        ExprKind::Like { operator, operand, negated, pattern, escape } => {
            let not = flag(*negated, "not");
            let escape = clause("escape", escape.iter().map(|escape| self::expr(escape)));
            list(&format!("{operator:?}"), [not, self::expr(operand), self::expr(pattern), escape])
        }
        ExprKind::Case { operand, branches, otherwise } => {
            let operand = clause("of", operand.iter().map(|operand| self::expr(operand)));
            let branches = branches
                .iter()
                .map(|(when, then)| list("when", [self::expr(when), self::expr(then)]));
            let otherwise = clause("else", otherwise.iter().map(|expr| self::expr(expr)));
            list("Case", [operand].into_iter().chain(branches).chain([otherwise]))
        }
        ExprKind::Cast { operand, to } => list("Cast", [self::expr(operand), to.to_string()]),
        ExprKind::Call(value) => call(value),
        ExprKind::Index { operand, index } => {
            list("Index", [self::expr(operand), self::expr(index)])
        }
        ExprKind::SubQuery { exists, query } => {
            list("SubQuery", [flag(*exists, "exists"), super::statement::query(query)])
        }
        ExprKind::Array { element, items } => {
            let element = element.iter().map(|element| format!("<{element}>"));
            list("Array", element.chain(items.iter().map(self::expr)))
        }
    }
}

fn call(call: &Call) -> String {
    let over = match &call.over {
        None => String::new(),
        Some(Over::Named(name)) => list("over", [name.text.clone()]),
        Some(Over::Spec(spec)) => list("over", [window(spec)]),
    };
    let head = [flag(call.star, "*"), flag(call.distinct, "distinct")];
    let arguments = call.arguments.iter().map(expr);
    list(&call.name.text, head.into_iter().chain(arguments).chain([over]))
}

/// Numbers show their type: `1`, `1L`, `1.0f`, `1.0`.
pub(super) fn literal(literal: &Literal) -> String {
    match literal {
        Literal::String(text) => format!("{text:?}"),
        Literal::BigInt(value) => format!("{value}L"),
        Literal::Float(value) => format!("{value:?}f"),
        other => other.to_string(),
    }
}

pub(super) fn object(name: &ObjectName) -> String {
    match &name.database {
        Some(database) => format!("{}.{}", database.text, name.name.text),
        None => name.name.text.clone(),
    }
}

pub(super) fn idents(names: &[Ident]) -> impl Iterator<Item = String> {
    names.iter().map(|name| name.text.clone())
}

pub(super) fn order_by(items: &[OrderBy]) -> String {
    clause(
        "order-by",
        items.iter().map(|item| {
            let expr = expr(&item.expr);
            let ordered = if item.descending { list("desc", [expr]) } else { expr };
            match item.nulls {
                Some(NullsOrder::First) => list("nulls-first", [ordered]),
                Some(NullsOrder::Last) => list("nulls-last", [ordered]),
                None => ordered,
            }
        }),
    )
}

pub(super) fn window(spec: &WindowSpec) -> String {
    list(
        "window",
        [
            clause("base", spec.base.iter().map(|base| base.text.clone())),
            clause("union", spec.unions.iter().map(table)),
            clause("partition-by", spec.partition_by.iter().map(expr)),
            order_by(&spec.order_by),
            spec.frame.as_ref().map_or_else(String::new, frame),
            clause("maxsize", spec.max_size.iter().map(|limit| limit.count.to_string())),
        ]
        .into_iter()
        .chain(spec.attributes.iter().map(|attribute| format!("{attribute:?}"))),
    )
}

fn frame(frame: &FrameClause) -> String {
    list(&format!("{:?}", frame.unit), [bound(&frame.start), bound(&frame.end)])
}

fn bound(bound: &FrameBound) -> String {
    let open = flag(bound.open, "open ");
    match bound.kind {
        FrameBoundKind::UnboundedPreceding => format!("[{open}unbounded preceding]"),
        FrameBoundKind::Preceding(count) => format!("[{open}{count} preceding]"),
        FrameBoundKind::PrecedingInterval(interval) => format!("[{open}{interval} preceding]"),
        FrameBoundKind::CurrentRow => "[current row]".to_owned(),
        FrameBoundKind::Following(count) => format!("[{open}{count} following]"),
        FrameBoundKind::FollowingInterval(interval) => format!("[{open}{interval} following]"),
        FrameBoundKind::UnboundedFollowing => format!("[{open}unbounded following]"),
    }
}
