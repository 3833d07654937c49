//! The limits of the texts and lists that functions return.
//!
//! A row form returns a value and cannot fail, so one that would exceed a limit sets a flag of its
//! thread and returns NULL. Callers of row forms read the flag afterwards, with [`check`], and fail
//! the statement or the request: [`crate::udf`] for DataFusion, `request` for each answer, `batch`
//! for each window. Stored values may be longer; only results of functions are limited, since calls
//! of functions can multiply their size without bound. A row form that takes long checks whether its call
//! was interrupted, and ends in the same way.
//!
//! *Cost*: one read of a thread-local variable for each batch or request.

use std::cell::Cell;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{Interrupt, query::checkpoint};

/// The most bytes of a text that a function returns.
pub const TEXT_BYTES_MAX: usize = 2 << 20;

/// The most items of a list that a function returns.
pub const LIST_ITEMS_MAX: usize = 1 << 17;

/// The most bytes of all texts of a list that a function returns.
pub const LIST_BYTES_MAX: usize = 16 << 20;

/// The most bytes of a constant that is computed during planning. A longer one is computed when the
/// plan runs: optimisers copy the constants of a plan, and build names from them, at each step.
pub const PLANNED_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(PLANNED_BYTES_MAX < TEXT_BYTES_MAX);
const _: () = assert!(TEXT_BYTES_MAX <= LIST_BYTES_MAX);

thread_local! {
    static IS_PLANNING: Cell<bool> = const { Cell::new(false) };
    static IS_EXCEEDED: Cell<bool> = const { Cell::new(false) };
    static INTERRUPT: Cell<Option<Interrupt>> = const { Cell::new(None) };
}

/// Returns `Some` unless the thread's call was interrupted; then sets the thread's flag.
pub(crate) fn uninterrupted() -> Option<()> {
    let Err(interrupt) = checkpoint() else { return Some(()) };
    INTERRUPT.set(Some(interrupt));
    within(false)
}

/// Returns `Some` if a text may have so many bytes; otherwise sets the thread's flag.
pub(crate) fn text(bytes: usize) -> Option<()> {
    within(bytes <= TEXT_BYTES_MAX)
}

/// Returns `Some` if a list may have so many items, with so many bytes of new texts; otherwise sets
/// the thread's flag.
pub(crate) fn list(items: usize, bytes: usize) -> Option<()> {
    within(items <= LIST_ITEMS_MAX && bytes <= LIST_BYTES_MAX)
}

fn within(is_within: bool) -> Option<()> {
    if !is_within {
        IS_EXCEEDED.set(true);
    }
    is_within.then_some(())
}

/// Runs `work`, which computes constants during planning, on this thread.
pub fn while_planning<T>(work: impl FnOnce() -> T) -> T {
    /// Restores the flag, also when the work panics.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_PLANNING.set(self.0);
        }
    }
    let _restore = Restore(IS_PLANNING.replace(true));
    work()
}

/// Returns whether a value of so many bytes may replace its call.
pub(crate) fn may_be_planned(bytes: usize) -> bool {
    bytes <= PLANNED_BYTES_MAX || !IS_PLANNING.get()
}

/// Returns whether this thread exceeded a limit since the last [`check`].
pub(crate) fn is_exceeded() -> bool {
    IS_EXCEEDED.get()
}

/// Fails when this thread exceeded a limit, or its call was interrupted, since the last call.
#[inline]
pub fn check() -> Result<()> {
    if IS_EXCEEDED.get() { exceeded() } else { Ok(()) }
}

#[cold]
fn exceeded() -> Result<()> {
    IS_EXCEEDED.set(false);
    match INTERRUPT.take() {
        Some(interrupt) => Diagnostic::interrupted(interrupt.limit_ms()).err(),
        None => error().err(),
    }
}

/// Makes the error of a text or a list that exceeds a limit.
pub fn error() -> Diagnostic {
    Diagnostic::new(code::VALUE_TOO_LARGE, "the result of a function exceeds the size limit")
        .with_kind(Kind::FixData)
        .with_detail(format!(
            "A STRING is limited to {TEXT_BYTES_MAX} bytes, and an ARRAY to {LIST_ITEMS_MAX} \
             elements and {LIST_BYTES_MAX} bytes."
        ))
        .with_hint("Shorten the arguments, for example with substring.")
}

#[cfg(test)]
mod tests {
    use super::{LIST_ITEMS_MAX, TEXT_BYTES_MAX, check};
    use crate::{Settings, testing::evaluate};

    #[track_caller]
    fn is_refused(sql: &str) {
        evaluate(sql, Settings::default()).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(check().map_err(|error| error.code), Err("54000"), "{sql}");
        assert_eq!(check(), Ok(()), "{sql}: an error is reported once");
    }

    #[track_caller]
    fn is_made(sql: &str) {
        evaluate(sql, Settings::default()).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(check(), Ok(()), "{sql}");
    }

    #[test]
    fn what_is_too_long_is_refused_and_what_is_not_is_made() {
        let full = format!("rpad('', {TEXT_BYTES_MAX}, 'a,')");
        is_made(&full);
        is_made(&format!("split(rpad('', {LIST_ITEMS_MAX}, 'a,'), ',')"));
        for sql in [
            format!("rpad('', {}, 'a')", TEXT_BYTES_MAX + 1),
            format!("lpad('', {TEXT_BYTES_MAX}, 'é')"),
            "lpad('', 9223372036854775807, 'a')".to_owned(),
            format!("concat({full}, 'a')"),
            format!("{full} || 'a'"),
            format!("concat_ws({full}, 'a', 'b', 'c')"),
            format!("replace({full}, 'a', 'aaaa')"),
            "replace(rpad('', 30000, 'a'), 'a', rpad('', 30000, 'a'))".to_owned(),
            format!("hex({full})"),
            format!("split({full}, ',')"),
            format!("split_array({full}, ',')"),
            format!("split_array({full}, '')"),
            format!("split_by_key({full}, ',', 'a')"),
            format!("array_join([{full}, 'b'], {full})"),
            format!("`join`(split('a,b,c', ','), {full})"),
            format!("array_combine({full}, [1, 2, 3], [4, 5, 6])"),
            format!("date_format(date('2020-01-01'), {full} || '%A')"),
            format!("csv(continuous(1), discrete(1), continuous(2)) || {full}"),
        ] {
            is_refused(&sql);
        }
    }
}
