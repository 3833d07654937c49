//! Sources and sinks: rows from topics, and into them.

use super::{DocumentedOption, OptionList, StatementChapter, StatementRule};
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

const BROKERS: DocumentedOption = DocumentedOption {
    name: "brokers",
    values: "`host:port`, several separated by commas",
    default: "required",
    meaning: "Brokers of the cluster; the others are found through them.",
};

const TOPIC: DocumentedOption = DocumentedOption {
    name: "topic",
    values: "the name of a topic",
    default: "required",
    meaning: "The topic, which must exist.",
};

const FORMAT: DocumentedOption = DocumentedOption {
    name: "format",
    values: "`json`, `avro`, `protobuf`, `csv`",
    default: "`json`",
    meaning: "The format of a message's value: a JSON object whose keys are columns; a record of Avro \
        or a message of Protobuf whose fields are columns, with a schema of `schema_registry`; or a \
        line of CSV with a field for each column.",
};

const SCHEMA_REGISTRY: DocumentedOption = DocumentedOption {
    name: "schema_registry",
    values: "`http://host:port` or `https://host:port`, several separated by commas",
    default: "none; required for `avro` and `protobuf`",
    meaning: "The schema registry, with the REST interface of Confluent's.",
};

const SCHEMA_REGISTRY_CA: DocumentedOption = DocumentedOption {
    name: "schema_registry_ca",
    values: "a path",
    default: "none",
    meaning: "A PEM file with certificates that are trusted for the schema registry, beside those of \
        the system.",
};

const SCHEMA_REGISTRY_USERNAME: DocumentedOption = DocumentedOption {
    name: "schema_registry_username",
    values: "a string",
    default: "none: the client does not log in",
    meaning: "The user of the schema registry.",
};

const SCHEMA_REGISTRY_PASSWORD: DocumentedOption = DocumentedOption {
    name: "schema_registry_password",
    values: "a string",
    default: "none",
    meaning: "The user's password, stored and masked as `sasl_password`.",
};

const SUBJECT: DocumentedOption = DocumentedOption {
    name: "subject",
    values: "the name of a subject",
    default: "the topic's name and `-value`",
    meaning: "The subject of the schema registry with the schemas of the topic's values.",
};

const TLS: DocumentedOption = DocumentedOption {
    name: "tls",
    values: "`true`, `false`",
    default: "`false`; `true` with `tls_ca`",
    meaning: "Whether connections are encrypted.",
};

const TLS_CA: DocumentedOption = DocumentedOption {
    name: "tls_ca",
    values: "a path",
    default: "none",
    meaning: "A PEM file with the certificates that are trusted, instead of those of the system.",
};

const TLS_CERTIFICATE: DocumentedOption = DocumentedOption {
    name: "tls_certificate",
    values: "a path",
    default: "none",
    meaning: "A PEM file with the client's certificate; requires `tls_key`.",
};

const TLS_KEY: DocumentedOption = DocumentedOption {
    name: "tls_key",
    values: "a path",
    default: "none",
    meaning: "A PEM file with the key of the client's certificate.",
};

const SASL_MECHANISM: DocumentedOption = DocumentedOption {
    name: "sasl_mechanism",
    values: "`plain`, `scram-sha-256`, `scram-sha-512`",
    default: "`scram-sha-512` with `sasl_username`",
    meaning: "How the client logs in.",
};

const SASL_USERNAME: DocumentedOption = DocumentedOption {
    name: "sasl_username",
    values: "a string",
    default: "none: the client does not log in",
    meaning: "The user in Kafka.",
};

const SASL_PASSWORD: DocumentedOption = DocumentedOption {
    name: "sasl_password",
    values: "a string",
    default: "none",
    meaning: "The user's password. It is stored in the database's directory, and masked wherever \
        the statement is shown.",
};

const SOURCE_OPTIONS: &[DocumentedOption] = &[
    BROKERS,
    TOPIC,
    FORMAT,
    DocumentedOption {
        name: "start",
        values: "`earliest`, `latest`",
        default: "`earliest`",
        meaning: "Whether the messages are read that the topic has when the source is created.",
    },
    DocumentedOption {
        name: "on_error",
        values: "`stop`, `skip`, `skip into table_name`",
        default: "`stop`",
        meaning: "What happens to a message that is not a row of the table: the source fails, the \
            message is counted and left out, or it is appended to a table with its topic, \
            partition, offset, key, value and the reason. \
            The table is created if it does not exist.",
    },
    DocumentedOption {
        name: "on_lost",
        values: "`stop`, `skip`",
        default: "`stop`",
        meaning: "What happens when the topic has removed messages that were not read yet: the \
            source fails, or continues with the next message that the topic has.",
    },
    DocumentedOption {
        name: "unknown_columns",
        values: "`error`, `ignore`",
        default: "`error`",
        meaning: "Whether a key of JSON, or a field of Avro or Protobuf, that is not a column of the \
            table is an error of the message.",
    },
    DocumentedOption {
        name: "key_column",
        values: "a column of type STRING",
        default: "none",
        meaning: "The column that takes the message's key.",
    },
    DocumentedOption {
        name: "partition_column",
        values: "a column of type INT or BIGINT",
        default: "none",
        meaning: "The column that takes the message's partition.",
    },
    DocumentedOption {
        name: "offset_column",
        values: "a column of type BIGINT",
        default: "none",
        meaning: "The column that takes the message's offset.",
    },
    DocumentedOption {
        name: "time_column",
        values: "a column of type TIMESTAMP",
        default: "none",
        meaning: "The column that takes the message's time.",
    },
    DocumentedOption {
        name: "headers_column",
        values: "a column of type STRING",
        default: "none",
        meaning: "The column that takes the message's headers, as a JSON object.",
    },
    SCHEMA_REGISTRY,
    SCHEMA_REGISTRY_CA,
    SCHEMA_REGISTRY_USERNAME,
    SCHEMA_REGISTRY_PASSWORD,
    SUBJECT,
    TLS,
    TLS_CA,
    TLS_CERTIFICATE,
    TLS_KEY,
    SASL_MECHANISM,
    SASL_USERNAME,
    SASL_PASSWORD,
];

