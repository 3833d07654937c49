//! Private words: what `crates/xtask/banned_words.txt` lists, counted by crate and document.
//!
//! A word counts in prose, and as a part of a name in `snake_case` or `CamelCase`. A capitalised
//! word of the list counts in names of code only: `Kept` is a type, "kept" is English.

use std::{collections::BTreeMap, fs, path::Path};

use super::{Violations, ratchet::Measure};
use crate::{
    source::{code_of, files_below, line_at},
    workspace_dir,
};

/// Folders whose texts are read, and the scope of each. `crates` has a scope for each crate.
const FOLDERS: &[(&str, &str)] =
    &[("crates", ""), ("docs", "docs"), ("python", "python"), ("tests", "tests")];

/// Texts at the root, which count as documents.
const ROOT_FILES: &[&str] = &["README.md", "CHANGELOG.md", "Makefile", "Cargo.toml", "clippy.toml"];

const EXTENSIONS: &[&str] = &["rs", "md", "toml", "py", "pyi", "sql", "slt"];

/// A word or a phrase that is not to be written.
#[derive(Debug)]
struct BannedWord<'a> {
    /// Its words, in lower case unless it is only about names.
    words: Vec<&'a str>,
    /// Texts around it in which it is right, in lower case.
    contexts: Vec<String>,
}

/// A part of a text that is a word: in `CamelCase`, each of its words.
#[derive(Debug, Clone, Copy)]
struct TextWord<'a> {
    text: &'a str,
    offset: usize,
}

/// Counts the listed words by scope. Every scope is there, also with none.
pub(crate) fn measures() -> Vec<Measure> {
    let root = workspace_dir();
    let list = fs::read_to_string(root.join("crates/xtask/banned_words.txt"))
        .expect("the list of banned words is readable");
    let entries = parsed(&list);
    let mut places: BTreeMap<String, Violations> = BTreeMap::new();
    let mut read = |file: &Path, scope: &str| {
        let text = fs::read_to_string(file).expect("a text of the repository is readable UTF-8");
        let path = file.strip_prefix(&root).expect("it was found there").display().to_string();
        places.entry(scope.to_owned()).or_default().extend(hits(&entries, &path, &text));
    };
    for (folder, scope) in FOLDERS {
        for file in files_below(&root.join(folder), EXTENSIONS) {
            let below = file.strip_prefix(root.join(folder)).expect("it was found there");
            let first = below
                .iter()
                .next()
                .map_or_else(String::new, |first| first.to_string_lossy().into());
            read(&file, if scope.is_empty() { &first } else { scope });
        }
    }
    ROOT_FILES.iter().for_each(|file| read(&root.join(file), "docs"));
    Measure::of_places("banned-words", places)
}

/// Reads the list: a word or a phrase a line, after a colon the contexts in which it is right,
/// between bars.
fn parsed(list: &str) -> Vec<BannedWord<'_>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (words, contexts) = line.split_once(':').unwrap_or((line, ""));
            let contexts = contexts.split(" | ").map(|context| context.trim().to_lowercase());
            BannedWord {
                words: words.split_whitespace().collect(),
                contexts: contexts.filter(|context| !context.is_empty()).collect(),
            }
        })
        .collect()
}

