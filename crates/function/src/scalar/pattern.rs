//! LIKE, ILIKE and RLIKE, as operators and as functions.
//!
//! A constant pattern is compiled when the call is bound. Other patterns are interpreted (LIKE) or
//! compiled (RLIKE) for each row; each thread caches the last regular expression that it compiled,
//! so that a column of equal patterns is compiled once.

use std::{borrow::Cow, cell::RefCell};

use lockstep_row::{DataType, Datum};
use regex::{Regex, RegexBuilder};

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation, SignatureError,
    arithmetic::operator,
    signature::{TEXT, constant_text, expect_between},
    text::text,
};
use crate::{Compatibility, value_limit};

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    text!(
        "like_match",
        &[],
        "like_match(text STRING, pattern STRING[, escape STRING]) → BOOL",
        "Returns whether all of `text` matches `pattern`, in which `%` matches any sequence of characters and `_` any one character. The character `escape` (a backslash by default) makes the next character of `pattern` literal. An empty `escape` disables escaping; with an `escape` of several characters, or a `pattern` that ends in the escape character, nothing matches.",
        &[
            ("like_match('Mike', 'M%')", "true"),
            ("like_match('Mike', 'm_ke')", "false"),
            ("like_match('M_ke', 'M&_ke', '&')", "true"),
            ("like_match('数据', '_据')", "true")
        ],
        |arguments| like(arguments, CaseSensitivity::Sensitive, Escape::Any)
    ),
    text!(
        "ilike_match",
        &[],
        "ilike_match(text STRING, pattern STRING[, escape STRING]) → BOOL",
        "Returns whether all of `text` matches `pattern`, ignoring case; see `like_match`.",
        &[("ilike_match('Mike', 'm_ke')", "true")],
        |arguments| like(arguments, CaseSensitivity::Insensitive, Escape::Any)
    ),
    text!(
        "regexp_like",
        &[],
        "regexp_like(text STRING, pattern STRING[, flags STRING]) → BOOL",
        "Returns whether all of `text` matches the regular expression `pattern`. `flags` may contain `c` (case-sensitive, the default), `i` (case-insensitive), `m` (`^` and `$` match at line boundaries) and `s` (`.` matches a line feed); the last of `c` and `i` applies. A constant `pattern` that is not valid is an error; for any other invalid `pattern` the result is NULL.",
        &[
            ("regexp_like('abc', 'a.c')", "true"),
            ("regexp_like('abcd', 'a.c')", "false"),
            ("regexp_like('ABC', 'a.c', 'i')", "true")
        ],
        regexp_like
    ),
];

pub(super) static OPERATORS: &[ScalarFunction] = &[
    operator!(
        "op_like",
        "text LIKE pattern [ESCAPE escape] → BOOL",
        "Returns whether all of `text` matches `pattern`; see `like_match`. `escape` must be a constant of at most one character.",
        &[("'abc' LIKE 'a%'", "true"), ("'abc' LIKE 'A%'", "false")],
        |arguments| like(arguments, CaseSensitivity::Sensitive, Escape::OneConstant)
    ),
    operator!(
        "op_ilike",
        "text ILIKE pattern [ESCAPE escape] → BOOL",
        "Returns whether all of `text` matches `pattern`, ignoring case; see `like_match`. `escape` must be a constant of at most one character.",
        &[("'abc' ILIKE 'A_C'", "true")],
        |arguments| like(arguments, CaseSensitivity::Insensitive, Escape::OneConstant)
    ),
    operator!(
        "op_rlike",
        "text RLIKE pattern → BOOL",
        "Returns whether all of `text` matches the regular expression `pattern`; see `regexp_like`.",
        &[("'abc' RLIKE 'a.*'", "true"), ("'abc' RLIKE 'b'", "false")],
        regexp_like
    ),
];

/// Whether upper and lower case are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseSensitivity {
    /// `a` is not `A`.
    Sensitive,
    /// `a` is `A`.
    Insensitive,
}

/// The escape arguments that a function accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escape {
    /// Any text; with one of several characters, nothing matches.
    Any,
    /// A constant of at most one character.
    OneConstant,
}

/// The rules by which a text is split into characters, and by which these are compared.
#[derive(Clone, Copy)]
struct Alphabet {
    /// Whether to split into bytes instead.
    by_bytes: bool,
    case: CaseSensitivity,
}

impl Alphabet {
    /// Splits off the first character or byte of a text.
    fn split(self, text: &[u8]) -> Option<(u32, &[u8])> {
        let first = *text.first()?;
        if self.by_bytes || first.is_ascii() {
            return Some((u32::from(first), &text[1..]));
        }
        let size = if first >= 0xf0 {
            4
        } else if first >= 0xe0 {
            3
        } else {
            2
        };
        let (bytes, rest) = text.split_at_checked(size)?;
        let character = std::str::from_utf8(bytes).ok()?.chars().next()?;
        Some((u32::from(character), rest))
    }

