//! The shell: the program `lockstep`, and the text forms of values and tables.
//!
//! Called by the binary of this crate and by the console script of the Python package, whose wheel
//! has the same shell. A front end: it makes a `Database`, runs statements, and prints outputs and
//! diagnostics. Holds no logic of the database, and reads no environment but its arguments, its
//! input, `$PAGER`, `$LOCKSTEP_PROGRESS` and the home folder's history file.

mod arguments;
mod cell;
mod check_command;
mod command;
mod completion;
mod doctor;
mod doctor_command;
mod editor;
mod history;
mod interrupt;
mod opening;
mod output_format;
mod pager;
mod progress_line;
mod prompt;
mod remote;
mod result_printer;
mod screen;
mod script;
mod serve_command;
mod shell;
mod shell_session;
mod switch;
mod table_text;
mod user_command;

use std::io::{self, IsTerminal};

pub use cell::cell_text;
pub use lockstep_engine::guarded;
pub use remote::{columns_of, conversion_of, output_of};
pub use table_text::{TableText, table_text};

use self::{
    result_printer::ResultPrinter,
    screen::Screen,
    shell::{Shell, ShellInput},
};

/// Runs the shell with these arguments (without the program's name) on the process's standard
/// streams. Returns the exit code: 0, 1 after a failed statement, 2 for wrong arguments, 130 after
/// Ctrl-C; of `lockstep check` 1 for damage and 2 for what could not be checked; of `lockstep serve` 3
/// where calls were cancelled at its end.
///
/// A panic inside a statement is reported as an internal error with exit code 1. Replaces the
/// process's panic hook, since that report replaces the hook's output.
pub fn main_with(args: Vec<String>) -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    if lockstep_host::fill_standard_streams().is_err() {
        // A file would take the place of the stream, and be written to.
        return 1;
    }
    let stdin = io::stdin();
    let printer = ResultPrinter::new(Box::new(io::stdout()), Box::new(io::stderr()));
    let shell = Shell::new(printer.with_screen(Screen::of_stdout)).with_signals();
    let mut shell = shell.with_progress(progress_line::of_stderr());
    match (stdin.is_terminal(), io::stdout().is_terminal()) {
        (true, true) => shell.run(args, ShellInput::Terminal),
        (true, false) => shell.run(args, ShellInput::Lines(&mut stdin.lock())),
        (false, _) => shell.run(args, ShellInput::Script(&mut stdin.lock())),
    }
}
