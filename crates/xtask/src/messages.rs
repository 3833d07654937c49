//! Checks that a golden test has every message that a user may get.
//!
//! The templates of messages are taken from the source: the texts in calls of `Diagnostic::new` and
//! `Diagnostic::unsupported`, also where such a text is a variable or an argument of a function
//! that makes the call, and those of error types. A template is covered when a line of tests/sql,
//! docs/guide or python/tests has its fixed words in their order. The others are counted by crate,
//! and a test checks that the counts only fall.
#![expect(clippy::print_stdout, reason = "a command line speaks through its output")]

use std::{collections::BTreeSet, fs, path::Path};

use crate::{tidy, workspace_dir};

/// The crates whose messages are about a user's statement, and how many of their templates no
/// golden test has. A number may only fall.
const UNSEEN_MAX: &[(&str, usize)] =
    &[("sql", 0), ("function", 0), ("plan", 0), ("batch", 3), ("engine", 3)];

/// The crates whose messages are errors and warnings of statements.
pub(crate) const STATEMENT_CRATES: &[&str] =
    &["sql", "function", "plan", "request", "batch", "table", "engine"];

/// Where a call of `Diagnostic` begins; its last argument is the message.
const CALLS: &[&str] = &["Diagnostic::new(", "Diagnostic::unsupported("];

/// The fewest letters in the fixed words of a template that can be recognized.
const LETTERS_MIN: usize = 6;

/// How far above a call the variable of its message may be, in bytes.
const NAMED_BYTES_MAX: usize = 2_000;

/// Prints the templates that no golden test has; returns whether there are no more than allowed.
pub fn run() -> bool {
    let golden = golden_lines();
    let mut is_good = true;
    for (name, most) in UNSEEN_MAX {
        let templates = templates_of(name);
        let unseen: Vec<&Template> =
            templates.iter().filter(|template| !template.is_seen(&golden)).collect();
        for template in &unseen {
            println!("{name}/{}: {}", template.file, template.shown());
        }
        println!("messages: {name}: {} of {} not seen", unseen.len(), templates.len());
        is_good &= unseen.len() <= *most;
    }
    is_good
}

/// The template of a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Template {
    /// The fixed texts between its arguments.
    pieces: Vec<String>,
    /// The message with `…` for each argument.
    shown: String,
    /// The source file.
    file: String,
}

impl Template {
    fn of(format: &str, file: &str) -> Self {
        let all = all_pieces(format);
        let shown = all.join("…");
        debug_assert_eq!(shown.matches('…').count() + 1, all.len() + format.matches('…').count());
        let pieces = all.into_iter().filter(|piece| !piece.is_empty()).collect();
        Self { pieces, shown, file: file.to_owned() }
    }

    fn is_seen(&self, golden: &[String]) -> bool {
        golden.iter().any(|line| self.is_in(line))
    }

    /// Returns whether a line has the fixed texts in their order.
    pub(crate) fn is_in(&self, line: &str) -> bool {
        let mut rest = line;
        self.pieces.iter().all(|piece| match rest.find(piece.as_str()) {
            Some(at) => {
                rest = &rest[at + piece.len()..];
                true
            }
            None => false,
        })
    }

    /// Returns the message with `…` for each argument.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }
}

/// Reads the lines that golden tests expect.
fn golden_lines() -> Vec<String> {
    let root = workspace_dir();
    let mut lines = Vec::new();
    let folders = [
        ("tests/sql", "slt"),
        ("docs/guide", "md"),
        ("python/tests", "py"),
        ("crates/testkit/tests", "rs"),
        // What a database in memory never says.
        ("crates/engine/tests", "rs"),
    ];
    for (folder, extension) in folders {
        each_file(&root.join(folder), extension, &mut |text| {
            lines.extend(text.lines().map(str::to_owned));
        });
    }
    lines
}

