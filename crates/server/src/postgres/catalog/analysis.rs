//! What an expression contains: names, aggregates, functions that return sets, inner queries.

use std::ops::ControlFlow;

use sqlparser::ast::{BinaryOperator, Expr, Function, ObjectName, Query, Visit, Visitor};

use super::{aggregate::is_aggregate, from::folded};

/// A name of a column, and that of its table where it is given.
pub(super) type ColumnName = (Option<String>, String);

/// What an expression contains outside of inner queries.
#[derive(Debug, Default)]
struct Contents {
    names: Vec<ColumnName>,
    functions: Vec<ContainedFunction>,
    has_query: bool,
    /// How many inner queries are around.
    depth: usize,
}

/// A function whose value depends on other things than its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContainedFunction {
    Aggregate,
    Set,
}

impl Visitor for Contents {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.has_query = true;
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Identifier(name) => self.names.push((None, name.value.clone())),
            Expr::CompoundIdentifier(parts) => {
                if let [.., table, name] = parts.as_slice() {
                    self.names.push((Some(table.value.clone()), name.value.clone()));
                }
            }
            Expr::Function(function) => {
                let name = object_name(&function.name).1;
                if function.over.is_none() && is_aggregate(&name) {
                    self.functions.push(ContainedFunction::Aggregate);
                }
                if is_set(&name) {
                    self.functions.push(ContainedFunction::Set);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn contents(expr: &Expr) -> Contents {
    let mut found = Contents::default();
    // Nothing breaks off.
    let _end = expr.visit(&mut found);
    found
}

/// Returns the names of an expression; `None` where it has an inner query, whose names are others.
pub(super) fn names_of(expr: &Expr) -> Option<Vec<ColumnName>> {
    let found = contents(expr);
    let has_set = found.functions.contains(&ContainedFunction::Set);
    (!found.has_query && !has_set).then_some(found.names)
}

/// Returns whether an expression has an aggregate.
pub(super) fn has_aggregate(expr: &Expr) -> bool {
    contents(expr).functions.contains(&ContainedFunction::Aggregate)
}

/// Returns whether an expression has a function that returns a set.
pub(super) fn has_set(expr: &Expr) -> bool {
    contents(expr).functions.contains(&ContainedFunction::Set)
}

/// Returns whether a function returns a set of values.
pub(super) fn is_set(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "_pg_expandarray",
        "aclexplode",
        "generate_series",
        "generate_subscripts",
        "pg_get_keywords",
        "pg_options_to_table",
        "regexp_split_to_table",
        "string_to_table",
        "unnest",
    ];
    NAMES.contains(&name)
}

/// Returns the parts that AND joins.
pub(super) fn conjuncts(expr: &Expr) -> Vec<&Expr> {
    let (mut parts, mut left) = (Vec::new(), vec![expr]);
    while let Some(expr) = left.pop() {
        match expr {
            Expr::BinaryOp { left: first, op: BinaryOperator::And, right } => {
                left.push(right);
                left.push(first);
            }
            Expr::Nested(inner) => left.push(inner),
            other => parts.push(other),
        }
    }
    parts
}

/// Returns the schema and the name of an object, as PostgreSQL reads them.
pub(super) fn object_name(name: &ObjectName) -> (Option<String>, String) {
    let part = |back: usize| {
        let at = name.0.len().checked_sub(back)?;
        Some(name.0.get(at)?.as_ident().map_or_else(String::new, folded))
    };
    (part(2), part(1).unwrap_or_default())
}

/// Returns the name of a function, without its schema.
pub(super) fn function_name(function: &Function) -> String {
    object_name(&function.name).1
}
