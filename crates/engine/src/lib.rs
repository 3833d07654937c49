//! The database: catalog, sessions, statements, deployments. The one public API boundary.
//!
//! Front ends (shell, Python, servers) hold no logic: they make a [`Database`], open [`Session`]s
//! and render [`Output`]s and `Diagnostic`s. Nothing here speaks a protocol.
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
//! | `store`, [`recovery`](Database::open), [`checkpoint`](Database::checkpoint) | the directory of an engine, opening it, putting its log into files |
//! | [`check`](check()) | what is wrong with a directory, and saving what can be read of it |
//! | [`database`](Database), `catalog`, `user`, `job` | the engine: catalog, clock, memory budget |
//! | [`session`](Session), [`context`](Limits), `variables`, `parameters` | one user's settings, limits, the dispatch of statements |
//! | [`entrance`](CallOptions), [`authentication`](Proof), `access` | the entrance of every call, who calls, and what they may do |
//! | [`guard`](guarded()) | a panic as an error, for those who call the engine |
//! | [`session_list`](SessionInfo), [`audit`](AuditEvent) | the open sessions, what users did, slow requests |
//! | `statement`, `options`, `statement_description` | what each statement does, the reader of its options, what it will return |
//! | `append`, [`appender`](Appender), `offline_data`, [`conversion`](Conversion), `literal`, `constant` | rows into tables |
//! | [`continuous`](ContinuousQuery), `stream`, [`subscription`](Subscription) | continuous queries, the streams that they are, and rows as they are appended |
//! | `connector` | sources and sinks: rows from topics and files, and into them |
//! | `worker`, `progress` | the threads of streams, sources and sinks, and how far they are |
//! | [`text_rows`], [`json_text`] | rows from JSON and CSV, and values as JSON |
//! | `relation`, `query_stream`, `index_read`, `named_source` | queries in batch mode, and what they read that is not stored |
//! | `point_read` | whether a statement reads a few rows by key |
//! | `request`, `prepared_request`, `request_cache`, `deployment` | request mode |
//! | `verify`, `answer_log` | the comparison of the two modes, the answers that were given and their comparison |
//! | `system` | the tables of the database `lockstep` |
//! | [`outline`](outline()) | the parts of a query, for those who run it in pieces |
//! | `inspect` | the catalog as values |
//! | [`lint`] | warnings of DEPLOY, CREATE PROCEDURE and EXPLAIN |

mod access;
mod answer_log;
mod append;
mod append_tables;
mod appender;
mod audit;
mod authentication;
mod catalog;
mod check;
mod checkpoint;
mod checkpoint_thread;
mod compaction_thread;
mod connector;
mod constant;
mod context;
mod continuous;
mod conversion;
mod copied_rows;
mod database;
mod deployment;
mod entrance;
mod guard;
mod index_read;
mod inspect;
mod job;
pub mod json_text;
mod known;
pub mod lint;
mod literal;
mod load_thread;
mod log_error;
mod missing_columns;
mod named_source;
mod offline_data;
mod options;
mod outline;
mod output;
mod parameters;
mod point_read;
mod pre_aggregate_thread;
mod prepared_request;
mod progress;
mod query_stream;
mod recovery;
mod relation;
mod request;
mod request_cache;
mod session;
mod session_list;
mod statement;
mod statement_description;
mod store;
mod stream;
mod subscription;
mod system;
mod temporary;
pub mod text_rows;
mod training_set;
mod user;
mod variables;
mod verify;
mod view;
mod worker;

pub use access::TablePrivilege;
pub use append_tables::TableBatches;
pub use appender::Appender;
pub use audit::{AuditEvent, AuditListener, SlowRequest};
pub use authentication::{Proof, ScramVerifier};
pub use check::{
    CheckFinding, CheckResult, Salvage, SalvagedTable, check, check_as, salvage, salvage_as,
};
pub use checkpoint::Checkpoint;
pub use context::Limits;
pub use continuous::{ContinuousOptions, ContinuousQuery, FinalRows};
pub use conversion::{Conversion, time_text_error};
pub use database::Database;
pub use entrance::CallOptions;
pub use guard::guarded;
pub use inspect::{
    ConnectorInfo, DatabaseInfo, DeploymentInfo, IndexFigures, ProcedureInfo, StreamInfo,
    TableFigures, TableIndex,
};
#[doc(hidden)]
pub use lockstep_batch::{SpillAlways, set_parallel_rows_min, set_spill_always};
pub use lockstep_diagnostic::{Diagnostic, Kind, Result, Span, code};
pub use lockstep_function::scalar::feature_role::FeatureRole;
pub use lockstep_host::{Interrupt, QueryContext, QueryLimits};
pub use lockstep_sql::{masked, may_have_secret};
pub use lockstep_table::Durability;
#[doc(hidden)]
pub use lockstep_table::{DiskTuning, set_chunk_rows, set_disk_tuning, set_leaf_rows};
pub use missing_columns::missing_columns;
pub use named_source::{ArrowRows, FindObject};
pub use outline::outline;
pub use output::Output;
pub use parameters::{Parameter, ParsedScript, PreparedStatement};
pub use pre_aggregate_thread::PreAggregateFigures;
pub use prepared_request::{PreparedRequest, WeakRequest};
pub use query_stream::BeginRows;
#[doc(hidden)]
pub use recovery::StorageTuning;
pub use recovery::{OpenListener, OpenOptions, OpenProgress, Opened};
pub use relation::{ProgressCallback, Relation};
pub use session::Session;
pub use session_list::{CallListing, ClientInfo, SessionInfo};
pub use statement::{
    CreationOptions, IfExists, PassedRows, StorageMode, only_writes_rows, verification_columns,
};
pub use statement_description::{StatementDescription, StatementEffect};
pub use subscription::{Subscription, SubscriptionStart, is_subscription};
pub use training_set::TrainingSetOptions;
pub use verify::{Difference, Verification, VerifyOptions};
