//! Runs the commands of the shell.

use std::io;

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
};
use lockstep_engine::{Output, guarded};
use lockstep_host::{Clock, pause};

use super::{ScriptEnd, Shell, of_file};
use crate::{
    command::{ObjectListing, ShellCommand, WatchPlan, fits, help_text},
    output_format::OutputFormat,
    shell_session::texts,
    table_text,
};

/// How many scripts may run one inside another: one that runs itself ends.
const SCRIPT_DEPTH_MAX: usize = 16;

/// How often a command that waits looks whether Ctrl-C was pressed.
const WAIT_MS: u32 = 20;

impl Shell {
    /// Runs the command in a line.
    pub(super) fn command(&mut self, line: &str) -> io::Result<ScriptEnd> {
        let command = match ShellCommand::of_line(line) {
            Ok(command) => command,
            Err(message) => return self.complaint(&message),
        };
        match command {
            ShellCommand::Quit => return Ok(ScriptEnd::Quit),
            ShellCommand::Help => self.printer.result(&help_text())?,
            ShellCommand::Go => {}
            ShellCommand::List(listing) => return self.list(&listing),
            ShellCommand::Describe(table) => return self.describe(&table),
            ShellCommand::Deployment(name) => {
                return self.run_sql(&format!("SHOW DEPLOYMENT {name}"));
            }
            ShellCommand::Schema(table) => return self.schema(table),
            ShellCommand::Output(path) => return self.redirect(path.as_deref()),
            ShellCommand::Read(path) => return self.nested(&path),
            ShellCommand::Watch(plan) => return self.watch(plan),
            setting => self.set(setting)?,
        }
        Ok(ScriptEnd::Done)
    }

    /// Changes how results are printed, and says how they are now.
    fn set(&mut self, setting: ShellCommand) -> io::Result<()> {
        let printer = &mut self.printer;
        let note = match setting {
            ShellCommand::Mode(format) => {
                printer.format = format.unwrap_or(printer.format);
                format!("The format is {}.", printer.format.word())
            }
            ShellCommand::Expanded(wanted) => {
                let other = if printer.format == OutputFormat::Expanded {
                    OutputFormat::Table
                } else {
                    OutputFormat::Expanded
                };
                printer.format = wanted.unwrap_or(other);
                format!("Expanded output is {}.", expanded_text_of(printer.format))
            }
            ShellCommand::Timing(wanted) => {
                printer.timing.change(wanted);
                format!("Timing is {}.", printer.timing.word())
            }
            ShellCommand::Pager(wanted) => {
                printer.pager.change(wanted);
                format!("The pager is {}.", printer.pager.word())
            }
            other => unreachable!("{other:?} is no setting"),
        };
        printer.note(&note)
    }

    /// Prints what is wrong with a command.
    fn complaint(&mut self, message: &str) -> io::Result<ScriptEnd> {
        debug_assert!(!message.contains('\n'), "a message is a line");
        self.printer.error(&format!("error: {message}")).map(|()| ScriptEnd::Failed)
    }

    /// Runs a statement that stands for a command.
    fn run_sql(&mut self, sql: &str) -> io::Result<ScriptEnd> {
        debug_assert!(!sql.trim().is_empty(), "there is a statement");
        let succeeded = self.statement(sql, 0..sql.len())?;
        Ok(if succeeded { ScriptEnd::Done } else { ScriptEnd::Failed })
    }

    fn list(&mut self, listing: &ObjectListing) -> io::Result<ScriptEnd> {
        let ObjectListing { sql, column, pattern } = listing;
        let Some(pattern) = pattern else { return self.run_sql(sql) };
        let change = |output| with_names(output, *column, pattern);
        let succeeded = self.statement_with(sql, 0..sql.len(), change)?;
        Ok(if succeeded { ScriptEnd::Done } else { ScriptEnd::Failed })
    }

    fn describe(&mut self, table: &str) -> io::Result<ScriptEnd> {
        match self.run_sql(&format!("DESC {table}"))? {
            ScriptEnd::Done => self.run_sql(&format!("SHOW INDEXES FROM {table}")),
            failed => Ok(failed),
        }
    }

