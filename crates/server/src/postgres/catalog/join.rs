//! Joins: loops over the rows of both sides.
//!
//! A condition is checked as soon as the tables that it names are there, and one that compares a column
//! of a table of the catalogs for equality looks the rows up in an index. *Cost*: up to a limit of steps.

use std::cmp::Ordering;

use lockstep_diagnostic::Result;
use sqlparser::ast::{BinaryOperator, Expr, Join, JoinConstraint, JoinOperator};

use super::{
    analysis::{conjuncts, names_of, object_name},
    evaluation::Evaluator,
    from::unsupported,
    limits::check_row_count,
    relation::{CatalogRelation, CatalogRow},
    scope::{BoundTable, JoinedRow, Scope, find_column},
    source::{Sketch, Source, rows_of},
    value::CatalogValue,
};
use crate::postgres::types::oid;

/// About how many bytes an index has for each row.
const INDEX_ENTRY_BYTES: usize = 96;

/// Which rows without a partner stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CatalogJoinKind {
    Inner,
    Left,
    Right,
    Full,
}

/// A join: its kind and its conditions.
pub(super) struct JoinSpec<'q> {
    pub(super) kind: CatalogJoinKind,
    pub(super) on: Vec<&'q Expr>,
    /// The columns of USING; `None` of NATURAL.
    pub(super) using: Option<Vec<String>>,
}

/// The rows of a join so far.
struct CatalogJoinOutput {
    rows: Vec<JoinedRow>,
    /// Whether each row of the new side has been joined.
    has_partner: Vec<bool>,
    /// The columns that USING makes equal.
    using: Vec<EqualColumns>,
}

impl CatalogJoinOutput {
    fn new(right_rows: usize) -> Self {
        Self { rows: Vec::new(), has_partner: vec![false; right_rows], using: Vec::new() }
    }
}

/// The table and the column of each side that USING makes equal.
type EqualColumns = [(usize, usize); 2];

/// A join of the tables before with one source.
pub(super) struct CatalogJoinStep<'q, 's> {
    pub(super) spec: JoinSpec<'q>,
    /// The conditions of WHERE whose tables are all there.
    pub(super) ready: Vec<&'q Expr>,
    /// The tables of the rows after the join, and how many of them are before it.
    pub(super) tables: &'s [BoundTable],
    pub(super) tables_before: usize,
    /// The names of all tables of the query.
    pub(super) aliases: &'s [String],
    pub(super) outer: Option<&'s Scope<'s>>,
}

impl<'q> CatalogJoinStep<'q, '_> {
    /// Returns a column of the source, and the expression over the rows before to which a condition
    /// says that it is equal.
    fn lookup(&self, relation: &CatalogRelation) -> Option<(usize, &'q Expr)> {
        if matches!(self.spec.kind, CatalogJoinKind::Right | CatalogJoinKind::Full) {
            return None;
        }
        let (before, new) = self.tables.split_at(self.tables_before);
        // A condition of WHERE is of rows that a LEFT JOIN adds, too.
        let ready =
            if self.spec.kind == CatalogJoinKind::Inner { self.ready.as_slice() } else { &[] };
        self.spec.on.iter().chain(ready).find_map(|condition| {
            let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = condition else {
                return None;
            };
            [(left, right), (right, left)].into_iter().find_map(|(column, other)| {
                let position = own_column(column, new, before)?;
                let kind = relation.columns.list[position].1;
                let is_exact = ![oid::BOOL, oid::FLOAT4, oid::FLOAT8].contains(&kind);
                let is_before = is_bound(other, before, self.aliases);
                (is_exact && is_before).then_some((position, other.as_ref()))
            })
        })
    }

    /// Returns the columns that USING makes equal: of tables before, and of the new ones.
    fn using_columns(&self) -> Vec<EqualColumns> {
        let (before, new) = self.tables.split_at(self.tables_before);
        let names: Vec<String> = match &self.spec.using {
            Some(names) => names.clone(),
            None => {
                let lists = new.iter().flat_map(|bound| bound.columns.list.iter());
                lists.map(|(name, _)| name.clone()).collect()
            }
        };
        names
            .iter()
            .filter_map(|name| {
                let left = find_column(before, None, name)?;
                let (table, column) = find_column(new, None, name)?;
                Some([left, (table + self.tables_before, column)])
            })
            .collect()
    }
}

fn are_equal(row: &JoinedRow, using: &[EqualColumns]) -> bool {
    let value = |(table, column): (usize, usize)| {
        row[table].as_ref().map_or(CatalogValue::Null, |row| row[column].clone())
    };
    using.iter().all(|[left, right]| {
        value(*left).compare(&value(*right)) == Some(Ordering::Equal) && !value(*left).is_null()
    })
}

/// Returns the position of a column that is one of the only new table.
fn own_column(expr: &Expr, new: &[BoundTable], before: &[BoundTable]) -> Option<usize> {
    let [bound] = new else { return None };
    match expr {
        Expr::Nested(inner) => own_column(inner, new, before),
        Expr::Identifier(name) => {
            let is_before = find_column(before, None, &name.value).is_some();
            (!is_before).then(|| bound.columns.position(&name.value)).flatten()
        }
        Expr::CompoundIdentifier(parts) => {
            let [.., table, name] = parts.as_slice() else { return None };
            bound.is_named(&table.value).then(|| bound.columns.position(&name.value)).flatten()
        }
        _ => None,
    }
}

