//! CREATE DATABASE, DROP DATABASE and USE.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::Ident;

use crate::{Output, Session, catalog::CatalogCommand, system::SYSTEM_DATABASE};

impl Session {
    /// Runs CREATE DATABASE.
    pub(crate) fn create_database(&self, name: &Ident, if_not_exists: bool) -> Result<Output> {
        if name.text == SYSTEM_DATABASE {
            let message = format!("database `{SYSTEM_DATABASE}` is reserved for system tables");
            return Diagnostic::new(code::DUPLICATE_DATABASE, message).at(name.span).err();
        }
        let command = CatalogCommand::CreateDatabase { name: name.text.clone() };
        match self.database.commit(&command) {
            Err(error) if error.code != code::DUPLICATE_DATABASE || !if_not_exists => {
                Err(Box::new(error.at(name.span)))
            }
            _ => Ok(Output::of_message("CREATE DATABASE")),
        }
    }

    /// Runs DROP DATABASE.
    pub(crate) fn drop_database(&self, name: &Ident, if_exists: bool) -> Result<Output> {
        let command = CatalogCommand::DropDatabase { name: name.text.clone() };
        match self.database.commit(&command) {
            Err(error) if error.code != code::UNDEFINED_DATABASE || !if_exists => {
                Err(Box::new(error.at(name.span)))
            }
            _ => Ok(Output::of_message("DROP DATABASE")),
        }
    }

    /// Runs USE.
    pub(crate) fn use_database(&self, name: &Ident) -> Result<Output> {
        let objects = self.database.objects();
        if !objects.shows_system(&name.text) {
            let found = objects.database(&name.text).map(|_| ());
            found.map_err(|error| Box::new(error.at(name.span)))?;
        }
        self.set_current_database(&name.text);
        Ok(Output::of_message("USE"))
    }
}
