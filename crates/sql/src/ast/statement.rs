//! Statements, and the options and definitions that they contain.

use lockstep_diagnostic::Span;

use super::{Expr, Ident, Literal, ObjectName, Query, TypeName};

/// `key = value` in OPTIONS, CONFIG and INDEX.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionItem {
    /// The key, in lower case.
    pub key: Ident,
    /// The value.
    pub value: OptionValue,
    /// The position of the value.
    pub span: Span,
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// A constant (signed numbers included).
    Literal(Literal),
    /// A bare word, such as a column name or `latest`.
    Word(String),
    /// `(a, b)`, `[a, b]`.
    List(Vec<Self>),
    /// A call, such as `timestamp(4000)` among the values of a request row.
    Expr(Box<Expr>),
}

/// `ESTIMATE TABLE t [ROWS n] [KEYS n, …] [TEXT n]`: the memory and the files of a table with so many rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The table.
    pub table: ObjectName,
    /// The number of rows; `None`: those that are there.
    pub rows: Option<u64>,
    /// The number of entity keys, by index; empty when not given.
    pub keys: Vec<u64>,
    /// The bytes of a STRING.
    pub text_bytes: Option<u64>,
    /// The position of the numbers.
    pub span: Span,
}

/// A column of CREATE TABLE.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDefinition {
    /// The name.
    pub name: Ident,
    /// The type.
    pub data_type: TypeName,
    /// NOT NULL.
    pub not_null: bool,
    /// DEFAULT.
    pub default: Option<Expr>,
}

/// INDEX(KEY=…, TS=…, TTL=…, `TTL_TYPE`=…).
#[derive(Debug, Clone, PartialEq)]
pub struct IndexDefinition {
    /// The name, which only the form `INDEX name (a, b) OPTIONS(…)` has; its columns become the
    /// option `key`.
    pub name: Option<Ident>,
    /// The options.
    pub options: Vec<OptionItem>,
    /// Its position in the text.
    pub span: Span,
}

/// PRIMARY KEY (a, b): its columns have no NULL, and an index keeps the newest row of each key.
#[derive(Debug, Clone, PartialEq)]
pub struct PrimaryKey {
    /// The columns.
    pub columns: Vec<Ident>,
    /// The index.
    pub index: IndexDefinition,
}

/// CREATE TABLE.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    /// The name.
    pub name: ObjectName,
    /// OR REPLACE.
    pub or_replace: bool,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The columns.
    pub columns: Vec<ColumnDefinition>,
    /// The indexes.
    pub indexes: Vec<IndexDefinition>,
    /// The primary keys, of which a table may have one.
    pub primary_keys: Vec<PrimaryKey>,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
    /// LIKE PARQUET 'path': take the columns from a file.
    pub like: Option<CreateLike>,
    /// AS SELECT …: take the columns and the rows of a query.
    pub query: Option<Query>,
}

/// CREATE VIEW, CREATE EXTERNAL TABLE.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateView {
    /// The name.
    pub name: ObjectName,
    /// OR REPLACE.
    pub or_replace: bool,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// Which of the two.
    pub form: ViewForm,
    /// The query.
    pub query: Query,
}

/// CREATE STREAM name INTO TABLE t [OPTIONS(…)] AS SELECT ….
#[derive(Debug, Clone, PartialEq)]
pub struct CreateStream {
    /// The name.
    pub name: ObjectName,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The table that takes the rows.
    pub target: ObjectName,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
    /// The query.
    pub query: Query,
}

/// Which way the rows of a connector go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectorKind {
    /// CREATE SOURCE: into a table.
    Source,
    /// CREATE SINK: from a table or a stream.
    Sink,
}

/// What a source reads from, or a sink writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectorSystem {
    /// KAFKA: a topic.
    Kafka,
    /// FILES: the files of a folder.
    Files,
}

