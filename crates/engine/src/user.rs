//! Users and their privileges, as GRANT and REVOKE record them.
//!
//! Part of the catalog. No statement is refused for a missing privilege: whoever owns the process
//! owns its database.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{Ident, Literal, OptionValue, Privileges, UserDefinition};
use serde::{Deserialize, Serialize};

use crate::options::{OptionSpec, OptionTable, UnknownOption};

/// The user of a session in the process itself.
pub(crate) const ROOT: &str = "root";

/// The privileges that may be granted.
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    password: Option<Password>,
    grants: BTreeSet<PrivilegeGrant>,
}

/// A password, which Debug does not print.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

/// One privilege on one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PrivilegeGrant {
    pub(crate) privilege: String,
    /// `*.*`, `db.*` or `db.table`.
    pub(crate) object: String,
    pub(crate) with_grant_option: bool,
}

/// All users.
#[derive(Debug, Clone)]
pub(crate) struct Users {
    by_name: BTreeMap<String, User>,
}

impl Default for Users {
    fn default() -> Self {
        Self { by_name: BTreeMap::from([(ROOT.to_owned(), User::default())]) }
    }
}

/// A change of the users, made for all of them or for none.
#[derive(Debug)]
pub(crate) enum UserCommand {
    Create(UserDefinition),
    Alter(UserDefinition),
    Drop {
        name: Ident,
        if_exists: bool,
    },
    /// GRANT or REVOKE, with the object that it is about.
    Privileges {
        change: Privileges,
        object: String,
    },
}

impl Users {
    /// Applies a command, or changes nothing.
    pub(crate) fn apply(&mut self, command: &UserCommand) -> Result<()> {
        match command {
            UserCommand::Create(definition) => self.create(definition),
            UserCommand::Alter(definition) => self.alter(definition),
            UserCommand::Drop { name, if_exists } => self.drop(name, *if_exists),
            UserCommand::Privileges { change, object } => self.change_privileges(change, object),
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

    /// Grants or revokes privileges, for all users or for none.
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
        if let Some(unknown) = change.users.iter().find(|user| !is_known(user)) {
            return self.no_user(unknown);
        }
        for name in &change.users {
            let user = self.by_name.get_mut(&name.text).expect("it was found above");
            user.change_privileges(change, object);
        }
        Ok(())
    }

    /// Sets users as a record of the log says: `None` for one that there is not.
    pub(crate) fn restore(&mut self, users: BTreeMap<String, Option<User>>) {
        for (name, user) in users {
            match user {
                Some(user) => self.by_name.insert(name, user),
                None => self.by_name.remove(&name),
            };
        }
    }

    /// Returns all users by name.
    pub(crate) fn by_name(&self) -> &BTreeMap<String, User> {
        &self.by_name
    }

    /// Returns a user; an error when there is none of this name.
    pub(crate) fn find(&self, name: &Ident) -> Result<&User> {
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
    /// Whether the user has a password that is not empty.
    pub(crate) fn has_password(&self) -> bool {
        self.password.as_ref().is_some_and(|password| !password.0.is_empty())
    }

    /// Returns the grants, sorted.
    pub(crate) fn grants(&self) -> impl Iterator<Item = &PrivilegeGrant> {
        self.grants.iter()
    }

    fn change_privileges(&mut self, change: &Privileges, object: &str) {
        for privilege in &change.privileges {
            let is_all = privilege.text == "ALL" && !change.is_granted;
            self.grants.retain(|grant| {
                grant.object != object || (grant.privilege != privilege.text && !is_all)
            });
            if change.is_granted {
                self.grants.insert(PrivilegeGrant {
                    privilege: privilege.text.clone(),
                    object: object.to_owned(),
                    with_grant_option: change.with_grant_option,
                });
            }
        }
    }
}

/// The options of CREATE USER and ALTER USER.
const OPTIONS: OptionTable<'_, Option<Password>> = OptionTable {
    specs: &[OptionSpec {
        name: "password",
        set: |password, argument| match argument.value() {
            OptionValue::Literal(Literal::String(text)) => {
                *password = Some(Password(text.clone()));
                Ok(())
            }
            _ => argument.invalid("takes a quoted string"),
        },
    }],
    unknown: UnknownOption::Error,
    error_code: code::INVALID_PARAMETER,
};

fn password(definition: &UserDefinition) -> Result<Option<Password>> {
    let mut password = None;
    let warnings = OPTIONS.read(&definition.options, &mut password)?;
    debug_assert!(warnings.is_empty(), "an option that does not exist is an error");
    Ok(password)
}
