//! The connections of a server: how many there are, and whether each of them moves.
//!
//! A connection holds a [`ConnectionPermit`], and reads and writes through a [`WatchedStream`], whose
//! [`Activity`] says since when the client neither sends nor reads, and since when it has not finished
//! what it began. Knows of protocols only the frames of HTTP/2 (`frames`).

mod frames;

use std::{
    collections::BTreeMap,
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use lockstep_host::{Clock, sync::Mutex};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use frames::{FrameReader, HttpFrameProgress};

/// The number of open connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCount {
    open: Arc<AtomicU64>,
}

impl ConnectionCount {
    /// Counts a connection, unless there are `max` already.
    pub(crate) fn admit(&self, max: u64) -> Option<ConnectionPermit> {
        // Relaxed: a counter that publishes nothing else.
        let add = |open| (open < max).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(ConnectionPermit(Arc::clone(&self.open)))
    }

    /// Returns how many are open.
    pub(crate) fn open(&self) -> u64 {
        // Relaxed: as above.
        self.open.load(Ordering::Relaxed)
    }
}

/// An open connection, which is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<AtomicU64>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // Relaxed: as above.
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a permit was counted");
    }
}

/// When a connection last moved, in nanoseconds of the monotonic clock.
#[derive(Debug)]
pub(crate) struct Activity {
    clock: Arc<dyn Clock>,
    /// When bytes were last read or written.
    moved_ns: AtomicU64,
    /// Since when a write waits for the client; 0: none does.
    write_waits_ns: AtomicU64,
    /// Since when the client has sent a part of a request without a call that began with it, or a part
    /// of a frame or of a stream's headers; 0: it has sent nothing since the last call, or nothing that
    /// is not complete.
    request_waits_ns: AtomicU64,
    /// Whether the client sends frames (HTTP/2), so that bytes without a call may be no request.
    has_frames: AtomicBool,
    /// Locked by the task of the connection only.
    frames: Mutex<FrameReader>,
    /// Calls that are being answered.
    calls: AtomicU64,
    /// Since when the client has taken nothing of each answer that it has not taken whole (HTTP/2).
    answers: Mutex<WaitingAnswers>,
}

/// The answers of a connection that are not taken whole, by number.
#[derive(Debug, Default)]
struct WaitingAnswers {
    next: u64,
    since_ns: BTreeMap<u64, u64>,
}

