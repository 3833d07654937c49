//! The messages that Lockstep's own calls of Arrow Flight have, for both ends: server and client.
//!
//! Flight SQL has calls for statements and the catalog; what it has not (request rows, several tables at
//! once, warnings, what a session's settings are) is in these messages, whose numbers never change.
//! `docs/flight.md` describes the calls. Knows no engine and no transport.

mod diagnostic;
mod session_options;

pub use diagnostic::DiagnosticMessage;
pub use session_options::{
    CloseSessionResult, GetSessionOptionsResult, OptionContent, OptionError, OptionErrorValue,
    SessionOptionValue, SetSessionOptionsRequest, SetSessionOptionsResult, StringList,
};

use prost::Message;

/// The header with the id of a call, which the client may give.
pub const REQUEST_ID_HEADER: &str = "x-request-id";

/// The header with the deadline of a call, in milliseconds from its begin.
pub const TIMEOUT_HEADER: &str = "lockstep-timeout-ms";

/// The header of an error with its SQLSTATE.
pub const SQLSTATE_HEADER: &str = "lockstep-sqlstate";

/// The header of an error with a [`DiagnosticMessage`].
pub const ERROR_HEADER: &str = "lockstep-error-bin";

/// What every type URL begins with.
const TYPE_PREFIX: &str = "type.googleapis.com/lockstep.";

/// A message that a ticket or a descriptor names by a type URL.
pub trait NamedMessage: Message + Default {
    /// The name behind the prefix.
    const NAME: &'static str;

    /// Returns the type URL.
    fn type_url() -> String {
        format!("{TYPE_PREFIX}{}", Self::NAME)
    }
}

/// A script, or one statement with parameters: the ticket of a `DoGet`, which runs it. The last message of
/// its rows has an [`StatementOutcome`] as metadata.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Execute {
    /// The text.
    #[prost(string, tag = "1")]
    pub sql: String,
    /// A value for each `?`: an Arrow stream with one row; empty where there is none.
    #[prost(bytes = "vec", tag = "2")]
    pub parameters: Vec<u8>,
    /// Whether only one query is allowed.
    #[prost(bool, tag = "3")]
    pub is_query: bool,
}

impl NamedMessage for Execute {
    const NAME: &'static str = "Execute";
}

/// The outcome of a statement, beside its rows.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatementOutcome {
    /// The rows that were written, by a statement that writes.
    #[prost(uint64, optional, tag = "1")]
    pub rows_affected: Option<u64>,
    /// The name of a statement without rows.
    #[prost(string, optional, tag = "2")]
    pub message: Option<String>,
    /// Warnings.
    #[prost(message, repeated, tag = "3")]
    pub warnings: Vec<DiagnosticMessage>,
    /// The session afterwards.
    #[prost(message, optional, tag = "4")]
    pub session: Option<SessionView>,
    /// The names of the columns, which may repeat; those of the schema are unique.
    #[prost(string, repeated, tag = "5")]
    pub names: Vec<String>,
}

/// What a client knows of its session: the settings by which it reads and prints values.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SessionView {
    /// The current database.
    #[prost(string, tag = "1")]
    pub database: String,
    /// The variable `time_zone`.
    #[prost(string, tag = "2")]
    pub time_zone: String,
    /// The variable `compatibility`.
    #[prost(string, tag = "3")]
    pub compatibility: String,
    /// The variable `nan_as_null`.
    #[prost(bool, tag = "4")]
    pub nan_is_null: bool,
}

/// The columns of a query that is bound and not run: the body of the action [`DESCRIBE`], whose result
/// is an Arrow schema.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Describe {
    /// The query.
    #[prost(string, tag = "1")]
    pub sql: String,
    /// Its parameters, as in [`Execute`].
    #[prost(bytes = "vec", tag = "2")]
    pub parameters: Vec<u8>,
}

/// The training set of a deployment: the ticket of a `DoGet`, whose rows end as those of [`Execute`], and the
/// body of the action [`DESCRIBE_TRAINING_SET`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TrainingSet {
    /// The deployment.
    #[prost(string, tag = "1")]
    pub deployment: String,
    /// The table whose rows are the requests; the deployment's own where there is none.
    #[prost(string, optional, tag = "2")]
    pub main_table: Option<String>,
    /// Whether each row sees only what had arrived before it.
    #[prost(bool, tag = "3")]
    pub as_known: bool,
}

impl NamedMessage for TrainingSet {
    const NAME: &'static str = "TrainingSet";
}

