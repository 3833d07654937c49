//! Expressions: precedence climbing over the dialect's operators.
//!
//! From loosest to tightest: OR · AND · XOR · NOT, `!` · comparisons, LIKE, IN, BETWEEN, IS (which
//! do not chain) · `|` · `^` · `&` · `||` · `+ -` · `* / % DIV MOD` · unary `+ - ~` · `a[i]`, `a::type`.
//! OpenMLDB does not have `||`; its precedence is that of PostgreSQL.
//!
//! `query`, `window` and `statement` call [`Parser::expression`]. Chains of AND, OR and XOR, which
//! are associative also over NULL, become balanced trees, so that a condition of thousands of terms
//! is only a few levels tall; every other chain is left-deep.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};

use crate::ast::{
    BinaryOperator, Call, Expr, ExprKind, Ident, LikeOperator, Literal, Over, TypeName,
    UnaryOperator,
};
use crate::cursor::Parser;
use crate::elsewhere;
use crate::literal;
use crate::token::{Token, TokenKind};
use crate::worded_call::AT_TIME_ZONE;

/// The precedence of an operator, from the loosest to the tightest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
    Or,
    And,
    Xor,
    Not,
    Comparison,
    BitOr,
    BitXor,
    BitAnd,
    Concat,
    Additive,
    Multiplicative,
    Unary,
}

impl Precedence {
    /// Returns the next tighter precedence: that of the right operand of a left-associative
    /// operator.
    pub(crate) fn tighter(self) -> Self {
        match self {
            Self::Or => Self::And,
            Self::And => Self::Xor,
            Self::Xor => Self::Not,
            Self::Not => Self::Comparison,
            Self::Comparison => Self::BitOr,
            Self::BitOr => Self::BitXor,
            Self::BitXor => Self::BitAnd,
            Self::BitAnd => Self::Concat,
            Self::Concat => Self::Additive,
            Self::Additive => Self::Multiplicative,
            Self::Multiplicative | Self::Unary => Self::Unary,
        }
    }
}

/// The functions that have a form with a condition, which FILTER means.
const FILTERED: &[&str] = &["count", "sum", "avg", "min", "max"];

/// An operator or predicate that follows its left operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Infix {
    Binary(BinaryOperator),
    Is,
    Between,
    In,
    Like(LikeOperator),
}

/// The operators that are symbols.
const SYMBOLS: &[(&str, BinaryOperator)] = &[
    ("+", BinaryOperator::Add),
    ("-", BinaryOperator::Subtract),
    ("*", BinaryOperator::Multiply),
    ("/", BinaryOperator::Divide),
    ("%", BinaryOperator::Modulo),
    ("&", BinaryOperator::BitAnd),
    ("|", BinaryOperator::BitOr),
    ("^", BinaryOperator::BitXor),
    ("||", BinaryOperator::Concat),
    ("&&", BinaryOperator::And),
    ("=", BinaryOperator::Equal),
    ("==", BinaryOperator::Equal),
    ("!=", BinaryOperator::NotEqual),
    ("<>", BinaryOperator::NotEqual),
    ("<", BinaryOperator::Less),
    ("<=", BinaryOperator::LessOrEqual),
    (">", BinaryOperator::Greater),
    (">=", BinaryOperator::GreaterOrEqual),
];

/// The operators that are words.
const WORDS: &[(&str, Infix)] = &[
    ("AND", Infix::Binary(BinaryOperator::And)),
    ("OR", Infix::Binary(BinaryOperator::Or)),
    ("XOR", Infix::Binary(BinaryOperator::Xor)),
    ("DIV", Infix::Binary(BinaryOperator::IntegerDivide)),
    ("MOD", Infix::Binary(BinaryOperator::Modulo)),
    ("IS", Infix::Is),
    ("BETWEEN", Infix::Between),
    ("IN", Infix::In),
    ("LIKE", Infix::Like(LikeOperator::Like)),
    ("ILIKE", Infix::Like(LikeOperator::ILike)),
    ("RLIKE", Infix::Like(LikeOperator::RLike)),
];

