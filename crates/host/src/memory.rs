//! The memory that allocations take from the machine.
//!
//! Memory is accounted by these functions, so that what is reported is what the machine lacks, not the
//! size that was requested. [`may_take`] compares what is to be taken with the limits of the process.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// Lets threads that begin from now on share what the C library allocates from: by default, each of the first threads
/// reserves 64 MiB of addresses of its own, which a process whose addresses are limited lacks for stacks and rows.
#[cfg(target_os = "linux")]
fn share_arenas() {
    #[cfg(all(target_env = "gnu", not(miri)))]
    {
        use std::sync::Once;

        /// `M_ARENA_MAX` of `malloc.h`.
        const ARENA_MAX: std::ffi::c_int = -8;
        unsafe extern "C" {
            fn mallopt(option: std::ffi::c_int, value: std::ffi::c_int) -> std::ffi::c_int;
        }
        static SHARED: Once = Once::new();
        SHARED.call_once(|| {
            // SAFETY: it is the C library's, and may be called at any time; arenas that are there stay.
            let _was_set = unsafe { mallopt(ARENA_MAX, 1) };
        });
    }
}

/// What is left to the process beside large allocations: for small ones, which end the process where there
/// is no memory, and for the stacks of threads.
const RESERVE_BYTES: u64 = 64 << 20;

/// How much is taken between two looks at the limits.
const STEP_BYTES: u64 = 8 << 20;

/// How large the allocations are that memory is taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationSize {
    /// Some of them may be too large for freed memory that the allocator keeps.
    Any,
    /// All of them are small, as those of rows.
    Small,
}

/// Returns whether the process may take so many bytes more of the machine, where that limits the process:
/// by its address space (`RLIMIT_AS`) or by a control group. For memory whose size depends on data, before
/// it is taken; small amounts are added up, and compared with the limits together.
pub fn may_take(bytes: u64, size: AllocationSize) -> bool {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a number of several threads that need not agree on it.
    let taken = TAKEN.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    if taken < STEP_BYTES {
        return true;
    }
    let needed = taken.saturating_add(RESERVE_BYTES);
    let may_take = left().is_none_or(|left| left >= needed || is_covered(taken, left, size));
    // What was refused is not taken, and the next attempt looks again.
    let less = |taken: u64| Some(if may_take { 0 } else { taken.saturating_sub(bytes) });
    // Relaxed: as above.
    let _before = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    may_take
}

/// Returns whether freed memory that the allocator keeps covers what the machine lacks, where so many bytes are left.
/// Half of it counts, since it is in pieces; and half of the reserve must be left for what no piece is large enough for.
///
/// Where much was freed, the addresses of one stack count as left for small pieces: threads that have begun since the
/// memory was full have some of them, and writes must not be refused for ever.
fn is_covered(taken: u64, left: u64, size: AllocationSize) -> bool {
    debug_assert!(left < taken + RESERVE_BYTES, "{left} of {taken} bytes are left");
    let half = kept_by_allocator() / 2;
    if left >= RESERVE_BYTES / 2 {
        return left.saturating_add(half) >= taken.saturating_add(RESERVE_BYTES);
    }
    size == AllocationSize::Small
        && half >= taken.saturating_add(RESERVE_BYTES / 2)
        && limits::left_beside(1).is_none_or(|left| left >= RESERVE_BYTES / 2)
}

/// Returns the bytes that were freed and are kept by the C library for later allocations; 0 where that is
/// unknown. Walks its lists of free pieces under their locks: only for a write that is refused otherwise.
fn kept_by_allocator() -> u64 {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        /// The result of `mallinfo`, in which each number is a C `int`.
        #[repr(C)]
        struct AllocatorUse {
            _before: [u32; 8],
            free_bytes: u32,
            _top_bytes: u32,
        }
        unsafe extern "C" {
            fn mallinfo() -> AllocatorUse;
        }
        // SAFETY: it is the C library's, takes nothing, and may be called at any time.
        let found = unsafe { mallinfo() };
        // Beyond 4 GiB the number starts again from 0: too little is assumed then.
        u64::from(found.free_bytes)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
    0
}

/// Returns the bytes that the process may still take; `None` where nothing is known to limit it.
pub fn left() -> Option<u64> {
    limits::left_beside(STACKS)
}

/// The addresses of the stacks of so many statements that begin are kept.
const STACKS: u64 = 2;

/// Returns the bytes that the process may take in all: of the machine, or of a lower limit; `None` where
/// nothing is known to limit it.
pub fn total() -> Option<u64> {
    limits::total()
}

#[cfg(target_os = "linux")]
mod limits {
    //! Linux: the memory of the machine, the limit of the address space, and control groups of both versions.

    use std::{
        fs,
        path::{Path, PathBuf},
        sync::OnceLock,
    };

    use rustix::process::{Resource, getrlimit};

    use super::share_arenas;
    use crate::stack::STACK_BYTES;

    /// Returns what is left beside the stacks of so many statements that begin. Of a stack addresses are kept alone,
    /// for little of it is used.
    pub(super) fn left_beside(stacks: u64) -> Option<u64> {
        let groups = groups().iter().filter_map(left_in);
        groups.chain(left_of_addresses(stacks * STACK_BYTES as u64)).min()
    }

    pub(super) fn total() -> Option<u64> {
        let groups = groups().iter().filter_map(limit_of);
        groups.chain(getrlimit(Resource::As).current).chain(of_machine()).min()
    }

    fn of_machine() -> Option<u64> {
        let text = fs::read_to_string("/proc/meminfo").ok()?;
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kilobytes: u64 = total.trim().strip_suffix(" kB")?.parse().ok()?;
        kilobytes.checked_mul(1_024)
    }

