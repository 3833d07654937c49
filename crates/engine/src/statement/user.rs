//! Users, roles, tokens and privileges: CREATE, ALTER and DROP USER, CREATE and DROP ROLE, CREATE and
//! DROP TOKEN, GRANT, REVOKE, KILL, and what SHOW lists of them.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_row::{DataType, Value};
use lockstep_sql::ast::{
    CreateToken, Ident, ObjectPart, OptionValue, Privileges, RoleMembership, UserDefinition,
};

use crate::{
    Output, Session,
    catalog::{CatalogCommand, QualifiedName},
    options::{OptionSpec, OptionTable, UnknownOption, word},
    user::{AccessToken, NewToken, Securable, User, UserChange, UserCommand, new_id},
    variables::duration_ms,
};

/// The columns of SHOW TOKENS.
const TOKENS: &[(&str, DataType)] = &[
    ("user", DataType::String),
    ("token", DataType::String),
    ("created", DataType::Timestamp),
    ("expires", DataType::Timestamp),
];

/// How long a token is valid where CREATE TOKEN does not say.
const TOKEN_MS: u64 = 90 * 24 * 3_600_000;

/// The options of CREATE TOKEN.
#[derive(Debug)]
struct TokenOptions {
    /// How long it is valid; `None`: for ever.
    valid_ms: Option<u64>,
}

const TOKEN_OPTIONS: OptionTable<'_, TokenOptions> = OptionTable {
    specs: &[OptionSpec {
        name: "expires_in",
        set: |options, argument| {
            let text = match argument.value() {
                OptionValue::Literal(lockstep_sql::ast::Literal::Interval(interval)) => {
                    interval.milliseconds().map(|ms| format!("{ms}ms"))
                }
                value => word(value).map(str::to_ascii_lowercase),
            };
            options.valid_ms = match text.as_deref() {
                Some("never") => None,
                Some(text) => match duration_ms(text).filter(|ms| *ms > 0) {
                    Some(ms) => Some(ms),
                    None => {
                        return argument.invalid("must be a duration, such as '30d', or 'never'");
                    }
                },
                None => return argument.invalid("must be a duration, such as '30d', or 'never'"),
            };
            Ok(())
        },
    }],
    unknown: UnknownOption::Error,
    error_code: code::INVALID_PARAMETER,
};

impl Session {
    /// Runs CREATE USER.
    pub(crate) fn create_user(&self, definition: &UserDefinition) -> Result<Output> {
        self.change_users(
            UserCommand::Create(UserChange::of(definition, self.new_user_id())?),
            "CREATE USER",
        )
    }

    /// Runs ALTER USER.
    pub(crate) fn alter_user(&self, definition: &UserDefinition) -> Result<Output> {
        self.change_users(
            UserCommand::Alter(UserChange::of(definition, self.new_user_id())?),
            "ALTER USER",
        )
    }

    /// Runs DROP USER.
    pub(crate) fn drop_user(&self, name: &Ident, if_exists: bool) -> Result<Output> {
        self.change_users(UserCommand::Drop { name: name.clone(), if_exists }, "DROP USER")
    }

    /// Runs CREATE ROLE.
    pub(crate) fn create_role(&self, name: &Ident, if_not_exists: bool) -> Result<Output> {
        let id = self.new_user_id();
        let command = UserCommand::CreateRole { name: name.clone(), id, if_not_exists };
        self.change_users(command, "CREATE ROLE")
    }

    fn new_user_id(&self) -> u64 {
        new_id(&*self.database().host().random)
    }

    /// Runs DROP ROLE.
    pub(crate) fn drop_role(&self, name: &Ident, if_exists: bool) -> Result<Output> {
        self.change_users(UserCommand::DropRole { name: name.clone(), if_exists }, "DROP ROLE")
    }

    /// Runs GRANT and REVOKE of roles.
    pub(crate) fn change_membership(&self, change: &RoleMembership) -> Result<Output> {
        let message = if change.is_granted { "GRANT" } else { "REVOKE" };
        self.change_users(UserCommand::Membership(change.clone()), message)
    }

    /// Runs GRANT or REVOKE.
    pub(crate) fn change_privileges(&self, change: &Privileges) -> Result<Output> {
        let message = if change.is_granted { "GRANT" } else { "REVOKE" };
        let object = self.object_of(change);
        change.privileges.iter().try_for_each(|privilege| object.check_takes(privilege))?;
        let object = object.text();
        self.change_users(UserCommand::Privileges { change: change.clone(), object }, message)
    }

