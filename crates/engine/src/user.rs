//! Users and what they may do, as GRANT and REVOKE record it.
//!
//! `session` calls it. Nothing is refused yet: whoever holds the process holds its database. A
//! server asks here once there is one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_sql::ast::{Ident, Literal, OptionValue, Privileges, UserDefinition};

use crate::{Output, Session, catalog::CatalogCommand, session::done, show};

/// The user of a session in the process itself.
pub(crate) const ROOT: &str = "root";

/// What may be granted.
const PRIVILEGES: &[&str] = &[
    "ALL",
    "SELECT",
    "INSERT",
    "DELETE",
    "CREATE",
    "DROP",
    "ALTER",
    "INDEX",
    "TRUNCATE",
    "DEPLOY",
    "EXECUTE",
    "CREATE USER",
    "ALTER USER",
    "DROP USER",
    "GRANT OPTION",
];

/// A user.
#[derive(Debug, Clone, Default)]
struct User {
    password: Option<Password>,
    grants: BTreeSet<Grant>,
}

/// Never printed.
#[derive(Clone)]
struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

/// One privilege on one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    privilege: String,
    /// `*.*`, `db.*` or `db.table`.
    object: String,
    may_be_passed_on: bool,
}

/// All users.
#[derive(Debug)]
pub(crate) struct Users {
    by_name: BTreeMap<String, User>,
}

impl Default for Users {
    fn default() -> Self {
        Self { by_name: BTreeMap::from([(ROOT.to_owned(), User::default())]) }
    }
}

/// A change of the users: each of them or none.
#[derive(Debug)]
pub(crate) enum UserCommand {
    Create(UserDefinition),
    Alter(UserDefinition),
    Drop {
        name: Ident,
        if_exists: bool,
    },
    /// GRANT and REVOKE, with the object that they are about.
    Privileges {
        change: Privileges,
        object: String,
    },
}

impl Users {
    pub(crate) fn apply(&mut self, command: UserCommand) -> Result<()> {
        match command {
            UserCommand::Create(definition) => self.create(&definition),
            UserCommand::Alter(definition) => self.alter(&definition),
            UserCommand::Drop { name, if_exists } => self.drop(&name, if_exists),
            UserCommand::Privileges { change, object } => self.change_privileges(&change, &object),
        }
    }

    fn create(&mut self, definition: &UserDefinition) -> Result<()> {
        let name = &definition.name;
        let password = password(definition)?;
        if self.by_name.contains_key(&name.text) {
            if definition.conditional {
                return Ok(());
            }
            let message = format!("user `{}` exists already", name.text);
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(name.span).err();
        }
        self.by_name.insert(name.text.clone(), User { password, ..User::default() });
        Ok(())
    }

    fn alter(&mut self, definition: &UserDefinition) -> Result<()> {
        let password = password(definition)?;
        match self.by_name.get_mut(&definition.name.text) {
            Some(user) => {
                user.password = password.or(user.password.take());
                Ok(())
            }
            None if definition.conditional => Ok(()),
            None => self.no_user(&definition.name),
        }
    }

    fn drop(&mut self, name: &Ident, if_exists: bool) -> Result<()> {
        if name.text == ROOT {
            let message = format!("user `{ROOT}` cannot be dropped");
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message).at(name.span).err();
        }
        if self.by_name.remove(&name.text).is_none() && !if_exists {
            return self.no_user(name);
        }
        Ok(())
    }

    /// GRANT and REVOKE: all users or none.
    fn change_privileges(&mut self, change: &Privileges, object: &str) -> Result<()> {
        for privilege in &change.privileges {
            if !PRIVILEGES.contains(&privilege.text.as_str()) {
                let message = format!("privilege `{}` does not exist", privilege.text);
                return Diagnostic::new(code::UNDEFINED_OBJECT, message)
                    .at(privilege.span)
                    .with_nearest(&privilege.text, PRIVILEGES.iter().copied())
                    .err();
            }
        }
        let is_known = |user: &&Ident| self.by_name.contains_key(&user.text);
        if let Some(stranger) = change.users.iter().find(|user| !is_known(user)) {
            return self.no_user(stranger);
        }
        for name in &change.users {
            let user = self.by_name.get_mut(&name.text).expect("it was looked up");
            user.change_privileges(change, object);
        }
        Ok(())
    }

    fn find(&self, name: &Ident) -> Result<&User> {
        match self.by_name.get(&name.text) {
            Some(user) => Ok(user),
            None => self.no_user(name),
        }
    }

    fn no_user<T>(&self, name: &Ident) -> Result<T> {
        let message = format!("user `{}` does not exist", name.text);
        Diagnostic::new(code::UNDEFINED_OBJECT, message)
            .at(name.span)
            .with_nearest(&name.text, self.by_name.keys().map(String::as_str))
            .err()
    }
}

