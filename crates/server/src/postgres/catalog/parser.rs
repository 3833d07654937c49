//! The parser of catalog queries: the part of PostgreSQL's SELECT that tools use to ask for catalogs.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::Value;

use super::expression::{
    CatalogExpr, CatalogSelectItem, MemberList, Operator, OrderItem, SelectQuery, Source,
    SourceRows, UnionKind,
};
use crate::postgres::{
    script::TokenCursor,
    token::SqlTokenKind,
    types::{Oid, oid, oid_of, type_of_name},
};

/// The greatest depth of nested expressions and queries.
const DEPTH_MAX: usize = 64;

/// The types of object names, whose values are numbers here.
const OBJECT_TYPES: [&str; 5] = ["regclass", "regtype", "regproc", "regnamespace", "regrole"];

/// Reads a query from the tokens of a statement.
pub(super) fn parse(statement: TokenCursor<'_>) -> Result<SelectQuery> {
    let mut parser = CatalogParser { cursor: statement, depth: 0 };
    let query = parser.query()?;
    if !parser.cursor.is_end() {
        return parser.cursor.syntax_error();
    }
    Ok(query)
}

struct CatalogParser<'s> {
    cursor: TokenCursor<'s>,
    depth: usize,
}

impl CatalogParser<'_> {
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Diagnostic::new(code::STATEMENT_TOO_COMPLEX, "the query is nested too deep")
                .err();
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn expect(&mut self, symbol: &str) -> Result<()> {
        if self.cursor.accept_symbol(symbol) { Ok(()) } else { self.cursor.syntax_error() }
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.cursor.accept(word) { Ok(()) } else { self.cursor.syntax_error() }
    }

    fn name(&mut self) -> Result<String> {
        self.cursor.name().map_or_else(|| self.cursor.syntax_error(), Ok)
    }

    fn is_next(&self, word: &str) -> bool {
        self.cursor.peek().is_some_and(|token| token.is_word(self.cursor.sql(), word))
    }

    fn is_next_symbol(&self, symbol: &str) -> bool {
        self.cursor.peek().is_some_and(|token| token.is_symbol(self.cursor.sql(), symbol))
    }

    fn query(&mut self) -> Result<SelectQuery> {
        self.nested(Self::query_body)
    }

    fn query_body(&mut self) -> Result<SelectQuery> {
        self.expect_word("SELECT")?;
        let is_distinct = self.cursor.accept("DISTINCT");
        self.cursor.accept("ALL");
        let items = self.list(Self::select_item)?;
        let from = if self.cursor.accept("FROM") { self.sources()? } else { Vec::new() };
        let filter = self.cursor.accept("WHERE").then(|| self.expr()).transpose()?;
        if self.is_next("GROUP") || self.is_next("HAVING") || self.is_next("WINDOW") {
            return self.cursor.syntax_error();
        }
        let union = if self.cursor.accept("UNION") {
            let is_all = self.cursor.accept("ALL");
            let kind = if is_all { UnionKind::All } else { UnionKind::Distinct };
            Some((Box::new(self.query()?), kind))
        } else {
            None
        };
        let is_ordered = self.cursor.accept_all(&["ORDER", "BY"]);
        let order = if is_ordered { self.list(Self::order_item)? } else { Vec::new() };
        let limit = self.cursor.accept("LIMIT").then(|| self.expr()).transpose()?;
        let offset = self.cursor.accept("OFFSET").then(|| self.expr()).transpose()?;
        Ok(SelectQuery { is_distinct, items, from, filter, order, limit, offset, union })
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut found = vec![read(self)?];
        while self.cursor.accept_symbol(",") {
            found.push(read(self)?);
        }
        Ok(found)
    }

    fn select_item(&mut self) -> Result<CatalogSelectItem> {
        if self.cursor.accept_symbol("*") {
            return Ok(CatalogSelectItem::All(None));
        }
        let mut ahead = self.cursor;
        if let Some(table) = ahead.name()
            && ahead.accept_symbol(".")
            && ahead.accept_symbol("*")
        {
            self.cursor = ahead;
            return Ok(CatalogSelectItem::All(Some(table)));
        }
        let expr = self.expr()?;
        let name = match self.alias()? {
            Some(alias) => alias,
            None => column_name(&expr),
        };
        Ok(CatalogSelectItem::Expr { expr, name })
    }

    fn order_item(&mut self) -> Result<OrderItem> {
        let expr = self.expr()?;
        let is_descending = self.cursor.accept("DESC");
        self.cursor.accept("ASC");
        if self.cursor.accept("NULLS") {
            let _either = self.cursor.accept("FIRST") || self.cursor.accept("LAST");
        }
        Ok(OrderItem { expr, is_descending })
    }

    /// Reads a name behind AS, or one that is no keyword.
    fn alias(&mut self) -> Result<Option<String>> {
        const NO_ALIAS: [&str; 19] = [
            "FROM", "WHERE", "ORDER", "LIMIT", "OFFSET", "UNION", "LEFT", "RIGHT", "INNER", "FULL",
            "CROSS", "JOIN", "ON", "USING", "GROUP", "HAVING", "WINDOW", "AND", "NATURAL",
        ];
        if self.cursor.accept("AS") {
            return self.name().map(Some);
        }
        let next = self.cursor.peek();
        let is_alias = next.is_some_and(|token| match token.kind {
            SqlTokenKind::QuotedName => true,
            SqlTokenKind::Word => {
                !NO_ALIAS.iter().any(|word| token.is_word(self.cursor.sql(), word))
            }
            _ => false,
        });
        Ok(if is_alias { self.cursor.name() } else { None })
    }

    fn sources(&mut self) -> Result<Vec<Source>> {
        let mut sources = vec![self.source()?];
        loop {
            if self.cursor.accept_symbol(",") {
                sources.push(self.source()?);
                continue;
            }
            let is_left = self.cursor.accept("LEFT");
            if is_left {
                self.cursor.accept("OUTER");
            } else {
                let _kind = self.cursor.accept("INNER") || self.cursor.accept("CROSS");
            }
            if !self.cursor.accept("JOIN") {
                if is_left || !self.at_end_of_sources() {
                    return self.cursor.syntax_error();
                }
                return Ok(sources);
            }
            let mut source = self.source()?;
            source.is_left = is_left;
            if self.cursor.accept("ON") {
                source.on = Some(self.expr()?);
            }
            sources.push(source);
        }
    }

    fn at_end_of_sources(&self) -> bool {
        const WORDS: [&str; 8] =
            ["WHERE", "ORDER", "LIMIT", "OFFSET", "UNION", "GROUP", "HAVING", "WINDOW"];
        self.cursor.is_end()
            || self.is_next_symbol(")")
            || WORDS.iter().any(|word| self.is_next(word))
    }

    fn source(&mut self) -> Result<Source> {
        self.cursor.accept("LATERAL");
        let (rows, name) = if self.cursor.accept_symbol("(") {
            if !self.is_next("SELECT") {
                return self.cursor.syntax_error();
            }
            let query = self.query()?;
            self.expect(")")?;
            (SourceRows::Query(Box::new(query)), String::new())
        } else {
            let mut name = self.name()?.to_ascii_lowercase();
            if self.cursor.accept_symbol(".") {
                let table = self.name()?.to_ascii_lowercase();
                name = if name == "pg_catalog" { table } else { format!("{name}.{table}") };
            }
            let last = name.rsplit('.').next().unwrap_or_default().to_owned();
            if self.cursor.accept_symbol("(") {
                let arguments = self.arguments()?;
                (SourceRows::Function { name, arguments }, last)
            } else {
                (SourceRows::Table(name), last)
            }
        };
        let alias = self.alias()?.unwrap_or(name);
        if self.cursor.accept_symbol("(") {
            // The names of the columns of a function, which has one.
            let _columns = self.list(Self::name)?;
            self.expect(")")?;
        }
        Ok(Source { rows, alias, is_left: false, on: None })
    }

    /// Reads arguments behind the parenthesis.
    fn arguments(&mut self) -> Result<Vec<CatalogExpr>> {
        if self.cursor.accept_symbol(")") {
            return Ok(Vec::new());
        }
        if self.cursor.accept_symbol("*") {
            self.expect(")")?;
            return Ok(Vec::new());
        }
        self.cursor.accept("DISTINCT");
        let arguments = self.list(Self::expr)?;
        self.expect(")")?;
        Ok(arguments)
    }

    fn expr(&mut self) -> Result<CatalogExpr> {
        self.nested(Self::disjunction)
    }

    fn disjunction(&mut self) -> Result<CatalogExpr> {
        let mut left = self.conjunction()?;
        while self.cursor.accept("OR") {
            left = CatalogExpr::binary(Operator::Or, left, self.conjunction()?);
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Result<CatalogExpr> {
        let mut left = self.negation()?;
        while self.cursor.accept("AND") {
            left = CatalogExpr::binary(Operator::And, left, self.negation()?);
        }
        Ok(left)
    }

    fn negation(&mut self) -> Result<CatalogExpr> {
        if self.cursor.accept("NOT") {
            return self.nested(Self::negation).map(|operand| CatalogExpr::Not(Box::new(operand)));
        }
        self.predicate()
    }

    fn predicate(&mut self) -> Result<CatalogExpr> {
        let mut left = self.sum()?;
        loop {
            if self.cursor.accept("IS") {
                left = self.is_predicate(left)?;
                continue;
            }
            let is_negated = self.cursor.accept("NOT");
            let Some(found) = self.comparison(left.clone())? else {
                if is_negated {
                    return self.cursor.syntax_error();
                }
                return Ok(left);
            };
            left = if is_negated { CatalogExpr::Not(Box::new(found)) } else { found };
        }
    }

    fn is_predicate(&mut self, left: CatalogExpr) -> Result<CatalogExpr> {
        let is_negated = self.cursor.accept("NOT");
        let found = if self.cursor.accept("NULL") {
            CatalogExpr::IsNull(Box::new(left))
        } else if self.cursor.accept("TRUE") {
            CatalogExpr::Call { name: "is_true".to_owned(), arguments: vec![left] }
        } else if self.cursor.accept("FALSE") {
            CatalogExpr::Call {
                name: "is_true".to_owned(),
                arguments: vec![CatalogExpr::Not(Box::new(left))],
            }
        } else {
            return self.cursor.syntax_error();
        };
        Ok(if is_negated { CatalogExpr::Not(Box::new(found)) } else { found })
    }

    /// Reads a comparison behind its left side, if one is next.
    fn comparison(&mut self, left: CatalogExpr) -> Result<Option<CatalogExpr>> {
        if self.cursor.accept("IN") {
            self.expect("(")?;
            let right = self.members()?;
            let left = Box::new(left);
            return Ok(Some(CatalogExpr::Any {
                operator: Operator::Equal,
                left,
                right: Box::new(right),
            }));
        }
        if self.cursor.accept("BETWEEN") {
            let least = self.sum()?;
            self.expect_word("AND")?;
            let most = self.sum()?;
            let from = CatalogExpr::binary(Operator::GreaterOrEqual, left.clone(), least);
            let to = CatalogExpr::binary(Operator::LessOrEqual, left, most);
            return Ok(Some(CatalogExpr::binary(Operator::And, from, to)));
        }
        let Some((operator, is_negated)) = self.comparison_operator()? else { return Ok(None) };
        let is_any = self.cursor.accept("ANY") || self.cursor.accept("SOME");
        let found = if is_any {
            self.expect("(")?;
            let right = Box::new(self.members()?);
            CatalogExpr::Any { operator, left: Box::new(left), right }
        } else {
            let mut right = self.sum()?;
            self.collation()?;
            if self.cursor.accept("ESCAPE") {
                let arguments = vec![right, self.sum()?];
                right = CatalogExpr::Call { name: "like_escape".to_owned(), arguments };
            }
            CatalogExpr::binary(operator, left, right)
        };
        Ok(Some(if is_negated { CatalogExpr::Not(Box::new(found)) } else { found }))
    }

    /// Skips `COLLATE name`.
    fn collation(&mut self) -> Result<()> {
        if self.cursor.accept("COLLATE") {
            self.name()?;
            if self.cursor.accept_symbol(".") {
                self.name()?;
            }
        }
        Ok(())
    }

    /// Reads an operator of a comparison, and whether it is negated.
    fn comparison_operator(&mut self) -> Result<Option<(Operator, bool)>> {
        let symbols = [
            ("=", Operator::Equal),
            ("<>", Operator::NotEqual),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        for (symbol, operator) in symbols {
            if self.cursor.accept_symbol(symbol) {
                return Ok(Some((operator, false)));
            }
        }
        if self.cursor.accept("LIKE") {
            return Ok(Some((Operator::Like, false)));
        }
        if self.cursor.accept("ILIKE") {
            return Ok(Some((Operator::LikeAnyCase, false)));
        }
        if self.cursor.accept("OPERATOR") {
            self.expect("(")?;
            if self.cursor.accept("pg_catalog") {
                self.expect(".")?;
            }
            let found = self.comparison_operator()?;
            self.expect(")")?;
            return Ok(found);
        }
        let is_negated = self.cursor.accept_symbol("!");
        if !self.cursor.accept_symbol("~") {
            return if is_negated { self.cursor.syntax_error() } else { Ok(None) };
        }
        let is_any_case = self.cursor.accept_symbol("*");
        let operator = if is_any_case { Operator::MatchesAnyCase } else { Operator::Matches };
        Ok(Some((operator, is_negated)))
    }

    /// Reads a list or a query behind the parenthesis.
    fn members(&mut self) -> Result<MemberList> {
        let found = if self.is_next("SELECT") {
            MemberList::Query(Box::new(self.query()?))
        } else {
            MemberList::List(self.list(Self::expr)?)
        };
        self.expect(")")?;
        Ok(found)
    }

    fn sum(&mut self) -> Result<CatalogExpr> {
        let mut left = self.product()?;
        loop {
            let operators = [
                ("||", Operator::Concatenate),
                ("+", Operator::Add),
                ("-", Operator::Subtract),
                ("&", Operator::BitAnd),
            ];
            let found = operators.iter().find(|(symbol, _)| self.cursor.accept_symbol(symbol));
            let Some((_, operator)) = found else { return Ok(left) };
            left = CatalogExpr::binary(*operator, left, self.product()?);
        }
    }

    fn product(&mut self) -> Result<CatalogExpr> {
        let mut left = self.operand()?;
        loop {
            let operators = [("*", Operator::Multiply), ("/", Operator::Divide)];
            let found = operators.iter().find(|(symbol, _)| self.cursor.accept_symbol(symbol));
            let Some((_, operator)) = found else { return Ok(left) };
            left = CatalogExpr::binary(*operator, left, self.operand()?);
        }
    }

    /// Reads an operand with the casts and the indexes behind it.
    fn operand(&mut self) -> Result<CatalogExpr> {
        let mut operand = self.primary()?;
        loop {
            if self.cursor.accept_symbol("::") {
                let data_type = self.type_name()?;
                operand = CatalogExpr::Cast { operand: Box::new(operand), data_type };
            } else if self.cursor.accept_symbol("[") {
                let index = Box::new(self.expr()?);
                self.expect("]")?;
                operand = CatalogExpr::Element { array: Box::new(operand), index };
            } else if self.is_next("COLLATE") {
                self.collation()?;
            } else {
                return Ok(operand);
            }
        }
    }

    /// Reads the name of a type. Arrays keep what they are.
    fn type_name(&mut self) -> Result<Oid> {
        let mut name = self.name()?.to_ascii_lowercase();
        if name == "pg_catalog" && self.cursor.accept_symbol(".") {
            name = self.name()?.to_ascii_lowercase();
        }
        for (word, rest) in [("character", "varying"), ("double", "precision")] {
            if name == word && self.cursor.accept(rest) {
                name = format!("{word} {rest}");
            }
        }
        if self.cursor.accept_symbol("(") {
            let _size = self.arguments()?;
        }
        let is_array = self.cursor.accept_symbol("[");
        if is_array {
            self.expect("]")?;
        }
        if is_array || name.starts_with('_') || name.ends_with("vector") {
            return Ok(oid::UNKNOWN);
        }
        if OBJECT_TYPES.contains(&name.as_str()) {
            return Ok(oid::REGCLASS);
        }
        Ok(match name.as_str() {
            "oid" | "xid" => oid::OID,
            "name" => oid::NAME,
            "information_schema" => oid::TEXT,
            "\"char\"" => oid::CHAR,
            other => type_of_name(other).map_or(oid::TEXT, |found| oid_of(&found)),
        })
    }

    fn primary(&mut self) -> Result<CatalogExpr> {
        if let Some(text) = self.cursor.string() {
            return Ok(CatalogExpr::Constant(Value::String(text.into())));
        }
        let Some(token) = self.cursor.peek() else { return self.cursor.syntax_error() };
        let text = token.text(self.cursor.sql());
        match token.kind {
            SqlTokenKind::Number => {
                let _number = self.cursor.next();
                let whole = text.parse().map(Value::BigInt);
                let value = whole.or_else(|_| text.parse().map(Value::Double));
                Ok(CatalogExpr::Constant(value.unwrap_or_default()))
            }
            SqlTokenKind::Parameter => {
                let _parameter = self.cursor.next();
                text[1..]
                    .parse()
                    .map_or_else(|_| self.cursor.syntax_error(), |n| Ok(CatalogExpr::Parameter(n)))
            }
            SqlTokenKind::Symbol => self.primary_symbol(text),
            _ => self.primary_word(),
        }
    }

    fn primary_symbol(&mut self, symbol: &str) -> Result<CatalogExpr> {
        match symbol {
            "-" => {
                self.cursor.next();
                let operand = self.nested(Self::operand)?;
                Ok(CatalogExpr::Negative(Box::new(operand)))
            }
            "(" => {
                self.cursor.next();
                let found = if self.is_next("SELECT") {
                    CatalogExpr::Scalar(Box::new(self.query()?))
                } else {
                    let mut parts = self.list(Self::expr)?;
                    if parts.len() == 1 { parts.remove(0) } else { CatalogExpr::Array(parts) }
                };
                self.expect(")")?;
                Ok(found)
            }
            _ => self.cursor.syntax_error(),
        }
    }

    fn primary_word(&mut self) -> Result<CatalogExpr> {
        for (word, value) in
            [("NULL", Value::Null), ("TRUE", Value::Bool(true)), ("FALSE", Value::Bool(false))]
        {
            if self.cursor.accept(word) {
                return Ok(CatalogExpr::Constant(value));
            }
        }
        if self.cursor.accept("CASE") {
            return self.case();
        }
        if self.cursor.accept("EXISTS") {
            self.expect("(")?;
            let query = self.query()?;
            self.expect(")")?;
            return Ok(CatalogExpr::Exists(Box::new(query)));
        }
        if self.cursor.accept("CAST") {
            self.expect("(")?;
            let operand = Box::new(self.expr()?);
            self.expect_word("AS")?;
            let data_type = self.type_name()?;
            self.expect(")")?;
            return Ok(CatalogExpr::Cast { operand, data_type });
        }
        if self.cursor.accept("ARRAY") {
            return self.array();
        }
        self.named()
    }

    fn array(&mut self) -> Result<CatalogExpr> {
        if self.cursor.accept_symbol("(") {
            let query = self.query()?;
            self.expect(")")?;
            return Ok(CatalogExpr::ArrayOf(Box::new(query)));
        }
        self.expect("[")?;
        let mut items = Vec::new();
        if !self.cursor.accept_symbol("]") {
            items = self.list(Self::expr)?;
            self.expect("]")?;
        }
        Ok(CatalogExpr::Array(items))
    }

    fn case(&mut self) -> Result<CatalogExpr> {
        let operand = if self.is_next("WHEN") { None } else { Some(Box::new(self.expr()?)) };
        let mut branches = Vec::new();
        while self.cursor.accept("WHEN") {
            let condition = self.expr()?;
            self.expect_word("THEN")?;
            branches.push((condition, self.expr()?));
        }
        let otherwise =
            self.cursor.accept("ELSE").then(|| self.expr().map(Box::new)).transpose()?;
        self.expect_word("END")?;
        Ok(CatalogExpr::Case { operand, branches, otherwise })
    }

    /// Reads a column or a call.
    fn named(&mut self) -> Result<CatalogExpr> {
        let mut parts = vec![self.name()?];
        while self.cursor.accept_symbol(".") {
            parts.push(self.name()?);
        }
        let name = parts.pop().unwrap_or_default();
        if self.cursor.accept_symbol("(") {
            let arguments = self.arguments()?;
            return Ok(CatalogExpr::Call { name: name.to_ascii_lowercase(), arguments });
        }
        let lower = name.to_ascii_lowercase();
        let is_value = ["current_user", "session_user", "current_catalog", "current_schema"];
        if parts.is_empty() && is_value.contains(&lower.as_str()) {
            return Ok(CatalogExpr::Call { name: lower, arguments: Vec::new() });
        }
        Ok(CatalogExpr::Column { table: parts.pop(), name })
    }
}

/// Returns the name that PostgreSQL gives to a column without one.
fn column_name(expr: &CatalogExpr) -> String {
    match expr {
        CatalogExpr::Column { name, .. } | CatalogExpr::Call { name, .. } => name.clone(),
        CatalogExpr::Cast { operand, .. } => column_name(operand),
        CatalogExpr::Case { .. } => "case".to_owned(),
        CatalogExpr::Exists(_) => "exists".to_owned(),
        CatalogExpr::Array(_) | CatalogExpr::ArrayOf(_) => "array".to_owned(),
        _ => "?column?".to_owned(),
    }
}
