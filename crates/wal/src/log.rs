//! The log in segments: appends, group commit, truncation.
//!
//! [`crate::recovery`] hands over where the log ends; from then on this file alone writes to it.
//!
//! # Locks
//!
//! - `tail` orders appends. Under it: a place, a position, the caller's turn, a copy into memory.
//!   Nothing that waits for the disk.
//! - `commit` elects who syncs ([`crate::commit`]). Its lock is not held during the sync; `tail` may
//!   be taken under it.
//! - `preparing` is held by who creates or removes segments, over calls to the disk. `tail` may be
//!   taken under it; it is taken under no other lock.
//!
//! # Life of a group
//!
//! 1. Its checksums are computed when it is made ([`Group`]).
//! 2. Under `tail`: if it does not fit into the segment, the segment is sealed and the next one, which
//!    is ready, begins; if that is not ready, `tail` is given up until it is. Nothing was written so
//!    far, so a refused group leaves nothing. The caller's turn comes; then the group is copied.
//! 3. Who waits for the disk becomes the leader if there is none: it syncs all segments that have
//!    changed and wakes the others. What is appended meanwhile is for the next leader.

use std::{
    collections::VecDeque,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use lockstep_host::{
    Clock, OwnerProcess, Threads, failpoint,
    file::{self, Disk},
    sync::Mutex,
};

use crate::{
    Durability, Entries, Error, Group, Log, LogId, Options, Reader, Recovered,
    background::{Background, Wake},
    bug::{self, Bug},
    close_mark,
    commit::GroupCommit,
    format::{
        BEGIN, MARK, RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEAL, SEGMENT_HEADER_BYTES,
        SEGMENT_OVERHEAD_BYTES,
    },
    recovery::{self, OpenedLog, refused},
    segment::{self, NotCreated, Segment},
};

/// A log in segments, in a directory of its own.
pub struct SegmentedLog {
    inner: Arc<LogCore>,
    /// Ends with the log, or when it is closed.
    background: Mutex<Option<Background>>,
}

/// What threads share.
pub(crate) struct LogCore {
    /// The process that writes. One that was forked from it shares the memory of the segments, and must
    /// neither write to it nor take a lock: the thread that held it may not be there.
    owner: OwnerProcess,
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    options: Options,
    log_id: LogId,
    tail: Mutex<Tail>,
    commit: GroupCommit<SyncTarget>,
    preparing: Mutex<()>,
    /// The position after the last one appended.
    end: AtomicU64,
    /// Everything before this position is on the disk.
    durable: AtomicU64,
    /// Whether the log was closed. Written under the lock of the tail.
    is_closed: AtomicBool,
    /// After how many milliseconds what nobody waits for is on the disk.
    durability_window_ms: AtomicU32,
    wake: Wake,
}

/// Where the next group goes.
struct Tail {
    /// The segments that have begun; the last one is written to.
    segments: VecDeque<Arc<Segment>>,
    /// The segment to go on in.
    next: Option<Arc<Segment>>,
    offset: u64,
    /// The position of the next row.
    position: u64,
    /// How far the log is durable, as the last record says.
    marked: u64,
    synced: SegmentOffset,
}

/// A segment's number and an offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SegmentOffset {
    number: u64,
    offset: u64,
}

/// Up to where the log is to be on the disk.
#[derive(Debug, Clone, Copy)]
enum SyncTarget {
    /// The position of a row: what writers wait for.
    Position(u64),
    /// An offset, also behind records that have no row.
    Offset(SegmentOffset),
}

impl SegmentedLog {
    /// Opens the log in `directory`, which exists, or creates one when it holds none. Gives every group
    /// to `visit` that reaches to `options.needed` or behind, in order. When it fails, what `visit`
    /// was given is not to be used.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        options: Options,
        visit: &mut dyn FnMut(Entries<'_>),
    ) -> Result<(Self, Recovered), Error> {
        let OpenedLog { segments, next, offset, recovered } =
            recovery::open(&*disk, directory, &options, visit)?;
        let (end, log_id) = (recovered.end, recovered.log_id);
        let (wake, woken) = Wake::new();
        let number = segments.back().expect("a log has a segment").header.number;
        let synced = SegmentOffset { number, offset };
        let mut tail = Tail { segments, next, offset, position: end, marked: 0, synced };
        tail.begin(end);
        let durability_window_ms = AtomicU32::new(options.durability_window_ms);
        let inner = Arc::new(LogCore {
            owner: OwnerProcess::current(),
            disk,
            directory: directory.to_owned(),
            options,
            log_id,
            tail: Mutex::new(tail),
            commit: GroupCommit::default(),
            preparing: Mutex::new(()),
            end: AtomicU64::new(end),
            durable: AtomicU64::new(end),
            is_closed: AtomicBool::new(false),
            durability_window_ms,
            wake,
        });
        let background = match inner.options.threads {
            Threads::System => {
                let started = Background::start(Arc::clone(&inner), woken);
                Some(started.map_err(|source| Error::Thread { source })?)
            }
            Threads::None => None,
        };
        Ok((Self { inner, background: Mutex::new(background) }, recovered))
    }

