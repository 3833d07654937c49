//! Temporary space: where queries write the rows that do not fit into their memory, and how much.
//!
//! `temp_directory` is each session's, `max_temp_directory_size` that of the engine. A user of a server
//! may name the folders only that the operator lists, since others may be read by other programs, or
//! be on disks that must not fill up.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_host::{FileAccess, temporary::TemporaryStorage};
use lockstep_sql::ast::{Ident, Literal, OptionValue};

use crate::{Database, Session, access::FileFolders, variables::Variables};

impl Database {
    /// Lists the folders that users may set as `temp_directory`. None, unless this is called. Sessions
    /// of the process itself are free.
    pub fn set_temp_folders(&self, folders: &[PathBuf]) -> Result<()> {
        self.replace_temp_folders(FileFolders::new(folders)?);
        Ok(())
    }

    /// Returns the bytes that the temporary files of all queries take now.
    pub fn temporary_bytes(&self) -> u64 {
        self.temporary_space().used_bytes()
    }

    /// Returns where the temporary files of new sessions are.
    pub(crate) fn temporary_storage(&self) -> TemporaryStorage {
        let folder = self.objects().variables().temp_directory();
        TemporaryStorage { folder, space: Arc::clone(self.temporary_space()) }
    }
}

impl Session {
    /// Returns where the temporary files of the session's queries are.
    pub(crate) fn temporary_storage(&self) -> TemporaryStorage {
        let folder = self.variables().temp_directory();
        TemporaryStorage { folder, space: Arc::clone(self.database.temporary_space()) }
    }

    /// Checks the value of a variable that is to be set; a folder is then an absolute path.
    pub(crate) fn checked_value(&self, name: &Ident, value: &OptionValue) -> Result<OptionValue> {
        let Some(path) = Variables::temp_directory_of(name, value)? else {
            return Ok(value.clone());
        };
        if path.is_empty() {
            return Ok(value.clone());
        }
        let span = name.span;
        if !self.caller().is_process() {
            self.database.temp_folders().check_temporary(&path, span)?;
        }
        // The folders of temporary files are others than those of the files that a call may open.
        let access = match self.caller().is_process() {
            true => FileAccess::default(),
            false => self.database.temp_folders().access(),
        };
        match access.resolve(Path::new(&path)) {
            Ok(resolved) if access.is_folder(&resolved) => {
                debug_assert!(resolved.is_absolute(), "links are followed");
                let resolved = resolved.to_string_lossy().into_owned();
                Ok(OptionValue::Literal(Literal::String(resolved)))
            }
            _ => no_folder(&path, span).err(),
        }
    }
}

fn no_folder(path: &str, span: Span) -> Diagnostic {
    Diagnostic::new(
        code::INVALID_PARAMETER,
        format!("invalid value for variable `temp_directory`: '{path}'"),
    )
    .at(span)
    .with_hint("Use the path of an existing directory, or '' for the system's directory.")
}
