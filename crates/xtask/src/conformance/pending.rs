//! The checked-in list of cases that do not pass yet: one `id mode` a line, sorted.
//!
//! It may only shrink, so that what passes once goes on passing. Beside it is a list of deviations,
//! one `id mode: reason` a line: cases that fail on purpose, or that contradict others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

/// An id and a mode, as one line.
pub(crate) type Line = String;

/// Where the list is.
pub(crate) fn path() -> PathBuf {
    crate::workspace_dir().join("crates/xtask/conformance/pending.txt")
}

/// The line of a case in a mode.
pub(crate) fn line(id: &str, mode: &str) -> Line {
    format!("{id} {mode}")
}

/// Reads the list; a missing one is empty.
pub(crate) fn read() -> BTreeSet<Line> {
    let text = fs::read_to_string(path()).unwrap_or_default();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Reads the deviations: what is one, and why.
pub(crate) fn deviations() -> BTreeMap<Line, String> {
    let path = crate::workspace_dir().join("crates/xtask/conformance/deviations.txt");
    let text = fs::read_to_string(path).unwrap_or_default();
    let split = |line: &str| line.split_once(": ").map(|(at, why)| (at.to_owned(), why.to_owned()));
    text.lines().filter_map(split).collect()
}

/// Writes the list.
pub(crate) fn write(lines: &BTreeSet<Line>) -> Result<(), String> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path(), text).map_err(|error| format!("{}: {error}", path().display()))
}

/// What a run means for the list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Review {
    /// Listed, but passed.
    pub(crate) passing: BTreeSet<Line>,
    /// Not listed, but failed.
    pub(crate) failing: BTreeSet<Line>,
    /// Listed, but there is no such case; known only after a run of all cases.
    pub(crate) gone: BTreeSet<Line>,
}

impl Review {
    /// Compares the list with a run. `is_whole` when the run had every case.
    pub(crate) fn of(
        listed: &BTreeSet<Line>,
        passed: &BTreeSet<Line>,
        failed: &BTreeSet<Line>,
        is_whole: bool,
    ) -> Self {
        let is_known = |line: &&Line| passed.contains(*line) || failed.contains(*line);
        let gone = listed.iter().filter(|line| is_whole && !is_known(line));
        Self { passing: listed & passed, failing: failed - listed, gone: gone.cloned().collect() }
    }

    /// Whether the list is right.
    pub(crate) fn is_clean(&self) -> bool {
        self == &Self::default()
    }

    /// The list as it should be; an error when it would grow. An empty list is a first list.
    pub(crate) fn blessed(&self, listed: &BTreeSet<Line>) -> Result<BTreeSet<Line>, String> {
        if !listed.is_empty() && !self.failing.is_empty() {
            let count = self.failing.len();
            return Err(format!("{count} cases fail that are not on the list; it may only shrink"));
        }
        Ok(&(&(listed - &self.passing) - &self.gone) | &self.failing)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Line, Review};

    fn lines(names: &[&str]) -> BTreeSet<Line> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_listed_case_that_passes_leaves_the_list() {
        let listed = lines(&["a batch", "b batch"]);
        let review = Review::of(&listed, &lines(&["a batch"]), &lines(&["b batch"]), true);
        assert!(!review.is_clean());
        assert_eq!(review.passing, lines(&["a batch"]));
        assert_eq!(review.blessed(&listed), Ok(lines(&["b batch"])));
    }

    #[test]
    fn an_unlisted_failure_is_not_blessed() {
        let listed = lines(&["a batch"]);
        let review = Review::of(&listed, &lines(&[]), &lines(&["a batch", "b batch"]), true);
        assert!(!review.is_clean());
        assert!(review.blessed(&listed).is_err());
    }

    #[test]
    fn the_first_list_holds_every_failure() {
        let review = Review::of(&lines(&[]), &lines(&["a batch"]), &lines(&["b batch"]), true);
        assert_eq!(review.blessed(&lines(&[])), Ok(lines(&["b batch"])));
    }

    #[test]
    fn a_case_that_is_gone_is_noticed_by_a_whole_run_only() {
        let listed = lines(&["a batch"]);
        let none = BTreeSet::new();
        assert!(Review::of(&listed, &none, &none, false).is_clean());
        assert_eq!(Review::of(&listed, &none, &none, true).gone, listed);
    }

    #[test]
    fn a_list_that_is_right_is_clean() {
        let listed = lines(&["a batch"]);
        assert!(Review::of(&listed, &lines(&["b batch"]), &listed, true).is_clean());
    }
}
