//! A server that listens on a port of this machine, and clients that call it.
#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]
#![expect(clippy::float_cmp, reason = "answers have exact bits")]

mod access;
mod attack;
mod dashboard;
mod http;
mod limits;
mod openapi;
mod openmldb;
mod postgres;
mod postgres_catalog;
mod postgres_client;
mod postgres_dialect;
mod postgres_extended;
mod postgres_frames;
mod postgres_traces;
mod restful;
mod slow_disk;
mod support;
mod tls;
mod traces;
