//! The functions of texts and arrays of catalog queries.

use super::value::CatalogValue;

/// Calls a function of texts or arrays; `None` where it is another. NULL makes NULL, but for `concat`.
pub(super) fn call_on_texts(name: &str, values: &[CatalogValue]) -> Option<CatalogValue> {
    if let Some(found) = call_on_arrays(name, values) {
        return Some(found);
    }
    let text_at = |at: usize| values.get(at).map(CatalogValue::display).unwrap_or_default();
    let number_at = |at: usize| values.get(at).and_then(CatalogValue::number);
    let first = text_at(0);
    let found = match name {
        "concat" => {
            let texts: String = values.iter().map(CatalogValue::display).collect();
            return Some(CatalogValue::text(&texts));
        }
        "concat_ws" => {
            let parts = values.iter().skip(1).filter(|value| !value.is_null());
            let parts: Vec<String> = parts.map(CatalogValue::display).collect();
            return Some(CatalogValue::text(&parts.join(&first)));
        }
        "format" => return Some(CatalogValue::text(&formatted(values))),
        "lower" => first.to_lowercase(),
        "upper" => first.to_uppercase(),
        "quote_ident" => quoted_name(&first),
        "quote_literal" => format!("'{}'", first.replace('\'', "''")),
        "btrim" | "trim" | "ltrim" | "rtrim" => {
            let set = if values.len() > 1 { text_at(1) } else { " ".to_owned() };
            let is_cut = |character: char| set.contains(character);
            match name {
                "ltrim" => first.trim_start_matches(is_cut),
                "rtrim" => first.trim_end_matches(is_cut),
                _ => first.trim_matches(is_cut),
            }
            .to_owned()
        }
        "pg_size_pretty" => format!("{first} bytes"),
        // Another character before those of a pattern that stand for themselves.
        "like_escape" => first.replace(&text_at(1), "\\"),
        "replace" => first.replace(&text_at(1), &text_at(2)),
        "translate" => translated(&first, &text_at(1), &text_at(2)),
        "left" => part(&first, 1, number_at(1)),
        "right" => {
            let count = i64::try_from(first.chars().count()).unwrap_or(i64::MAX);
            part(&first, count - number_at(1).unwrap_or(0) + 1, None)
        }
        "substring" | "substr" => part(&first, number_at(1).unwrap_or(1), number_at(2)),
        "split_part" => {
            let at = number_at(2).and_then(|at| usize::try_from(at - 1).ok()).unwrap_or(0);
            first.split(&text_at(1)).nth(at).unwrap_or_default().to_owned()
        }
        "length" | "char_length" | "octet_length" | "strpos" | "ascii" => {
            if values.iter().any(CatalogValue::is_null) {
                return Some(CatalogValue::Null);
            }
            return Some(CatalogValue::count(match name {
                "strpos" => first.find(&text_at(1)).map_or(0, |at| first[..at].chars().count() + 1),
                "octet_length" => first.len(),
                "ascii" => first.chars().next().map_or(0, |character| character as usize),
                _ => first.chars().count(),
            }));
        }
        _ => return None,
    };
    let has_null = values.iter().any(CatalogValue::is_null);
    Some(if has_null { CatalogValue::Null } else { CatalogValue::text(&found) })
}

