//! A cache of compiled requests, by the text of their query.
//!
//! A program that sends the same query many times, as `db.request(sql, row)` does, compiles it
//! once. An entry is removed when a table that it reads is dropped, or when it is the least
//! recently used.

use std::sync::Arc;

use lockstep_function::Settings;
use lockstep_host::sync::Mutex;

use crate::PreparedRequest;

/// The most requests in the cache. Each may hold an index that only it needs.
const REQUESTS_MAX: usize = 32;
/// Queries with a longer text are not cached.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Everything on which the meaning of a query depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestKey {
    pub(crate) text: String,
    pub(crate) database: String,
    pub(crate) settings: Settings,
}

/// The most recently used requests, the most recent one first.
#[derive(Debug, Default)]
pub(crate) struct RequestCache {
    entries: Mutex<Vec<CachedRequest>>,
}

#[derive(Debug)]
struct CachedRequest {
    key: RequestKey,
    request: Arc<PreparedRequest>,
}

impl RequestCache {
    /// Returns the request of a query, unless a definition from which it was compiled was dropped.
    pub(crate) fn find(
        &self,
        text: &str,
        database: &str,
        settings: Settings,
    ) -> Option<Arc<PreparedRequest>> {
        let mut entries = self.entries.lock();
        let at = entries.iter().position(|CachedRequest { key, .. }| {
            key.text == text && key.database == database && key.settings == settings
        })?;
        entries[..=at].rotate_right(1);
        let request = &entries[0].request;
        request.check_definitions().is_ok().then(|| Arc::clone(request))
    }

    /// Adds the request of a query.
    pub(crate) fn insert(&self, key: RequestKey, request: &Arc<PreparedRequest>) {
        if key.text.len() > TEXT_BYTES_MAX {
            return;
        }
        let mut entries = self.entries.lock();
        // A DROP first marks the definition, and then calls `remove_stale`, which takes this lock.
        if request.check_definitions().is_err() {
            return;
        }
        entries.retain(|entry| entry.key != key);
        entries.insert(0, CachedRequest { key, request: Arc::clone(request) });
        let count = entries.len().min(REQUESTS_MAX);
        let surplus = entries.split_off(count);
        debug_assert!(surplus.len() <= 1, "one entry was added");
        debug_assert!(entries.len() <= REQUESTS_MAX, "the cache is bounded");
        drop(entries);
        // Without the lock, since freeing a request may free its indexes.
        drop(surplus);
    }

    /// Removes the requests of dropped tables, and with them the tables' memory.
    pub(crate) fn remove_stale(&self) {
        let mut entries = self.entries.lock();
        let all = std::mem::take(&mut *entries);
        let is_current = |entry: &CachedRequest| entry.request.check_definitions().is_ok();
        let (current, stale): (Vec<_>, Vec<_>) = all.into_iter().partition(is_current);
        *entries = current;
        drop(entries);
        drop(stale);
    }
}
