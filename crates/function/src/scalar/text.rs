//! Functions of texts. Lengths and positions count characters, or bytes with `compatibility =
//! 'openmldb'`, where U+FFFD replaces a part of a character.

use std::fmt::Write as _;

use bumpalo::collections::{String as ArenaString, Vec as ArenaVec};
use lockstep_row::{Arena, DataType, Datum};

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation,
    signature::{INTEGER, NUMBER, PLAIN, TEXT, expect, expect_between, expect_count, expect_type},
};
use crate::{Compatibility, cast::saturate_to_i64, value_limit};

macro_rules! text {
    ($name:literal, $aliases:expr, $signature:literal, $doc:literal, $examples:expr, $resolve:expr) => {
        ScalarFunction {
            name: $name,
            aliases: $aliases,
            category: "text",
            signature: $signature,
            doc: $doc,
            examples: $examples,
            resolve: $resolve,
        }
    };
}
pub(super) use text;

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    text!(
        "concat",
        &[],
        "concat(value, …) → STRING",
        "Returns the concatenation of the values, converted to STRING. NULL if any value is NULL.",
        &[("concat('a', 1, true)", "a1true"), ("concat('a', NULL)", "NULL")],
        concat
    ),
    text!(
        "concat_ws",
        &[],
        "concat_ws(separator, value, …) → STRING",
        "Returns the concatenation of the values, converted to STRING, with `separator` between them. NULL if any argument is NULL.",
        &[("concat_ws('-', 'a', 1, 'b')", "a-1-b"), ("concat_ws('-', 'a', NULL)", "NULL")],
        concat_ws
    ),
    text!(
        "substring",
        &["substr"],
        "substring(text STRING, from INT[, length INT]) → STRING",
        "Returns the part of `text` that starts at position `from` and has at most `length` characters (the rest of `text` by default). Positions are counted from 1, or from the end of `text` if negative. Empty if `from` is 0 or outside `text`, or if `length` is less than 1.",
        &[
            ("substring('hello', 2)", "ello"),
            ("substring('hello', 2, 3)", "ell"),
            ("substring('hello', -3, 2)", "ll"),
            ("substring('hello', 0)", ""),
            ("substring('数据库', 2, 1)", "据")
        ],
        substring
    ),
    text!(
        "left",
        &[],
        "left(text STRING, length INT) → STRING",
        "Returns the first `length` characters of `text`. Empty if `length` is less than 1.",
        &[("left('hello', 2)", "he"), ("left('hello', 9)", "hello")],
        left
    ),
    text!(
        "right",
        &[],
        "right(text STRING, length INT) → STRING",
        "Returns the last `length` characters of `text`. Empty if `length` is less than 1.",
        &[("right('hello', 2)", "lo"), ("right('hello', 0)", "")],
        right
    ),
    text!(
        "locate",
        &[],
        "locate(part STRING, text STRING[, from INT]) → INT",
        "Returns the position, counted from 1, of the first occurrence of `part` in `text` at or after position `from` (1 by default). 0 if `part` does not occur or `from` is outside `text`. An empty `part` occurs at `from`.",
        &[
            ("locate('l', 'hello')", "3"),
            ("locate('l', 'hello', 4)", "4"),
            ("locate('x', 'hello')", "0"),
            ("locate('', 'hello', 2)", "2")
        ],
        locate
    ),
    text!(
        "char_length",
        &["character_length", "length"],
        "char_length(text STRING) → INT",
        "Returns the number of characters in `text`.",
        &[("char_length('数据库')", "3"), ("char_length('')", "0")],
        char_length
    ),
    text!(
        "octet_length",
        &[],
        "octet_length(text STRING) → INT",
        "Returns the number of bytes of `text` in UTF-8.",
        &[("octet_length('数据库')", "9")],
        octet_length
    ),
    text!(
        "lpad",
        &[],
        "lpad(text STRING, length INT[, fill STRING]) → STRING",
        "Extends `text` to `length` characters by prepending `fill` (a space by default), repeated; a longer string is truncated at its end. Empty if `length` is less than 1. An empty `fill` adds nothing.",
        &[("lpad('7', 3, '0')", "007"), ("lpad('abcd', 2)", "ab"), ("lpad('a', 4, 'xy')", "xyxa")],
        |arguments| pad(arguments, PadSide::Left)
    ),
    text!(
        "rpad",
        &[],
        "rpad(text STRING, length INT[, fill STRING]) → STRING",
        "Extends `text` to `length` characters by appending `fill` (a space by default), repeated; a longer string is truncated at its end. Empty if `length` is less than 1. An empty `fill` adds nothing.",
        &[("rpad('7', 3, '0')", "700"), ("rpad('abcd', 2)", "ab"), ("rpad('a', 4, '')", "a")],
        |arguments| pad(arguments, PadSide::Right)
    ),
    text!(
        "strcmp",
        &[],
        "strcmp(a STRING, b STRING) → INT",
        "Returns -1, 0 or 1 if `a` is less than, equal to or greater than `b`, compared byte by byte.",
        &[("strcmp('a', 'b')", "-1"), ("strcmp('b', 'b')", "0")],
        strcmp
    ),
    text!(
        "starts_with",
        &[],
        "starts_with(text STRING, prefix STRING) → BOOL",
        "Returns whether `text` starts with `prefix`.",
        &[("starts_with('hello', 'he')", "true")],
        |arguments| test(arguments, |text, part| text.starts_with(part))
    ),
    text!(
        "ends_with",
        &[],
        "ends_with(text STRING, suffix STRING) → BOOL",
        "Returns whether `text` ends with `suffix`.",
        &[("ends_with('hello', 'lo')", "true")],
        |arguments| test(arguments, |text, part| text.ends_with(part))
    ),
    text!(
        "ucase",
        &["upper"],
        "ucase(text STRING) → STRING",
        "Returns `text` in upper case.",
        &[("ucase('straße')", "STRASSE")],
        ucase
    ),
    text!(
        "lcase",
        &["lower"],
        "lcase(text STRING) → STRING",
        "Returns `text` in lower case.",
        &[("lcase('ÀB')", "àb")],
        lcase
    ),
    text!(
        "trim",
        &["btrim"],
        "trim(text STRING[, characters STRING]) → STRING",
        "Returns `text` without leading and trailing white space or, if `characters` is specified, without leading and trailing characters that occur in it.",
        &[("concat('[', trim('  a b '), ']')", "[a b]"), ("trim('xyaxy', 'yx')", "a")],
        |arguments| cut(arguments, CutEnds::Both)
    ),
    text!(
        "ltrim",
        &[],
        "ltrim(text STRING[, characters STRING]) → STRING",
        "Returns `text` without leading white space or, if `characters` is specified, without leading characters that occur in it.",
        &[("concat('[', ltrim('  a '), ']')", "[a ]"), ("ltrim('007', '0')", "7")],
        |arguments| cut(arguments, CutEnds::Start)
    ),
    text!(
        "rtrim",
        &[],
        "rtrim(text STRING[, characters STRING]) → STRING",
        "Returns `text` without trailing white space or, if `characters` is specified, without trailing characters that occur in it.",
        &[("concat('[', rtrim('  a '), ']')", "[  a]"), ("rtrim('a...', '.')", "a")],
        |arguments| cut(arguments, CutEnds::End)
    ),
    text!(
        "reverse",
        &[],
        "reverse(text STRING) → STRING",
        "Returns `text` with its characters in reverse order.",
        &[("reverse('数据a')", "a据数")],
        reverse
    ),
    text!(
        "replace",
        &[],
        "replace(text STRING, search STRING[, replacement STRING]) → STRING",
        "Replaces every occurrence of `search` in `text` with `replacement`, or deletes it if `replacement` is omitted. Returns `text` unchanged if `search` is empty.",
        &[
            ("replace('ABCabcabc', 'abca', 'A')", "ABCAbc"),
            ("replace('abc', 'b')", "ac"),
            ("replace('abc', '')", "abc")
        ],
        replace
    ),
    text!(
        "char",
        &[],
        "char(code INT) → STRING",
        "Returns the character with the Unicode code point `code`. NULL if `code` is not a valid code point.",
        &[("char(65)", "A"), ("char(25968)", "数"), ("char(-1)", "NULL")],
        char
    ),
    text!(
        "hex",
        &[],
        "hex(value) → STRING",
        "Returns `value` in hexadecimal: two digits for each byte of a STRING, or the 64-bit two's complement of a number without leading zeros. A float is rounded to an integer first; ties are rounded away from zero.",
        &[
            ("hex(17)", "11"),
            ("hex(-1)", "FFFFFFFFFFFFFFFF"),
            ("hex('a\u{a}')", "610A"),
            ("hex(2.5)", "3")
        ],
        hex
    ),
    text!(
        "unhex",
        &[],
        "unhex(digits STRING) → STRING",
        "Returns the STRING whose UTF-8 encoding is the hexadecimal `digits`; an odd number of digits is padded with a leading 0. NULL if `digits` contains any other character or the bytes are not valid UTF-8.",
        &[
            ("unhex('616')", "\u{6}\u{16}"),
            ("unhex('6162')", "ab"),
            ("unhex('x')", "NULL"),
            ("unhex('')", "")
        ],
        unhex
    ),
];

