//! The names that an expression may use, and the columns that they mean.
//!
//! Every column of a plan has a unique internal name (a relation that occurs once in the whole
//! plan, and a name that occurs once in that relation), so that the user's names, which may
//! repeat, never meet DataFusion's rules. The scope maps the user's names to the internal ones.

use datafusion::{common::Column, logical_expr::Expr};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_row::DataType;
use lockstep_sql::ast::Ident;

use crate::expression::TypedExpr;

/// A column that an expression may name.
#[derive(Debug, Clone)]
pub(crate) struct ScopeColumn {
    /// The database and table (or alias) that may qualify it.
    pub(crate) qualifier: Option<Qualifier>,
    /// The table that a column of an unnamed sub-query comes from; it may qualify the column where
    /// no other column has that qualified name.
    pub(crate) origin: Option<Qualifier>,
    /// The name that the user gave it.
    pub(crate) name: String,
    /// The internal name.
    pub(crate) column: Column,
    /// The type.
    pub(crate) data_type: DataType,
}

/// The table name, and optionally the database, before a column's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Qualifier {
    /// The database; for an alias the current one.
    pub(crate) database: Option<String>,
    /// The table's name or alias.
    pub(crate) table: String,
}

/// The columns of one FROM, left to right.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameScope {
    pub(crate) columns: Vec<ScopeColumn>,
}

impl NameScope {
    /// Finds the column of a possibly qualified name.
    pub(crate) fn find(&self, path: &[Ident]) -> Result<&ScopeColumn> {
        let named =
            |column: &&ScopeColumn| column.answers_to(path, column.qualifier.as_ref(), is_equal);
        let inherited =
            |column: &&ScopeColumn| column.answers_to(path, column.origin.as_ref(), is_equal);
        let mut matches: Vec<&ScopeColumn> = self.columns.iter().filter(named).collect();
        if matches.is_empty() {
            matches = self.columns.iter().filter(inherited).collect();
        }
        let Some(first) = matches.first().copied() else { return self.undefined(path) };
        if matches.len() > 1 {
            return Diagnostic::new(
                code::AMBIGUOUS_COLUMN,
                format!("column `{}` is ambiguous", written(path)),
            )
            .at(span(path))
            .with_hint("Qualify the column with the name or alias of its table.")
            .err();
        }
        Ok(first)
    }

    /// Finds the only column that a name means in other capitals.
    pub(crate) fn find_in_any_case(&self, path: &[Ident]) -> Option<&ScopeColumn> {
        let named = |column: &&ScopeColumn| {
            column.answers_to(path, column.qualifier.as_ref(), str::eq_ignore_ascii_case)
        };
        debug_assert!(!path.is_empty(), "a name has a part");
        let mut matches = self.columns.iter().filter(named);
        let first = matches.next()?;
        matches.next().is_none().then_some(first)
    }

    /// Gives the first columns other names.
    pub(crate) fn rename(&mut self, names: &[Ident]) -> Result<()> {
        if let Some(excess) = names.get(self.columns.len()) {
            let (columns, names) = (self.columns.len(), names.len());
            let message = format!("{columns} columns available but {names} names specified");
            return Diagnostic::new(code::INVALID_COLUMN_REFERENCE, message).at(excess.span).err();
        }
        for (column, name) in self.columns.iter_mut().zip(names) {
            column.name.clone_from(&name.text);
        }
        Ok(())
    }

    /// Returns whether some column has this name.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }

    /// Returns the columns that `qualifier.*` means.
    pub(crate) fn of_table(&self, database: Option<&str>, table: &str) -> Vec<&ScopeColumn> {
        let is_of = |qualifier: &Qualifier| {
            qualifier.table == table
                && database.is_none_or(|name| qualifier.database.as_deref() == Some(name))
        };
        self.columns.iter().filter(|c| c.qualifier.as_ref().is_some_and(is_of)).collect()
    }

    /// Returns the columns of this scope followed by those of another one.
    pub(crate) fn join(&self, right: &Self) -> Self {
        Self { columns: self.columns.iter().chain(&right.columns).cloned().collect() }
    }

    fn undefined<T>(&self, path: &[Ident]) -> Result<T> {
        let (name, tables) = path.split_last().expect("a name has at least one part");
        let known_table = |table: &Ident| {
            self.columns.iter().any(|c| c.qualifier.as_ref().is_some_and(|q| q.table == table.text))
        };
        if let Some(table) = tables.last().filter(|table| !known_table(table)) {
            let having = self.columns.iter().filter(|column| column.name == name.text);
            let names = having.filter_map(|column| column.qualifier.as_ref());
            let names: Vec<&str> = names.map(|qualifier| qualifier.table.as_str()).collect();
            let message = format!("table `{}` is not part of this query", table.text);
            return Diagnostic::new(code::UNDEFINED_TABLE, message)
                .at(table.span)
                .with_nearest(&table.text, names)
                .err();
        }
        let message = format!("column `{}` does not exist", written(path));
        Diagnostic::new(code::UNDEFINED_COLUMN, message)
            .at(span(path))
            .with_nearest_or_all(
                &name.text,
                "The columns are",
                self.columns.iter().map(|column| column.name.as_str()),
            )
            .err()
    }
}

impl ScopeColumn {
    /// Returns the column as an expression, written at `span`.
    pub(crate) fn expr(&self, span: Span) -> TypedExpr {
        let expr = Expr::Column(self.column.clone());
        TypedExpr { expr, data_type: self.data_type.clone(), span }
    }

    fn answers_to(
        &self,
        path: &[Ident],
        qualifier: Option<&Qualifier>,
        is_name: fn(&str, &str) -> bool,
    ) -> bool {
        let is_named = |name: &Ident| is_name(&self.name, &name.text);
        match path {
            [name] => is_named(name),
            [table, name] => {
                is_named(name) && qualifier.is_some_and(|q| is_name(&q.table, &table.text))
            }
            [database, table, name] => {
                let is_in = |q: &Qualifier| {
                    let of = q.database.as_deref();
                    is_name(&q.table, &table.text)
                        && of.is_some_and(|of| is_name(of, &database.text))
                };
                is_named(name) && qualifier.is_some_and(is_in)
            }
            _ => false,
        }
    }
}

fn is_equal(left: &str, right: &str) -> bool {
    left == right
}

fn written(path: &[Ident]) -> String {
    let parts: Vec<&str> = path.iter().map(|part| part.text.as_str()).collect();
    parts.join(".")
}

fn span(path: &[Ident]) -> Span {
    path.iter().map(|part| part.span).reduce(|l, r| l.to(r)).unwrap_or_default()
}
