//! What depends on how often each value occurs: `distinct_count`, `topn_frequency`, `top1_ratio`,
//! `entropy`.

use hashbrown::HashMap;
use lockstep_row::{Arena, DataType, Datum};

use super::{
    Accumulator, AggregateFunction, BoundAggregate,
    key::{Key, KeyRef},
    signature::{
        Class, ORDERABLE, SCALAR, bound, expect, expect_count, expect_size, wrong_constant,
    },
};
use crate::{
    Arguments, Compatibility, SignatureError, exact_sum::ExactSum, item_text::ItemPrinter,
};

/// The most values that `topn_frequency` lists.
const TOPN_MAX: usize = 1024;

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "distinct_count",
        aliases: &[],
        category: "frequency",
        signature: "distinct_count(x ANY) → BIGINT",
        doc: "Counts the different values that are not NULL; 0 when there are none. With \
              `compatibility = 'openmldb'` NULL counts as the zero (or the empty string) of the \
              type.",
        examples: &[("distinct_count(x)", "3"), ("distinct_count(c)", "2")],
        is_ordered: false,
        bind: bind_distinct_count,
    },
    AggregateFunction {
        name: "approx_distinct",
        aliases: &["approx_count_distinct"],
        category: "frequency",
        signature: "approx_distinct(x ANY) → BIGINT",
        doc: "Counts the different values that are not NULL; 0 when there are none. For scripts of \
              systems that estimate here: the count is exact, hence the same in every mode and in \
              every order of the rows, and costs what `distinct_count` costs.",
        examples: &[("approx_distinct(x)", "3")],
        is_ordered: false,
        bind: bind_approx_distinct,
    },
    AggregateFunction {
        name: "topn_frequency",
        aliases: &[],
        category: "frequency",
        signature: "topn_frequency(x number|TIMESTAMP|DATE|STRING, n constant integer) → STRING",
        doc: "The `n` most frequent values, joined by commas: more frequent first, then lesser \
              first. `n` is at most 1024; NULL is not counted. With `compatibility = 'openmldb'` \
              the word NULL fills up to `n`, and floats have six decimals.",
        examples: &[("topn_frequency(x, 2)", "4,1"), ("topn_frequency(c, 5)", "a,b")],
        is_ordered: false,
        bind: bind_topn_frequency,
    },
    AggregateFunction {
        name: "top1_ratio",
        aliases: &[],
        category: "frequency",
        signature: "top1_ratio(x number|TIMESTAMP|DATE|STRING) → DOUBLE",
        doc: "The share that the most frequent value has among the values that are not NULL; 0 \
              when there are none.",
        examples: &[("top1_ratio(x)", "0.5")],
        is_ordered: false,
        bind: |arguments| bind_question(arguments, &ORDERABLE, Question::TopRatio),
    },
    AggregateFunction {
        name: "entropy",
        aliases: &[],
        category: "frequency",
        signature: "entropy(x ANY) → DOUBLE",
        doc: "Shannon's entropy, in bits, of the frequencies of the values that are not NULL; NULL \
              when there are none. Its terms are summed exactly and rounded once.",
        examples: &[("entropy(x)", "1.5")],
        is_ordered: false,
        bind: |arguments| bind_question(arguments, &SCALAR, Question::Entropy),
    },
];

fn bind_distinct_count(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &SCALAR)?;
    let null_counts = arguments.settings.compatibility == Compatibility::OpenMldb;
    let zero = null_counts.then(|| match &data_type {
        DataType::String => Key::Text("".into()),
        float if float.is_float() => KeyRef::identity(Datum::Double(0.0)).expect("a key").to_key(),
        _ => Key::Integer(0),
    });
    let make = move |_feeding| Multiset::new(Question::Distinct, zero.clone());
    Ok(bound(vec![data_type], DataType::BigInt, make))
}

fn bind_approx_distinct(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &SCALAR)?;
    Ok(bound(vec![data_type], DataType::BigInt, |_feeding| Multiset::new(Question::Distinct, None)))
}

