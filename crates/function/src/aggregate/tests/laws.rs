//! The laws of states, for every aggregate, type and setting: the rows decide the result, to the
//! bit, however they are added, removed, split, merged, encoded and put into blocks.

use std::sync::Arc;

use lockstep_row::{Arena, DataType, Datum, ShortText, Value};
use proptest::{
    collection,
    prelude::{Just, any},
    prop_oneof, proptest,
    sample::Index,
};

use super::{BoundCase, TYPES, forms, rows, state_of, with_row};
use crate::{
    Compatibility, StateForm,
    aggregate::{
        RowsEnd, StateClass, StateReader, StateUse, ValueDictionary, all, find,
        groups::GroupStates,
        state::{AggregateState, Fold, ValueLane},
    },
};

impl BoundCase {
    /// Returns the result of a state.
    fn result(&self, state: &AggregateState) -> Value {
        self.bound.value(state, &Arena::new()).to_value()
    }

    /// Returns the result over rows that are added from the newest to the oldest.
    fn expected(&self, rows: &[Vec<Value>]) -> Value {
        self.result(&state_of(&self.bound, rows, RowsEnd::Oldest))
    }

    fn check(&self, found: &Value, expected: &Value, what: &str, rows: &[Vec<Value>]) {
        let arena = Arena::new();
        assert!(
            found.as_datum(&arena).is_bit_equal(&expected.as_datum(&arena)),
            "{} {:?} over {rows:?}: {found:?} {what}, {expected:?} newest first",
            self.function.name,
            self.bound,
        );
    }

    /// Returns whether partial results are merged.
    fn merges(&self) -> bool {
        !matches!(self.bound.class(), StateClass::Rows(_))
    }
}

/// Slides over the rows as `steps` say and compares every frame with the same rows added newest
/// first, and with its blocks.
fn check_sliding(case: &BoundCase, rows: &[Vec<Value>], steps: &[bool]) {
    let mut sliding = case.bound.new_state(StateUse::Slide);
    let (mut from, mut to) = (0, 0);
    for grow in steps {
        if *grow && to < rows.len() {
            with_row(&rows[to], |row| case.bound.add(&mut sliding, row, RowsEnd::Newest));
            to += 1;
        } else if from < to {
            with_row(&rows[from], |row| case.bound.remove(&mut sliding, row));
            from += 1;
        }
        let frame = &rows[from..to];
        let expected = case.expected(frame);
        let found = case.result(&sliding);
        case.check(&found, &expected, "sliding", frame);
        if let Some(folded) = in_blocks(case, frame) {
            case.check(&folded, &expected, "in blocks", frame);
        }
        // The row that follows, or one that does not.
        let more = &rows[to % rows.len()];
        let mut with_more = Value::Null;
        with_row(more, |row| {
            with_more = case.bound.value_with(&mut sliding, row, &Arena::new()).to_value();
        });
        let grown = [frame, std::slice::from_ref(more)].concat();
        case.check(&with_more, &case.expected(&grown), "sliding with one more", &grown);
        case.check(&case.result(&sliding), &expected, "sliding after one more", frame);
        let is_typed = !matches!(found, Value::Null) && !matches!(found, Value::Array(_));
        if let Some(scalar) = found.as_scalar().filter(|_| is_typed) {
            assert_eq!(scalar.data_type(), case.bound.returns, "{}", case.function.name);
        }
    }
}

/// Returns the result from blocks of three rows, newest first; `None` where blocks are not enough.
fn in_blocks(case: &BoundCase, rows: &[Vec<Value>]) -> Option<Value> {
    let StateForm::Fold(fold) = &case.bound.state else { return None };
    if !fold.takes_blocks() {
        return None;
    }
    let mut state = AggregateState::new(fold.state, StateUse::Fold);
    let newest_first: Vec<&Vec<Value>> = rows.iter().rev().collect();
    for _ in 0..2 {
        // Again after a reset, with the memory of the first time.
        state.reset();
        for block in newest_first.chunks(3) {
            add_lane(&mut state, fold, block, &case.bound.parameters);
        }
    }
    Some(state.answer(&fold.answer, &Arena::new()).to_value())
}

