//! Users, roles, tokens and privileges.

use super::{
    DocumentedOption, OptionList, RuleChapter, SharedRule, StatementChapter, StatementRule,
};

/// The statements about who may do what.
pub(super) const STATEMENTS: StatementChapter = StatementChapter {
    title: "Users and privileges",
    rules: &[
        &CREATE_USER,
        &ALTER_USER,
        &DROP_USER,
        &CREATE_ROLE,
        &DROP_ROLE,
        &GRANT,
        &REVOKE,
        &CREATE_TOKEN,
        &DROP_TOKEN,
    ],
};

const PASSWORD: &[OptionList] = &[OptionList {
    clause: "OPTIONS",
    others: "is an error",
    options: &[DocumentedOption {
        name: "password",
        values: "a quoted string",
        default: "none",
        meaning: "The password; the empty string removes it. \
            A user without a password can log in only with a token.",
    }],
}];

pub(super) const CREATE_USER: StatementRule = StatementRule {
    name: "CREATE USER",
    description: "Creates a user without privileges: see [Users](../guide/users.md).",
    grammar: "CREATE USER [ IF NOT EXISTS ] user_name [ OPTIONS option_list ]",
    privileges: "`CREATE USER`.",
    options: PASSWORD,
    examples: &["CREATE USER app OPTIONS(password = 'change me')", "CREATE USER IF NOT EXISTS app"],
};

pub(super) const ALTER_USER: StatementRule = StatementRule {
    name: "ALTER USER",
    description: "Changes the password of a user. \
        Without `SET` the statement changes nothing.",
    grammar: "ALTER USER [ IF EXISTS ] user_name [ SET OPTIONS option_list ]",
    privileges: "None for the current user, unless the session was opened with a token; for \
        another user `ALTER USER`, and `ADMIN` if that user has `ADMIN`.",
    options: PASSWORD,
    examples: &["ALTER USER app SET OPTIONS(password = 'another one')"],
};

pub(super) const DROP_USER: StatementRule = StatementRule {
    name: "DROP USER",
    description: "Removes a user and ends the sessions of the user. \
        `root` cannot be dropped.",
    grammar: "DROP USER [ IF EXISTS ] user_name",
    privileges: "`DROP USER`, and `ADMIN` if the user has `ADMIN`.",
    options: &[],
    examples: &["DROP USER app", "DROP USER IF EXISTS app"],
};

pub(super) const CREATE_ROLE: StatementRule = StatementRule {
    name: "CREATE ROLE",
    description: "Creates a role, a set of privileges that can be granted to users.",
    grammar: "CREATE ROLE [ IF NOT EXISTS ] user_name",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["CREATE ROLE analyst"],
};

pub(super) const DROP_ROLE: StatementRule = StatementRule {
    name: "DROP ROLE",
    description: "Removes a role; its members lose the privileges of the role.",
    grammar: "DROP ROLE [ IF EXISTS ] user_name",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["DROP ROLE analyst"],
};

pub(super) const GRANT: StatementRule = StatementRule {
    name: "GRANT",
    description: "Grants privileges on an object, or roles, to users and roles: either all grants \
        take effect or none. \
        `WITH GRANT OPTION` allows the grantees to grant the privileges to others. \
        The page [Users](../guide/users.md#privileges) describes each privilege.",
    grammar: "GRANT privilege { \",\" privilege } ON grant_object TO user_name { \",\" user_name }\n\
        [ WITH GRANT OPTION ]\n\
        | GRANT user_name { \",\" user_name } TO user_name { \",\" user_name }",
    privileges: "`ADMIN` on the object, or the granted privilege `WITH GRANT OPTION`; for roles, \
        `ADMIN`.",
    options: &[],
    examples: &[
        "GRANT EXECUTE ON DEPLOYMENT shop.spent TO app",
        "GRANT SELECT, INSERT ON shop.* TO app, analyst WITH GRANT OPTION",
        "GRANT analyst TO app",
    ],
};

pub(super) const REVOKE: StatementRule = StatementRule {
    name: "REVOKE",
    description: "Revokes privileges on an object, or roles, from users and roles. \
        The change takes effect immediately, also in open sessions.",
    grammar: "REVOKE privilege { \",\" privilege } ON grant_object FROM user_name { \",\" user_name }\n\
        | REVOKE user_name { \",\" user_name } FROM user_name { \",\" user_name }",
    privileges: "Same as for GRANT.",
    options: &[],
    examples: &["REVOKE ALL PRIVILEGES ON *.* FROM app", "REVOKE analyst FROM app"],
};

pub(super) const CREATE_TOKEN: StatementRule = StatementRule {
    name: "CREATE TOKEN",
    description: "Creates a token that a user can log in with, and returns its text, which cannot \
        be retrieved again. \
        Without `FOR` the token belongs to the current user.",
    grammar: "CREATE TOKEN name [ FOR user_name ] [ OPTIONS option_list ]",
    privileges: "None for the current user, unless the session was opened with a token; for \
        another user `ALTER USER`, and `ADMIN` if that user has `ADMIN`.",
    options: &[OptionList {
        clause: "OPTIONS",
        others: "is an error",
        options: &[DocumentedOption {
            name: "expires_in",
            values: "a duration, or `'never'`",
            default: "`'90d'`",
            meaning: "The time for which the token is valid.",
        }],
    }],
    examples: &["CREATE TOKEN ci FOR app OPTIONS(expires_in = '30d')"],
};

pub(super) const DROP_TOKEN: StatementRule = StatementRule {
    name: "DROP TOKEN",
    description: "Removes a token and ends the sessions that were opened with it.",
    grammar: "DROP TOKEN [ IF EXISTS ] name [ FOR user_name ]",
    privileges: "Same as for CREATE TOKEN.",
    options: &[],
    examples: &["DROP TOKEN ci FOR app"],
};

/// The rules of privileges.
pub(super) const RULES: RuleChapter = RuleChapter {
    title: "Rules of privileges",
    rules: &[
        SharedRule {
            name: "privilege",
            grammar: "ALL [ PRIVILEGES ] | SELECT | INSERT | DELETE\n\
                | DDL | CREATE | DROP | ALTER | INDEX | TRUNCATE | DEPLOY | EXECUTE\n\
                | ADMIN | CREATE USER | ALTER USER | DROP USER | GRANT OPTION",
            note: "`DDL` is CREATE, DROP, ALTER, INDEX, TRUNCATE and DEPLOY. \
                `ALL` is every privilege except `ADMIN` and the privileges to create, alter and \
                drop users, which `ADMIN` includes. \
                Deployments support EXECUTE, DEPLOY, DROP, DDL, ALL and GRANT OPTION.",
        },
        SharedRule {
            name: "grant_object",
            grammar: "DATABASE name\n\
                | [ TABLE | DEPLOYMENT ] ( \"*\" [ \".\" \"*\" ] | name \".\" ( \"*\" | name ) | name )",
            note: "`*` and `*.*` are all objects, and `db.*` is `DATABASE db`: its tables and its \
                deployments. \
                With `DEPLOYMENT` these forms are limited to deployments. \
                An unqualified name is an object of the current database.",
        },
    ],
};
