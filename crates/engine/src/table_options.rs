//! OPTIONS of CREATE TABLE: checked, and recorded for SHOW.
//!
//! `definition` reads them. Most say how a cluster lays a table out; one process has one copy of
//! it, so they are kept as they were written and change nothing.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{Literal, OptionItem, OptionValue};

/// Options that exist.
const KNOWN: &[&str] =
    &["partitionnum", "replicanum", "distribution", "storage_mode", "compress_type"];

/// What the options of a table say; `None` where nothing was said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TableOptions {
    partition_num: Option<i32>,
    replica_num: Option<i32>,
    /// For each partition, its leader and its followers.
    distribution: Vec<Vec<String>>,
    pub(crate) storage_mode: Option<String>,
    compress_type: Option<String>,
}

impl TableOptions {
    /// Reads the options; one that does not exist is a warning.
    pub(crate) fn read(items: &[OptionItem], warnings: &mut Vec<Diagnostic>) -> Result<Self> {
        let mut options = Self::default();
        for item in items {
            match item.key.text.as_str() {
                "partitionnum" => options.partition_num = Some(count(item)?),
                "replicanum" => options.replica_num = Some(count(item)?),
                "distribution" => options.distribution = distribution(item)?,
                "storage_mode" => {
                    options.storage_mode = Some(one_of(item, &["memory", "hdd", "ssd"])?);
                }
                "compress_type" => {
                    options.compress_type = Some(one_of(item, &["nocompress", "snappy"])?);
                }
                _ => warnings.push(ignored(item, KNOWN)),
            }
        }
        options.check(items)?;
        Ok(options)
    }

    /// The distribution has an entry for each partition, and an endpoint for each replica.
    fn check(&self, items: &[OptionItem]) -> Result<()> {
        let Some(item) = items.iter().find(|item| item.key.text == "distribution") else {
            return Ok(());
        };
        let partitions = i32::try_from(self.distribution.len()).ok();
        if self.partition_num.is_some() && partitions != self.partition_num {
            return wrong(item, "It has one entry for each partition.");
        }
        for endpoints in &self.distribution {
            let replicas = i32::try_from(endpoints.len()).ok();
            if self.replica_num.is_some() && replicas != self.replica_num {
                return wrong(item, "An entry has one endpoint for each replica.");
            }
        }
        Ok(())
    }

    /// How many partitions the table has, or would have.
    pub(crate) fn partition_num(&self) -> i32 {
        let listed = i32::try_from(self.distribution.len()).unwrap_or(i32::MAX);
        self.partition_num.unwrap_or_else(|| listed.max(1))
    }

    /// How many copies of it there are, or would be.
    pub(crate) fn replica_num(&self) -> i32 {
        let listed = self.distribution.first().map_or(1, Vec::len);
        self.replica_num.unwrap_or_else(|| i32::try_from(listed).unwrap_or(i32::MAX))
    }

    /// ` OPTIONS(…)` as in CREATE TABLE; empty when nothing was said.
    pub(crate) fn written(&self) -> String {
        let mut items = Vec::new();
        let number = |name: &str, value: Option<i32>| value.map(|value| format!("{name}={value}"));
        items.extend(number("PARTITIONNUM", self.partition_num));
        items.extend(number("REPLICANUM", self.replica_num));
        if !self.distribution.is_empty() {
            let entries: Vec<String> = self.distribution.iter().map(|e| entry(e)).collect();
            items.push(format!("DISTRIBUTION=[{}]", entries.join(", ")));
        }
        let text =
            |name: &str, value: &Option<String>| value.as_ref().map(|v| format!("{name}='{v}'"));
        items.extend(text("STORAGE_MODE", &self.storage_mode));
        items.extend(text("COMPRESS_TYPE", &self.compress_type));
        if items.is_empty() { String::new() } else { format!(" OPTIONS({})", items.join(", ")) }
    }
}

fn entry(endpoints: &[String]) -> String {
    let quoted: Vec<String> = endpoints.iter().map(|endpoint| format!("'{endpoint}'")).collect();
    let (leader, followers) = quoted.split_first().expect("an entry has a leader");
    format!("({leader}, [{}])", followers.join(", "))
}

fn count(item: &OptionItem) -> Result<i32> {
    match &item.value {
        OptionValue::Literal(Literal::Int(count)) if *count > 0 => Ok(*count),
        _ => wrong(item, "It is a number from 1."),
    }
}

fn one_of(item: &OptionItem, values: &[&str]) -> Result<String> {
    match &item.value {
        OptionValue::Literal(Literal::String(text)) | OptionValue::Word(text)
            if values.contains(&text.to_ascii_lowercase().as_str()) =>
        {
            Ok(text.to_ascii_lowercase())
        }
        _ => wrong(item, &format!("It is one of {}.", values.join(", "))),
    }
}

/// `[('leader:port', ['follower:port', …]), …]`.
fn distribution(item: &OptionItem) -> Result<Vec<Vec<String>>> {
    let shape = "It is a list of ('host:port', ['host:port', …]), a leader and its followers.";
    let OptionValue::List(entries) = &item.value else { return wrong(item, shape) };
    let mut partitions = Vec::new();
    for entry in entries {
        let OptionValue::List(parts) = entry else { return wrong(item, shape) };
        let [leader, OptionValue::List(followers)] = parts.as_slice() else {
            return wrong(item, shape);
        };
        let endpoints: Option<Vec<String>> =
            std::iter::once(leader).chain(followers).map(endpoint).collect();
        let Some(endpoints) = endpoints else { return wrong(item, shape) };
        partitions.push(endpoints);
    }
    if partitions.is_empty() { wrong(item, shape) } else { Ok(partitions) }
}

/// `host:port`.
fn endpoint(value: &OptionValue) -> Option<String> {
    let OptionValue::Literal(Literal::String(text)) = value else { return None };
    let (host, port) = text.rsplit_once(':')?;
    let is_endpoint = !host.is_empty() && port.parse::<u16>().is_ok();
    is_endpoint.then(|| text.clone())
}

fn wrong<T>(item: &OptionItem, hint: &str) -> Result<T> {
    let message = format!("option `{}` cannot have this value", item.key.text);
    Diagnostic::new(code::INVALID_TABLE_DEFINITION, message).at(item.span).with_hint(hint).err()
}

/// The warning for an option that does not exist; `known` are those that do, of any statement.
pub(crate) fn ignored(item: &OptionItem, known: &[&str]) -> Diagnostic {
    let name = item.key.text.as_str();
    Diagnostic::new(
        code::INVALID_PARAMETER,
        format!("option `{name}` does not exist and is ignored"),
    )
    .at(item.key.span)
    .with_nearest(name, known.iter().copied())
}
