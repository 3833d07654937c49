//! The options of a source or a sink.

mod files;
mod kafka;

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_row::{DataType, TableSchema};
use lockstep_sql::ast::{ConnectorKind, ConnectorSystem, Literal, OptionItem, OptionValue};

use self::{files::WrittenFileOptions, kafka::WrittenKafkaOptions};
pub(crate) use self::{
    files::{ChangeRule, FileOptions, FilePart},
    kafka::{GroupOptions, KafkaOptions, MessageFormat, MessagePart, RegistryOptions},
};
use crate::options::{OptionArgument, OptionSpec, OptionTable, UnknownOption, word};

/// How a source or a sink works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectorOptions {
    pub(crate) system: SystemOptions,
    pub(crate) from_earliest: bool,
    pub(crate) source: SourceOptions,
    /// The options as they were written: names and values.
    pub(crate) written: Vec<(String, String)>,
}

/// What a source reads from, or a sink writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SystemOptions {
    Kafka(Arc<KafkaOptions>),
    Files(Arc<FileOptions>),
}

/// How a source reads rows, whatever they are read from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceOptions {
    pub(crate) on_error: MessageErrorRule,
    pub(crate) ignores_unknown: bool,
}

/// A column that an option names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedColumn {
    pub(crate) name: String,
    /// The position of the option's value.
    pub(crate) span: Span,
}

/// What happens to a message, or to a line of a file, that is no row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum MessageErrorRule {
    #[default]
    Stop,
    Skip,
}

/// Options as a statement has them.
#[derive(Debug, Clone, Default)]
pub(crate) struct WrittenConnectorOptions {
    from_latest: bool,
    source: SourceOptions,
    kafka: WrittenKafkaOptions,
    files: WrittenFileOptions,
    /// The table of messages or lines that are no rows, and where its name is.
    pub(crate) bad_rows: Option<(String, Span)>,
    items: WrittenItems,
}

/// The names and values of options, and where they are.
#[derive(Debug, Clone, Default)]
struct WrittenItems(Vec<(String, String, Span)>);

/// Options that cannot be changed: what was read or written before depends on them.
const FIXED: &[&str] =
    &["topic", "path", "format", "start", "key", "delivery", "subject", "group", "partitioned_by"];

/// Options of a source with a group that cannot be changed: streams find the partitions of rows by them.
const FIXED_OF_GROUP: &[&str] = &["partition_column", "offset_column"];

const COMMON: &[OptionSpec<WrittenConnectorOptions>] = &[OptionSpec {
    name: "start",
    set: |options, argument| {
        options.from_latest = argument.one_of(&["earliest", "latest"])? == 1;
        Ok(())
    },
}];