    /// Fails where the caller may not grant or revoke these.
    pub(crate) fn permit_grants(&self, change: &Privileges) -> Result<()> {
        let object = self.object_of(change);
        let objects = self.database.objects();
        let user = self.caller().name();
        let may = |name: &&Ident| objects.users().may_grant(user, &name.text, &object);
        let Some(missing) = change.privileges.iter().find(|name| !may(name)) else {
            return Ok(());
        };
        let message = format!("permission denied to grant or revoke {} on {object}", missing.text);
        Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, message)
            .at(missing.span)
            .with_detail(format!(
                "User `{user}` has neither ADMIN on {object} nor {} WITH GRANT OPTION.",
                missing.text
            ))
            .with_hint("Have a user with one of these privileges run the statement.")
            .err()
    }

    /// Runs CREATE TOKEN. The output is the only place that ever has the text of the token.
    pub(crate) fn create_token(&self, create: &CreateToken) -> Result<Output> {
        let mut options = TokenOptions { valid_ms: Some(TOKEN_MS) };
        TOKEN_OPTIONS.read(&create.options, &mut options)?;
        let now_ms = self.database.now_ms();
        let expires_ms =
            options.valid_ms.map(|ms| now_ms.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)));
        let (token, text) = AccessToken::new(now_ms, expires_ms);
        let (user, name) = (self.user_or_own(create.user.as_ref()), create.name.clone());
        self.change_users(
            UserCommand::CreateToken(NewToken { user, name, token }),
            "CREATE TOKEN",
        )?;
        let expires = expires_ms.map_or(Value::Null, Value::Timestamp);
        Output::of_values(
            &[("token", DataType::String), ("expires", DataType::Timestamp)],
            &[vec![Value::String(text.into()), expires]],
        )
    }

    /// Runs DROP TOKEN.
    pub(crate) fn drop_token(
        &self,
        name: &Ident,
        user: Option<&Ident>,
        if_exists: bool,
    ) -> Result<Output> {
        let (user, name) = (self.user_or_own(user), name.clone());
        self.change_users(UserCommand::DropToken { user, name, if_exists }, "DROP TOKEN")
    }

    /// Runs KILL.
    pub(crate) fn kill(&self, session: u64, query_only: bool, span: Span) -> Result<Output> {
        let killed = self.database.kill(session, query_only);
        killed.map_err(|error| Box::new(error.at(span)))?;
        Ok(Output::of_message("KILL"))
    }

    fn change_users(&self, command: UserCommand, message: &str) -> Result<Output> {
        self.database.commit(&CatalogCommand::ChangeUsers(command))?;
        Ok(Output::of_message(message))
    }

    /// Returns the object of a GRANT: `*` and a database mean every table and deployment in it, a name
    /// alone means a table, or with DEPLOYMENT a deployment, of the current database.
    fn object_of(&self, change: &Privileges) -> Securable {
        let kind = change.object_kind.as_deref();
        let of_deployments = kind == Some("DEPLOYMENT");
        let named = |database: &str, name: &Ident| {
            let name = QualifiedName { database: database.to_owned(), name: name.text.clone() };
            if of_deployments { Securable::Deployment(name) } else { Securable::Table(name) }
        };
        match change.object.as_slice() {
            [ObjectPart::Name(name)] if kind == Some("DATABASE") => {
                Securable::Database(name.text.clone())
            }
            [ObjectPart::Name(name)] => named(&self.current_database(), name),
            [ObjectPart::Name(database), ObjectPart::Name(name)] => named(&database.text, name),
            [ObjectPart::Name(database), ObjectPart::All(_)] if of_deployments => {
                Securable::DeploymentsOf(database.text.clone())
            }
            [ObjectPart::Name(database), ObjectPart::All(_)] => {
                Securable::Database(database.text.clone())
            }
            _ if of_deployments => Securable::EveryDeployment,
            _ => Securable::Everything,
        }
    }

    /// Runs SHOW USERS.
    pub(crate) fn show_users(&self) -> Result<Output> {
        let objects = self.database.objects();
        let users = objects.users().by_name().iter().filter(|(_, user)| !user.is_role());
        let rows: Vec<_> = users
            .map(|(name, user)| vec![Some(name.clone()), Some(user.has_password().to_string())])
            .collect();
        Output::of_texts(&["user", "has_password"], &rows)
    }

    /// Runs SHOW ROLES: each role with each of its members.
    pub(crate) fn show_roles(&self) -> Result<Output> {
        let objects = self.database.objects();
        let users = objects.users().by_name();
        let mut rows = Vec::new();
        for (role, _) in users.iter().filter(|(_, user)| user.is_role()) {
            let is_member = |user: &User| user.roles().any(|name| name == role);
            let members = users.iter().filter(|(_, user)| is_member(user));
            let members: Vec<&str> = members.map(|(name, _)| name.as_str()).collect();
            rows.push(vec![Some(role.clone()), Some(members.join(", "))]);
        }
        Output::of_texts(&["role", "members"], &rows)
    }

    /// Runs SHOW TOKENS; without a name, those of the user of the session.
    pub(crate) fn show_tokens(&self, user: Option<&Ident>) -> Result<Output> {
        let user = self.user_or_own(user);
        let objects = self.database.objects();
        let text = |text: &str| Value::String(text.into());
        let row = |(name, token): (&String, &AccessToken)| {
            let expires = token.expires_ms.map_or(Value::Null, Value::Timestamp);
            vec![text(&user.text), text(name), Value::Timestamp(token.created_ms), expires]
        };
        let tokens = objects.users().find(&user)?.tokens().iter();
        Output::of_values(TOKENS, &tokens.map(row).collect::<Vec<_>>())
    }

    /// Runs SHOW GRANTS; without a name, those of the user of the session. A role that was granted is
    /// the object of ROLE.
    pub(crate) fn show_grants(&self, name: Option<&Ident>) -> Result<Output> {
        let name = self.user_or_own(name);
        let objects = self.database.objects();
        let found = objects.users().find(&name)?;
        let mut rows: Vec<_> = found
            .grants()
            .map(|grant| {
                vec![
                    Some(name.text.clone()),
                    Some(grant.privilege.clone()),
                    Some(grant.object.clone()),
                    Some(grant.with_grant_option.to_string()),
                ]
            })
            .collect();
        rows.extend(found.roles().map(|role| {
            let row = [name.text.as_str(), "ROLE", role, "false"];
            row.map(|text| Some(text.to_owned())).to_vec()
        }));
        Output::of_texts(&["user", "privilege", "object", "grant_option"], &rows)
    }

    /// Returns a user that a statement names, or that of the session.
    fn user_or_own(&self, name: Option<&Ident>) -> Ident {
        let own = || Ident { text: self.caller().name().to_owned(), span: Span::default() };
        name.cloned().unwrap_or_else(own)
    }
}
