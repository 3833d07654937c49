//! The options of a source or a sink of Kafka.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_kafka::{Brokers, Sasl, SaslMechanism, SchemaLanguage, SchemaRegistry, Tls};

use super::{NamedColumn, WrittenConnectorOptions, WrittenItems, flag, set};
use crate::options::{OptionArgument, OptionSpec};

/// Which topic is read or written, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KafkaOptions {
    pub(crate) brokers: Brokers,
    pub(crate) topic: String,
    pub(crate) format: MessageFormat,
    /// Where the schemas of messages are; of formats that have some.
    pub(crate) registry: Option<RegistryOptions>,
    /// Of a source: whether it goes on behind messages that are lost.
    pub(crate) skips_lost: bool,
    /// Of a source: the columns that take what a message has beside its value.
    pub(crate) columns: Vec<(MessagePart, NamedColumn)>,
    /// Of a sink: the columns of the key.
    pub(crate) key: Vec<NamedColumn>,
    /// Of a sink: whether rows may be written twice.
    pub(crate) at_least_once: bool,
    /// Of a source: the group of processes that share the partitions.
    pub(crate) group: Option<GroupOptions>,
}

/// How a source shares the partitions of its topic with other processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupOptions {
    pub(crate) name: String,
    /// The columns by which the topic is partitioned: rows with the same values are in the same partition.
    pub(crate) partitioned_by: Vec<NamedColumn>,
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
pub(super) struct WrittenKafkaOptions {
    brokers: Option<String>,
    topic: Option<String>,
    format: MessageFormat,
    registry: Option<String>,
    registry_ca: Option<String>,
    registry_username: Option<String>,
    registry_password: Option<String>,
    subject: Option<String>,
    skips_lost: bool,
    columns: Vec<(MessagePart, NamedColumn)>,
    key: Vec<NamedColumn>,
    at_least_once: bool,
    group: Option<String>,
    partitioned_by: Vec<NamedColumn>,
    tls: Option<bool>,
    tls_ca: Option<String>,
    tls_certificate: Option<String>,
    tls_key: Option<String>,
    mechanism: Option<SaslMechanism>,
    username: Option<String>,
    password: Option<String>,
}

/// The options of both.
pub(super) const COMMON: &[OptionSpec<WrittenConnectorOptions>] = &[
    OptionSpec { name: "brokers", set: |o, a| set(&mut o.kafka.brokers, a) },
    OptionSpec { name: "topic", set: |o, a| set(&mut o.kafka.topic, a) },
    OptionSpec {
        name: "tls",
        set: |options, argument| {
            options.kafka.tls = Some(flag(argument)?);
            Ok(())
        },
    },
    OptionSpec { name: "schema_registry", set: |o, a| set(&mut o.kafka.registry, a) },
    OptionSpec { name: "schema_registry_ca", set: |o, a| set(&mut o.kafka.registry_ca, a) },
    OptionSpec {
        name: "schema_registry_username",
        set: |o, a| set(&mut o.kafka.registry_username, a),
    },
    OptionSpec {
        name: "schema_registry_password",
        set: |o, a| set(&mut o.kafka.registry_password, a),
    },
    OptionSpec { name: "subject", set: |o, a| set(&mut o.kafka.subject, a) },
    OptionSpec { name: "tls_ca", set: |o, a| set(&mut o.kafka.tls_ca, a) },
    OptionSpec { name: "tls_certificate", set: |o, a| set(&mut o.kafka.tls_certificate, a) },
    OptionSpec { name: "tls_key", set: |o, a| set(&mut o.kafka.tls_key, a) },
    OptionSpec {
        name: "sasl_mechanism",
        set: |options, argument| {
            let mechanisms = ["plain", "scram-sha-256", "scram-sha-512"];
            options.kafka.mechanism = Some(match argument.one_of(&mechanisms)? {
                0 => SaslMechanism::Plain,
                1 => SaslMechanism::ScramSha256,
                _ => SaslMechanism::ScramSha512,
            });
            Ok(())
        },
    },
    OptionSpec { name: "sasl_username", set: |o, a| set(&mut o.kafka.username, a) },
    OptionSpec { name: "sasl_password", set: |o, a| set(&mut o.kafka.password, a) },
];

