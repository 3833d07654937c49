//! CREATE VIEW, CREATE EXTERNAL TABLE, DROP VIEW, SHOW VIEWS and SHOW CREATE VIEW.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_plan::stored_tables;
use lockstep_sql::{
    Parsed,
    ast::{CreateView, Ident, ObjectName, Statement, ViewForm},
    parse,
};

use super::{at_name, outcome, table::DropOptions, with_cascade_hint};
use crate::{
    Output, Session,
    access::OwnedReads,
    catalog::{Cascade, CatalogCommand, Definition, ObjectKind, QualifiedName, TableReference},
    deployment::{QuerySource, query_text},
    system,
    view::{FileViewRecord, View, ViewKind, reading, requirements_of, view_script, views_of},
};

impl Session {
    /// Runs CREATE VIEW and CREATE EXTERNAL TABLE.
    pub(crate) fn create_view(
        &self,
        create: &CreateView,
        script: &str,
        parsed: &Parsed,
    ) -> Result<Output> {
        let name = self.qualified(&create.name);
        let tolerated = create.if_not_exists.then_some(code::DUPLICATE_TABLE);
        let free = self.database.objects().check_view_free(&name, create.or_replace);
        let done = if create.form == ViewForm::ExternalTable {
            "CREATE EXTERNAL TABLE"
        } else {
            "CREATE VIEW"
        };
        if free.is_err() {
            return outcome(free, tolerated, &create.name, done);
        }
        if parsed.parameter_count > 0 {
            return Diagnostic::unsupported("a view cannot have parameters")
                .at(create.query.span)
                .with_hint("Write the value, or filter in the query that uses the view.")
                .err();
        }
        let seen = self.database.objects().epoch();
        let bound = self.bind(&create.query)?;
        check_columns(create, &bound.columns)?;
        let tables = stored_tables(&bound.plan);
        let stored = tables.iter().filter(|table| !system::is_system(table.id));
        let kind = match create.form {
            ViewForm::ExternalTable => ViewKind::ExternalTable,
            ViewForm::View if bound.files.is_empty() => ViewKind::OfTables,
            ViewForm::View => ViewKind::OfFiles,
        };
        let definition = Definition::new(ObjectKind::View, name);
        let view = View {
            owned: OwnedReads::new(&definition, self.object_owner(), requirements_of(&bound)),
            definition,
            sql: query_text(script, create.query.span),
            query: Arc::new(create.query.clone()),
            kind,
            tables: stored.map(|table| TableReference::of(table)).collect(),
            views: views_of(&bound),
            settings: self.settings(),
            current_database: self.current_database(),
            columns: bound.columns,
        };
        let (view, or_replace) = (Arc::new(view), create.or_replace);
        let command = CatalogCommand::CreateView { view, or_replace, seen };
        outcome(self.database.commit(&command), tolerated, &create.name, done)
    }

    /// Makes a view of files again as its record says. Opens no file.
    pub(crate) fn restore_file_view(
        &self,
        name: &QualifiedName,
        source: &QuerySource,
        known: &FileViewRecord,
    ) -> Result<()> {
        let is_external_table = known.kind == ViewKind::ExternalTable;
        let statement = parse(&view_script(name, &source.sql, is_external_table))?;
        let Some(Parsed { statement: Statement::CreateView(create), .. }) =
            statement.into_iter().next()
        else {
            return Diagnostic::internal("the record is not of a view").err();
        };
        let table = |name: &QualifiedName| {
            let ident = |text: &String| Ident { text: text.clone(), span: Span::default() };
            let database = Some(ident(&name.database));
            let entry = self.find_entry(&ObjectName { database, name: ident(&name.name) })?;
            Ok(TableReference { id: entry.id, name: name.clone() })
        };
        let tables = known.tables.iter().map(table).collect::<Result<_>>()?;
        let views = {
            let objects = self.database.objects();
            let view = |name: &QualifiedName| match objects.find_view(name) {
                Some(view) => Ok(Arc::clone(view)),
                None => objects.no_view(name).err(),
            };
            known.views.iter().map(view).collect::<Result<_>>()?
        };
        let definition = Definition::new(ObjectKind::View, name.clone());
        let reads = known.named.iter().cloned().map(reading).collect();
        let view = View {
            owned: OwnedReads::new(&definition, source.owner.clone(), reads),
            definition,
            sql: source.sql.clone(),
            query: Arc::new(create.query),
            kind: known.kind,
            tables,
            views,
            settings: self.settings(),
            current_database: self.current_database(),
            columns: known.columns.clone(),
        };
        let (view, seen) = (Arc::new(view), self.database.objects().epoch());
        self.database.commit(&CatalogCommand::CreateView { view, or_replace: false, seen })
    }

    /// Runs DROP VIEW.
    pub(crate) fn drop_view(&self, name: &ObjectName, drop: DropOptions) -> Result<Output> {
        self.drop_view_as(name, drop, "DROP VIEW")
    }

    /// Drops a view or an external table by the statement `done`.
    pub(super) fn drop_view_as(
        &self,
        name: &ObjectName,
        drop: DropOptions,
        done: &str,
    ) -> Result<Output> {
        let named = self.qualified(name);
        let with = match drop.cascade {
            true => self.cascade(|objects| objects.readers_of_view(&named))?,
            false => Cascade::default(),
        };
        let warnings = with.warnings();
        let command = CatalogCommand::DropView { name: named, with };
        let tolerated = drop.if_exists.then_some(code::UNDEFINED_TABLE);
        let dropped = self.database.commit(&command).map_err(with_cascade_hint);
        let output = outcome(dropped, tolerated, name, done)?;
        Ok(Output { warnings, ..output })
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
        let row =
            [&wanted.name, &view.script(), &view.current_database].map(|text| Some(text.clone()));
        Output::of_texts(&["view", "create_view", "current_database"], &[row.to_vec()])
    }
}

/// Fails where two columns have one name: nothing could name them.
fn check_columns(create: &CreateView, columns: &[(String, lockstep_row::DataType)]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    let Some((name, _)) = columns.iter().find(|(name, _)| !seen.insert(name)) else {
        return Ok(());
    };
    let message = format!("the view has more than one column named `{name}`");
    Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
        .at(create.query.span)
        .with_hint("Rename one of the columns with AS.")
        .err()
}
