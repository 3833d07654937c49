//! OPTIONS of CREATE TABLE: checked, and recorded for SHOW.
//!
//! Most say how a cluster distributes a table. One process has one copy of it, so they are recorded
//! as they were written and have no effect.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{Literal, OptionItem, OptionValue};
use lockstep_table::Durability;
use serde::{Deserialize, Serialize};

use crate::{
    options::{OptionArgument, OptionSpec, OptionTable, UnknownOption},
    variables::{DURABILITY_NAMES, durability_of},
};

/// The values of the options; `None` where the statement does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableOptions {
    partition_num: Option<i32>,
    replica_num: Option<i32>,
    distribution: Vec<PartitionEndpoints>,
    pub(crate) storage_mode: Option<String>,
    compress_type: Option<String>,
    #[serde(default)]
    durability: Option<String>,
}

/// Where the rows of a table lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageMode {
    /// All in memory.
    Memory,
    /// On a disk, with the newest and the pages that were read last in memory.
    Disk,
}

impl StorageMode {
    /// Reads `memory` or `disk`, in any case; `ssd` and `hdd` are OpenMLDB's words for `disk`.
    ///
    /// ```
    /// # use lockstep_engine::StorageMode;
    /// assert_eq!(StorageMode::of("SSD")?, StorageMode::Disk);
    /// assert!(StorageMode::of("tape").is_err());
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn of(text: &str) -> Result<Self> {
        match STORAGE_MODES.iter().position(|mode| mode.eq_ignore_ascii_case(text)) {
            Some(0) => Ok(Self::Memory),
            Some(_) => Ok(Self::Disk),
            None => Diagnostic::new(
                code::INVALID_PARAMETER,
                format!(
                    "invalid value for parameter `storage_mode`: '{text}' \
                     (expected 'memory', 'disk', 'ssd' or 'hdd')"
                ),
            )
            .err(),
        }
    }

    /// Returns the name, as [`StorageMode::of`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// The words for where rows lie: in memory, and the others on a disk.
const STORAGE_MODES: &[&str] = &["memory", "disk", "ssd", "hdd"];

/// The endpoints of one partition: its leader, then its followers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PartitionEndpoints(Vec<String>);

const OPTIONS: OptionTable<'_, TableOptions> = OptionTable {
    specs: SPECS,
    unknown: UnknownOption::Warning,
    error_code: code::INVALID_TABLE_DEFINITION,
};

const SPECS: &[OptionSpec<TableOptions>] = &[
    OptionSpec {
        name: "partitionnum",
        set: |options, argument| {
            options.partition_num = Some(positive(argument)?);
            Ok(())
        },
    },
    OptionSpec {
        name: "replicanum",
        set: |options, argument| {
            options.replica_num = Some(positive(argument)?);
            Ok(())
        },
    },
    OptionSpec {
        name: "distribution",
        set: |options, argument| {
            options.distribution = distribution(argument)?;
            Ok(())
        },
    },
    OptionSpec {
        name: "storage_mode",
        set: |options, argument| {
            options.storage_mode = Some(choice(argument, STORAGE_MODES)?);
            Ok(())
        },
    },
    OptionSpec {
        name: "compress_type",
        set: |options, argument| {
            options.compress_type = Some(choice(argument, &["nocompress", "snappy"])?);
            Ok(())
        },
    },
    OptionSpec {
        name: "durability",
        set: |options, argument| {
            options.durability = Some(choice(argument, DURABILITY_NAMES)?);
            Ok(())
        },
    },
];

impl TableOptions {
    /// Reads the options; the warnings are the second value.
    pub(super) fn read(items: &[OptionItem]) -> Result<(Self, Vec<Diagnostic>)> {
        let mut options = Self::default();
        let warnings = OPTIONS.read(items, &mut options)?;
        options.check_distribution(items)?;
        Ok((options, warnings))
    }

    /// Returns the options of a table that a call without OPTIONS creates.
    pub(super) fn of_storage_mode(mode: Option<StorageMode>) -> Self {
        Self { storage_mode: mode.map(|mode| mode.name().to_owned()), ..Self::default() }
    }

    /// Returns these options with others, which ALTER TABLE sets: `storage_mode` alone can be changed.
    pub(crate) fn changed(&self, items: &[OptionItem]) -> Result<Self> {
        let mut changed = self.clone();
        for item in items {
            if item.key.text != "storage_mode" {
                let message = format!("ALTER TABLE cannot set option `{}`", item.key.text);
                return Diagnostic::unsupported(message)
                    .at(item.key.span)
                    .with_hint("It can set `storage_mode`; create a new table for other options.")
                    .err();
            }
        }
        OPTIONS.read(items, &mut changed)?;
        Ok(changed)
    }

