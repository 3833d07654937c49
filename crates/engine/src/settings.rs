//! Session variables: SET and SHOW VARIABLES.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, Settings};
use lockstep_sql::ast::{Ident, Literal, OptionValue};

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
    Variable { name: "insert_memory_usage_limit", default: "0", values: Values::Number(0, 100) },
    Variable { name: "job_timeout", default: "20000", values: Values::Number(0, i64::MAX) },
    Variable { name: "spark_config", default: "", values: Values::Any },
    Variable { name: "sync_job", default: "false", values: SWITCH },
    Variable { name: "time_zone", default: "UTC", values: Values::Any },
];

/// The variables of one session.
#[derive(Debug, Clone)]
pub(crate) struct Variables {
    values: Vec<String>,
    /// What the functions see of them.
    pub(crate) settings: Settings,
}

impl Default for Variables {
    fn default() -> Self {
        Self {
            values: VARIABLES.iter().map(|variable| variable.default.to_owned()).collect(),
            settings: Settings::default(),
        }
    }
}

impl Variable {
    fn check(&self, text: &str, lower: &str, span: Span) -> Result<()> {
        let hint = match self.values {
            Values::Any => return Ok(()),
            Values::OneOf(values) if values.contains(&lower) => return Ok(()),
            Values::OneOf(values) => format!("It is one of {}.", values.join(", ")),
            Values::Number(least, most) => match lower.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => return Ok(()),
                _ => format!("It is a whole number from {least} to {most}."),
            },
        };
        let message = format!("variable `{}` cannot be '{text}'", self.name);
        Diagnostic::new(code::INVALID_PARAMETER, message).at(span).with_hint(hint).err()
    }
}

impl Variables {
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
            "time_zone" => self.settings.time_zone = time_zone(&text, name.span)?,
            "compatibility" => {
                self.settings.compatibility = match lower.as_str() {
                    "openmldb" => Compatibility::OpenMldb,
                    _ => Compatibility::Standard,
                };
            }
            _ => {}
        }
        self.values[at] = if variable.values == Values::Any { text } else { lower };
        Ok(())
    }

    /// What `execute_mode` means.
    pub(crate) fn storage(&self) -> Storage {
        let mode = self.list().find(|(name, _)| *name == "execute_mode");
        match mode {
            Some((_, "offline")) => Storage::Offline,
            _ => Storage::Online,
        }
    }

    /// Names and values, by name.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&'static str, &str)> {
        VARIABLES.iter().map(|variable| variable.name).zip(self.values.iter().map(String::as_str))
    }
}

fn time_zone(text: &str, span: Span) -> Result<chrono_tz::Tz> {
    let found = chrono_tz::TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(text));
    if let Some(zone) = found {
        return Ok(*zone);
    }
    let names = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
    let error =
        Diagnostic::new(code::INVALID_PARAMETER, format!("time zone '{text}' does not exist"))
            .at(span)
            .with_nearest(text, names);
    match error.hint {
        Some(_) => error.err(),
        None => error.with_hint("Use a name of the IANA database, such as 'Europe/Paris'.").err(),
    }
}

fn text(value: &OptionValue, span: Span) -> Result<String> {
    Ok(match value {
        OptionValue::Literal(Literal::String(text)) | OptionValue::Word(text) => text.clone(),
        OptionValue::Literal(Literal::Bool(value)) => value.to_string(),
        OptionValue::Literal(Literal::Int(value)) => value.to_string(),
        OptionValue::Literal(Literal::BigInt(value)) => value.to_string(),
        OptionValue::Literal(Literal::Double(value)) => value.to_string(),
        _ => {
            return Diagnostic::new(code::INVALID_PARAMETER, "a variable takes a constant")
                .at(span)
                .err();
        }
    })
}
