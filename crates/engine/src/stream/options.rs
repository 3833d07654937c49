//! The options of CREATE STREAM and ALTER STREAM.

use std::{fmt::Write, num::NonZeroU8};

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_sql::ast::OptionItem;
use serde::{Deserialize, Serialize};

use crate::{
    catalog::QualifiedName,
    continuous::ContinuousOptions,
    options::{OptionSpec, OptionTable, UnknownOption},
};

/// How many joiners a stream may have.
const JOINERS_MAX: i32 = 64;

/// How a stream is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamOptions {
    pub(crate) lateness_ms: i64,
    pub(crate) idle_after_ms: Option<i64>,
    pub(crate) from_earliest: bool,
    /// Earlier versions had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ahead_ms_max: Option<i64>,
    /// Whether the row of each main row is given when it arrives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) emits_at_arrival: bool,
    /// How many joiners compute its windows. Earlier versions had one.
    #[serde(default = "one_joiner", skip_serializing_if = "is_one")]
    pub(crate) joiners: NonZeroU8,
}

const fn one_joiner() -> NonZeroU8 {
    NonZeroU8::MIN
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(joiners: &NonZeroU8) -> bool {
    *joiners == NonZeroU8::MIN
}

/// Options as they were written.
#[derive(Debug, Clone, Default)]
pub(crate) struct WrittenOptions {
    lateness_ms: Option<i64>,
    idle_after_ms: Option<i64>,
    max_ahead: Option<(i64, Span)>,
    start: Option<(bool, Span)>,
    /// Whether it is `arrival`, and where it is.
    emit: Option<(bool, Span)>,
    joiners: Option<(NonZeroU8, Span)>,
    /// The name of the table, and where it is.
    pub(crate) late_rows: Option<(String, Span)>,
}

const OPTIONS: OptionTable<'_, WrittenOptions> = OptionTable {
    specs: SPECS,
    unknown: UnknownOption::Error,
    error_code: code::INVALID_PARAMETER,
};

const SPECS: &[OptionSpec<WrittenOptions>] = &[
    OptionSpec {
        name: "lateness",
        set: |options, argument| {
            options.lateness_ms = Some(argument.milliseconds()?);
            Ok(())
        },
    },
    OptionSpec {
        name: "idle_after",
        set: |options, argument| {
            options.idle_after_ms = Some(argument.milliseconds()?);
            Ok(())
        },
    },
    OptionSpec {
        name: "max_ahead",
        set: |options, argument| {
            options.max_ahead = Some((argument.milliseconds()?, argument.item().span));
            Ok(())
        },
    },
    OptionSpec {
        name: "start",
        set: |options, argument| {
            let is_earliest = argument.one_of(&["earliest", "latest"])? == 0;
            options.start = Some((is_earliest, argument.item().span));
            Ok(())
        },
    },
    OptionSpec {
        name: "emit",
        set: |options, argument| {
            let is_arrival = argument.one_of(&["watermark", "arrival"])? == 1;
            options.emit = Some((is_arrival, argument.item().span));
            Ok(())
        },
    },
    OptionSpec {
        name: "joiners",
        set: |options, argument| {
            let joiners = argument.integer(1..=JOINERS_MAX, "must be an integer from 1 to 64")?;
            let joiners = u8::try_from(joiners).ok().and_then(NonZeroU8::new);
            options.joiners = joiners.map(|joiners| (joiners, argument.item().span));
            Ok(())
        },
    },
    OptionSpec {
        name: "late_rows",
        set: |options, argument| {
            let name = argument.string()?;
            if name.trim().is_empty() {
                return argument.invalid("must be the name of a table");
            }
            options.late_rows = Some((name, argument.item().span));
            Ok(())
        },
    },
];

impl WrittenOptions {
    /// Reads the options of a statement.
    pub(crate) fn read(items: &[OptionItem]) -> Result<Self> {
        let mut options = Self::default();
        let warnings = OPTIONS.read(items, &mut options)?;
        debug_assert!(warnings.is_empty(), "an option that does not exist is an error");
        Ok(options)
    }

    /// Returns the options of a new stream.
    pub(crate) fn of_new(&self) -> StreamOptions {
        StreamOptions {
            emits_at_arrival: self.emit.is_some_and(|(is_arrival, _)| is_arrival),
            lateness_ms: self.lateness_ms.unwrap_or(0),
            idle_after_ms: self.idle_after_ms,
            ahead_ms_max: self.max_ahead.map(|(ahead_ms, _)| ahead_ms),
            from_earliest: self.start.is_none_or(|(is_earliest, _)| is_earliest),
            joiners: self.joiners.map_or(NonZeroU8::MIN, |(joiners, _)| joiners),
        }
    }

