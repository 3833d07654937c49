//! Functions that split texts into lists, and join lists into texts. A list is an ARRAY<STRING>.

use std::ops::ControlFlow;

use bumpalo::collections::{String as ArenaString, Vec as ArenaVec};
use lockstep_row::{Arena, DataType, Datum};
use regex::Regex;

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation,
    signature::{ScalarTypeClass, TEXT, TEXTS, constant_text, expect},
};
use crate::{
    Compatibility,
    value_limit::{self, LIST_ITEMS_MAX},
};

macro_rules! list {
    ($name:literal, $signature:literal, $doc:literal, $examples:expr, $resolve:expr) => {
        ScalarFunction {
            name: $name,
            aliases: &[],
            category: "lists",
            signature: $signature,
            doc: $doc,
            examples: $examples,
            resolve: $resolve,
        }
    };
}

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    list!(
        "split",
        "split(text STRING, delimiter STRING) → ARRAY<STRING>",
        "Returns the parts of `text` between delimiters, including empty parts. A `delimiter` of more than one byte is a regular expression. The array is empty if `text` or `delimiter` is NULL, or if `delimiter` is empty or not a valid regular expression.",
        &[
            ("split('a,,b,', ',')", "[a, , b, ]"),
            ("split('a1b22c', '[0-9]+')", "[a, b, c]"),
            ("split(NULL, ',')", "[]")
        ],
        |arguments| split(arguments, PiecePart::Whole)
    ),
    list!(
        "split_by_key",
        "split_by_key(text STRING, delimiter STRING, pair_delimiter STRING) → ARRAY<STRING>",
        "Splits `text` as `split` does, and returns the key of each part: the characters before the first `pair_delimiter`. Parts without `pair_delimiter` are omitted.",
        &[("split_by_key('k1:v1,?,k2:v2', ',', ':')", "[k1, k2]")],
        |arguments| split(arguments, PiecePart::Key)
    ),
    list!(
        "split_by_value",
        "split_by_value(text STRING, delimiter STRING, pair_delimiter STRING) → ARRAY<STRING>",
        "Splits `text` as `split` does, and returns the value of each part: the characters between the first `pair_delimiter` and the next one or the end. Parts without `pair_delimiter` are omitted.",
        &[("split_by_value('k1:v1,?,k2:v2', ',', ':')", "[v1, v2]")],
        |arguments| split(arguments, PiecePart::Value)
    ),
    list!(
        "join",
        "`join`(list ARRAY<STRING>, delimiter STRING) → STRING",
        "Returns the concatenation of the elements of `list` that are not NULL, with `delimiter` between them. Empty if there are no such elements.",
        &[("`join`(split('a,b', ','), ' ')", "a b"), ("`join`(split('', ''), ' ')", "")],
        join
    ),
    list!(
        "list_except_by_key",
        "list_except_by_key(list ARRAY<STRING>, keys STRING) → ARRAY<STRING>",
        "Returns the elements of `list`, each of the form `key:value`, whose key is not in `keys`, a list separated by commas. An element without `:` is a key.",
        &[
            ("list_except_by_key(split('a:1,b:2,c:0', ','), 'a,b')", "[c:0]"),
            ("list_except_by_key(split('a,b,c', ','), 'a,b')", "[c]")
        ],
        |arguments| except(arguments, key_of)
    ),
    list!(
        "list_except_by_value",
        "list_except_by_value(list ARRAY<STRING>, values STRING) → ARRAY<STRING>",
        "Returns the elements of `list`, each of the form `key:value`, whose value is not in `values`, a list separated by commas. The value of an element without `:` is empty.",
        &[
            ("list_except_by_value(split('a:1,b:2,c:0', ','), '1,2')", "[c:0]"),
            ("list_except_by_value(split('a,b', ','), '')", "[]")
        ],
        |arguments| except(arguments, value_of)
    ),
];

/// The most bytes of a list with `compatibility = 'openmldb'`; later pieces are dropped.
const OPENMLDB_LIST_BYTES_MAX: usize = 4096;

/// The part of a piece that is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PiecePart {
    /// All of it.
    Whole,
    /// The text before the pair delimiter.
    Key,
    /// The text after it.
    Value,
}

/// A prepared delimiter of `split`, `split_by_key` and `split_by_value`.
#[derive(Debug, Clone)]
enum Splitter {
    /// There are no pieces.
    Never,
    /// At each occurrence of a text.
    Literal(Box<str>),
    /// At each match of a regular expression.
    Pattern(Regex),
}

impl Splitter {
    /// Prepares a delimiter: one byte is literal, more are a regular expression.
    fn new(delimiter: &str) -> Self {
        let is_literal =
            delimiter.len() == 1 || delimiter.chars().all(|c| c.is_alphanumeric() || !c.is_ascii());
        match delimiter {
            "" => Self::Never,
            literal if is_literal => Self::Literal(literal.into()),
            pattern => Regex::new(pattern).map_or(Self::Never, Self::Pattern),
        }
    }

