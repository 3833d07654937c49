//! The client of a Lockstep server: what the shell and Python use for `lockstep://host:port`.