    fn is_same(self, left: u32, right: u32) -> bool {
        if left == right || self.case == CaseSensitivity::Sensitive {
            return left == right;
        }
        match (char::from_u32(left), char::from_u32(right)) {
            (Some(left), Some(right)) if self.by_bytes => left.eq_ignore_ascii_case(&right),
            (Some(left), Some(right)) => left.to_lowercase().eq(right.to_lowercase()),
            _ => false,
        }
    }
}

/// An element of a LIKE pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternStep {
    /// A character that matches itself.
    Literal(u32),
    /// Any one character.
    One,
    /// Any number of characters.
    Run,
}

/// Splits off the first element of a pattern; `Err` at an escape character at the end.
fn step(
    pattern: &[u8],
    escape: Option<u32>,
    alphabet: Alphabet,
) -> Result<Option<(PatternStep, &[u8])>, ()> {
    let Some((first, rest)) = alphabet.split(pattern) else { return Ok(None) };
    Ok(Some(if Some(first) == escape {
        let (literal, rest) = alphabet.split(rest).ok_or(())?;
        (PatternStep::Literal(literal), rest)
    } else if first == u32::from('%') {
        (PatternStep::Run, rest)
    } else if first == u32::from('_') {
        (PatternStep::One, rest)
    } else {
        (PatternStep::Literal(first), rest)
    }))
}

/// Does what [`super::is_like`] says.
pub(super) fn is_like(text: &str, pattern: &str, escape: &str, case: CaseSensitivity) -> bool {
    let alphabet = Alphabet { by_bytes: false, case };
    escape_of(escape, alphabet).is_ok_and(|escape| matches(text, pattern, escape, alphabet))
}

/// The characters that are compared between two checks for an interrupt: about a millisecond.
const STEPS_PER_CHECK: u32 = 1 << 18;

/// Returns whether the whole text matches. Backtracks to the last `%` only, so that the time is at
/// most the product of the lengths. An interrupted match returns `false`, and sets the flag of
/// [`value_limit`].
fn matches(text: &str, pattern: &str, escape: Option<u32>, alphabet: Alphabet) -> bool {
    let (mut text, mut pattern) = (text.as_bytes(), pattern.as_bytes());
    let mut retry: Option<(&[u8], &[u8])> = None;
    let mut steps = 0_u32;
    loop {
        steps += 1;
        if steps == STEPS_PER_CHECK {
            steps = 0;
            if value_limit::uninterrupted().is_none() {
                return false;
            }
        }
        let Ok(next) = step(pattern, escape, alphabet) else { return false };
        let first = alphabet.split(text);
        match (next, first) {
            (Some((PatternStep::Run, rest)), _) => {
                retry = Some((text, rest));
                pattern = rest;
                continue;
            }
            (None, None) => return true,
            (Some((PatternStep::One, rest)), Some((_, after))) => {
                (pattern, text) = (rest, after);
                continue;
            }
            (Some((PatternStep::Literal(literal), rest)), Some((character, after)))
                if alphabet.is_same(literal, character) =>
            {
                (pattern, text) = (rest, after);
                continue;
            }
            _ => {}
        }
        let Some((from, after_run)) = retry else { return false };
        let Some((_, shorter)) = alphabet.split(from) else { return false };
        retry = Some((shorter, after_run));
        (text, pattern) = (shorter, after_run);
    }
}

/// Returns whether a pattern ends with an escape character, so that it matches nothing.
fn ends_in_escape(pattern: &str, escape: Option<u32>, alphabet: Alphabet) -> bool {
    let mut rest = pattern.as_bytes();
    loop {
        match step(rest, escape, alphabet) {
            Ok(Some((_, after))) => rest = after,
            Ok(None) => return false,
            Err(()) => return true,
        }
    }
}

/// Returns the escape character of an escape argument: none, one character, or `Err` for several.
fn escape_of(text: &str, alphabet: Alphabet) -> Result<Option<u32>, ()> {
    match alphabet.split(text.as_bytes()) {
        None => Ok(None),
        Some((character, [])) => Ok(Some(character)),
        Some(_) => Err(()),
    }
}

