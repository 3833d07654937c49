//! DuckDB, in this process: its shared library, loaded when it is there.
//!
//! The library is found in the package that carries it for Node. An in-memory database; each client
//! has a connection of its own. Statements are prepared, and values are read one by one, as a
//! language binding does.

mod library;

use std::{
    ffi::{CStr, CString, c_char, c_void},
    io::Write as _,
    path::Path,
    ptr,
};

use library::{Library, QueryResult};
use lockstep_host::disk;

use super::{NextLines, SqlConnection, SqlPeer, folder::TemporaryFolder, install::duckdb_library};
use crate::{
    answer::AnswerValue,
    error::{Error, Result, Trying},
    statement::{Dialect, PeerStatement},
};

const NAME: &str = "duckdb";

/// An in-memory database.
#[derive(Debug)]
pub(crate) struct DuckDb {
    library: Library,
    database: *mut c_void,
    scratch: TemporaryFolder,
}

// SAFETY: a DuckDB database handle may be used by several threads; connections are made from it
// under its own locks.
unsafe impl Sync for DuckDb {}

impl DuckDb {
    /// Loads the library and opens an empty database that uses this many threads for a query.
    pub(crate) fn open(threads: usize) -> Result<Self> {
        let duckdb = Self::open_at(None)?;
        duckdb.connect()?.execute(&format!("SET threads = {threads}"))?;
        Ok(duckdb)
    }

    /// Loads the library and opens a database: the one in this file, which is made if it is not
    /// there, or an empty one in memory.
    pub(crate) fn open_at(file: Option<&Path>) -> Result<Self> {
        let library = Library::load(&duckdb_library())?;
        let mut database = ptr::null_mut();
        let path = file.map(|file| c_text(&file.display().to_string()));
        let path = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        // SAFETY: a null path opens a database in memory; the handle is written on success.
        if unsafe { (library.open)(path, &raw mut database) } != 0 {
            let what =
                file.map_or_else(|| "in memory".to_owned(), |file| file.display().to_string());
            return Err(Error::peer(NAME, format!("cannot open a database: {what}")));
        }
        let scratch = match file.and_then(Path::parent) {
            None => TemporaryFolder::new(NAME)?,
            Some(folder) => TemporaryFolder::below(folder, "scratch")?,
        };
        Ok(Self { library, database, scratch })
    }
}

impl Drop for DuckDb {
    fn drop(&mut self) {
        // SAFETY: connections borrow the database, so there are none.
        unsafe { (self.library.close)(&raw mut self.database) };
    }
}

impl SqlPeer for DuckDb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn connect(&self) -> Result<Box<dyn SqlConnection + '_>> {
        let mut handle = ptr::null_mut();
        // SAFETY: the database is open; the handle is written on success.
        if unsafe { (self.library.connect)(self.database, &raw mut handle) } != 0 {
            return Err(Error::peer(NAME, "cannot open a connection"));
        }
        Ok(Box::new(DuckDbConnection { duckdb: self, handle, prepared: Vec::new() }))
    }
}

#[derive(Debug)]
struct DuckDbConnection<'a> {
    duckdb: &'a DuckDb,
    handle: *mut c_void,
    prepared: Vec<*mut c_void>,
}

impl DuckDbConnection<'_> {
    fn library(&self) -> &Library {
        &self.duckdb.library
    }

    fn bind(&self, statement: *mut c_void, place: u64, value: &AnswerValue) -> Result<()> {
        let library = self.library();
        // SAFETY: the statement is alive; text is copied before the call returns.
        let state = unsafe {
            match value {
                AnswerValue::Null => (library.bind_null)(statement, place),
                AnswerValue::Int(value) => (library.bind_int64)(statement, place, *value),
                AnswerValue::Double(value) => (library.bind_double)(statement, place, *value),
                AnswerValue::Time(ms) => (library.bind_timestamp)(statement, place, ms * 1_000),
                AnswerValue::Text(text) => {
                    let length = u64::try_from(text.len()).expect("a length fits 64 bits");
                    (library.bind_text)(statement, place, text.as_ptr().cast(), length)
                }
            }
        };
        if state == 0 {
            Ok(())
        } else {
            Err(Error::peer(NAME, format!("parameter {place}: {value}")))
        }
    }

    /// Reads and destroys a result.
    fn rows(&self, state: u32, mut result: QueryResult) -> Result<Vec<Vec<AnswerValue>>> {
        let library = self.library();
        let result = &raw mut result;
        // SAFETY: the library filled the result, also when it failed, and it is destroyed once.
        unsafe {
            let rows = if state == 0 {
                let (columns, rows) = ((library.column_count)(result), (library.row_count)(result));
                let row =
                    |row| (0..columns).map(|column| library.cell(result, column, row)).collect();
                Ok((0..rows).map(row).collect())
            } else {
                Err(Error::peer(NAME, text_of((library.result_error)(result))))
            };
            (library.destroy_result)(result);
            rows
        }
    }
}

