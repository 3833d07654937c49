//! Variables of a session and of the engine: SET and SHOW VARIABLES.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, Settings, TimeZone};
use lockstep_host::QueryLimits;
use lockstep_sql::ast::{Ident, Literal, OptionValue};

use crate::catalog::CatalogCommand;

/// A variable of a session.
struct Variable {
    name: &'static str,
    default: &'static str,
    values: Values,
}

/// The values that a variable takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    /// Any text.
    Any,
    /// One of these, in any case.
    OneOf(&'static [&'static str]),
    /// A whole number in this range.
    Number(i64, i64),
    /// A number of bytes, 0 being no limit. Of the engine, not of a session.
    Bytes,
    /// The same of a session.
    SessionBytes,
    /// A duration, 0 being no limit.
    Duration,
    /// More than 0, and 1 at most. Of the engine, not of a session.
    Part,
}

/// `true` and `false`.
const SWITCH: Values = Values::OneOf(&["true", "false"]);

/// Where SELECT reads and LOAD DATA writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Storage {
    /// The table, from which requests are answered too.
    #[default]
    Online,
    /// What was loaded in offline mode.
    Offline,
}

/// The most bytes that all tables may hold together.
const MAX_MEMORY: &str = "max_memory";
/// From this part of `max_memory` on an alert is given.
const MEMORY_ALERT_RATIO: &str = "memory_alert_ratio";

/// The most bytes that a query may hold while it runs.
const MEMORY_LIMIT: &str = "memory_limit";
/// Whether NaN comes in as NULL, from programs and files alike.
const NAN_AS_NULL: &str = "nan_as_null";
/// The longest time that a statement or a request may take.
const STATEMENT_TIMEOUT: &str = "statement_timeout";
/// From which percentage of `max_memory` on INSERT is refused.
const INSERT_MEMORY: &str = "insert_memory_usage_limit";

/// Declared once: SET checks against this, SHOW VARIABLES lists it.
const VARIABLES: &[Variable] = &[
    Variable {
        name: "compatibility",
        default: "standard",
        values: Values::OneOf(&["standard", "openmldb"]),
    },
    Variable { name: "deploy_stats", default: "off", values: Values::OneOf(&["on", "off"]) },
    Variable { name: "enable_trace", default: "false", values: SWITCH },
    Variable {
        name: "execute_mode",
        default: "online",
        values: Values::OneOf(&["online", "offline", "request"]),
    },
    Variable { name: INSERT_MEMORY, default: "0", values: Values::Number(0, 100) },
    Variable { name: "job_timeout", default: "20000", values: Values::Number(0, i64::MAX) },
    Variable { name: MAX_MEMORY, default: "0", values: Values::Bytes },
    Variable { name: MEMORY_ALERT_RATIO, default: "0.8", values: Values::Part },
    Variable { name: MEMORY_LIMIT, default: "0", values: Values::SessionBytes },
    Variable { name: NAN_AS_NULL, default: "false", values: SWITCH },
    Variable { name: "spark_config", default: "", values: Values::Any },
    Variable { name: STATEMENT_TIMEOUT, default: "0", values: Values::Duration },
    Variable { name: "sync_job", default: "false", values: SWITCH },
    Variable { name: "time_zone", default: "UTC", values: Values::Any },
];

/// The variables of one session.
#[derive(Debug, Clone)]
pub(crate) struct Variables {
    values: Vec<String>,
    /// What the functions see of them.
    pub(crate) settings: Settings,
    /// What a statement may use by them.
    pub(crate) limits: QueryLimits,
}

impl Default for Variables {
    fn default() -> Self {
        Self {
            values: VARIABLES.iter().map(|variable| variable.default.to_owned()).collect(),
            settings: Settings::default(),
            limits: QueryLimits::default(),
        }
    }
}

impl Variable {
    fn is_of_engine(&self) -> bool {
        matches!(self.values, Values::Bytes | Values::Part)
    }

    fn check(&self, text: &str, lower: &str, span: Span) -> Result<()> {
        let hint = match self.values {
            Values::Any => return Ok(()),
            Values::OneOf(values) if values.contains(&lower) => return Ok(()),
            Values::OneOf(values) => format!("It is one of {}.", values.join(", ")),
            Values::Number(least, most) => match lower.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => return Ok(()),
                _ => format!("It is a whole number from {least} to {most}."),
            },
            Values::Bytes | Values::SessionBytes if bytes(lower).is_some() => return Ok(()),
            Values::Bytes | Values::SessionBytes => {
                "It is a number of bytes, such as '2GB', '512MB' or 0 for no limit.".to_owned()
            }
            Values::Duration if duration_ms(lower).is_some() => return Ok(()),
            Values::Duration => {
                "It is a duration, such as '30s', '500ms', '10min' or 0 for no limit; a number \
                 without a unit is milliseconds."
                    .to_owned()
            }
            Values::Part if part_ppm(lower).is_some() => return Ok(()),
            Values::Part => "It is more than 0, and 1 at most.".to_owned(),
        };
        let message = format!("variable `{}` cannot be '{text}'", self.name);
        Diagnostic::new(code::INVALID_PARAMETER, message).at(span).with_hint(hint).err()
    }
}