    /// Calls `take` with each piece, in order, until it breaks.
    fn split<'t>(&self, text: &'t str, mut take: impl FnMut(&'t str) -> ControlFlow<()>) {
        // Whether `take` ended the loop does not matter to the caller.
        let _ended: ControlFlow<()> = match self {
            Self::Never => ControlFlow::Continue(()),
            Self::Literal(delimiter) => text.split(&**delimiter).try_for_each(&mut take),
            Self::Pattern(regex) => regex.split(text).try_for_each(&mut take),
        };
    }
}

/// Returns a part of a piece; `None` where the piece does not have that part.
fn part_of<'t>(piece: &'t str, part: PiecePart, pair_delimiter: &str) -> Option<&'t str> {
    if part == PiecePart::Whole {
        return Some(piece);
    }
    if pair_delimiter.is_empty() {
        return None;
    }
    let (key, rest) = piece.split_once(pair_delimiter)?;
    match part {
        PiecePart::Key => Some(key),
        _ => Some(rest.split_once(pair_delimiter).map_or(rest, |(value, _)| value)),
    }
}

fn split(arguments: &CallArguments<'_>, part: PiecePart) -> Resolved {
    let classes: &[ScalarTypeClass] =
        if part == PiecePart::Whole { &[TEXT, TEXT] } else { &[TEXT, TEXT, TEXT] };
    expect(arguments, classes)?;
    let size_max = match arguments.settings.compatibility {
        Compatibility::Standard => usize::MAX,
        Compatibility::OpenMldb => OPENMLDB_LIST_BYTES_MAX,
    };
    let prepared = constant_text(arguments, 1).map(Splitter::new);
    let parameters = vec![DataType::String; classes.len()];
    let returns = DataType::Array(Box::new(DataType::String));
    let form = ScalarImplementation::new(parameters, returns, move |arguments, arena| {
        let (Some(text), Some(delimiter)) = (arguments[0].as_str(), arguments[1].as_str()) else {
            return Some(Datum::Array(&[]));
        };
        let pair_delimiter = match arguments.get(2) {
            Some(pair_delimiter) => pair_delimiter.as_str().unwrap_or_default(),
            None => "",
        };
        let made;
        let splitter = match &prepared {
            Some(splitter) => splitter,
            None => {
                made = Splitter::new(delimiter);
                &made
            }
        };
        let mut size = 0_usize;
        let mut pieces = ArenaVec::new_in(arena);
        splitter.split(text, |piece| {
            if let Some(piece) = part_of(piece, part, pair_delimiter) {
                size = size.saturating_add(piece.len());
                if size > size_max {
                    return ControlFlow::Break(());
                }
                pieces.push(Datum::String(piece));
                if pieces.len() > LIST_ITEMS_MAX {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        value_limit::list(pieces.len(), 0)?;
        Some(Datum::Array(pieces.into_bump_slice()))
    });
    Ok(form.passing_nulls())
}

fn join(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXTS, TEXT])?;
    let parameters = vec![DataType::Array(Box::new(DataType::String)), DataType::String];
    Ok(ScalarImplementation::new(parameters, DataType::String, |arguments, arena| {
        let Datum::Array(items) = arguments[0] else { return None };
        let delimiter = arguments[1].as_str()?;
        let texts: usize = items.iter().filter_map(Datum::as_str).map(str::len).sum();
        value_limit::text(texts + delimiter.len() * items.len().saturating_sub(1))?;
        let mut joined = ArenaString::new_in(arena);
        for (position, item) in items.iter().filter_map(Datum::as_str).enumerate() {
            joined.push_str(if position == 0 { "" } else { delimiter });
            joined.push_str(item);
        }
        Some(Datum::String(joined.into_bump_str()))
    }))
}

fn key_of(element: &str) -> &str {
    element.split_once(':').map_or(element, |(key, _)| key)
}

fn value_of(element: &str) -> &str {
    element.split_once(':').map_or("", |(_, value)| value)
}

fn except(arguments: &CallArguments<'_>, of: for<'t> fn(&'t str) -> &'t str) -> Resolved {
    expect(arguments, &[TEXTS, TEXT])?;
    let list = DataType::Array(Box::new(DataType::String));
    let parameters = vec![list.clone(), DataType::String];
    Ok(ScalarImplementation::new(parameters, list, move |arguments, arena: &Arena| {
        let Datum::Array(items) = arguments[0] else { return None };
        let excluded = arguments[1].as_str()?;
        let mut kept = ArenaVec::with_capacity_in(items.len(), arena);
        kept.extend(items.iter().copied().filter(|item| {
            item.as_str().is_some_and(|text| !excluded.split(',').any(|one| one == of(text)))
        }));
        Some(Datum::Array(kept.into_bump_slice()))
    }))
}
