//! The size of the terminal that the output goes to.

use rustyline::{Editor, history::MemHistory};

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Screen {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Screen {
    /// Returns the size of the terminal that is the standard output; `None` where it is none. It is read
    /// each time, since a window changes its size.
    pub(crate) fn of_stdout() -> Option<Self> {
        let config = rustyline::Config::default();
        let mut editor = Editor::<(), _>::with_history(config, MemHistory::new()).ok()?;
        let (columns, rows) = editor.dimensions()?;
        debug_assert!(columns > 0, "a terminal without a width has a usual one");
        Some(Self { columns: columns.into(), rows: rows.into() })
    }
}
