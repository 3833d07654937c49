//! What each statement does: one file for each statement or family of statements.
//!
//! [`Session`](crate::Session) parses a script, dispatches each statement here, and runs it under
//! the session's limits. A statement reads the catalog, prepares what it needs without a lock, and
//! changes the catalog with one [`CatalogCommand`](crate::catalog::CatalogCommand).
//!
//! | file | statements |
//! |---|---|
//! | `query`, `query_config`, `into_outfile` | SELECT, its CONFIG, INTO OUTFILE |
//! | `explain`, `verify` | EXPLAIN; VERIFY DEPLOYMENT |
//! | `insert`, `delete`, `load_data` | INSERT, DELETE, LOAD DATA |
//! | `database` | CREATE DATABASE, DROP DATABASE, USE |
//! | `create_table`, `table` | CREATE TABLE; DROP, ALTER and TRUNCATE TABLE |
//! | `view` | CREATE VIEW, DROP VIEW |
//! | `alter_columns` | ALTER TABLE that adds, drops or renames columns |
//! | `create_index` | CREATE INDEX, DROP INDEX, and the indexes of CREATE TABLE |
//! | `deploy`, `procedure` | DEPLOY, DROP DEPLOYMENT; CREATE and DROP PROCEDURE, CALL |
//! | `function` | CREATE FUNCTION, DROP FUNCTION |
//! | `checkpoint` | CHECKPOINT, BACKUP TO |
//! | `set`, `user`, `job` | SET; users and privileges; jobs |
//! | `show`, `memory` | SHOW, DESC; SHOW MEMORY, ESTIMATE |

mod alter_columns;
mod checkpoint;
mod connector;
mod create_index;
mod create_table;
mod database;
mod delete;
mod deploy;
mod explain;
mod function;
mod insert;
mod into_outfile;
mod job;
mod load_data;
mod memory;
mod procedure;
mod query;
mod query_config;
mod set;
mod show;
mod stream;
mod table;
mod tables_of_rows;
mod user;
mod verify;
mod view;

pub(crate) use create_table::TableOptions;
pub use create_table::{CreationOptions, IfExists, StorageMode};
pub(crate) use delete::LoggedCondition;
pub(crate) use deploy::deploy_script;
pub(crate) use function::{create_function, drop_function};
pub use into_outfile::PassedRows;
pub(crate) use query_config::check as check_query_config;
pub(crate) use show::retention_text;
pub(crate) use table::DropOptions;
pub use verify::verification_columns;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::{
    Parsed,
    ast::{ObjectName, Statement, ViewForm},
};

use crate::Output;

/// Returns whether a script does nothing but add and remove rows (INSERT and DELETE, and USE and SET
/// before them). A server runs those among its writes, and others where they may take long. Costs as much
/// as parsing the script; one with a syntax error does not only write.
///
/// ```
/// use lockstep_engine::only_writes_rows;
///
/// assert!(only_writes_rows("/* today's */ USE shop; INSERT INTO t VALUES (1)"));
/// assert!(!only_writes_rows("INSERT INTO t VALUES (1); SELECT * FROM t"));
/// ```
pub fn only_writes_rows(script: &str) -> bool {
    lockstep_sql::parse(script).is_ok_and(|statements| all_write_rows(&statements))
}

/// Returns whether statements do nothing but add and remove rows.
pub(crate) fn all_write_rows(statements: &[Parsed]) -> bool {
    let is_write = |statement: &Statement| {
        matches!(statement, Statement::Insert(_) | Statement::Delete { .. })
    };
    let is_fast = |statement: &Statement| {
        is_write(statement) || matches!(statement, Statement::Use(_) | Statement::Set { .. })
    };
    let mut all = statements.iter().map(|parsed| &parsed.statement);
    all.clone().any(is_write) && all.all(is_fast)
}