impl User {
    fn change_privileges(&mut self, change: &Privileges, object: &str) {
        for privilege in &change.privileges {
            let is_all = privilege.text == "ALL" && !change.is_granted;
            self.grants.retain(|grant| {
                grant.object != object || (grant.privilege != privilege.text && !is_all)
            });
            if change.is_granted {
                self.grants.insert(Grant {
                    privilege: privilege.text.clone(),
                    object: object.to_owned(),
                    may_be_passed_on: change.with_grant_option,
                });
            }
        }
    }
}

impl Session {
    pub(crate) fn create_user(&self, definition: &UserDefinition) -> Result<Output> {
        self.change_users(UserCommand::Create(definition.clone()), "CREATE USER")
    }

    pub(crate) fn alter_user(&self, definition: &UserDefinition) -> Result<Output> {
        self.change_users(UserCommand::Alter(definition.clone()), "ALTER USER")
    }

    pub(crate) fn drop_user(&self, name: &Ident, if_exists: bool) -> Result<Output> {
        self.change_users(UserCommand::Drop { name: name.clone(), if_exists }, "DROP USER")
    }

    /// GRANT and REVOKE.
    pub(crate) fn change_privileges(&self, change: &Privileges) -> Result<Output> {
        let done = if change.is_granted { "GRANT" } else { "REVOKE" };
        let object = self.object_of(change);
        self.change_users(UserCommand::Privileges { change: change.clone(), object }, done)
    }

    fn change_users(&self, command: UserCommand, message: &str) -> Result<Output> {
        self.database.commit(CatalogCommand::ChangeUsers(command))?;
        Ok(done(message))
    }

    /// The object of a GRANT: `*` and a database stand for all in it, a lone name for a table of
    /// the current database.
    fn object_of(&self, change: &Privileges) -> String {
        let is_database = change.object_kind.as_deref() == Some("DATABASE");
        match change.object.as_slice() {
            [only] if only.text == "*" => "*.*".to_owned(),
            [only] if is_database => format!("{}.*", only.text),
            [only] => format!("{}.{}", self.current_database(), only.text),
            parts => parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("."),
        }
    }

    pub(crate) fn show_users(&self) -> Result<Output> {
        let objects = self.database.objects();
        let users = objects.users().by_name.iter();
        let rows: Vec<_> = users
            .map(|(name, user)| {
                let has_password = user.password.as_ref().is_some_and(|p| !p.0.is_empty());
                vec![Some(name.clone()), Some(has_password.to_string())]
            })
            .collect();
        show::texts(&["user", "has_password"], &rows)
    }

    pub(crate) fn show_grants(&self, name: Option<&Ident>) -> Result<Output> {
        let root = Ident { text: ROOT.to_owned(), span: Span::default() };
        let name = name.unwrap_or(&root);
        let objects = self.database.objects();
        let user = objects.users().find(name)?;
        let rows: Vec<_> = user
            .grants
            .iter()
            .map(|grant| {
                vec![
                    Some(name.text.clone()),
                    Some(grant.privilege.clone()),
                    Some(grant.object.clone()),
                    Some(grant.may_be_passed_on.to_string()),
                ]
            })
            .collect();
        show::texts(&["user", "privilege", "object", "grant_option"], &rows)
    }
}

fn password(definition: &UserDefinition) -> Result<Option<Password>> {
    let mut password = None;
    for item in &definition.options {
        match (item.key.text.as_str(), &item.value) {
            ("password", OptionValue::Literal(Literal::String(text))) => {
                password = Some(Password(text.clone()));
            }
            ("password", _) => {
                return Diagnostic::new(code::INVALID_PARAMETER, "a password is a text")
                    .at(item.span)
                    .err();
            }
            (other, _) => {
                let message = format!("option `{other}` does not exist");
                return Diagnostic::new(code::INVALID_PARAMETER, message)
                    .at(item.key.span)
                    .with_nearest(other, ["password"])
                    .err();
            }
        }
    }
    Ok(password)
}
