//! The functions of DuckDB's C interface that the benchmarks call, loaded from its shared library.

use std::{
    ffi::{c_char, c_void},
    path::Path,
};

use super::text_of;
use crate::{answer::AnswerValue, error::Result, peer::shared_library::SharedLibrary};

/// `duckdb_result`: filled and read by the library only.
#[derive(Debug)]
#[repr(C)]
pub(super) struct QueryResult([*mut c_void; 6]);

impl Default for QueryResult {
    fn default() -> Self {
        Self([std::ptr::null_mut(); 6])
    }
}

type Handle = *mut c_void;
type DuckDbState = u32;

macro_rules! library {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*) $(-> $returns:ty)?;)*) => {
        /// The library, which stays loaded until the process ends.
        #[derive(Debug, Clone, Copy)]
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $returns)?,)*
        }

        impl Library {
            fn find(library: &SharedLibrary) -> Result<Self> {
                Ok(Self {
                    $($name: {
                        let symbol = library.symbol($symbol)?;
                        // SAFETY: this is the function's type in the library's header.
                        unsafe {
                            std::mem::transmute::<
                                Handle,
                                unsafe extern "C" fn($($argument),*) $(-> $returns)?,
                            >(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

library! {
    open = "duckdb_open": fn(*const c_char, *mut Handle) -> DuckDbState;
    close = "duckdb_close": fn(*mut Handle);
    connect = "duckdb_connect": fn(Handle, *mut Handle) -> DuckDbState;
    disconnect = "duckdb_disconnect": fn(*mut Handle);
    query = "duckdb_query": fn(Handle, *const c_char, *mut QueryResult) -> DuckDbState;
    result_error = "duckdb_result_error": fn(*mut QueryResult) -> *const c_char;
    destroy_result = "duckdb_destroy_result": fn(*mut QueryResult);
    prepare = "duckdb_prepare": fn(Handle, *const c_char, *mut Handle) -> DuckDbState;
    prepare_error = "duckdb_prepare_error": fn(Handle) -> *const c_char;
    destroy_prepare = "duckdb_destroy_prepare": fn(*mut Handle);
    bind_null = "duckdb_bind_null": fn(Handle, u64) -> DuckDbState;
    bind_int64 = "duckdb_bind_int64": fn(Handle, u64, i64) -> DuckDbState;
    bind_double = "duckdb_bind_double": fn(Handle, u64, f64) -> DuckDbState;
    bind_timestamp = "duckdb_bind_timestamp": fn(Handle, u64, i64) -> DuckDbState;
    bind_text = "duckdb_bind_varchar_length": fn(Handle, u64, *const c_char, u64) -> DuckDbState;
    execute_prepared = "duckdb_execute_prepared": fn(Handle, *mut QueryResult) -> DuckDbState;
    column_count = "duckdb_column_count": fn(*mut QueryResult) -> u64;
    row_count = "duckdb_row_count": fn(*mut QueryResult) -> u64;
    column_type = "duckdb_column_type": fn(*mut QueryResult, u64) -> u32;
    value_is_null = "duckdb_value_is_null": fn(*mut QueryResult, u64, u64) -> bool;
    value_int64 = "duckdb_value_int64": fn(*mut QueryResult, u64, u64) -> i64;
    value_double = "duckdb_value_double": fn(*mut QueryResult, u64, u64) -> f64;
    value_text = "duckdb_value_varchar": fn(*mut QueryResult, u64, u64) -> *mut c_char;
    free = "duckdb_free": fn(*mut c_void);
}

/// `duckdb_type`: of the types that answers have.
const FIRST_INTEGER: u32 = 1;
const LAST_INTEGER: u32 = 9;
const FLOAT: u32 = 10;
const DOUBLE: u32 = 11;
const TIMESTAMP: u32 = 12;

impl Library {
    /// Loads the library of this path.
    pub(super) fn load(path: &Path) -> Result<Self> {
        Self::find(&SharedLibrary::load(super::NAME, path)?)
    }

    /// Reads one value of a result.
    ///
    /// # Safety
    ///
    /// The result was filled by this library and holds this column and row.
    pub(super) unsafe fn cell(
        &self,
        result: *mut QueryResult,
        column: u64,
        row: u64,
    ) -> AnswerValue {
        // SAFETY: the caller upholds the contract above; text is freed once, after it was copied.
        unsafe {
            if (self.value_is_null)(result, column, row) {
                return AnswerValue::Null;
            }
            match (self.column_type)(result, column) {
                FIRST_INTEGER..=LAST_INTEGER => {
                    AnswerValue::Int((self.value_int64)(result, column, row))
                }
                FLOAT | DOUBLE => AnswerValue::Double((self.value_double)(result, column, row)),
                TIMESTAMP => AnswerValue::Time((self.value_int64)(result, column, row) / 1_000),
                _ => {
                    let text = (self.value_text)(result, column, row);
                    let copy = text_of(text);
                    (self.free)(text.cast());
                    AnswerValue::Text(copy.into())
                }
            }
        }
    }
}