impl Activity {
    /// Makes the activity of a connection that was just accepted.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let moved_ns = AtomicU64::new(clock.monotonic_ns());
        Arc::new(Self {
            clock,
            moved_ns,
            write_waits_ns: AtomicU64::new(0),
            request_waits_ns: AtomicU64::new(0),
            has_frames: AtomicBool::new(false),
            frames: Mutex::new(FrameReader::new()),
            calls: AtomicU64::new(0),
            answers: Mutex::default(),
        })
    }

    /// Counts a call until the result is dropped.
    pub(crate) fn begin_call(self: &Arc<Self>) -> ActiveCall {
        // Relaxed, here and below: figures that publish nothing else.
        self.calls.fetch_add(1, Ordering::Relaxed);
        // A frame that is not complete is another's than this call's headers.
        if !self.has_frames.load(Ordering::Relaxed) {
            self.request_waits_ns.store(0, Ordering::Relaxed);
        }
        ActiveCall(Arc::clone(self))
    }

    /// Returns for how long nothing has moved and no call is being answered.
    pub(crate) fn idle_ms(&self) -> u64 {
        if self.calls.load(Ordering::Relaxed) > 0 {
            return 0;
        }
        self.since_ms(self.moved_ns.load(Ordering::Relaxed))
    }

    /// Returns for how long a write has waited for the client.
    pub(crate) fn write_waits_ms(&self) -> u64 {
        match self.write_waits_ns.load(Ordering::Relaxed) {
            0 => 0,
            since => self.since_ms(since),
        }
    }

    /// Counts the time of an answer that the client takes in parts, until the result is dropped.
    pub(crate) fn begin_answer(self: &Arc<Self>) -> WaitingAnswer {
        let now = self.clock.monotonic_ns();
        let mut answers = self.answers.lock();
        let number = answers.next;
        answers.next += 1;
        answers.since_ns.insert(number, now);
        WaitingAnswer { activity: Arc::clone(self), number }
    }

    /// Returns for how long the client has taken nothing of the answer that waits for longest.
    pub(crate) fn answer_waits_ms(&self) -> u64 {
        let oldest = self.answers.lock().since_ns.values().min().copied();
        oldest.map_or(0, |since| self.since_ms(since))
    }

    /// Returns whether a call is being answered, or a part of its answer is not written.
    pub(crate) fn is_busy(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed);
        let is_waiting = self.write_waits_ns.load(Ordering::Relaxed) > 0;
        calls > 0 || is_waiting || !self.answers.lock().since_ns.is_empty()
    }

    /// Returns for how long the client has been sending the headers of a request, or a frame.
    pub(crate) fn request_waits_ms(&self) -> u64 {
        match self.request_waits_ns.load(Ordering::Relaxed) {
            0 => 0,
            since => self.since_ms(since),
        }
    }

    fn note_read(&self, bytes: &[u8]) {
        self.note_moved();
        let is_part = match self.frames.lock().read(bytes) {
            HttpFrameProgress::NoFrames => {
                !bytes.is_empty() && self.calls.load(Ordering::Relaxed) == 0
            }
            progress => {
                let is_incomplete = progress == HttpFrameProgress::Incomplete;
                let is_first = !self.has_frames.swap(true, Ordering::Relaxed);
                if is_first || !is_incomplete {
                    self.request_waits_ns.store(0, Ordering::Relaxed);
                }
                is_incomplete
            }
        };
        if is_part {
            let now = self.clock.monotonic_ns().max(1);
            // The first part counts until the call begins, or the frame is complete.
            let _earlier = self.request_waits_ns.compare_exchange(
                0,
                now,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    fn since_ms(&self, ns: u64) -> u64 {
        self.clock.monotonic_ns().saturating_sub(ns) / 1_000_000
    }

    fn note_moved(&self) {
        self.moved_ns.store(self.clock.monotonic_ns(), Ordering::Relaxed);
    }

    fn note_written(&self, is_waiting: bool) {
        if is_waiting {
            let now = self.clock.monotonic_ns().max(1);
            // The first wait counts until a write succeeds.
            let _earlier =
                self.write_waits_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        } else {
            self.write_waits_ns.store(0, Ordering::Relaxed);
            self.note_moved();
        }
    }
}

/// A call that is being answered.
#[derive(Debug)]
pub(crate) struct ActiveCall(Arc<Activity>);

impl ActiveCall {
    /// Ends the call. Returns the activity of its connection.
    pub(crate) fn end(self) -> Arc<Activity> {
        Arc::clone(&self.0)
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.note_moved();
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer that the client takes in parts.
#[derive(Debug)]
pub(crate) struct WaitingAnswer {
    activity: Arc<Activity>,
    number: u64,
}

impl WaitingAnswer {
    /// Notes that the client takes a part.
    pub(crate) fn note_taken(&self) {
        let now = self.activity.clock.monotonic_ns();
        self.activity.answers.lock().since_ns.insert(self.number, now);
    }
}

impl Drop for WaitingAnswer {
    fn drop(&mut self) {
        let removed = self.activity.answers.lock().since_ns.remove(&self.number);
        debug_assert!(removed.is_some(), "an answer is counted once");
    }
}

/// A stream that notes its activity.
pub(crate) struct WatchedStream<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> fmt::Debug for WatchedStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedStream").field("activity", &self.activity).finish_non_exhaustive()
    }
}

impl<S> WatchedStream<S> {
    /// Watches a stream.
    pub(crate) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.activity.note_read(buffer.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.activity.note_written(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.activity.note_written(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_pending() {
            self.activity.note_written(true);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_host::ManualClock;

    use super::{Activity, ConnectionCount};

    #[test]
    fn connections_are_counted_up_to_the_limit() {
        let count = ConnectionCount::default();
        let first = count.admit(2).unwrap();
        let second = count.admit(2).unwrap();
        assert!(count.admit(2).is_none());
        drop(first);
        assert_eq!(count.open(), 1);
        assert!(count.admit(2).is_some());
        drop(second);
        assert_eq!(count.open(), 0);
    }

    #[test]
    fn a_connection_is_idle_without_calls_and_bytes() {
        let clock = Arc::new(ManualClock::new(0));
        clock.advance_ms(1_000);
        let activity = Activity::new(Arc::<ManualClock>::clone(&clock));
        clock.advance_ms(5);
        assert_eq!((activity.idle_ms(), activity.write_waits_ms()), (5, 0));
        let call = activity.begin_call();
        clock.advance_ms(5);
        assert_eq!(activity.idle_ms(), 0);
        drop(call);
        activity.note_written(true);
        clock.advance_ms(3);
        activity.note_written(true);
        assert_eq!((activity.idle_ms(), activity.write_waits_ms()), (3, 3));
        activity.note_written(false);
        assert_eq!((activity.idle_ms(), activity.write_waits_ms()), (0, 0));
    }

    #[test]
    fn the_headers_of_a_request_count_from_their_first_byte() {
        let clock = Arc::new(ManualClock::new(0));
        clock.advance_ms(1_000);
        let activity = Activity::new(Arc::<ManualClock>::clone(&clock));
        clock.advance_ms(5);
        assert_eq!(activity.request_waits_ms(), 0, "nothing was sent");
        activity.note_read(b"POST / HT");
        clock.advance_ms(5);
        activity.note_read(b"TP");
        clock.advance_ms(5);
        assert_eq!((activity.request_waits_ms(), activity.idle_ms()), (10, 5));
        let call = activity.begin_call();
        activity.note_read(b"a body");
        clock.advance_ms(5);
        assert!(activity.is_busy());
        drop(call);
        assert!(!activity.is_busy());
        assert_eq!(activity.request_waits_ms(), 0);
    }

    #[test]
    fn a_frame_counts_from_its_first_byte() {
        let clock = Arc::new(ManualClock::new(0));
        clock.advance_ms(1_000);
        let framed = Activity::new(Arc::<ManualClock>::clone(&clock));
        framed.note_read(b"PRI * HTTP/2.0");
        clock.advance_ms(5);
        assert_eq!(framed.request_waits_ms(), 5, "the preface is not complete");
        framed.note_read(b"\r\n\r\nSM\r\n\r\n");
        framed.note_read(&[0, 0, 0, 6, 0, 0, 0, 0, 0]);
        clock.advance_ms(5);
        assert_eq!(framed.request_waits_ms(), 0, "a frame without a payload is complete");
        // Headers that other frames are to go on with.
        framed.note_read(&[0, 0, 1, 1, 0, 0, 0, 0, 1, 0]);
        clock.advance_ms(5);
        let call = framed.begin_call();
        framed.note_read(&[0, 0, 0, 6, 0, 0, 0, 0, 0]);
        assert_eq!(framed.request_waits_ms(), 5);
        framed.note_read(&[0, 0, 0, 9, 4, 0, 0, 0, 1]);
        assert_eq!(framed.request_waits_ms(), 0);
        drop(call);
    }
}
