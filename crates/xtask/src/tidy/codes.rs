//! Codes of errors and warnings: each is declared once, with its meaning.
//!
//! The codes of errors are constants in `crates/diagnostic`, those of warnings about queries belong
//! to the lints in `crates/engine/src/lint`. Other sources use the constants, so that `errors.md`
//! lists every code that a user may see.

use std::collections::BTreeMap;

use super::{Violations, each_source};
use crate::source::{line_at, strings_outside_tests};

/// Where the codes of errors are declared.
const ERRORS: &str = "diagnostic/src/lib.rs";

/// Where the codes of warnings about queries are declared.
const LINTS: &str = "engine/src/lint/";

/// Classes of SQLSTATE that a code of ours may have: its first two characters.
const CLASSES: &[&str] = &[
    "00", "01", "08", "0A", "0L", "21", "22", "23", "25", "26", "28", "2B", "34", "3D", "3F", "42",
    "53", "54", "55", "57", "58", "XX",
];

/// Literals that look like a code and are none, and the files that have them.
const NOT_CODES: &[(&str, &str)] =
    &[("function/src/compatibility.rs", "28928"), ("engine/src/variables.rs", "256MB")];

/// Crates whose sources only developers run; they name the codes that they expect.
const DEVELOPERS_CRATES: &[&str] = &["bench", "crash", "sim", "testkit", "xtask"];

/// Names the codes that are declared twice, and those that are written out elsewhere.
pub(super) fn codes_are_declared_once() -> Violations {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut violations = each_source(|path, text| {
        let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
        if is_test || DEVELOPERS_CRATES.iter().any(|name| path.starts_with(&format!("{name}/"))) {
            return Vec::new();
        }
        let is_declaration = path == ERRORS || path.starts_with(LINTS);
        let mut violations = Vec::new();
        for (offset, literal) in strings_outside_tests(text) {
            if !is_code(&literal) || NOT_CODES.contains(&(path, &literal)) {
                continue;
            }
            let place = format!("{path}:{}", line_at(text, offset));
            match is_declaration {
                true => places.entry(literal).or_default().push(place),
                false => violations.push(format!(
                    "{place} writes the code {literal} out: use its constant in {ERRORS}"
                )),
            }
        }
        violations
    });
    assert!(places.len() > 50, "the declarations were found");
    let repeated = places.into_iter().filter(|(_, places)| places.len() > 1);
    violations.extend(
        repeated.map(|(code, places)| format!("code {code} is declared in {}", places.join(", "))),
    );
    violations
}

fn is_code(literal: &str) -> bool {
    literal.len() == 5
        && literal.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        && literal.bytes().any(|byte| byte.is_ascii_digit())
        && CLASSES.contains(&&literal[..2])
}

#[cfg(test)]
mod tests {
    use super::is_code;

    #[test]
    fn codes_have_a_class_and_a_digit() {
        assert!(["42P01", "01L11", "XX000", "0A000"].iter().all(|code| is_code(code)));
        assert!(!["FLOAT", "99999", "42p01", "4200", "420011"].iter().any(|text| is_code(text)));
    }
}
