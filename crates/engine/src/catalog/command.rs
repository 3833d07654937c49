//! Commands, which are the only changes of the catalog.
//!
//! A statement reads the catalog, does its work without the catalog's lock (it compiles, it builds
//! indexes), and commits a command with [`crate::Database::commit`]. [`Objects::apply`] checks the
//! command against the catalog as it is then, which may have changed since the statement read it.
//! A command is applied completely or not at all, and the same commands in the same order give the
//! same catalog.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{Ident, OptionValue};
use lockstep_table::Table;

use super::{
    CatalogEpoch, DatabaseObjects, Definition, ObjectKind, Objects, QualifiedName, TableEntry,
    TableReference, stale,
};
use crate::{
    deployment::{Deployment, Procedure},
    offline_data::{OfflineChange, OfflineData},
    statement::TableOptions,
    user::UserCommand,
};

/// A change of the catalog.
#[derive(Debug)]
pub(crate) enum CatalogCommand {
    CreateDatabase { name: String },
    DropDatabase { name: String },
    CreateTable { name: QualifiedName, table: Arc<Table>, options: TableOptions, or_replace: bool },
    DropTable { name: QualifiedName, id: u64 },
    ChangeOffline { table: TableReference, change: OfflineChange },
    CreateDeployment { deployment: Arc<Deployment>, or_replace: bool, seen: CatalogEpoch },
    DropDeployment { name: QualifiedName },
    CreateProcedure { procedure: Arc<Procedure>, or_replace: bool, seen: CatalogEpoch },
    DropProcedure { name: QualifiedName },
    SetVariable { name: Ident, value: OptionValue },
    ChangeUsers(UserCommand),
}

/// The object that a command removed from the catalog. It is freed after the catalog's lock is
/// released, since freeing a table takes time.
#[derive(Debug)]
pub(crate) enum Removed {
    Nothing,
    Table(TableEntry),
    Deployment(Arc<Deployment>),
    Procedure(Arc<Procedure>),
}

impl Removed {
    /// Marks the object as dropped. The catalog without it is the current one, and still locked.
    pub(crate) fn mark(&self) {
        match self {
            Self::Table(entry) => entry.definition.mark_dropped(),
            Self::Deployment(deployment) => deployment.definition.mark_dropped(),
            Self::Procedure(procedure) => procedure.definition.mark_dropped(),
            Self::Nothing => {}
        }
    }

    /// Frees the rows of a table, even while another thread has the table; or the holds of a
    /// deployment, once no request uses it.
    pub(crate) fn release(self) {
        match self {
            Self::Table(entry) => entry.table.close(),
            Self::Deployment(deployment) => drop(deployment),
            Self::Procedure(procedure) => drop(procedure),
            Self::Nothing => {}
        }
    }
}

impl Objects {
    /// Applies a command, or changes nothing. Errors have no position: the statement adds it. What is
    /// removed is marked by the caller once this catalog is the current one.
    pub(crate) fn apply(&mut self, command: &CatalogCommand) -> Result<Removed> {
        let removed = match command {
            CatalogCommand::CreateDatabase { name } => self.create_database(name.clone()),
            CatalogCommand::DropDatabase { name } => self.drop_database(name),
            CatalogCommand::CreateTable { name, table, options, or_replace } => {
                self.create_table(name.clone(), Arc::clone(table), options.clone(), *or_replace)
            }
            CatalogCommand::DropTable { name, id } => self.drop_table(name, *id),
            CatalogCommand::ChangeOffline { table, change } => self.change_offline(table, change),
            CatalogCommand::CreateDeployment { deployment, or_replace, seen } => {
                self.create_deployment(Arc::clone(deployment), *or_replace, *seen)
            }
            CatalogCommand::DropDeployment { name } => self.drop_deployment(name),
            CatalogCommand::CreateProcedure { procedure, or_replace, seen } => {
                self.create_procedure(Arc::clone(procedure), *or_replace, *seen)
            }
            CatalogCommand::DropProcedure { name } => self.drop_procedure(name),
            CatalogCommand::SetVariable { name, value } => {
                self.variables.set(name, value).map(|()| Removed::Nothing)
            }
            CatalogCommand::ChangeUsers(command) => {
                self.users.apply(command).map(|()| Removed::Nothing)
            }
        }?;
        self.epoch = self.epoch.next();
        Ok(removed)
    }

    fn create_database(&mut self, name: String) -> Result<Removed> {
        if self.databases.contains_key(&name) {
            let message = format!("database `{name}` exists already");
            return Diagnostic::new(code::DUPLICATE_DATABASE, message).err();
        }
        self.databases.insert(name, DatabaseObjects::default());
        Ok(Removed::Nothing)
    }

