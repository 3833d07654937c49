//! Settings, sessions, jobs, checkpoints and backups.

use super::{StatementChapter, StatementRule};

/// The statements about the session and others.
pub(super) const SESSION: StatementChapter =
    StatementChapter { title: "Settings and sessions", rules: &[&SET, &KILL, &EXIT] };

/// The statements about jobs.
pub(super) const JOBS: StatementChapter =
    StatementChapter { title: "Jobs", rules: &[&STOP_JOB, &DELETE_JOB] };

/// The statements about the directory of the database.
pub(super) const DIRECTORY: StatementChapter =
    StatementChapter { title: "Checkpoints and backups", rules: &[&CHECKPOINT, &BACKUP] };

pub(super) const SET: StatementRule = StatementRule {
    name: "SET",
    description: "Changes a setting of the session; with `GLOBAL` the value that new sessions begin \
        with, or a setting of the engine. \
        The settings are on the page [Settings](settings.md).",
    grammar: "SET [ GLOBAL | SESSION ] name ( \"=\" | TO ) option_value\n\
        | SET \"@@\" [ ( GLOBAL | SESSION ) \".\" ] name ( \"=\" | TO ) option_value",
    privileges: "None; with `GLOBAL` `ADMIN`.",
    options: &[],
    examples: &[
        "SET time_zone = 'Asia/Shanghai'",
        "SET GLOBAL max_memory = '8GB'",
        "SET @@execute_mode = 'offline'",
    ],
};

pub(super) const KILL: StatementRule = StatementRule {
    name: "KILL",
    description: "Cancels what a session runs, and ends the session; `KILL QUERY` lets the session go \
        on. \
        `SELECT id FROM lockstep.sessions` lists the sessions.",
    grammar: "KILL [ QUERY | CONNECTION ] whole_number",
    privileges: "None for a session of the user itself; else `ADMIN`.",
    options: &[],
    examples: &["KILL 42", "KILL QUERY 42"],
};

pub(super) const EXIT: StatementRule = StatementRule {
    name: "EXIT",
    description: "Does nothing; the shell ends at it.",
    grammar: "EXIT | QUIT",
    privileges: "",
    options: &[],
    examples: &["EXIT"],
};

pub(super) const STOP_JOB: StatementRule = StatementRule {
    name: "STOP JOB",
    description: "Cancels a job that runs, waits for its end, and returns the job. \
        Its statement fails with the error 57014 and has changed nothing; one that was just making \
        its change visible finishes. \
        A job that has ended is returned as it is.",
    grammar: "( STOP | CANCEL ) JOB job_id",
    privileges: "`ADMIN`; none for a job of the same user that runs.",
    options: &[],
    examples: &["STOP JOB 7", "CANCEL JOB 7"],
};

pub(super) const DELETE_JOB: StatementRule = StatementRule {
    name: "DELETE JOB",
    description: "Removes the record of a job that has ended.",
    grammar: "DELETE JOB job_id",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["DELETE JOB 7"],
};

pub(super) const CHECKPOINT: StatementRule = StatementRule {
    name: "CHECKPOINT",
    description: "Writes what the log holds into files, so that opening the directory takes less time: \
        see [Durability](../durability.md). \
        Requests and writes go on. \
        It returns the position in the log, and the rows and bytes that were written.",
    grammar: "CHECKPOINT",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["CHECKPOINT"],
};

pub(super) const BACKUP: StatementRule = StatementRule {
    name: "BACKUP",
    description: "Writes a copy of the database, as it is now, into a directory that does not exist or \
        is empty. \
        Requests and writes go on. \
        A database in memory has no backup.",
    grammar: "BACKUP TO string",
    privileges: "`ADMIN`, and that the operator has listed the folder.",
    options: &[],
    examples: &["BACKUP TO '/backups/monday.lockstep'"],
};
