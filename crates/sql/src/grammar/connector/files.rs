//! The options of sources and sinks of files.

use crate::grammar::DocumentedOption;

/// The options of a source.
pub(super) const OF_SOURCE: &[DocumentedOption] = &[
    DocumentedOption {
        name: "path",
        values: "a directory, a file, or a pattern with `*` and `?`",
        default: "required",
        meaning: "The files, as LOAD DATA reads them. The directory must exist, but need not have \
            files.",
    },
    DocumentedOption {
        name: "format",
        values: "`csv`, `json`, `parquet`, `arrow`",
        default: "the extension in `path`; required if it has none",
        meaning: "The format of the files.",
    },
    DocumentedOption {
        name: "start",
        values: "`earliest`, `latest`",
        default: "`earliest`",
        meaning: "Whether the files are read that exist when the source is created.",
    },
    DocumentedOption {
        name: "settle_after",
        values: "a duration",
        default: "`1s`",
        meaning: "A file is read when it has not changed for this long, so that a file that is being \
            copied is not read too early. With `0s` it is read at once: for programs that rename \
            complete files into the directory.",
    },
    DocumentedOption {
        name: "on_change",
        values: "`stop`, `skip`, `read`",
        default: "`stop`",
        meaning: "What happens when a file that was read has changed, or a file is changed or removed \
            while it is read: the source fails, it continues with the other files, or it also reads the \
            changed file again from its beginning.",
    },
    DocumentedOption {
        name: "on_error",
        values: "`stop`, `skip`, `skip into table_name`",
        default: "`stop`",
        meaning: "What happens to a line that is not a row of the table: the source fails, the line is \
            counted and left out, or it is appended to a table with its file, its line number, its \
            text and the reason. With `skip`, the rest of a file that cannot be read further counts \
            as one line. The table is created if it does not exist.",
    },
    DocumentedOption {
        name: "unknown_columns",
        values: "`error`, `ignore`",
        default: "`error`",
        meaning: "Whether a column of a file that is not a column of the table is an error.",
    },
    DocumentedOption {
        name: "match_by",
        values: "`name`, `position`",
        default: "`name`; without a header, `position`",
        meaning: "How the columns of a CSV file are matched with those of the table.",
    },
    DELIMITER,
    DocumentedOption {
        name: "header",
        values: "`true`, `false`",
        default: "`true`",
        meaning: "CSV: whether the first line of each file has the names of the columns.",
    },
    DocumentedOption {
        name: "null_value",
        values: "a string",
        default: "`null`",
        meaning: "CSV: an unquoted field with this text is NULL, as an empty one is.",
    },
    DocumentedOption {
        name: "quote",
        values: "a character, or an empty string for none",
        default: "`\"`",
        meaning: "CSV: the character around fields that contain the delimiter or line breaks.",
    },
    DocumentedOption {
        name: "file_column",
        values: "a column of type STRING",
        default: "none",
        meaning: "The column that takes the path of the row's file.",
    },
    DocumentedOption {
        name: "row_column",
        values: "a column of type BIGINT",
        default: "none",
        meaning: "The column that takes the number of the row within its file, from 1.",
    },
];

/// The options of a sink.
pub(super) const OF_SINK: &[DocumentedOption] = &[
    DocumentedOption {
        name: "path",
        values: "a directory",
        default: "required",
        meaning: "Where the files are written. The directory must exist.",
    },
    DocumentedOption {
        name: "format",
        values: "`parquet`, `csv`, `json`, `arrow`",
        default: "`parquet`",
        meaning: "The format of the files.",
    },
    DocumentedOption {
        name: "start",
        values: "`earliest`, `latest`",
        default: "`earliest`",
        meaning: "Whether the rows are written that are stored when the sink is created.",
    },
    DocumentedOption {
        name: "rows_per_file",
        values: "an integer from 1",
        default: "`1000000`",
        meaning: "A file is complete when it has this many rows.",
    },
    DocumentedOption {
        name: "roll_after",
        values: "a duration",
        default: "`1m`",
        meaning: "A file is complete this long after its first row, even if it has fewer rows.",
    },
    DocumentedOption {
        name: "compression",
        values: "`none`, `gzip`, `zstd`",
        default: "`none`",
        meaning: "CSV and JSON: how files are compressed. Parquet and Arrow files always are.",
    },
    DELIMITER,
    DocumentedOption {
        name: "header",
        values: "`true`, `false`",
        default: "`true`",
        meaning: "CSV: whether each file begins with the names of the columns.",
    },
    DocumentedOption {
        name: "null_value",
        values: "a string",
        default: "the empty string",
        meaning: "CSV: the text of NULL.",
    },
];

const DELIMITER: DocumentedOption = DocumentedOption {
    name: "delimiter",
    values: "a one-byte character",
    default: "`,`",
    meaning: "CSV: the character between fields.",
};