/// Says of a value that it changes nothing, where that is so.
fn without_effect(name: &str, value: &str) -> Option<&'static str> {
    match (name, value) {
        ("deploy_stats", "on") => {
            Some("Times of requests are not collected: measure them where they are made.")
        }
        ("enable_trace", "true") => Some("Errors say all that is known of them without it."),
        ("job_timeout", _) => {
            Some("A job runs within its statement; SET statement_timeout limits every statement.")
        }
        ("spark_config", config) if !config.is_empty() => {
            Some("Batch mode runs in this process; SET memory_limit limits what a query may hold.")
        }
        ("sync_job", "false") => Some("A statement returns when its job is over."),
        _ => None,
    }
}

impl Variables {
    /// The warning that SET gives for a value of the variable that changes nothing.
    pub(crate) fn warning(&self, name: &Ident) -> Option<Diagnostic> {
        let wanted = name.text.to_ascii_lowercase();
        let (_, value) = self.list().find(|(known, _)| *known == wanted)?;
        let hint = without_effect(&wanted, value)?;
        Some(no_effect(&format!("variable `{wanted}`"), name.span).with_hint(hint))
    }

    /// From which percentage of `max_memory` on INSERT is refused; `None`: from its limit on.
    pub(crate) fn insert_memory_percent(&self) -> Option<u64> {
        let percent = self.value(INSERT_MEMORY).parse::<u64>().ok()?;
        (1..100).contains(&percent).then_some(percent)
    }

    /// SET name = value.
    pub(crate) fn set(&mut self, name: &Ident, value: &OptionValue) -> Result<()> {
        let wanted = name.text.to_ascii_lowercase();
        let Some(at) = VARIABLES.iter().position(|variable| variable.name == wanted) else {
            return Diagnostic::new(
                code::UNDEFINED_OBJECT,
                format!("variable `{}` does not exist", name.text),
            )
            .at(name.span)
            .with_nearest(&wanted, VARIABLES.iter().map(|variable| variable.name))
            .err();
        };
        let variable = &VARIABLES[at];
        let text = text(value, name.span)?;
        let lower = text.to_ascii_lowercase();
        variable.check(&text, &lower, name.span)?;
        match variable.name {
            MEMORY_LIMIT => self.limits.memory_bytes = bytes(&lower).filter(|bytes| *bytes > 0),
            STATEMENT_TIMEOUT => self.limits.timeout_ms = duration_ms(&lower).filter(|ms| *ms > 0),
            "time_zone" => self.settings.time_zone = time_zone(&text, name.span)?,
            "compatibility" => {
                self.settings.compatibility = match lower.as_str() {
                    "openmldb" => Compatibility::OpenMldb,
                    _ => Compatibility::Standard,
                };
            }
            _ => {}
        }
        let is_kept = matches!(
            variable.values,
            Values::Any | Values::Bytes | Values::SessionBytes | Values::Duration
        );
        self.values[at] = if is_kept { text } else { lower };
        Ok(())
    }

    /// Whether a variable is of the engine, so that SET GLOBAL is the only way to set it.
    pub(crate) fn is_of_engine(name: &Ident) -> bool {
        let wanted = name.text.to_ascii_lowercase();
        VARIABLES.iter().any(|variable| variable.name == wanted && variable.is_of_engine())
    }

    /// The most bytes that the tables may hold; `None`: no limit.
    pub(crate) fn max_memory(&self) -> Option<u64> {
        bytes(&self.value(MAX_MEMORY).to_ascii_lowercase()).filter(|bytes| *bytes > 0)
    }

    /// Sets [`Self::max_memory`] of the engine.
    pub(crate) fn max_memory_command(bytes: Option<u64>) -> CatalogCommand {
        let name = Ident { text: MAX_MEMORY.to_owned(), span: Span::default() };
        let value = OptionValue::Literal(Literal::String(bytes.unwrap_or(0).to_string()));
        CatalogCommand::SetVariable { name, value }
    }

    /// From which part of the limit on an alert is given, in millionths.
    pub(crate) fn memory_alert_ppm(&self) -> u64 {
        part_ppm(self.value(MEMORY_ALERT_RATIO)).expect("it was checked when it was set")
    }

    /// Whether NaN comes in as NULL.
    pub(crate) fn nan_is_null(&self) -> bool {
        self.value(NAN_AS_NULL) == "true"
    }

    fn value(&self, name: &str) -> &str {
        let found = self.list().find(|(other, _)| *other == name);
        found.expect("it is declared").1
    }

    /// What `execute_mode` means.
    pub(crate) fn storage(&self) -> Storage {
        let mode = self.list().find(|(name, _)| *name == "execute_mode");
        match mode {
            Some((_, "offline")) => Storage::Offline,
            _ => Storage::Online,
        }
    }

