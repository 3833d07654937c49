//! An allocator that counts, so that an input's memory can be measured.
//!
//! A binary makes it its global allocator; without that every number here is 0. The counts are of
//! the whole process, which while fuzzing does nothing else.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

/// A process may hold this many bytes; past it an allocation fails, which ends the process.
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
        // Relaxed: the counts order nothing.
        let current = CURRENT_BYTES.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        if current > PROCESS_BYTES_MAX {
            CURRENT_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
            return ptr::null_mut();
        }
        PEAK_BYTES.fetch_max(current, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CURRENT_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `alloc` took the pointer from the system with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Begins a measurement: the bytes held now.
pub fn start() -> usize {
    let current = CURRENT_BYTES.load(Ordering::Relaxed);
    PEAK_BYTES.store(current, Ordering::Relaxed);
    current
}

/// The most bytes held since, beyond those of the beginning.
pub fn peak_since(start: usize) -> usize {
    PEAK_BYTES.load(Ordering::Relaxed).saturating_sub(start)
}
