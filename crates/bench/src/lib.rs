//! The benchmark suite: `lockstep-bench`.
//!
//! The shell and `lockstep-bench` call [`main_with`]. Every workload runs Lockstep and its peers
//! side by side in one run on one machine, and beside them a *speed-of-light* twin: the same
//! answer from a hand-written loop over arrays. Before anything is timed, every system has
//! answered sampled requests as Lockstep does. Uses the engine's public interface only, as a
//! program of a user would; holds no logic of the database. `docs/benchmarks.md` is its manual.
//!
//! | module | what |
//! |---|---|
//! | `arguments`, `suite` | the command line, and what it runs |
//! | `m1` … `m6` | the workloads |
//! | `peer` | DuckDB, MariaDB, PostgreSQL, Redis: started, spoken to, stopped |
//! | `system`, `measure`, `cell` | what is measured, how, and whether answers agree |
//! | `report`, `plot`, `publish`, `machine` | the result: JSON, Markdown, a picture; where it was measured |

mod arguments;
mod cell;
mod draw;
mod engine_memory;
mod error;
mod in_process;
mod m1;
mod m2;
mod m3;
mod m4;
mod m5;
mod m6;
mod machine;
mod measure;
mod peer;
mod plot;
mod publish;
mod report;
mod statement;
mod suite;
mod system;

pub use error::Error;

/// Runs a benchmark with these arguments (without the program's name) on the process's standard
/// streams. Returns the exit code: 0, 1 when it failed or an answer differed, 2 for wrong
/// arguments.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command speaks on its streams")]
pub fn main_with(args: Vec<String>) -> i32 {
    let options = match arguments::Options::read(args) {
        Ok(options) => options,
        Err(arguments::Stop::Print(text)) => {
            print!("{text}");
            return 0;
        }
        Err(arguments::Stop::Refuse(text)) => {
            eprint!("{text}");
            return 2;
        }
    };
    match suite::run(&options) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(inner) = source {
                eprintln!("  {inner}");
                source = inner.source();
            }
            1
        }
    }
}
