//! The server: protocols in front of the engine.
//!
//! Called by `lockstep serve`. It reads calls, opens sessions, calls the engine and writes answers; it
//! holds no logic of the database. What protocols share is outside their modules: connections, phases,
//! pools, TLS, sessions and metrics.
//!
//! ```
//! use lockstep_engine::Database;
//! use lockstep_server::{DrainOutcome, RunningServer, ServerSettings};
//!
//! let mut settings = ServerSettings::default();
//! settings.set("http.listen", "127.0.0.1:0")?;
//! settings.set("postgres.listen", "127.0.0.1:0")?;
//! settings.set("flight.listen", "127.0.0.1:0")?;
//! let server = RunningServer::start(Database::in_memory(), settings)?;
//! assert!(server.http_address().ip().is_loopback());
//! assert!(server.postgres_address().is_some());
//! assert!(server.start_token().is_some(), "nobody has a password");
//! server.handle().drain();
//! assert_eq!(server.wait(), DrainOutcome::Finished);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod server;
mod server_state;
mod settings;

mod flight;
mod http;
mod postgres;

mod access;
mod append_columns;
mod arrow_input;
mod bounded_map;
mod call_id;
mod connections;
mod deployments;
mod http_connection;
mod log;
mod metrics;
mod phase;
mod protocol;
mod service_notification;
mod tls;
mod traces;
mod work_pool;

use lockstep_row::DataType;

pub use log::{log_line, log_to_stderr};
pub use metrics::definition::metrics_reference;
pub use server::{DrainOutcome, RunningServer, ServerHandle};
pub use service_notification::ServiceState;
pub use settings::{DECLARED, ServerSetting, ServerSettings, SettingError};

/// Returns the name that a type has for clients of PostgreSQL's protocol.
pub fn postgres_type_name(data_type: &DataType) -> &'static str {
    postgres::type_name(data_type)
}
