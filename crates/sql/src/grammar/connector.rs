//! Sources and sinks: rows from topics and files, and into them.

mod files;
mod kafka;

use super::{OptionList, StatementChapter, StatementRule};
use crate::ast::{ConnectorKind, ConnectorStatement};

/// The statements about sources and sinks.
pub(super) const STATEMENTS: StatementChapter = StatementChapter {
    title: "Sources and sinks",
    rules: &[
        &CREATE_SOURCE,
        &DROP_SOURCE,
        &ALTER_SOURCE,
        &STOP_SOURCE,
        &START_SOURCE,
        &SHOW_SOURCES,
        &SHOW_CREATE_SOURCE,
        &CREATE_SINK,
        &DROP_SINK,
        &ALTER_SINK,
        &STOP_SINK,
        &START_SINK,
        &SHOW_SINKS,
        &SHOW_CREATE_SINK,
    ],
};

/// Returns the rule of a statement about a source or a sink.
pub(super) fn rule_of(statement: &ConnectorStatement) -> &'static StatementRule {
    use ConnectorKind::{Sink, Source};
    let kind = match statement {
        ConnectorStatement::Create(create) => create.kind,
        ConnectorStatement::Drop { kind, .. }
        | ConnectorStatement::Alter { kind, .. }
        | ConnectorStatement::Start(kind, _)
        | ConnectorStatement::Stop(kind, _) => *kind,
    };
    match (statement, kind) {
        (ConnectorStatement::Create(_), Source) => &CREATE_SOURCE,
        (ConnectorStatement::Create(_), Sink) => &CREATE_SINK,
        (ConnectorStatement::Drop { .. }, Source) => &DROP_SOURCE,
        (ConnectorStatement::Drop { .. }, Sink) => &DROP_SINK,
        (ConnectorStatement::Alter { .. }, Source) => &ALTER_SOURCE,
        (ConnectorStatement::Alter { .. }, Sink) => &ALTER_SINK,
        (ConnectorStatement::Start(..), Source) => &START_SOURCE,
        (ConnectorStatement::Start(..), Sink) => &START_SINK,
        (ConnectorStatement::Stop(..), Source) => &STOP_SOURCE,
        (ConnectorStatement::Stop(..), Sink) => &STOP_SINK,
    }
}

const CREATE_SOURCE: StatementRule = StatementRule {
    name: "CREATE SOURCE",
    description: "Creates a source, which appends rows to a table, each exactly once. \
        With `FROM KAFKA` it reads the messages of a topic; see [Kafka](../guide/kafka.md). \
        The offsets are stored together with the rows, not in a consumer group. \
        A value is converted as in an append over HTTP, and a column that the message lacks takes \
        its default. \
        With `FROM FILES` it reads the files of a directory, in the order of their names, and those \
        that are added later; see [files](../guide/files.md#directories-as-sources-and-sinks). \
        Their rows are read as LOAD DATA reads them.",
    grammar: "CREATE SOURCE [ IF NOT EXISTS ] table_name INTO TABLE table_name FROM ( KAFKA | FILES )\n\
        [ OPTIONS option_list ]",
    privileges: "`ADMIN`, since the server connects to the brokers or reads its files.",
    options: &[
        OptionList {
            clause: "OPTIONS with KAFKA",
            others: "is an error",
            options: kafka::OF_SOURCE,
        },
        OptionList {
            clause: "OPTIONS with FILES",
            others: "is an error",
            options: files::OF_SOURCE,
        },
    ],
    examples: &[
        "CREATE SOURCE actions_in INTO TABLE actions FROM KAFKA\n\
         OPTIONS(brokers = 'broker:9092', topic = 'actions', on_error = 'skip into bad_rows')",
        "CREATE SOURCE flights_in INTO TABLE flights FROM FILES OPTIONS(path = '/data/in/*.csv')",
    ],
};

const DROP_SOURCE: StatementRule = StatementRule {
    name: "DROP SOURCE",
    description: "Ends a source and removes it with its progress. The rows that it has appended stay.",
    grammar: "DROP SOURCE [ IF EXISTS ] table_name",
    privileges: "`DROP` on the source.",
    options: &[],
    examples: &["DROP SOURCE actions_in"],
};

const ALTER_SOURCE: StatementRule = StatementRule {
    name: "ALTER SOURCE",
    description: "Changes options of a source, which continues behind the last message or line that it \
        has read. `topic`, `path`, `format`, `subject`, `start`, `group` and `partitioned_by` cannot \
        be changed, nor can `partition_column` and `offset_column` of a source with a group.",
    grammar: "ALTER SOURCE table_name SET OPTIONS option_list",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["ALTER SOURCE actions_in SET OPTIONS(on_lost = 'skip')"],
};

const STOP_SOURCE: StatementRule = StatementRule {
    name: "STOP SOURCE",
    description: "Stops a source, which stays stopped when the database is opened again.",
    grammar: "STOP SOURCE table_name",
    privileges: "`ALTER` on the source.",
    options: &[],
    examples: &["STOP SOURCE actions_in"],
};

