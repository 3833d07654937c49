//! The messages of OTLP (OpenTelemetry's protocol, version 1), as far as traces of calls need them.
//!
//! Field numbers are those of `opentelemetry/proto/trace/v1/trace.proto` and
//! `opentelemetry/proto/collector/trace/v1/trace_service.proto`.

use prost::Message;

use super::{FinishedTrace, TraceValue};

/// The kind of the span of a call: SERVER.
const KIND_SERVER: i32 = 2;

/// The kind of the spans inside: INTERNAL.
const KIND_INTERNAL: i32 = 1;

/// The status of a call that has failed: ERROR.
const STATUS_ERROR: i32 = 2;

/// What is sent.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

/// The spans of a program.
#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<TraceResource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

/// A program.
#[derive(Clone, PartialEq, Message)]
struct TraceResource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

/// The spans of a part of a program.
#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
}

/// A span.
#[derive(Clone, PartialEq, Message)]
struct OtlpSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<SpanStatus>,
}

/// How what a span is about has ended.
#[derive(Clone, PartialEq, Message)]
struct SpanStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "OneValue", tags = "1, 3")]
    value: Option<OneValue>,
}

/// A text or a number.
#[derive(Clone, PartialEq, prost::Oneof)]
enum OneValue {
    /// `string_value`.
    #[prost(string, tag = "1")]
    Text(String),
    /// `int_value`.
    #[prost(int64, tag = "3")]
    Number(i64),
}

impl ExportRequest {
    /// Makes the message of calls. `epoch_ns` is when the monotonic clock was at zero, in nanoseconds
    /// since 1970.
    pub(super) fn of(calls: &[FinishedTrace], epoch_ns: u64) -> Self {
        let attributes = vec![
            attribute("service.name", OneValue::Text("lockstep".to_owned())),
            attribute("service.version", OneValue::Text(env!("CARGO_PKG_VERSION").to_owned())),
        ];
        let spans = calls.iter().flat_map(|call| spans_of(call, epoch_ns)).collect();
        let resource = Some(TraceResource { attributes });
        let scope_spans = vec![ScopeSpans { spans }];
        Self { resource_spans: vec![ResourceSpans { resource, scope_spans }] }
    }
}

fn attribute(key: &str, value: OneValue) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

/// Makes the span of a call and those of its phases.
fn spans_of(call: &FinishedTrace, epoch_ns: u64) -> Vec<OtlpSpan> {
    let attributes = call.attributes.iter().map(|(key, value)| match value {
        TraceValue::Text(text) => attribute(key, OneValue::Text(text.clone())),
        TraceValue::Number(number) => {
            attribute(key, OneValue::Number(i64::try_from(*number).unwrap_or(i64::MAX)))
        }
    });
    let whole = OtlpSpan {
        trace_id: call.context.trace.to_vec(),
        span_id: call.context.span.to_vec(),
        parent_span_id: call.parent.map(Vec::from).unwrap_or_default(),
        name: call.name.clone(),
        kind: KIND_SERVER,
        start_time_unix_nano: epoch_ns + call.begun_ns,
        end_time_unix_nano: epoch_ns + call.ended_ns,
        attributes: attributes.collect(),
        status: call.error.clone().map(|message| SpanStatus { message, code: STATUS_ERROR }),
    };
    let phases = call.phases.iter().map(|phase| OtlpSpan {
        trace_id: whole.trace_id.clone(),
        span_id: call.context.child().span.to_vec(),
        parent_span_id: whole.span_id.clone(),
        name: phase.name.to_owned(),
        kind: KIND_INTERNAL,
        start_time_unix_nano: epoch_ns + phase.begun_ns,
        end_time_unix_nano: epoch_ns + phase.ended_ns,
        ..OtlpSpan::default()
    });
    let phases: Vec<OtlpSpan> = phases.collect();
    std::iter::once(whole).chain(phases).collect()
}
