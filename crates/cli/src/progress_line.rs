//! The line that says how far a statement is, from two seconds on.
//!
//! Drawn on the terminal that is the standard error, by the statement's own poll function
//! ([`crate::interrupt`]), and removed when the statement ends. The shell makes one for each statement.
//! Costs nothing where nobody looks.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    sync::Arc,
};

use lockstep_host::{CallProgress, CallStep, Clock, SystemClock, sync::Mutex};

/// A statement that takes less shows nothing.
const SHOWN_NS: u64 = 2_000_000_000;
/// How often the line is drawn.
const PERIOD_NS: u64 = 200_000_000;
/// Removes a line.
const CLEAR: &str = "\r\x1b[K";
/// The length of a line, which a terminal does not break.
const LINE_CHARS: usize = 79;
const BAR_CHARS: usize = 10;
/// What a line takes of a statement: its first words, none of which is a password.
const WORDS: usize = 3;
const WORDS_CHARS: usize = 24;
/// What is looked at of a statement, which may be a large script of rows.
const BEGIN_CHARS: usize = 200;

/// Writes to the terminal that a user looks at.
pub(crate) type ProgressTerminal = Arc<dyn Fn(&str) + Send + Sync>;

/// Returns the standard error where it is a terminal, and the variable `LOCKSTEP_PROGRESS` is not `off`.
pub(crate) fn of_stderr() -> Option<ProgressTerminal> {
    #[expect(clippy::disallowed_methods, reason = "the user's own way to be shown nothing")]
    let is_off = std::env::var("LOCKSTEP_PROGRESS").is_ok_and(|value| value == "off");
    (!is_off && io::stderr().is_terminal()).then(|| -> ProgressTerminal {
        Arc::new(|text| {
            let mut terminal = io::stderr().lock();
            // A terminal that was closed shows nothing.
            let _written = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
        })
    })
}

/// The line of one statement.
pub(crate) struct ProgressLine {
    terminal: ProgressTerminal,
    progress: Arc<CallProgress>,
    clock: Arc<dyn Clock>,
    /// The first words of the statement.
    words: String,
    start_ns: u64,
    drawing: Mutex<LineState>,
}

/// What was drawn.
#[derive(Debug, Default)]
struct LineState {
    is_shown: bool,
    next_ns: u64,
    /// The step that was seen last, and when it was seen first.
    step: Option<(CallStep, u64)>,
}

impl fmt::Debug for ProgressLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressLine").field("words", &self.words).finish_non_exhaustive()
    }
}

impl ProgressLine {
    /// Makes the line of a statement that begins now.
    pub(crate) fn new(terminal: ProgressTerminal, statement: &str) -> Self {
        Self::with_clock(terminal, statement, Arc::new(SystemClock::new()))
    }

    fn with_clock(terminal: ProgressTerminal, statement: &str, clock: Arc<dyn Clock>) -> Self {
        let begin: String = statement.chars().take(BEGIN_CHARS).collect();
        let words: Vec<&str> = begin.split_whitespace().take(WORDS).collect();
        let start_ns = clock.monotonic_ns();
        let (progress, drawing) = (Arc::default(), Mutex::default());
        Self { terminal, progress, clock, words: shortened(&words.join(" ")), start_ns, drawing }
    }

    /// Returns what the statement reports to.
    pub(crate) fn progress(&self) -> Arc<CallProgress> {
        Arc::clone(&self.progress)
    }

    /// Draws the line, if it is time to.
    pub(crate) fn draw(&self) {
        let now_ns = self.clock.monotonic_ns();
        let mut drawing = self.drawing.lock();
        if now_ns < drawing.next_ns {
            return;
        }
        drawing.next_ns = now_ns + PERIOD_NS;
        let found = self.progress.get();
        if drawing.step.map(|(step, _)| step) != found.map(|(step, _)| step) {
            drawing.step = found.map(|(step, _)| (step, now_ns));
        }
        let taken_ns = now_ns - self.start_ns;
        if taken_ns < SHOWN_NS {
            return;
        }
        drawing.is_shown = true;
        let step_ns = drawing.step.map_or(0, |(_, since_ns)| now_ns - since_ns);
        let line = self.text(taken_ns, found.map(|(step, part)| (step, part, step_ns)));
        (self.terminal)(&format!("\r{line}\x1b[K"));
    }

    /// Removes the line.
    pub(crate) fn end(&self) {
        let mut drawing = self.drawing.lock();
        drawing.next_ns = u64::MAX;
        if std::mem::take(&mut drawing.is_shown) {
            (self.terminal)(CLEAR);
        }
    }