/// Returns whether lengths and positions count bytes.
fn counts_bytes(arguments: &CallArguments<'_>) -> bool {
    arguments.settings.compatibility == Compatibility::OpenMldb
}

/// Resolves `concat`, which joins the texts of any values; also the operator `||`.
pub(super) fn concat(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 1, usize::MAX)?;
    (0..arguments.types.len()).try_for_each(|index| expect_type(arguments, index, PLAIN))?;
    let parameters = vec![DataType::String; arguments.types.len()];
    Ok(ScalarImplementation::new(parameters, DataType::String, |arguments, arena| {
        join(arguments, "", arena)
    }))
}

fn concat_ws(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, usize::MAX)?;
    (0..arguments.types.len()).try_for_each(|index| expect_type(arguments, index, PLAIN))?;
    let parameters = vec![DataType::String; arguments.types.len()];
    Ok(ScalarImplementation::new(parameters, DataType::String, |arguments, arena| {
        join(&arguments[1..], arguments[0].as_str()?, arena)
    }))
}

fn join<'a>(texts: &[Datum<'a>], separator: &str, arena: &'a Arena) -> Option<Datum<'a>> {
    let size = texts.iter().filter_map(Datum::as_str).map(str::len).sum::<usize>()
        + separator.len() * texts.len().saturating_sub(1);
    value_limit::text(size)?;
    let mut joined = ArenaString::with_capacity_in(size, arena);
    for (position, text) in texts.iter().enumerate() {
        joined.push_str(if position == 0 { "" } else { separator });
        joined.push_str(text.as_str()?);
    }
    Some(Datum::String(joined.into_bump_str()))
}