fn bind_topn_frequency(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 2..=2)?;
    let data_type = expect(arguments, 0, &ORDERABLE)?;
    let count = expect_size(arguments, 1)?;
    if count > TOPN_MAX {
        return Err(wrong_constant(1, "a constant integer of at most 1024"));
    }
    let question = Question::MostFrequent {
        count,
        pads: arguments.settings.compatibility == Compatibility::OpenMldb,
        data_type: data_type.clone(),
        printer: ItemPrinter::new(*arguments.settings),
    };
    let make = move |_feeding| Multiset::new(question.clone(), None);
    Ok(bound(vec![data_type, DataType::BigInt], DataType::String, make))
}

fn bind_question(
    arguments: &Arguments<'_>,
    class: &Class,
    question: Question,
) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, class)?;
    let make = move |_feeding| Multiset::new(question.clone(), None);
    Ok(bound(vec![data_type], DataType::Double, make))
}

/// What a multiset is asked.
#[derive(Debug, Clone)]
enum Question {
    Distinct,
    MostFrequent { count: usize, pads: bool, data_type: DataType, printer: ItemPrinter },
    TopRatio,
    Entropy,
}

/// Values and how often each occurs.
struct Multiset {
    question: Question,
    /// What NULL counts as; it is skipped when `None`.
    null_as: Option<Key>,
    counts: HashMap<Key, u64>,
    total: u64,
}

impl Multiset {
    fn new(question: Question, null_as: Option<Key>) -> Self {
        Self { question, null_as, counts: HashMap::new(), total: 0 }
    }

    fn entries(&self) -> Vec<(&Key, u64)> {
        let mut entries: Vec<(&Key, u64)> =
            self.counts.iter().map(|(key, count)| (key, *count)).collect();
        entries.sort_unstable_by(|left, right| right.1.cmp(&left.1).then(left.0.cmp(right.0)));
        entries
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of rows are below 2^53")]
    fn share(&self, count: u64) -> f64 {
        count as f64 / self.total as f64
    }

    fn entropy(&self) -> f64 {
        let mut sum = ExactSum::new();
        for count in self.counts.values() {
            let share = self.share(*count);
            sum.add(-share * share.log2());
        }
        sum.to_f64()
    }
}

impl Accumulator for Multiset {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        let null_as = self.null_as.as_ref().map(Key::as_ref);
        let Some(key) = KeyRef::identity(arguments[0]).or(null_as) else { return };
        self.total += 1;
        match self.counts.get_mut(&key) {
            Some(count) => *count += 1,
            None => {
                self.counts.insert(key.to_key(), 1);
            }
        }
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        let null_as = self.null_as.as_ref().map(Key::as_ref);
        let Some(key) = KeyRef::identity(arguments[0]).or(null_as) else { return };
        self.total -= 1;
        let count = self.counts.get_mut(&key).expect("a value that leaves was added");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&key);
        }
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        match &self.question {
            Question::Distinct => {
                Datum::BigInt(i64::try_from(self.counts.len()).expect("a count of rows"))
            }
            Question::MostFrequent { count, pads, data_type, printer } => {
                let entries = self.entries();
                let mut list = printer.list(arena);
                for index in 0..if *pads { *count } else { entries.len().min(*count) } {
                    list.push(|out| match entries.get(index) {
                        Some((key, _)) => printer.write(key.as_ref().datum(data_type), out),
                        None => printer.write(Datum::Null, out),
                    });
                }
                list.finish()
            }
            Question::TopRatio => {
                let most = self.counts.values().max();
                Datum::Double(most.map_or(0.0, |count| self.share(*count)))
            }
            Question::Entropy if self.total == 0 => Datum::Null,
            Question::Entropy => Datum::Double(self.entropy()),
        }
    }

    fn reset(&mut self) {
        self.counts.clear();
        self.total = 0;
    }
}
