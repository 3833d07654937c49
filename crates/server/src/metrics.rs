//! Counters and histograms of a server, and their text form for Prometheus.
//!
//! Counting costs some relaxed additions. What the engine knows (rows and bytes of tables) is read
//! when somebody asks for it, by `http::health`. Knows no protocol.

pub(crate) mod definition;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_host::sync::RwLock;

use self::definition::Metric;
use crate::protocol::Protocol;

/// The upper bounds of a histogram's buckets, in microseconds.
const BOUNDS_US: [u64; 20] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct DurationHistogram {
    buckets: [AtomicU64; BOUNDS_US.len()],
    count: AtomicU64,
    sum_ns: AtomicU64,
}

impl DurationHistogram {
    /// Counts a duration.
    pub(crate) fn record(&self, ns: u64) {
        // Relaxed, here and below: figures that publish nothing else.
        if let Some(at) = BOUNDS_US.iter().position(|bound| ns <= bound * 1_000) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    fn write(&self, text: &mut String, metric: &Metric, labels: &[&str]) {
        let labels = metric.label_text(labels);
        let mut below = 0;
        for (bound, bucket) in BOUNDS_US.iter().zip(&self.buckets) {
            below += bucket.load(Ordering::Relaxed);
            let seconds = *bound as f64 / 1e6;
            metric.part(text, "_bucket", &format!("{labels},le=\"{seconds}\""), below);
        }
        let count = self.count.load(Ordering::Relaxed).max(below);
        metric.part(text, "_bucket", &format!("{labels},le=\"+Inf\""), count);
        let sum = self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
        metric.part(text, "_sum", &labels, sum);
        metric.part(text, "_count", &labels, count);
    }
}

/// The parts of a call of a deployment.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallPhase {
    /// Reading the rows from the body.
    Read,
    /// The engine's own time.
    Answer,
    /// Writing the answer.
    Write,
}

/// What is counted of one deployment.
#[derive(Debug, Default)]
pub(crate) struct DeploymentMetrics {
    phases: [DurationHistogram; 3],
    rows: AtomicU64,
    errors: AtomicU64,
}

impl DeploymentMetrics {
    /// Counts the time of a part of a call.
    pub(crate) fn record(&self, phase: CallPhase, ns: u64) {
        self.phases[phase as usize].record(ns);
    }

    /// Counts the rows of a call that was answered.
    pub(crate) fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Counts a call that failed.
    pub(crate) fn add_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }
}

/// Why a connection or a call was refused.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusal {
    /// There were as many connections as may be.
    Connections,
    /// The pool of the call's class was full.
    Overload,
    /// The client was too slow, or idle.
    Timeout,
    /// The TLS handshake failed.
    Tls,
    /// The client has not logged in.
    Login,
}

impl Refusal {
    const COUNT: usize = 5;
    const NAMES: [&'static str; Self::COUNT] =
        ["connections", "overload", "timeout", "tls", "login"];
}

/// The number of status codes of gRPC.
const GRPC_CODES: usize = 17;

/// The most deployments that are counted on their own.
const DEPLOYMENTS_MAX: usize = 1_000;

/// What is counted of a server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    deployments: RwLock<BTreeMap<String, Arc<DeploymentMetrics>>>,
    /// Responses by the first digit of their status.
    responses: [AtomicU64; 6],
    refused: [AtomicU64; Refusal::COUNT],
    calls: DurationHistogram,
    statements: DurationHistogram,
    statement_errors: AtomicU64,
    connections: [AtomicU64; Protocol::ALL.len()],
    /// Flight calls by their status code.
    flight_calls: [AtomicU64; GRPC_CODES],
    flight_seconds: DurationHistogram,
}

impl Metrics {
    /// Returns the counters of a deployment.
    pub(crate) fn deployment(&self, name: &str) -> Arc<DeploymentMetrics> {
        if let Some(found) = self.deployments.read().get(name) {
            return Arc::clone(found);
        }
        let mut deployments = self.deployments.write();
        let is_full = deployments.len() >= DEPLOYMENTS_MAX;
        let name = if is_full { "" } else { name };
        Arc::clone(deployments.entry(name.to_owned()).or_default())
    }

    /// Returns the counters of a deployment that was answered before.
    pub(crate) fn known_deployment(&self, name: &str) -> Option<Arc<DeploymentMetrics>> {
        self.deployments.read().get(name).map(Arc::clone)
    }

    /// Counts a response and how long it took.
    pub(crate) fn record_response(&self, status: u16, ns: u64) {
        let class = usize::from(status / 100).min(self.responses.len() - 1);
        self.responses[class].fetch_add(1, Ordering::Relaxed);
        self.calls.record(ns);
    }

    /// Counts a statement of PostgreSQL's protocol: how long it took, and whether it failed.
    pub(crate) fn record_statement(&self, ns: u64, has_failed: bool) {
        self.statements.record(ns);
        self.statement_errors.fetch_add(has_failed.into(), Ordering::Relaxed);
    }

    /// Counts a Flight call by its status code, and how long it took to the end of its results.
    pub(crate) fn record_flight_call(&self, code: u16, ns: u64) {
        let code = usize::from(code).min(GRPC_CODES - 1);
        self.flight_calls[code].fetch_add(1, Ordering::Relaxed);
        self.flight_seconds.record(ns);
    }

