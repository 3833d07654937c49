//! The options of a source or a sink.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_kafka::{Brokers, Sasl, SaslMechanism, SchemaLanguage, SchemaRegistry, Tls};
use lockstep_sql::ast::{ConnectorKind, Literal, OptionItem, OptionValue};

use crate::options::{OptionArgument, OptionSpec, OptionTable, UnknownOption, word};

/// How a source or a sink works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectorOptions {
    pub(crate) brokers: Brokers,
    pub(crate) topic: String,
    pub(crate) format: MessageFormat,
    /// Where the schemas of messages are; of formats that have some.
    pub(crate) registry: Option<RegistryOptions>,
    pub(crate) from_earliest: bool,
    pub(crate) source: SourceOptions,
    pub(crate) sink: SinkOptions,
    /// The options as they were written: names and values.
    pub(crate) written: Vec<(String, String)>,
}

/// How a source reads messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceOptions {
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
    /// With a schema of the registry.
    Registered(SchemaLanguage),
}

/// Where the schemas of messages are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegistryOptions {
    pub(crate) registry: SchemaRegistry,
    /// Under which name the schemas of the topic's values are registered.
    pub(crate) subject: String,
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
    format: MessageFormat,
    registry: Option<String>,
    registry_ca: Option<String>,
    registry_username: Option<String>,
    registry_password: Option<String>,
    subject: Option<String>,
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
const FIXED: &[&str] = &["topic", "format", "start", "key", "delivery", "subject"];

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
    OptionSpec { name: "schema_registry", set: |o, a| set(&mut o.registry, a) },
    OptionSpec { name: "schema_registry_ca", set: |o, a| set(&mut o.registry_ca, a) },
    OptionSpec { name: "schema_registry_username", set: |o, a| set(&mut o.registry_username, a) },
    OptionSpec { name: "schema_registry_password", set: |o, a| set(&mut o.registry_password, a) },
    OptionSpec { name: "subject", set: |o, a| set(&mut o.subject, a) },
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
            options.format = match argument.one_of(&["json", "avro", "protobuf", "csv"])? {
                3 => MessageFormat::Csv,
                format => written_format(format),
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
        set: |options, argument| {
            options.format = written_format(argument.one_of(&["json", "avro", "protobuf"])?);
            Ok(())
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

/// Returns the format at a position of `json`, `avro`, `protobuf`.
fn written_format(at: usize) -> MessageFormat {
    match at {
        0 => MessageFormat::Json,
        1 => MessageFormat::Registered(SchemaLanguage::Avro),
        _ => MessageFormat::Registered(SchemaLanguage::Protobuf),
    }
}

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
        let registry = self.registry()?;
        Ok(ConnectorOptions {
            brokers: Brokers {
                addresses: self.brokers.ok_or_else(|| missing("brokers"))?,
                tls,
                sasl,
            },
            topic: self.topic.ok_or_else(|| missing("topic"))?,
            format: self.format,
            registry,
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

    fn registry(&self) -> Result<Option<RegistryOptions>> {
        let MessageFormat::Registered(_) = self.format else {
            let is_of_registry =
                |name: &&str| name.starts_with("schema_registry") || *name == "subject";
            let mut written = self.written.iter().map(|(name, ..)| name.as_str());
            return match written.find(is_of_registry) {
                Some(name) => {
                    let message =
                        format!("option `{name}` requires the format 'avro' or 'protobuf'");
                    self.at(&[name], Diagnostic::new(code::INVALID_PARAMETER, message)).err()
                }
                None => Ok(None),
            };
        };
        let Some(addresses) = self.registry.clone() else {
            let message = "option `schema_registry` is required for this format";
            return self.at(&["format"], Diagnostic::new(code::INVALID_PARAMETER, message)).err();
        };
        let login = match (&self.registry_username, &self.registry_password) {
            (Some(username), Some(password)) => Some((username.clone(), password.clone())),
            (None, None) => None,
            _ => {
                let names = ("schema_registry_username", "schema_registry_password");
                return self.requires(names.0, names.1).err();
            }
        };
        let authorities = self.registry_ca.clone();
        let of_topic = || format!("{}-value", self.topic.as_deref().unwrap_or_default());
        Ok(Some(RegistryOptions {
            registry: SchemaRegistry { addresses, login, authorities },
            subject: self.subject.clone().unwrap_or_else(of_topic),
        }))
    }

    /// Makes the error of two options that belong together.
    fn requires(&self, one: &str, other: &str) -> Diagnostic {
        let message = format!("options `{one}` and `{other}` require each other");
        let diagnostic = Diagnostic::new(code::INVALID_PARAMETER, message);
        match one {
            "sasl_username" => self.at(&[one, other, "sasl_mechanism"], diagnostic),
            _ => self.at(&[one, other], diagnostic),
        }
    }

    /// Adds the position of the first of these options that is written.
    fn at(&self, names: &[&str], diagnostic: Diagnostic) -> Diagnostic {
        let place = |name: &&str| {
            let found = self.written.iter().find(|(written, ..)| written == name);
            found.map(|(.., span)| *span)
        };
        debug_assert!(!names.is_empty(), "an option is wrong");
        match names.iter().find_map(place) {
            Some(span) => diagnostic.at(span),
            None => diagnostic,
        }
    }
}
