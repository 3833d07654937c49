//! The process: its standard streams, and forks of it.
//!
//! Forked processes: values that a child has to make again, and values that only their process may use.
//!
//! A child has one thread, the one that forked. A value that relies on other threads (a pool, a
//! background thread) is stored in a [`PerProcess`] and made again when the child first uses it. A value
//! that shares something with the parent that only one of them may change (a file, a lock) has an
//! [`OwnerProcess`].

use std::{
    fmt, io, process,
    sync::{
        Once, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};
#[cfg(unix)]
use std::{
    fs,
    os::fd::{AsRawFd, IntoRawFd},
};

/// The largest descriptor of a standard stream.
#[cfg(unix)]
const STANDARD_DESCRIPTOR_MAX: i32 = 2;

/// Opens the null device for each standard stream that is closed. The next file that is opened would
/// take its descriptor otherwise, and what is printed would be written into that file.
#[cfg(unix)]
pub fn fill_standard_streams() -> io::Result<()> {
    loop {
        let null = match fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
            // A machine without the device, such as a bare container.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        if null.as_raw_fd() > STANDARD_DESCRIPTOR_MAX {
            return Ok(());
        }
        // It stays open, as the stream.
        let _stream = null.into_raw_fd();
    }
}

/// Does nothing: a file never takes the place of a closed stream.
#[cfg(not(unix))]
pub fn fill_standard_streams() -> io::Result<()> {
    Ok(())
}

/// How many forks lie between the first process that called [`OwnerProcess::current`] and this one.
static FORK_COUNT: AtomicU32 = AtomicU32::new(0);

/// The process that made a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerProcess {
    id: u32,
    fork_count: u32,
}

impl OwnerProcess {
    /// Returns this process.
    pub fn current() -> Self {
        static COUNTED: Once = Once::new();
        COUNTED.call_once(count_forks);
        // Relaxed: a fork has one thread, in which nothing runs beside it.
        Self { id: process::id(), fork_count: FORK_COUNT.load(Ordering::Relaxed) }
    }

    /// Returns whether this is the process. It is not where the process was forked from it. Costs a load.
    #[inline]
    pub fn is_current(self) -> bool {
        // Relaxed: as above.
        self.fork_count == FORK_COUNT.load(Ordering::Relaxed)
    }

    /// Returns the id of the process.
    pub fn id(self) -> u32 {
        self.id
    }
}

/// Counts forks from now on, in the children.
#[cfg(unix)]
fn count_forks() {
    extern "C" fn in_child() {
        // Relaxed: as above.
        FORK_COUNT.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the function does nothing that is not allowed between a fork and an exec.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    assert_eq!(refused, 0, "the machine has the memory for one more handler of forks");
}

/// Does nothing: there is no fork.
#[cfg(not(unix))]
fn count_forks() {}

/// A value that each process makes when it is first used. The value of the parent is never touched in
/// the child, which does not have its threads.
pub struct PerProcess<T: 'static> {
    /// A list that begins with the value of the oldest process, which forked the others.
    first: ListEnd<T>,
}

/// The rest of the list; not set at its end.
type ListEnd<T> = OnceLock<Box<ProcessValue<T>>>;

/// A value and the process that made it.
struct ProcessValue<T: 'static> {
    process: u32,
    value: T,
    next: ListEnd<T>,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// Makes it without a value.
    pub const fn new() -> Self {
        Self { first: OnceLock::new() }
    }

    /// Returns the value of this process; `make` makes it, unless another thread is faster. Fails when
    /// `make` does.
    pub fn get_or_make<E>(
        &'static self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&'static T, E> {
        let process = process::id();
        if let Ok(value) = self.find(process) {
            return Ok(value);
        }
        let mut own =
            Some(Box::new(ProcessValue { process, value: make()?, next: OnceLock::new() }));
        loop {
            match self.find(process) {
                Ok(value) => return Ok(value),
                Err(end) => own = own.and_then(|own| end.set(own).err()),
            }
        }
    }

    /// Finds the value of this process, or the end of the list.
    fn find(&'static self, process: u32) -> Result<&'static T, &'static ListEnd<T>> {
        let mut link = &self.first;
        while let Some(made) = link.get() {
            if made.process == process {
                return Ok(&made.value);
            }
            link = &made.next;
        }
        Err(link)
    }
}

impl<T: Send + Sync + 'static> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{OwnerProcess, PerProcess};

    #[test]
    fn a_value_is_made_once_and_not_by_a_failure() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        assert_eq!(VALUE.get_or_make(|| Err("no")), Err("no"));
        assert_eq!(VALUE.get_or_make(|| Ok::<_, ()>(1)), Ok(&1));
        assert_eq!(VALUE.get_or_make(|| Ok::<_, ()>(2)), Ok(&1));
    }
    #[test]
    fn a_forked_child_is_another_process() {
        let owner = OwnerProcess::current();
        assert!(owner.is_current());
        assert_eq!(owner.id(), std::process::id());
        // SAFETY: the child calls nothing but `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = i32::from(owner.is_current());
            // SAFETY: it ends the child, which shares nothing that has to be dropped.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: `child` is a child of this process, and `status` is valid.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, libc::WEXITSTATUS(status)), (child, 0));
        assert!(owner.is_current(), "the parent goes on");
    }
}
