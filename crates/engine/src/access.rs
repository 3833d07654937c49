//! Who calls, and what they may do: the one check of privileges.
//!
//! A session in the process itself is its owner's and is not checked. A session of a user is checked
//! against the catalog as it is at each call, so that what REVOKE and DROP USER take away is gone at
//! once. What a statement needs is in `requirement`, and which of the server's files it may name in
//! `files`; [`Session::enter`](crate::Session::enter) asks for both before anything else happens. The
//! tables that a query reads are known where its names are looked up, and are checked there.
//! (ADR 0030)

mod files;
mod owner;
mod requirement;
mod table_privilege;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_diagnostic::{Diagnostic, Result, Span, code};

pub use self::table_privilege::TablePrivilege;
pub(crate) use self::{
    files::FileFolders,
    owner::{OwnedReads, Owner, OwnerGuard, check_owners},
    requirement::{NeededFile, Needs},
};
use crate::{
    Database,
    catalog::{Objects, QualifiedName},
    session_list::SessionShared,
    user::{Privilege, Securable},
};

/// Who calls the engine. A clone is the same caller.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    /// None: the process itself.
    pub(crate) user: Option<Arc<UserIdentity>>,
}

/// A user that was authenticated.
#[derive(Debug)]
pub(crate) struct UserIdentity {
    pub(crate) name: String,
    /// [`User::id`](crate::user::User::id).
    pub(crate) id: u64,
    pub(crate) token: Option<SessionToken>,
    /// The password that was proved; `None`: another proof.
    pub(crate) password: Option<ProvedPassword>,
}

/// `StoredKey` of the verifier of a password.
pub(crate) struct ProvedPassword(pub(crate) [u8; 32]);

impl fmt::Debug for ProvedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProvedPassword")
    }
}

/// The token that a session was opened with.
pub(crate) struct SessionToken {
    pub(crate) hash: String,
    pub(crate) expires_ms: Option<i64>,
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionToken").field("expires_ms", &self.expires_ms).finish_non_exhaustive()
    }
}

/// Something that a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) privilege: NeededPrivilege,
    pub(crate) object: Securable,
    /// Where the statement names the object.
    pub(crate) span: Option<Span>,
}

/// The privilege of a [`Requirement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeededPrivilege {
    One(Privilege),
    /// Any privilege on the object, or on something in it: to see that it exists.
    Any,
}

impl NeededPrivilege {
    /// Returns the name as a message has it.
    fn name(self) -> &'static str {
        match self {
            Self::One(privilege) => privilege.name(),
            Self::Any => "any privilege",
        }
    }
}

impl Requirement {
    pub(crate) fn new(privilege: Privilege, object: Securable) -> Self {
        Self { privilege: NeededPrivilege::One(privilege), object, span: None }
    }

    /// Makes the requirement to see an object.
    pub(crate) fn any(object: Securable) -> Self {
        Self { privilege: NeededPrivilege::Any, object, span: None }
    }

    /// Returns whether a user has it.
    fn is_met(&self, objects: &Objects, user: &str) -> bool {
        if self.is_of_system_tables(objects) {
            return true;
        }
        match self.privilege {
            NeededPrivilege::One(privilege) => {
                objects.users().is_allowed(user, privilege, &self.object)
            }
            NeededPrivilege::Any => objects.users().is_visible(user, &self.object),
        }
    }

    /// Returns whether it is to read or see system tables, which show each caller what it may see.
    fn is_of_system_tables(&self, objects: &Objects) -> bool {
        let reads = matches!(
            self.privilege,
            NeededPrivilege::Any | NeededPrivilege::One(Privilege::Select)
        );
        let database = match &self.object {
            Securable::Database(database) => database,
            Securable::Table(name) => &name.database,
            _ => return false,
        };
        reads && objects.shows_system(database)
    }

    pub(crate) fn at(self, span: Span) -> Self {
        Self { span: Some(span), ..self }
    }
}

impl Caller {
    /// Returns the name of the user.
    pub(crate) fn name(&self) -> &str {
        self.user.as_ref().map_or(crate::user::ROOT, |user| &user.name)
    }

    /// Returns whether the caller is the process itself.
    pub(crate) fn is_process(&self) -> bool {
        self.user.is_none()
    }

    /// Returns whether this is the name of the caller's own user.
    pub(crate) fn is_user(&self, name: &str) -> bool {
        self.name() == name
    }

    /// Fails where the caller lacks something.
    pub(crate) fn check(
        &self,
        objects: &Objects,
        now_ms: i64,
        requirements: &[Requirement],
    ) -> Result<()> {
        let Some(user) = &self.user else { return Ok(()) };
        user.check_present(objects, now_ms)?;
        let missing = requirements.iter().find(|needed| !self.has(objects, needed));
        missing.map_or(Ok(()), |missing| refused(&user.name, missing).err())
    }

    /// Fails where the caller, who was checked to be present, lacks something.
    pub(crate) fn check_object(&self, objects: &Objects, needed: &Requirement) -> Result<()> {
        if self.has(objects, needed) {
            return Ok(());
        }
        refused(self.name(), needed).err()
    }

    fn has(&self, objects: &Objects, needed: &Requirement) -> bool {
        let Some(user) = &self.user else { return true };
        needed.is_met(objects, &user.name)
    }

    /// Returns whether the caller sees an object in lists.
    pub(crate) fn sees(&self, objects: &Objects, object: Securable) -> bool {
        self.has(objects, &Requirement::any(object))
    }

