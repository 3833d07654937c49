//! Threads that store rows while another one reads the log and the files.
//!
//! The work of one table is done by one thread, in its order. Whoever changes more than rows waits
//! first until everything before is done ([`RowWriters::finish_all`]).

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use lockstep_host::{JoinHandle, QueryContext, sync::Mutex};
use lockstep_table::{ReplayError, RowsToStore, Table, TableReplay};

/// How much work may wait for a thread.
const WAITING_MAX: usize = 32;

/// A table, and its replay.
#[derive(Debug, Clone)]
pub(super) struct ReplayedTable {
    pub(super) table: Arc<Table>,
    pub(super) replay: Arc<Mutex<TableReplay>>,
}

/// Rows to store.
#[derive(Debug)]
pub(super) enum RowWork {
    /// Of the log.
    Logged(RowsToStore),
    /// A block of a file.
    Block(Vec<u8>),
}

/// What a thread is sent.
enum Message {
    Store(ReplayedTable, RowWork),
    /// Answers with the failure, if there is one, when everything before is done.
    Report(SyncSender<Option<ReplayError>>),
}

/// The threads.
#[derive(Debug, Default)]
pub(super) struct RowWriters {
    threads: Vec<WriterThread>,
}

#[derive(Debug)]
struct WriterThread {
    sender: SyncSender<Message>,
    /// Ends when the sender is dropped.
    _thread: JoinHandle<()>,
}

impl RowWriters {
    /// Starts a thread for each processor but that of the reader, and one at least. Where the machine
    /// gives none, the caller stores the rows itself.
    pub(super) fn start() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = (0..(processors - 1).max(1)).map_while(|_| {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let started = lockstep_host::spawn("lockstep-open", move || run(&receiver));
            Some(WriterThread { sender, _thread: started.ok()? })
        });
        Self { threads: threads.collect() }
    }

    /// Stores rows of a table, now or later.
    pub(super) fn store(&self, table: &ReplayedTable, work: RowWork) -> Result<(), ReplayError> {
        debug_assert!(table.table.log_id().is_some(), "a table of the log has an id");
        let id = table.table.log_id().unwrap_or(0);
        let count = u64::try_from(self.threads.len()).unwrap_or(1);
        let at = id.checked_rem(count).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.threads.get(at)) {
            Some(thread) => {
                let sent = thread.sender.send(Message::Store(table.clone(), work));
                sent.expect("the thread ends after its sender");
                Ok(())
            }
            None => perform(table, work),
        }
    }

    /// Waits until everything is stored. Fails with what could not be.
    pub(super) fn finish_all(&self) -> Result<(), ReplayError> {
        let reports = self.threads.iter().map(|thread| {
            let (answer, answered) = sync_channel(1);
            thread.sender.send(Message::Report(answer)).expect("the thread ends after its sender");
            answered
        });
        // Every thread is sent its message before the first answer is waited for.
        let answers: Vec<_> = reports.collect();
        for answer in answers {
            if let Some(failure) = answer.recv().expect("the thread answers") {
                return Err(failure);
            }
        }
        Ok(())
    }
}

/// Stores what is received. After a failure it stores nothing more.
fn run(receiver: &Receiver<Message>) {
    let mut failure = None;
    for message in receiver {
        match message {
            Message::Store(table, work) if failure.is_none() => {
                failure = perform(&table, work).err();
            }
            Message::Store(..) => {}
            Message::Report(answer) => {
                // The caller may have given up.
                let _sent = answer.send(failure.clone());
            }
        }
    }
}

fn perform(
    ReplayedTable { table, replay }: &ReplayedTable,
    work: RowWork,
) -> Result<(), ReplayError> {
    QueryContext::new().run(|| {
        let mut replay = replay.lock();
        match work {
            RowWork::Logged(rows) => replay.store(table, rows),
            RowWork::Block(bytes) => replay.block(table, &bytes),
        }
    })
}