fn like(arguments: &CallArguments<'_>, case: CaseSensitivity, escape: Escape) -> Resolved {
    expect_between(arguments, 2, &[TEXT, TEXT, TEXT])?;
    let by_bytes = arguments.settings.compatibility == Compatibility::OpenMldb;
    let alphabet = Alphabet { by_bytes, case };
    if escape == Escape::OneConstant && arguments.types.len() == 3 {
        check_escape(arguments, alphabet)?;
    }
    let parameters = vec![DataType::String; arguments.types.len()];
    let constant_pattern = constant_text(arguments, 1);
    let constant_escape = match arguments.types.len() {
        2 => Some("\\"),
        _ => constant_text(arguments, 2),
    };
    if let (Some(pattern), Some(escape)) = (constant_pattern, constant_escape) {
        return Ok(like_constant(parameters, pattern, escape, alphabet));
    }
    Ok(ScalarImplementation::new(parameters, DataType::Bool, move |arguments, _| {
        let escape = match arguments.get(2) {
            Some(escape) => escape.as_str()?,
            None => "\\",
        };
        let (text, pattern) = (arguments[0].as_str()?, arguments[1].as_str()?);
        let holds = escape_of(escape, alphabet).is_ok_and(|escape| {
            !ends_in_escape(pattern, escape, alphabet) && matches(text, pattern, escape, alphabet)
        });
        Some(Datum::Bool(holds))
    }))
}

/// Implements LIKE with a constant pattern; a prefix, suffix or substring is compared as bytes.
fn like_constant(
    parameters: Vec<DataType>,
    pattern: &str,
    escape: &str,
    alphabet: Alphabet,
) -> ScalarImplementation {
    let Ok(escape) = escape_of(escape, alphabet) else {
        return ScalarImplementation::new(parameters, DataType::Bool, |_, _| {
            Some(Datum::Bool(false))
        });
    };
    if ends_in_escape(pattern, escape, alphabet) {
        return ScalarImplementation::new(parameters, DataType::Bool, |_, _| {
            Some(Datum::Bool(false))
        });
    }
    let is_special =
        |text: &str| text.chars().any(|c| c == '%' || c == '_' || Some(u32::from(c)) == escape);
    let core = pattern.trim_matches('%');
    // With `%` as the escape, one at an end of the pattern is not a run.
    let is_run_escaped = escape == Some(u32::from('%'));
    let is_insensitive = alphabet.case == CaseSensitivity::Insensitive;
    if is_insensitive || is_run_escaped || is_special(core) || core.is_empty() {
        let pattern: Box<str> = pattern.into();
        return ScalarImplementation::new(parameters, DataType::Bool, move |arguments, _| {
            Some(Datum::Bool(matches(arguments[0].as_str()?, &pattern, escape, alphabet)))
        });
    }
    let part: Box<str> = core.into();
    let holds: fn(&str, &str) -> bool = match (pattern.starts_with('%'), pattern.ends_with('%')) {
        (false, false) => |text, part| text == part,
        (false, true) => |text, part| text.starts_with(part),
        (true, false) => |text, part| text.ends_with(part),
        (true, true) => |text, part| text.contains(part),
    };
    ScalarImplementation::new(parameters, DataType::Bool, move |arguments, _| {
        Some(Datum::Bool(holds(arguments[0].as_str()?, &part)))
    })
}

fn check_escape(arguments: &CallArguments<'_>, alphabet: Alphabet) -> Result<(), SignatureError> {
    let is_null = matches!(arguments.constants.get(2), Some(Some(value)) if value.as_scalar().is_some_and(|value| value.is_null()));
    let is_short =
        constant_text(arguments, 2).is_some_and(|escape| escape_of(escape, alphabet).is_ok());
    if is_null || is_short {
        return Ok(());
    }
    Err(SignatureError::Constant {
        position: 3,
        expected: "a constant of at most one character".to_owned(),
    })
}

/// Where a regular expression has to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum MatchExtent {
    /// From the first character to the last.
    #[default]
    Whole,
    /// Some characters of the text.
    Part,
}

