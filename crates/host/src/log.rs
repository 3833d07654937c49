//! Lines for whoever runs the engine: what a person should know although nobody asked.
//!
//! Rare by design: an event, not a trace. Lines go to the standard error output unless a door has
//! said where else.

use crate::sync::RwLock;

/// Where lines go.
type Sink = Box<dyn Fn(&str) + Send + Sync>;

static SINK: RwLock<Option<Sink>> = RwLock::new(None);

/// Says where lines go from now on.
pub fn set_sink(sink: impl Fn(&str) + Send + Sync + 'static) {
    *SINK.write() = Some(Box::new(sink));
}

/// Writes a line about something that a person should look at.
#[expect(clippy::print_stderr, reason = "this is where lines go when nobody says otherwise")]
pub fn warn(line: &str) {
    match &*SINK.read() {
        Some(sink) => sink(line),
        None => eprintln!("lockstep: warning: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::sync::Mutex;

    #[test]
    fn lines_go_where_a_door_said() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        super::set_sink(move |line| sink.lock().push(line.to_owned()));
        super::warn("close");
        assert_eq!(*lines.lock(), ["close"]);
    }
}