/// The types that may stand before a text, `DATE '2020-01-01'`. Some are of other dialects: the binder has
/// the hints for types that do not exist.
const LITERAL_TYPES: &[&str] = &[
    "DATE",
    "TIMESTAMP",
    "DATETIME",
    "TIMESTAMPTZ",
    "TIME",
    "NUMERIC",
    "DECIMAL",
    "BIGNUMERIC",
    "BIGDECIMAL",
    "JSON",
];

/// The words behind TIMESTAMP in a literal.
const ZONES: &[[&str; 3]] = &[["WITH", "TIME", "ZONE"], ["WITHOUT", "TIME", "ZONE"]];

/// Returns the precedence of a binary operator.
pub(crate) fn precedence(operator: BinaryOperator) -> Precedence {
    match operator {
        BinaryOperator::Or => Precedence::Or,
        BinaryOperator::And => Precedence::And,
        BinaryOperator::Xor => Precedence::Xor,
        BinaryOperator::Equal
        | BinaryOperator::NotEqual
        | BinaryOperator::Less
        | BinaryOperator::LessOrEqual
        | BinaryOperator::Greater
        | BinaryOperator::GreaterOrEqual => Precedence::Comparison,
        BinaryOperator::BitOr => Precedence::BitOr,
        BinaryOperator::BitXor => Precedence::BitXor,
        BinaryOperator::BitAnd => Precedence::BitAnd,
        BinaryOperator::Concat => Precedence::Concat,
        BinaryOperator::Add | BinaryOperator::Subtract => Precedence::Additive,
        BinaryOperator::Multiply
        | BinaryOperator::Divide
        | BinaryOperator::IntegerDivide
        | BinaryOperator::Modulo => Precedence::Multiplicative,
    }
}

impl Infix {
    fn precedence(self) -> Precedence {
        match self {
            Self::Binary(operator) => precedence(operator),
            Self::Is | Self::Between | Self::In | Self::Like(_) => Precedence::Comparison,
        }
    }
}

