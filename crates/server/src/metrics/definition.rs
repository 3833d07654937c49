//! Every metric of a server, declared once: for `/metrics` and for the page of the manual.

use std::fmt::{Display, Write};

/// What the values of a metric are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// It only grows, from 0 at the start of the process.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Durations in seconds, counted by upper bounds.
    Histogram,
}

impl MetricKind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric, declared once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric {
    /// The name, whose end is the unit.
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    /// The names of its labels.
    pub(crate) labels: &'static [&'static str],
    /// What it counts; a sentence.
    pub(crate) help: &'static str,
}

pub(crate) const HTTP_RESPONSES: Metric = Metric {
    name: "lockstep_http_responses_total",
    kind: MetricKind::Counter,
    labels: &["status"],
    help: "HTTP responses by status class: `2xx`, `4xx` and so on.",
};

pub(crate) const HTTP_SECONDS: Metric = Metric {
    name: "lockstep_http_request_seconds",
    kind: MetricKind::Histogram,
    labels: &["protocol"],
    help: "Duration of HTTP calls, from the request headers to the response.",
};

pub(crate) const STATEMENT_SECONDS: Metric = Metric {
    name: "lockstep_postgres_statement_seconds",
    kind: MetricKind::Histogram,
    labels: &["protocol"],
    help: "Duration of statements over PostgreSQL's protocol.",
};

pub(crate) const STATEMENT_ERRORS: Metric = Metric {
    name: "lockstep_postgres_errors_total",
    kind: MetricKind::Counter,
    labels: &[],
    help: "Failed statements over PostgreSQL's protocol.",
};

pub(crate) const FLIGHT_CALLS: Metric = Metric {
    name: "lockstep_flight_calls_total",
    kind: MetricKind::Counter,
    labels: &["code"],
    help: "Flight calls by gRPC status code.",
};

pub(crate) const FLIGHT_SECONDS: Metric = Metric {
    name: "lockstep_flight_call_seconds",
    kind: MetricKind::Histogram,
    labels: &["protocol"],
    help: "Duration of Flight calls, from the request headers to the last row.",
};

pub(crate) const DEPLOYMENT_SECONDS: Metric = Metric {
    name: "lockstep_deployment_seconds",
    kind: MetricKind::Histogram,
    labels: &["deployment", "phase"],
    help: "Duration of each phase of a deployment call: `read`, `answer`, `write`.",
};

pub(crate) const DEPLOYMENT_ROWS: Metric = Metric {
    name: "lockstep_deployment_rows_total",
    kind: MetricKind::Counter,
    labels: &["deployment"],
    help: "Request rows answered by the deployment.",
};

pub(crate) const DEPLOYMENT_ERRORS: Metric = Metric {
    name: "lockstep_deployment_errors_total",
    kind: MetricKind::Counter,
    labels: &["deployment"],
    help: "Failed calls of the deployment.",
};

pub(crate) const CONNECTIONS_ACCEPTED: Metric = Metric {
    name: "lockstep_connections_total",
    kind: MetricKind::Counter,
    labels: &["protocol"],
    help: "Accepted connections.",
};

pub(crate) const CONNECTIONS_OPEN: Metric = Metric {
    name: "lockstep_connections",
    kind: MetricKind::Gauge,
    labels: &[],
    help: "Open connections.",
};

pub(crate) const CALLS_IN_PROGRESS: Metric = Metric {
    name: "lockstep_calls_in_progress",
    kind: MetricKind::Gauge,
    labels: &["class"],
    help: "Calls that are waiting for a thread pool or running in it.",
};

pub(crate) const REFUSED: Metric = Metric {
    name: "lockstep_refused_total",
    kind: MetricKind::Counter,
    labels: &["reason"],
    help: "Connections and calls rejected: `connections`, `overload`, `timeout`, `tls`, `login`.",
};

pub(crate) const TRACED_CALLS: Metric = Metric {
    name: "lockstep_traced_calls_total",
    kind: MetricKind::Counter,
    labels: &["outcome"],
    help: "Traced calls by outcome: sent, dropped (queue full), or failed (not accepted by the collector).",
};

pub(crate) const MEMORY: Metric = Metric {
    name: "lockstep_memory_bytes",
    kind: MetricKind::Gauge,
    labels: &[],
    help: "Memory used by all tables, in bytes.",
};

pub(crate) const MEMORY_LIMIT: Metric = Metric {
    name: "lockstep_memory_limit_bytes",
    kind: MetricKind::Gauge,
    labels: &[],
    help: "Maximum memory of all tables (`max_memory`), in bytes; absent if there is no limit.",
};

pub(crate) const MEMORY_REFUSED: Metric = Metric {
    name: "lockstep_memory_refused_total",
    kind: MetricKind::Counter,
    labels: &[],
    help: "Writes rejected because they would exceed the memory limit.",
};

pub(crate) const PAGE_CACHE_BYTES: Metric = Metric {
    name: "lockstep_page_cache_bytes",
    kind: MetricKind::Gauge,
    labels: &[],
    help: "Memory used by pages of disk tables, in bytes.",
};

