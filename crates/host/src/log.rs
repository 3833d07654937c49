//! Warnings to the person who operates the engine.
//!
//! Rare by design: an event, not a trace. Lines are written to the standard error output unless a front
//! end has set another sink.

use std::io::{self, Write};

use crate::sync::RwLock;

/// The function that writes a line.
type LogSink = Box<dyn Fn(&str) + Send + Sync>;

static SINK: RwLock<Option<LogSink>> = RwLock::new(None);

/// Sets the function that writes lines from now on.
pub fn set_sink(sink: impl Fn(&str) + Send + Sync + 'static) {
    *SINK.write() = Some(Box::new(sink));
}

/// Writes a line about something that the operator should look at.
pub fn warn(line: &str) {
    match &*SINK.read() {
        Some(sink) => sink(line),
        // A warning that cannot be written must not end what warns.
        None => drop(writeln!(io::stderr(), "lockstep: warning: {line}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::sync::Mutex;

    #[test]
    fn lines_are_written_to_the_sink() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        super::set_sink(move |line| sink.lock().push(line.to_owned()));
        super::warn("close");
        assert_eq!(*lines.lock(), ["close"]);
    }
}
