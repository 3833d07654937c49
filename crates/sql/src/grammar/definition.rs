//! Databases, tables and indexes: CREATE, ALTER, DROP, USE.

use super::{
    DocumentedOption, OptionList, RuleChapter, SharedRule, StatementChapter, StatementRule,
};

/// The statements about databases.
pub(super) const DATABASES: StatementChapter =
    StatementChapter { title: "Databases", rules: &[&CREATE_DATABASE, &DROP_DATABASE, &USE] };

/// The statements about tables and their indexes.
pub(super) const TABLES: StatementChapter = StatementChapter {
    title: "Tables, views and indexes",
    rules: &[
        &CREATE_TABLE,
        &ALTER_TABLE,
        &CREATE_VIEW,
        &CREATE_EXTERNAL_TABLE,
        &DROP_VIEW,
        &DROP_TABLE,
        &CREATE_INDEX,
        &DROP_INDEX,
    ],
};

pub(super) const CREATE_DATABASE: StatementRule = StatementRule {
    name: "CREATE DATABASE",
    description: "Creates a database: a namespace for tables, views, deployments and procedures. \
        The database `default` always exists.",
    grammar: "CREATE DATABASE [ IF NOT EXISTS ] name",
    privileges: "`CREATE` on the database.",
    options: &[],
    examples: &["CREATE DATABASE shop", "CREATE DATABASE IF NOT EXISTS shop"],
};

pub(super) const DROP_DATABASE: StatementRule = StatementRule {
    name: "DROP DATABASE",
    description: "Removes a database. \
        The statement fails if the database contains tables, views, deployments or procedures.",
    grammar: "DROP DATABASE [ IF EXISTS ] name",
    privileges: "`DROP` on the database.",
    options: &[],
    examples: &["DROP DATABASE shop", "DROP DATABASE IF EXISTS shop"],
};

pub(super) const USE: StatementRule = StatementRule {
    name: "USE",
    description: "Sets the current database of the session, in which names without a database are \
        looked up.",
    grammar: "USE name",
    privileges: "Any privilege on the database or on an object in it.",
    options: &[],
    examples: &["USE shop"],
};

pub(super) const CREATE_TABLE: StatementRule = StatementRule {
    name: "CREATE TABLE",
    description: "Creates a table with the given columns, with the columns of a Parquet file, or \
        with the columns and rows of a query. \
        A table created from a query becomes visible together with its rows, also after a crash. \
        `OR REPLACE` replaces an existing table of this name, unless a deployment, a procedure or \
        a view reads it. \
        A `DEFAULT` must be a constant. \
        Columns can have any type except ARRAY. \
        A table can have at most 200 indexes; a table without indexes keeps all of its rows, and \
        deployments add the indexes that they read.",
    grammar: "CREATE ( OR REPLACE TABLE | TABLE [ IF NOT EXISTS ] ) table_name\n\
        ( \"(\" table_item { \",\" table_item } \")\" [ OPTIONS option_list ]\n\
        | LIKE PARQUET string [ OPTIONS option_list ]\n\
        | [ OPTIONS option_list ] AS query )",
    privileges: "`CREATE` on the table, and `DROP` with `OR REPLACE`; for a query, `SELECT` on \
        each table that it reads; for a file, a directory listed in the setting \
        `server.file_folders`.",
    options: &[
        OptionList {
            clause: "OPTIONS",
            others: "is ignored with a warning",
            options: TABLE_OPTIONS,
        },
        OptionList {
            clause: "INDEX",
            others: "is ignored; CREATE INDEX warns about it",
            options: INDEX_OPTIONS,
        },
    ],
    examples: &[
        "CREATE TABLE orders (\n  id BIGINT NOT NULL,\n  user STRING,\n  item STRING DEFAULT 'pen',\n  \
         price DOUBLE,\n  ts TIMESTAMP,\n  INDEX(KEY=user, TS=ts, TTL=90d)\n)",
        "CREATE TABLE IF NOT EXISTS shop.clicks (user STRING, ts TIMESTAMP, INDEX by_user (user) \
         OPTIONS(TS=ts, TTL=(30d, 100), TTL_TYPE=absorlat)) OPTIONS(durability = 'os')",
        "CREATE TABLE users (id BIGINT PRIMARY KEY, name STRING)",
        "CREATE TABLE copied LIKE PARQUET 'orders.parquet'",
        "CREATE OR REPLACE TABLE dear AS SELECT * FROM orders WHERE price > 100",
    ],
};