fn add_lane(state: &mut AggregateState, fold: &Fold, block: &[&Vec<Value>], types: &[DataType]) {
    let counts = |row: &&&Vec<Value>| {
        let Some(condition) = fold.condition else { return true };
        let value = fold.value.map(|value| row[value].as_scalar().unwrap());
        let is_zero = value.is_some_and(|value| value.as_f64().is_some_and(|value| value == 0.0));
        row[condition.argument] == Value::Bool(true) && !(condition.excludes_zero && is_zero)
    };
    let rows: Vec<&&Vec<Value>> = block.iter().filter(counts).collect();
    let Some(value) = fold.value else { return state.add(ValueLane::Rows(rows.len())) };
    let values = rows.iter().map(|row| row[value].as_scalar().unwrap());
    let values: Vec<Datum<'_>> = values.filter(|value| !value.is_null()).collect();
    match &types[value] {
        DataType::String => {
            let texts: Vec<&str> = values.iter().map(|value| value.as_str().unwrap()).collect();
            // As a reader of rows gives them, or as one of records does.
            let short: Option<Vec<ShortText>> =
                texts.iter().map(|text| ShortText::new(text)).collect();
            match short {
                Some(short) if short.len() % 2 == 0 => state.add(ValueLane::ShortTexts(&short)),
                _ => state.add(ValueLane::Texts(&texts)),
            }
        }
        DataType::Float | DataType::Double => {
            let floats: Vec<f64> = values.iter().map(|value| value.as_f64().unwrap()).collect();
            state.add(ValueLane::Floats(&floats));
        }
        _ => {
            let integer = |value: &Datum<'_>| match value {
                Datum::Bool(value) => i64::from(*value),
                other => other.as_i64().unwrap(),
            };
            let integers: Vec<i64> = values.iter().map(integer).collect();
            state.add(ValueLane::Integers(&integers));
        }
    }
}

/// Returns an equal state by way of its encoding.
fn recoded(case: &BoundCase, state: &AggregateState) -> AggregateState {
    let mut bytes = Vec::new();
    assert!(state.encode(&mut bytes), "{}", case.function.name);
    let mut decoded = case.bound.new_state(StateUse::Fold);
    let mut reader = StateReader::new(&bytes);
    decoded.decode(&mut reader).unwrap();
    assert!(reader.is_at_end(), "{}: all is read", case.function.name);
    for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        let mut damaged = case.bound.new_state(StateUse::Fold);
        let read = damaged.decode(&mut StateReader::new(&bytes[..cut]));
        assert!(read.is_none(), "{}: {cut} of {} bytes", case.function.name, bytes.len());
    }
    decoded
}

/// Splits the rows at `cuts` and merges neighbours in the order that `merges` says.
fn check_merging(case: &BoundCase, rows: &[Vec<Value>], cuts: &[Index], merges: &[Index]) {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(rows.len() + 1)).collect();
    cuts.extend([0, rows.len()]);
    cuts.sort_unstable();
    let parts = cuts.windows(2).enumerate().map(|(number, part)| {
        let end = if number % 2 == 0 { RowsEnd::Newest } else { RowsEnd::Oldest };
        let state = state_of(&case.bound, &rows[part[0]..part[1]], end);
        if number % 3 == 0 { recoded(case, &state) } else { state }
    });
    let mut parts: Vec<AggregateState> = parts.collect();
    for (step, merge) in merges.iter().cycle().enumerate() {
        if parts.len() == 1 {
            break;
        }
        let older = merge.index(parts.len() - 1);
        let newer = parts.remove(older + 1);
        if step % 2 == 0 {
            assert!(parts[older].merge(&newer, RowsEnd::Newest));
        } else {
            let older = std::mem::replace(&mut parts[older], newer);
            let at = merge.index(parts.len());
            assert!(parts[at].merge(&older, RowsEnd::Oldest));
        }
    }
    let found = case.result(&recoded(case, &parts[0]));
    case.check(&found, &case.expected(rows), "merged", rows);
    // What is merged goes on as a state that was never split.
    let mut grown = parts.swap_remove(0);
    let more: Vec<Vec<Value>> = rows.iter().chain(&rows[..rows.len().min(3)]).cloned().collect();
    for row in &rows[..rows.len().min(3)] {
        with_row(row, |row| case.bound.add(&mut grown, row, RowsEnd::Newest));
    }
    case.check(&case.result(&grown), &case.expected(&more), "merged, then grown", &more);
}

