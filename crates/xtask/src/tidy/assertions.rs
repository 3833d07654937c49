//! Assertions per function, by crate: code that says what holds, and stops when it does not.

use std::collections::BTreeMap;

use super::ratchet::{Direction, Measure};
use crate::source::{SourceFile, SourceToken, tokens};

const MACROS: &[&str] =
    &["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// How many files a violation names: those with the most functions and no assertion.
const FILES_NAMED: usize = 5;

/// What one crate has, outside tests.
#[derive(Debug, Default)]
struct CrateCount {
    functions: u64,
    assertions: u64,
    /// Functions of each file that asserts nothing.
    without: Vec<(u64, String)>,
}

/// Measures assertions per thousand functions in each crate that has functions.
pub(crate) fn measures(files: &[SourceFile]) -> Vec<Measure> {
    let mut crates: BTreeMap<&str, CrateCount> = BTreeMap::new();
    for file in files {
        let tokens = tokens(&file.code);
        let (functions, assertions) = (functions_in(&tokens), assertions_in(&tokens));
        let count = crates.entry(file.crate_name()).or_default();
        count.functions += functions;
        count.assertions += assertions;
        if assertions == 0 {
            count.without.push((functions, file.path.clone()));
        }
    }
    crates.retain(|_, count| count.functions > 0);
    crates.into_iter().map(|(name, count)| measure(name, count)).collect()
}

fn measure(name: &str, mut count: CrateCount) -> Measure {
    assert!(count.functions > 0, "`{name}` has functions");
    count.without.sort_by(|left, right| right.cmp(left));
    let without = count.without.iter().take(FILES_NAMED);
    Measure {
        name: "assertions-per-1000-functions",
        scope: name.to_owned(),
        value: count.assertions * 1_000 / count.functions,
        direction: Direction::Rises,
        places: without
            .map(|(functions, path)| format!("crates/{path}: {functions} functions, no assertion"))
            .collect(),
    }
}

/// Counts functions, also those that a trait only declares: they are few.
fn functions_in(tokens: &[SourceToken<'_>]) -> u64 {
    let is_function = |pair: &&[SourceToken<'_>]| {
        pair[0].text == "fn" && pair[1].text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    };
    tokens.windows(2).filter(is_function).count() as u64
}

fn assertions_in(tokens: &[SourceToken<'_>]) -> u64 {
    let is_assertion =
        |pair: &&[SourceToken<'_>]| MACROS.contains(&pair[0].text) && pair[1].text == "!";
    tokens.windows(2).filter(is_assertion).count() as u64
}

#[cfg(test)]
mod tests {
    use super::measures;
    use crate::source::SourceFile;

    #[test]
    fn assertions_are_counted_by_crate_without_tests() {
        let files = [
            SourceFile::of(
                "row/src/a.rs",
                "fn a(f: fn(u8)) { assert!(x); debug_assert_eq!(y, z); }",
            ),
            SourceFile::of(
                "row/src/b.rs",
                "fn b() { c.expect(\"d\"); unreachable!() } // assert!(e)",
            ),
            SourceFile::of(
                "row/src/c.rs",
                "fn f() {}\n#[cfg(test)] mod t { fn g() { assert!(h); } }",
            ),
            SourceFile::of("sql/src/a.rs", "fn a() {}"),
        ];
        let found: Vec<(String, u64)> =
            measures(&files).into_iter().map(|measure| (measure.scope, measure.value)).collect();
        assert_eq!(found, [("row".to_owned(), 666), ("sql".to_owned(), 0)]);
    }

    #[test]
    fn a_fall_names_files_without_assertions() {
        let files = [
            SourceFile::of("row/src/a.rs", "fn a() {}"),
            SourceFile::of("row/src/b.rs", "fn b() {} fn c() {}"),
        ];
        assert_eq!(
            measures(&files)[0].places,
            [
                "crates/row/src/b.rs: 2 functions, no assertion",
                "crates/row/src/a.rs: 1 functions, no assertion"
            ]
        );
    }
}
