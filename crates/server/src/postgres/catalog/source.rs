//! The sides of joins: tables, inner queries, functions, and those that depend on the row before them.

use std::sync::Arc;

use lockstep_diagnostic::Result;
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, ObjectName, Query, SetExpr, TableFactor};

use super::{
    analysis::object_name,
    evaluation::Evaluator,
    from::{JoinedRows, OpenConditions, aliases_of, folded, unsupported},
    projection::item_name,
    relation::{CatalogRelation, CatalogRow},
    scope::{BoundTable, JoinedRow, Scope},
    value::{CatalogValue, row_bytes},
};
use crate::postgres::types::oid;

/// How a side of a join gets its rows.
pub(super) enum Source<'q> {
    /// The same rows for each row before it.
    Relation(CatalogRelation),
    /// Joined tables in parentheses.
    Nested(JoinedRows),
    /// Other rows for each row before it.
    Lateral(&'q TableFactor),
}

/// Whether only the columns of a source are wanted, because no row is there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sketch {
    Yes,
    No,
}

impl Sketch {
    /// Returns the scope where rows are wanted.
    fn scope<'s, 'a>(self, scope: &'s Scope<'a>) -> Option<&'s Scope<'a>> {
        (self == Self::No).then_some(scope)
    }
}

impl Source<'_> {
    /// Returns the rows that are the same for each row before.
    pub(super) fn rows(&self) -> Vec<JoinedRow> {
        match self {
            Self::Relation(relation) => rows_of(relation),
            Self::Nested(nested) => nested.rows.clone(),
            Self::Lateral(_) => Vec::new(),
        }
    }
}

pub(super) fn rows_of(relation: &CatalogRelation) -> Vec<JoinedRow> {
    relation.rows.iter().map(|row| vec![Some(CatalogRow::clone(row))]).collect()
}