/// Calls a function of an array.
fn call_on_arrays(name: &str, values: &[CatalogValue]) -> Option<CatalogValue> {
    let items = || values.first().and_then(CatalogValue::elements);
    let first = match values.first() {
        Some(CatalogValue::Array(array)) => array.first,
        _ => 1,
    };
    let number = |found: Option<i64>| found.map_or(CatalogValue::Null, CatalogValue::Number);
    let length = |items: &[CatalogValue]| i64::try_from(items.len()).ok().filter(|n| *n > 0);
    Some(match name {
        "array_to_string" => {
            let Some(items) = items() else { return Some(CatalogValue::Null) };
            let by = values.get(1).map(CatalogValue::display).unwrap_or_default();
            let null = values.get(2).map(CatalogValue::display);
            let texts = items.iter().filter_map(|item| {
                if item.is_null() { null.clone() } else { Some(item.display()) }
            });
            CatalogValue::text(&texts.collect::<Vec<_>>().join(&by))
        }
        "parse_ident" => {
            let text = values.first()?.display();
            let part = |part: &str| match part.strip_prefix('"') {
                Some(quoted) => CatalogValue::text(quoted.trim_end_matches('"')),
                None => CatalogValue::text(&part.to_lowercase()),
            };
            CatalogValue::array(text.split('.').map(part).collect())
        }
        "string_to_array" | "regexp_split_to_array" => match (values.first(), values.get(1)) {
            (Some(text), Some(by)) if !text.is_null() => {
                let (text, by) = (text.display(), by.display());
                let parts = text.split(&by).filter(|_| !text.is_empty());
                CatalogValue::array(parts.map(CatalogValue::text).collect())
            }
            _ => CatalogValue::Null,
        },
        "array_length" | "cardinality" => number(items().and_then(|items| length(&items))),
        "array_upper" => {
            number(items().and_then(|items| length(&items)).map(|count| count + first - 1))
        }
        "array_lower" => number(items().and_then(|items| length(&items)).map(|_| first)),
        "array_position" => {
            let wanted = values.get(1)?;
            let items = items().unwrap_or_default();
            let is_wanted = |item: &CatalogValue| {
                item.compare(wanted) == Some(std::cmp::Ordering::Equal) && !item.is_null()
            };
            number((first..).zip(&items).find(|(_, item)| is_wanted(item)).map(|(at, _)| at))
        }
        "array_append" | "array_cat" | "array_prepend" | "array_remove" => {
            let (Some(mut items), Some(other)) = (items(), values.get(1)) else {
                return Some(CatalogValue::Null);
            };
            match (name, other.elements()) {
                ("array_remove", _) => {
                    items.retain(|i| i.compare(other) != Some(std::cmp::Ordering::Equal));
                }
                ("array_cat", Some(others)) => items.extend(others),
                _ => items.push(other.clone()),
            }
            CatalogValue::array(items)
        }
        _ => return None,
    })
}

/// Returns the characters of a text from a number, which counts from 1.
fn part(text: &str, from: i64, count: Option<i64>) -> String {
    let until = count.map_or(i64::MAX, |count| from.saturating_add(count));
    let numbered = (1_i64..).zip(text.chars());
    numbered.filter(|(at, _)| *at >= from && *at < until).map(|(_, c)| c).collect()
}

fn translated(text: &str, from: &str, to: &str) -> String {
    let to: Vec<char> = to.chars().collect();
    text.chars()
        .filter_map(|character| match from.chars().position(|c| c == character) {
            Some(at) => to.get(at).copied(),
            None => Some(character),
        })
        .collect()
}

/// Returns a name as SQL takes it: in quotes where it has other characters than lower-case letters.
fn quoted_name(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Computes `format('%s.%I', …)`.
fn formatted(values: &[CatalogValue]) -> String {
    let Some(pattern) = values.first().map(CatalogValue::display) else { return String::new() };
    let mut arguments = values.iter().skip(1).map(CatalogValue::display);
    let (mut text, mut characters) = (String::new(), pattern.chars());
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('s') => text.push_str(&arguments.next().unwrap_or_default()),
            Some('I') => text.push_str(&quoted_name(&arguments.next().unwrap_or_default())),
            Some('L') => {
                let argument = arguments.next().unwrap_or_default();
                text.push_str(&format!("'{}'", argument.replace('\'', "''")));
            }
            other => text.extend(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{CatalogValue, call_on_texts};

    #[test]
    fn texts_are_changed_as_in_postgresql() {
        let text = |text: &str| CatalogValue::text(text);
        let number = CatalogValue::Number;
        for (name, values, expected) in [
            ("substring", vec![text("abcdef"), number(2), number(3)], text("bcd")),
            ("split_part", vec![text("a.b.c"), text("."), number(2)], text("b")),
            ("btrim", vec![text("\"a\""), text("\"")], text("a")),
            ("ltrim", vec![text("  a ")], text("a ")),
            ("quote_ident", vec![text("a B")], text("\"a B\"")),
            ("replace", vec![text("a-b"), text("-"), CatalogValue::Null], CatalogValue::Null),
            ("concat", vec![text("a"), CatalogValue::Null, number(1)], text("a1")),
            ("strpos", vec![text("abc"), text("c")], number(3)),
            ("format", vec![text("%I.%s%%"), text("A"), number(1)], text("\"A\".1%")),
            ("right", vec![text("abc"), number(2)], text("bc")),
            ("array_to_string", vec![text("{a,NULL,b}"), text("-")], text("a-b")),
            ("array_upper", vec![text("{a,b}"), number(1)], number(2)),
            ("array_length", vec![text("{}"), number(1)], CatalogValue::Null),
        ] {
            assert_eq!(call_on_texts(name, &values), Some(expected), "{name}");
        }
        assert_eq!(call_on_texts("nothing", &[]), None);
    }
}
