//! PostgreSQL's way to write strings, names, casts and parameters, as the dialect of the engine has them.
//!
//! | PostgreSQL | the dialect |
//! |---|---|
//! | `'a\b'` | `'a\\b'`: its strings have escapes |
//! | `E'…'`, `$$…$$` | `'…'` |
//! | `"name"` | `` `name` `` |
//! | `value::type` | `CAST(value AS TYPE)` |
//! | `FLOAT` of a column or a cast | `DOUBLE` |
//! | `'1 day'::interval` | `INTERVAL '1 day'` |
//! | `WITH (fillfactor = 100)` of CREATE TABLE | nothing |
//! | `$1`, `$1::type` | `?`: one for each use |
//!
//! A text means the same before and after, whatever a client has put into its strings. Positions of
//! errors are translated back. Knows no other part of the grammar.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_engine::Parameter;
use lockstep_row::{DataType, Value};

use super::{
    script::TokenCursor,
    token::{SqlToken, SqlTokenKind, unquoted},
    written_type::{TypePositions, WrittenType},
};

/// The most casts that a statement has in the form `value::type`.
const CASTS_MAX: usize = 1_000;

/// Words before a parenthesis that are no functions.
const KEYWORDS: &[&str] = &[
    "ALL", "AND", "AS", "BETWEEN", "BY", "CASE", "DISTINCT", "ELSE", "EXISTS", "FROM", "HAVING",
    "IN", "JOIN", "LIKE", "LIMIT", "NOT", "ON", "OR", "OVER", "SELECT", "THEN", "UNION", "VALUES",
    "WHEN", "WHERE", "XOR",
];

/// A use of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParameterUse {
    /// Its number, from 1.
    pub(crate) number: u16,
    /// The type that a cast gives it.
    pub(crate) cast: Option<DataType>,
    /// Its token, counted from the first of the statement.
    pub(crate) token: usize,
}

/// A use of a parameter behind LIMIT or OFFSET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitUse {
    /// Its number, from 1.
    pub(crate) number: u16,
    /// The offset in the translated text.
    offset: usize,
}

/// A statement in the dialect of the engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Translation {
    pub(crate) sql: String,
    /// The uses of parameters, in the order of the text.
    pub(crate) parameters: Vec<ParameterUse>,
    /// The parameters of LIMIT and OFFSET, where the engine takes numbers only: the text has a `1`.
    pub(crate) limits: Vec<LimitUse>,
    /// Where tokens begin: here, and in the script of the client.
    positions: Vec<(u32, u32)>,
}

impl Translation {
    /// Translates a statement.
    pub(crate) fn new(statement: TokenCursor<'_>) -> Result<Self> {
        let mut writer = TranslationWriter::new(statement);
        writer.write()?;
        Ok(writer.translation)
    }

    /// Makes it of a text that is in the dialect already, and that no client has written.
    pub(crate) fn of_dialect(sql: String) -> Self {
        Self { sql, ..Self::default() }
    }

    /// Returns the text with the numbers of LIMIT and OFFSET; NULL is no limit, and no offset.
    pub(crate) fn with_limits(&self, parameters: &[Parameter]) -> Result<String> {
        let mut sql = self.sql.clone();
        for limit in self.limits.iter().rev() {
            let given = parameters.get(usize::from(limit.number) - 1);
            let value = given.map_or(&Value::Null, |(value, _)| value);
            let scalar = value.as_scalar().unwrap_or_default();
            let is_offset = sql[..limit.offset].trim_end().to_ascii_uppercase().ends_with("OFFSET");
            let number = match (value, scalar.as_i64()) {
                (Value::Null, _) if is_offset => 0,
                (Value::Null, _) => i64::MAX,
                (_, Some(number)) if number >= 0 => number,
                _ => {
                    let code = if is_offset { code::INVALID_OFFSET } else { code::INVALID_LIMIT };
                    let message = "LIMIT and OFFSET require a whole number that is not negative";
                    return Diagnostic::new(code, message).err();
                }
            };
            sql.replace_range(limit.offset..=limit.offset, &number.to_string());
        }
        Ok(sql)
    }

