//! Calls of standard SQL with words between their operands, and AT TIME ZONE: each becomes the call of a
//! function.
//!
//! | written | means |
//! |---|---|
//! | `EXTRACT(field FROM t)` | `date_part('field', t)` |
//! | `POSITION(part IN text)` | `locate(part, text)` |
//! | `SUBSTRING(text FROM a FOR b)` | `substring(text, a, b)` |
//! | `TRIM(BOTH x FROM text)` | `trim(text, x)`; LEADING and TRAILING: `ltrim`, `rtrim` |
//! | `t AT TIME ZONE zone` | `to_zone(t, zone)`; of a time without a zone: `from_zone(t, zone)` |
//! | `t + INTERVAL '1 month'` | `timestampadd('month', 1, t)` |
//!
//! `expression` calls it.

use lockstep_diagnostic::{Result, Span};

use crate::ast::{BinaryOperator, Call, Expr, ExprKind, Ident, Literal, UnaryOperator};
use crate::cursor::Parser;
use crate::expression::Precedence;
use crate::literal::{self, CalendarDuration};
use crate::token::TokenKind;

/// The words of TRIM, each with the function that it means.
const TRIMS: &[(&str, &str)] = &[("BOTH", "trim"), ("LEADING", "ltrim"), ("TRAILING", "rtrim")];

/// The functions whose result is a time with or without a zone as their arguments are.
const KEEPS_ZONE: &[&str] = &[
    "date_trunc",
    "timestampadd",
    "timestamp_add",
    "date_add",
    "min",
    "max",
    "least",
    "greatest",
    "coalesce",
    "if_null",
    "ifnull",
    "nvl",
    "nullif",
    "first_value",
    "last_value",
    "lag",
];

impl Parser<'_> {
    /// Parses the arguments of a call, whose opening parenthesis was read, up to the closing one.
    pub(crate) fn call_arguments(&mut self, call: &mut Call) -> Result<()> {
        debug_assert!(call.arguments.is_empty() && !call.star, "no argument was read yet");
        match call.name.text.to_ascii_lowercase().as_str() {
            "position" => self.position_arguments(call),
            "trim" => self.trim_arguments(call),
            "extract" => {
                call.arguments = self.comma_list(Self::expression)?;
                if call.arguments.len() == 1 && self.eat_word("FROM") {
                    "date_part".clone_into(&mut call.name.text);
                    let field = field_of(&call.arguments[0]);
                    call.arguments = vec![field, self.expression()?];
                }
                Ok(())
            }
            "substring" | "substr" => {
                call.arguments = self.comma_list(Self::expression)?;
                if call.arguments.len() == 1 { self.substring_arguments(call) } else { Ok(()) }
            }
            _ => {
                call.arguments = self.comma_list(Self::expression)?;
                Ok(())
            }
        }
    }

    /// Parses `part IN text`. The operator IN would take a list.
    fn position_arguments(&mut self, call: &mut Call) -> Result<()> {
        let part = self.nested(|parser| parser.operators(Precedence::BitOr))?;
        call.arguments.push(part);
        if self.eat_word("IN") {
            "locate".clone_into(&mut call.name.text);
            call.arguments.push(self.nested(|parser| parser.operators(Precedence::BitOr))?);
        } else if self.eat_symbol(",") {
            call.arguments.extend(self.comma_list(Self::expression)?);
        }
        Ok(())
    }

    /// Parses `[FROM a] [FOR b]` behind a text.
    fn substring_arguments(&mut self, call: &mut Call) -> Result<()> {
        if self.eat_word("FROM") {
            call.arguments.push(self.expression()?);
        } else if self.at_word("FOR") {
            call.arguments.push(constant(Literal::Int(1), call.name.span));
        }
        if self.eat_word("FOR") {
            call.arguments.push(self.expression()?);
        }
        Ok(())
    }

    /// Parses `[BOTH | LEADING | TRAILING] [characters] [FROM] text`, or arguments.
    fn trim_arguments(&mut self, call: &mut Call) -> Result<()> {
        let word = TRIMS.iter().find(|(word, _)| self.at_word(word) && self.begins_operand(1));
        if let Some((_, function)) = word {
            self.advance();
            (*function).clone_into(&mut call.name.text);
        }
        if self.eat_word("FROM") {
            call.arguments = vec![self.expression()?];
            return Ok(());
        }
        call.arguments = self.comma_list(Self::expression)?;
        if call.arguments.len() == 1 && self.eat_word("FROM") {
            call.arguments.insert(0, self.expression()?);
        }
        Ok(())
    }

    /// Returns whether the token `count` after the next one goes on with an operand or FROM: a word before
    /// it is no column.
    fn begins_operand(&self, count: usize) -> bool {
        let token = self.peek_nth(count);
        match token.kind {
            TokenKind::Word | TokenKind::Quoted | TokenKind::String => true,
            TokenKind::Symbol => self.nth_is_symbol(count, "?"),
            _ => false,
        }
    }

    /// Parses the zone behind `operand AT TIME ZONE`.
    pub(crate) fn at_time_zone(&mut self, operand: Expr) -> Result<ExprKind> {
        let name = self.start();
        self.eat_words(AT_TIME_ZONE);
        let name = self.span_from(name);
        // What follows a zone, such as another AT TIME ZONE, follows the whole.
        let zone = self.nested(Self::atom)?;
        let text = if is_without_zone(&operand) { "from_zone" } else { "to_zone" };
        Ok(call_of(text, vec![operand, zone], name))
    }

    /// Returns the interval that is the next operand, in parentheses or not, if it has months, whose length
    /// depends on the time.
    pub(crate) fn calendar_interval(&self) -> Option<CalendarInterval> {
        let at = usize::from(self.at_symbol("("));
        if !self.nth_is_word(at, "INTERVAL") {
            return None;
        }
        let value = self.peek_nth(at + 1);
        let mut text = match value.kind {
            TokenKind::Number => self.text(value).to_owned(),
            TokenKind::String => literal::string(self.text(value), value.start()).ok()?,
            _ => return None,
        };
        let mut token_count = at + 2;
        if literal::is_whole_number(&text) {
            text = format!("{text} {}", self.text(self.peek_nth(at + 2)));
            token_count += 1;
        }
        if at == 1 && !self.nth_is_symbol(token_count, ")") {
            return None;
        }
        token_count += at;
        // A part of a larger operand, such as `INTERVAL '1 month' * 2`.
        let is_part = ["*", "/", "%", "[", ":"].iter().any(|s| self.nth_is_symbol(token_count, s))
            || ["DIV", "MOD"].iter().any(|word| self.nth_is_word(token_count, word));
        let duration = literal::calendar_duration(&text).filter(|found| found.months != 0)?;
        (!is_part).then_some(CalendarInterval { duration, token_count })
    }

    /// Parses an interval of months behind `left +` or `left -`.
    pub(crate) fn add_months(
        &mut self,
        left: Expr,
        operator: BinaryOperator,
        interval: CalendarInterval,
    ) -> Result<Expr> {
        let start = self.start();
        for _ in 0..interval.token_count {
            self.advance();
        }
        self.grow(2)?;
        let span = self.span_from(start);
        let whole = left.span.to(span);
        let sign = if operator == BinaryOperator::Subtract { -1 } else { 1 };
        let unit = constant(Literal::String("month".to_owned()), span);
        let count = signed(interval.duration.months.saturating_mul(sign), span);
        let kind = call_of("timestampadd", vec![unit, count, left], span);
        let later = Expr { kind, span: whole };
        let milliseconds = interval.duration.milliseconds;
        if milliseconds == 0 {
            return Ok(later);
        }
        let right = Box::new(signed(milliseconds, span));
        let kind = ExprKind::Binary { operator, left: Box::new(later), right };
        Ok(Expr { kind, span: whole })
    }
}

