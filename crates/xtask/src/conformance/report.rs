//! Counts of a run, as a table and as JSON.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value as Json, json};

/// The group of a count, in the order of the JSON's nesting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CaseGroup {
    pub(crate) area: String,
    pub(crate) kind: String,
    pub(crate) mode: String,
    /// `success` or `error`.
    pub(crate) expectation: &'static str,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PassCount {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// The counts of a run.
#[derive(Debug, Default)]
pub(crate) struct ConformanceReport {
    counts: BTreeMap<CaseGroup, PassCount>,
}

impl ConformanceReport {
    pub(crate) fn add(&mut self, group: CaseGroup, is_passed: bool) {
        let count = self.counts.entry(group).or_default();
        if is_passed {
            count.passed += 1;
        } else {
            count.failed += 1;
        }
    }

    /// Formats one line for each area and one column for each mode: passed of all.
    pub(crate) fn table(&self) -> String {
        let mut areas: BTreeMap<&str, BTreeMap<&str, PassCount>> = BTreeMap::new();
        let mut totals: BTreeMap<&str, PassCount> = BTreeMap::new();
        for (group, count) in &self.counts {
            let of_area = areas.entry(&group.area).or_default().entry(&group.mode).or_default();
            for sum in [of_area, totals.entry(&group.mode).or_default()] {
                sum.passed += count.passed;
                sum.failed += count.failed;
            }
        }
        let modes: Vec<&str> = totals.keys().copied().collect();
        areas.insert("~ all", totals);
        let mut text = format!("{:<26}", "area");
        for mode in &modes {
            let _ = write!(text, "{mode:>16}");
        }
        for (area, counts) in &areas {
            let _ = write!(text, "\n{area:<26}");
            for mode in &modes {
                let cell = counts.get(mode).map_or_else(String::new, |count| {
                    format!("{}/{}", count.passed, count.passed + count.failed)
                });
                let _ = write!(text, "{cell:>16}");
            }
        }
        text
    }

    /// Formats `{area: {kind: {mode: {expectation: {passed, failed}}}}}` on one line.
    pub(crate) fn json(&self) -> String {
        let mut root = Map::new();
        for (group, count) in &self.counts {
            let path = [group.area.as_str(), &group.kind, &group.mode, group.expectation];
            let mut place = &mut root;
            for step in path {
                let next = place.entry(step).or_insert_with(|| Json::Object(Map::new()));
                place = next.as_object_mut().expect("only objects are put in");
            }
            place.insert("passed".to_owned(), json!(count.passed));
            place.insert("failed".to_owned(), json!(count.failed));
        }
        Json::Object(root).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{CaseGroup, ConformanceReport};

    #[test]
    fn counts_are_kept_apart() {
        let group = |mode: &str, expectation| CaseGroup {
            area: "window".to_owned(),
            kind: "query".to_owned(),
            mode: mode.to_owned(),
            expectation,
        };
        let mut report = ConformanceReport::default();
        report.add(group("batch", "success"), true);
        report.add(group("batch", "success"), false);
        report.add(group("batch", "error"), true);
        report.add(group("request", "success"), false);
        assert_eq!(
            report.json(),
            "{\"window\":{\"query\":{\"batch\":{\"error\":{\"passed\":1,\"failed\":0},\
             \"success\":{\"passed\":1,\"failed\":1}},\
             \"request\":{\"success\":{\"passed\":0,\"failed\":1}}}}}"
        );
        let table = report.table();
        let line = table.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(line, ["window", "2/3", "0/1"]);
    }
}
