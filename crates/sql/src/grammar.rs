//! The grammar as data: for every statement what it does, its syntax, its options and examples, and the
//! rules that statements share.
//!
//! The parser does not read it: `tests/grammar.rs` draws texts from it, which the parser must accept, and
//! the page `docs/reference/statements.md` is written from it ([`reference()`]). [`rule_of`] matches every
//! variant of [`Statement`], so that a new one does not compile without a rule here.
//!
//! | file | statements |
//! |---|---|
//! | `query`, `expression` | SELECT, EXPLAIN; the rules of queries, windows and expressions |
//! | `definition` | databases, tables, indexes |
//! | `data` | INSERT, DELETE, TRUNCATE, LOAD DATA |
//! | `deployment` | deployments and their verification, procedures, functions |
//! | `show` | SHOW, DESC, ESTIMATE |
//! | `access` | users, roles, tokens, privileges |
//! | `operation` | SET, USE, jobs, CHECKPOINT, BACKUP, KILL, EXIT |
//! | `token` | names, texts, numbers |

mod access;
mod connector;
mod data;
mod definition;
mod deployment;
mod expression;
mod notation;
mod operation;
mod page;
mod query;
mod show;
mod stream;
mod token;

pub use notation::Notation;
pub use page::reference;

use crate::ast::{ConnectorKind, Show, Statement, ViewForm};

/// What is documented of one statement.
#[derive(Debug)]
pub struct StatementRule {
    /// Its first words.
    pub name: &'static str,
    /// What it does, in sentences.
    pub description: &'static str,
    /// Its syntax, which [`Notation::parse`] reads.
    pub grammar: &'static str,
    /// What a user of a server needs for it; empty where it needs nothing.
    pub privileges: &'static str,
    /// The options of its clauses.
    pub options: &'static [OptionList],
    /// Statements that it allows; at least one.
    pub examples: &'static [&'static str],
}

/// The options of one clause.
#[derive(Debug)]
pub struct OptionList {
    /// The clause: `OPTIONS`, `CONFIG`, `INDEX`.
    pub clause: &'static str,
    /// What happens with an option that is not in the list.
    pub others: &'static str,
    /// The options.
    pub options: &'static [DocumentedOption],
}

/// One option of a clause.
#[derive(Debug)]
pub struct DocumentedOption {
    /// Its name, in lower case.
    pub name: &'static str,
    /// The values that it takes.
    pub values: &'static str,
    /// Its value where the statement does not name it.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// A rule that several statements, or other rules, name.
#[derive(Debug)]
pub struct SharedRule {
    /// Its name, in lower case.
    pub name: &'static str,
    /// What it stands for.
    pub grammar: &'static str,
    /// What the grammar does not say; may be empty.
    pub note: &'static str,
}

/// A rule that one token satisfies, such as a name.
#[derive(Debug)]
pub struct TokenRule {
    /// Its name, in lower case.
    pub name: &'static str,
    /// How the token is written.
    pub form: &'static str,
    /// Some of the tokens.
    pub samples: &'static [&'static str],
}

/// Statements about one thing.
#[derive(Debug)]
pub struct StatementChapter {
    /// The heading.
    pub title: &'static str,
    /// Their rules, in the order of the page.
    pub rules: &'static [&'static StatementRule],
}

/// Rules about one thing.
#[derive(Debug)]
pub struct RuleChapter {
    /// The heading.
    pub title: &'static str,
    /// The rules, in the order of the page.
    pub rules: &'static [SharedRule],
}

/// Every statement, in the order of the page.
pub const STATEMENTS: &[StatementChapter] = &[
    query::STATEMENTS,
    definition::DATABASES,
    definition::TABLES,
    data::STATEMENTS,
    deployment::STATEMENTS,
    stream::STATEMENTS,
    connector::STATEMENTS,
    show::STATEMENTS,
    access::STATEMENTS,
    operation::SESSION,
    operation::JOBS,
    operation::DIRECTORY,
];

/// Every shared rule, in the order of the page.
pub const RULES: &[RuleChapter] = &[
    query::RULES,
    query::WINDOWS,
    expression::RULES,
    definition::RULES,
    data::RULES,
    access::RULES,
    token::RULES,
];

/// Every rule of one token.
pub const TOKENS: &[TokenRule] = token::TOKENS;