/// CREATE SOURCE name INTO TABLE t FROM KAFKA OPTIONS(…), or CREATE SINK name FROM STREAM s INTO FILES OPTIONS(…).
#[derive(Debug, Clone, PartialEq)]
pub struct CreateConnector {
    /// Which of the two.
    pub kind: ConnectorKind,
    /// The name.
    pub name: ObjectName,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The table, or of a sink the stream.
    pub rows: ObjectName,
    /// Whether `rows` is a stream.
    pub is_stream: bool,
    /// KAFKA or FILES.
    pub system: ConnectorSystem,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
}

/// How a view is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewForm {
    /// VIEW … AS query.
    View,
    /// EXTERNAL TABLE … STORED AS …: its query reads all columns of files, and has the position of the text
    /// from STORED on.
    ExternalTable,
}

/// CREATE TABLE … LIKE PARQUET 'path'.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateLike {
    /// `parquet` or `hive`, in lower case.
    pub format: String,
    /// The path.
    pub path: String,
    /// The position of the path.
    pub span: Span,
}

/// INSERT.
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// The table.
    pub table: ObjectName,
    /// The rows that are left out.
    pub ignored: IgnoredRows,
    /// The columns, if given.
    pub columns: Vec<Ident>,
    /// The rows of VALUES.
    pub rows: Vec<InsertRow>,
    /// SELECT …, instead of VALUES.
    pub query: Option<Query>,
}

/// The rows that INSERT leaves out.
#[derive(Debug, Clone, PartialEq)]
pub enum IgnoredRows {
    /// None.
    None,
    /// OR IGNORE: rows that equal a stored one.
    Equal,
    /// ON CONFLICT \[(a, b)\] DO NOTHING: rows with a key that a stored row has.
    WithKeys {
        /// The columns of the key, if given.
        columns: Option<Vec<Ident>>,
        /// The position of the columns.
        span: Span,
    },
}

/// One row of VALUES.
#[derive(Debug, Clone, PartialEq)]
pub struct InsertRow {
    /// The values.
    pub values: Vec<Expr>,
    /// Its position in the text.
    pub span: Span,
}

/// LOAD DATA INFILE 'path' INTO TABLE t OPTIONS(…) CONFIG(…).
#[derive(Debug, Clone, PartialEq)]
pub struct LoadData {
    /// The path.
    pub path: String,
    /// The position of the path.
    pub path_span: Span,
    /// The table.
    pub table: ObjectName,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
    /// CONFIG(…).
    pub config: Vec<OptionItem>,
}

/// DEPLOY [IF NOT EXISTS] name [OPTIONS(…)] [AS] SELECT ….
#[derive(Debug, Clone, PartialEq)]
pub struct Deploy {
    /// The name.
    pub name: ObjectName,
    /// OR REPLACE.
    pub or_replace: bool,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
    /// The query.
    pub query: Query,
    /// The query's text: what SHOW DEPLOYMENT prints.
    pub query_span: Span,
}

/// CREATE INDEX name ON t (columns) OPTIONS(…).
#[derive(Debug, Clone, PartialEq)]
pub struct CreateIndex {
    /// The name.
    pub name: Ident,
    /// The table.
    pub table: ObjectName,
    /// The key columns.
    pub columns: Vec<Ident>,
    /// OPTIONS(ts=…, ttl=…, `ttl_type`=…).
    pub options: Vec<OptionItem>,
}

