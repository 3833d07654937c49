//! The benchmark suite: `lockstep-bench`.
//!
//! The program `lockstep-bench` calls [`main_with`]. Every workload runs Lockstep and its peers
//! side by side in one run on one machine, with a *speed-of-light* baseline: the same answer from a
//! hand-written loop over arrays. Before anything is timed, every system must answer sampled
//! requests as Lockstep does. Uses the engine's public interface only, as a user's program would;
//! holds no logic of the database. `docs/benchmarks/method.md` is its manual.
//!
//! | module | what |
//! |---|---|
//! | `arguments`, `suite` | the command line, and what it runs |
//! | `m1` … `m6`, `m8` … `m10`, `m11`, `m13`, `m14` (M15 too), `m16`, `m17` | the workloads |
//! | `peer` | DuckDB, MariaDB, PostgreSQL, Redis, SQLite: their servers, protocols and SQL; the packages of Python |
//! | `system`, `measure`, `measured_process`, `answer` | what is measured, how, and whether answers agree |
//! | `report`, `result_table`, `plot`, `curves`, `publish`, `machine` | the result as JSON, Markdown and SVG, and the machine it was measured on |

mod answer;
mod arguments;
mod curves;
mod draw;
mod engine_memory;
mod error;
mod in_process;
mod m1;
mod m10;
mod m11;
mod m13;
mod m14;
mod m16;
mod m17;
mod m2;
mod m3;
mod m4;
mod m5;
mod m6;
mod m8;
mod m9;
mod machine;
mod measure;
mod measured_process;
mod page_cache;
mod peer;
mod plot;
mod publish;
mod report;
mod result_table;
mod statement;
mod suite;
mod system;

pub use error::Error;

/// Runs a benchmark with the given arguments (without the program's name) and prints to standard
/// output and standard error. Returns the exit code: 0, 1 when it failed or an answer differed, 2
/// for wrong arguments.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command prints to its streams")]
pub fn main_with(args: Vec<String>) -> i32 {
    let options = match arguments::BenchOptions::read(args) {
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