    /// Returns what is left of the address space beside what is kept.
    fn left_of_addresses(kept: u64) -> Option<u64> {
        let limit = getrlimit(Resource::As).current?;
        share_arenas();
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let used = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
        let kilobytes: u64 = used.trim().strip_suffix(" kB")?.parse().ok()?;
        let used = kilobytes.saturating_mul(1_024).saturating_add(kept);
        Some(limit.saturating_sub(used))
    }

    /// A control group that limits memory.
    struct MemoryGroup {
        folder: PathBuf,
        files: &'static GroupFiles,
    }

    /// Where a control group says what it may take, and what it takes.
    struct GroupFiles {
        /// The controller whose hierarchy it is; empty for all of them.
        controller: &'static str,
        root: &'static str,
        limit: &'static str,
        used: &'static str,
        /// What the line of the pages of files that are not in use begins with.
        inactive_file: &'static str,
    }

    const VERSIONS: [GroupFiles; 2] = [
        GroupFiles {
            controller: "",
            root: "/sys/fs/cgroup",
            limit: "memory.max",
            used: "memory.current",
            inactive_file: "inactive_file ",
        },
        GroupFiles {
            controller: "memory",
            root: "/sys/fs/cgroup/memory",
            limit: "memory.limit_in_bytes",
            used: "memory.usage_in_bytes",
            inactive_file: "total_inactive_file ",
        },
    ];

    /// The first version writes about so many bytes where there is no limit.
    const NO_LIMIT: u64 = 1 << 62;

    /// Returns the control groups of the process that limit memory. In a container its own one is the root, and
    /// its path that of the machine, so that the folders above it are tried as well.
    fn groups() -> &'static [MemoryGroup] {
        static GROUPS: OnceLock<Vec<MemoryGroup>> = OnceLock::new();
        GROUPS.get_or_init(|| {
            let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            VERSIONS.iter().flat_map(|files| groups_of(files, &text)).collect()
        })
    }

    fn groups_of(files: &'static GroupFiles, text: &str) -> Vec<MemoryGroup> {
        let root = Path::new(files.root);
        // The number of the hierarchy, its controllers, and the path of the group.
        let own = text.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
            controllers.split(',').any(|name| name == files.controller).then_some(path)
        });
        let Some(own) = own else { return Vec::new() };
        let own = root.join(own);
        debug_assert!(own.starts_with(root), "a path below the root");
        let above = own.ancestors().take_while(|folder| folder.starts_with(root));
        let groups = above.map(|folder| MemoryGroup { folder: folder.to_owned(), files });
        groups.filter(|group| limit_of(group).is_some()).collect()
    }

    fn number_in(group: &MemoryGroup, file: &str) -> Option<u64> {
        fs::read_to_string(group.folder.join(file)).ok()?.trim().parse().ok()
    }

    fn limit_of(group: &MemoryGroup) -> Option<u64> {
        number_in(group, group.files.limit).filter(|limit| *limit < NO_LIMIT)
    }

    /// Returns what is left in a group, in which the system gives up pages of files that are not in use.
    fn left_in(group: &MemoryGroup) -> Option<u64> {
        let used = number_in(group, group.files.used)?;
        let statistics = fs::read_to_string(group.folder.join("memory.stat")).unwrap_or_default();
        let inactive = group.files.inactive_file;
        let of_files = statistics.lines().find_map(|line| line.strip_prefix(inactive));
        let of_files: u64 = of_files.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        Some(limit_of(group)?.saturating_sub(used.saturating_sub(of_files)))
    }

    #[cfg(test)]
    mod tests {
        use super::{VERSIONS, groups_of};

        #[test]
        fn a_process_without_a_group_of_a_version_has_no_limit_of_it() {
            for files in &VERSIONS {
                assert!(groups_of(files, "").is_empty());
                assert!(groups_of(files, "3:cpu,memory2:/x\n4:name=memory:/y\n").is_empty());
                assert!(groups_of(files, "nothing of the kind\n::\n").is_empty());
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod limits {
    //! Other systems, whose limits are not looked at.

    pub(super) fn left_beside(_stacks: u64) -> Option<u64> {
        None
    }

    pub(super) fn total() -> Option<u64> {
        None
    }
}

/// From this size on an allocation is mapped separately.
const MAPPED_MIN: usize = 128 << 10;
const PAGE: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::{AllocationSize, RESERVE_BYTES, footprint, is_covered, usable_size};

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn memory_that_was_freed_covers_what_the_machine_lacks() {
        let mut pieces: Vec<Box<[u8; 1_024]>> =
            (0..200_000).map(|_| Box::new([1; 1_024])).collect();
        // The last piece keeps the allocator from giving the others back.
        let last = pieces.pop();
        drop(pieces);
        for size in [AllocationSize::Small, AllocationSize::Any] {
            assert!(is_covered(80 << 20, RESERVE_BYTES, size), "half of what was freed");
            assert!(!is_covered(4 << 30, RESERVE_BYTES, size), "more than was freed");
            assert!(!is_covered(80 << 20, 0, size), "the reserve is used up");
        }
        assert!(is_covered(50 << 20, 0, AllocationSize::Small), "much was freed");
        assert!(!is_covered(50 << 20, 0, AllocationSize::Any), "they may not fit");
        drop(last);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_left_is_less_than_all() {
        let all = super::total().unwrap();
        assert!(super::left().is_none_or(|left| left <= all), "{all}");
    }

    #[test]
    fn an_allocation_of_the_usable_size_takes_no_more() {
        for size in 1..1_000 {
            assert!(usable_size(size) >= size, "{size}");
            assert_eq!(footprint(usable_size(size)), footprint(size), "{size}");
            assert!(footprint(usable_size(size) + 1) > footprint(size), "{size}");
        }
    }
}
