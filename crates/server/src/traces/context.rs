//! The header `traceparent` of W3C Trace Context: which trace a call is a part of.
//!
//! # Layout
//!
//! ```text
//! version "-" trace (32 digits) "-" span (16 digits) "-" flags (2 digits), of base 16 in lower case
//! ```
//!
//! Version `ff`, and a trace or a span of zeros, are not valid. A later version may have more behind.

use std::fmt;

/// The header, in lower case as HTTP/2 and gRPC have it.
pub(crate) const TRACE_PARENT: &str = "traceparent";

/// The flag of a trace that is kept.
const SAMPLED: u8 = 1;

/// The characters of the version that is written.
const LENGTH: usize = 55;

/// A trace and a span in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
    pub(crate) is_sampled: bool,
}

impl TraceContext {
    /// Makes a trace of its own.
    pub(crate) fn new() -> Self {
        Self { trace: lockstep_host::random::id(), span: new_span(), is_sampled: true }
    }

    /// Makes a span of the same trace.
    pub(crate) fn child(self) -> Self {
        Self { span: new_span(), ..self }
    }

    /// Reads the header; `None` where it is not as the standard says.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut parts = text.splitn(5, '-');
        let version = hexadecimal::<1>(parts.next()?)?;
        let trace = hexadecimal::<16>(parts.next()?)?;
        let span = hexadecimal::<8>(parts.next()?)?;
        let [flags] = hexadecimal::<1>(parts.next()?)?;
        let has_more = parts.next().is_some();
        let is_valid = version != [0xff] && trace != [0; 16] && span != [0; 8];
        let is_whole = version != [0] || (!has_more && text.len() == LENGTH);
        (is_valid && is_whole).then_some(Self { trace, span, is_sampled: flags & SAMPLED != 0 })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{:02x}", if self.is_sampled { SAMPLED } else { 0 })
    }
}

/// Makes the id of a span, which is not of zeros only.
fn new_span() -> [u8; 8] {
    let [first, ..] = *lockstep_host::random::id().as_chunks::<8>().0 else {
        unreachable!("16 bytes")
    };
    if first == [0; 8] { [1; 8] } else { first }
}

/// Reads so many bytes.
fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let is_usable = |digit: &u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit);
    if digits.len() != 2 * N || !digits.iter().all(is_usable) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{TRACE_PARENT, TraceContext};

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_header_is_read_and_written() {
        let read = TraceContext::read(EXAMPLE).unwrap();
        assert!(read.is_sampled);
        assert_eq!(read.to_string(), EXAMPLE);
        let child = read.child();
        assert_eq!(child.trace, read.trace);
        assert_ne!(child.span, read.span);
        assert!(!TraceContext::read(&EXAMPLE.replace("-01", "-00")).unwrap().is_sampled);
        assert!(TraceContext::read(&format!("cc{}-more", &EXAMPLE[2..])).is_some());
        assert_eq!(TraceContext::read(&TraceContext::new().to_string()).map(|_| ()), Some(()));
        assert_eq!(TRACE_PARENT.to_lowercase(), TRACE_PARENT);
    }

    #[test]
    fn what_is_not_as_the_standard_says_is_not_read() {
        for wrong in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::read(wrong), None, "{wrong}");
        }
    }
}
