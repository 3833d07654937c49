//! The tasks of the project: checks, tests, conformance, generated pages.
//!
//! `cargo xtask` runs it, and CI runs nothing else. May depend on every crate; no crate depends on
//! it.
//!
//! | module | what |
//! |---|---|
//! | [`tidy`] | rules about the source that no lint checks |
//! | [`gates`] | format, lint, test: cargo with the right arguments |
//! | [`test_programs`] | every test program, several at a time |
//! | [`fuzz`] | fuzzing for a given time |
//! | [`messages`] | messages that no golden test sees |
//! | [`reference`] | the reference pages, from the declarations of functions, statements and types |
//! | [`conformance`] | the public test cases of OpenMLDB, run against the engine |

pub mod conformance;
pub mod fuzz;
pub mod gates;
pub mod messages;
pub mod reference;
pub mod sim;
mod source;
pub mod test_programs;
pub mod tidy;

use std::path::{Path, PathBuf};

/// Returns the root of the workspace, found at run time since several clones may share a target
/// directory.
pub fn workspace_dir() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from("crates/xtask"), PathBuf::from);
    here.ancestors().nth(2).map_or_else(|| PathBuf::from("."), Path::to_owned)
}
