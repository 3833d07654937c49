//! The record of what users did, and of slow requests.
//!
//! Bounded lists in memory, which `lockstep.audit` and `lockstep.slow_requests` show, and a listener
//! that a server writes to its log. Events are in files of the directory as well, which are read when it is
//! opened ([`file`]). An event has no values and no text of a statement. Sessions of the process itself
//! leave none.

mod file;

use std::{borrow::Cow, collections::VecDeque, fmt, sync::Arc};

use lockstep_host::sync::{Mutex, RwLock};

pub(crate) use self::file::{AuditFiles, FILES as AUDIT_FILES};
use crate::{ClientInfo, Database};

/// The most events that are kept.
const EVENTS_MAX: usize = 10_000;

/// The most slow requests that are kept.
const SLOW_MAX: usize = 1_000;

/// Something that a user did, or was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// When it ended, in milliseconds since the epoch.
    pub time_ms: i64,
    /// The user; as it was claimed, where the login failed.
    pub user: String,
    /// From where.
    pub client: ClientInfo,
    /// The id of the session; 0 where there is none.
    pub session: u64,
    /// The id of the request, where the front end gave one.
    pub request_id: Option<String>,
    /// What was done: the first words of a statement, `LOGIN`, `APPEND`, `REQUEST` or `VERIFY`.
    pub action: Cow<'static, str>,
    /// The objects, as GRANT names them.
    pub objects: Vec<String>,
    /// The SQLSTATE: 00000 for a success.
    pub outcome: Cow<'static, str>,
}

/// A function that is called with each event.
pub type AuditListener = Arc<dyn Fn(&AuditEvent) + Send + Sync>;

/// A call that took longer than `slow_request_ms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowRequest {
    /// When it ended, in milliseconds since the epoch.
    pub time_ms: i64,
    /// The user.
    pub user: String,
    /// The id of the session.
    pub session: u64,
    /// The id of the request, where the front end gave one.
    pub request_id: Option<String>,
    /// As in [`AuditEvent::action`].
    pub action: &'static str,
    /// The statement, or the name of the deployment; passwords are masked.
    pub text: String,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// What EXPLAIN says of it.
    pub plan: Option<String>,
}

/// The records of an engine.
#[derive(Default)]
pub(crate) struct CallRecords {
    events: Mutex<VecDeque<AuditEvent>>,
    slow: Mutex<VecDeque<SlowRequest>>,
    listener: RwLock<Option<AuditListener>>,
}

impl fmt::Debug for CallRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRecords")
            .field("events", &self.events.lock().len())
            .finish_non_exhaustive()
    }
}

impl CallRecords {
    fn add<T>(records: &Mutex<VecDeque<T>>, record: T, most: usize) {
        let mut records = records.lock();
        if records.len() == most {
            records.pop_front();
        }
        records.push_back(record);
        debug_assert!(records.len() <= most, "the list is bounded");
    }
}

impl Database {
    /// Sets the function that is called with each event from now on, on the thread of the call. It must
    /// not wait, nor call this engine.
    pub fn set_audit_listener(&self, listener: Option<AuditListener>) {
        *self.records().listener.write() = listener;
    }

    /// Returns the latest events, oldest first.
    pub fn audit_events(&self) -> Vec<AuditEvent> {
        self.records().events.lock().iter().cloned().collect()
    }

    /// Returns the latest slow requests, oldest first.
    pub fn slow_requests(&self) -> Vec<SlowRequest> {
        self.records().slow.lock().iter().cloned().collect()
    }

    /// Records an event.
    pub(crate) fn audit(&self, event: AuditEvent) {
        let listener = self.records().listener.read().clone();
        if let Some(listener) = listener {
            listener(&event);
        }
        if let Some(store) = self.store() {
            store.record_audit(&event);
        }
        CallRecords::add(&self.records().events, event, EVENTS_MAX);
    }

    /// Adds the events of an earlier process, which are older than all others.
    pub(crate) fn restore_audit(&self, events: Vec<AuditEvent>) {
        debug_assert!(events.len() <= EVENTS_MAX, "the list is bounded");
        *self.records().events.lock() = events.into();
    }

    /// Records a slow request.
    pub(crate) fn record_slow(&self, request: SlowRequest) {
        CallRecords::add(&self.records().slow, request, SLOW_MAX);
    }
}
