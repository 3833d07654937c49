//! CREATE USER, ALTER USER, DROP USER, GRANT, REVOKE, SHOW USERS and SHOW GRANTS.

use lockstep_diagnostic::{Result, Span};
use lockstep_sql::ast::{Ident, Privileges, UserDefinition};

use crate::{
    Output, Session,
    catalog::CatalogCommand,
    user::{ROOT, UserCommand},
};

impl Session {
    /// Runs CREATE USER.
    pub(crate) fn create_user(&self, definition: &UserDefinition) -> Result<Output> {
        self.change_users(UserCommand::Create(definition.clone()), "CREATE USER")
    }

    /// Runs ALTER USER.
    pub(crate) fn alter_user(&self, definition: &UserDefinition) -> Result<Output> {
        self.change_users(UserCommand::Alter(definition.clone()), "ALTER USER")
    }

    /// Runs DROP USER.
    pub(crate) fn drop_user(&self, name: &Ident, if_exists: bool) -> Result<Output> {
        self.change_users(UserCommand::Drop { name: name.clone(), if_exists }, "DROP USER")
    }

    /// Runs GRANT or REVOKE.
    pub(crate) fn change_privileges(&self, change: &Privileges) -> Result<Output> {
        let message = if change.is_granted { "GRANT" } else { "REVOKE" };
        let object = self.object_of(change);
        self.change_users(UserCommand::Privileges { change: change.clone(), object }, message)
    }

    fn change_users(&self, command: UserCommand, message: &str) -> Result<Output> {
        self.database.commit(&CatalogCommand::ChangeUsers(command))?;
        Ok(Output::of_message(message))
    }

    /// Returns the object of a GRANT: `*` and a database mean every table in it, a name alone means
    /// a table of the current database.
    fn object_of(&self, change: &Privileges) -> String {
        let is_database = change.object_kind.as_deref() == Some("DATABASE");
        match change.object.as_slice() {
            [only] if only.text == "*" => "*.*".to_owned(),
            [only] if is_database => format!("{}.*", only.text),
            [only] => format!("{}.{}", self.current_database(), only.text),
            parts => parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("."),
        }
    }

    /// Runs SHOW USERS.
    pub(crate) fn show_users(&self) -> Result<Output> {
        let objects = self.database.objects();
        let users = objects.users().by_name().iter();
        let rows: Vec<_> = users
            .map(|(name, user)| vec![Some(name.clone()), Some(user.has_password().to_string())])
            .collect();
        Output::of_texts(&["user", "has_password"], &rows)
    }

    /// Runs SHOW GRANTS; without a name, those of the user of the session.
    pub(crate) fn show_grants(&self, name: Option<&Ident>) -> Result<Output> {
        let root = Ident { text: ROOT.to_owned(), span: Span::default() };
        let name = name.unwrap_or(&root);
        let objects = self.database.objects();
        let rows: Vec<_> = objects
            .users()
            .find(name)?
            .grants()
            .map(|grant| {
                vec![
                    Some(name.text.clone()),
                    Some(grant.privilege.clone()),
                    Some(grant.object.clone()),
                    Some(grant.with_grant_option.to_string()),
                ]
            })
            .collect();
        Output::of_texts(&["user", "privilege", "object", "grant_option"], &rows)
    }
}