const TABLE_OPTIONS: &[DocumentedOption] = &[
    DocumentedOption {
        name: "durability",
        values: "`disk`, `os`, `memory`",
        default: "the setting `durability` of the session",
        meaning: "The durability that a write to the table must reach before it is acknowledged: \
            see [Durability](../durability.md).",
    },
    DocumentedOption {
        name: "partitionnum",
        values: "an integer, at least 1",
        default: "1",
        meaning: "An OpenMLDB cluster option: recorded, without effect.",
    },
    DocumentedOption {
        name: "replicanum",
        values: "an integer, at least 1",
        default: "1",
        meaning: "An OpenMLDB cluster option: recorded, without effect.",
    },
    DocumentedOption {
        name: "distribution",
        values: "`[('host:port', ['host:port', …]), …]`",
        default: "none",
        meaning: "An OpenMLDB cluster option: checked against the two options above, recorded, \
            without effect.",
    },
    DocumentedOption {
        name: "storage_mode",
        values: "`memory`, `disk`",
        default: "`memory`",
        meaning: "Where the rows are: see [Disk tables](../guide/disk-tables.md). OpenMLDB's `ssd` \
            and `hdd` mean `disk`.",
    },
    DocumentedOption {
        name: "compress_type",
        values: "`nocompress`, `snappy`",
        default: "`nocompress`",
        meaning: "An OpenMLDB option: recorded, without effect.",
    },
];

const INDEX_OPTIONS: &[DocumentedOption] = &[
    DocumentedOption {
        name: "key",
        values: "a column, or several columns in parentheses",
        default: "the first column whose type can be a key",
        meaning: "The entity key. \
            FLOAT, DOUBLE and MAP columns cannot be keys.",
    },
    DocumentedOption {
        name: "ckey",
        values: "same as for `key`",
        default: "none",
        meaning: "A synonym of `key`.",
    },
    DocumentedOption {
        name: "skey",
        values: "same as for `key`",
        default: "none",
        meaning: "A synonym of `key`.",
    },
    DocumentedOption {
        name: "ts",
        values: "a column",
        default: "none: the rows of a key are ordered by arrival",
        meaning: "The event time, a BIGINT or TIMESTAMP column.",
    },
    DocumentedOption {
        name: "ttl",
        values: "a duration up to 30 years, a number of rows up to 1000, or both: `(30d, 100)`",
        default: "none: all rows are kept",
        meaning: "The time for which rows are kept, or the number of newest rows that are kept of \
            each key: see [Retention](../guide/retention.md). \
            Seconds are rounded up to minutes; 0 means no limit.",
    },
    DocumentedOption {
        name: "ttl_type",
        values: "`absolute`, `latest`, `absorlat`, `absandlat`",
        default: "`absolute`",
        meaning: "Whether a row expires by its age, by the number of newer rows of its key, when \
            it exceeds either limit, or when it exceeds both.",
    },
    DocumentedOption {
        name: "version",
        values: "any",
        default: "none",
        meaning: "An OpenMLDB option, without effect.",
    },
    DocumentedOption {
        name: "type",
        values: "any",
        default: "none",
        meaning: "An OpenMLDB option, without effect.",
    },
];

pub(super) const ALTER_TABLE: StatementRule = StatementRule {
    name: "ALTER TABLE",
    description: "Adds, drops or renames columns; or links files to the offline data of a table, \
        which queries with `execute_mode = 'offline'` read, or removes such links; or sets the \
        option `storage_mode`. \
        Either all actions of the statement take effect or none. \
        Changing columns copies the rows in arrival order, and the copy replaces the table \
        atomically. \
        Meanwhile reads continue, writes wait, and both copies are in memory. \
        Existing rows get the DEFAULT of an added column, or NULL. \
        Deployments over the table continue with the same results; a column that a deployment \
        reads cannot be dropped or renamed. \
        Columns cannot be changed if a procedure, a view or a deployment that logs its answers \
        reads the table, if the column belongs to an index, if the table has offline data, or if \
        an index without `ts` keeps rows for a limited time.",
    grammar: "ALTER TABLE table_name ( column_action { \",\" column_action }\n\
        | offline_action { \",\" offline_action } | SET OPTIONS option_list )",
    privileges: "`ALTER` on the table; for an added path, a directory listed in the setting \
        `server.file_folders`.",
    options: &[],
    examples: &[
        "ALTER TABLE orders ADD COLUMN note STRING, DROP COLUMN item, RENAME COLUMN price TO amount",
        "ALTER TABLE orders ADD PRIMARY KEY (id)",
        "ALTER TABLE orders ADD COLUMN IF NOT EXISTS pieces INT NOT NULL DEFAULT 1",
        "ALTER TABLE orders SET OPTIONS(storage_mode = 'disk')",
        "ALTER TABLE orders ADD OFFLINE_PATH '/data/2024.parquet', DROP OFFLINE_PATH '/data/2023.parquet'",
    ],
};

