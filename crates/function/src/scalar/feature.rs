//! Feature signatures, and the line formats of training programs.
//!
//! `continuous(x)`, `discrete(x)`, `binary_label(x)` and the like say what a value is to a model;
//! within an expression they have no value of their own and can only be arguments of `gcformat`, `csv`
//! and `libsvm` (as a whole item of a select list they are columns: `feature_role`). The binder
//! therefore resolves the [`Feature`] of each argument first ([`feature`]), and then the
//! format over the values of all of them ([`resolve_format`]); no signature is evaluated.

use std::fmt::{self, Write as _};

use bumpalo::collections::String as ArenaString;
use lockstep_row::{DataType, Datum};

use super::{
    CallArguments, NullHandling, Resolved, ScalarFunction, ScalarImplementation, SignatureError,
    hash::fingerprint,
    row_form,
    signature::{BOOL, INTEGER, INTEGER_OR_BOOL, NUMBER, NUMBER_OR_BOOL, PLAIN, expect, type_or},
};
use crate::{Compatibility, Settings, item_text::ItemPrinter, value_limit};

macro_rules! feature {
    ($name:literal, $signature:literal, $doc:literal, $examples:expr, $resolve:expr) => {
        ScalarFunction {
            name: $name,
            aliases: &[],
            category: "feature signatures",
            signature: $signature,
            doc: $doc,
            examples: $examples,
            resolve: $resolve,
        }
    };
}

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    feature!(
        "continuous",
        "continuous(value number|BOOL) → feature",
        "Marks `value` as a numeric feature. The call must be an argument of `gcformat`, `csv` or `libsvm`, or a whole item of a select list; such an item returns `value` as DOUBLE (FLOAT if `value` is FLOAT).",
        &[("csv(continuous(1.5), continuous(7))", "1.5,7"), ("csv(continuous(NULL))", "")],
        misplaced
    ),
    feature!(
        "discrete",
        "discrete(value[, bucket_count INT|BIGINT]) → feature",
        "Marks `value` as a categorical feature: its `hash64`, or the remainder of that hash divided by `bucket_count`. NULL if `value` is NULL, or if `bucket_count` is NULL or less than 1. The call must be an argument of `gcformat`, `csv` or `libsvm`, or a whole item of a select list; such an item returns that hash or remainder.",
        &[
            ("csv(discrete(3), discrete(3, 100))", "2681491882390849628,28"),
            ("csv(discrete(3, 0))", "")
        ],
        misplaced
    ),
    feature!(
        "binary_label",
        "binary_label(value BOOL) → label",
        "Marks `value` as the label of a two-class problem, written as 0 or 1. The call must be an argument of `gcformat`, `csv` or `libsvm`, or a whole item of a select list; such an item returns 0 or 1.",
        &[("libsvm(binary_label(true), continuous(2))", "1 1:2")],
        misplaced
    ),
    feature!(
        "multiclass_label",
        "multiclass_label(value integer|BOOL) → label",
        "Marks `value` as a label that is the number of a class. The call must be an argument of `gcformat`, `csv` or `libsvm`, or a whole item of a select list; such an item returns `value` as BIGINT.",
        &[("libsvm(multiclass_label(6), continuous(2))", "6 1:2")],
        misplaced
    ),
    feature!(
        "regression_label",
        "regression_label(value number) → label",
        "Marks `value` as a label that is a number to predict. The call must be an argument of `gcformat`, `csv` or `libsvm`, or a whole item of a select list; such an item returns `value` as DOUBLE (FLOAT if `value` is FLOAT).",
        &[("libsvm(regression_label(1.5), continuous(2))", "1.5 1:2")],
        misplaced
    ),
    feature!(
        "gcformat_index",
        "gcformat_index(value integer) → index",
        "Marks `value` as the number of the row, which `gcformat` writes after the label. The call must be an argument of `gcformat`, `csv` or `libsvm`, or a whole item of a select list; such an item returns `value` as BIGINT.",
        &[("gcformat(binary_label(true), gcformat_index(9), discrete(3, 10))", "1 9 | 1:8")],
        misplaced
    ),
    feature!(
        "gcformat",
        "gcformat(feature, …) → STRING",
        "Returns a line `label index | slot:hash:value slot:hash …`. Slots number the features from 1; a NULL feature is omitted and keeps its slot. A continuous feature is written with the FarmHash of its slot and its value, a discrete feature with its hash. A label or index that is not specified is empty. A line has at most one label and one index; with `compatibility = 'openmldb'` the last of several is used, and FLOAT and DOUBLE have six decimals.",
        &[
            (
                "gcformat(multiclass_label(6), continuous(1.5), discrete(3))",
                "6 | 1:5925585971146611297:1.5 2:2681491882390849628"
            ),
            ("gcformat(continuous(NULL), discrete('x', 1))", " | 2:0")
        ],
        empty_format
    ),
    feature!(
        "csv",
        "csv(feature, …) → STRING",
        "Returns the values of the features and labels, in the order of the arguments, separated by commas; NULL is empty. With `compatibility = 'openmldb'` FLOAT and DOUBLE have six decimals.",
        &[
            ("csv(multiclass_label(6), continuous(1.5), discrete(3))", "6,1.5,2681491882390849628"),
            ("csv(binary_label(false), continuous(NULL), continuous(0))", "0,,0")
        ],
        empty_format
    ),
    feature!(
        "libsvm",
        "libsvm(feature, …) → STRING",
        "Returns a line `label slot:value …`. A continuous feature is written as `slot:value` and uses one slot. A discrete feature is written as `hash:1` and uses no slot or, with `bucket_count`, as `slot:1` in one of `bucket_count` slots. A NULL feature is omitted and keeps its slots. A line has at most one label; with `compatibility = 'openmldb'` the last of several is used, and FLOAT and DOUBLE have six decimals.",
        &[
            (
                "libsvm(multiclass_label(6), continuous(1.5), discrete(3))",
                "6 1:1.5 2681491882390849628:1"
            ),
            ("libsvm(discrete(3, 1000), continuous(0.5))", "629:1 1001:0.5"),
            ("libsvm(continuous(NULL), continuous(2))", "2:2")
        ],
        empty_format
    ),
];

