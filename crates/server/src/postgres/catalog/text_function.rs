//! The functions of texts and arrays of catalog queries.
//!
//! Each takes time in proportion to its arguments and its result. One whose result may be longer than its
//! arguments checks the limit before it builds the result.

use std::collections::{HashMap, HashSet};

use lockstep_diagnostic::Result;

use super::{
    limits::{LimitedText, check_element, check_items, check_text},
    value::CatalogValue,
};

/// Calls a function of texts or arrays; `None` where it is another. NULL makes NULL, but for `concat`.
pub(super) fn call_on_texts(name: &str, values: &[CatalogValue]) -> Result<Option<CatalogValue>> {
    if let Some(found) = call_on_arrays(name, values)? {
        return Ok(Some(found));
    }
    let first = values.first().map(CatalogValue::shown).unwrap_or_default();
    let shown = values.iter().map(CatalogValue::shown);
    let found = match name {
        "concat" => LimitedText::default().join(shown, "")?.value(),
        "concat_ws" => {
            let parts = values.iter().skip(1).filter(|value| !value.is_null());
            LimitedText::default().join(parts.map(CatalogValue::shown), &first)?.value()
        }
        "format" => formatted(values)?.value(),
        "length" | "char_length" | "octet_length" | "strpos" | "ascii" => {
            if values.iter().any(CatalogValue::is_null) {
                return Ok(Some(CatalogValue::Null));
            }
            let wanted = values.get(1).map(CatalogValue::shown).unwrap_or_default();
            CatalogValue::count(match name {
                "strpos" => first.find(&*wanted).map_or(0, |at| first[..at].chars().count() + 1),
                "octet_length" => first.len(),
                "ascii" => first.chars().next().map_or(0, |character| character as usize),
                _ => first.chars().count(),
            })
        }
        _ => {
            let Some(changed) = changed_text(name, &first, values)? else { return Ok(None) };
            let has_null = values.iter().any(CatalogValue::is_null);
            if has_null { CatalogValue::Null } else { CatalogValue::text(&changed) }
        }
    };
    Ok(Some(found))
}

/// Calls a function that makes a text of another.
fn changed_text(name: &str, first: &str, values: &[CatalogValue]) -> Result<Option<String>> {
    let text_at = |at: usize| values.get(at).map(CatalogValue::shown).unwrap_or_default();
    let number_at = |at: usize| values.get(at).and_then(CatalogValue::number);
    Ok(Some(match name {
        "lower" => first.to_lowercase(),
        "upper" => first.to_uppercase(),
        "quote_ident" => quoted_name(first),
        "quote_literal" => format!("'{}'", first.replace('\'', "''")),
        "btrim" | "trim" | "ltrim" | "rtrim" => {
            let set: HashSet<char> = match values.get(1) {
                Some(set) => set.shown().chars().collect(),
                None => HashSet::from([' ']),
            };
            let is_cut = |character: char| set.contains(&character);
            match name {
                "ltrim" => first.trim_start_matches(is_cut),
                "rtrim" => first.trim_end_matches(is_cut),
                _ => first.trim_matches(is_cut),
            }
            .to_owned()
        }
        "pg_size_pretty" => format!("{first} bytes"),
        // Another character before those of a pattern that stand for themselves.
        "like_escape" => replaced(first, &text_at(1), "\\")?,
        "replace" => replaced(first, &text_at(1), &text_at(2))?,
        "translate" => translated(first, &text_at(1), &text_at(2)),
        "left" => part(first, 1, number_at(1)),
        "right" => {
            let count = i64::try_from(first.chars().count()).unwrap_or(i64::MAX);
            let from = count.saturating_sub(number_at(1).unwrap_or(0)).saturating_add(1);
            part(first, from, None)
        }
        "substring" | "substr" => part(first, number_at(1).unwrap_or(1), number_at(2)),
        "split_part" => {
            let at = number_at(2).and_then(|at| usize::try_from(at.checked_sub(1)?).ok());
            first.split(&*text_at(1)).nth(at.unwrap_or(0)).unwrap_or_default().to_owned()
        }
        _ => return Ok(None),
    }))
}