pub(super) const CREATE_VIEW: StatementRule = StatementRule {
    name: "CREATE VIEW",
    description: "Creates a named query that FROM accepts like a table. \
        A view stores no rows. \
        Its query is bound each time the view is used, with the settings of the statement that \
        uses it; names are looked up in the database that was current at CREATE VIEW. \
        In a request, the request row is a row of the first table of the view. \
        Tables, views, streams, sources and sinks share one namespace. \
        A view can read files, which are opened when the view is used, not when the database is \
        opened. \
        It cannot contain parameters. \
        `OR REPLACE` fails if another object reads the view.",
    grammar: "CREATE [ OR REPLACE ] VIEW table_name AS query\n\
        | CREATE VIEW IF NOT EXISTS table_name AS query",
    privileges: "`CREATE` on the view, `DROP` with `OR REPLACE`, and `SELECT` on each table and \
        view that the query names. \
        A user with `SELECT` on the view needs no privilege on the objects that it reads. \
        Files must be in a directory listed in the setting `server.file_folders`, whichever user \
        reads them.",
    options: &[],
    examples: &[
        "CREATE VIEW dear AS SELECT user, price, ts FROM orders WHERE price > 100",
        "CREATE VIEW recent AS SELECT * FROM read_parquet('clicks/*/*.parquet') WHERE year >= 2024",
        "CREATE OR REPLACE VIEW shop.active AS SELECT user, max(ts) AS last FROM shop.clicks GROUP BY user",
    ],
};

pub(super) const CREATE_EXTERNAL_TABLE: StatementRule = StatementRule {
    name: "CREATE EXTERNAL TABLE",
    description: "Creates a name for files that FROM accepts like a table: `CREATE EXTERNAL TABLE \
        t STORED AS PARQUET LOCATION 'path'` is equivalent to `CREATE VIEW t AS SELECT * FROM \
        read_parquet('path')`, and behaves like a view over files. \
        Each format corresponds to a function: `PARQUET`, `CSV`, `JSON`, `ARROW`, `DELTA`, \
        `ICEBERG`. \
        The path can be a pattern. \
        The rows stay in the files, so requests cannot read them. \
        `SHOW VIEWS` lists external tables; `DROP TABLE` or `DROP VIEW` removes the name and \
        keeps the files.",
    grammar: "CREATE ( OR REPLACE EXTERNAL TABLE | EXTERNAL TABLE [ IF NOT EXISTS ] ) table_name\n\
        STORED AS ( PARQUET | CSV | JSON | ARROW | DELTA | ICEBERG )\n\
        ( [ OPTIONS option_list ] LOCATION string | LOCATION string OPTIONS option_list )",
    privileges: "`CREATE` on the table, and `DROP` with `OR REPLACE`. \
        Files must be in a directory listed in the setting `server.file_folders`, whichever user \
        reads them.",
    options: &[],
    examples: &[
        "CREATE EXTERNAL TABLE clicks STORED AS PARQUET LOCATION 's3://bucket/clicks/*/*.parquet'",
        "CREATE EXTERNAL TABLE prices STORED AS CSV LOCATION 'prices.csv' OPTIONS(delimiter = ';')",
    ],
};

pub(super) const DROP_VIEW: StatementRule = StatementRule {
    name: "DROP VIEW",
    description: "Removes a view. \
        The statement fails if a view, a deployment or a procedure reads it. \
        `CASCADE` also removes these objects, with a warning for each; `RESTRICT` is the default.",
    grammar: "DROP VIEW [ IF EXISTS ] table_name [ CASCADE | RESTRICT ]",
    privileges: "`DROP` on the view, and with `CASCADE` on every object that is removed.",
    options: &[],
    examples: &["DROP VIEW dear", "DROP VIEW IF EXISTS shop.active", "DROP VIEW dear CASCADE"],
};

