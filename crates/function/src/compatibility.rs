//! What `SET compatibility = 'openmldb'` changes: one table.
//!
//! `docs/compatibility.md` is generated from it. A function that consults
//! [`crate::Settings::compatibility`] has a row here; what has no row is the same in both.

/// One difference between this system and the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The function, operator or rule.
    pub name: &'static str,
    /// What the reference does.
    pub reference: &'static str,
    /// What we do by default.
    pub standard: &'static str,
    /// Why.
    pub why: &'static str,
    /// Whether `SET compatibility = 'openmldb'` brings the reference's result back. Where it does
    /// not, that result depends on the clock, on undefined behaviour or on another setting.
    pub is_restored: bool,
}

/// Every difference.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "text of FLOAT and DOUBLE",
        reference: "Six significant digits: 12345678.9 prints as 1.23457e+07; nan and inf in lower case.",
        standard: "The fewest digits that read back as the same value; an exponent below 1e-4 and from 1e15 on; NaN and Infinity.",
        why: "Six digits lose what the number was, and make different numbers equal as texts.",
        is_restored: true,
    },
    Difference {
        name: "text to TIMESTAMP and DATE",
        reference: "Only YYYY-MM-DD HH:MM:SS, YYYY-MM-DD and YYYYMMDD.",
        standard: "Also `T` for the blank, a fraction of a second, and `Z` or ±HH:MM at the end.",
        why: "Everything else would be NULL, without a word, for the form that most systems write.",
        is_restored: true,
    },
    Difference {
        name: "integer compared with FLOAT",
        reference: "Both sides as FLOAT, so that 16777217 equals 16777216.0.",
        standard: "Both sides as DOUBLE.",
        why: "A comparison must not depend on how many digits a FLOAT can hold.",
        is_restored: true,
    },
    Difference {
        name: "char_length, substring, left, right, locate",
        reference: "Count bytes.",
        standard: "Count characters.",
        why: "A position inside a character is of no use; where the reference's result is not UTF-8, U+FFFD stands for what is cut.",
        is_restored: true,
    },
    Difference {
        name: "LIKE, ILIKE",
        reference: "`_` stands for one byte; ILIKE ignores the case of ASCII only.",
        standard: "`_` stands for one character; ILIKE ignores case in every script.",
        why: "One character is what a user sees.",
        is_restored: true,
    },
    Difference {
        name: "ucase, lcase",
        reference: "Change ASCII letters only.",
        standard: "Change every letter that has the other case.",
        why: "`ucase('é')` is expected to be `É`.",
        is_restored: true,
    },
    Difference {
        name: "reverse",
        reference: "Reverses bytes.",
        standard: "Reverses characters.",
        why: "Reversed bytes are not a text outside ASCII.",
        is_restored: true,
    },
    Difference {
        name: "char",
        reference: "One byte, of the code modulo 256.",
        standard: "The character with that Unicode code; NULL where there is none.",
        why: "A byte from 128 on is not a text; under the setting it is U+FFFD.",
        is_restored: true,
    },
    Difference {
        name: "hex of a text",
        reference: "Digits are not padded, and bytes from 0x80 on get six F before them.",
        standard: "Two digits for each byte.",
        why: "The result must read back with `unhex`.",
        is_restored: true,
    },
    Difference {
        name: "unhex",
        reference: "Gives any bytes.",
        standard: "NULL where the bytes are not UTF-8.",
        why: "A STRING is UTF-8; under the setting U+FFFD stands for what is not.",
        is_restored: true,
    },
    Difference {
        name: "split, split_by_key, split_by_value",
        reference: "Hold 4096 bytes and drop what comes after.",
        standard: "Hold everything.",
        why: "A list that is cut silently is a wrong feature.",
        is_restored: true,
    },
    Difference {
        name: "array_join",
        reference: "Writes the delimiter before every element but the first, so that a leading NULL leaves one.",
        standard: "Writes the delimiter between the elements it writes.",
        why: "A delimiter with nothing before it is an extra, empty element to whoever splits the text.",
        is_restored: true,
    },
    Difference {
        name: "last_day, dayofyear before 1970",
        reference: "NULL for a TIMESTAMP before 1970.",
        standard: "The result, as for any other time.",
        why: "Times before 1970 are ordinary.",
        is_restored: true,
    },
    Difference {
        name: "sum of integers",
        reference: "Has the type of its argument and wraps.",
        standard: "BIGINT; beyond 64 bits the end of the range.",
        why: "A sum of SMALLINT that wraps is a wrong feature.",
        is_restored: true,
    },
    Difference {
        name: "median of integers",
        reference: "Adds the two middle integers in their own type, which may wrap.",
        standard: "Adds them exactly.",
        why: "A mean lies between its values.",
        is_restored: true,
    },
    Difference {
        name: "distinct_count",
        reference: "Counts NULL as the zero, or the empty text, of the type.",
        standard: "Does not count NULL.",
        why: "NULL is the absence of a value.",
        is_restored: true,
    },
    Difference {
        name: "aggregates that make lists (*_cate, top_n_*, window_split*)",
        reference: "Hold 4096 bytes and drop what comes after.",
        standard: "Hold everything.",
        why: "A list that is cut silently is a wrong feature.",
        is_restored: true,
    },
    Difference {
        name: "INSERT of an integer that does not fit its column",
        reference: "Keeps the low bits.",
        standard: "Is refused.",
        why: "A value that changes on its way in cannot be found again.",
        is_restored: true,
    },
    Difference {
        name: "INSERT of a text into a TIMESTAMP",
        reference: "Is refused.",
        standard: "Reads the text as CAST does.",
        why: "CAST reads it; an INSERT should too.",
        is_restored: true,
    },
    Difference {
        name: "sum_where and avg_where",
        reference: "Pass over values that are 0.",
        standard: "Take them in.",
        why: "No result of the reference's own tests depends on it.",
        is_restored: false,
    },
    Difference {
        name: "time zone",
        reference: "UTC+8, always.",
        standard: "The session's time zone, UTC by default.",
        why: "The setting leaves the time zone alone; `SET time_zone = 'Etc/GMT-8'` gives the reference's results.",
        is_restored: false,
    },
    Difference {
        name: "CREATE TABLE without INDEX",
        reference: "The table has an index over its first column that is not FLOAT or DOUBLE, which DELETE goes by.",
        standard: "The table has no declared index; DELETE may compare any column.",
        why: "Nobody needs to declare an index; no query gives another result for it.",
        is_restored: true,
    },
    Difference {
        name: "rows that one index keeps and another does not",
        reference: "A query whose WHERE fixes the key of an index sees the rows that this index keeps.",
        standard: "A row is seen everywhere as long as one declared index keeps it.",
        why: "Which rows there are must not depend on how a query is written.",
        is_restored: true,
    },
    Difference {
        name: "unix_timestamp of NULL and ''",
        reference: "The current time.",
        standard: "NULL.",
        why: "A feature must not depend on when it is computed.",
        is_restored: false,
    },
    Difference {
        name: "FLOAT and DOUBLE to integer, out of range",
        reference: "Not defined.",
        standard: "Saturates; NaN is 0.",
        why: "Every executor must give the same bits.",
        is_restored: false,
    },
    Difference {
        name: "date_format beyond 80 bytes",
        reference: "Fails.",
        standard: "The whole text.",
        why: "There is no buffer to run over.",
        is_restored: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_told_in_full_sentences() {
        for difference in DIFFERENCES {
            for text in [difference.reference, difference.standard, difference.why] {
                assert!(text.ends_with('.'), "`{}`: {text}", difference.name);
            }
        }
    }

    #[test]
    fn every_difference_has_its_own_name() {
        for (position, difference) in DIFFERENCES.iter().enumerate() {
            assert!(DIFFERENCES[..position].iter().all(|other| other.name != difference.name));
        }
    }
}