/// Returns the rule of a statement.
pub fn rule_of(statement: &Statement) -> &'static StatementRule {
    match statement {
        Statement::Query(_) => &query::SELECT,
        Statement::Explain { .. } | Statement::Call { analyze: true, .. } => &query::EXPLAIN,
        Statement::VerifyDeployment { .. } => &deployment::VERIFY_DEPLOYMENT,
        Statement::CreateDatabase { .. } => &definition::CREATE_DATABASE,
        Statement::DropDatabase { .. } => &definition::DROP_DATABASE,
        Statement::Use(_) => &definition::USE,
        Statement::CreateTable(_) => &definition::CREATE_TABLE,
        Statement::DropTable { .. } => &definition::DROP_TABLE,
        Statement::CreateView(view) if view.form == ViewForm::ExternalTable => {
            &definition::CREATE_EXTERNAL_TABLE
        }
        Statement::CreateView(_) => &definition::CREATE_VIEW,
        Statement::DropView { .. } => &definition::DROP_VIEW,
        Statement::Stream(statement) => stream::rule_of(statement),
        Statement::Connector(statement) => connector::rule_of(statement),
        Statement::AlterTable { .. } => &definition::ALTER_TABLE,
        Statement::CreateIndex(_) => &definition::CREATE_INDEX,
        Statement::DropIndex { .. } => &definition::DROP_INDEX,
        Statement::Insert(_) => &data::INSERT,
        Statement::Delete { .. } => &data::DELETE,
        Statement::Truncate(_) => &data::TRUNCATE,
        Statement::LoadData(_) => &data::LOAD_DATA,
        Statement::Deploy(_) => &deployment::DEPLOY,
        Statement::DropDeployment { .. } => &deployment::DROP_DEPLOYMENT,
        Statement::CreateProcedure(_) => &deployment::CREATE_PROCEDURE,
        Statement::DropProcedure { .. } => &deployment::DROP_PROCEDURE,
        Statement::Call { .. } => &deployment::CALL,
        Statement::CreateFunction(_) => &deployment::CREATE_FUNCTION,
        Statement::DropFunction { .. } => &deployment::DROP_FUNCTION,
        Statement::Show(show) => rule_of_show(show),
        Statement::Describe(_) => &show::DESCRIBE,
        Statement::Estimate(_) => &show::ESTIMATE,
        Statement::CreateUser(_) => &access::CREATE_USER,
        Statement::AlterUser(_) => &access::ALTER_USER,
        Statement::DropUser { .. } => &access::DROP_USER,
        Statement::CreateRole { .. } => &access::CREATE_ROLE,
        Statement::DropRole { .. } => &access::DROP_ROLE,
        Statement::CreateToken(_) => &access::CREATE_TOKEN,
        Statement::DropToken { .. } => &access::DROP_TOKEN,
        Statement::Privileges(change) if change.is_granted => &access::GRANT,
        Statement::Membership(change) if change.is_granted => &access::GRANT,
        Statement::Privileges(_) | Statement::Membership(_) => &access::REVOKE,
        Statement::Set { .. } => &operation::SET,
        Statement::Kill { .. } => &operation::KILL,
        Statement::StopJob(_) => &operation::STOP_JOB,
        Statement::DeleteJob(_) => &operation::DELETE_JOB,
        Statement::Exit => &operation::EXIT,
        Statement::Checkpoint => &operation::CHECKPOINT,
        Statement::Backup { .. } => &operation::BACKUP,
    }
}

fn rule_of_show(show: &Show) -> &'static StatementRule {
    match show {
        Show::Databases => &show::DATABASES,
        Show::Tables => &show::TABLES,
        Show::CreateTable(_) => &show::CREATE_TABLE,
        Show::Views => &show::VIEWS,
        Show::CreateView(_) => &show::CREATE_VIEW,
        Show::Streams => &stream::SHOW_STREAMS,
        Show::CreateStream(_) => &stream::SHOW_CREATE_STREAM,
        Show::Connectors(ConnectorKind::Source) => &connector::SHOW_SOURCES,
        Show::Connectors(ConnectorKind::Sink) => &connector::SHOW_SINKS,
        Show::CreateConnector(ConnectorKind::Source, _) => &connector::SHOW_CREATE_SOURCE,
        Show::CreateConnector(ConnectorKind::Sink, _) => &connector::SHOW_CREATE_SINK,
        Show::TableStatus(_) => &show::TABLE_STATUS,
        Show::Indexes(_) => &show::INDEXES,
        Show::Deployments => &show::DEPLOYMENTS,
        Show::Deployment(_) => &show::DEPLOYMENT,
        Show::Procedures => &show::PROCEDURES,
        Show::CreateProcedure(_) => &show::CREATE_PROCEDURE,
        Show::Functions => &show::FUNCTIONS,
        Show::Variables => &show::VARIABLES,
        Show::GlobalVariables => &show::GLOBAL_VARIABLES,
        Show::Components => &show::COMPONENTS,
        Show::Memory => &show::MEMORY,
        Show::Jobs { .. } => &show::JOBS,
        Show::Job(_) => &show::JOB,
        Show::JobLog(_) => &show::JOBLOG,
        Show::CurrentUser => &show::CURRENT_USER,
        Show::Users => &show::USERS,
        Show::Roles => &show::ROLES,
        Show::Grants(_) => &show::GRANTS,
        Show::Tokens(_) => &show::TOKENS,
    }
}