    /// Gives how many bytes of its segments are written, from the first one that is there on.
    pub fn written_bytes(&self) -> u64 {
        let tail = self.inner.tail.lock();
        let former = tail.segments.iter().rev().skip(1).map(|segment| segment.header.length);
        former.sum::<u64>() + tail.offset
    }

    /// Changes after how many milliseconds what nobody waits for is on the disk, counted from when the
    /// log was last synced for that.
    pub fn set_durability_window_ms(&self, window_ms: u32) {
        // Relaxed: the number itself is all that is shared.
        self.inner.durability_window_ms.store(window_ms, Ordering::Relaxed);
        self.inner.wake.now();
    }

    /// Does what the background thread does each time that the durability window ends.
    pub fn tick(&self) -> Result<(), Error> {
        self.inner.tick()
    }

    /// Syncs everything and says so in the log, so that the next one to open it knows that nothing
    /// may be missing. Nothing is appended from then on. A second call does nothing, nor does one in a
    /// process that was forked.
    pub fn close(&self) -> Result<(), Error> {
        if !self.inner.owner.is_current() {
            return Ok(());
        }
        drop(self.background.lock().take());
        {
            let _tail = self.inner.tail.lock();
            // Relaxed: read under the lock of the tail.
            if self.inner.is_closed.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
        }
        self.inner.sync()?;
        self.inner.mark()?;
        self.inner.sync()?;
        self.inner.note_closed();
        Ok(())
    }
}

impl Log for SegmentedLog {
    fn append(&self, group: &Group<'_>, turn: &mut dyn FnMut(u64)) -> Result<Range<u64>, Error> {
        self.inner.append(group, turn)
    }

    fn wait(&self, end: u64, durability: Durability) -> Result<(), Error> {
        assert!(end <= self.end(), "only what was appended can be waited for");
        match durability {
            // The mapping is the page cache: what was copied there survives the process.
            Durability::Memory | Durability::Os => Ok(()),
            Durability::Disk if bug::is_seeded(Bug::AcknowledgedBeforeSync) => Ok(()),
            Durability::Disk => self.inner.sync_until(SyncTarget::Position(end)),
        }
    }

    fn read(&self, from: u64) -> Result<Reader, Error> {
        self.inner.read(from)
    }

    fn truncate(&self, before: u64) -> Result<(), Error> {
        self.inner.truncate(before)
    }

    fn check(&self) -> Result<(), Error> {
        self.inner.check_running()
    }

    fn end(&self) -> u64 {
        // Acquire: pairs with the Release in append, so that what was appended can be read.
        self.inner.end.load(Ordering::Acquire)
    }

    fn durable_end(&self) -> u64 {
        // Acquire: pairs with the Release in sync_changed.
        self.inner.durable.load(Ordering::Acquire)
    }
}

impl LogCore {
    fn append(&self, group: &Group<'_>, turn: &mut dyn FnMut(u64)) -> Result<Range<u64>, Error> {
        self.check_owner()?;
        group.check()?;
        let mut tail = loop {
            let mut tail = self.tail.lock();
            self.check_running()?;
            // Relaxed: written under the lock of the tail.
            if self.is_closed.load(Ordering::Relaxed) {
                return Err(Error::Closed);
            }
            if self.make_space(&mut tail, group.bytes()) {
                break tail;
            }
            if bug::is_seeded(Bug::RefusedGroupCounted) {
                tail.position += group.rows();
            }
            drop(tail);
            self.prepare(group.bytes() + SEGMENT_OVERHEAD_BYTES)?;
        };
        let first = tail.position;
        // Before a byte is written: if the caller panics, the group is not there.
        turn(first);
        let before = tail.offset;
        let durable = self.durable_known(first);
        failpoint::reach("wal.before_copy");
        for (header, payload) in group.placed(first, durable) {
            tail.write(&header, payload);
        }
        failpoint::reach("wal.after_copy");
        tail.position = first + group.rows();
        let end = tail.position;
        // Release: pairs with the Acquire in `end`.
        self.end.store(end, Ordering::Release);
        let after = tail.offset;
        drop(tail);
        self.wake.after_append(before, after);
        Ok(first..end)
    }

    /// How far the log is durable, for a record at `position` to say.
    fn durable_known(&self, position: u64) -> u64 {
        if bug::is_seeded(Bug::DurableTooHigh) {
            return position;
        }
        // Acquire: pairs with the Release in sync_changed. The record is written after the sync ended.
        self.durable.load(Ordering::Acquire)
    }

