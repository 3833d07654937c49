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
    description: "Changes a setting of the session. \
        `SET GLOBAL` changes the default for new sessions, or a setting of the engine. \
        The page [Settings](settings.md) lists the settings.",
    grammar: "SET [ GLOBAL | SESSION ] name ( \"=\" | TO ) option_value\n\
        | SET \"@@\" [ ( GLOBAL | SESSION ) \".\" ] name ( \"=\" | TO ) option_value",
    privileges: "None; `ADMIN` with `GLOBAL`.",
    options: &[],
    examples: &[
        "SET time_zone = 'Asia/Shanghai'",
        "SET GLOBAL max_memory = '8GB'",
        "SET @@execute_mode = 'offline'",
    ],
};

pub(super) const KILL: StatementRule = StatementRule {
    name: "KILL",
    description: "Cancels the running statement of a session and ends the session; `KILL QUERY` \
        cancels only the statement. \
        `SELECT id FROM lockstep.sessions` lists the sessions.",
    grammar: "KILL [ QUERY | CONNECTION ] whole_number",
    privileges: "None for a session of the same user; otherwise `ADMIN`.",
    options: &[],
    examples: &["KILL 42", "KILL QUERY 42"],
};

pub(super) const EXIT: StatementRule = StatementRule {
    name: "EXIT",
    description: "Ends the shell; elsewhere the statement has no effect.",
    grammar: "EXIT | QUIT",
    privileges: "",
    options: &[],
    examples: &["EXIT"],
};

pub(super) const STOP_JOB: StatementRule = StatementRule {
    name: "STOP JOB",
    description: "Cancels a running job, waits until it has ended, and returns the job. \
        The statement of the job fails with error 57014 and changes nothing, unless its change is \
        already becoming visible: it then completes. \
        A job that has already ended is returned unchanged.",
    grammar: "( STOP | CANCEL ) JOB job_id",
    privileges: "`ADMIN`; none for a running job of the same user.",
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
    description: "Writes the contents of the log to files, so that the directory opens faster: \
        see [Durability](../durability.md). \
        Requests and writes continue. \
        Returns the position in the log, and the number of rows and bytes written.",
    grammar: "CHECKPOINT",
    privileges: "`ADMIN`.",
    options: &[],
    examples: &["CHECKPOINT"],
};

pub(super) const BACKUP: StatementRule = StatementRule {
    name: "BACKUP",
    description: "Writes a copy of the database in its current state to a directory that does not \
        exist or is empty. \
        Requests and writes continue. \
        A database in memory cannot be backed up.",
    grammar: "BACKUP TO string",
    privileges: "`ADMIN`, and a directory listed in the setting `server.file_folders`.",
    options: &[],
    examples: &["BACKUP TO '/backups/monday.lockstep'"],
};
