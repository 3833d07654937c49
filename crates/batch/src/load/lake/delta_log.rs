//! The log of a Delta table: which commits and checkpoints there are, and what they say.
//!
//! `delta` replays the actions. A checkpoint is the state at a version, in one Parquet file or in
//! several; a commit is a file with an action on each line. The folder is listed, so that
//! `_last_checkpoint`, which only shortens the listing, is not needed.

use std::collections::{BTreeMap, BTreeSet};

use ::parquet::arrow::ProjectionMask;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use serde::{Deserialize, de::DeserializeOwned};

use super::{damaged, folder::TableFolder};
use crate::{error::from_arrow, load::parquet};

/// The folder of the log.
const LOG_FOLDER: &str = "_delta_log";

/// The digits of a version in a file's name.
const VERSION_DIGITS: usize = 20;

/// What is read of a checkpoint.
const CHECKPOINT_COLUMNS: [&str; 7] = [
    "protocol",
    "metaData",
    "add.path",
    "add.partitionValues",
    "add.size",
    "add.stats",
    "add.deletionVector",
];

/// One line of a commit, or one row of a checkpoint; other actions do not change what is read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeltaAction {
    pub(super) protocol: Option<DeltaProtocol>,
    pub(super) meta_data: Option<DeltaMetadata>,
    pub(super) add: Option<AddFile>,
    pub(super) remove: Option<RemoveFile>,
}

/// What a reader has to support.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeltaProtocol {
    pub(super) min_reader_version: u32,
    #[serde(default)]
    pub(super) reader_features: Option<Vec<String>>,
}

/// The columns of the table, and its settings.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeltaMetadata {
    /// Absent in the first entry of some writers, which add the columns later.
    #[serde(default)]
    pub(super) schema_string: Option<String>,
    #[serde(default)]
    pub(super) partition_columns: Vec<String>,
    #[serde(default)]
    pub(super) configuration: Option<BTreeMap<String, Option<String>>>,
}

/// A file that becomes part of the table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AddFile {
    /// URL-encoded; relative to the table's folder, or absolute.
    pub(super) path: String,
    #[serde(default)]
    pub(super) partition_values: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub(super) size: Option<u64>,
    /// The statistics of its rows, as JSON.
    #[serde(default)]
    pub(super) stats: Option<String>,
    #[serde(default)]
    pub(super) deletion_vector: Option<DeletionVector>,
}

/// A file that is no longer part of the table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoveFile {
    pub(super) path: String,
    #[serde(default)]
    pub(super) deletion_vector: Option<DeletionVector>,
}

/// Which rows of a file are deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeletionVector {
    storage_type: String,
    path_or_inline_dv: String,
    #[serde(default)]
    offset: Option<i64>,
}

/// The files of a log.
#[derive(Debug, Default)]
pub(super) struct DeltaLog {
    commits: BTreeSet<u64>,
    /// The names of the parts by version and number of parts.
    checkpoints: BTreeMap<(u64, u64), BTreeMap<u64, String>>,
}

impl DeltaLog {
    /// Lists the log of a table.
    pub(super) fn list(folder: &TableFolder<'_>) -> Result<Self> {
        let mut log = Self::default();
        for name in folder.list(LOG_FOLDER)? {
            log.add(&name);
        }
        Ok(log)
    }

    /// Adds a file by its name. Files that are not of the log are ignored.
    pub(super) fn add(&mut self, name: &str) {
        let parts: Vec<&str> = name.split('.').collect();
        let Some(version) = parts.first().and_then(|digits| version_of(digits)) else { return };
        match parts.as_slice() {
            [_, "json"] => {
                self.commits.insert(version);
            }
            [_, "checkpoint", "parquet"] => self.add_part(version, (1, 1), name),
            [_, "checkpoint", part, count, "parquet"] => {
                if let (Ok(part), Ok(count)) = (part.parse(), count.parse()) {
                    self.add_part(version, (part, count), name);
                }
            }
            _ => {}
        }
    }

    fn add_part(&mut self, version: u64, (part, count): (u64, u64), name: &str) {
        if (1..=count).contains(&part) {
            let parts = self.checkpoints.entry((version, count)).or_default();
            parts.insert(part, name.to_owned());
        }
    }

    /// Returns the version to read: the given one, or the latest.
    pub(super) fn version(&self, folder: &TableFolder<'_>, given: Option<u64>) -> Result<u64> {
        let checkpoint = self.checkpoint(u64::MAX).map(|(version, _)| version);
        let Some(latest) = self.commits.last().copied().max(checkpoint) else {
            let message = format!("`{folder}` is not a Delta table");
            return Diagnostic::new(code::UNDEFINED_FILE, message)
                .with_detail(format!("Directory `{folder}/{LOG_FOLDER}` contains no commits."))
                .with_hint("Pass the directory of a Delta table, or use read_parquet.")
                .err();
        };
        match given {
            Some(version) if version > latest => {
                let message = format!("version {version} of table `{folder}` does not exist");
                Diagnostic::new(code::INVALID_PARAMETER, message)
                    .with_hint(format!("The latest version is {latest}."))
                    .err()
            }
            Some(version) => Ok(version),
            None => Ok(latest),
        }
    }

