//! The open sessions: who they are, what they run, and KILL.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::{QueryContext, sync::Mutex};

use crate::{Database, Session, access::Caller, entrance::request_id};

/// From where a session is: what a front end says of its client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientInfo {
    /// The network address.
    pub address: Option<String>,
    /// The program, as it calls itself.
    pub application: Option<String>,
    /// The protocol, such as `http` or [`Self::POSTGRESQL`].
    pub protocol: Option<String>,
}

impl ClientInfo {
    /// The protocol of PostgreSQL, whose clients write names and comparisons in its way.
    pub const POSTGRESQL: &str = "postgresql";
}

/// What the handle of a session and the list of sessions share.
#[derive(Debug)]
pub(crate) struct SessionShared {
    id: u64,
    caller: Caller,
    client: ClientInfo,
    started_ms: i64,
    is_ended: AtomicBool,
    calls: Mutex<RunningCalls>,
}

/// The calls that a session runs: one, unless several threads use it.
#[derive(Debug, Default)]
struct RunningCalls {
    next: u64,
    running: BTreeMap<u64, RunningCall>,
}

#[derive(Debug)]
struct RunningCall {
    context: QueryContext,
    started_ms: i64,
    text: String,
    request_id: Option<String>,
}

/// The open sessions of an engine.
#[derive(Debug, Default)]
pub(crate) struct SessionList {
    last_id: AtomicU64,
    sessions: Mutex<BTreeMap<u64, Weak<SessionShared>>>,
}

/// An open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id, for KILL.
    pub id: u64,
    /// The user.
    pub user: String,
    /// Whether it is one of the process itself, which no privilege restricts.
    pub is_in_process: bool,
    /// From where it is.
    pub client: ClientInfo,
    /// When it was opened, in milliseconds since the epoch.
    pub started_ms: i64,
    /// The statement or request that it has run for longest; passwords are masked. Calls of the process
    /// itself are not listed.
    pub running: Option<String>,
    /// When that began, in milliseconds since the epoch.
    pub running_since_ms: Option<i64>,
    /// The id that the front end gave to it.
    pub request_id: Option<String>,
}

impl SessionShared {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn client(&self) -> &ClientInfo {
        &self.client
    }

    /// Fails once KILL has ended the session.
    #[inline]
    pub(crate) fn check_present(&self) -> Result<()> {
        // Relaxed: it guards no data.
        if !self.is_ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        ended()
    }

    /// Lists a call until the result is dropped.
    pub(crate) fn list(
        &self,
        context: &QueryContext,
        started_ms: i64,
        text: &str,
    ) -> CallListing<'_> {
        let text = lockstep_sql::masked(text).into_owned();
        let call =
            RunningCall { context: context.clone(), started_ms, text, request_id: request_id() };
        let mut calls = self.calls.lock();
        let number = calls.next;
        calls.next += 1;
        let former = calls.running.insert(number, call);
        debug_assert!(former.is_none(), "each call has a number of its own");
        CallListing { session: self, number }
    }

    /// Cancels what the session runs.
    fn cancel(&self) {
        let calls = self.calls.lock();
        calls.running.values().for_each(|call| call.context.cancel());
    }

    fn info(&self) -> SessionInfo {
        let calls = self.calls.lock();
        let running = calls.running.values().next();
        SessionInfo {
            id: self.id,
            user: self.caller.name().to_owned(),
            is_in_process: self.caller.is_process(),
            client: self.client.clone(),
            started_ms: self.started_ms,
            running: running.map(|call| call.text.clone()),
            running_since_ms: running.map(|call| call.started_ms),
            request_id: running.and_then(|call| call.request_id.clone()),
        }
    }
}

/// Makes the error for a call of a session that KILL has ended.
#[cold]
fn ended() -> Result<()> {
    Diagnostic::new(code::SESSION_ENDED, "session terminated by KILL").err()
}

impl Session {
    /// Lists a call that a front end makes of work of its own until the result is dropped: it is shown as
    /// what the session runs, and KILL cancels its context.
    pub fn list_call(&self, context: &QueryContext, text: &str) -> CallListing<'_> {
        self.shared.list(context, self.database.now_ms(), text)
    }
}

