//! Decoding of literals: numbers with their suffixes, strings with their escapes.
//!
//! Pure functions on the text of one token; `start` is the position of the token, for the span of
//! an error.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};

use crate::ast::{Interval, IntervalUnit, Literal};
use crate::token::Rejection;

/// The text of [`i64::MIN`] without its sign, which is a literal only after a minus.
pub(crate) const BIGINT_MIN_DIGITS: &str = "9223372036854775808";

/// Returns the value of a number: `1`, `1L`, `1.5`, `1e3`, `1.5f`, `30d`.
pub(crate) fn number(text: &str, span: Span) -> Result<Literal> {
    debug_assert_eq!(span.end - span.start, text.len(), "the span is that of the number");
    let (digits, suffix) = text.split_at(digits_length(text));
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    match (suffix.to_ascii_lowercase().as_str(), is_whole) {
        ("", true) => integer(digits, span).map(|value| match i32::try_from(value) {
            Ok(value) => Literal::Int(value),
            Err(_) => Literal::BigInt(value),
        }),
        ("l", true) => integer(digits, span).map(Literal::BigInt),
        ("", false) => match digits.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Literal::Double(value)),
            _ => out_of_range(text, span, "DOUBLE").err(),
        },
        ("f", _) => match digits.parse::<f32>() {
            Ok(value) if value.is_finite() => Ok(Literal::Float(value)),
            _ => out_of_range(text, span, "FLOAT").err(),
        },
        (suffix, true) => match interval_unit(suffix) {
            Some(unit) => interval(digits, unit, span),
            None => malformed(text, span).err(),
        },
        _ => malformed(text, span).err(),
    }
}

/// Returns the length of a number without its suffix.
fn digits_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits =
        |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = digits(0);
    if bytes.get(length) == Some(&b'.') {
        length += 1;
        length += digits(length);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits((length + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}

fn integer(digits: &str, span: Span) -> Result<i64> {
    digits.parse().map_err(|_parse| Box::new(out_of_range(digits, span, "BIGINT")))
}

fn interval(digits: &str, unit: IntervalUnit, span: Span) -> Result<Literal> {
    let interval = Interval { amount: integer(digits, span)?, unit };
    match interval.milliseconds() {
        Some(_) => Ok(Literal::Interval(interval)),
        None => out_of_range(digits, span, "BIGINT (milliseconds)").err(),
    }
}

/// A duration with months, whose length depends on the time to which it is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CalendarDuration {
    pub(crate) months: i64,
    pub(crate) milliseconds: i64,
}

/// Returns whether a text is digits, with or without a sign.
pub(crate) fn is_whole_number(text: &str) -> bool {
    let text = text.trim();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the duration of a text: `5 minutes`, `1 day 2 hours`, `-30 days`, `90s`. `None` where it is none,
/// has months, or does not fit 64 bits.
pub(crate) fn duration(text: &str) -> Option<Literal> {
    let found = calendar_duration(text).filter(|duration| duration.months == 0)?;
    let milliseconds = found.milliseconds;
    let units = [IntervalUnit::Day, IntervalUnit::Hour, IntervalUnit::Minute, IntervalUnit::Second];
    let whole = units.into_iter().find_map(|unit| {
        let length = Interval { amount: 1, unit }.milliseconds()?;
        (milliseconds % length == 0).then(|| Interval { amount: milliseconds / length, unit })
    });
    Some(whole.map_or(Literal::BigInt(milliseconds), Literal::Interval))
}

/// Returns the duration of a text that may have months, quarters and years: `1 year -2 days`. `None` where
/// it is none, or does not fit 64 bits.
pub(crate) fn calendar_duration(text: &str) -> Option<CalendarDuration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total = CalendarDuration { months: 0, milliseconds: 0 };
    while !rest.is_empty() {
        let (sign, unsigned) = match rest.strip_prefix('-') {
            Some(unsigned) => (-1, unsigned.trim_start()),
            None => (1, rest.strip_prefix('+').unwrap_or(rest).trim_start()),
        };
        let (amount, others) = split_where(unsigned, |byte| byte.is_ascii_digit());
        let (unit, others) = split_where(others.trim_start(), |byte| byte.is_ascii_alphabetic());
        let amount = amount.parse::<i64>().ok()?.checked_mul(sign)?;
        let (sum, each) = match (unit_milliseconds(unit), unit_months(unit)) {
            (Some(each), _) => (&mut total.milliseconds, each),
            (None, Some(each)) => (&mut total.months, each),
            (None, None) => return None,
        };
        *sum = sum.checked_add(amount.checked_mul(each)?)?;
        rest = others.trim_start();
    }
    Some(total)
}

/// Returns the length of a unit of the calendar, in months.
fn unit_months(word: &str) -> Option<i64> {
    let word = word.to_ascii_lowercase();
    Some(match word.as_str() {
        "mon" | "mons" | "month" | "months" => 1,
        "quarter" | "quarters" => 3,
        "y" | "year" | "years" => 12,
        _ => return None,
    })
}

/// Splits a text after the bytes at its start that satisfy a condition.
fn split_where(text: &str, belongs: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(|byte| belongs(*byte)).count())
}

