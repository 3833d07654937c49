//! CREATE VIEW, DROP VIEW, SHOW VIEWS and SHOW CREATE VIEW.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_plan::stored_tables;
use lockstep_sql::ast::{CreateView, ObjectName};

use super::{at_name, outcome};
use crate::{
    Output, Session,
    catalog::{CatalogCommand, Definition, ObjectKind, QualifiedName, TableReference},
    deployment::{query_text, source_of},
    system,
    view::{View, views_of},
};

impl Session {
    /// Runs CREATE VIEW.
    pub(crate) fn create_view(
        &self,
        create: &CreateView,
        script: &str,
        parameter_count: usize,
    ) -> Result<Output> {
        let name = self.qualified(&create.name);
        let tolerated = create.if_not_exists.then_some(code::DUPLICATE_TABLE);
        let free = self.database.objects().check_view_free(&name, create.or_replace);
        if free.is_err() {
            return outcome(free, tolerated, &create.name, "CREATE VIEW");
        }
        if parameter_count > 0 {
            return Diagnostic::unsupported("a view takes no parameters")
                .at(create.query.span)
                .with_hint("Write the value, or filter where the view is used.")
                .err();
        }
        let seen = self.database.objects().epoch();
        let bound = self.bind(&create.query)?;
        if source_of(&bound.plan).is_some() {
            return Diagnostic::unsupported("a view reads stored tables, not files or data frames")
                .at(create.query.span)
                .with_hint("CREATE TABLE … AS SELECT stores their rows.")
                .err();
        }
        check_columns(create, &bound.columns)?;
        let tables = stored_tables(&bound.plan);
        let stored = tables.iter().filter(|table| !system::is_system(table.id));
        let view = View {
            definition: Definition::new(ObjectKind::View, name),
            sql: query_text(script, create.query.span),
            query: Arc::new(create.query.clone()),
            tables: stored.map(|table| TableReference::of(table)).collect(),
            views: views_of(&bound),
            settings: self.settings(),
            current_database: self.current_database(),
            columns: bound.columns,
        };
        let (view, or_replace) = (Arc::new(view), create.or_replace);
        let command = CatalogCommand::CreateView { view, or_replace, seen };
        outcome(self.database.commit(&command), tolerated, &create.name, "CREATE VIEW")
    }

    /// Runs DROP VIEW.
    pub(crate) fn drop_view(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let command = CatalogCommand::DropView { name: self.qualified(name) };
        let tolerated = if_exists.then_some(code::UNDEFINED_TABLE);
        outcome(self.database.commit(&command), tolerated, name, "DROP VIEW")
    }

    /// Runs SHOW VIEWS: those of the current database.
    pub(super) fn show_views(&self) -> Result<Output> {
        let objects = self.database.objects();
        let current = self.current_database();
        let found = objects.databases().get(&current);
        let is_seen = |name: &&String| self.caller().sees_table(&objects, &current, name);
        let names = found.into_iter().flat_map(|found| found.views.keys()).filter(is_seen);
        Output::of_list("view", names.map(String::as_str))
    }

    /// Runs SHOW CREATE VIEW.
    pub(super) fn show_create_view(&self, name: &ObjectName) -> Result<Output> {
        let wanted = self.qualified(name);
        let objects = self.database.objects();
        let Some(view) = objects.find_view(&wanted) else {
            return at_name(objects.no_view(&wanted), name).err();
        };
        let script = create_view_script(view.name(), &view.sql);
        let row = [&wanted.name, &script, &view.current_database].map(|text| Some(text.clone()));
        Output::of_texts(&["view", "create_view", "current_database"], &[row.to_vec()])
    }
}

/// Writes the CREATE VIEW of a view.
pub(crate) fn create_view_script(name: &QualifiedName, sql: &str) -> String {
    format!("CREATE VIEW `{}`.`{}` AS {sql}", name.database, name.name)
}

/// Fails where two columns have one name: nothing could name them.
fn check_columns(create: &CreateView, columns: &[(String, lockstep_row::DataType)]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    let Some((name, _)) = columns.iter().find(|(name, _)| !seen.insert(name)) else {
        return Ok(());
    };
    let message = format!("two columns of the view have the name `{name}`");
    Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
        .at(create.query.span)
        .with_hint("Give one of them another name with AS.")
        .err()
}
