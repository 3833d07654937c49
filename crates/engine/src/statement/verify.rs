//! VERIFY DEPLOYMENT: replays stored rows as requests, and returns what differs from batch mode; or with
//! AGAINST ANSWERS computes logged answers again, and returns which differ and why.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{DataType, Value};
use lockstep_sql::{
    ast::{ObjectName, OptionItem, Statement, VerifyAgainst},
    parse,
};

use super::at_name;
use crate::{
    Output, Session, Verification, VerifyOptions,
    access::{Needs, Requirement},
    answer_log::{AnswerDifference, AnswerVerification, verify_answers},
    options::{OptionSpec, OptionTable, UnknownOption},
    user::{Privilege, Securable},
    verify::reads_of,
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

/// The columns of the result with AGAINST ANSWERS.
const ANSWER_COLUMNS: [(&str, DataType); 11] = [
    ("answers", DataType::BigInt),
    ("values", DataType::BigInt),
    ("differing", DataType::BigInt),
    ("causes", DataType::String),
    ("answer", DataType::BigInt),
    ("answered_at", DataType::Timestamp),
    ("column", DataType::String),
    ("answered", DataType::String),
    ("rebuilt", DataType::String),
    ("cause", DataType::String),
    ("rows", DataType::String),
];

const OPTIONS: OptionTable<'_, VerifyOptions> = OptionTable {
    specs: SPECS,
    unknown: UnknownOption::Error,
    error_code: code::INVALID_PARAMETER,
};

const SPECS: &[OptionSpec<VerifyOptions>] = &[OptionSpec {
    name: "sample",
    set: |options, argument| {
        let rows = argument.integer(1..=i32::MAX, "must be a number of rows, at least 1")?;
        options.sample = u64::try_from(rows).ok();
        Ok(())
    },
}];

/// Returns the names and types of the columns of a VERIFY DEPLOYMENT.
pub fn verification_columns(sql: &str) -> Vec<(String, DataType)> {
    let last = parse(sql).ok().and_then(|mut statements| statements.pop());
    let is_of_answers = last.is_some_and(|parsed| {
        let answers = VerifyAgainst::Answers;
        matches!(parsed.statement, Statement::VerifyDeployment { against, .. } if against == answers)
    });
    let columns = if is_of_answers { ANSWER_COLUMNS.as_slice() } else { COLUMNS.as_slice() };
    columns.iter().map(|(name, data_type)| ((*name).to_owned(), data_type.clone())).collect()
}

impl Session {
    /// Runs VERIFY DEPLOYMENT: a row for each difference that is reported, or one without a difference.
    pub(crate) fn verify_deployment(
        &self,
        name: &ObjectName,
        against: VerifyAgainst,
        options: &[OptionItem],
    ) -> Result<Output> {
        let mut given = VerifyOptions::default();
        let mut warnings = OPTIONS.read(options, &mut given)?;
        if against == VerifyAgainst::Answers {
            let found = self.run_answer_verification(name, &given)?;
            debug_assert!(found.answers <= found.logged, "answers that are logged");
            let rows = Output::of_values(&ANSWER_COLUMNS, &answer_rows(&found))?;
            return Ok(Output { warnings, ..rows });
        }
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

impl Session {
    /// Compares the logged answers of a deployment with those of a training set.
    fn run_answer_verification(
        &self,
        name: &ObjectName,
        options: &VerifyOptions,
    ) -> Result<AnswerVerification> {
        let qualified = self.qualified(name).to_string();
        let found = self.find_deployment(&qualified);
        let found = found.map_err(|error| Box::new(at_name(*error, name)))?;
        let Some(answers) = &found.answers else {
            let message = format!("deployment `{}` does not log its answers", name.name.text);
            return Diagnostic::new(code::WRONG_OBJECT_TYPE, message)
                .at(name.name.span)
                .with_hint("Run DEPLOY OR REPLACE with OPTIONS(log_answers = 'a_table').")
                .err();
        };
        // The differences have values of the tables.
        let mut needs = reads_of(&found);
        needs.push(Requirement::new(Privilege::Select, Securable::Table(answers.name.clone())));
        self.permit(&Needs::of(needs))?;
        let log = self.database.objects().entry(answers)?.clone();
        let verification = verify_answers(&self.database, &found, &log, options);
        // Tables that were dropped meanwhile, after the deployment, were empty.
        found.definition.check()?;
        verification
    }
}

/// Makes a row for each difference that is reported, or one without a difference.
fn answer_rows(found: &AnswerVerification) -> Vec<Vec<Value>> {
    let number = |count: u64| Value::BigInt(i64::try_from(count).unwrap_or(i64::MAX));
    let text = |text: &str| Value::String(text.into());
    let mut counts: Vec<Value> =
        [found.answers, found.values, found.differing].into_iter().map(number).collect();
    counts.push(text(&found.causes_text()));
    if found.differences.is_empty() {
        counts.resize(ANSWER_COLUMNS.len(), Value::Null);
        return vec![counts];
    }
    let row = |one: &AnswerDifference| {
        let mut row = counts.clone();
        row.push(number(one.answer));
        row.push(Value::Timestamp(one.answered_ms));
        let cause = one.cause.name();
        row.extend([&one.column, &one.answered, &one.rebuilt].map(|value| text(value)));
        row.extend([cause, &one.rows].map(text));
        debug_assert_eq!(row.len(), ANSWER_COLUMNS.len(), "a value for each column");
        row
    };
    found.differences.iter().map(row).collect()
}

fn sampled(found: &Verification) -> Diagnostic {
    let Verification { requests, rows, .. } = found;
    let message = format!("{requests} of {rows} rows were verified");
    Diagnostic::new(code::WARNING, message)
        .with_detail("Each row requires a run of the query in batch mode.")
        .with_hint("Set the number of rows with OPTIONS(sample = …).")
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
