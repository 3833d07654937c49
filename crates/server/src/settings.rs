//! The configuration of a server: every setting with its default, its meaning and its limits.
//!
//! A setting is declared once, in [`DECLARED`]; the reader of the file, `--print-config`, the
//! validation and the documentation of a setting come from there. Reads no file and no environment:
//! the caller has the text.

mod declared;

use std::{fmt::Write, net::SocketAddr};

use lockstep_diagnostic::nearest;
use lockstep_engine::Database;

use crate::{access::Authentication, traces::TraceEndpoint};
use declared::ValueForm;
pub use declared::{DECLARED, ServerSetting};

/// The values of all settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    pub(crate) http_listen: String,
    pub(crate) postgres_listen: String,
    pub(crate) flight_listen: String,
    pub(crate) flight_sessions_max: u64,
    pub(crate) flight_statements_max: u64,
    pub(crate) flight_session_timeout_ms: u64,
    pub(crate) read_only: bool,
    pub(crate) authentication: String,
    pub(crate) file_folders: Vec<String>,
    pub(crate) temp_folders: Vec<String>,
    pub(crate) drain_delay_ms: u64,
    pub(crate) drain_timeout_ms: u64,
    pub(crate) worker_threads: u64,
    pub(crate) tls_certificate: String,
    pub(crate) tls_key: String,
    pub(crate) tls_client_ca: String,
    pub(crate) tls_client_certificates: String,
    pub(crate) connections_max: u64,
    pub(crate) header_bytes_max: u64,
    pub(crate) body_bytes_max: u64,
    pub(crate) answer_bytes_max: u64,
    pub(crate) answer_rows_max: u64,
    pub(crate) query_memory_bytes_max: u64,
    pub(crate) queries_memory_bytes_max: u64,
    pub(crate) header_timeout_ms: u64,
    pub(crate) body_timeout_ms: u64,
    pub(crate) write_timeout_ms: u64,
    pub(crate) idle_timeout_ms: u64,
    pub(crate) request_timeout_ms: u64,
    pub(crate) statement_timeout_ms: u64,
    pub(crate) request_threads: u64,
    pub(crate) write_threads: u64,
    pub(crate) analytics_threads: u64,
    pub(crate) request_queue: u64,
    pub(crate) write_queue: u64,
    pub(crate) analytics_queue: u64,
    pub(crate) analytics_priority: String,
    pub(crate) log_level: String,
    pub(crate) slow_request_ms: u64,
    pub(crate) traces_endpoint: String,
    pub(crate) traces_sample_per_million: u64,
    pub(crate) traces_queue_calls: u64,
}

/// What is wrong with a configuration, as a sentence for the person who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError(String);

impl std::fmt::Display for SettingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingError {}

impl Default for ServerSettings {
    fn default() -> Self {
        let mut settings = Self::unset();
        for setting in DECLARED {
            let value = setting.default_value();
            setting.store(&mut settings, &value).expect("a default is within its own limits");
        }
        settings
    }
}

