//! A deployment called as a function: `SELECT * FROM price(user => 'ann', price => 30.0, ts => $1)`.
//!
//! Arguments are named or in the order of the request table's columns; they are constants and
//! parameters, which take the types of the columns. Runs nothing.

use lockstep_diagnostic::{Diagnostic, Kind, Result, Span, code};
use lockstep_engine::{PreparedRequest, missing_columns};
use lockstep_row::{DataType, Value};

use super::{
    script::TokenCursor,
    token::{SqlToken, SqlTokenKind},
    value_input::InputRules,
};

/// A call of a deployment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FunctionCall {
    /// The deployment: `name` or `database.name`.
    pub(crate) deployment: String,
    /// The columns of the answer; `None`: all.
    columns: Option<Vec<ColumnChoice>>,
    arguments: Vec<Argument>,
    span: Span,
}

/// A column of the answer that is wanted, and the name that it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ColumnChoice {
    column: String,
    alias: String,
    span: Span,
}

/// The columns of a deployment's request row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallColumns<'a> {
    pub(crate) input: &'a [(String, DataType)],
    /// For each of them, whether an answer depends on it; the others may be left out.
    pub(crate) reads: &'a [bool],
}

impl<'a> CallColumns<'a> {
    /// Returns those of a request.
    pub(crate) fn of(request: &'a PreparedRequest) -> Self {
        Self { input: request.input(), reads: request.reads() }
    }
}

/// An argument.
#[derive(Debug, Clone, PartialEq)]
struct Argument {
    name: Option<String>,
    value: ArgumentValue,
    span: Span,
}

#[derive(Debug, Clone, PartialEq)]
enum ArgumentValue {
    Constant(Value),
    /// The number of a parameter, from 1.
    Parameter(u16),
}

impl FunctionCall {
    /// Reads a call; `None` where the statement is not a SELECT from one function.
    pub(crate) fn read(mut statement: TokenCursor<'_>) -> Result<Option<Self>> {
        if !statement.accept("SELECT") {
            return Ok(None);
        }
        let Some(columns) = read_columns(&mut statement) else { return Ok(None) };
        let Some(first) = statement.peek() else { return Ok(None) };
        let Some(deployment) = statement.qualified_name() else { return Ok(None) };
        if !statement.accept_symbol("(") {
            return Ok(None);
        }
        let mut arguments = Vec::new();
        while !statement.accept_symbol(")") {
            if !arguments.is_empty() && !statement.accept_symbol(",") {
                return statement.syntax_error();
            }
            arguments.push(read_argument(&mut statement)?);
        }
        let _named = statement.accept("AS");
        let _alias = statement.name();
        if !statement.is_end() {
            let hint = "A deployment is called by SELECT … FROM name(…), without other clauses.";
            return statement
                .syntax_error()
                .map_err(|error: Box<Diagnostic>| Box::new(error.with_hint(hint)));
        }
        let span = Span::new(first.start(), first.end());
        Ok(Some(Self { deployment, columns, arguments, span }))
    }

    /// Returns where the name of the deployment is in the script.
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Returns how many parameters it has.
    pub(crate) fn parameter_count(&self) -> usize {
        let numbers = self.arguments.iter().filter_map(|argument| match argument.value {
            ArgumentValue::Parameter(number) => Some(usize::from(number)),
            ArgumentValue::Constant(_) => None,
        });
        numbers.max().unwrap_or(0)
    }

    /// Returns the type of each parameter: that of the column to which it is given.
    pub(crate) fn parameter_types(
        &self,
        columns: CallColumns<'_>,
    ) -> Result<Vec<Option<DataType>>> {
        let mut types = vec![None; self.parameter_count()];
        let positions = self.positions(columns)?;
        for (argument, at) in self.arguments.iter().zip(positions) {
            if let ArgumentValue::Parameter(number) = argument.value {
                types[usize::from(number) - 1].get_or_insert(columns.input[at].1.clone());
            }
        }
        Ok(types)
    }

    /// Returns the values of the request row, in the order of the columns.
    pub(crate) fn row(
        &self,
        columns: CallColumns<'_>,
        parameters: &[Value],
        rules: &InputRules,
    ) -> Result<Vec<Value>> {
        let input = columns.input;
        let mut row = vec![Value::Null; input.len()];
        for (argument, at) in self.arguments.iter().zip(self.positions(columns)?) {
            let value = match &argument.value {
                ArgumentValue::Constant(value) => value.clone(),
                ArgumentValue::Parameter(number) => {
                    parameters.get(usize::from(*number) - 1).cloned().unwrap_or_default()
                }
            };
            let (name, data_type) = &input[at];
            row[at] = convert(value, data_type, rules).map_err(|error| {
                let detail = format!("It is the value of column `{name}`.");
                Box::new(error.at(argument.span).with_detail(detail))
            })?;
        }
        Ok(row)
    }

