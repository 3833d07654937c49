//! The handle by which an engine reaches its machine, so that a simulator replaces all of it at once.

use std::{
    fmt, io,
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
    thread,
};

use crate::{
    Clock, JoinHandle, SystemClock,
    file::{Disk, SystemDisk},
    random,
};

/// The machine of an engine: its clock, disk, random bytes and threads.
#[derive(Debug, Clone)]
pub struct Host {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Keeps what survives the process.
    pub disk: Arc<dyn Disk>,
    /// Gives the bytes of ids, salts and secrets.
    pub random: Arc<dyn RandomSource>,
    /// Gives the threads that work behind the callers.
    pub threads: Threads,
}

impl Default for Host {
    /// Returns the real machine.
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            disk: Arc::new(SystemDisk),
            random: Arc::new(SystemRandom),
            threads: Threads::System,
        }
    }
}

/// A source of random bytes.
pub trait RandomSource: Send + Sync + fmt::Debug {
    /// Returns 16 random bytes.
    fn id(&self) -> [u8; 16];
}

/// The random bytes of the machine, which nobody can predict.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    fn id(&self) -> [u8; 16] {
        random::id()
    }
}

/// Whether work may be done by threads of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Threads {
    /// By threads of the system.
    #[default]
    System,
    /// By no thread but the caller's, in an order that is the same each time: for simulators.
    None,
}

impl Threads {
    /// Starts a thread, as [`crate::spawn`] does. Fails where there are none.
    pub fn spawn<T: Send + 'static>(
        self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        self.check()?;
        crate::spawn(name, body)
    }

    /// Starts a thread of low priority, as [`crate::spawn_background`] does. Fails where there are none.
    pub fn spawn_background<T: Send + 'static>(
        self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        self.check()?;
        crate::spawn_background(name, body)
    }

    /// Runs long work of a call as [`crate::in_background`] does; on this thread where there are no
    /// others.
    pub fn in_background<T: Send>(self, name: &str, work: impl FnOnce() -> T + Send) -> T {
        match self {
            Self::System => crate::in_background(name, work),
            Self::None => work(),
        }
    }

    /// Returns how many threads may compute at once: as many as the machine, or the container, ran at the first
    /// call.
    pub fn count(self) -> NonZeroUsize {
        // The answer is read from files of the kernel, which takes longer than a small query.
        static COUNT: OnceLock<NonZeroUsize> = OnceLock::new();
        match self {
            Self::System => {
                *COUNT.get_or_init(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
            }
            Self::None => NonZeroUsize::MIN,
        }
    }

    fn check(self) -> io::Result<()> {
        match self {
            Self::System => Ok(()),
            Self::None => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{Host, Threads};

    #[test]
    fn without_threads_work_is_done_by_the_caller() {
        let here = thread::current().id();
        assert!(Threads::None.spawn("a", || ()).is_err());
        assert!(Threads::None.spawn_background("b", || ()).is_err());
        assert_eq!(Threads::None.in_background("c", || thread::current().id()), here);
        assert_ne!(Threads::System.in_background("d", || thread::current().id()), here);
        let there = Threads::System.spawn("e", || thread::current().id()).unwrap();
        assert_ne!(there.join().unwrap(), here);
    }

    #[test]
    fn the_machine_gives_other_bytes_each_time() {
        let host = Host::default();
        assert_ne!(host.random.id(), host.random.id());
    }
}
