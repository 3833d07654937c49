//! Diagnostics as the Python exception `lockstep.Error`.

use std::ffi::CString;

use lockstep_diagnostic::{Diagnostic, Kind};
use pyo3::{
    exceptions::PyException,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyType},
};

/// Makes the exception of a diagnostic.
pub(crate) fn raise(py: Python<'_>, diagnostic: &Diagnostic, text: Option<&str>) -> PyErr {
    match exception(py, diagnostic, text) {
        Ok(error) | Err(error) => error,
    }
}

fn exception(py: Python<'_>, diagnostic: &Diagnostic, text: Option<&str>) -> PyResult<PyErr> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(py, "lockstep._error", "Error")?;
    let fields = PyDict::new(py);
    fields.set_item("code", diagnostic.code)?;
    fields.set_item("kind", kind_name(diagnostic.kind))?;
    fields.set_item("detail", &diagnostic.detail)?;
    fields.set_item("hint", &diagnostic.hint)?;
    let position =
        diagnostic.span.zip(text).map(|(span, text)| characters_before(text, span.start));
    fields.set_item("position", position)?;
    let shown = text.map(lockstep_engine::masked);
    fields.set_item("rendered", diagnostic.render(shown.as_deref()))?;
    let error = class.call((&diagnostic.message,), Some(&fields))?;
    debug_assert!(error.is_instance_of::<PyException>());
    Ok(PyErr::from_value(error))
}

/// Renders a warning: as an error, except for the first word.
pub(crate) fn warning_text(warning: &Diagnostic, text: &str) -> String {
    warning.render(Some(&lockstep_engine::masked(text))).replacen("error[", "warning[", 1)
}

/// Shows a warning of Python at the caller of the package; raises it where a filter makes it an error.
pub(crate) fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(py, "lockstep._error", "LockstepWarning")?;
    let text = CString::new(text.replace('\0', " ")).expect("it has no zero byte");
    PyErr::warn(py, class, &text, 2)
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::FixRequest => "fix request",
        Kind::FixData => "fix data",
        Kind::FreeResources => "free resources",
        Kind::Retry => "retry",
        Kind::PrepareAgain => "prepare again",
        Kind::ReportBug => "report bug",
    }
}

/// Converts a position in bytes to one in characters.
fn characters_before(text: &str, byte: usize) -> usize {
    text.char_indices().take_while(|(at, _)| *at < byte).count()
}
