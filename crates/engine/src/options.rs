//! The options of statements: OPTIONS of CREATE TABLE, INDEX, DEPLOY, LOAD DATA and INTO OUTFILE,
//! CONFIG of a query, and the options of CREATE USER.
//!
//! A statement declares its options in an [`OptionTable`]: each with its name and a function that
//! checks the value and stores it. [`OptionTable::read`] is the only loop over written options.
//! [`OptionArgument`] has the checks that several options share, and words their errors.

use std::ops::RangeInclusive;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{Literal, OptionItem, OptionValue};

use crate::variables::duration_ms;

/// The options of one statement; `T` collects their values.
pub(crate) struct OptionTable<'s, T> {
    pub(crate) specs: &'s [OptionSpec<T>],
    pub(crate) unknown: UnknownOption,
    /// The code of the error for a value that an option does not take.
    pub(crate) error_code: &'static str,
}

/// One option.
pub(crate) struct OptionSpec<T> {
    /// The name, in lower case.
    pub(crate) name: &'static str,
    /// Checks the value and stores it.
    pub(crate) set: fn(&mut T, &mut OptionArgument<'_>) -> Result<()>,
}

/// What happens with an option that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownOption {
    /// It is ignored with a warning: a script written for OpenMLDB still runs.
    Warning,
    /// It is ignored.
    Ignored,
    /// It is an error.
    Error,
}

impl<T> OptionTable<'_, T> {
    /// Reads the options in the written order into `values`, each at most once. Returns the warnings.
    pub(crate) fn read(&self, items: &[OptionItem], values: &mut T) -> Result<Vec<Diagnostic>> {
        debug_assert!(
            self.specs.iter().all(|spec| spec.name == spec.name.to_ascii_lowercase()),
            "keys are in lower case"
        );
        let mut warnings = Vec::new();
        for (at, item) in items.iter().enumerate() {
            if self.has(&item.key.text)
                && items[..at].iter().any(|other| other.key.text == item.key.text)
            {
                let message = format!("option `{}` is specified more than once", item.key.text);
                return Diagnostic::new(code::SYNTAX_ERROR, message).at(item.key.span).err();
            }
            match self.specs.iter().find(|spec| spec.name == item.key.text) {
                Some(spec) => {
                    let error_code = self.error_code;
                    let mut argument = OptionArgument { item, error_code, warnings: &mut warnings };
                    (spec.set)(values, &mut argument)?;
                }
                None => match self.unknown {
                    UnknownOption::Warning => warnings.push(self.ignored(item)),
                    UnknownOption::Ignored => {}
                    UnknownOption::Error => return self.missing(item).err(),
                },
            }
        }
        Ok(warnings)
    }

    /// Whether an option exists.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.specs.iter().any(|spec| spec.name == name)
    }

    fn ignored(&self, item: &OptionItem) -> Diagnostic {
        let name = item.key.text.as_str();
        Diagnostic::new(
            code::INVALID_PARAMETER,
            format!("option `{name}` does not exist and is ignored"),
        )
        .at(item.key.span)
        .with_nearest(name, self.specs.iter().map(|spec| spec.name))
    }

    fn missing(&self, item: &OptionItem) -> Diagnostic {
        let name = item.key.text.as_str();
        Diagnostic::new(code::INVALID_PARAMETER, format!("option `{name}` does not exist"))
            .at(item.key.span)
            .with_nearest(name, self.specs.iter().map(|spec| spec.name))
    }
}

/// One option as it was written.
pub(crate) struct OptionArgument<'a> {
    item: &'a OptionItem,
    error_code: &'static str,
    warnings: &'a mut Vec<Diagnostic>,
}

