//! The limits of a catalog query: rows, work, memory, and the sizes of values.
//!
//! Texts and arrays that a query computes have the limits of the dialect's functions
//! ([`value_limit`]), so that calls cannot multiply them without bound. What is kept while the query runs
//! is counted against the memory of the call. Cancellation and the deadline are checked by work, since a
//! single row may need as much as a million others.

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::value_limit;
use lockstep_host::query::checkpoint;

use super::{
    evaluation::Evaluator,
    relation::CatalogRelation,
    value::{CatalogValue, row_bytes},
};

/// The most rows that a query looks at.
const STEPS_MAX: u64 = 5_000_000;

/// The most rows of a join: they are in memory until the next one.
pub(super) const JOINED_ROWS_MAX: usize = 500_000;

/// The work of a value or a row, in bytes of texts that take as long.
const WORK_OF_VALUE: usize = 64;

/// The work between two checks of cancellation and the deadline: about 100 µs.
const WORK_PER_CHECK: usize = 1 << 16;

/// How many elements of arrays are compared between two checks.
const ELEMENTS_PER_CHECK: usize = 64;

/// What a query has used of its limits.
#[derive(Debug)]
pub(super) struct CatalogUsage {
    steps: u64,
    /// Work since the last check.
    work: usize,
    /// About how many bytes the values have that are kept.
    held_bytes: u64,
    held_bytes_max: u64,
}

impl CatalogUsage {
    /// Begins a query that may keep so many bytes; `None`: no limit.
    pub(super) fn new(held_bytes_max: Option<u64>) -> Self {
        let held_bytes_max = held_bytes_max.unwrap_or(u64::MAX);
        Self { steps: 0, work: 0, held_bytes: 0, held_bytes_max }
    }
}

impl Evaluator<'_> {
    /// Counts a row, and ends a query that looks at too many or was interrupted.
    pub(super) fn step(&mut self) -> Result<()> {
        self.usage.steps += 1;
        if self.usage.steps > STEPS_MAX {
            return too_many_rows();
        }
        self.work(0)
    }

    /// Counts the work of a value of so many bytes, and ends a query that was interrupted.
    pub(super) fn work(&mut self, bytes: usize) -> Result<()> {
        self.usage.work = self.usage.work.saturating_add(bytes).saturating_add(WORK_OF_VALUE);
        if self.usage.work < WORK_PER_CHECK {
            return Ok(());
        }
        self.usage.work = 0;
        check_interrupt()
    }

    /// Counts so many bytes as kept, until [`Self::release_to`] an earlier count.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<()> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let usage = &mut self.usage;
        usage.held_bytes = usage.held_bytes.saturating_add(bytes);
        if usage.held_bytes <= usage.held_bytes_max {
            return Ok(());
        }
        Diagnostic::new(code::OUT_OF_MEMORY, "the catalog query exceeds its memory limit")
            .with_kind(Kind::FreeResources)
            .with_detail(format!("A catalog query may use {} bytes.", usage.held_bytes_max))
            .with_hint("Raise memory_limit (0 means no limit).")
            .err()
    }

    /// Counts the rows of an inner query as kept.
    pub(super) fn hold_relation(&mut self, relation: &CatalogRelation) -> Result<()> {
        for row in relation.rows.iter() {
            let bytes = row_bytes(row);
            self.work(bytes)?;
            self.hold(bytes)?;
        }
        Ok(())
    }

    /// Counts a computed value as kept, and checks its size.
    pub(super) fn hold_value(&mut self, value: &CatalogValue) -> Result<()> {
        let bytes = value.heap_bytes();
        check_size(value, bytes)?;
        self.work(bytes)?;
        self.hold(bytes)
    }

    /// Returns how many bytes are kept, to forget later ones with [`Self::release_to`].
    pub(super) fn held(&self) -> u64 {
        self.usage.held_bytes
    }

    /// Forgets what was kept since.
    pub(super) fn release_to(&mut self, held: u64) {
        debug_assert!(held <= self.usage.held_bytes, "what was kept before is kept");
        self.usage.held_bytes = held;
    }

    /// Forgets so many bytes of what is kept.
    pub(super) fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.usage.held_bytes, "what is forgotten was kept");
        self.usage.held_bytes = self.usage.held_bytes.saturating_sub(bytes);
    }
}

/// Fails if the query was cancelled or has exceeded its deadline.
pub(super) fn check_interrupt() -> Result<()> {
    checkpoint().or_else(|interrupt| Diagnostic::interrupted(interrupt.limit_ms()).err())
}

/// Does [`check_interrupt`] for some of the elements of an array, by their positions.
pub(super) fn check_element(at: usize) -> Result<()> {
    if (at + 1).is_multiple_of(ELEMENTS_PER_CHECK) { check_interrupt() } else { Ok(()) }
}

/// Fails where a join has too many rows.
pub(super) fn check_row_count(count: usize) -> Result<()> {
    if count > JOINED_ROWS_MAX { too_many_rows() } else { Ok(()) }
}

fn too_many_rows<T>() -> Result<T> {
    let message = "the catalog query reads too many rows";
    Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message).err()
}

/// Fails if a text may not have so many bytes.
pub(super) fn check_text(bytes: usize) -> Result<()> {
    if bytes > value_limit::TEXT_BYTES_MAX { value_limit::error().err() } else { Ok(()) }
}

/// Fails if an array may not have so many items.
pub(super) fn check_items(count: usize) -> Result<()> {
    if count > value_limit::LIST_ITEMS_MAX { value_limit::error().err() } else { Ok(()) }
}

/// Fails if a computed value is too long.
fn check_size(value: &CatalogValue, bytes: usize) -> Result<()> {
    match value {
        CatalogValue::Text(_) => check_text(bytes),
        CatalogValue::Array(array) => {
            check_items(array.items.len())?;
            check_list(bytes)
        }
        CatalogValue::Record(_) => check_list(bytes),
        _ => Ok(()),
    }
}

fn check_list(bytes: usize) -> Result<()> {
    if bytes > value_limit::LIST_BYTES_MAX { value_limit::error().err() } else { Ok(()) }
}

/// A text that is built of parts, up to the limit of a text.
#[derive(Debug, Default)]
pub(super) struct LimitedText(String);

impl LimitedText {
    /// Appends a part.
    pub(super) fn push(&mut self, part: &str) -> Result<()> {
        check_text(self.0.len().saturating_add(part.len()))?;
        self.0.push_str(part);
        Ok(())
    }

    /// Appends parts with a separator between them.
    pub(super) fn join<P: AsRef<str>>(
        mut self,
        parts: impl Iterator<Item = P>,
        separator: &str,
    ) -> Result<Self> {
        for (at, part) in parts.enumerate() {
            if at > 0 {
                self.push(separator)?;
            }
            self.push(part.as_ref())?;
        }
        Ok(self)
    }

    /// Returns the text as a value.
    pub(super) fn value(&self) -> CatalogValue {
        CatalogValue::text(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use lockstep_function::value_limit::TEXT_BYTES_MAX;

    use super::LimitedText;

    #[test]
    fn a_text_is_built_up_to_its_limit() {
        let part = "a".repeat(TEXT_BYTES_MAX / 2);
        let full = LimitedText::default().join([&part, &part].into_iter(), "").unwrap();
        assert_eq!(full.value().heap_bytes(), TEXT_BYTES_MAX);
        let error = LimitedText::default().join([&part, &part].into_iter(), ",").unwrap_err();
        assert_eq!(error.code, "54000");
    }
}
