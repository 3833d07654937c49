//! Threads that insert rows into indexes while another one reads the log and the files.
//!
//! Who reads stores the rows, in their order, and each thread inserts a shard of their keys, of all
//! tables, in that order. Whoever changes more than rows, or reads rows, waits first until everything
//! before is done ([`RowWriters::finish_all`]).

use std::{
    num::NonZeroUsize,
    ops::Range,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use lockstep_host::{JoinHandle, QueryContext, Threads, sync::Mutex};
use lockstep_table::{
    InsertMemory, KeyShard, ReplayError, RowsToStore, StoredRows, Table, TableReplay,
};

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
pub(super) enum RowWork<'b> {
    /// Of the log.
    Logged(RowsToStore),
    /// A block of a file, and the arrivals that its rows have.
    Block(&'b [u8], Range<u64>),
}

/// What a thread is sent.
enum Message {
    Insert(Arc<Table>, StoredRows),
    /// Is answered when everything before is done.
    Report(SyncSender<()>),
}

/// The threads.
#[derive(Debug, Default)]
pub(super) struct RowWriters {
    threads: Vec<WriterThread>,
    /// Of the caller, where there are no threads.
    memory: InsertMemory,
}

#[derive(Debug)]
struct WriterThread {
    sender: SyncSender<Message>,
    /// Ends when the sender is dropped.
    _thread: JoinHandle<()>,
}

impl RowWriters {
    /// Starts a thread for each processor. Where the machine gives fewer, there are fewer shards, and
    /// where it gives none, the caller inserts the rows itself.
    pub(super) fn start(threads: Threads) -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut receivers = Vec::new();
        let started = (0..processors).map_while(|_| {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            // The number of shards is known when all threads have started.
            let (start, started) = sync_channel::<(KeyShard, Receiver<Message>)>(1);
            let body = move || {
                if let Ok((shard, receiver)) = started.recv() {
                    run(shard, &receiver);
                }
            };
            let thread = threads.spawn("lockstep-open", body).ok()?;
            receivers.push((start, receiver));
            Some(WriterThread { sender, _thread: thread })
        });
        let threads: Vec<_> = started.collect();
        let count = threads.len();
        for (number, (start, receiver)) in receivers.into_iter().enumerate() {
            let sent = start.send((KeyShard { number, count }, receiver));
            sent.expect("the thread waits for it");
        }
        Self { threads, memory: InsertMemory::default() }
    }

    /// Stores rows of a table, and inserts them into its indexes now or later: also what was stored of
    /// rows that are no such. Returns how many rows a block has.
    pub(super) fn store(
        &mut self,
        ReplayedTable { table, replay }: &ReplayedTable,
        work: RowWork<'_>,
    ) -> Result<u64, ReplayError> {
        debug_assert!(table.log_id().is_some(), "a table of the log has an id");
        let mut replay = replay.lock();
        let done = QueryContext::new().run(|| match work {
            RowWork::Logged(rows) => replay.store(table, rows).map(|()| 0),
            RowWork::Block(bytes, arrivals) => replay.block(table, bytes, &arrivals),
        });
        for stored in replay.take_stored() {
            for thread in &self.threads {
                let sent = thread.sender.send(Message::Insert(Arc::clone(table), stored));
                sent.expect("the thread ends after its sender");
            }
            if self.threads.is_empty() {
                table.insert_stored(stored, KeyShard::ALL, &mut self.memory);
            }
        }
        done
    }

    /// Waits until all rows are in the indexes.
    pub(super) fn finish_all(&self) {
        let reports = self.threads.iter().map(|thread| {
            let (answer, answered) = sync_channel(1);
            thread.sender.send(Message::Report(answer)).expect("the thread ends after its sender");
            answered
        });
        // Every thread is sent its message before the first answer is waited for.
        let answers: Vec<_> = reports.collect();
        for answer in answers {
            answer.recv().expect("the thread answers");
        }
    }
}

/// Inserts a shard of what is received.
fn run(shard: KeyShard, receiver: &Receiver<Message>) {
    let mut memory = InsertMemory::default();
    for message in receiver {
        match message {
            Message::Insert(table, stored) => {
                QueryContext::new().run(|| table.insert_stored(stored, shard, &mut memory));
            }
            Message::Report(answer) => {
                // The caller may have given up.
                let _sent = answer.send(());
            }
        }
    }
}