const SINK_OPTIONS: &[DocumentedOption] = &[
    BROKERS,
    TOPIC,
    DocumentedOption {
        name: "format",
        values: "`json`, `avro`, `protobuf`",
        default: "`json`",
        meaning: "The format of a message's value: a JSON object with the columns of the row, or a \
            record of Avro or a message of Protobuf, whose schema is registered in `schema_registry`.",
    },
    DocumentedOption {
        name: "start",
        values: "`earliest`, `latest`",
        default: "`earliest`",
        meaning: "Whether the rows are written that are stored when the sink is created.",
    },
    DocumentedOption {
        name: "key",
        values: "columns, separated by commas",
        default: "none",
        meaning: "The columns that make the message's key: the text of one, or a JSON array of \
            several. Messages with the same key are in the same partition, in the order of the rows.",
    },
    DocumentedOption {
        name: "delivery",
        values: "`exactly_once`, `at_least_once`",
        default: "`exactly_once`",
        meaning: "Whether messages are written in transactions, so that a consumer of committed \
            messages gets each row once. With `at_least_once`, the last rows before a crash may be \
            written twice.",
    },
    SCHEMA_REGISTRY,
    SCHEMA_REGISTRY_CA,
    SCHEMA_REGISTRY_USERNAME,
    SCHEMA_REGISTRY_PASSWORD,
    SUBJECT,
    TLS,
    TLS_CA,
    TLS_CERTIFICATE,
    TLS_KEY,
    SASL_MECHANISM,
    SASL_USERNAME,
    SASL_PASSWORD,
];

const CREATE_SOURCE: StatementRule = StatementRule {
    name: "CREATE SOURCE",
    description: "Creates a source: it reads the messages of a Kafka topic and appends each as a row \
        to a table, exactly once; see [Kafka](../guide/kafka.md). \
        The offsets are stored together with the rows, not in a consumer group. \
        A value is converted as in an append over HTTP, and a column that the message lacks takes \
        its default.",
    grammar: "CREATE SOURCE [ IF NOT EXISTS ] table_name INTO TABLE table_name FROM KAFKA\n\
        [ OPTIONS option_list ]",
    privileges: "`ADMIN`, since the server connects to the brokers.",
    options: &[OptionList { clause: "OPTIONS", others: "is an error", options: SOURCE_OPTIONS }],
    examples: &["CREATE SOURCE actions_in INTO TABLE actions FROM KAFKA\n\
         OPTIONS(brokers = 'broker:9092', topic = 'actions', on_error = 'skip into bad_rows')"],
};

const DROP_SOURCE: StatementRule = StatementRule {
    name: "DROP SOURCE",
    description: "Ends a source and removes it with its offsets. The rows that it has appended stay.",
    grammar: "DROP SOURCE [ IF EXISTS ] table_name",
    privileges: "`DROP` on the source.",
    options: &[],
    examples: &["DROP SOURCE actions_in"],
};

const ALTER_SOURCE: StatementRule = StatementRule {
    name: "ALTER SOURCE",
    description: "Changes options of a source, which continues behind the last message that it has \
        read. `topic`, `format`, `subject` and `start` cannot be changed.",
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
    description: "Continues a source that was stopped or has failed, behind the last message that it \
        has read.",
    grammar: "START SOURCE table_name",
    privileges: "`ALTER` on the source.",
    options: &[],
    examples: &["START SOURCE actions_in"],
};

pub(super) const SHOW_SOURCES: StatementRule = StatementRule {
    name: "SHOW SOURCES",
    description: "Lists the sources of the current database with their state, the numbers of messages \
        that they have read, that were not rows, and that are still to be read.",
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
    description: "Creates a sink: it writes the results of a stream, or the rows of a table, to a \
        Kafka topic as they are appended; see [Kafka](../guide/kafka.md). \
        Each message has the headers `lockstep-sink` and `lockstep-position`, which identify its \
        row. \
        Rows that expire or are deleted before they are written are kept for the sink, up to 256 MB.",
    grammar: "CREATE SINK [ IF NOT EXISTS ] table_name FROM ( STREAM | TABLE ) table_name INTO KAFKA\n\
        [ OPTIONS option_list ]",
    privileges: "`ADMIN`, since the server connects to the brokers.",
    options: &[OptionList { clause: "OPTIONS", others: "is an error", options: SINK_OPTIONS }],
    examples: &["CREATE SINK out FROM STREAM around INTO KAFKA\n\
         OPTIONS(brokers = 'broker:9092', topic = 'features', key = 'user')"],
};

const DROP_SINK: StatementRule = StatementRule {
    name: "DROP SINK",
    description: "Ends a sink and removes it. The messages that it has written stay.",
    grammar: "DROP SINK [ IF EXISTS ] table_name",
    privileges: "`DROP` on the sink.",
    options: &[],
    examples: &["DROP SINK out"],
};

const ALTER_SINK: StatementRule = StatementRule {
    name: "ALTER SINK",
    description: "Changes options of a sink, which continues behind the last row that it has \
        written. `topic`, `format`, `start`, `key` and `delivery` cannot be changed.",
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
    description: "Lists the sinks of the current database with their state, the number of messages that \
        they have written, and for how long the oldest row waits that is not written yet.",
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