/// Columns: an Arrow schema with unique names, and the names, which may repeat.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ColumnList {
    /// The schema as an Arrow stream without rows.
    #[prost(bytes = "vec", tag = "1")]
    pub schema: Vec<u8>,
    /// The names.
    #[prost(string, repeated, tag = "2")]
    pub names: Vec<String>,
    /// What each column is to a model, as a signature in the select list marks it: `feature[label]`; an
    /// empty text for one without a mark. None where no column has one.
    #[prost(string, repeated, tag = "3")]
    pub roles: Vec<String>,
}

/// The rows of a `DoPut` that appends to one or more tables: the command of its descriptor. Rows follow a
/// schema message, whose metadata is the position of their table in the list: 32 bits, the least
/// significant byte first.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Append {
    /// The tables.
    #[prost(string, repeated, tag = "1")]
    pub tables: Vec<String>,
    /// `disk`, `os` or `memory`; the table's or the session's where there is none.
    #[prost(string, optional, tag = "2")]
    pub durability: Option<String>,
    /// The one table is created with the columns and the rows. Without it, the tables must exist.
    #[prost(enumeration = "AppendCreates", tag = "3")]
    pub creates: i32,
    /// `memory` or `disk`, where the rows of the table that is created lie; in memory where there is none.
    #[prost(string, optional, tag = "4")]
    pub storage_mode: Option<String>,
}

/// Whether an [`Append`] creates its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AppendCreates {
    /// It does not.
    No = 0,
    /// It does; a table of the name is an error.
    New = 1,
    /// It does, in place of a table of the name.
    Replacement = 2,
}

impl NamedMessage for Append {
    const NAME: &'static str = "Append";
}

/// A name: of a table for [`TABLE_COLUMNS`], of a deployment for [`DEPLOYMENT`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ObjectRef {
    /// `name` or `database.name`.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A table to create: the body of the action [`CREATE_TABLE`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TableCreation {
    /// The name.
    #[prost(string, tag = "1")]
    pub table: String,
    /// The columns, as an Arrow stream without rows.
    #[prost(bytes = "vec", tag = "2")]
    pub schema: Vec<u8>,
}

/// A deployment or a query to compile for request mode: the body of the action [`PREPARE_REQUEST`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PrepareRequest {
    /// The name of the deployment, or the query.
    #[prost(string, tag = "1")]
    pub target: String,
}

/// A compiled request that the server keeps.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RequestHandle {
    /// Its handle.
    #[prost(bytes = "vec", tag = "1")]
    pub handle: Vec<u8>,
    /// The columns of a request row.
    #[prost(message, optional, tag = "2")]
    pub input: Option<ColumnList>,
    /// The columns of an answer.
    #[prost(message, optional, tag = "3")]
    pub output: Option<ColumnList>,
    /// For each column of a request row, whether an answer depends on it; none: all do.
    #[prost(bool, repeated, tag = "4")]
    pub reads: Vec<bool>,
}

/// Request rows: the body of the action [`REQUEST`], whose result is an [`Answers`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeploymentRequest {
    /// The name of a deployment or a query; empty where there is a handle.
    #[prost(string, tag = "1")]
    pub target: String,
    /// The handle of a [`RequestHandle`].
    #[prost(bytes = "vec", tag = "2")]
    pub handle: Vec<u8>,
    /// The rows, as an Arrow stream.
    #[prost(bytes = "vec", tag = "3")]
    pub rows: Vec<u8>,
}

/// The answers to request rows; those to rows that a WHERE drops are left out.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Answers {
    /// The rows, as an Arrow stream.
    #[prost(bytes = "vec", tag = "1")]
    pub rows: Vec<u8>,
    /// The names of the columns, which may repeat.
    #[prost(string, repeated, tag = "2")]
    pub names: Vec<String>,
    /// The session.
    #[prost(message, optional, tag = "3")]
    pub session: Option<SessionView>,
}

/// A deployment: the result of the action [`DEPLOYMENT`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeploymentMessage {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its database.
    #[prost(string, tag = "2")]
    pub database: String,
    /// The query as it was written.
    #[prost(string, tag = "3")]
    pub sql: String,
    /// The columns of a request row.
    #[prost(message, optional, tag = "4")]
    pub input: Option<ColumnList>,
    /// The columns of an answer.
    #[prost(message, optional, tag = "5")]
    pub output: Option<ColumnList>,
    /// The value of `compatibility` when it was deployed.
    #[prost(string, tag = "6")]
    pub compatibility: String,
    /// The value of `time_zone` when it was deployed.
    #[prost(string, tag = "7")]
    pub time_zone: String,
    /// For each column of a request row, whether an answer depends on it; none: all do.
    #[prost(bool, repeated, tag = "8")]
    pub reads: Vec<bool>,
}

/// A deployment to verify: the body of the action [`VERIFY`], whose results are [`VerifyEvent`]s.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Verify {
    /// The deployment.
    #[prost(string, tag = "1")]
    pub deployment: String,
    /// How many of the stored rows are replayed; all where there is none.
    #[prost(uint64, optional, tag = "2")]
    pub sample: Option<u64>,
}