const OF_SOURCE: &[OptionSpec<WrittenConnectorOptions>] = &[
    OptionSpec { name: "on_error", set: read_on_error },
    OptionSpec {
        name: "unknown_columns",
        set: |options, argument| {
            options.source.ignores_unknown = argument.one_of(&["error", "ignore"])? == 1;
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

/// Reads TRUE or FALSE, also as a string.
fn flag(argument: &OptionArgument<'_>) -> Result<bool> {
    match argument.value() {
        OptionValue::Literal(Literal::Bool(value)) => Ok(*value),
        _ => Ok(argument.one_of(&["false", "true"])? == 1),
    }
}

/// Makes the error of an option that is not there; `span` is that of the statement's name.
fn missing(name: &str, span: Span) -> Box<Diagnostic> {
    let message = format!("option `{name}` is required");
    Box::new(Diagnostic::new(code::INVALID_PARAMETER, message).at(span))
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

/// Returns a text for a value that is read as the value is.
fn text_of(value: &OptionValue) -> String {
    match value {
        OptionValue::Literal(Literal::Bool(value)) => value.to_string(),
        OptionValue::Literal(Literal::Int(value)) => value.to_string(),
        OptionValue::Literal(Literal::BigInt(value)) => value.to_string(),
        OptionValue::Literal(Literal::Interval(interval)) => {
            interval.milliseconds().map(|ms| format!("{ms}ms")).unwrap_or_default()
        }
        value => word(value).unwrap_or_default().to_owned(),
    }
}

impl NamedColumn {
    /// Finds the column in a table. Fails unless it is of a type that is taken, of which `expected` says what it is.
    pub(super) fn find(
        &self,
        schema: &TableSchema,
        takes: impl FnOnce(&DataType) -> bool,
        expected: &str,
    ) -> Result<usize> {
        let Self { name, span } = self;
        let Some(at) = schema.find_column(name) else {
            let message = format!("column `{name}` does not exist in the table");
            let names = schema.columns.iter().map(|column| column.name.as_str());
            let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message);
            return diagnostic.with_nearest(name, names).at(*span).err();
        };
        let data_type = &schema.columns[at].data_type;
        if takes(data_type) {
            return Ok(at);
        }
        let message = format!("column `{name}` is of type {data_type} but must be {expected}");
        Diagnostic::new(code::DATATYPE_MISMATCH, message).at(*span).err()
    }

    fn read(argument: &OptionArgument<'_>) -> Result<Self> {
        Ok(Self { name: argument.string()?.trim().to_owned(), span: argument.item().span })
    }
}

impl ConnectorOptions {
    /// Returns the options of a source of Kafka that shares its partitions, and how.
    pub(crate) fn group(&self) -> Option<(&KafkaOptions, &GroupOptions)> {
        match &self.system {
            SystemOptions::Kafka(options) => Some((options, options.group.as_ref()?)),
            SystemOptions::Files(_) => None,
        }
    }
}

impl SystemOptions {
    /// Returns which system it is.
    pub(crate) fn system(&self) -> ConnectorSystem {
        match self {
            Self::Kafka(_) => ConnectorSystem::Kafka,
            Self::Files(_) => ConnectorSystem::Files,
        }
    }
}

impl WrittenConnectorOptions {
    /// Reads the options of a statement.
    pub(crate) fn read(
        kind: ConnectorKind,
        system: ConnectorSystem,
        items: &[OptionItem],
    ) -> Result<Self> {
        use ConnectorKind::{Sink, Source};
        use ConnectorSystem::{Files, Kafka};
        let parts: &[&[OptionSpec<Self>]] = match (system, kind) {
            (Kafka, Source) => &[kafka::COMMON, COMMON, OF_SOURCE, kafka::OF_SOURCE],
            (Kafka, Sink) => &[kafka::COMMON, COMMON, kafka::OF_SINK],
            (Files, Source) => &[files::COMMON, COMMON, OF_SOURCE, files::OF_SOURCE],
            (Files, Sink) => &[files::COMMON, COMMON, files::OF_SINK],
        };
        let specs = parts.iter().copied().flatten();
        let specs: Vec<OptionSpec<Self>> =
            specs.map(|spec| OptionSpec { name: spec.name, set: spec.set }).collect();
        let (unknown, error_code) = (UnknownOption::Error, code::INVALID_PARAMETER);
        let mut options = Self::default();
        OptionTable { specs: &specs, unknown, error_code }.read(items, &mut options)?;
        options.items.0.extend(
            items
                .iter()
                .map(|OptionItem { key, value, .. }| (key.text.clone(), text_of(value), key.span)),
        );
        Ok(options)
    }

    /// Returns the options of a new source or sink; `span` is that of the statement's name.
    pub(crate) fn of_new(
        self,
        kind: ConnectorKind,
        system: ConnectorSystem,
        span: Span,
    ) -> Result<ConnectorOptions> {
        let Self { from_latest, source, kafka, files, items, .. } = self;
        let system = match system {
            ConnectorSystem::Kafka => {
                SystemOptions::Kafka(kafka.of_new(from_latest, span, &items)?)
            }
            ConnectorSystem::Files => {
                SystemOptions::Files(files.of_new(kind, source.ignores_unknown, span, &items)?)
            }
        };
        let written = items.0.into_iter().map(|(name, value, _)| (name, value)).collect();
        Ok(ConnectorOptions { system, from_earliest: !from_latest, source, written })
    }

    /// Fails where an option of a source or a sink cannot be changed.
    pub(crate) fn check_changes(&self, before: &ConnectorOptions) -> Result<()> {
        let of_group = if before.group().is_some() { FIXED_OF_GROUP } else { &[] };
        let is_fixed = |name: &str| FIXED.contains(&name) || of_group.contains(&name);
        let fixed = self.items.0.iter().find(|(name, ..)| is_fixed(name));
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
            self.items.0.iter().all(|(changed, ..)| changed != name)
        };
        debug_assert!(!before.written.is_empty(), "some options are required");
        let kept = before.written.iter().filter(is_kept).cloned();
        let changed = self.items.0.iter().map(|(name, value, _)| (name.clone(), value.clone()));
        kept.chain(changed).collect()
    }
}

impl WrittenItems {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, ..)| name.as_str())
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
            let found = self.0.iter().find(|(written, ..)| written == name);
            found.map(|(.., span)| *span)
        };
        debug_assert!(!names.is_empty(), "an option is wrong");
        match names.iter().find_map(place) {
            Some(span) => diagnostic.at(span),
            None => diagnostic,
        }
    }
}