/// The kind of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeatureKind {
    Continuous,
    Discrete,
    Label,
    Index,
}

/// A resolved argument of a format: its kind, and the types that its arguments are cast to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    pub(super) kind: FeatureKind,
    pub(super) parameters: Vec<DataType>,
}

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineFormat {
    Gc,
    Csv,
    Libsvm,
}

/// The error of a call of a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FormatError {
    /// The position of the argument, from 0.
    pub position: usize,
    /// The error message.
    pub message: String,
}

/// Returns the signature function of a name, in any case.
pub fn signature(name: &str) -> Option<&'static ScalarFunction> {
    super::find(name).filter(|function| kind(function.name).is_some())
}

/// Returns the format function of a name, in any case.
pub fn format(name: &str) -> Option<&'static ScalarFunction> {
    super::find(name).filter(|function| format_of(function.name).is_some())
}

fn kind(name: &str) -> Option<FeatureKind> {
    Some(match name {
        "continuous" => FeatureKind::Continuous,
        "discrete" => FeatureKind::Discrete,
        "binary_label" | "multiclass_label" | "regression_label" => FeatureKind::Label,
        "gcformat_index" => FeatureKind::Index,
        _ => return None,
    })
}

fn format_of(name: &str) -> Option<LineFormat> {
    Some(match name {
        "gcformat" => LineFormat::Gc,
        "csv" => LineFormat::Csv,
        "libsvm" => LineFormat::Libsvm,
        _ => return None,
    })
}

/// Binds a call of a function that [`signature`] found.
pub fn feature(
    function: &ScalarFunction,
    arguments: &CallArguments<'_>,
) -> Result<Feature, SignatureError> {
    let (kind, class, null_as) = match function.name {
        "continuous" => (FeatureKind::Continuous, NUMBER_OR_BOOL, DataType::BigInt),
        "binary_label" => (FeatureKind::Label, BOOL, DataType::Bool),
        "multiclass_label" => (FeatureKind::Label, INTEGER_OR_BOOL, DataType::BigInt),
        "regression_label" => (FeatureKind::Label, NUMBER, DataType::BigInt),
        "gcformat_index" => (FeatureKind::Index, INTEGER, DataType::BigInt),
        _ => (FeatureKind::Discrete, PLAIN, DataType::BigInt),
    };
    let mut parameters = Vec::with_capacity(2);
    if kind == FeatureKind::Discrete {
        super::signature::expect_between(arguments, 1, &[class, INTEGER])?;
    } else {
        expect(arguments, &[class])?;
    }
    parameters.push(type_or(arguments, 0, null_as));
    if arguments.types.len() == 2 {
        parameters.push(DataType::BigInt);
    }
    Ok(Feature { kind, parameters })
}

