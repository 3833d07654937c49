//! English of the texts that users read: patterns that a reader has to decode, counted by scope.
//!
//! The texts are string literals of the crates that users run, documents, the Python package, and
//! doc comments that become `--help` or docstrings. `crates/xtask/english_exceptions.txt` lists the
//! phrases in which a pattern is right.

use std::{collections::BTreeMap, fs, path::Path, sync::LazyLock};

use regex::Regex;

use super::{Violations, ratchet::Measure};
use crate::{
    source::{files_below, line_at, strings_outside_tests},
    workspace_dir,
};

/// Crates whose string literals only developers read.
const DEVELOPERS_CRATES: &[&str] = &["crash", "sim", "testkit", "xtask"];

/// Files whose doc comments become help texts, as prefixes below `crates/`. Docstrings of the Python
/// package are read in its reference page.
const DOCUMENTED_SOURCES: &[&str] = &["cli/src/arguments.rs", "cli/src/bin/"];

/// Documents outside `docs`.
const ROOT_DOCUMENTS: &[&str] = &["README.md", "CHANGELOG.md", "HACKING.md"];

/// A pattern of English that is to be rephrased.
struct EnglishRule {
    name: &'static str,
    /// The words that are found.
    pattern: &'static str,
    /// What makes them right when it ends just before them.
    unless_before: &'static str,
    /// What makes them right when it follows them.
    unless_after: &'static str,
}

const RULES: &[EnglishRule] = &[
    EnglishRule {
        name: "where-for-if",
        pattern: r"\b[Ww]here (?:the|an?|there|its?|they|no|none|one|nothing|every|each|all|both|some|any|only|that|this|so|memory|rows|nobody|several|two)\b",
        unless_before: "",
        unless_after: r" \w+ (?:is|are|ends?|begins?|starts?|stands?|lies?)\b",
    },
    EnglishRule {
        name: "so-many",
        pattern: r"\b[Ss]o (?:many|much|few|long|large|small|often|old|late|early|little|fast)\b",
        unless_before: "",
        unless_after: r" (?:as|that)\b",
    },
    EnglishRule {
        name: "of-which",
        pattern: r"\bof (?:which|whom|what|whose|how (?:many|much))\b",
        unless_before: r"\b(?:one|none|each|most|some|half|all|any|both|two|many|part) ",
        unless_after: "",
    },
    EnglishRule {
        name: "whoever",
        pattern: r"\b(?i:nobody|everybody|somebody|whoever)\b|(?:^|[/!.:;,(|] |\b(?:by|for|of|to|than|that|and|or|from|with|on) )[Ww]ho\b",
        unless_before: "",
        unless_after: "",
    },
    EnglishRule {
        name: "opens-with-what",
        pattern: r#"^\s*(?:///|#+|""")\s?(?:What|Who|Whom|Whose|Which|Whatever|(?:By |After |From |For |Until |Up to |Since )?(?:[Hh]ow (?:many|much|far|long|often|large)|which|whom|when))\b"#,
        unless_before: "",
        unless_after: "",
    },
    EnglishRule {
        name: "is-there",
        pattern: r"\b(?:is|are|was|were) there\b|\b(?:that|what|which) there (?:is|are|was|were)(?: not\b|[.,;:)])|\bthere (?:is|are|was|were) none\b",
        unless_before: r"\b(?:if|when) ",
        unless_after: "",
    },
    EnglishRule {
        name: "as-far-as",
        pattern: r"\bas far as\b|\bhow many times as\b|\bas (?:[a-km-rt-vx-z]\w*|l[a-np-z]\w*|s[a-np-z]\w*|w[a-df-z]\w*) as (?:they|it|those|that|there|one|usual|makes|to)\b",
        unless_before: "",
        unless_after: "",
    },
    EnglishRule {
        name: "speaking-machine",
        pattern: r"[a-z`)\]>*] (?:says|tells|asks|wants|speaks|gives|knows)\b",
        unless_before: "",
        unless_after: r#"(?: (?:no|nothing|neither)\b| [^a-z`"\[*]|[^ ]|$)"#,
    },
    EnglishRule {
        name: "is-to-be",
        pattern: r"\b(?:is|are|was|were) (?:not )?to (?:be|have|get|go|do|hold|show|read|write|come|become|end|stay)\b",
        unless_before: "",
        unless_after: "",
    },
    EnglishRule {
        name: "missing-noun",
        pattern: r"(?:^\s*(?:///?|//!|\||-)\s?|[.;:,] )(?:[Oo]ne (?:that|which|whose|with|without|for|by)|(?:[Tt]hose|[Tt]hat) (?:that|of|which|whose|with|without|by|for|from))\b|\b[Tt]he (?:kept|passed|taken|given|left|held|seen|known|carried|chosen|removed|dropped|written|noted|shown|needed|wanted|picked|fresh|late)(?: (?:is|are|was|were|of|that|which|in|to|and|or|from|before|after)\b|[.,;:)])",
        unless_before: "",
        unless_after: "",
    },
];

