//! OPTIONS of DEPLOY.
//!
//! This file knows their values only; `retention` and `long_window` know what they mean for indexes
//! and windows.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_sql::ast::{Interval, IntervalUnit, Literal, OptionItem, OptionValue};

use crate::{
    options::{OptionArgument, OptionSpec, OptionTable, UnknownOption},
    variables::PRE_AGGREGATION_NAMES,
};

/// The bucket of a long window that names none.
const BUCKET_DEFAULT: LongWindowBucket = LongWindowBucket::Time { milliseconds: 86_400_000 };

/// The values of the options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeployOptions {
    /// The windows that are to be pre-aggregated, in the written order.
    pub(super) long_windows: Vec<LongWindow>,
    /// Whether the retention of declared indexes is left as it is.
    pub(super) skip_index_check: bool,
    /// Added to the time for which indexes keep rows, in milliseconds.
    pub(super) range_bias: Bias,
    /// Added to the number of rows that indexes keep.
    pub(super) rows_bias: Bias,
    /// For which keys windows have pre-aggregates: a value of the variable of this name.
    pub(super) pre_aggregation: Option<String>,
    /// The table to which answers are logged, with its position.
    pub(super) log_answers: Option<(String, Span)>,
    /// (name, value) of every option that was written and exists, for SHOW DEPLOYMENT.
    pub(super) written: Vec<(String, String)>,
}

/// One entry of `long_windows`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LongWindow {
    pub(super) name: String,
    pub(super) bucket: LongWindowBucket,
    /// The position of the entry.
    pub(super) span: Span,
}

/// The rows that one partial result of a long window covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LongWindowBucket {
    /// A span of event time, aligned to the epoch.
    Time { milliseconds: i64 },
    /// A number of rows.
    Rows { count: u64 },
}

/// How much more an index keeps than the query reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bias {
    /// This many milliseconds or rows more.
    By(u64),
    /// Everything.
    Infinite,
}

impl Default for Bias {
    fn default() -> Self {
        Self::By(0)
    }
}

const OPTIONS: OptionTable<'_, DeployOptions> = OptionTable {
    specs: SPECS,
    unknown: UnknownOption::Warning,
    error_code: code::INVALID_PARAMETER,
};

const SPECS: &[OptionSpec<DeployOptions>] = &[
    OptionSpec {
        name: "long_windows",
        set: |options, argument| {
            options.long_windows = long_windows(argument)?;
            Ok(())
        },
    },
    OptionSpec {
        name: "skip_index_check",
        set: |options, argument| {
            options.skip_index_check = flag(argument)?;
            Ok(())
        },
    },
    OptionSpec {
        name: "pre_aggregation",
        set: |options, argument| {
            let value = text(argument.value()).to_ascii_lowercase();
            if !PRE_AGGREGATION_NAMES.contains(&value.as_str()) {
                return argument.invalid("must be 'auto', 'off' or 'always'");
            }
            options.pre_aggregation = Some(value);
            Ok(())
        },
    },
    OptionSpec {
        name: "log_answers",
        set: |options, argument| {
            let name = argument.string()?;
            if name.trim().is_empty() {
                return argument.invalid("must be the name of a table");
            }
            options.log_answers = Some((name, argument.item().span));
            Ok(())
        },
    },
    // A deployment is ready when DEPLOY returns, whatever the value.
    OptionSpec { name: "sync", set: |_, argument| flag(argument).map(|_| ()) },
    OptionSpec {
        name: "range_bias",
        set: |options, argument| {
            options.range_bias = range_bias(argument)?;
            Ok(())
        },
    },
    OptionSpec {
        name: "rows_bias",
        set: |options, argument| {
            options.rows_bias = bias(argument, "must be a number of rows, or 'inf'")?;
            Ok(())
        },
    },
];

/// Reads the options; the warnings are the second value.
pub(super) fn read(items: &[OptionItem]) -> Result<(DeployOptions, Vec<Diagnostic>)> {
    let mut options = DeployOptions::default();
    let warnings = OPTIONS.read(items, &mut options)?;
    let known = items.iter().filter(|item| OPTIONS.has(&item.key.text));
    options.written = known.map(|item| (item.key.text.clone(), text(&item.value))).collect();
    Ok((options, warnings))
}