/// Returns the part of a text between two positions counted in characters, or in bytes.
fn slice<'a>(
    text: &'a str,
    range: std::ops::Range<usize>,
    by_bytes: bool,
    arena: &'a Arena,
) -> &'a str {
    if text.is_ascii() || by_bytes {
        let end = range.end.min(text.len());
        let start = range.start.min(end);
        return match text.get(start..end) {
            Some(part) => part,
            None => repair(&text.as_bytes()[start..end], arena),
        };
    }
    let offset = |count: usize| text.char_indices().nth(count).map_or(text.len(), |(at, _)| at);
    let start = offset(range.start);
    let length = range.end.saturating_sub(range.start);
    let rest = &text[start..];
    let end = rest.char_indices().nth(length).map_or(rest.len(), |(at, _)| at);
    &rest[..end]
}

/// Returns bytes as a text, with U+FFFD for invalid UTF-8.
fn repair<'a>(bytes: &[u8], arena: &'a Arena) -> &'a str {
    ArenaString::from_utf8_lossy_in(bytes, arena).into_bump_str()
}

fn length(text: &str, by_bytes: bool) -> usize {
    if by_bytes || text.is_ascii() { text.len() } else { text.chars().count() }
}

fn substring(arguments: &CallArguments<'_>) -> Resolved {
    expect_between(arguments, 2, &[TEXT, INTEGER, INTEGER])?;
    let by_bytes = counts_bytes(arguments);
    let mut parameters = vec![DataType::String, DataType::BigInt];
    parameters.extend(arguments.types.get(2).map(|_| DataType::BigInt));
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let text = arguments[0].as_str()?;
        let from = arguments[1].as_i64()?;
        let count = match arguments.get(2) {
            Some(count) => count.as_i64()?,
            None => i64::MAX,
        };
        Some(Datum::String(match start_of(text, from, by_bytes) {
            Some(start) if count > 0 => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                slice(text, start..start.saturating_add(count), by_bytes, arena)
            }
            _ => "",
        }))
    }))
}

