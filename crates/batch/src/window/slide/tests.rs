//! Calls that take blocks of values, compared with the same calls row by row.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use arrow::{
    array::{
        ArrayRef, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array, Int32Array,
        Int64Array, StringArray, TimestampMillisecondArray,
    },
    datatypes::DataType as ArrowType,
};
use lockstep_function::{BoundAggregate, CallArguments, Settings, StateUse, aggregate};
use lockstep_host::sync::Mutex;
use lockstep_plan::{CurrentRow, Frame, Window};
use lockstep_row::{DataType, arrow::data_type};
use proptest::{prelude::*, test_runner::Config};

use super::{
    super::{
        carried::CarriedGroup,
        partition::{Ordering, OrderingOptions, WindowChunk},
        shared_state::SharedState,
    },
    FrameRange, KeyFrames, SlideOptions, StateSlides, WindowCall, slide,
};

/// Functions of one value, and of a value and a condition.
const FUNCTIONS: [&str; 18] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "distinct_count",
    "var_samp",
    "stddev_pop",
    "drawdown",
    "median",
    "first_value",
    "count_where",
    "sum_where",
    "avg_where",
    "min_where",
    "max_where",
    "entropy",
    "approx_distinct",
];

/// Values of all kinds, NULL among them.
fn values() -> impl Strategy<Value = Vec<Option<i16>>> {
    let value = prop_oneof![
        2 => Just(None),
        2 => Just(Some(0)),
        6 => (-9..9_i16).prop_map(Some),
        1 => prop_oneof![Just(i16::MIN), Just(i16::MAX)].prop_map(Some),
    ];
    prop_oneof![
        4 => prop::collection::vec(value, 1..60),
        1 => prop::collection::vec((0..9_i16).prop_map(Some), 1..60),
    ]
}

/// Makes a column of the type of a number. Floats have NaN, a negative zero and infinity too.
fn column(kind: usize, values: &[Option<i16>]) -> ArrayRef {
    let float = |value: &Option<i16>| {
        value.map(|value| match value {
            7 => f32::NAN,
            8 => -0.0,
            i16::MAX => f32::INFINITY,
            value => f32::from(value) * 0.1,
        })
    };
    let wide = |value: &Option<i16>| value.map(|value| i64::from(value) << 40);
    let narrow = values.iter().map(|value| value.map(i32::from));
    match kind {
        0 => Arc::new(Int16Array::from(values.to_vec())),
        1 => Arc::new(narrow.collect::<Int32Array>()),
        2 => Arc::new(values.iter().map(wide).collect::<Int64Array>()),
        3 => Arc::new(values.iter().map(float).collect::<Float32Array>()),
        4 => {
            let double = |value: &Option<i16>| float(value).map(|value| f64::from(value) * 1e9);
            Arc::new(values.iter().map(double).collect::<Float64Array>())
        }
        5 => {
            let time = |value: &Option<i16>| value.map(|value| i64::from(value.unsigned_abs()));
            Arc::new(values.iter().map(time).collect::<TimestampMillisecondArray>())
        }
        6 => Arc::new(narrow.collect::<Date32Array>()),
        _ => {
            // Short and long ones, and the empty one.
            let text = |value: i16| match value {
                0 => String::new(),
                7..9 => format!("a text of {value} that is long"),
                value => format!("text {value}"),
            };
            Arc::new(values.iter().map(|value| value.map(text)).collect::<StringArray>())
        }
    }
}

/// Binds a function to the arguments; `None` where it does not take their types.
fn bind(name: &str, arguments: &[ArrayRef]) -> Option<BoundAggregate> {
    let types: Vec<DataType> =
        arguments.iter().map(|column| data_type(column.data_type()).unwrap()).collect();
    let constants = vec![None; types.len()];
    let settings = Settings::default();
    let call = CallArguments { types: &types, constants: &constants, settings: &settings };
    (aggregate::find(name).unwrap().bind)(&call).ok()
}

/// Frames over so many candidates that only move forward, drawn from steps.
fn frames(candidates: usize, steps: &[(u8, u8, u8)]) -> Vec<FrameRange> {
    let (mut start, mut end) = (0, 0);
    let place = |at: usize| u32::try_from(at).unwrap();
    steps
        .iter()
        .map(|(add, remove, current)| {
            end = (end + usize::from(*add)).min(candidates);
            start = (start + usize::from(*remove)).min(end);
            let current = match current % 3 {
                0 if end < candidates => {
                    // It is added, so that the next range does not end before it.
                    end += 1;
                    CurrentRow::Next
                }
                1 => CurrentRow::Apart,
                _ => CurrentRow::Absent,
            };
            let is_next = usize::from(current == CurrentRow::Next);
            let (from, to) = (start.min(end - is_next), end - is_next);
            start = from;
            FrameRange::whole(place(from), place(to), current, place(from % candidates))
        })
        .collect()
}

