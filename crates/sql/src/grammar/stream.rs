//! Streams: queries that run.

use super::{DocumentedOption, OptionList, StatementChapter, StatementRule};
use crate::ast::StreamStatement;

/// The statements about streams.
pub(super) const STATEMENTS: StatementChapter = StatementChapter {
    title: "Streams",
    rules: &[
        &CREATE_STREAM,
        &DROP_STREAM,
        &ALTER_STREAM,
        &STOP_STREAM,
        &START_STREAM,
        &SUBSCRIBE,
        &EXPLAIN_STREAM,
        &SHOW_STREAMS,
        &SHOW_CREATE_STREAM,
    ],
};

/// Returns the rule of a statement about a stream.
pub(super) fn rule_of(statement: &StreamStatement) -> &'static StatementRule {
    match statement {
        StreamStatement::Create(_) => &CREATE_STREAM,
        StreamStatement::Drop { .. } => &DROP_STREAM,
        StreamStatement::Alter { .. } => &ALTER_STREAM,
        StreamStatement::Start(_) => &START_STREAM,
        StreamStatement::Stop(_) => &STOP_STREAM,
        StreamStatement::Subscribe { .. } => &SUBSCRIBE,
        StreamStatement::Explain(_) => &EXPLAIN_STREAM,
    }
}

const CREATE_STREAM: StatementRule = StatementRule {
    name: "CREATE STREAM",
    description: "Creates a query that runs until it is stopped: it follows the tables that it \
        reads, computes its windows over each row of the first table once no row in their frames \
        can still arrive in time, and appends the result to the table behind `INTO`. \
        Each row has one result, which is the result of batch mode over all rows that were not \
        late, bit for bit; see [Streams](../guide/streams.md). \
        The query has windows, LAST JOINs or both, over tables with their filters; all of them use \
        the same event time of the first table. `UNION` sources and the right tables of LAST JOINs \
        are other streams of rows. \
        The table is created with the columns of the query if it does not exist. \
        A table that a stream reads or writes to can be dropped only after the stream.",
    grammar: "CREATE STREAM [ IF NOT EXISTS ] table_name INTO TABLE table_name\n\
        [ OPTIONS option_list ] AS query",
    privileges: "`CREATE` on the stream, `INSERT` on the table behind `INTO` and on that of \
        `late_rows`, `CREATE` if they do not exist, and `SELECT` on each table that the query \
        reads.",
    options: &[OptionList { clause: "OPTIONS", others: "is an error", options: STREAM_OPTIONS }],
    examples: &["CREATE STREAM around INTO TABLE action_features OPTIONS(lateness = '10s') AS\n\
         SELECT user, ts, sum(price) OVER w AS spent, count(*) OVER w AS n FROM actions\n\
         WINDOW w AS (UNION orders PARTITION BY user ORDER BY ts\n\
         ROWS_RANGE BETWEEN 1s PRECEDING AND 1s FOLLOWING INSTANCE_NOT_IN_WINDOW)"],
};

const STREAM_OPTIONS: &[DocumentedOption] = &[
    DocumentedOption {
        name: "lateness",
        values: "a duration, or a number of milliseconds",
        default: "0",
        meaning: "How much later than the newest row of its table a row may arrive and still \
            count, in event time.",
    },
    DocumentedOption {
        name: "late_rows",
        values: "the name of a table",
        default: "none",
        meaning: "The table to which late rows are appended, with the stream, their table, their \
            event time, their arrival and their columns as JSON. \
            It is created if it does not exist. \
            Late rows are counted in any case.",
    },
    DocumentedOption {
        name: "idle_after",
        values: "a duration, or a number of milliseconds",
        default: "none",
        meaning: "The time without a new row after which a table no longer delays the results. \
            Otherwise the stream waits for each of its tables.",
    },
    DocumentedOption {
        name: "max_ahead",
        values: "a duration, or a number of milliseconds",
        default: "none",
        meaning: "How much later than its arrival the event time of a row may be. \
            A row with a later time, as of a wrong clock, is treated as late: otherwise it would \
            make all other rows late.",
    },
    DocumentedOption {
        name: "start",
        values: "`earliest`, `latest`",
        default: "`earliest`",
        meaning: "Whether the stream reads the rows that are stored when it is created.",
    },
    DocumentedOption {
        name: "joiners",
        values: "1 to 64",
        default: "1",
        meaning: "The number of threads that compute the windows and LAST JOINs. \
            With 1, the thread that reads the rows and appends the results computes them, too. \
            Not with `emit = 'arrival'` or tables that a source with a `group` writes to.",
    },
    DocumentedOption {
        name: "emit",
        values: "`watermark`, `arrival`",
        default: "`watermark`",
        meaning: "When results are appended: once they are final, or when the row arrives. \
            With `arrival`, the query is any that request mode answers, and the result is that of \
            `AS KNOWN AT ARRIVAL`: over the rows that arrived before it, without `FOLLOWING`.",
    },
];