/// Escapes braces that are not part of a repetition, which RE2, PostgreSQL and others match as they
/// are and `regex` refuses: `{a}` becomes `\{a}`.
fn with_literal_braces(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains('{') {
        return Cow::Borrowed(pattern);
    }
    let mut escaped = String::with_capacity(pattern.len() + 4);
    let (mut rest, mut in_class) = (pattern, false);
    while let Some(next) = rest.chars().next() {
        let mut taken = next.len_utf8();
        match next {
            // Of `\x{41}` and `\p{L}` the braces are part of the escape.
            '\\' => taken = escape_length(rest),
            '[' => in_class = true,
            ']' => in_class = false,
            '{' if !in_class && !is_repetition(rest) => escaped.push('\\'),
            _ => {}
        }
        escaped.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    Cow::Owned(escaped)
}

/// Returns the length in bytes of the escape sequence at the start of a text.
fn escape_length(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    let Some((at, kind)) = characters.next() else { return text.len() };
    let end = at + kind.len_utf8();
    match (kind, text[end..].starts_with('{')) {
        ('x' | 'u' | 'U' | 'p' | 'P' | 'b', true) => {
            text[end..].find('}').map_or(end, |close| end + close + 1)
        }
        _ => end,
    }
}

/// Returns whether a text starts with `{n}`, `{n,}` or `{n,m}`.
fn is_repetition(text: &str) -> bool {
    let Some((counts, _)) = text[1..].split_once('}') else { return false };
    let (least, most) = counts.split_once(',').unwrap_or((counts, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && is_number(least) && is_number(most)
}

/// Compiles a pattern.
fn compile(pattern: &str, flags: &str, extent: MatchExtent) -> Result<Regex, regex::Error> {
    let has = |flag: char| flags.contains(flag);
    let pattern = with_literal_braces(pattern);
    let whole = match extent {
        MatchExtent::Whole => Some(format!("\\A(?:{pattern})\\z")),
        MatchExtent::Part => None,
    };
    let mut builder = RegexBuilder::new(whole.as_deref().unwrap_or(&pattern));
    if extent == MatchExtent::Part {
        builder.size_limit(PART_BYTES_MAX);
    }
    builder
        .case_insensitive(flags.rfind('i') > flags.rfind('c'))
        .multi_line(has('m'))
        .dot_matches_new_line(has('s'))
        .build()
}

/// The most bytes of a compiled expression that matches some characters of a text: a match cannot be
/// interrupted, and takes time in proportion to both.
const PART_BYTES_MAX: usize = 1 << 20;

/// A regular expression, and what it was compiled from.
#[derive(Default)]
struct CompiledPattern {
    pattern: String,
    flags: String,
    extent: MatchExtent,
    regex: Option<Regex>,
}

thread_local! {
    /// The last one that this thread compiled.
    static COMPILED: RefCell<CompiledPattern> = RefCell::default();
}

fn is_match(text: &str, pattern: &str, flags: &str, extent: MatchExtent) -> Option<bool> {
    COMPILED.with_borrow_mut(|known| {
        let is_known = (&*known.pattern, &*known.flags, known.extent) == (pattern, flags, extent);
        if !is_known || pattern.is_empty() {
            known.regex = compile(pattern, flags, extent).ok();
            known.pattern.replace_range(.., pattern);
            known.flags.replace_range(.., flags);
            known.extent = extent;
        }
        known.regex.as_ref().map(|regex| regex.is_match(text))
    })
}

/// Does what [`super::has_match`] says.
pub(super) fn has_match(text: &str, pattern: &str, case: CaseSensitivity) -> Option<bool> {
    let flags = match case {
        CaseSensitivity::Sensitive => "s",
        CaseSensitivity::Insensitive => "si",
    };
    is_match(text, pattern, flags, MatchExtent::Part)
}

/// Returns the error of a constant that is not a regular expression.
fn not_a_pattern(error: &regex::Error) -> SignatureError {
    let text = error.to_string();
    // A syntax error of several lines shows the pattern as it was compiled; its last line is the reason.
    let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").trim();
    let expected = format!("a valid regular expression ({reason})");
    SignatureError::Constant { position: 2, expected }
}

fn regexp_like(arguments: &CallArguments<'_>) -> Resolved {
    expect_between(arguments, 2, &[TEXT, TEXT, TEXT])?;
    let parameters = vec![DataType::String; arguments.types.len()];
    let constant_flags = match arguments.types.len() {
        2 => Some(""),
        _ => constant_text(arguments, 2),
    };
    if let (Some(pattern), Some(flags)) = (constant_text(arguments, 1), constant_flags) {
        let regex = match compile(pattern, flags, MatchExtent::Whole) {
            Ok(regex) => Some(regex),
            Err(_) if arguments.settings.compatibility == Compatibility::OpenMldb => None,
            Err(error) => return Err(not_a_pattern(&error)),
        };
        return Ok(ScalarImplementation::new(parameters, DataType::Bool, move |arguments, _| {
            Some(Datum::Bool(regex.as_ref()?.is_match(arguments[0].as_str()?)))
        }));
    }
    Ok(ScalarImplementation::new(parameters, DataType::Bool, |arguments, _| {
        let flags = match arguments.get(2) {
            Some(flags) => flags.as_str()?,
            None => "",
        };
        let (text, pattern) = (arguments[0].as_str()?, arguments[1].as_str()?);
        Some(Datum::Bool(is_match(text, pattern, flags, MatchExtent::Whole)?))
    }))
}