/// Returns the length of a unit of time; `None` for other words, and for months and years, whose length
/// differs.
fn unit_milliseconds(word: &str) -> Option<i64> {
    let word = word.to_ascii_lowercase();
    Some(match word.as_str() {
        "ms" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        "w" | "week" | "weeks" => 604_800_000,
        _ => return None,
    })
}

fn interval_unit(suffix: &str) -> Option<IntervalUnit> {
    match suffix {
        "s" => Some(IntervalUnit::Second),
        "m" => Some(IntervalUnit::Minute),
        "h" => Some(IntervalUnit::Hour),
        "d" => Some(IntervalUnit::Day),
        _ => None,
    }
}

fn out_of_range(text: &str, span: Span, type_name: &str) -> Diagnostic {
    let message = format!("value '{text}' is out of range for type {type_name}");
    Diagnostic::new(code::OUT_OF_RANGE, message).at(span)
}

fn malformed(text: &str, span: Span) -> Diagnostic {
    Diagnostic::new(code::SYNTAX_ERROR, format!("syntax error at or near `{text}`"))
        .with_hint("A number can end in L (BIGINT), f (FLOAT), or s, m, h, d (a duration).")
        .at(span)
}

/// Returns the name inside back-quotes, where a doubled back-quote is one.
pub(crate) fn identifier(quoted: &str) -> String {
    debug_assert!(quoted.len() >= 2, "a quoted name has both quotes");
    quoted[1..quoted.len() - 1].replace("``", "`")
}

/// Returns the text inside quotes, with escapes resolved; a doubled quote is one.
pub(crate) fn string(quoted: &str, start: usize) -> Result<String> {
    let quote = quoted.chars().next().expect("a string token has its quotes");
    debug_assert!(quoted.len() >= 2 && quoted.ends_with(quote), "a string has both quotes");
    let inner = &quoted[1..quoted.len() - 1];
    let mut text = String::with_capacity(inner.len());
    let mut at = 0;
    while let Some(ch) = inner[at..].chars().next() {
        at += ch.len_utf8();
        if ch == '\\' {
            let (value, length) = escape(&inner[at..]).ok_or_else(|| {
                let end = inner[at..].chars().next().map_or(at, |next| at + next.len_utf8());
                Box::new(malformed_escape(
                    &inner[at - 1..end],
                    Span::new(start + at, start + end + 1),
                ))
            })?;
            text.push(value);
            at += length;
        } else {
            text.push(ch);
            at += usize::from(ch == quote);
        }
    }
    Ok(text)
}

/// Returns the character that an escape means, and the length of the escape after its backslash.
fn escape(rest: &str) -> Option<(char, usize)> {
    let simple = |ch| Some((ch, 1));
    match rest.chars().next()? {
        'a' => simple('\u{7}'),
        'b' => simple('\u{8}'),
        'f' => simple('\u{c}'),
        'n' => simple('\n'),
        'r' => simple('\r'),
        't' => simple('\t'),
        'v' => simple('\u{b}'),
        ch @ ('\\' | '?' | '"' | '\'' | '`') => simple(ch),
        'x' | 'X' => coded(rest, 1, 2, 16).filter(|(ch, _)| ch.is_ascii()),
        'u' => coded(rest, 1, 4, 16),
        'U' => coded(rest, 1, 8, 16),
        '0'..='3' => coded(rest, 0, 3, 8).filter(|(ch, _)| ch.is_ascii()),
        _ => None,
    }
}

fn coded(rest: &str, skip: usize, count: usize, radix: u32) -> Option<(char, usize)> {
    let digits = rest.get(skip..skip + count)?;
    if !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let value = u32::from_str_radix(digits, radix).ok().and_then(char::from_u32)?;
    Some((value, skip + count))
}

