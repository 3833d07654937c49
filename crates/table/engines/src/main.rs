//! Measures windows over the rows of an entity key that are on a disk, with three engines: RocksDB,
//! lsm-tree, and Lockstep's own runs.
//!
//! `run.sh` starts the program once for each engine and phase, so that memory is measured in a process
//! of its own. It prints one line per figure, separated by tabs. Every sum is compared with the sum
//! that the workload specifies; a difference ends the program with an error.

mod arguments;
mod draw;
mod engine;
mod figures;
mod machine;
mod phases;
mod rocksdb;
mod runs;
mod tree;
mod workload;

use std::process::ExitCode;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let measured = Arguments::parse(std::env::args().skip(1)).and_then(|arguments| {
        figures::print_header();
        match arguments.command {
            Command::Build => phases::build(&arguments.spec),
            Command::Read { queries } => phases::read(&arguments.spec, queries),
        }
    });
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engines: {error}");
            ExitCode::FAILURE
        }
    }
}
