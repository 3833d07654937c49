//! `lockstep check`: what is wrong with a directory, and saving what can be read of it.
//!
//! Prints what `lockstep_engine::check` and `salvage` return, as text or as one JSON object. The exit
//! code is 0 when nothing is wrong, 1 when something is, 2 when the directory could not be checked.

use std::io::{self, Write};

use clap::Parser;
use lockstep_engine::{CheckFinding, CheckResult, Salvage, check, guarded, salvage};

/// Tables that are named in a finding.
const TABLES_NAMED_MAX: usize = 5;

/// Verifies every checksum and cross-reference of a database, which must not be open for writing.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "lockstep check",
    after_help = "Exit codes: 0 if the database is intact, 1 if it is damaged, and 2 if the directory \
                  could not be checked."
)]
pub(crate) struct CheckCommand {
    /// Database directory.
    #[arg(value_name = "DIR")]
    directory: String,

    /// Prints the result as one JSON object.
    #[arg(long)]
    json: bool,

    /// Writes the readable data to the directory given with `--to`.
    #[arg(long, requires = "to")]
    salvage: bool,

    /// Target directory of `--salvage`, which must not exist or must be empty.
    #[arg(long, value_name = "OTHER", requires = "salvage")]
    to: Option<String>,
}

impl CheckCommand {
    /// Parses the arguments behind `check`.
    pub(crate) fn from_arguments(args: &[String]) -> Result<Self, clap::Error> {
        let name = std::iter::once("lockstep check".to_owned());
        Self::try_parse_from(name.chain(args.iter().cloned()))
    }

    /// Checks the directory, prints what was found, and returns the exit code.
    pub(crate) fn run(&self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<i32> {
        assert_eq!(self.salvage, self.to.is_some(), "each is refused without the other");
        let done = guarded(|| match &self.to {
            Some(target) => salvage(&self.directory, target).map(CheckOutput::Salvage),
            None => check(&self.directory).map(CheckOutput::Check),
        });
        let output = match done {
            Ok(output) => output,
            Err(diagnostic) => return writeln!(err, "{}", diagnostic.render(None)).map(|()| 2),
        };
        match (&output, self.json) {
            (CheckOutput::Check(result), true) => writeln!(out, "{}", result.to_json())?,
            (CheckOutput::Salvage(salvage), true) => writeln!(out, "{}", salvage.to_json())?,
            (CheckOutput::Check(result), false) => print_check(result, out)?,
            (CheckOutput::Salvage(salvage), false) => print_salvage(salvage, out)?,
        }
        Ok(i32::from(!output.result().is_whole()))
    }
}

/// What is printed.
enum CheckOutput {
    Check(CheckResult),
    Salvage(Salvage),
}

impl CheckOutput {
    fn result(&self) -> &CheckResult {
        match self {
            Self::Check(result) => result,
            Self::Salvage(salvage) => &salvage.check,
        }
    }
}

/// Prints what was read, and what is wrong.
fn print_check(result: &CheckResult, out: &mut dyn Write) -> io::Result<()> {
    let CheckResult { directory, tables, files, blocks, records, rows, bytes, .. } = result;
    let (seconds, milliseconds) = (result.milliseconds / 1_000, result.milliseconds % 1_000);
    writeln!(
        out,
        "{directory}: {tables} tables, {files} intact data files with {blocks} blocks, {records} \
         log records; {rows} rows, {bytes} bytes, {seconds}.{milliseconds:03} s"
    )?;
    for remark in &result.remarks {
        writeln!(out, "note: {remark}")?;
    }
    for finding in &result.findings {
        print_finding(finding, out)?;
    }
    match result.findings.len() {
        0 => writeln!(out, "No problems found."),
        1 => writeln!(out, "1 problem found."),
        count => writeln!(out, "{count} problems found."),
    }
}

/// Prints a damage, and what is in danger.
fn print_finding(finding: &CheckFinding, out: &mut dyn Write) -> io::Result<()> {
    let CheckFinding { file, byte, what, tables, positions, and_later } = finding;
    writeln!(out, "damage: {file}, byte {byte}: {what}")?;
    let (from, to) = (positions.start, positions.end);
    debug_assert!(from <= to, "a range of positions ends behind its begin");
    let range = match (and_later, positions.is_empty()) {
        (true, _) => format!("position {from} and all later positions"),
        (false, false) => format!("positions {from} to {to}"),
        (false, true) => return Ok(()),
    };
    let named = tables.iter().take(TABLES_NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match tables.len() {
        0 => writeln!(out, "  {range}"),
        count if count > TABLES_NAMED_MAX => {
            let others = count - TABLES_NAMED_MAX;
            writeln!(out, "  at risk: {named} and {others} other tables, {range}")
        }
        _ => writeln!(out, "  at risk: {named}, {range}"),
    }
}

/// Prints what was found, and what was saved.
fn print_salvage(salvage: &Salvage, out: &mut dyn Write) -> io::Result<()> {
    print_check(&salvage.check, out)?;
    let Salvage { target, rows_saved, rows_lost, rows_not_assignable, .. } = salvage;
    writeln!(out, "{target}: {rows_saved} rows saved")?;
    for table in &salvage.saved {
        let lost = match table.rows_lost {
            0 => String::new(),
            lost => format!(", {lost} rows of its data files lost"),
        };
        writeln!(out, "  {}: {} rows{lost}", table.name, table.rows)?;
    }
    if *rows_lost > 0 {
        writeln!(out, "{rows_lost} rows of data files lost")?;
    }
    if *rows_not_assignable > 0 {
        writeln!(out, "{rows_not_assignable} readable rows do not belong to any known table")?;
    }
    Ok(())
}