/// The forms of SHOW.
#[derive(Debug, Clone, PartialEq)]
pub enum Show {
    /// SHOW DATABASES.
    Databases,
    /// SHOW TABLES.
    Tables,
    /// SHOW CREATE TABLE t.
    CreateTable(ObjectName),
    /// SHOW VIEWS.
    Views,
    /// SHOW CREATE VIEW v.
    CreateView(ObjectName),
    /// SHOW STREAMS.
    Streams,
    /// SHOW CREATE STREAM s.
    CreateStream(ObjectName),
    /// SHOW SOURCES, SHOW SINKS.
    Connectors(ConnectorKind),
    /// SHOW CREATE SOURCE s, SHOW CREATE SINK s.
    CreateConnector(ConnectorKind, ObjectName),
    /// SHOW DEPLOYMENTS.
    Deployments,
    /// SHOW DEPLOYMENT d.
    Deployment(ObjectName),
    /// SHOW FUNCTIONS.
    Functions,
    /// SHOW [SESSION] VARIABLES.
    Variables,
    /// SHOW GLOBAL VARIABLES.
    GlobalVariables,
    /// SHOW TABLE STATUS [LIKE 'pattern'].
    TableStatus(Option<String>),
    /// SHOW COMPONENTS.
    Components,
    /// SHOW MEMORY.
    Memory,
    /// SHOW PROCEDURES, SHOW PROCEDURE STATUS.
    Procedures,
    /// SHOW CREATE PROCEDURE p.
    CreateProcedure(ObjectName),
    /// SHOW JOBS [FROM component] [LIKE 'id'].
    Jobs {
        /// The component, in lower case.
        component: Option<String>,
        /// The pattern.
        like: Option<String>,
    },
    /// SHOW JOB id.
    Job(String),
    /// SHOW JOBLOG id.
    JobLog(String),
    /// SHOW `CURRENT_USER`.
    CurrentUser,
    /// SHOW INDEXES FROM t.
    Indexes(ObjectName),
    /// SHOW GRANTS [FOR user].
    Grants(Option<Ident>),
    /// SHOW USERS.
    Users,
    /// SHOW ROLES.
    Roles,
    /// SHOW TOKENS [FOR user].
    Tokens(Option<Ident>),
}

/// A parameter of a procedure or function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterDefinition {
    /// The name.
    pub name: Ident,
    /// The type.
    pub data_type: TypeName,
    /// CONST: equal in all rows of a batch request.
    pub constant: bool,
}

/// CREATE PROCEDURE p (parameters) BEGIN queries END.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the statement")]
pub struct CreateProcedure {
    /// The name.
    pub name: ObjectName,
    /// OR REPLACE.
    pub or_replace: bool,
    /// TEMP.
    pub temporary: bool,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The parameters: the columns of the request table.
    pub parameters: Vec<ParameterDefinition>,
    /// OPTIONS.
    pub options: Vec<OptionItem>,
    /// The queries between BEGIN and END.
    pub body: Vec<Query>,
    /// The whole statement: what SHOW CREATE PROCEDURE prints.
    pub span: Span,
}

/// CREATE \[AGGREGATE\] FUNCTION f(parameters) RETURNS type OPTIONS(…).
#[derive(Debug, Clone, PartialEq)]
pub struct CreateFunction {
    /// The name.
    pub name: Ident,
    /// AGGREGATE.
    pub aggregate: bool,
    /// The parameters.
    pub parameters: Vec<ParameterDefinition>,
    /// RETURNS.
    pub returns: TypeName,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
}

/// One action of ALTER TABLE.
#[derive(Debug, Clone, PartialEq)]
pub enum AlterTableAction {
    /// ADD or DROP `offline_path` 'uri'.
    OfflinePath {
        /// ADD; DROP otherwise.
        add: bool,
        /// The path.
        path: String,
        /// The position of the path.
        span: Span,
    },
    /// ADD \[COLUMN\] c type \[NOT NULL\] \[DEFAULT e\].
    AddColumn {
        /// The column.
        column: Box<ColumnDefinition>,
        /// IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// DROP \[COLUMN\] c.
    DropColumn {
        /// The column.
        column: Ident,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// ADD \[CONSTRAINT name\] PRIMARY KEY (a, b).
    AddPrimaryKey(PrimaryKey),
    /// RENAME \[COLUMN\] c TO d.
    RenameColumn {
        /// The column.
        column: Ident,
        /// Its new name.
        to: Ident,
    },
    /// SET OPTIONS(…).
    SetOptions {
        /// The options.
        options: Vec<OptionItem>,
        /// The position of SET.
        span: Span,
    },
}

/// CREATE USER, ALTER USER.
#[derive(Debug, Clone, PartialEq)]
pub struct UserDefinition {
    /// The name.
    pub name: Ident,
    /// CREATE USER IF NOT EXISTS, ALTER USER IF EXISTS.
    pub conditional: bool,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
}

/// A part of the name of the object of a GRANT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectPart {
    /// `*`.
    All(Span),
    /// A name.
    Name(Ident),
}

/// GRANT roles TO users, REVOKE roles FROM users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleMembership {
    /// GRANT; REVOKE otherwise.
    pub is_granted: bool,
    /// The roles.
    pub roles: Vec<Ident>,
    /// The users and roles that get or lose them.
    pub members: Vec<Ident>,
}

