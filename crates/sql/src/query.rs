//! Queries: WITH, set operations, SELECT with its clauses, FROM with its joins.
//!
//! `statement` calls [`Parser::top_level_query`]; windows and FROM call [`Parser::query`] for a
//! query in parentheses, which has no AS KNOWN, no INTO OUTFILE and no CONFIG.

use lockstep_diagnostic::{Diagnostic, Result, code};

use crate::NESTING_DEPTH_MAX;
use crate::ast::{
    CommonTable, Ident, IntoOutfile, Join, JoinKind, KnownAt, Literal, NamedWindow, NullsOrder,
    ObjectName, OrderBy, Query, RowLimit, Select, SelectItem, SetExpr, TableRef,
};
use crate::cursor::Parser;
use crate::elsewhere;
use crate::keyword;
use crate::literal;
use crate::token::{Token, TokenKind};

/// The spellings of joins, each with its kind.
const JOINS: &[(&[&str], JoinKind)] = &[
    (&["LAST", "JOIN"], JoinKind::Last),
    (&["LEFT", "JOIN"], JoinKind::Left),
    (&["LEFT", "OUTER", "JOIN"], JoinKind::Left),
    (&["JOIN"], JoinKind::Inner),
    (&["INNER", "JOIN"], JoinKind::Inner),
    (&["RIGHT", "JOIN"], JoinKind::Right),
    (&["RIGHT", "OUTER", "JOIN"], JoinKind::Right),
    (&["FULL", "JOIN"], JoinKind::Full),
    (&["FULL", "OUTER", "JOIN"], JoinKind::Full),
    (&["CROSS", "JOIN"], JoinKind::Cross),
];

/// The words before ARRIVAL or a column.
pub(crate) const KNOWN_AT: &[&str] = &["AS", "KNOWN", "AT"];

