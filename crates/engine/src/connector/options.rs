//! The options of a source or a sink.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_kafka::{Brokers, Sasl, SaslMechanism, Tls};
use lockstep_sql::ast::{ConnectorKind, Literal, OptionItem, OptionValue};

use crate::options::{OptionArgument, OptionSpec, OptionTable, UnknownOption, word};

/// How a source or a sink works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectorOptions {
    pub(crate) brokers: Brokers,
    pub(crate) topic: String,
    pub(crate) from_earliest: bool,
    pub(crate) source: SourceOptions,
    pub(crate) sink: SinkOptions,
    /// The options as they were written: names and values.
    pub(crate) written: Vec<(String, String)>,
}

/// How a source reads messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceOptions {
    pub(crate) format: MessageFormat,
    pub(crate) on_error: MessageErrorRule,
    pub(crate) skips_lost: bool,
    pub(crate) ignores_unknown: bool,
    /// The columns that take what a message has beside its value.
    pub(crate) columns: Vec<(MessagePart, NamedColumn)>,
}

/// How a sink writes messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SinkOptions {
    /// The columns of the key.
    pub(crate) key: Vec<NamedColumn>,
    /// Whether rows may be written twice.
    pub(crate) at_least_once: bool,
}

/// A column that an option names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedColumn {
    pub(crate) name: String,
    /// The position of the option's value.
    pub(crate) span: Span,
}

/// The format of a message's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum MessageFormat {
    #[default]
    Json,
    Csv,
}

/// What happens to a message that is no row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum MessageErrorRule {
    #[default]
    Stop,
    Skip,
}

/// What a message has beside its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessagePart {
    Key,
    Partition,
    Offset,
    Time,
    Headers,
}

/// Options as a statement has them.
#[derive(Debug, Clone, Default)]
pub(crate) struct WrittenConnectorOptions {
    brokers: Option<String>,
    topic: Option<String>,
    from_latest: bool,
    source: SourceOptions,
    sink: SinkOptions,
    tls: Option<bool>,
    tls_ca: Option<String>,
    tls_certificate: Option<String>,
    tls_key: Option<String>,
    mechanism: Option<SaslMechanism>,
    username: Option<String>,
    password: Option<String>,
    /// The table of messages that are no rows, and where its name is.
    pub(crate) bad_rows: Option<(String, Span)>,
    written: Vec<(String, String, Span)>,
}

/// Options that cannot be changed: what was read or written before depends on them.
const FIXED: &[&str] = &["topic", "format", "start", "key", "delivery"];

const COMMON: &[OptionSpec<WrittenConnectorOptions>] = &[
    OptionSpec { name: "brokers", set: |o, a| set(&mut o.brokers, a) },
    OptionSpec { name: "topic", set: |o, a| set(&mut o.topic, a) },
    OptionSpec {
        name: "start",
        set: |options, argument| {
            options.from_latest = argument.one_of(&["earliest", "latest"])? == 1;
            Ok(())
        },
    },
    OptionSpec {
        name: "tls",
        set: |options, argument| {
            options.tls = Some(match argument.value() {
                OptionValue::Literal(Literal::Bool(value)) => *value,
                _ => argument.one_of(&["false", "true"])? == 1,
            });
            Ok(())
        },
    },
    OptionSpec { name: "tls_ca", set: |o, a| set(&mut o.tls_ca, a) },
    OptionSpec { name: "tls_certificate", set: |o, a| set(&mut o.tls_certificate, a) },
    OptionSpec { name: "tls_key", set: |o, a| set(&mut o.tls_key, a) },
    OptionSpec {
        name: "sasl_mechanism",
        set: |options, argument| {
            let mechanisms = ["plain", "scram-sha-256", "scram-sha-512"];
            options.mechanism = Some(match argument.one_of(&mechanisms)? {
                0 => SaslMechanism::Plain,
                1 => SaslMechanism::ScramSha256,
                _ => SaslMechanism::ScramSha512,
            });
            Ok(())
        },
    },
    OptionSpec { name: "sasl_username", set: |o, a| set(&mut o.username, a) },
    OptionSpec { name: "sasl_password", set: |o, a| set(&mut o.password, a) },
];

