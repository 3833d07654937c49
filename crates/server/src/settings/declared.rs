//! The table of the settings: key, default, limits, meaning, and the field that has the value.

use super::{ServerSettings, SettingError};

/// One setting.
#[derive(Debug)]
pub struct ServerSetting {
    /// `section.key`.
    pub key: &'static str,
    /// What it does, for the person who sets it.
    pub doc: &'static str,
    /// Whether a reload of the configuration changes it in a running server.
    pub is_reloadable: bool,
    field: SettingField,
}

/// The field of a setting, with its default and its limits.
#[derive(Debug)]
enum SettingField {
    Text {
        default: &'static str,
        one_of: &'static [&'static str],
        at: fn(&mut ServerSettings) -> &mut String,
    },
    Integer {
        default: u64,
        min: u64,
        max: u64,
        at: fn(&mut ServerSettings) -> &mut u64,
    },
    Flag {
        default: bool,
        at: fn(&mut ServerSettings) -> &mut bool,
    },
    /// Texts; the default is none.
    List {
        at: fn(&mut ServerSettings) -> &mut Vec<String>,
    },
}

/// The kind of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    Text,
    Integer,
    Flag,
    List,
}

impl ServerSetting {
    /// Returns the kind of its value.
    pub(super) fn form(&self) -> ValueForm {
        match self.field {
            SettingField::Text { .. } => ValueForm::Text,
            SettingField::Integer { .. } => ValueForm::Integer,
            SettingField::Flag { .. } => ValueForm::Flag,
            SettingField::List { .. } => ValueForm::List,
        }
    }

    /// Returns its default.
    pub(super) fn default_value(&self) -> toml::Value {
        match self.field {
            SettingField::Text { default, .. } => toml::Value::String(default.to_owned()),
            SettingField::Integer { default, .. } => integer(default),
            SettingField::Flag { default, .. } => toml::Value::Boolean(default),
            SettingField::List { .. } => toml::Value::Array(Vec::new()),
        }
    }

    /// Returns the value that the settings have.
    pub(super) fn load(&self, settings: &ServerSettings) -> toml::Value {
        let mut settings = settings.clone();
        match self.field {
            SettingField::Text { at, .. } => toml::Value::String(at(&mut settings).clone()),
            SettingField::Integer { at, .. } => integer(*at(&mut settings)),
            SettingField::Flag { at, .. } => toml::Value::Boolean(*at(&mut settings)),
            SettingField::List { at } => at(&mut settings).clone().into(),
        }
    }

    /// Checks a value and puts it into the settings.
    pub(super) fn store(
        &self,
        settings: &mut ServerSettings,
        value: &toml::Value,
    ) -> Result<(), SettingError> {
        match (&self.field, value) {
            (SettingField::Text { one_of, at, .. }, toml::Value::String(text))
                if one_of.is_empty() || one_of.contains(&text.as_str()) =>
            {
                at(settings).clone_from(text);
            }
            (SettingField::Integer { min, max, at, .. }, toml::Value::Integer(number))
                if u64::try_from(*number).is_ok_and(|number| (*min..=*max).contains(&number)) =>
            {
                *at(settings) = u64::try_from(*number).unwrap_or(*max);
            }
            (SettingField::Flag { at, .. }, toml::Value::Boolean(flag)) => *at(settings) = *flag,
            (SettingField::List { at }, toml::Value::Array(items)) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
                let texts: Option<Vec<String>> = texts.collect();
                *at(settings) = texts.ok_or_else(|| self.mismatch(value))?;
            }
            _ => return Err(self.mismatch(value)),
        }
        Ok(())
    }

    /// Says which values the setting takes.
    fn mismatch(&self, value: &toml::Value) -> SettingError {
        let given = match value {
            toml::Value::String(text) => format!("'{text}'"),
            other => other.to_string(),
        };
        let expected = match &self.field {
            SettingField::Text { one_of: [], .. } => "a text".to_owned(),
            SettingField::Text { one_of, .. } => format!("one of {}", one_of.join(", ")),
            SettingField::Integer { min, max, .. } => format!("a number from {min} to {max}"),
            SettingField::Flag { .. } => "true or false".to_owned(),
            SettingField::List { .. } => "a list of texts".to_owned(),
        };
        SettingError(format!("{} is {expected}, {given} is not", self.key))
    }
}