    /// Fails where an option is about rows that are waited for, which none is for a stream that does not wait.
    pub(crate) fn check_waiting(&self, items: &[OptionItem], options: StreamOptions) -> Result<()> {
        const DETAIL: &str =
            "A stream that emits at arrival does not wait for rows, and none is late.";
        const JOINERS_DETAIL: &str =
            "A stream that emits at arrival answers each row as a request.";
        let with_details = [
            ("lateness", DETAIL),
            ("late_rows", DETAIL),
            ("idle_after", DETAIL),
            ("max_ahead", DETAIL),
            ("joiners", JOINERS_DETAIL),
        ];
        let detail_of = |item: &OptionItem| {
            with_details.iter().find(|(name, _)| *name == item.key.text).map(|(_, detail)| detail)
        };
        let found = items.iter().find_map(|item| Some((item, detail_of(item)?)));
        let Some((item, detail)) = found.filter(|_| options.emits_at_arrival) else {
            return Ok(());
        };
        debug_assert!(self.emit.is_none_or(|(is_arrival, _)| is_arrival), "it does not wait");
        let message = format!("option `{}` cannot be used with emit='arrival'", item.key.text);
        Diagnostic::new(code::INVALID_PARAMETER, message)
            .at(item.key.span)
            .with_detail(*detail)
            .err()
    }

    /// Fails where a stream whose rows a group shares is to have several joiners.
    pub(crate) fn check_joiners_of_group(&self) -> Result<()> {
        let Some((_, span)) = self.joiners.filter(|(joiners, _)| !is_one(joiners)) else {
            return Ok(());
        };
        let message = "a stream over sources with a group cannot have several joiners";
        Diagnostic::new(code::INVALID_PARAMETER, message)
            .at(span)
            .with_detail("The processes of the group divide its rows.")
            .err()
    }

    /// Fails where a stream whose rows a group shares is to begin elsewhere than at the first one.
    pub(crate) fn check_start_of_group(&self) -> Result<()> {
        let Some((false, span)) = self.start else { return Ok(()) };
        debug_assert!(!self.of_new().from_earliest, "it is what was written");
        let message = "a stream over sources with a group cannot begin with the latest row";
        Diagnostic::new(code::INVALID_PARAMETER, message)
            .at(span)
            .with_detail("Another process may have begun before.")
            .err()
    }

    /// Returns the options of a stream with these changed. Fails where one cannot be changed.
    pub(crate) fn changing(&self, options: StreamOptions) -> Result<StreamOptions> {
        let span = |written: Option<(bool, Span)>| written.map(|(_, span)| span);
        let max_ahead = self.max_ahead.map(|(_, span)| span);
        let fixed =
            [("start", span(self.start)), ("emit", span(self.emit)), ("max_ahead", max_ahead)];
        if let Some((name, span)) = fixed.iter().find_map(|(name, span)| Some((name, (*span)?))) {
            let message = format!("option `{name}` of a stream cannot be changed");
            return Diagnostic::new(code::INVALID_PARAMETER, message)
                .at(span)
                .with_hint("Drop the stream, and create it again.")
                .err();
        }
        Ok(StreamOptions {
            lateness_ms: self.lateness_ms.unwrap_or(options.lateness_ms),
            idle_after_ms: self.idle_after_ms.or(options.idle_after_ms),
            joiners: self.joiners.map_or(options.joiners, |(joiners, _)| joiners),
            ..options
        })
    }
}

impl StreamOptions {
    /// Returns the options of its query.
    pub(crate) fn of_query(self, keeps_late_rows: bool) -> ContinuousOptions {
        ContinuousOptions {
            lateness_ms: self.lateness_ms,
            idle_after_ms: self.idle_after_ms,
            ahead_ms_max: self.ahead_ms_max,
            from_earliest: self.from_earliest,
            keeps_late_rows,
            joiners: self.joiners.into(),
            ..ContinuousOptions::default()
        }
    }

    /// Writes the options as OPTIONS(…) takes them.
    pub(crate) fn script(self, late_rows: Option<&QualifiedName>) -> String {
        if self.emits_at_arrival {
            let start = if self.from_earliest { "" } else { ", start='latest'" };
            return format!("emit='arrival'{start}");
        }
        let mut script = format!("lateness={}", self.lateness_ms);
        // A text takes what is written to it.
        if let Some(idle_after_ms) = self.idle_after_ms {
            let _written = write!(script, ", idle_after={idle_after_ms}");
        }
        if let Some(ahead_ms) = self.ahead_ms_max {
            let _written = write!(script, ", max_ahead={ahead_ms}");
        }
        if !self.from_earliest {
            script.push_str(", start='latest'");
        }
        if !is_one(&self.joiners) {
            let _written = write!(script, ", joiners={}", self.joiners);
        }
        if let Some(late_rows) = late_rows {
            let name = late_rows.to_string().replace('\\', "\\\\").replace('\'', "\\'");
            let _written = write!(script, ", late_rows='{name}'");
        }
        script
    }
}
