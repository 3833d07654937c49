//! Opening the database of a run of the shell: in memory, or in a directory, which says what it does.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::mpsc,
};

use lockstep_client::ServerAddress;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::{Database, OpenListener, OpenOptions, OpenProgress, Opened, guarded};

/// The directory of a database, or the address of a server, as the arguments name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatabaseTarget {
    pub(crate) path: PathBuf,
    pub(crate) read_only: bool,
}

/// From which duration on opening is reported.
const REPORTED_MS: u64 = 500;

impl DatabaseTarget {
    /// Returns the address, where the target is that of a server.
    pub(crate) fn server(&self) -> Option<&str> {
        self.path.to_str().filter(|text| ServerAddress::is_address(text))
    }

    /// Opens the database. Writes to `err` what it does if that takes a while, and what was cut.
    pub(crate) fn open(&self, err: &mut dyn Write) -> io::Result<Result<Database>> {
        let (sender, receiver) = mpsc::channel();
        let tell = move |progress| {
            // Somebody listens until the end.
            let _sent = sender.send(progress);
        };
        let options = OpenOptions {
            read_only: self.read_only,
            listener: Some(OpenListener::new(tell)),
            ..OpenOptions::default()
        };
        let path = self.path.clone();
        // On a thread of its own: this one prints meanwhile.
        let opening =
            lockstep_host::spawn("open", move || guarded(|| Database::open_with(&path, &options)))?;
        while let Ok(progress) = receiver.recv() {
            writeln!(err, "opening {}: {}", self.path.display(), progress_text(progress))?;
        }
        let panicked =
            |_| Diagnostic::new(code::INTERNAL_ERROR, "could not open the database").err();
        let opened = opening.join().unwrap_or_else(panicked);
        if let Some(opened) = opened.as_ref().ok().and_then(Database::opened) {
            self.report(opened, err)?;
        }
        Ok(opened)
    }

    /// Writes what opening has done, where that is worth a line.
    fn report(&self, opened: &Opened, err: &mut dyn Write) -> io::Result<()> {
        let Opened { rows, milliseconds, cut } = opened;
        if *milliseconds >= REPORTED_MS {
            let (rows, milliseconds) = (*rows, *milliseconds);
            let progress = OpenProgress { rows, milliseconds, milliseconds_left: None };
            writeln!(err, "opened {}: {}", self.path.display(), progress_text(progress))?;
        }
        if let Some(cut) = cut {
            let (bytes, file) = (cut.bytes, cut.file.display());
            writeln!(
                err,
                "removed {bytes} bytes of an incomplete write from the end of {file}; the write was \
                 in progress when the database was last open"
            )?;
        }
        Ok(())
    }
}

/// Names the database of a prompt.
pub(crate) fn banner_text(target: Option<&DatabaseTarget>, database: &Database) -> String {
    debug_assert_eq!(target.is_some(), database.opened().is_some(), "a directory was opened");
    let (Some(target), Some(opened)) = (target, database.opened()) else {
        return "in memory".to_owned();
    };
    let Opened { rows, milliseconds, .. } = opened;
    let read_only = if target.read_only { ", read only" } else { "" };
    format!("{}{read_only}: {} in {milliseconds} ms", target.path.display(), rows_text(*rows))
}

fn progress_text(progress: OpenProgress) -> String {
    let OpenProgress { rows, milliseconds, milliseconds_left } = progress;
    let rows_per_second = rows * 1_000 / milliseconds.max(1);
    let (seconds, hundredths) = (milliseconds / 1_000, milliseconds % 1_000 / 10);
    debug_assert!(hundredths < 100, "they are less than a second");
    let rows = rows_text(rows);
    let left = milliseconds_left
        .map_or(String::new(), |left_ms| format!(", about {} s left", left_ms.div_ceil(1_000)));
    format!("{rows} in {seconds}.{hundredths:02} s, {rows_per_second} rows/s{left}")
}

fn rows_text(rows: u64) -> String {
    format!("{rows} {}", if rows == 1 { "row" } else { "rows" })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use lockstep_engine::{OpenProgress, Opened};

    use super::{DatabaseTarget, progress_text};

    #[test]
    fn what_took_long_is_reported() {
        let progress =
            OpenProgress { rows: 5_000_000, milliseconds: 1_250, milliseconds_left: None };
        assert_eq!(progress_text(progress), "5000000 rows in 1.25 s, 4000000 rows/s");
        let progress = OpenProgress { milliseconds_left: Some(2_001), ..progress };
        let expected = "5000000 rows in 1.25 s, 4000000 rows/s, about 3 s left";
        assert_eq!(progress_text(progress), expected);
        let target = DatabaseTarget { path: PathBuf::from("db"), read_only: false };
        let report = |rows, milliseconds| {
            let mut lines = Vec::new();
            target.report(&Opened { rows, milliseconds, cut: None }, &mut lines).unwrap();
            String::from_utf8(lines).unwrap()
        };
        assert_eq!(report(1, 499), "");
        assert_eq!(report(1, 500), "opened db: 1 row in 0.50 s, 2 rows/s\n");
    }
}
