//! The checked-in lists of cases with another result than the data expects, each with its reason.
//!
//! Three files of one format: a heading `[kind] reason`, below it `id: mode mode`. `deviations.txt`
//! and `pending.txt` hold the cases that fail under the setting, on purpose or because something is
//! missing; `default.txt` holds the cases whose verdict differs without the setting, and its
//! reasons are names of `lockstep_function::compatibility`. The lists may only shrink: a test
//! counts them by kind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::PathBuf,
};

/// An id and a mode, as one line.
pub(crate) type ListLine = String;

/// The file of cases that fail on purpose under the setting.
pub(crate) const DEVIATIONS: &str = "deviations.txt";
/// The file of cases that fail because something is missing.
pub(crate) const PENDING: &str = "pending.txt";
/// The file of cases whose verdict differs without the setting.
pub(crate) const DEFAULT: &str = "default.txt";

/// A reason and the cases that it holds for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) kind: String,
    pub(crate) reason: String,
    /// In which modes, by the case's id.
    pub(crate) cases: BTreeMap<String, Vec<String>>,
}

/// A list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// The lines before the first section.
    comments: Vec<String>,
    pub(crate) sections: Vec<Section>,
}

/// Returns the line of a case in a mode.
pub(crate) fn line(id: &str, mode: &str) -> ListLine {
    format!("{id} {mode}")
}

impl Section {
    /// Returns the lines of its cases.
    pub(crate) fn lines(&self) -> impl Iterator<Item = ListLine> {
        self.cases.iter().flat_map(|(id, modes)| modes.iter().map(|mode| line(id, mode)))
    }
}

impl List {
    /// Reads a file of `crates/xtask/conformance`.
    pub(crate) fn read(file: &str) -> Result<Self, String> {
        let path = path(file);
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut list = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if line.starts_with('#') {
                list.comments.push(line.to_owned());
            } else if let Some((kind, reason)) =
                line.strip_prefix('[').and_then(|rest| rest.split_once("] "))
            {
                let (kind, reason) = (kind.to_owned(), reason.to_owned());
                list.sections.push(Section { kind, reason, cases: BTreeMap::new() });
            } else {
                let section = list.sections.last_mut();
                let (section, (id, modes)) = section
                    .zip(line.rsplit_once(": "))
                    .ok_or_else(|| format!("`{line}` is no heading and no case"))?;
                let modes = modes.split(' ').map(str::to_owned).collect();
                if section.cases.insert(id.to_owned(), modes).is_some() {
                    return Err(format!("`{id}` stands twice in one section"));
                }
            }
        }
        Ok(list)
    }

    /// Returns the reason of each line.
    pub(crate) fn reasons(&self) -> BTreeMap<ListLine, String> {
        let lines = |section: &Section| -> Vec<(ListLine, String)> {
            section.lines().map(|line| (line, section.reason.clone())).collect()
        };
        self.sections.iter().flat_map(lines).collect()
    }

    /// Returns how many lines there are of each kind.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for section in &self.sections {
            *counts.entry(section.kind.clone()).or_default() += section.lines().count();
        }
        counts
    }

    /// Removes lines from the list, and sections that have no cases left.
    pub(crate) fn remove(&mut self, lines: &BTreeSet<ListLine>) {
        for section in &mut self.sections {
            for (id, modes) in &mut section.cases {
                modes.retain(|mode| !lines.contains(&line(id, mode)));
            }
            section.cases.retain(|_, modes| !modes.is_empty());
        }
        self.sections.retain(|section| !section.cases.is_empty());
    }

    /// Writes the list back.
    pub(crate) fn write(&self, file: &str) -> Result<(), String> {
        let path = path(file);
        fs::write(&path, self.text()).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn text(&self) -> String {
        let mut text: String = self.comments.iter().map(|line| format!("{line}\n")).collect();
        for section in &self.sections {
            let (kind, reason) = (&section.kind, &section.reason);
            writeln!(text, "\n[{kind}] {reason}").expect("writing to memory does not fail");
            for (id, modes) in &section.cases {
                let modes = modes.join(" ");
                writeln!(text, "{id}: {modes}").expect("writing to memory does not fail");
            }
        }
        text
    }
}

fn path(file: &str) -> PathBuf {
    crate::workspace_dir().join("crates/xtask/conformance").join(file)
}

