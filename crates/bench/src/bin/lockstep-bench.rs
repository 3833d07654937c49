//! The program `lockstep-bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = lockstep_bench::main_with(std::env::args().skip(1).collect());
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