    /// Checks that the distribution has an entry for each partition, and each entry an endpoint
    /// for each replica.
    fn check_distribution(&self, items: &[OptionItem]) -> Result<()> {
        let Some(item) = items.iter().find(|item| item.key.text == "distribution") else {
            return Ok(());
        };
        let partitions = i32::try_from(self.distribution.len()).ok();
        if self.partition_num.is_some() && partitions != self.partition_num {
            let message = "option `distribution` must have one entry for each partition";
            return Diagnostic::new(code::INVALID_TABLE_DEFINITION, message).at(item.span).err();
        }
        for PartitionEndpoints(endpoints) in &self.distribution {
            let replicas = i32::try_from(endpoints.len()).ok();
            if self.replica_num.is_some() && replicas != self.replica_num {
                let message = "an entry of option `distribution` must have one endpoint for each \
                               replica";
                return Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
                    .at(item.span)
                    .err();
            }
        }
        Ok(())
    }

    /// Returns whether rows of the table may lie on a disk: `ssd` and `hdd` are OpenMLDB's words for it.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.storage_mode.as_deref().is_some_and(|mode| mode != "memory")
    }

    /// Returns what an append to the table waits for; `None` where the session says so.
    pub(crate) fn durability(&self) -> Option<Durability> {
        self.durability.as_deref().and_then(durability_of)
    }

    /// Returns how many partitions the options give the table.
    pub(crate) fn partition_num(&self) -> i32 {
        let listed = i32::try_from(self.distribution.len()).unwrap_or(i32::MAX);
        self.partition_num.unwrap_or_else(|| listed.max(1))
    }

    /// Returns how many copies the options give the table.
    pub(crate) fn replica_num(&self) -> i32 {
        let listed = self.distribution.first().map_or(1, |partition| partition.0.len());
        self.replica_num.unwrap_or_else(|| i32::try_from(listed).unwrap_or(i32::MAX))
    }

    /// Writes ` OPTIONS(…)` as CREATE TABLE takes it; empty when there are none.
    pub(crate) fn written(&self) -> String {
        let mut items = Vec::new();
        let number = |name: &str, value: Option<i32>| value.map(|value| format!("{name}={value}"));
        items.extend(number("PARTITIONNUM", self.partition_num));
        items.extend(number("REPLICANUM", self.replica_num));
        if !self.distribution.is_empty() {
            let entries: Vec<String> =
                self.distribution.iter().map(PartitionEndpoints::written).collect();
            items.push(format!("DISTRIBUTION=[{}]", entries.join(", ")));
        }
        let text =
            |name: &str, value: &Option<String>| value.as_ref().map(|v| format!("{name}='{v}'"));
        items.extend(text("STORAGE_MODE", &self.storage_mode));
        items.extend(text("COMPRESS_TYPE", &self.compress_type));
        items.extend(text("DURABILITY", &self.durability));
        if items.is_empty() { String::new() } else { format!(" OPTIONS({})", items.join(", ")) }
    }
}

impl PartitionEndpoints {
    /// Reads `('leader:port', ['follower:port', …])`.
    fn read(value: &OptionValue) -> Option<Self> {
        let OptionValue::List(parts) = value else { return None };
        let [leader, OptionValue::List(followers)] = parts.as_slice() else { return None };
        std::iter::once(leader).chain(followers).map(endpoint).collect::<Option<_>>().map(Self)
    }

    fn written(&self) -> String {
        let quoted: Vec<String> = self.0.iter().map(|endpoint| format!("'{endpoint}'")).collect();
        let (leader, followers) = quoted.split_first().expect("an entry has a leader");
        format!("({leader}, [{}])", followers.join(", "))
    }
}

fn positive(argument: &OptionArgument<'_>) -> Result<i32> {
    argument.integer(1..=i32::MAX, "must be an integer of at least 1")
}

/// Reads one of some words, in lower case.
fn choice(argument: &OptionArgument<'_>, words: &[&str]) -> Result<String> {
    argument.one_of(words).map(|position| words[position].to_owned())
}

/// Reads `[('leader:port', ['follower:port', …]), …]`.
fn distribution(argument: &OptionArgument<'_>) -> Result<Vec<PartitionEndpoints>> {
    let partitions: Option<Vec<PartitionEndpoints>> = match argument.value() {
        OptionValue::List(entries) if !entries.is_empty() => {
            entries.iter().map(PartitionEndpoints::read).collect()
        }
        _ => None,
    };
    match partitions {
        Some(partitions) => Ok(partitions),
        None => argument.invalid(
            "must be a list of ('host:port', ['host:port', …]), each a leader and its followers",
        ),
    }
}

/// Reads `host:port`.
fn endpoint(value: &OptionValue) -> Option<String> {
    let OptionValue::Literal(Literal::String(text)) = value else { return None };
    let (host, port) = text.rsplit_once(':')?;
    let is_endpoint = !host.is_empty() && port.parse::<u16>().is_ok();
    is_endpoint.then(|| text.clone())
}
