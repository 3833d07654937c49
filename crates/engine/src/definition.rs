//! Statements that make, change and drop databases, tables and indexes.
//!
//! `session` calls [`Session::define`]. The catalog is locked for a look-up or a change, never
//! while rows are read or indexes are built.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::Compatibility;
use lockstep_row::TableSchema;
use lockstep_sql::ast::{self, AlterTableAction, Ident, ObjectName, Statement};
use lockstep_table::{Table, TableError};

use crate::{
    Output, Session, append,
    catalog::{DatabaseObjects, TableEntry, View},
    create_table, load,
    session::{done, no_database},
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
            _ => Diagnostic::unsupported("this statement is not supported").err(),
        }
    }

    fn create_database(&self, name: &Ident, if_not_exists: bool) -> Result<Output> {
        let databases = &mut self.database.objects_mut().databases;
        if databases.contains_key(&name.text) {
            if if_not_exists {
                return Ok(done("CREATE DATABASE"));
            }
            let message = format!("database `{}` exists already", name.text);
            return Diagnostic::new(code::DUPLICATE_DATABASE, message).at(name.span).err();
        }
        databases.insert(name.text.clone(), DatabaseObjects::default());
        Ok(done("CREATE DATABASE"))
    }

    fn drop_database(&self, name: &Ident, if_exists: bool) -> Result<Output> {
        let databases = &mut self.database.objects_mut().databases;
        let Some(found) = databases.get(&name.text) else {
            if if_exists {
                return Ok(done("DROP DATABASE"));
            }
            return no_database(name, databases.keys().map(String::as_str));
        };
        if !found.is_empty() {
            let message = format!("database `{}` is not empty", name.text);
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message)
                .at(name.span)
                .with_hint("Drop its deployments and tables first.")
                .err();
        }
        databases.remove(&name.text);
        Ok(done("DROP DATABASE"))
    }

    fn use_database(&self, name: &Ident) -> Result<Output> {
        let objects = self.database.objects();
        if !objects.databases.contains_key(&name.text) {
            return no_database(name, objects.databases.keys().map(String::as_str));
        }
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
    ) -> Result<Arc<Table>> {
        let table = self.database.make_table(schema).map_err(|error| append::refused(&error))?;
        let table = Arc::new(table);
        let current = self.current_database();
        let mut objects = self.database.objects_mut();
        let id = objects.next_table_id;
        let database = name.database.as_ref().map_or(current.as_str(), |d| d.text.as_str());
        let Some(found) = objects.databases.get_mut(database) else {
            let at = name.database.as_ref().unwrap_or(&name.name);
            return no_database(at, objects.databases.keys().map(String::as_str));
        };
        if let Some(existing) = found.tables.get(&name.name.text) {
            if lenient {
                return Ok(Arc::clone(&existing.table));
            }
            let message = format!("table `{}` exists already", name.name.text);
            return Diagnostic::new(code::DUPLICATE_TABLE, message).at(name.name.span).err();
        }
        let entry = TableEntry { id, table: Arc::clone(&table), options, offline: Arc::default() };
        found.tables.insert(name.name.text.clone(), entry);
        objects.next_table_id += 1;
        Ok(table)
    }

    fn drop_table(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let current = self.current_database();
        let mut objects = self.database.objects_mut();
        let database = name.database.as_ref().map_or(current.as_str(), |d| d.text.as_str());
        let Some(id) = objects.find_table(database, &name.name.text).map(|entry| entry.id) else {
            if if_exists {
                return Ok(done("DROP TABLE"));
            }
            let view = View { objects: &objects, current_database: &current };
            return lockstep_plan::find_table(&view, name).map(|_| done("DROP TABLE"));
        };
        let users: Vec<String> = objects
            .databases
            .values()
            .flat_map(|database| {
                let deployments = database.deployments.values();
                let deployments = deployments.map(|found| (&found.name, &found.table_ids));
                let procedures = database.procedures.values();
                deployments.chain(procedures.map(|found| (&found.name, &found.table_ids)))
            })
            .filter(|(_, table_ids)| table_ids.contains(&id))
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        if !users.is_empty() {
            let message = format!(
                "table `{}` has associated deployments: {}",
                name.name.text,
                users.join(", ")
            );
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message)
                .at(name.name.span)
                .with_hint("Drop them first with DROP DEPLOYMENT or DROP PROCEDURE.")
                .err();
        }
        let found = objects.databases.get_mut(database).expect("the table was found in it");
        found.tables.remove(&name.name.text);
        Ok(done("DROP TABLE"))
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
        self.find_table(name)?.truncate();
        Ok(done("TRUNCATE TABLE"))
    }

    fn create_index(&self, create: &ast::CreateIndex) -> Result<Output> {
        let table = self.find_table(&create.table)?;
        let mut warnings = Vec::new();
        let index = create_table::created_index(create, &table.schema(), &mut warnings)?;
        table.add_declared_index(index).map_err(|error| append::refused(&error))?;
        Ok(Output { warnings, ..done("CREATE INDEX") })
    }

    fn drop_index(&self, name: &ObjectName, index: &Ident) -> Result<Output> {
        let table = self.find_table(name)?;
        let Err(error) = table.drop_declared_index(&index.text) else {
            return Ok(done("DROP INDEX"));
        };
        let schema = table.schema();
        let names = schema.indexes.iter().filter(|spec| spec.declared).map(|i| i.name.as_str());
        let code = match error {
            TableError::IndexMissing { .. } => code::UNDEFINED_OBJECT,
            _ => code::DEPENDENT_OBJECTS,
        };
        let diagnostic = Diagnostic::new(code, error.to_string()).at(index.span);
        if code == code::UNDEFINED_OBJECT {
            return diagnostic.with_nearest(&index.text, names).err();
        }
        diagnostic.err()
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