impl Parser<'_> {
    pub(crate) fn expression(&mut self) -> Result<Expr> {
        self.nested(|parser| parser.operators(Precedence::Or))
    }

    /// Parses an operand and all operators after it that bind at least as tightly as `loosest`.
    pub(crate) fn operators(&mut self, loosest: Precedence) -> Result<Expr> {
        self.scoped(|parser| {
            let mut left = parser.prefix(loosest)?;
            while let Some(infix) = parser.infix()? {
                let precedence = infix.precedence();
                if precedence < loosest {
                    break;
                }
                left = match infix {
                    Infix::Binary(
                        operator @ (BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor),
                    ) => parser.chain(left, operator)?,
                    Infix::Binary(operator) => parser.binary(left, operator)?,
                    _ => parser.predicate(left, infix)?,
                };
                if precedence == Precedence::Comparison {
                    parser.reject_second_comparison()?;
                }
            }
            Ok(left)
        })
    }

    /// Returns the operator at the cursor, if any, without consuming it.
    fn infix(&self) -> Result<Option<Infix>> {
        let token = self.peek();
        let text = self.text(token);
        if token.kind == TokenKind::Word {
            let negated = usize::from(self.at_word("NOT"));
            let found = WORDS.iter().find(|(word, _)| self.nth_is_word(negated, word));
            let infix = found.map(|(_, infix)| *infix);
            let may_be_negated = matches!(infix, Some(Infix::Between | Infix::In | Infix::Like(_)));
            return Ok(infix.filter(|_| negated == 0 || may_be_negated));
        }
        if token.kind != TokenKind::Symbol {
            return Ok(None);
        }
        let next = self.peek_nth(1);
        let is_doubled = matches!(text, "<" | ">" | ":") && self.text(next) == text;
        if is_doubled && next.start() == token.end() {
            let span = token.span().to(next.span());
            let message = format!("operator `{text}{text}` is not supported");
            let error = Diagnostic::unsupported(message).at(span);
            return if text == ":" { error.with_hint("Write CAST(… AS type).") } else { error }
                .err();
        }
        let found = SYMBOLS.iter().find(|(symbol, _)| *symbol == text);
        Ok(found.map(|(_, operator)| Infix::Binary(*operator)))
    }

    fn binary(&mut self, left: Expr, operator: BinaryOperator) -> Result<Expr> {
        self.advance();
        if matches!(operator, BinaryOperator::Add | BinaryOperator::Subtract)
            && let Some(interval) = self.calendar_interval()
        {
            return self.add_months(left, operator, interval);
        }
        if precedence(operator) == Precedence::Comparison {
            self.reject_quantifier()?;
        }
        let right = self.operators(precedence(operator).tighter())?;
        self.grow(1)?;
        Ok(join(operator, left, right))
    }

    /// Parses `left AND b AND c …`: all operands first, then a balanced tree over them.
    fn chain(&mut self, left: Expr, operator: BinaryOperator) -> Result<Expr> {
        let tighter = precedence(operator).tighter();
        let mut operands = vec![left];
        while self.infix()? == Some(Infix::Binary(operator)) {
            self.advance();
            operands.push(self.operators(tighter)?);
        }
        debug_assert!(operands.len() >= 2, "the operator at the cursor has two operands");
        let mut levels = 0;
        while operands.len() > 1 {
            operands = join_neighbours(operands, operator);
            levels += 1;
        }
        self.grow(levels)?;
        Ok(operands.pop().expect("a chain has operands"))
    }

    /// Parses IS, BETWEEN, IN or one of the LIKE family after `operand`.
    fn predicate(&mut self, operand: Expr, infix: Infix) -> Result<Expr> {
        let start = operand.span.start;
        let operand = Box::new(operand);
        let negated = self.eat_word("NOT");
        self.advance();
        let kind = match infix {
            Infix::Is => {
                let negated = self.eat_word("NOT");
                if self.at_any_word(&["TRUE", "FALSE", "DISTINCT"]) {
                    let error = self.unsupported("this form of IS");
                    return error.with_hint(elsewhere::FORMS_OF_IS).err();
                }
                self.expect_word("NULL")?;
                ExprKind::IsNull { operand, negated }
            }
            Infix::Between => {
                let low = Box::new(self.operators(Precedence::BitOr)?);
                self.expect_word("AND")?;
                let high = Box::new(self.operators(Precedence::BitOr)?);
                ExprKind::Between { operand, negated, low, high }
            }
            Infix::In => ExprKind::InList { operand, negated, items: self.in_list()? },
            Infix::Like(operator) => {
                self.reject_quantifier()?;
                let pattern = Box::new(self.operators(Precedence::BitOr)?);
                let escape = if operator != LikeOperator::RLike && self.eat_word("ESCAPE") {
                    Some(Box::new(self.operators(Precedence::BitOr)?))
                } else {
                    None
                };
                ExprKind::Like { operator, operand, negated, pattern, escape }
            }
            Infix::Binary(_) => return self.unexpected().err(),
        };
        self.grow(1)?;
        Ok(Expr { kind, span: self.span_from(start) })
    }

    fn in_list(&mut self) -> Result<Vec<Expr>> {
        if self.at_word("UNNEST") {
            return self.unsupported("IN UNNEST").err();
        }
        if self.at_sub_query() {
            return Ok(vec![self.sub_query()?]);
        }
        self.expect_symbol("(")?;
        let items = self.comma_list(Self::expression)?;
        self.expect_symbol(")")?;
        Ok(items)
    }

    fn reject_quantifier(&self) -> Result<()> {
        if self.at_any_word(&["ANY", "ALL", "SOME"]) && self.nth_is_symbol(1, "(") {
            return self.unsupported("a quantified comparison").with_hint("Use IN, or OR.").err();
        }
        Ok(())
    }

    fn reject_second_comparison(&self) -> Result<()> {
        match self.infix()? {
            Some(infix) if infix.precedence() == Precedence::Comparison => {
                let hint = "Comparisons cannot be chained: use AND, or parentheses.";
                self.unexpected().with_hint(hint).err()
            }
            _ => Ok(()),
        }
    }

    /// Parses unary operators, then an atom with its subscripts.
    fn prefix(&mut self, loosest: Precedence) -> Result<Expr> {
        let (operator, tightness) = if self.at_word("NOT") || self.at_symbol("!") {
            (UnaryOperator::Not, loosest.max(Precedence::Not))
        } else if self.at_symbol("-") {
            (UnaryOperator::Minus, Precedence::Unary)
        } else if self.at_symbol("+") {
            (UnaryOperator::Plus, Precedence::Unary)
        } else if self.at_symbol("~") {
            (UnaryOperator::BitNot, Precedence::Unary)
        } else {
            return self.subscripts();
        };
        let start = self.advance().start();
        if operator == UnaryOperator::Minus && self.text(self.peek()) == literal::BIGINT_MIN_DIGITS
        {
            self.advance();
            let kind = ExprKind::Literal(Literal::BigInt(i64::MIN));
            return Ok(Expr { kind, span: self.span_from(start) });
        }
        let operand = Box::new(self.nested(|parser| parser.operators(tightness))?);
        self.grow(1)?;
        Ok(Expr { kind: ExprKind::Unary { operator, operand }, span: self.span_from(start) })
    }

    fn subscripts(&mut self) -> Result<Expr> {
        let mut operand = self.atom()?;
        loop {
            let start = operand.span.start;
            let kind = if self.eat_symbol("[") {
                let index = Box::new(self.expression()?);
                self.expect_symbol("]")?;
                ExprKind::Index { operand: Box::new(operand), index }
            } else if self.at_symbol(":") && self.nth_is_symbol(1, ":") {
                self.advance();
                self.advance();
                ExprKind::Cast { operand: Box::new(operand), to: self.type_name()? }
            } else if self.at_words(AT_TIME_ZONE) {
                self.at_time_zone(operand)?
            } else {
                return Ok(operand);
            };
            self.grow(1)?;
            operand = Expr { kind, span: self.span_from(start) };
        }
    }

    pub(crate) fn atom(&mut self) -> Result<Expr> {
        let token = self.peek();
        let span = token.span();
        let text = self.text(token);
        match token.kind {
            TokenKind::Number => {
                self.advance();
                Ok(Expr { kind: ExprKind::Literal(literal::number(text, span)?), span })
            }
            TokenKind::String => self.quoted(token),
            TokenKind::Symbol if text == "(" => self.parenthesised(),
            TokenKind::Symbol if text == "[" => self.array(None, span.start),
            TokenKind::Symbol if text == "?" => {
                self.advance();
                self.parameters += 1;
                Ok(Expr { kind: ExprKind::Parameter(self.parameters - 1), span })
            }
            TokenKind::Symbol if matches!(text, "@" | ":" | "@@") => {
                self.unsupported("a variable or named parameter").with_hint("Write `?`.").err()
            }
            TokenKind::Word => self.word_atom(),
            TokenKind::Quoted => self.name(),
            TokenKind::Symbol | TokenKind::Rejected(_) | TokenKind::End => self.unexpected().err(),
        }
    }

    /// Parses a text; one in double quotes before a dot or a parenthesis is a name.
    fn quoted(&mut self, token: Token) -> Result<Expr> {
        let is_double = self.is_double_quoted(token);
        if is_double && (self.nth_is_symbol(1, ".") || self.nth_is_symbol(1, "(")) {
            return self.name();
        }
        let (text, span) = self.string()?;
        let kind = match is_double {
            true => ExprKind::QuotedText(text),
            false => ExprKind::Literal(Literal::String(text)),
        };
        Ok(Expr { kind, span })
    }

    /// Parses an atom that starts with an unquoted word.
    fn word_atom(&mut self) -> Result<Expr> {
        let span = self.peek().span();
        let constant = if self.at_word("NULL") {
            Literal::Null
        } else if self.at_word("TRUE") {
            Literal::Bool(true)
        } else if self.at_word("FALSE") {
            Literal::Bool(false)
        } else if self.at_word("CASE") {
            return self.case();
        } else if self.at_word("CAST") {
            return self.cast();
        } else if self.at_word("ARRAY")
            && (self.nth_is_symbol(1, "[") || self.nth_is_symbol(1, "<"))
        {
            return self.typed_array();
        } else if self.at_word("EXISTS") && self.nth_is_symbol(1, "(") {
            self.advance();
            let query = self.sub_query()?;
            let ExprKind::SubQuery { query, .. } = query.kind else { return Ok(query) };
            let kind = ExprKind::SubQuery { exists: true, query };
            return Ok(Expr { kind, span: self.span_from(span.start) });
        } else if self.at_any_word(&["SELECT", "WITH"]) {
            return self.unexpected().with_hint("Put the subquery in parentheses.").err();
        } else if self.at_interval() {
            let kind = ExprKind::Literal(self.interval()?);
            return Ok(Expr { kind, span: self.span_from(span.start) });
        } else if self.at_typed_literal() {
            return self.typed_literal();
        } else {
            return self.name();
        };
        self.advance();
        Ok(Expr { kind: ExprKind::Literal(constant), span })
    }

    fn at_typed_literal(&self) -> bool {
        let has_text = |count: usize| self.peek_nth(count).kind == TokenKind::String;
        let has_zone = ZONES
            .iter()
            .any(|words| (1..).zip(*words).all(|(at, word)| self.nth_is_word(at, word)));
        self.at_any_word(LITERAL_TYPES) && has_text(1)
            || self.at_word("TIMESTAMP") && has_zone && has_text(4)
    }

    /// Parses a type and a text, `DATE '2024-01-31'`, `TIMESTAMP WITH TIME ZONE '…'`: a CAST of the text.
    fn typed_literal(&mut self) -> Result<Expr> {
        let start = self.start();
        let to = self.type_name()?;
        let (text, span) = self.string()?;
        let kind = ExprKind::Literal(Literal::String(text));
        let operand = Box::new(Expr { kind, span });
        self.grow(1)?;
        Ok(Expr { kind: ExprKind::Cast { operand, to }, span: self.span_from(start) })
    }

    pub(crate) fn at_interval(&self) -> bool {
        let follows = matches!(self.peek_nth(1).kind, TokenKind::String | TokenKind::Number);
        follows && self.peek().kind == TokenKind::Word && self.at_word("INTERVAL")
    }

    /// Parses `INTERVAL '5' MINUTE`, `INTERVAL 5 MINUTE` or `INTERVAL '1 day 2 hours'`.
    pub(crate) fn interval(&mut self) -> Result<Literal> {
        let start = self.start();
        self.expect_word("INTERVAL")?;
        let number = self.peek();
        let mut text = match number.kind {
            TokenKind::Number => {
                self.advance();
                self.text(number).to_owned()
            }
            _ => self.string()?.0,
        };
        if literal::is_whole_number(&text) {
            let unit = self.any_ident()?;
            text = format!("{text} {}", unit.text);
        }
        if let Some(literal) = literal::duration(&text) {
            return Ok(literal);
        }
        Diagnostic::new(code::SYNTAX_ERROR, format!("invalid duration: '{text}'"))
            .at(self.span_from(start))
            .with_hint(
                "Write INTERVAL '5' MINUTE, or 5m. The units are millisecond, second, minute, \
                 hour, day and week; months and years vary in length.",
            )
            .err()
    }

    fn at_sub_query(&self) -> bool {
        self.at_symbol("(") && (self.nth_is_word(1, "SELECT") || self.nth_is_word(1, "WITH"))
    }

    /// Parses a query in parentheses.
    fn sub_query(&mut self) -> Result<Expr> {
        let start = self.start();
        self.expect_symbol("(")?;
        let query = Box::new(self.query()?);
        self.expect_symbol(")")?;
        Ok(Expr { kind: ExprKind::SubQuery { exists: false, query }, span: self.span_from(start) })
    }

    fn parenthesised(&mut self) -> Result<Expr> {
        if self.at_sub_query() {
            return self.sub_query();
        }
        let start = self.start();
        self.expect_symbol("(")?;
        let inner = self.expression()?;
        if self.at_symbol(",") {
            let error = self.unsupported("a row of several values").at(self.span_from(start));
            return error.with_hint(elsewhere::ROW_OF_VALUES).err();
        }
        self.expect_symbol(")")?;
        Ok(Expr { kind: inner.kind, span: self.span_from(start) })
    }

    fn case(&mut self) -> Result<Expr> {
        let start = self.start();
        self.expect_word("CASE")?;
        let operand = if self.at_word("WHEN") { None } else { Some(Box::new(self.expression()?)) };
        let mut branches = Vec::new();
        while self.eat_word("WHEN") {
            let condition = self.expression()?;
            self.expect_word("THEN")?;
            branches.push((condition, self.expression()?));
        }
        if branches.is_empty() {
            return self.unexpected().err();
        }
        let otherwise =
            if self.eat_word("ELSE") { Some(Box::new(self.expression()?)) } else { None };
        self.expect_word("END")?;
        self.grow(1)?;
        let kind = ExprKind::Case { operand, branches, otherwise };
        Ok(Expr { kind, span: self.span_from(start) })
    }

    fn cast(&mut self) -> Result<Expr> {
        let start = self.start();
        self.expect_word("CAST")?;
        self.expect_symbol("(")?;
        let operand = Box::new(self.expression()?);
        self.expect_word("AS")?;
        let to = self.type_name()?;
        self.expect_symbol(")")?;
        self.grow(1)?;
        Ok(Expr { kind: ExprKind::Cast { operand, to }, span: self.span_from(start) })
    }

    /// Parses `ARRAY[…]`, `ARRAY<type>[…]`.
    fn typed_array(&mut self) -> Result<Expr> {
        let start = self.start();
        self.expect_word("ARRAY")?;
        let mut element = None;
        if self.eat_symbol("<") {
            element = Some(self.type_name()?);
            self.expect_symbol(">")?;
        }
        self.array(element, start)
    }

    fn array(&mut self, element: Option<TypeName>, start: usize) -> Result<Expr> {
        self.expect_symbol("[")?;
        let items =
            if self.at_symbol("]") { Vec::new() } else { self.comma_list(Self::expression)? };
        self.expect_symbol("]")?;
        self.grow(1)?;
        Ok(Expr { kind: ExprKind::Array { element, items }, span: self.span_from(start) })
    }

    /// Parses a column, or a call.
    fn name(&mut self) -> Result<Expr> {
        let start = self.start();
        let mut parts = vec![self.ident()?];
        while self.eat_symbol(".") {
            parts.push(self.any_ident()?);
        }
        if self.at_symbol("(") {
            if parts.len() > 1 {
                return self.unsupported("a qualified function name").err();
            }
            let name = parts.pop().expect("a name has a part");
            return self.call(name);
        }
        let span = self.span_from(start);
        if parts.len() > 3 {
            let message = "column names with more than three parts (database, table and column) \
                are not supported";
            return Diagnostic::unsupported(message).at(span).err();
        }
        Ok(Expr { kind: ExprKind::Column(parts), span })
    }

    fn call(&mut self, name: Ident) -> Result<Expr> {
        let start = name.span.start;
        self.expect_symbol("(")?;
        let mut call =
            Call { name, arguments: Vec::new(), star: false, distinct: false, over: None };
        call.star = self.eat_symbol("*");
        if call.star {
            if self.eat_symbol(",") {
                call.arguments = self.comma_list(Self::expression)?;
            }
        } else if !self.at_symbol(")") {
            call.distinct = self.eat_word("DISTINCT");
            if !call.distinct {
                self.eat_word("ALL");
            }
            if !self.at_words(&["ORDER", "BY"]) {
                self.call_arguments(&mut call)?;
            }
        }
        if self.at_words(&["ORDER", "BY"]) {
            let error = self.unsupported("ORDER BY in a function call");
            return error.with_hint(elsewhere::ORDER_IN_CALL).err();
        }
        self.expect_symbol(")")?;
        if is_percentile(&call) && self.at_words(&["WITHIN", "GROUP"]) {
            self.within_group(&mut call)?;
        }
        self.reject_behind_call()?;
        if self.at_word("FILTER") && self.nth_is_symbol(1, "(") {
            self.filter(&mut call)?;
        }
        if self.eat_word("OVER") {
            call.over = Some(self.over()?);
        }
        self.grow(1)?;
        Ok(Expr { kind: ExprKind::Call(call), span: self.span_from(start) })
    }

    /// Refuses what other databases have behind the parentheses of a call.
    fn reject_behind_call(&self) -> Result<()> {
        let (what, hint) = if self.at_words(&["IGNORE", "NULLS"]) {
            ("IGNORE NULLS", elsewhere::IGNORE_NULLS)
        } else if self.at_words(&["RESPECT", "NULLS"]) {
            ("RESPECT NULLS", "Omit RESPECT NULLS, which is the default.")
        } else if self.at_words(&["WITHIN", "GROUP"]) {
            ("WITHIN GROUP", elsewhere::WITHIN_GROUP)
        } else {
            return Ok(());
        };
        self.unsupported(what).with_hint(hint).err()
    }

    /// Parses `WITHIN GROUP (ORDER BY x)` after `percentile_cont(p)`, which means `percentile_cont(x, p)`.
    fn within_group(&mut self, call: &mut Call) -> Result<()> {
        debug_assert_eq!(call.arguments.len(), 1, "the share is an argument");
        self.expect_word("WITHIN")?;
        self.expect_word("GROUP")?;
        self.expect_symbol("(")?;
        self.expect_word("ORDER")?;
        self.expect_word("BY")?;
        let value = self.expression()?;
        if self.at_word("DESC") {
            let error = self.unsupported("descending order in WITHIN GROUP");
            return error.with_hint("Write 1 - p instead of p, and omit DESC.").err();
        }
        self.eat_word("ASC");
        self.expect_symbol(")")?;
        call.arguments.insert(0, value);
        self.grow(1)
    }

    /// Parses `FILTER (WHERE condition)` after `sum(x)`, which means `sum_where(x, condition)`.
    fn filter(&mut self, call: &mut Call) -> Result<()> {
        let start = self.start();
        let function = call.name.text.to_ascii_lowercase();
        self.expect_word("FILTER")?;
        self.expect_symbol("(")?;
        self.expect_word("WHERE")?;
        let condition = self.expression()?;
        self.expect_symbol(")")?;
        if call.distinct || !FILTERED.contains(&function.as_str()) {
            let hint = format!("Write {function}(CASE WHEN condition THEN value END).");
            let message = format!("FILTER after `{function}` is not supported");
            return Diagnostic::unsupported(message)
                .at(self.span_from(start))
                .with_hint(hint)
                .err();
        }
        if call.star {
            call.star = false;
            let kind = ExprKind::Literal(Literal::Bool(true));
            call.arguments.push(Expr { kind, span: call.name.span });
        }
        call.name.text = format!("{function}_where");
        call.arguments.push(condition);
        self.grow(1)
    }

    fn over(&mut self) -> Result<Over> {
        if self.at_symbol("(") {
            self.window_spec().map(|spec| Over::Spec(Box::new(spec)))
        } else {
            self.ident().map(Over::Named)
        }
    }
}

/// Returns whether a call is `percentile_cont(p)`.
fn is_percentile(call: &Call) -> bool {
    let is_plain = !call.star && !call.distinct && call.arguments.len() == 1;
    is_plain && call.name.text.eq_ignore_ascii_case("percentile_cont")
}

fn join(operator: BinaryOperator, left: Expr, right: Expr) -> Expr {
    let span: Span = left.span.to(right.span);
    let kind = ExprKind::Binary { operator, left: Box::new(left), right: Box::new(right) };
    Expr { kind, span }
}

/// Joins the first operand with the second, the third with the fourth, and so on.
fn join_neighbours(operands: Vec<Expr>, operator: BinaryOperator) -> Vec<Expr> {
    let mut joined = Vec::with_capacity(operands.len().div_ceil(2));
    let mut operands = operands.into_iter();
    while let Some(left) = operands.next() {
        joined.push(match operands.next() {
            Some(right) => join(operator, left, right),
            None => left,
        });
    }
    joined
}
