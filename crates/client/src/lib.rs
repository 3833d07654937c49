//! The client of a Lockstep server: what the shell and Python use for `lockstep://host:port`.
//!
//! A [`RemoteClient`] has a session with a server: USE and SET last. Its calls block, and several threads may
//! call at once. It speaks Arrow Flight SQL's transport with Lockstep's own messages
//! (`lockstep_protocol`), and an error is the `Diagnostic` that the engine gave.
//!
//! A call ends early where the thread's `QueryContext` is interrupted, or [`RemoteClient::cancel`] is called:
//! the server is told, and its answer counts, so that a write that was done is not reported as
//! cancelled.
//!
//! ```no_run
//! use lockstep_client::RemoteClient;
//!
//! let client = RemoteClient::connect("lockstep://app:secret@localhost:7433")?;
//! client.execute("USE shop", None)?.collect()?;
//! let mut rows = client.execute("SELECT user, price FROM purchases", None)?;
//! while let Some(batch) = rows.next_batch()? {
//!     println!("{} rows", batch.num_rows());
//! }
//! # Ok::<(), Box<lockstep_diagnostic::Diagnostic>>(())
//! ```

mod address;
mod append;
mod arrow_stream;
mod catalog;
mod connection;
mod failure;
mod request;
mod rows;
mod wait;

pub use address::{ServerAddress, TlsMode};
pub use append::{AppendedRows, RemoteCreation};
pub use catalog::{ClientDeployment, ColumnSet, VerifyListener};
pub use connection::RemoteClient;
pub use lockstep_protocol::{SessionView, TrainingSet, ValueDifference, VerifyResult};
pub use request::{ClientAnswers, ClientRequest};
pub use rows::{Rows, StatementResult};
