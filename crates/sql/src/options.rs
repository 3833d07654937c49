//! Lists of `key = value`: OPTIONS, CONFIG and INDEX.
//!
//! `statement`, `definition` and `query` call it. The engine checks which keys exist.

use lockstep_diagnostic::Result;

use crate::ast::{Ident, Literal, OptionItem, OptionValue};
use crate::cursor::Parser;
use crate::literal;
use crate::token::TokenKind;

impl Parser<'_> {
    /// Parses `[keyword (key = value, …)]`; without the clause, the list is empty.
    pub(crate) fn options_clause(&mut self, keyword: &str) -> Result<Vec<OptionItem>> {
        if !(self.at_word(keyword) && self.nth_is_symbol(1, "(")) {
            return Ok(Vec::new());
        }
        self.advance();
        self.option_list()
    }

    /// Parses `(key = value, …)`.
    pub(crate) fn option_list(&mut self) -> Result<Vec<OptionItem>> {
        self.expect_symbol("(")?;
        let items =
            if self.at_symbol(")") { Vec::new() } else { self.comma_list(Self::option_item)? };
        self.expect_symbol(")")?;
        Ok(items)
    }

    pub(crate) fn option_item(&mut self) -> Result<OptionItem> {
        let mut key = self.option_key()?;
        key.text.make_ascii_lowercase();
        self.expect_symbol("=")?;
        let start = self.start();
        let value = self.option_value()?;
        Ok(OptionItem { key, value, span: self.span_from(start) })
    }

    /// Parses a word, or a text, since settings of other systems have dots in their names.
    fn option_key(&mut self) -> Result<Ident> {
        if self.peek().kind == TokenKind::String {
            return self.string().map(|(text, span)| Ident { text, span });
        }
        self.any_ident()
    }

    /// Parses a constant, an unquoted word, a call, or a list of these.
    pub(crate) fn option_value(&mut self) -> Result<OptionValue> {
        let token = self.peek();
        let text = self.text(token);
        match token.kind {
            TokenKind::String => Ok(OptionValue::Literal(Literal::String(self.string()?.0))),
            TokenKind::Word | TokenKind::Quoted if self.nth_is_symbol(1, "(") => {
                self.expression().map(|expr| OptionValue::Expr(Box::new(expr)))
            }
            TokenKind::Quoted => self.any_ident().map(|ident| OptionValue::Word(ident.text)),
            TokenKind::Word => {
                let word = self.any_ident()?.text;
                Ok(match word.to_ascii_uppercase().as_str() {
                    "NULL" => OptionValue::Literal(Literal::Null),
                    "TRUE" => OptionValue::Literal(Literal::Bool(true)),
                    "FALSE" => OptionValue::Literal(Literal::Bool(false)),
                    _ => OptionValue::Word(word),
                })
            }
            TokenKind::Symbol if text == "(" => self.option_values(")"),
            TokenKind::Symbol if text == "[" => self.option_values("]"),
            TokenKind::Symbol if matches!(text, "-" | "+") => {
                self.advance();
                self.option_number(text == "-").map(OptionValue::Literal)
            }
            TokenKind::Number => self.option_number(false).map(OptionValue::Literal),
            TokenKind::Symbol | TokenKind::Rejected(_) | TokenKind::End => self.unexpected().err(),
        }
    }

    fn option_values(&mut self, close: &str) -> Result<OptionValue> {
        self.nested(|parser| {
            parser.advance();
            let values = if parser.at_symbol(close) {
                Vec::new()
            } else {
                parser.comma_list(Self::option_value)?
            };
            parser.expect_symbol(close)?;
            Ok(OptionValue::List(values))
        })
    }

    fn option_number(&mut self, is_negative: bool) -> Result<Literal> {
        let token = self.peek();
        let text = self.text(token);
        if token.kind != TokenKind::Number {
            return self.unexpected().err();
        }
        self.advance();
        if is_negative && text == literal::BIGINT_MIN_DIGITS {
            return Ok(Literal::BigInt(i64::MIN));
        }
        let number = literal::number(text, token.span())?;
        Ok(if is_negative { negated(number) } else { number })
    }
}

/// Negates a literal. It is at most the greatest value of its type, so this does not overflow.
fn negated(number: Literal) -> Literal {
    match number {
        Literal::Int(value) => Literal::Int(-value),
        Literal::BigInt(value) => Literal::BigInt(-value),
        Literal::Float(value) => Literal::Float(-value),
        Literal::Double(value) => Literal::Double(-value),
        Literal::Interval(mut interval) => {
            interval.amount = -interval.amount;
            Literal::Interval(interval)
        }
        other @ (Literal::Null | Literal::Bool(_) | Literal::String(_)) => other,
    }
}
