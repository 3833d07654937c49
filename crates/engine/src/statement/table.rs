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
};

impl Session {
    /// Runs DROP TABLE.
    pub(crate) fn drop_table(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
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
        let is_missing = |error: &Diagnostic| {
            matches!(error.code, code::UNDEFINED_TABLE | code::UNDEFINED_DATABASE)
        };
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

    /// Runs TRUNCATE TABLE.
    pub(crate) fn truncate(&self, name: &ObjectName) -> Result<Output> {
        self.find_entry(name)?
            .write(|table| table.truncate().map_err(|error| table_error(&error)))?;
        Ok(Output::of_message("TRUNCATE TABLE"))
    }
}
