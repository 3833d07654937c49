//! SHOW, DESC and ESTIMATE.

use super::{StatementChapter, StatementRule};

/// The statements that list what there is.
pub(super) const STATEMENTS: StatementChapter = StatementChapter {
    title: "SHOW, DESC and ESTIMATE",
    rules: &[
        &DATABASES,
        &TABLES,
        &TABLE_STATUS,
        &CREATE_TABLE,
        &VIEWS,
        &CREATE_VIEW,
        &DESCRIBE,
        &INDEXES,
        &MEMORY,
        &ESTIMATE,
        &DEPLOYMENTS,
        &DEPLOYMENT,
        &PROCEDURES,
        &CREATE_PROCEDURE,
        &FUNCTIONS,
        &VARIABLES,
        &GLOBAL_VARIABLES,
        &JOBS,
        &JOB,
        &JOBLOG,
        &USERS,
        &ROLES,
        &GRANTS,
        &TOKENS,
        &CURRENT_USER,
        &COMPONENTS,
    ],
};

/// What the lists show that need no privilege.
const SEEN: &str = "None; it lists what the user has a privilege on.";

pub(super) const DATABASES: StatementRule = StatementRule {
    name: "SHOW DATABASES",
    description: "Lists the databases.",
    grammar: "SHOW DATABASES",
    privileges: SEEN,
    options: &[],
    examples: &["SHOW DATABASES"],
};

pub(super) const TABLES: StatementRule = StatementRule {
    name: "SHOW TABLES",
    description: "Lists the tables of the current database.",
    grammar: "SHOW TABLES",
    privileges: SEEN,
    options: &[],
    examples: &["SHOW TABLES"],
};

pub(super) const VIEWS: StatementRule = StatementRule {
    name: "SHOW VIEWS",
    description: "Lists the views of the current database, external tables too.",
    grammar: "SHOW VIEWS",
    privileges: SEEN,
    options: &[],
    examples: &["SHOW VIEWS"],
};

pub(super) const CREATE_VIEW: StatementRule = StatementRule {
    name: "SHOW CREATE VIEW",
    description: "Shows the statement that makes a view, and the database that was the current one \
        when it was made.",
    grammar: "SHOW CREATE VIEW table_name",
    privileges: "Any on the view.",
    options: &[],
    examples: &["SHOW CREATE VIEW dear"],
};

pub(super) const TABLE_STATUS: StatementRule = StatementRule {
    name: "SHOW TABLE STATUS",
    description: "Lists the tables of the current database with their rows, their memory and their \
        offline data; with `LIKE` those of every database whose names match the pattern.",
    grammar: "SHOW TABLE STATUS [ LIKE string ]",
    privileges: SEEN,
    options: &[],
    examples: &["SHOW TABLE STATUS", "SHOW TABLE STATUS LIKE 'order%'"],
};

pub(super) const CREATE_TABLE: StatementRule = StatementRule {
    name: "SHOW CREATE TABLE",
    description: "Returns the CREATE TABLE that makes the table.",
    grammar: "SHOW CREATE TABLE table_name",
    privileges: "Any privilege on the table.",
    options: &[],
    examples: &["SHOW CREATE TABLE orders"],
};

pub(super) const DESCRIBE: StatementRule = StatementRule {
    name: "DESC",
    description: "Lists the columns of a table, each with its type, its default and the indexes that \
        it is part of.",
    grammar: "( DESC | DESCRIBE ) table_name",
    privileges: "Any privilege on the table.",
    options: &[],
    examples: &["DESC orders", "DESCRIBE shop.clicks"],
};

pub(super) const INDEXES: StatementRule = StatementRule {
    name: "SHOW INDEXES",
    description: "Lists the indexes of a table, each with the retention that is in effect, whether it \
        was declared, and which deployments read through it.",
    grammar: "SHOW ( INDEXES | INDEX ) FROM table_name",
    privileges: "Any privilege on the table.",
    options: &[],
    examples: &["SHOW INDEXES FROM orders"],
};

pub(super) const MEMORY: StatementRule = StatementRule {
    name: "SHOW MEMORY",
    description: "Lists the memory of the engine with its limit, and of each table, its rows and its \
        indexes: see [Memory](../guide/memory.md).",
    grammar: "SHOW MEMORY",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["SHOW MEMORY"],
};

pub(super) const ESTIMATE: StatementRule = StatementRule {
    name: "ESTIMATE TABLE",
    description: "Computes the memory that a table would take with a number of rows. \
        `KEYS` is the number of entity keys of each index, `TEXT` the bytes of a STRING (16). \
        The table stays as it is.",
    grammar: "ESTIMATE TABLE table_name ROWS whole_number\n\
        [ KEYS whole_number { \",\" whole_number } ] [ TEXT whole_number ]",
    privileges: "Any privilege on the table.",
    options: &[],
    examples: &["ESTIMATE TABLE orders ROWS 100000000 KEYS 1000000 TEXT 12"],
};

pub(super) const DEPLOYMENTS: StatementRule = StatementRule {
    name: "SHOW DEPLOYMENTS",
    description: "Lists the deployments of the current database with their queries.",
    grammar: "SHOW DEPLOYMENTS",
    privileges: SEEN,
    options: &[],
    examples: &["SHOW DEPLOYMENTS"],
};