/// Binds a call of a function that [`format()`] found. The implementation's parameters are those of
/// the features, one after the other.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "settings are passed by reference, as in `CallArguments`"
)]
pub fn resolve_format(
    function: &ScalarFunction,
    features: &[Feature],
    settings: &Settings,
) -> Result<ScalarImplementation, FormatError> {
    let format = format_of(function.name).unwrap_or(LineFormat::Csv);
    if format != LineFormat::Csv && settings.compatibility == Compatibility::Standard {
        at_most_one(features, FeatureKind::Label, "label")?;
    }
    if format == LineFormat::Gc && settings.compatibility == Compatibility::Standard {
        at_most_one(features, FeatureKind::Index, "index")?;
    }
    let parameters = features.iter().flat_map(|feature| feature.parameters.clone()).collect();
    let printer = ItemPrinter::new(*settings);
    let features: Box<[Feature]> = features.into();
    let row = row_form(move |arguments, arena| {
        let mut line = FeatureLine {
            printer,
            label: ArenaString::new_in(arena),
            index: ArenaString::new_in(arena),
            features: ArenaString::new_in(arena),
            slot: 1,
        };
        let mut rest = arguments;
        for (position, feature) in features.iter().enumerate() {
            debug_assert!(!feature.parameters.is_empty(), "a feature has a value");
            let (own, others) = rest.split_at(feature.parameters.len());
            rest = others;
            match format {
                LineFormat::Csv if position == 0 => line.push_field("", feature.value(own)),
                LineFormat::Csv => line.push_field(",", feature.value(own)),
                LineFormat::Gc => line.push_gc(feature, own),
                LineFormat::Libsvm => line.push_libsvm(feature, own),
            }
        }
        debug_assert!(rest.is_empty(), "each argument is of a feature");
        let line = line.finish(format);
        value_limit::text(line.len())?;
        Some(Datum::String(line.into_bump_str()))
    });
    Ok(ScalarImplementation {
        parameters,
        returns: DataType::String,
        nulls: NullHandling::Passed,
        row,
    })
}

fn at_most_one(features: &[Feature], kind: FeatureKind, what: &str) -> Result<(), FormatError> {
    let mut marked = features.iter().enumerate().filter(|(_, feature)| feature.kind == kind);
    let _first = marked.next();
    match marked.next() {
        None => Ok(()),
        Some((position, _)) => {
            Err(FormatError { position, message: format!("only one {what} is allowed") })
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}", self.kind, self.parameters.len())
    }
}

impl Feature {
    /// Returns the value of the feature in a line: of a discrete one the hash, or the bucket.
    pub(super) fn value<'a>(&self, own: &[Datum<'a>]) -> Datum<'a> {
        match (self.kind, own[0]) {
            (FeatureKind::Discrete, value) => self.hash(value, own).unwrap_or_default(),
            (_, Datum::Bool(value)) => Datum::Int(value.into()),
            (_, value) => value,
        }
    }

    fn hash<'a>(&self, value: Datum<'a>, own: &[Datum<'a>]) -> Option<Datum<'a>> {
        let hash = fingerprint(value)?;
        if self.parameters.len() == 1 {
            return Some(Datum::BigInt(hash.cast_signed()));
        }
        Some(Datum::BigInt((hash % self.bucket_count(own)?).cast_signed()))
    }

    /// Returns the number of buckets; `None` without buckets, and where it is NULL or below 1.
    fn bucket_count(&self, own: &[Datum<'_>]) -> Option<u64> {
        u64::try_from(own.get(1)?.as_i64()?).ok().filter(|count| *count > 0)
    }
}

/// A line under construction.
struct FeatureLine<'a> {
    printer: ItemPrinter,
    label: ArenaString<'a>,
    index: ArenaString<'a>,
    features: ArenaString<'a>,
    /// The slot of the next feature.
    slot: u64,
}