    /// Returns the offset in the client's script of an offset in the translated text.
    pub(crate) fn position(&self, offset: usize) -> usize {
        let after = self.positions.partition_point(|(here, _)| *here as usize <= offset);
        let Some((here, there)) = after.checked_sub(1).and_then(|at| self.positions.get(at)) else {
            return self.positions.first().map_or(0, |(_, there)| *there as usize);
        };
        *there as usize + (offset - *here as usize)
    }
}

/// Writes a translation token by token.
struct TranslationWriter<'s> {
    sql: &'s str,
    tokens: &'s [SqlToken],
    at: usize,
    translation: Translation,
    /// Where the operand of a cast begins that may follow.
    operand: usize,
    /// Where a literal begins whose type was read.
    literal: Option<usize>,
    /// The same for each open parenthesis.
    open: Vec<usize>,
    /// The depths of the parentheses of `CAST(` whose AS comes.
    open_casts: Vec<usize>,
    casts: usize,
    /// Where the types of columns are.
    column_types: TypePositions,
}

impl<'s> TranslationWriter<'s> {
    fn new(statement: TokenCursor<'s>) -> Self {
        Self {
            sql: statement.sql(),
            tokens: statement.tokens(),
            at: 0,
            translation: Translation::default(),
            operand: 0,
            literal: None,
            open: Vec::new(),
            open_casts: Vec::new(),
            casts: 0,
            column_types: TypePositions::of(statement),
        }
    }

    fn write(&mut self) -> Result<()> {
        while let Some(token) = self.tokens.get(self.at).copied() {
            if let Some(count) = self.fill_factor() {
                self.at += count;
            } else if token.is_symbol(self.sql, "::") {
                self.at += 1;
                self.cast(token)?;
            } else {
                self.separate(token);
                self.token(token)?;
            }
        }
        Ok(())
    }

    /// Returns the number of the next tokens if they are how full PostgreSQL makes the pages of a table.
    fn fill_factor(&self) -> Option<usize> {
        let words = ["WITH", "(", "fillfactor", "="];
        let tokens = self.tokens.get(self.at..)?;
        let is_next = tokens.len() > 5
            && words.iter().zip(tokens).all(|(word, token)| {
                token.is_word(self.sql, word) || token.is_symbol(self.sql, word)
            })
            && tokens[4].kind == SqlTokenKind::Number
            && tokens[5].is_symbol(self.sql, ")");
        (is_next && self.column_types != TypePositions::Nowhere).then_some(6)
    }

    /// Writes what is between a token and the one before it.
    fn separate(&mut self, token: SqlToken) {
        let before = self.at.checked_sub(1).map(|at| self.tokens[at].end());
        let is_apart = before.is_some_and(|end| end < token.start());
        if is_apart {
            self.translation.sql.push(' ');
        }
        let here = u32::try_from(self.translation.sql.len()).unwrap_or(u32::MAX);
        let there = u32::try_from(token.start()).unwrap_or(u32::MAX);
        self.translation.positions.push((here, there));
    }

    fn token(&mut self, token: SqlToken) -> Result<()> {
        let start = self.translation.sql.len();
        let text = token.text(self.sql);
        let index = self.at;
        self.at += 1;
        let literal = self.literal_start(token, start);
        match token.kind {
            SqlTokenKind::Text | SqlTokenKind::EscapedText | SqlTokenKind::DollarText => {
                push_string(&mut self.translation.sql, &unquoted(token, self.sql));
                self.operand = literal.unwrap_or(start);
            }
            SqlTokenKind::QuotedName => {
                let name = unquoted(token, self.sql);
                if name.contains('`') {
                    let message = "a name cannot contain a backtick";
                    let span = Span::new(token.start(), token.end());
                    return Diagnostic::new(code::SYNTAX_ERROR, message).at(span).err();
                }
                self.translation.sql.extend(["`", &name, "`"]);
                self.begin_name(index, start);
            }
            SqlTokenKind::Word if self.is_column_type(index) && self.write_type() => {}
            SqlTokenKind::Word | SqlTokenKind::BackquotedName => {
                self.translation.sql.push_str(text);
                self.begin_name(index, start);
                if token.is_word(self.sql, "AS") && self.open_casts.last() == Some(&self.open.len())
                {
                    self.open_casts.pop();
                    self.write_cast_type()?;
                }
            }
            SqlTokenKind::Number => {
                self.translation.sql.push_str(text);
                self.operand = start;
            }
            SqlTokenKind::Parameter => {
                self.operand = start;
                return self.parameter(token, index);
            }
            SqlTokenKind::Symbol => self.symbol(text, index, start),
        }
        Ok(())
    }