pub(super) const DEPLOYMENT: StatementRule = StatementRule {
    name: "SHOW DEPLOYMENT",
    description: "Returns the query of a deployment, the columns of its requests and of its answers, \
        its settings and options, and a script that makes the same deployment.",
    grammar: "SHOW DEPLOYMENT table_name",
    privileges: "Any privilege on the deployment.",
    options: &[],
    examples: &["SHOW DEPLOYMENT spent"],
};

pub(super) const PROCEDURES: StatementRule = StatementRule {
    name: "SHOW PROCEDURES",
    description: "Lists the procedures of every database.",
    grammar: "SHOW ( PROCEDURES | PROCEDURE STATUS )",
    privileges: SEEN,
    options: &[],
    examples: &["SHOW PROCEDURES", "SHOW PROCEDURE STATUS"],
};

pub(super) const CREATE_PROCEDURE: StatementRule = StatementRule {
    name: "SHOW CREATE PROCEDURE",
    description: "Returns the CREATE PROCEDURE that made the procedure.",
    grammar: "SHOW CREATE PROCEDURE table_name",
    privileges: "Any privilege on the procedure.",
    options: &[],
    examples: &["SHOW CREATE PROCEDURE price_of"],
};

pub(super) const FUNCTIONS: StatementRule = StatementRule {
    name: "SHOW FUNCTIONS",
    description: "Lists the functions with their signatures and descriptions.",
    grammar: "SHOW FUNCTIONS",
    privileges: "",
    options: &[],
    examples: &["SHOW FUNCTIONS"],
};

pub(super) const VARIABLES: StatementRule = StatementRule {
    name: "SHOW VARIABLES",
    description: "Lists the settings of the session.",
    grammar: "SHOW [ SESSION ] VARIABLES",
    privileges: "",
    options: &[],
    examples: &["SHOW VARIABLES"],
};

pub(super) const GLOBAL_VARIABLES: StatementRule = StatementRule {
    name: "SHOW GLOBAL VARIABLES",
    description: "Lists the settings of the engine, and those that new sessions begin with.",
    grammar: "SHOW GLOBAL VARIABLES",
    privileges: "",
    options: &[],
    examples: &["SHOW GLOBAL VARIABLES"],
};

pub(super) const JOBS: StatementRule = StatementRule {
    name: "SHOW JOBS",
    description: "Lists the jobs (LOAD DATA, INTO OUTFILE, and queries in offline mode) and the \
        pre-aggregates that are being made. \
        `state` is `Running`, `Finished`, `Stopped` or `Failed`, also where the process ended first; \
        `row_count` are the rows that were loaded, written or returned so far; `step` says what a job that \
        runs does, and `fraction` how much of that is done. \
        `LIKE` takes a pattern of their numbers; `FROM` changes nothing.",
    grammar: "SHOW JOBS [ FROM name ] [ LIKE string ]",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["SHOW JOBS", "SHOW JOBS LIKE '1%'"],
};

pub(super) const JOB: StatementRule = StatementRule {
    name: "SHOW JOB",
    description: "Returns one job, with the columns of SHOW JOBS.",
    grammar: "SHOW JOB job_id",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["SHOW JOB 7"],
};

pub(super) const JOBLOG: StatementRule = StatementRule {
    name: "SHOW JOBLOG",
    description: "Returns the statement of a job and how it ended.",
    grammar: "SHOW JOBLOG job_id",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["SHOW JOBLOG 7"],
};

pub(super) const USERS: StatementRule = StatementRule {
    name: "SHOW USERS",
    description: "Lists the users, and whether they have a password.",
    grammar: "SHOW USERS",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["SHOW USERS"],
};

pub(super) const ROLES: StatementRule = StatementRule {
    name: "SHOW ROLES",
    description: "Lists the roles, each with its members.",
    grammar: "SHOW ROLES",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["SHOW ROLES"],
};

pub(super) const GRANTS: StatementRule = StatementRule {
    name: "SHOW GRANTS",
    description: "Lists the privileges and roles of a user; without a name those of the user of the \
        session.",
    grammar: "SHOW GRANTS [ FOR user_name ]",
    privileges: "None for the user itself; `ADMIN` for another.",
    options: &[],
    examples: &["SHOW GRANTS", "SHOW GRANTS FOR app"],
};

pub(super) const TOKENS: StatementRule = StatementRule {
    name: "SHOW TOKENS",
    description: "Lists the tokens of a user with the times at which they expire; without a name those \
        of the user of the session.",
    grammar: "SHOW TOKENS [ FOR user_name ]",
    privileges: "None for the user itself; `ADMIN` for another.",
    options: &[],
    examples: &["SHOW TOKENS", "SHOW TOKENS FOR app"],
};

pub(super) const CURRENT_USER: StatementRule = StatementRule {
    name: "SHOW CURRENT_USER",
    description: "Returns the user of the session.",
    grammar: "SHOW CURRENT_USER",
    privileges: "",
    options: &[],
    examples: &["SHOW CURRENT_USER"],
};

pub(super) const COMPONENTS: StatementRule = StatementRule {
    name: "SHOW COMPONENTS",
    description: "Returns the engine, which is the only component. \
        Of OpenMLDB's clusters, which have several.",
    grammar: "SHOW COMPONENTS",
    privileges: "",
    options: &[],
    examples: &["SHOW COMPONENTS"],
};
