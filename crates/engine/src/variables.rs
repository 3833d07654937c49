//! The variables of a session and of the engine, which SET changes and SHOW VARIABLES lists.

mod value;

use std::path::PathBuf;

use lockstep_batch::WindowSkew;
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, Settings, TimeZone};
use lockstep_host::QueryLimits;
use lockstep_sql::ast::{Ident, Literal, OptionValue};
use lockstep_table::Durability;

use self::value::{CacheSize, bytes, fraction_ppm, share_ppm};
pub(crate) use self::value::{duration_ms, memory_without_limit};
use crate::{catalog::CatalogCommand, checkpoint_thread::CheckpointRule};

/// The declaration of a variable.
struct Variable {
    name: &'static str,
    default: &'static str,
    scope: VariableScope,
    data_type: VariableType,
}

/// Who has a value of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VariableScope {
    /// Each session; SET GLOBAL changes the value that new sessions start with.
    Session,
    /// The engine: only SET GLOBAL changes the value.
    Engine,
}

/// The values that a variable takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VariableType {
    /// Any text.
    Any,
    /// One of these words, in any case.
    OneOf(&'static [&'static str]),
    /// A whole number between these, both included.
    Number { least: i64, most: i64 },
    /// A number of bytes; 0 is no limit.
    Bytes,
    /// A duration; 0 is no limit.
    Duration,
    /// A duration from a millisecond to an hour.
    Window,
    /// More than 0, and at most 1.
    Fraction,
    /// From 0 to 1.
    Share,
    /// A number of bytes, or a part of `max_memory` from 1 % to 90 %.
    CacheSize,
}

/// `true` and `false`.
const SWITCH: VariableType = VariableType::OneOf(&["true", "false"]);

/// The data that SELECT reads and LOAD DATA writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Storage {
    /// The rows of the table, from which requests are answered too.
    #[default]
    Online,
    /// The offline data, which LOAD DATA loaded in offline mode.
    Offline,
}

/// The most bytes that all tables may hold together.
const MAX_MEMORY: &str = "max_memory";
/// The most bytes that the temporary files of all queries may take together.
const MAX_TEMP_DIRECTORY_SIZE: &str = "max_temp_directory_size";
/// The folder of temporary files; empty: the system's.
const TEMP_DIRECTORY: &str = "temp_directory";
/// The fraction of `max_memory` from which an alert is logged.
const MEMORY_ALERT_RATIO: &str = "memory_alert_ratio";

/// The most bytes of pages of disk tables in memory.
const PAGE_CACHE: &str = "page_cache";

/// What a write waits for before it is acknowledged.
const DURABILITY: &str = "durability";
/// The value of `durability` of an engine in memory, which has no log.
const NO_DURABILITY: &str = "none";
/// The levels of durability.
pub(crate) const DURABILITY_NAMES: &[&str] = &["disk", "os", "memory"];
/// The most bytes that a query may hold while it runs.
const MEMORY_LIMIT: &str = "memory_limit";
/// Whether NaN in rows of programs and files is read as NULL.
const NAN_AS_NULL: &str = "nan_as_null";
/// The longest time that a statement or a request may take.
const STATEMENT_TIMEOUT: &str = "statement_timeout";
/// The longest time that a job may take: LOAD DATA, INTO OUTFILE, a statement of offline mode.
const JOB_TIMEOUT: &str = "job_timeout";
/// From how many milliseconds a call is recorded as slow; 0: none is.
const SLOW_REQUEST_MS: &str = "slow_request_ms";
/// The percentage of `max_memory` from which INSERT is refused.
const INSERT_MEMORY: &str = "insert_memory_usage_limit";

/// After how long what no write waits for is on the disk.
const DURABILITY_WINDOW: &str = "durability_window";

/// How large the log may grow before a checkpoint is written.
const CHECKPOINT_LOG_SIZE: &str = "checkpoint_log_size";
/// After how long a checkpoint is written.
const CHECKPOINT_INTERVAL: &str = "checkpoint_interval";

/// For which keys the windows of a deployment have pre-aggregates.
const PRE_AGGREGATION: &str = "pre_aggregation";
/// The share of answers with pre-aggregates that are computed again from rows and compared.
const PRE_AGGREGATION_CHECK: &str = "pre_aggregation_check";
/// The values of `pre_aggregation`.
pub(crate) const PRE_AGGREGATION_NAMES: &[&str] = &["auto", "off", "always"];

