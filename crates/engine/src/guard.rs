//! Catches panics of the engine and turns them into diagnostics, so that a call fails and not its program.
//!
//! Each front end and each protocol runs its calls through it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lockstep_diagnostic::{Diagnostic, Result};

/// Runs `work`, and returns a panic inside it as the diagnostic of an internal error.
pub fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // Unwind safe: only the engine sees state that the panic interrupted, and it publishes a change
    // as a whole or not at all.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Diagnostic::internal(format!("internal error: {text}")).err()
    })
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        let error = guarded::<()>(|| panic!("row {} is gone", 7)).unwrap_err();
        assert_eq!(error.code, lockstep_diagnostic::code::INTERNAL_ERROR);
        assert_eq!(error.message, "internal error: row 7 is gone");
    }

    #[test]
    fn a_result_passes_through() {
        assert_eq!(guarded(|| Ok(1)), Ok(1));
    }
}