    /// Returns the position of the column of each argument. Every column on which an answer depends
    /// has one.
    fn positions(&self, columns: CallColumns<'_>) -> Result<Vec<usize>> {
        let CallColumns { input, reads } = columns;
        let names = || input.iter().map(|(name, _)| name.as_str());
        let mut positions = Vec::with_capacity(self.arguments.len());
        for (at, argument) in self.arguments.iter().enumerate() {
            let position = match &argument.name {
                None if positions.len() == at && at < input.len() => at,
                None => break,
                Some(name) => match input.iter().position(|(column, _)| column == name) {
                    Some(found) => found,
                    None => {
                        let message = format!("the request table has no column `{name}`");
                        return Diagnostic::new(code::UNDEFINED_COLUMN, message)
                            .at(argument.span)
                            .with_nearest(name, names())
                            .err();
                    }
                },
            };
            if positions.contains(&position) {
                let message = format!("column `{}` has two values", input[position].0);
                return Diagnostic::new(code::SYNTAX_ERROR, message).at(argument.span).err();
            }
            positions.push(position);
        }
        if positions.len() < self.arguments.len() {
            let (found, expected) = (self.arguments.len(), input.len());
            let message =
                format!("the call has {found} arguments, the request table {expected} columns");
            let columns: Vec<&str> = names().collect();
            let hint = format!("Its columns are {}; give NULL for none.", columns.join(", "));
            return Diagnostic::new(code::UNDEFINED_FUNCTION, message)
                .at(self.span)
                .with_hint(hint)
                .err();
        }
        let lacks = |at: &usize| reads[*at] && !positions.contains(at);
        let lacking: Vec<_> =
            (0..input.len()).filter(lacks).map(|at| (input[at].0.as_str(), &input[at].1)).collect();
        if lacking.is_empty() {
            return Ok(positions);
        }
        missing_columns(&lacking, []).at(self.span).err()
    }

    /// Returns the positions and the names of the columns that are wanted of an answer.
    pub(crate) fn choose(&self, output: &[(String, DataType)]) -> Result<Vec<(usize, String)>> {
        let Some(columns) = &self.columns else {
            return Ok(output.iter().map(|(name, _)| name.clone()).enumerate().collect());
        };
        let position = |choice: &ColumnChoice| {
            let found = output.iter().position(|(name, _)| *name == choice.column);
            found.map(|at| (at, choice.alias.clone())).map_or_else(
                || {
                    let message = format!("the deployment has no column `{}`", choice.column);
                    Diagnostic::new(code::UNDEFINED_COLUMN, message)
                        .at(choice.span)
                        .with_nearest(&choice.column, output.iter().map(|(name, _)| name.as_str()))
                        .err()
                },
                Ok,
            )
        };
        columns.iter().map(position).collect()
    }
}

/// Reads the columns and FROM; the outer `None` where they are not names.
fn read_columns(statement: &mut TokenCursor<'_>) -> Option<Option<Vec<ColumnChoice>>> {
    if statement.accept_symbol("*") {
        return statement.accept("FROM").then_some(None);
    }
    let mut columns = Vec::new();
    loop {
        let token = statement.peek()?;
        let mut column = statement.name()?;
        if statement.accept_symbol(".") {
            column = statement.name()?;
        }
        let span = Span::new(token.start(), token.end());
        if statement.accept("FROM") {
            columns.push(ColumnChoice { alias: column.clone(), column, span });
            return Some(Some(columns));
        }
        let _named = statement.accept("AS");
        let is_comma = statement.peek().is_some_and(|t| t.is_symbol(statement.sql(), ","));
        let alias = if is_comma { column.clone() } else { statement.name()? };
        columns.push(ColumnChoice { column, alias, span });
        if statement.accept("FROM") {
            return Some(Some(columns));
        }
        if !statement.accept_symbol(",") {
            return None;
        }
    }
}

fn read_argument(statement: &mut TokenCursor<'_>) -> Result<Argument> {
    let first = statement.peek();
    let mut ahead = *statement;
    let mut name = None;
    if let Some(found) = ahead.name()
        && (ahead.accept_symbol("=>") || ahead.accept_symbol(":="))
    {
        *statement = ahead;
        name = Some(found);
    }
    let value = read_value_with_cast(statement)?;
    let start = first.map_or(0, SqlToken::start);
    Ok(Argument { name, value, span: Span::new(start, start + 1) })
}