/// Returns the first words of a statement.
pub(crate) fn action_of(statement: &Statement) -> &'static str {
    match statement {
        Statement::Query(query) if query.into_outfile.is_some() => "SELECT INTO OUTFILE",
        Statement::Query(_) => "SELECT",
        Statement::Explain { .. } => "EXPLAIN",
        Statement::VerifyDeployment { .. } => "VERIFY",
        Statement::CreateDatabase { .. } => "CREATE DATABASE",
        Statement::DropDatabase { .. } => "DROP DATABASE",
        Statement::Use(_) => "USE",
        Statement::CreateTable(_) => "CREATE TABLE",
        Statement::DropTable { .. } => "DROP TABLE",
        Statement::CreateView(create) if create.form == ViewForm::ExternalTable => {
            "CREATE EXTERNAL TABLE"
        }
        Statement::CreateView(_) => "CREATE VIEW",
        Statement::DropView { .. } => "DROP VIEW",
        Statement::Stream(statement) => stream::action_of(statement),
        Statement::Connector(statement) => connector::action_of(statement),
        Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::DropIndex { .. } => "DROP INDEX",
        Statement::Insert(_) => "INSERT",
        Statement::Delete { .. } => "DELETE",
        Statement::Truncate(_) => "TRUNCATE TABLE",
        Statement::LoadData(_) => "LOAD DATA",
        Statement::AlterTable { .. } => "ALTER TABLE",
        Statement::Deploy(_) => "DEPLOY",
        Statement::DropDeployment { .. } => "DROP DEPLOYMENT",
        Statement::CreateProcedure(_) => "CREATE PROCEDURE",
        Statement::DropProcedure { .. } => "DROP PROCEDURE",
        Statement::Call { analyze, .. } => {
            if *analyze {
                "EXPLAIN"
            } else {
                "CALL"
            }
        }
        Statement::CreateFunction(_) => "CREATE FUNCTION",
        Statement::DropFunction { .. } => "DROP FUNCTION",
        Statement::CreateUser(_) => "CREATE USER",
        Statement::AlterUser(_) => "ALTER USER",
        Statement::DropUser { .. } => "DROP USER",
        Statement::CreateRole { .. } => "CREATE ROLE",
        Statement::DropRole { .. } => "DROP ROLE",
        Statement::CreateToken(_) => "CREATE TOKEN",
        Statement::DropToken { .. } => "DROP TOKEN",
        Statement::Privileges(change) if change.is_granted => "GRANT",
        Statement::Membership(change) if change.is_granted => "GRANT",
        Statement::Privileges(_) | Statement::Membership(_) => "REVOKE",
        Statement::Kill { .. } => "KILL",
        Statement::Show(_) => "SHOW",
        Statement::Estimate(_) => "ESTIMATE",
        Statement::Describe(_) => "DESCRIBE",
        Statement::Set { .. } => "SET",
        Statement::StopJob(_) => "STOP JOB",
        Statement::DeleteJob(_) => "DELETE JOB",
        Statement::Exit => "EXIT",
        Statement::Checkpoint => "CHECKPOINT",
        Statement::Backup { .. } => "BACKUP",
    }
}

/// Returns the output of a statement whose command was committed or refused. With IF EXISTS or IF
/// NOT EXISTS, an error of the `tolerated` code counts as success.
fn outcome(
    committed: Result<()>,
    tolerated: Option<&str>,
    name: &ObjectName,
    message: &str,
) -> Result<Output> {
    match committed {
        Err(error) if tolerated != Some(error.code) => at_name(*error, name).err(),
        _ => Ok(Output::of_message(message)),
    }
}

/// Gives the error of a DROP whose object is still read the hint that it may drop the readers, too.
fn with_cascade_hint(error: Box<Diagnostic>) -> Box<Diagnostic> {
    if error.code != code::DEPENDENT_OBJECTS {
        return error;
    }
    Box::new(error.with_hint("Drop them first, or add CASCADE to drop them, too."))
}

/// Gives an error of the catalog the position of the name that it is about.
fn at_name(error: Diagnostic, name: &ObjectName) -> Diagnostic {
    let ident = match (&name.database, error.code) {
        (Some(database), code::UNDEFINED_DATABASE) => database,
        _ => &name.name,
    };
    error.at(ident.span)
}