/// CREATE TOKEN name [FOR user] OPTIONS(…).
#[derive(Debug, Clone, PartialEq)]
pub struct CreateToken {
    /// The name, unique for the user.
    pub name: Ident,
    /// The user; that of the session where there is none.
    pub user: Option<Ident>,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
}

/// GRANT, REVOKE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privileges {
    /// GRANT; REVOKE otherwise.
    pub is_granted: bool,
    /// The privileges in upper case; ALL is one.
    pub privileges: Vec<Ident>,
    /// TABLE, DATABASE or DEPLOYMENT, in upper case, if given.
    pub object_kind: Option<String>,
    /// The object: its database, and its table or deployment unless the whole database is meant.
    pub object: Vec<ObjectPart>,
    /// The users and roles.
    pub users: Vec<Ident>,
    /// WITH GRANT OPTION.
    pub with_grant_option: bool,
}

/// With what VERIFY compares a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyAgainst {
    /// Batch mode, over the rows that are stored.
    BatchMode,
    /// AGAINST ANSWERS: the answers that were logged.
    Answers,
}

/// A statement about a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamStatement {
    /// CREATE STREAM.
    Create(Box<CreateStream>),
    /// DROP STREAM.
    Drop {
        /// The name.
        name: ObjectName,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// ALTER STREAM … SET OPTIONS(…).
    Alter {
        /// The name.
        name: ObjectName,
        /// OPTIONS(…).
        options: Vec<OptionItem>,
    },
    /// START STREAM.
    Start(ObjectName),
    /// STOP STREAM.
    Stop(ObjectName),
    /// EXPLAIN STREAM.
    Explain(ObjectName),
    /// SUBSCRIBE TO name [OPTIONS(…)].
    Subscribe {
        /// The stream or the table.
        name: ObjectName,
        /// OPTIONS(…).
        options: Vec<OptionItem>,
    },
}

