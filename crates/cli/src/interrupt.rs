//! Ctrl-C: cancels the statement that runs, and does not end the shell with its tables.
//!
//! Each statement runs in a context that polls for Ctrl-C. In a script, which has no tables to
//! lose, a second Ctrl-C ends the process at once.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lockstep_host::{QueryContext, SystemClock};
use signal_hook::{consts::SIGINT, flag};

use crate::progress_line::ProgressLine;

/// How often a statement checks whether Ctrl-C was pressed.
const POLL_INTERVAL_MS: u32 = 20;

/// The exit code of a program that Ctrl-C ended, by convention of the system's shells.
pub(crate) const EXIT_CODE: i32 = 130;

/// The effect of Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CtrlCEffect {
    /// Cancels the statement.
    Cancel,
    /// Cancels the statement; pressed again, ends the process.
    CancelThenExit,
}

/// Whether Ctrl-C was pressed.
#[derive(Clone, Default)]
pub(crate) struct Interrupts {
    pressed: Arc<AtomicBool>,
}

impl Interrupts {
    /// Installs the signal handler; without it, the signal ends the process. To be called once.
    pub(crate) fn listen(&self, effect: CtrlCEffect) -> io::Result<()> {
        if effect == CtrlCEffect::CancelThenExit {
            // In this order: this handler reads the flag that an earlier signal has set.
            flag::register_conditional_shutdown(SIGINT, EXIT_CODE, Arc::clone(&self.pressed))?;
        }
        flag::register(SIGINT, Arc::clone(&self.pressed)).map(|_| ())
    }

    /// Whether Ctrl-C was pressed since the last [`Self::reset`].
    pub(crate) fn is_pressed(&self) -> bool {
        // Relaxed: the flag orders no other access.
        self.pressed.load(Ordering::Relaxed)
    }

    /// Clears the flag.
    pub(crate) fn reset(&self) {
        // Relaxed: as above.
        self.pressed.store(false, Ordering::Relaxed);
    }

    /// Makes a context that is cancelled when Ctrl-C is pressed, and that draws a line meanwhile.
    pub(crate) fn context(&self, line: Option<&Arc<ProgressLine>>) -> QueryContext {
        let interrupts = self.clone();
        let clock = Arc::new(SystemClock::new());
        let Some(line) = line.map(Arc::clone) else {
            return QueryContext::polling(clock, POLL_INTERVAL_MS, move || interrupts.is_pressed());
        };
        let progress = line.progress();
        let poll = move || {
            line.draw();
            interrupts.is_pressed()
        };
        QueryContext::polling(clock, POLL_INTERVAL_MS, poll).watched(progress)
    }
}

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupts").field("is_pressed", &self.is_pressed()).finish()
    }
}
