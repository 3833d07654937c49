//! Authentication: a user's proof of who it is, and the session that it opens.
//!
//! Every failure is one error, and takes the time of a success: nothing tells whether the user exists.
//! Limiting how often a client may try is the front end's.

use std::{fmt, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result, code};

use crate::{
    AuditEvent, ClientInfo, Database, Session,
    access::{Caller, ProvedPassword, SessionToken, UserIdentity},
    user::{ROOT, Verifier, hash_of},
};

/// What a user proves to be one with.
#[derive(Clone, Copy)]
pub enum Proof<'a> {
    /// The password.
    Password(&'a str),
    /// A token that CREATE TOKEN made.
    Token(&'a str),
    /// The last message of a SCRAM-SHA-256 exchange, which used this verifier.
    Scram {
        /// What [`Database::scram_verifier`] returned for the user.
        verifier: &'a ScramVerifier,
        /// The messages of the exchange that are signed (RFC 5802, section 3).
        auth_message: &'a [u8],
        /// The proof that the client sent.
        client_proof: &'a [u8],
    },
    /// A proof that the front end checked by itself, such as a certificate.
    Checked,
}

impl fmt::Debug for Proof<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password(_) => "Password",
            Self::Token(_) => "Token",
            Self::Scram { .. } => "Scram",
            Self::Checked => "Checked",
        })
    }
}

/// What a server needs for a SCRAM-SHA-256 exchange with a user. For a name that no user has, or whose
/// user has no password, it looks the same, and no proof fits it.
#[derive(Clone)]
pub struct ScramVerifier {
    verifier: Verifier,
    is_of_user: bool,
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramVerifier")
    }
}

impl ScramVerifier {
    /// Returns the number of iterations.
    pub fn iterations(&self) -> u32 {
        self.verifier.iterations
    }

    /// Returns the salt.
    pub fn salt(&self) -> &[u8] {
        &self.verifier.salt
    }

    /// Returns `StoredKey`.
    pub fn stored_key(&self) -> &[u8; 32] {
        &self.verifier.stored_key
    }

    /// Returns `ServerKey`.
    pub fn server_key(&self) -> &[u8; 32] {
        &self.verifier.server_key
    }

    /// Returns whether a client that sent this proof has the password.
    pub fn has_proof(&self, auth_message: &[u8], client_proof: &[u8]) -> bool {
        self.verifier.has_proof(auth_message, client_proof) && self.is_of_user
    }

    /// Returns the signature that the server's last message has.
    pub fn server_signature(&self, auth_message: &[u8]) -> [u8; 32] {
        self.verifier.server_signature(auth_message)
    }
}

impl UserIdentity {
    /// Returns the identity of a user who has proved the password of a verifier.
    fn with_password(self, verifier: &ScramVerifier) -> Self {
        Self { password: Some(ProvedPassword(verifier.verifier.stored_key)), ..self }
    }
}

impl Database {
    /// Returns what a SCRAM-SHA-256 exchange with a user needs. The salt of a name is always the same.
    pub fn scram_verifier(&self, user: &str) -> ScramVerifier {
        let found = {
            let objects = self.objects();
            objects.users().by_name().get(user).and_then(|user| user.password().cloned())
        };
        let is_of_user = found.is_some();
        let verifier = found.unwrap_or_else(|| Verifier::of_nobody(user, &self.secret()));
        ScramVerifier { verifier, is_of_user }
    }