/// A statement about a source or a sink.
#[derive(Debug, Clone, PartialEq)]
pub enum ConnectorStatement {
    /// CREATE SOURCE, CREATE SINK.
    Create(Box<CreateConnector>),
    /// DROP SOURCE, DROP SINK.
    Drop {
        /// Which of the two.
        kind: ConnectorKind,
        /// The name.
        name: ObjectName,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// ALTER SOURCE … SET OPTIONS(…), ALTER SINK … SET OPTIONS(…).
    Alter {
        /// Which of the two.
        kind: ConnectorKind,
        /// The name.
        name: ObjectName,
        /// OPTIONS(…).
        options: Vec<OptionItem>,
    },
    /// START SOURCE, START SINK.
    Start(ConnectorKind, ObjectName),
    /// STOP SOURCE, STOP SINK.
    Stop(ConnectorKind, ObjectName),
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// A query.
    Query(Box<Query>),
    /// EXPLAIN.
    Explain {
        /// The query.
        query: Box<Query>,
        /// Whether it is run and measured.
        analyze: bool,
    },
    /// VERIFY DEPLOYMENT.
    VerifyDeployment {
        /// The deployment.
        name: ObjectName,
        /// With what it is compared.
        against: VerifyAgainst,
        /// OPTIONS(…).
        options: Vec<OptionItem>,
    },
    /// CREATE DATABASE.
    CreateDatabase {
        /// The name.
        name: Ident,
        /// IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// DROP DATABASE.
    DropDatabase {
        /// The name.
        name: Ident,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// USE.
    Use(Ident),
    /// CREATE TABLE.
    CreateTable(Box<CreateTable>),
    /// DROP TABLE.
    DropTable {
        /// The names; at least one.
        names: Vec<ObjectName>,
        /// IF EXISTS.
        if_exists: bool,
        /// CASCADE: also drops what reads the table.
        cascade: bool,
    },
    /// CREATE VIEW.
    CreateView(Box<CreateView>),
    /// DROP VIEW.
    DropView {
        /// The name.
        name: ObjectName,
        /// IF EXISTS.
        if_exists: bool,
        /// CASCADE: also drops what reads the view.
        cascade: bool,
    },
    /// A statement about a stream.
    Stream(StreamStatement),
    /// A statement about a source or a sink.
    Connector(ConnectorStatement),
    /// CREATE INDEX.
    CreateIndex(Box<CreateIndex>),
    /// INSERT.
    Insert(Box<Insert>),
    /// LOAD DATA.
    LoadData(Box<LoadData>),
    /// DEPLOY.
    Deploy(Box<Deploy>),
    /// DROP DEPLOYMENT.
    DropDeployment {
        /// The name.
        name: ObjectName,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// SHOW.
    Show(Show),
    /// ESTIMATE TABLE.
    Estimate(Box<Estimate>),
    /// DESC, DESCRIBE.
    Describe(ObjectName),
    /// SET [GLOBAL | SESSION] name = value, SET @@name = value.
    Set {
        /// The variable, in lower case.
        name: Ident,
        /// The value.
        value: OptionValue,
        /// SET GLOBAL.
        global: bool,
    },
    /// DROP INDEX [db.]t.index.
    DropIndex {
        /// The table.
        table: ObjectName,
        /// The index.
        name: Ident,
    },
    /// DELETE FROM t [WHERE e].
    Delete {
        /// The table.
        table: ObjectName,
        /// WHERE.
        filter: Option<Box<Expr>>,
    },
    /// TRUNCATE TABLE t, …: at least one.
    Truncate(Vec<ObjectName>),
    /// ALTER TABLE t actions.
    AlterTable {
        /// The table.
        table: ObjectName,
        /// What to change; at least one action.
        actions: Vec<AlterTableAction>,
    },
    /// CREATE PROCEDURE.
    CreateProcedure(Box<CreateProcedure>),
    /// DROP PROCEDURE.
    DropProcedure {
        /// The name.
        name: ObjectName,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// CALL p(arguments).
    Call {
        /// The procedure.
        name: ObjectName,
        /// Its arguments.
        arguments: Vec<Expr>,
        /// EXPLAIN ANALYZE: whether the call is measured.
        analyze: bool,
    },
    /// CREATE FUNCTION.
    CreateFunction(Box<CreateFunction>),
    /// DROP FUNCTION.
    DropFunction {
        /// The name.
        name: Ident,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// CREATE USER.
    CreateUser(UserDefinition),
    /// ALTER USER … SET OPTIONS(…).
    AlterUser(UserDefinition),
    /// DROP USER.
    DropUser {
        /// The name.
        name: Ident,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// CREATE ROLE.
    CreateRole {
        /// The name.
        name: Ident,
        /// IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// DROP ROLE.
    DropRole {
        /// The name.
        name: Ident,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// GRANT or REVOKE of roles.
    Membership(RoleMembership),
    /// CREATE TOKEN.
    CreateToken(CreateToken),
    /// DROP TOKEN.
    DropToken {
        /// The name.
        name: Ident,
        /// The user; that of the session where there is none.
        user: Option<Ident>,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// KILL [QUERY | CONNECTION] id.
    Kill {
        /// The id of the session.
        session: u64,
        /// KILL QUERY: the session stays.
        query_only: bool,
        /// The position of the id.
        span: Span,
    },
    /// STOP JOB id, CANCEL JOB id.
    StopJob(String),
    /// DELETE JOB id.
    DeleteJob(String),
    /// GRANT, REVOKE.
    Privileges(Privileges),
    /// EXIT.
    Exit,
    /// CHECKPOINT.
    Checkpoint,
    /// BACKUP TO 'path'.
    Backup {
        /// The directory to write to.
        path: String,
        /// The position of the path.
        span: Span,
    },
}