/// Converts a position, counted from 1 or from the end, to an index; `None` outside the text.
fn start_of(text: &str, from: i64, by_bytes: bool) -> Option<usize> {
    if from > 0 {
        return usize::try_from(from - 1).ok();
    }
    let back = usize::try_from(from.unsigned_abs()).ok().filter(|back| *back > 0)?;
    length(text, by_bytes).checked_sub(back)
}

fn left(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT, INTEGER])?;
    let by_bytes = counts_bytes(arguments);
    let parameters = vec![DataType::String, DataType::BigInt];
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let count = usize::try_from(arguments[1].as_i64()?).unwrap_or(0);
        Some(Datum::String(slice(arguments[0].as_str()?, 0..count, by_bytes, arena)))
    }))
}

fn right(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT, INTEGER])?;
    let by_bytes = counts_bytes(arguments);
    let parameters = vec![DataType::String, DataType::BigInt];
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let text = arguments[0].as_str()?;
        let count = usize::try_from(arguments[1].as_i64()?).unwrap_or(0);
        let whole = length(text, by_bytes);
        Some(Datum::String(slice(text, whole.saturating_sub(count)..whole, by_bytes, arena)))
    }))
}

fn locate(arguments: &CallArguments<'_>) -> Resolved {
    expect_between(arguments, 2, &[TEXT, TEXT, INTEGER])?;
    let by_bytes = counts_bytes(arguments);
    let mut parameters = vec![DataType::String; 2];
    parameters.extend(arguments.types.get(2).map(|_| DataType::BigInt));
    Ok(ScalarImplementation::new(parameters, DataType::Int, move |arguments, _| {
        let from = match arguments.get(2) {
            Some(from) => from.as_i64()?,
            None => 1,
        };
        let (part, text) = (arguments[0].as_str()?, arguments[1].as_str()?);
        let position = position_of(part, text, from, by_bytes).unwrap_or(0);
        Some(Datum::Int(i32::try_from(position).ok()?))
    }))
}

fn position_of(part: &str, text: &str, from: i64, by_bytes: bool) -> Option<usize> {
    let start = usize::try_from(from).ok()?.checked_sub(1)?;
    if by_bytes || text.is_ascii() {
        let rest = text.as_bytes().get(start..)?;
        if part.is_empty() {
            return Some(start + 1);
        }
        let found = rest.windows(part.len()).position(|window| window == part.as_bytes())?;
        return Some(start + found + 1);
    }
    if start > text.chars().count() {
        return None;
    }
    let offset = text.char_indices().nth(start).map_or(text.len(), |(at, _)| at);
    let found = text[offset..].find(part)?;
    Some(start + text[offset..offset + found].chars().count() + 1)
}

fn char_length(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT])?;
    let by_bytes = counts_bytes(arguments);
    let parameters = vec![DataType::String];
    Ok(ScalarImplementation::new(parameters, DataType::Int, move |arguments, _| {
        let count = length(arguments[0].as_str()?, by_bytes);
        Some(Datum::Int(i32::try_from(count).ok()?))
    }))
}

fn octet_length(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT])?;
    Ok(ScalarImplementation::new(vec![DataType::String], DataType::Int, |arguments, _| {
        Some(Datum::Int(i32::try_from(arguments[0].as_str()?.len()).ok()?))
    }))
}

/// The side of a text that is padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PadSide {
    Left,
    Right,
}

