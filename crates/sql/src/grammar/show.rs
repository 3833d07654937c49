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
const SEEN: &str = "None; the list contains the objects on which the user has a privilege.";

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
    description: "Lists the views and external tables of the current database.",
    grammar: "SHOW VIEWS",
    privileges: SEEN,
    options: &[],
    examples: &["SHOW VIEWS"],
};

pub(super) const CREATE_VIEW: StatementRule = StatementRule {
    name: "SHOW CREATE VIEW",
    description: "Returns the statement that creates the view, and the database that was current \
        when the view was created.",
    grammar: "SHOW CREATE VIEW table_name",
    privileges: "Any privilege on the view.",
    options: &[],
    examples: &["SHOW CREATE VIEW dear"],
};

pub(super) const TABLE_STATUS: StatementRule = StatementRule {
    name: "SHOW TABLE STATUS",
    description: "Lists the tables of the current database with their rows, their memory and \
        their offline data; with `LIKE`, the tables of all databases, limited to table names that \
        match the pattern.",
    grammar: "SHOW TABLE STATUS [ LIKE string ]",
    privileges: SEEN,
    options: &[],
    examples: &["SHOW TABLE STATUS", "SHOW TABLE STATUS LIKE 'order%'"],
};

pub(super) const CREATE_TABLE: StatementRule = StatementRule {
    name: "SHOW CREATE TABLE",
    description: "Returns the CREATE TABLE statement that creates the table.",
    grammar: "SHOW CREATE TABLE table_name",
    privileges: "Any privilege on the table.",
    options: &[],
    examples: &["SHOW CREATE TABLE orders"],
};

pub(super) const DESCRIBE: StatementRule = StatementRule {
    name: "DESC",
    description: "Lists the columns of a table, with the type and the default of each column, and \
        the indexes that contain it.",
    grammar: "( DESC | DESCRIBE ) table_name",
    privileges: "Any privilege on the table.",
    options: &[],
    examples: &["DESC orders", "DESCRIBE shop.clicks"],
};

pub(super) const INDEXES: StatementRule = StatementRule {
    name: "SHOW INDEXES",
    description: "Lists the indexes of a table, with the effective retention of each index, \
        whether it was declared, and the deployments that read it.",
    grammar: "SHOW ( INDEXES | INDEX ) FROM table_name",
    privileges: "Any privilege on the table.",
    options: &[],
    examples: &["SHOW INDEXES FROM orders"],
};

pub(super) const MEMORY: StatementRule = StatementRule {
    name: "SHOW MEMORY",
    description: "Lists the memory use of the engine, with its limit, and of each table, its rows \
        and its indexes: see [Memory](../guide/memory.md).",
    grammar: "SHOW MEMORY",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["SHOW MEMORY"],
};

pub(super) const ESTIMATE: StatementRule = StatementRule {
    name: "ESTIMATE TABLE",
    description: "Computes the memory and the files that a table would use with a given number of rows, \
        in memory and on a disk, and recommends one of the two. \
        `KEYS` is the number of entity keys of each index; `TEXT` is the average length of a \
        STRING in bytes (default 16). \
        Without `ROWS`, all three are those of the rows that are stored. \
        The table is not changed.",
    grammar: "ESTIMATE TABLE table_name [ ROWS whole_number ]\n\
        [ KEYS whole_number { \",\" whole_number } ] [ TEXT whole_number ]",
    privileges: "Any privilege on the table.",
    options: &[],
    examples: &[
        "ESTIMATE TABLE orders ROWS 100000000 KEYS 1000000 TEXT 12",
        "ESTIMATE TABLE orders",
    ],
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
    description: "Returns the query of a deployment, the columns of its requests and of its \
        answers, its settings and options, and a script that recreates the deployment.",
    grammar: "SHOW DEPLOYMENT table_name",
    privileges: "Any privilege on the deployment.",
    options: &[],
    examples: &["SHOW DEPLOYMENT spent"],
};

pub(super) const PROCEDURES: StatementRule = StatementRule {
    name: "SHOW PROCEDURES",
    description: "Lists the procedures of all databases.",
    grammar: "SHOW ( PROCEDURES | PROCEDURE STATUS )",
    privileges: SEEN,
    options: &[],
    examples: &["SHOW PROCEDURES", "SHOW PROCEDURE STATUS"],
};

pub(super) const CREATE_PROCEDURE: StatementRule = StatementRule {
    name: "SHOW CREATE PROCEDURE",
    description: "Returns the CREATE PROCEDURE statement that created the procedure.",
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
    description: "Lists the settings of the engine and the defaults of the settings of new \
        sessions.",
    grammar: "SHOW GLOBAL VARIABLES",
    privileges: "",
    options: &[],
    examples: &["SHOW GLOBAL VARIABLES"],
};

pub(super) const JOBS: StatementRule = StatementRule {
    name: "SHOW JOBS",
    description: "Lists the jobs (LOAD DATA, INTO OUTFILE, and queries in offline mode) and the \
        pre-aggregates that are being built. \
        `state` is `Running`, `Finished`, `Stopped` or `Failed`, also for a job that ended with \
        its process; `row_count` is the number of rows loaded, written or returned so far; `step` \
        is the current step of a running job, and `fraction` the completed fraction of that step. \
        `LIKE` matches a pattern against the job numbers; `FROM` has no effect.",
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
    description: "Returns the statement of a job and its outcome.",
    grammar: "SHOW JOBLOG job_id",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["SHOW JOBLOG 7"],
};

pub(super) const USERS: StatementRule = StatementRule {
    name: "SHOW USERS",
    description: "Lists the users and whether each has a password.",
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
    description: "Lists the privileges and roles of a user; the default is the current user.",
    grammar: "SHOW GRANTS [ FOR user_name ]",
    privileges: "None for the current user; `ADMIN` for another user.",
    options: &[],
    examples: &["SHOW GRANTS", "SHOW GRANTS FOR app"],
};

pub(super) const TOKENS: StatementRule = StatementRule {
    name: "SHOW TOKENS",
    description: "Lists the tokens of a user and their expiration times; the default is the \
        current user.",
    grammar: "SHOW TOKENS [ FOR user_name ]",
    privileges: "None for the current user; `ADMIN` for another user.",
    options: &[],
    examples: &["SHOW TOKENS", "SHOW TOKENS FOR app"],
};

pub(super) const CURRENT_USER: StatementRule = StatementRule {
    name: "SHOW CURRENT_USER",
    description: "Returns the current user.",
    grammar: "SHOW CURRENT_USER",
    privileges: "",
    options: &[],
    examples: &["SHOW CURRENT_USER"],
};

pub(super) const COMPONENTS: StatementRule = StatementRule {
    name: "SHOW COMPONENTS",
    description: "Returns the engine, the only component. \
        The statement exists for OpenMLDB, whose clusters have several components.",
    grammar: "SHOW COMPONENTS",
    privileges: "",
    options: &[],
    examples: &["SHOW COMPONENTS"],
};
