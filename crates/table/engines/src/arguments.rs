//! The command line: a command, followed by options with values.

use std::{collections::BTreeMap, error::Error, fmt::Display, path::PathBuf, str::FromStr};

use crate::{
    engine::{Compression, Configuration, EngineSpec, RunContent},
    workload::Workload,
};

/// Bytes of rows in memory before a flush.
const WRITE_BUFFER_BYTES: usize = 64 << 20;

const USAGE: &str = "\
usage: engines build|read --engine rocksdb|lsm-tree|runs [--configuration NAME] --directory DIR
       --rows N --keys N --cache BYTES --queries N
configurations of rocksdb and lsm-tree: uncompressed (default), default-compression
configurations of runs: rows (default), records";

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) command: Command,
    pub(crate) spec: EngineSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// Writes the rows.
    Build,
    /// Reads windows.
    Read {
        /// Number of queries of each case that is not cold.
        queries: usize,
    },
}

/// Options that were not read yet, by name.
struct NamedOptions(BTreeMap<String, String>);

impl Arguments {
    /// Parses the arguments that follow the name of the program.
    pub(crate) fn parse(
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Self, Box<dyn Error>> {
        let command = arguments.next().ok_or(USAGE)?;
        let mut options = NamedOptions::parse(arguments)?;
        let queries: usize = options.number("--queries")?;
        let command = match command.as_str() {
            "build" => Command::Build,
            "read" => Command::Read { queries },
            other => return Err(format!("invalid command `{other}`\n{USAGE}").into()),
        };
        let spec = EngineSpec {
            configuration: options.configuration()?,
            directory: PathBuf::from(options.required("--directory")?),
            workload: Workload::new(options.number("--rows")?, options.number("--keys")?)?,
            cache_bytes: options.number("--cache")?,
            write_buffer_bytes: WRITE_BUFFER_BYTES,
        };
        match options.0.keys().next() {
            None => Ok(Self { command, spec }),
            Some(name) => Err(format!("invalid option `{name}`\n{USAGE}").into()),
        }
    }
}

impl NamedOptions {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = BTreeMap::new();
        while let Some(name) = arguments.next() {
            let Some(value) = arguments.next() else {
                return Err(format!("option `{name}` requires a value\n{USAGE}").into());
            };
            options.insert(name, value);
        }
        Ok(Self(options))
    }

    fn required(&mut self, name: &str) -> Result<String, Box<dyn Error>> {
        let value = self.0.remove(name);
        value.ok_or_else(|| format!("missing option `{name}`\n{USAGE}").into())
    }

    fn number<N: FromStr<Err: Display>>(&mut self, name: &str) -> Result<N, Box<dyn Error>> {
        let value = self.required(name)?;
        value.parse::<N>().map_err(|error| format!("option `{name}`: `{value}`: {error}").into())
    }

    fn configuration(&mut self) -> Result<Configuration, Box<dyn Error>> {
        let engine = self.required("--engine")?;
        let name = self.0.remove("--configuration");
        let compression = || match name.as_deref() {
            None | Some("uncompressed") => Some(Compression::Disabled),
            Some("default-compression") => Some(Compression::Default),
            Some(_) => None,
        };
        let content = || match name.as_deref() {
            None | Some("rows") => Some(RunContent::Rows),
            Some("records") => Some(RunContent::Records),
            Some(_) => None,
        };
        let configuration = match engine.as_str() {
            "rocksdb" => compression().map(Configuration::RocksDb),
            "lsm-tree" => compression().map(Configuration::LsmTree),
            "runs" => content().map(Configuration::Runs),
            other => return Err(format!("invalid engine `{other}`\n{USAGE}").into()),
        };
        configuration
            .ok_or_else(|| format!("invalid configuration of engine `{engine}`\n{USAGE}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Command};
    use crate::engine::{Compression, Configuration};

    fn parse(line: &str) -> Result<Arguments, String> {
        let arguments = line.split_whitespace().map(str::to_owned);
        Arguments::parse(arguments).map_err(|error| error.to_string())
    }

    const OPTIONS: &str = "--directory d --rows 100 --keys 10 --cache 5 --queries 7";

    #[test]
    fn a_complete_command_line_is_parsed() {
        let arguments = parse(&format!("read --engine lsm-tree {OPTIONS}")).unwrap();
        assert_eq!(arguments.command, Command::Read { queries: 7 });
        assert_eq!(arguments.spec.configuration, Configuration::LsmTree(Compression::Disabled));
        assert_eq!(arguments.spec.cache_bytes, 5);
    }

    #[test]
    fn an_incomplete_or_invalid_command_line_is_refused() {
        for line in [
            "",
            "read",
            "read --engine runs --directory",
            &format!("write --engine runs {OPTIONS}"),
            &format!("read --engine other {OPTIONS}"),
            &format!("read --engine runs --configuration uncompressed {OPTIONS}"),
            &format!("read --engine runs --other 1 {OPTIONS}"),
            "read --engine runs --directory d --rows 105 --keys 10 --cache 5 --queries 7",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
