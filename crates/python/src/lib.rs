//! The native half of the Python package: sessions, results and requests as Python objects.
//!
//! `python/lockstep/` is the surface that users see and the only caller; it renders, documents and
//! brings data frames into Arrow. Here Python values become rows and back, the interpreter is
//! released while the engine works, and diagnostics become exceptions. Holds no logic of the
//! database. Tested from Python, in `python/tests`.

mod call;
mod error;
mod from_python;
mod output;
mod pace;
mod prepared;
mod rows;
mod session;
mod to_python;

use pyo3::prelude::*;

#[pymodule]
#[pyo3(name = "_lockstep")]
fn native_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::Relation>()?;
    module.add_class::<output::Output>()?;
    module.add_class::<prepared::Prepared>()?;
    module.add_function(wrap_pyfunction!(main_with, module)?)
}

/// Runs the shell with these arguments and returns its exit code.
#[pyfunction]
fn main_with(py: Python<'_>, args: Vec<String>) -> i32 {
    py.detach(|| lockstep_cli::main_with(args))
}