    /// Counts an accepted connection.
    pub(crate) fn add_connection(&self, protocol: Protocol) {
        self.connections[protocol as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal.
    pub(crate) fn add_refused(&self, reason: Refusal) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Writes everything in the text form of Prometheus; of deployments those that `is_visible`.
    pub(crate) fn write(&self, text: &mut String, is_visible: impl Fn(&str) -> bool) {
        definition::HTTP_RESPONSES.head(text);
        for (class, count) in self.responses.iter().enumerate().skip(1) {
            let count = count.load(Ordering::Relaxed);
            definition::HTTP_RESPONSES.line(text, &[&format!("{class}xx")], count);
        }
        definition::HTTP_SECONDS.head(text);
        self.calls.write(text, &definition::HTTP_SECONDS, &["http"]);
        definition::STATEMENT_SECONDS.head(text);
        self.statements.write(text, &definition::STATEMENT_SECONDS, &["postgresql"]);
        definition::STATEMENT_ERRORS.head(text);
        let errors = self.statement_errors.load(Ordering::Relaxed);
        definition::STATEMENT_ERRORS.line(text, &[], errors);
        definition::REFUSED.head(text);
        for (reason, count) in Refusal::NAMES.iter().zip(&self.refused) {
            definition::REFUSED.line(text, &[reason], count.load(Ordering::Relaxed));
        }
        definition::FLIGHT_CALLS.head(text);
        for (code, count) in self.flight_calls.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if code == 0 || count > 0 {
                definition::FLIGHT_CALLS.line(text, &[&code.to_string()], count);
            }
        }
        definition::FLIGHT_SECONDS.head(text);
        self.flight_seconds.write(text, &definition::FLIGHT_SECONDS, &["flight"]);
        definition::CONNECTIONS_ACCEPTED.head(text);
        for (protocol, count) in Protocol::ALL.iter().zip(&self.connections) {
            let count = count.load(Ordering::Relaxed);
            definition::CONNECTIONS_ACCEPTED.line(text, &[protocol.name()], count);
        }
        self.write_deployments(text, is_visible);
    }

    fn write_deployments(&self, text: &mut String, is_visible: impl Fn(&str) -> bool) {
        let all = self.deployments.read();
        let visible = all.iter().filter(|(name, _)| name.is_empty() || is_visible(name));
        let deployments: Vec<_> = visible.collect();
        definition::DEPLOYMENT_SECONDS.head(text);
        for (deployment, metrics) in &deployments {
            for (phase, histogram) in ["read", "answer", "write"].iter().zip(&metrics.phases) {
                histogram.write(text, &definition::DEPLOYMENT_SECONDS, &[deployment, phase]);
            }
        }
        definition::DEPLOYMENT_ROWS.head(text);
        for (deployment, metrics) in &deployments {
            let rows = metrics.rows.load(Ordering::Relaxed);
            definition::DEPLOYMENT_ROWS.line(text, &[deployment], rows);
        }
        definition::DEPLOYMENT_ERRORS.head(text);
        for (deployment, metrics) in &deployments {
            let errors = metrics.errors.load(Ordering::Relaxed);
            definition::DEPLOYMENT_ERRORS.line(text, &[deployment], errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CallPhase, DurationHistogram, Metrics, Refusal, definition::FLIGHT_SECONDS};
    use crate::protocol::Protocol;

    #[test]
    fn a_histogram_counts_what_is_below_each_bound() {
        let histogram = DurationHistogram::default();
        for ns in [1, 5_000, 5_001, 20_000_000_000] {
            histogram.record(ns);
        }
        let mut text = String::new();
        histogram.write(&mut text, &FLIGHT_SECONDS, &["b"]);
        assert!(
            text.contains(
                "lockstep_flight_call_seconds_bucket{protocol=\"b\",le=\"0.000005\"} 2\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("lockstep_flight_call_seconds_bucket{protocol=\"b\",le=\"0.00001\"} 3\n"),
            "{text}"
        );
        assert!(
            text.contains("lockstep_flight_call_seconds_bucket{protocol=\"b\",le=\"10\"} 3\n"),
            "{text}"
        );
        assert!(
            text.contains("lockstep_flight_call_seconds_bucket{protocol=\"b\",le=\"+Inf\"} 4\n"),
            "{text}"
        );
        assert!(text.contains("lockstep_flight_call_seconds_count{protocol=\"b\"} 4\n"), "{text}");
    }

    #[test]
    fn a_metric_has_its_labels() {
        let metrics = Metrics::default();
        metrics.deployment("d").record(CallPhase::Answer, 1);
        metrics.deployment("d").add_rows(3);
        metrics.deployment("d").add_error();
        metrics.record_response(429, 1);
        metrics.add_refused(Refusal::Overload);
        metrics.add_connection(Protocol::Http);
        metrics.record_flight_call(3, 1);
        metrics.record_statement(1, true);
        let mut text = String::new();
        metrics.deployment("hidden").add_rows(1);
        metrics.write(&mut text, |name| name == "d");
        assert!(!text.contains("hidden"), "{text}");
        for expected in [
            "lockstep_deployment_seconds_count{deployment=\"d\",phase=\"answer\"} 1\n",
            "lockstep_deployment_rows_total{deployment=\"d\"} 3\n",
            "lockstep_deployment_errors_total{deployment=\"d\"} 1\n",
            "lockstep_http_responses_total{status=\"4xx\"} 1\n",
            "lockstep_refused_total{reason=\"overload\"} 1\n",
            "lockstep_connections_total{protocol=\"http\"} 1\n",
            "lockstep_flight_calls_total{code=\"3\"} 1\n",
            "lockstep_connections_total{protocol=\"postgresql\"} 0\n",
            "lockstep_postgres_statement_seconds_count{protocol=\"postgresql\"} 1\n",
            "lockstep_postgres_errors_total 1\n",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }
}
