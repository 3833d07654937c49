//! A counting allocator, which measures the memory of an input.
//!
//! Without it as the global allocator, every number here is 0. The counts are of the whole process,
//! which does nothing else while fuzzing.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The limit of the process in bytes; an allocation above it fails, which ends the process.
pub const PROCESS_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;

static CURRENT_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call is passed on to the system's allocator with the same layout; a null pointer is
// an allowed answer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: the counts order no other memory.
        let current = CURRENT_BYTES.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        if current > PROCESS_BYTES_MAX {
            CURRENT_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
            return ptr::null_mut();
        }
        PEAK_BYTES.fetch_max(current, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract for `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CURRENT_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `alloc` took the pointer from the system with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Starts a measurement and returns the bytes allocated now.
pub fn start() -> usize {
    let current = CURRENT_BYTES.load(Ordering::Relaxed);
    PEAK_BYTES.store(current, Ordering::Relaxed);
    current
}

/// Returns the peak of allocated bytes since then, without those of the start.
pub fn peak_since(start: usize) -> usize {
    PEAK_BYTES.load(Ordering::Relaxed).saturating_sub(start)
}
