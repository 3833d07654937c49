//! The aggregates that depend on the number of occurrences of each value: `distinct_count`,
//! `topn_frequency`, `top1_ratio`, `entropy`.

use std::cmp::Ordering;

use lockstep_row::{Arena, DataType, Datum};

use super::{
    AggregateFunction, BoundAggregate,
    frequencies::CountedValue,
    signature::{
        AggregateTypeClass, ORDERABLE, SCALAR, bound_fold, expect, expect_count, expect_size,
        wrong_constant,
    },
    state::{AnswerKind, Fold, StateClass, StateKind},
};
use crate::{
    CallArguments, Compatibility, SignatureError, exact_sum::ExactSum, item_text::ItemPrinter,
};

/// The most values that `topn_frequency` lists.
const TOPN_MAX: usize = 1024;

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "distinct_count",
        aliases: &[],
        category: "frequency",
        signature: "distinct_count(x ANY) → BIGINT",
        doc: "Returns the number of distinct values that are not NULL; 0 if there are no such \
              values. With `compatibility = 'openmldb'` NULL counts as the zero (or the empty \
              string) of the type.",
        examples: &[("distinct_count(x)", "3"), ("distinct_count(c)", "2")],
        is_ordered: false,
        class: StateClass::Mergeable,
        bind: bind_distinct_count,
    },
    AggregateFunction {
        name: "approx_distinct",
        aliases: &["approx_count_distinct"],
        category: "frequency",
        signature: "approx_distinct(x ANY) → BIGINT",
        doc: "Returns the exact number of distinct values that are not NULL; 0 if there are no \
              such values. It exists for scripts of systems that return an estimate; here the \
              result is the same in every mode and for every order of the rows, and costs as much \
              as `distinct_count`.",
        examples: &[("approx_distinct(x)", "3")],
        is_ordered: false,
        class: StateClass::Mergeable,
        bind: bind_approx_distinct,
    },
    AggregateFunction {
        name: "topn_frequency",
        aliases: &[],
        category: "frequency",
        signature: "topn_frequency(x number|TIMESTAMP|DATE|STRING, n constant integer) → STRING",
        doc: "Returns the `n` most frequent values, separated by commas, in descending order of \
              frequency; equally frequent values are in ascending order. `n` is at most 1024, and \
              NULL is not counted. With `compatibility = 'openmldb'` a list that is not empty is \
              padded to `n` items with the word NULL, and floats have six decimals.",
        examples: &[("topn_frequency(x, 2)", "4,1"), ("topn_frequency(c, 5)", "a,b")],
        is_ordered: false,
        class: StateClass::Retractable,
        bind: bind_topn_frequency,
    },
    AggregateFunction {
        name: "top1_ratio",
        aliases: &[],
        category: "frequency",
        signature: "top1_ratio(x number|TIMESTAMP|DATE|STRING) → DOUBLE",
        doc: "Returns the number of occurrences of the most frequent value divided by the number \
              of values that are not NULL; 0 if there are no such values.",
        examples: &[("top1_ratio(x)", "0.5")],
        is_ordered: false,
        class: StateClass::Retractable,
        bind: |arguments| bind_answer(arguments, &ORDERABLE, MultisetAnswer::TopRatio),
    },
    AggregateFunction {
        name: "entropy",
        aliases: &[],
        category: "frequency",
        signature: "entropy(x ANY) → DOUBLE",
        doc: "Returns the Shannon entropy, in bits, of the frequencies of the values that are not \
              NULL, or NULL if there are no such values. The terms are summed exactly and rounded \
              once.",
        examples: &[("entropy(x)", "1.5")],
        is_ordered: false,
        class: StateClass::Retractable,
        bind: |arguments| bind_answer(arguments, &SCALAR, MultisetAnswer::Entropy),
    },
];

fn bind_distinct_count(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &SCALAR)?;
    let null_counts = arguments.settings.compatibility == Compatibility::OpenMldb;
    let mut fold = Fold::new(Some(0), StateKind::Distinct, AnswerKind::Distinct);
    if null_counts {
        fold.null_as_zero_of = Some(data_type.clone());
    }
    Ok(bound_fold(vec![data_type], DataType::BigInt, fold))
}

fn bind_approx_distinct(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &SCALAR)?;
    let fold = Fold::new(Some(0), StateKind::Distinct, AnswerKind::Distinct);
    Ok(bound_fold(vec![data_type], DataType::BigInt, fold))
}

