//! Who may call the server: the one place where what a client shows becomes a session.
//!
//! Every protocol reads [`Credentials`] from its client and calls [`login`]. What was verified is kept
//! for a short time (`access::login`), so that a call does not cost the iterations of a password's hash;
//! attempts that follow wrong ones wait (`access::throttle`). Which privileges a user has is the
//! engine's, at each call. Knows no protocol.
//!
//! # Life of a login
//!
//! 1. The hash of what the client has sent is looked up among the logins that are kept.
//! 2. If it is not there, it waits as long as earlier failures from its address say, and for attempts
//!    from there that are under way; which does not depend on what it has sent.
//! 3. A thread of its own pool verifies it. The engine answers a wrong password and a user that does not
//!    exist with the same error after the same time.

mod login;
mod start_token;
mod throttle;

use std::{net::IpAddr, sync::Arc, time::Duration};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_engine::{ClientInfo, Database, Proof, QueryContext, Session, guarded};

use crate::{
    server_state::ServerState,
    work_pool::{NoResult, WorkClass, stuck},
};
pub(crate) use login::{Login, LoginKey};
use login::{LoginCache, LoginSecret};
use start_token::StartToken;
use throttle::{LoginThrottle, LoginTurn, TURN_MAX_NS, TurnAnswer};

/// The user who has every privilege.
const ROOT: &str = "root";

/// What a client shows to say who it is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Nothing.
    Nobody,
    /// The name of a user with a password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// The names of a certificate that TLS has verified: the first that a user has is the user.
    Certificate(Arc<[String]>),
    /// A token that CREATE TOKEN made, or the one that the server has printed at its start.
    Token(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nobody => "Nobody",
            Self::Password { .. } => "Password",
            Self::Certificate(_) => "Certificate",
            Self::Token(_) => "Token",
        })
    }
}

/// How clients are told from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Authentication {
    /// By their credentials.
    Users,
    /// Not at all: everybody is `root`.
    None,
}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct ClientPeer {
    pub(crate) address: IpAddr,
    /// The names of its certificate; none where it has shown none.
    pub(crate) names: Arc<[String]>,
}

impl ClientPeer {
    /// Makes one that has shown no certificate.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self { address, names: Arc::default() }
    }
}

/// A client that wants to log in.
#[derive(Debug)]
pub(crate) struct LoginAttempt {
    pub(crate) key: LoginKey,
    pub(crate) credentials: Credentials,
    pub(crate) address: IpAddr,
    pub(crate) client: ClientInfo,
}

/// From where and when a client logs in.
#[derive(Debug)]
pub(crate) struct LoginOrigin {
    pub(crate) address: IpAddr,
    pub(crate) client: ClientInfo,
    pub(crate) now_ns: u64,
}

/// Opens the sessions of clients.
#[derive(Debug)]
pub(crate) struct ClientAccess {
    database: Database,
    authentication: Authentication,
    start_token: Option<StartToken>,
    secret: LoginSecret,
    logins: LoginCache,
    throttle: Arc<LoginThrottle>,
}

impl ClientAccess {
    /// Makes the access to a database. Makes a token where clients are told apart and nobody could log
    /// in otherwise.
    pub(crate) fn new(database: Database, authentication: Authentication) -> Self {
        let needs_token = authentication == Authentication::Users && !database.can_anyone_log_in();
        Self {
            authentication,
            start_token: needs_token.then(StartToken::new),
            secret: LoginSecret::new(),
            logins: LoginCache::default(),
            throttle: Arc::default(),
            database,
        }
    }

    /// Returns the engine, for what is about no user: its metrics and whether it is open.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Returns the token with which `root` logs in from this machine, where nobody else can.
    pub(crate) fn start_token(&self) -> Option<&str> {
        self.start_token.as_ref().map(StartToken::text)
    }

    /// Returns the key of what a client shows, from where and with which program.
    pub(crate) fn key(&self, shown: &[u8], address: IpAddr, application: &[u8]) -> LoginKey {
        let address = match address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        self.secret.key(&[shown, &address.octets(), application])
    }

    /// Finds a login that was verified a short time ago, since when no user has changed.
    pub(crate) fn find(&self, key: &LoginKey, now_ns: u64) -> Option<Arc<Login>> {
        self.logins.find(key, self.database.users_version(), now_ns)
    }

    /// Forgets a login where an error says that KILL has ended its session: the client's next call logs
    /// in again, if it may.
    pub(crate) fn forget_ended(&self, login: &Login, error: &Diagnostic) {
        if error.code == code::SESSION_ENDED {
            self.logins.remove(login.key());
        }
    }

    /// Verifies what a client shows. A wrong password takes a millisecond, like a right one.
    fn verify(&self, attempt: &LoginAttempt, now_ns: u64) -> Result<Arc<Login>> {
        // Before the verification: where users change meanwhile, the login is verified again.
        let users_version = self.database.users_version();
        let verified = self.authenticate(attempt);
        if let Err(error) = &verified
            && error.code == code::INVALID_PASSWORD
        {
            self.throttle.note_failure(attempt.address, now_ns);
        }
        let login = Login::new(attempt.key, verified?, users_version, now_ns);
        Ok(self.logins.insert(login, now_ns))
    }

