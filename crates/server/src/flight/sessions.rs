//! Sessions of Flight clients: what USE and SET have set lasts from call to call.
//!
//! A handshake makes a session, and returns a token that later calls show instead of a password; a call
//! that sets session options without one makes a session whose token is a cookie. Either is forgotten
//! after `flight.session_timeout_ms` without a call. Tokens are kept as hashes.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_engine::Session;
use lockstep_host::sync::Mutex;

use crate::{access::LoginKey, server_state::ServerState};

/// What the token of a session begins with.
pub(crate) const SESSION_TOKEN_PREFIX: &str = "lockstep_session_";

/// The name of the cookie, which Flight defines.
pub(crate) const COOKIE: &str = "arrow_flight_session_id";

/// A session that is kept.
pub(crate) struct FlightSession {
    pub(crate) session: Session,
    key: LoginKey,
    used_ns: AtomicU64,
}

impl fmt::Debug for FlightSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightSession").field("session", &self.session).finish_non_exhaustive()
    }
}

/// The sessions that are kept.
#[derive(Debug, Default)]
pub(crate) struct FlightSessions {
    by_key: Mutex<HashMap<LoginKey, Arc<FlightSession>>>,
}

impl FlightSessions {
    /// Keeps a session. Returns its token.
    pub(crate) fn keep(&self, state: &ServerState, session: Session) -> Result<String> {
        let settings = state.settings();
        let now_ns = state.clock.monotonic_ns();
        let secret = [lockstep_host::random::id(), lockstep_host::random::id()].concat();
        let token = format!("{SESSION_TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
        let key = key_of(state, &token);
        let max = usize::try_from(settings.flight_sessions_max).unwrap_or(usize::MAX);
        let timeout_ns = settings.flight_session_timeout_ms.saturating_mul(1_000_000);
        let mut by_key = self.by_key.lock();
        let expired: HashMap<_, _> = match by_key.len() >= max {
            true => by_key.extract_if(|_, kept| kept.idle_ns(now_ns) >= timeout_ns).collect(),
            false => HashMap::new(),
        };
        let is_full = by_key.len() >= max;
        if !is_full {
            let used_ns = AtomicU64::new(now_ns);
            by_key.insert(key, Arc::new(FlightSession { session, key, used_ns }));
        }
        drop(by_key);
        // Without the lock: each is closed.
        drop(expired);
        if is_full { too_many(max).err() } else { Ok(token) }
    }

    /// Finds the session of a token, unless it was forgotten, and notes that it is used. The error of one
    /// whose user was removed, whose password was changed or whose token has expired says so.
    pub(crate) fn find(&self, state: &ServerState, token: &str) -> Result<Arc<FlightSession>> {
        let key = key_of(state, token);
        let found = self.by_key.lock().get(&key).map(Arc::clone);
        let Some(found) = found else { return session_ended().err() };
        let now_ns = state.clock.monotonic_ns();
        let timeout_ns = state.settings().flight_session_timeout_ms.saturating_mul(1_000_000);
        let present = found.session.check_present().and_then(|()| found.session.check_password());
        let present = match present {
            Ok(()) if found.idle_ns(now_ns) >= timeout_ns => session_ended().err(),
            other => other,
        };
        if let Err(error) = present {
            self.remove(&found);
            return Err(error);
        }
        // Relaxed: a time that publishes nothing else.
        found.used_ns.store(now_ns, Ordering::Relaxed);
        Ok(found)
    }

    /// Forgets a session. Returns whether it was kept.
    pub(crate) fn remove(&self, session: &FlightSession) -> bool {
        let removed = self.by_key.lock().remove(&session.key);
        removed.is_some()
    }
}

impl FlightSession {
    fn idle_ns(&self, now_ns: u64) -> u64 {
        // Relaxed: as above.
        now_ns.saturating_sub(self.used_ns.load(Ordering::Relaxed))
    }
}

/// Returns the token of the session in a header of cookies.
pub(crate) fn of_cookie(cookies: &str) -> Option<&str> {
    let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, token)| token)
}

/// Returns the hash of a token, by which nobody who reads the memory can call.
fn key_of(state: &ServerState, token: &str) -> LoginKey {
    let nowhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    state.access.key(token.as_bytes(), nowhere, b"session")
}

/// Makes the error for a session that the server does not know, or no longer.
pub(crate) fn session_ended() -> Diagnostic {
    Diagnostic::new(code::INVALID_AUTHORIZATION, "the session has ended")
        .with_hint("Reconnect. Idle sessions are closed after flight.session_timeout_ms.")
}

fn too_many(max: usize) -> Diagnostic {
    let message = format!("number of sessions exceeds flight.sessions_max ({max})");
    Diagnostic::new(code::TOO_MANY, message)
        .with_kind(Kind::Retry)
        .with_hint("Close unused connections, or raise flight.sessions_max.")
}

#[cfg(test)]
mod tests {
    use super::of_cookie;

    #[test]
    fn the_cookie_is_found_among_others() {
        assert_eq!(of_cookie("a=b; arrow_flight_session_id=x"), Some("x"));
        assert_eq!(of_cookie("arrow_flight_session_id=x=y"), Some("x=y"));
        assert_eq!(of_cookie("a=b; other"), None);
        assert_eq!(of_cookie(""), None);
    }
}
