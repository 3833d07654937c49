//! The client against a server that listens on a port of this machine.
#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

mod calls;
mod cancel;
mod login;
mod support;
mod traces;
