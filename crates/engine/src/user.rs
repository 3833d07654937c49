//! Users, roles and their privileges, as GRANT and REVOKE record them.
//!
//! Part of the catalog. A password is kept as a verifier and a token as a hash, from which nobody can
//! compute it: a statement makes it before it commits its command, so that no command has the text.
//! What a privilege allows, and where it is checked, is in `access`.

mod members;
mod password;
mod privilege;
mod token;

use std::collections::{BTreeMap, BTreeSet};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::RandomSource;
use lockstep_sql::ast::{Ident, Literal, OptionValue, Privileges, RoleMembership, UserDefinition};
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    password::Verifier,
    privilege::{Privilege, Securable},
    token::{AccessToken, NewToken, hash_of},
};
use crate::options::{OptionSpec, OptionTable, UnknownOption};

/// The user of a session in the process itself.
pub(crate) const ROOT: &str = "root";

/// A user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    /// None: the user has no password.
    password: Option<Verifier>,
    grants: BTreeSet<PrivilegeGrant>,
    /// Tells the user from others that had the name before; 0 for a user of an earlier version.
    #[serde(default, skip_serializing_if = "is_zero")]
    id: u64,
    /// Whether it is a role: it has privileges, and nobody logs in as it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_role: bool,
    /// The roles that were granted to it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    roles: BTreeSet<String>,
    /// The tokens, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tokens: BTreeMap<String, AccessToken>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
fn is_zero(id: &u64) -> bool {
    *id == 0
}

/// One privilege on one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PrivilegeGrant {
    pub(crate) privilege: String,
    /// What [`Securable::text`] writes.
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
    Create(UserChange),
    Alter(UserChange),
    Drop {
        name: Ident,
        if_exists: bool,
    },
    /// GRANT or REVOKE, with the object that it is about.
    Privileges {
        change: Privileges,
        object: String,
    },
    CreateRole {
        name: Ident,
        id: u64,
        if_not_exists: bool,
    },
    DropRole {
        name: Ident,
        if_exists: bool,
    },
    Membership(RoleMembership),
    CreateToken(NewToken),
    DropToken {
        user: Ident,
        name: Ident,
        if_exists: bool,
    },
}

/// CREATE USER or ALTER USER, without the text of the password.
#[derive(Debug)]
pub(crate) struct UserChange {
    pub(crate) name: Ident,
    /// CREATE USER IF NOT EXISTS, ALTER USER IF EXISTS.
    conditional: bool,
    password: PasswordChange,
    /// The id of a user that is created.
    id: u64,
}

/// The password after a change.
#[derive(Debug, Default)]
enum PasswordChange {
    /// That of before; none for a new user.
    #[default]
    Keep,
    Remove,
    Set(Verifier),
}

impl UserChange {
    /// Reads a statement; computes the verifier of its password.
    pub(crate) fn of(definition: &UserDefinition, id: u64) -> Result<Self> {
        let mut password = PasswordChange::default();
        let warnings = OPTIONS.read(&definition.options, &mut password)?;
        debug_assert!(warnings.is_empty(), "an option that does not exist is an error");
        let UserDefinition { name, conditional, .. } = definition;
        Ok(Self { name: name.clone(), conditional: *conditional, password, id })
    }
}

/// Makes an id that no other user has.
pub(crate) fn new_id(random: &dyn RandomSource) -> u64 {
    let bytes = random.id();
    let (id, _) = bytes.split_first_chunk().expect("an id has sixteen bytes");
    u64::from_le_bytes(*id).max(1)
}

impl PasswordChange {
    fn apply(&self, password: &mut Option<Verifier>) {
        match self {
            Self::Keep => {}
            Self::Remove => *password = None,
            Self::Set(verifier) => *password = Some(verifier.clone()),
        }
    }
}

impl Users {
    /// Applies a command, or changes nothing.
    pub(crate) fn apply(&mut self, command: &UserCommand) -> Result<()> {
        match command {
            UserCommand::Create(definition) => self.create(definition),
            UserCommand::Alter(definition) => self.alter(definition),
            UserCommand::Drop { name, if_exists } => self.drop(name, *if_exists),
            UserCommand::Privileges { change, object } => self.change_privileges(change, object),
            UserCommand::CreateRole { name, id, if_not_exists } => {
                self.create_role(name, *id, *if_not_exists)
            }
            UserCommand::DropRole { name, if_exists } => self.drop_role(name, *if_exists),
            UserCommand::Membership(change) => self.change_membership(change),
            UserCommand::CreateToken(token) => self.create_token(token),
            UserCommand::DropToken { user, name, if_exists } => {
                self.drop_token(user, name, *if_exists)
            }
        }
    }

    fn create(&mut self, change: &UserChange) -> Result<()> {
        let name = &change.name;
        if self.by_name.contains_key(&name.text) {
            if change.conditional {
                return Ok(());
            }
            let message = format!("user `{}` already exists", name.text);
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(name.span).err();
        }
        let mut user = User { id: change.id, ..User::default() };
        change.password.apply(&mut user.password);
        self.by_name.insert(name.text.clone(), user);
        Ok(())
    }

    fn alter(&mut self, change: &UserChange) -> Result<()> {
        match self.by_name.get_mut(&change.name.text) {
            Some(user) if user.is_role => Self::is_a_role(&change.name),
            Some(user) => {
                change.password.apply(&mut user.password);
                Ok(())
            }
            None if change.conditional => Ok(()),
            None => self.no_user(&change.name),
        }
    }

    fn drop(&mut self, name: &Ident, if_exists: bool) -> Result<()> {
        if name.text == ROOT {
            let message = format!("user `{ROOT}` cannot be dropped");
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message).at(name.span).err();
        }
        if self.by_name.get(&name.text).is_some_and(|user| user.is_role) {
            return Self::is_a_role(name);
        }
        if self.by_name.remove(&name.text).is_none() && !if_exists {
            return self.no_user(name);
        }
        Ok(())
    }

    /// Grants or revokes privileges, for all users or for none.
    fn change_privileges(&mut self, change: &Privileges, object: &str) -> Result<()> {
        change.privileges.iter().try_for_each(privilege::check_name)?;
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
    /// Whether the user has a password; an empty one is none.
    pub(crate) fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Returns the verifier of the password.
    pub(crate) fn password(&self) -> Option<&Verifier> {
        self.password.as_ref()
    }

    /// Returns what tells the user from others that had the name before.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether it is a role.
    pub(crate) fn is_role(&self) -> bool {
        self.is_role
    }

    /// Returns the names of the roles that were granted to it.
    pub(crate) fn roles(&self) -> impl Iterator<Item = &str> {
        self.roles.iter().map(String::as_str)
    }

    /// Returns the tokens by name.
    pub(crate) fn tokens(&self) -> &BTreeMap<String, AccessToken> {
        &self.tokens
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
const OPTIONS: OptionTable<'_, PasswordChange> = OptionTable {
    specs: &[OptionSpec {
        name: "password",
        set: |password, argument| match argument.value() {
            OptionValue::Literal(Literal::String(text)) if text.is_empty() => {
                *password = PasswordChange::Remove;
                Ok(())
            }
            OptionValue::Literal(Literal::String(text)) => {
                *password = PasswordChange::Set(Verifier::of_password(text));
                Ok(())
            }
            _ => argument.invalid("must be a quoted string"),
        },
    }],
    unknown: UnknownOption::Error,
    error_code: code::INVALID_PARAMETER,
};
