//! The memory budget: how much memory the tables of an engine may take (promise L6).
//!
//! Every table of an engine charges one [`MemoryBudget`] with the memory of its rows and indexes.
//! Above the limit writes are refused before anything of them is stored; reads, deletes and
//! retention go on. The memory of a write is reserved first, so that several writers together do not
//! exceed the limit either. Memory is charged as the allocator counts it, until it is freed: what a
//! DELETE or a late row replaces stays charged as long as a reader may use it or it waits to be freed.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use lockstep_host::{memory::AllocationSize, sync::Mutex};
use lockstep_series::Account;

use crate::{Table, TableError, part::PageCache};

/// A function that is called when the use of memory passes the alert threshold, once each time.
type Observer = Box<dyn Fn(MemoryUse) + Send + Sync>;

/// A function that is called when levels may grow again. It does not wait.
type SpareObserver = Box<dyn Fn() + Send + Sync>;

/// A function that waits until rows of disk tables have left memory; `false` when they do not.
type Flusher = Box<dyn Fn(FlushCall) -> bool + Send + Sync>;

/// What a table wants of who flushes rows of disk tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushCall {
    /// A flush that is yet to begin is waited for. Whether there was one is returned.
    Wait,
    /// A flush begins soon: files were made that no manifest lists.
    Begin,
}

/// The memory that all tables of an engine take, and its limit.
pub struct MemoryBudget {
    /// Bytes; 0 is no limit.
    limit: AtomicU64,
    /// The alert threshold: a part of the limit, in millionths.
    alert_ppm: AtomicU64,
    used: AtomicI64,
    /// Whether the use is above the alert threshold.
    is_alerted: AtomicBool,
    refused: AtomicU64,
    observer: OnceLock<Observer>,
    /// Whether levels could not grow since `spare_observer` was called.
    is_short: AtomicBool,
    spare_observer: OnceLock<SpareObserver>,
    /// The tables that have levels.
    with_levels: Mutex<Vec<Weak<Table>>>,
    /// Pages of disk tables.
    pages: PageCache,
    flusher: OnceLock<Flusher>,
    /// A write waits for the flusher when so many bytes of rows have come into a disk table since the last flush
    /// began.
    unfrozen_max: AtomicU64,
}

/// The use of memory, and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that the tables take, with what was replaced and is not freed yet.
    pub used: u64,
    /// The most bytes; `None` when there is no limit.
    pub limit: Option<u64>,
    /// The alert threshold in bytes.
    pub alert_at: Option<u64>,
    /// How many writes were refused since the engine was made.
    pub refused: u64,
}

/// The use of memory compared with the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryStatus {
    /// Below the alert threshold, or without a limit.
    Ok,
    /// At the alert threshold or above.
    Alert,
    /// At the limit: writes are refused.
    Full,
}

/// Millionths of one.
const PPM: u64 = 1_000_000;
/// The default of the alert threshold: four fifths.
const ALERT_PPM_DEFAULT: u64 = 800_000;

/// The bytes of the page cache before it is set.
const PAGE_CACHE_BYTES_DEFAULT: u64 = 256 << 20;

impl Default for MemoryBudget {
    fn default() -> Self {
        Self {
            limit: AtomicU64::new(0),
            alert_ppm: AtomicU64::new(ALERT_PPM_DEFAULT),
            used: AtomicI64::new(0),
            is_alerted: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            observer: OnceLock::new(),
            is_short: AtomicBool::new(false),
            spare_observer: OnceLock::new(),
            with_levels: Mutex::default(),
            pages: PageCache::new(PAGE_CACHE_BYTES_DEFAULT),
            flusher: OnceLock::new(),
            unfrozen_max: AtomicU64::new(u64::MAX),
        }
    }
}

impl MemoryBudget {
    /// Sets the most bytes that all tables may take together; `None`: no limit. What is stored already
    /// stays, also when it is more.
    pub fn set_limit(&self, limit: Option<u64>) {
        // SeqCst: see `has_spare`.
        self.limit.store(limit.unwrap_or(0), Ordering::SeqCst);
        self.notify();
        self.notify_spare();
    }

    /// Sets the alert threshold as a part of the limit, in millionths.
    pub fn set_alert_ppm(&self, ppm: u64) {
        // SeqCst: see `has_spare`.
        self.alert_ppm.store(ppm.min(PPM), Ordering::SeqCst);
        self.notify();
        self.notify_spare();
    }

    /// Sets the most bytes of the pages of disk tables, which are a part of the use of memory.
    pub fn set_page_cache(&self, bytes: u64) {
        self.pages.set_limit(bytes);
        self.notify();
        self.notify_spare();
    }