    /// Returns where the literal begins that a token goes on with, as in `TIMESTAMP WITH TIME ZONE '…'`, and
    /// notes it for the next token.
    fn literal_start(&mut self, token: SqlToken, start: usize) -> Option<usize> {
        let before = self.literal.take();
        let is_any = |words: &[&str]| words.iter().any(|word| token.is_word(self.sql, word));
        if is_any(&["DATE", "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL"]) {
            self.literal = Some(start);
        } else if is_any(&["WITH", "WITHOUT", "TIME", "ZONE"]) {
            self.literal = before;
        }
        before
    }

    /// Notes where an operand begins that a name ends.
    fn begin_name(&mut self, index: usize, start: usize) {
        let is_part = index.checked_sub(1).is_some_and(|at| {
            let before = self.tokens[at];
            before.is_symbol(self.sql, ".")
        });
        if !is_part {
            self.operand = start;
        }
    }

    fn symbol(&mut self, text: &str, index: usize, start: usize) {
        self.translation.sql.push_str(text);
        match text {
            "(" | "[" => {
                let is_call =
                    index.checked_sub(1).is_some_and(|at| self.is_function(self.tokens[at]));
                self.open.push(if is_call { self.operand } else { start });
                let before = index.checked_sub(1).map(|at| self.tokens[at]);
                if before.is_some_and(|before| before.is_word(self.sql, "CAST")) {
                    self.open_casts.push(self.open.len());
                }
            }
            ")" | "]" => {
                self.operand = self.open.pop().unwrap_or(0);
                self.open_casts.retain(|depth| *depth <= self.open.len());
            }
            _ => {}
        }
    }

    /// Returns whether a parenthesis behind a token is that of a call.
    fn is_function(&self, token: SqlToken) -> bool {
        match token.kind {
            SqlTokenKind::Word => !KEYWORDS.iter().any(|word| token.is_word(self.sql, word)),
            kind => kind == SqlTokenKind::QuotedName,
        }
    }

    fn parameter(&mut self, token: SqlToken, index: usize) -> Result<()> {
        let digits = &token.text(self.sql)[1..];
        let number = digits.parse().ok().filter(|number: &u16| *number > 0);
        let Some(number) = number else {
            let message = format!("there is no parameter ${digits}");
            let span = Span::new(token.start(), token.end());
            return Diagnostic::new(code::INVALID_PARAMETER, message).at(span).err();
        };
        let next = self.tokens.get(self.at);
        let (mut cast, mut cut) = (None, None);
        if next.is_some_and(|next| next.is_symbol(self.sql, "::")) {
            self.at += 1;
            let written = self.cast_type()?;
            cast = Some(written.data_type.clone());
            cut = written.cut();
        }
        let is_limit = index.checked_sub(1).is_some_and(|before| {
            let before = self.tokens[before];
            before.is_word(self.sql, "LIMIT") || before.is_word(self.sql, "OFFSET")
        });
        if is_limit {
            let offset = self.translation.sql.len();
            self.translation.sql.push('1');
            self.translation.limits.push(LimitUse { number, offset });
            return Ok(());
        }
        self.translation.sql.push_str(&match cut {
            Some(to) => format!("CAST(? AS {to})"),
            None => "?".to_owned(),
        });
        self.translation.parameters.push(ParameterUse { number, cast, token: index });
        Ok(())
    }

