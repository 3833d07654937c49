//! The options of sources and sinks of Kafka.

use crate::grammar::DocumentedOption;

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

/// The options of a source.
pub(super) const OF_SOURCE: &[DocumentedOption] = &[
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
        name: "group",
        values: "a name",
        default: "none",
        meaning: "The group of processes that share the partitions of the topic \
            ([Kafka](../guide/kafka.md#several-processes)). Requires `partitioned_by`, \
            `partition_column` and `offset_column`.",
    },
    DocumentedOption {
        name: "partitioned_by",
        values: "names of columns",
        default: "none",
        meaning: "The columns by which the producers choose the partition, separated by commas.",
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

/// The options of a sink.
pub(super) const OF_SINK: &[DocumentedOption] = &[
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
