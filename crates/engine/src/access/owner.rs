//! Owners: the users with whose privileges views, deployments and procedures read.
//!
//! A caller who may use such an object need not be allowed to read the tables behind it; its owner, who
//! made it, must be, at each use. The process itself and `root` may read everything, so that what they
//! made has no owner, as has what earlier versions made.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_diagnostic::{Diagnostic, Result, code};
use serde::{Deserialize, Serialize};

use super::{Caller, Requirement, name_of};
use crate::{
    Database,
    catalog::{Definition, Objects, QualifiedName},
    database::EngineState,
    user::{ROOT, Securable},
    view::View,
};

/// The user who made an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    user: String,
    /// [`User::id`](crate::user::User::id): a later user of the name is not the owner.
    id: u64,
}

/// What an object reads with the privileges of its owner.
#[derive(Debug, Clone)]
pub(crate) struct OwnedReads {
    object: Arc<Definition>,
    owner: Owner,
    requirements: Vec<Requirement>,
}

impl Caller {
    /// Returns the owner of what the caller makes; `None` if the caller may read everything.
    pub(crate) fn owner(&self) -> Option<Owner> {
        let user = self.user.as_ref().filter(|user| user.name != ROOT)?;
        Some(Owner { user: user.name.clone(), id: user.id })
    }
}

impl OwnedReads {
    pub(crate) fn new(
        object: &Arc<Definition>,
        owner: Option<Owner>,
        requirements: Vec<Requirement>,
    ) -> Option<Self> {
        owner.map(|owner| Self { object: Arc::clone(object), owner, requirements })
    }

    /// Returns the names of the tables and views that it reads.
    pub(crate) fn tables(&self) -> Vec<QualifiedName> {
        let table = |needed: &Requirement| match &needed.object {
            Securable::Table(name) => Some(name.clone()),
            _ => None,
        };
        self.requirements.iter().filter_map(table).collect()
    }

    /// Returns the owner.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Fails if the owner was dropped, or may no longer read what the object reads.
    pub(crate) fn check(&self, objects: &Objects) -> Result<()> {
        let Owner { user, id } = &self.owner;
        let is_present = objects.users().by_name().get(user).is_some_and(|found| found.id() == *id);
        let missing = match is_present {
            true => self.requirements.iter().find(|needed| !needed.is_met(objects, user)),
            false => None,
        };
        if is_present && missing.is_none() {
            return Ok(());
        }
        self.refused(missing).err()
    }

    /// Makes the error for something that the owner lacks; `None`: the owner was dropped.
    fn refused(&self, missing: Option<&Requirement>) -> Diagnostic {
        let (object, user) = (&self.object, &self.owner.user);
        let (detail, hint) = match missing {
            Some(Requirement { object: read, privilege, .. }) => {
                let privilege = privilege.name();
                (
                    format!("User `{user}` lacks {privilege} on {read}."),
                    format!(
                        "GRANT {privilege} ON {read} TO {}; or re-create the object as another user.",
                        name_of(user)
                    ),
                )
            }
            None => (
                format!("User `{user}` was dropped."),
                "Re-create the object as another user.".to_owned(),
            ),
        };
        let message = format!(
            "permission denied for {} `{}`: owner `{user}` lacks privileges on the objects that it \
             reads",
            object.kind(),
            object.name()
        );
        Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, message).with_detail(detail).with_hint(hint)
    }
}

/// Checks that the owners of the views of a query may still read what the views read.
pub(crate) fn check_owners(objects: &Objects, views: &[Arc<View>]) -> Result<()> {
    views.iter().filter_map(|view| view.owned.as_ref()).try_for_each(|owned| owned.check(objects))
}

/// The check of the owners of what a compiled request reads. It is repeated if users have changed;
/// otherwise it costs two atomic loads. Does not keep the engine.
pub(crate) struct OwnerGuard {
    engine: Weak<EngineState>,
    users_version: Arc<AtomicU64>,
    reads: Vec<OwnedReads>,
    /// The version of the users at which the owners had what they need.
    checked: AtomicU64,
}

impl OwnerGuard {
    /// Makes the guard of an object and the views that it reads; `None` if none of them has an owner.
    pub(crate) fn new(
        database: &Database,
        own: Option<OwnedReads>,
        views: &[Arc<View>],
    ) -> Option<Self> {
        let of_views = views.iter().filter_map(|view| view.owned.clone());
        let reads: Vec<OwnedReads> = own.into_iter().chain(of_views).collect();
        (!reads.is_empty()).then(|| Self {
            engine: database.downgrade(),
            users_version: database.shared_users_version(),
            reads,
            checked: AtomicU64::new(u64::MAX),
        })
    }

    /// Fails if an owner lacks something by now.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        // Acquire: pairs with the Release in `Database::commit`.
        let version = self.users_version.load(Ordering::Acquire);
        // Relaxed: it says which check was made, and publishes nothing else.
        if self.checked.load(Ordering::Relaxed) == version {
            return Ok(());
        }
        self.check_again(version)
    }

    #[cold]
    fn check_again(&self, version: u64) -> Result<()> {
        let Some(engine) = self.engine.upgrade() else { return Ok(()) };
        let database = Database::unowned(engine);
        let objects = database.objects();
        self.reads.iter().try_for_each(|owned| owned.check(&objects))?;
        // Relaxed: as above. The users were read after the version, so that they are no older.
        self.checked.store(version, Ordering::Relaxed);
        Ok(())
    }
}

impl fmt::Debug for OwnerGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerGuard").field("reads", &self.reads).finish_non_exhaustive()
    }
}
