//! Panics as text, so that a case that panics fails and the others continue.
//!
//! Used by runners of many cases in one process.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook},
};

thread_local! {
    /// The last panic of this thread.
    static TEXT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the text of panics for [`caught`] instead of printing it, for the whole process.
pub fn catch_text() {
    set_hook(Box::new(|panic| TEXT.set(Some(panic.to_string()))));
}

/// Calls `run`; the text of its panic is the error.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => Ok(value),
        Err(payload) => {
            // The hook has recorded the text with its location; the payload has the text only.
            drop(payload);
            Err(TEXT.take().unwrap_or_else(|| "panicked on another thread".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::caught;

    #[test]
    fn a_panic_is_an_error() {
        assert!(caught(|| assert_eq!(1, 2)).is_err());
        assert_eq!(caught(|| 7), Ok(7));
    }
}