/// Reads a value with the parentheses and the cast that drivers put around it: `('1.5'::float8)`.
fn read_value_with_cast(statement: &mut TokenCursor<'_>) -> Result<ArgumentValue> {
    const PARENTHESES_MAX: usize = 8;
    let mut open = 0;
    while open < PARENTHESES_MAX && statement.accept_symbol("(") {
        open += 1;
    }
    let value = read_value(statement)?;
    loop {
        if statement.accept_symbol("::") {
            // The column has a type already.
            skip_type(statement);
        } else if open > 0 {
            if !statement.accept_symbol(")") {
                return statement.syntax_error();
            }
            open -= 1;
        } else {
            return Ok(value);
        }
    }
}

/// Skips the name of a type.
fn skip_type(statement: &mut TokenCursor<'_>) {
    while statement.peek().is_some_and(|token| token.kind == SqlTokenKind::Word) {
        let _word = statement.next();
        let _qualified = statement.accept_symbol(".");
    }
    let mut ahead = *statement;
    if ahead.accept_symbol("(") {
        while ahead.peek().is_some_and(|t| t.kind == SqlTokenKind::Number) {
            let _size = ahead.next();
            let _comma = ahead.accept_symbol(",");
        }
        if ahead.accept_symbol(")") {
            *statement = ahead;
        }
    }
}

fn read_value(statement: &mut TokenCursor<'_>) -> Result<ArgumentValue> {
    for word in ["TIMESTAMP", "TIMESTAMPTZ", "DATE"] {
        // The text behind it is read by the type of the column.
        let _prefix = statement.accept(word);
    }
    if let Some(text) = statement.string() {
        return Ok(ArgumentValue::Constant(Value::String(text.into())));
    }
    let words = [("NULL", Value::Null), ("TRUE", Value::Bool(true)), ("FALSE", Value::Bool(false))];
    for (word, value) in words {
        if statement.accept(word) {
            return Ok(ArgumentValue::Constant(value));
        }
    }
    let is_negative = statement.accept_symbol("-");
    let Some(token) = statement.peek() else { return statement.syntax_error() };
    let text = token.text(statement.sql());
    let value = match token.kind {
        SqlTokenKind::Parameter if !is_negative => {
            let number = text[1..].parse().ok().filter(|number: &u16| *number > 0);
            number.map(ArgumentValue::Parameter)
        }
        SqlTokenKind::Number => number(text, is_negative).map(ArgumentValue::Constant),
        _ => None,
    };
    let Some(value) = value else {
        let hint = "Arguments of a deployment are constants and parameters.";
        return statement
            .syntax_error()
            .map_err(|error: Box<Diagnostic>| Box::new(error.with_hint(hint)));
    };
    let _read = statement.next();
    Ok(value)
}

/// Reads a number: a whole one is a BIGINT, another a DOUBLE.
fn number(text: &str, is_negative: bool) -> Option<Value> {
    let text = if is_negative { format!("-{text}") } else { text.to_owned() };
    if let Ok(whole) = text.parse() {
        return Some(Value::BigInt(whole));
    }
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Double)
}

/// Converts a value to the type of a column, if that loses nothing but digits of a fraction.
fn convert(value: Value, to: &DataType, rules: &InputRules) -> Result<Value> {
    let is_of_type = value.as_scalar().is_some_and(|scalar| scalar.is_of_type(to));
    if is_of_type {
        return Ok(value);
    }
    if let Value::String(text) = &value {
        return rules.read_text(text, to);
    }
    let scalar = value.as_scalar();
    let whole = scalar.and_then(|scalar| scalar.as_i64());
    let number = scalar.and_then(|scalar| scalar.as_f64());
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a FLOAT and a DOUBLE are the nearest to the number"
    )]
    let converted = match to {
        DataType::SmallInt => whole.and_then(|n| n.try_into().ok()).map(Value::SmallInt),
        DataType::Int => whole.and_then(|n| n.try_into().ok()).map(Value::Int),
        DataType::BigInt => whole.map(Value::BigInt),
        DataType::Timestamp => whole.map(Value::Timestamp),
        DataType::Float => {
            let narrow = number.or(whole.map(|n| n as f64)).map(|number| number as f32);
            narrow.map(Value::Float)
        }
        DataType::Double => number.or(whole.map(|n| n as f64)).map(Value::Double),
        _ => None,
    };
    converted.map_or_else(
        || {
            let from = scalar.map_or(DataType::Null, |scalar| scalar.data_type());
            let message =
                format!("a value of type {from} is not of type {to}, or out of its range");
            Diagnostic::new(code::DATATYPE_MISMATCH, message).with_kind(Kind::FixRequest).err()
        },
        Ok,
    )
}

