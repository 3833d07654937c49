//! Inner joins whose conditions are in WHERE, as those of `FROM a, b, c WHERE …` are.
//!
//! [`with_join_conditions`] takes the inner joins below a filter apart, and joins their inputs again:
//! a condition on one input is put below the joins, an equality of two inputs is the key of their
//! join, and an input is joined when it has a key, so that no product is computed where there are
//! keys. The rows stay in the order of FROM. Where the inputs are joined in that order,
//! [`crate::lower`] sees to it; else they are numbered here, and the rows sorted by all numbers.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use datafusion::{
    common::{Column, NullEquality, Result, tree_node::Transformed},
    functions_window::row_number::row_number,
    logical_expr::{
        BinaryExpr, Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Sort,
        utils::{conjunction, disjunction, split_conjunction, split_conjunction_owned},
    },
};

use crate::lower::LEFT_ROW;

/// The most arms of an OR that are searched for common terms.
const ARMS_MAX: usize = 64;

/// Moves the conditions of filters over inner joins into the joins.
pub(crate) fn with_join_conditions(plan: LogicalPlan) -> Result<LogicalPlan> {
    let rewritten = plan.transform_down_with_subqueries(|plan| {
        let LogicalPlan::Filter(filter) = &plan else { return Ok(Transformed::no(plan)) };
        match JoinedInputs::of(filter) {
            Some(joined) => joined.build(filter).map(Transformed::yes),
            None => Ok(Transformed::no(plan)),
        }
    })?;
    Ok(rewritten.data)
}

/// Returns whether a join is one of those whose inputs are numbered here.
pub(crate) fn is_numbered(join: &Join) -> bool {
    let mut columns = join.schema.iter();
    columns.any(|(qualifier, field)| qualifier.is_none() && field.name() == LEFT_ROW)
}

/// Returns whether a sort is that of numbered inputs.
pub(crate) fn is_sort_of_joins(sort: &Sort) -> bool {
    let Some(first) = sort.expr.first() else { return false };
    matches!(&first.expr, Expr::Column(by) if by.relation.is_none() && by.name == LEFT_ROW)
}

/// The inputs of inner joins, in the order of FROM, and what is required of their rows.
struct JoinedInputs {
    inputs: Vec<LogicalPlan>,
    conditions: Vec<Condition>,
    /// The conditions that stay above the joins.
    above: Vec<Expr>,
}

/// A condition on two inputs or more, by their positions.
struct Condition {
    expr: Expr,
    inputs: BTreeSet<usize>,
    /// The inputs of both sides, if it is an equality.
    sides: Option<[BTreeSet<usize>; 2]>,
}

/// Inputs that are joined, in this order.
struct JoinTree {
    plan: LogicalPlan,
    inputs: Vec<usize>,
}

impl JoinedInputs {
    /// Takes the inner joins below a filter apart; `None` where there are none.
    fn of(filter: &Filter) -> Option<Self> {
        let (mut inputs, mut exprs) = (Vec::new(), Vec::new());
        take_apart(&filter.input, &mut inputs, &mut exprs);
        if inputs.len() < 2 {
            return None;
        }
        exprs.extend(split_conjunction(&filter.predicate).into_iter().cloned());
        let mut owners: HashMap<Column, usize> = HashMap::new();
        for (at, input) in inputs.iter().enumerate() {
            owners.extend(input.schema().columns().into_iter().map(|column| (column, at)));
        }
        let mut joined = Self { inputs, conditions: Vec::new(), above: Vec::new() };
        let mut below: Vec<Vec<Expr>> = vec![Vec::new(); joined.inputs.len()];
        for expr in exprs.into_iter().flat_map(common_terms) {
            let read = inputs_of(&expr, &owners)?;
            match read.first().copied() {
                Some(_) if read.len() > 1 && !expr.is_volatile() => {
                    let sides = sides_of(&expr, &owners);
                    joined.conditions.push(Condition { expr, inputs: read, sides });
                }
                Some(only) if !expr.is_volatile() => below[only].push(expr),
                _ => joined.above.push(expr),
            }
        }
        for (input, below) in joined.inputs.iter_mut().zip(below) {
            if let Some(predicate) = conjunction(below) {
                let filtered = Filter::try_new(predicate, Arc::new(input.clone())).ok()?;
                *input = LogicalPlan::Filter(filtered);
            }
        }
        Some(joined)
    }

    /// Joins the inputs.
    fn build(mut self, filter: &Filter) -> Result<LogicalPlan> {
        let groups = self.groups();
        debug_assert_eq!(
            groups.iter().map(Vec::len).sum::<usize>(),
            self.inputs.len(),
            "each input is in one group"
        );
        let is_in_order = groups.iter().flatten().copied().eq(0..self.inputs.len());
        let numbers = |at: usize| match at {
            0 => LEFT_ROW.to_owned(),
            _ => format!("__row_{at}"),
        };
        if !is_in_order {
            for (at, input) in self.inputs.iter_mut().enumerate() {
                let number = row_number().alias(numbers(at));
                *input = LogicalPlanBuilder::from(input.clone()).window([number])?.build()?;
            }
        }
        let mut whole: Option<JoinTree> = None;
        for group in groups {
            let mut tree: Option<JoinTree> = None;
            for at in group {
                let next = JoinTree { plan: self.inputs[at].clone(), inputs: vec![at] };
                tree = Some(self.joined(tree, next)?);
            }
            if let Some(tree) = tree {
                whole = Some(self.joined(whole, tree)?);
            }
        }
        debug_assert!(self.conditions.is_empty(), "the whole has all inputs");
        let plan = whole.map_or_else(|| filter.input.as_ref().clone(), |tree| tree.plan);
        let mut builder = LogicalPlanBuilder::from(plan);
        if !is_in_order {
            let by = (0..self.inputs.len())
                .map(|at| Expr::Column(Column::new_unqualified(numbers(at))).sort(true, false));
            let columns = filter.input.schema().columns().into_iter().map(Expr::Column);
            builder = builder.sort(by)?.project(columns.collect::<Vec<_>>())?;
        }
        if let Some(predicate) = conjunction(self.above) {
            builder = builder.filter(predicate)?;
        }
        builder.build()
    }

