//! What a session fixes for the functions it calls.

use chrono_tz::Tz;

/// Whether results follow the reference system where it is known to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Compatibility {
    /// The right result.
    #[default]
    Standard,
    /// `SET compatibility = 'openmldb'`: the reference's result, bug for bug.
    OpenMldb,
}

/// Fixed when a query is bound and kept with a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Governs parsing, printing and calendar functions of TIMESTAMP.
    pub time_zone: Tz,
    /// See [`Compatibility`].
    pub compatibility: Compatibility,
}

impl Default for Settings {
    fn default() -> Self {
        Self { time_zone: Tz::UTC, compatibility: Compatibility::Standard }
    }
}
