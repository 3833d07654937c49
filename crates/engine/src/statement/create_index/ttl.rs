//! TTL and `TTL_TYPE` of an index as its retention.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_row::Retention;
use lockstep_sql::ast::{IntervalUnit, Literal, OptionItem, OptionValue};

use super::definition_error;
use crate::options::word;

/// The longest absolute TTL: 30 years.
const TTL_MINUTES_MAX: i64 = 15_768_000;
/// The most rows of a latest TTL.
const TTL_LATEST_MAX: i64 = 1_000;
const MINUTE_MS: i64 = 60_000;

/// One component of a TTL.
#[derive(Debug, Clone, Copy)]
enum TtlComponent {
    /// A duration in milliseconds, in whole minutes.
    Time(i64),
    /// A number of rows.
    Count(i64),
}

/// Returns the retention that TTL and `TTL_TYPE` describe; absolute is the default type.
pub(super) fn retention(
    ttl: Option<&OptionItem>,
    ttl_type: Option<&OptionItem>,
) -> Result<Retention> {
    let kind = match ttl_type {
        None => "absolute".to_owned(),
        Some(item) => match word(&item.value).map(str::to_ascii_lowercase) {
            Some(kind)
                if ["absolute", "latest", "absorlat", "absandlat"].contains(&kind.as_str()) =>
            {
                kind
            }
            _ => {
                return definition_error(
                    "TTL_TYPE must be absolute, latest, absorlat or absandlat",
                    item.span,
                );
            }
        },
    };
    let Some(ttl) = ttl else { return Ok(Retention::Forever) };
    let parts = match &ttl.value {
        OptionValue::List(items) => items.iter().map(|item| component(item, ttl.span)).collect(),
        other => component(other, ttl.span).map(|part| vec![part]),
    }?;
    match (kind.as_str(), parts.as_slice()) {
        ("absolute", [TtlComponent::Time(ttl_ms)]) => Ok(absolute(*ttl_ms)),
        ("latest", [TtlComponent::Count(latest)]) => Ok(match count(*latest) {
            0 => Retention::Forever,
            latest => Retention::Latest { latest },
        }),
        ("absorlat", [TtlComponent::Time(ttl_ms), TtlComponent::Count(latest)]) => {
            Ok(Retention::AbsOrLat { ttl_ms: *ttl_ms, latest: count(*latest) })
        }
        ("absandlat", [TtlComponent::Time(ttl_ms), TtlComponent::Count(latest)]) => {
            Ok(Retention::AbsAndLat { ttl_ms: *ttl_ms, latest: count(*latest) })
        }
        _ => Diagnostic::new(
            code::INVALID_TABLE_DEFINITION,
            format!("TTL does not match TTL_TYPE={kind}"),
        )
        .at(ttl.span)
        .with_hint(
            "Use a duration (30d) for absolute, a number (10) for latest, or a pair (30d, 10) for \
             absorlat and absandlat.",
        )
        .err(),
    }
}

fn absolute(ttl_ms: i64) -> Retention {
    if ttl_ms == 0 { Retention::Forever } else { Retention::Absolute { ttl_ms } }
}

fn count(latest: i64) -> u64 {
    u64::try_from(latest).expect("a component of a TTL is not negative")
}

fn component(value: &OptionValue, span: Span) -> Result<TtlComponent> {
    match value {
        OptionValue::Literal(Literal::Interval(interval)) => {
            let minutes = match interval.unit {
                // Seconds are rounded up to minutes.
                IntervalUnit::Second => Some(interval.amount.saturating_add(59).div_euclid(60)),
                IntervalUnit::Minute => Some(interval.amount),
                IntervalUnit::Hour => interval.amount.checked_mul(60),
                IntervalUnit::Day => interval.amount.checked_mul(1_440),
            };
            match minutes {
                Some(minutes) if (0..=TTL_MINUTES_MAX).contains(&minutes) => {
                    Ok(TtlComponent::Time(minutes * MINUTE_MS))
                }
                _ => definition_error("TTL must be between 0 and 30 years", span),
            }
        }
        OptionValue::Literal(Literal::Int(latest)) => {
            let latest = i64::from(*latest);
            if (0..=TTL_LATEST_MAX).contains(&latest) {
                return Ok(TtlComponent::Count(latest));
            }
            definition_error(format!("latest TTL must be between 0 and {TTL_LATEST_MAX}"), span)
        }
        _ => definition_error("TTL must be a duration such as 30d, or a number of rows", span),
    }
}
