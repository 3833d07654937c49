//! What can be measured: a system that is loaded, and its clients.
//!
//! Workloads implement it once for each system; `measure` drives it.

use crate::cell::Cell;
use crate::error::Result;

/// A system, loaded with a workload's data.
pub(crate) trait System: Sync {
    /// Its name in results.
    fn name(&self) -> &'static str;

    /// A client, made in the thread that uses it.
    fn connect(&self) -> Result<Box<dyn Client + '_>>;

    /// Memory that a row of the workload takes, in bytes, by the system's own account.
    fn bytes_per_row(&self) -> Option<f64>;
}

/// One client: a thread's connection. Requests have numbers; each client knows all of them.
pub(crate) trait Client {
    /// Performs one operation, reads what comes back, and forgets it.
    fn serve(&mut self, request: usize) -> Result<()>;

    /// Performs one operation and returns what comes back.
    fn answer(&mut self, request: usize) -> Result<Vec<Cell>>;
}