/// Returns a window; which rows its frames have is not read of it.
fn window(from: Option<u64>) -> Window {
    Window {
        partition_by: Vec::new(),
        order_by: None,
        frame: Frame::Rows { from, to: 0 },
        ahead: None,
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    }
}

/// Computes a call over two keys, as it is or row by row.
fn results(call: &WindowCall<'_>, keys: &[KeyFrames<'_>], by_row: bool) -> (ArrayRef, bool) {
    let mut slides = slides_of(std::slice::from_ref(call), &window(Some(9)));
    if by_row {
        slides.states[0].lane = None;
    }
    for key in keys {
        slides.begin_key(None);
        assert!(slides.run(key, &|| false));
    }
    let in_blocks = slides.states[0].lane.is_some();
    (slides.finish().remove(0), in_blocks)
}

/// Makes the slides of calls that have a state each.
fn slides_of<'a>(calls: &'a [WindowCall<'a>], window: &Window) -> StateSlides<'a> {
    let states: Vec<_> = (0..calls.len()).map(|call| SharedState { calls: vec![call] }).collect();
    StateSlides::new(calls, &states, window, 0)
}

/// Computes a call twice with one state, beside a count of the same rows, which is checked here. Returns also
/// whether their values were gathered once.
fn results_beside(call: &WindowCall<'_>, keys: &[KeyFrames<'_>]) -> ([ArrayRef; 2], bool) {
    let states = [SharedState { calls: vec![0] }, SharedState { calls: vec![1, 2] }];
    let count = bind("count", &call.arguments[..1]).unwrap();
    let counted = || WindowCall { bound: &count, arguments: call.arguments[..1].to_vec() };
    let again = || WindowCall { bound: call.bound, arguments: call.arguments.clone() };
    let calls = [counted(), again(), again()];
    let mut slides = StateSlides::new(&calls, &states, &window(Some(9)), 0);
    for key in keys {
        slides.begin_key(None);
        assert!(slides.run(key, &|| false));
    }
    let has_one_lane = slides.lanes.len() == 1;
    let [counts, one, other] = slides.finish().try_into().unwrap();
    assert_eq!(bits(&counts), bits(&results(&counted(), keys, true).0), "count beside a call");
    ([one, other], has_one_lane)
}

/// Computes a call over keys whose frames begin at the first candidate, each in two pieces: the state
/// goes on from one to the other, which has not the candidates before `gone` of what it has already.
fn carried_results(call: &WindowCall<'_>, keys: &[KeyFrames<'_>], seed: u64) -> ArrayRef {
    let window = window(None);
    let mut slides = slides_of(std::slice::from_ref(call), &window);
    for key in keys {
        let at = |count: usize| usize::try_from(seed % (count as u64 + 1)).unwrap();
        let (first, second) = key.frames.split_at(at(key.frames.len() - 1));
        let folded = second[0].end as usize;
        let gone = at(folded);
        let state = call.bound.new_state(super::state_use(call.bound, &window));
        let mut carried = CarriedGroup { folded: 0, states: vec![Mutex::new(state)] };
        let first = KeyFrames::of_candidates(key.candidates, first.to_vec());
        slides.begin_key(Some((&carried, 0)));
        assert!(slides.run(&first, &|| false));
        slides.end_key((&carried, 0), &first, folded, &|| false);
        carried.folded = folded - gone;
        let end = |end: u32| end - u32::try_from(gone).unwrap();
        let second = second.iter().map(|frame| FrameRange { end: end(frame.end), ..*frame });
        let second = KeyFrames::of_candidates(&key.candidates[gone..], second.collect());
        slides.begin_key(Some((&carried, 0)));
        assert!(slides.run(&second, &|| false));
        slides.end_key((&carried, 0), &second, second.candidates.len(), &|| false);
    }
    slides.finish().remove(0)
}