impl OptionArgument<'_> {
    /// Returns the option with its position.
    pub(crate) fn item(&self) -> &OptionItem {
        self.item
    }

    /// Returns the value, for an option that checks it by itself.
    pub(crate) fn value(&self) -> &OptionValue {
        &self.item.value
    }

    /// Reads a string, quoted or a bare word.
    pub(crate) fn string(&self) -> Result<String> {
        match word(&self.item.value) {
            Some(text) => Ok(text.to_owned()),
            None => self.invalid("requires a string"),
        }
    }

    /// Reads TRUE or FALSE.
    pub(crate) fn boolean(&self) -> Result<bool> {
        match &self.item.value {
            OptionValue::Literal(Literal::Bool(value)) => Ok(*value),
            _ => self.invalid("requires a Boolean value"),
        }
    }

    /// Reads one of some words, in any case; returns its position among them.
    pub(crate) fn one_of(&self, words: &[&str]) -> Result<usize> {
        let found = word(&self.item.value)
            .and_then(|text| words.iter().position(|word| word.eq_ignore_ascii_case(text)));
        match found {
            Some(position) => Ok(position),
            None => self.invalid(&format!("must be one of {}", words.join(", "))),
        }
    }

    /// Reads a character of one byte; `None` for the empty string.
    pub(crate) fn character(&self) -> Result<Option<u8>> {
        match self.string()?.as_bytes() {
            [] => Ok(None),
            [byte] => Ok(Some(*byte)),
            _ => self.invalid("must be a single one-byte character"),
        }
    }

    /// Reads an integer of a range; `expected` says in the error what the option takes.
    pub(crate) fn integer(&self, range: RangeInclusive<i32>, expected: &str) -> Result<i32> {
        match &self.item.value {
            OptionValue::Literal(Literal::Int(value)) if range.contains(value) => Ok(*value),
            _ => self.invalid(expected),
        }
    }

    /// Reads a duration, as milliseconds: text such as '10s', an interval, or a number of milliseconds.
    pub(crate) fn milliseconds(&self) -> Result<i64> {
        let read = match &self.item.value {
            OptionValue::Literal(Literal::Int(count)) => Some(i64::from(*count)),
            OptionValue::Literal(Literal::BigInt(count)) => Some(*count),
            OptionValue::Literal(Literal::Interval(interval)) => interval.milliseconds(),
            value => word(value)
                .and_then(|text| duration_ms(&text.trim().to_ascii_lowercase()))
                .and_then(|ms| i64::try_from(ms).ok()),
        };
        match read {
            Some(ms @ 0..) => Ok(ms),
            _ => self.invalid("must be a duration such as '10s', or a number of milliseconds"),
        }
    }

    /// Adds a warning about the option.
    pub(crate) fn warn(&mut self, warning: Diagnostic) {
        self.warnings.push(warning);
    }

    /// Fails with the error that the option does not take its value; `expected` follows its name.
    pub(crate) fn invalid<R>(&self, expected: &str) -> Result<R> {
        let message = format!("option `{}` {expected}", self.item.key.text);
        Diagnostic::new(self.error_code, message).at(self.item.span).err()
    }
}

/// Returns the text of a string or of a bare word.
pub(crate) fn word(value: &OptionValue) -> Option<&str> {
    match value {
        OptionValue::Word(word) | OptionValue::Literal(Literal::String(word)) => Some(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lockstep_diagnostic::code;
    use lockstep_sql::{
        ast::{OptionItem, Statement},
        parse,
    };

    use super::{OptionSpec, OptionTable, UnknownOption};

    #[derive(Default)]
    struct Values {
        size: i32,
        color: usize,
    }

    const SPECS: &[OptionSpec<Values>] = &[
        OptionSpec {
            name: "size",
            set: |values, argument| {
                values.size = argument.integer(1..=9, "must be an integer from 1 to 9")?;
                Ok(())
            },
        },
        OptionSpec {
            name: "color",
            set: |values, argument| {
                values.color = argument.one_of(&["red", "blue"])?;
                Ok(())
            },
        },
    ];

    fn items(written: &str) -> Vec<OptionItem> {
        let sql = format!("DEPLOY d OPTIONS({written}) SELECT 1");
        let statement = parse(&sql).unwrap().remove(0).statement;
        let Statement::Deploy(deploy) = statement else { panic!("{sql}") };
        deploy.options
    }

    fn read(unknown: UnknownOption, written: &str) -> Result<(Values, Vec<String>), String> {
        let table = OptionTable { specs: SPECS, unknown, error_code: code::INVALID_PARAMETER };
        let mut values = Values::default();
        let warnings = table.read(&items(written), &mut values).map_err(|e| e.message)?;
        Ok((values, warnings.into_iter().map(|warning| warning.message).collect()))
    }

    #[test]
    fn each_option_is_given_once() {
        let (values, warnings) = read(UnknownOption::Warning, "size=2, color='BLUE'").unwrap();
        assert_eq!((values.size, values.color, warnings.len()), (2, 1, 0));
        let error = read(UnknownOption::Warning, "size=2, color='BLUE', SIZE=2").err().unwrap();
        assert_eq!(error, "option `size` is specified more than once");
    }

    #[test]
    fn a_value_that_an_option_does_not_take_is_an_error() {
        let error = |written| read(UnknownOption::Warning, written).err().unwrap();
        assert_eq!(error("size=10"), "option `size` must be an integer from 1 to 9");
        assert_eq!(error("color=7"), "option `color` must be one of red, blue");
    }

    #[test]
    fn an_option_that_does_not_exist_is_what_the_statement_says() {
        let (_, warnings) = read(UnknownOption::Warning, "colour='red'").unwrap();
        assert_eq!(warnings, ["option `colour` does not exist and is ignored"]);
        assert!(read(UnknownOption::Ignored, "colour='red'").unwrap().1.is_empty());
        let error = read(UnknownOption::Error, "colour='red'").err().unwrap();
        assert_eq!(error, "option `colour` does not exist");
    }
}
