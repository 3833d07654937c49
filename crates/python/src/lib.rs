//! The native half of the Python package: sessions, results and requests as Python objects.
//!
//! A session is with an engine in the process or with a server (`backend`).
//!
//! `python/lockstep/` is the public interface and the only caller; it renders and documents
//! results, and converts data frames to Arrow. This crate converts Python values to rows and back,
//! releases the interpreter while the engine works, and turns diagnostics into exceptions. Holds no
//! logic of the database. Tested from Python, in `python/tests`.

mod arrow_input;
mod backend;
mod batches;
mod call;
mod error;
mod from_python;
mod interrupt;
mod latency;
mod output;
mod prepared;
mod progress;
mod rows;
mod session;
mod to_python;

use pyo3::prelude::*;

#[pymodule]
#[pyo3(name = "_lockstep")]
fn native_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<session::PySession>()?;
    module.add_class::<session::PyRelation>()?;
    module.add_class::<output::PyOutput>()?;
    module.add_class::<prepared::PyPrepared>()?;
    module.add_class::<progress::PyProgress>()?;
    module.add_class::<batches::PyBatches>()?;
    module.add_function(wrap_pyfunction!(interrupt::interrupt, module)?)?;
    module.add_function(wrap_pyfunction!(outline, module)?)?;
    module.add_function(wrap_pyfunction!(main_with, module)?)
}

/// Returns the parts of a query as JSON, for `lockstep.spark`.
#[pyfunction]
fn outline(py: Python<'_>, sql: &str) -> PyResult<String> {
    lockstep_engine::outline(sql).map_err(|error| error::raise(py, &error, Some(sql)))
}

/// Runs the shell with these arguments and returns its exit code.
#[pyfunction]
fn main_with(py: Python<'_>, args: Vec<String>) -> i32 {
    py.detach(|| lockstep_cli::main_with(args))
}
