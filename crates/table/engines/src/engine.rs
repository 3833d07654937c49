//! The engines, called through one enum.
//!
//! `phases` builds and reads them; each engine is in a file of its own, and is the only part that names
//! its library.

use std::{error::Error, path::PathBuf};

use crate::{
    rocksdb::RocksDb,
    runs::Runs,
    tree::Tree,
    workload::{WindowSum, Workload},
};

/// Rows that the engines of keys and values write at once.
pub(crate) const BATCH_ROWS: usize = 1_000;

/// An engine and its options.
#[derive(Debug, Clone)]
pub(crate) struct EngineSpec {
    pub(crate) configuration: Configuration,
    /// Directory of the engine's files; its parent exists.
    pub(crate) directory: PathBuf,
    pub(crate) workload: Workload,
    /// Capacity of the engine's own cache.
    pub(crate) cache_bytes: u64,
    /// Bytes of rows in memory before a flush.
    pub(crate) write_buffer_bytes: usize,
}

/// An engine in one of its configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Configuration {
    RocksDb(Compression),
    LsmTree(Compression),
    Runs(RunContent),
}

/// Compression of the blocks of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// None, as in runs.
    Disabled,
    /// The library's default.
    Default,
}

/// The part of a page of a run from which amounts are read. The files are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunContent {
    /// Encoded rows.
    Rows,
    /// Records, which contain the amounts in a column.
    Records,
}

/// An engine that is open for reading.
pub(crate) enum Engine {
    RocksDb(RocksDb),
    LsmTree(Tree),
    Runs(Runs),
}

impl Configuration {
    /// Returns the name of the engine.
    pub(crate) fn engine(self) -> &'static str {
        match self {
            Self::RocksDb(_) => "rocksdb",
            Self::LsmTree(_) => "lsm-tree",
            Self::Runs(_) => "runs",
        }
    }

    /// Returns the name of the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RocksDb(Compression::Disabled) | Self::LsmTree(Compression::Disabled) => {
                "uncompressed"
            }
            Self::RocksDb(Compression::Default) | Self::LsmTree(Compression::Default) => {
                "default-compression"
            }
            Self::Runs(RunContent::Rows) => "rows",
            Self::Runs(RunContent::Records) => "records",
        }
    }
}

impl Engine {
    /// Writes all rows of the workload into an empty directory, and closes the engine when its
    /// compactions have finished.
    pub(crate) fn build(spec: &EngineSpec) -> Result<(), Box<dyn Error>> {
        match spec.configuration {
            Configuration::RocksDb(compression) => RocksDb::build(spec, compression),
            Configuration::LsmTree(compression) => Tree::build(spec, compression),
            Configuration::Runs(_) => Runs::build(spec),
        }
    }

    /// Opens an engine that was built. Its cache is empty.
    pub(crate) fn open(spec: &EngineSpec) -> Result<Self, Box<dyn Error>> {
        Ok(match spec.configuration {
            Configuration::RocksDb(compression) => Self::RocksDb(RocksDb::open(spec, compression)?),
            Configuration::LsmTree(compression) => Self::LsmTree(Tree::open(spec, compression)?),
            Configuration::Runs(content) => Self::Runs(Runs::open(spec, content)?),
        })
    }

    /// Sums the amounts of the `newest` newest rows of a key, at least one.
    pub(crate) fn window(&self, key: u64, newest: usize) -> Result<WindowSum, Box<dyn Error>> {
        match self {
            Self::RocksDb(engine) => engine.window(key, newest),
            Self::LsmTree(engine) => engine.window(key, newest),
            Self::Runs(engine) => engine.window(key, newest),
        }
    }

    /// Returns the number of blocks, or of pages, that were not in the engine's cache since it was
    /// opened.
    pub(crate) fn blocks_read(&self) -> u64 {
        match self {
            Self::RocksDb(engine) => engine.blocks_read(),
            Self::LsmTree(engine) => engine.blocks_read(),
            Self::Runs(engine) => engine.blocks_read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Compression, Configuration, Engine, EngineSpec, RunContent};
    use crate::workload::Workload;

    fn check(configuration: Configuration) {
        let (engine, name) = (configuration.engine(), configuration.name());
        let directory = format!("lockstep-engines-{}-{engine}-{name}", std::process::id());
        let spec = EngineSpec {
            configuration,
            directory: std::env::temp_dir().join(directory),
            workload: Workload::new(60_000, 40).unwrap(),
            cache_bytes: 1 << 20,
            // Several flushes.
            write_buffer_bytes: 1 << 20,
        };
        Engine::build(&spec).unwrap();
        let engine = Engine::open(&spec).unwrap();
        for key in 0..40 {
            for newest in [1, 20, 1_000, 5_000] {
                let expected = spec.workload.expected(key, newest);
                assert_eq!(engine.window(key, newest).unwrap(), expected, "{name}: {key} {newest}");
            }
        }
        assert!(engine.blocks_read() > 0);
        drop(engine);
        fs::remove_dir_all(&spec.directory).unwrap();
    }

    #[test]
    fn every_engine_returns_the_expected_sums() {
        for compression in [Compression::Disabled, Compression::Default] {
            check(Configuration::RocksDb(compression));
            check(Configuration::LsmTree(compression));
        }
        for content in [RunContent::Rows, RunContent::Records] {
            check(Configuration::Runs(content));
        }
    }
}
