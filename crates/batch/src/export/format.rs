//! The formats of written files: those that can be read back, and those of training programs.

use super::text_file::without_compression;
use crate::load::FileFormat;

/// The format of a file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExportFormat {
    /// A format that can be read, too.
    Table(FileFormat),
    /// A line `label slot:value …` for each row, as LIBSVM, XGBoost, LightGBM and scikit-learn read it.
    Libsvm,
    /// A `tf.train.Example` for each row, as TensorFlow reads it.
    TfRecord,
}

impl Default for ExportFormat {
    fn default() -> Self {
        Self::Table(FileFormat::default())
    }
}

impl From<FileFormat> for ExportFormat {
    fn from(format: FileFormat) -> Self {
        Self::Table(format)
    }
}

impl ExportFormat {
    /// Finds the format of a name (`csv`, `parquet`, `json`, `arrow`, `libsvm`, `tfrecord`), in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "libsvm" => Some(Self::Libsvm),
            "tfrecord" => Some(Self::TfRecord),
            other => FileFormat::from_name(other).map(Self::Table),
        }
    }

    /// Returns its name, which is also the end of a part's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table(format) => format.name(),
            Self::Libsvm => "libsvm",
            Self::TfRecord => "tfrecord",
        }
    }

    /// Finds the format that the end of a path names, also before the suffix of a compression; CSV
    /// for every other.
    pub fn of_path(path: &str) -> Self {
        let name = path.to_ascii_lowercase();
        let plain = without_compression(&name);
        match plain.rsplit_once('.') {
            Some((_, "libsvm" | "svm" | "svmlight")) => Self::Libsvm,
            Some((_, "tfrecord" | "tfrecords")) => Self::TfRecord,
            _ => Self::Table(FileFormat::of_path(plain).unwrap_or_default()),
        }
    }
}
