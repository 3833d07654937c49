//! Roles, their members, and the tokens of users: what commands change of them, and what follows.

use std::collections::BTreeSet;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{Ident, RoleMembership};

use super::{
    AccessToken, NewToken, Privilege, PrivilegeGrant, ROOT, Securable, User, Users, privilege,
};

/// The most tokens of a user.
const TOKENS_MAX: usize = 100;

impl Users {
    pub(super) fn create_role(&mut self, name: &Ident, id: u64, if_not_exists: bool) -> Result<()> {
        match self.by_name.get(&name.text) {
            Some(found) if found.is_role && if_not_exists => Ok(()),
            Some(found) => {
                let kind = if found.is_role { "role" } else { "user" };
                let message = format!("{kind} `{}` already exists", name.text);
                Diagnostic::new(code::DUPLICATE_OBJECT, message).at(name.span).err()
            }
            None => {
                let role = User { id, is_role: true, ..User::default() };
                self.by_name.insert(name.text.clone(), role);
                Ok(())
            }
        }
    }

    /// Drops a role, and takes it from its members: a role of the same name later is another one.
    pub(super) fn drop_role(&mut self, name: &Ident, if_exists: bool) -> Result<()> {
        if self.by_name.get(&name.text).is_none_or(|found| !found.is_role) {
            return if if_exists { Ok(()) } else { self.no_role(name) };
        }
        self.by_name.remove(&name.text);
        for user in self.by_name.values_mut() {
            user.roles.remove(&name.text);
        }
        Ok(())
    }

    /// Grants or revokes roles, for all members or for none.
    pub(super) fn change_membership(&mut self, change: &RoleMembership) -> Result<()> {
        for role in &change.roles {
            if self.by_name.get(&role.text).is_none_or(|found| !found.is_role) {
                return self.no_role(role);
            }
        }
        for member in &change.members {
            self.find(member)?;
            let is_part = |role: &&Ident| {
                role.text == member.text || self.role_names(&role.text).contains(&member.text)
            };
            if let Some(role) = change.roles.iter().find(is_part).filter(|_| change.is_granted) {
                let message = format!("role `{}` is a member of `{}`", role.text, member.text);
                return Diagnostic::new(code::INVALID_GRANT, message).at(member.span).err();
            }
        }
        for member in &change.members {
            let user = self.by_name.get_mut(&member.text).expect("it was found above");
            for role in &change.roles {
                if change.is_granted {
                    user.roles.insert(role.text.clone());
                } else {
                    user.roles.remove(&role.text);
                }
            }
        }
        Ok(())
    }

    pub(super) fn create_token(&mut self, new: &NewToken) -> Result<()> {
        self.find(&new.user)?;
        let user = self.by_name.get_mut(&new.user.text).expect("it was found above");
        if user.is_role {
            return Self::is_a_role(&new.user);
        }
        if user.tokens.contains_key(&new.name.text) {
            let message =
                format!("user `{}` already has a token `{}`", new.user.text, new.name.text);
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(new.name.span).err();
        }
        if user.tokens.len() >= TOKENS_MAX {
            let message = format!("user `{}` already has {TOKENS_MAX} tokens", new.user.text);
            return Diagnostic::new(code::VALUE_TOO_LARGE, message)
                .at(new.user.span)
                .with_hint("Drop a token with DROP TOKEN; SHOW TOKENS shows which have expired.")
                .err();
        }
        user.tokens.insert(new.name.text.clone(), new.token.clone());
        Ok(())
    }

    pub(super) fn drop_token(&mut self, user: &Ident, name: &Ident, if_exists: bool) -> Result<()> {
        self.find(user)?;
        let tokens = &mut self.by_name.get_mut(&user.text).expect("it was found above").tokens;
        if tokens.remove(&name.text).is_some() || if_exists {
            return Ok(());
        }
        let message = format!("user `{}` has no token `{}`", user.text, name.text);
        Diagnostic::new(code::UNDEFINED_OBJECT, message)
            .at(name.span)
            .with_nearest(&name.text, tokens.keys().map(String::as_str))
            .err()
    }

    /// Returns the user and the token of a hash.
    pub(crate) fn find_token(&self, hash: &str) -> Option<(&str, &User, &AccessToken)> {
        self.by_name.iter().find_map(|(name, user)| {
            let token = user.tokens.values().find(|token| token.hash() == hash)?;
            Some((name.as_str(), user, token))
        })
    }

    /// Returns the names of the roles of a user or role, those of its roles included.
    fn role_names(&self, name: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open = vec![name];
        while let Some(name) = open.pop() {
            for role in self.by_name.get(name).into_iter().flat_map(User::roles) {
                if found.insert(role.to_owned()) {
                    open.push(role);
                }
            }
        }
        found
    }

    /// Returns the grants of a user and of its roles.
    fn grants_of(&self, name: &str) -> impl Iterator<Item = &PrivilegeGrant> {
        let roles: Vec<&User> =
            self.role_names(name).iter().filter_map(|role| self.by_name.get(role)).collect();
        self.by_name.get(name).into_iter().chain(roles).flat_map(User::grants)
    }

    /// Returns whether a user has a privilege on an object.
    pub(crate) fn is_allowed(&self, user: &str, privilege: Privilege, object: &Securable) -> bool {
        if user == ROOT {
            return true;
        }
        let covering = object.covering();
        self.grants_of(user).any(|grant| {
            privilege.is_implied_by(&grant.privilege) && covering.contains(&grant.object)
        })
    }

    /// Returns whether a user has ADMIN on anything.
    pub(crate) fn has_admin(&self, user: &str) -> bool {
        let is_admin = |grant: &PrivilegeGrant| Privilege::Admin.is_implied_by(&grant.privilege);
        user == ROOT || self.grants_of(user).any(is_admin)
    }

    /// Returns whether a user has any privilege on an object, or on something in it.
    pub(crate) fn is_visible(&self, user: &str, object: &Securable) -> bool {
        if user == ROOT {
            return true;
        }
        let covering = object.covering();
        self.grants_of(user)
            .any(|grant| covering.contains(&grant.object) || object.contains(&grant.object))
    }

    /// Returns whether a user may grant a privilege, as it is written, on an object.
    pub(crate) fn may_grant(&self, user: &str, privilege: &str, object: &Securable) -> bool {
        if self.is_allowed(user, Privilege::Admin, object) {
            return true;
        }
        let covering = object.covering();
        let on_object = || self.grants_of(user).filter(|grant| covering.contains(&grant.object));
        let has_option = on_object().any(|grant| grant.privilege == "GRANT OPTION");
        on_object().any(|grant| {
            (grant.with_grant_option || has_option)
                && privilege::includes(&grant.privilege, privilege)
        })
    }

    pub(super) fn is_a_role<T>(name: &Ident) -> Result<T> {
        let message = format!("`{}` is a role, not a user", name.text);
        Diagnostic::new(code::INVALID_GRANT, message).at(name.span).err()
    }

    fn no_role<T>(&self, name: &Ident) -> Result<T> {
        let message = format!("role `{}` does not exist", name.text);
        let roles = self.by_name.iter().filter(|(_, user)| user.is_role);
        Diagnostic::new(code::UNDEFINED_OBJECT, message)
            .at(name.span)
            .with_nearest(&name.text, roles.map(|(name, _)| name.as_str()))
            .err()
    }
}