impl FeatureLine<'_> {
    /// Appends a separator and a field, which is empty for NULL.
    fn push_field(&mut self, separator: &str, value: Datum<'_>) {
        self.features.push_str(separator);
        if !value.is_null() {
            self.printer.write(value, &mut self.features);
        }
    }

    /// Sets the label or the index, replacing an earlier one.
    fn set_label_or_index(&mut self, feature: &Feature, value: Datum<'_>) {
        let text =
            if feature.kind == FeatureKind::Label { &mut self.label } else { &mut self.index };
        text.clear();
        if !value.is_null() {
            self.printer.write(value, text);
        }
    }

    /// Appends `slot:value` or `hash:value`, after a blank unless it is the first.
    fn push_pair(&mut self, key: impl fmt::Display, value: Datum<'_>) {
        if !self.features.is_empty() {
            self.features.push(' ');
        }
        write!(self.features, "{key}:").expect("writing to memory does not fail");
        self.printer.write(value, &mut self.features);
    }

    fn push_gc(&mut self, feature: &Feature, own: &[Datum<'_>]) {
        let value = feature.value(own);
        if matches!(feature.kind, FeatureKind::Label | FeatureKind::Index) {
            return self.set_label_or_index(feature, value);
        }
        let slot = self.slot;
        self.slot += 1;
        if value.is_null() {
            return;
        }
        if feature.kind == FeatureKind::Continuous {
            let hash = farmhash::fingerprint64(&slot.to_le_bytes()).cast_signed();
            self.push_pair(format_args!("{slot}:{hash}"), value);
        } else {
            self.push_pair(slot, value);
        }
    }

    fn push_libsvm(&mut self, feature: &Feature, own: &[Datum<'_>]) {
        const PRESENT: Datum<'static> = Datum::Int(1);
        let (value, slot) = (feature.value(own), self.slot);
        match (feature.kind, feature.bucket_count(own)) {
            (FeatureKind::Label, _) => return self.set_label_or_index(feature, value),
            (FeatureKind::Index, _) => return,
            (FeatureKind::Continuous, _) => self.slot += 1,
            (FeatureKind::Discrete, buckets) => self.slot = slot.wrapping_add(buckets.unwrap_or(0)),
        }
        match (feature.kind, feature.parameters.len(), value) {
            (_, _, Datum::Null) => {}
            (FeatureKind::Continuous, _, value) => self.push_pair(slot, value),
            (_, 1, value) => self.push_pair(value.as_i64().unwrap_or(0), PRESENT),
            (_, _, bucket) => {
                let bucket = bucket.as_i64().unwrap_or(0).cast_unsigned();
                self.push_pair(slot.wrapping_add(bucket), PRESENT);
            }
        }
    }
}

impl<'a> FeatureLine<'a> {
    fn finish(self, format: LineFormat) -> ArenaString<'a> {
        let mut line = self.label;
        match format {
            LineFormat::Csv => return self.features,
            LineFormat::Gc => {
                if !self.index.is_empty() {
                    line.push(' ');
                    line.push_str(&self.index);
                }
                line.push_str(" | ");
            }
            LineFormat::Libsvm if !line.is_empty() && !self.features.is_empty() => line.push(' '),
            LineFormat::Libsvm => {}
        }
        line.push_str(&self.features);
        line
    }
}

/// Returns the error of a signature that is not an argument of a format.
fn misplaced(_arguments: &CallArguments<'_>) -> Resolved {
    Err(SignatureError::Mismatch(
        "must be an argument of gcformat, csv or libsvm, or a whole item of a select list"
            .to_owned(),
    ))
}

/// Resolves a format without arguments, or with values that are not features.
fn empty_format(arguments: &CallArguments<'_>) -> Resolved {
    match arguments.types.first() {
        Some(found) => Err(SignatureError::Type {
            position: 1,
            expected: "a feature such as continuous(x) or discrete(x)".to_owned(),
            found: found.clone(),
        }),
        None => Err(SignatureError::Mismatch("requires features as arguments".to_owned())),
    }
}
