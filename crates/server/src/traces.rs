//! Traces of calls for OpenTelemetry: which calls are traced, what is kept of one, and the way out.
//!
//! A call is traced where its client says so in `traceparent` (W3C Trace Context), and of the others a
//! part that the settings choose. What is kept goes into a bounded queue, from which `exporter` sends it
//! to a collector; where the queue is full it is dropped and counted. Where no collector is set there is
//! no [`Tracer`], and a call costs one comparison. Knows no protocol.

mod context;
mod exporter;
mod message;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use lockstep_host::{Clock, sync::Mutex};
use tokio::sync::mpsc;

pub(crate) use self::{
    context::{TRACE_PARENT, TraceContext},
    exporter::{TraceEndpoint, export},
};

/// Of so many calls the settings choose a number.
const SAMPLE_OF: u64 = 1_000_000;

/// The most attributes of a call: more are left out.
const ATTRIBUTES_MAX: usize = 16;

/// The most phases of a call: more are left out.
const PHASES_MAX: usize = 32;

/// A phase of a call, with when it began and ended on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TracePhase {
    pub(crate) name: &'static str,
    pub(crate) begun_ns: u64,
    pub(crate) ended_ns: u64,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TraceValue {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
}

/// What is kept of a call that has ended.
#[derive(Debug)]
pub(crate) struct FinishedTrace {
    pub(crate) context: TraceContext,
    /// The span that the client has named.
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) name: String,
    pub(crate) begun_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) phases: Vec<TracePhase>,
    pub(crate) attributes: Vec<(&'static str, TraceValue)>,
    /// Why the call has failed, where it has.
    pub(crate) error: Option<String>,
}

/// How many calls were sent to the collector, and how many were not.
#[derive(Debug, Default)]
pub(crate) struct TraceCounts {
    pub(crate) sent: AtomicU64,
    /// The queue was full.
    pub(crate) dropped: AtomicU64,
    /// The collector has not taken them.
    pub(crate) failed: AtomicU64,
}

impl TraceCounts {
    /// Adds calls. Relaxed: figures that publish nothing else.
    pub(crate) fn add(counter: &AtomicU64, calls: usize) {
        counter.fetch_add(u64::try_from(calls).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the counts with the names of their outcomes.
    pub(crate) fn named(&self) -> [(&'static str, u64); 3] {
        // Relaxed: as above.
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("sent", load(&self.sent)),
            ("dropped", load(&self.dropped)),
            ("failed", load(&self.failed)),
        ]
    }
}

/// Begins traces.
#[derive(Debug)]
pub(crate) struct Tracer {
    clock: Arc<dyn Clock>,
    /// Calls without a client's decision that are traced, of [`SAMPLE_OF`].
    sample: u64,
    /// Draws which calls those are.
    drawn: AtomicU64,
    queue: mpsc::Sender<FinishedTrace>,
    /// The other end, until the exporter takes it.
    receiver: Mutex<Option<mpsc::Receiver<FinishedTrace>>>,
    pub(crate) endpoint: TraceEndpoint,
    pub(crate) counts: Arc<TraceCounts>,
}

impl Tracer {
    /// Makes it for a collector.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        endpoint: TraceEndpoint,
        sample: u64,
        queue_calls: u64,
    ) -> Self {
        let (queue, receiver) = mpsc::channel(usize::try_from(queue_calls).unwrap_or(1).max(1));
        Self {
            clock,
            sample,
            drawn: AtomicU64::new(0),
            queue,
            receiver: Mutex::new(Some(receiver)),
            endpoint,
            counts: Arc::default(),
        }
    }

    /// Takes what the exporter reads from; once.
    pub(crate) fn take_receiver(&self) -> Option<mpsc::Receiver<FinishedTrace>> {
        self.receiver.lock().take()
    }

    /// Begins the trace of a call that shows this `traceparent`; `None` where it is not traced.
    pub(crate) fn begin(&self, shown: Option<&str>, begun_ns: u64) -> Option<Arc<CallTrace>> {
        let shown = shown.and_then(TraceContext::read);
        let is_wanted = shown.map_or_else(|| self.is_drawn(), |parent| parent.is_sampled);
        is_wanted.then(|| {
            Arc::new(CallTrace {
                context: shown.map_or_else(TraceContext::new, TraceContext::child),
                parent: shown.map(|parent| parent.span),
                begun_ns,
                collected: Mutex::default(),
                clock: Arc::clone(&self.clock),
                queue: self.queue.clone(),
                counts: Arc::clone(&self.counts),
            })
        })
    }

    /// Draws whether a call is traced: a mixed counter (`SplitMix64`), since random bytes of the system
    /// cost more than a call.
    fn is_drawn(&self) -> bool {
        if self.sample == 0 {
            return false;
        }
        // Relaxed: the number itself is all that is shared.
        let mut mixed = self.drawn.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % SAMPLE_OF < self.sample
    }
}

/// A call that is traced.
#[derive(Debug)]
pub(crate) struct CallTrace {
    context: TraceContext,
    parent: Option<[u8; 8]>,
    begun_ns: u64,
    collected: Mutex<CollectedTrace>,
    clock: Arc<dyn Clock>,
    queue: mpsc::Sender<FinishedTrace>,
    counts: Arc<TraceCounts>,
}

#[derive(Debug, Default)]
struct CollectedTrace {
    phases: Vec<TracePhase>,
    attributes: Vec<(&'static str, TraceValue)>,
}

impl CallTrace {
    /// Returns what the answer says: the trace, and the span of the call.
    pub(crate) fn header(&self) -> String {
        self.context.to_string()
    }

