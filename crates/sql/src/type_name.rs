//! Type names: one word or several, with the length or precision that some types take.
//!
//! `expression` calls it for casts, `definition` for columns and parameters. A name of standard SQL or
//! PostgreSQL becomes that of the dialect here, so that everything above knows one name of a type.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};

use crate::ast::{Ident, TypeName};
use crate::cursor::Parser;
use crate::elsewhere;
use crate::token::TokenKind;

/// Names of two words, and the type that each means.
const PHRASES: &[(&[&str], &str)] = &[
    (&["DOUBLE", "PRECISION"], "double"),
    (&["CHARACTER", "VARYING"], "varchar"),
    (&["CHAR", "VARYING"], "varchar"),
];

/// Texts, whose length is that of their characters.
const TEXTS: &[&str] = &["string", "varchar", "text"];

/// Texts of a fixed length in other databases; a length makes them VARCHAR.
const FIXED_TEXTS: &[&str] = &["char", "character", "bpchar"];

/// Times, whose precision is a number of digits of a second.
const TIMES: &[&str] = &["timestamp", "datetime", "timestamptz"];

/// Types that take no length in any database. The width of an integer, as in `INT(11)`, is one of display.
const WITHOUT_LENGTH: &[&str] =
    &["bool", "boolean", "double", "float4", "float8", "float32", "float64", "real", "date"];

/// The greatest precision of FLOAT(p), in binary digits, that is a FLOAT of 32 bits.
const FLOAT_DIGITS_MAX: u32 = 24;

/// The greatest precision of FLOAT(p), in binary digits: that of a DOUBLE.
const DOUBLE_DIGITS_MAX: u32 = 53;

/// The digits of a second that a TIMESTAMP has, and the most that another database has.
const TIME_DIGITS: std::ops::RangeInclusive<u32> = 3..=9;

/// The number in parentheses after a type.
struct TypeLength {
    value: u32,
    span: Span,
}

impl Parser<'_> {
    /// Parses `int`, `varchar(10)`, `float(53)`, `timestamp with time zone`, `map<string, int>`.
    pub(crate) fn type_name(&mut self) -> Result<TypeName> {
        self.nested(|parser| {
            // `price::int < 5` is a comparison: only these types have types as arguments.
            let takes_types = parser.at_any_word(&["ARRAY", "MAP"]);
            let mut found =
                TypeName { name: parser.type_words()?, arguments: Vec::new(), length: None };
            if takes_types && parser.eat_symbol("<") {
                found.arguments = parser.comma_list(Self::type_name)?;
                parser.expect_symbol(">")?;
            } else if let Some(length) = parser.type_length()? {
                found = with_length(&found.name, &length)?;
            }
            parser.time_zone(&mut found.name);
            parser.grow(1)?;
            Ok(found)
        })
    }

    /// Parses the words of a name.
    fn type_words(&mut self) -> Result<Ident> {
        let start = self.start();
        for (words, meaning) in PHRASES {
            if self.eat_words(words) {
                return Ok(Ident { text: (*meaning).to_owned(), span: self.span_from(start) });
            }
        }
        self.ident()
    }

    /// Parses `[(WITH | WITHOUT) TIME ZONE]` after TIMESTAMP or TIME. Every TIMESTAMP is an instant; AT TIME
    /// ZONE behind a cast distinguishes the two.
    fn time_zone(&mut self, name: &mut Ident) {
        let is_timestamp = name.text.eq_ignore_ascii_case("timestamp");
        if !is_timestamp && !name.text.eq_ignore_ascii_case("time") {
            return;
        }
        let is_zoned = self.eat_words(&["WITH", "TIME", "ZONE"]);
        if is_zoned || self.eat_words(&["WITHOUT", "TIME", "ZONE"]) {
            name.span = self.span_from(name.span.start);
        }
        if is_zoned && is_timestamp {
            "timestamptz".clone_into(&mut name.text);
        }
    }

    /// Parses `[(number)]`.
    fn type_length(&mut self) -> Result<Option<TypeLength>> {
        let number = self.peek_nth(1);
        if !self.at_symbol("(") || number.kind != TokenKind::Number {
            return Ok(None);
        }
        self.advance();
        let Ok(value) = self.text(number).parse() else { return self.unexpected().err() };
        self.advance();
        if self.at_symbol(",") {
            let error = self.unsupported("a type with a scale");
            return error.with_hint(elsewhere::SCALE).err();
        }
        self.expect_symbol(")")?;
        Ok(Some(TypeLength { value, span: number.span() }))
    }
}

/// Returns the type that a name with a length means.
fn with_length(name: &Ident, length: &TypeLength) -> Result<TypeName> {
    let lower = name.text.to_ascii_lowercase();
    let is_any = |names: &[&str]| names.contains(&lower.as_str());
    let of = |text: &str, length| {
        let name = Ident { text: text.to_owned(), span: name.span };
        TypeName { name, arguments: Vec::new(), length }
    };
    if lower == "float" {
        return Ok(of(float_type(length)?, None));
    }
    if is_any(TEXTS) || is_any(FIXED_TEXTS) {
        if length.value == 0 {
            let message = format!("length of type {} must be at least 1", lower.to_uppercase());
            return Diagnostic::new(code::INVALID_PARAMETER, message).at(length.span).err();
        }
        return Ok(of("varchar", Some(length.value)));
    }
    if is_any(TIMES) && !TIME_DIGITS.contains(&length.value) {
        let message =
            format!("precision {} of type {} is not supported", length.value, lower.to_uppercase());
        return Diagnostic::unsupported(message)
            .at(length.span)
            .with_hint(
                "Write TIMESTAMP, which has milliseconds; date_trunc('second', t) truncates them.",
            )
            .err();
    }
    if is_any(WITHOUT_LENGTH) {
        let message = format!("type {} does not accept a length", lower.to_uppercase());
        let error = Diagnostic::new(code::SYNTAX_ERROR, message).at(length.span);
        return error.with_hint("Omit the parentheses.").err();
    }
    Ok(of(&name.text, None))
}

/// Returns the type that FLOAT(p) means: as in standard SQL, its binary digits choose it.
fn float_type(digits: &TypeLength) -> Result<&'static str> {
    if (1..=FLOAT_DIGITS_MAX).contains(&digits.value) {
        return Ok("float");
    }
    if (1..=DOUBLE_DIGITS_MAX).contains(&digits.value) {
        return Ok("double");
    }
    let message = format!(
        "precision {} of type FLOAT must be between 1 and {DOUBLE_DIGITS_MAX}",
        digits.value
    );
    Diagnostic::new(code::INVALID_PARAMETER, message)
        .at(digits.span)
        .with_hint("FLOAT(1) to FLOAT(24) mean FLOAT, and FLOAT(25) to FLOAT(53) mean DOUBLE.")
        .err()
}
