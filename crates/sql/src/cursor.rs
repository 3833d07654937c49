//! The parser's cursor over the tokens, its limits and its errors, which every part of the grammar
//! uses.
//!
//! `statement`, `query`, `window`, `expression` and `options` each add their part of the grammar to
//! [`Parser`]. Every function leaves the cursor after the tokens that it consumed; the parser never
//! goes back.

use lockstep_diagnostic::{Diagnostic, Result, Span, code, nearest};

use crate::ast::{Ident, ObjectName};
use crate::elsewhere;
use crate::keyword;
use crate::literal;
use crate::query::KNOWN_AT;
use crate::token::{Token, TokenKind, tokenize};
use crate::{NESTING_DEPTH_MAX, STATEMENT_BYTES_MAX, TREE_HEIGHT_MAX};

/// The least length of a word for a hint: shorter ones are similar to too many keywords.
const HINT_CHARS_MIN: usize = 3;

/// The most characters of the offending token that a message shows.
const MESSAGE_CHARS_MAX: usize = 60;

/// A recursive-descent parser over the tokens of one text.
#[derive(Debug)]
pub(crate) struct Parser<'a> {
    sql: &'a str,
    tokens: Vec<Token>,
    next: usize,
    /// The number of `?` so far in this statement.
    pub(crate) parameters: usize,
    depth: usize,
    /// The height of the tallest tree built since the innermost [`Parser::scoped`] started.
    tallest: usize,
    /// The last word that was parsed as an alias without AS: it may be a mistyped keyword.
    alias: Option<usize>,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(sql: &'a str) -> Result<Self> {
        if sql.len() > STATEMENT_BYTES_MAX {
            let message = format!("statement of {} bytes is too long", sql.len());
            return Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message)
                .with_detail(format!("The limit is {STATEMENT_BYTES_MAX} bytes."))
                .with_hint("Split the script, or load the rows with LOAD DATA.")
                .err();
        }
        let tokens = tokenize(sql)?;
        Ok(Self { sql, tokens, next: 0, parameters: 0, depth: 0, tallest: 0, alias: None })
    }

    // ---- Lookahead ----

    /// Returns the next token.
    pub(crate) fn peek(&self) -> Token {
        self.peek_nth(0)
    }

    /// Returns the token `count` after the next one; [`TokenKind::End`] after the end.
    pub(crate) fn peek_nth(&self, count: usize) -> Token {
        debug_assert!(!self.tokens.is_empty(), "the last token is the end of the text");
        let last = self.tokens.len() - 1;
        self.tokens[last.min(self.next + count)]
    }

    pub(crate) fn text(&self, token: Token) -> &'a str {
        &self.sql[token.start()..token.end()]
    }

    pub(crate) fn at_word(&self, word: &str) -> bool {
        self.nth_is_word(0, word)
    }

    pub(crate) fn nth_is_word(&self, count: usize, word: &str) -> bool {
        let token = self.peek_nth(count);
        token.kind == TokenKind::Word && self.text(token).eq_ignore_ascii_case(word)
    }

    /// Returns whether the last consumed token is this word.
    pub(crate) fn is_after_word(&self, word: &str) -> bool {
        let last = self.next.checked_sub(1).map(|last| self.tokens[last]);
        last.is_some_and(|last| self.text(last).eq_ignore_ascii_case(word))
    }

    pub(crate) fn at_words(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(count, word)| self.nth_is_word(count, word))
    }

    pub(crate) fn at_any_word(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.at_word(word))
    }

    pub(crate) fn at_symbol(&self, symbol: &str) -> bool {
        self.nth_is_symbol(0, symbol)
    }

    pub(crate) fn nth_is_symbol(&self, count: usize, symbol: &str) -> bool {
        let token = self.peek_nth(count);
        token.kind == TokenKind::Symbol && self.text(token) == symbol
    }

    pub(crate) fn at_end(&self) -> bool {
        self.peek().kind == TokenKind::End
    }

    /// Returns the start of the next token.
    pub(crate) fn start(&self) -> usize {
        self.peek().start()
    }

    /// Returns the bytes from `start` to the end of the last consumed token.
    pub(crate) fn span_from(&self, start: usize) -> Span {
        let end = self.next.checked_sub(1).map_or(start, |last| self.tokens[last].end());
        Span::new(start, end.max(start))
    }

    // ---- Consuming ----

    /// Consumes the next token and returns it.
    pub(crate) fn advance(&mut self) -> Token {
        let token = self.peek();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        debug_assert!(self.next < self.tokens.len(), "the cursor stays at the end");
        token
    }

    pub(crate) fn eat_word(&mut self, word: &str) -> bool {
        self.eat_words(&[word])
    }

    /// Consumes all of `words`, or nothing, and returns whether it did.
    pub(crate) fn eat_words(&mut self, words: &[&str]) -> bool {
        let found = self.at_words(words);
        if found {
            self.next += words.len();
        }
        debug_assert!(self.next < self.tokens.len(), "a word is not the end of the text");
        found
    }

    pub(crate) fn eat_symbol(&mut self, symbol: &str) -> bool {
        let found = self.at_symbol(symbol);
        if found {
            self.advance();
        }
        found
    }

    pub(crate) fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { self.unexpected().err() }
    }

    pub(crate) fn expect_symbol(&mut self, symbol: &str) -> Result<()> {
        if self.eat_symbol(symbol) { Ok(()) } else { self.unexpected().err() }
    }

    pub(crate) fn expect_end(&mut self) -> Result<()> {
        if self.at_end() { Ok(()) } else { self.unexpected().err() }
    }

    /// Parses one or more items with commas between them.
    pub(crate) fn comma_list<T>(&mut self, item: fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat_symbol(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    // ---- Names ----

    /// Returns whether a token is a text in double quotes, which is a name where the grammar
    /// requires a name.
    pub(crate) fn is_double_quoted(&self, token: Token) -> bool {
        token.kind == TokenKind::String && self.text(token).starts_with('"')
    }

    /// Parses a name: in back-quotes or double quotes, or a word that is not reserved.
    pub(crate) fn ident(&mut self) -> Result<Ident> {
        let token = self.peek();
        if token.kind == TokenKind::Word && keyword::is_reserved(self.text(token)) {
            let error = self.unexpected();
            let next = self.peek_nth(1);
            let is_used_as_name = match next.kind {
                TokenKind::Symbol => !matches!(self.text(next), "(" | ";"),
                TokenKind::Word => keyword::is_reserved(self.text(next)),
                _ => false,
            };
            if is_used_as_name && error.hint.is_none() {
                return error
                    .with_hint("Enclose the word in back-quotes to use it as a name.")
                    .err();
            }
            return error.err();
        }
        self.any_ident()
    }

    /// Parses a name where the grammar has no keyword, such as after a dot.
    pub(crate) fn any_ident(&mut self) -> Result<Ident> {
        let token = self.peek();
        let text = match token.kind {
            TokenKind::Word => self.text(token).to_owned(),
            TokenKind::Quoted => literal::identifier(self.text(token)),
            _ if self.is_double_quoted(token) => literal::string(self.text(token), token.start())?,
            _ => return self.unexpected().err(),
        };
        if text.is_empty() {
            let message = "zero-length quoted identifier";
            return Diagnostic::new(code::SYNTAX_ERROR, message).at(token.span()).err();
        }
        self.advance();
        Ok(Ident { text, span: token.span() })
    }

    /// Parses `[db.]name`.
    pub(crate) fn object_name(&mut self) -> Result<ObjectName> {
        let first = self.ident()?;
        if !self.eat_symbol(".") {
            return Ok(ObjectName { database: None, name: first });
        }
        let name = self.any_ident()?;
        if self.at_symbol(".") {
            let message = "names with more than two parts (database and object) are not supported";
            return Diagnostic::unsupported(message).at(self.peek().span()).err();
        }
        Ok(ObjectName { database: Some(first), name })
    }

    /// Parses `[AS] alias`.
    pub(crate) fn alias(&mut self) -> Result<Option<Ident>> {
        if self.at_words(KNOWN_AT) {
            return Ok(None);
        }
        if self.eat_word("AS") {
            return self.ident().map(Some);
        }
        let token = self.peek();
        let is_alias = match token.kind {
            TokenKind::Quoted => true,
            _ if self.is_double_quoted(token) => true,
            TokenKind::Word if self.nth_is_symbol(1, "(") => false,
            TokenKind::Word if self.at_word("ASOF") && self.nth_is_word(1, "JOIN") => false,
            TokenKind::Word => !keyword::follows_item(self.text(token)),
            _ => false,
        };
        if !is_alias {
            return Ok(None);
        }
        self.alias = (token.kind == TokenKind::Word).then_some(self.next);
        self.ident().map(Some)
    }

    /// Parses a quoted text, and returns its position too.
    pub(crate) fn string(&mut self) -> Result<(String, Span)> {
        let token = self.peek();
        if token.kind != TokenKind::String {
            return self.unexpected().err();
        }
        self.advance();
        Ok((literal::string(self.text(token), token.start())?, token.span()))
    }

    // ---- Limits ----

    /// Parses a recursive part of the grammar; see [`NESTING_DEPTH_MAX`].
    pub(crate) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == NESTING_DEPTH_MAX {
            return Diagnostic::new(code::STATEMENT_TOO_COMPLEX, "statement is nested too deeply")
                .with_detail(format!("The limit is {NESTING_DEPTH_MAX} levels."))
                .at(self.peek().span())
                .err();
        }
        self.depth += 1;
        let result = self.scoped(parse);
        debug_assert!(self.depth > 0, "each level of nesting ends once");
        self.depth -= 1;
        result
    }

    /// Parses a sub-tree whose height is measured separately.
    pub(crate) fn scoped<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = std::mem::take(&mut self.tallest);
        let result = parse(self);
        self.tallest = self.tallest.max(outer);
        result
    }

    /// Adds `levels` of nodes above the trees of this scope to their height.
    pub(crate) fn grow(&mut self, levels: usize) -> Result<()> {
        self.tallest += levels;
        if self.tallest <= TREE_HEIGHT_MAX {
            return Ok(());
        }
        Diagnostic::new(
            code::STATEMENT_TOO_COMPLEX,
            "expression or query has too many operators in a row",
        )
        .with_detail(format!("The limit is {TREE_HEIGHT_MAX} levels in the tree of a statement."))
        .with_hint("Group the operands with parentheses, or use a subquery.")
        .at(self.peek().span())
        .err()
    }

    // ---- Errors ----

    /// Returns the error of a next token that the grammar does not allow.
    pub(crate) fn unexpected(&self) -> Diagnostic {
        if let Some(error) = self.mistaken_alias() {
            return error;
        }
        let token = self.peek();
        if let TokenKind::Rejected(rejection) = token.kind {
            return literal::rejected(rejection).at(token.span());
        }
        if token.kind == TokenKind::End {
            let message = "syntax error at end of input";
            return Diagnostic::new(code::SYNTAX_ERROR, message).at(token.span());
        }
        let error = syntax_error(self.text(token)).at(token.span());
        if let Some(hint) = self.elsewhere() {
            return error.with_hint(hint);
        }
        match self.meant(token) {
            Some(word) => error.with_hint(format!("Did you mean `{word}`?")),
            None => error,
        }
    }

    /// Returns what to write for a clause or an operator of another database at the next token.
    fn elsewhere(&self) -> Option<&'static str> {
        elsewhere::of_clause(|offset| {
            let token = self.tokens.get(self.next.checked_add_signed(offset)?)?;
            Some(self.text(*token))
        })
    }

    /// Returns the error of a mistyped keyword that was parsed as an alias: in `SELECT a FORM t`
    /// the parser fails at `t`, but the mistake is FORM.
    fn mistaken_alias(&self) -> Option<Diagnostic> {
        let alias = self.alias.filter(|alias| alias + 1 == self.next)?;
        let token = self.tokens[alias];
        let word = self.meant(token)?;
        let error = syntax_error(self.text(token)).at(token.span());
        Some(error.with_hint(format!("Did you mean `{word}`?")))
    }

    /// Returns the keyword that a mistyped word is most similar to.
    fn meant(&self, token: Token) -> Option<&'static str> {
        let word = self.text(token);
        let is_candidate = token.kind == TokenKind::Word
            && word.len() >= HINT_CHARS_MIN
            && !keyword::is_keyword(word);
        if is_candidate { nearest(word, keyword::SUGGESTED.iter().copied()) } else { None }
    }

    /// Returns the error of a construct that other dialects have.
    pub(crate) fn unsupported(&self, what: &str) -> Diagnostic {
        Diagnostic::unsupported(format!("{what} is not supported")).at(self.peek().span())
    }
}

fn syntax_error(text: &str) -> Diagnostic {
    let shown: String = text.chars().take(MESSAGE_CHARS_MAX).collect();
    let cut = if shown.len() < text.len() { "…" } else { "" };
    Diagnostic::new(code::SYNTAX_ERROR, format!("syntax error at or near `{shown}{cut}`"))
}