fn pad(arguments: &CallArguments<'_>, side: PadSide) -> Resolved {
    expect_between(arguments, 2, &[TEXT, INTEGER, TEXT])?;
    let mut parameters = vec![DataType::String, DataType::BigInt];
    parameters.extend(arguments.types.get(2).map(|_| DataType::String));
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let text = arguments[0].as_str()?;
        let length = usize::try_from(arguments[1].as_i64()?.max(0)).ok()?;
        let fill = match arguments.get(2) {
            Some(fill) => fill.as_str()?,
            None => " ",
        };
        if let Some((end, _)) = text.char_indices().nth(length) {
            return Some(Datum::String(&text[..end]));
        }
        if fill.is_empty() {
            return Some(Datum::String(text));
        }
        let (missing, chars) = (length - text.chars().count(), fill.chars().count());
        let (whole, part) = (missing / chars, missing % chars);
        let part = fill.char_indices().nth(part).map_or(fill, |(end, _)| &fill[..end]);
        let size = fill.len().saturating_mul(whole).saturating_add(text.len() + part.len());
        value_limit::text(size)?;
        let mut padded = ArenaString::with_capacity_in(size, arena);
        if side == PadSide::Right {
            padded.push_str(text);
        }
        push_repeated(&mut padded, fill, whole);
        padded.push_str(part);
        if side == PadSide::Left {
            padded.push_str(text);
        }
        Some(Datum::String(padded.into_bump_str()))
    }))
}

/// Appends a text several times; many copies are made by doubling.
fn push_repeated(target: &mut ArenaString<'_>, text: &str, times: usize) {
    /// The number of copies from which on doubling is faster.
    const DOUBLED_MIN: usize = 16;
    if times < DOUBLED_MIN {
        (0..times).for_each(|_| target.push_str(text));
    } else {
        target.push_str(&text.repeat(times));
    }
}

fn strcmp(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT, TEXT])?;
    let parameters = vec![DataType::String; 2];
    Ok(ScalarImplementation::new(parameters, DataType::Int, |arguments, _| {
        let order = arguments[0].as_str()?.as_bytes().cmp(arguments[1].as_str()?.as_bytes());
        Some(Datum::Int(i32::from(order as i8)))
    }))
}

fn test(arguments: &CallArguments<'_>, holds: fn(&str, &str) -> bool) -> Resolved {
    expect(arguments, &[TEXT, TEXT])?;
    let parameters = vec![DataType::String; 2];
    Ok(ScalarImplementation::new(parameters, DataType::Bool, move |arguments, _| {
        Some(Datum::Bool(holds(arguments[0].as_str()?, arguments[1].as_str()?)))
    }))
}

/// The ends of a text that are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CutEnds {
    Both,
    Start,
    End,
}

fn cut(arguments: &CallArguments<'_>, ends: CutEnds) -> Resolved {
    expect_between(arguments, 1, &[TEXT, TEXT])?;
    let parameters = vec![DataType::String; arguments.types.len()];
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, _| {
        let text = arguments[0].as_str()?;
        let characters = match arguments.get(1) {
            Some(characters) => Some(characters.as_str()?),
            None => None,
        };
        let is_cut = |character: char| match characters {
            Some(characters) => characters.contains(character),
            None => character.is_whitespace(),
        };
        Some(Datum::String(match ends {
            CutEnds::Both => text.trim_matches(is_cut),
            CutEnds::Start => text.trim_start_matches(is_cut),
            CutEnds::End => text.trim_end_matches(is_cut),
        }))
    }))
}

fn ucase(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT])?;
    let only_ascii = counts_bytes(arguments);
    let parameters = vec![DataType::String];
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let text = arguments[0].as_str()?;
        if only_ascii || text.is_ascii() {
            let copy = arena.alloc_str(text);
            copy.make_ascii_uppercase();
            return Some(Datum::String(copy));
        }
        let upper = text.chars().flat_map(char::to_uppercase);
        Some(Datum::String(ArenaString::from_iter_in(upper, arena).into_bump_str()))
    }))
}

fn lcase(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT])?;
    let only_ascii = counts_bytes(arguments);
    let parameters = vec![DataType::String];
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let text = arguments[0].as_str()?;
        if only_ascii || text.is_ascii() {
            let copy = arena.alloc_str(text);
            copy.make_ascii_lowercase();
            return Some(Datum::String(copy));
        }
        let lower = text.chars().flat_map(char::to_lowercase);
        Some(Datum::String(ArenaString::from_iter_in(lower, arena).into_bump_str()))
    }))
}

fn reverse(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT])?;
    let by_bytes = counts_bytes(arguments);
    let parameters = vec![DataType::String];
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let text = arguments[0].as_str()?;
        if by_bytes {
            let bytes = arena.alloc_slice_copy(text.as_bytes());
            bytes.reverse();
            return Some(Datum::String(repair(bytes, arena)));
        }
        let reversed = ArenaString::from_iter_in(text.chars().rev(), arena);
        Some(Datum::String(reversed.into_bump_str()))
    }))
}