/// When batch mode cuts the rows of one key into time slices, for several threads.
const WINDOW_SKEW: &str = "window_skew";

/// Every variable, by name.
const VARIABLES: &[Variable] = &[
    Variable {
        name: CHECKPOINT_INTERVAL,
        default: "5min",
        scope: VariableScope::Engine,
        data_type: VariableType::Duration,
    },
    Variable {
        name: CHECKPOINT_LOG_SIZE,
        default: "256MB",
        scope: VariableScope::Engine,
        data_type: VariableType::Bytes,
    },
    Variable {
        name: "compatibility",
        default: "standard",
        scope: VariableScope::Session,
        data_type: VariableType::OneOf(&["standard", "openmldb"]),
    },
    Variable {
        name: "deploy_stats",
        default: "off",
        scope: VariableScope::Session,
        data_type: VariableType::OneOf(&["on", "off"]),
    },
    Variable {
        name: DURABILITY,
        default: "disk",
        scope: VariableScope::Session,
        data_type: VariableType::OneOf(DURABILITY_NAMES),
    },
    Variable {
        name: DURABILITY_WINDOW,
        default: "1s",
        scope: VariableScope::Engine,
        data_type: VariableType::Window,
    },
    Variable {
        name: "enable_trace",
        default: "false",
        scope: VariableScope::Session,
        data_type: SWITCH,
    },
    Variable {
        name: "execute_mode",
        default: "online",
        scope: VariableScope::Session,
        data_type: VariableType::OneOf(&["online", "offline", "request"]),
    },
    Variable {
        name: INSERT_MEMORY,
        default: "0",
        scope: VariableScope::Session,
        data_type: VariableType::Number { least: 0, most: 100 },
    },
    Variable {
        name: JOB_TIMEOUT,
        default: "0",
        scope: VariableScope::Session,
        data_type: VariableType::Duration,
    },
    Variable {
        name: MAX_MEMORY,
        default: "0",
        scope: VariableScope::Engine,
        data_type: VariableType::Bytes,
    },
    Variable {
        name: MAX_TEMP_DIRECTORY_SIZE,
        default: "0",
        scope: VariableScope::Engine,
        data_type: VariableType::Bytes,
    },
    Variable {
        name: MEMORY_ALERT_RATIO,
        default: "0.8",
        scope: VariableScope::Engine,
        data_type: VariableType::Fraction,
    },
    Variable {
        name: MEMORY_LIMIT,
        default: "0",
        scope: VariableScope::Session,
        data_type: VariableType::Bytes,
    },
    Variable {
        name: NAN_AS_NULL,
        default: "false",
        scope: VariableScope::Session,
        data_type: SWITCH,
    },
    Variable {
        name: PAGE_CACHE,
        default: "25%",
        scope: VariableScope::Engine,
        data_type: VariableType::CacheSize,
    },
    Variable {
        name: PRE_AGGREGATION,
        default: "auto",
        scope: VariableScope::Session,
        data_type: VariableType::OneOf(PRE_AGGREGATION_NAMES),
    },
    Variable {
        name: PRE_AGGREGATION_CHECK,
        default: "0",
        scope: VariableScope::Engine,
        data_type: VariableType::Share,
    },
    Variable {
        name: SLOW_REQUEST_MS,
        default: "0",
        scope: VariableScope::Engine,
        data_type: VariableType::Number { least: 0, most: i64::MAX },
    },
    Variable {
        name: "spark_config",
        default: "",
        scope: VariableScope::Session,
        data_type: VariableType::Any,
    },
    Variable {
        name: STATEMENT_TIMEOUT,
        default: "0",
        scope: VariableScope::Session,
        data_type: VariableType::Duration,
    },
    Variable {
        name: "sync_job",
        default: "false",
        scope: VariableScope::Session,
        data_type: SWITCH,
    },
    Variable {
        name: TEMP_DIRECTORY,
        default: "",
        scope: VariableScope::Session,
        data_type: VariableType::Any,
    },
    Variable {
        name: "time_zone",
        default: "UTC",
        scope: VariableScope::Session,
        data_type: VariableType::Any,
    },
    Variable {
        name: WINDOW_SKEW,
        default: "auto",
        scope: VariableScope::Session,
        data_type: VariableType::OneOf(&["auto", "off", "always"]),
    },
];

