//! Type names, with the length or precision that some of them take.
//!
//! `expression` calls it for casts, `definition` for columns and parameters.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};

use crate::ast::{Ident, TypeName};
use crate::cursor::Parser;
use crate::elsewhere;
use crate::token::TokenKind;

/// The greatest precision of FLOAT(p), in binary digits, that is a FLOAT of 32 bits.
const FLOAT_DIGITS_MAX: u32 = 24;

/// The greatest precision of FLOAT(p), in binary digits: that of a DOUBLE.
const DOUBLE_DIGITS_MAX: u32 = 53;

/// The number in parentheses after a type.
struct TypeLength {
    value: u32,
    span: Span,
}

impl Parser<'_> {
    /// Parses `int`, `varchar(10)`, `float(53)`, `map<string, int>`.
    pub(crate) fn type_name(&mut self) -> Result<TypeName> {
        self.nested(|parser| {
            // `price::int < 5` is a comparison: only these types have types as arguments.
            let takes_types = parser.at_any_word(&["ARRAY", "MAP"]);
            let mut name = parser.ident()?;
            let mut arguments = Vec::new();
            if takes_types && parser.eat_symbol("<") {
                arguments = parser.comma_list(Self::type_name)?;
                parser.expect_symbol(">")?;
            } else if let Some(length) = parser.type_length()? {
                name = with_length(name, &length)?;
            }
            parser.grow(1)?;
            Ok(TypeName { name, arguments })
        })
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

/// Returns the name of the type that a name with a length means. As in standard SQL, the binary digits of
/// FLOAT(p) choose between the two types; other lengths are not enforced.
fn with_length(name: Ident, length: &TypeLength) -> Result<Ident> {
    if !name.text.eq_ignore_ascii_case("float") || (1..=FLOAT_DIGITS_MAX).contains(&length.value) {
        return Ok(name);
    }
    if (1..=DOUBLE_DIGITS_MAX).contains(&length.value) {
        return Ok(Ident { text: "double".to_owned(), ..name });
    }
    let message = format!("precision {} of type FLOAT is out of range", length.value);
    Diagnostic::new(code::INVALID_PARAMETER, message)
        .at(length.span)
        .with_hint("FLOAT(1) to FLOAT(24) is FLOAT, FLOAT(25) to FLOAT(53) is DOUBLE.")
        .err()
}
