//! The temporary folder of one case, for files that its statements read and write.

use std::{fs, path::PathBuf};

/// The folder of a case's files; removed at the end.
pub(super) struct ScratchFolder {
    pub(super) path: PathBuf,
}

impl ScratchFolder {
    pub(super) fn make(id: &str) -> Result<Self, String> {
        let name: String =
            id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let process = std::process::id();
        let path = std::env::temp_dir().join(format!("lockstep-conformance-{process}")).join(name);
        fs::create_dir_all(path.join("out")).map_err(|error| format!("{path:?}: {error}"))?;
        Ok(Self { path })
    }

    /// Returns the file that a path of the data names.
    pub(super) fn resolve_path(&self, path: &str) -> PathBuf {
        let folder = self.path.to_string_lossy();
        self.path.join(path.replace("{root_path}", &folder))
    }

    /// Replaces the placeholders of the folder and of server names, and puts the folder before
    /// relative paths.
    pub(super) fn resolve(&self, statement: &str) -> String {
        let folder = self.path.to_string_lossy();
        let mut text = statement.replace("{root_path}", &folder);
        for opening in ["outfile '", "infile '", "OUTFILE '", "INFILE '"] {
            let path = text.find(opening).map(|at| at + opening.len());
            if let Some(path) = path
                && !text[path..].starts_with('/')
                && !text[path..].split('\'').next().unwrap_or_default().contains("://")
            {
                text.insert_str(path, &format!("{folder}/"));
            }
        }
        for server in 0..3 {
            text = text.replace(
                &format!("{{tb_endpoint_{server}}}"),
                &format!("127.0.0.1:{}", 10_000 + server),
            );
        }
        text
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // A file that cannot be removed stays in the temporary folder.
        let removed = fs::remove_dir_all(&self.path);
        debug_assert!(removed.is_ok(), "{removed:?}");
    }
}
