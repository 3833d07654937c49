//! Functions of arrays and maps.

use bumpalo::collections::{String as ArenaString, Vec as ArenaVec};
use lockstep_row::{Arena, DataType, Datum};

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation, SignatureError,
    comparison::is_same,
    signature::{INTEGER, TEXT, expect_count, expect_type},
};
use crate::{
    Compatibility,
    cast::{common_type, common_type_strict},
    value_limit::{self, LIST_ITEMS_MAX},
};

macro_rules! array {
    ($name:literal, $aliases:expr, $signature:literal, $doc:literal, $examples:expr, $resolve:expr) => {
        ScalarFunction {
            name: $name,
            aliases: $aliases,
            category: "arrays and maps",
            signature: $signature,
            doc: $doc,
            examples: $examples,
            resolve: $resolve,
        }
    };
}

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    array!(
        "array",
        &[],
        "array(value, …) → ARRAY",
        "Returns an array of the values, converted to their common type; the same as `[a, b]`.",
        &[("array(1, 2.5)", "[1, 2.5]"), ("array()", "[]")],
        array
    ),
    array!(
        "element_at",
        &["at"],
        "element_at(array, position) or element_at(map, key) → the element's or value's type",
        "Returns the element of `array` at `position`, counted from 0, or the value of `key` in `map` (of the first entry if `key` occurs more than once). NULL if `position` or `key` does not exist. The same as `a[b]`.",
        &[
            ("element_at([10, 20], 1)", "20"),
            ("element_at(map('a', 1), 'b')", "NULL"),
            ("map('a', 1, 'a', 2)['a']", "1")
        ],
        element_at
    ),
    array!(
        "size",
        &["cardinality"],
        "size(array or map) → INT",
        "Returns the number of elements of an array or entries of a map.",
        &[("size(split('a,b', ','))", "2"), ("size(map())", "0")],
        size
    ),
    array!(
        "split_array",
        &[],
        "split_array(text STRING, delimiter STRING) → ARRAY<STRING>",
        "Returns the parts of `text` between occurrences of `delimiter`, which is not a regular expression. Empty parts are NULL. An empty `delimiter` splits `text` into characters.",
        &[("split_array('a,,b', ',')", "[a, NULL, b]"), ("split_array('a||b', '||')", "[a, b]")],
        split_array
    ),
    array!(
        "array_join",
        &[],
        "array_join(array ARRAY<STRING>, delimiter STRING) → STRING",
        "Returns the concatenation of the elements of `array` that are not NULL, with `delimiter` between them. A NULL `delimiter` is treated as empty.",
        &[
            ("array_join(['1', NULL, '4'], '-')", "1-4"),
            ("array_join([NULL, 'b'], ',')", "b"),
            ("array_join(['1', '2'], NULL)", "12")
        ],
        array_join
    ),
    array!(
        "array_contains",
        &[],
        "array_contains(array ARRAY<T>, value T) → BOOL",
        "Returns whether an element of `array` equals `value`; for a NULL `value`, whether an element is NULL.",
        &[
            ("array_contains([1, 2], 2)", "true"),
            ("array_contains([1, NULL], NULL)", "true"),
            ("array_contains(['a'], 'b')", "false")
        ],
        |arguments| contains(arguments, 0, 1)
    ),
    array!(
        "isin",
        &[],
        "isin(value T, array ARRAY<T>) → BOOL",
        "Returns `array_contains(array, value)`.",
        &[("isin(2, [2, 2])", "true"), ("isin(3, [NULL, 1])", "false")],
        |arguments| contains(arguments, 1, 0)
    ),
    array!(
        "array_combine",
        &[],
        "array_combine(separator STRING, array or value, …) → ARRAY<STRING>",
        "Returns all combinations of one element from each array, in order, as strings with `separator` between the elements. A value is treated as an array of one element. Combinations that contain NULL are omitted, and a NULL `separator` is treated as empty. More than 131,072 combinations or 16 MiB fail with the error `54000`.",
        &[
            ("array_combine('-', [1, 2], ['3', '4'])", "[1-3, 1-4, 2-3, 2-4]"),
            ("array_combine('-', 1, [2, NULL])", "[1-2]")
        ],
        array_combine
    ),
    array!(
        "map",
        &[],
        "map(key, value, …) → MAP",
        "Returns a map of the pairs. Keys are converted to their common type, and so are values. `map()` is empty.",
        &[("map('a', 1, 'b', NULL)", "{a: 1, b: NULL}")],
        map
    ),
    array!(
        "map_keys",
        &[],
        "map_keys(map) → ARRAY",
        "Returns the keys of `map`, in the order in which they were specified.",
        &[("map_keys(map(1, 'a', 2, 'b'))", "[1, 2]")],
        map_keys
    ),
    array!(
        "map_values",
        &[],
        "map_values(map) → ARRAY",
        "Returns the values of `map`, in the order of its keys.",
        &[("map_values(map(1, 'a', 2, 'b'))", "[a, b]")],
        map_values
    ),
];

