//! The functions of SQLite's C interface that the benchmarks call, loaded from its shared library.

use std::{
    ffi::{c_char, c_int, c_void},
    path::Path,
    ptr,
};

use super::NAME;
use crate::{error::Result, peer::shared_library::SharedLibrary};

type SqliteHandle = *mut c_void;

/// The destructor of text that its owner keeps until the statement has run (`SQLITE_STATIC`).
pub(super) const STATIC: SqliteHandle = ptr::null_mut();
/// Where nobody wants to know what follows the first statement.
pub(super) const NO_TAIL: *mut *const c_char = ptr::null_mut();

macro_rules! library {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*) -> $returns:ty;)*) => {
        /// The library, which stays loaded until the process ends.
        #[derive(Debug, Clone, Copy)]
        pub(super) struct SqliteLibrary {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $returns,)*
        }

        impl SqliteLibrary {
            /// Loads the library of this path.
            pub(super) fn load(path: &Path) -> Result<Self> {
                let library = SharedLibrary::load(NAME, path)?;
                Ok(Self {
                    $($name: {
                        let symbol = library.symbol($symbol)?;
                        // SAFETY: this is the function's type in the library's header.
                        unsafe {
                            std::mem::transmute::<
                                SqliteHandle,
                                unsafe extern "C" fn($($argument),*) -> $returns,
                            >(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

library! {
    open = "sqlite3_open": fn(*const c_char, *mut SqliteHandle) -> c_int;
    close = "sqlite3_close": fn(SqliteHandle) -> c_int;
    busy_timeout = "sqlite3_busy_timeout": fn(SqliteHandle, c_int) -> c_int;
    exec = "sqlite3_exec":
        fn(SqliteHandle, *const c_char, SqliteHandle, SqliteHandle, *mut c_void) -> c_int;
    message = "sqlite3_errmsg": fn(SqliteHandle) -> *const c_char;
    prepare = "sqlite3_prepare_v2":
        fn(SqliteHandle, *const c_char, c_int, *mut SqliteHandle, *mut *const c_char) -> c_int;
    step = "sqlite3_step": fn(SqliteHandle) -> c_int;
    reset = "sqlite3_reset": fn(SqliteHandle) -> c_int;
    finalize = "sqlite3_finalize": fn(SqliteHandle) -> c_int;
    column_int64 = "sqlite3_column_int64": fn(SqliteHandle, c_int) -> i64;
    bind_null = "sqlite3_bind_null": fn(SqliteHandle, c_int) -> c_int;
    bind_int64 = "sqlite3_bind_int64": fn(SqliteHandle, c_int, i64) -> c_int;
    bind_double = "sqlite3_bind_double": fn(SqliteHandle, c_int, f64) -> c_int;
    bind_text = "sqlite3_bind_text": fn(SqliteHandle, c_int, *const c_char, c_int, SqliteHandle) -> c_int;
}
