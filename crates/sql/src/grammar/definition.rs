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
    description: "Creates a database: a name space of tables, views, deployments and procedures. \
        `default` is one that is there from the start.",
    grammar: "CREATE DATABASE [ IF NOT EXISTS ] name",
    privileges: "`CREATE` on the database.",
    options: &[],
    examples: &["CREATE DATABASE shop", "CREATE DATABASE IF NOT EXISTS shop"],
};

pub(super) const DROP_DATABASE: StatementRule = StatementRule {
    name: "DROP DATABASE",
    description: "Removes a database. It is refused while the database has tables, views, \
        deployments or procedures.",
    grammar: "DROP DATABASE [ IF EXISTS ] name",
    privileges: "`DROP` on the database.",
    options: &[],
    examples: &["DROP DATABASE shop", "DROP DATABASE IF EXISTS shop"],
};

pub(super) const USE: StatementRule = StatementRule {
    name: "USE",
    description: "Makes a database the current one of the session: the one in which names without a \
        database are looked up.",
    grammar: "USE name",
    privileges: "Any privilege on the database or on something in it.",
    options: &[],
    examples: &["USE shop"],
};

pub(super) const CREATE_TABLE: StatementRule = StatementRule {
    name: "CREATE TABLE",
    description: "Creates a table with the given columns, with the columns of a Parquet file, or with \
        the columns and rows of a query. \
        Nobody sees a table of a query without its rows, also after a crash. \
        `OR REPLACE` puts the new table in the place of one of this name, which no deployment may read. \
        A `DEFAULT` is a constant. \
        Columns may have every type but ARRAY. \
        A table has at most 200 indexes; one that has none has all its rows, and deployments add the \
        indexes that they read.",
    grammar: "CREATE ( OR REPLACE TABLE | TABLE [ IF NOT EXISTS ] ) table_name\n\
        ( \"(\" table_item { \",\" table_item } \")\" [ OPTIONS option_list ]\n\
        | LIKE PARQUET string [ OPTIONS option_list ]\n\
        | [ OPTIONS option_list ] AS query )",
    privileges: "`CREATE` on the table, `DROP` too with `OR REPLACE`; for a query `SELECT` on each \
        table that it reads; for a file that the operator has listed its folder.",
    options: &[
        OptionList {
            clause: "OPTIONS",
            others: "is ignored with a warning",
            options: TABLE_OPTIONS,
        },
        OptionList {
            clause: "INDEX",
            others: "is ignored; CREATE INDEX warns of it",
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
        meaning: "What a write to the table waits for before it is acknowledged: see \
            [Durability](../durability.md).",
    },
    DocumentedOption {
        name: "partitionnum",
        values: "a whole number from 1",
        default: "1",
        meaning: "Of OpenMLDB's clusters: recorded, and without effect.",
    },
    DocumentedOption {
        name: "replicanum",
        values: "a whole number from 1",
        default: "1",
        meaning: "Of OpenMLDB's clusters: recorded, and without effect.",
    },
    DocumentedOption {
        name: "distribution",
        values: "`[('host:port', ['host:port', …]), …]`",
        default: "none",
        meaning: "Of OpenMLDB's clusters: checked against the two options above, recorded, and without \
            effect.",
    },
    DocumentedOption {
        name: "storage_mode",
        values: "`memory`, `hdd`, `ssd`",
        default: "`memory`",
        meaning: "Of OpenMLDB: recorded, and without effect.",
    },
    DocumentedOption {
        name: "compress_type",
        values: "`nocompress`, `snappy`",
        default: "`nocompress`",
        meaning: "Of OpenMLDB: recorded, and without effect.",
    },
];

const INDEX_OPTIONS: &[DocumentedOption] = &[
    DocumentedOption {
        name: "key",
        values: "a column, or several in parentheses",
        default: "the first column that can be a key",
        meaning: "The entity key. FLOAT, DOUBLE and MAP cannot be one.",
    },
    DocumentedOption {
        name: "ckey",
        values: "as `key`",
        default: "none",
        meaning: "Another spelling of `key`.",
    },
    DocumentedOption {
        name: "skey",
        values: "as `key`",
        default: "none",
        meaning: "Another spelling of `key`.",
    },
    DocumentedOption {
        name: "ts",
        values: "a column",
        default: "none: the rows of a key are in the order of their arrival",
        meaning: "The event time, a BIGINT or TIMESTAMP.",
    },
    DocumentedOption {
        name: "ttl",
        values: "a duration up to 30 years, a number of rows up to 1000, or both: `(30d, 100)`",
        default: "none: every row is kept",
        meaning: "For how long, or how many of the newest rows of a key, rows are kept: see \
            [Retention](../guide/retention.md). Seconds are rounded up to minutes; 0 is no limit.",
    },
    DocumentedOption {
        name: "ttl_type",
        values: "`absolute`, `latest`, `absorlat`, `absandlat`",
        default: "`absolute`",
        meaning: "What `ttl` limits: the age, the number, a row that is beyond either limit, or a row \
            that is beyond both.",
    },
    DocumentedOption {
        name: "version",
        values: "any",
        default: "none",
        meaning: "Of OpenMLDB: without effect.",
    },
    DocumentedOption {
        name: "type",
        values: "any",
        default: "none",
        meaning: "Of OpenMLDB: without effect.",
    },
];

pub(super) const ALTER_TABLE: StatementRule = StatementRule {
    name: "ALTER TABLE",
    description: "Adds, drops or renames columns; or links files to the offline data of a table, which \
        queries with `execute_mode = 'offline'` read, or removes the links. All actions are done, or none. \
        Changing columns copies the rows in their order of arrival, and the copy takes the name at once: \
        readers go on, writers wait, both are in memory meanwhile. \
        Rows have the DEFAULT of a column that is added, or NULL. \
        Deployments over the table go on with the same answers; columns that they read stay. \
        It is refused while a procedure or view reads the table, or a deployment that logs its answers, \
        for a column of an index, for \
        a table with offline data, and where an index without `ts` keeps rows for a time.",
    grammar: "ALTER TABLE table_name ( column_action { \",\" column_action }\n\
        | offline_action { \",\" offline_action } )",
    privileges: "`ALTER` on the table; for a path that is added that the operator has listed its folder.",
    options: &[],
    examples: &[
        "ALTER TABLE orders ADD COLUMN note STRING, DROP COLUMN item, RENAME COLUMN price TO amount",
        "ALTER TABLE orders ADD PRIMARY KEY (id)",
        "ALTER TABLE orders ADD COLUMN IF NOT EXISTS pieces INT NOT NULL DEFAULT 1",
        "ALTER TABLE orders ADD OFFLINE_PATH '/data/2024.parquet', DROP OFFLINE_PATH '/data/2023.parquet'",
    ],
};

pub(super) const CREATE_VIEW: StatementRule = StatementRule {
    name: "CREATE VIEW",
    description: "Gives a query a name, which FROM takes as it takes a table. \
        A view holds no rows: its query is bound where it is used, with the settings of the statement there \
        and its names looked up in the database that was the current one at CREATE VIEW. \
        In a request, the request row is a row of the table that the view begins with. \
        Tables and views share their names. A view may read files, which are opened where it is used, not \
        when the database is; it takes no parameters. `OR REPLACE` is refused while something reads the \
        view.",
    grammar: "CREATE [ OR REPLACE ] VIEW table_name AS query\n\
        | CREATE VIEW IF NOT EXISTS table_name AS query",
    privileges: "`CREATE` on the view, `DROP` too with `OR REPLACE`, and `SELECT` on each table and view \
        that the query names. Who may `SELECT` from the view needs nothing on what it reads. Files have to \
        be in a folder that the operator has listed, whoever reads them.",
    options: &[],
    examples: &[
        "CREATE VIEW dear AS SELECT user, price, ts FROM orders WHERE price > 100",
        "CREATE VIEW recent AS SELECT * FROM read_parquet('clicks/*/*.parquet') WHERE year >= 2024",
        "CREATE OR REPLACE VIEW shop.active AS SELECT user, max(ts) AS last FROM shop.clicks GROUP BY user",
    ],
};

pub(super) const CREATE_EXTERNAL_TABLE: StatementRule = StatementRule {
    name: "CREATE EXTERNAL TABLE",
    description: "Gives files a name, which FROM takes as it takes a table: \
        `CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 'path'` is \
        `CREATE VIEW t AS SELECT * FROM read_parquet('path')`, and what is said of views and of files in \
        `FROM` holds for it. The format is that of a function: `PARQUET`, `CSV`, `JSON`, `ARROW`, `DELTA`, \
        `ICEBERG`; the path may be a pattern. The rows stay in the files, so a request cannot read them. \
        `SHOW VIEWS` lists it, `DROP TABLE` or `DROP VIEW` removes it and leaves the files.",
    grammar: "CREATE ( OR REPLACE EXTERNAL TABLE | EXTERNAL TABLE [ IF NOT EXISTS ] ) table_name\n\
        STORED AS ( PARQUET | CSV | JSON | ARROW | DELTA | ICEBERG )\n\
        ( [ OPTIONS option_list ] LOCATION string | LOCATION string OPTIONS option_list )",
    privileges: "`CREATE` on the table, `DROP` too with `OR REPLACE`. Files have to be in a folder that the \
        operator has listed, whoever reads them.",
    options: &[],
    examples: &[
        "CREATE EXTERNAL TABLE clicks STORED AS PARQUET LOCATION 's3://bucket/clicks/*/*.parquet'",
        "CREATE EXTERNAL TABLE prices STORED AS CSV LOCATION 'prices.csv' OPTIONS(delimiter = ';')",
    ],
};

pub(super) const DROP_VIEW: StatementRule = StatementRule {
    name: "DROP VIEW",
    description: "Removes a view. It is refused while a view, a deployment or a procedure reads it. \
        `CASCADE` removes these, too, and names each in a warning; `RESTRICT` is the default.",
    grammar: "DROP VIEW [ IF EXISTS ] table_name [ CASCADE | RESTRICT ]",
    privileges: "`DROP` on the view, and with `CASCADE` on all that it removes.",
    options: &[],
    examples: &["DROP VIEW dear", "DROP VIEW IF EXISTS shop.active", "DROP VIEW dear CASCADE"],
};

pub(super) const DROP_TABLE: StatementRule = StatementRule {
    name: "DROP TABLE",
    description: "Removes tables with their rows and offline data, or external tables, whose files stay. \
        It is refused while a deployment, procedure or view reads one of the tables; all are checked \
        before the first is removed. `CASCADE` removes these, too, and names each in a warning; \
        `RESTRICT` is the default.",
    grammar: "DROP TABLE [ IF EXISTS ] table_name { \",\" table_name } [ CASCADE | RESTRICT ]",
    privileges: "`DROP` on each table, and with `CASCADE` on all that it removes.",
    options: &[],
    examples: &[
        "DROP TABLE orders",
        "DROP TABLE IF EXISTS shop.clicks, shop.orders",
        "DROP TABLE orders CASCADE",
    ],
};

pub(super) const CREATE_INDEX: StatementRule = StatementRule {
    name: "CREATE INDEX",
    description: "Adds an index to a table, and builds it over the rows that are there. \
        The options are those of INDEX in [CREATE TABLE](#create-table) but for the key. \
        An index with the same key and event time as another one is refused.",
    grammar: "CREATE INDEX name ON table_name \"(\" name { \",\" name } \")\" [ OPTIONS option_list ]",
    privileges: "`INDEX` on the table.",
    options: &[],
    examples: &["CREATE INDEX by_item ON orders (item) OPTIONS(TS=ts, TTL=100, TTL_TYPE=latest)"],
};

pub(super) const DROP_INDEX: StatementRule = StatementRule {
    name: "DROP INDEX",
    description: "Removes an index that CREATE TABLE or CREATE INDEX declared. \
        One that a deployment reads stays for it, without its name and its retention. \
        Without declared indexes a table keeps every row.",
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
            note: "The second form has the name and the key outside of the options. \
                An index without a name is called `index0`, `index1` and so on, by its position.",
        },
        SharedRule {
            name: "primary_key",
            grammar: "[ CONSTRAINT name ] PRIMARY KEY \"(\" name { \",\" name } \")\"",
            note: "Its columns are NOT NULL, and it is `INDEX primary_key (…) OPTIONS(TTL=1, TTL_TYPE=latest)`, \
                or has the name of the constraint: a row with the key of a stored row is no error but takes \
                the place of that row, if no other index keeps it.",
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