/// Returns the element type of an argument that must be an array.
fn element_type<'a>(
    arguments: &'a CallArguments<'_>,
    index: usize,
) -> Result<&'a DataType, SignatureError> {
    match &arguments.types[index] {
        DataType::Array(element) => Ok(element),
        DataType::Null => Ok(&DataType::Null),
        found => Err(SignatureError::Type {
            position: index + 1,
            expected: "an ARRAY".to_owned(),
            found: found.clone(),
        }),
    }
}

fn map_types<'a>(
    arguments: &'a CallArguments<'_>,
    index: usize,
) -> Result<(&'a DataType, &'a DataType), SignatureError> {
    match &arguments.types[index] {
        DataType::Map(key, value) => Ok((key, value)),
        DataType::Null => Ok((&DataType::Null, &DataType::Null)),
        found => Err(SignatureError::Type {
            position: index + 1,
            expected: "a MAP".to_owned(),
            found: found.clone(),
        }),
    }
}

fn no_common_type(what: &str) -> SignatureError {
    SignatureError::Mismatch(format!("the {what} have no common type"))
}

fn array(arguments: &CallArguments<'_>) -> Resolved {
    let element = common_type(arguments.types).ok_or_else(|| no_common_type("elements"))?;
    let parameters = vec![element.clone(); arguments.types.len()];
    let returns = DataType::Array(Box::new(element));
    let form = ScalarImplementation::new(parameters, returns, |arguments, arena| {
        Some(Datum::Array(arena.alloc_slice_copy(arguments)))
    });
    Ok(form.passing_nulls())
}

fn element_at(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, 2)?;
    if let DataType::Map(key, value) = &arguments.types[0] {
        let wanted = &arguments.types[1];
        let key_type = common_type_strict(key, wanted).ok_or_else(|| SignatureError::Type {
            position: 2,
            expected: key.to_string(),
            found: wanted.clone(),
        })?;
        // Keys compare by value whatever their width, so only a NULL literal needs the key's type.
        let wanted = if *wanted == DataType::Null { key_type } else { wanted.clone() };
        let parameters = vec![arguments.types[0].clone(), wanted];
        let value = (**value).clone();
        return Ok(ScalarImplementation::new(parameters, value, |arguments, _| {
            let Datum::Map(entries) = arguments[0] else { return None };
            entries.iter().find(|(key, _)| is_same(*key, arguments[1])).map(|(_, value)| *value)
        }));
    }
    let element = element_type(arguments, 0)?.clone();
    expect_type(arguments, 1, INTEGER)?;
    let parameters = vec![arguments.types[0].clone(), DataType::BigInt];
    Ok(ScalarImplementation::new(parameters, element, |arguments, _| {
        let Datum::Array(items) = arguments[0] else { return None };
        items.get(usize::try_from(arguments[1].as_i64()?).ok()?).copied()
    }))
}

