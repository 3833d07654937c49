//! Ctrl-C: ends the statement that runs, and not the shell with all its tables.
//!
//! The shell asks here for the context of each statement. A script has no tables to lose: a second
//! Ctrl-C ends the process, whatever the statement is at.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lockstep_host::{QueryContext, SystemClock};
use signal_hook::{consts::SIGINT, flag};

/// How often a statement asks whether Ctrl-C was pressed.
const POLL_INTERVAL_MS: u32 = 20;

/// The exit code of a program that Ctrl-C ended, by convention of the system's shells.
pub(crate) const EXIT_CODE: i32 = 130;

/// What a Ctrl-C does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressing {
    /// It cancels the statement.
    Cancels,
    /// It cancels the statement; pressed again, it ends the process.
    CancelsThenEnds,
}

/// Whether Ctrl-C was pressed.
#[derive(Clone, Default)]
pub(crate) struct Interrupts {
    pressed: Arc<AtomicBool>,
}

impl Interrupts {
    /// Takes the signal from now on; before, it ends the process. To be called once.
    pub(crate) fn listen(&self, pressing: Pressing) -> io::Result<()> {
        if pressing == Pressing::CancelsThenEnds {
            // In this order: it looks at what earlier signals have set.
            flag::register_conditional_shutdown(SIGINT, EXIT_CODE, Arc::clone(&self.pressed))?;
        }
        flag::register(SIGINT, Arc::clone(&self.pressed)).map(|_| ())
    }

    /// Whether it was pressed since it was last forgotten.
    pub(crate) fn is_pressed(&self) -> bool {
        // Relaxed: a flag that stands for nothing else.
        self.pressed.load(Ordering::Relaxed)
    }

    /// Forgets that it was pressed.
    pub(crate) fn forget(&self) {
        // Relaxed: as above.
        self.pressed.store(false, Ordering::Relaxed);
    }

    /// A context that is cancelled when it is pressed.
    pub(crate) fn context(&self) -> QueryContext {
        let interrupts = self.clone();
        let clock = Arc::new(SystemClock::new());
        QueryContext::polling(clock, POLL_INTERVAL_MS, move || interrupts.is_pressed())
    }
}

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupts").field("is_pressed", &self.is_pressed()).finish()
    }
}