/// A rule whose patterns are compiled.
struct CompiledRule {
    name: &'static str,
    pattern: Regex,
    unless_before: Option<Regex>,
    unless_after: Option<Regex>,
}

static COMPILED_RULES: LazyLock<Vec<CompiledRule>> = LazyLock::new(|| {
    let compiled = |pattern: &str| Regex::new(pattern).expect("a rule is a regular expression");
    let optional = |context: &str, anchored: String| {
        Some(anchored).filter(|_| !context.is_empty()).map(|pattern| compiled(&pattern))
    };
    let rules = RULES.iter().map(|rule| CompiledRule {
        name: rule.name,
        pattern: compiled(rule.pattern),
        unless_before: optional(rule.unless_before, format!("(?:{})$", rule.unless_before)),
        unless_after: optional(rule.unless_after, format!("^(?:{})", rule.unless_after)),
    });
    rules.collect()
});

/// A text that users read, and the line on which it starts.
type UserText = (usize, String);

/// Counts the hits by scope: each crate, the documents and the Python package.
pub(crate) fn measures() -> Vec<Measure> {
    let root = workspace_dir();
    let listed = fs::read_to_string(root.join("crates/xtask/english_exceptions.txt"))
        .expect("the list of exceptions is readable");
    let exceptions: Vec<&str> =
        listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut places: BTreeMap<String, Violations> = BTreeMap::new();
    let mut read = |file: &Path, scope: &str, texts: &dyn Fn(&str, &str) -> Vec<UserText>| {
        let text = fs::read_to_string(file).expect("a text of the repository is readable UTF-8");
        let path = file.strip_prefix(&root).expect("it was found there").display().to_string();
        let found = hits(&exceptions, &path, &texts(&path, &text));
        places.entry(scope.to_owned()).or_default().extend(found);
    };
    for file in files_below(&root.join("crates"), &["rs"]) {
        let below = file.strip_prefix(root.join("crates")).expect("it was found there");
        let mut parts = below.iter().map(|part| part.to_string_lossy());
        let (name, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let is_test = below.ends_with("tests.rs")
            || below.ends_with("testing.rs")
            || parts.any(|part| part == "tests");
        if folder == "src" && !is_test && !DEVELOPERS_CRATES.contains(&name.as_ref()) {
            read(&file, &name, &source_texts);
        }
    }
    let documents = files_below(&root.join("docs"), &["md"]);
    assert!(!documents.is_empty(), "the manual was found");
    for file in documents.iter().filter(|file| !file.starts_with(root.join("docs/adr"))) {
        read(file, "docs", &lines_of);
    }
    ROOT_DOCUMENTS.iter().for_each(|file| read(&root.join(file), "docs", &lines_of));
    for file in files_below(&root.join("python/lockstep"), &["py", "pyi"]) {
        read(&file, "python-package", &lines_of);
    }
    Measure::of_places("english", places)
}

/// Returns the string literals of a source, and the doc comments that users read.
fn source_texts(path: &str, text: &str) -> Vec<UserText> {
    let literals = strings_outside_tests(text);
    let sentences = literals.into_iter().filter(|(_, literal)| literal.contains(' '));
    let mut texts: Vec<UserText> =
        sentences.map(|(offset, literal)| (line_at(text, offset), literal)).collect();
    if DOCUMENTED_SOURCES.iter().any(|source| path.starts_with(&format!("crates/{source}"))) {
        texts.extend(doc_comments(text));
    }
    texts
}

/// Returns the doc comments of items, the lines of each joined.
fn doc_comments(text: &str) -> Vec<UserText> {
    let mut comments: Vec<UserText> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        match line.trim_start().strip_prefix("///") {
            Some(rest) if is_open => {
                comments.last_mut().expect("a comment is open").1.push_str(rest);
            }
            Some(rest) => comments.push((index + 1, format!("///{rest}"))),
            None => {}
        }
        is_open = line.trim_start().starts_with("///");
    }
    comments
}

