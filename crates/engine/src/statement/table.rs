//! DROP TABLE, ALTER TABLE and TRUNCATE TABLE.
//!
//! The catalog is locked for a look-up or a change, never while rows are read.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{AlterTableAction, ObjectName};

use super::at_name;
use crate::{Output, Session, catalog::CatalogCommand};

impl Session {
    /// Runs DROP TABLE.
    pub(crate) fn drop_table(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let dropped = self.find_table(name).ok();
        let command = CatalogCommand::DropTable { name: self.qualified(name) };
        let is_missing = |error: &Diagnostic| {
            matches!(error.code, code::UNDEFINED_TABLE | code::UNDEFINED_DATABASE)
        };
        match self.database.commit(command) {
            Err(error) if !if_exists || !is_missing(&error) => at_name(*error, name).err(),
            _ => {
                // Whoever still holds the table can neither add rows to it nor keep its memory.
                if let Some(table) = dropped {
                    table.close();
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
        Ok(Output::of_message("ALTER TABLE"))
    }

    /// Runs TRUNCATE TABLE.
    pub(crate) fn truncate(&self, name: &ObjectName) -> Result<Output> {
        self.find_entry(name)?.write(|table| {
            table.truncate();
            Ok(())
        })?;
        Ok(Output::of_message("TRUNCATE TABLE"))
    }
}
