//! The aggregates and the window functions of catalog queries.

use std::{cmp::Ordering, collections::HashSet};

use lockstep_diagnostic::Result;
use sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments,
};

use super::{
    analysis::function_name,
    evaluation::Evaluator,
    from::unsupported,
    limits::{LimitedText, check_element, check_items},
    operator::operate,
    query::{SortTerm, compare_keys},
    scope::{JoinedRow, Scope},
    value::CatalogValue,
};

/// Returns whether a function is an aggregate.
pub(super) fn is_aggregate(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "array_agg",
        "avg",
        "bool_and",
        "bool_or",
        "count",
        "every",
        "json_agg",
        "json_object_agg",
        "jsonb_agg",
        "max",
        "min",
        "string_agg",
        "sum",
        "xmlagg",
    ];
    NAMES.contains(&name)
}

/// The parts of a call that say which values an aggregate takes.
struct CatalogAggregate<'q> {
    name: String,
    /// `None` of `count(*)`.
    argument: Option<&'q Expr>,
    separator: Option<&'q Expr>,
    terms: Vec<SortTerm<'q>>,
    filter: Option<&'q Expr>,
    is_distinct: bool,
}

impl<'q> CatalogAggregate<'q> {
    fn new(function: &'q Function) -> Result<Self> {
        let name = function_name(function);
        let filter = function.filter.as_deref();
        let FunctionArguments::List(list) = &function.args else {
            return unsupported(&format!("{name} without arguments"));
        };
        let mut arguments = list.args.iter().map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        });
        let argument = arguments.next().flatten();
        let separator = arguments.next().flatten();
        let mut terms = Vec::new();
        for clause in &list.clauses {
            match clause {
                FunctionArgumentClause::OrderBy(given) => {
                    terms.extend(given.iter().map(SortTerm::new));
                }
                other => return unsupported(&format!("{other} in {name}")),
            }
        }
        let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        Ok(Self { name, argument, separator, terms, filter, is_distinct })
    }
}

impl Evaluator<'_> {
    /// Computes an aggregate over the rows of a group.
    pub(super) fn aggregate(
        &mut self,
        function: &Function,
        group: &[JoinedRow],
        scope: &Scope<'_>,
    ) -> Result<CatalogValue> {
        let call = CatalogAggregate::new(function)?;
        let mut values: Vec<(CatalogValue, Vec<CatalogValue>)> = Vec::new();
        let held = self.held();
        for row in group {
            self.step()?;
            let row = Scope::new(scope.tables, row, scope.outer);
            if let Some(filter) = call.filter
                && !self.moment(filter, &row)?.is_true()
            {
                continue;
            }
            self.hold(size_of::<(CatalogValue, Vec<CatalogValue>)>())?;
            self.hold(call.terms.len() * size_of::<CatalogValue>())?;
            let value = match call.argument {
                Some(argument) => self.value(argument, &row)?,
                None => CatalogValue::Bool(true),
            };
            let keys = call.terms.iter().map(|term| self.value(term.expr, &row));
            values.push((value, keys.collect::<Result<Vec<_>>>()?));
        }
        values.sort_by(|left, right| compare_keys(&left.1, &right.1, &call.terms));
        if call.is_distinct {
            let mut seen = HashSet::new();
            for (value, _) in &values {
                self.work(value.heap_bytes())?;
            }
            values.retain(|(value, _)| seen.insert(value.key()));
        }
        let separator = match call.separator {
            Some(separator) => self.value(separator, scope)?.display(),
            None => String::new(),
        };
        let values: Vec<CatalogValue> = values.into_iter().map(|(value, _)| value).collect();
        let found = finished(&call.name, values, &separator)?;
        self.release_to(held);
        Ok(found)
    }
}

/// Computes an aggregate of values in their order.
fn finished(name: &str, values: Vec<CatalogValue>, separator: &str) -> Result<CatalogValue> {
    if name == "array_agg" {
        check_items(values.len())?;
        let is_empty = values.is_empty();
        return Ok(if is_empty { CatalogValue::Null } else { CatalogValue::array(values) });
    }
    let values: Vec<CatalogValue> = values.into_iter().filter(|value| !value.is_null()).collect();
    if name == "count" {
        return Ok(CatalogValue::count(values.len()));
    }
    if values.is_empty() {
        return Ok(CatalogValue::Null);
    }
    Ok(match name {
        "max" => extreme(&values, Ordering::Greater)?,
        "min" => extreme(&values, Ordering::Less)?,
        "sum" => {
            let mut total = CatalogValue::Number(0);
            for value in &values {
                total = operate(&total, &BinaryOperator::Plus, value)?;
            }
            total
        }
        "string_agg" => {
            let texts = values.iter().map(CatalogValue::shown);
            LimitedText::default().join(texts, separator)?.value()
        }
        "bool_and" | "every" => CatalogValue::Bool(values.iter().all(CatalogValue::is_true)),
        "bool_or" => CatalogValue::Bool(values.iter().any(CatalogValue::is_true)),
        other => return unsupported(&format!("aggregate function {other}")),
    })
}

/// Returns the first of values that has this order to all others.
fn extreme(values: &[CatalogValue], wanted: Ordering) -> Result<CatalogValue> {
    let mut found = values.first();
    for (at, value) in values.iter().enumerate() {
        check_element(at)?;
        if found.is_some_and(|found| value.compare(found) == Some(wanted)) {
            found = Some(value);
        }
    }
    Ok(found.cloned().unwrap_or(CatalogValue::Null))
}

/// Computes a window function for the rows of a partition in their order. `peers` says of each row but
/// the last whether the next is equal to it by ORDER BY.
pub(super) fn window_values(
    evaluator: &mut Evaluator<'_>,
    function: &Function,
    members: &[JoinedRow],
    peers: &[bool],
    scope: &Scope<'_>,
) -> Result<Vec<CatalogValue>> {
    debug_assert_eq!(peers.len() + 1, members.len(), "a row but the last has a row behind it");
    let (mut rank, mut dense_rank) = (1, 1);
    let mut values = Vec::with_capacity(members.len());
    let name = function_name(function);
    let total = match is_aggregate(&name) {
        true => Some(evaluator.aggregate(function, members, scope)?),
        false => None,
    };
    for at in 0..members.len() {
        if at > 0 && !peers[at - 1] {
            rank = at + 1;
            dense_rank += 1;
        }
        values.push(match (name.as_str(), &total) {
            (_, Some(total)) => total.clone(),
            ("row_number", _) => CatalogValue::count(at + 1),
            ("rank", _) => CatalogValue::count(rank),
            ("dense_rank", _) => CatalogValue::count(dense_rank),
            (other, _) => return unsupported(&format!("window function {other}")),
        });
    }
    Ok(values)
}