fn lines_of(_path: &str, text: &str) -> Vec<UserText> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect()
}

/// Names every place of the texts where a rule's pattern is found outside the exceptions.
fn hits(exceptions: &[&str], path: &str, texts: &[UserText]) -> Violations {
    let mut places = Vec::new();
    for (line, text) in texts {
        for rule in COMPILED_RULES.iter() {
            for found in rule.pattern.find_iter(text) {
                let is_right_before = rule
                    .unless_before
                    .as_ref()
                    .is_some_and(|context| context.is_match(&text[..found.start()]));
                let is_right_after = rule
                    .unless_after
                    .as_ref()
                    .is_some_and(|context| context.is_match(&text[found.end()..]));
                if !is_right_before && !is_right_after && !is_excepted(exceptions, text, &found) {
                    places.push(format!("{path}:{line}: {}: {}", rule.name, found.as_str().trim()));
                }
            }
        }
    }
    places
}

/// Returns whether a listed phrase of the text overlaps the words that were found.
fn is_excepted(exceptions: &[&str], text: &str, found: &regex::Match<'_>) -> bool {
    exceptions.iter().any(|phrase| {
        text.match_indices(phrase)
            .any(|(at, _)| at < found.end() && found.start() < at + phrase.len())
    })
}

#[cfg(test)]
mod tests {
    use super::{hits, lines_of, source_texts};

    fn check(text: &str, expected: &[&str]) {
        let found = hits(&["the server says hello"], "a.md", &lines_of("a.md", text));
        let rules: Vec<&str> = found.iter().filter_map(|place| place.split(": ").nth(1)).collect();
        assert_eq!(rules, expected, "{text}");
    }

    #[test]
    fn each_rule_finds_its_pattern_and_spares_its_context() {
        check("Where the table is empty: the row", &[]);
        check("It fails where the table has rows.", &["where-for-if"]);
        check("after so many rows", &["so-many"]);
        check("so many that it fails", &[]);
        check("rows, of which two remain", &["of-which"]);
        check("rows, most of which remain", &[]);
        check("Whoever writes", &["whoever"]);
        check("the client who writes", &[]);
        check("/// How many rows are read", &["opens-with-what"]);
        check("How many rows are read?", &[]);
        check("or there is none", &["is-there"]);
        check("if there is none", &[]);
        check("as fast as it is", &["as-far-as"]);
        check("the manifest says which", &["speaking-machine"]);
        check("where the server says hello", &[]);
        check("the rows that are to be read", &["is-to-be"]);
        check("- one that fails", &["missing-noun"]);
    }

    #[test]
    fn literals_and_help_texts_are_read_and_comments_are_not() {
        let text = "/// Whoever runs\n/// it.\nfn a() { // nobody\n  b(\"so many\", \
                    r#\"so much\"#); }\n#[cfg(test)]\nmod tests { fn c() { d(\"so few\"); } }\n";
        let lines = |path: &str| -> Vec<usize> {
            source_texts(path, text).into_iter().map(|(line, _)| line).collect()
        };
        assert_eq!(lines("crates/plan/src/a.rs"), [4, 4]);
        assert_eq!(lines("crates/cli/src/arguments.rs"), [4, 4, 1]);
        assert_eq!(source_texts("crates/cli/src/arguments.rs", text)[2].1, "/// Whoever runs it.");
    }
}