/// How far a verification is, or its result.
#[derive(Clone, PartialEq, Message)]
pub struct VerifyEvent {
    /// The fraction that is done.
    #[prost(double, tag = "1")]
    pub fraction: f64,
    /// The result, in the last event.
    #[prost(message, optional, tag = "2")]
    pub result: Option<VerifyResult>,
}

/// The result of a verification.
#[derive(Clone, PartialEq, Message)]
pub struct VerifyResult {
    /// The requests that were replayed.
    #[prost(uint64, tag = "1")]
    pub requests: u64,
    /// The values that were compared.
    #[prost(uint64, tag = "2")]
    pub values: u64,
    /// Those that differ.
    #[prost(uint64, tag = "3")]
    pub differing: u64,
    /// The first differences.
    #[prost(message, repeated, tag = "4")]
    pub differences: Vec<ValueDifference>,
    /// How many rows a second were verified.
    #[prost(double, tag = "5")]
    pub rows_per_second: f64,
}

/// A value on which the two modes do not agree.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ValueDifference {
    /// The stored row, in order of arrival.
    #[prost(uint64, tag = "1")]
    pub row: u64,
    /// The output column.
    #[prost(string, tag = "2")]
    pub column: String,
    /// The value in batch mode.
    #[prost(string, tag = "3")]
    pub batch: String,
    /// The value in request mode.
    #[prost(string, tag = "4")]
    pub request: String,
}

/// The call to cancel: the body of the action [`CANCEL`], whose result is empty.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Cancel {
    /// The id that the call was given in the header [`REQUEST_ID_HEADER`].
    #[prost(string, tag = "1")]
    pub request_id: String,
}

/// The words that the shell completes: the body of the action [`COMPLETE`] is an [`ObjectRef`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Words {
    /// The words.
    #[prost(string, repeated, tag = "1")]
    pub words: Vec<String>,
}

/// The action that binds a query: [`Describe`] to [`ColumnList`].
pub const DESCRIBE: &str = "lockstep.describe";
/// The action that returns a table's columns: [`ObjectRef`] to [`ColumnList`].
pub const TABLE_COLUMNS: &str = "lockstep.table_columns";
/// The action that creates a table from an Arrow schema: [`TableCreation`] to nothing.
pub const CREATE_TABLE: &str = "lockstep.create_table";
/// The action that compiles a request: [`PrepareRequest`] to [`RequestHandle`].
pub const PREPARE_REQUEST: &str = "lockstep.prepare_request";
/// The action that forgets a compiled request: [`RequestHandle`] to nothing.
pub const CLOSE_REQUEST: &str = "lockstep.close_request";
/// The action that answers request rows: [`DeploymentRequest`] to [`Answers`].
pub const REQUEST: &str = "lockstep.request";
/// The action that describes a deployment: [`ObjectRef`] to [`DeploymentMessage`].
pub const DEPLOYMENT: &str = "lockstep.deployment";
/// The action that binds the training set of a deployment: [`TrainingSet`] to [`ColumnList`].
pub const DESCRIBE_TRAINING_SET: &str = "lockstep.describe_training_set";
/// The action that verifies a deployment: [`Verify`] to [`VerifyEvent`]s.
pub const VERIFY: &str = "lockstep.verify";
/// The action that cancels a running call of the same user: [`Cancel`] to nothing.
pub const CANCEL: &str = "lockstep.cancel";
/// The action that completes a word: [`ObjectRef`] to [`Words`].
pub const COMPLETE: &str = "lockstep.complete";
/// The action that returns the session's settings: nothing to [`SessionView`].
pub const SESSION: &str = "lockstep.session";

/// Every action of Lockstep's own, with what it does.
pub const ACTIONS: &[(&str, &str)] = &[
    (DESCRIBE, "Binds a query and returns its columns."),
    (TABLE_COLUMNS, "Returns the columns of a table."),
    (CREATE_TABLE, "Creates a table with the columns of an Arrow schema."),
    (PREPARE_REQUEST, "Compiles a deployment or a query for request mode."),
    (CLOSE_REQUEST, "Closes a compiled request."),
    (REQUEST, "Answers request rows of a deployment or a query."),
    (DEPLOYMENT, "Describes a deployment."),
    (DESCRIBE_TRAINING_SET, "Returns the columns of a deployment's training set."),
    (VERIFY, "Replays stored rows through a deployment and compares the results with batch mode."),
    (CANCEL, "Cancels a running call of the same user by its request id."),
    (COMPLETE, "Returns completions for a word of a statement."),
    (SESSION, "Returns the settings of the session."),
];