/// Reads TRUE or FALSE, quoted or not.
fn flag(argument: &OptionArgument<'_>) -> Result<bool> {
    match text(argument.value()).to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => argument.invalid("requires a Boolean value"),
    }
}

fn range_bias(argument: &OptionArgument<'_>) -> Result<Bias> {
    let OptionValue::Literal(Literal::Interval(interval)) = argument.value() else {
        return bias(argument, "must be a number of milliseconds, a duration such as 1d, or 'inf'");
    };
    match interval.milliseconds().and_then(|milliseconds| u64::try_from(milliseconds).ok()) {
        Some(milliseconds) => Ok(Bias::By(milliseconds)),
        None => argument.invalid("must be a non-negative duration"),
    }
}

/// Reads a number, or `'inf'`; `expected` says in the error what the option takes.
fn bias(argument: &OptionArgument<'_>, expected: &str) -> Result<Bias> {
    let count = match argument.value() {
        OptionValue::Literal(Literal::Int(count)) => i64::from(*count),
        OptionValue::Literal(Literal::BigInt(count)) => *count,
        OptionValue::Literal(Literal::String(word)) | OptionValue::Word(word)
            if word.eq_ignore_ascii_case("inf") =>
        {
            return Ok(Bias::Infinite);
        }
        _ => return argument.invalid(expected),
    };
    match u64::try_from(count) {
        Ok(count) => Ok(Bias::By(count)),
        Err(_) => argument.invalid(expected),
    }
}

fn long_windows(argument: &OptionArgument<'_>) -> Result<Vec<LongWindow>> {
    let OptionValue::Literal(Literal::String(text)) = argument.value() else {
        return argument.invalid("must be a string such as 'w1:1d,w2'");
    };
    let mut windows: Vec<LongWindow> = Vec::new();
    let mut at = 0;
    for part in text.split(',') {
        let span = inner_span(argument.item().span, text, at, part);
        at += part.len() + 1;
        let (name, bucket) = match part.split_once(':') {
            Some((name, bucket)) => (name.trim(), read_bucket(bucket.trim(), span)?),
            None => (part.trim(), BUCKET_DEFAULT),
        };
        if name.is_empty() {
            return argument.invalid("must name each window, as in 'w1:1d,w2'");
        }
        if windows.iter().any(|window| window.name == name) {
            let message = format!("long window `{name}` is specified more than once");
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(span).err();
        }
        windows.push(LongWindow { name: name.to_owned(), bucket, span });
    }
    debug_assert!(!windows.is_empty(), "a text has at least one part");
    Ok(windows)
}

/// Returns the position of a part of a string, where the string was written without escapes;
/// otherwise that of the whole value.
fn inner_span(value: Span, text: &str, at: usize, part: &str) -> Span {
    if value.end - value.start != text.len() + 2 {
        return value;
    }
    let start = value.start + 1 + at + (part.len() - part.trim_start().len());
    Span::new(start, start + part.trim().len())
}

/// Reads a duration in s, m, h or d, or a number of rows.
fn read_bucket(text: &str, span: Span) -> Result<LongWindowBucket> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (amount, unit) = text.split_at(digits);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" => None,
        "s" => Some(IntervalUnit::Second),
        "m" => Some(IntervalUnit::Minute),
        "h" => Some(IntervalUnit::Hour),
        "d" => Some(IntervalUnit::Day),
        _ => return invalid_bucket(text, span),
    };
    let Some(amount) = amount.parse::<i64>().ok().filter(|amount| *amount > 0) else {
        return invalid_bucket(text, span);
    };
    let bucket = match unit {
        None => u64::try_from(amount).ok().map(|count| LongWindowBucket::Rows { count }),
        Some(unit) => Interval { amount, unit }
            .milliseconds()
            .map(|milliseconds| LongWindowBucket::Time { milliseconds }),
    };
    bucket.map_or_else(|| invalid_bucket(text, span), Ok)
}

