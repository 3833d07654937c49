//! The program `lockstep`: hands its arguments to the shell and its result to the system.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = lockstep_cli::main_with(std::env::args().skip(1).collect());
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
