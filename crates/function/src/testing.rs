//! A small evaluator of SQL expressions for the tests of this crate: it calls the declarations as
//! the binder does, without a parser, a plan or a table.

use lockstep_row::{Arena, DataType, Value};

use crate::{
    CallArguments, NullHandling, ScalarFunction, ScalarImplementation, Settings, SignatureError,
    cast::cast_form,
    scalar::{feature, find},
};

/// A literal or a result: its type and value.
pub(crate) type Typed = (DataType, Value);

/// Reads and computes expressions of literals, columns, calls, `[…]`, `a[b]` and one infix
/// operator.
pub(crate) struct TestEvaluator<'a> {
    pub(crate) rest: &'a str,
    pub(crate) settings: Settings,
    /// The columns that an expression may name.
    pub(crate) row: &'a [(&'static str, Typed)],
    /// Whether a column was named.
    pub(crate) names_column: bool,
}

impl<'a> TestEvaluator<'a> {
    /// Reads a text without columns.
    pub(crate) fn new(sql: &'a str, settings: Settings) -> Self {
        Self { rest: sql, settings, row: &[], names_column: false }
    }
}

impl TestEvaluator<'_> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes a token off the text, if it comes next.
    pub(crate) fn eat(&mut self, token: &str) -> bool {
        self.blanks();
        let found = self.rest.strip_prefix(token);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    /// Reads and computes one expression.
    pub(crate) fn expression(&mut self) -> Result<Typed, SignatureError> {
        const INFIX: [(&str, &str); 20] = [
            ("||", "op_concat"),
            ("!=", "op_ne"),
            ("<=", "op_le"),
            (">=", "op_ge"),
            ("=", "op_eq"),
            ("<", "op_lt"),
            (">", "op_gt"),
            ("+", "op_add"),
            ("-", "op_subtract"),
            ("*", "op_multiply"),
            ("/", "op_divide"),
            ("%", "op_modulo"),
            ("&", "op_bit_and"),
            ("|", "op_bit_or"),
            ("^", "op_bit_xor"),
            ("DIV ", "op_int_divide"),
            ("XOR ", "op_xor"),
            ("LIKE ", "op_like"),
            ("ILIKE ", "op_ilike"),
            ("RLIKE ", "op_rlike"),
        ];
        let left = self.primary()?;
        for (sign, name) in INFIX {
            if self.eat(sign) {
                let right = self.primary()?;
                return self.call(name, vec![left, right]);
            }
        }
        Ok(left)
    }

    fn primary(&mut self) -> Result<Typed, SignatureError> {
        self.blanks();
        let mut value = if self.eat("'") {
            let (text, rest) = self.rest.split_once('\'').expect("a closing quote");
            self.rest = rest;
            (DataType::String, Value::String(text.into()))
        } else if self.eat("[") {
            let items = self.list("]")?;
            self.call("array", items)?
        } else if self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            self.number()
        } else {
            self.word()?
        };
        while self.rest.starts_with('[') && self.eat("[") {
            let key = self.list("]")?.remove(0);
            value = self.call("element_at", vec![value, key])?;
        }
        Ok(value)
    }

    fn number(&mut self) -> Typed {
        let mut before = ' ';
        let mut is_outside = |c: char| {
            // The sign of an exponent belongs to the number.
            let is_sign = matches!(c, '-' | '+') && matches!(before, 'e' | 'E');
            before = c;
            !c.is_ascii_alphanumeric() && c != '.' && !is_sign
        };
        let end = self.rest[1..].find(&mut is_outside).map_or(self.rest.len(), |end| end + 1);
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        match (text.parse::<i32>(), text.parse::<i64>()) {
            (Ok(value), _) => (DataType::Int, Value::Int(value)),
            (_, Ok(value)) => (DataType::BigInt, Value::BigInt(value)),
            _ => (DataType::Double, Value::Double(text.parse().expect("a number"))),
        }
    }

    fn word(&mut self) -> Result<Typed, SignatureError> {
        let quoted = self.eat("`");
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        assert_eq!(self.eat("`"), quoted, "back-quotes come in pairs");
        match word {
            "NULL" => Ok((DataType::Null, Value::Null)),
            "true" | "false" => Ok((DataType::Bool, Value::Bool(word == "true"))),
            name => {
                if let Some((_, value)) = self.row.iter().find(|(column, _)| *column == name) {
                    self.names_column = true;
                    return Ok(value.clone());
                }
                assert!(self.eat("("), "`{name}` is called");
                if let Some(format) = feature::format(name) {
                    return self.format_call(format);
                }
                let arguments = self.list(")")?;
                self.call(name, arguments)
            }
        }
    }

    /// Reads and computes a call of a format, after its opening parenthesis.
    fn format_call(&mut self, format: &ScalarFunction) -> Result<Typed, SignatureError> {
        let (mut features, mut types, mut values) = (Vec::new(), Vec::new(), Vec::new());
        while !self.eat(")") {
            let (name, rest) = self.rest.split_once('(').expect("a signature is called");
            self.rest = rest;
            let (own, own_values): (Vec<_>, Vec<_>) = self.list(")")?.into_iter().unzip();
            let constants: Vec<_> = own_values.iter().cloned().map(Some).collect();
            let settings = &self.settings;
            let with = CallArguments { types: &own, constants: &constants, settings };
            let Some(signature) = feature::signature(name.trim()) else {
                return Err(SignatureError::Mismatch(format!("`{name}` is no signature")));
            };
            features.push(feature::feature(signature, &with)?);
            types.extend(own);
            values.extend(own_values);
            self.eat(",");
        }
        let bound = feature::resolve_format(format, &features, &self.settings)
            .map_err(|error| SignatureError::Mismatch(error.to_string()))?;
        self.apply(format.name, &bound, (&types, &values))
    }

    fn list(&mut self, end: &str) -> Result<Vec<Typed>, SignatureError> {
        let mut items = Vec::new();
        while !self.eat(end) {
            items.push(self.expression()?);
            self.eat(",");
        }
        Ok(items)
    }

    fn call(&self, name: &str, arguments: Vec<Typed>) -> Result<Typed, SignatureError> {
        let function = find(name).unwrap_or_else(|| panic!("there is no function `{name}`"));
        let (types, values): (Vec<_>, Vec<_>) = arguments.into_iter().unzip();
        let constants: Vec<_> = values.iter().cloned().map(Some).collect();
        let settings = &self.settings;
        let bound =
            (function.resolve)(&CallArguments { types: &types, constants: &constants, settings })?;
        // The same call with arguments that are not constant must give the same.
        let unknown = vec![None; types.len()];
        let dynamic =
            (function.resolve)(&CallArguments { types: &types, constants: &unknown, settings });
        let typed = self.apply(name, &bound, (&types, &values))?;
        if let Ok(dynamic) = dynamic {
            let again = self.apply(name, &dynamic, (&types, &values))?;
            let arena = Arena::new();
            let same = again.1.as_datum(&arena).is_bit_equal(&typed.1.as_datum(&arena));
            assert!(same, "{name} when not constant");
        }
        Ok(typed)
    }

    /// Casts the arguments to the parameters and computes the row.
    fn apply(
        &self,
        name: &str,
        bound: &ScalarImplementation,
        (types, values): (&[DataType], &[Value]),
    ) -> Result<Typed, SignatureError> {
        let arena = Arena::new();
        let mut datums = Vec::new();
        assert_eq!(bound.parameters.len(), types.len(), "{name}: one parameter per argument");
        for ((value, from), to) in values.iter().zip(types).zip(&bound.parameters) {
            let form =
                cast_form(from, to, &self.settings).expect("an argument casts to its parameter");
            let datum = value.as_datum(&arena);
            datums.push(if datum.is_null() { datum } else { form(&[datum], &arena) });
        }
        let is_null = bound.nulls == NullHandling::Propagate
            && datums.iter().any(lockstep_row::Datum::is_null);
        if is_null {
            return Ok((bound.returns.clone(), Value::Null));
        }
        let result = (bound.row)(&datums, &arena);
        let is_nested = matches!(bound.returns, DataType::Array(_) | DataType::Map(_, _));
        if !result.is_null() && !is_nested {
            assert_eq!(result.data_type(), bound.returns, "{name} returns what it says");
        }
        Ok((bound.returns.clone(), result.to_value()))
    }
}

/// Computes a text without columns.
pub(crate) fn evaluate(sql: &str, settings: Settings) -> Result<Typed, SignatureError> {
    let mut evaluator = TestEvaluator::new(sql, settings);
    let value = evaluator.expression()?;
    assert_eq!(evaluator.rest.trim(), "", "all of `{sql}` was read");
    Ok(value)
}
