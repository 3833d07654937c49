//! Compiled requests of queries that are no deployments.
//!
//! `session` asks for the request of a query's text before it compiles one: a program that asks the
//! same query again and again, as `db.request(sql, row)` does, compiles it once. An entry goes when
//! a table that it reads is dropped, or when others are asked for more often.

use std::sync::Arc;

use lockstep_function::Settings;
use lockstep_host::sync::Mutex;

use crate::PreparedRequest;

/// Requests that are kept. Each may hold an index that only it needs.
const REQUESTS_MAX: usize = 32;
/// Longer texts are not kept.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// What the meaning of a query depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestKey {
    pub(crate) text: String,
    pub(crate) database: String,
    pub(crate) settings: Settings,
}

/// The requests that were asked for last, the last one first.
#[derive(Debug, Default)]
pub(crate) struct RequestCache {
    entries: Mutex<Vec<(RequestKey, Arc<PreparedRequest>)>>,
}

impl RequestCache {
    /// The request of a query, unless something that it was compiled from was dropped.
    pub(crate) fn find(&self, key: &RequestKey) -> Option<Arc<PreparedRequest>> {
        let mut entries = self.entries.lock();
        let at = entries.iter().position(|(known, _)| known == key)?;
        entries[..=at].rotate_right(1);
        let request = &entries[0].1;
        request.check_definitions().is_ok().then(|| Arc::clone(request))
    }

    pub(crate) fn insert(&self, key: RequestKey, request: &Arc<PreparedRequest>) {
        if key.text.len() > TEXT_BYTES_MAX {
            return;
        }
        let mut entries = self.entries.lock();
        // A DROP first ends the definition and then comes to `forget_stale`, under this lock.
        if request.check_definitions().is_err() {
            return;
        }
        entries.retain(|(known, _)| *known != key);
        entries.insert(0, (key, Arc::clone(request)));
        let kept = entries.len().min(REQUESTS_MAX);
        let surplus = entries.split_off(kept);
        drop(entries);
        // Frees what nobody else holds, without the lock.
        drop(surplus);
    }

    /// Gives up the requests of dropped tables, and with them the tables' memory.
    pub(crate) fn forget_stale(&self) {
        let mut entries = self.entries.lock();
        let all = std::mem::take(&mut *entries);
        let is_current =
            |(_, request): &(_, Arc<PreparedRequest>)| request.check_definitions().is_ok();
        let (kept, stale): (Vec<_>, Vec<_>) = all.into_iter().partition(is_current);
        *entries = kept;
        drop(entries);
        drop(stale);
    }
}
