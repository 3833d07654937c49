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
        values: "a text in quotes",
        default: "none",
        meaning: "The password; the empty text removes it. \
            A user without one logs in with a token, or not at all.",
    }],
}];

pub(super) const CREATE_USER: StatementRule = StatementRule {
    name: "CREATE USER",
    description: "Creates a user, who has no privileges yet: see [Users](../guide/users.md).",
    grammar: "CREATE USER [ IF NOT EXISTS ] user_name [ OPTIONS option_list ]",
    privileges: "`CREATE USER`.",
    options: PASSWORD,
    examples: &["CREATE USER app OPTIONS(password = 'change me')", "CREATE USER IF NOT EXISTS app"],
};

pub(super) const ALTER_USER: StatementRule = StatementRule {
    name: "ALTER USER",
    description: "Changes the password of a user. Without `SET` it changes nothing.",
    grammar: "ALTER USER [ IF EXISTS ] user_name [ SET OPTIONS option_list ]",
    privileges: "None for the user itself in a session that was not opened with a token; else \
        `ALTER USER`, and `ADMIN` for a user who has it.",
    options: PASSWORD,
    examples: &["ALTER USER app SET OPTIONS(password = 'another one')"],
};

pub(super) const DROP_USER: StatementRule = StatementRule {
    name: "DROP USER",
    description: "Removes a user, whose sessions end. `root` cannot be dropped.",
    grammar: "DROP USER [ IF EXISTS ] user_name",
    privileges: "`DROP USER`, and `ADMIN` for a user who has it.",
    options: &[],
    examples: &["DROP USER app", "DROP USER IF EXISTS app"],
};

pub(super) const CREATE_ROLE: StatementRule = StatementRule {
    name: "CREATE ROLE",
    description: "Creates a role: it has privileges, and users have it.",
    grammar: "CREATE ROLE [ IF NOT EXISTS ] user_name",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["CREATE ROLE analyst"],
};

pub(super) const DROP_ROLE: StatementRule = StatementRule {
    name: "DROP ROLE",
    description: "Removes a role, which its members lose.",
    grammar: "DROP ROLE [ IF EXISTS ] user_name",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["DROP ROLE analyst"],
};

pub(super) const GRANT: StatementRule = StatementRule {
    name: "GRANT",
    description: "Gives privileges on an object, or roles, to users and roles: to all of them or to \
        none. \
        `WITH GRANT OPTION` lets them pass the privileges on. \
        What each privilege allows is on the page [Users](../guide/users.md#privileges).",
    grammar: "GRANT privilege { \",\" privilege } ON grant_object TO user_name { \",\" user_name }\n\
        [ WITH GRANT OPTION ]\n\
        | GRANT user_name { \",\" user_name } TO user_name { \",\" user_name }",
    privileges: "`ADMIN` on the object, or the privilege `WITH GRANT OPTION`; for roles `ADMIN`.",
    options: &[],
    examples: &[
        "GRANT EXECUTE ON DEPLOYMENT shop.spent TO app",
        "GRANT SELECT, INSERT ON shop.* TO app, analyst WITH GRANT OPTION",
        "GRANT analyst TO app",
    ],
};

pub(super) const REVOKE: StatementRule = StatementRule {
    name: "REVOKE",
    description: "Takes privileges on an object, or roles, from users and roles. \
        It takes effect on open sessions at once.",
    grammar: "REVOKE privilege { \",\" privilege } ON grant_object FROM user_name { \",\" user_name }\n\
        | REVOKE user_name { \",\" user_name } FROM user_name { \",\" user_name }",
    privileges: "As for GRANT.",
    options: &[],
    examples: &["REVOKE ALL PRIVILEGES ON *.* FROM app", "REVOKE analyst FROM app"],
};

pub(super) const CREATE_TOKEN: StatementRule = StatementRule {
    name: "CREATE TOKEN",
    description: "Creates a token with which a user logs in, and returns its text, which nothing shows \
        again. \
        Without `FOR` it is one of the user of the session.",
    grammar: "CREATE TOKEN name [ FOR user_name ] [ OPTIONS option_list ]",
    privileges: "None for the user itself in a session that was not opened with a token; else \
        `ALTER USER`, and `ADMIN` for a user who has it.",
    options: &[OptionList {
        clause: "OPTIONS",
        others: "is an error",
        options: &[DocumentedOption {
            name: "expires_in",
            values: "a duration, or `'never'`",
            default: "`'90d'`",
            meaning: "For how long the token is valid.",
        }],
    }],
    examples: &["CREATE TOKEN ci FOR app OPTIONS(expires_in = '30d')"],
};

pub(super) const DROP_TOKEN: StatementRule = StatementRule {
    name: "DROP TOKEN",
    description: "Removes a token; the sessions that it opened end.",
    grammar: "DROP TOKEN [ IF EXISTS ] name [ FOR user_name ]",
    privileges: "As for CREATE TOKEN.",
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
                `ALL` is everything but `ADMIN` and the changes of users, which `ADMIN` includes. \
                On deployments there are EXECUTE, DEPLOY, DROP, DDL, ALL and GRANT OPTION.",
        },
        SharedRule {
            name: "grant_object",
            grammar: "DATABASE name\n\
                | [ TABLE | DEPLOYMENT ] ( \"*\" [ \".\" \"*\" ] | name \".\" ( \"*\" | name ) | name )",
            note: "`*` and `*.*` are everything, and `db.*` is `DATABASE db`: its tables and its \
                deployments. With `DEPLOYMENT` they are deployments only. \
                A name alone is one of the current database.",
        },
    ],
};