/// Makes a node of each part of the rows, and nodes of nodes, and takes them newest first in one go and
/// with rows between them. `counted` is how many rows a node says that it is over: for few of them it
/// has values, for many the numbers of values.
fn check_nodes(case: &BoundCase, rows: &[Vec<Value>], cuts: &[Index], counted: &[u64]) {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(rows.len() + 1)).collect();
    cuts.extend([0, rows.len()]);
    cuts.sort_unstable();
    let mut dictionary = Arc::new(ValueDictionary::default());
    let name = case.function.name;
    let encode = |state: &AggregateState, number: usize, dictionary: &mut Arc<_>| {
        let mut bytes = Vec::new();
        let counted = counted[number % counted.len()];
        assert!(state.encode_node(counted, dictionary, &mut bytes), "{name}");
        bytes
    };
    let parts: Vec<_> = cuts.windows(2).map(|part| &rows[part[0]..part[1]]).collect();
    let mut nodes: Vec<Vec<u8>> = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let state = state_of(&case.bound, part, RowsEnd::Newest);
        nodes.push(encode(&state, number, &mut dictionary));
    }
    let mut spare = case.bound.new_state(StateUse::Fold);
    let mut merge = |state: &mut AggregateState, node: &[u8]| {
        let mut reader = StateReader::new(node);
        state.merge_node(&mut reader, RowsEnd::Oldest, &mut spare).unwrap();
        assert!(reader.is_at_end(), "{name}: all is read");
        spare.skip_node(&mut StateReader::new(node)).unwrap();
    };
    let mut state = case.bound.new_state(StateUse::Fold);
    // The first time as new, then as one that was used.
    for _ in 0..2 {
        state.reset();
        nodes.iter().rev().for_each(|node| merge(&mut state, node));
        state.resolve(&dictionary, RowsEnd::Oldest).unwrap();
        case.check(&case.result(&state), &case.expected(rows), "of nodes", rows);
    }
    let mut of_all = case.bound.new_state(StateUse::Fold);
    merge(&mut of_all, &encode(&state, 0, &mut dictionary));
    of_all.resolve(&dictionary, RowsEnd::Oldest).unwrap();
    case.check(&case.result(&of_all), &case.expected(rows), "of a node of nodes", rows);
    state.reset();
    for (number, (part, node)) in parts.iter().zip(&nodes).enumerate().rev() {
        if number % 2 == 0 {
            merge(&mut state, node);
            state.resolve(&dictionary, RowsEnd::Oldest).unwrap();
        } else {
            for row in part.iter().rev() {
                with_row(row, |row| case.bound.add(&mut state, row, RowsEnd::Oldest));
            }
        }
    }
    case.check(&case.result(&state), &case.expected(rows), "of nodes and rows", rows);
    for node in &nodes {
        for cut in [0, 1, node.len() / 2, node.len() - 1] {
            let mut damaged = case.bound.new_state(StateUse::Fold);
            let mut other = case.bound.new_state(StateUse::Fold);
            let mut reader = StateReader::new(&node[..cut]);
            let read = damaged.merge_node(&mut reader, RowsEnd::Oldest, &mut other);
            assert!(read.is_none(), "{name}: {cut} of {} bytes", node.len());
        }
    }
}