    /// Returns how clients are told from each other.
    pub(crate) fn authentication(&self) -> Authentication {
        self.authentication
    }

    /// Opens the session of `root` for a client that need not say who it is.
    pub(crate) fn trust(&self, client: ClientInfo) -> Result<Session> {
        assert_eq!(self.authentication, Authentication::None, "authentication is disabled");
        self.database.authenticate(ROOT, Proof::Checked, client)
    }

    /// Opens the session of a user with a proof that a protocol has read, after its turn has come
    /// ([`wait_for_turn`]). The proof takes little time to check.
    pub(crate) fn open_session(
        &self,
        user: &str,
        proof: Proof<'_>,
        from: LoginOrigin,
    ) -> Result<Session> {
        let LoginOrigin { address, client, now_ns } = from;
        let opened = match proof {
            Proof::Token(text) if user == ROOT && self.is_start_token(text, address) => {
                self.database.authenticate(ROOT, Proof::Checked, client)
            }
            proof => self.database.authenticate(user, proof, client),
        };
        if let Err(error) = &opened
            && error.code == code::INVALID_PASSWORD
        {
            self.throttle.note_failure(address, now_ns);
        }
        opened
    }

    fn authenticate(&self, attempt: &LoginAttempt) -> Result<Session> {
        let (database, client) = (&self.database, attempt.client.clone());
        if self.authentication == Authentication::None {
            return database.authenticate(ROOT, Proof::Checked, client);
        }
        match &attempt.credentials {
            Credentials::Nobody => no_credentials().err(),
            Credentials::Password { user, password } => {
                database.authenticate(user, Proof::Password(password), client)
            }
            Credentials::Certificate(names) => self.open_named(names, client),
            Credentials::Token(text) if self.is_start_token(text, attempt.address) => {
                database.authenticate(ROOT, Proof::Checked, client)
            }
            Credentials::Token(text) => database.authenticate_token(text, client),
        }
    }

    /// Opens the session of the first user whom a certificate names.
    fn open_named(&self, names: &[String], client: ClientInfo) -> Result<Session> {
        let user = names.iter().find(|name| self.database.has_user(name));
        // A name that no user has is refused as any other.
        let user = user.or(names.first()).map_or("", String::as_str);
        self.database.authenticate(user, Proof::Checked, client)
    }

    fn is_start_token(&self, text: &str, address: IpAddr) -> bool {
        let is_here = address.to_canonical().is_loopback();
        is_here && self.start_token.as_ref().is_some_and(|token| token.is(text))
    }
}

/// Logs a client in: at once where that was done a short time ago.
pub(crate) async fn login(state: &Arc<ServerState>, attempt: LoginAttempt) -> Result<Arc<Login>> {
    let access = &state.access;
    let is_checked = access.authentication == Authentication::Users;
    if is_checked && attempt.credentials == Credentials::Nobody {
        return no_credentials().err();
    }
    let turn = wait_for_turn(state, attempt.address).await?;
    let shared = Arc::clone(state);
    let verify = move || {
        // Until it is verified, also where the client has gone away.
        let _turn = turn;
        let now_ns = shared.clock.monotonic_ns();
        // Other calls of the client may have been first.
        match shared.access.find(&attempt.key, now_ns) {
            Some(found) => Ok(found),
            None => guarded(|| shared.access.verify(&attempt, now_ns)),
        }
    };
    let done = state.pools.run(WorkClass::Logins, &QueryContext::new(), verify).await;
    done.unwrap_or_else(|reason| match reason {
        NoResult::Overloaded => too_many_attempts().err(),
        NoResult::Closed => Diagnostic::new(code::SESSION_ENDED, "the server is shutting down")
            .with_kind(Kind::Retry)
            .err(),
        NoResult::Stuck => stuck().err(),
    })
}

/// Waits until an attempt to log in from an address may be verified. The result is kept until it was;
/// `None` where clients are not told from each other.
pub(crate) async fn wait_for_turn(
    state: &ServerState,
    address: IpAddr,
) -> Result<Option<LoginTurn>> {
    let access = &state.access;
    if access.authentication == Authentication::None {
        return Ok(None);
    }
    let begun_ns = state.clock.monotonic_ns();
    let turn = access.throttle.begin(address, begun_ns);
    loop {
        // Before the question, so that no end is missed.
        let mut ended = std::pin::pin!(access.throttle.ended());
        ended.as_mut().enable();
        let now_ns = state.clock.monotonic_ns();
        match turn.ask(now_ns) {
            TurnAnswer::Now => return Ok(Some(turn)),
            TurnAnswer::Refused => return too_many_attempts().err(),
            TurnAnswer::AfterNs(wait_ns) => {
                tokio::time::sleep(Duration::from_nanos(wait_ns)).await;
            }
            TurnAnswer::AfterAnother => {
                let left_ns = TURN_MAX_NS.saturating_sub(now_ns - begun_ns);
                let ended = tokio::time::timeout(Duration::from_nanos(left_ns), ended).await;
                if ended.is_err() {
                    return too_many_attempts().err();
                }
            }
        }
    }
}

