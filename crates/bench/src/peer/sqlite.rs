//! SQLite, in this process: its shared library, loaded when it is there.
//!
//! A database in a file with a write-ahead log, as its users who write from several threads have it.
//! Each client has a connection of its own; one that finds the database locked waits.

mod library;

use std::{
    ffi::{CStr, CString, c_void},
    path::Path,
    ptr,
};

use library::{NO_TAIL, STATIC, SqliteLibrary};

use super::{folder::TemporaryFolder, install::sqlite_library};
use crate::{
    answer::AnswerValue,
    error::{Error, Result},
};

const NAME: &str = "sqlite";
/// Results of the library's functions.
const OK: i32 = 0;
const ROW: i32 = 100;
const DONE: i32 = 101;
/// How long a connection waits for another one's transaction, in milliseconds.
const BUSY_MS_MAX: i32 = 60_000;

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SqliteSynchronous {
    /// For the disk.
    Full,
    /// For the page cache; the log is synced before a checkpoint.
    Normal,
}

/// A database in a file.
#[derive(Debug)]
pub(crate) struct Sqlite {
    library: SqliteLibrary,
    synchronous: SqliteSynchronous,
    folder: TemporaryFolder,
}

impl Sqlite {
    /// Loads the library and creates an empty database.
    pub(crate) fn create(synchronous: SqliteSynchronous) -> Result<Self> {
        let library = SqliteLibrary::load(&sqlite_library())?;
        Ok(Self { library, synchronous, folder: TemporaryFolder::new(NAME)? })
    }

    /// Returns a connection, for the thread that makes it.
    pub(crate) fn connect(&self) -> Result<SqliteConnection<'_>> {
        let mut handle = ptr::null_mut();
        let path = c_text(&file_in(self.folder.path()));
        // SAFETY: the path ends with a zero byte; the handle is written in every case.
        let state = unsafe { (self.library.open)(path.as_ptr(), &raw mut handle) };
        let connection = SqliteConnection { library: &self.library, handle, prepared: Vec::new() };
        connection.check(state)?;
        // SAFETY: the connection is open.
        connection.check(unsafe { (self.library.busy_timeout)(handle, BUSY_MS_MAX) })?;
        connection.execute("PRAGMA journal_mode = WAL")?;
        connection.execute(match self.synchronous {
            SqliteSynchronous::Full => "PRAGMA synchronous = FULL",
            SqliteSynchronous::Normal => "PRAGMA synchronous = NORMAL",
        })?;
        Ok(connection)
    }
}

fn file_in(folder: &Path) -> String {
    folder.join("puts.sqlite").display().to_string()
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("statements have no zero bytes")
}

/// A connection.
#[derive(Debug)]
pub(crate) struct SqliteConnection<'a> {
    library: &'a SqliteLibrary,
    handle: *mut c_void,
    prepared: Vec<*mut c_void>,
}

impl SqliteConnection<'_> {
    /// Runs statements and discards their rows.
    pub(crate) fn execute(&self, sql: &str) -> Result<()> {
        let null = ptr::null_mut();
        // SAFETY: the connection is open; no callback is given.
        self.check(unsafe {
            (self.library.exec)(self.handle, c_text(sql).as_ptr(), null, null, null)
        })
    }

    /// Prepares a statement and returns its number on this connection.
    pub(crate) fn prepare(&mut self, sql: &str) -> Result<usize> {
        let mut statement = ptr::null_mut();
        let text = c_text(sql);
        // SAFETY: the connection is open, the text ends with a zero byte, the handle is written.
        let state = unsafe {
            (self.library.prepare)(self.handle, text.as_ptr(), -1, &raw mut statement, NO_TAIL)
        };
        self.check(state)?;
        self.prepared.push(statement);
        Ok(self.prepared.len() - 1)
    }

    /// Runs a prepared statement with these values. Returns the integer in the first column of its
    /// first row, if there is one.
    pub(crate) fn run(&self, prepared: usize, values: &[AnswerValue]) -> Result<Option<i64>> {
        debug_assert!(prepared < self.prepared.len(), "statement {prepared}");
        let statement = self.prepared[prepared];
        for (place, value) in (1..).zip(values) {
            self.bind(statement, place, value)?;
        }
        // SAFETY: the statement is alive, and a column is read only while there is a row.
        unsafe {
            let state = (self.library.step)(statement);
            let found = (state == ROW).then(|| (self.library.column_int64)(statement, 0));
            let reset = (self.library.reset)(statement);
            self.check(if state == ROW || state == DONE { OK } else { reset })?;
            Ok(found)
        }
    }

    /// Binds a value. Text must be alive until the statement has run.
    fn bind(&self, statement: *mut c_void, place: i32, value: &AnswerValue) -> Result<()> {
        let library = self.library;
        // SAFETY: the statement is alive, and so is the text until it was run.
        let state = unsafe {
            match value {
                AnswerValue::Null => (library.bind_null)(statement, place),
                AnswerValue::Int(value) | AnswerValue::Time(value) => {
                    (library.bind_int64)(statement, place, *value)
                }
                AnswerValue::Double(value) => (library.bind_double)(statement, place, *value),
                AnswerValue::Text(text) => {
                    let length = i32::try_from(text.len()).expect("texts are short");
                    (library.bind_text)(statement, place, text.as_ptr().cast(), length, STATIC)
                }
            }
        };
        self.check(state)
    }

    fn check(&self, state: i32) -> Result<()> {
        if state == OK {
            return Ok(());
        }
        // SAFETY: the library returns text that ends with a zero byte, for any connection.
        let message = unsafe { CStr::from_ptr((self.library.message)(self.handle)) };
        Err(Error::peer(NAME, message.to_string_lossy()))
    }
}

impl Drop for SqliteConnection<'_> {
    fn drop(&mut self) {
        // SAFETY: each handle was made by the library and is given up once.
        unsafe {
            for statement in &self.prepared {
                (self.library.finalize)(*statement);
            }
            (self.library.close)(self.handle);
        }
    }
}
