//! The project's one entry point for its own chores: checks, tests, conformance.
//!
//! `cargo xtask` runs it, CI runs nothing else. Sees every crate, and nothing depends on it.
//!
//! | module | what |
//! |---|---|
//! | [`tidy`] | rules about the source that no lint checks |
//! | [`gates`] | format, lint, test: cargo with the right arguments |
//! | [`fuzz`] | texts that are not SQL, for as long as one likes |
//! | [`messages`] | messages that no golden test sees |
//! | [`reference`] | the reference pages, from the declarations of functions |
//! | [`conformance`] | the public test cases of OpenMLDB, run against the engine |

pub mod conformance;
pub mod fuzz;
pub mod gates;
pub mod messages;
pub mod reference;
mod source;
pub mod tidy;

use std::path::{Path, PathBuf};

/// The root of the workspace, asked at run time: a target directory may be shared by several clones.
pub fn workspace_dir() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from("crates/xtask"), PathBuf::from);
    here.ancestors().nth(2).map_or_else(|| PathBuf::from("."), Path::to_owned)
}