/// Makes the error for a client that shows nothing.
fn no_credentials() -> Diagnostic {
    Diagnostic::new(code::INVALID_AUTHORIZATION, "authentication required").with_hint(
        "Send the name and password of a user (Basic), or a token (Bearer). If no user can log \
         in, the server prints a token when it starts.",
    )
}

/// Makes the error for a client whose attempt would have to wait for too long.
fn too_many_attempts() -> Diagnostic {
    Diagnostic::new(code::TOO_MANY, "too many login attempts")
        .with_kind(Kind::Retry)
        .with_hint("Retry later: login attempts after a wrong password are delayed.")
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use lockstep_diagnostic::code;
    use lockstep_engine::{ClientInfo, Database};

    use super::{Authentication, ClientAccess, Credentials, LoginAttempt};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn attempt(access: &ClientAccess, credentials: Credentials, address: IpAddr) -> LoginAttempt {
        let key = access.key(format!("{credentials:?}").as_bytes(), address, b"");
        LoginAttempt { key, credentials, address, client: ClientInfo::default() }
    }

    fn user_of(access: &ClientAccess, credentials: Credentials, address: IpAddr) -> String {
        let verified = access.verify(&attempt(access, credentials, address), 0);
        verified
            .map_or_else(|error| error.code.to_owned(), |login| login.session().user().to_owned())
    }

    fn password(user: &str, password: &str) -> Credentials {
        Credentials::Password { user: user.to_owned(), password: password.to_owned() }
    }

    #[test]
    fn the_start_token_is_root_s_on_this_machine_only() {
        let access = ClientAccess::new(Database::in_memory(), Authentication::Users);
        let token = Credentials::Token(access.start_token().unwrap().to_owned());
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        for here in [HERE, mapped, IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            assert_eq!(user_of(&access, token.clone(), here), "root");
        }
        assert_eq!(user_of(&access, token, ELSEWHERE), code::INVALID_PASSWORD);
        let wrong = Credentials::Token("lockstep_wrong".to_owned());
        assert_eq!(user_of(&access, wrong, HERE), code::INVALID_PASSWORD);
        assert_eq!(user_of(&access, Credentials::Nobody, HERE), code::INVALID_AUTHORIZATION);
    }

    #[test]
    fn there_is_no_start_token_where_somebody_can_log_in() {
        let database = Database::in_memory();
        let session = database.session();
        session.execute("CREATE ROLE r; CREATE USER nobody").unwrap();
        let access = ClientAccess::new(database.clone(), Authentication::Users);
        assert!(access.start_token().is_some());
        session.execute("CREATE USER ann OPTIONS(password='secret')").unwrap();
        let access = ClientAccess::new(database.clone(), Authentication::Users);
        assert_eq!(access.start_token(), None);
        assert_eq!(user_of(&access, password("ann", "secret"), ELSEWHERE), "ann");
        for (user, text) in [("ann", "wrong"), ("eve", "secret"), ("nobody", ""), ("root", "")] {
            assert_eq!(user_of(&access, password(user, text), HERE), code::INVALID_PASSWORD);
        }
        let access = ClientAccess::new(database, Authentication::None);
        assert_eq!(access.start_token(), None);
        assert_eq!(user_of(&access, Credentials::Nobody, HERE), "root");
    }

    #[test]
    fn a_login_is_kept_until_users_change_or_time_has_passed() {
        let database = Database::in_memory();
        let session = database.session();
        session.execute("CREATE USER ann OPTIONS(password='secret')").unwrap();
        let access = ClientAccess::new(database, Authentication::Users);
        let ann = attempt(&access, password("ann", "secret"), HERE);
        assert!(access.find(&ann.key, 0).is_none());
        let login = access.verify(&ann, 0).unwrap();
        assert!(access.find(&ann.key, 0).is_some());
        assert!(access.find(&ann.key, 3_600_000_000_000).is_none(), "an hour has passed");
        access.verify(&ann, 0).unwrap();
        let id = login.session().id();
        session.execute(&format!("KILL {id}")).unwrap();
        access.forget_ended(&login, &login.open().unwrap_err());
        assert!(access.find(&ann.key, 0).is_none(), "the session was ended");
        access.verify(&ann, 0).unwrap();
        session.execute("ALTER USER ann SET OPTIONS(password='other')").unwrap();
        assert!(access.find(&ann.key, 0).is_none(), "the password was changed");
        assert!(access.verify(&ann, 0).is_err());
    }

    #[test]
    fn keys_differ_where_anything_differs() {
        let access = ClientAccess::new(Database::in_memory(), Authentication::Users);
        let key = access.key(b"ab", HERE, b"c");
        assert_eq!(access.key(b"ab", HERE, b"c"), key);
        assert_ne!(access.key(b"ab", ELSEWHERE, b"c"), key);
        assert_ne!(access.key(b"a", HERE, b"bc"), key);
        assert_ne!(access.key(b"ab", HERE, b""), key);
        let other = ClientAccess::new(Database::in_memory(), Authentication::Users);
        assert_ne!(other.key(b"ab", HERE, b"c"), key);
    }
}