/// The options of a source.
pub(super) const OF_SOURCE: &[OptionSpec<WrittenConnectorOptions>] = &[
    OptionSpec {
        name: "format",
        set: |options, argument| {
            options.kafka.format = match argument.one_of(&["json", "avro", "protobuf", "csv"])? {
                3 => MessageFormat::Csv,
                format => written_format(format),
            };
            Ok(())
        },
    },
    OptionSpec {
        name: "on_lost",
        set: |options, argument| {
            options.kafka.skips_lost = argument.one_of(&["stop", "skip"])? == 1;
            Ok(())
        },
    },
    OptionSpec { name: "group", set: |o, a| set(&mut o.kafka.group, a) },
    OptionSpec {
        name: "partitioned_by",
        set: |options, argument| {
            options.kafka.partitioned_by = named_columns(argument)?;
            Ok(())
        },
    },
    OptionSpec { name: "key_column", set: |o, a| add_column(o, MessagePart::Key, a) },
    OptionSpec { name: "partition_column", set: |o, a| add_column(o, MessagePart::Partition, a) },
    OptionSpec { name: "offset_column", set: |o, a| add_column(o, MessagePart::Offset, a) },
    OptionSpec { name: "time_column", set: |o, a| add_column(o, MessagePart::Time, a) },
    OptionSpec { name: "headers_column", set: |o, a| add_column(o, MessagePart::Headers, a) },
];

