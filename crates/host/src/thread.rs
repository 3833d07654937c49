//! Threads, which have names.

use std::{io, thread, time::Duration};

pub use std::thread::JoinHandle;

/// Starts a thread; the name is what a debugger and a panic message show. Fails when the machine
/// gives no further thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Waits for so many milliseconds. For background threads that look again from time to time; nobody
/// else waits for the clock.
#[expect(clippy::disallowed_methods, reason = "this is where threads wait")]
pub fn pause(ms: u32) {
    thread::sleep(Duration::from_millis(u64::from(ms)));
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_has_its_name() {
        let thread = super::spawn("reader", || std::thread::current().name().map(str::to_owned));
        assert_eq!(thread.unwrap().join().unwrap().as_deref(), Some("reader"));
    }
}
