//! The values of variables as text: numbers of bytes, durations and fractions.

use std::sync::OnceLock;

use lockstep_host::memory;

/// Reads a number of bytes in lower case, with a unit or without. Units are powers of 1,024.
pub(super) fn bytes(text: &str) -> Option<u64> {
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
    // The sixth digit of a fraction of a tebibyte is a mebibyte: finer digits are dropped.
    let millionths = format!("{fraction:0<6}").get(..6)?.parse::<u64>().ok()?;
    whole.checked_add(unit / PPM * millionths + unit % PPM * millionths / PPM)
}

/// Reads a duration in lower case as milliseconds, which are also the unit of a bare number.
pub(crate) fn duration_ms(text: &str) -> Option<u64> {
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

/// The number of millionths in one.
const PPM: u64 = 1_000_000;

/// Reads a fraction as millionths: more than 0, and at most 1.
pub(super) fn fraction_ppm(text: &str) -> Option<u64> {
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

/// Reads a number from 0 to 1, in millionths.
pub(super) fn share_ppm(text: &str) -> Option<u64> {
    let is_zero = text.parse::<f64>().is_ok_and(|number| number == 0.0);
    let ppm = if is_zero { Some(0) } else { fraction_ppm(text) };
    debug_assert!(ppm.is_none_or(|ppm| ppm <= PPM), "a share is at most one");
    ppm
}

/// The most bytes that disk tables reckon with where `max_memory` is no limit.
const MEMORY_WITHOUT_LIMIT: u64 = 1 << 30;

/// Returns the bytes that disk tables reckon with where `max_memory` is no limit: at most half of what the process
/// may take.
pub(crate) fn memory_without_limit() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let half = memory::total().map_or(u64::MAX, |total| total / 2);
        half.min(MEMORY_WITHOUT_LIMIT)
    })
}

/// The size of the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheSize {
    Bytes(u64),
    /// A part of `max_memory`, in percent.
    Percent(u64),
}

impl CacheSize {
    /// The default.
    pub(super) const DEFAULT: Self = Self::Percent(25);
    /// Reads a size in lower case: more than 0 bytes, or from 1 % to 90 %.
    pub(super) fn of(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse().ok()?;
                (1..=90).contains(&percent).then_some(Self::Percent(percent))
            }
            None => bytes(text).filter(|bytes| *bytes > 0).map(Self::Bytes),
        }
    }

    /// Returns the bytes, with this `max_memory`.
    pub(super) fn bytes(self, limit: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => limit / 100 * percent + limit % 100 * percent / 100,
        }
    }

    /// Returns the most bytes that leave memory for rows.
    pub(super) fn most(limit: u64) -> u64 {
        Self::Percent(90).bytes(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::{CacheSize, bytes, duration_ms, fraction_ppm};

    #[test]
    fn the_page_cache_has_bytes_or_a_part_of_the_memory() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(CacheSize::of(text).map(|size| size.bytes(1_050)), expected, "{text}");
        };
        check("25%", Some(262));
        check("90 %", Some(945));
        check("2kb", Some(2_048));
        for refused in ["0", "0%", "91%", "2.5%", "-1%", "%", "some"] {
            check(refused, None);
        }
    }

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
    fn a_fraction_is_between_0_and_1() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(fraction_ppm(text), expected);
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
