//! The memory that allocations take from the machine.
//!
//! Memory is accounted by these functions, so that what is reported is what the machine lacks, not the
//! size that was requested.

/// Returns the bytes of memory that an allocation of `size` bytes takes, with the allocator's own: the C
/// library puts 8 bytes before each allocation, gives memory in steps of 16 bytes, at least 32,
/// and from 128 KiB on in pages. A model: other allocators differ by some bytes.
pub const fn footprint(size: usize) -> usize {
    if size == 0 {
        return 0;
    }
    if size >= MAPPED_MIN {
        return (size + 16).next_multiple_of(PAGE);
    }
    let rounded = (size + 8).next_multiple_of(16);
    if rounded < 32 { 32 } else { rounded }
}

/// Returns the greatest size of at least `size` bytes that takes no more memory than `size` does.
pub const fn usable_size(size: usize) -> usize {
    let taken = footprint(size);
    if size >= MAPPED_MIN { taken - 16 } else { taken - 8 }
}

/// Gives freed memory that the allocator keeps back to the machine: the C library keeps what is between
/// allocations that are still in use. Takes some ten milliseconds for each gigabyte, during which
/// threads that allocate from the same arena wait: to be called after much was freed, by a background
/// thread.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: it is the C library's, takes any number, and may be called at any time.
        let _was_any = unsafe { malloc_trim(0) };
    }
}

/// From this size on an allocation is mapped separately.
const MAPPED_MIN: usize = 128 << 10;
const PAGE: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::{footprint, usable_size};

    #[test]
    fn an_allocation_of_the_usable_size_takes_no_more() {
        for size in 1..1_000 {
            assert!(usable_size(size) >= size, "{size}");
            assert_eq!(footprint(usable_size(size)), footprint(size), "{size}");
            assert!(footprint(usable_size(size) + 1) > footprint(size), "{size}");
        }
    }
}
