//! How long files and functions are, by crate, outside tests: numbers to report, not rules.

use std::{collections::BTreeMap, fmt};

use crate::source::{SourceFile, item_end, line_at, tokens};

/// The lengths of the files or the functions of one crate, in lines.
#[derive(Debug, Default)]
struct Lengths(Vec<usize>);

impl Lengths {
    /// Returns the length below or at which `percent` of them lie; 0 when there are none.
    fn percentile(&self, percent: usize) -> usize {
        assert!(percent <= 100, "{percent} percent");
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, p90, largest] = [50, 90, 100].map(|percent| self.percentile(percent));
        write!(out, "{:>5} {median:>6} {p90:>5} {largest:>7}", self.0.len())
    }
}

/// Returns a table of files and functions by crate: count, median, p90 and largest, in lines.
pub(crate) fn table(files: &[SourceFile]) -> String {
    let mut crates: BTreeMap<&str, [Lengths; 2]> = BTreeMap::new();
    let mut all = [Lengths::default(), Lengths::default()];
    for file in files.iter().filter(|file| file.has_code()) {
        let of_crate = crates.entry(file.crate_name()).or_default();
        for [of_files, of_functions] in [of_crate, &mut all] {
            of_files.0.push(lines_of(file));
            of_functions.0.extend(function_lengths(&file.code));
        }
    }
    let header = format!(
        "{:<12} | files median   p90 largest | functions median p90 largest (lines, no tests)",
        "crate"
    );
    let rows = crates.iter().map(|(name, lengths)| (*name, lengths)).chain([("all", &all)]);
    let lines = rows.map(|(name, [of_files, of_functions])| {
        format!("{name:<12} | {of_files} | {of_functions}")
    });
    [header].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

/// Counts the lines of a file, comments among them, up to the last line of code before its tests.
fn lines_of(file: &SourceFile) -> usize {
    let last = file.code.trim_end().len();
    line_at(&file.code, last)
}

/// Returns the lines of each function, from `fn` to the brace that closes it.
fn function_lengths(code: &str) -> Vec<usize> {
    let tokens = tokens(code);
    let is_name = |text: &str| text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let length = |index: usize| {
        let end = index + item_end(&tokens[index..]) - 1;
        let is_function = tokens[index].text == "fn"
            && tokens.get(index + 1).is_some_and(|name| is_name(name.text))
            && tokens[end].text == "}";
        let lines = |at: usize| line_at(code, tokens[at].offset);
        is_function.then(|| lines(end) - lines(index) + 1)
    };
    (0..tokens.len()).filter(|index| tokens[*index].text == "fn").filter_map(length).collect()
}

#[cfg(test)]
mod tests {
    use super::{Lengths, function_lengths};

    #[test]
    fn functions_are_measured_with_their_signature() {
        let code = "fn a() {}\nfn b(\n  c: [u8; 2],\n) {\n  { d }\n}\ntrait E { fn f(); }";
        assert_eq!(function_lengths(code), [1, 5]);
    }

    #[test]
    fn a_percentile_is_a_length_that_occurs() {
        let lengths = Lengths((1..=10).collect());
        assert_eq!([50, 90, 100].map(|percent| lengths.percentile(percent)), [5, 9, 10]);
        assert_eq!(Lengths::default().percentile(50), 0);
    }
}
