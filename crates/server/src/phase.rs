//! The life of a server: it serves, says that it will end, closes its listeners and connections, and
//! cancels what is left. Knows no protocol; every connection watches it.

use std::time::Duration;

use tokio::sync::watch;

/// How long clients whose calls were cancelled may take to read that, before their connections end.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// How far a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It serves.
    Serving,
    /// It still accepts connections, and tells load balancers that it will not.
    Leaving,
    /// It accepts no connection; those that are open end after their current request.
    Draining,
    /// What still runs is cancelled, and its clients are told.
    Stopping,
}

/// The phase of a server, which only moves on.
#[derive(Debug)]
pub(crate) struct PhaseState {
    sender: watch::Sender<Phase>,
}

impl PhaseState {
    /// Makes the state of a server that serves.
    pub(crate) fn new() -> Self {
        Self { sender: watch::Sender::new(Phase::Serving) }
    }

    /// Returns the phase.
    pub(crate) fn get(&self) -> Phase {
        *self.sender.borrow()
    }

    /// Moves on to a phase. Returns whether it is a later one.
    pub(crate) fn advance(&self, to: Phase) -> bool {
        self.sender.send_if_modified(|phase| {
            let is_later = to > *phase;
            if is_later {
                *phase = to;
            }
            is_later
        })
    }

    /// Waits until the phase is this one or a later one.
    pub(crate) async fn reached(&self, wanted: Phase) {
        let mut receiver = self.sender.subscribe();
        // `self` has the sender.
        let _reached = receiver.wait_for(|phase| *phase >= wanted).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{Phase, PhaseState};

    #[test]
    fn a_phase_only_moves_on() {
        let state = PhaseState::new();
        assert_eq!(state.get(), Phase::Serving);
        assert!(state.advance(Phase::Draining));
        assert!(!state.advance(Phase::Leaving));
        assert!(!state.advance(Phase::Draining));
        assert_eq!(state.get(), Phase::Draining);
    }
}