const OF_SOURCE: &[OptionSpec<WrittenConnectorOptions>] = &[
    OptionSpec {
        name: "format",
        set: |options, argument| {
            options.source.format = match argument.one_of(&["json", "csv"])? {
                0 => MessageFormat::Json,
                _ => MessageFormat::Csv,
            };
            Ok(())
        },
    },
    OptionSpec { name: "on_error", set: read_on_error },
    OptionSpec {
        name: "on_lost",
        set: |options, argument| {
            options.source.skips_lost = argument.one_of(&["stop", "skip"])? == 1;
            Ok(())
        },
    },
    OptionSpec {
        name: "unknown_columns",
        set: |options, argument| {
            options.source.ignores_unknown = argument.one_of(&["error", "ignore"])? == 1;
            Ok(())
        },
    },
    OptionSpec { name: "key_column", set: |o, a| add_column(o, MessagePart::Key, a) },
    OptionSpec { name: "partition_column", set: |o, a| add_column(o, MessagePart::Partition, a) },
    OptionSpec { name: "offset_column", set: |o, a| add_column(o, MessagePart::Offset, a) },
    OptionSpec { name: "time_column", set: |o, a| add_column(o, MessagePart::Time, a) },
    OptionSpec { name: "headers_column", set: |o, a| add_column(o, MessagePart::Headers, a) },
];

const OF_SINK: &[OptionSpec<WrittenConnectorOptions>] = &[
    OptionSpec {
        name: "format",
        set: |_, argument| match argument.string()?.to_ascii_lowercase().as_str() {
            "json" => Ok(()),
            _ => argument.invalid("must be 'json'"),
        },
    },
    OptionSpec {
        name: "key",
        set: |options, argument| {
            let names = argument.string()?;
            let span = argument.item().span;
            let names = names.split(',').map(|name| name.trim().to_owned());
            options.sink.key = names.map(|name| NamedColumn { name, span }).collect();
            Ok(())
        },
    },
    OptionSpec {
        name: "delivery",
        set: |options, argument| {
            let deliveries = ["exactly_once", "at_least_once"];
            options.sink.at_least_once = argument.one_of(&deliveries)? == 1;
            Ok(())
        },
    },
];

fn set(option: &mut Option<String>, argument: &OptionArgument<'_>) -> Result<()> {
    let text = argument.string()?;
    if text.trim().is_empty() {
        return argument.invalid("cannot be empty");
    }
    *option = Some(text.trim().to_owned());
    Ok(())
}

fn add_column(
    options: &mut WrittenConnectorOptions,
    part: MessagePart,
    argument: &OptionArgument<'_>,
) -> Result<()> {
    let (name, span) = (argument.string()?.trim().to_owned(), argument.item().span);
    options.source.columns.push((part, NamedColumn { name, span }));
    Ok(())
}

fn read_on_error(
    options: &mut WrittenConnectorOptions,
    argument: &mut OptionArgument<'_>,
) -> Result<()> {
    let text = argument.string()?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let is = |at: usize, word: &str| words[at].eq_ignore_ascii_case(word);
    (options.source.on_error, options.bad_rows) = match words.len() {
        1 if is(0, "stop") => (MessageErrorRule::Stop, None),
        1 if is(0, "skip") => (MessageErrorRule::Skip, None),
        3 if is(0, "skip") && is(1, "into") => {
            (MessageErrorRule::Skip, Some((words[2].to_owned(), argument.item().span)))
        }
        _ => return argument.invalid("must be 'stop', 'skip' or 'skip into table_name'"),
    };
    Ok(())
}

