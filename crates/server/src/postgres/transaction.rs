//! Transaction blocks: what clients are told of them.
//!
//! Each statement commits by itself; ROLLBACK warns where statements before it stay done. READ ONLY is
//! kept, and so is SET LOCAL: its settings return to their values when the block ends.

use std::collections::BTreeMap;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_engine::{StatementEffect, guarded};

use super::{
    command::{
        ClientCommand, SettingScope, TransactionAccess, TransactionChain, TransactionCommand,
    },
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

/// What holds until the block of a session ends.
#[derive(Debug, Default)]
pub(crate) struct BlockSettings {
    is_read_only: bool,
    /// The values to which settings return that SET LOCAL has set, by name.
    values_before: BTreeMap<String, String>,
}

impl BlockSettings {
    /// Forgets the values to which settings return: RESET ALL has set them all.
    pub(crate) fn forget_values(&mut self) {
        self.values_before.clear();
    }
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
                Diagnostic::new(code::FAILED_TRANSACTION, message)
                    .with_hint("Use ROLLBACK to end the transaction block.")
                    .err()
            }
            _ => Ok(()),
        }
    }

    /// Begins or ends a block.
    pub(crate) fn change_transaction(
        &mut self,
        command: TransactionCommand,
    ) -> Result<StatementAnswer> {
        use TransactionCommand::{Begin, Commit, Rollback};
        let before = self.transaction;
        if let Commit(chain) | Rollback(chain) = command {
            if chain == TransactionChain::Chained && before == Transaction::Idle {
                let message =
                    format!("{} AND CHAIN can only be used in transaction blocks", command.tag());
                return Diagnostic::new(code::NO_ACTIVE_TRANSACTION, message)
                    .with_kind(Kind::FixRequest)
                    .err();
            }
            self.restore_settings()?;
        }
        let answer = self.changed_transaction(command);
        match command {
            Begin(access) if before == Transaction::Idle => {
                let is_read_only = access.map(|access| access == TransactionAccess::ReadOnly);
                self.block.is_read_only = is_read_only.unwrap_or_else(|| self.begins_read_only());
            }
            Begin(Some(access)) => {
                self.block.is_read_only = access == TransactionAccess::ReadOnly;
            }
            Commit(TransactionChain::Chained) | Rollback(TransactionChain::Chained) => {
                self.transaction = Transaction::Open { has_written: false };
            }
            _ => {}
        }
        Ok(answer)
    }

    /// Returns whether a transaction whose BEGIN does not say it is read only.
    pub(crate) fn begins_read_only(&self) -> bool {
        let default = self.settings.get("default_transaction_read_only");
        default.is_some_and(|(_, value)| value == "on")
    }

    /// Returns whether the next statement may write nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        match self.transaction {
            Transaction::Idle => self.begins_read_only(),
            Transaction::Open { .. } | Transaction::Failed { .. } => self.block.is_read_only,
        }
    }

    /// Sets whether the statements of the block, or of those to come, may write.
    pub(crate) fn set_access(
        &mut self,
        access: TransactionAccess,
        scope: SettingScope,
    ) -> Result<StatementAnswer> {
        let is_read_only = access == TransactionAccess::ReadOnly;
        let answer = StatementAnswer::done("SET");
        match scope {
            SettingScope::Session => {
                let value = if is_read_only { "on" } else { "off" };
                self.set("default_transaction_read_only", Some(value))?;
            }
            SettingScope::Local if self.transaction == Transaction::Idle => {
                return Ok(
                    answer.with_warning("SET TRANSACTION can only be used in transaction blocks")
                );
            }
            SettingScope::Local => self.block.is_read_only = is_read_only,
        }
        Ok(answer)
    }

    /// Sets a setting until the block ends. Outside of a block it has no effect.
    pub(crate) fn set_local(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        if self.transaction == Transaction::Idle {
            return Ok(());
        }
        let before = self.setting_value(name).map(|(_, value)| value);
        self.set(name, value)?;
        if let Some(before) = before {
            self.block.values_before.entry(name.to_ascii_lowercase()).or_insert(before);
        }
        Ok(())
    }

    /// Notes that a setting keeps its value when the block ends.
    pub(crate) fn keep_setting(&mut self, name: &str) {
        self.block.values_before.remove(&name.to_ascii_lowercase());
    }

    /// Gives the settings that SET LOCAL has set their values of before.
    fn restore_settings(&mut self) -> Result<()> {
        let values = std::mem::take(&mut self.block.values_before);
        values.iter().try_for_each(|(name, value)| self.set(name, Some(value)))
    }

    /// Fails where the transaction is read only and a statement of the engine writes.
    pub(crate) fn check_access(&self, sql: &str) -> Result<()> {
        if !self.is_read_only() {
            return Ok(());
        }
        let mut words = sql.split_ascii_whitespace();
        let verb = words.next().unwrap_or_default().to_ascii_uppercase();
        let is_of_session = match verb.as_str() {
            "USE" | "CALL" | "ESTIMATE" => true,
            "SET" => words.next().is_some_and(|word| {
                let word = word.to_ascii_lowercase();
                word != "global" && !word.starts_with("@@global")
            }),
            _ => false,
        };
        if is_of_session {
            return Ok(());
        }
        match guarded(|| self.session.statement_effect(sql))?.0 {
            StatementEffect::Query | StatementEffect::Reads | StatementEffect::Verifies => Ok(()),
            StatementEffect::Other => read_only(&verb),
        }
    }

    fn changed_transaction(&mut self, command: TransactionCommand) -> StatementAnswer {
        use TransactionCommand::{Begin, Commit, Release, Rollback, RollbackTo, Savepoint};
        let before = self.transaction;
        let answer = StatementAnswer::done(command.tag());
        match (command, before) {
            (Begin(_), Transaction::Idle) => {
                self.transaction = Transaction::Open { has_written: false };
                if std::mem::replace(&mut self.has_warned, true) {
                    return answer;
                }
                let text = "transactions are not supported: each statement commits on its own";
                let notice = Diagnostic::new(code::WARNING, text);
                StatementAnswer { notices: vec![(Severity::Notice, notice)], ..answer }
            }
            (Begin(_), _) => answer.with_warning("there is already a transaction in progress"),
            (Commit(_) | Rollback(_), Transaction::Idle) => {
                answer.with_warning("there is no transaction in progress")
            }
            (Commit(_), Transaction::Open { .. }) => {
                self.transaction = Transaction::Idle;
                answer
            }
            (
                Commit(_) | Rollback(_),
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

/// Makes the error for a statement that writes in a transaction that is read only.
pub(crate) fn read_only<T>(verb: &str) -> Result<T> {
    let message = format!("cannot execute {verb} in a read-only transaction");
    Diagnostic::new(code::READ_ONLY, message)
        .with_kind(Kind::FixRequest)
        .with_hint("Use BEGIN READ WRITE, or set default_transaction_read_only to off.")
        .err()
}

/// Warns where statements before a ROLLBACK stay done.
fn undone(answer: StatementAnswer, has_written: bool) -> StatementAnswer {
    if !has_written {
        return answer;
    }
    answer.with_warning(
        "the statements before ROLLBACK are not undone: each has committed on its own",
    )
}