    /// Returns the line: of a step with its part that is done and how long it has taken.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers for a reader"
    )]
    fn text(&self, taken_ns: u64, step: Option<(CallStep, f64, u64)>) -> String {
        let (words, taken_s) = (&self.words, taken_ns / 1_000_000_000);
        let Some((step, part, step_ns)) = step else { return format!("{words}: {taken_s} s") };
        debug_assert!((0.0..=1.0).contains(&part), "{part} is a part");
        let filled = (part * BAR_CHARS as f64).round() as usize;
        let bar = ["█".repeat(filled), "░".repeat(BAR_CHARS - filled)].concat();
        let left_s = (step_ns as f64 / 1e9 * (1.0 - part) / part).ceil();
        let left = match part > 0.01 && part < 1.0 && step_ns >= PERIOD_NS {
            true => format!(", about {left_s} s left"),
            false => String::new(),
        };
        let (step, percent) = (step.text(), (part * 100.0).floor());
        let line = format!("{words}: {step} {percent:3}% {bar} {taken_s} s{left}");
        line.chars().take(LINE_CHARS).collect()
    }
}

fn shortened(words: &str) -> String {
    match words.chars().count() > WORDS_CHARS {
        true => words.chars().take(WORDS_CHARS - 1).chain(['…']).collect(),
        false => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_host::{CallStep, Clock, ManualClock, sync::Mutex};

    use super::{ProgressLine, ProgressTerminal, shortened};

    /// A line on a terminal that a test reads, at a clock that a test sets.
    fn line(statement: &str) -> (ProgressLine, Arc<ManualClock>, Arc<Mutex<String>>) {
        let (clock, shown) = (Arc::new(ManualClock::new(0)), Arc::new(Mutex::new(String::new())));
        let written = Arc::clone(&shown);
        let terminal: ProgressTerminal = Arc::new(move |text| written.lock().push_str(text));
        let line =
            ProgressLine::with_clock(terminal, statement, Arc::clone(&clock) as Arc<dyn Clock>);
        (line, clock, shown)
    }

    #[test]
    fn a_statement_is_shown_from_two_seconds_on_until_its_end() {
        let (line, clock, shown) = line("SELECT 1\n+ 1");
        line.draw();
        clock.advance_ms(1_999);
        line.draw();
        assert_eq!(*shown.lock(), "");
        clock.advance_ms(201);
        line.draw();
        assert_eq!(*shown.lock(), "\rSELECT 1 +: 2 s\x1b[K");
        line.draw();
        assert_eq!(shown.lock().len(), 18 + 1, "it is drawn five times a second");
        line.end();
        line.draw();
        assert_eq!(*shown.lock(), "\rSELECT 1 +: 2 s\x1b[K\r\x1b[K");
    }

    #[test]
    fn a_short_statement_leaves_nothing() {
        let (line, clock, shown) = line("SELECT 1");
        clock.advance_ms(1_000);
        line.draw();
        line.end();
        assert_eq!(*shown.lock(), "");
    }

    #[test]
    fn a_step_is_shown_with_its_part_and_its_own_time() {
        let (line, clock, shown) = line("LOAD DATA INFILE 'x'");
        line.draw();
        clock.advance_ms(10_000);
        line.progress().set(CallStep::ReadFiles, 0, 4);
        line.draw();
        let expected = "\rLOAD DATA INFILE: reading files   0% ░░░░░░░░░░ 10 s\x1b[K";
        assert_eq!(*shown.lock(), expected);
        shown.lock().clear();
        clock.advance_ms(3_000);
        line.progress().set(CallStep::ReadFiles, 1, 4);
        line.draw();
        let expected =
            "\rLOAD DATA INFILE: reading files  25% ███░░░░░░░ 13 s, about 9 s left\x1b[K";
        assert_eq!(*shown.lock(), expected);
    }

    #[test]
    fn a_line_fits_a_terminal_and_names_no_password() {
        let statement = "CREATE USER ann IDENTIFIED BY 'hush'";
        let (line, clock, shown) = line(statement);
        line.progress().set(CallStep::BuildIndex, 1, 1_000);
        clock.advance_ms(900_000_000);
        line.draw();
        clock.advance_ms(900_000_000);
        line.progress().set(CallStep::BuildIndex, 20, 1_000);
        line.draw();
        assert!(!shown.lock().contains("hush"));
        let longest = shown.lock().split("\x1b[K").map(|line| line.chars().count()).max();
        assert_eq!(longest, Some(80), "a return and 79 characters");
        assert_eq!(shortened(&"x".repeat(25)), format!("{}…", "x".repeat(23)));
        assert_eq!(shortened(&"x".repeat(24)), "x".repeat(24));
    }
}