/// Deals the rows out to groups, some of which are merged from two phases, and takes the first
/// groups before the others.
fn check_groups(case: &BoundCase, rows: &[Vec<Value>], dealt: &[u8]) {
    const GROUPS: usize = 5;
    let group_of = |row: usize| usize::from(dealt[row % dealt.len()]) % GROUPS;
    let mut groups = GroupStates::new(&case.bound);
    groups.resize(&case.bound, GROUPS);
    let half = rows.len() / 2;
    for (number, row) in rows.iter().enumerate().take(half) {
        with_row(row, |row| groups.add(&case.bound, group_of(number), row));
    }
    let in_group = |group: usize, rows: &[Vec<Value>], from: usize| -> Vec<Vec<Value>> {
        let rows = rows.iter().enumerate().filter(|(row, _)| group_of(from + row) == group);
        rows.map(|(_, row)| row.clone()).collect()
    };
    for group in 0..GROUPS {
        let rest = in_group(group, &rows[half..], half);
        if case.merges() {
            let newer = recoded(case, &state_of(&case.bound, &rest, RowsEnd::Newest));
            assert!(groups.merge(group, &newer), "{}", case.function.name);
        } else {
            for row in &rest {
                with_row(row, |row| groups.add(&case.bound, group, row));
            }
        }
    }
    let mut found = Vec::new();
    for count in [2, GROUPS - 2] {
        groups.take(count, |state| found.push(case.result(state)));
    }
    for (group, found) in found.iter().enumerate() {
        let rows = in_group(group, rows, 0);
        case.check(found, &case.expected(&rows), "grouped", &rows);
    }
    assert_eq!(groups.len(), 0, "all groups are taken");
}

proptest! {
    #[test]
    fn the_rows_decide_the_result(
        choices in collection::vec(any::<u8>(), 1..160),
        steps in collection::vec(proptest::bool::weighted(0.6), 1..60),
        cuts in collection::vec(any::<Index>(), 0..6),
        merges in collection::vec(any::<Index>(), 1..6),
        (value, category) in (0..TYPES.len(), 0..TYPES.len()),
        (number, is_openmldb, length) in (-1..4, any::<bool>(), 0_usize..40),
        counted in collection::vec(prop_oneof![Just(0_u64), 0..40_u64, Just(1 << 20)], 1..4),
    ) {
        let compatibility =
            if is_openmldb { Compatibility::OpenMldb } else { Compatibility::Standard };
        for function in all() {
            for case in forms(function, [&TYPES[value], &TYPES[category]], number, compatibility) {
                let rows = rows(&case, &choices);
                check_sliding(&case, &rows, &steps);
                check_groups(&case, &rows[..length], &choices);
                if case.merges() {
                    check_merging(&case, &rows[..length], &cuts, &merges);
                    check_nodes(&case, &rows[..length], &cuts, &counted);
                }
            }
        }
    }

    #[test]
    fn noise_is_no_state(bytes in collection::vec(any::<u8>(), 0..60), kind in 1_u8..10) {
        for function in all() {
            for case in forms(function, [&DataType::Int, &DataType::String], 1, Compatibility::Standard) {
                let mut state = case.bound.new_state(StateUse::Fold);
                let bytes = [&[1, kind], bytes.as_slice()].concat();
                if state.decode(&mut StateReader::new(&bytes)).is_some() {
                    drop(case.result(&state));
                }
            }
        }
    }
}

#[test]
fn the_declared_class_is_that_of_the_states() {
    for function in all() {
        for data_type in TYPES {
            for case in forms(function, [data_type, &DataType::String], 1, Compatibility::Standard)
            {
                assert_eq!(case.bound.class(), function.class, "{}", function.name);
                let state = case.bound.new_state(StateUse::Fold);
                assert_eq!(state.encode(&mut Vec::new()), case.merges(), "{}", function.name);
            }
        }
    }
}

#[test]
fn a_frequency_table_stays_small_while_values_come_and_go() {
    let bound = super::bind(
        find("distinct_count").unwrap(),
        &[DataType::String],
        &[None],
        Compatibility::Standard,
    );
    let bound = bound.unwrap();
    let mut state = bound.new_state(StateUse::Slide);
    let text = |number: usize| format!("a text that is not short, with the number {number}");
    let mut bytes_max = 0;
    for number in 0..20_000_usize {
        bound.add(&mut state, &[Datum::String(&text(number))], RowsEnd::Newest);
        if number >= 10 {
            bound.remove(&mut state, &[Datum::String(&text(number - 10))]);
        }
        bytes_max = bytes_max.max(state.heap_bytes());
    }
    assert_eq!(bound.value(&state, &Arena::new()), Datum::BigInt(10));
    assert!(bytes_max < 50_000, "{bytes_max} bytes for ten texts");
}