const DROP_STREAM: StatementRule = StatementRule {
    name: "DROP STREAM",
    description: "Ends a stream and removes it. The rows that it has written stay.",
    grammar: "DROP STREAM [ IF EXISTS ] table_name",
    privileges: "`DROP` on the stream.",
    options: &[],
    examples: &["DROP STREAM around", "DROP STREAM IF EXISTS shop.around"],
};

const ALTER_STREAM: StatementRule = StatementRule {
    name: "ALTER STREAM",
    description: "Changes the options `lateness`, `idle_after`, `late_rows` and `joiners` of a stream, which \
        continues from its progress. \
        A longer lateness applies to later rows.",
    grammar: "ALTER STREAM table_name SET OPTIONS option_list",
    privileges: "`ALTER` on the stream; for `late_rows`, also `INSERT` on that table, and `CREATE` \
        if it does not exist.",
    options: &[],
    examples: &["ALTER STREAM around SET OPTIONS(lateness = '1m')"],
};

const STOP_STREAM: StatementRule = StatementRule {
    name: "STOP STREAM",
    description: "Stops a stream, which stays stopped when the database is opened again. \
        START STREAM continues it.",
    grammar: "STOP STREAM table_name",
    privileges: "`ALTER` on the stream.",
    options: &[],
    examples: &["STOP STREAM around"],
};

const START_STREAM: StatementRule = StatementRule {
    name: "START STREAM",
    description: "Continues a stream that was stopped or has failed from its progress: each row \
        still has one result.",
    grammar: "START STREAM table_name",
    privileges: "`ALTER` on the stream.",
    options: &[],
    examples: &["START STREAM around"],
};

const SUBSCRIBE: StatementRule = StatementRule {
    name: "SUBSCRIBE",
    description: "Returns the rows of a stream or of a table as they are appended, without an \
        end: with `subscribe` in Python, over Arrow Flight, as server-sent events over HTTP, and \
        over PostgreSQL's protocol, until the client cancels it. \
        Scripts and the shell cannot run it. \
        A client that reads too slowly gets an error if rows of more than 64 MB were removed \
        before it has read them.",
    grammar: "SUBSCRIBE TO table_name [ OPTIONS option_list ]",
    privileges: "`SELECT` on the stream or the table.",
    options: &[OptionList {
        clause: "OPTIONS",
        others: "is an error",
        options: &[DocumentedOption {
            name: "start",
            values: "`latest`, `earliest`, or a position",
            default: "`latest`",
            meaning: "The first row: the next one that is appended, the first one that is stored, \
                or the one behind a position that an earlier subscription returned.",
        }],
    }],
    examples: &["SUBSCRIBE TO around", "SUBSCRIBE TO shop.around OPTIONS(start = 'earliest')"],
};

const EXPLAIN_STREAM: StatementRule = StatementRule {
    name: "EXPLAIN STREAM",
    description: "Returns the tables that a stream reads, its LAST JOINs and its windows with the \
        time at which their results are final, and for each call whether its state slides from one row to the \
        next or is recomputed; with `emit='arrival'`, the program in request mode.",
    grammar: "EXPLAIN STREAM table_name",
    privileges: "Any privilege on the stream.",
    options: &[],
    examples: &["EXPLAIN STREAM around"],
};

pub(super) const SHOW_STREAMS: StatementRule = StatementRule {
    name: "SHOW STREAMS",
    description: "Lists the streams of the current database with their state, the rows that they \
        have read and written, late rows, the watermark, and the memory that they use.",
    grammar: "SHOW STREAMS",
    privileges: "None; the list contains the objects on which the user has a privilege.",
    options: &[],
    examples: &["SHOW STREAMS"],
};

pub(super) const SHOW_CREATE_STREAM: StatementRule = StatementRule {
    name: "SHOW CREATE STREAM",
    description: "Returns the statement that creates the stream, and the database that was \
        current when the stream was created.",
    grammar: "SHOW CREATE STREAM table_name",
    privileges: "Any privilege on the stream.",
    options: &[],
    examples: &["SHOW CREATE STREAM around"],
};