fn each_file(folder: &Path, extension: &str, use_text: &mut dyn FnMut(&str)) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            each_file(&path, extension, use_text);
        } else if path.extension().is_some_and(|found| found == extension) {
            use_text(&fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

pub(crate) fn templates_of(crate_name: &str) -> BTreeSet<Template> {
    let mut templates = BTreeSet::new();
    let source = format!("{crate_name}/src/");
    tidy::each_source(|path, text| {
        let is_test = path.ends_with("tests.rs") || path.ends_with("testing.rs");
        if let Some(file) =
            path.strip_prefix(&source).filter(|_| !is_test && !path.contains("/tests/"))
        {
            let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
            templates.extend(templates_in(text, file));
        }
        Vec::new()
    });
    templates
}

fn templates_in(source: &str, file: &str) -> BTreeSet<Template> {
    let mut found = BTreeSet::new();
    for call in CALLS {
        for (at, _) in source.match_indices(call) {
            let arguments = balanced(&source[at + call.len()..]);
            let message = last_argument(arguments);
            let mut texts = literals(message);
            if texts.is_empty() {
                texts = named_before(&source[..at], message.trim());
            }
            if texts.is_empty() {
                texts = given_to(source, function_around(&source[..at]));
            }
            let templates = texts.iter().map(|text| Template::of(text, file));
            found.extend(templates.filter(|template| letters(template) >= LETTERS_MIN));
        }
    }
    for (at, opening) in source.match_indices("#[error(") {
        let texts = literals(balanced(&source[at + opening.len()..]));
        let templates = texts.iter().map(|text| Template::of(text, file));
        found.extend(templates.filter(|template| letters(template) >= LETTERS_MIN));
    }
    found
}

/// Returns the name of the function in which `source` ends.
fn function_around(source: &str) -> &str {
    let Some(at) = source.rfind("fn ") else { return "" };
    let name = &source[at + 3..];
    &name[..name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len())]
}

/// Returns the texts that a function of this file is called with: its message is one of its
/// arguments.
fn given_to(source: &str, function: &str) -> Vec<String> {
    let call = format!("{function}(");
    let calls = source.match_indices(&call).filter(|_| !function.is_empty());
    calls.flat_map(|(at, call)| literals(balanced(&source[at + call.len()..]))).collect()
}

fn letters(template: &Template) -> usize {
    template.pieces.iter().flat_map(|piece| piece.chars()).filter(|c| c.is_alphabetic()).count()
}

/// Returns the texts of the nearest `let` of this name.
fn named_before(source: &str, name: &str) -> Vec<String> {
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let start = source.len().saturating_sub(NAMED_BYTES_MAX);
    let start = (start..source.len()).find(|at| source.is_char_boundary(*at)).unwrap_or(0);
    let near = &source[start..];
    let Some(at) = near.rfind(&format!("let {name} =")).filter(|_| is_name) else {
        return Vec::new();
    };
    // Up to the end of the statement, which a semicolon outside of brackets is.
    literals(&near[at..at + statement_length(&near[at..])])
}

/// Walks through Rust text; `step` receives each character outside of strings and comments, and the
/// depth of brackets, and returns whether to stop.
fn walk(text: &str, mut step: impl FnMut(usize, char, i32) -> bool) -> usize {
    let mut depth = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => skip_string(&mut characters),
            '\'' => skip_character(&text[at..], &mut characters),
            '/' if text[at..].starts_with("//") => {
                while characters.next_if(|(_, c)| *c != '\n').is_some() {}
            }
            _ => {
                if ")]}".contains(c) {
                    depth -= 1;
                }
                if step(at, c, depth) {
                    return at;
                }
                if "([{".contains(c) {
                    depth += 1;
                }
            }
        }
    }
    text.len()
}

type Characters<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

fn skip_string(characters: &mut Characters<'_>) {
    while let Some((_, c)) = characters.next() {
        match c {
            '\\' => drop(characters.next()),
            '"' => return,
            _ => {}
        }
    }
}

/// Skips a character literal; `'x'` and `'\n'` are characters, `'a` is a lifetime.
fn skip_character(text: &str, characters: &mut Characters<'_>) {
    let is_character = text.starts_with("'\\") || text.chars().nth(2) == Some('\'');
    if is_character {
        let is_escape = text.starts_with("'\\");
        for _ in 0..if is_escape { 3 } else { 2 } {
            characters.next();
        }
    }
}

