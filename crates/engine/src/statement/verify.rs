//! VERIFY DEPLOYMENT: replays stored rows as requests, and returns what differs from batch mode.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{DataType, Value};
use lockstep_sql::ast::{ObjectName, OptionItem};

use super::at_name;
use crate::{
    Output, Session, Verification, VerifyOptions,
    options::{OptionSpec, OptionTable, UnknownOption},
};

/// The columns of the result.
const COLUMNS: [(&str, DataType); 7] = [
    ("requests", DataType::BigInt),
    ("values", DataType::BigInt),
    ("differing", DataType::BigInt),
    ("row", DataType::BigInt),
    ("column", DataType::String),
    ("batch", DataType::String),
    ("request", DataType::String),
];

const OPTIONS: OptionTable<'_, VerifyOptions> = OptionTable {
    specs: SPECS,
    unknown: UnknownOption::Error,
    error_code: code::INVALID_PARAMETER,
};

const SPECS: &[OptionSpec<VerifyOptions>] = &[OptionSpec {
    name: "sample",
    set: |options, argument| {
        let rows = argument.integer(1..=i32::MAX, "takes a number of rows, at least 1")?;
        options.sample = u64::try_from(rows).ok();
        Ok(())
    },
}];

/// Returns the names and types of the columns of VERIFY DEPLOYMENT.
pub fn verification_columns() -> Vec<(String, DataType)> {
    COLUMNS.iter().map(|(name, data_type)| ((*name).to_owned(), data_type.clone())).collect()
}

impl Session {
    /// Runs VERIFY DEPLOYMENT: a row for each difference that is reported, or one without a difference.
    pub(crate) fn verify_deployment(
        &self,
        name: &ObjectName,
        options: &[OptionItem],
    ) -> Result<Output> {
        let mut given = VerifyOptions::default();
        let mut warnings = OPTIONS.read(options, &mut given)?;
        let qualified = self.qualified(name);
        let found = self.run_verification(&qualified.to_string(), &given);
        let found = found.map_err(|error| match error.code {
            code::UNDEFINED_OBJECT => Box::new(at_name(*error, name)),
            _ => error,
        })?;
        if given.sample.is_none() && found.requests < found.rows {
            warnings.push(sampled(&found).at(name.name.span));
        }
        Ok(Output { warnings, ..Output::of_values(&COLUMNS, &rows(&found))? })
    }
}

fn sampled(found: &Verification) -> Diagnostic {
    let Verification { requests, rows, .. } = found;
    let message = format!("{requests} of {rows} rows were verified");
    Diagnostic::new(code::WARNING, message)
        .with_detail("Each costs a run of the query in batch mode.")
        .with_hint("OPTIONS(sample = …) says how many.")
}

fn rows(found: &Verification) -> Vec<Vec<Value>> {
    let number = |count: u64| Value::BigInt(i64::try_from(count).unwrap_or(i64::MAX));
    let counts = [found.requests, found.values, found.differing].map(number);
    if found.differences.is_empty() {
        return vec![counts.into_iter().chain([(); 4].map(|()| Value::Null)).collect()];
    }
    let text = |text: &String| Value::String(text.as_str().into());
    let row = |one: &crate::Difference| {
        let texts = [&one.column, &one.batch, &one.request].map(text);
        counts.iter().cloned().chain([number(one.row)]).chain(texts).collect()
    };
    found.differences.iter().map(row).collect()
}
