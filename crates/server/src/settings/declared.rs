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
            SettingField::Text { one_of: [], .. } => "a string".to_owned(),
            SettingField::Text { one_of, .. } => format!("one of {}", one_of.join(", ")),
            SettingField::Integer { min, max, .. } => format!("a number from {min} to {max}"),
            SettingField::Flag { .. } => "true or false".to_owned(),
            SettingField::List { .. } => "a list of strings".to_owned(),
        };
        SettingError(format!(
            "invalid value for setting {}: {given} (expected {expected})",
            self.key
        ))
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
        "Address and port on which HTTP is served; port 0 selects a free port.\nAn address that other machines can reach requires TLS and a user who can log in."),
    setting!("postgres.listen", postgres_listen: text "127.0.0.1:7432", [], false,
        "Address and port on which PostgreSQL's protocol is served; port 0 selects a free port, \"off\" disables it.\nAn address that other machines can reach requires TLS and a user who can log in."),
    setting!("flight.listen", flight_listen: text "127.0.0.1:7433", [], false,
        "Address and port on which Arrow Flight SQL is served; port 0 selects a free port, \"off\" disables it.\nAn address that other machines can reach requires TLS and a user who can log in."),
    setting!("flight.sessions_max", flight_sessions_max: 10_000 in 1, 1_000_000, true,
        "Maximum number of open sessions of Flight clients; further sessions are rejected."),
    setting!("flight.statements_max", flight_statements_max: 100_000 in 1, 10_000_000, true,
        "Maximum number of prepared statements and prepared requests of all Flight clients;\nfurther ones are rejected."),
    setting!("flight.session_timeout_ms", flight_session_timeout_ms: 3_600_000 in 1, DAY_MS, true,
        "Time without a call, in milliseconds, after which a session or a prepared statement of a Flight\nclient is closed."),
    setting!("server.read_only", read_only: flag false, false,
        "Opens the database read-only: the directory is not modified and every write is rejected."),
    setting!("server.authentication", authentication: text "users", ["users", "none"], false,
        "\"users\": clients log in with a password or a token. \"none\": every client is root;\nfor tests only, and only on addresses of this machine."),
    setting!("server.file_folders", file_folders: list, true,
        "Directories in which users' statements may read and write files on the server; each must exist."),
    setting!("server.temp_folders", temp_folders: list, true,
        "Directories that users may specify with SET temp_directory; each must exist.\nThey should not overlap with server.file_folders."),
    setting!("server.worker_threads", worker_threads: 0 in 0, THREADS_MAX, false,
        "Number of threads that read connections and answer requests; 0 means one per processor."),
    setting!("server.drain_delay_ms", drain_delay_ms: 0 in 0, HOUR_MS, true,
        "Time, in milliseconds, for which a server that is shutting down still accepts connections,\nwhile /readyz returns 503."),
    setting!("server.drain_timeout_ms", drain_timeout_ms: 30_000 in 0, HOUR_MS, true,
        "Time, in milliseconds, that the server then waits for running calls before it cancels them."),
    setting!("tls.certificate", tls_certificate: text "", [], true,
        "PEM file with the server's certificate chain; empty disables TLS. A reload reads the file again."),
    setting!("tls.key", tls_key: text "", [], true,
        "PEM file with the server's private key. A reload reads the file again."),
    setting!("tls.client_ca", tls_client_ca: text "", [], true,
        "PEM file with the certificate authorities of client certificates; empty disables client certificates.\nA certificate identifies its user by its common name or a subject alternative name.\nA reload reads the file again."),
    setting!("tls.client_certificates", tls_client_certificates: text "optional", ["optional", "required"], true,
        "\"required\": clients without a certificate from tls.client_ca are rejected.\n\"optional\": they log in with a password or a token."),
    setting!("limits.connections_max", connections_max: 10_000 in 1, 1_000_000, true,
        "Maximum number of open connections; further connections are closed immediately."),
    setting!("limits.header_bytes_max", header_bytes_max: 16_384 in 8_192, 1_048_576, true,
        "Maximum size of the request line and the headers of a request, in bytes."),
    setting!("limits.body_bytes_max", body_bytes_max: 67_108_864 in 1, BYTES_MAX, true,
        "Maximum size of a request body, in bytes."),
    setting!("limits.answer_bytes_max", answer_bytes_max: 268_435_456 in 1_024, BYTES_MAX, true,
        "Maximum size of a response body, in bytes; a call whose response would be larger fails."),
    setting!("limits.answer_rows_max", answer_rows_max: 0 in 0, ROWS_MAX, true,
        "Maximum number of rows in a query result; a query whose result has more rows fails. 0 means no limit."),
    setting!("limits.query_memory_bytes_max", query_memory_bytes_max: 0 in 0, BYTES_MAX, true,
        "Maximum memory of one call, in bytes; a request of one row is exempt. 0 means no limit."),
    setting!("limits.queries_memory_bytes_max", queries_memory_bytes_max: 0 in 0, BYTES_MAX, true,
        "Maximum memory of all calls together, in bytes. A call reserves limits.query_memory_bytes_max,\nand is rejected if the remaining memory is smaller. 0 means no limit."),
    setting!("limits.header_timeout_ms", header_timeout_ms: 10_000 in 1, DAY_MS, true,
        "Maximum time, in milliseconds, for the TLS handshake, and for the headers of a request."),
    setting!("limits.body_timeout_ms", body_timeout_ms: 10_000 in 1, DAY_MS, true,
        "Maximum time, in milliseconds, until the next part of a request body arrives."),
    setting!("limits.write_timeout_ms", write_timeout_ms: 30_000 in 1, DAY_MS, true,
        "Maximum time, in milliseconds, for which a client may read nothing while a response is ready."),
    setting!("limits.idle_timeout_ms", idle_timeout_ms: 300_000 in 1, DAY_MS, true,
        "Time without a request, in milliseconds, after which a connection is closed."),
    setting!("limits.request_timeout_ms", request_timeout_ms: 30_000 in 1, DAY_MS, true,
        "Maximum and default deadline of deployment calls and appends, in milliseconds."),
    setting!("limits.statement_timeout_ms", statement_timeout_ms: 600_000 in 1, DAY_MS, true,
        "Maximum and default deadline of SQL statements, in milliseconds."),
    setting!("admission.request_threads", request_threads: 2 in 1, THREADS_MAX, false,
        "Number of threads that answer batch requests; a request of a single row is answered\nby the thread that reads it."),
    setting!("admission.request_queue", request_queue: 256 in 1, QUEUE_MAX, false,
        "Maximum number of batch requests that wait for a thread; further ones are rejected with status 429."),
    setting!("admission.write_threads", write_threads: 8 in 1, THREADS_MAX, false,
        "Number of threads that write rows. Threads that wait for the disk at the same time share one sync."),
    setting!("admission.write_queue", write_queue: 256 in 1, QUEUE_MAX, false,
        "Maximum number of writes that wait for a thread; further ones are rejected with status 429."),
    setting!("admission.analytics_threads", analytics_threads: 2 in 1, THREADS_MAX, false,
        "Number of threads, of low priority, that run all other SQL statements."),
    setting!("admission.analytics_queue", analytics_queue: 16 in 1, QUEUE_MAX, false,
        "Maximum number of SQL statements that wait for a thread; further ones are rejected with status 429."),
    setting!("admission.analytics_priority", analytics_priority: text "idle", ["idle", "low"], false,
        "Priority of the threads that run these SQL statements. \"idle\": they run only on processors that\nnothing else on the machine uses. \"low\": they get about a tenth of the time of a busy processor."),
    setting!("log.level", log_level: text "info", ["error", "warn", "info", "debug"], false,
        "Minimum severity of logged lines. Lines are JSON objects on standard error;\n\"debug\" logs every request."),
    setting!("log.slow_request_ms", slow_request_ms: 1_000 in 0, DAY_MS, true,
        "Minimum duration, in milliseconds, of requests that are logged as slow, with severity warn; 0 disables this."),
    setting!("traces.endpoint", traces_endpoint: text "", [], false,
        "URL of the collector to which traces of calls are sent: http://host:port/path. It must accept OTLP as\nProtocol Buffers over HTTP. Example: http://localhost:4318/v1/traces. Empty disables traces."),
    setting!("traces.sample_per_million", traces_sample_per_million: 10_000 in 0, 1_000_000, false,
        "Number of calls per million that are traced. The header traceparent of a call overrides it."),
    setting!("traces.queue_calls", traces_queue_calls: 4_096 in 1, 1_000_000, false,
        "Maximum number of traced calls that wait to be sent; further traces are dropped and counted."),
];