    /// Groups the inputs that have keys with each other, each group in the order in which it is joined.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut left: Vec<usize> = (0..self.inputs.len()).collect();
        let mut groups = Vec::new();
        while !left.is_empty() {
            let mut group = vec![left.remove(0)];
            let mut known: BTreeSet<usize> = group.iter().copied().collect();
            while let Some(at) = left.iter().position(|input| self.has_key(&known, *input)) {
                let input = left.remove(at);
                group.push(input);
                known.insert(input);
            }
            groups.push(group);
        }
        groups
    }

    /// Returns whether an input is equal in something to the known ones.
    fn has_key(&self, known: &BTreeSet<usize>, input: usize) -> bool {
        let is_input = |side: &BTreeSet<usize>| side.iter().eq([&input]);
        let mut sides = self.conditions.iter().filter_map(|condition| condition.sides.as_ref());
        sides.any(|[left, right]| {
            (left.is_subset(known) && is_input(right)) || (right.is_subset(known) && is_input(left))
        })
    }

    /// Joins two trees on the conditions that read both.
    fn joined(&mut self, left: Option<JoinTree>, right: JoinTree) -> Result<JoinTree> {
        let Some(left) = left else { return Ok(right) };
        let mut inputs = left.inputs;
        inputs.extend(right.inputs);
        let known: BTreeSet<usize> = inputs.iter().copied().collect();
        let (on, later): (Vec<Condition>, Vec<Condition>) = std::mem::take(&mut self.conditions)
            .into_iter()
            .partition(|condition| condition.inputs.is_subset(&known));
        self.conditions = later;
        let builder = LogicalPlanBuilder::from(left.plan);
        let builder = match on.is_empty() {
            true => builder.cross_join(right.plan)?,
            false => {
                let on = on.into_iter().map(|condition| condition.expr);
                builder.join_on(right.plan, JoinType::Inner, on)?
            }
        };
        Ok(JoinTree { plan: builder.build()?, inputs })
    }
}

/// Collects the inputs of inner joins, and the conditions of these joins.
fn take_apart(plan: &LogicalPlan, inputs: &mut Vec<LogicalPlan>, conditions: &mut Vec<Expr>) {
    match plan {
        LogicalPlan::Join(join)
            if join.join_type == JoinType::Inner
                && join.null_equality == NullEquality::NullEqualsNothing =>
        {
            take_apart(&join.left, inputs, conditions);
            take_apart(&join.right, inputs, conditions);
            let on = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
            conditions.extend(on);
            conditions.extend(join.filter.iter().flat_map(split_conjunction).cloned());
        }
        other => inputs.push(other.clone()),
    }
}

/// Returns the inputs that an expression reads; `None` for a column of none of them.
fn inputs_of(expr: &Expr, owners: &HashMap<Column, usize>) -> Option<BTreeSet<usize>> {
    expr.column_refs().into_iter().map(|column| owners.get(column).copied()).collect()
}

/// Returns the inputs of both sides of an equality that each read some, and none in common.
fn sides_of(expr: &Expr, owners: &HashMap<Column, usize>) -> Option<[BTreeSet<usize>; 2]> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = expr else { return None };
    let (left, right) = (inputs_of(left, owners)?, inputs_of(right, owners)?);
    let is_key = !left.is_empty() && !right.is_empty() && left.is_disjoint(&right);
    is_key.then_some([left, right])
}

/// Takes the terms that all arms of an OR have in common out of it: `(a AND b) OR (a AND c)` is
/// `a AND (b OR c)`, also of NULLs.
fn common_terms(expr: Expr) -> Vec<Expr> {
    let arms: Vec<Vec<&Expr>> = arms_of(&expr).into_iter().map(split_conjunction).collect();
    let Some((first, others)) = arms.split_first().filter(|(_, others)| !others.is_empty()) else {
        return vec![expr];
    };
    if others.len() >= ARMS_MAX {
        return vec![expr];
    }
    let is_common = |term: &&Expr| others.iter().all(|arm| arm.contains(term));
    let common: Vec<&Expr> = first.iter().copied().filter(is_common).collect();
    if common.is_empty() {
        return vec![expr];
    }
    let rest = arms.iter().map(|arm| {
        let rest = arm.iter().filter(|term| !common.contains(term));
        conjunction(rest.map(|term| (*term).clone()))
    });
    // An arm without further terms is true where the common ones are.
    let rest = rest.collect::<Option<Vec<_>>>().and_then(disjunction);
    let common = common.into_iter().cloned();
    common.chain(rest.into_iter().flat_map(split_conjunction_owned)).collect()
}

/// Returns the arms of a chain of ORs.
fn arms_of(expr: &Expr) -> Vec<&Expr> {
    let (mut arms, mut left) = (Vec::new(), vec![expr]);
    while let Some(expr) = left.pop() {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left: one, op: Operator::Or, right: other }) => {
                left.extend([other.as_ref(), one.as_ref()]);
            }
            other => arms.push(other),
        }
    }
    arms
}