impl Evaluator<'_> {
    /// Returns where a side of a join gets its rows.
    pub(super) fn source<'q>(
        &mut self,
        factor: &'q TableFactor,
        outer: Option<&Scope<'_>>,
    ) -> Result<Source<'q>> {
        Ok(match factor {
            TableFactor::Table { name, args: None, .. } => {
                Source::Relation(self.relation(&relation_name(name))?)
            }
            TableFactor::Derived { lateral: false, subquery, .. } => {
                let relation = self.query(subquery, outer)?;
                self.hold_relation(&relation)?;
                Source::Relation(relation)
            }
            TableFactor::NestedJoin { table_with_joins, .. } => {
                let aliases: Vec<String> = aliases_of(table_with_joins).collect();
                let mut nested = JoinedRows { tables: Vec::new(), rows: vec![Vec::new()] };
                let mut none = OpenConditions { list: Vec::new(), aliases };
                self.join_item(table_with_joins, &mut nested, &mut none, outer)?;
                Source::Nested(nested)
            }
            TableFactor::Table { .. }
            | TableFactor::Derived { .. }
            | TableFactor::Function { .. }
            | TableFactor::UNNEST { .. } => Source::Lateral(factor),
            other => return unsupported(&format!("{other} in FROM")),
        })
    }

    /// Returns the tables of a side of a join.
    pub(super) fn bound(
        &mut self,
        factor: &TableFactor,
        source: &Source<'_>,
        outer: Option<&Scope<'_>>,
    ) -> Result<Vec<BoundTable>> {
        let (name, alias) = match factor {
            TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. } => {
                (object_name(name).1, alias.as_ref())
            }
            TableFactor::Derived { alias, .. } => (String::new(), alias.as_ref()),
            TableFactor::UNNEST { alias, .. } => ("unnest".to_owned(), alias.as_ref()),
            _ => (String::new(), None),
        };
        let name = alias.map_or(name, |alias| folded(&alias.name));
        let relation = match source {
            Source::Nested(nested) => return Ok(nested.tables.clone()),
            Source::Relation(relation) => relation.clone(),
            // Its columns are the same for each row, and no row is there yet.
            Source::Lateral(factor) => {
                self.lateral(factor, &Scope::new(&[], &[], outer), Sketch::Yes)?
            }
        };
        let renamed = alias.map_or(&[][..], |alias| alias.columns.as_slice());
        let mut columns = relation.columns.list.clone();
        for ((column, _), given) in columns.iter_mut().zip(renamed) {
            *column = folded(&given.name);
        }
        let renames_all = matches!(source, Source::Lateral(TableFactor::Derived { .. }));
        if renamed.is_empty() && !renames_all && columns.len() == 1 && is_function(factor) {
            columns[0].0.clone_from(&name);
        }
        let relation = CatalogRelation::of(columns, Vec::new());
        let has_any_column = relation_is_open(source);
        let columns = match Arc::try_unwrap(relation.columns) {
            Ok(mut columns) => {
                columns.has_any_column = has_any_column;
                Arc::new(columns)
            }
            Err(columns) => columns,
        };
        Ok(vec![BoundTable { alias: name, columns }])
    }

    /// Returns the rows of a factor that depends on the row before it, or its columns only.
    pub(super) fn lateral(
        &mut self,
        factor: &TableFactor,
        scope: &Scope<'_>,
        sketch: Sketch,
    ) -> Result<CatalogRelation> {
        match factor {
            TableFactor::Derived { subquery, .. } => {
                if sketch == Sketch::Yes {
                    return self.sketch(subquery);
                }
                self.query(subquery, Some(scope))
            }
            TableFactor::UNNEST { array_exprs, with_ordinality, .. } => {
                let arguments: Vec<&Expr> = array_exprs.iter().collect();
                self.function_rows("unnest", &arguments, *with_ordinality, sketch.scope(scope))
            }
            TableFactor::Table { name, args: Some(given), with_ordinality, .. } => {
                let arguments = arguments_of(&given.args)?;
                let name = object_name(name).1;
                self.function_rows(&name, &arguments, *with_ordinality, sketch.scope(scope))
            }
            TableFactor::Function { name, args, with_ordinality, .. } => {
                let arguments = arguments_of(args)?;
                let name = object_name(name).1;
                self.function_rows(&name, &arguments, *with_ordinality, sketch.scope(scope))
            }
            other => unsupported(&format!("{other} in FROM")),
        }
    }

    /// Returns the columns of a lateral query. Its rows are not known yet, so names that it takes from
    /// tables before it are not, either: the columns are those that it lists.
    fn sketch(&mut self, query: &Query) -> Result<CatalogRelation> {
        let SetExpr::Select(select) = query.body.as_ref() else {
            return unsupported("a set operation in LATERAL");
        };
        let names = select.projection.iter().map(item_name);
        let names: Option<Vec<String>> = names.collect();
        match names {
            Some(names) => {
                let columns = names.into_iter().map(|name| (name, oid::UNKNOWN)).collect();
                Ok(CatalogRelation::of(columns, Vec::new()))
            }
            None => unsupported("* in LATERAL"),
        }
    }

    /// Returns the rows of a function in FROM; without a scope, its columns.
    fn function_rows(
        &mut self,
        name: &str,
        arguments: &[&Expr],
        with_ordinality: bool,
        scope: Option<&Scope<'_>>,
    ) -> Result<CatalogRelation> {
        let named = |name: &str| (name.to_owned(), oid::UNKNOWN);
        let mut columns = match name {
            "_pg_expandarray" => vec![named("x"), named("n")],
            "pg_get_keywords" => vec![
                ("word".to_owned(), oid::TEXT),
                ("catcode".to_owned(), oid::TEXT),
                ("catdesc".to_owned(), oid::TEXT),
            ],
            "unnest" if arguments.len() > 1 => {
                (0..arguments.len()).map(|at| named(&format!("unnest{at}"))).collect()
            }
            _ => vec![named(name)],
        };
        let width = columns.len();
        if with_ordinality {
            columns.push(("ordinality".to_owned(), oid::INT8));
        }
        let Some(scope) = scope else { return Ok(CatalogRelation::of(columns, Vec::new())) };
        let mut rows: Vec<Vec<CatalogValue>> = Vec::new();
        if name == "unnest" && arguments.len() > 1 {
            let mut lists = Vec::new();
            for argument in arguments {
                lists.push(self.value(argument, scope)?.elements()?.unwrap_or_default());
            }
            let count = lists.iter().map(Vec::len).max().unwrap_or(0);
            let item = |list: &Vec<CatalogValue>, at: usize| {
                list.get(at).cloned().unwrap_or(CatalogValue::Null)
            };
            rows.extend((0..count).map(|at| lists.iter().map(|list| item(list, at)).collect()));
        } else {
            let mut values = Vec::new();
            for argument in arguments {
                values.push(self.value(argument, scope)?);
            }
            for element in self.set(name, &values)? {
                rows.push(match element {
                    CatalogValue::Record(fields) if width == fields.len() => {
                        fields.iter().map(|(_, field)| field.clone()).collect()
                    }
                    other => vec![other],
                });
            }
        }
        if with_ordinality {
            for (at, row) in rows.iter_mut().enumerate() {
                row.push(CatalogValue::count(at + 1));
            }
        }
        // The rows of the relation, and those that are made of it to be joined.
        for row in &rows {
            let bytes = row_bytes(row);
            self.work(bytes)?;
            self.hold(bytes + 2 * size_of::<(JoinedRow, CatalogRow)>())?;
        }
        Ok(CatalogRelation::of(columns, rows.into_iter().map(CatalogRow::from).collect()))
    }
}

/// Returns the expressions of the arguments of a function.
pub(super) fn arguments_of(arguments: &[FunctionArg]) -> Result<Vec<&Expr>> {
    arguments
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
            | FunctionArg::Named { arg: FunctionArgExpr::Expr(expr), .. }
            | FunctionArg::ExprNamed { arg: FunctionArgExpr::Expr(expr), .. } => Ok(expr),
            other => unsupported(&format!("the argument {other}")),
        })
        .collect()
}

/// Returns the name under which a table of the catalogs is found.
fn relation_name(name: &ObjectName) -> String {
    match object_name(name) {
        (Some(schema), name) if schema == "information_schema" => format!("{schema}.{name}"),
        (_, name) => name,
    }
}

fn is_function(factor: &TableFactor) -> bool {
    matches!(
        factor,
        TableFactor::Function { .. }
            | TableFactor::UNNEST { .. }
            | TableFactor::Table { args: Some(_), .. }
    )
}

fn relation_is_open(source: &Source<'_>) -> bool {
    matches!(source, Source::Relation(relation) if relation.columns.has_any_column)
}
