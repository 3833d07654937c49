//! SELECT without FROM of functions about the server and the session: `version()`, `current_schema()`.

use super::{
    client_settings::switch_of,
    command::SettingScope,
    script::TokenCursor,
    token::{SqlTokenKind, unquoted},
};

/// A query of such functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InformationQuery {
    pub(crate) items: Vec<InformationItem>,
}

/// An item of a query: a function and the name of its column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InformationItem {
    pub(crate) name: String,
    pub(crate) function: InformationFunction,
}

/// A function about the server or the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InformationFunction {
    Version,
    User,
    Database,
    Schema,
    Schemas,
    ProcessId,
    ClientEncoding,
    /// `current_setting(name, missing_ok)`.
    Setting(String, MissingSetting),
    /// `set_config(name, value, is_local)`.
    SetSetting(String, String, SettingScope),
    /// A text that is always the same.
    Text(&'static str),
    /// A BOOL that is always the same.
    Flag(bool),
    /// A number that is always the same.
    Number(i64),
    /// NULL.
    Null,
}

/// What `current_setting` gives for a name that no setting has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingSetting {
    Error,
    Null,
}

impl InformationQuery {
    /// Reads a query; `None` where it is not one of nothing but such functions.
    pub(crate) fn read(mut statement: TokenCursor<'_>) -> Option<Self> {
        if !statement.accept("SELECT") {
            return None;
        }
        let mut items = Vec::new();
        loop {
            items.push(item(&mut statement)?);
            if statement.is_end() {
                return Some(Self { items });
            }
            if !statement.accept_symbol(",") {
                return None;
            }
        }
    }
}

fn item(statement: &mut TokenCursor<'_>) -> Option<InformationItem> {
    let (name, function) = function(statement)?;
    if statement.accept_symbol("::") {
        // A cast to text or name changes nothing that is seen.
        statement.name()?;
    }
    let is_named = statement.accept("AS");
    let next = statement.peek().map(|token| token.kind);
    let has_alias = is_named || matches!(next, Some(SqlTokenKind::Word | SqlTokenKind::QuotedName));
    let name = if has_alias { statement.name()? } else { name };
    Some(InformationItem { name, function })
}

fn function(statement: &mut TokenCursor<'_>) -> Option<(String, InformationFunction)> {
    let mut name = statement.name()?.to_ascii_lowercase();
    if name == "pg_catalog" && statement.accept_symbol(".") {
        name = statement.name()?.to_ascii_lowercase();
    }
    let arguments = arguments(statement)?;
    let function = match (name.as_str(), arguments.as_deref()) {
        ("version", Some([])) => InformationFunction::Version,
        ("current_user" | "user" | "session_user" | "current_role", None) => {
            InformationFunction::User
        }
        ("current_database", Some([])) | ("current_catalog", None) => InformationFunction::Database,
        ("current_schema", None | Some([])) => InformationFunction::Schema,
        ("current_schemas", Some([_])) => InformationFunction::Schemas,
        ("pg_backend_pid", Some([])) => InformationFunction::ProcessId,
        ("pg_client_encoding", Some([])) => InformationFunction::ClientEncoding,
        ("current_setting", Some([name])) => {
            InformationFunction::Setting(name.clone(), MissingSetting::Error)
        }
        ("current_setting", Some([name, is_ok])) => {
            let missing = if is_true(is_ok) { MissingSetting::Null } else { MissingSetting::Error };
            InformationFunction::Setting(name.clone(), missing)
        }
        ("set_config", Some([name, value, is_local])) => {
            let scope = if is_true(is_local) { SettingScope::Local } else { SettingScope::Session };
            InformationFunction::SetSetting(name.clone(), value.clone(), scope)
        }
        ("pg_is_in_recovery" | "pg_is_wal_replay_paused", Some([])) => {
            InformationFunction::Flag(false)
        }
        ("txid_current" | "pg_current_xact_id", Some([])) => InformationFunction::Number(1),
        ("pg_advisory_unlock_all" | "pg_advisory_unlock", Some(_)) => InformationFunction::Text(""),
        ("pg_encoding_to_char", Some([_])) => InformationFunction::Text("UTF8"),
        ("inet_server_addr" | "inet_client_addr" | "inet_server_port", Some([])) => {
            InformationFunction::Null
        }
        ("pg_my_temp_schema", Some([])) => InformationFunction::Number(0),
        _ => return None,
    };
    Some((name, function))
}

fn is_true(word: &str) -> bool {
    switch_of(word) == Some("on")
}

/// Reads arguments that are constants; the inner `None` where there are no parentheses.
fn arguments(statement: &mut TokenCursor<'_>) -> Option<Option<Vec<String>>> {
    if !statement.accept_symbol("(") {
        return Some(None);
    }
    let mut arguments = Vec::new();
    while !statement.accept_symbol(")") {
        if !arguments.is_empty() && !statement.accept_symbol(",") {
            return None;
        }
        let token = statement.next()?;
        match token.kind {
            SqlTokenKind::Word
            | SqlTokenKind::Text
            | SqlTokenKind::EscapedText
            | SqlTokenKind::Number => {
                arguments.push(unquoted(token, statement.sql()));
            }
            _ => return None,
        }
    }
    Some(Some(arguments))
}

#[cfg(test)]
mod tests {
    use super::{InformationFunction, InformationQuery, SettingScope};
    use crate::postgres::script::Script;

    fn read(sql: &str) -> Option<Vec<(String, InformationFunction)>> {
        let script = Script::new(sql).unwrap();
        let query = InformationQuery::read(script.statements().next().unwrap())?;
        Some(query.items.into_iter().map(|item| (item.name, item.function)).collect())
    }

    #[test]
    fn only_queries_of_such_functions_are_read() {
        let found =
            read("select pg_catalog.version(), current_schema() AS s, current_user").unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["version", "s", "current_user"]);
        let found = read("SELECT set_config('search_path', '', false)").unwrap();
        let set = InformationFunction::SetSetting(
            "search_path".to_owned(),
            String::new(),
            SettingScope::Session,
        );
        assert_eq!(found[0].1, set);
        let found = read("SELECT set_config('search_path', '', true)").unwrap();
        assert!(matches!(found[0].1, InformationFunction::SetSetting(_, _, SettingScope::Local)));
        for other in
            ["SELECT 1", "SELECT version() + 1", "SELECT version() FROM t", "SELECT abs(1)"]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