/// Names every place of a text that has a listed word outside its contexts.
fn hits(entries: &[BannedWord<'_>], path: &str, text: &str) -> Violations {
    let lower = text.to_ascii_lowercase();
    let code = if Path::new(path).extension().is_some_and(|e| e == "rs") {
        code_of(text)
    } else {
        String::new()
    };
    let (of_text, of_code) = (words_of(text), words_of(&code));
    let mut places: Vec<(usize, String)> = Vec::new();
    for entry in entries {
        let is_of_names = entry.words[0].starts_with(|first: char| first.is_ascii_uppercase());
        let words = if is_of_names { &of_code } else { &of_text };
        for index in 0..words.len() {
            let is_hit = match is_of_names {
                true => words[index].text == entry.words[0],
                false => is_phrase(&entry.words, &words[index..], &lower),
            };
            let offset = words[index].offset;
            if is_hit && !entry.contexts.iter().any(|context| is_in(context, entry, offset, &lower))
            {
                let place = format!("{path}:{}: {}", line_at(text, offset), entry.words.join(" "));
                places.push((offset, place));
            }
        }
    }
    places.sort();
    places.into_iter().map(|(_, place)| place).collect()
}

/// Returns whether words begin with a phrase; between its words may be what breaks a line in a
/// comment.
fn is_phrase(phrase: &[&str], words: &[TextWord<'_>], lower: &str) -> bool {
    phrase.len() <= words.len()
        && phrase.iter().zip(words).all(|(listed, word)| word.text.eq_ignore_ascii_case(listed))
        && words[..phrase.len()].windows(2).all(|pair| {
            let gap = &lower[pair[0].offset + pair[0].text.len()..pair[1].offset];
            gap.chars().all(|between| between.is_whitespace() || "/!#-".contains(between))
        })
}

/// Returns whether the word at an offset stands inside the context.
fn is_in(context: &str, entry: &BannedWord<'_>, offset: usize, lower: &str) -> bool {
    let word = entry.words[0].to_ascii_lowercase();
    context.match_indices(&word).any(|(before, _)| {
        let begin = offset.checked_sub(before);
        begin.and_then(|begin| lower.get(begin..)).is_some_and(|rest| rest.starts_with(context))
    })
}

/// Splits a text into words; a name into its parts.
fn words_of(text: &str) -> Vec<TextWord<'_>> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut begin = 0;
    for at in 0..=bytes.len() {
        let here = bytes.get(at).copied().unwrap_or(b' ');
        let before = if at > 0 { bytes[at - 1] } else { b' ' };
        let after = bytes.get(at + 1).copied().unwrap_or(b' ');
        let is_upper_after_lower = before.is_ascii_lowercase() && here.is_ascii_uppercase();
        let is_end_of_acronym =
            before.is_ascii_uppercase() && here.is_ascii_uppercase() && after.is_ascii_lowercase();
        if !is_letter(here) || is_upper_after_lower || is_end_of_acronym || !is_letter(before) {
            if begin < at && is_letter(bytes[begin]) {
                words.push(TextWord { text: &text[begin..at], offset: begin });
            }
            begin = at;
        }
    }
    words
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::{hits, parsed, words_of};

    const LIST: &str = "# private words\ngizmo: f64::gizmo | gizmo( | `gizmo`\nmade up of\nKept\n";

    fn check(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(hits(&parsed(LIST), path, text), expected, "{text}");
    }

    #[test]
    fn names_are_split_into_words() {
        let words: Vec<&str> =
            words_of("HTTPGizmo to_the(Widget2) gefällt").iter().map(|w| w.text).collect();
        assert_eq!(words, ["HTTP", "Gizmo", "to", "the", "Widget", "gefällt"]);
    }

    #[test]
    fn a_listed_word_is_found_in_prose_and_in_names() {
        let text = "// A Gizmo.\nlet last_gizmo = GizmoMap::new(); // gizmos\n";
        check("a.rs", text, &["a.rs:1: gizmo", "a.rs:2: gizmo", "a.rs:2: gizmo"]);
    }

    #[test]
    fn a_context_makes_it_right() {
        check("a.rs", "f64::gizmo, gizmo(1), `gizmo`, f32::gizmo", &["a.rs:1: gizmo"]);
    }

    #[test]
    fn a_phrase_is_found_over_the_end_of_a_line() {
        check("a.md", "It is made up of it.", &["a.md:1: made up of"]);
        check("a.rs", "/// It is made\n/// up of it.", &["a.rs:1: made up of"]);
        check("a.md", "It is made, up of it.", &[]);
    }

    #[test]
    fn a_capitalised_word_is_only_a_name() {
        check("a.rs", "/// Kept as it is.\nenum KeptRows {} fn kept() {}", &["a.rs:2: Kept"]);
        check("a.md", "Kept as it is.", &[]);
    }
}