/// Returns the text before the closing bracket.
fn balanced(text: &str) -> &str {
    &text[..walk(text, |_, _, depth| depth < 0)]
}

fn statement_length(text: &str) -> usize {
    walk(text, |_, c, depth| c == ';' && depth == 0)
}

fn last_argument(arguments: &str) -> &str {
    let mut commas = Vec::new();
    walk(arguments, |at, c, depth| {
        if c == ',' && depth == 0 {
            commas.push(at);
        }
        false
    });
    let end = arguments.trim_end();
    // The last argument may have a trailing comma.
    let mut commas = commas.into_iter().filter(|at| !arguments[at + 1..].trim().is_empty());
    commas.next_back().map_or(end, |at| &arguments[at + 1..])
}

/// Returns the string literals of Rust text, without their escapes.
fn literals(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('"') {
        let mut characters = rest[at + 1..].char_indices().peekable();
        skip_string(&mut characters);
        let end = characters.peek().map_or(rest.len(), |(index, _)| at + 1 + index);
        found.push(unescaped(&rest[at + 1..end.max(at + 2) - 1]));
        rest = &rest[end..];
    }
    found
}

fn unescaped(literal: &str) -> String {
    let mut text = String::new();
    let mut characters = literal.chars().peekable();
    while let Some(c) = characters.next() {
        match (c, characters.peek()) {
            ('\\', Some('\n')) => while characters.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', Some(_)) => text.extend(characters.next()),
            _ => text.push(c),
        }
    }
    text
}

/// Returns the fixed parts of a format string, empty ones as well: arguments are between them.
fn all_pieces(template: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut characters = template.chars().peekable();
    while let Some(c) = characters.next() {
        let is_doubled = characters.peek() == Some(&c);
        match c {
            '{' | '}' if is_doubled => {
                characters.next();
                pieces.last_mut().expect("there is one").push(c);
            }
            '{' => {
                while characters.next_if(|c| *c != '}').is_some() {}
                characters.next();
                pieces.push(String::new());
            }
            _ => pieces.last_mut().expect("there is one").push(c),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::{Template, UNSEEN_MAX, golden_lines, templates_in, templates_of};

    #[test]
    fn golden_tests_see_every_message() {
        let golden = golden_lines();
        for (name, most) in UNSEEN_MAX {
            let templates = templates_of(name);
            assert!(!templates.is_empty(), "`{name}` has messages");
            let unseen: Vec<&Template> =
                templates.iter().filter(|template| !template.is_seen(&golden)).collect();
            assert!(unseen.len() <= *most, "`{name}`: {} not seen: {unseen:#?}", unseen.len());
        }
    }

    #[test]
    fn templates_are_found_where_they_stand() {
        let source = r#"
            return Diagnostic::new(code::X, "a window needs a frame").at(span).err();
            let message = match kind {
                Kind::A => format!("table `{}` does not exist", name.text),
                Kind::B => "no table of that kind ('x')".to_owned(),
            };
            Diagnostic::new(code::Y, message)
                .with_hint("Not a message.")
            Diagnostic::unsupported(format!("{a} cannot be \
                cast to {b:?}"))
            Diagnostic::new(code, format!("{shown}: {error}"))
        "#;
        let found: Vec<String> = templates_in(source, "x.rs")
            .into_iter()
            .map(|template| template.shown().to_owned())
            .collect();
        assert_eq!(
            found,
            [
                "… cannot be cast to …",
                "a window needs a frame",
                "no table of that kind ('x')",
                "table `…` does not exist",
            ]
        );
    }

    #[test]
    fn a_template_is_seen_in_a_line_with_its_words() {
        let template = Template::of("`{}` has {{{n}}} rows{rest}", "");
        assert_eq!(template.pieces, ["`", "` has {", "} rows"]);
        assert_eq!(template.shown(), "`…` has {…} rows…");
        assert!(template.is_seen(&["error[1]: table `t` has {2} rows".to_owned()]));
        assert!(!template.is_seen(&["error[1]: table `t` has 2 rows".to_owned()]));
    }
}