    /// Passes each action that makes the table what it was at a version to `apply`, in their order.
    pub(super) fn replay(
        &self,
        folder: &TableFolder<'_>,
        version: u64,
        apply: &mut dyn FnMut(DeltaAction),
    ) -> Result<()> {
        let checkpoint = self.checkpoint(version);
        if let Some((_, parts)) = checkpoint {
            for name in parts.values() {
                read_checkpoint(folder, name, apply)?;
            }
        }
        let first = checkpoint.map_or(0, |(version, _)| version + 1);
        for commit in first..=version {
            if !self.commits.contains(&commit) {
                return Err(self.no_commit(folder, version, commit));
            }
            read_commit(folder, commit, apply)?;
        }
        Ok(())
    }

    /// Returns the last whole checkpoint that is not after a version.
    fn checkpoint(&self, version: u64) -> Option<(u64, &BTreeMap<u64, String>)> {
        let mut known = self.checkpoints.range(..=(version, u64::MAX)).rev();
        known
            .find(|((_, count), parts)| u64::try_from(parts.len()) == Ok(*count))
            .map(|((version, _), parts)| (*version, parts))
    }

    fn no_commit(&self, folder: &TableFolder<'_>, version: u64, commit: u64) -> Box<Diagnostic> {
        let message = format!("file `{}` does not exist", folder.resolve(&commit_name(commit)));
        let earliest = (0..=version).find(|from| self.is_whole_from(*from));
        let latest = self.commits.last().copied().unwrap_or(version).max(version);
        let readable =
            earliest.or_else(|| (version..=latest).find(|from| self.is_whole_from(*from)));
        let hint = match readable {
            Some(readable) if readable != version => {
                format!("Read version {readable}, or restore the file.")
            }
            _ => "Restore the file from a copy of the table.".to_owned(),
        };
        let diagnostic = Diagnostic::new(code::UNDEFINED_FILE, message)
            .with_kind(Kind::FixData)
            .with_detail(format!(
                "Version {version} requires the file; the table's writer removes old log files."
            ))
            .with_hint(hint);
        Box::new(diagnostic)
    }

    /// Returns whether a version has all that it needs.
    fn is_whole_from(&self, version: u64) -> bool {
        let first = self.checkpoint(version).map_or(0, |(version, _)| version + 1);
        (first..=version).all(|commit| self.commits.contains(&commit))
    }
}

fn version_of(digits: &str) -> Option<u64> {
    let is_version =
        digits.len() == VERSION_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_version.then(|| digits.parse().ok()).flatten()
}

fn commit_name(version: u64) -> String {
    format!("{LOG_FOLDER}/{version:020}.json")
}

fn read_commit(
    folder: &TableFolder<'_>,
    version: u64,
    apply: &mut dyn FnMut(DeltaAction),
) -> Result<()> {
    let name = commit_name(version);
    let bytes = folder.read(&name)?;
    each_line(&bytes, apply)
        .map_err(|(line, error)| damaged(&folder.resolve(&name), format!("Line {line}: {error}.")))
}

/// Reads JSON objects, one on each line; fails with the number of a line that is something else.
fn each_line<T: DeserializeOwned>(
    bytes: &[u8],
    apply: &mut dyn FnMut(T),
) -> std::result::Result<(), (usize, serde_json::Error)> {
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if !line.trim_ascii().is_empty() {
            apply(serde_json::from_slice(line).map_err(|error| (at + 1, error))?);
        }
    }
    Ok(())
}

/// Reads a part of a checkpoint. Its rows are written as JSON first, so that an action is read by
/// one rule wherever it is.
fn read_checkpoint(
    folder: &TableFolder<'_>,
    name: &str,
    apply: &mut dyn FnMut(DeltaAction),
) -> Result<()> {
    let file = folder.file(&format!("{LOG_FOLDER}/{name}"), None)?;
    let checkpoint = parquet::open_file(&file)?;
    let mask = ProjectionMask::columns(checkpoint.parquet_schema(), CHECKPOINT_COLUMNS);
    for batch in checkpoint.rows_of(mask) {
        let batch = batch?;
        let mut writer = ::arrow::json::LineDelimitedWriter::new(Vec::new());
        writer.write(&batch).map_err(|error| from_arrow(&error))?;
        writer.finish().map_err(|error| from_arrow(&error))?;
        each_line(&writer.into_inner(), apply).map_err(|(row, error)| {
            damaged(&file, format!("Row {row} of the checkpoint: {error}."))
        })?;
    }
    Ok(())
}
