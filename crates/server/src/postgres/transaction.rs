//! Transaction blocks: what clients are told of them.
//!
//! Each statement commits by itself; ROLLBACK warns where statements before it stay done.

use lockstep_diagnostic::{Diagnostic, Result, code};

use super::{
    command::{ClientCommand, TransactionCommand},
    connection::Connection,
    execution::StatementAnswer,
    response::Severity,
};

/// The transaction block of a session. Each statement commits by itself; the block is what clients are
/// told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transaction {
    Idle,
    /// Whether a statement has changed something since BEGIN.
    Open {
        has_written: bool,
    },
    Failed {
        has_written: bool,
    },
}

impl Transaction {
    /// Returns the byte that stands for it in messages.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::Open { .. } => b'T',
            Self::Failed { .. } => b'E',
        }
    }

    /// Notes that a statement has failed.
    pub(crate) fn fail(&mut self) {
        if let Self::Open { has_written } = *self {
            *self = Self::Failed { has_written };
        }
    }

    /// Notes that a statement has changed something.
    pub(crate) fn note_write(&mut self) {
        if let Self::Open { has_written } = self {
            *has_written = true;
        }
    }
}

impl Connection {
    /// Fails where a transaction block has failed and the statement does not end it.
    pub(crate) fn check_transaction(&self, command: &ClientCommand) -> Result<()> {
        match self.transaction {
            Transaction::Failed { .. } if !command.ends_failure() => {
                let message = "current transaction is aborted, commands ignored until end of \
                               transaction block";
                Diagnostic::new("25P02", message).with_hint("Send ROLLBACK.").err()
            }
            _ => Ok(()),
        }
    }

    /// Begins or ends a block.
    pub(crate) fn change_transaction(&mut self, command: TransactionCommand) -> StatementAnswer {
        use TransactionCommand::{Begin, Commit, Release, Rollback, RollbackTo, Savepoint};
        let before = self.transaction;
        let answer = StatementAnswer::done(command.tag());
        match (command, before) {
            (Begin, Transaction::Idle) => {
                self.transaction = Transaction::Open { has_written: false };
                if std::mem::replace(&mut self.has_warned, true) {
                    return answer;
                }
                let text = "each statement commits by itself, in a transaction block, too";
                let notice = Diagnostic::new(code::WARNING, text);
                StatementAnswer { notices: vec![(Severity::Notice, notice)], ..answer }
            }
            (Begin, _) => answer.with_warning("there is already a transaction in progress"),
            (Commit | Rollback, Transaction::Idle) => {
                answer.with_warning("there is no transaction in progress")
            }
            (Commit, Transaction::Open { .. }) => {
                self.transaction = Transaction::Idle;
                answer
            }
            (
                Commit | Rollback,
                Transaction::Open { has_written } | Transaction::Failed { has_written },
            ) => {
                self.transaction = Transaction::Idle;
                undone(StatementAnswer::done("ROLLBACK"), has_written)
            }
            (
                RollbackTo,
                Transaction::Open { has_written } | Transaction::Failed { has_written },
            ) => {
                self.transaction = Transaction::Open { has_written };
                undone(answer, has_written)
            }
            (Savepoint | Release | RollbackTo, _) => answer,
        }
    }
}

/// Warns where statements before a ROLLBACK stay done.
fn undone(answer: StatementAnswer, has_written: bool) -> StatementAnswer {
    if !has_written {
        return answer;
    }
    answer.with_warning("the statements before ROLLBACK stay done: each has committed by itself")
}