/// The differences between a run and the lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Review {
    /// Listed, but as expected.
    pub(crate) passing: BTreeSet<ListLine>,
    /// Not listed, but not as expected.
    pub(crate) failing: BTreeSet<ListLine>,
    /// Listed, but there is no such case; known only after a run of all cases.
    pub(crate) gone: BTreeSet<ListLine>,
}

impl Review {
    /// Compares the listed lines with a run. `is_whole` when the run had every case.
    pub(crate) fn of(
        listed: &BTreeSet<ListLine>,
        passed: &BTreeSet<ListLine>,
        failed: &BTreeSet<ListLine>,
        is_whole: bool,
    ) -> Self {
        assert!(passed.is_disjoint(failed), "a case has one verdict in a mode");
        let is_known = |line: &&ListLine| passed.contains(*line) || failed.contains(*line);
        let gone = listed.iter().filter(|line| is_whole && !is_known(line));
        Self { passing: listed & passed, failing: failed - listed, gone: gone.cloned().collect() }
    }

    /// Returns whether the lists are right.
    pub(crate) fn is_clean(&self) -> bool {
        self == &Self::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use lockstep_function::compatibility::DIFFERENCES;

    use super::{DEFAULT, DEVIATIONS, List, ListLine, PENDING, Review};

    /// How many lines a list has of a kind. A number may fall, together with the list; whoever
    /// raises one explains in the commit which case could not be made to pass.
    const COUNTS: &[(&str, &[(&str, usize)])] = &[
        (DEVIATIONS, &[("case", 226), ("differs", 29), ("more", 126)]),
        (PENDING, &[("missing", 8)]),
        (DEFAULT, &[("row", 844)]),
    ];

    fn lines(names: &[&str]) -> BTreeSet<ListLine> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_lists_only_shrink() {
        for (file, expected) in COUNTS {
            let expected: BTreeMap<String, usize> =
                expected.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
            assert_eq!(List::read(file).unwrap().counts(), expected, "{file}");
        }
    }

    #[test]
    fn a_case_is_listed_once() {
        for files in [&[DEVIATIONS, PENDING][..], &[DEFAULT]] {
            let lists = files.iter().map(|file| List::read(file).unwrap());
            let sections: Vec<_> = lists.flat_map(|list| list.sections).collect();
            let all: Vec<ListLine> = sections.iter().flat_map(super::Section::lines).collect();
            let distinct: BTreeSet<&ListLine> = all.iter().collect();
            assert_eq!(all.len(), distinct.len(), "{files:?}");
        }
    }

    #[test]
    fn what_the_setting_changes_has_a_row_in_the_table() {
        for section in List::read(DEFAULT).unwrap().sections {
            let row = DIFFERENCES.iter().find(|difference| difference.name == section.reason);
            assert!(row.is_some_and(|row| row.is_restored), "`{}`", section.reason);
        }
    }

    #[test]
    fn a_list_is_written_as_it_was_read() {
        for file in [DEVIATIONS, PENDING, DEFAULT] {
            let text = std::fs::read_to_string(super::path(file)).unwrap();
            assert_eq!(List::parse(&text).unwrap().text(), text, "{file}");
        }
    }

    #[test]
    fn a_line_without_a_heading_is_an_error() {
        assert!(List::parse("a: batch").is_err());
        assert!(List::parse("[case] why\na batch").is_err());
        assert!(List::parse("[case] why\na: batch\na: request").is_err());
    }

    #[test]
    fn lines_are_taken_off() {
        let text = "# Why.\n\n[case] x\na: batch request\n\n[more] y\nb: batch\n";
        let mut list = List::parse(text).unwrap();
        list.remove(&lines(&["a request", "b batch"]));
        assert_eq!(list.text(), "# Why.\n\n[case] x\na: batch\n");
    }

    #[test]
    fn a_listed_case_that_passes_is_noticed() {
        let listed = lines(&["a batch", "b batch"]);
        let review = Review::of(&listed, &lines(&["a batch"]), &lines(&["b batch"]), true);
        assert!(!review.is_clean());
        assert_eq!(review.passing, lines(&["a batch"]));
    }

    #[test]
    fn an_unlisted_failure_is_noticed() {
        let listed = lines(&["a batch"]);
        let review = Review::of(&listed, &lines(&[]), &lines(&["a batch", "b batch"]), true);
        assert_eq!(review.failing, lines(&["b batch"]));
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