    /// Makes sure that so many bytes fit into the segment that is written, and a seal behind them; goes
    /// on in the next one when it is ready. Whether there is space.
    fn make_space(&self, tail: &mut Tail, bytes: u64) -> bool {
        if tail.space() >= bytes {
            return true;
        }
        let is_enough =
            |next: &mut Arc<Segment>| next.header.length >= bytes + SEGMENT_OVERHEAD_BYTES;
        let Some(next) = tail.next.take_if(is_enough) else { return false };
        let position = tail.position;
        let durable = self.durable_known(position);
        tail.write_internal(SEAL, durable);
        tail.segments.push_back(next);
        tail.offset = SEGMENT_HEADER_BYTES as u64;
        tail.begin(durable);
        self.wake.now();
        true
    }

    /// Creates the segment that follows, of at least so many bytes, if there is none.
    fn prepare(&self, bytes: u64) -> Result<(), Error> {
        let _preparing = self.preparing.lock();
        let mut tail = self.tail.lock();
        if tail.next.as_ref().is_some_and(|next| next.header.length >= bytes) {
            return Ok(());
        }
        // Nobody goes on in it while its file is replaced.
        let smaller = tail.next.take();
        let number = tail.active().header.number + 1;
        drop(tail);
        self.check_running()?;
        let header = segment::header(
            self.log_id,
            number,
            bytes.next_multiple_of(8).max(self.options.segment_bytes()),
        );
        match Segment::create(&*self.disk, &self.directory, header, None) {
            Ok(segment) => {
                self.tail.lock().next = Some(Arc::new(segment));
                Ok(())
            }
            Err(NotCreated::Refused(error)) => {
                self.tail.lock().next = smaller;
                Err(refused(error))
            }
            Err(NotCreated::NotSynced(error)) => {
                self.stop(error);
                self.check_running()
            }
        }
    }

    /// Fails in a process that was forked from the one that opened the log.
    fn check_owner(&self) -> Result<(), Error> {
        if self.owner.is_current() {
            return Ok(());
        }
        Err(Error::Forked { process_id: self.owner.id() })
    }

    /// Fails when a sync failed.
    fn check_running(&self) -> Result<(), Error> {
        self.commit.check()
    }

    /// Accepts no write from now on.
    fn stop(&self, error: file::Error) {
        self.commit.stop(error);
    }

    /// Syncs, or waits for others who do, until the log is on the disk up to there.
    fn sync_until(&self, target: SyncTarget) -> Result<(), Error> {
        self.check_owner()?;
        let is_done = |target| match target {
            // Acquire: pairs with the Release in sync_changed.
            SyncTarget::Position(end) => self.durable.load(Ordering::Acquire) >= end,
            SyncTarget::Offset(place) => self.tail.lock().synced >= place,
        };
        self.commit.wait_until(self.clock(), target, &is_done, &|| self.sync_changed())
    }

    /// Syncs all segments that have changed since the last time.
    fn sync_changed(&self) -> Result<(), file::Error> {
        let tail = self.tail.lock();
        let (place, end) = (tail.place(), tail.position);
        let is_changed = |segment: &&Arc<Segment>| segment.header.number >= tail.synced.number;
        let changed: Vec<_> = tail.segments.iter().filter(is_changed).map(Arc::clone).collect();
        drop(tail);
        failpoint::reach("wal.before_sync");
        for segment in changed {
            let is_former = segment.header.number < place.number;
            if bug::is_seeded(Bug::SyncLeftOut)
                || (is_former && bug::is_seeded(Bug::FormerSegmentNotSynced))
            {
                continue;
            }
            match segment.file.sync_data() {
                Err(_) if bug::is_seeded(Bug::SyncRetried) => segment.file.sync_data()?,
                synced => synced?,
            }
        }
        failpoint::reach("wal.after_sync");
        self.tail.lock().synced = place;
        // Release: pairs with the Acquire in durable_known and durable_end.
        self.durable.store(end, Ordering::Release);
        Ok(())
    }

    /// Syncs everything that was appended before the call.
    fn sync(&self) -> Result<(), Error> {
        let place = self.tail.lock().place();
        self.sync_until(SyncTarget::Offset(place))
    }

    /// Says in the log how far it is durable, if no record does and there is space for one that does.
    fn mark(&self) -> Result<(), Error> {
        self.check_running()?;
        let mut tail = self.tail.lock();
        let durable = self.durable_known(tail.position);
        if tail.marked < durable && tail.space() >= RECORD_HEADER_BYTES as u64 {
            tail.write_internal(MARK, durable);
        }
        Ok(())
    }

