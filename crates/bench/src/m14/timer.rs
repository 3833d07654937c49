//! When the next request of a load is due: one timer of the system for all connections of a thread.
//!
//! `load` waits here. Tokio's own timer counts whole milliseconds, more than an answer takes, and a
//! latency begins when its request is due. The timer is a descriptor that the thread waits for together
//! with its sockets: it sleeps until then, and the system wakes it some microseconds after the time. To
//! ask the clock again and again would be as precise, but would take a processor that the server needs; a
//! second thread that waits would have to wake this one for each request.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    convert::Infallible,
    fs::File,
    io::{self, ErrorKind, Read as _},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use lockstep_host::{Clock, SystemClock};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::oneshot,
};

use crate::error::{Result, Trying};

/// A time, and the number of the connection that waits for it.
type DueRequest = (u64, usize);

/// The timer of a thread.
#[derive(Debug)]
pub(super) struct LoadTimer {
    clock: SystemClock,
    /// Set to the first time that is waited for.
    timer: AsyncFd<File>,
    waiting: RefCell<BTreeMap<DueRequest, oneshot::Sender<()>>>,
}

impl LoadTimer {
    /// Makes a timer for the times of a clock. To be called where the runtime of the thread is entered.
    pub(super) fn new(clock: SystemClock) -> Result<Self> {
        let trying = || "create a timer".to_owned();
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: the call reads and writes no memory of this process.
        let descriptor = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error()).trying(trying);
        }
        // SAFETY: the descriptor is open, and nothing else has it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // SAFETY: the descriptor stays open, and the file has no other, until the registration ends.
        let timer =
            unsafe { AsyncFd::register_with_interest(File::from(descriptor), Interest::READABLE) };
        let timer = timer.map_err(io::Error::from).trying(trying)?;
        Ok(Self { clock, timer, waiting: RefCell::default() })
    }

    /// Waits until a request of a connection is due. [`Self::run`] has to run meanwhile.
    pub(super) async fn wait_until(&self, due_ns: u64, connection: usize) -> Result<()> {
        if due_ns <= self.clock.monotonic_ns() {
            return Ok(());
        }
        let (wake, woken) = oneshot::channel();
        let due = (due_ns, connection);
        let is_first = {
            let mut waiting = self.waiting.borrow_mut();
            let before = waiting.insert(due, wake);
            assert!(before.is_none(), "a connection waits for one request");
            waiting.first_key_value().is_some_and(|(first, _)| *first == due)
        };
        if is_first {
            self.set(due_ns)?;
        }
        woken.await.expect("the timer is borrowed, and keeps what wakes this");
        debug_assert!(due_ns <= self.clock.monotonic_ns(), "the request is due");
        Ok(())
    }

    /// Wakes those whose requests are due, until it is dropped.
    pub(super) async fn run(&self) -> Result<Infallible> {
        let trying = || "wait for a timer".to_owned();
        loop {
            let mut ready = self.timer.readable().await.trying(trying)?;
            let mut file = self.timer.get_ref();
            let read = file.read(&mut [0; size_of::<u64>()]);
            // Where the timer was set anew in between there is nothing to read.
            if let Err(error) = read
                && error.kind() != ErrorKind::WouldBlock
            {
                return Err(error).trying(trying);
            }
            ready.clear_ready();
            self.wake_due()?;
        }
    }

    fn wake_due(&self) -> Result<()> {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(first) = waiting.first_entry() {
            let (due_ns, _) = *first.key();
            if due_ns > self.clock.monotonic_ns() {
                return self.set(due_ns);
            }
            // After a failure its connection is gone.
            let _woken = first.remove().send(());
        }
        Ok(())
    }

    /// Sets the timer to a time of the clock.
    fn set(&self, due_ns: u64) -> Result<()> {
        // Zero would switch it off.
        let wait_ns = due_ns.saturating_sub(self.clock.monotonic_ns()).max(1);
        let wait = Duration::from_nanos(wait_ns);
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let after = libc::timespec {
            tv_sec: wait.as_secs().try_into().expect("a run takes no centuries"),
            tv_nsec: wait.subsec_nanos().into(),
        };
        let time = libc::itimerspec { it_interval: once, it_value: after };
        let descriptor = self.timer.as_raw_fd();
        // SAFETY: the descriptor is open, `time` is valid during the call, and no old value is written.
        let done =
            unsafe { libc::timerfd_settime(descriptor, 0, &raw const time, std::ptr::null_mut()) };
        if done < 0 {
            return Err(io::Error::last_os_error()).trying(|| "set a timer".to_owned());
        }
        Ok(())
    }
}