fn size(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 1, 1)?;
    if !matches!(arguments.types[0], DataType::Map(_, _)) {
        element_type(arguments, 0)?;
    }
    let parameters = arguments.types.to_vec();
    Ok(ScalarImplementation::new(parameters, DataType::Int, |arguments, _| {
        let count = match arguments[0] {
            Datum::Array(items) => items.len(),
            Datum::Map(entries) => entries.len(),
            _ => return None,
        };
        Some(Datum::Int(i32::try_from(count).ok()?))
    }))
}

fn split_array(arguments: &CallArguments<'_>) -> Resolved {
    super::signature::expect(arguments, &[TEXT, TEXT])?;
    let parameters = vec![DataType::String; 2];
    let returns = DataType::Array(Box::new(DataType::String));
    Ok(ScalarImplementation::new(parameters, returns, |arguments, arena| {
        let (text, delimiter) = (arguments[0].as_str()?, arguments[1].as_str()?);
        let mut pieces = ArenaVec::new_in(arena);
        if delimiter.is_empty() {
            let bounds = |(at, c): (usize, char)| Datum::String(&text[at..at + c.len_utf8()]);
            pieces.extend(text.char_indices().map(bounds).take(LIST_ITEMS_MAX + 1));
        } else {
            pieces.extend(text.split(delimiter).take(LIST_ITEMS_MAX + 1).map(
                |piece| match piece {
                    "" => Datum::Null,
                    piece => Datum::String(piece),
                },
            ));
        }
        value_limit::list(pieces.len(), 0)?;
        Some(Datum::Array(pieces.into_bump_slice()))
    }))
}

fn array_join(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, 2)?;
    let element = element_type(arguments, 0)?;
    if !matches!(element, DataType::String | DataType::Null) {
        return Err(SignatureError::Type {
            position: 1,
            expected: "ARRAY<STRING>".to_owned(),
            found: arguments.types[0].clone(),
        });
    }
    expect_type(arguments, 1, TEXT)?;
    // OpenMLDB writes the delimiter before every element but the first, NULL or not.
    let keeps_leading = arguments.settings.compatibility == Compatibility::OpenMldb;
    let parameters = vec![DataType::Array(Box::new(DataType::String)), DataType::String];
    let form = ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let Datum::Array(items) = arguments[0] else { return None };
        let delimiter = arguments[1].as_str().unwrap_or_default();
        let texts: usize = items.iter().filter_map(Datum::as_str).map(str::len).sum();
        let delimiters = delimiter.len() * items.len().saturating_sub(1);
        value_limit::text(texts + delimiters)?;
        let mut joined = ArenaString::new_in(arena);
        let mut is_first = true;
        for (position, item) in items.iter().enumerate() {
            let Datum::String(text) = item else { continue };
            let leads = if keeps_leading { position == 0 } else { is_first };
            joined.push_str(if leads { "" } else { delimiter });
            joined.push_str(text);
            is_first = false;
        }
        Some(Datum::String(joined.into_bump_str()))
    });
    Ok(form.passing_nulls())
}

fn contains(arguments: &CallArguments<'_>, array: usize, value: usize) -> Resolved {
    expect_count(arguments, 2, 2)?;
    let element = element_type(arguments, array)?;
    let wanted = &arguments.types[value];
    let common = common_type_strict(element, wanted).ok_or_else(|| SignatureError::Type {
        position: value + 1,
        expected: element.to_string(),
        found: wanted.clone(),
    })?;
    let mut parameters = vec![common.clone(); 2];
    parameters[array] = DataType::Array(Box::new(common));
    let form = ScalarImplementation::new(parameters, DataType::Bool, move |arguments, _| {
        let Datum::Array(items) = arguments[array] else { return None };
        Some(Datum::Bool(items.iter().any(|item| is_same(*item, arguments[value]))))
    });
    Ok(form.passing_nulls())
}

