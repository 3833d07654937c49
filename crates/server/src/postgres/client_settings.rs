//! The settings of PostgreSQL that clients set and ask for, where the engine has none of that name.
//!
//! A setting has the one value that the server can do, or is kept without effect. `TimeZone` and
//! `statement_timeout` are the engine's.

use std::collections::BTreeMap;

use lockstep_diagnostic::{Diagnostic, Result, code};

/// Which values a setting takes.
#[derive(Debug, Clone, Copy)]
enum SettingRule {
    /// Any; it has no effect.
    Any,
    /// Only one of these, in lower case.
    OneOf(&'static [&'static str]),
    /// `on` or `off`, which may be written in PostgreSQL's other ways.
    Switch,
    /// None: the server decides.
    Fixed,
}

/// The declaration of a setting.
struct ClientSetting {
    name: &'static str,
    default: &'static str,
    rule: SettingRule,
    /// Whether the client is told its value at the begin and when it changes.
    is_reported: bool,
}

const fn setting(name: &'static str, default: &'static str, rule: SettingRule) -> ClientSetting {
    ClientSetting { name, default, rule, is_reported: false }
}

const fn reported(name: &'static str, default: &'static str, rule: SettingRule) -> ClientSetting {
    ClientSetting { name, default, rule, is_reported: true }
}

/// The version of PostgreSQL whose protocol and catalogs the server has.
pub(crate) const VERSION: &str = concat!("16.0 (Lockstep ", env!("CARGO_PKG_VERSION"), ")");

/// The names of UTF-8, in lower case.
const UTF8: &[&str] = &["utf8", "utf-8", "utf_8", "unicode"];

const LEVELS: &[&str] = &["read uncommitted", "read committed", "repeatable read", "serializable"];

use SettingRule::{Any, Fixed, OneOf, Switch};

/// All settings.
const SETTINGS: &[ClientSetting] = &[
    reported("application_name", "", Any),
    setting("backslash_quote", "safe_encoding", Any),
    setting("bytea_output", "hex", Any),
    setting("check_function_bodies", "on", Any),
    reported("client_encoding", "UTF8", OneOf(UTF8)),
    setting("client_min_messages", "notice", Any),
    reported(
        "DateStyle",
        "ISO, MDY",
        OneOf(&["iso", "iso, mdy", "iso,mdy", "iso, dmy", "iso, ymd"]),
    ),
    setting("default_transaction_isolation", "read committed", OneOf(LEVELS)),
    reported("default_transaction_read_only", "off", Switch),
    setting("default_text_search_config", "pg_catalog.simple", Any),
    setting("enable_seqscan", "on", Any),
    setting("extra_float_digits", "1", Any),
    setting("idle_in_transaction_session_timeout", "0", Any),
    setting("in_hot_standby", "off", Fixed),
    reported("integer_datetimes", "on", Fixed),
    reported("IntervalStyle", "postgres", Any),
    reported("is_superuser", "off", Fixed),
    setting("jit", "off", Any),
    setting("lc_collate", "C", Fixed),
    setting("lc_ctype", "C.UTF-8", Fixed),
    setting("lock_timeout", "0", Any),
    setting("max_identifier_length", "63", Fixed),
    setting("max_index_keys", "32", Fixed),
    setting("row_security", "on", Any),
    setting("search_path", "\"$user\", public", Any),
    reported("server_encoding", "UTF8", Fixed),
    reported("server_version", VERSION, Fixed),
    setting("server_version_num", "160000", Fixed),
    reported("session_authorization", "", Fixed),
    reported("standard_conforming_strings", "on", OneOf(&["on", "true", "1", "yes"])),
    setting("synchronize_seqscans", "on", Any),
    setting("transaction_isolation", "read committed", OneOf(LEVELS)),
    setting("transaction_read_only", "off", Switch),
    setting("wal_level", "replica", Fixed),
    setting("xmloption", "content", Any),
];

/// The values of the settings of a connection.
#[derive(Debug, Default)]
pub(crate) struct ClientSettings {
    values: BTreeMap<&'static str, String>,
}

/// What setting a value has done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SettingChange {
    /// The name is not that of a setting of PostgreSQL.
    NotFound,
    /// The value is kept.
    Same,
    /// The value is kept, and the client is told.
    Reported(&'static str, String),
}

/// Returns the settings with their defaults.
pub(crate) fn default_settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS.iter().map(|setting| (setting.name, setting.default))
}

/// Returns `on` or `off` for PostgreSQL's words for them.
pub(crate) fn switch_of(word: &str) -> Option<&'static str> {
    match word.trim_matches('\'').to_ascii_lowercase().as_str() {
        "on" | "true" | "t" | "yes" | "y" | "1" => Some("on"),
        "off" | "false" | "f" | "no" | "n" | "0" => Some("off"),
        _ => None,
    }
}