/// The options of a sink.
pub(super) const OF_SINK: &[OptionSpec<WrittenConnectorOptions>] = &[
    OptionSpec {
        name: "format",
        set: |options, argument| {
            options.kafka.format = written_format(argument.one_of(&["json", "avro", "protobuf"])?);
            Ok(())
        },
    },
    OptionSpec {
        name: "key",
        set: |options, argument| {
            options.kafka.key = named_columns(argument)?;
            Ok(())
        },
    },
    OptionSpec {
        name: "delivery",
        set: |options, argument| {
            let deliveries = ["exactly_once", "at_least_once"];
            options.kafka.at_least_once = argument.one_of(&deliveries)? == 1;
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

/// Reads the names of columns, separated by commas.
fn named_columns(argument: &OptionArgument<'_>) -> Result<Vec<NamedColumn>> {
    let names = argument.string()?;
    let span = argument.item().span;
    let names = names.split(',').map(|name| name.trim().to_owned());
    Ok(names.map(|name| NamedColumn { name, span }).collect())
}

fn add_column(
    options: &mut WrittenConnectorOptions,
    part: MessagePart,
    argument: &OptionArgument<'_>,
) -> Result<()> {
    options.kafka.columns.push((part, NamedColumn::read(argument)?));
    Ok(())
}

impl WrittenKafkaOptions {
    /// Returns the options of a new source or sink; `span` is that of the statement's name.
    pub(super) fn of_new(
        self,
        from_latest: bool,
        span: Span,
        items: &WrittenItems,
    ) -> Result<Arc<KafkaOptions>> {
        let missing = |name: &str| super::missing(name, span);
        let tls = self.tls(items)?;
        let sasl = self.sasl(items)?;
        let registry = self.registry(items)?;
        let group = self.group(from_latest, items)?;
        let addresses = self.brokers.ok_or_else(|| missing("brokers"))?;
        Ok(Arc::new(KafkaOptions {
            brokers: Brokers { addresses, tls, sasl },
            topic: self.topic.ok_or_else(|| missing("topic"))?,
            format: self.format,
            registry,
            skips_lost: self.skips_lost,
            columns: self.columns,
            key: self.key,
            at_least_once: self.at_least_once,
            group,
        }))
    }

    fn group(&self, from_latest: bool, items: &WrittenItems) -> Result<Option<GroupOptions>> {
        let is_required = |option: &str| {
            let message = format!("option `group` requires option `{option}`");
            items.at(&["group"], Diagnostic::new(code::INVALID_PARAMETER, message)).err()
        };
        let has = |part: MessagePart| self.columns.iter().any(|(found, _)| *found == part);
        match &self.group {
            None if self.partitioned_by.is_empty() => Ok(None),
            None => items.requires("partitioned_by", "group").err(),
            Some(_) if self.partitioned_by.is_empty() => is_required("partitioned_by"),
            Some(_) if !has(MessagePart::Partition) => is_required("partition_column"),
            Some(_) if !has(MessagePart::Offset) => is_required("offset_column"),
            Some(_) if from_latest => {
                let message = "a source with a group cannot begin with the latest message";
                let diagnostic = Diagnostic::new(code::INVALID_PARAMETER, message);
                let diagnostic = items.at(&["start"], diagnostic);
                let detail = "Another process may have begun before.";
                diagnostic.with_detail(detail).err()
            }
            Some(name) => {
                let partitioned_by = self.partitioned_by.clone();
                Ok(Some(GroupOptions { name: name.clone(), partitioned_by }))
            }
        }
    }

    fn tls(&self, items: &WrittenItems) -> Result<Option<Tls>> {
        let certificate = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return items.requires("tls_certificate", "tls_key").err(),
        };
        let is_used = self.tls_ca.is_some() || certificate.is_some();
        if self.tls == Some(false) && is_used {
            return items.requires("tls_ca", "tls").err();
        }
        let is_encrypted = self.tls.unwrap_or(is_used);
        debug_assert!(is_encrypted || !is_used, "what names certificates is encrypted");
        Ok(is_encrypted.then(|| Tls { authorities: self.tls_ca.clone(), certificate }))
    }

    fn sasl(&self, items: &WrittenItems) -> Result<Option<Sasl>> {
        match (&self.username, &self.password) {
            (Some(username), Some(password)) => Ok(Some(Sasl {
                mechanism: self.mechanism.unwrap_or(SaslMechanism::ScramSha512),
                username: username.clone(),
                password: password.clone(),
            })),
            (None, None) if self.mechanism.is_none() => Ok(None),
            _ => items.requires("sasl_username", "sasl_password").err(),
        }
    }

    fn registry(&self, items: &WrittenItems) -> Result<Option<RegistryOptions>> {
        let MessageFormat::Registered(_) = self.format else {
            let is_of_registry =
                |name: &&str| name.starts_with("schema_registry") || *name == "subject";
            let mut written = items.names();
            return match written.find(is_of_registry) {
                Some(name) => {
                    let message =
                        format!("option `{name}` requires the format 'avro' or 'protobuf'");
                    items.at(&[name], Diagnostic::new(code::INVALID_PARAMETER, message)).err()
                }
                None => Ok(None),
            };
        };
        let Some(addresses) = self.registry.clone() else {
            let message = "option `schema_registry` is required for this format";
            return items.at(&["format"], Diagnostic::new(code::INVALID_PARAMETER, message)).err();
        };
        let login = match (&self.registry_username, &self.registry_password) {
            (Some(username), Some(password)) => Some((username.clone(), password.clone())),
            (None, None) => None,
            _ => {
                let names = ("schema_registry_username", "schema_registry_password");
                return items.requires(names.0, names.1).err();
            }
        };
        let authorities = self.registry_ca.clone();
        let of_topic = || format!("{}-value", self.topic.as_deref().unwrap_or_default());
        Ok(Some(RegistryOptions {
            registry: SchemaRegistry { addresses, login, authorities },
            subject: self.subject.clone().unwrap_or_else(of_topic),
        }))
    }
}