    /// Writes the cast of the operand before it.
    fn cast(&mut self, operator: SqlToken) -> Result<()> {
        self.casts += 1;
        if self.casts > CASTS_MAX {
            let message = format!("number of casts exceeds the limit of {CASTS_MAX} per statement");
            let span = Span::new(operator.start(), operator.end());
            return Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message).at(span).err();
        }
        let is_text = self.at.checked_sub(2).is_some_and(|before| {
            use SqlTokenKind::{DollarText, EscapedText, Text};
            matches!(self.tokens[before].kind, DollarText | EscapedText | Text)
        });
        let next = self.tokens.get(self.at);
        if is_text && next.is_some_and(|next| next.is_word(self.sql, "INTERVAL")) {
            self.at += 1;
            self.begin_operand("INTERVAL ");
            return Ok(());
        }
        let written = self.cast_type()?;
        self.begin_operand("CAST(");
        self.translation.sql.push_str(&format!(" AS {})", written.sql));
        Ok(())
    }

    /// Writes a text before the operand that ends here.
    fn begin_operand(&mut self, text: &str) {
        let operand = self.operand;
        self.translation.sql.insert_str(operand, text);
        let moved = self.translation.positions.iter_mut().rev();
        let added = u32::try_from(text.len()).unwrap_or(0);
        moved
            .take_while(|(here, _)| *here as usize >= operand)
            .for_each(|(here, _)| *here += added);
        let limits = self.translation.limits.iter_mut().filter(|limit| limit.offset >= operand);
        limits.for_each(|limit| limit.offset += text.len());
    }

    /// Reads the type of a cast.
    fn cast_type(&mut self) -> Result<WrittenType> {
        let tokens = self.tokens.get(self.at..).unwrap_or_default();
        match WrittenType::read(self.sql, tokens)? {
            Some(found) => {
                self.at += found.token_count;
                Ok(found)
            }
            None => self.no_type(),
        }
    }

    /// Writes the type behind the AS of a CAST. The engine reads one that PostgreSQL does not have.
    fn write_cast_type(&mut self) -> Result<()> {
        let Some(first) = self.tokens.get(self.at).copied() else { return Ok(()) };
        let tokens = self.tokens.get(self.at..).unwrap_or_default();
        if let Some(found) = WrittenType::read(self.sql, tokens)? {
            self.separate(first);
            self.translation.sql.push_str(&found.sql);
            self.at += found.token_count;
        }
        Ok(())
    }

    /// Returns whether a token is the first of a column's type.
    fn is_column_type(&self, index: usize) -> bool {
        self.column_types.is_type(self.sql, self.tokens, index, self.open.len())
    }

    /// Writes the type of a column whose first token was read; `false` where the engine reads the same.
    fn write_type(&mut self) -> bool {
        let tokens = self.tokens.get(self.at - 1..).unwrap_or_default();
        let found = WrittenType::read(self.sql, tokens).ok().flatten();
        let Some(found) = found.filter(|found| found.is_plain_float) else { return false };
        self.translation.sql.push_str(&found.sql);
        self.at += found.token_count - 1;
        true
    }

    fn no_type<T>(&self) -> Result<T> {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        let span = token.map_or(Span::new(0, 0), |token| Span::new(token.start(), token.end()));
        let name = token.map_or("", |token| token.text(self.sql));
        let message = format!("type \"{name}\" does not exist");
        Diagnostic::new(code::UNDEFINED_OBJECT, message).at(span).err()
    }
}

