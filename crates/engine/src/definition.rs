//! Statements that make, change and drop databases, tables and indexes.
//!
//! `session` calls [`Session::define`]. The catalog is locked for a look-up or a change, never
//! while rows are read or indexes are built.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::Compatibility;
use lockstep_row::TableSchema;
use lockstep_sql::ast::{self, AlterTableAction, Ident, ObjectName, Statement};
use lockstep_table::TableError;

use crate::{
    Output, Session, append,
    catalog::{CatalogCommand, TableEntry, View},
    create_table,
    inspect::declared_schema,
    load,
    session::{at_name, done, outcome},
    table_options::TableOptions,
};

impl Session {
    pub(crate) fn define(&self, statement: &Statement) -> Result<Output> {
        match statement {
            Statement::CreateDatabase { name, if_not_exists } => {
                self.create_database(name, *if_not_exists)
            }
            Statement::DropDatabase { name, if_exists } => self.drop_database(name, *if_exists),
            Statement::Use(name) => self.use_database(name),
            Statement::CreateTable(create) => self.run_create_table(create),
            Statement::DropTable { name, if_exists } => self.drop_table(name, *if_exists),
            Statement::AlterTable { table, actions } => self.alter_table(table, actions),
            Statement::Truncate(name) => self.truncate(name),
            Statement::CreateIndex(create) => self.create_index(create),
            Statement::DropIndex { table, name } => self.drop_index(table, name),
            _ => Diagnostic::internal("a statement that defines nothing came here").err(),
        }
    }

    fn create_database(&self, name: &Ident, if_not_exists: bool) -> Result<Output> {
        let command = CatalogCommand::CreateDatabase { name: name.text.clone() };
        match self.database.commit(command) {
            Err(error) if error.code != code::DUPLICATE_DATABASE || !if_not_exists => {
                Err(Box::new(error.at(name.span)))
            }
            _ => Ok(done("CREATE DATABASE")),
        }
    }

    fn drop_database(&self, name: &Ident, if_exists: bool) -> Result<Output> {
        let command = CatalogCommand::DropDatabase { name: name.text.clone() };
        match self.database.commit(command) {
            Err(error) if error.code != code::UNDEFINED_DATABASE || !if_exists => {
                Err(Box::new(error.at(name.span)))
            }
            _ => Ok(done("DROP DATABASE")),
        }
    }

    fn use_database(&self, name: &Ident) -> Result<Output> {
        let objects = self.database.objects();
        let found = objects.database(&name.text).map(|_| ());
        found.map_err(|error| Box::new(error.at(name.span)))?;
        self.use_as_current(&name.text);
        Ok(done("USE"))
    }

    fn run_create_table(&self, create: &ast::CreateTable) -> Result<Output> {
        if create.if_not_exists && self.find_table(&create.name).is_ok() {
            return Ok(done("CREATE TABLE"));
        }
        let mut schema = match &create.like {
            Some(like) => load::schema_of(like, self.settings())?,
            None => create_table::schema(create, self.settings())?,
        };
        if schema.columns.is_empty() {
            let message = format!("table `{}` has no columns", create.name.name.text);
            return Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
                .at(create.name.name.span)
                .err();
        }
        if self.settings().compatibility == Compatibility::OpenMldb {
            create_table::add_default_index(&mut schema);
        }
        let mut warnings = Vec::new();
        let options = TableOptions::read(&create.options, &mut warnings)?;
        self.add_table(&create.name, schema, options, create.if_not_exists)?;
        Ok(Output { warnings, ..done("CREATE TABLE") })
    }

    pub(crate) fn add_table(
        &self,
        name: &ObjectName,
        schema: TableSchema,
        options: TableOptions,
        lenient: bool,
    ) -> Result<()> {
        let table = self.database.make_table(schema).map_err(|error| append::refused(&error))?;
        let table = table.shared();
        let command = CatalogCommand::CreateTable { name: self.qualified(name), table, options };
        let tolerated = lenient.then_some(code::DUPLICATE_TABLE);
        outcome(self.database.commit(command), tolerated, name, "CREATE TABLE").map(|_| ())
    }

    fn drop_table(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let dropped = self.find_table(name).ok();
        let command = CatalogCommand::DropTable { name: self.qualified(name) };
        let is_missing = |error: &Diagnostic| {
            matches!(error.code, code::UNDEFINED_TABLE | code::UNDEFINED_DATABASE)
        };
        match self.database.commit(command) {
            Err(error) if !if_exists || !is_missing(&error) => at_name(*error, name).err(),
            _ => {
                // Whoever still has the table can neither add rows to it nor keep its memory.
                if let Some(table) = dropped {
                    table.close();
                }
                Ok(done("DROP TABLE"))
            }
        }
    }

    fn alter_table(&self, name: &ObjectName, actions: &[AlterTableAction]) -> Result<Output> {
        let entry = self.find_entry(name)?;
        let mut offline = entry.offline.write();
        let mut changed = offline.clone();
        for action in actions {
            if action.add {
                changed.add_path(&action.path, action.span)?;
            } else {
                changed.drop_path(&action.path, action.span)?;
            }
        }
        *offline = changed;
        Ok(done("ALTER TABLE"))
    }

    fn truncate(&self, name: &ObjectName) -> Result<Output> {
        self.find_entry(name)?.write(|table| {
            table.truncate();
            Ok(())
        })?;
        Ok(done("TRUNCATE TABLE"))
    }

    fn create_index(&self, create: &ast::CreateIndex) -> Result<Output> {
        let mut warnings = Vec::new();
        self.find_entry(&create.table)?.write(|table| {
            let index =
                create_table::created_index(create, &declared_schema(table), &mut warnings)?;
            table.add_declared_index(index).map_err(|error| append::refused(&error))
        })?;
        Ok(Output { warnings, ..done("CREATE INDEX") })
    }

    fn drop_index(&self, name: &ObjectName, index: &Ident) -> Result<Output> {
        self.find_entry(name)?.write(|table| {
            let schema = declared_schema(table);
            // A table of OpenMLDB has at least one index; here one without has every row.
            let is_last = schema.indexes.iter().all(|declared| declared.name == index.text);
            if self.settings().compatibility == Compatibility::OpenMldb
                && is_last
                && !schema.indexes.is_empty()
            {
                let message = format!("index `{}` is the last one of the table", index.text);
                return Diagnostic::new(code::DEPENDENT_OBJECTS, message).at(index.span).err();
            }
            table.drop_declared_index(&index.text).map_err(|error| match error {
                TableError::IndexMissing { .. } => Box::new(
                    Diagnostic::new(code::UNDEFINED_OBJECT, error.to_string())
                        .at(index.span)
                        .with_nearest(&index.text, schema.indexes.iter().map(|i| i.name.as_str())),
                ),
                _ => append::refused(&error),
            })
        })?;
        Ok(done("DROP INDEX"))
    }

    pub(crate) fn find_entry(&self, name: &ObjectName) -> Result<TableEntry> {
        let current = self.current_database();
        let objects = self.database.objects();
        let view = View { objects: &objects, current_database: &current };
        let found = lockstep_plan::find_table(&view, name)?;
        let entry = objects.find_table(&found.database, &found.name);
        Ok(entry.expect("the view found it").clone())
    }
}