    /// Opens a session of a user who proves to be one. A user without a password cannot log in with
    /// one; `root` is a user like others here, to whom everything is allowed.
    ///
    /// ```
    /// use lockstep_engine::{ClientInfo, Database, Proof};
    ///
    /// let database = Database::in_memory();
    /// database.session().execute("CREATE USER ann OPTIONS(password='secret')")?;
    /// let session = database.authenticate("ann", Proof::Password("secret"), ClientInfo::default())?;
    /// assert_eq!(session.execute("SHOW USERS").unwrap_err().code, "42501");
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn authenticate(
        &self,
        user: &str,
        proof: Proof<'_>,
        client: ClientInfo,
    ) -> Result<Session> {
        self.check_open()?;
        let identity = match proof {
            Proof::Password(password) => {
                let verifier = self.scram_verifier(user);
                let fits = verifier.verifier.verify(password);
                let identity = if fits && verifier.is_of_user { self.identity(user) } else { None };
                identity.map(|identity| identity.with_password(&verifier))
            }
            Proof::Scram { verifier, auth_message, client_proof } => {
                let fits = verifier.has_proof(auth_message, client_proof);
                // The password may have been changed since the exchange began.
                let current = self.scram_verifier(user);
                let is_current = current.stored_key() == verifier.stored_key();
                let identity = if fits && is_current { self.identity(user) } else { None };
                identity.map(|identity| identity.with_password(verifier))
            }
            Proof::Token(token) => self.identity_of_token(token).filter(|found| found.name == user),
            Proof::Checked => self.identity(user),
        };
        self.open_session(user, identity, client)
    }

    /// Opens a session of the user to whom a token belongs.
    pub fn authenticate_token(&self, token: &str, client: ClientInfo) -> Result<Session> {
        self.check_open()?;
        let identity = self.identity_of_token(token);
        let user = identity.as_ref().map(|found| found.name.clone()).unwrap_or_default();
        self.open_session(&user, identity, client)
    }

    /// Returns whether there is a user, who is no role, of this name.
    pub fn has_user(&self, name: &str) -> bool {
        self.identity(name).is_some()
    }

    /// Returns the names of what a server has to warn about before it listens to others than its own
    /// machine: users without a password and without a token, `root` aside.
    pub fn users_who_cannot_log_in(&self) -> Vec<String> {
        let objects = self.objects();
        let users = objects.users().by_name().iter();
        let cannot = users.filter(|(name, user)| {
            let has_proof = user.has_password() || !user.tokens().is_empty();
            name.as_str() != ROOT && !user.is_role() && !has_proof
        });
        cannot.map(|(name, _)| name.clone()).collect()
    }

    /// Returns whether there is a user who can log in: with a password, or with a token that is valid.
    pub fn can_anyone_log_in(&self) -> bool {
        let now_ms = self.now_ms();
        let objects = self.objects();
        objects.users().by_name().values().any(|user| {
            let has_token = user.tokens().values().any(|token| token.is_valid_at(now_ms));
            !user.is_role() && (user.has_password() || has_token)
        })
    }

    fn identity(&self, name: &str) -> Option<UserIdentity> {
        let objects = self.objects();
        let user = objects.users().by_name().get(name).filter(|user| !user.is_role())?;
        Some(UserIdentity { name: name.to_owned(), id: user.id(), token: None, password: None })
    }

    fn identity_of_token(&self, text: &str) -> Option<UserIdentity> {
        let hash = hash_of(text);
        let objects = self.objects();
        let (name, user, token) = objects.users().find_token(&hash)?;
        if !token.is_valid_at(self.now_ms()) {
            return None;
        }
        let token = Some(SessionToken { hash, expires_ms: token.expires_ms });
        Some(UserIdentity { name: name.to_owned(), id: user.id(), token, password: None })
    }

    fn open_session(
        &self,
        user: &str,
        identity: Option<UserIdentity>,
        client: ClientInfo,
    ) -> Result<Session> {
        let is_of_user = |identity: &UserIdentity| identity.name == user;
        debug_assert!(identity.as_ref().is_none_or(is_of_user), "the audit names who logs in");
        let opened = match identity {
            Some(identity) => {
                let caller = Caller { user: Some(Arc::new(identity)) };
                Ok(Session::new(self.clone(), caller, client.clone()))
            }
            None => Diagnostic::new(code::INVALID_PASSWORD, "authentication failed")
                .with_hint("Check the user name and the password or token; tokens can expire.")
                .err(),
        };
        self.audit(AuditEvent {
            time_ms: self.now_ms(),
            user: user.to_owned(),
            client,
            session: opened.as_ref().map_or(0, Session::id),
            request_id: crate::entrance::request_id(),
            action: "LOGIN".into(),
            objects: Vec::new(),
            outcome: opened.as_ref().err().map_or(code::SUCCESS, |error| error.code).into(),
        });
        opened
    }
}