const START_SOURCE: StatementRule = StatementRule {
    name: "START SOURCE",
    description: "Continues a source that was stopped or has failed, behind the last message or line \
        that it has read.",
    grammar: "START SOURCE table_name",
    privileges: "`ALTER` on the source.",
    options: &[],
    examples: &["START SOURCE actions_in"],
};

pub(super) const SHOW_SOURCES: StatementRule = StatementRule {
    name: "SHOW SOURCES",
    description: "Lists the sources of the current database with their state, the numbers of messages \
        or lines that they have read and that were not rows, and the number of messages or files that \
        are still to be read.",
    grammar: "SHOW SOURCES",
    privileges: "None; the list contains the objects on which the user has a privilege.",
    options: &[],
    examples: &["SHOW SOURCES"],
};

pub(super) const SHOW_CREATE_SOURCE: StatementRule = StatementRule {
    name: "SHOW CREATE SOURCE",
    description: "Returns the statement that creates the source, with its password masked.",
    grammar: "SHOW CREATE SOURCE table_name",
    privileges: "Any privilege on the source.",
    options: &[],
    examples: &["SHOW CREATE SOURCE actions_in"],
};

const CREATE_SINK: StatementRule = StatementRule {
    name: "CREATE SINK",
    description: "Creates a sink, which writes the results of a stream, or the rows of a table, as \
        they are appended, each exactly once. \
        With `INTO KAFKA` it writes them to a topic; see [Kafka](../guide/kafka.md). \
        Each message has the headers `lockstep-sink` and `lockstep-position`, which identify its \
        row. \
        With `INTO FILES` it writes them to files of a directory; see \
        [files](../guide/files.md#directories-as-sources-and-sinks). \
        A file appears when it is complete. \
        Rows that expire or are deleted before they are written are kept for the sink, up to 256 MB.",
    grammar: "CREATE SINK [ IF NOT EXISTS ] table_name FROM ( STREAM | TABLE ) table_name\n\
        INTO ( KAFKA | FILES ) [ OPTIONS option_list ]",
    privileges: "`ADMIN`, since the server connects to the brokers or writes its files.",
    options: &[
        OptionList { clause: "OPTIONS with KAFKA", others: "is an error", options: kafka::OF_SINK },
        OptionList { clause: "OPTIONS with FILES", others: "is an error", options: files::OF_SINK },
    ],
    examples: &[
        "CREATE SINK out FROM STREAM around INTO KAFKA\n\
         OPTIONS(brokers = 'broker:9092', topic = 'features', key = 'user')",
        "CREATE SINK out FROM STREAM around INTO FILES OPTIONS(path = '/data/out', roll_after = '10m')",
    ],
};

const DROP_SINK: StatementRule = StatementRule {
    name: "DROP SINK",
    description: "Ends a sink and removes it. The messages and files that it has written stay.",
    grammar: "DROP SINK [ IF EXISTS ] table_name",
    privileges: "`DROP` on the sink.",
    options: &[],
    examples: &["DROP SINK out"],
};

const ALTER_SINK: StatementRule = StatementRule {
    name: "ALTER SINK",
    description: "Changes options of a sink, which continues behind the last row that it has \
        written. `topic`, `path`, `format`, `start`, `key` and `delivery` cannot be changed.",
    grammar: "ALTER SINK table_name SET OPTIONS option_list",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["ALTER SINK out SET OPTIONS(brokers = 'broker1:9092,broker2:9092')"],
};

const STOP_SINK: StatementRule = StatementRule {
    name: "STOP SINK",
    description: "Stops a sink, which stays stopped when the database is opened again.",
    grammar: "STOP SINK table_name",
    privileges: "`ALTER` on the sink.",
    options: &[],
    examples: &["STOP SINK out"],
};

const START_SINK: StatementRule = StatementRule {
    name: "START SINK",
    description: "Continues a sink that was stopped or has failed, behind the last row that it has \
        written.",
    grammar: "START SINK table_name",
    privileges: "`ALTER` on the sink.",
    options: &[],
    examples: &["START SINK out"],
};

pub(super) const SHOW_SINKS: StatementRule = StatementRule {
    name: "SHOW SINKS",
    description: "Lists the sinks of the current database with their state, the number of messages or \
        rows that they have written, and for how long the oldest row waits that is not written yet.",
    grammar: "SHOW SINKS",
    privileges: "None; the list contains the objects on which the user has a privilege.",
    options: &[],
    examples: &["SHOW SINKS"],
};

pub(super) const SHOW_CREATE_SINK: StatementRule = StatementRule {
    name: "SHOW CREATE SINK",
    description: "Returns the statement that creates the sink, with its password masked.",
    grammar: "SHOW CREATE SINK table_name",
    privileges: "Any privilege on the sink.",
    options: &[],
    examples: &["SHOW CREATE SINK out"],
};
