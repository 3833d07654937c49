//! The thread that moves the bytes of all connections, and the waiting of those who call it.

use std::{pin::pin, time::Duration};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{PerProcess, query};
use tokio::runtime::{Builder, Runtime};

/// How often a waiting call looks whether it was interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits on this thread until something is done, or the call is interrupted that the thread runs.
pub(crate) fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    runtime()?.block_on(async {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = work.as_mut() => return done,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            if let Err(interrupt) = query::checkpoint() {
                return Diagnostic::interrupted(interrupt.limit_ms()).err();
            }
        }
    })
}

/// Returns the runtime of all connections of the process, which the first one starts.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: PerProcess<Runtime> = PerProcess::new();
    let make = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("lockstep-kafka").enable_io().enable_time().build()
    };
    RUNTIME.get_or_make(make).map_err(|error| {
        let message = format!("could not start a thread for Kafka: {error}");
        Box::new(Diagnostic::new(code::OUT_OF_MEMORY, message).with_kind(Kind::FreeResources))
    })
}