/// Returns whether all columns of an expression are there, or are not those of the query's own tables.
pub(super) fn is_bound(expr: &Expr, tables: &[BoundTable], aliases: &[String]) -> bool {
    let Some(names) = names_of(expr) else { return false };
    names.iter().all(|(table, name)| match table {
        Some(table) => {
            tables.iter().any(|bound| bound.is_named(table))
                || !aliases.iter().any(|alias| alias.eq_ignore_ascii_case(table))
        }
        None => find_column(tables, None, name).is_some(),
    })
}

pub(super) fn join_spec(join: &Join) -> Result<JoinSpec<'_>> {
    use JoinOperator as Op;
    let (kind, constraint) = match &join.join_operator {
        Op::Join(c) | Op::Inner(c) | Op::CrossJoin(c) => (CatalogJoinKind::Inner, c),
        Op::Left(c) | Op::LeftOuter(c) => (CatalogJoinKind::Left, c),
        Op::Right(c) | Op::RightOuter(c) => (CatalogJoinKind::Right, c),
        Op::FullOuter(c) => (CatalogJoinKind::Full, c),
        _ => return unsupported("this type of JOIN"),
    };
    Ok(match constraint {
        JoinConstraint::On(on) => JoinSpec { kind, on: conjuncts(on), using: Some(Vec::new()) },
        JoinConstraint::Using(names) => {
            let names = names.iter().map(|name| object_name(name).1).collect();
            JoinSpec { kind, on: Vec::new(), using: Some(names) }
        }
        JoinConstraint::Natural => JoinSpec { kind, on: Vec::new(), using: None },
        JoinConstraint::None => JoinSpec { kind, on: Vec::new(), using: Some(Vec::new()) },
    })
}

impl Evaluator<'_> {
    /// Joins rows with those of a source.
    pub(super) fn join(
        &mut self,
        source: &Source<'_>,
        before: Vec<JoinedRow>,
        step: &CatalogJoinStep<'_, '_>,
    ) -> Result<Vec<JoinedRow>> {
        let tables = step.tables;
        let added = tables.len() - step.tables_before;
        let lookup = match source {
            Source::Relation(relation) => step.lookup(relation),
            Source::Nested(_) | Source::Lateral(_) => None,
        };
        if let (Source::Relation(relation), Some(_)) = (source, lookup) {
            // The index, which is made once for a table of the catalogs.
            let is_inner = !relation.columns.has_any_column;
            self.hold(if is_inner { relation.rows.len() * INDEX_ENTRY_BYTES } else { 0 })?;
        }
        let fixed = source.rows();
        self.hold(fixed.len() * size_of::<(JoinedRow, Option<CatalogRow>)>())?;
        let mut output = CatalogJoinOutput {
            using: step.using_columns(),
            ..CatalogJoinOutput::new(fixed.len())
        };
        for left in before {
            check_row_count(output.rows.len())?;
            let left_scope = Scope::new(&tables[..step.tables_before], &left, step.outer);
            let is_alone = match (source, lookup) {
                (Source::Lateral(factor), _) => {
                    let held = self.held();
                    let rows = rows_of(&self.lateral(factor, &left_scope, Sketch::No)?);
                    let transient = self.held() - held;
                    let candidates = rows.iter().enumerate();
                    let is_alone = self.join_row(&left, candidates, step, &mut output)?;
                    self.release(transient);
                    is_alone
                }
                (Source::Relation(relation), Some((column, expr))) => {
                    let value = self.moment(expr, &left_scope)?;
                    let found = relation.lookup(column, &value).iter();
                    self.join_row(&left, found.map(|at| (*at, &fixed[*at])), step, &mut output)?
                }
                _ => self.join_row(&left, fixed.iter().enumerate(), step, &mut output)?,
            };
            if is_alone && matches!(step.spec.kind, CatalogJoinKind::Left | CatalogJoinKind::Full) {
                let mut row = left;
                row.extend(std::iter::repeat_n(None, added));
                if self.all_true(&step.ready, &Scope::new(step.tables, &row, step.outer))? {
                    self.hold(size_of_val(row.as_slice()))?;
                    output.rows.push(row);
                }
            }
        }
        if matches!(step.spec.kind, CatalogJoinKind::Right | CatalogJoinKind::Full) {
            for (right, _) in fixed.into_iter().zip(output.has_partner).filter(|(_, found)| !found)
            {
                let mut row: JoinedRow = vec![None; step.tables_before];
                row.extend(right);
                self.hold(size_of_val(row.as_slice()))?;
                output.rows.push(row);
            }
        }
        Ok(output.rows)
    }

    /// Joins a row with candidates, which have positions. Returns whether it has no partner.
    fn join_row<'r>(
        &mut self,
        left: &JoinedRow,
        candidates: impl Iterator<Item = (usize, &'r JoinedRow)>,
        step: &CatalogJoinStep<'_, '_>,
        output: &mut CatalogJoinOutput,
    ) -> Result<bool> {
        let mut is_alone = true;
        for (position, candidate) in candidates {
            self.step()?;
            let mut row = left.clone();
            row.extend(candidate.iter().cloned());
            let scope = Scope::new(step.tables, &row, step.outer);
            if !are_equal(&row, &output.using) || !self.all_true(&step.spec.on, &scope)? {
                continue;
            }
            is_alone = false;
            if let Some(has_partner) = output.has_partner.get_mut(position) {
                *has_partner = true;
            }
            if self.all_true(&step.ready, &scope)? {
                self.hold(size_of_val(row.as_slice()))?;
                output.rows.push(row);
            }
        }
        Ok(is_alone)
    }
}
