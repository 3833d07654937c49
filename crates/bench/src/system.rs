//! The traits of what is measured: a loaded system and its clients.
//!
//! Workloads implement it once for each system; `measure` drives it.

use crate::answer::AnswerValue;
use crate::error::Result;

/// A system, loaded with a workload's data.
pub(crate) trait System: Sync {
    /// Returns its name in results.
    fn name(&self) -> &'static str;

    /// Opens a client, in the thread that uses it.
    fn connect(&self) -> Result<Box<dyn Client + '_>>;

    /// Returns memory that a row of the workload takes, in bytes, as the system states it.
    fn bytes_per_row(&self) -> Option<f64>;
}

/// One client: a thread's connection. Requests are numbered, and each client knows all of them.
pub(crate) trait Client {
    /// Performs one operation, reads the answer, and discards it.
    fn serve(&mut self, request: usize) -> Result<()>;

    /// Performs one operation and returns the answer.
    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>>;
}