    /// Returns the cache of the pages of disk tables.
    pub fn page_cache(&self) -> &PageCache {
        &self.pages
    }

    /// Sets the function that is called when the use passes the alert threshold, on the thread that
    /// made it pass. The first one stays.
    pub fn observe(&self, observer: impl Fn(MemoryUse) + Send + Sync + 'static) {
        // There is one observer.
        drop(self.observer.set(Box::new(observer)));
    }

    /// Sets the function that is called when levels may grow that could not before, on the thread that freed
    /// memory or raised the limit. The first one stays.
    pub fn observe_spare(&self, observer: impl Fn() + Send + Sync + 'static) {
        // There is one observer.
        drop(self.spare_observer.set(Box::new(observer)));
    }

    /// Sets the function by which rows of disk tables leave memory for a write that is refused otherwise. The
    /// first one stays.
    pub fn flush_with(&self, flush: impl Fn(FlushCall) -> bool + Send + Sync + 'static) {
        // There is one flusher.
        drop(self.flusher.set(Box::new(flush)));
    }

    /// Sets how many bytes of rows may come into a disk table after a flush has begun before writes wait for the
    /// next one: otherwise memory holds whatever arrives faster than files are written.
    pub fn set_unfrozen_max(&self, bytes: u64) {
        // Relaxed: the number itself is all that is shared.
        self.unfrozen_max.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn unfrozen_max(&self) -> u64 {
        // Relaxed: as above.
        self.unfrozen_max.load(Ordering::Relaxed)
    }

    /// Waits until rows of disk tables have left memory; `false` when there is nobody who flushes them.
    pub(crate) fn flush(&self) -> bool {
        self.flusher.get().is_some_and(|flush| flush(FlushCall::Wait))
    }

    /// Lets a flush begin soon.
    pub(crate) fn begin_flush(&self) {
        let _begins = self.flusher.get().is_some_and(|flush| flush(FlushCall::Begin));
    }

    /// Reserves memory that is used beside the tables. Returns whether the limit allows it.
    /// [`Self::give_back`] returns it.
    pub fn take(&self, bytes: u64) -> bool {
        self.reserve(bytes)
    }

    /// Gives back memory that [`Self::take`] reserved.
    pub fn give_back(&self, bytes: u64) {
        self.charge(0_i64.saturating_sub_unsigned(bytes));
    }

    /// Returns the use of memory, and its limit.
    pub fn memory_use(&self) -> MemoryUse {
        // SeqCst: see `has_spare`.
        let limit = Some(self.limit.load(Ordering::SeqCst)).filter(|limit| *limit > 0);
        let alert_ppm = self.alert_ppm.load(Ordering::SeqCst);
        let part = |limit: u64| u128::from(limit) * u128::from(alert_ppm) / u128::from(PPM);
        MemoryUse {
            used: self.used(),
            limit,
            alert_at: limit.map(|limit| u64::try_from(part(limit)).unwrap_or(u64::MAX)),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Returns the bytes in use.
    fn used(&self) -> u64 {
        // SeqCst: see `has_spare`. Below zero between two charges of different threads only.
        u64::try_from(self.used.load(Ordering::SeqCst)).unwrap_or(0) + self.pages.bytes()
    }

    /// Reserves memory for a write. Returns whether the limit and the machine allow it.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        // Relaxed: the number itself is all that is shared.
        let limit = self.limit.load(Ordering::Relaxed);
        let (wanted, of_pages) = (signed(bytes), signed(self.pages.bytes()));
        let before = self.used.fetch_add(wanted, Ordering::Relaxed);
        if limit > 0 && before.saturating_add(wanted).saturating_add(of_pages) > signed(limit) {
            self.used.fetch_sub(wanted, Ordering::Relaxed);
            return false;
        }
        if !lockstep_host::memory::may_take(bytes, AllocationSize::Small) {
            // Relaxed: as above.
            self.used.fetch_sub(wanted, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Returns whether less than the alert threshold is used, or there is no limit: levels may grow. Where
    /// they may not, the observer of [`Self::observe_spare`] is called as soon as they may.
    pub(crate) fn has_spare(&self) -> bool {
        if self.is_below_alert() {
            return true;
        }
        // SeqCst, as are the changes of what `is_below_alert` reads and the load in `notify_spare`: either
        // the memory that is freed now is seen below, or whoever frees it sees this.
        self.is_short.store(true, Ordering::SeqCst);
        // SeqCst: as above.
        self.is_below_alert() && self.is_short.swap(false, Ordering::SeqCst)
    }

    /// Returns whether less than the alert threshold is used, or there is no limit.
    fn is_below_alert(&self) -> bool {
        self.memory_use().status() == MemoryStatus::Ok
    }

    /// Calls the observer when levels may grow that could not before.
    fn notify_spare(&self) {
        // SeqCst: see `has_spare`.
        if self.is_short.load(Ordering::SeqCst)
            && self.is_below_alert()
            && self.is_short.swap(false, Ordering::SeqCst)
            && let Some(observer) = self.spare_observer.get()
        {
            observer();
        }
    }

    /// Notes a table whose levels can be given up.
    pub(crate) fn note_levels(&self, table: &Arc<Table>) {
        let mut tables = self.with_levels.lock();
        tables.retain(|known| known.strong_count() > 0);
        if !tables.iter().any(|known| known.as_ptr() == Arc::as_ptr(table)) {
            tables.push(Arc::downgrade(table));
        }
    }

    /// Gives up the levels of all tables, for a write that is refused otherwise.
    pub(crate) fn give_up_levels(&self) {
        let tables: Vec<_> = self.with_levels.lock().iter().filter_map(Weak::upgrade).collect();
        tables.iter().for_each(|table| table.give_up_levels());
    }

    /// Counts a write that is refused, and returns its error.
    pub(crate) fn refuse(&self, needed: u64) -> TableError {
        // Relaxed: a number to report.
        self.refused.fetch_add(1, Ordering::Relaxed);
        let MemoryUse { used, limit, .. } = self.memory_use();
        match limit.filter(|limit| used.saturating_add(needed) > *limit) {
            Some(limit) => TableError::OutOfMemory { needed, used, limit },
            None => TableError::MachineFull { needed },
        }
    }

    /// Calls the observer when the threshold has just been passed.
    fn notify(&self) {
        // Relaxed: numbers to report.
        if self.limit.load(Ordering::Relaxed) == 0 {
            self.is_alerted.store(false, Ordering::Relaxed);
            return;
        }
        let now = self.memory_use();
        let is_close = now.status() != MemoryStatus::Ok;
        // Relaxed: whichever thread changes it calls the observer.
        if is_close == self.is_alerted.load(Ordering::Relaxed) {
            return;
        }
        let was = self.is_alerted.swap(is_close, Ordering::Relaxed);
        if is_close
            && !was
            && let Some(observer) = self.observer.get()
        {
            observer(now);
        }
    }
}

impl Account for MemoryBudget {
    fn charge(&self, bytes: i64) {
        if bytes == 0 {
            return;
        }
        // SeqCst: see `has_spare`.
        self.used.fetch_add(bytes, Ordering::SeqCst);
        self.notify();
        if bytes < 0 {
            self.notify_spare();
        }
    }
}

impl MemoryUse {
    /// Compares the use with the limit.
    pub fn status(&self) -> MemoryStatus {
        match (self.limit, self.alert_at) {
            (Some(limit), _) if self.used >= limit => MemoryStatus::Full,
            (_, Some(alert_at)) if self.used >= alert_at => MemoryStatus::Alert,
            _ => MemoryStatus::Ok,
        }
    }
}

impl fmt::Display for MemoryStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Alert => "alert",
            Self::Full => "full",
        })
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory_use().fmt(f)
    }
}

/// Converts a size to a signed one.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use lockstep_series::Account;

    use super::MemoryBudget;

    #[test]
    fn who_waits_for_spare_memory_is_called_once_when_there_is_some() {
        let budget = MemoryBudget::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&calls);
        // Relaxed, here and below: one thread counts.
        budget.observe_spare(move || {
            counting.fetch_add(1, Ordering::Relaxed);
        });
        let count = || calls.load(Ordering::Relaxed);
        budget.set_limit(Some(1_000));
        budget.charge(900);
        budget.charge(-500);
        assert_eq!(count(), 0, "nobody waits");
        budget.charge(500);
        assert!(!budget.has_spare());
        budget.charge(-50);
        assert_eq!(count(), 0, "there is still too little");
        budget.charge(-100);
        budget.charge(-100);
        assert_eq!(count(), 1);
        assert!(budget.has_spare());
        budget.charge(500);
        assert!(!budget.has_spare());
        budget.set_limit(None);
        assert_eq!(count(), 2, "the limit was removed");
        budget.set_limit(Some(1_000));
        assert!(!budget.has_spare());
        budget.set_alert_ppm(1_000_000);
        assert_eq!(count(), 2, "more than the limit is used");
        budget.set_limit(Some(3_000));
        assert_eq!(count(), 3);
    }
}
