//! Windows: `(…)` after OVER and in a WINDOW clause, and their frames.
//!
//! `expression` and `query` call it. The binder checks whether a window is valid (a partition, one
//! ascending order column, ends in the right order).

use lockstep_diagnostic::{Diagnostic, Result, code};

use crate::ast::{
    FrameBound, FrameBoundKind, FrameClause, FrameUnit, Ident, Literal, TableRef, WindowAttribute,
    WindowSpec,
};
use crate::cursor::Parser;
use crate::literal;
use crate::token::TokenKind;

/// The words that may begin a window, so that they are not the name of the window that it extends.
const OPENERS: &[&str] =
    &["UNION", "PARTITION", "ORDER", "ROWS", "ROWS_RANGE", "RANGE", "MAXSIZE", "EXCLUDE", INSTANCE];

const INSTANCE: &str = "INSTANCE_NOT_IN_WINDOW";

impl Parser<'_> {
    /// Parses a window with its parentheses.
    pub(crate) fn window_spec(&mut self) -> Result<WindowSpec> {
        self.nested(Self::window_body)
    }

    fn window_body(&mut self) -> Result<WindowSpec> {
        let start = self.start();
        self.expect_symbol("(")?;
        let mut spec = WindowSpec {
            base: self.window_base()?,
            unions: Vec::new(),
            partition_by: Vec::new(),
            order_by: Vec::new(),
            frame: None,
            max_size: None,
            attributes: Vec::new(),
            span: self.span_from(start),
        };
        if self.eat_word("UNION") {
            spec.unions = self.comma_list(Self::window_source)?;
        }
        if self.eat_words(&["PARTITION", "BY"]) {
            spec.partition_by = self.comma_list(Self::expression)?;
        }
        spec.order_by = self.order_by()?;
        while !self.at_symbol(")") {
            self.window_attribute(&mut spec)?;
        }
        self.expect_symbol(")")?;
        self.grow(1)?;
        spec.span = self.span_from(start);
        Ok(spec)
    }

    fn window_base(&mut self) -> Result<Option<Ident>> {
        let is_opener = self.peek().kind != TokenKind::Quoted && self.at_any_word(OPENERS);
        if is_opener || self.at_symbol(")") {
            return Ok(None);
        }
        self.ident().map(Some)
    }

    /// Parses a table or a sub-query after UNION.
    fn window_source(&mut self) -> Result<TableRef> {
        if self.at_symbol("(") {
            let query = Box::new(self.parenthesised_query()?);
            let alias = if self.eat_word("AS") { Some(self.ident()?) } else { None };
            return Ok(TableRef::Subquery { query, alias });
        }
        let name = self.object_name()?;
        let alias = if self.eat_word("AS") { Some(self.ident()?) } else { None };
        Ok(TableRef::Table { name, alias })
    }

    /// Parses the frame, MAXSIZE or one of the flags, each at most once.
    fn window_attribute(&mut self, spec: &mut WindowSpec) -> Result<()> {
        let start = self.start();
        let is_repeated;
        if self.at_any_word(&["ROWS", "ROWS_RANGE", "RANGE"]) {
            is_repeated = spec.frame.replace(self.frame()?).is_some();
        } else if self.eat_word("MAXSIZE") {
            is_repeated = spec.max_size.replace(self.row_count()?).is_some();
        } else {
            let attribute = self.window_flag()?;
            is_repeated = spec.attributes.contains(&attribute);
            spec.attributes.push(attribute);
        }
        if is_repeated {
            let message = "a window has each attribute at most once";
            return Diagnostic::new(code::SYNTAX_ERROR, message).at(self.span_from(start)).err();
        }
        Ok(())
    }

    fn window_flag(&mut self) -> Result<WindowAttribute> {
        if self.eat_word(INSTANCE) {
            return Ok(WindowAttribute::InstanceNotInWindow);
        }
        self.expect_word("EXCLUDE")?;
        if self.eat_word("CURRENT_TIME") {
            Ok(WindowAttribute::ExcludeCurrentTime)
        } else if self.eat_word("CURRENT_ROW") {
            Ok(WindowAttribute::ExcludeCurrentRow)
        } else {
            self.unexpected().err()
        }
    }

    fn frame(&mut self) -> Result<FrameClause> {
        let start = self.start();
        let unit = if self.eat_word("ROWS") {
            FrameUnit::Rows
        } else if self.eat_word("ROWS_RANGE") {
            FrameUnit::RowsRange
        } else {
            self.expect_word("RANGE")?;
            FrameUnit::Range
        };
        if self.eat_word("BETWEEN") {
            let older = self.bound()?;
            self.expect_word("AND")?;
            let newer = self.bound()?;
            return Ok(FrameClause { unit, start: older, end: newer, span: self.span_from(start) });
        }
        let older = self.bound()?;
        let span = self.span_from(start);
        let newer = FrameBound { kind: FrameBoundKind::CurrentRow, open: false, span: older.span };
        Ok(FrameClause { unit, start: older, end: newer, span })
    }

    fn bound(&mut self) -> Result<FrameBound> {
        let start = self.start();
        if self.eat_words(&["CURRENT", "ROW"]) {
            let span = self.span_from(start);
            return Ok(FrameBound { kind: FrameBoundKind::CurrentRow, open: false, span });
        }
        let offset = if self.eat_word("UNBOUNDED") { None } else { Some(self.bound_offset()?) };
        let open = self.eat_word("OPEN");
        let is_preceding = self.eat_word("PRECEDING");
        let is_sum = self.peek().kind == TokenKind::Symbol && !self.at_symbol(")");
        if !is_preceding && is_sum && offset.is_some() {
            let hint = "The distance must be a single number or duration, such as 2 PRECEDING or \
                1h PRECEDING.";
            return self.unexpected().with_hint(hint).err();
        }
        if !is_preceding {
            self.expect_word("FOLLOWING")?;
        }
        let kind = match (offset, is_preceding) {
            (None, true) => FrameBoundKind::UnboundedPreceding,
            (None, false) => FrameBoundKind::UnboundedFollowing,
            (Some(Literal::Interval(interval)), true) => {
                FrameBoundKind::PrecedingInterval(interval)
            }
            (Some(Literal::Interval(interval)), false) => {
                FrameBoundKind::FollowingInterval(interval)
            }
            (Some(literal), true) => FrameBoundKind::Preceding(whole(&literal)),
            (Some(literal), false) => FrameBoundKind::Following(whole(&literal)),
        };
        Ok(FrameBound { kind, open, span: self.span_from(start) })
    }

    /// Parses a whole number or an interval, with its sign.
    fn bound_offset(&mut self) -> Result<Literal> {
        let start = self.start();
        let is_negative = self.eat_symbol("-");
        if !is_negative && self.at_interval() {
            return self.interval();
        }
        let token = self.peek();
        if self.at_symbol("?") {
            return self.unsupported("a parameter in a window frame").err();
        }
        if token.kind != TokenKind::Number {
            return self.unexpected().err();
        }
        self.advance();
        let sign = if is_negative { -1 } else { 1 };
        match literal::number(self.text(token), token.span())? {
            Literal::Int(value) => Ok(Literal::BigInt(i64::from(value) * sign)),
            Literal::BigInt(value) => Ok(Literal::BigInt(value * sign)),
            Literal::Interval(mut interval) => {
                interval.amount *= sign;
                Ok(Literal::Interval(interval))
            }
            _ => {
                let message = "a frame bound must be an integer or an interval";
                Diagnostic::new(code::SYNTAX_ERROR, message)
                    .with_hint("Write `3 PRECEDING` or `30d PRECEDING`.")
                    .at(self.span_from(start))
                    .err()
            }
        }
    }
}

fn whole(literal: &Literal) -> i64 {
    match literal {
        Literal::BigInt(value) => *value,
        _ => unreachable!("a bound's offset is a BigInt or an Interval"),
    }
}
