//! OPTIONS(…) of DEPLOY, read and checked.
//!
//! `deployment` calls it once for each DEPLOY. Knows values only; what they mean for indexes and
//! windows is for `index` and `long_window`.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_sql::ast::{Interval, IntervalUnit, Literal, OptionItem, OptionValue};

use crate::table_options::ignored;

/// The names, as SHOW DEPLOYMENT and hints print them.
const NAMES: &[&str] = &["long_windows", "skip_index_check", "sync", "range_bias", "rows_bias"];

/// The bucket of a long window that names none.
const BUCKET_DEFAULT: Bucket = Bucket::Time { milliseconds: 86_400_000 };

/// What OPTIONS say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeployOptions {
    /// The windows that are to be pre-aggregated, in the written order.
    pub(crate) long_windows: Vec<LongWindow>,
    /// Leave the retention of the indexes that there are as it is.
    pub(crate) skip_index_check: bool,
    /// Added to the time that indexes have to keep rows for, in milliseconds.
    pub(crate) range_bias: Bias,
    /// Added to the number of rows that indexes have to keep.
    pub(crate) rows_bias: Bias,
    /// (name, value) of everything that was written and is known, to be shown.
    pub(crate) written: Vec<(String, String)>,
}

/// One entry of `long_windows`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LongWindow {
    pub(crate) name: String,
    pub(crate) bucket: Bucket,
    /// Where the name stands.
    pub(crate) span: Span,
}

/// What a long window's partial results are kept for each of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bucket {
    /// A span of event time, aligned to the epoch.
    Time { milliseconds: i64 },
    /// A number of rows.
    Rows { count: u64 },
}

/// How much more an index keeps than the query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bias {
    /// So much more.
    By(u64),
    /// Everything.
    Infinite,
}

impl Default for Bias {
    fn default() -> Self {
        Self::By(0)
    }
}

/// Reads the options. One that does not exist is a warning, since a script that carries it still
/// means its query.
pub(crate) fn read(items: &[OptionItem]) -> Result<(DeployOptions, Vec<Diagnostic>)> {
    let mut options = DeployOptions::default();
    let mut warnings = Vec::new();
    for item in items {
        match item.key.text.as_str() {
            "long_windows" => options.long_windows = long_windows(item)?,
            "skip_index_check" => options.skip_index_check = flag(item)?,
            // A deployment is ready when DEPLOY returns; what it waits for is no question.
            "sync" => _ = flag(item)?,
            "range_bias" => options.range_bias = range_bias(item)?,
            "rows_bias" => options.rows_bias = rows_bias(item)?,
            _ => {
                warnings.push(ignored(item, NAMES));
                continue;
            }
        }
        options.written.push((item.key.text.clone(), text(&item.value)));
    }
    Ok((options, warnings))
}

fn flag(item: &OptionItem) -> Result<bool> {
    match text(&item.value).to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => invalid(item, "takes 'true' or 'false'"),
    }
}

fn range_bias(item: &OptionItem) -> Result<Bias> {
    let milliseconds = match &item.value {
        OptionValue::Literal(Literal::Interval(interval)) => interval.milliseconds(),
        other => return bias(item, other, "takes milliseconds, a duration such as 1d, or 'inf'"),
    };
    match milliseconds.and_then(|milliseconds| u64::try_from(milliseconds).ok()) {
        Some(milliseconds) => Ok(Bias::By(milliseconds)),
        None => invalid(item, "takes a duration that is not negative"),
    }
}

fn rows_bias(item: &OptionItem) -> Result<Bias> {
    bias(item, &item.value, "takes a number of rows, or 'inf'")
}

fn bias(item: &OptionItem, value: &OptionValue, wanted: &str) -> Result<Bias> {
    let count = match value {
        OptionValue::Literal(Literal::Int(count)) => i64::from(*count),
        OptionValue::Literal(Literal::BigInt(count)) => *count,
        OptionValue::Literal(Literal::String(word)) | OptionValue::Word(word)
            if word.eq_ignore_ascii_case("inf") =>
        {
            return Ok(Bias::Infinite);
        }
        _ => return invalid(item, wanted),
    };
    match u64::try_from(count) {
        Ok(count) => Ok(Bias::By(count)),
        Err(_) => invalid(item, wanted),
    }
}

fn long_windows(item: &OptionItem) -> Result<Vec<LongWindow>> {
    let OptionValue::Literal(Literal::String(text)) = &item.value else {
        return invalid(item, "takes a text such as 'w1:1d,w2'");
    };
    let mut windows: Vec<LongWindow> = Vec::new();
    let mut at = 0;
    for part in text.split(',') {
        let span = inner_span(item.span, text, at, part);
        at += part.len() + 1;
        let (name, bucket) = match part.split_once(':') {
            Some((name, bucket)) => (name.trim(), read_bucket(bucket.trim(), span)?),
            None => (part.trim(), BUCKET_DEFAULT),
        };
        if name.is_empty() {
            return invalid(item, "names each window, as in 'w1:1d,w2'");
        }
        if windows.iter().any(|window| window.name == name) {
            let message = format!("long window `{name}` is named twice");
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(span).err();
        }
        windows.push(LongWindow { name: name.to_owned(), bucket, span });
    }
    Ok(windows)
}

/// A part of a text, where the text was written without escapes; the whole value otherwise.
fn inner_span(value: Span, text: &str, at: usize, part: &str) -> Span {
    if value.end - value.start != text.len() + 2 {
        return value;
    }
    let start = value.start + 1 + at + (part.len() - part.trim_start().len());
    Span::new(start, start + part.trim().len())
}

fn read_bucket(text: &str, span: Span) -> Result<Bucket> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (amount, unit) = text.split_at(digits);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" => None,
        "s" => Some(IntervalUnit::Second),
        "m" => Some(IntervalUnit::Minute),
        "h" => Some(IntervalUnit::Hour),
        "d" => Some(IntervalUnit::Day),
        _ => return bad_bucket(text, span),
    };
    let Some(amount) = amount.parse::<i64>().ok().filter(|amount| *amount > 0) else {
        return bad_bucket(text, span);
    };
    let bucket = match unit {
        None => u64::try_from(amount).ok().map(|count| Bucket::Rows { count }),
        Some(unit) => Interval { amount, unit }
            .milliseconds()
            .map(|milliseconds| Bucket::Time { milliseconds }),
    };
    bucket.map_or_else(|| bad_bucket(text, span), Ok)
}

fn bad_bucket<T>(text: &str, span: Span) -> Result<T> {
    Diagnostic::new(code::INVALID_PARAMETER, format!("'{text}' is not a bucket of a long window"))
        .at(span)
        .with_hint("A bucket is a duration in s, m, h or d, such as 1d, or a number of rows.")
        .err()
}

fn invalid<T>(item: &OptionItem, what: &str) -> Result<T> {
    Diagnostic::new(code::INVALID_PARAMETER, format!("option `{}` {what}", item.key.text))
        .at(item.span)
        .err()
}

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

    use super::{Bias, Bucket, DeployOptions, read};

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
                ("w1", Bucket::Time { milliseconds: 2 * day }),
                ("w2", Bucket::Rows { count: 100 }),
                ("w3", Bucket::Time { milliseconds: day }),
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