impl Parser<'_> {
    /// Parses a query with AS KNOWN, INTO OUTFILE and CONFIG.
    pub(crate) fn top_level_query(&mut self) -> Result<Query> {
        let start = self.start();
        let mut query = self.plain_query()?;
        query.known_at = self.known_at()?;
        if self.eat_words(&["INTO", "OUTFILE"]) {
            let (path, span) = self.string()?;
            let options = self.options_clause("OPTIONS")?;
            query.into_outfile = Some(IntoOutfile { path, span, options });
        }
        query.config = self.options_clause("CONFIG")?;
        query.span = self.span_from(start);
        Ok(query)
    }

    /// Parses a query in another query or in a statement.
    pub(crate) fn query(&mut self) -> Result<Query> {
        let query = self.plain_query()?;
        if self.at_words(KNOWN_AT) {
            let message = "AS KNOWN AT in a subquery or in another statement";
            let hint = "Use AS KNOWN AT at the end of a top-level SELECT.";
            return self.unsupported(message).with_hint(hint).err();
        }
        Ok(query)
    }

    /// Parses `[AS KNOWN AT (ARRIVAL | column)]`.
    fn known_at(&mut self) -> Result<Option<KnownAt>> {
        let start = self.start();
        if !self.eat_words(KNOWN_AT) {
            return Ok(None);
        }
        let column = match self.eat_word("ARRIVAL") {
            true => None,
            false => Some(self.ident()?),
        };
        Ok(Some(KnownAt { column, span: self.span_from(start) }))
    }

    /// Parses a query: WITH, SELECT or a set operation, ORDER BY, LIMIT.
    fn plain_query(&mut self) -> Result<Query> {
        self.nested(|parser| {
            let start = parser.start();
            let with = parser.with()?;
            let body = parser.set_expression()?;
            let order_by = parser.order_by()?;
            let limit = match parser.eat_word("LIMIT") {
                true if parser.eat_word("ALL") => None,
                true => Some(parser.row_count()?),
                false => None,
            };
            let offset = if parser.eat_word("OFFSET") { Some(parser.row_count()?) } else { None };
            if parser.at_word("FETCH") {
                return parser.unsupported("FETCH").with_hint("Write LIMIT.").err();
            }
            if parser.at_word("UNION") {
                let hint = "Put the query before UNION in parentheses.";
                return parser.unexpected().with_hint(hint).err();
            }
            parser.grow(1)?;
            let span = parser.span_from(start);
            let (known_at, into_outfile, config) = (None, None, Vec::new());
            Ok(Query { with, body, order_by, limit, offset, known_at, into_outfile, config, span })
        })
    }

    pub(crate) fn parenthesised_query(&mut self) -> Result<Query> {
        self.expect_symbol("(")?;
        if !self.at_any_word(&["SELECT", "WITH"]) && !self.at_symbol("(") {
            return self.unexpected().err();
        }
        let query = self.query()?;
        self.expect_symbol(")")?;
        Ok(query)
    }

    fn with(&mut self) -> Result<Vec<CommonTable>> {
        if !self.eat_word("WITH") {
            return Ok(Vec::new());
        }
        if self.at_word("RECURSIVE") && !self.nth_is_word(1, "AS") {
            return self.unsupported("WITH RECURSIVE").with_hint(elsewhere::RECURSIVE).err();
        }
        self.comma_list(|parser| {
            let name = parser.ident()?;
            let columns = parser.renamed_columns()?;
            parser.expect_word("AS")?;
            Ok(CommonTable { name, columns, query: parser.parenthesised_query()? })
        })
    }

    fn set_expression(&mut self) -> Result<SetExpr> {
        let mut left = self.scoped(Self::set_operand)?;
        loop {
            if self.at_any_word(&["INTERSECT", "EXCEPT"]) {
                let what = self.text(self.peek()).to_uppercase();
                return self.unsupported(&what).with_hint(elsewhere::SET_OPERATION).err();
            }
            if !self.eat_word("UNION") {
                return Ok(left);
            }
            let all = self.eat_word("ALL");
            if !all {
                self.eat_word("DISTINCT");
            }
            let right = self.scoped(Self::set_operand)?;
            match &mut left {
                // Another source of the same union makes the tree no taller.
                SetExpr::Union { all: known, sources } if *known == all => sources.push(right),
                _ => {
                    self.grow(1)?;
                    left = SetExpr::Union { all, sources: vec![left, right] };
                }
            }
        }
    }

    fn set_operand(&mut self) -> Result<SetExpr> {
        if self.at_symbol("(") {
            return self.parenthesised_query().map(|query| SetExpr::Query(Box::new(query)));
        }
        self.select().map(|select| SetExpr::Select(Box::new(select)))
    }

    fn select(&mut self) -> Result<Select> {
        let start = self.start();
        self.expect_word("SELECT")?;
        let distinct = self.eat_word("DISTINCT");
        if !distinct {
            self.eat_word("ALL");
        }
        if self.at_word("TOP") && self.peek_nth(1).kind == TokenKind::Number {
            let hint =
                format!("Write LIMIT {} at the end of the query.", self.text(self.peek_nth(1)));
            return self.unsupported("TOP").with_hint(hint).err();
        }
        let items = self.select_items()?;
        let from = if self.eat_word("FROM") { Some(self.from()?) } else { None };
        let filter = if self.eat_word("WHERE") { Some(self.expression()?) } else { None };
        let mut group_by = Vec::new();
        if self.eat_words(&["GROUP", "BY"]) {
            group_by = self.comma_list(Self::expression)?;
        }
        let having = if self.eat_word("HAVING") { Some(self.expression()?) } else { None };
        let mut windows = Vec::new();
        if self.eat_word("WINDOW") {
            windows = self.comma_list(Self::named_window)?;
        }
        self.grow(1)?;
        let span = self.span_from(start);
        Ok(Select { distinct, items, from, filter, group_by, having, windows, span })
    }

    /// Parses the select list; a comma after the last item is allowed.
    fn select_items(&mut self) -> Result<Vec<SelectItem>> {
        let mut items = vec![self.select_item()?];
        while self.eat_symbol(",") {
            let is_last = self.at_end()
                || self.at_symbol(";")
                || self.at_symbol(")")
                || self.at_any_word(&["FROM", "UNION"]);
            if is_last {
                break;
            }
            items.push(self.select_item()?);
        }
        Ok(items)
    }

    fn select_item(&mut self) -> Result<SelectItem> {
        let start = self.start();
        if self.eat_symbol("*") {
            return Ok(SelectItem::Star { qualifier: None, span: self.span_from(start) });
        }
        let is_name = |token: Token| {
            matches!(token.kind, TokenKind::Word | TokenKind::Quoted)
                || self.is_double_quoted(token)
        };
        let dotted = |count| is_name(self.peek_nth(count)) && self.nth_is_symbol(count + 1, ".");
        let is_star =
            dotted(0) && (self.nth_is_symbol(2, "*") || (dotted(2) && self.nth_is_symbol(4, "*")));
        if is_star {
            return self.qualified_star();
        }
        let expr = self.expression()?;
        Ok(SelectItem::Expr { expr, alias: self.alias()? })
    }

    /// Parses `t.*`, `db.t.*`.
    fn qualified_star(&mut self) -> Result<SelectItem> {
        let start = self.start();
        let first = self.ident()?;
        self.expect_symbol(".")?;
        let qualifier = if self.at_symbol("*") {
            ObjectName { database: None, name: first }
        } else {
            let name = self.any_ident()?;
            self.expect_symbol(".")?;
            ObjectName { database: Some(first), name }
        };
        self.expect_symbol("*")?;
        Ok(SelectItem::Star { qualifier: Some(qualifier), span: self.span_from(start) })
    }

    fn named_window(&mut self) -> Result<NamedWindow> {
        let name = self.ident()?;
        self.expect_word("AS")?;
        Ok(NamedWindow { name, spec: self.window_spec()? })
    }

    /// Parses FROM: joins, and commas, which bind looser than joins.
    fn from(&mut self) -> Result<TableRef> {
        let mut left = self.joined_tables()?;
        while self.at_symbol(",") {
            let span = self.advance().span();
            let right = self.joined_tables()?;
            self.grow(1)?;
            let kind = JoinKind::Cross;
            let join = Join { kind, left, right, order_by: Vec::new(), on: None, span };
            left = TableRef::Join(Box::new(join));
        }
        Ok(left)
    }

    fn joined_tables(&mut self) -> Result<TableRef> {
        let mut left = self.table()?;
        while let Some((words, kind)) = self.join_words()? {
            let start = self.start();
            self.eat_words(words);
            let span = self.span_from(start);
            let right = self.table()?;
            let order_by = if kind == JoinKind::Last { self.order_by()? } else { Vec::new() };
            if self.at_word("USING") {
                return self
                    .unsupported("JOIN … USING")
                    .with_hint("Write a condition after ON: t.k = u.k.")
                    .err();
            }
            let on = if kind == JoinKind::Cross {
                None
            } else {
                self.expect_word("ON")?;
                Some(self.expression()?)
            };
            self.grow(1)?;
            left = TableRef::Join(Box::new(Join { kind, left, right, order_by, on, span }));
        }
        Ok(left)
    }

    /// Returns the spelling and kind of the join at the cursor, if any, without consuming it.
    fn join_words(&self) -> Result<Option<(&'static [&'static str], JoinKind)>> {
        if self.at_word("NATURAL") {
            return self.unsupported("NATURAL JOIN").with_hint(elsewhere::NATURAL).err();
        }
        Ok(JOINS.iter().find(|(words, _)| self.at_words(words)).copied())
    }

    /// Returns whether a query begins `count` tokens after the next one, in parentheses or not.
    fn nth_begins_query(&self, count: usize) -> bool {
        let is_open = |at: &usize| self.nth_is_symbol(*at, "(");
        let first = (count..count + NESTING_DEPTH_MAX).find(|at| !is_open(at));
        first.is_some_and(|at| self.nth_is_word(at, "SELECT") || self.nth_is_word(at, "WITH"))
    }

    /// Parses a table, a sub-query, or a join in parentheses.
    fn table(&mut self) -> Result<TableRef> {
        if self.at_symbol("(") && !self.nth_begins_query(1) {
            return self.nested(|parser| {
                parser.advance();
                let joined = parser.joined_tables()?;
                parser.expect_symbol(")")?;
                Ok(joined)
            });
        }
        if self.at_symbol("(") {
            let query = Box::new(self.parenthesised_query()?);
            let alias = self.table_alias()?;
            return self.renamed(TableRef::Subquery { query, alias });
        }
        if let Some(files) = self.file_table()? {
            let alias = self.table_alias()?;
            return self.renamed(TableRef::Files { files: Box::new(files), alias });
        }
        let name = self.object_name()?;
        match self.table_alias()? {
            // `f(x)` is no table whose column is renamed.
            None => Ok(TableRef::Table { name, alias: None }),
            alias => self.renamed(TableRef::Table { name, alias }),
        }
    }

    /// Parses `[AS] alias` of a table; one without AS may have names of columns behind it.
    fn table_alias(&mut self) -> Result<Option<Ident>> {
        let token = self.peek();
        let is_bare = token.kind == TokenKind::Word && !keyword::follows_item(self.text(token));
        if is_bare && self.nth_is_name_list(1) {
            return self.ident().map(Some);
        }
        self.alias()
    }

    /// Parses `[(name, …)]` behind a table with its alias.
    fn renamed(&mut self, table: TableRef) -> Result<TableRef> {
        let columns = self.renamed_columns()?;
        if columns.is_empty() {
            return Ok(table);
        }
        self.grow(1)?;
        Ok(TableRef::Renamed { table: Box::new(table), columns })
    }

    fn renamed_columns(&mut self) -> Result<Vec<Ident>> {
        match self.nth_is_name_list(0) {
            true => self.column_names(),
            false => Ok(Vec::new()),
        }
    }

    /// Returns whether names in parentheses begin `count` tokens after the next one.
    fn nth_is_name_list(&self, count: usize) -> bool {
        let is_name = |at: usize| {
            let token = self.peek_nth(at);
            matches!(token.kind, TokenKind::Word | TokenKind::Quoted)
                || self.is_double_quoted(token)
        };
        let mut at = count;
        if !self.nth_is_symbol(at, "(") {
            return false;
        }
        loop {
            if !is_name(at + 1) {
                return false;
            }
            at += 2;
            if self.nth_is_symbol(at, ")") {
                return true;
            }
            if !self.nth_is_symbol(at, ",") {
                return false;
            }
        }
    }

    /// Parses `[ORDER BY e [ASC | DESC], …]`.
    pub(crate) fn order_by(&mut self) -> Result<Vec<OrderBy>> {
        if !self.eat_words(&["ORDER", "BY"]) {
            return Ok(Vec::new());
        }
        self.comma_list(|parser| {
            let expr = parser.expression()?;
            let descending = parser.eat_word("DESC");
            if !descending {
                parser.eat_word("ASC");
            }
            let nulls = if parser.eat_words(&["NULLS", "FIRST"]) {
                Some(NullsOrder::First)
            } else {
                parser.eat_words(&["NULLS", "LAST"]).then_some(NullsOrder::Last)
            };
            Ok(OrderBy { expr, descending, nulls })
        })
    }

    /// Parses the number after LIMIT, OFFSET or MAXSIZE.
    pub(crate) fn row_count(&mut self) -> Result<RowLimit> {
        let token = self.peek();
        if self.at_symbol("?") {
            return self
                .unsupported("a parameter in this clause")
                .with_hint("Write a number.")
                .err();
        }
        if self.at_symbol("-") && self.peek_nth(1).kind == TokenKind::Number {
            let span = token.span().to(self.peek_nth(1).span());
            let (code, what) = match (self.is_after_word("OFFSET"), self.is_after_word("MAXSIZE")) {
                (true, _) => (code::INVALID_OFFSET, "OFFSET"),
                (_, true) => (code::INVALID_PARAMETER, "MAXSIZE"),
                _ => (code::INVALID_LIMIT, "LIMIT"),
            };
            let message = format!("{what} must not be negative");
            return Diagnostic::new(code, message).at(span).err();
        }
        if token.kind != TokenKind::Number {
            return self.unexpected().err();
        }
        let span = token.span();
        let count = match literal::number(self.text(token), span)? {
            Literal::Int(count) => u64::try_from(count).ok(),
            Literal::BigInt(count) => u64::try_from(count).ok(),
            _ => None,
        };
        self.advance();
        match count {
            Some(count) => Ok(RowLimit { count, span }),
            None => {
                let message = "the number of rows must be an integer";
                Diagnostic::new(code::SYNTAX_ERROR, message).at(span).err()
            }
        }
    }
}