/// Calls a function of an array.
fn call_on_arrays(name: &str, values: &[CatalogValue]) -> Result<Option<CatalogValue>> {
    let first = match values.first() {
        Some(CatalogValue::Array(array)) => array.first,
        _ => 1,
    };
    Ok(Some(match name {
        "array_to_string" => {
            let Some(items) = items_of(values)? else { return Ok(Some(CatalogValue::Null)) };
            let by = values.get(1).map(CatalogValue::shown).unwrap_or_default();
            let null = values.get(2).map(CatalogValue::shown);
            let texts = items.iter().filter_map(|item| match item {
                CatalogValue::Null => null.clone(),
                item => Some(item.shown()),
            });
            LimitedText::default().join(texts, &by)?.value()
        }
        "parse_ident" => {
            let Some(text) = values.first() else { return Ok(None) };
            let part = |part: &str| match part.strip_prefix('"') {
                Some(quoted) => CatalogValue::text(quoted.trim_end_matches('"')),
                None => CatalogValue::text(&part.to_lowercase()),
            };
            array_of_parts(text.shown().split('.').map(part))?
        }
        "string_to_array" | "regexp_split_to_array" => match (values.first(), values.get(1)) {
            (Some(text), Some(by)) if !text.is_null() => {
                let (text, by) = (text.shown(), by.shown());
                array_of_parts(text_parts(&text, &by).filter(|_| !text.is_empty()))?
            }
            _ => CatalogValue::Null,
        },
        "array_length" | "cardinality" | "array_upper" | "array_lower" => {
            let length = items_of(values)?.and_then(|items| i64::try_from(items.len()).ok());
            let found = length.filter(|length| *length > 0).map(|length| match name {
                "array_upper" => length + first - 1,
                "array_lower" => first,
                _ => length,
            });
            found.map_or(CatalogValue::Null, CatalogValue::Number)
        }
        "array_position" => array_position(values, first)?,
        "array_append" | "array_cat" | "array_prepend" | "array_remove" => {
            changed_array(name, values)?
        }
        _ => return Ok(None),
    }))
}

/// Returns the elements of the first argument.
fn items_of(values: &[CatalogValue]) -> Result<Option<Vec<CatalogValue>>> {
    values.first().map_or(Ok(None), CatalogValue::elements)
}

/// Returns the parts of a text between separators; an empty one separates nothing.
pub(super) fn text_parts<'t>(text: &'t str, by: &'t str) -> impl Iterator<Item = CatalogValue> {
    let (whole, parts) = match by.is_empty() {
        true => (Some(text), None),
        false => (None, Some(text.split(by))),
    };
    whole.into_iter().chain(parts.into_iter().flatten()).map(CatalogValue::text)
}

fn array_of_parts(parts: impl Iterator<Item = CatalogValue>) -> Result<CatalogValue> {
    let mut items = Vec::new();
    for part in parts {
        items.push(part);
        check_items(items.len())?;
    }
    Ok(CatalogValue::array(items))
}

/// Computes `array_position(array, element)`.
fn array_position(values: &[CatalogValue], first: i64) -> Result<CatalogValue> {
    let Some(wanted) = values.get(1) else { return Ok(CatalogValue::Null) };
    let items = items_of(values)?.unwrap_or_default();
    for (at, item) in items.iter().enumerate() {
        check_element(at)?;
        if !item.is_null() && item.compare(wanted) == Some(std::cmp::Ordering::Equal) {
            let at = i64::try_from(at).unwrap_or(i64::MAX);
            return Ok(CatalogValue::Number(at.saturating_add(first)));
        }
    }
    Ok(CatalogValue::Null)
}

/// Computes a function that adds elements to an array or removes them.
fn changed_array(name: &str, values: &[CatalogValue]) -> Result<CatalogValue> {
    let (Some(items), Some(other)) = (items_of(values)?, values.get(1)) else {
        return Ok(CatalogValue::Null);
    };
    let mut kept = items;
    match (name, other.elements()?) {
        ("array_remove", _) => {
            let mut left = Vec::with_capacity(kept.len());
            for (at, item) in kept.into_iter().enumerate() {
                check_element(at)?;
                if item.compare(other) != Some(std::cmp::Ordering::Equal) {
                    left.push(item);
                }
            }
            kept = left;
        }
        ("array_cat", Some(others)) => kept.extend(others),
        _ => kept.push(other.clone()),
    }
    Ok(CatalogValue::array(kept))
}

/// Returns the characters of a text from a number, which counts from 1.
fn part(text: &str, from: i64, count: Option<i64>) -> String {
    let until = count.map_or(i64::MAX, |count| from.saturating_add(count));
    let numbered = (1_i64..).zip(text.chars());
    numbered.filter(|(at, _)| *at >= from && *at < until).map(|(_, c)| c).collect()
}

/// Computes `replace(text, from, to)`; an empty `from` is nowhere.
fn replaced(text: &str, from: &str, to: &str) -> Result<String> {
    if from.is_empty() {
        return Ok(text.to_owned());
    }
    let count = text.matches(from).count();
    check_text((text.len() - count * from.len()).saturating_add(count.saturating_mul(to.len())))?;
    Ok(text.replace(from, to))
}

