//! Why a logged answer differs from that of a training set.

use std::fmt;

/// What made the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DifferenceCause {
    /// Rows that arrived after the request belong to its windows or joins.
    LateRow,
    /// Rows that the request saw have expired since.
    Expired,
    /// Rows that the request saw may have been deleted since.
    Deleted,
    /// The deployment was replaced by another query.
    ChangedDeployment,
    /// Another version of the program answered.
    ChangedFunction,
    /// None of these: the same program over the same rows gives another answer.
    Unexplained,
}

impl DifferenceCause {
    /// Returns what VERIFY calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LateRow => "late row",
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::ChangedDeployment => "changed deployment",
            Self::ChangedFunction => "changed function",
            Self::Unexplained => "unexplained",
        }
    }
}

impl fmt::Display for DifferenceCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
