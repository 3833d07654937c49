//! FROM: tables, sub-queries and joins.
//!
//! The LAST JOINs of the leftmost table are bound separately from it ([`From`]) until the SELECT
//! knows which windows need only that table's columns: those windows go below the joins, so that
//! their rows are those of the table itself.

use std::{collections::HashSet, sync::Arc};

use datafusion::{
    common::{Column, JoinType},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder},
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{self, JoinKind, TableRef};

use crate::{
    Catalog, CatalogTable, NamedQuery,
    binder::{Binder, BoundRelation, planning},
    last_join::PendingLastJoin,
    scope::NameScope,
};

/// A bound FROM.
#[derive(Debug)]
pub(crate) struct From {
    /// The leftmost table, or everything when there is no LAST JOIN.
    pub(crate) base: BoundRelation,
    /// The LAST JOINs above it, innermost first.
    pub(crate) joins: Vec<PendingLastJoin>,
    /// The columns of the table and of all joins.
    pub(crate) scope: NameScope,
}

impl From {
    /// Removes the columns of a long chain of LAST JOINs that neither the joins nor the expressions
    /// `above` them read: each join has all columns of the ones before it, so that the cost of a
    /// chain is quadratic in its columns.
    pub(crate) fn narrow<'e>(&mut self, above: impl Iterator<Item = &'e Expr>) -> Result<()> {
        if self.joins.len() < JOINS_NARROWED_MIN {
            return Ok(());
        }
        let mut read: HashSet<Column> = above.flat_map(Expr::column_refs).cloned().collect();
        read.extend(self.joins.iter().flat_map(PendingLastJoin::reads).cloned());
        self.joins.iter_mut().try_for_each(|join| join.narrow(&read))
    }
}

/// The number of LAST JOINs from which on unused columns are removed.
const JOINS_NARROWED_MIN: usize = 16;

impl Binder<'_> {
    /// Puts LAST JOINs on top of `base`, and counts the columns of each.
    pub(crate) fn joined(
        &self,
        joins: Vec<PendingLastJoin>,
        base: LogicalPlan,
    ) -> Result<LogicalPlan> {
        joins.into_iter().try_fold(base, |left, join| {
            let span = join.span;
            let joined = join.onto(left)?;
            self.size.add_expressions(joined.schema().fields().len(), span)?;
            Ok(joined)
        })
    }

    /// Returns the plan of a FROM with its LAST JOINs.
    pub(crate) fn whole(&self, from: From) -> Result<BoundRelation> {
        let plan = self.joined(from.joins, from.base.plan)?;
        Ok(BoundRelation { plan, scope: from.scope })
    }

    /// Binds a FROM; without one, a single row without columns.
    pub(crate) fn from(&self, from: Option<&TableRef>) -> Result<From> {
        let Some(from) = from else {
            let plan = LogicalPlanBuilder::empty(true).build().map_err(planning)?;
            let base = BoundRelation { plan, scope: NameScope::default() };
            return Ok(From { base, joins: Vec::new(), scope: NameScope::default() });
        };
        match from {
            TableRef::Join(join) if join.kind == JoinKind::Last => {
                let mut left = self.from(Some(&join.left))?;
                let right = self.size.beside(|| self.relation(&join.right))?;
                self.size.add_join(join.span)?;
                // One scope grows with the chain: a copy for each join would be quadratic.
                left.scope.columns.extend_from_slice(&right.scope.columns);
                left.joins.push(self.last_join(&left.scope, right, join)?);
                Ok(left)
            }
            other => {
                let base = self.relation(other)?;
                let scope = base.scope.clone();
                Ok(From { base, joins: Vec::new(), scope })
            }
        }
    }

    /// Binds one item of FROM to a plan of its own.
    pub(crate) fn relation(&self, item: &TableRef) -> Result<BoundRelation> {
        match item {
            TableRef::Table { name, alias } => self.table(name, alias.as_ref()),
            TableRef::Subquery { query, alias } => {
                let alias = alias.as_ref().map(|alias| self.alias_qualifier(&alias.text));
                Ok(self.query(query)?.aliased(alias))
            }
            TableRef::Files { files, alias } => {
                let table = self.catalog.find_files(files, &self.views_in_use.borrow().names())?;
                self.named.borrow_mut().add_files(&table);
                self.scan(&table, alias.as_ref().map(|alias| alias.text.as_str()))
            }
            TableRef::Renamed { table, columns } => {
                let mut relation = self.relation(table)?;
                relation.scope.rename(columns)?;
                Ok(relation)
            }
            TableRef::Join(join) if join.kind == JoinKind::Last => {
                self.whole(self.from(Some(item))?)
            }
            TableRef::Join(join) => self.plain_join(join),
        }
    }

    fn table(&self, name: &ast::ObjectName, alias: Option<&ast::Ident>) -> Result<BoundRelation> {
        if name.database.is_none() {
            let tables = self.common_tables.borrow();
            let found = tables.iter().rev().find(|table| table.name == name.name.text);
            if let Some(table) = found {
                let relation = table.relation.clone();
                self.size.add(table.weight, name.name.span)?;
                drop(tables);
                return self.common_table(relation, alias.unwrap_or(&name.name));
            }
        }
        match self.find_object(name)? {
            FoundObject::Table(table) => self.scan(&table, alias.map(|alias| alias.text.as_str())),
            FoundObject::View(view) => self.view(&view, name, alias),
        }
    }

    /// Projects a common table to new internal names, which each use of it needs.
    fn common_table(&self, relation: BoundRelation, alias: &ast::Ident) -> Result<BoundRelation> {
        let columns = relation.scope.columns.into_iter();
        let items = columns.map(|c| (c.name, Expr::Column(c.column), c.data_type)).collect();
        Ok(self
            .project(relation.plan, items, &alias.text)?
            .aliased(Some(self.alias_qualifier(&alias.text))))
    }

    /// Finds a stored table or a view.
    fn find_object(&self, name: &ast::ObjectName) -> Result<FoundObject> {
        let written = name.database.as_ref();
        let database = written.map_or_else(|| self.current_database(), |name| name.text.clone());
        // Who may read a view may read what it shows.
        if self.views_in_use.borrow().is_empty() {
            check_access(self.catalog, &database, name)?;
            self.named.borrow_mut().add(&database, &name.name.text);
        }
        if let Some(view) = self.catalog.find_view(&database, &name.name.text) {
            return Ok(FoundObject::View(view));
        }
        find_in(self.catalog, &database, name).map(FoundObject::Table)
    }

    fn plain_join(&self, join: &ast::Join) -> Result<BoundRelation> {
        let left = self.relation(&join.left)?;
        let right = self.size.beside(|| self.relation(&join.right))?;
        self.size.add_join(join.span)?;
        let scope = left.scope.join(&right.scope);
        let on = match &join.on {
            Some(on) => Some(self.scalar_binder(&scope).condition(on)?.expr),
            None => None,
        };
        let kind = match join.kind {
            JoinKind::Left => JoinType::Left,
            JoinKind::Right => JoinType::Right,
            JoinKind::Full => JoinType::Full,
            JoinKind::Inner | JoinKind::Cross | JoinKind::Last => JoinType::Inner,
        };
        let builder = LogicalPlanBuilder::from(left.plan);
        let builder = match on {
            Some(on) => builder.join_on(right.plan, kind, [on]),
            None => builder.cross_join(right.plan),
        };
        let plan = builder.and_then(LogicalPlanBuilder::build).map_err(planning)?;
        Ok(BoundRelation { plan, scope })
    }
}