fn translated(text: &str, from: &str, to: &str) -> String {
    let mut to = to.chars();
    let mut by_character: HashMap<char, Option<char>> = HashMap::new();
    for character in from.chars() {
        let other = to.next();
        // The first of equal characters counts.
        by_character.entry(character).or_insert(other);
    }
    let changed = |character: char| match by_character.get(&character) {
        Some(other) => *other,
        None => Some(character),
    };
    text.chars().filter_map(changed).collect()
}

/// Returns a name as SQL takes it: in quotes where it has other characters than lower-case letters.
fn quoted_name(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Computes `format('%s.%I', …)`.
fn formatted(values: &[CatalogValue]) -> Result<LimitedText> {
    let mut text = LimitedText::default();
    let Some(pattern) = values.first().map(CatalogValue::shown) else { return Ok(text) };
    let mut arguments = values.iter().skip(1).map(CatalogValue::shown);
    let mut rest = &*pattern;
    while let Some((before, after)) = rest.split_once('%') {
        text.push(before)?;
        let mut characters = after.chars();
        match characters.next() {
            Some('s') => text.push(&arguments.next().unwrap_or_default())?,
            Some('I') => text.push(&quoted_name(&arguments.next().unwrap_or_default()))?,
            Some('L') => {
                let argument = arguments.next().unwrap_or_default();
                text.push(&format!("'{}'", argument.replace('\'', "''")))?;
            }
            Some(other) => text.push(other.encode_utf8(&mut [0; 4]))?,
            None => {}
        }
        rest = characters.as_str();
    }
    text.push(rest)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{CatalogValue, call_on_texts};

    fn call(name: &str, values: &[CatalogValue]) -> Option<CatalogValue> {
        call_on_texts(name, values).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[test]
    fn texts_are_changed_as_in_postgresql() {
        let text = |text: &str| CatalogValue::text(text);
        let number = CatalogValue::Number;
        for (name, values, expected) in [
            ("substring", vec![text("abcdef"), number(2), number(3)], text("bcd")),
            ("split_part", vec![text("a.b.c"), text("."), number(2)], text("b")),
            ("split_part", vec![text("a.b.c"), text("."), number(i64::MIN)], text("a")),
            ("btrim", vec![text("\"a\""), text("\"")], text("a")),
            ("ltrim", vec![text("  a ")], text("a ")),
            ("quote_ident", vec![text("a B")], text("\"a B\"")),
            ("replace", vec![text("a-b"), text("-"), CatalogValue::Null], CatalogValue::Null),
            ("replace", vec![text("a-b"), text("-"), text("++")], text("a++b")),
            ("replace", vec![text("ab"), text(""), text("-")], text("ab")),
            ("translate", vec![text("abcab"), text("aba"), text("xy")], text("xycxy")),
            ("translate", vec![text("abc"), text("ac"), text("x")], text("xb")),
            ("concat", vec![text("a"), CatalogValue::Null, number(1)], text("a1")),
            ("strpos", vec![text("abc"), text("c")], number(3)),
            ("format", vec![text("%I.%s%%"), text("A"), number(1)], text("\"A\".1%")),
            ("right", vec![text("abc"), number(2)], text("bc")),
            ("right", vec![text("abc"), number(i64::MIN)], text("")),
            ("array_to_string", vec![text("{a,NULL,b}"), text("-")], text("a-b")),
            ("array_upper", vec![text("{a,b}"), number(1)], number(2)),
            ("array_position", vec![text("{a,b}"), text("b")], number(2)),
            ("array_length", vec![text("{}"), number(1)], CatalogValue::Null),
            ("cardinality", vec![CatalogValue::array(vec![number(1)])], number(1)),
        ] {
            assert_eq!(call(name, &values), Some(expected), "{name}");
        }
        assert_eq!(call("nothing", &[]), None);
        let parts = call("string_to_array", &[text("a,b"), text("")]);
        assert_eq!(parts, Some(CatalogValue::array(vec![text("a,b")])));
    }

    #[test]
    fn texts_and_arrays_that_would_be_too_long_are_refused() {
        let text = |text: &str| CatalogValue::text(text);
        let long = text(&"a".repeat(1 << 20));
        let (comma, commas) = (text(","), text(&",".repeat(1 << 18)));
        for (name, values) in [
            ("replace", vec![long.clone(), text("a"), long.clone()]),
            ("concat", vec![long.clone(), long.clone(), comma.clone()]),
            ("concat_ws", vec![long.clone(), comma.clone(), comma.clone(), comma.clone(), comma]),
            ("format", vec![text("%s%s%L"), long.clone(), long.clone(), long.clone()]),
            ("string_to_array", vec![commas, text(",")]),
            ("parse_ident", vec![text(&".".repeat(1 << 18))]),
            ("array_to_string", vec![text("{a,b,c,d}"), long]),
        ] {
            let found = call_on_texts(name, &values).map_err(|error| error.code);
            assert_eq!(found.err(), Some("54000"), "{name}");
        }
    }
}
