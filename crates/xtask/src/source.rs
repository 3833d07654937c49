//! The Rust sources of the workspace as text: comments, strings and tests can be left out.
//!
//! A scanner of characters, not a parser: enough to count words, names and functions.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use crate::workspace_dir;

/// One Rust file under `crates/`.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// The path below `crates/`.
    pub(crate) path: String,
    /// The text as it is.
    pub(crate) text: String,
    /// The text without comments, strings and tests, each replaced by spaces: offsets and lines
    /// are those of `text`.
    pub(crate) code: String,
}

/// A word, a number or a punctuation character of Rust code, and where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourceToken<'a> {
    /// Its characters.
    pub(crate) text: &'a str,
    /// Its first byte.
    pub(crate) offset: usize,
}

impl SourceFile {
    /// Returns a file of this text, without its tests.
    #[cfg(test)]
    pub(crate) fn of(path: &str, text: &str) -> Self {
        let code = without_tests(&code_of(text));
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    /// Returns whether any code is left that is not a test.
    pub(crate) fn has_code(&self) -> bool {
        !self.code.trim().is_empty()
    }

    /// Returns the first part of the path, which is the crate's name.
    pub(crate) fn crate_name(&self) -> &str {
        self.path.split('/').next().unwrap_or(&self.path)
    }

    /// Returns the path from the root of the workspace with the line of an offset.
    pub(crate) fn place(&self, offset: usize) -> String {
        format!("crates/{}:{}", self.path, line_at(&self.text, offset))
    }
}

/// Reads the code of every crate: what lies in `src`, without tests.
pub(crate) fn files_of_crates() -> Vec<SourceFile> {
    let crates = workspace_dir().join("crates");
    let mut files: Vec<SourceFile> = files_below(&crates, &["rs"])
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).expect("a source file is readable UTF-8");
            let path = file.strip_prefix(&crates).expect("it was found there");
            SourceFile { path: path.display().to_string(), code: code_of(&text), text }
        })
        .filter(|file| file.path.split('/').nth(1) == Some("src"))
        .collect();
    let of_tests: Vec<String> = files.iter().flat_map(modules_of_tests).collect();
    files.retain(|file| !of_tests.iter().any(|module| is_in_module(&file.path, module)));
    for file in &mut files {
        file.code = without_tests(&file.code);
    }
    files
}

/// Lists the files below a folder that have one of the extensions, in the order of their paths.
pub(crate) fn files_below(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the workspace is readable") {
        let path = entry.expect("a folder of the workspace is readable").path();
        if path.is_dir() && !path.ends_with("target") {
            files.extend(files_below(&path, extensions));
        } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Returns the number of the line, from 1, in which a byte lies.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    debug_assert!(offset <= text.len(), "offset {offset} of {}", text.len());
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Replaces comments, strings and character literals by spaces; lines stay.
pub(crate) fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        blank(&mut code, at..end);
        at = end.max(at + 1);
    }
    debug_assert_eq!(code.len(), text.len(), "offsets stay");
    String::from_utf8(code).expect("whole characters were replaced")
}

/// Returns the string literals outside tests without their quotes, each with its offset. A
/// backslash at the end of a line is left out with the space after it; other escapes stay.
pub(crate) fn strings_outside_tests(text: &str) -> Vec<(usize, String)> {
    let bytes = text.as_bytes();
    let tests = test_items(&tokens(&code_of(text)));
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        debug_assert!(at <= end && end <= bytes.len(), "{at} to {end}");
        let literal = text.get(at..end).unwrap_or("");
        let opening = literal.trim_start_matches(['r', 'b', 'c', '#']);
        if opening.starts_with('"') && !tests.iter().any(|test| test.contains(&at)) {
            let body = opening[1..].trim_end_matches('#');
            found.push((at, joined(body.strip_suffix('"').unwrap_or(body))));
        }
        at = end.max(at + 1);
    }
    found
}

/// Joins the lines of a literal that a backslash continues.
fn joined(literal: &str) -> String {
    let mut lines = literal.split("\\\n");
    let mut text = lines.next().unwrap_or("").to_owned();
    lines.for_each(|line| text.push_str(line.trim_start()));
    text
}

/// Returns the end of the comment or the literal that begins here; `at` when none does.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let is_in_word = at > 0 && is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => at + comment_length(rest),
        [b'"', ..] => at + quoted_length(rest, b'"'),
        [b'\'', b'\\', ..] => at + quoted_length(rest, b'\''),
        [b'\'', first, ..] => {
            let width = 1 + usize::try_from(first.leading_ones()).expect("at most 8").max(1);
            if rest.get(width) == Some(&b'\'') { at + width + 1 } else { at }
        }
        [b'r', ..] if !is_in_word => at + raw_length(rest, 1),
        [b'b' | b'c', b'r', ..] if !is_in_word => at + raw_length(rest, 2),
        _ => at,
    }
}

