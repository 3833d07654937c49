//! Users and what they may do, as GRANT and REVOKE record it.
//!
//! `session` calls it. Nothing is refused yet: whoever holds the process holds its database. A
//! server asks here once there is one.

use std::{collections::BTreeSet, fmt};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{Ident, Literal, OptionValue, Privileges, UserDefinition};

use crate::{Output, Session, session::done, show};

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
pub(crate) struct User {
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

impl Session {
    pub(crate) fn create_user(&self, definition: &UserDefinition) -> Result<Output> {
        let name = &definition.name;
        let password = password(definition)?;
        let users = &mut self.database.objects_mut().users;
        if users.contains_key(&name.text) {
            if definition.conditional {
                return Ok(done("CREATE USER"));
            }
            let message = format!("user `{}` exists already", name.text);
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(name.span).err();
        }
        users.insert(name.text.clone(), User { password, ..User::default() });
        Ok(done("CREATE USER"))
    }

    pub(crate) fn alter_user(&self, definition: &UserDefinition) -> Result<Output> {
        let password = password(definition)?;
        let users = &mut self.database.objects_mut().users;
        let names: Vec<String> = users.keys().cloned().collect();
        match users.get_mut(&definition.name.text) {
            Some(user) => {
                user.password = password.or(user.password.take());
                Ok(done("ALTER USER"))
            }
            None if definition.conditional => Ok(done("ALTER USER")),
            None => no_user(&definition.name, &names),
        }
    }

    pub(crate) fn drop_user(&self, name: &Ident, if_exists: bool) -> Result<Output> {
        if name.text == ROOT {
            let message = format!("user `{ROOT}` cannot be dropped");
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message).at(name.span).err();
        }
        let users = &mut self.database.objects_mut().users;
        if users.remove(&name.text).is_none() && !if_exists {
            let names: Vec<String> = users.keys().cloned().collect();
            return no_user(name, &names);
        }
        Ok(done("DROP USER"))
    }

    /// GRANT and REVOKE: all users or none.
    pub(crate) fn change_privileges(&self, change: &Privileges) -> Result<Output> {
        for privilege in &change.privileges {
            if !PRIVILEGES.contains(&privilege.text.as_str()) {
                let message = format!("privilege `{}` does not exist", privilege.text);
                return Diagnostic::new(code::UNDEFINED_OBJECT, message)
                    .at(privilege.span)
                    .with_nearest(&privilege.text, PRIVILEGES.iter().copied())
                    .err();
            }
        }
        let object = self.object_of(change);
        let users = &mut self.database.objects_mut().users;
        let names: Vec<String> = users.keys().cloned().collect();
        if let Some(stranger) = change.users.iter().find(|user| !names.contains(&user.text)) {
            return no_user(stranger, &names);
        }
        for name in &change.users {
            let grants = &mut users.get_mut(&name.text).expect("it was looked up").grants;
            for privilege in &change.privileges {
                let is_all = privilege.text == "ALL" && !change.is_granted;
                grants.retain(|grant| {
                    grant.object != object || (grant.privilege != privilege.text && !is_all)
                });
                if change.is_granted {
                    grants.insert(Grant {
                        privilege: privilege.text.clone(),
                        object: object.clone(),
                        may_be_passed_on: change.with_grant_option,
                    });
                }
            }
        }
        Ok(done(if change.is_granted { "GRANT" } else { "REVOKE" }))
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
        let rows: Vec<_> = objects
            .users
            .iter()
            .map(|(name, user)| {
                let has_password = user.password.as_ref().is_some_and(|p| !p.0.is_empty());
                vec![Some(name.clone()), Some(has_password.to_string())]
            })
            .collect();
        show::texts(&["user", "has_password"], &rows)
    }

    pub(crate) fn show_grants(&self, name: Option<&Ident>) -> Result<Output> {
        let objects = self.database.objects();
        let wanted = name.map_or(ROOT, |name| name.text.as_str());
        let Some(user) = objects.users.get(wanted) else {
            let names: Vec<String> = objects.users.keys().cloned().collect();
            return no_user(name.expect("root exists"), &names);
        };
        let rows: Vec<_> = user
            .grants
            .iter()
            .map(|grant| {
                vec![
                    Some(wanted.to_owned()),
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

fn no_user<T>(name: &Ident, names: &[String]) -> Result<T> {
    Diagnostic::new(code::UNDEFINED_OBJECT, format!("user `{}` does not exist", name.text))
        .at(name.span)
        .with_nearest(&name.text, names.iter().map(String::as_str))
        .err()
}