fn array_combine(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, usize::MAX)?;
    expect_type(arguments, 0, TEXT)?;
    let texts = DataType::Array(Box::new(DataType::String));
    let mut parameters = vec![DataType::String];
    for (index, data_type) in arguments.types.iter().enumerate().skip(1) {
        parameters.push(match data_type {
            DataType::Array(element) if !is_nested(element) => texts.clone(),
            found if is_nested(found) => {
                return Err(SignatureError::Type {
                    position: index + 1,
                    expected: "a scalar value or an ARRAY of scalar values".to_owned(),
                    found: found.clone(),
                });
            }
            _ => DataType::String,
        });
    }
    let form = ScalarImplementation::new(parameters, texts, |arguments, arena| {
        let separator = arguments[0].as_str().unwrap_or_default();
        combine(separator, &arguments[1..], arena)
    });
    Ok(form.passing_nulls())
}

fn is_nested(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Array(_) | DataType::Map(_, _))
}

/// Builds the list of all combinations, in which the items of the last array change fastest.
fn combine<'a>(separator: &str, parts: &[Datum<'a>], arena: &'a Arena) -> Option<Datum<'a>> {
    fn items<'p, 'a>(part: &'p Datum<'a>) -> &'p [Datum<'a>] {
        match part {
            Datum::Array(items) => items,
            single => std::slice::from_ref(single),
        }
    }
    let counted = |count: usize, part| count.saturating_mul(items(part).len());
    let count = parts.iter().fold(1_usize, counted);
    value_limit::list(count, 0)?;
    let mut bytes = 0;
    let mut combinations = ArenaVec::new_in(arena);
    'combination: for number in 0..count {
        let mut text = ArenaString::new_in(arena);
        let mut divisor = count;
        for (position, part) in parts.iter().enumerate() {
            let items = items(part);
            divisor /= items.len();
            let Datum::String(item) = items[number / divisor % items.len()] else {
                continue 'combination;
            };
            text.push_str(if position == 0 { "" } else { separator });
            text.push_str(item);
        }
        bytes += text.len();
        value_limit::list(count, bytes)?;
        combinations.push(Datum::String(text.into_bump_str()));
    }
    Some(Datum::Array(combinations.into_bump_slice()))
}

fn map(arguments: &CallArguments<'_>) -> Resolved {
    if !arguments.types.len().is_multiple_of(2) {
        return Err(SignatureError::Count {
            expected: "an even number of arguments".to_owned(),
            found: arguments.types.len(),
        });
    }
    let key = common_type(arguments.types.iter().step_by(2));
    let key = key.ok_or_else(|| no_common_type("keys"))?;
    let value = common_type(arguments.types.iter().skip(1).step_by(2));
    let value = value.ok_or_else(|| no_common_type("values"))?;
    let parameters =
        [&key, &value].into_iter().cycle().take(arguments.types.len()).cloned().collect();
    let returns = DataType::Map(Box::new(key), Box::new(value));
    let form = ScalarImplementation::new(parameters, returns, |arguments, arena| {
        let entries = arguments.chunks_exact(2).map(|entry| (entry[0], entry[1]));
        Some(Datum::Map(arena.alloc_slice_fill_iter(entries)))
    });
    Ok(form.passing_nulls())
}

fn map_keys(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 1, 1)?;
    let returns = DataType::Array(Box::new(map_types(arguments, 0)?.0.clone()));
    let parameters = arguments.types.to_vec();
    Ok(ScalarImplementation::new(parameters, returns, |arguments, arena| {
        let Datum::Map(entries) = arguments[0] else { return None };
        Some(Datum::Array(arena.alloc_slice_fill_iter(entries.iter().map(|(key, _)| *key))))
    }))
}

fn map_values(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 1, 1)?;
    let returns = DataType::Array(Box::new(map_types(arguments, 0)?.1.clone()));
    let parameters = arguments.types.to_vec();
    Ok(ScalarImplementation::new(parameters, returns, |arguments, arena| {
        let Datum::Map(entries) = arguments[0] else { return None };
        Some(Datum::Array(arena.alloc_slice_fill_iter(entries.iter().map(|(_, value)| *value))))
    }))
}