#[test]
fn blocks_give_what_rows_give() {
    // How often each function took blocks, and of which types.
    let by_block = RefCell::new(BTreeMap::<&str, BTreeMap<String, u32>>::new());
    let (folded, shared) = (Cell::new(0), Cell::new(0));
    let steps = || prop::collection::vec((0..12_u8, 0..12_u8, 0..3_u8), 1..40);
    let drawn = (values(), 0..8_usize, 0..FUNCTIONS.len(), steps(), steps(), any::<u64>());
    proptest!(Config::with_cases(3_000), |((values, kind, function, one, other, seed) in drawn)| {
        let name = FUNCTIONS[function];
        let mut arguments = vec![column(kind, &values)];
        if name.ends_with("_where") {
            let holds = |at: usize| (seed.rotate_left(u32::try_from(at).unwrap()) % 5) as u8;
            let conditions = (0..values.len()).map(|at| match holds(at) {
                0 => None,
                of => Some(of > 1),
            });
            arguments.push(Arc::new(conditions.collect::<BooleanArray>()));
        }
        let Some(bound) = bind(name, &arguments) else { return Ok(()) };
        let count = values.len();
        // Any order of the rows, some of which are no candidates.
        let candidates: Vec<u32> = (0..count)
            .map(|at| u32::try_from((at * 7 + (seed % 11) as usize) % count).unwrap())
            .collect();
        let keys = |steps: [&[(u8, u8, u8)]; 2]| {
            steps.map(|steps| KeyFrames::of_candidates(&candidates, frames(count, steps)))
        };
        let drawn_keys = keys([&one, &other]);
        let data_type = arguments[0].data_type().clone();
        let call = WindowCall { bound: &bound, arguments };
        let (found, in_blocks) = results(&call, &drawn_keys, false);
        let (expected, _) = results(&call, &drawn_keys, true);
        prop_assert_eq!(bits(&found), bits(&expected), "{} of {}", name, data_type);
        let (beside, has_one_lane) = results_beside(&call, &drawn_keys);
        shared.set(shared.get() + u32::from(in_blocks && has_one_lane));
        for found in &beside {
            prop_assert_eq!(bits(found), bits(&expected), "{} of {}, beside", name, data_type);
        }
        // Without a beginning, with states that are only added to.
        let growing = |steps: &[(u8, u8, u8)]| -> Vec<_> {
            steps.iter().map(|(add, _, current)| (*add, 0, current - current % 3 % 2)).collect()
        };
        let (one, other) = (growing(&one), growing(&other));
        let (expected, _) = results(&call, &keys([&one, &other]), true);
        let found = carried_results(&call, &keys([&one, &other]), seed);
        prop_assert_eq!(bits(&found), bits(&expected), "{} of {}, carried", name, data_type);
        folded.set(folded.get() + u32::from(
            super::state_use(&bound, &window(None)) == StateUse::Fold,
        ));
        if in_blocks {
            let mut counts = by_block.borrow_mut();
            *counts.entry(name).or_default().entry(data_type.to_string()).or_default() += 1;
        }
    });
    assert!(shared.get() > 500, "{} lanes had two states", shared.get());
    assert!(folded.get() > 1_000, "{} states only added", folded.get());
    let by_block = by_block.into_inner();
    let never = FUNCTIONS.iter().filter(|name| !by_block.contains_key(**name));
    assert_eq!(never.collect::<Vec<_>>(), [&"drawdown", &"median", &"first_value"]);
    let numbers = ["Int16", "Int32", "Int64", "Float32", "Float64"];
    let (times, texts) = (["Timestamp(ms)", "Date32"], ["Utf8"]);
    let types = |name: &str| by_block[name].keys().map(String::as_str).collect::<BTreeSet<_>>();
    assert_eq!(types("avg"), numbers.into());
    let all: BTreeSet<_> = numbers.into_iter().chain(times).chain(texts).collect();
    for name in ["min", "count", "distinct_count", "entropy"] {
        assert_eq!(types(name), all, "{name}");
    }
}

#[test]
fn an_interrupted_slide_ends_within_a_key() {
    let row_count = 5 * super::ROWS_PER_CHECK;
    let rows_end = u32::try_from(row_count).unwrap();
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![1; row_count]));
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..i64::from(rows_end)));
    let options = OrderingOptions { with_others: false, threads: NonZeroUsize::MIN };
    let ordering = Ordering::new(&[keys], Some(&values), 0..rows_end, 0, options).unwrap();
    let rows = WindowChunk { keys: 0..1, rows: 0..row_count };
    let arguments = vec![values];
    let bound = bind("sum", &arguments).unwrap();
    let calls = [WindowCall { bound: &bound, arguments }];
    let states = [SharedState { calls: vec![0] }];
    let computed = |checks_before: u32| {
        let checks = AtomicU32::new(0);
        let options = SlideOptions {
            with_unordered: true,
            // Relaxed: only the number counts.
            is_interrupted: &|| checks.fetch_add(1, Relaxed) >= checks_before,
            carried: &|_| None,
        };
        slide(&window(Some(9)), &ordering, &rows, (&calls, &states), options).rows.len()
    };
    assert_eq!(computed(u32::MAX), row_count);
    // The first check is that of the key.
    assert!(computed(1) < 2 * super::ROWS_PER_CHECK);
}

/// Writes values with the bits of floats.
fn bits(column: &ArrayRef) -> String {
    use arrow::array::AsArray;
    match column.data_type() {
        ArrowType::Float64 => {
            let values = column.as_primitive::<arrow::datatypes::Float64Type>().iter();
            format!("{:?}", values.map(|value| value.map(f64::to_bits)).collect::<Vec<_>>())
        }
        ArrowType::Float32 => {
            let values = column.as_primitive::<arrow::datatypes::Float32Type>().iter();
            format!("{:?}", values.map(|value| value.map(f32::to_bits)).collect::<Vec<_>>())
        }
        _ => format!("{column:?}"),
    }
}