impl ServerSettings {
    /// Reads a configuration file: TOML with the sections and keys of [`DECLARED`]. Settings that
    /// it lacks keep their defaults.
    pub fn from_toml(text: &str) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        settings.merge_toml(text)?;
        Ok(settings)
    }

    /// Reads the settings that a TOML text has over these.
    pub fn merge_toml(&mut self, text: &str) -> Result<(), SettingError> {
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| SettingError(error.to_string()))?;
        for (section, value) in &table {
            let toml::Value::Table(entries) = value else {
                return Err(unknown(section));
            };
            for (key, value) in entries {
                self.set_value(&format!("{section}.{key}"), value)?;
            }
        }
        Ok(())
    }

    /// Sets one setting from text, as the command line gives it: `limits.connections_max` and `100`.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), SettingError> {
        let setting = find(key)?;
        let quoted = toml::Value::String(text.to_owned());
        let value = match setting.form() {
            ValueForm::Text => quoted,
            ValueForm::Integer => text.parse().map_or(quoted, toml::Value::Integer),
            ValueForm::Flag => text.parse().map_or(quoted, toml::Value::Boolean),
            ValueForm::List => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                items.map(str::to_owned).collect::<Vec<String>>().into()
            }
        };
        setting.store(self, &value)
    }

    fn set_value(&mut self, key: &str, value: &toml::Value) -> Result<(), SettingError> {
        find(key)?.store(self, value)
    }

    /// Checks what one setting alone cannot tell.
    pub fn validate(&self) -> Result<(), SettingError> {
        let addresses = self.listen_addresses()?;
        if self.tls_certificate.is_empty() != self.tls_key.is_empty() {
            let text = "tls.certificate and tls.key must be set together";
            return Err(SettingError(text.to_owned()));
        }
        if !self.tls_client_ca.is_empty() && !self.has_tls() {
            let text = "tls.client_ca requires tls.certificate and tls.key";
            return Err(SettingError(text.to_owned()));
        }
        if self.needs_client_certificates() && self.tls_client_ca.is_empty() {
            let text = "tls.client_certificates = \"required\" requires tls.client_ca";
            return Err(SettingError(text.to_owned()));
        }
        if !self.traces_endpoint.is_empty() && self.trace_endpoint().is_none() {
            let given = &self.traces_endpoint;
            let text = format!(
                "invalid value for setting traces.endpoint: '{given}' (expected \
                 http://host:port/path)"
            );
            return Err(SettingError(text));
        }
        let mut missing = Vec::new();
        if !self.has_tls() {
            missing.push("TLS (tls.certificate and tls.key)");
        }
        if self.authentication() == Authentication::None {
            missing.push("server.authentication = \"users\"");
        }
        match addresses.iter().find(|(_, address)| !address.ip().is_loopback()) {
            Some(public) if !missing.is_empty() => Err(refused_address(*public, &missing)),
            _ => Ok(()),
        }
    }

    /// Checks the settings against the users of the database.
    pub(crate) fn check_users(&self, database: &Database) -> Result<(), SettingError> {
        let addresses = self.listen_addresses()?;
        match addresses.iter().find(|(_, address)| !address.ip().is_loopback()) {
            Some(public) if !database.can_anyone_log_in() => {
                Err(refused_address(*public, &[NO_USER]))
            }
            _ => Ok(()),
        }
    }

    /// Returns the addresses on which the server listens, each with its setting.
    fn listen_addresses(&self) -> Result<Vec<(&'static str, SocketAddr)>, SettingError> {
        let mut addresses = vec![(HTTP_LISTEN, self.http_address()?)];
        addresses.extend(self.postgres_address()?.map(|address| (POSTGRES_LISTEN, address)));
        addresses.extend(self.flight_address()?.map(|address| (FLIGHT_LISTEN, address)));
        Ok(addresses)
    }

    /// Returns how clients are told from each other.
    pub(crate) fn authentication(&self) -> Authentication {
        if self.authentication == "none" { Authentication::None } else { Authentication::Users }
    }

    /// Returns whether analytics are computed only while nothing else needs the processor.
    pub(crate) fn computes_when_idle(&self) -> bool {
        self.analytics_priority == "idle"
    }

    /// Returns the address on which HTTP is served.
    pub fn http_address(&self) -> Result<SocketAddr, SettingError> {
        address(HTTP_LISTEN, &self.http_listen, "127.0.0.1:7431")
    }

    /// Returns the address on which Flight SQL is served; `None` where it is not.
    pub fn flight_address(&self) -> Result<Option<SocketAddr>, SettingError> {
        match self.flight_listen.as_str() {
            "" | OFF => Ok(None),
            given => address(FLIGHT_LISTEN, given, "127.0.0.1:7433").map(Some),
        }
    }

    /// Returns the address on which PostgreSQL's protocol is served; `None` where it is not.
    pub fn postgres_address(&self) -> Result<Option<SocketAddr>, SettingError> {
        match self.postgres_listen.as_str() {
            "" | OFF => Ok(None),
            given => address(POSTGRES_LISTEN, given, "127.0.0.1:7432").map(Some),
        }
    }

    /// Returns whether connections are encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        !self.tls_certificate.is_empty()
    }

    /// Returns where traces are sent; `None`: nowhere.
    pub(crate) fn trace_endpoint(&self) -> Option<TraceEndpoint> {
        TraceEndpoint::read(&self.traces_endpoint)
    }

    /// Returns whether clients without a certificate are refused.
    pub(crate) fn needs_client_certificates(&self) -> bool {
        self.tls_client_certificates == "required"
    }

    /// Returns how many connections may be open at the same time.
    pub fn connections_max(&self) -> u64 {
        self.connections_max
    }

    /// Returns whether the database is opened without changing it.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Writes all settings as a configuration file that sets them to these values.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        for setting in DECLARED {
            let (of, key) = setting.key.split_once('.').expect("a key has a section");
            if of != section {
                let gap = if section.is_empty() { "" } else { "\n" };
                // Writing to a string does not fail.
                let _written = writeln!(text, "{gap}[{of}]");
                section = of;
            }
            for line in setting.doc.lines() {
                let _written = writeln!(text, "# {}", line.trim());
            }
            let value = setting.load(self);
            let _written = writeln!(text, "{key} = {value}");
        }
        text
    }

    /// Returns the keys of the settings that differ and need a restart to change.
    pub(crate) fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let differs = |setting: &&ServerSetting| setting.load(self) != setting.load(other);
        let fixed = DECLARED.iter().filter(|setting| !setting.is_reloadable);
        fixed.filter(differs).map(|setting| setting.key).collect()
    }

    /// Makes settings without values.
    fn unset() -> Self {
        Self {
            http_listen: String::new(),
            postgres_listen: String::new(),
            flight_listen: String::new(),
            flight_sessions_max: 0,
            flight_statements_max: 0,
            flight_session_timeout_ms: 0,
            read_only: false,
            authentication: String::new(),
            file_folders: Vec::new(),
            temp_folders: Vec::new(),
            drain_delay_ms: 0,
            drain_timeout_ms: 0,
            worker_threads: 0,
            tls_certificate: String::new(),
            tls_key: String::new(),
            tls_client_ca: String::new(),
            tls_client_certificates: String::new(),
            connections_max: 0,
            header_bytes_max: 0,
            body_bytes_max: 0,
            answer_bytes_max: 0,
            answer_rows_max: 0,
            query_memory_bytes_max: 0,
            queries_memory_bytes_max: 0,
            header_timeout_ms: 0,
            body_timeout_ms: 0,
            write_timeout_ms: 0,
            idle_timeout_ms: 0,
            request_timeout_ms: 0,
            statement_timeout_ms: 0,
            request_threads: 0,
            write_threads: 0,
            analytics_threads: 0,
            request_queue: 0,
            write_queue: 0,
            analytics_queue: 0,
            analytics_priority: String::new(),
            log_level: String::new(),
            slow_request_ms: 0,
            traces_endpoint: String::new(),
            traces_sample_per_million: 0,
            traces_queue_calls: 0,
        }
    }
}

