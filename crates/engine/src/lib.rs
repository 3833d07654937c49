//! The database: catalog, sessions, statements, deployments. The one public API boundary.
//!
//! Doors (shell, Python, servers) hold no logic: they make a [`Database`], open [`Session`]s and
//! render [`Output`]s and `Diagnostic`s. Nothing here speaks a protocol.
//!
//! ```
//! use lockstep_engine::Database;
//!
//! let session = Database::in_memory().session();
//! session.execute("CREATE TABLE t (k STRING, v INT, ts TIMESTAMP)")?;
//! session.execute("INSERT INTO t VALUES ('a', 1, 1000), ('a', 2, 2000)")?;
//! let output = session.execute(
//!     "SELECT k, sum(v) OVER w AS s FROM t
//!      WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1m PRECEDING AND CURRENT ROW)",
//! )?;
//! assert_eq!(output.row_count(), 2);
//! # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`database`](Database), `catalog` | the engine: catalog, clock, arrivals |
//! | [`session`](Session) | one user's settings; the statements |
//! | `definition`, `create_table`, `table_options` | databases, tables, indexes |
//! | `append`, [`appender`](Appender), `delete`, `literal`, `constant`, `load`, `offline_data` | writes |
//! | `parameters` | statements with `?` |
//! | [`context`](Limits) | limits, deadlines, who may interrupt a call |
//! | `relation`, `index_read`, `request`, `request_cache`, `deployment`, `procedure`, `verify` | queries in batch mode and in request mode |
//! | `settings`, `show`, `memory`, `job`, `user`, `inspect` | SET, SHOW, DESC, ESTIMATE, jobs, users, what exists as values |
//! | [`lint`] | warnings of DEPLOY, CREATE PROCEDURE and EXPLAIN |

mod append;
mod appender;
mod catalog;
mod config;
mod constant;
mod context;
mod conversion;
mod create_table;
mod database;
mod definition;
mod delete;
mod deployment;
mod index_read;
mod inspect;
mod job;
pub mod lint;
mod literal;
mod load;
mod memory;
mod offline_data;
mod outfile;
mod output;
mod parameters;
mod procedure;
mod relation;
mod request;
mod request_cache;
mod session;
mod settings;
mod show;
mod table_options;
mod user;
mod verify;

pub use appender::Appender;
pub use context::Limits;
pub use conversion::{Conversion, no_moment};
pub use database::Database;
pub use inspect::{DeploymentInfo, TableIndex};
pub use lockstep_diagnostic::{Diagnostic, Kind, Result, Span, code};
pub use lockstep_host::{Interrupt, QueryContext, QueryLimits};
#[doc(hidden)]
pub use lockstep_table::set_chunk_rows;
pub use output::Output;
pub use parameters::{Parameter, PreparedStatement};
pub use relation::{ProgressCallback, Relation};
pub use request::PreparedRequest;
pub use session::Session;
pub use verify::{Difference, Verification, VerifyOptions};