/// Returns the length of a block comment, which may hold others.
fn comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of a literal whose quote ends it unless a backslash precedes it.
fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of a raw string after a prefix such as `r`; 0 when it is none.
fn raw_length(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let opening = prefix + hashes;
    if rest.get(opening) != Some(&b'"') {
        return 0;
    }
    let closing = [b"\"".as_slice(), &rest[prefix..opening]].concat();
    let body = opening + 1;
    let ends = rest[body..].windows(closing.len()).position(|window| window == closing);
    ends.map_or(rest.len(), |end| body + end + closing.len())
}

/// Splits code into words and punctuation. Spaces, among them what [`code_of`] left, are skipped.
pub(crate) fn tokens(code: &str) -> Vec<SourceToken<'_>> {
    let bytes = code.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = match bytes[at] {
            byte if is_word(byte) => bytes[at..].iter().take_while(|b| is_word(**b)).count(),
            _ => 1,
        };
        if bytes[at].is_ascii_graphic() {
            tokens.push(SourceToken { text: &code[at..at + length], offset: at });
        }
        at += length;
    }
    tokens
}

/// Returns where the body of an item ends whose tokens begin here: after `}` or after `;`.
pub(crate) fn item_end(tokens: &[SourceToken<'_>]) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" if depth <= 1 => return index + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Replaces every item under `#[cfg(test)]` by spaces.
pub(crate) fn without_tests(code: &str) -> String {
    let mut left = code.as_bytes().to_vec();
    for range in test_items(&tokens(code)) {
        blank(&mut left, range);
    }
    String::from_utf8(left).expect("whole characters were replaced")
}

/// Lists the modules in files of their own that a file declares for tests only, as paths below
/// `crates/` without `.rs`.
fn modules_of_tests(file: &SourceFile) -> Vec<String> {
    let stem = file.path.trim_end_matches(".rs");
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let home = if ["lib", "main", "mod"].contains(&name) { folder } else { stem };
    let declared = |range: Range<usize>| {
        let tokens = tokens(&file.code[range]);
        match tokens.iter().position(|token| token.text == "mod").map(|at| &tokens[at + 1..]) {
            Some([module, semicolon]) if semicolon.text == ";" => {
                Some(format!("{home}/{}", module.text))
            }
            _ => None,
        }
    };
    test_items(&tokens(&file.code)).into_iter().filter_map(declared).collect()
}

/// Returns whether a file is a module or lies below it.
fn is_in_module(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Finds the items under `#[cfg(test)]` and `#[cfg(all(test, …))]`.
fn test_items(tokens: &[SourceToken<'_>]) -> Vec<Range<usize>> {
    let mut items: Vec<Range<usize>> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let is_inside = items.last().is_some_and(|item| item.contains(&token.offset));
        if is_inside || !begins_test(&tokens[index..]) {
            continue;
        }
        let mut item = index;
        while tokens.get(item).is_some_and(|token| token.text == "#") {
            item += 1 + attribute_length(&tokens[item + 1..]);
        }
        let last = item + item_end(&tokens[item..]) - 1;
        let end = tokens.get(last).map_or(token.offset, |last| last.offset + last.text.len());
        items.push(token.offset..end);
    }
    items
}

fn begins_test(tokens: &[SourceToken<'_>]) -> bool {
    let texts: Vec<&str> = tokens.iter().take(7).map(|token| token.text).collect();
    texts.starts_with(&["#", "[", "cfg", "(", "test", ")"])
        || texts.starts_with(&["#", "[", "cfg", "(", "all", "(", "test"])
}

/// Returns the number of tokens from `[` to the `]` that closes it.
fn attribute_length(tokens: &[SourceToken<'_>]) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "[" => depth += 1,
            "]" if depth <= 1 => return index + 1,
            "]" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

fn blank(code: &mut [u8], range: Range<usize>) {
    for byte in code[range].iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::{code_of, line_at, tokens, without_tests};

    fn words(code: &str) -> Vec<&str> {
        tokens(code).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let text =
            "a // b\nc /* d /* e */ f */ g \"h \\\" i\" r#\"j \" k\"# b\"l\" '\\'' 'm' 'n: 'ü' o";
        let code = code_of(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(words(&code), ["a", "c", "g", "b", "'", "n", ":", "o"]);
        assert_eq!(line_at(&code, code.find('c').expect("c stays")), 2);
    }

    #[test]
    fn tests_are_cut_to_the_end_of_their_item() {
        let code = "fn a() {} #[cfg(test)] #[expect(x)] mod tests { fn b() { {} } } fn c() {}\n\
                    #[cfg(test)] mod d; #[cfg(all(test, e))] fn f(g: [u8; 2]) {} #[cfg(h)] fn i() {}";
        let left = without_tests(code);
        let left = words(&left);
        assert!(["a", "c", "h", "i"].iter().all(|kept| left.contains(kept)), "{left:?}");
        assert!(!["b", "d", "f", "mod", "test"].iter().any(|cut| left.contains(cut)), "{left:?}");
    }
}