/// The variables of one session.
#[derive(Debug, Clone)]
pub(crate) struct Variables {
    values: Vec<String>,
    /// The variables that functions depend on.
    pub(crate) settings: Settings,
    /// The limits of a statement.
    pub(crate) limits: QueryLimits,
    /// Whether the engine is in memory: no write can wait for a disk.
    is_in_memory: bool,
}

impl Variables {
    /// Makes the variables of a new engine.
    pub(crate) fn new(is_in_memory: bool) -> Self {
        debug_assert!(
            VARIABLES.is_sorted_by_key(|variable| variable.name),
            "SHOW VARIABLES lists them by name"
        );
        let default = |variable: &Variable| match variable.name {
            DURABILITY if is_in_memory => NO_DURABILITY.to_owned(),
            _ => variable.default.to_owned(),
        };
        Self {
            values: VARIABLES.iter().map(default).collect(),
            settings: Settings::default(),
            limits: QueryLimits::default(),
            is_in_memory,
        }
    }
}

impl Variable {
    /// Checks that the variable takes a value, given as written and in lower case.
    fn check(&self, text: &str, lower: &str, span: Span) -> Result<()> {
        let hint = match self.data_type {
            VariableType::Any => return Ok(()),
            VariableType::OneOf(values) if values.contains(&lower) => return Ok(()),
            VariableType::OneOf(values) => format!("Use one of {}.", values.join(", ")),
            VariableType::Number { least, most } => match lower.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => return Ok(()),
                _ => format!("Use an integer from {least} to {most}."),
            },
            VariableType::Bytes if bytes(lower).is_some() => return Ok(()),
            VariableType::Bytes => {
                "Use a number of bytes, such as '2GB' or '512MB', or 0 for no limit.".to_owned()
            }
            VariableType::CacheSize if CacheSize::of(lower).is_some() => return Ok(()),
            VariableType::CacheSize => {
                "Use a part of max_memory from '1%' to '90%', or a number of bytes, such as '512MB'."
                    .to_owned()
            }
            VariableType::Duration if duration_ms(lower).is_some() => return Ok(()),
            VariableType::Duration => {
                "Use a duration, such as '30s', '500ms' or '10min', or 0 for no limit; a number \
                 without a unit is in milliseconds."
                    .to_owned()
            }
            VariableType::Window if window_ms(lower).is_some() => return Ok(()),
            VariableType::Window => {
                "Use a duration from 1ms to 1h, such as '1s' or '200ms'.".to_owned()
            }
            VariableType::Share if share_ppm(lower).is_some() => return Ok(()),
            VariableType::Share => "Use a number from 0 to 1.".to_owned(),
            VariableType::Fraction if fraction_ppm(lower).is_some() => return Ok(()),
            VariableType::Fraction => "Use a number greater than 0 and at most 1.".to_owned(),
        };
        let message = format!("invalid value for variable `{}`: '{text}'", self.name);
        Diagnostic::new(code::INVALID_PARAMETER, message).at(span).with_hint(hint).err()
    }
}

/// Returns why a value of a variable has no effect, where that is so.
fn without_effect(name: &str, value: &str) -> Option<&'static str> {
    match (name, value) {
        ("deploy_stats", "on") => {
            Some("Measure request times in the client; the engine does not collect them.")
        }
        ("enable_trace", "true") => Some("Errors are always reported in full."),
        ("spark_config", config) if !config.is_empty() => Some(
            "Limit the memory of a query with SET memory_limit; batch mode runs in this process.",
        ),
        ("sync_job", "false") => Some("A statement returns when its job has ended."),
        _ => None,
    }
}

impl Variables {
    /// Returns the warning of SET where the value of the variable has no effect.
    pub(crate) fn warning(&self, name: &Ident) -> Option<Diagnostic> {
        let wanted = name.text.to_ascii_lowercase();
        let (_, value) = self.all().find(|(known, _)| *known == wanted)?;
        let hint = match wanted.as_str() {
            DURABILITY | DURABILITY_WINDOW if self.is_in_memory => {
                Some("Connect to a directory for durable data; this database is in memory.")
            }
            _ => without_effect(&wanted, value),
        }?;
        Some(no_effect(&format!("variable `{wanted}`")).at(name.span).with_hint(hint))
    }

    /// Returns the percentage of `max_memory` from which INSERT is refused; `None` where only the
    /// limit itself refuses it.
    pub(crate) fn insert_memory_percent(&self) -> Option<u64> {
        let percent = self.value(INSERT_MEMORY).parse::<u64>().ok()?;
        (1..100).contains(&percent).then_some(percent)
    }