pub(crate) const PAGE_CACHE_HITS: Metric = Metric {
    name: "lockstep_page_cache_hits_total",
    kind: MetricKind::Counter,
    labels: &[],
    help: "Pages of disk tables that were found in the page cache.",
};

pub(crate) const PAGE_CACHE_READS: Metric = Metric {
    name: "lockstep_page_cache_reads_total",
    kind: MetricKind::Counter,
    labels: &[],
    help: "Pages of disk tables that were read from files.",
};

pub(crate) const ROWS_TO_LOAD: Metric = Metric {
    name: "lockstep_rows_to_load",
    kind: MetricKind::Gauge,
    labels: &[],
    help: "Rows of memory tables that are still read from files after the directory was opened.",
};

pub(crate) const PRE_AGGREGATE_BYTES: Metric = Metric {
    name: "lockstep_pre_aggregate_bytes",
    kind: MetricKind::Gauge,
    labels: &[],
    help: "Memory used by pre-aggregates, in bytes.",
};

pub(crate) const ANSWERS_CHECKED: Metric = Metric {
    name: "lockstep_pre_aggregate_checked_total",
    kind: MetricKind::Counter,
    labels: &[],
    help: "Results recomputed from rows for comparison (`SET GLOBAL pre_aggregation_check`).",
};

pub(crate) const ANSWERS_DIFFERING: Metric = Metric {
    name: "lockstep_pre_aggregate_differences_total",
    kind: MetricKind::Counter,
    labels: &[],
    help: "Recomputed results that differed from the result with pre-aggregates.",
};

pub(crate) const TABLE_ROWS: Metric = Metric {
    name: "lockstep_table_rows",
    kind: MetricKind::Gauge,
    labels: &["table"],
    help: "Number of rows of each table.",
};

pub(crate) const TABLE_BYTES: Metric = Metric {
    name: "lockstep_table_bytes",
    kind: MetricKind::Gauge,
    labels: &["table"],
    help: "Memory used by each table with its indexes, in bytes.",
};

pub(crate) const INDEX_BYTES: Metric = Metric {
    name: "lockstep_index_bytes",
    kind: MetricKind::Gauge,
    labels: &["table", "index"],
    help: "Memory used by each index, in bytes.",
};

pub(crate) const STREAM_ROWS_READ: Metric = Metric {
    name: "lockstep_stream_rows_read_total",
    kind: MetricKind::Counter,
    labels: &["stream"],
    help: "Rows that each stream has read.",
};

pub(crate) const STREAM_ROWS_WRITTEN: Metric = Metric {
    name: "lockstep_stream_rows_written_total",
    kind: MetricKind::Counter,
    labels: &["stream"],
    help: "Results that each stream has written.",
};

pub(crate) const STREAM_ROWS_LATE: Metric = Metric {
    name: "lockstep_stream_rows_late_total",
    kind: MetricKind::Counter,
    labels: &["stream"],
    help: "Rows of each stream that were late.",
};

pub(crate) const STREAM_RUNNING: Metric = Metric {
    name: "lockstep_stream_running",
    kind: MetricKind::Gauge,
    labels: &["stream"],
    help: "1 for a stream that runs, 0 for one that is stopped, waits for memory or has failed.",
};

pub(crate) const STREAM_LAG: Metric = Metric {
    name: "lockstep_stream_lag_milliseconds",
    kind: MetricKind::Gauge,
    labels: &["stream"],
    help: "Newest event time of each stream less its watermark.",
};

pub(crate) const STREAM_BYTES: Metric = Metric {
    name: "lockstep_stream_bytes",
    kind: MetricKind::Gauge,
    labels: &["stream"],
    help: "Memory used by the rows of each stream, in bytes.",
};

pub(crate) const CONNECTOR_MESSAGES: Metric = Metric {
    name: "lockstep_connector_messages_total",
    kind: MetricKind::Counter,
    labels: &["kind", "name"],
    help: "Messages, or rows of files, that each source has read, or each sink has written.",
};

pub(crate) const SOURCE_BAD_MESSAGES: Metric = Metric {
    name: "lockstep_source_bad_messages_total",
    kind: MetricKind::Counter,
    labels: &["name"],
    help: "Messages, or rows of files, of each source that were not rows of its table.",
};

pub(crate) const SOURCE_LAG: Metric = Metric {
    name: "lockstep_source_lag_messages",
    kind: MetricKind::Gauge,
    labels: &["name"],
    help: "Messages, or files, that each source has not read yet.",
};

pub(crate) const SINK_LAG: Metric = Metric {
    name: "lockstep_sink_lag_milliseconds",
    kind: MetricKind::Gauge,
    labels: &["name"],
    help: "Time for which the oldest row waits that each sink has not written yet.",
};