/// Makes the error for a value that is neither `on` nor `off`.
pub(crate) fn not_a_switch<T>(name: &str, value: &str) -> Result<T> {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    Diagnostic::new(code::INVALID_PARAMETER, message)
        .with_hint("Set the parameter to on or off.")
        .err()
}

fn find(name: &str) -> Option<&'static ClientSetting> {
    SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
}

impl ClientSettings {
    /// Sets a value; `None` is the default.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<SettingChange> {
        let Some(setting) = find(name) else { return Ok(SettingChange::NotFound) };
        let mut given = value.unwrap_or(setting.default);
        if matches!(setting.rule, Switch) {
            match switch_of(given) {
                Some(word) => given = word,
                None => return not_a_switch(setting.name, given),
            }
        }
        let is_allowed = match setting.rule {
            Any | Switch => true,
            OneOf(words) => {
                // asyncpg puts the value into quotes.
                let word = given.trim_matches('\'').to_ascii_lowercase();
                given == setting.default || words.contains(&word.as_str())
            }
            Fixed => given == setting.default,
        };
        if !is_allowed {
            let message = format!("invalid value for parameter \"{}\": \"{given}\"", setting.name);
            let diagnostic = Diagnostic::new(code::INVALID_PARAMETER, message);
            return diagnostic
                .with_hint(format!("The only supported value is {}.", setting.default))
                .err();
        }
        let is_one_value = matches!(setting.rule, OneOf(words) if !std::ptr::eq(words, LEVELS));
        let kept = if is_one_value { setting.default } else { given };
        self.values.insert(setting.name, kept.to_owned());
        Ok(if setting.is_reported {
            SettingChange::Reported(setting.name, kept.to_owned())
        } else {
            SettingChange::Same
        })
    }

    /// Sets what only the server sets.
    pub(crate) fn fix(&mut self, name: &str, value: &str) {
        let setting = find(name).expect("the setting is declared");
        self.values.insert(setting.name, value.to_owned());
    }

    /// Returns the name and the value of a setting.
    pub(crate) fn get(&self, name: &str) -> Option<(&'static str, &str)> {
        let setting = find(name)?;
        let value = self.values.get(setting.name).map_or(setting.default, String::as_str);
        Some((setting.name, value))
    }

    /// Returns the settings whose values the client is told.
    pub(crate) fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        SETTINGS.iter().filter(|setting| setting.is_reported).filter_map(|s| self.get(s.name))
    }

    /// Returns all settings.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        SETTINGS.iter().filter_map(|setting| self.get(setting.name))
    }

    /// Gives all settings their defaults, except those that only the server sets.
    pub(crate) fn reset(&mut self) {
        self.values
            .retain(|name, _| find(name).is_some_and(|setting| matches!(setting.rule, Fixed)));
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientSettings, SETTINGS, SettingChange};

    #[test]
    fn settings_take_what_the_server_can_do() {
        let mut settings = ClientSettings::default();
        let reported = |name, value: &str| SettingChange::Reported(name, value.to_owned());
        let set = |settings: &mut ClientSettings, name, value| settings.set(name, Some(value));
        let done = set(&mut settings, "CLIENT_ENCODING", "utf-8").unwrap();
        assert_eq!(done, reported("client_encoding", "UTF8"));
        let done = set(&mut settings, "client_encoding", "'utf-8'").unwrap();
        assert_eq!(done, reported("client_encoding", "UTF8"));
        let done = set(&mut settings, "Application_Name", "x").unwrap();
        assert_eq!(done, reported("application_name", "x"));
        assert_eq!(set(&mut settings, "jit", "on").unwrap(), SettingChange::Same);
        assert_eq!(set(&mut settings, "nothing", "1").unwrap(), SettingChange::NotFound);
        for (name, value) in [
            ("client_encoding", "latin1"),
            ("standard_conforming_strings", "off"),
            ("default_transaction_read_only", "maybe"),
            ("server_version", "9"),
        ] {
            assert_eq!(set(&mut settings, name, value).unwrap_err().code, "22023", "{name}");
        }
        assert_eq!(settings.get("JIT"), Some(("jit", "on")));
        settings.reset();
        assert_eq!(settings.get("jit"), Some(("jit", "off")));
    }

    #[test]
    fn defaults_are_allowed() {
        let mut settings = ClientSettings::default();
        for setting in SETTINGS {
            assert!(settings.set(setting.name, None).is_ok(), "{}", setting.name);
        }
    }
}