#[cfg(test)]
mod tests {
    use lockstep_engine::Database;
    use lockstep_function::{TimeZone, Zone};
    use lockstep_row::{DataType, Value};

    use super::{CallColumns, FunctionCall, InputRules};
    use crate::postgres::script::Script;

    fn read(sql: &str) -> Option<FunctionCall> {
        let script = Script::new(sql).unwrap();
        FunctionCall::read(script.statements().next().unwrap()).unwrap()
    }

    fn input() -> Vec<(String, DataType)> {
        let column = |name: &str, data_type| (name.to_owned(), data_type);
        vec![
            column("user", DataType::String),
            column("price", DataType::Float),
            column("ts", DataType::Timestamp),
        ]
    }

    fn row(sql: &str, parameters: &[Value]) -> Result<Vec<Value>, &'static str> {
        let conversion = Database::in_memory().session().conversion();
        let rules = InputRules { conversion, zone: Zone::new(TimeZone::parse("UTC").unwrap()) };
        let call = read(sql).unwrap();
        let input = input();
        let columns = CallColumns { input: &input, reads: &[true; 3] };
        call.row(columns, parameters, &rules).map_err(|error| error.code)
    }

    #[test]
    fn arguments_are_named_or_in_order() {
        let expected = [Value::String("ann".into()), Value::Float(0.1), Value::Timestamp(5)];
        for sql in [
            "SELECT * FROM price('ann', 0.1, 5)",
            "SELECT * FROM price(ts => 5, \"user\" := 'ann', price => '0.1'::float4)",
            "SELECT * FROM price('ann', price => 0.1, ts => TIMESTAMP '1970-01-01 00:00:00.005') p",
            "SELECT * FROM price(user => ('ann'), price => (('0.1'::double precision)), ts => (5)::int8)",
        ] {
            assert_eq!(row(sql, &[]).unwrap(), expected, "{sql}");
        }
        let found = row("SELECT * FROM d($2, $1, $3)", &[0.5.into_value(), "x".into_value()]);
        assert_eq!(found.unwrap(), [Value::String("x".into()), Value::Float(0.5), Value::Null]);
    }

    trait IntoValue {
        fn into_value(self) -> Value;
    }

    impl IntoValue for f64 {
        fn into_value(self) -> Value {
            Value::Double(self)
        }
    }

    impl IntoValue for &str {
        fn into_value(self) -> Value {
            Value::String(self.into())
        }
    }

    #[test]
    fn what_does_not_fit_the_request_table_is_an_error() {
        for (sql, code) in [
            ("SELECT * FROM d('a', 1)", "42703"),
            ("SELECT * FROM d('a', 1, 2, 3)", "42883"),
            ("SELECT * FROM d(usr => 'a', price => 1, ts => 1)", "42703"),
            ("SELECT * FROM d('a', 1, user => 'b')", "42601"),
            ("SELECT * FROM d('a', TRUE, 1)", "42804"),
            ("SELECT * FROM d('a', 1, 'today')", "42804"),
        ] {
            assert_eq!(row(sql, &[]).unwrap_err(), code, "{sql}");
        }
    }

    #[test]
    fn columns_that_no_answer_depends_on_may_be_left_out() {
        let columns = input();
        let columns = CallColumns { input: &columns, reads: &[true, false, true] };
        let conversion = Database::in_memory().session().conversion();
        let rules = InputRules { conversion, zone: Zone::new(TimeZone::parse("UTC").unwrap()) };
        let row = |sql: &str| read(sql).unwrap().row(columns, &[], &rules);
        let expected = vec![Value::String("a".into()), Value::Null, Value::Timestamp(3)];
        assert_eq!(row("SELECT * FROM d(user => 'a', ts => 3)").unwrap(), expected);
        let error = row("SELECT * FROM d(price => 1)").unwrap_err();
        assert_eq!(error.message, "missing values for columns `user` (STRING), `ts` (TIMESTAMP)");
    }

    #[test]
    fn columns_are_chosen_by_name() {
        let call = read("SELECT p.ts, \"user\" AS u FROM d($1, $2, $3) AS p").unwrap();
        assert_eq!(call.choose(&input()).unwrap(), [(2, "ts".to_owned()), (0, "u".to_owned())]);
        assert_eq!(call.parameter_count(), 3);
        let input = input();
        let columns = CallColumns { input: &input, reads: &[true; 3] };
        let types = call.parameter_types(columns).unwrap();
        assert_eq!(types[2], Some(DataType::Timestamp));
        let error = read("SELECT pric FROM d(1)").unwrap().choose(&input).unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("Did you mean `price`?"));
        for other in
            ["SELECT a FROM t", "SELECT a + 1 FROM d(1)", "SELECT 1", "SELECT a FROM (SELECT 1)"]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