fn malformed_escape(text: &str, span: Span) -> Diagnostic {
    Diagnostic::new(code::SYNTAX_ERROR, format!("invalid escape sequence `{text}`"))
        .with_hint("To include a backslash, write two backslashes.")
        .at(span)
}

/// Returns the error of a literal that only other dialects have.
pub(crate) fn rejected(rejection: Rejection) -> Diagnostic {
    let (what, hint) = match rejection {
        Rejection::Hexadecimal => ("a hexadecimal literal", "Write the number in decimal digits."),
        Rejection::Bytes => (
            "a bytes literal",
            "A binary type does not exist. Write a string, for example with hex digits: '…'.",
        ),
        Rejection::Raw => {
            ("a raw string literal", "Write a plain string, with each backslash doubled.")
        }
        Rejection::Prefixed => ("this form of string literal", "Write a string: '…'."),
        Rejection::Parameter => ("a named or numbered parameter", "Write `?`."),
    };
    Diagnostic::unsupported(format!("{what} is not supported")).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use lockstep_diagnostic::Span;

    use super::{calendar_duration, duration, number, string};
    use crate::ast::{Interval, IntervalUnit, Literal};

    fn check(text: &str, expected: &Literal) {
        assert_eq!(number(text, Span::new(0, text.len())).unwrap(), *expected, "{text}");
    }

    #[test]
    fn a_number_has_the_narrowest_type_that_its_form_allows() {
        check("2147483647", &Literal::Int(i32::MAX));
        check("2147483648", &Literal::BigInt(2_147_483_648));
        check("1L", &Literal::BigInt(1));
        check("1l", &Literal::BigInt(1));
        check("1.5", &Literal::Double(1.5));
        check("1.", &Literal::Double(1.0));
        check(".5", &Literal::Double(0.5));
        check("1e3", &Literal::Double(1000.0));
        check("1.5F", &Literal::Float(1.5));
        check("30D", &Literal::Interval(Interval { amount: 30, unit: IntervalUnit::Day }));
    }

    #[test]
    fn a_number_outside_its_type_is_an_error() {
        for text in [
            "9223372036854775808",
            "9223372036854775807d",
            "1e999",
            "1e39f",
            "99999999999999999999L",
        ] {
            let error = number(text, Span::new(0, text.len())).unwrap_err();
            assert_eq!(error.code, lockstep_diagnostic::code::OUT_OF_RANGE, "{text}");
        }
        for text in ["100ss", "1.5L", "1.5s", "1.2.3", "0b1", "1_000"] {
            let error = number(text, Span::new(0, text.len())).unwrap_err();
            assert_eq!(error.code, lockstep_diagnostic::code::SYNTAX_ERROR, "{text}");
        }
    }

    #[test]
    fn a_duration_may_be_negative_and_have_months() {
        let day = |amount| Some(Literal::Interval(Interval { amount, unit: IntervalUnit::Day }));
        assert_eq!(duration("-30 days"), day(-30));
        assert_eq!(duration("1 week -1 day"), day(6));
        assert_eq!(duration("+ 1d"), day(1));
        let months = |text| calendar_duration(text).map(|found| (found.months, found.milliseconds));
        assert_eq!(months("1 year -1 quarter 2 mons"), Some((11, 0)));
        assert_eq!(months("-1 month 1 second"), Some((-1, 1_000)));
        for text in ["", "-", "day", "1", "1 day 2", "1 fortnight", "1 month"] {
            assert_eq!(duration(text), None, "{text}");
        }
        assert_eq!(months("9223372036854775807 years"), None);
    }

    #[test]
    fn escapes_are_resolved() {
        for (quoted, expected) in [
            (r"'a\nb'", "a\nb"),
            (r"'\'\\\x41\101\u00e9'", "'\\AAé"),
            (r#""it's \"x\"""#, "it's \"x\""),
            ("'it''s'", "it's"),
            ("\"a\"\"b\"", "a\"b"),
            ("''", ""),
            ("'é'", "é"),
        ] {
            assert_eq!(string(quoted, 0).unwrap(), expected, "{quoted}");
        }
    }

    #[test]
    fn an_escape_that_does_not_exist_is_pointed_at() {
        let error = string(r"'ab\dc'", 10).unwrap_err();
        assert_eq!(error.span, Some(Span::new(13, 15)));
        assert_eq!(error.message, r"invalid escape sequence `\d`");
        assert!(string(r"'\xff'", 0).is_err());
        assert!(string(r"'\ud800'", 0).is_err());
    }
}