fn replace(arguments: &CallArguments<'_>) -> Resolved {
    expect_between(arguments, 2, &[TEXT, TEXT, TEXT])?;
    let parameters = vec![DataType::String; arguments.types.len()];
    Ok(ScalarImplementation::new(parameters, DataType::String, |arguments, arena| {
        let (text, search) = (arguments[0].as_str()?, arguments[1].as_str()?);
        let replacement = match arguments.get(2) {
            Some(replacement) => replacement.as_str()?,
            None => "",
        };
        if search.is_empty() || !text.contains(search) {
            return Some(Datum::String(text));
        }
        let grown = replacement.len().saturating_sub(search.len());
        let grown = grown.saturating_mul(text.matches(search).count());
        value_limit::text(text.len().saturating_add(grown))?;
        let mut replaced = ArenaString::with_capacity_in(text.len(), arena);
        for (position, piece) in text.split(search).enumerate() {
            replaced.push_str(if position == 0 { "" } else { replacement });
            replaced.push_str(piece);
        }
        Some(Datum::String(replaced.into_bump_str()))
    }))
}

fn char(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[INTEGER])?;
    let by_bytes = counts_bytes(arguments);
    let parameters = vec![DataType::BigInt];
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let code = arguments[0].as_i64()?;
        if by_bytes {
            let byte = u8::try_from(code.rem_euclid(256)).ok()?;
            return Some(Datum::String(repair(&[byte], arena)));
        }
        let character = char::from_u32(u32::try_from(code).ok()?)?;
        Some(Datum::String(arena.alloc_str(character.encode_utf8(&mut [0; 4]))))
    }))
}

fn hex(arguments: &CallArguments<'_>) -> Resolved {
    let of_text = arguments.types.first() == Some(&DataType::String);
    expect(arguments, &[if of_text { TEXT } else { NUMBER }])?;
    let unpadded = counts_bytes(arguments);
    if of_text {
        let parameters = vec![DataType::String];
        return Ok(ScalarImplementation::new(
            parameters,
            DataType::String,
            move |arguments, arena| {
                let text = arguments[0].as_str()?;
                value_limit::text(text.len() * if unpadded { 8 } else { 2 })?;
                let mut digits = ArenaString::with_capacity_in(text.len() * 2, arena);
                for byte in text.bytes() {
                    match (unpadded, byte) {
                        (false, byte) => write!(digits, "{byte:02X}"),
                        (true, 0x80..) => write!(digits, "FFFFFF{byte:02X}"),
                        (true, byte) => write!(digits, "{byte:X}"),
                    }
                    .ok()?;
                }
                Some(Datum::String(digits.into_bump_str()))
            },
        ));
    }
    let parameters = arguments.types.to_vec();
    let own_width = arguments.settings.compatibility == Compatibility::OpenMldb;
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let number = match arguments[0].as_i64() {
            Some(number) => number,
            None => saturate_to_i64(arguments[0].as_f64()?.round()),
        };
        let mut digits = ArenaString::with_capacity_in(16, arena);
        match arguments[0] {
            Datum::SmallInt(number) if own_width => write!(digits, "{number:X}"),
            Datum::Int(number) if own_width => write!(digits, "{number:X}"),
            _ => write!(digits, "{number:X}"),
        }
        .ok()?;
        Some(Datum::String(digits.into_bump_str()))
    }))
}

fn unhex(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT])?;
    let repairs = counts_bytes(arguments);
    let parameters = vec![DataType::String];
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let digits = arguments[0].as_str()?.as_bytes();
        let mut bytes = ArenaVec::with_capacity_in(digits.len() / 2 + 1, arena);
        let (odd, pairs) = digits.split_at(digits.len() % 2);
        for pair in odd.chunks(1).chain(pairs.chunks(2)) {
            let byte = pair
                .iter()
                .try_fold(0, |byte, digit| Some(byte * 16 + char::from(*digit).to_digit(16)?))?;
            bytes.push(u8::try_from(byte).ok()?);
        }
        let bytes = bytes.into_bump_slice();
        match std::str::from_utf8(bytes) {
            Ok(text) => Some(Datum::String(text)),
            Err(_) => repairs.then(|| Datum::String(repair(bytes, arena))),
        }
    }))
}