impl WrittenConnectorOptions {
    /// Reads the options of a statement.
    pub(crate) fn read(kind: ConnectorKind, items: &[OptionItem]) -> Result<Self> {
        let of_kind = if kind == ConnectorKind::Source { OF_SOURCE } else { OF_SINK };
        let specs: Vec<OptionSpec<Self>> = COMMON
            .iter()
            .chain(of_kind)
            .map(|spec| OptionSpec { name: spec.name, set: spec.set })
            .collect();
        let (unknown, error_code) = (UnknownOption::Error, code::INVALID_PARAMETER);
        let mut options = Self::default();
        OptionTable { specs: &specs, unknown, error_code }.read(items, &mut options)?;
        for OptionItem { key, value, .. } in items {
            let text = match value {
                OptionValue::Literal(Literal::Bool(value)) => value.to_string(),
                value => word(value).unwrap_or_default().to_owned(),
            };
            options.written.push((key.text.clone(), text, key.span));
        }
        Ok(options)
    }

    /// Returns the options of a new source or sink; `span` is that of the statement's name.
    pub(crate) fn of_new(self, span: Span) -> Result<ConnectorOptions> {
        let missing = |name: &str| {
            let message = format!("option `{name}` is required");
            Box::new(Diagnostic::new(code::INVALID_PARAMETER, message).at(span))
        };
        let tls = self.tls()?;
        let sasl = self.sasl()?;
        Ok(ConnectorOptions {
            brokers: Brokers {
                addresses: self.brokers.ok_or_else(|| missing("brokers"))?,
                tls,
                sasl,
            },
            topic: self.topic.ok_or_else(|| missing("topic"))?,
            from_earliest: !self.from_latest,
            source: self.source,
            sink: self.sink,
            written: self.written.into_iter().map(|(name, value, _)| (name, value)).collect(),
        })
    }

    /// Fails where an option cannot be changed.
    pub(crate) fn check_changes(&self) -> Result<()> {
        let fixed = self.written.iter().find(|(name, ..)| FIXED.contains(&name.as_str()));
        let Some((name, _, span)) = fixed else { return Ok(()) };
        let message = format!("option `{name}` cannot be changed");
        Diagnostic::new(code::INVALID_PARAMETER, message)
            .at(*span)
            .with_hint("Drop it, and create it again.")
            .err()
    }

    /// Returns the names and values that `before` has with these in their places.
    pub(crate) fn merged(&self, before: &ConnectorOptions) -> Vec<(String, String)> {
        let is_kept = |(name, _): &&(String, String)| {
            self.written.iter().all(|(changed, ..)| changed != name)
        };
        debug_assert!(!before.written.is_empty(), "some options are required");
        let kept = before.written.iter().filter(is_kept).cloned();
        let changed = self.written.iter().map(|(name, value, _)| (name.clone(), value.clone()));
        kept.chain(changed).collect()
    }

    fn tls(&self) -> Result<Option<Tls>> {
        let certificate = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return self.requires("tls_certificate", "tls_key").err(),
        };
        let is_used = self.tls_ca.is_some() || certificate.is_some();
        if self.tls == Some(false) && is_used {
            return self.requires("tls_ca", "tls").err();
        }
        let is_encrypted = self.tls.unwrap_or(is_used);
        debug_assert!(is_encrypted || !is_used, "what names certificates is encrypted");
        Ok(is_encrypted.then(|| Tls { authorities: self.tls_ca.clone(), certificate }))
    }

    fn sasl(&self) -> Result<Option<Sasl>> {
        match (&self.username, &self.password) {
            (Some(username), Some(password)) => Ok(Some(Sasl {
                mechanism: self.mechanism.unwrap_or(SaslMechanism::ScramSha512),
                username: username.clone(),
                password: password.clone(),
            })),
            (None, None) if self.mechanism.is_none() => Ok(None),
            _ => self.requires("sasl_username", "sasl_password").err(),
        }
    }

    /// Makes the error of two options that belong together.
    fn requires(&self, one: &str, other: &str) -> Diagnostic {
        let at = |name: &str| {
            let found = self.written.iter().find(|(written, ..)| written == name);
            found.map(|(.., span)| *span)
        };
        let message = format!("options `{one}` and `{other}` require each other");
        let diagnostic = Diagnostic::new(code::INVALID_PARAMETER, message);
        let sasl = (one == "sasl_username").then(|| at("sasl_mechanism")).flatten();
        match at(one).or_else(|| at(other)).or(sasl) {
            Some(span) => diagnostic.at(span),
            None => diagnostic,
        }
    }
}
