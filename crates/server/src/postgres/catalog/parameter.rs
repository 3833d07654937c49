//! The types of the parameters of catalog queries, which a driver asks for before it sends values.

use std::ops::ControlFlow;

use sqlparser::ast::{BinaryOperator, Expr, Query, Value, Visit, Visitor};

use super::static_type::{type_number, type_word};
use crate::postgres::types::{Oid, array_of, oid};

/// The types found so far, by the numbers of the parameters from 1.
#[derive(Debug, Default)]
struct ParameterTypes(Vec<Option<Oid>>);

impl ParameterTypes {
    /// Notes the type of a parameter; the first that is found stays.
    fn note(&mut self, number: usize, found: Option<Oid>) {
        if number == 0 || number > usize::from(u16::MAX) {
            return;
        }
        if self.0.len() < number {
            self.0.resize(number, None);
        }
        let slot = &mut self.0[number - 1];
        *slot = slot.take().or(found);
    }
}

impl Visitor for ParameterTypes {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Cast { expr, data_type, .. } => {
                if let Some(number) = parameter_number(expr) {
                    self.note(number, type_number(&type_word(data_type)));
                }
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq | BinaryOperator::NotEq, right } => {
                for (parameter, other) in [(left, right), (right, left)] {
                    if let Some(number) = parameter_number(parameter) {
                        self.note(number, compared_type(other));
                    }
                }
            }
            Expr::AnyOp { left, right, .. } => {
                if let Some(number) = parameter_number(right) {
                    self.note(number, Some(array_of(compared_type(left).unwrap_or(oid::TEXT))));
                }
            }
            Expr::InList { expr, list, .. } => {
                for number in list.iter().filter_map(parameter_number) {
                    self.note(number, compared_type(expr));
                }
            }
            other => {
                if let Some(number) = parameter_number(other) {
                    self.note(number, None);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns the types of the parameters of a query, as far as it tells.
pub(super) fn parameter_types(query: &Query) -> Vec<Option<Oid>> {
    let mut types = ParameterTypes::default();
    // Nothing breaks off.
    let _end = query.visit(&mut types);
    types.0
}

fn parameter_number(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Nested(inner) => parameter_number(inner),
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => name.strip_prefix('$')?.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the type of what a parameter is compared with: the numbers of objects and of columns are
/// numbers, in all catalogs, and the rest are names.
fn compared_type(expr: &Expr) -> Option<Oid> {
    const NUMBERS: [&str; 7] =
        ["attnum", "classoid", "objsubid", "refobjid", "refclassid", "conrelid", "confrelid"];
    const SUFFIXES: [&str; 5] = ["oid", "relid", "namespace", "typid", "owner"];
    let name = match expr {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(parts) => parts.last()?,
        Expr::Nested(inner) => return compared_type(inner),
        Expr::Cast { data_type, .. } => return type_number(&type_word(data_type)),
        _ => return None,
    };
    let name = name.value.to_ascii_lowercase();
    let is_number =
        NUMBERS.contains(&name.as_str()) || SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    is_number.then_some(oid::OID)
}

#[cfg(test)]
mod tests {
    use super::{oid, parameter_types};

    #[test]
    fn casts_and_comparisons_tell_types() {
        let sql = "SELECT 1 FROM pg_class c WHERE c.oid = $1 AND relname = $2 AND x = $3::int4 \
                   AND oid = ANY($4::oid[]) AND relkind = ANY($5) LIMIT $7";
        let found = parameter_types(&super::super::parse(sql, 100).unwrap());
        let expected = [
            Some(oid::OID),
            None,
            Some(oid::INT4),
            Some(oid::OID_ARRAY),
            Some(oid::TEXT_ARRAY),
            None,
            None,
        ];
        assert_eq!(found, expected);
    }
}