fn bind_topn_frequency(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 2..=2)?;
    let data_type = expect(arguments, 0, &ORDERABLE)?;
    let count = expect_size(arguments, 1)?;
    if count > TOPN_MAX {
        return Err(wrong_constant(1, "a constant integer of at most 1024"));
    }
    let answer = MultisetAnswer::MostFrequent(FrequencyList {
        count,
        pads: arguments.settings.compatibility == Compatibility::OpenMldb,
        data_type: data_type.clone(),
        printer: ItemPrinter::new(*arguments.settings),
    });
    let fold = Fold::new(Some(0), StateKind::Frequencies, AnswerKind::Frequencies(answer));
    Ok(bound_fold(vec![data_type, DataType::BigInt], DataType::String, fold))
}

fn bind_answer(
    arguments: &CallArguments<'_>,
    class: &AggregateTypeClass,
    answer: MultisetAnswer,
) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, class)?;
    let fold = Fold::new(Some(0), StateKind::Frequencies, AnswerKind::Frequencies(answer));
    Ok(bound_fold(vec![data_type], DataType::Double, fold))
}

/// The result that is computed from the counts of values.
#[derive(Debug, Clone)]
pub(super) enum MultisetAnswer {
    MostFrequent(FrequencyList),
    TopRatio,
    Entropy,
}

impl MultisetAnswer {
    /// Returns the share that the greatest count has in the sum of all.
    pub(super) fn top_ratio(counts: impl Iterator<Item = u64>, total: u64) -> Datum<'static> {
        let most = counts.max().filter(|count| *count > 0);
        Datum::Double(most.map_or(0.0, |count| share(count, total)))
    }

    /// Returns the entropy of counts, of which zeros are none.
    pub(super) fn entropy(counts: impl Iterator<Item = u64>, total: u64) -> Datum<'static> {
        if total == 0 {
            return Datum::Null;
        }
        let mut sum = ExactSum::new();
        for count in counts.filter(|count| *count > 0) {
            let share = share(count, total);
            sum.add(-share * core_math::log2(share));
        }
        Datum::Double(sum.to_f64())
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of rows are below 2^53")]
fn share(count: u64, total: u64) -> f64 {
    debug_assert!(0 < count && count <= total, "a share is above 0 and at most 1");
    count as f64 / total as f64
}

/// The list of the most frequent values.
#[derive(Debug, Clone)]
pub(super) struct FrequencyList {
    /// The most values that it has.
    count: usize,
    /// Whether NULLs fill up to that.
    pads: bool,
    data_type: DataType,
    printer: ItemPrinter,
}

/// The longest list for which the least count is found without sorting.
const SHORT_LIST_MAX: usize = 32;
const _: () = assert!(SHORT_LIST_MAX <= TOPN_MAX);

impl FrequencyList {
    /// Returns the least number of occurrences of a value in the list; `counts` are those of all
    /// values. Finds it in one pass for a short list, and returns 0 otherwise.
    pub(super) fn least_count(&self, counts: impl Iterator<Item = u64>) -> u64 {
        let wanted @ 1..=SHORT_LIST_MAX = self.count else { return 0 };
        // The greatest counts so far, in descending order.
        let mut greatest = [0; SHORT_LIST_MAX];
        let greatest = &mut greatest[..wanted];
        let mut least = 0;
        for count in counts {
            // Rarely true once the first values were seen.
            if count > least {
                let at = greatest.partition_point(|other| *other >= count);
                greatest[at..].rotate_right(1);
                greatest[at] = count;
                least = greatest[wanted - 1];
            }
        }
        least
    }

    /// Prints the list of those of some values, with their counts, that belong to it.
    pub(super) fn print<'a>(
        &self,
        mut values: Vec<(CountedValue<'_>, u64)>,
        arena: &'a Arena,
    ) -> Datum<'a> {
        self.keep_most_frequent(&mut values);
        let mut list = self.printer.list(arena);
        let pads = self.pads && !values.is_empty();
        for index in 0..if pads { self.count } else { values.len() } {
            list.push(|out| match values.get(index) {
                Some((value, _)) => self.printer.write(value.key().datum(&self.data_type), out),
                None => self.printer.write(Datum::Null, out),
            });
        }
        list.finish()
    }

    /// Sorts values, more frequent first and then lesser first, and truncates them to the list.
    fn keep_most_frequent(&self, values: &mut Vec<(CountedValue<'_>, u64)>) {
        let order = |left: &(CountedValue<'_>, u64), right: &(CountedValue<'_>, u64)| -> Ordering {
            right.1.cmp(&left.1).then_with(|| left.0.order(&right.0))
        };
        if self.count == 0 {
            values.clear();
        } else if values.len() > self.count {
            values.select_nth_unstable_by(self.count - 1, order);
            values.truncate(self.count);
        }
        values.sort_unstable_by(order);
        debug_assert!(values.len() <= self.count, "the list has at most `count` values");
    }
}
