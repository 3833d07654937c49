//! CREATE FUNCTION and DROP FUNCTION: native libraries are not loaded, so no function is a user's.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::Ident;

use crate::Output;

/// Refuses CREATE FUNCTION.
pub(crate) fn create_function(name: &Ident) -> Result<Output> {
    let message = format!("cannot create function `{}` from a native library", name.text);
    Diagnostic::unsupported(message)
        .at(name.span)
        .with_detail("Loading native code into the process is not supported.")
        .with_hint("List the available functions with SHOW FUNCTIONS.")
        .err()
}

/// Runs DROP FUNCTION, which finds no function.
pub(crate) fn drop_function(name: &Ident, if_exists: bool) -> Result<Output> {
    if if_exists {
        return Ok(Output::of_message("DROP FUNCTION"));
    }
    let message = format!("user-defined function `{}` does not exist", name.text);
    Diagnostic::new(code::UNDEFINED_OBJECT, message).at(name.span).err()
}