pub(super) const DROP_TABLE: StatementRule = StatementRule {
    name: "DROP TABLE",
    description: "Removes tables with their rows and offline data. \
        External tables can be removed, too; their files are kept. \
        The statement fails, and removes nothing, if a deployment, a procedure or a view reads \
        one of the tables. \
        `CASCADE` also removes these objects, with a warning for each; `RESTRICT` is the default.",
    grammar: "DROP TABLE [ IF EXISTS ] table_name { \",\" table_name } [ CASCADE | RESTRICT ]",
    privileges: "`DROP` on each table, and with `CASCADE` on every object that is removed.",
    options: &[],
    examples: &[
        "DROP TABLE orders",
        "DROP TABLE IF EXISTS shop.clicks, shop.orders",
        "DROP TABLE orders CASCADE",
    ],
};

pub(super) const CREATE_INDEX: StatementRule = StatementRule {
    name: "CREATE INDEX",
    description: "Adds an index to a table and builds it from the stored rows. \
        The options are those of INDEX in [CREATE TABLE](#create-table), except the key. \
        The statement fails if the table has an index with the same key and event time.",
    grammar: "CREATE INDEX name ON table_name \"(\" name { \",\" name } \")\" [ OPTIONS option_list ]",
    privileges: "`INDEX` on the table.",
    options: &[],
    examples: &["CREATE INDEX by_item ON orders (item) OPTIONS(TS=ts, TTL=100, TTL_TYPE=latest)"],
};

pub(super) const DROP_INDEX: StatementRule = StatementRule {
    name: "DROP INDEX",
    description: "Removes an index that was declared by CREATE TABLE or CREATE INDEX. \
        An index that a deployment reads is kept for the deployment, without its name and its \
        retention. \
        A table without declared indexes keeps all of its rows.",
    grammar: "DROP INDEX [ name \".\" ] name \".\" name",
    privileges: "`INDEX` on the table.",
    options: &[],
    examples: &["DROP INDEX orders.by_item", "DROP INDEX shop.clicks.by_user"],
};

/// The rules of definitions.
pub(super) const RULES: RuleChapter = RuleChapter {
    title: "Rules of definitions",
    rules: &[
        SharedRule {
            name: "table_item",
            grammar: "column_definition [ PRIMARY KEY ] | index_definition | primary_key",
            note: "",
        },
        SharedRule {
            name: "column_definition",
            grammar: "name type ( [ [ NOT ] NULL ] [ DEFAULT expression ] | DEFAULT expression [ NOT ] NULL )",
            note: "",
        },
        SharedRule {
            name: "index_definition",
            grammar: "INDEX \"(\" option { \",\" option } \")\"\n\
                | INDEX name \"(\" name { \",\" name } \")\" [ OPTIONS option_list ]",
            note: "The second form specifies the name and the key outside the options. \
                An index without a name is named `index0`, `index1` and so on, by its position.",
        },
        SharedRule {
            name: "primary_key",
            grammar: "[ CONSTRAINT name ] PRIMARY KEY \"(\" name { \",\" name } \")\"",
            note: "The columns are NOT NULL. \
                The key is the index `INDEX primary_key (…) OPTIONS(TTL=1, TTL_TYPE=latest)`, \
                named after the constraint if it has a name. \
                Inserting a row whose key is already stored is not an error: the new row replaces \
                the stored row, unless another index keeps that row.",
        },
        SharedRule {
            name: "column_action",
            grammar: "ADD primary_key\n| ADD [ COLUMN ] [ IF NOT EXISTS ] column_definition\n\
                | DROP [ COLUMN ] [ IF EXISTS ] name\n\
                | RENAME [ COLUMN ] name TO name",
            note: "",
        },
        SharedRule {
            name: "offline_action",
            grammar: "( ADD | DROP ) OFFLINE_PATH string",
            note: "",
        },
        SharedRule {
            name: "parameter_list",
            grammar: "\"(\" [ parameter { \",\" parameter } ] \")\"",
            note: "",
        },
        SharedRule { name: "parameter", grammar: "[ CONST ] name type", note: "" },
    ],
};