    /// Prints the statements that create the tables, or one of them.
    fn schema(&mut self, table: Option<String>) -> io::Result<ScriptEnd> {
        let tables = match table {
            Some(table) => vec![table],
            None => {
                let names = self.session.names("SHOW TABLES", 0);
                names.iter().map(|name| format!("`{name}`")).collect()
            }
        };
        for table in tables {
            let sql = format!("SHOW CREATE TABLE {table}");
            match guarded(|| self.session.execute(&sql)) {
                Ok(output) => {
                    for statement in texts(&output, 1) {
                        self.printer.result(&format!("{}\n", statement.trim_end()))?;
                    }
                }
                Err(error) => {
                    return self.printer.error(&error.render(None)).map(|()| ScriptEnd::Failed);
                }
            }
        }
        Ok(ScriptEnd::Done)
    }

    fn redirect(&mut self, path: Option<&str>) -> io::Result<ScriptEnd> {
        match (self.printer.redirect(path), path) {
            (Err(error), Some(path)) => {
                let error = of_file(path, "write", &error);
                self.failure(&error).map(|_| ScriptEnd::Failed)
            }
            (done, _) => done.map(|()| ScriptEnd::Done),
        }
    }

    /// Runs a script inside another.
    fn nested(&mut self, path: &str) -> io::Result<ScriptEnd> {
        if self.depth == SCRIPT_DEPTH_MAX {
            let message = format!("scripts are nested more than {SCRIPT_DEPTH_MAX} levels deep");
            return self.complaint(&message);
        }
        self.depth += 1;
        debug_assert!(self.depth <= SCRIPT_DEPTH_MAX, "the depth is limited");
        let end = self.file(path);
        self.depth -= 1;
        end
    }

    /// Runs the last statement again and again, until Ctrl-C or as often as wanted.
    fn watch(&mut self, plan: WatchPlan) -> io::Result<ScriptEnd> {
        let Some(statement) = self.last_statement.clone() else {
            return self.complaint("`\\watch` cannot be used without a previous statement");
        };
        // It has run once.
        let mut count: u64 = 1;
        while plan.count.is_none_or(|wanted| count < wanted) {
            if !self.wait(plan.interval_ms) {
                return Ok(ScriptEnd::Interrupted);
            }
            if self.run_sql(&statement)? != ScriptEnd::Done {
                return Ok(ScriptEnd::Failed);
            }
            self.printer.out.flush()?;
            count += 1;
            debug_assert!(plan.count.is_none_or(|wanted| count <= wanted), "not more than wanted");
        }
        Ok(ScriptEnd::Done)
    }

    /// Waits; returns whether Ctrl-C was not pressed meanwhile.
    fn wait(&self, interval_ms: u64) -> bool {
        let end_ns =
            self.clock.monotonic_ns().saturating_add(interval_ms.saturating_mul(1_000_000));
        while self.clock.monotonic_ns() < end_ns && !self.interrupts.is_pressed() {
            pause(WAIT_MS);
        }
        !self.interrupts.is_pressed()
    }
}

/// Says when a row is shown as lines.
fn expanded_text_of(format: OutputFormat) -> &'static str {
    match format {
        OutputFormat::Expanded => "on",
        OutputFormat::Auto => "on for tables wider than the screen",
        _ => "off",
    }
}

/// Returns the rows whose name, in a column, fits a pattern.
fn with_names(output: Output, column: usize, pattern: &str) -> Output {
    let names = table_text(&output, usize::MAX).rows;
    let mut is_wanted = names.iter().map(|row| {
        let name = row.get(column).and_then(Option::as_deref);
        name.is_some_and(|name| fits(name, pattern))
    });
    let batches = output.batches.iter().map(|batch| {
        let wanted: BooleanArray = is_wanted.by_ref().take(batch.num_rows()).map(Some).collect();
        filter_record_batch(batch, &wanted).expect("each row has its mark")
    });
    let batches: Vec<RecordBatch> = batches.collect();
    debug_assert_eq!(batches.len(), output.batches.len(), "each batch has its rows that fit");
    Output { batches, ..output }
}