/// An interval with months at the cursor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CalendarInterval {
    duration: CalendarDuration,
    /// The number of its tokens, with its parentheses.
    token_count: usize,
}

/// The words of AT TIME ZONE.
pub(crate) const AT_TIME_ZONE: &[&str] = &["AT", "TIME", "ZONE"];

fn constant(literal: Literal, span: Span) -> Expr {
    Expr { kind: ExprKind::Literal(literal), span }
}

/// Returns a whole number, a negative one as the minus of a literal.
fn signed(value: i64, span: Span) -> Expr {
    let magnitude = value.saturating_abs();
    let literal = i32::try_from(magnitude).map_or(Literal::BigInt(magnitude), Literal::Int);
    let operand = constant(literal, span);
    if value >= 0 {
        return operand;
    }
    let kind = ExprKind::Unary { operator: UnaryOperator::Minus, operand: Box::new(operand) };
    Expr { kind, span }
}

fn call_of(name: &str, arguments: Vec<Expr>, span: Span) -> ExprKind {
    let name = Ident { text: name.to_owned(), span };
    ExprKind::Call(Call { name, arguments, star: false, distinct: false, over: None })
}

/// Returns the field of EXTRACT, a word or a text, as a text.
fn field_of(written: &Expr) -> Expr {
    match &written.kind {
        ExprKind::Column(path) if path.len() == 1 => {
            constant(Literal::String(path[0].text.to_lowercase()), written.span)
        }
        ExprKind::QuotedText(text) => constant(Literal::String(text.clone()), written.span),
        _ => written.clone(),
    }
}

/// Returns whether a value is what PostgreSQL calls a timestamp without time zone: a date and time of day,
/// of which AT TIME ZONE finds the instant. Columns are instants, of which it finds the date and time.
/// Linear in the expression.
fn is_without_zone(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Cast { to, .. } => {
            ["timestamp", "datetime"].iter().any(|name| to.name.text.eq_ignore_ascii_case(name))
        }
        ExprKind::Call(call) => {
            let name = call.name.text.to_ascii_lowercase();
            match name.as_str() {
                "to_zone" => true,
                name if KEEPS_ZONE.contains(&name) => call.arguments.iter().any(is_without_zone),
                _ => false,
            }
        }
        ExprKind::Binary {
            operator: BinaryOperator::Add | BinaryOperator::Subtract,
            left,
            right,
        } => is_without_zone(left) || is_without_zone(right),
        ExprKind::Case { branches, otherwise, .. } => {
            branches.iter().any(|(_, then)| is_without_zone(then))
                || otherwise.as_deref().is_some_and(is_without_zone)
        }
        _ => false,
    }
}