    /// Sets a variable.
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
            DURABILITY if self.is_in_memory => return Ok(()),
            PAGE_CACHE => self.check_page_cache(&lower, name.span)?,
            "time_zone" => self.settings.time_zone = time_zone(&text, name.span)?,
            "compatibility" => {
                self.settings.compatibility = match lower.as_str() {
                    "openmldb" => Compatibility::OpenMldb,
                    _ => Compatibility::Standard,
                };
            }
            _ => {}
        }
        let keeps_case = matches!(
            variable.data_type,
            VariableType::Any
                | VariableType::Bytes
                | VariableType::CacheSize
                | VariableType::Duration
                | VariableType::Window
        );
        debug_assert_eq!(self.values.len(), VARIABLES.len(), "each variable has a value");
        self.values[at] = if keeps_case { text } else { lower };
        Ok(())
    }

    /// Checks that the page cache leaves memory for rows.
    fn check_page_cache(&self, lower: &str, span: Span) -> Result<()> {
        let Some(limit) = self.max_memory() else { return Ok(()) };
        let bytes = CacheSize::of(lower).map_or(0, |size| size.bytes(limit));
        if bytes <= CacheSize::most(limit) {
            return Ok(());
        }
        let message = format!(
            "a page cache of {bytes} bytes leaves no memory for rows: max_memory is {limit} bytes"
        );
        let hint = "Use at most 90 % of max_memory, or raise max_memory first.";
        Diagnostic::new(code::INVALID_PARAMETER, message).at(span).with_hint(hint).err()
    }

    /// Returns the most bytes of pages of disk tables. Where `max_memory` was lowered afterwards, they are a part
    /// of it.
    pub(crate) fn page_cache_bytes(&self) -> u64 {
        let size = CacheSize::of(&self.value(PAGE_CACHE).to_ascii_lowercase());
        let size = size.unwrap_or(CacheSize::DEFAULT);
        match self.max_memory() {
            Some(limit) => size.bytes(limit).min(CacheSize::most(limit)),
            None => size.bytes(memory_without_limit()),
        }
    }

    /// Whether only SET GLOBAL sets a variable.
    pub(crate) fn is_global_only(name: &Ident) -> bool {
        let wanted = name.text.to_ascii_lowercase();
        VARIABLES
            .iter()
            .any(|variable| variable.name == wanted && variable.scope == VariableScope::Engine)
    }

    /// Returns the most bytes that the tables may hold; `None` is no limit.
    pub(crate) fn max_memory(&self) -> Option<u64> {
        bytes(&self.value(MAX_MEMORY).to_ascii_lowercase()).filter(|bytes| *bytes > 0)
    }

    /// Returns the most bytes that temporary files may take; `None` is no limit.
    pub(crate) fn max_temp_directory_size(&self) -> Option<u64> {
        let value = self.value(MAX_TEMP_DIRECTORY_SIZE).to_ascii_lowercase();
        bytes(&value).filter(|bytes| *bytes > 0)
    }

    /// Returns the folder of temporary files; `None` is the system's.
    pub(crate) fn temp_directory(&self) -> Option<PathBuf> {
        Some(self.value(TEMP_DIRECTORY)).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// Returns the path that a value of `temp_directory` has; `None` for another variable.
    pub(crate) fn temp_directory_of(name: &Ident, value: &OptionValue) -> Result<Option<String>> {
        match name.text.eq_ignore_ascii_case(TEMP_DIRECTORY) {
            true => text(value, name.span).map(Some),
            false => Ok(None),
        }
    }

    /// Returns when checkpoints are written automatically.
    pub(crate) fn checkpoints(&self) -> CheckpointRule {
        let lower = |name| self.value(name).to_ascii_lowercase();
        CheckpointRule {
            log_bytes: bytes(&lower(CHECKPOINT_LOG_SIZE)).unwrap_or(0),
            interval_ms: duration_ms(&lower(CHECKPOINT_INTERVAL)).unwrap_or(0),
        }
    }

    /// Returns after how many milliseconds what no write waits for is on the disk.
    pub(crate) fn durability_window_ms(&self) -> u32 {
        let value = self.value(DURABILITY_WINDOW).to_ascii_lowercase();
        window_ms(&value).expect("it was checked when it was set")
    }

    /// Returns from how many milliseconds a call is recorded as slow; 0: none is.
    pub(crate) fn slow_request_ms(&self) -> u64 {
        self.value(SLOW_REQUEST_MS).parse().unwrap_or(0)
    }

    /// Makes the command that sets [`Self::max_memory`] of the engine.
    pub(crate) fn max_memory_command(bytes: Option<u64>) -> CatalogCommand {
        let name = Ident { text: MAX_MEMORY.to_owned(), span: Span::default() };
        let value = OptionValue::Literal(Literal::String(bytes.unwrap_or(0).to_string()));
        CatalogCommand::SetVariable { name, value }
    }

    /// Returns the fraction of the limit from which an alert is logged, in millionths.
    pub(crate) fn memory_alert_ppm(&self) -> u64 {
        fraction_ppm(self.value(MEMORY_ALERT_RATIO)).expect("it was checked when it was set")
    }

    /// Whether NaN is read as NULL.
    pub(crate) fn nan_is_null(&self) -> bool {
        self.value(NAN_AS_NULL) == "true"
    }

    /// Returns for which keys the windows of a deployment have pre-aggregates.
    pub(crate) fn pre_aggregation(&self) -> &str {
        self.value(PRE_AGGREGATION)
    }

    /// Returns the share of answers with pre-aggregates that are checked, in millionths.
    pub(crate) fn pre_aggregation_check_ppm(&self) -> u64 {
        share_ppm(self.value(PRE_AGGREGATION_CHECK)).expect("it was checked when it was set")
    }

    /// Returns when batch mode cuts the rows of one key into time slices.
    pub(crate) fn window_skew(&self) -> WindowSkew {
        match self.value(WINDOW_SKEW) {
            "off" => WindowSkew::Off,
            "always" => WindowSkew::Always,
            _ => WindowSkew::Auto,
        }
    }

    /// Returns how long a job may take; `None` is no limit.
    pub(crate) fn job_timeout_ms(&self) -> Option<u64> {
        duration_ms(&self.value(JOB_TIMEOUT).to_ascii_lowercase()).filter(|ms| *ms > 0)
    }

    /// Returns what writes wait for.
    pub(crate) fn durability(&self) -> Durability {
        durability_of(self.value(DURABILITY)).unwrap_or(Durability::Memory)
    }

    /// Returns the value of a variable that exists.
    pub(crate) fn value(&self, name: &str) -> &str {
        let found = self.all().find(|(other, _)| *other == name);
        found.expect("the variable is declared").1
    }

    /// Returns the storage that `execute_mode` means.
    pub(crate) fn storage(&self) -> Storage {
        let mode = self.all().find(|(name, _)| *name == "execute_mode");
        match mode {
            Some((_, "offline")) => Storage::Offline,
            _ => Storage::Online,
        }
    }

    /// Iterates the names and values of the variables of a session, by name.
    pub(crate) fn of_session(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let scopes = VARIABLES.iter().map(|variable| variable.scope);
        let of_session = |(_, scope): &(_, VariableScope)| *scope == VariableScope::Session;
        self.all().zip(scopes).filter(of_session).map(|(pair, _)| pair)
    }

    /// Iterates the names and values of all variables, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        VARIABLES.iter().map(|variable| variable.name).zip(self.values.iter().map(String::as_str))
    }
}

/// Reads a durability window in lower case as milliseconds.
fn window_ms(text: &str) -> Option<u32> {
    const LONGEST_MS: u32 = 3_600_000;
    let window_ms = u32::try_from(duration_ms(text)?).ok()?;
    (1..=LONGEST_MS).contains(&window_ms).then_some(window_ms)
}

/// Returns the level of a name.
pub(crate) fn durability_of(name: &str) -> Option<Durability> {
    match name {
        "disk" => Some(Durability::Disk),
        "os" => Some(Durability::Os),
        "memory" => Some(Durability::Memory),
        _ => None,
    }
}

/// Reads a time zone: a name of the IANA database, or an offset.
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

/// Returns the warning that something in a statement has no effect.
pub(crate) fn no_effect(what: &str) -> Diagnostic {
    Diagnostic::new(code::FEATURE_NOT_SUPPORTED, format!("{what} has no effect"))
}

/// Returns the text of a constant.
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
            return Diagnostic::new(
                code::INVALID_PARAMETER,
                "the value of a variable must be a constant",
            )
            .at(span)
            .err();
        }
    })
}
