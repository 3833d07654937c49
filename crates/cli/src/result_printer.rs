//! Prints what statements return: rows to the standard output, or to a file; notes, times, warnings and
//! errors to the standard error.
//!
//! Called by the shell. Knows the format of results, the size of the terminal and the pager, and nothing
//! of sessions.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    path::Path,
};

use lockstep_engine::Output;
use lockstep_host::disk;

use crate::{
    output_format::{OutputFormat, rows_text},
    pager,
    screen::Screen,
    switch::Switch,
};

/// Where and how the shell prints.
pub(crate) struct ResultPrinter {
    pub(crate) out: Box<dyn Write>,
    pub(crate) err: Box<dyn Write>,
    /// The file that results go to instead of the output.
    file: Option<File>,
    /// Returns the size of the terminal that the output is; `None` where it is none.
    screen: fn() -> Option<Screen>,
    pub(crate) format: OutputFormat,
    pub(crate) timing: Switch,
    pub(crate) pager: Switch,
    /// Whether there are no notes.
    pub(crate) quiet: Switch,
}

impl fmt::Debug for ResultPrinter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultPrinter").field("format", &self.format).finish_non_exhaustive()
    }
}

impl ResultPrinter {
    pub(crate) fn new(out: Box<dyn Write>, err: Box<dyn Write>) -> Self {
        Self {
            out,
            err,
            file: None,
            screen: || None,
            format: OutputFormat::Table,
            timing: Switch::Off,
            pager: Switch::On,
            quiet: Switch::Off,
        }
    }

    /// Sets how the size of the terminal is found.
    pub(crate) fn with_screen(self, screen: fn() -> Option<Screen>) -> Self {
        Self { screen, ..self }
    }

    /// Prints what a statement returned.
    pub(crate) fn output(&mut self, output: &Output) -> io::Result<()> {
        if !output.columns.is_empty() {
            let columns_max = self.screen().map(|screen| screen.columns);
            let text = self.format.text(output, columns_max);
            return self.result(&text);
        }
        let message = output.message.as_deref().unwrap_or("OK");
        match output.rows_affected {
            Some(rows) => self.note(&format!("{message} ({})", rows_text_of(rows))),
            None => self.note(message),
        }
    }

    /// Prints a result, whose lines end: in the pager where it is longer than the screen.
    pub(crate) fn result(&mut self, text: &str) -> io::Result<()> {
        debug_assert!(text.is_empty() || text.ends_with('\n'), "lines end");
        if let Some(file) = &mut self.file {
            return file.write_all(text.as_bytes());
        }
        let is_long = self.screen().is_some_and(|screen| text.lines().count() >= screen.rows);
        if is_long && self.pager.is_on() {
            self.out.flush()?;
            if pager::show(text)? {
                return Ok(());
            }
        }
        self.out.write_all(text.as_bytes())
    }

    /// Prints a note, which is not part of a result.
    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        if self.quiet.is_on() {
            return Ok(());
        }
        self.error(text)
    }

    /// Prints an error or a warning.
    pub(crate) fn error(&mut self, text: &str) -> io::Result<()> {
        debug_assert!(!text.is_empty(), "there is something to say");
        // What was printed before it stands before it.
        self.out.flush()?;
        writeln!(self.err, "{text}")
    }

    /// Says how long a statement took, if that is wanted.
    pub(crate) fn time(&mut self, elapsed_ns: u64) -> io::Result<()> {
        if !self.timing.is_on() {
            return Ok(());
        }
        self.error(&format!("Time: {}", duration_text(elapsed_ns)))
    }

    /// Writes results to a file, which is created or emptied; `None`: to the output again.
    pub(crate) fn redirect(&mut self, path: Option<&str>) -> io::Result<()> {
        debug_assert!(path.is_none_or(|path| !path.is_empty()), "a file has a name");
        self.file = path.map(|path| disk::create(Path::new(path))).transpose()?;
        Ok(())
    }

    /// Returns the size of the terminal that results go to.
    fn screen(&self) -> Option<Screen> {
        if self.file.is_some() { None } else { (self.screen)() }
    }
}

fn rows_text_of(rows: u64) -> String {
    usize::try_from(rows).map_or_else(|_| format!("{rows} rows"), rows_text)
}

fn duration_text(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}.{} ms", ns / 1_000_000, ns / 100_000 % 10),
        _ => format!("{}.{:02} s", ns / 1_000_000_000, ns / 10_000_000 % 100),
    }
}

#[cfg(test)]
mod tests {
    use super::duration_text;

    #[test]
    fn durations_are_short() {
        assert_eq!(duration_text(12_345), "12 µs");
        assert_eq!(duration_text(12_345_678), "12.3 ms");
        assert_eq!(duration_text(12_345_678_901), "12.34 s");
    }
}