/// An object that FROM names.
enum FoundObject {
    Table(Arc<CatalogTable>),
    View(NamedQuery),
}

/// Finds a stored table by its possibly qualified name.
pub fn find_table(catalog: &dyn Catalog, name: &ast::ObjectName) -> Result<Arc<CatalogTable>> {
    let database = match &name.database {
        Some(database) => database.text.as_str(),
        None => catalog.current_database(),
    };
    check_access(catalog, database, name)?;
    find_in(catalog, database, name)
}

fn check_access(catalog: &dyn Catalog, database: &str, name: &ast::ObjectName) -> Result<()> {
    let access = catalog.check_access(database, &name.name.text);
    access.map_err(|error| Box::new(error.at(name.name.span)))
}

fn find_in(
    catalog: &dyn Catalog,
    database: &str,
    name: &ast::ObjectName,
) -> Result<Arc<CatalogTable>> {
    if let Some(table) = catalog.find_table(database, &name.name.text) {
        return Ok(table);
    }
    if let Some(written) = name.database.as_ref().filter(|d| !catalog.has_database(&d.text)) {
        let message = format!("database `{}` does not exist", written.text);
        return Diagnostic::new(code::UNDEFINED_DATABASE, message).at(written.span).err();
    }
    if let Some(view) = catalog.find_view(database, &name.name.text) {
        let (what, hint) = match view.is_external_table {
            true => (
                "an external table",
                "The rows are in files. Use CREATE TABLE … AS SELECT to store the rows, or INTO \
                 OUTFILE to write files.",
            ),
            false => (
                "a view",
                "A view stores no rows. Use a table that the view reads; SHOW CREATE VIEW shows \
                 its query.",
            ),
        };
        let message = format!("`{}` is {what}", name.name.text);
        let error = Diagnostic::new(code::WRONG_OBJECT_TYPE, message).at(name.name.span);
        return error.with_hint(hint).err();
    }
    let names = catalog.table_names(database);
    let message = format!("table `{}` does not exist in database `{database}`", name.name.text);
    let error = Diagnostic::new(code::UNDEFINED_TABLE, message).at(name.name.span);
    if names.is_empty() {
        let hint = "Create the table with CREATE TABLE, or with `append` in Python.";
        return error.with_hint(hint).err();
    }
    let names = names.iter().map(String::as_str);
    error.with_nearest_or_all(&name.name.text, "The tables are", names).err()
}
