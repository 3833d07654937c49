//! How a session begins: who the client is, its database, and the settings of its startup packet.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::{ClientInfo, Session, guarded};

use super::{
    ClientFailure,
    cancel::{CancelKey, CancellableCall},
    client_settings::{ClientSettings, SettingChange},
    login::{LoginRequest, log_in, readable_token},
    response::{message, parameter_status, ready_for_query},
    startup::ConnectionOpener,
    transaction::Transaction,
    translation::push_string,
};
use crate::{protocol::Protocol, server_state::ServerState};

/// The setting with which a client says that it sends a token.
const AUTHENTICATION: &str = "lockstep.authentication";

/// A session that was opened and has not begun.
#[derive(Debug)]
pub(crate) struct SessionStart {
    pub(crate) session: Arc<Session>,
    pub(crate) settings: ClientSettings,
    pub(crate) running: Arc<CancellableCall>,
    pub(crate) key: CancelKey,
}

impl SessionStart {
    /// Logs a client in, and writes what it is told before its first message.
    pub(crate) async fn new(
        state: &Arc<ServerState>,
        opener: &mut ConnectionOpener<'_>,
        parameters: &BTreeMap<String, String>,
        address: IpAddr,
    ) -> Result<Self, ClientFailure> {
        let user = parameters.get("user").map_or("", String::as_str);
        if user.is_empty() {
            let message = "no user name specified in startup packet";
            return Ok(Diagnostic::new(code::INVALID_AUTHORIZATION, message).err()?);
        }
        let requested = requested_settings(parameters)?;
        let has_token =
            requested.iter().any(|(name, value)| name == AUTHENTICATION && value == "token");
        if has_token && !opener.is_encrypted && !address.to_canonical().is_loopback() {
            return Ok(readable_token().err()?);
        }
        let client = ClientInfo {
            address: Some(address.to_canonical().to_string()),
            application: parameters.get("application_name").cloned(),
            protocol: Some(Protocol::PostgreSql.name().to_owned()),
        };
        let channel = opener.channel.clone();
        let request = LoginRequest { user, has_token, address, client, channel };
        let session = log_in(state, &mut opener.frames, request).await?;
        use_database(&session, parameters.get("database").map_or(user, String::as_str), user)?;
        let mut settings = ClientSettings::default();
        settings.fix("session_authorization", session.user());
        for (name, value) in &requested {
            apply_setting(&session, &mut settings, name, Some(value))?;
        }
        let running = Arc::<CancellableCall>::default();
        let key = state.cancel_keys.register(session.id(), &running);
        let start = Self { session: Arc::new(session), settings, running, key };
        start.write(&mut opener.frames.output);
        Ok(start)
    }

    fn write(&self, out: &mut Vec<u8>) {
        for (name, value) in self.settings.reported() {
            parameter_status(out, name, value);
        }
        parameter_status(out, "TimeZone", &zone_name(&self.session));
        message(out, b'K', |out| {
            out.extend_from_slice(&self.key.process.to_be_bytes());
            out.extend_from_slice(&self.key.secret.to_be_bytes());
        });
        ready_for_query(out, Transaction::Idle.status());
    }
}

/// Returns the settings that a startup packet wants, in order.
fn requested_settings(parameters: &BTreeMap<String, String>) -> Result<Vec<(String, String)>> {
    let mut requested = Vec::new();
    for (name, value) in parameters {
        match name.as_str() {
            "user" | "database" => {}
            "options" => requested.extend(options(value)?),
            "replication" if !["false", "off", "no", "0"].contains(&value.as_str()) => {
                return Diagnostic::unsupported("replication connections are not supported").err();
            }
            name if name == "replication" || name.starts_with("_pq_.") => {}
            name => requested.push((name.to_owned(), value.clone())),
        }
    }
    Ok(requested)
}

/// Reads `-c name=value --name=value`; a backslash is before a blank of a value.
fn options(text: &str) -> Result<Vec<(String, String)>> {
    let mut words: Vec<String> = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let word = words.last_mut().expect("there is a word");
        match character {
            '\\' => word.extend(characters.next()),
            character if character.is_whitespace() => words.push(String::new()),
            character => word.push(character),
        }
    }
    let mut settings = Vec::new();
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let pair = match word.strip_prefix("--") {
            Some(rest) => rest.to_owned(),
            None if word == "-c" => words.next().unwrap_or_default(),
            None => word.strip_prefix("-c").unwrap_or_default().to_owned(),
        };
        let Some((name, value)) = pair.split_once('=') else {
            let message = format!("invalid command-line argument for server process: {word}");
            return Diagnostic::new(code::SYNTAX_ERROR, message).err();
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

/// Lets a session begin in a database. A client that names none, or that of PostgreSQL's installation,
/// begins in the default one.
fn use_database(session: &Session, name: &str, user: &str) -> Result<()> {
    if name.contains('`') {
        let message = format!("database \"{name}\" does not exist");
        return Diagnostic::new(code::UNDEFINED_DATABASE, message).err();
    }
    let used = guarded(|| session.execute(&format!("USE `{name}`")));
    match used {
        Err(error) if error.code == code::UNDEFINED_DATABASE => {
            if name == user || name == "postgres" || name.is_empty() { Ok(()) } else { Err(error) }
        }
        other => other.map(drop),
    }
}

/// Returns the name of a session's time zone.
pub(crate) fn zone_name(session: &Session) -> String {
    session.conversion().settings().time_zone.to_string()
}

/// Sets a setting of PostgreSQL or of the engine; `None` is the default. Returns the name and the value
/// where clients are told.
pub(crate) fn apply_setting(
    session: &Session,
    settings: &mut ClientSettings,
    name: &str,
    value: Option<&str>,
) -> Result<Option<(&'static str, String)>> {
    let is_zone = name.eq_ignore_ascii_case("timezone") || name.eq_ignore_ascii_case("time_zone");
    match settings.set(name, value)? {
        SettingChange::Same => return Ok(None),
        SettingChange::Reported(name, value) => return Ok(Some((name, value))),
        // Settings of extensions have dots, and no effect here.
        SettingChange::NotFound if name.contains('.') => return Ok(None),
        SettingChange::NotFound => {}
    }
    let name = if is_zone { "time_zone" } else { name };
    if name.contains('`') {
        let message = format!("unrecognized configuration parameter \"{name}\"");
        return Diagnostic::new(code::UNDEFINED_OBJECT, message).err();
    }
    let default = match (is_zone, name) {
        (true, _) => "UTC",
        (_, "statement_timeout") => "0",
        _ => "",
    };
    let mut sql = format!("SET {name} = ");
    push_string(&mut sql, value.unwrap_or(default));
    guarded(|| session.execute(&sql)).map_err(|mut error| {
        // The position is one of this text.
        error.span = None;
        error
    })?;
    Ok(is_zone.then(|| ("TimeZone", zone_name(session))))
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn options_are_read() {
        let found = options("-c a=1 -cb=x\\ y --c-d=2").unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(found, [pair("a", "1"), pair("b", "x y"), pair("c_d", "2")]);
        assert!(options("").unwrap().is_empty());
        for wrong in ["-c", "-x", "a=1", "-c a"] {
            assert_eq!(options(wrong).unwrap_err().code, "42601", "{wrong}");
        }
    }
}