fn integer(value: u64) -> toml::Value {
    toml::Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// An hour in milliseconds.
const HOUR_MS: u64 = 3_600_000;

/// A day in milliseconds.
const DAY_MS: u64 = 24 * HOUR_MS;

/// The most threads of a pool.
const THREADS_MAX: u64 = 1_024;

/// The most calls that wait for a pool.
const QUEUE_MAX: u64 = 1 << 20;

/// The most bytes of a body or an answer.
const BYTES_MAX: u64 = 1 << 40;

/// The most rows of an answer.
const ROWS_MAX: u64 = 1 << 40;

/// Makes an entry of the table.
macro_rules! setting {
    ($key:literal, $at:ident: text $default:literal, [$($one_of:literal),*], $reload:literal, $doc:literal) => {
        ServerSetting {
            key: $key,
            doc: $doc,
            is_reloadable: $reload,
            field: SettingField::Text {
                default: $default,
                one_of: &[$($one_of),*],
                at: |settings| &mut settings.$at,
            },
        }
    };
    ($key:literal, $at:ident: $default:literal in $min:literal, $max:expr, $reload:literal, $doc:literal) => {
        ServerSetting {
            key: $key,
            doc: $doc,
            is_reloadable: $reload,
            field: SettingField::Integer {
                default: $default,
                min: $min,
                max: $max,
                at: |settings| &mut settings.$at,
            },
        }
    };
    ($key:literal, $at:ident: list, $reload:literal, $doc:literal) => {
        ServerSetting {
            key: $key,
            doc: $doc,
            is_reloadable: $reload,
            field: SettingField::List { at: |settings| &mut settings.$at },
        }
    };
    ($key:literal, $at:ident: flag $default:literal, $reload:literal, $doc:literal) => {
        ServerSetting {
            key: $key,
            doc: $doc,
            is_reloadable: $reload,
            field: SettingField::Flag { default: $default, at: |settings| &mut settings.$at },
        }
    };
}

/// All settings, section by section.
#[rustfmt::skip]
pub const DECLARED: &[ServerSetting] = &[
    setting!("http.listen", http_listen: text "127.0.0.1:7431", [], false,
        "The address and port on which HTTP is served; port 0 takes a free one.\nAddresses that other machines reach need TLS and a user who can log in."),
    setting!("postgres.listen", postgres_listen: text "127.0.0.1:7432", [], false,
        "The address and port on which PostgreSQL's protocol is served; port 0 takes a free one, off: none.\nAddresses that other machines reach need TLS and a user who can log in."),
    setting!("flight.listen", flight_listen: text "127.0.0.1:7433", [], false,
        "The address and port on which Arrow Flight SQL is served; off: it is not.\nAddresses that other machines reach need TLS and a user who can log in."),
    setting!("flight.sessions_max", flight_sessions_max: 10_000 in 1, 1_000_000, true,
        "Sessions of Flight clients that are kept at the same time; further ones are refused."),
    setting!("flight.statements_max", flight_statements_max: 100_000 in 1, 10_000_000, true,
        "Prepared statements and requests that are kept for Flight clients; further ones are refused."),
    setting!("flight.session_timeout_ms", flight_session_timeout_ms: 3_600_000 in 1, DAY_MS, true,
        "After how long without a call a session or a prepared statement of a Flight client is forgotten."),
    setting!("server.read_only", read_only: flag false, false,
        "Opens the directory without changing it: every change is refused."),
    setting!("server.authentication", authentication: text "users", ["users", "none"], false,
        "users: clients log in with a password or a token. none: everybody who can connect is root;\nfor tests, on addresses of this machine only."),
    setting!("server.file_folders", file_folders: list, true,
        "Folders, which have to exist, in which statements of users may read and write files of the server."),
    setting!("server.temp_folders", temp_folders: list, true,
        "Folders, which have to exist, that users may name with SET temp_directory.\nKeep them apart from server.file_folders."),
    setting!("server.worker_threads", worker_threads: 0 in 0, THREADS_MAX, false,
        "Threads that read connections and answer requests; 0 is one for each processor."),
    setting!("server.drain_delay_ms", drain_delay_ms: 0 in 0, HOUR_MS, true,
        "How long a server that was told to end still accepts connections, while /readyz says 503."),
    setting!("server.drain_timeout_ms", drain_timeout_ms: 30_000 in 0, HOUR_MS, true,
        "How long it then waits for what runs before it cancels it."),
    setting!("tls.certificate", tls_certificate: text "", [], true,
        "A PEM file with the certificate chain; empty: no TLS. Read again at a reload."),
    setting!("tls.key", tls_key: text "", [], true,
        "A PEM file with the private key. Read again at a reload."),
    setting!("tls.client_ca", tls_client_ca: text "", [], true,
        "A PEM file with the authorities of clients' certificates; empty: clients show none.\nA certificate names its user by its common name or an alternative name. Read again at a reload."),
    setting!("tls.client_certificates", tls_client_certificates: text "optional", ["optional", "required"], true,
        "required: a client without a certificate of tls.client_ca is refused. optional: it logs in otherwise."),
    setting!("limits.connections_max", connections_max: 10_000 in 1, 1_000_000, true,
        "Connections that are open at the same time; further ones are closed at once."),
    setting!("limits.header_bytes_max", header_bytes_max: 16_384 in 8_192, 1_048_576, true,
        "Bytes of the request line and the headers."),
    setting!("limits.body_bytes_max", body_bytes_max: 67_108_864 in 1, BYTES_MAX, true,
        "Bytes of a request's body."),
    setting!("limits.answer_bytes_max", answer_bytes_max: 268_435_456 in 1_024, BYTES_MAX, true,
        "Bytes of an answer's body; a larger one is refused."),
    setting!("limits.answer_rows_max", answer_rows_max: 0 in 0, ROWS_MAX, true,
        "Rows of a query's answer; one with more is refused. 0: no limit."),
    setting!("limits.query_memory_bytes_max", query_memory_bytes_max: 0 in 0, BYTES_MAX, true,
        "Bytes of memory that one call may hold, except a request of one row. 0: no limit."),
    setting!("limits.queries_memory_bytes_max", queries_memory_bytes_max: 0 in 0, BYTES_MAX, true,
        "Bytes of memory for all calls together: each reserves limits.query_memory_bytes_max of it,\nand is refused where so much is not free. 0: no limit."),
    setting!("limits.header_timeout_ms", header_timeout_ms: 10_000 in 1, DAY_MS, true,
        "How long a client may take for the TLS handshake, and for the headers of a request."),
    setting!("limits.body_timeout_ms", body_timeout_ms: 10_000 in 1, DAY_MS, true,
        "How long the next part of a body may take to arrive."),
    setting!("limits.write_timeout_ms", write_timeout_ms: 30_000 in 1, DAY_MS, true,
        "How long a client may read nothing of an answer that is ready."),
    setting!("limits.idle_timeout_ms", idle_timeout_ms: 300_000 in 1, DAY_MS, true,
        "How long a connection stays open without a request."),
    setting!("limits.request_timeout_ms", request_timeout_ms: 30_000 in 1, DAY_MS, true,
        "The longest deadline of a call of a deployment or an append, and the one without another."),
    setting!("limits.statement_timeout_ms", statement_timeout_ms: 600_000 in 1, DAY_MS, true,
        "The longest deadline of SQL statements, and the one without another."),
    setting!("admission.request_threads", request_threads: 2 in 1, THREADS_MAX, false,
        "Threads that answer requests of many rows; one of a single row is answered where it is read."),
    setting!("admission.request_queue", request_queue: 256 in 1, QUEUE_MAX, false,
        "Requests of many rows that may wait for a thread; further ones are refused with 429."),
    setting!("admission.write_threads", write_threads: 8 in 1, THREADS_MAX, false,
        "Threads that write rows. They wait for the disk, so that several share one sync."),
    setting!("admission.write_queue", write_queue: 256 in 1, QUEUE_MAX, false,
        "Writes that may wait for a thread; further ones are refused with 429."),
    setting!("admission.analytics_threads", analytics_threads: 2 in 1, THREADS_MAX, false,
        "Threads of low priority that run all other SQL."),
    setting!("admission.analytics_queue", analytics_queue: 16 in 1, QUEUE_MAX, false,
        "SQL that may wait for a thread; further calls are refused with 429."),
    setting!("admission.analytics_priority", analytics_priority: text "idle", ["idle", "low"], false,
        "What computes this SQL: threads that have a processor only while nothing else on the machine\nneeds it, or those of low priority, which get about a tenth of one that is needed."),
    setting!("log.level", log_level: text "info", ["error", "warn", "info", "debug"], false,
        "The least severe lines that are logged. Lines are JSON objects on the standard error output;\ndebug has one for each request."),
    setting!("log.slow_request_ms", slow_request_ms: 1_000 in 0, DAY_MS, true,
        "Requests that take so long are logged as warnings; 0: none."),
    setting!("traces.endpoint", traces_endpoint: text "", [], false,
        "Where traces of calls are sent: http://host:port/path of a collector that takes OTLP as Protocol\nBuffers over HTTP, such as http://localhost:4318/v1/traces. Empty: there are no traces."),
    setting!("traces.sample_per_million", traces_sample_per_million: 10_000 in 0, 1_000_000, false,
        "Calls that are traced, of a million. A client that sends traceparent decides for itself."),
    setting!("traces.queue_calls", traces_queue_calls: 4_096 in 1, 1_000_000, false,
        "Traced calls that wait to be sent; further ones are dropped and counted."),
];
