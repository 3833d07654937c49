//! How much memory the tables of an engine may hold (promise L6).
//!
//! Every table of an engine charges one [`MemoryBudget`] with what its rows and indexes take.
//! Above the limit writes are refused before anything of them is stored; reads, deletes and
//! retention go on. What a write will take is reserved first, so that several writers together do
//! not pass the limit either. What is charged is what the allocator took, until it is
//! really given back: what a DELETE or a late row replaces stays charged as long as somebody may
//! still read it, or nobody has freed it yet.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use lockstep_series::Account;

use crate::TableError;

/// What is told when the use of memory passes the alert threshold, once each time it does.
type Observer = Box<dyn Fn(MemoryUse) + Send + Sync>;

/// The memory of all tables of an engine, and its limit.
pub struct MemoryBudget {
    /// Bytes; 0 is no limit.
    limit: AtomicU64,
    /// The part of the limit from which on it is close, in millionths.
    alert_ppm: AtomicU64,
    used: AtomicI64,
    /// Whether the threshold was passed and not left again.
    is_alerted: AtomicBool,
    refused: AtomicU64,
    observer: OnceLock<Observer>,
}

/// How much memory is used, of how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that the tables hold, and what they held and was not freed yet.
    pub used: u64,
    /// The most bytes; `None` when there is no limit.
    pub limit: Option<u64>,
    /// From so many bytes on the limit is close.
    pub alert_at: Option<u64>,
    /// How many writes were refused since the engine was made.
    pub refused: u64,
}

/// How close the limit is.
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
/// The alert threshold when nobody sets it: four fifths.
const ALERT_PPM_DEFAULT: u64 = 800_000;

impl Default for MemoryBudget {
    fn default() -> Self {
        Self {
            limit: AtomicU64::new(0),
            alert_ppm: AtomicU64::new(ALERT_PPM_DEFAULT),
            used: AtomicI64::new(0),
            is_alerted: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            observer: OnceLock::new(),
        }
    }
}

impl MemoryBudget {
    /// Sets the most bytes that all tables may hold together; `None`: no limit. What is held
    /// already stays, also when it is more.
    pub fn set_limit(&self, limit: Option<u64>) {
        // Relaxed: a number that the next write goes by.
        self.limit.store(limit.unwrap_or(0), Ordering::Relaxed);
        self.look();
    }

    /// Sets the part of the limit, in millionths, from which on it is close.
    pub fn set_alert_ppm(&self, ppm: u64) {
        // Relaxed: as above.
        self.alert_ppm.store(ppm.min(PPM), Ordering::Relaxed);
        self.look();
    }

    /// Who is told when the use passes the alert threshold, on the thread that made it pass.
    /// The first observer stays.
    pub fn observe(&self, observer: impl Fn(MemoryUse) + Send + Sync + 'static) {
        // A second observer is not wanted by anybody yet.
        drop(self.observer.set(Box::new(observer)));
    }

    /// Takes room for memory beside the tables; whether there is any. [`Self::give_back`] returns it.
    pub fn take(&self, bytes: u64) -> bool {
        self.reserve(bytes)
    }

    /// Returns room.
    pub fn give_back(&self, bytes: u64) {
        self.charge(0_i64.saturating_sub_unsigned(bytes));
    }

    /// How much is used, of how much.
    pub fn memory_use(&self) -> MemoryUse {
        // Relaxed: numbers to report.
        let limit = Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0);
        let alert_ppm = self.alert_ppm.load(Ordering::Relaxed);
        let part = |limit: u64| u128::from(limit) * u128::from(alert_ppm) / u128::from(PPM);
        MemoryUse {
            used: self.used(),
            limit,
            alert_at: limit.map(|limit| u64::try_from(part(limit)).unwrap_or(u64::MAX)),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn used(&self) -> u64 {
        // Relaxed: a number to report. Below zero between two charges of different threads only.
        u64::try_from(self.used.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Takes room for a write; `false` when there is not enough.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        // Relaxed: the number itself is all that is shared.
        let limit = self.limit.load(Ordering::Relaxed);
        let wanted = signed(bytes);
        let before = self.used.fetch_add(wanted, Ordering::Relaxed);
        if limit > 0 && before.saturating_add(wanted) > signed(limit) {
            self.used.fetch_sub(wanted, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Says that a write was refused, and why.
    pub(crate) fn refuse(&self, needed: u64) -> TableError {
        // Relaxed: a number to report.
        self.refused.fetch_add(1, Ordering::Relaxed);
        let MemoryUse { used, limit, .. } = self.memory_use();
        TableError::OutOfMemory { needed, used, limit: limit.unwrap_or(0) }
    }

    /// Tells the observer when the threshold has just been passed.
    fn look(&self) {
        // Relaxed: numbers to report.
        if self.limit.load(Ordering::Relaxed) == 0 {
            self.is_alerted.store(false, Ordering::Relaxed);
            return;
        }
        let now = self.memory_use();
        let is_close = now.status() != MemoryStatus::Ok;
        // Relaxed: whoever changes it tells.
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
        // Relaxed: a number to report.
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.look();
    }
}

impl MemoryUse {
    /// How close the limit is.
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

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