/// Finds a setting by its key.
fn find(key: &str) -> Result<&'static ServerSetting, SettingError> {
    DECLARED.iter().find(|setting| setting.key == key).ok_or_else(|| unknown(key))
}

/// Makes the error for a key that no setting has.
fn unknown(key: &str) -> SettingError {
    let near = nearest(key, DECLARED.iter().map(|setting| setting.key));
    let hint = near.map_or_else(
        || "; `lockstep serve --print-config` lists all settings".to_owned(),
        |near| format!("; did you mean {near}?"),
    );
    SettingError(format!("unrecognized setting {key}{hint}"))
}

/// The setting of the address for HTTP.
const HTTP_LISTEN: &str = "http.listen";

/// The setting of the address for PostgreSQL's protocol.
const POSTGRES_LISTEN: &str = "postgres.listen";

/// The setting with the address of Flight SQL.
const FLIGHT_LISTEN: &str = "flight.listen";

/// The address of a protocol that is not served.
const OFF: &str = "off";

/// Reads the address of a setting.
fn address(key: &str, given: &str, example: &str) -> Result<SocketAddr, SettingError> {
    given.replace("localhost:", "127.0.0.1:").parse().map_err(|_error| {
        SettingError(format!(
            "invalid value for setting {key}: '{given}' (expected an address and a port, such as \
             {example})"
        ))
    })
}

/// What is missing where nobody can log in.
const NO_USER: &str = "a user who can log in (ALTER USER root SET OPTIONS(password='…'), or \
         CREATE USER with a password, or CREATE TOKEN)";

/// Says what is missing before the server listens on an address that others reach.
fn refused_address((key, address): (&str, SocketAddr), missing: &[&str]) -> SettingError {
    let missing = missing.join(" and ");
    SettingError(format!(
        "{key} {address} can be reached from other machines, which requires {missing}; addresses \
         of this machine, such as 127.0.0.1, have no such requirement"
    ))
}

#[cfg(test)]
mod tests {
    use lockstep_engine::Database;

