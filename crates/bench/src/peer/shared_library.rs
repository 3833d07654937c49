//! A shared library that is loaded when it is there: DuckDB's and SQLite's.

use std::{
    ffi::{CString, c_void},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// A loaded library, which stays loaded until the process ends.
#[derive(Debug)]
pub(super) struct SharedLibrary {
    system: &'static str,
    path: PathBuf,
    handle: *mut c_void,
}

impl SharedLibrary {
    /// Loads the library of this path.
    pub(super) fn load(system: &'static str, path: &Path) -> Result<Self> {
        let missing = |message: String| Error::Missing { system, message };
        if !path.exists() {
            return Err(missing(format!("{} not found", path.display())));
        }
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path has no zero bytes");
        // SAFETY: loading runs the library's initializers, which need nothing of the process.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(missing(format!("cannot load {}", path.display())));
        }
        Ok(Self { system, path: path.to_owned(), handle })
    }

    /// Returns the address of a function.
    pub(super) fn symbol(&self, name: &str) -> Result<*mut c_void> {
        let c_name = CString::new(name).expect("a name has no zero bytes");
        // SAFETY: the library is loaded and the name ends with a zero byte.
        let found = unsafe { libc::dlsym(self.handle, c_name.as_ptr()) };
        if found.is_null() {
            let message = format!("{} has no function {name}", self.path.display());
            return Err(Error::Missing { system: self.system, message });
        }
        Ok(found)
    }
}
