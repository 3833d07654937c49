//! What goes wrong inside the server while it answers: panics, and what it logs as errors.

use std::fmt::{Debug, Write};

use lockstep_host::sync::Mutex;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// What was seen since it was last taken.
pub(super) static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps what the process logs as errors from now on. A second call changes nothing.
pub(super) fn keep() {
    // It fails where it was done before.
    let _kept = tracing::subscriber::set_global_default(ErrorKeeper);
}

/// Keeps the texts of errors.
struct ErrorKeeper;

impl Subscriber for ErrorKeeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText(String::from("logged:"));
        event.record(&mut text);
        SEEN.lock().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The fields of an event as text.
struct EventText(String);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // The id of a request differs each time.
        if field.name() != "request_id" {
            write!(self.0, " {}={value:?}", field.name()).expect("writing to memory does not fail");
        }
    }
}