    /// Returns the time of the clock that phases are measured with.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    /// Keeps a phase.
    pub(crate) fn phase(&self, name: &'static str, begun_ns: u64, ended_ns: u64) {
        debug_assert!(begun_ns <= ended_ns, "a phase ends after it has begun");
        let phases = &mut self.collected.lock().phases;
        if phases.len() < PHASES_MAX {
            phases.push(TracePhase { name, begun_ns, ended_ns });
        }
    }

    /// Keeps a phase that ends now, and returns when that is.
    pub(crate) fn phase_since(&self, name: &'static str, begun_ns: u64) -> u64 {
        let now = self.now_ns();
        self.phase(name, begun_ns, now);
        now
    }

    /// Runs work that was submitted to a pool at some time: where the call is traced, keeps how long the
    /// work has waited for its thread, and how long it has run.
    pub(crate) fn run_submitted<T>(
        trace: Option<&Self>,
        submitted_ns: u64,
        work: impl FnOnce() -> T,
    ) -> T {
        let Some(trace) = trace else { return work() };
        let begun_ns = trace.phase_since("wait", submitted_ns);
        let done = work();
        trace.phase_since("execute", begun_ns);
        done
    }

    /// Keeps a text of the call.
    pub(crate) fn set_text(&self, key: &'static str, text: &str) {
        self.set(key, TraceValue::Text(text.to_owned()));
    }

    /// Keeps a number of the call.
    pub(crate) fn set_number(&self, key: &'static str, number: u64) {
        self.set(key, TraceValue::Number(number));
    }

    fn set(&self, key: &'static str, value: TraceValue) {
        let attributes = &mut self.collected.lock().attributes;
        if attributes.len() < ATTRIBUTES_MAX {
            attributes.push((key, value));
        }
    }

    /// Ends the trace, with why the call has failed if it has.
    pub(crate) fn finish(&self, name: String, error: Option<String>) {
        let CollectedTrace { phases, attributes } = std::mem::take(&mut *self.collected.lock());
        let finished = FinishedTrace {
            context: self.context,
            parent: self.parent,
            name,
            begun_ns: self.begun_ns,
            ended_ns: self.now_ns(),
            phases,
            attributes,
            error,
        };
        if self.queue.try_send(finished).is_err() {
            TraceCounts::add(&self.counts.dropped, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_host::ManualClock;

    use super::{TraceEndpoint, TraceValue, Tracer};

    fn tracer(sample: u64, queue: u64) -> Tracer {
        let endpoint = TraceEndpoint::read("http://localhost:1/x").unwrap();
        Tracer::new(Arc::new(ManualClock::new(0)), endpoint, sample, queue)
    }

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const NOT_SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    #[test]
    fn a_part_of_the_calls_is_traced_and_those_whose_client_says_so() {
        let share = |sample| {
            let tracer = tracer(sample, 1);
            (0..10_000).filter(|_| tracer.begin(None, 0).is_some()).count()
        };
        assert_eq!((share(0), share(1_000_000)), (0, 10_000));
        assert!((800..1_200).contains(&share(100_000)), "{}", share(100_000));
        assert!(tracer(0, 1).begin(Some(SAMPLED), 0).is_some());
        assert!(tracer(1_000_000, 1).begin(Some(NOT_SAMPLED), 0).is_none());
        assert!(tracer(1_000_000, 1).begin(Some("nonsense"), 0).is_some());
    }

    #[test]
    fn a_call_is_kept_until_the_queue_is_full() {
        let tracer = tracer(0, 1);
        let trace = tracer.begin(Some(SAMPLED), 5).unwrap();
        assert!(trace.header().starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
        assert_ne!(trace.header(), SAMPLED, "the span is the call's");
        trace.phase("read", 5, 7);
        trace.set_number("rows", 3);
        trace.finish("call".to_owned(), None);
        trace.finish("another".to_owned(), None);
        assert_eq!(tracer.counts.named(), [("sent", 0), ("dropped", 1), ("failed", 0)]);
        let mut receiver = tracer.take_receiver().unwrap();
        let kept = receiver.try_recv().unwrap();
        assert_eq!((kept.name.as_str(), kept.begun_ns, kept.phases.len()), ("call", 5, 1));
        assert_eq!(kept.attributes, [("rows", TraceValue::Number(3))]);
        assert_eq!(kept.parent, Some([0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]));
    }
}
