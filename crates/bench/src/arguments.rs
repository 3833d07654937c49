//! The command line of `lockstep-bench`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum, error::ErrorKind};

/// Measures Lockstep and its peers, side by side.
#[derive(Debug, Clone, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "a command line's switches")]
#[command(name = "lockstep-bench", version, after_help = AFTER)]
pub(crate) struct BenchOptions {
    /// Workload to run: M1 to M6, M8 to M11, M13 to M17.
    #[arg(value_enum, ignore_case = true,
        required_unless_present_any = ["install", "publish", "training_step", "grouping_step", "restart_step",
            "network_step", "stream_step"])]
    pub(crate) workload: Option<WorkloadId>,

    /// Prints the result as a line of JSON after all other output.
    #[arg(long)]
    pub(crate) json: bool,

    /// Peers to run in addition to Lockstep; default: all that are installed. `none` runs no peer.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) peers: Option<Vec<PeerName>>,

    /// Uses less data and shorter loops: under a minute, including loading.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Numbers of client threads to measure with; the first one is the headline. Default: 1 and 2;
    /// for M13 1, 2, 8 and 32.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    threads: Option<Vec<usize>>,

    /// Number of measurements; with 2 or more, results are medians with minimum and maximum.
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<usize>,

    /// Also runs the workload's sweeps; with `--peers`, the peers run in them, too.
    #[arg(long)]
    pub(crate) sweep: bool,

    /// Also runs streams with an idle side for so many minutes each, and measures their memory; in M17 only.
    #[arg(long, value_name = "MINUTES")]
    pub(crate) soak: Option<u64>,

    /// Writes the JSON, a table and a plot into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out: Option<PathBuf>,

    /// Writes the tables of the results in the directory of `--out` into this page.
    #[arg(long, value_name = "PAGE")]
    pub(crate) publish: Option<PathBuf>,

    /// Installs the peers with the system's own package clients, and exits.
    #[arg(long)]
    pub(crate) install: bool,

    /// Runs one system of M9 in this process: a JSON object.
    #[arg(long, hide = true, value_name = "STEP")]
    pub(crate) training_step: Option<String>,

    /// Runs one system of M10 in this process: a JSON object.
    #[arg(long, hide = true, value_name = "STEP")]
    pub(crate) grouping_step: Option<String>,

    /// Runs one step of M11 in this process, which M11 kills: a JSON object.
    #[arg(long, hide = true, value_name = "STEP")]
    pub(crate) restart_step: Option<String>,

    /// Runs a server of M14 in this process: a JSON object.
    #[arg(long, hide = true, value_name = "STEP")]
    pub(crate) network_step: Option<String>,

    /// Runs a stream of M17 in this process: a JSON object.
    #[arg(long, hide = true, value_name = "STEP")]
    pub(crate) stream_step: Option<String>,
}

impl BenchOptions {
    /// Returns the folder of results: where they are written, and where `--publish` reads them.
    pub(crate) fn results(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from("bench/results"))
    }
}

const AFTER: &str = "Peers run only on this machine, with their own data directories, and are \
                     stopped at the end.";

/// A workload of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkloadId {
    /// Two windows of six aggregates, two last joins, fourteen scalars over 30 columns.
    #[value(name = "M1")]
    M1,
    /// 10, 100 and 1,000 columns; 20, 210 and 2,100 features.
    #[value(name = "M2")]
    M2,
    /// The most frequent values over time windows, after one insert.
    #[value(name = "M3")]
    M3,
    /// Memory per row.
    #[value(name = "M4")]
    M4,
    /// Requests while 20,000 rows are inserted per second.
    #[value(name = "M5")]
    M5,
    /// Inserts only.
    #[value(name = "M6")]
    M6,
    /// Requests over long windows.
    #[value(name = "M8")]
    M8,
    /// Training sets, from rows in memory to a Parquet file.
    #[value(name = "M9")]
    M9,
    /// GROUP BY over many groups.
    #[value(name = "M10")]
    M10,
    /// First answer after a process is killed.
    #[value(name = "M11")]
    M11,
    /// Inserts that are acknowledged once they are durable.
    #[value(name = "M13")]
    M13,
    /// Requests over the network.
    #[value(name = "M14")]
    M14,
    /// Requests over the network, concurrently with analytics.
    #[value(name = "M15")]
    M15,
    /// Windows over a table larger than memory.
    #[value(name = "M16")]
    M16,
    /// Interval joins of streams.
    #[value(name = "M17")]
    M17,
}

