//! Views: queries with a name, bound where they are used as if they were written there.
//!
//! The names in a view's query are looked up in its own database, without the common tables around its
//! use and without a check of the caller, who may read what the view shows. Positions in its text mean
//! nothing in the statement: what refers to one gets the position of the view's name there.

use std::{collections::BTreeSet, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result, Span};
use lockstep_sql::ast;

use crate::{
    CatalogTable, NamedQuery, SourceHandle, Written,
    binder::{Binder, BoundRelation},
    scope::Qualifier,
};

/// The objects of the catalog that a statement names.
#[derive(Debug, Default)]
pub(crate) struct NamedObjects {
    pub(crate) named: BTreeSet<(String, String)>,
    pub(crate) views: Vec<SourceHandle>,
    pub(crate) files: Vec<Arc<CatalogTable>>,
}

impl NamedObjects {
    /// Adds a table or a view that the text of the statement names.
    pub(crate) fn add(&mut self, database: &str, name: &str) {
        self.named.insert((database.to_owned(), name.to_owned()));
    }

    fn add_view(&mut self, view: &SourceHandle) {
        if !self.views.iter().any(|known| Arc::ptr_eq(known, view)) {
            self.views.push(Arc::clone(view));
        }
    }

    /// Adds files, which may be read by a part of the statement that nothing uses.
    pub(crate) fn add_files(&mut self, files: &Arc<CatalogTable>) {
        self.files.push(Arc::clone(files));
    }
}

/// The views whose queries are being bound, innermost last: each by the name of its use, which stands in
/// the text of the one before, and with the database of the unqualified names in its query.
#[derive(Debug, Default)]
pub(crate) struct ViewsInUse(Vec<(ast::ObjectName, String)>);

impl ViewsInUse {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the database of unqualified names; `None` outside of views.
    pub(crate) fn current_database(&self) -> Option<&str> {
        self.0.last().map(|(_, database)| database.as_str())
    }

    /// Returns the names of their uses.
    pub(crate) fn names(&self) -> Vec<ast::ObjectName> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }
}

impl Binder<'_> {
    /// Binds the query of a view.
    pub(crate) fn view(
        &self,
        view: &NamedQuery,
        name: &ast::ObjectName,
        alias: Option<&ast::Ident>,
    ) -> Result<BoundRelation> {
        self.named.borrow_mut().add_view(&view.object);
        let around = std::mem::take(&mut *self.common_tables.borrow_mut());
        let database = match &name.database {
            Some(database) => database.text.clone(),
            None => self.current_database(),
        };
        let in_use = (name.clone(), view.current_database.clone());
        self.views_in_use.borrow_mut().0.push(in_use);
        let before = self.written.borrow().counts();
        let bound = self.with_sub_queries(None, || self.query(&view.query));
        self.views_in_use.borrow_mut().0.pop();
        *self.common_tables.borrow_mut() = around;
        let (relation, _) = bound.map_err(|error| in_view(*error, name))?;
        self.written.borrow_mut().move_to(before, name.name.span);
        let qualifier = match alias {
            Some(alias) => self.alias_qualifier(&alias.text),
            None => Qualifier { database: Some(database), table: name.name.text.clone() },
        };
        Ok(relation.aliased(Some(qualifier)))
    }
}

/// Makes an error in the query of a view one at its use.
pub fn in_view(error: Diagnostic, name: &ast::ObjectName) -> Box<Diagnostic> {
    let text = format!("The error is in the query of view `{}`.", name.name.text);
    let detail = match &error.detail {
        Some(detail) => format!("{detail} {text}"),
        None => text,
    };
    let error = Diagnostic { span: None, ..error };
    Box::new(error.at(name.name.span).with_detail(detail))
}

/// How much of a query was written at some time, by kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrittenCounts {
    windows: usize,
    joins: usize,
    clock_reads: usize,
    quoted_names: usize,
}

impl Written {
    fn counts(&self) -> WrittenCounts {
        WrittenCounts {
            windows: self.windows.len(),
            joins: self.joins.len(),
            clock_reads: self.clock_reads.len(),
            quoted_names: self.quoted_names.len(),
        }
    }

    /// Gives what was written since `before` this position.
    fn move_to(&mut self, before: WrittenCounts, span: Span) {
        for window in &mut self.windows[before.windows..] {
            window.spec.span = span;
            if let Some(frame) = &mut window.spec.frame {
                (frame.span, frame.start.span, frame.end.span) = (span, span, span);
            }
            if let Some(name) = &mut window.name {
                name.span = span;
            }
            for item in &mut window.spec.order_by {
                item.expr.span = span;
            }
            for key in &mut window.spec.partition_by {
                key.span = span;
            }
            for call in &mut window.calls {
                call.span = span;
            }
        }
        self.joins[before.joins..].iter_mut().for_each(|join| join.span = span);
        self.clock_reads[before.clock_reads..].iter_mut().for_each(|read| read.span = span);
        self.quoted_names[before.quoted_names..].iter_mut().for_each(|name| name.span = span);
    }
}
