//! DROP TABLE, ALTER TABLE and TRUNCATE TABLE.
//!
//! The catalog is locked for a look-up or a change, never while rows are read.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{AlterTableAction, ObjectName};

use super::{at_name, outcome};
use crate::{
    Output, Session,
    append::table_error,
    catalog::CatalogCommand,
    offline_data::{OfflineChange, PathChange},
    session::retried,
};

impl Session {
    /// Runs DROP TABLE. Each table is dropped for itself; all are checked before the first is dropped.
    pub(crate) fn drop_tables(&self, names: &[ObjectName], if_exists: bool) -> Result<Output> {
        if let [name] = names {
            return self.drop_table(name, if_exists);
        }
        self.check_dropped(names, if_exists)?;
        // A table that has changed meanwhile is tried again by itself: others are dropped already.
        for name in names {
            retried(|| self.drop_table(name, if_exists))?;
        }
        Ok(Output::of_message("DROP TABLE"))
    }

    /// Fails where one of several tables cannot be dropped. Costs a copy of the catalog.
    fn check_dropped(&self, names: &[ObjectName], if_exists: bool) -> Result<()> {
        let mut objects = self.database.objects().clone();
        for name in names {
            let named = self.qualified(name);
            let is_external =
                objects.find_view(&named).is_some_and(|view| view.is_external_table());
            let command = match is_external {
                true => CatalogCommand::DropView { name: named },
                false => {
                    let id = self.find_entry(name).map_or(0, |entry| entry.id);
                    CatalogCommand::DropTable { name: named, id }
                }
            };
            match objects.apply(&command) {
                Err(error) if !if_exists || !is_missing(&error) => {
                    return at_name(*error, name).err();
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn drop_table(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let named = self.qualified(name);
        let external = self.database.objects().find_view(&named).cloned();
        if external.is_some_and(|view| view.is_external_table()) {
            let tolerated = if_exists.then_some(code::UNDEFINED_TABLE);
            let dropped = self.database.commit(&CatalogCommand::DropView { name: named });
            return outcome(dropped, tolerated, name, "DROP TABLE");
        }
        let dropped = self.find_entry(name);
        let id = dropped.as_ref().map_or(0, |entry| entry.id);
        let command = CatalogCommand::DropTable { name: named, id };
        match self.database.commit(&command) {
            Err(error) if !if_exists || !is_missing(&error) => at_name(*error, name).err(),
            _ => {
                // Whoever still holds the table can neither add rows to it nor keep its memory.
                if let Ok(entry) = dropped {
                    entry.table.close();
                }
                Ok(Output::of_message("DROP TABLE"))
            }
        }
    }

    /// Runs ALTER TABLE: all of its actions or none.
    pub(crate) fn alter_table(
        &self,
        name: &ObjectName,
        actions: &[AlterTableAction],
    ) -> Result<Output> {
        let path = |action: &AlterTableAction| match action {
            AlterTableAction::OfflinePath { add, path, span } => {
                Some(PathChange { add: *add, path: path.clone(), span: *span })
            }
            _ => None,
        };
        match actions.iter().map(path).collect::<Option<Vec<PathChange>>>() {
            Some(paths) => {
                let change = OfflineChange::Paths(paths);
                self.database.commit(&self.find_entry(name)?.offline_command(change))?;
            }
            None => self.alter_columns(name, actions)?,
        }
        Ok(Output::of_message("ALTER TABLE"))
    }

    /// Runs TRUNCATE TABLE: all tables exist before the first is emptied.
    pub(crate) fn truncate(&self, names: &[ObjectName]) -> Result<Output> {
        let entries: Vec<_> =
            names.iter().map(|name| self.find_entry(name)).collect::<Result<_>>()?;
        for entry in entries {
            entry.write(|table| table.truncate().map_err(|error| table_error(&error)))?;
        }
        Ok(Output::of_message("TRUNCATE TABLE"))
    }
}

fn is_missing(error: &Diagnostic) -> bool {
    matches!(error.code, code::UNDEFINED_TABLE | code::UNDEFINED_DATABASE)
}