    /// Notes beside the log where it ends, all of it being on the disk.
    fn note_closed(&self) {
        // Acquire: pairs with the Release in sync_changed.
        let end = self.durable.load(Ordering::Acquire);
        debug_assert_eq!(end, self.tail.lock().position, "nothing is appended any more");
        // Where it fails, as on a full disk, the mark before it is still true.
        let _noted = close_mark::write(&*self.disk, &self.directory, self.log_id, end);
    }

    /// Syncs what is not; or says in the log that everything is, once.
    pub(crate) fn tick(&self) -> Result<(), Error> {
        let tail = self.tail.lock();
        let (is_synced, has_next) = (tail.synced == tail.place(), tail.next.is_some());
        drop(tail);
        if is_synced {
            self.mark()?;
        }
        self.sync()?;
        if has_next { Ok(()) } else { self.prepare(0) }
    }

    /// Brings in the pages that will be written next, and creates the segment after them.
    pub(crate) fn look_ahead(&self, bytes: u64) {
        let tail = self.tail.lock();
        let (segment, place, synced) = (Arc::clone(tail.active()), tail.place(), tail.synced);
        let has_next = tail.next.is_some();
        drop(tail);
        if !has_next {
            // What fails here fails again where it is reported: in the append that needs it.
            let _refused = self.prepare(0);
        }
        // A log that is synced often gains nothing: a sync makes the pages unwritable again, and
        // writes those that were brought in although they are empty.
        let is_behind = place.number > synced.number || place.offset - synced.offset >= bytes;
        if is_behind {
            segment.prefault(place.offset, 2 * bytes);
        }
    }

    pub(crate) fn wake(&self) -> &Wake {
        &self.wake
    }

    pub(crate) fn threads(&self) -> Threads {
        self.options.threads
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.options.clock
    }

    pub(crate) fn durability_window_ms(&self) -> u32 {
        // Relaxed: the number itself is all that is shared.
        self.durability_window_ms.load(Ordering::Relaxed)
    }

    fn read(&self, from: u64) -> Result<Reader, Error> {
        self.check_owner()?;
        let tail = self.tail.lock();
        let (first, end) = (tail.first(), tail.position);
        if from < first || from > end {
            return Err(Error::NotHere { position: from, first, end });
        }
        let begins = |segment: &Arc<Segment>| segment.first().is_some_and(|first| first <= from);
        let skipped = tail.segments.partition_point(begins).saturating_sub(1);
        let segments = tail.segments.iter().skip(skipped).map(Arc::clone).collect();
        drop(tail);
        Ok(Reader::new(segments, self.directory.clone(), from..end))
    }

    fn truncate(&self, before: u64) -> Result<(), Error> {
        self.check_owner()?;
        // The next segment then says on the disk where it begins.
        self.sync()?;
        let _preparing = self.preparing.lock();
        loop {
            let tail = self.tail.lock();
            let ends = tail.segments.get(1).and_then(|second| second.first());
            let Some(_unneeded) = ends.filter(|end| *end <= before) else { return Ok(()) };
            let first = Arc::clone(&tail.segments[0]);
            drop(tail);
            failpoint::reach("wal.truncate");
            // The oldest one first, each by itself: a crash leaves no gap.
            match self.disk.remove(&first.path(&self.directory)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            }
            if let Err(error) = self.disk.sync_directory(&self.directory) {
                self.stop(error);
                return self.check_running();
            }
            self.tail.lock().segments.pop_front();
        }
    }
}

impl Tail {
    fn active(&self) -> &Arc<Segment> {
        self.segments.back().expect("a log has a segment")
    }

    fn place(&self) -> SegmentOffset {
        SegmentOffset { number: self.active().header.number, offset: self.offset }
    }

    fn first(&self) -> u64 {
        let first = self.segments.front().and_then(|segment| segment.first());
        first.expect("a segment that is written has begun")
    }

    /// Bytes that fit into the segment, beside its seal.
    fn space(&self) -> u64 {
        let length = self.active().header.length;
        length.saturating_sub(self.offset + RECORD_HEADER_BYTES as u64)
    }

    fn write(&mut self, header: &RecordHeader, payload: &[u8]) {
        self.offset = self.active().write(self.offset, header, payload);
        self.marked = header.durable;
    }

    fn write_internal(&mut self, kind: RecordKind, durable: u64) {
        let header = RecordHeader::internal(kind, self.position, durable);
        self.write(&header, &[]);
    }

    /// Lets the segment begin if nothing was written to it so far.
    fn begin(&mut self, durable: u64) {
        if self.offset == SEGMENT_HEADER_BYTES as u64 {
            self.active().set_first(self.position);
            self.write_internal(BEGIN, durable);
        }
    }
}

impl fmt::Debug for SegmentedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentedLog")
            .field("directory", &self.inner.directory)
            .field("end", &self.end())
            .field("durable_end", &self.durable_end())
            .finish_non_exhaustive()
    }
}