pub(crate) const CONNECTOR_RUNNING: Metric = Metric {
    name: "lockstep_connector_running",
    kind: MetricKind::Gauge,
    labels: &["kind", "name"],
    help: "1 for a source or a sink that runs, 0 for one that is stopped, waits for the brokers or \
        has failed.",
};

/// Every metric, in the order of the page.
const METRICS: &[Metric] = &[
    HTTP_RESPONSES,
    HTTP_SECONDS,
    STATEMENT_SECONDS,
    STATEMENT_ERRORS,
    FLIGHT_CALLS,
    FLIGHT_SECONDS,
    DEPLOYMENT_SECONDS,
    DEPLOYMENT_ROWS,
    DEPLOYMENT_ERRORS,
    CONNECTIONS_ACCEPTED,
    CONNECTIONS_OPEN,
    CALLS_IN_PROGRESS,
    REFUSED,
    TRACED_CALLS,
    MEMORY,
    MEMORY_LIMIT,
    MEMORY_REFUSED,
    PAGE_CACHE_BYTES,
    PAGE_CACHE_HITS,
    PAGE_CACHE_READS,
    ROWS_TO_LOAD,
    PRE_AGGREGATE_BYTES,
    ANSWERS_CHECKED,
    ANSWERS_DIFFERING,
    TABLE_ROWS,
    TABLE_BYTES,
    INDEX_BYTES,
    STREAM_ROWS_READ,
    STREAM_ROWS_WRITTEN,
    STREAM_ROWS_LATE,
    STREAM_RUNNING,
    STREAM_LAG,
    STREAM_BYTES,
    CONNECTOR_MESSAGES,
    SOURCE_BAD_MESSAGES,
    SOURCE_LAG,
    SINK_LAG,
    CONNECTOR_RUNNING,
];

impl Metric {
    /// Writes the lines before its values.
    pub(crate) fn head(&self, text: &mut String) {
        let (name, kind) = (self.name, self.kind.name());
        // Writing to a string does not fail.
        let _written =
            write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n", self.help.replace('`', ""));
    }

    /// Writes a value, with the values of its labels.
    pub(crate) fn line(&self, text: &mut String, labels: &[&str], value: impl Display) {
        self.part(text, "", &self.label_text(labels), value);
    }

    /// Writes a value of a part of the metric: that of a bucket, the sum or the count.
    pub(crate) fn part(&self, text: &mut String, part: &str, labels: &str, value: impl Display) {
        let name = self.name;
        let _written = match labels {
            "" => writeln!(text, "{name}{part} {value}"),
            _ => writeln!(text, "{name}{part}{{{labels}}} {value}"),
        };
    }

    /// Writes its labels with these values, which may be anything.
    pub(crate) fn label_text(&self, values: &[&str]) -> String {
        assert_eq!(values.len(), self.labels.len(), "{} has these labels", self.name);
        let labels = self.labels.iter().zip(values).map(|(name, value)| {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{escaped}\"")
        });
        labels.collect::<Vec<_>>().join(",")
    }
}

/// Writes the page about metrics for the manual.
pub fn metrics_reference() -> String {
    let mut page = "# Metrics\n\n\
        <!-- Written by `cargo xtask reference` from the declarations in \
        crates/server/src/metrics/definition.rs. -->\n\n\
        `GET /metrics` of a [server](../server.md#monitoring) returns these metrics in Prometheus's text format, version 0.0.4.\n\
        Metrics of deployments, tables and indexes are limited to objects that the user may see.\n\
        A histogram has the series `_bucket` (with the label `le`, in seconds), `_sum` (in seconds) and `_count`.\n\
        Counters start at 0 when the process starts.\n\n\
        | metric | kind | labels | meaning |\n|---|---|---|---|\n"
        .to_owned();
    for Metric { name, kind, labels, help } in METRICS {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, labels) = (kind.name(), labels.join(", "));
        // Writing to a string does not fail.
        let _written = writeln!(page, "| `{name}` | {kind} | {labels} | {help} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{METRICS, MetricKind, TABLE_BYTES};

    #[test]
    fn a_name_says_its_kind_and_unit() {
        let names: HashSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len(), "each has its name");
        for metric in METRICS {
            let (name, is) = (metric.name, |kind| metric.kind == kind);
            assert!(name.starts_with("lockstep_"), "{name}");
            assert_eq!(name.ends_with("_total"), is(MetricKind::Counter), "{name}");
            assert_eq!(name.ends_with("_seconds"), is(MetricKind::Histogram), "{name}");
            assert!(metric.help.ends_with('.'), "{name}: {}", metric.help);
        }
    }

    #[test]
    fn the_value_of_a_label_may_be_anything() {
        assert_eq!(TABLE_BYTES.label_text(&["x\"\n\\"]), "table=\"x\\\"\\n\\\\\"");
        let mut text = String::new();
        TABLE_BYTES.head(&mut text);
        TABLE_BYTES.line(&mut text, &["t"], 7);
        assert!(
            text.ends_with(
                "# TYPE lockstep_table_bytes gauge\nlockstep_table_bytes{table=\"t\"} 7\n"
            )
        );
    }
}