    use super::{DECLARED, ServerSettings};

    fn error_of(text: &str) -> String {
        ServerSettings::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let mut settings = ServerSettings::default();
        settings.set("limits.connections_max", "77").unwrap();
        settings.set("http.listen", "[::1]:0").unwrap();
        settings.set("server.read_only", "true").unwrap();
        let printed = settings.to_toml();
        assert_eq!(ServerSettings::from_toml(&printed).unwrap(), settings);
        for setting in DECLARED {
            let (_, key) = setting.key.split_once('.').unwrap();
            assert!(printed.contains(&format!("\n{key} = ")), "{key}");
        }
    }

    #[test]
    fn an_unknown_key_names_a_near_one() {
        let text = error_of("[limits]\nconnection_max = 1");
        assert!(text.contains("did you mean limits.connections_max?"), "{text}");
        assert!(error_of("[limit]\nx = 1").contains("unrecognized setting limit.x"));
        assert!(error_of("listen = 1").contains("unrecognized setting listen"));
        assert!(ServerSettings::default().set("nothing.like_it", "1").is_err());
    }

    #[test]
    fn a_value_outside_its_limits_is_refused() {
        let text = error_of("[limits]\nconnections_max = 0");
        assert!(
            text.contains(
                "invalid value for setting limits.connections_max: 0 (expected a number from 1 to"
            ),
            "{text}"
        );
        assert!(
            error_of("[limits]\nconnections_max = \"x\"").contains("limits.connections_max: 'x'")
        );
        assert!(error_of("[log]\nlevel = \"loud\"").contains("one of error, warn, info, debug"));
        assert!(error_of("[server]\nread_only = 1").contains("true or false"));
        assert!(ServerSettings::from_toml("[limits").is_err());
    }

    #[test]
    fn addresses_that_others_reach_need_tls_and_users() {
        let check = |listen: &str, certificate: &str, authentication: &str| {
            let mut settings = ServerSettings::default();
            settings.set("http.listen", listen).unwrap();
            settings.set("tls.certificate", certificate).unwrap();
            settings.set("tls.key", certificate).unwrap();
            settings.set("server.authentication", authentication).unwrap();
            settings.validate().map(|()| settings).map_err(|error| error.to_string())
        };
        for loopback in ["127.0.0.1:0", "127.9.9.9:1", "[::1]:7431", "localhost:80"] {
            assert!(check(loopback, "", "none").is_ok(), "{loopback}");
        }
        let text = check("0.0.0.0:7431", "", "none").unwrap_err();
        assert!(text.contains("TLS") && text.contains("authentication"), "{text}");
        let text = check("[::]:7431", "a.pem", "none").unwrap_err();
        assert!(!text.contains("TLS") && text.contains("authentication"), "{text}");
        let text = check("10.0.0.1:7431", "", "users").unwrap_err();
        assert!(text.contains("TLS") && !text.contains("authentication"), "{text}");
        assert!(check("7431", "", "users").is_err());
        let settings = check("10.0.0.1:7431", "a.pem", "users").unwrap();
        let database = Database::in_memory();
        let text = settings.check_users(&database).unwrap_err().to_string();
        assert!(text.contains("a user who can log in"), "{text}");
        database.session().execute("ALTER USER root SET OPTIONS(password='x')").unwrap();
        assert_eq!(settings.check_users(&database), Ok(()));
    }

    #[test]
    fn a_list_is_an_array_of_the_file_or_has_commas() {
        let text = "[server]\nfile_folders = [\"/a\", \"/b c\"]";
        let settings = ServerSettings::from_toml(text).unwrap();
        assert_eq!(settings.file_folders, ["/a", "/b c"]);
        assert_eq!(ServerSettings::from_toml(&settings.to_toml()).unwrap(), settings);
        let mut given = ServerSettings::default();
        given.set("server.file_folders", "/a, /b c").unwrap();
        assert_eq!(given, settings);
        given.set("server.file_folders", "").unwrap();
        assert_eq!(given, ServerSettings::default());
        assert!(error_of("[server]\nfile_folders = \"/a\"").contains("a list of strings"));
        assert!(error_of("[server]\nfile_folders = [1]").contains("a list of strings"));
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let mut settings = ServerSettings::default();
        settings.set("tls.certificate", "a.pem").unwrap();
        assert!(settings.validate().is_err());
    }
}
