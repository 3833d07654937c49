//! What `SET compatibility = 'openmldb'` changes: one table.
//!
//! `docs/compatibility.md` is generated from it. A function that consults
//! [`crate::Settings::compatibility`] has a row here; what has no row is the same in both.

/// One difference between this system and the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The function, operator or rule.
    pub name: &'static str,
    /// What the reference does.
    pub reference: &'static str,
    /// What we do by default.
    pub standard: &'static str,
    /// Why.
    pub why: &'static str,
    /// Whether `SET compatibility = 'openmldb'` brings the reference's result back. Where it does
    /// not, the reference's behaviour depends on the clock or on undefined behaviour.
    pub is_restored: bool,
}

/// Every difference.
pub const DIFFERENCES: &[Difference] = &[];