/// A call in the list of its session.
#[derive(Debug)]
#[must_use]
pub struct CallListing<'s> {
    session: &'s SessionShared,
    number: u64,
}

impl Drop for CallListing<'_> {
    fn drop(&mut self) {
        let removed = self.session.calls.lock().running.remove(&self.number);
        debug_assert!(removed.is_some(), "a call is listed once");
    }
}

impl SessionList {
    /// Adds a session.
    pub(crate) fn open(
        &self,
        caller: Caller,
        client: ClientInfo,
        now_ms: i64,
    ) -> Arc<SessionShared> {
        // Relaxed: the number itself is all that is shared.
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Arc::new(SessionShared {
            id,
            caller,
            client,
            started_ms: now_ms,
            is_ended: AtomicBool::new(false),
            calls: Mutex::default(),
        });
        let former = self.sessions.lock().insert(id, Arc::downgrade(&session));
        debug_assert!(former.is_none(), "no id is given twice");
        session
    }

    /// Removes a session.
    pub(crate) fn close(&self, id: u64) {
        self.sessions.lock().remove(&id);
    }

    fn find(&self, id: u64) -> Option<Arc<SessionShared>> {
        self.sessions.lock().get(&id)?.upgrade()
    }
}

impl Database {
    /// Returns the open sessions, in the order in which they were opened.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let open: Vec<Arc<SessionShared>> =
            self.session_list().sessions.lock().values().filter_map(Weak::upgrade).collect();
        open.iter().map(|session| session.info()).collect()
    }

    /// Cancels what a session runs, and ends the session unless `query_only`. Fails where there is none.
    pub(crate) fn kill(&self, id: u64, query_only: bool) -> Result<()> {
        let Some(session) = self.session_list().find(id) else {
            let message = format!("session {id} does not exist");
            return Diagnostic::new(code::UNDEFINED_OBJECT, message)
                .with_hint("List the sessions with SELECT id FROM lockstep.sessions.")
                .err();
        };
        if !query_only {
            // Relaxed: it guards no data.
            session.is_ended.store(true, Ordering::Relaxed);
        }
        session.cancel();
        Ok(())
    }
}

impl Session {
    /// Returns the id of the session, which KILL takes.
    pub fn id(&self) -> u64 {
        self.shared.id()
    }

    /// Returns the name of the session's user.
    pub fn user(&self) -> &str {
        self.caller().name()
    }

    /// Cancels what the session runs now. May be called from any thread.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// Opens another session of the same user, or of the process itself, without another proof; that of
    /// a user who has a token is as limited as this one. Fails where this one has ended.
    ///
    /// It is for a front end whose calls have a session each.
    pub fn open_another(&self, client: ClientInfo) -> Result<Self> {
        self.check_present()?;
        let opened = Self::new(self.database.clone(), self.caller().clone(), client);
        debug_assert_ne!(opened.id(), self.id(), "KILL ends one of them");
        Ok(opened)
    }

    /// Returns from where the session is.
    pub fn client(&self) -> &ClientInfo {
        self.shared.client()
    }

    /// Fails once the session was ended with KILL, its user was removed, or its token is no longer
    /// valid. Every call of the session checks it.
    pub fn check_present(&self) -> Result<()> {
        self.shared.check_present()?;
        self.caller().check(&self.database.objects(), self.database.now_ms(), &[])
    }

    /// Fails once the password with which the session's user logged in was changed or removed. For a front
    /// end whose clients send a token of the session in place of the password.
    pub fn check_password(&self) -> Result<()> {
        let Some(user) = &self.caller().user else { return Ok(()) };
        user.check_password(&self.database.objects())
    }

    /// Returns whether a session is one of the same user.
    pub(crate) fn owns_session(&self, id: u64) -> bool {
        let found = self.database.session_list().find(id);
        found.is_some_and(|session| {
            let (other, own) = (&session.caller.user, &self.caller().user);
            match (other, own) {
                (Some(other), Some(own)) => other.id == own.id && other.name == own.name,
                _ => false,
            }
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.database.session_list().close(self.shared.id());
    }
}
