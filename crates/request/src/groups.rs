//! A set of the window groups of one scan, as a bit mask.

use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not};

/// The most window groups of a scan: a [`GroupSet`] has a bit for each of them.
pub(crate) const GROUPS_MAX: usize = 64;

/// Some of the window groups of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GroupSet(u64);

impl GroupSet {
    /// No group.
    pub(crate) const NONE: Self = Self(0);
    /// The first group.
    pub(crate) const FIRST: Self = Self(1);
    /// Every group.
    pub(crate) const ALL: Self = Self(u64::MAX);

    /// Returns the set of one group, given by its position in the scan.
    #[inline]
    pub(crate) fn of(group: usize) -> Self {
        debug_assert!(group < GROUPS_MAX, "a scan has at most {GROUPS_MAX} groups");
        Self(1 << group)
    }

    /// Returns whether the set is empty.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the two sets have a group in common.
    #[inline]
    pub(crate) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether a group is in the set.
    #[inline]
    pub(crate) fn contains(self, group: usize) -> bool {
        self.intersects(Self::of(group))
    }

    /// Counts the groups.
    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }
}

impl BitOr for GroupSet {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for GroupSet {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for GroupSet {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl BitOrAssign for GroupSet {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAndAssign for GroupSet {
    #[inline]
    fn bitand_assign(&mut self, other: Self) {
        self.0 &= other.0;
    }
}
