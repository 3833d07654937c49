//! Templates of PostgreSQL for times: what `to_timestamp(x, 'YYYY-MM-DD HH24:MI:SS')` reads.

use lockstep_row::calendar::{DAY_MS, TimeOfDay, try_days_from_civil};

/// A part of a time in a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimePart {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    /// Digits of a second, so many at most.
    Fraction(usize),
}

/// The patterns that are read; none begins with another.
const PATTERNS: [(&str, TimePart); 8] = [
    ("YYYY", TimePart::Year),
    ("MM", TimePart::Month),
    ("DD", TimePart::Day),
    ("HH24", TimePart::Hour),
    ("MI", TimePart::Minute),
    ("SS", TimePart::Second),
    ("MS", TimePart::Fraction(3)),
    ("US", TimePart::Fraction(6)),
];

#[derive(Debug, PartialEq, Eq)]
enum TemplatePiece {
    Part(TimePart),
    /// A character that stands for itself.
    Character(char),
}

/// A template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TimeTemplate {
    pieces: Vec<TemplatePiece>,
}

impl TimeTemplate {
    /// What a template is, for an error.
    pub(super) const FORM: &'static str = "a constant template of YYYY, MM, DD, HH24, MI, SS, MS, US, \
                                           punctuation and \"text\", such as 'YYYY-MM-DD HH24:MI:SS'";

    /// Parses a template; `None` where it has another pattern, or a part twice, or no year.
    pub(super) fn parse(template: &str) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut rest = template;
        while let Some(first) = rest.chars().next() {
            let of_rest = |(pattern, _): &&(&str, TimePart)| {
                rest.get(..pattern.len()).is_some_and(|start| start.eq_ignore_ascii_case(pattern))
            };
            if let Some((pattern, part)) = PATTERNS.iter().find(of_rest) {
                if pieces.contains(&TemplatePiece::Part(*part)) {
                    return None;
                }
                pieces.push(TemplatePiece::Part(*part));
                rest = &rest[pattern.len()..];
            } else if first == '"' {
                let (text, after) = rest[1..].split_once('"')?;
                pieces.extend(text.chars().map(TemplatePiece::Character));
                rest = after;
            } else if first.is_alphanumeric() && first != 'T' {
                return None;
            } else {
                pieces.push(TemplatePiece::Character(first));
                rest = &rest[first.len_utf8()..];
            }
        }
        pieces.contains(&TemplatePiece::Part(TimePart::Year)).then_some(Self { pieces })
    }

    /// Reads a text that has all parts of the template, and returns its milliseconds since the epoch as a
    /// local time; `None` where it has another form or is no time.
    pub(super) fn read(&self, text: &str) -> Option<i64> {
        let (mut year, mut month, mut day, mut time) = (1, 1, 1, TimeOfDay::default());
        let mut rest = text;
        for piece in &self.pieces {
            let part = match piece {
                TemplatePiece::Part(part) => *part,
                TemplatePiece::Character(expected) => {
                    rest = rest.strip_prefix(*expected)?;
                    continue;
                }
            };
            let (number, width);
            (number, width, rest) = leading_number(rest, part.digits_max())?;
            match part {
                TimePart::Year => year = i64::from(number),
                TimePart::Month => month = number,
                TimePart::Day => day = number,
                TimePart::Hour => time.hour = number,
                TimePart::Minute => time.minute = number,
                TimePart::Second => time.second = number,
                TimePart::Fraction(_) => time.millisecond = thousandths(number, width),
            }
        }
        let is_time = time.hour < 24 && time.minute < 60 && time.second < 60;
        if !rest.is_empty() || !is_time {
            return None;
        }
        debug_assert!(time.millisecond < 1000, "a part of a second");
        Some(try_days_from_civil(year, month, day)? * DAY_MS + time.to_ms())
    }
}

impl TimePart {
    fn digits_max(self) -> usize {
        match self {
            Self::Year => 4,
            Self::Fraction(digits) => digits,
            _ => 2,
        }
    }
}

/// Reads a number of one to `most` digits; returns it, the number of its digits, and the text after them.
fn leading_number(text: &str, most: usize) -> Option<(u32, usize, &str)> {
    debug_assert!(most < 10, "it fits in 32 bits");
    let digits = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    Some((number.parse().ok()?, digits, rest))
}

/// Returns the digits of a fraction as milliseconds, truncated.
fn thousandths(number: u32, digits: usize) -> u32 {
    (digits..3).fold(number, |number, _| number * 10) / (3..digits).fold(1, |unit, _| unit * 10)
}

#[cfg(test)]
mod tests {
    use super::TimeTemplate;

    #[track_caller]
    fn check(template: &str, text: &str, expected: Option<i64>) {
        let template = TimeTemplate::parse(template).expect("it is a template");
        assert_eq!(template.read(text), expected, "{text}");
    }

    #[test]
    fn a_text_has_all_parts_of_its_template() {
        const WHOLE: &str = "YYYY-MM-DD HH24:MI:SS.US";
        check(WHOLE, "1970-01-02 03:04:05.006700", Some(97_445_006));
        check(WHOLE, "1970-01-02 3:4:5.1", Some(97_445_100));
        check(WHOLE, "1970-01-02 03:04:05", None);
        check(WHOLE, "1970-02-30 03:04:05.0", None);
        check(WHOLE, "1970-01-02 24:04:05.0", None);
        check(WHOLE, "1970-01-02 03:04:05.0 ", None);
        check("DD/MM/yyyy", "02/01/1970", Some(86_400_000));
        check("YYYYMMDD", "19700102", Some(86_400_000));
        check("YYYY", "1970", Some(0));
        check("YYYY-MM-DDTHH24:MI:SS.MS\"Z\"", "1970-01-01T00:00:01.05Z", Some(1_050));
        check("YYYY", "\u{661}970", None);
    }

    #[test]
    fn other_patterns_are_no_template() {
        for template in
            ["", "HH24:MI", "YYYY-Mon", "YYYY YYYY", "YYYY HH:MI AM", "YYYY\"", "YYYYTZ"]
        {
            assert_eq!(TimeTemplate::parse(template), None, "{template}");
        }
    }
}
