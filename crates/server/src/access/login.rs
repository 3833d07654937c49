//! The logins that were verified a short time ago, by a hash of what the client has shown.
//!
//! A login ends when any user changes, since that may be a password: the next call verifies it again.
//! Revoked privileges need no end of the login, since each use of it checks them. What a client has shown
//! is nowhere kept but as a hash with a key that the process alone has.

use std::{collections::HashMap, fmt, sync::Arc};

use lockstep_diagnostic::Result;
use lockstep_engine::Session;
use lockstep_host::sync::RwLock;
use sha2::{Digest, Sha256};

use crate::deployments::DeploymentCache;

/// How long a login is kept.
const KEPT_NS: u64 = 60_000_000_000;

/// The most logins that are kept; then those that have ended go, or all.
const LOGINS_MAX: usize = 4_096;

/// The hash of what a client has shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LoginKey([u8; 32]);

impl fmt::Debug for LoginKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoginKey")
    }
}

/// The key of the hashes: nobody who reads them can try passwords.
pub(crate) struct LoginSecret([u8; 32]);

impl fmt::Debug for LoginSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoginSecret")
    }
}

impl LoginSecret {
    /// Makes a random one.
    pub(crate) fn new() -> Self {
        let mut secret = [0; 32];
        secret[..16].copy_from_slice(&lockstep_host::random::id());
        secret[16..].copy_from_slice(&lockstep_host::random::id());
        Self(secret)
    }

    /// Returns the hash of parts.
    pub(crate) fn key(&self, parts: &[&[u8]]) -> LoginKey {
        let mut hash = Sha256::new();
        hash.update(self.0);
        for part in parts {
            // The length before each part, so that no two lists of parts are the same bytes.
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        LoginKey(hash.finalize().into())
    }
}

/// A client that has logged in: the session of its user, and the deployments that it has called.
#[derive(Debug)]
pub(crate) struct Login {
    key: LoginKey,
    session: Session,
    deployments: DeploymentCache,
    users_version: u64,
    verified_ns: u64,
}

impl Login {
    /// Makes a login that was verified when the users were of this version.
    pub(crate) fn new(
        key: LoginKey,
        session: Session,
        users_version: u64,
        verified_ns: u64,
    ) -> Self {
        let deployments = DeploymentCache::default();
        Self { key, session, deployments, users_version, verified_ns }
    }

    /// Returns the session that all its calls share, for what leaves no state in it.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Opens a session of its own for a call.
    pub(crate) fn open(&self) -> Result<Session> {
        self.session.open_another(self.session.client().clone())
    }

    /// Returns the deployments that were called.
    pub(crate) fn deployments(&self) -> &DeploymentCache {
        &self.deployments
    }

    /// Returns the hash of what the client has shown.
    pub(crate) fn key(&self) -> &LoginKey {
        &self.key
    }

    fn is_valid(&self, users_version: u64, now_ns: u64) -> bool {
        self.users_version == users_version && !self.has_expired(now_ns)
    }

    fn has_expired(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.verified_ns) >= KEPT_NS
    }
}

/// The logins that are kept.
#[derive(Debug, Default)]
pub(crate) struct LoginCache {
    by_key: RwLock<HashMap<LoginKey, Arc<Login>>>,
}

impl LoginCache {
    /// Finds a login, unless it has expired or users have changed since.
    pub(crate) fn find(
        &self,
        key: &LoginKey,
        users_version: u64,
        now_ns: u64,
    ) -> Option<Arc<Login>> {
        let found = self.by_key.read().get(key).map(Arc::clone)?;
        found.is_valid(users_version, now_ns).then_some(found)
    }

    /// Keeps a login.
    pub(crate) fn insert(&self, login: Login, now_ns: u64) -> Arc<Login> {
        let login = Arc::new(login);
        let mut by_key = self.by_key.write();
        let has_ended =
            |_: &LoginKey, kept: &mut Arc<Login>| !kept.is_valid(login.users_version, now_ns);
        let mut surplus: HashMap<_, _> = by_key.extract_if(has_ended).collect();
        if by_key.len() >= LOGINS_MAX {
            surplus.extend(by_key.drain());
        }
        by_key.insert(login.key, Arc::clone(&login));
        drop(by_key);
        // Without the lock: each has a session, which is closed.
        drop(surplus);
        login
    }

    /// Forgets a login.
    pub(crate) fn remove(&self, key: &LoginKey) {
        let removed = self.by_key.write().remove(key);
        drop(removed);
    }
}