    /// Returns whether the caller sees a table in lists.
    pub(crate) fn sees_table(&self, objects: &Objects, database: &str, name: &str) -> bool {
        self.is_process() || self.sees(objects, Securable::Table(qualified(database, name)))
    }

    /// Returns whether the caller sees a deployment or procedure in lists.
    pub(crate) fn sees_deployment(&self, objects: &Objects, database: &str, name: &str) -> bool {
        self.is_process() || self.sees(objects, Securable::Deployment(qualified(database, name)))
    }

    /// Returns whether the caller has ADMIN.
    pub(crate) fn is_admin(&self, objects: &Objects) -> bool {
        self.has(objects, &Requirement::new(Privilege::Admin, Securable::Everything))
    }
}

fn qualified(database: &str, name: &str) -> QualifiedName {
    QualifiedName { database: database.to_owned(), name: name.to_owned() }
}

impl UserIdentity {
    /// Fails once the user was removed, or the token of the session removed or expired.
    fn check_present(&self, objects: &Objects, now_ms: i64) -> Result<()> {
        let found = objects.users().by_name().get(&self.name).filter(|user| user.id() == self.id);
        let Some(user) = found else {
            let message = format!("user `{}` was dropped", self.name);
            return Diagnostic::new(code::INVALID_AUTHORIZATION, message).err();
        };
        let Some(token) = &self.token else { return Ok(()) };
        let is_there = user.tokens().values().any(|known| known.hash() == token.hash);
        if is_there && !token.has_expired(now_ms) {
            return Ok(());
        }
        token.gone(&self.name)
    }
}

impl UserIdentity {
    /// Fails once the password that was proved is no longer that of the user.
    pub(crate) fn check_password(&self, objects: &Objects) -> Result<()> {
        let Some(proved) = &self.password else { return Ok(()) };
        let user = objects.users().by_name().get(&self.name);
        let current = user.and_then(|user| user.password());
        if current.is_some_and(|current| current.stored_key == proved.0) {
            return Ok(());
        }
        let message = format!("the password of user `{}` was changed", self.name);
        Diagnostic::new(code::INVALID_AUTHORIZATION, message).with_hint("Log in again.").err()
    }
}

impl SessionToken {
    fn has_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| now_ms >= expires_ms)
    }

    fn gone(&self, user: &str) -> Result<()> {
        let message = format!("the token of user `{user}` was dropped or has expired");
        Diagnostic::new(code::INVALID_AUTHORIZATION, message)
            .with_hint("Create another token with CREATE TOKEN.")
            .err()
    }
}

/// Makes the error for something that a user lacks.
fn refused(user: &str, missing: &Requirement) -> Diagnostic {
    debug_assert!(!user.is_empty(), "the process itself lacks nothing");
    let object = &missing.object;
    let what = missing.privilege.name();
    let grant = match missing.privilege {
        NeededPrivilege::One(privilege) => privilege.name(),
        NeededPrivilege::Any => example(object),
    };
    let message = format!("permission denied for {object}");
    let error = Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, message)
        .with_detail(format!("User `{user}` lacks {what}."))
        .with_hint(format!("GRANT {grant} ON {object} TO {};", name_of(user)));
    match missing.span {
        Some(span) => error.at(span),
        None => error,
    }
}

/// Writes a user as GRANT takes it.
fn name_of(user: &str) -> String {
    let is_plain = user.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_plain { user.to_owned() } else { format!("`{user}`") }
}

/// Returns a privilege that makes an object visible.
fn example(object: &Securable) -> &'static str {
    match object {
        Securable::EveryDeployment | Securable::DeploymentsOf(_) | Securable::Deployment(_) => {
            Privilege::Execute.name()
        }
        _ => Privilege::Select.name(),
    }
}

/// The check of what a user prepared: a request, an appender or a relation. It is repeated when users
/// have changed; until then it costs two atomic loads, and for a token a look at the clock. KILL of the
/// session that prepared it ends it.
pub(crate) struct AccessGuard {
    database: Database,
    session: Arc<SessionShared>,
    user: Arc<UserIdentity>,
    requirements: Vec<Requirement>,
    /// The version of the users at which the requirements were met.
    checked: AtomicU64,
}

impl AccessGuard {
    /// Checks the caller of a session, and makes its guard; none for the process itself.
    pub(crate) fn new(
        database: &Database,
        session: &Arc<SessionShared>,
        requirements: Vec<Requirement>,
    ) -> Result<Option<Self>> {
        let Some(user) = &session.caller().user else { return Ok(None) };
        let guard = Self {
            database: database.as_unowned(),
            session: Arc::clone(session),
            user: Arc::clone(user),
            requirements,
            checked: AtomicU64::new(u64::MAX),
        };
        guard.check()?;
        Ok(Some(guard))
    }

    /// Fails where the session was ended, or the user lacks something by now.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.session.check_present()?;
        let version = self.database.users_version();
        if let Some(token) = &self.user.token
            && token.has_expired(self.database.now_ms())
        {
            return token.gone(&self.user.name);
        }
        // Relaxed: it says which check was made, and publishes nothing else.
        if self.checked.load(Ordering::Relaxed) == version {
            return Ok(());
        }
        self.check_again(version)
    }

    #[cold]
    fn check_again(&self, version: u64) -> Result<()> {
        let caller = Caller { user: Some(Arc::clone(&self.user)) };
        caller.check(&self.database.objects(), self.database.now_ms(), &self.requirements)?;
        // Relaxed: as above. The users were read after the version, so that they are no older.
        self.checked.store(version, Ordering::Relaxed);
        Ok(())
    }
}

impl fmt::Debug for AccessGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessGuard").field("user", &self.user.name).finish_non_exhaustive()
    }
}
