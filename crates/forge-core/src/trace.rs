//! Traces, as OpenTelemetry has them: identities that can only be built valid, spans, and how a collector is told of them
//! over HTTP (OTLP in its JSON form). Pure: who sends them, and when, is not decided here.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::digest::{Digest, hex};
use crate::name::clip;

/// Why a text is not the identity of a trace or a span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}: expected {digits} hexadecimal digits that are not all 0")]
pub struct TraceError {
    text: String,
    what: &'static str,
    digits: usize,
}

macro_rules! identity {
    ($(#[$doc:meta])* $type:ident, $what:literal, $digits:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub struct $type(String);

        impl $type {
            /// As text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = TraceError;
            fn from_str(text: &str) -> Result<Self, TraceError> {
                let hexadecimal = text.len() == $digits && text.bytes().all(|b| b.is_ascii_hexdigit());
                if !hexadecimal || text.bytes().all(|b| b == b'0') {
                    return Err(TraceError { text: clip(text), what: $what, digits: $digits });
                }
                Ok(Self(text.to_ascii_lowercase()))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

identity!(
    /// The identity of a trace.
    TraceId,
    "the id of a trace",
    32
);
identity!(
    /// The identity of a span.
    SpanId,
    "the id of a span",
    16
);

impl TraceId {
    /// From random bits; 0 is not one.
    pub fn from_bits(high: u64, low: u64) -> Self {
        Self(format!("{}{}", hex(&high.to_be_bytes()), hex(&low.max(1).to_be_bytes())))
    }
}

impl SpanId {
    /// From random bits; 0 is not one.
    pub fn from_bits(bits: u64) -> Self {
        Self(hex(&bits.max(1).to_be_bytes()))
    }

    /// The span of this name below this one: the same name, the same span.
    pub fn below(&self, name: &str) -> Self {
        Self(Digest::of(format!("{self}/{name}").as_bytes()).short(16).to_owned())
    }
}

/// How what a span is about ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanStatus {
    /// Well.
    Done,
    /// Not well, and why.
    Failed(String),
    /// Neither: it was not finished.
    Unfinished,
}

/// One span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its identity.
    pub id: SpanId,
    /// What it is a part of.
    pub parent: Option<SpanId>,
    /// What it is about.
    pub name: String,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// What else is known of it.
    pub attributes: Vec<(&'static str, String)>,
    /// How it ended.
    pub status: SpanStatus,
}

/// Spans of one trace, as a collector takes them at `/v1/traces`.
pub fn otlp(trace: &TraceId, resource: &[(&str, &str)], spans: &[Span]) -> Value {
    let resource: Vec<Value> = resource.iter().map(|(key, value)| attribute(key, value)).collect();
    let spans: Vec<Value> = spans.iter().map(|span| encoded(trace, span)).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "forge", "version": env!("CARGO_PKG_VERSION")}, "spans": spans}],
    }]})
}

fn encoded(trace: &TraceId, span: &Span) -> Value {
    // Of the kinds of a span this is `internal`; of statuses 1 is well and 2 an error.
    let status = match &span.status {
        SpanStatus::Done => json!({"code": 1}),
        SpanStatus::Failed(why) => json!({"code": 2, "message": why}),
        SpanStatus::Unfinished => json!({}),
    };
    let attributes: Vec<Value> = span.attributes.iter().map(|(key, value)| attribute(key, value)).collect();
    let mut encoded = json!({
        "traceId": trace, "spanId": span.id, "name": span.name, "kind": 1,
        // 64 bits are texts in the JSON of protocol buffers.
        "startTimeUnixNano": nanoseconds(span.started), "endTimeUnixNano": nanoseconds(span.ended.max(span.started)),
        "attributes": attributes, "status": status,
    });
    if let (Value::Object(fields), Some(parent)) = (&mut encoded, &span.parent) {
        fields.insert("parentSpanId".to_owned(), json!(parent));
    }
    encoded
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn nanoseconds(at: Timestamp) -> String {
    at.as_nanosecond().max(0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_have_their_length_and_are_not_zero() {
        let trace = "4BF92F3577B34DA6A3CE929D0E0E4736";
        assert_eq!(trace.parse::<TraceId>().unwrap().as_str(), trace.to_ascii_lowercase());
        assert!("00f067aa0ba902b7".parse::<SpanId>().is_ok());
        let (zeros, short) = ("0".repeat(32), "1".repeat(31));
        for bad in ["", "x", zeros.as_str(), short.as_str(), "4bf92f3577b34da6a3ce929d0e0e473g"] {
            assert!(bad.parse::<TraceId>().is_err(), "{bad}");
        }
        for made in [TraceId::from_bits(0, 0), TraceId::from_bits(u64::MAX, 7)] {
            assert_eq!(made.as_str().parse::<TraceId>().unwrap(), made);
        }
        let root = SpanId::from_bits(0);
        assert_eq!(root.as_str().parse::<SpanId>().unwrap(), root);
        let below = root.below("node a/b");
        assert_eq!((below.as_str().parse::<SpanId>().unwrap(), root.below("node a/b")), (below.clone(), below.clone()));
        assert_ne!(below, root.below("node a/c"));
    }

    #[test]
    fn a_collector_is_told_what_the_protocol_has() {
        let at = |second: i64| Timestamp::from_second(1_790_000_000 + second).unwrap();
        let (trace, root) = (TraceId::from_bits(1, 2), SpanId::from_bits(3));
        let span = Span {
            id: root.below("x"),
            parent: Some(root.clone()),
            name: "orchestration".to_owned(),
            started: at(0),
            ended: at(2),
            attributes: vec![("forge.phase", "orchestration".to_owned())],
            status: SpanStatus::Failed("a node failed".to_owned()),
        };
        let told = otlp(&trace, &[("service.name", "forge-executor")], std::slice::from_ref(&span));
        let scope = &told["resourceSpans"][0];
        assert_eq!(scope["resource"]["attributes"][0]["value"]["stringValue"], "forge-executor");
        let expected = json!({
            "traceId": "00000000000000010000000000000002", "spanId": root.below("x").as_str(), "name": "orchestration",
            "kind": 1, "startTimeUnixNano": "1790000000000000000", "endTimeUnixNano": "1790000002000000000",
            "attributes": [{"key": "forge.phase", "value": {"stringValue": "orchestration"}}],
            "status": {"code": 2, "message": "a node failed"}, "parentSpanId": "0000000000000003",
        });
        assert_eq!(scope["scopeSpans"][0]["spans"][0], expected);
        // A clock that went back does not make a span that ends before it began.
        let odd = Span { started: at(5), ended: at(1), parent: None, ..span };
        let told = otlp(&trace, &[], &[odd]);
        let odd = &told["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(odd["startTimeUnixNano"], "1790000005000000000");
        assert_eq!(odd["endTimeUnixNano"], "1790000005000000000");
        assert!(odd.get("parentSpanId").is_none());
    }
}
