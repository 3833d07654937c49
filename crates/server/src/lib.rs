//! The server: protocols in front of the engine.