fn invalid_bucket<T>(text: &str, span: Span) -> Result<T> {
    Diagnostic::new(code::INVALID_PARAMETER, format!("invalid bucket of a long window: '{text}'"))
        .at(span)
        .with_hint("Use a duration in s, m, h or d, such as 1d, or a number of rows.")
        .err()
}

/// Writes a value as SHOW DEPLOYMENT does; empty for a list or an expression.
fn text(value: &OptionValue) -> String {
    match value {
        OptionValue::Literal(Literal::String(text)) | OptionValue::Word(text) => text.clone(),
        OptionValue::Literal(Literal::Bool(value)) => value.to_string(),
        OptionValue::Literal(Literal::Int(value)) => value.to_string(),
        OptionValue::Literal(Literal::BigInt(value)) => value.to_string(),
        OptionValue::Literal(Literal::Interval(interval)) => {
            let unit = match interval.unit {
                IntervalUnit::Second => "s",
                IntervalUnit::Minute => "m",
                IntervalUnit::Hour => "h",
                IntervalUnit::Day => "d",
            };
            format!("{}{unit}", interval.amount)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use lockstep_sql::{ast::Statement, parse};

    use super::{Bias, DeployOptions, LongWindowBucket, read};

    fn options(written: &str) -> Result<(DeployOptions, usize), String> {
        let sql = format!("DEPLOY d OPTIONS({written}) SELECT 1");
        let script = parse(&sql).map_err(|error| error.render(Some(&sql)))?;
        let Statement::Deploy(deploy) = &script[0].statement else { panic!("{sql}") };
        let read = read(&deploy.options).map_err(|error| error.render(Some(&sql)))?;
        Ok((read.0, read.1.len()))
    }

    fn check_refused(written: &str, place: &str) {
        let error = options(written).expect_err(written);
        let sql = format!("DEPLOY d OPTIONS({written}) SELECT 1");
        let at = sql.find(place).expect("the place is in the statement");
        let caret = format!("{}{}\n", " ".repeat("line 1: ".len() + at), "^".repeat(place.len()));
        assert!(format!("{error}\n").contains(&caret), "{error}");
    }

    #[test]
    fn long_windows_have_buckets() {
        let (read, _) = options("long_windows='w1:2d, w2 : 100 ,w3'").expect("they are right");
        let buckets: Vec<_> =
            read.long_windows.iter().map(|w| (w.name.as_str(), w.bucket)).collect();
        let day = 86_400_000;
        assert_eq!(
            buckets,
            [
                ("w1", LongWindowBucket::Time { milliseconds: 2 * day }),
                ("w2", LongWindowBucket::Rows { count: 100 }),
                ("w3", LongWindowBucket::Time { milliseconds: day }),
            ]
        );
    }

    #[test]
    fn a_wrong_value_is_refused_where_it_stands() {
        check_refused("long_windows='w1:2y,w2'", "w1:2y");
        check_refused("long_windows='w1,w2:0'", "w2:0");
        check_refused("long_windows='w1,w1:1d'", "w1:1d");
        check_refused("long_windows=''", "''");
        check_refused("long_windows=7", "7");
        check_refused("skip_index_check='maybe'", "'maybe'");
        check_refused("sync=2", "2");
        check_refused("range_bias='many'", "'many'");
        check_refused("range_bias=-1d", "-1d");
        check_refused("rows_bias=-1", "-1");
        check_refused("rows_bias=1d", "1d");
        check_refused("log_answers=7", "7");
        check_refused("log_answers=''", "''");
    }

    #[test]
    fn biases_are_numbers_durations_or_infinite() {
        let (read, warnings) =
            options("range_bias=1m, rows_bias='inf', skip_index_check='TRUE', sync=false")
                .expect("they are right");
        assert_eq!((read.range_bias, read.rows_bias), (Bias::By(60_000), Bias::Infinite));
        assert!(read.skip_index_check);
        assert_eq!(warnings, 0);
        assert_eq!(read.written[0], ("range_bias".to_owned(), "1m".to_owned()));
    }

    #[test]
    fn an_option_that_does_not_exist_is_a_warning() {
        let (read, warnings) = options("long_window='w1'").expect("it is only a warning");
        assert_eq!((read, warnings), (DeployOptions::default(), 1));
    }
}