    /// Names and values of what a session can set, by name.
    pub(crate) fn list_of_session(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let of_engine = VARIABLES.iter().map(Variable::is_of_engine);
        self.list().zip(of_engine).filter(|(_, of_engine)| !of_engine).map(|(pair, _)| pair)
    }

    /// Names and values, by name.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&'static str, &str)> {
        VARIABLES.iter().map(|variable| variable.name).zip(self.values.iter().map(String::as_str))
    }
}

fn time_zone(text: &str, span: Span) -> Result<TimeZone> {
    if let Some(zone) = TimeZone::parse(text) {
        return Ok(zone);
    }
    let names = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
    let error =
        Diagnostic::new(code::INVALID_PARAMETER, format!("time zone '{text}' does not exist"))
            .at(span)
            .with_nearest(text, names);
    match error.hint {
        Some(_) => error.err(),
        None => error
            .with_hint(
                "Use a name of the IANA database, such as 'Europe/Paris', or an offset from UTC, \
                 such as '+08:00'.",
            )
            .err(),
    }
}

/// The warning for what was written, is taken, and changes nothing.
pub(crate) fn no_effect(what: &str, span: Span) -> Diagnostic {
    Diagnostic::new(code::FEATURE_NOT_SUPPORTED, format!("{what} has no effect")).at(span)
}

fn text(value: &OptionValue, span: Span) -> Result<String> {
    Ok(match value {
        OptionValue::Literal(Literal::String(text)) | OptionValue::Word(text) => text.clone(),
        OptionValue::Literal(Literal::Bool(value)) => value.to_string(),
        OptionValue::Literal(Literal::Int(value)) => value.to_string(),
        OptionValue::Literal(Literal::BigInt(value)) => value.to_string(),
        OptionValue::Literal(Literal::Interval(value)) => match value.milliseconds() {
            Some(ms) => format!("{ms}ms"),
            None => i64::MAX.to_string(),
        },
        OptionValue::Literal(Literal::Double(value)) => value.to_string(),
        _ => {
            return Diagnostic::new(code::INVALID_PARAMETER, "a variable takes a constant")
                .at(span)
                .err();
        }
    })
}

/// A number of bytes in lower case, with a unit or without. Units are powers of 1,024.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim() {
        "" | "b" => 1,
        "kb" | "kib" => 1 << 10,
        "mb" | "mib" => 1 << 20,
        "gb" | "gib" => 1 << 30,
        "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let (whole, fraction) = number.split_once('.')?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    // Six digits of a tebibyte are a mebibyte, which is fine enough.
    let millionths = format!("{fraction:0<6}").get(..6)?.parse::<u64>().ok()?;
    whole.checked_add(unit / PPM * millionths + unit % PPM * millionths / PPM)
}

/// A duration in lower case, in milliseconds; without a unit it is that already.
fn duration_ms(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Millionths of one.
const PPM: u64 = 1_000_000;

/// A part of one in millionths: more than 0, and 1 at most.
fn part_ppm(text: &str) -> Option<u64> {
    let ppm = bytes(text).filter(|whole| *whole <= 1).map(|whole| whole * PPM);
    let ppm = match text.split_once('.') {
        None => ppm?,
        Some((whole, fraction)) => {
            if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let millionths = format!("{fraction:0<6}").get(..6)?.parse::<u64>().ok()?;
            whole.parse::<u64>().ok()?.checked_mul(PPM)?.checked_add(millionths)?
        }
    };
    (1..=PPM).contains(&ppm).then_some(ppm)
}

#[cfg(test)]
mod tests {
    use super::{bytes, duration_ms, part_ppm};

    #[test]
    fn a_duration_has_a_unit_or_is_milliseconds() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(duration_ms(text), expected);
        check("0", Some(0));
        check("1500", Some(1_500));
        check("500ms", Some(500));
        check("30s", Some(30_000));
        check("2 min", Some(120_000));
        check("5m", Some(300_000));
        check("1h", Some(3_600_000));
        check("1d", Some(86_400_000));
        check("1w", None);
        check("s", None);
        check("-1", None);
        check("1.5s", None);
        check("99999999999999999999d", None);
    }

    #[test]
    fn bytes_have_units() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(bytes(text), expected, "{text}");
        check("0", Some(0));
        check("1000", Some(1_000));
        check("2gb", Some(2 << 30));
        check("1.5 gib", Some(3 << 29));
        check("0.5mb", Some(1 << 19));
        check("17 tb", Some(17 << 40));
        check("-1", None);
        check("gb", None);
        check("1.x gb", None);
        check("2 gigabytes", None);
        check("99999999999 tb", None);
    }

    #[test]
    fn a_part_is_between_0_and_1() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(part_ppm(text), expected);
        check("0.8", Some(800_000));
        check("1", Some(1_000_000));
        check("1.0", Some(1_000_000));
        check("0.1234567", Some(123_456));
        check("0", None);
        check("1.01", None);
        check("0.", None);
        check("-0.5", None);
        check("half", None);
        check("1gb", None);
    }
}