    fn drop_database(&mut self, name: &str) -> Result<Removed> {
        if !self.database(name)?.is_empty() {
            let message = format!("database `{name}` is not empty");
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message)
                .with_hint("Drop its deployments and tables first.")
                .err();
        }
        let removed = self.databases.remove(name);
        debug_assert!(removed.is_some_and(|objects| objects.is_empty()), "it was found above");
        Ok(Removed::Nothing)
    }

    fn create_table(
        &mut self,
        name: QualifiedName,
        table: Arc<Table>,
        options: TableOptions,
        or_replace: bool,
    ) -> Result<Removed> {
        let id = table.log_id().expect("a table of the catalog has an id");
        if let Some(present) = self.database(&name.database)?.tables.get(&name.name) {
            if !or_replace {
                let message = format!("table `{}` exists already", name.name);
                return Diagnostic::new(code::DUPLICATE_TABLE, message)
                    .with_hint("CREATE OR REPLACE TABLE replaces it; IF NOT EXISTS leaves it.")
                    .err();
            }
            self.check_unread(&name, present.id)?;
        }
        let definition = Definition::new(ObjectKind::Table, name.clone());
        let entry = TableEntry { id, table, options, offline: Arc::default(), definition };
        let tables = &mut self.database_mut(&name.database)?.tables;
        Ok(tables.insert(name.name, entry).map_or(Removed::Nothing, Removed::Table))
    }

    /// Checks that no deployment and no procedure reads a table that is to be removed.
    fn check_unread(&self, name: &QualifiedName, id: u64) -> Result<()> {
        let readers = self.readers_of(id);
        if readers.is_empty() {
            return Ok(());
        }
        let message =
            format!("table `{}` has associated deployments: {}", name.name, readers.join(", "));
        Diagnostic::new(code::DEPENDENT_OBJECTS, message)
            .with_hint("Drop them first with DROP DEPLOYMENT or DROP PROCEDURE.")
            .err()
    }

    fn drop_table(&mut self, name: &QualifiedName, id: u64) -> Result<Removed> {
        let tables = &self.database(&name.database)?.tables;
        let Some(entry) = tables.get(&name.name) else {
            let message =
                format!("table `{}` does not exist in database `{}`", name.name, name.database);
            return Diagnostic::new(code::UNDEFINED_TABLE, message)
                .with_nearest(&name.name, tables.keys().map(String::as_str))
                .err();
        };
        if entry.id != id {
            return stale(ObjectKind::Table, name).err();
        }
        self.check_unread(name, id)?;
        let tables = &mut self.database_mut(&name.database)?.tables;
        let entry = tables.remove(&name.name).expect("it was found above");
        Ok(Removed::Table(entry))
    }

    fn change_offline(
        &mut self,
        table: &TableReference,
        change: &OfflineChange,
    ) -> Result<Removed> {
        let mut data = OfflineData::clone(&self.entry(table)?.offline);
        data.apply(change)?;
        let tables = &mut self.database_mut(&table.name.database)?.tables;
        let entry = tables.get_mut(&table.name.name).expect("it was found above");
        entry.offline = Arc::new(data);
        Ok(Removed::Nothing)
    }

    /// Returns the deployments and procedures that read a table.
    fn readers_of(&self, id: u64) -> Vec<String> {
        let reads = |tables: &[TableReference]| tables.iter().any(|table| table.id == id);
        let mut readers = Vec::new();
        for database in self.databases.values() {
            let deployments = database.deployments.values().filter(|found| reads(&found.tables));
            readers.extend(deployments.map(|found| format!("`{}`", found.name().name)));
            let procedures = database.procedures.values().filter(|found| reads(&found.tables));
            readers.extend(procedures.map(|found| format!("`{}`", found.name().name)));
        }
        readers
    }

    fn create_deployment(
        &mut self,
        deployment: Arc<Deployment>,
        or_replace: bool,
        seen: CatalogEpoch,
    ) -> Result<Removed> {
        let name = deployment.name().clone();
        self.check_deployment_free(&name, or_replace)?;
        self.check_tables(&deployment.tables, seen)?;
        let deployments = &mut self.database_mut(&name.database)?.deployments;
        debug_assert!(or_replace || !deployments.contains_key(&name.name), "the name was free");
        let replaced = deployments.insert(name.name, deployment);
        Ok(replaced.map_or(Removed::Nothing, Removed::Deployment))
    }

    fn drop_deployment(&mut self, name: &QualifiedName) -> Result<Removed> {
        let found = self.databases.get_mut(&name.database);
        match found.and_then(|found| found.deployments.remove(&name.name)) {
            Some(deployment) => Ok(Removed::Deployment(deployment)),
            None => self.no_deployment(name).err(),
        }
    }

    fn create_procedure(
        &mut self,
        procedure: Arc<Procedure>,
        or_replace: bool,
        seen: CatalogEpoch,
    ) -> Result<Removed> {
        let name = procedure.name().clone();
        self.check_procedure_free(&name, or_replace)?;
        self.check_tables(&procedure.tables, seen)?;
        let procedures = &mut self.database_mut(&name.database)?.procedures;
        debug_assert!(or_replace || !procedures.contains_key(&name.name), "the name was free");
        let replaced = procedures.insert(name.name, procedure);
        Ok(replaced.map_or(Removed::Nothing, Removed::Procedure))
    }

    fn drop_procedure(&mut self, name: &QualifiedName) -> Result<Removed> {
        let found = self.databases.get_mut(&name.database);
        match found.and_then(|found| found.procedures.remove(&name.name)) {
            Some(procedure) => Ok(Removed::Procedure(procedure)),
            None => self.no_procedure(name).err(),
        }
    }

    /// Checks that no deployment and no procedure has the name. They share their names, since CALL
    /// takes either.
    pub(crate) fn check_free(&self, name: &QualifiedName, wanted: ObjectKind) -> Result<()> {
        let found = self.database(&name.database)?;
        let taken_by = if found.deployments.contains_key(&name.name) {
            ObjectKind::Deployment
        } else if found.procedures.contains_key(&name.name) {
            ObjectKind::Procedure
        } else {
            return Ok(());
        };
        let message = format!("{taken_by} `{}` exists already", name.name);
        let error = Diagnostic::new(code::DUPLICATE_OBJECT, message);
        if taken_by == wanted {
            let replace = match wanted {
                ObjectKind::Deployment => "DEPLOY OR REPLACE",
                _ => "CREATE OR REPLACE PROCEDURE",
            };
            return error.with_hint(format!("{replace} replaces it.")).err();
        }
        error.with_detail("CALL takes deployments and procedures, which share their names.").err()
    }

    /// Checks that a deployment may take the name; with OR REPLACE it may be a deployment's.
    pub(crate) fn check_deployment_free(
        &self,
        name: &QualifiedName,
        or_replace: bool,
    ) -> Result<()> {
        if or_replace && self.database(&name.database)?.deployments.contains_key(&name.name) {
            return Ok(());
        }
        self.check_free(name, ObjectKind::Deployment)
    }

    /// Checks that a procedure may take the name; with OR REPLACE it may be a procedure's.
    pub(crate) fn check_procedure_free(
        &self,
        name: &QualifiedName,
        or_replace: bool,
    ) -> Result<()> {
        if or_replace && self.database(&name.database)?.procedures.contains_key(&name.name) {
            return Ok(());
        }
        self.check_free(name, ObjectKind::Procedure)
    }

    /// Checks that the tables that a query was compiled against still exist. Their names were
    /// looked up when the catalog was at the epoch `seen`, or later.
    fn check_tables(&self, tables: &[TableReference], seen: CatalogEpoch) -> Result<()> {
        if seen == self.epoch {
            return Ok(());
        }
        tables.iter().try_for_each(|table| self.entry(table).map(|_| ()))
    }

    /// Returns the objects of a database.
    pub(crate) fn database(&self, name: &str) -> Result<&DatabaseObjects> {
        self.databases.get(name).ok_or_else(|| Box::new(self.no_database(name)))
    }

    fn database_mut(&mut self, name: &str) -> Result<&mut DatabaseObjects> {
        if !self.databases.contains_key(name) {
            return self.no_database(name).err();
        }
        Ok(self.databases.get_mut(name).expect("it was found above"))
    }

    /// Makes the error for a database that does not exist.
    pub(crate) fn no_database(&self, name: &str) -> Diagnostic {
        let message = format!("database `{name}` does not exist");
        Diagnostic::new(code::UNDEFINED_DATABASE, message)
            .with_nearest(name, self.databases.keys().map(String::as_str))
    }

    /// Makes the error for a deployment that does not exist.
    pub(crate) fn no_deployment(&self, name: &QualifiedName) -> Diagnostic {
        let found = self.databases.get(&name.database);
        let names = found.into_iter().flat_map(|found| found.deployments.keys());
        missing("deployment", name).with_nearest(&name.name, names.map(String::as_str))
    }

    /// Makes the error for a procedure that does not exist.
    pub(crate) fn no_procedure(&self, name: &QualifiedName) -> Diagnostic {
        let found = self.databases.get(&name.database);
        let names = found.into_iter().flat_map(|found| found.procedures.keys());
        missing("procedure", name).with_nearest(&name.name, names.map(String::as_str))
    }
}

fn missing(kind: &str, name: &QualifiedName) -> Diagnostic {
    let message = format!("{kind} `{}` does not exist in database `{}`", name.name, name.database);
    Diagnostic::new(code::UNDEFINED_OBJECT, message)
}