/// A system that is measured in addition to Lockstep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerName {
    /// No peer.
    None,
    /// In this process.
    Duckdb,
    /// Its MEMORY engine.
    Mariadb,
    /// All data in shared buffers.
    Postgres,
    /// Sorted sets; windows are aggregated by the client, and by a script.
    Redis,
    /// In this process, in M13 only.
    Sqlite,
    /// Its feature server, in M14 only.
    Feast,
    /// In Python, in M9 only.
    Polars,
    /// With two threads in one Java process, in M9 only.
    Spark,
    /// In one Java process, in M17 only.
    Flink,
}

/// Why the program ends without measuring.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Print this and end with 0.
    Print(String),
    /// Print this and end with 2.
    Refuse(String),
}

impl BenchOptions {
    /// Parses the arguments, which do not include the program's name.
    pub(crate) fn read(args: Vec<String>) -> Result<Self, Stop> {
        Self::try_parse_from(std::iter::once("lockstep-bench".to_owned()).chain(args)).map_err(
            |error| match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    Stop::Print(error.to_string())
                }
                _ => Stop::Refuse(error.to_string()),
            },
        )
    }

    /// Returns whether a peer is to run, and whether it was named.
    pub(crate) fn wants(&self, peer: PeerName) -> PeerChoice {
        match &self.peers {
            None => PeerChoice::IfThere,
            Some(names) if names.contains(&peer) => PeerChoice::Yes,
            Some(_) => PeerChoice::No,
        }
    }

    /// Returns the time of the warm-up and of the measurement of a client, in milliseconds.
    pub(crate) fn loop_ms(&self) -> (u64, u64) {
        match (self.quick, self.workload) {
            // M6 only inserts: longer loops would fill the memory, and it has many points.
            (true, Some(WorkloadId::M6)) => (100, 500),
            // It has many points, and a request may take milliseconds.
            (true, Some(WorkloadId::M8)) => (20, 80),
            (true, Some(WorkloadId::M13)) => (50, 250),
            (true, _) => (300, 1_000),
            (false, Some(WorkloadId::M6 | WorkloadId::M8)) => (200, 1_000),
            (false, _) => (500, 2_000),
        }
    }

    /// Returns the numbers of client threads.
    pub(crate) fn threads(&self) -> Vec<usize> {
        let default: &[usize] = match self.workload {
            Some(WorkloadId::M13) => &[1, 2, 8, 32],
            _ => &[1, 2],
        };
        self.threads.clone().unwrap_or_else(|| default.to_vec())
    }

    /// Returns the number of measurements.
    pub(crate) fn runs(&self) -> usize {
        self.runs.unwrap_or(1).max(1)
    }
}

/// Whether a peer is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerChoice {
    /// It is not to run.
    No,
    /// It runs if it is installed.
    IfThere,
    /// It was named, so it must run.
    Yes,
}

#[cfg(test)]
mod tests {
    use super::{BenchOptions, PeerChoice, PeerName, Stop, WorkloadId};

    fn read(line: &str) -> Result<BenchOptions, Stop> {
        BenchOptions::read(line.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn the_forms_of_the_command_line() {
        let options = read("m1 --json --quick --peers duckdb --threads 1").unwrap();
        assert_eq!(options.workload, Some(WorkloadId::M1));
        assert_eq!(options.wants(PeerName::Duckdb), PeerChoice::Yes);
        assert_eq!(read("M1").unwrap().wants(PeerName::Duckdb), PeerChoice::IfThere);
        assert_eq!(read("M1 --peers none").unwrap().wants(PeerName::Duckdb), PeerChoice::No);
        assert!(matches!(read("M7"), Err(Stop::Refuse(_))));
        assert!(matches!(read("--help"), Err(Stop::Print(_))));
    }
}
