//! `window_split`, `window_split_by_key`, `window_split_by_value`: the pieces of every text of the
//! frame in one list.
//!
//! The texts are split by the scalar function of the same name when the result is computed.

use std::collections::VecDeque;

use lockstep_row::{Arena, DataType, Datum, Value};

use super::{
    AggregateFunction, BoundAggregate,
    signature::{TEXT, bound_rows, expect, expect_count},
    state::{RowState, RowsEnd, StateClass},
};
use crate::{
    CallArguments, Compatibility, NullHandling, ScalarImplementation, SignatureError, scalar,
    value_limit,
};

const CLASS: StateClass = StateClass::Rows("the result lists the strings of the rows");

/// The most bytes of all pieces with `compatibility = 'openmldb'`.
const OPENMLDB_BYTES_MAX: usize = 4096;

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "window_split",
        aliases: &[],
        category: "lists of a window",
        signature: "window_split(x STRING, delimiter STRING) → ARRAY<STRING>",
        doc: "Returns the parts into which `split` splits each value of `x` that is not NULL, \
              newest row first. With `compatibility = 'openmldb'` parts beyond 4096 bytes are \
              dropped.",
        examples: &[("window_split(s, ',')", "[k1:v4, , k3:v3, k1:v1, k2:v2]")],
        is_ordered: true,
        class: CLASS,
        bind: |arguments| bind(arguments, "split", 2),
    },
    AggregateFunction {
        name: "window_split_by_key",
        aliases: &[],
        category: "lists of a window",
        signature: "window_split_by_key(x STRING, delimiter STRING, kv_delimiter STRING) → \
                    ARRAY<STRING>",
        doc: "Returns the keys that `split_by_key` finds in each value of `x` that is not NULL, \
              newest row first. With `compatibility = 'openmldb'` keys beyond 4096 bytes are \
              dropped.",
        examples: &[("window_split_by_key(s, ',', ':')", "[k1, k3, k1, k2]")],
        is_ordered: true,
        class: CLASS,
        bind: |arguments| bind(arguments, "split_by_key", 3),
    },
    AggregateFunction {
        name: "window_split_by_value",
        aliases: &[],
        category: "lists of a window",
        signature: "window_split_by_value(x STRING, delimiter STRING, kv_delimiter STRING) → \
                    ARRAY<STRING>",
        doc: "Returns the values that `split_by_value` finds in each value of `x` that is not \
              NULL, newest row first. With `compatibility = 'openmldb'` values beyond 4096 bytes \
              are dropped.",
        examples: &[("window_split_by_value(s, ',', ':')", "[v4, v3, v1, v2]")],
        is_ordered: true,
        class: CLASS,
        bind: |arguments| bind(arguments, "split_by_value", 3),
    },
];

fn bind(
    arguments: &CallArguments<'_>,
    function: &str,
    count: usize,
) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, count..=count)?;
    for index in 0..count {
        expect(arguments, index, &TEXT)?;
    }
    let function = scalar::find(function).expect("the split functions are in the registry");
    let implementation = (function.resolve)(arguments)?;
    let parameters = implementation.parameters.clone();
    let returns = DataType::Array(Box::new(DataType::String));
    let bytes_max = match arguments.settings.compatibility {
        Compatibility::Standard => usize::MAX,
        Compatibility::OpenMldb => OPENMLDB_BYTES_MAX,
    };
    let make = move |_used| SplitPieces {
        implementation: implementation.clone(),
        bytes_max,
        rows: VecDeque::new(),
    };
    Ok(bound_rows(parameters, returns, CLASS, make))
}

struct SplitPieces {
    implementation: ScalarImplementation,
    bytes_max: usize,
    /// The arguments of the rows that count, newest first.
    rows: VecDeque<Vec<Value>>,
}

impl SplitPieces {
    fn counts(&self, arguments: &[Datum<'_>]) -> bool {
        match self.implementation.nulls {
            NullHandling::Propagate => !arguments.iter().any(Datum::is_null),
            NullHandling::Passed => !arguments[0].is_null(),
        }
    }
}

impl RowState for SplitPieces {
    fn add(&mut self, arguments: &[Datum<'_>], end: RowsEnd) {
        if !self.counts(arguments) {
            return;
        }
        let row = arguments.iter().map(Datum::to_value).collect();
        match end {
            RowsEnd::Oldest => self.rows.push_back(row),
            RowsEnd::Newest => self.rows.push_front(row),
        }
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        if self.counts(arguments) {
            let removed = self.rows.pop_back();
            debug_assert!(removed.is_some(), "a row that leaves was added");
        }
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        let mut pieces = bumpalo::collections::Vec::new_in(arena);
        let mut bytes = 0;
        for row in &self.rows {
            let text = |value: &Value| match value {
                Value::String(text) => Datum::String(arena.alloc_str(text)),
                _ => Datum::Null,
            };
            let arguments = arena.alloc_slice_fill_iter(row.iter().map(text));
            let Datum::Array(items) = (self.implementation.row)(arguments, arena) else { continue };
            for item in items {
                bytes += item.as_str().map_or(0, str::len);
                if bytes > self.bytes_max {
                    return Datum::Array(pieces.into_bump_slice());
                }
                pieces.push(*item);
                if value_limit::list(pieces.len(), 0).is_none() {
                    return Datum::Null;
                }
            }
        }
        Datum::Array(pieces.into_bump_slice())
    }

    fn value_with<'a>(&mut self, arguments: &[Datum<'_>], arena: &'a Arena) -> Datum<'a> {
        self.add(arguments, RowsEnd::Newest);
        let found = self.value(arena);
        if self.counts(arguments) {
            self.rows.pop_front();
        }
        found
    }

    fn heap_bytes(&self) -> usize {
        let row = |row: &Vec<Value>| {
            let texts = row.iter().map(|value| match value {
                Value::String(text) => text.len(),
                _ => 0,
            });
            size_of_val(row.as_slice()) + texts.sum::<usize>()
        };
        self.rows.capacity() * size_of::<Vec<Value>>() + self.rows.iter().map(row).sum::<usize>()
    }

    fn reset(&mut self) {
        self.rows.clear();
    }
}