/// Copies a text of the library. Empty for a null pointer.
///
/// # Safety
///
/// The pointer is null or points to text that ends with a zero byte.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller upholds the contract above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("statements have no zero bytes")
}

impl SqlConnection for DuckDbConnection<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::DuckDb
    }

    fn execute(&mut self, sql: &str) -> Result<Vec<Vec<AnswerValue>>> {
        let mut result = QueryResult::default();
        // SAFETY: the connection is open; the result is written in every case.
        let state =
            unsafe { (self.library().query)(self.handle, c_text(sql).as_ptr(), &raw mut result) };
        self.rows(state, result)
    }

    fn prepare(&mut self, statement: &PeerStatement) -> Result<usize> {
        let mut prepared = ptr::null_mut();
        let sql = c_text(&statement.sql);
        // SAFETY: the connection is open; the handle is written in every case.
        let state =
            unsafe { (self.library().prepare)(self.handle, sql.as_ptr(), &raw mut prepared) };
        self.prepared.push(prepared);
        if state == 0 {
            return Ok(self.prepared.len() - 1);
        }
        // SAFETY: the handle is alive until the connection is dropped.
        let message = unsafe { text_of((self.library().prepare_error)(prepared)) };
        Err(Error::peer(NAME, format!("{message}\n{}", statement.sql)))
    }

    fn run(
        &mut self,
        prepared: usize,
        values: &mut dyn Iterator<Item = &AnswerValue>,
    ) -> Result<Vec<Vec<AnswerValue>>> {
        let statement = self.prepared[prepared];
        for (place, value) in (1..).zip(values) {
            self.bind(statement, place, value)?;
        }
        let mut result = QueryResult::default();
        // SAFETY: the statement is alive; the result is written in every case.
        let state = unsafe { (self.library().execute_prepared)(statement, &raw mut result) };
        self.rows(state, result)
    }

    fn create_time_index(
        &mut self,
        table: &str,
        key: &str,
        _time: &str,
        _included: &[&str],
    ) -> Result<()> {
        self.execute(&format!("CREATE INDEX {table}_{key} ON {table} ({key})")).map(drop)
    }

    fn copy_in(&mut self, table: &str, order: &str, next: &mut NextLines<'_>) -> Result<()> {
        let path = self.duckdb.scratch.path().join("load.tsv");
        let trying = || format!("write {}", path.display());
        let mut file = disk::create(&path).trying(trying)?;
        let mut lines = String::new();
        while next(&mut lines) > 0 {
            file.write_all(lines.as_bytes()).trying(trying)?;
            lines.clear();
        }
        drop(file);
        let path = path.display();
        // Sorted rows let a scan skip most of the table; without, this workload takes twice as long.
        self.execute(&format!("CREATE TEMP TABLE loaded AS FROM {table}"))?;
        self.execute(&format!(
            "COPY loaded FROM '{path}' (FORMAT csv, DELIMITER '\t', NULL '\\N', HEADER false)"
        ))?;
        self.execute(&format!("INSERT INTO {table} SELECT * FROM loaded ORDER BY {order}"))?;
        self.execute("DROP TABLE loaded").map(drop)
    }

    fn settle(&mut self, table: &str) -> Result<()> {
        self.execute(&format!("ANALYZE {table}")).map(drop)
    }

    fn table_bytes(&mut self, _tables: &[String]) -> Result<Option<u64>> {
        let rows =
            self.execute("SELECT CAST(sum(memory_usage_bytes) AS BIGINT) FROM duckdb_memory()")?;
        let bytes = rows.first().and_then(|row| row.first());
        Ok(match bytes {
            Some(AnswerValue::Int(bytes)) => u64::try_from(*bytes).ok(),
            _ => None,
        })
    }
}

impl Drop for DuckDbConnection<'_> {
    fn drop(&mut self) {
        let library = &self.duckdb.library;
        // SAFETY: each handle was made by the library and is destroyed once.
        unsafe {
            for statement in &mut self.prepared {
                (library.destroy_prepare)(statement);
            }
            (library.disconnect)(&raw mut self.handle);
        }
    }
}
