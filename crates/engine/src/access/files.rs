//! The files of the server's machine that statements of users may name.
//!
//! None, unless the operator lists folders. A path is absolute and has no `..` and no pattern; what exists
//! of it is resolved, symbolic links included, and has to be within a listed folder. That is checked when
//! the statement names the path. Each file is then opened from the listed folder on
//! ([`FileFolders::access`]), so that nothing below it leads out: no link in a folder of folders, none that
//! was made meanwhile, and no path in a lake's metadata.

use std::path::{Component, Path, PathBuf};

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_host::{FileAccess, disk, temporary::FOLDER_PREFIX};

/// The folders in which statements of users may read and write.
#[derive(Debug, Clone)]
pub(crate) struct FileFolders {
    folders: Vec<PathBuf>,
    access: FileAccess,
}

impl Default for FileFolders {
    fn default() -> Self {
        Self::of_resolved(Vec::new())
    }
}

impl FileFolders {
    /// Lists folders, which have to exist.
    pub(crate) fn new(folders: &[PathBuf]) -> Result<Self> {
        let resolved = folders.iter().map(|folder| {
            FileAccess::default().resolve(folder).map_err(|error| {
                let message = format!("could not access directory `{}`: {error}", folder.display());
                Box::new(Diagnostic::new(code::UNDEFINED_FILE, message))
            })
        });
        Ok(Self::of_resolved(resolved.collect::<Result<_>>()?))
    }

    fn of_resolved(folders: Vec<PathBuf>) -> Self {
        let access = FileAccess::below(folders.clone());
        Self { folders, access }
    }

    /// Returns the same folders without one, whose path is resolved: that of the database itself.
    pub(crate) fn without(self, folder: &Path) -> Self {
        Self { access: self.access.without(folder), ..self }
    }

    /// Returns the access to the files below the folders.
    pub(crate) fn access(&self) -> FileAccess {
        self.access.clone()
    }

    /// Fails where a path leads out of the folders.
    pub(crate) fn check(&self, path: &str, span: Span) -> Result<()> {
        let plain = Path::new(path.strip_prefix("file://").unwrap_or(path));
        let is_named =
            |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        let is_plain = plain.is_absolute()
            && !path.contains(['*', '?', '\0'])
            && plain.components().all(is_named);
        if is_plain && self.contains(plain) {
            return Ok(());
        }
        let hint = if self.folders.is_empty() {
            "The setting server.file_folders lists no directory; send the rows with the request \
             instead."
                .to_owned()
        } else {
            let folders = self.folders.iter().map(|folder| format!("`{}`", folder.display()));
            let folders = folders.collect::<Vec<_>>().join(" or ");
            format!("Specify a file in {folders} by its absolute path, without `..` or wildcards.")
        };
        let message = "permission denied to access this file on the server";
        Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, message).at(span).with_hint(hint).err()
    }

    /// Fails where a path is not a listed folder, or in one; for temporary files.
    pub(crate) fn check_temporary(&self, path: &str, span: Span) -> Result<()> {
        let plain = Path::new(path);
        let is_named =
            |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if plain.is_absolute() && plain.components().all(is_named) && self.contains(plain) {
            return Ok(());
        }
        let hint = if self.folders.is_empty() {
            "The setting server.temp_folders lists no directory; use '' for the system's directory."
                .to_owned()
        } else {
            let folders = self.folders.iter().map(|folder| format!("`{}`", folder.display()));
            let folders = folders.collect::<Vec<_>>().join(" or ");
            format!("Specify {folders} or a directory in it, or '' for the system's directory.")
        };
        let message = "permission denied to write temporary files in this directory";
        Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, message).at(span).with_hint(hint).err()
    }

    /// Returns whether what exists of a path is in a folder.
    fn contains(&self, path: &Path) -> bool {
        // The longest part that exists; a link that leads nowhere exists and cannot be resolved.
        let machine = FileAccess::default();
        let existing = path.ancestors().find(|part| disk::exists_or_links(part));
        let Some(existing) = existing else { return false };
        let Ok(resolved) = machine.resolve(existing) else { return false };
        if existing != path && !machine.is_folder(&resolved) {
            return false;
        }
        // The rows of others: a folder of temporary files is nobody's to read.
        let is_temporary =
            |part: Component<'_>| part.as_os_str().to_string_lossy().starts_with(FOLDER_PREFIX);
        if resolved.components().any(is_temporary) || self.access.is_closed(&resolved) {
            return false;
        }
        self.folders.iter().any(|folder| resolved.starts_with(folder))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::PathBuf};

    use lockstep_diagnostic::{Span, code};

    use super::FileFolders;

    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new(name: &str) -> Self {
            let name = format!("lockstep-files-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            drop(fs::remove_dir_all(&path));
            fs::create_dir_all(path.join("in/deep")).unwrap();
            fs::create_dir_all(path.join("out")).unwrap();
            fs::write(path.join("in/a.csv"), "a").unwrap();
            fs::write(path.join("out/b.csv"), "b").unwrap();
            Self(path.canonicalize().unwrap())
        }

        fn check(&self, folders: &FileFolders, path: &str) -> bool {
            let root = self.0.to_str().unwrap();
            match folders.check(&path.replace('~', root), Span::default()) {
                Ok(()) => true,
                Err(error) => {
                    assert_eq!(error.code, code::INSUFFICIENT_PRIVILEGE);
                    assert!(!error.message.contains(root), "it does not say what exists");
                    false
                }
            }
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn only_what_is_in_a_listed_folder_is_opened() {
        let test = TestFolder::new("listed");
        let at = |path: &str| test.0.join(path);
        let folders = FileFolders::new(&[at("in")]).unwrap();
        assert!(test.check(&folders, "~/in"));
        symlink(at("out/b.csv"), at("in/link.csv")).unwrap();
        symlink(at("out"), at("in/link")).unwrap();
        symlink(at("nowhere"), at("in/dangling")).unwrap();
        symlink(at("in/a.csv"), at("in/deep/inner.csv")).unwrap();
        let allowed = [
            "~/in",
            "~/in/a.csv",
            "file://~/in/a.csv",
            "~/in/new.csv",
            "~/in/new/x.csv",
            "~/in/deep",
        ];
        for path in allowed {
            assert!(test.check(&folders, path), "{path}");
        }
        // The temporary files of queries are nobody's to read.
        fs::create_dir_all(at("in/lockstep-temp-1-0")).unwrap();
        fs::write(at("in/lockstep-temp-1-0/1"), "rows").unwrap();
        let refused = [
            "~/in/lockstep-temp-1-0/1",
            "~/in/lockstep-temp-1-0",
            "~/out/b.csv",
            "~/in/../out/b.csv",
            "~/in/deep/../../out/b.csv",
            "in/a.csv",
            "a.csv",
            "",
            "~/in/link.csv",
            "~/in/link/b.csv",
            "~/in/link/new.csv",
            "~/in/dangling",
            "~/in/dangling/x",
            "~/in/*.csv",
            "~/in/a.csv/x",
            "~/inner",
            "file://in/a.csv",
            "FILE://~/in/a.csv",
            "/etc/passwd",
            "/",
        ];
        for path in refused {
            assert!(!test.check(&folders, path), "{path}");
        }
    }

    #[test]
    fn without_a_listed_folder_no_file_is_opened() {
        let test = TestFolder::new("none");
        for path in ["~/in/a.csv", "/", "/etc/passwd", "~/in/new.csv"] {
            assert!(!test.check(&FileFolders::default(), path), "{path}");
        }
    }
}