/// Appends a string of the dialect.
pub(crate) fn push_string(out: &mut String, text: &str) {
    out.push('\'');
    for character in text.chars() {
        if matches!(character, '\'' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use lockstep_row::{DataType, Value};

    use super::Translation;
    use crate::postgres::script::Script;

    fn translate(sql: &str) -> Translation {
        let script = Script::new(sql).unwrap();
        Translation::new(script.statements().next().unwrap()).unwrap()
    }

    fn check(sql: &str, expected: &str) {
        assert_eq!(translate(sql).sql, expected, "{sql}");
    }

    #[test]
    fn strings_and_names_keep_their_meaning() {
        check("SELECT 'a\\' , 'it''s'", "SELECT 'a\\\\' , 'it\\'s'");
        check("SELECT E'a\\n' FROM \"t\".\"u v\"", "SELECT 'a\n' FROM `t`.`u v`");
        check("SELECT $$a'b$$ -- no\n, 1", "SELECT 'a\\'b' , 1");
    }

    #[test]
    fn casts_take_the_operand_before_them() {
        check("SELECT a.b::int8 + 1", "SELECT CAST(a.b AS BIGINT) + 1");
        check("SELECT f(x, '1')::text", "SELECT CAST(f(x, '1') AS STRING)");
        check(
            "SELECT (a + b)::float4::varchar(3)",
            "SELECT CAST(CAST((a + b) AS FLOAT) AS VARCHAR(3))",
        );
        check("SELECT '1'::timestamp with time zone x", "SELECT CAST('1' AS TIMESTAMPTZ) x");
    }

    #[test]
    fn float_of_a_column_or_a_cast_is_double() {
        check(
            "CREATE TABLE t (float FLOAT, \"x\" float NOT NULL, y float(24), INDEX(KEY=float))",
            "CREATE TABLE t (float DOUBLE, `x` DOUBLE NOT NULL, y float(24), INDEX(KEY=float))",
        );
        check("ALTER TABLE t ADD COLUMN c float", "ALTER TABLE t ADD COLUMN c DOUBLE");
        check("ALTER TABLE t ADD float real", "ALTER TABLE t ADD float real");
        check(
            "SELECT CAST(CAST(a AS int) AS float), float(a), a AS float, a float FROM t",
            "SELECT CAST(CAST(a AS INT) AS DOUBLE), float(a), a AS float, a float FROM t",
        );
        check("SELECT CAST(f(a) AS ARRAY<float>)", "SELECT CAST(f(a) AS ARRAY<float>)");
        check("CREATE TABLE t AS SELECT (x, y float)", "CREATE TABLE t AS SELECT (x, y float)");
    }

    #[test]
    fn each_use_of_a_parameter_is_one() {
        let found = translate("SELECT $2::int, $1 WHERE a = $2");
        assert_eq!(found.sql, "SELECT ?, ? WHERE a = ?");
        let uses: Vec<_> = found.parameters.iter().map(|u| (u.number, u.cast.clone())).collect();
        assert_eq!(uses, [(2, Some(DataType::Int)), (1, None), (2, None)]);
    }

    #[test]
    fn literals_with_a_type_are_one_operand() {
        check("SELECT now() - '1 day'::interval", "SELECT now() - INTERVAL '1 day'");
        check(
            "SELECT timestamp with time zone '2024-01-01'::date, date '2024-01-01'::text",
            "SELECT CAST(timestamp with time zone '2024-01-01' AS DATE), CAST(date '2024-01-01' AS STRING)",
        );
    }

    #[test]
    fn the_fill_factor_of_a_table_is_left_out() {
        check("CREATE TABLE t (a int) with (fillfactor=100)", "CREATE TABLE t (a int)");
        check("SELECT a FROM t WITH (fillfactor = 1)", "SELECT a FROM t WITH (fillfactor = 1)");
    }

    #[test]
    fn a_parameter_is_cut_by_its_cast() {
        check("SELECT $1::varchar(3), $2::text", "SELECT CAST(? AS VARCHAR(3)), ?");
    }

    #[test]
    fn limits_are_numbers_of_the_text() {
        let found = translate("SELECT (SELECT a FROM t LIMIT $2)::int, $1 OFFSET $3");
        assert_eq!(found.parameters.len(), 1);
        let number = |value| (value, DataType::BigInt);
        let values = [Value::Int(7), Value::SmallInt(20), Value::Null].map(number);
        let sql = found.with_limits(&values).unwrap();
        assert_eq!(sql, "SELECT CAST((SELECT a FROM t LIMIT 20) AS INT), ? OFFSET 0");
        let negative = [Value::Int(7), Value::BigInt(-1), Value::Null].map(number);
        assert_eq!(found.with_limits(&negative).unwrap_err().code, "2201W");
    }

    #[test]
    fn positions_are_those_of_the_script() {
        let sql = "SELECT 1; SELECT 'é\\'::text, wrong";
        let script = Script::new(sql).unwrap();
        let found = Translation::new(script.statements().nth(1).unwrap()).unwrap();
        let here = found.sql.find("wrong").unwrap();
        assert_eq!(found.position(here), sql.find("wrong").unwrap());
        assert_eq!(found.position(here + 2), sql.find("wrong").unwrap() + 2);
        assert_eq!(found.position(0), 10);
    }

    #[test]
    fn a_type_that_does_not_exist_is_named() {
        let script = Script::new("SELECT 1::money").unwrap();
        let error = Translation::new(script.statements().next().unwrap()).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            ("42704", "type \"money\" does not exist")
        );
    }
}
